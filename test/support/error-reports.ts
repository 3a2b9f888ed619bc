// Reports, spools and stores for the tests of the intake and of what stands behind it.

import type { Site, Sites } from "#src/access/sites.ts";
import { openSpool } from "#src/intake/spool.ts";
import type { SpoolClient } from "#src/intake/spool-client.ts";
import type { ErrorReportStore } from "#src/store/error-reports.ts";
import { createTelemetry, type Telemetry } from "#src/telemetry/telemetry.ts";

export function renderReport(number: number, over: Record<string, unknown> = {}): string {
  const error = { name: "TypeError", message: `number ${number}`, backtrace: ["at app.js:1"] };
  return JSON.stringify({ timestamp: 1_795_000_000, namespace: "frontend", error, ...over });
}

/** The real spool, in memory and without its thread, so that a test sees a commit at once. */
export function createMemorySpooler(limitBytes = 1e9): SpoolClient {
  const spool = openSpool(":memory:", limitBytes);
  return {
    append: async (entry) => spool.append([entry])[0] === true,
    readOldest: async (...of) => spool.readOldest(...of),
    pickLater: async (...of) => spool.pickLater(...of),
    settle: async (settlements) => spool.settle(settlements, 0),
    readLevel: async () => spool.readLevel(),
    close: async () => spool.close(),
  };
}

export function createSites(
  entries: Readonly<
    Record<
      string,
      { readonly keys: readonly string[]; readonly store?: ErrorReportStore; readonly index?: string }
    >
  >,
): Sites {
  return new Map(
    Object.entries(entries).map(([id, { keys, store, index = "reports" }]): [string, Site] => [
      id,
      {
        id,
        retention: 86_400_000,
        counterDefault: "cumulative",
        frontend: { keys, backend: "fake", index, layout: "auto", store },
      },
    ]),
  );
}

interface Watched {
  readonly telemetry: Telemetry;
  readonly logged: () => string;
  /** The value of a counter or gauge by its full name with labels; 0 where it was never touched. @throws there is no such metric */
  readonly metric: (name: string) => Promise<number>;
}

export function createWatchedTelemetry(): Watched {
  let log = "";
  const telemetry = createTelemetry({
    write: (line) => {
      log += line;
    },
    level: "debug",
  });
  return {
    telemetry,
    logged: () => log,
    metric: async (name) => {
      const { text } = await telemetry.metrics();
      if (!text.includes(`# TYPE ${name.replace(/\{.*/s, "")} `)) throw new Error(`no metric ${name}`);
      const line = text.split("\n").find((candidate) => candidate.startsWith(`${name} `));
      return line === undefined ? 0 : Number(line.slice(name.length + 1));
    },
  };
}
