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
const { argv, argv0, execArgv, execPath } = process;
try {
  // Starts again in the same process, in 30 ms. Flags that somebody has named come last, so that they count.
  if (process.execve && flags.some((flag) => !execArgv.includes(flag)))
    process.execve(execPath, [argv0, ...flags, ...execArgv, ...argv.slice(1)]);
} catch {
  // Windows has no such call, and `--permission` may forbid it. The program then takes more memory.
}

import("./compile-cache.js").then(() => import("./main.ts"));
