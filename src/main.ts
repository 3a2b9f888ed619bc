// The composition root: arguments, environment, signals and exit code. No other file uses `process`, so that a test can
// run every command.
import "./compile-cache.js";
import { totalmem } from "node:os";
import { setFlagsFromString } from "node:v8";
import type { Shell } from "./cli/support/shell.ts";
import { commands, printUsage, readHelp } from "./commands.ts";
import { readOwn } from "./core/collections.ts";
import { formatErrorCode } from "./core/errors.ts";
import { now } from "./core/time.ts";
import { version } from "./core/version.ts";
import { readTextFile } from "./files/text-file.ts";
import { watchFile } from "./files/watched-file.ts";

// Large answers leave much garbage and few live objects, and V8 would let the heap grow to four times the live size.
// Twice is cheap; at 30 % every request took twice the processor time.
setFlagsFromString("--heap-growing-percent=100");

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) {
  process.on(name, () => {
    // A second signal ends the program at once, and so does one while it waits for a reader of what it has printed.
    if (stop.signal.aborted || hasEnded) process.exit(130);
    stop.abort(new Error(name));
  });
}
/** Whether this is a server: SIGHUP has it reload, and never ends it. */
const isServer = process.argv[2] === "serve";
let hasMissedHangup = false;
let notifyHangup = (): void => {
  hasMissedHangup = true;
};
// From before the server is loaded until the program ends.
if (isServer) process.on("SIGHUP", () => notifyHangup());

let hasEnded = false;
let hasLostOutput = false;
// A reader that wants no more, such as `head`, is no failure; nor does a server end for want of a place for its output.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE" || isServer || hasLostOutput) return;
  hasLostOutput = true;
  shell.err(`readout: standard output cannot be written${formatErrorCode(error)}\n`);
});
process.stderr.on("error", () => {});
process.on("exit", (code) => {
  if (code === 0 && hasLostOutput) process.exitCode = 1;
});

const shell: Omit<Shell, "kinds" | "loadOwnKind"> = {
  env: process.env,
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  openInput: () => process.stdin,
  readText: readTextFile,
  now,
  memoryLimit: readMemoryLimit(),
  readHelp,
  loadModules,
  onChange: watchFile,
  onHangup: subscribeToHangup,
  signal: stop.signal,
};

/** The limit of the container; without one the system tells 0, or more than there is. */
function readMemoryLimit(): number {
  return Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem());
}

function subscribeToHangup(listener: () => void, signal: AbortSignal): void {
  notifyHangup = () => {
    if (!signal.aborted) listener();
  };
  if (hasMissedHangup) notifyHangup();
}

let runningLoads = 0;

/**
 * Keeps V8 from doubling the space for young objects while much code is loaded: it would keep that space. Saves 16 MB
 * after the start, and 30 MB once Mesh is loaded.
 */
async function loadModules<T>(load: () => Promise<T>): Promise<T> {
  runningLoads += 1;
  setFlagsFromString("--semi-space-growth-factor=1");
  try {
    return await load();
  } finally {
    runningLoads -= 1;
    if (runningLoads === 0) setFlagsFromString("--semi-space-growth-factor=2");
  }
}

const asksForHelp = (argument: string) => argument === "--help" || argument === "-h";

async function runCommand([name, ...args]: readonly string[]): Promise<number> {
  if (name === "help" || (name !== undefined && asksForHelp(name))) {
    shell.out(printUsage());
    return 0;
  }
  if (name === "--version" || name === "-v") {
    shell.out(`${version}\n`);
    return 0;
  }
  const command = name === undefined ? undefined : readOwn(commands, name);
  if (command === undefined) {
    shell.err(`${name === undefined ? "" : `readout: unknown command "${name}"\n\n`}${printUsage()}`);
    return 2;
  }
  const [{ run, usage: own }, { kinds, loadOwnKind }] = await loadModules(() =>
    Promise.all([command.load(), import("#resolvers/index.ts")]),
  );
  if (args.some(asksForHelp)) {
    shell.out(own);
    return 0;
  }
  return run(args, { ...shell, kinds, loadOwnKind });
}

runCommand(process.argv.slice(2)).then(exitOnceWritten, (error: unknown) => {
  if (stop.signal.aborted && error === stop.signal.reason) process.exit(130);
  shell.err(`readout: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return exitOnceWritten(1);
});

async function exitOnceWritten(code: number): Promise<void> {
  hasEnded = true;
  process.exitCode = code;
  // A command that was told to end does not wait for a reader that may be stuck.
  if (!stop.signal.aborted) await Promise.all([process.stdout, process.stderr].map(flush));
  // Open handles do not delay the exit of a command that has ended.
  setTimeout(() => process.exit(code), 500).unref();
}

/** Resolves when all that was written before has been taken, or never will be. */
function flush(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => stream.write("", () => resolve()));
}
