// What a command may use of the outside world. Only `main.ts` uses `process`, so a test can run every command with a
// clock, an environment and a terminal of its own.

import type { Readable } from "node:stream";
import type { Instant } from "../../core/time.ts";
import type { BackendKind } from "../../store/backend.ts";
import type { CommandHelp } from "./command-help.ts";

export interface Shell {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Writes to standard output as it is, without adding a line end. */
  readonly out: (text: string) => void;
  /** The same for standard error. */
  readonly err: (text: string) => void;
  /** Standard input. */
  readonly openInput: () => Readable;
  /**
   * A file's text, with lone surrogates for what is not UTF-8; the path is relative to the working directory. Throws what the
   * file system throws.
   */
  readText(path: string): string;
  now(): Instant;
  /** Bytes of memory that the process may take. */
  readonly memoryLimit: number;
  /** What the help of each command says; loads them all. */
  readonly readHelp: () => Promise<readonly CommandHelp[]>;
  /** Runs a function that loads much code, and frees the memory that only loading needs. */
  loadModules<T>(load: () => Promise<T>): Promise<T>;
  /** Calls `changed` when the file is changed, created or deleted, until `signal` aborts. */
  onChange(path: string, changed: () => void, signal: AbortSignal): void;
  /**
   * Calls `listener` at SIGHUP, which requests a reload of the configuration, until `signal` aborts; at once where one came
   * before. There is one listener.
   */
  onHangup(listener: () => void, signal: AbortSignal): void;
  /** Ends a command early: Ctrl-C. */
  readonly signal: AbortSignal;
  readonly kinds: ReadonlyMap<string, BackendKind<unknown>>;
  /**
   * Loads the kind of a module that a configuration file names; undefined where there is no such module. Throws what the
   * module throws.
   */
  readonly loadOwnKind: (module: string, file: string) => BackendKind<unknown> | undefined;
}

/** Success; a wrong file or a backend that does not answer; wrong arguments. */
export const exitCodes = { done: 0, failed: 1, usage: 2 } as const;

/** Prints what is wrong with the arguments, and the usage of the command. Returns the exit code. */
export function printUsageError(wrong: string, usage: string, shell: Shell): number {
  shell.err(`${wrong}\n\n${usage}`);
  return exitCodes.usage;
}

/** A text as one word of a command that is printed to be copied. */
export function quoteForShell(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
