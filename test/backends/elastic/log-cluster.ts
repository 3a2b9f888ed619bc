// Reads log lines from a real server, for the tests of one file. The indices of the file are removed before and after.
import { afterAll, beforeAll } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery, LogSource } from "#src/store/logs.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";

export const start = Date.UTC(2026, 0, 15, 10);
export const range = { from: fromMillis(start - 3_600_000), to: fromMillis(start + 3_600_000) };

/** The time of a document, so many milliseconds after the start. */
export function at(millis: number): string {
  return new Date(start + millis).toISOString();
}

export function createSource(index: string, over: Partial<LogSource> = {}): LogSource {
  return { id: "app", index, layout: "auto", tenantFilter: undefined, ...over };
}

/** The ids of the documents behind lines, without their indices. */
export function listIds(lines: readonly LogLine[]): string[] {
  return lines.map(({ id }) => id.slice(id.indexOf("/") + 1));
}

function buildQuery(from: LogSource, text = "", over: Partial<LogQuery> = {}): LogQuery {
  const limits = { expectedLines: 1_000, documentLimit: 100_000, tieLimit: 100_000 };
  return { sources: [from], range, filter: parse(text), order: "asc", ...limits, ...over };
}

/** Opens a cluster for the tests of a file. `pattern` names their indices. */
export function useLogCluster(url: string, pattern: string) {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(url);
    await cluster.remove(pattern);
  });
  afterAll(async () => {
    await cluster.remove(pattern);
    await cluster.close();
  });
  async function read(from: LogSource, text = "", over: Partial<LogQuery> = {}): Promise<LogLine[]> {
    const lines: LogLine[] = [];
    const batches = cluster.store.lines(buildQuery(from, text, over), never);
    for await (const batch of batches) lines.push(...batch);
    return lines;
  }
  return {
    get cluster() {
      return cluster;
    },
    buildQuery,
    read,
  };
}
