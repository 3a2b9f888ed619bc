// What a command sees of the outside world. `main.ts` is the only place that knows `process`, so every command can
// be run by a test with a clock, an environment and a terminal of its own.

import type { Instant } from "../../core/time.ts";
import type { BackendKind } from "../../store/backend.ts";

export interface Shell {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Writes to standard output as it is, without adding a line end. */
  readonly out: (text: string) => void;
  /** The same for standard error. */
  readonly err: (text: string) => void;
  /** A file's text; the path is relative to the working directory. Throws what the file system throws. */
  readText(path: string): string;
  now(): Instant;
  /** Runs what loads much code, so that the memory that loading takes is not kept. */
  loadModules<T>(load: () => Promise<T>): Promise<T>;
  /** Calls `changed` when the file is another one, has come or has gone, until `signal` aborts. */
  onChange(path: string, changed: () => void, signal: AbortSignal): void;
  /** Calls `asked` when the program is told to look at its configuration again (SIGHUP), until `signal` aborts. */
  onHangup(asked: () => void, signal: AbortSignal): void;
  /** Ends a command early: Ctrl-C. */
  readonly signal: AbortSignal;
  readonly kinds: ReadonlyMap<string, BackendKind<unknown>>;
}

/** Done; wrong or not answering; called wrongly. */
export const exitCodes = { done: 0, failed: 1, usage: 2 } as const;

/** Prints what is wrong with the arguments, and how the command is used. The exit code. */
export function printUsageError(wrong: string, usage: string, shell: Shell): number {
  shell.err(`${wrong}\n\n${usage}`);
  return exitCodes.usage;
}
