// `readout check` over one kind of backend that a test makes up.
import { z } from "zod";
import { run } from "#src/cli/check/check.ts";
import type { Instant } from "#src/core/time.ts";
import type { Backend, BackendKind } from "#src/store/backend.ts";
import type { SourceInspection } from "#src/store/inspection.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

export const now = toInstant("2026-06-01T00:00:00Z");
export const ago = (seconds: number): Instant => (now - BigInt(seconds * 1_000) * 1_000_000n) as Instant;
const store: LogStore = { lines: () => (async function* () {})() };
export const report = (rest: Partial<SourceInspection> = {}): SourceInspection => ({
  layout: "ecs",
  indices: 3,
  newest: ago(4),
  limitations: [],
  problems: [],
  ...rest,
});
export const closed: string[] = [];

/** A kind whose backends do what `overrides` says and are fine otherwise. */
export function createFakeKind(overrides: Partial<Backend> = {}): BackendKind<unknown> {
  return {
    kind: "fake",
    parseConfig: (value) => z.strictObject({ ca: z.string().optional() }).parse(value),
    create: (name, config, io) => {
      const { ca } = z.object({ ca: z.string().optional() }).parse(config);
      if (ca !== undefined) io.readText(ca);
      return {
        name,
        kind: "fake",
        stores: { logs: store },
        probe: async () => ({ product: "Fake", version: "1.2.3" }),
        inspections: { logs: async () => report() },
        close: async () => {
          closed.push(name);
        },
        ...overrides,
      };
    },
  };
}

/** What the command prints and returns for a configuration. */
export async function check(file: string, kind: BackendKind<unknown>, deadline?: number) {
  const shell = createShell({ now, files: { "readout.yaml": file }, kinds: [kind] });
  const code = await run([], shell, deadline);
  return { code, out: shell.printed().replaceAll(/\d+ ms$/gm, "N ms"), err: shell.complained() };
}
