// A shell of its own for a test of a command: files, environment and clock are given, what is printed is kept.
import { Readable } from "node:stream";
import { loadOwnKind } from "../../resolvers/own-kinds.ts";
import type { Shell } from "../../src/cli/support/shell.ts";
import { readHelp } from "../../src/commands.ts";
import { type Instant, parseInstant } from "../../src/core/time.ts";
import type { BackendKind } from "../../src/store/backend.ts";

interface TestShell extends Shell {
  printed(): string;
  complained(): string;
}

export function createShell(given: {
  readonly now: Instant;
  readonly files?: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  readonly kinds?: readonly BackendKind<unknown>[];
  readonly signal?: AbortSignal;
  readonly input?: Readable;
}): TestShell {
  const out: string[] = [];
  const err: string[] = [];
  return {
    env: given.env ?? {},
    out: (text) => out.push(text),
    err: (text) => err.push(text),
    openInput: () => given.input ?? Readable.from([]),
    readText(path) {
      const text = given.files?.[path];
      if (text === undefined) throw Object.assign(new Error("no such file"), { code: "ENOENT" });
      return text;
    },
    now: () => given.now,
    memoryLimit: 1_073_741_824,
    onChange: () => {},
    onHangup: () => {},
    readHelp,
    loadModules: (load) => load(),
    signal: given.signal ?? new AbortController().signal,
    loadOwnKind,
    kinds: new Map((given.kinds ?? []).map((kind) => [kind.kind, kind])),
    printed: () => out.join(""),
    complained: () => err.join(""),
  };
}

export function toInstant(text: string): Instant {
  const result = parseInstant(text);
  if (result === undefined) throw new Error(`no instant: ${text}`);
  return result;
}
