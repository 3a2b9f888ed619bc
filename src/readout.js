#!/usr/bin/env node
// Starts `main.ts`. It is JavaScript because the compile cache must be enabled before Node reads the first TypeScript
// file, which saves 20 MB, and because it can then tell that Node is too old. It has no `await`, which Node 12 cannot read here.
if (Number.parseInt(process.versions.node, 10) < 24) {
  process.stderr.write(`readout needs Node 24 or later, and this is ${process.version}\n`);
  process.exit(2);
}

// V8 takes them at its start only. The `env` of busybox cannot hand them on, so they do not stand in the first line. SQLite is
// experimental in the first Node 24, and nobody who runs the program can do anything about it.
const flags = ["--max-semi-space-size=12", "--v8-pool-size=2", "--disable-warning=ExperimentalWarning"];
const { argv, argv0, env, execArgv, execPath, permission, platform } = process;
const nameFlag = (/** @type {string} */ flag) => flag.replace(/=.*/, "");
const missing = flags.filter(
  (flag) => !execArgv.includes(flag) && !(env.NODE_OPTIONS || "").includes(nameFlag(flag)),
);
// Elsewhere the program takes more memory. A parent with a channel to this process would lose it, Windows has no such call, and a
// loader that runs Node does not know the flags. A failure of the call itself would end the process.
const canStartAgain =
  platform !== "win32" &&
  !process.connected &&
  (permission === undefined || permission.has("child")) &&
  /[/]node[^/]*$/.test(execPath);
// In the same process, in 30 ms. Flags of the command line come last, so that they count.
if (missing.length > 0 && canStartAgain && process.execve)
  process.execve(execPath, [argv0, ...missing, ...execArgv, ...argv.slice(1)]);

import("./compile-cache.js").then(() => import("./main.ts"));
