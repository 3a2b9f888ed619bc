// logs/counts over stores in memory: the law that counts are those of the lines of an export, and what is refused.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { addCount, addGroup, createLineCounts } from "#src/core/line-tally.ts";
import { compareCodePoints, severities } from "#src/core/rows.ts";
import { fromMillis, type Instant, toMillis } from "#src/core/time.ts";
import { createPathReader } from "#src/log-query/path-values.ts";
import { operations } from "#src/operations/index.ts";
import { counts } from "#src/operations/logs/counts.ts";
import type { Context, RowBatch } from "#src/operations/runtime/operation.ts";
import type { LogQuery, LogStore } from "#src/store/logs.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { countExportedLines } from "../support/line-counts.ts";

const base = Date.UTC(2026, 0, 15, 10);
const endpoint = operations.find(({ name }) => name === "logs.lines");

interface Line {
  readonly at: number;
  readonly severity: (typeof severities)[number];
  readonly hostname: string | undefined;
  readonly json: string;
}

function serve(written: Readonly<Record<string, readonly Line[]>>, limits: Partial<Limits> = {}) {
  const store = createMemoryLogs();
  for (const [index, lines] of Object.entries(written)) {
    store.add(
      index,
      lines.map(({ at, ...line }, n) => ({
        id: `l${n}`,
        time: (fromMillis(base) + BigInt(at)) as Instant,
        ...line,
      })),
    );
  }
  return ask(store, Object.keys(written), limits);
}

function ask(store: LogStore, ids: readonly string[], limits: Partial<Limits> = {}) {
  const sources = new Map(
    ids.map((id) => [id, { id, index: id, layout: "auto", tenantFilter: undefined }] as const),
  );
  const logs = { backend: "memory", store, sources };
  const context: Context = {
    user: "ana",
    sites: new Map([["shop", { id: "shop", retention: 86_400_000, counterDefault: "cumulative", logs }]]),
    limits: { ...defaults.limits, ...limits },
    now: () => fromMillis(base + 3_600_000),
    signal: new AbortController().signal,
  };
  const request = { site_id: "shop", source_ids: ids, query: "" };
  return {
    count: async (more: object) => {
      const answer = counts.run(counts.request.parse({ ...request, ...more }), context);
      if (!("then" in answer)) throw new Error("one value expected");
      return answer;
    },
    async export(more: object): Promise<readonly Record<string, string>[]> {
      const [form] = endpoint?.representations.filter(({ name }) => name === "logs.ndjson") ?? [];
      const pagination = { per_page: 1, order: "ASC" };
      const result = form?.prepare({ ...request, ...more, pagination }).run(context);
      if (result === undefined || !("pieces" in result)) throw new Error("an export expected");
      const pieces: AsyncIterable<RowBatch> = result.pieces;
      let text = "";
      for await (const piece of pieces) text += piece.text;
      return text
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line));
    },
  };
}

const scalar = fc.oneof(
  fc.constantFrom(
    '"a"',
    '"b"',
    '""',
    '"1"',
    "1",
    "1.0",
    "1e0",
    "true",
    "null",
    "{}",
    "[]",
    '"\\ud83d\\ude00"',
  ),
  fc.constantFrom('{"k":"deep"}', '["a","a","b"]', '[["a"],[1,{"k":2}]]', "12345678901234567890"),
);
const line: fc.Arbitrary<Line> = fc.record({
  at: fc.integer({ min: 0, max: 7_200_000_000_000 }),
  severity: fc.constantFrom(...severities),
  hostname: fc.option(fc.constantFrom("web-1", "web-2"), { nil: undefined }),
  json: fc.oneof(
    scalar.map((value) => `{"n":${value},"source":"own"}`),
    scalar.map((value) => `{"n":[${value},{"k":${value}}]}`),
    fc.constantFrom("{}", "[]", "not json", '"text"', '{"__proto__":"p","n":{"k":"1"}}'),
  ),
});
/** Counts these sources by reading another store, as a source would by itself. */
function countBySource(counted: readonly string[], lines: LogStore): NonNullable<LogStore["count"]> {
  return async ({ source, range, filter, step, grouping, hasGroupBuckets = false }, signal) => {
    if (!counted.includes(source.id)) return undefined;
    const counts = createLineCounts(hasGroupBuckets && grouping !== undefined);
    const limits = { expectedLines: 1_000, documentLimit: 1_000, tieLimit: 1_000 };
    const query: LogQuery = { sources: [source], range, filter, order: "asc", ...limits };
    for await (const batch of lines.lines(query, signal)) {
      for (const found of batch) {
        counts.total += 1;
        const start = Math.floor(toMillis(found.time) / step) * step;
        addCount(counts.buckets, start, 1);
        if (grouping === undefined) continue;
        const values =
          grouping.kind === "json"
            ? createPathReader(grouping.path)(found.json)
            : [found[grouping.name]].filter((value) => value !== undefined);
        const distinct = new Set(values);
        if (distinct.size === 0) counts.lacking += 1;
        for (const value of distinct) addGroup(counts, value, new Map([[start, 1]]));
      }
    }
    return counts;
  };
}

const groupings = ["severity", "source", "\\source", "hostname", "group", "n", "n.k", "n.0", "__proto__"];

describe("logs/counts", () => {
  test("equals the lines of an export, counted", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(line, { maxLength: 40 }),
        fc.array(line, { maxLength: 10 }),
        fc.constantFrom(undefined, ...groupings),
        fc.constantFrom("", "severity=error", "n!=a", "hostname=web-1 OR n>0"),
        fc.constantFrom(undefined, "MINUTELY", "hourly", "DAILY"),
        fc.integer({ min: 1, max: 6 }),
        fc.boolean(),
        async (app, other, group_by, query, resolution, limit, group_buckets) => {
          const subject = serve({ app, other });
          const range = { from: "2026-01-15T10:20:00.0000001Z", to: "2026-01-15T11:30:00.123Z" };
          const asked = { ...range, query, use_expressions: true };
          const counted = await subject.count({ ...asked, group_by, resolution, limit, group_buckets });
          const lines = await subject.export(asked);
          const expected = countExportedLines(lines, counted.resolution, group_by, limit, group_buckets);
          expect(counted).toEqual(expected);
          expect(counted.buckets.reduce((sum, { count }) => sum + count, 0)).toBe(counted.total);
        },
      ),
      { numRuns: sampleRuns(300) },
    );
  });

  test("is the same where a source counts its own lines", async () => {
    const lines = fc.sample(line, { numRuns: 60, seed: 3 });
    const store = createMemoryLogs();
    const whole = createMemoryLogs();
    for (const [index, part] of [
      ["app", lines.slice(0, 40)],
      ["other", lines.slice(40)],
    ] as const) {
      const stored = part.map(({ at, ...line }, n) => ({
        id: `l${n}`,
        time: (fromMillis(base) + BigInt(at)) as Instant,
        ...line,
      }));
      for (const one of [store, whole]) one.add(index, stored);
    }
    const counting: LogStore = { ...store, count: countBySource(["app"], whole) };
    for (const group_by of [undefined, ...groupings]) {
      const more = { group_by, group_buckets: group_by !== "severity", limit: 3 };
      const read = await ask(whole, ["app", "other"]).count(more);
      const requested: string[] = [];
      const watched: LogStore = {
        ...counting,
        lines: (query, signal) => {
          requested.push(...query.sources.map(({ id }) => id));
          return counting.lines(query, signal);
        },
      };
      expect(await ask(watched, ["app", "other"]).count(more)).toEqual(read);
      expect(requested).toEqual(["other"]);
    }
  });

  test("a group's value is the text that the query language compares", async () => {
    const subject = serve({
      app: ["1", "1.0", '"1"', "[1,1,2]", "true", "null", "{}", "[]"].map((n) => ({
        at: 0,
        severity: "info",
        hostname: undefined,
        json: `{"n":${n}}`,
      })),
    });
    expect(await subject.count({ group_by: "n" })).toMatchObject({
      total: 8,
      groups: [
        { value: "1", count: 3 },
        { value: "1.0", count: 1 },
        { value: "2", count: 1 },
        { value: "true", count: 1 },
      ],
      other: 0,
      lacking: 3,
    });
    expect(await subject.count({ group_by: "n", limit: 2 })).toMatchObject({
      groups: [
        { value: "1", count: 3 },
        { value: "1.0", count: 1 },
      ],
      other: 2,
    });
  });

  test("refuses what would have to be read beyond the limit of exports, and says how much that is", async () => {
    const lines = Array.from({ length: 30 }, (_, at) => ({
      at,
      severity: "info" as const,
      hostname: undefined,
      json: "{}",
    }));
    await expect(serve({ app: lines }, { export: 29 }).count({})).rejects.toMatchObject({
      slug: "result_too_large",
      details: { limit: 29, wanted: 30 },
    });
    expect(await serve({ app: lines }, { export: 30 }).count({})).toMatchObject({ total: 30 });
  });

  test("refuses more buckets of all values than an answer may have points", async () => {
    const lines = Array.from({ length: 30 }, (_, at) => ({
      at: at * 60e9,
      severity: "info" as const,
      hostname: undefined,
      json: `{"n":${at % 2}}`,
    }));
    const range = { from: "2026-01-15T10:00:00Z", to: "2026-01-15T11:00:00Z", resolution: "DAILY" };
    const asked = { ...range, group_by: "n", group_buckets: true };
    await expect(serve({ app: lines }, { points: 1 }).count(asked)).rejects.toMatchObject({
      slug: "result_too_large",
      details: { limit: 1 },
    });
    const { groups } = await serve({ app: lines }, { points: 2 }).count(asked);
    expect(groups?.map(({ buckets }) => buckets?.map(({ count }) => count))).toEqual([[15], [15]]);
  });

  test.each(["message", "a=b", "a OR b", "a!", "", "(a)", "a b", '"a"', "attributes.a"])(
    "does not group by %j",
    (group_by) => {
      const { success } = counts.request.safeParse({ site_id: "s", source_ids: ["a"], query: "", group_by });
      expect(success).toBe(false);
    },
  );

  test("is empty where the default range is", async () => {
    const subject = serve({ app: [{ at: 0, severity: "info", hostname: undefined, json: "{}" }] });
    expect(await subject.count({ from: "2027-01-01T00:00:00Z", group_by: "severity" })).toEqual({
      total: 0,
      resolution: "MINUTELY",
      buckets: [],
      groups: [],
      other: 0,
      lacking: 0,
    });
  });
});

test("the largest of many groups are found in turns of the event loop", async () => {
  const counted = createLineCounts(false);
  for (let n = 0; n < 40_000; n += 1) counted.groups.set(`v${n}`, 1 + (n % 7));
  const counting: LogStore = { ...createMemoryLogs(), count: async () => counted };
  let answer: unknown;
  const turns = await countTurns(async () => {
    answer = await ask(counting, ["app"]).count({ group_by: "hostname", limit: 2 });
  });
  const groups = [
    { value: "v1000", count: 7 },
    { value: "v10002", count: 7 },
  ];
  const total = [...counted.groups.values()].reduce((sum, count) => sum + count);
  expect(answer).toMatchObject({ groups, other: total - 14 });
  expect(turns).toBeGreaterThanOrEqual(20);
});

test("texts in the order of code points", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (a, b) => {
      const expected = Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b)));
      expect(Math.sign(compareCodePoints(a, b))).toBe(expected);
    }),
  );
});
