// Counts by the index on real servers: they are those of the lines that match, or there are none. `SEED=7 ROUNDS=50` runs
// other seeds.
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LineCounts } from "#src/core/line-tally.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis, printInstantToMilli, printMillis, type TimeRange } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { resolutions } from "#src/metrics/measures.ts";
import type { LineGrouping, LogSource } from "#src/store/logs.ts";
import { listSubjects, query, read } from "../../exactness/law.ts";
import { buildTemplate } from "../../support/elastic/filebeat.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { countExportedLines } from "../../support/line-counts.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

const rounds = Number(process.env.ROUNDS ?? 1);
const each = 100;
const start = Date.UTC(2024, 0, 15, 10);

const groupings: readonly (readonly [name: string, grouping: LineGrouping])[] = [
  ...(["severity", "hostname", "group"] as const).map(
    (name) => [name, { kind: "line", name }] as const satisfies readonly [string, LineGrouping],
  ),
  ...["k", "short", "low", "t", "n", "b", "blind", "level", "tags"].map(
    (key) => [key, { kind: "json", path: [key] }] as const satisfies readonly [string, LineGrouping],
  ),
  ["deep.k", { kind: "json", path: ["deep", "k"] }],
];

const questions = fc.record({
  text: fc.oneof(fc.constant(""), query),
  grouping: fc.option(fc.constantFrom(...groupings), { nil: undefined }),
  resolution: fc.constantFrom("MINUTELY", "HOURLY"),
  from: fc.integer({ min: -3, max: 12 }),
  millis: fc.integer({ min: 0, max: 40 }),
});

/** Counts the lines as an export of them would be counted. */
function countLines(
  lines: readonly LogLine[],
  resolution: keyof typeof resolutions,
  groupBy: string | undefined,
): object {
  const exported = lines.map(({ time, severity, hostname = "", group = "", json }) => ({
    timestamp: printInstantToMilli(time),
    severity,
    hostname,
    group,
    json,
  }));
  const { groups, lacking, ...counted } = countExportedLines(exported, resolution, groupBy, 1_000_000, true);
  const byValue = (groups ?? []).map((group) => [
    group.value,
    group.count,
    "buckets" in group ? group.buckets : undefined,
  ]);
  return { ...counted, other: undefined, groups: byValue.sort(), lacking: lacking ?? 0 };
}

function printCounts({ total, buckets, groups, groupBuckets, lacking }: LineCounts, resolution: string) {
  const byTime = (counts: ReadonlyMap<number, number> = new Map()) =>
    [...counts].sort(([a], [b]) => a - b).map(([at, count]) => ({ timestamp: printMillis(at), count }));
  return {
    total,
    resolution,
    lacking,
    other: undefined,
    buckets: byTime(buckets),
    groups: [...groups].map(([value, count]) => [value, count, byTime(groupBuckets?.get(value))]).sort(),
  };
}

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("counts-*");
  });
  afterAll(async () => {
    await cluster.remove("counts-*");
    await cluster.close();
  });
  const count = (
    source: LogSource,
    range: TimeRange,
    text: string,
    resolution: keyof typeof resolutions,
    grouping?: LineGrouping,
  ) =>
    cluster.store.count?.(
      { source, range, filter: parse(text), step: resolutions[resolution], grouping, hasGroupBuckets: true },
      never,
    );

  test.each(listSubjects(server))(
    "counts what matches, or leaves it to reading: $name",
    { timeout: 900_000 },
    async ({ name, layout, documents }) => {
      const seed = Number(process.env.SEED ?? 20_240_115);
      for (const [round, load] of fc.sample(documents, { seed, numRuns: rounds }).entries()) {
        const prefix = `counts-${name}-${round}`;
        await load(cluster, prefix);
        const everything = await read(cluster, layout, prefix, "");
        const source = { id: "app", index: `${prefix}-*`, layout, tenantFilter: undefined };
        let counted = 0;
        for (const { text, grouping, resolution, from, millis } of fc.sample(questions, {
          seed: seed + round,
          numRuns: each,
        })) {
          const range = { from: fromMillis(start + from), to: fromMillis(start + from + millis) };
          const found = await count(source, range, text, resolution, grouping?.[1]);
          if (found === undefined) continue;
          counted += 1;
          const filter = parse(text);
          const lines = everything.filter(
            (line) => line.time >= range.from && line.time <= range.to && matches(filter, line),
          );
          expect({ text, grouping, ...printCounts(found, resolution) }).toEqual({
            text,
            grouping,
            ...countLines(lines, resolution, grouping?.[0]),
          });
        }
        expect(counted).toBeGreaterThan(5);
        await cluster.remove(`${prefix}-*`);
      }
    },
  );

  test("the index counts plain fields, and leaves arrays, other spellings and finer bounds to reading", async () => {
    const index = "counts-plain";
    await cluster.createIndex(index, buildTemplate("date", 2));
    const write = (documents: readonly object[]) =>
      cluster.write(
        index,
        documents.map((document, n) => [
          `${Object.keys(document).join("-")}-${n}`,
          JSON.stringify({ "@timestamp": new Date(start + n * 30_000).toISOString(), ...document }),
        ]),
      );
    await write([
      { log: { level: "error" }, host: { name: "web-1" } },
      { log: { level: "ERR" }, host: { name: "web-1" } },
      { log: { level: "info" }, host: { name: "web-2" } },
      { "log.level": "warn" },
    ]);
    const source = { id: "app", index, layout: "ecs", tenantFilter: undefined };
    const range = { from: fromMillis(start), to: fromMillis(start + 3_600_000) };
    const total = await count(source, range, "", "MINUTELY");
    expect(total).toMatchObject({ total: 4, lacking: 0 });
    expect([...(total?.buckets.values() ?? [])]).toEqual([2, 2]);
    const finer = { from: (range.from + 1n) as typeof range.from, to: range.to };
    expect(await count(source, finer, "", "MINUTELY")).toBeUndefined();
    // OpenSearch does not list what `ignore_above` leaves out, so only a document shows that nothing is.
    const isListed = server.product === "elasticsearch";
    const bySeverity = await count(source, range, "", "HOURLY", { kind: "line", name: "severity" });
    expect(bySeverity && [...bySeverity.groups].sort()).toEqual(
      isListed
        ? [
            ["error", 2],
            ["info", 1],
            ["warn", 1],
          ]
        : undefined,
    );
    const byHost = () => count(source, range, "", "HOURLY", { kind: "line", name: "hostname" });
    expect((await byHost())?.lacking).toBe(isListed ? 1 : undefined);
    await write([{ host: { name: ["a", "b"] } }]);
    expect(await byHost()).toBeUndefined();
  });
});
