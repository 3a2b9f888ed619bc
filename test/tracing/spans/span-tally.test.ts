// Statistics from tallies equal those from single spans, whichever spans the store aggregates.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { allTime } from "#src/core/time.ts";
import type { SpanReader, SpanTally } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { calculateTotalTime } from "#src/tracing/spans/requests.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { at, createSource, createSpan, createTestBudget, range, signal } from "../span-builder.ts";

const scope = {
  sources: [createSource("shop")] as const,
  range,
  namespaces: [],
  requiredAttributes: [],
  excludedAttributes: [],
  limit: 100,
};

/** A store that aggregates equal spans, except every nth span, which comes as a single one. */
function createCountingReader(
  spans: readonly Span[],
  nth: number,
): SpanReader & { readonly calls: string[] } {
  const reader = createArrayReader(spans);
  const log: string[] = [];
  return {
    find: (query, signal) => {
      log.push(`find ${query.of.by}`);
      return reader.find(query, signal);
    },
    scan: (query, signal) => {
      log.push("scan");
      return reader.scan(query, signal);
    },
    calls: log,
    async *tally({ by, ...query }, signal) {
      const found: Span[] = [];
      for await (const batch of reader.scan(query, signal)) found.push(...batch);
      const groups = Map.groupBy(found, (one, at) => {
        const { service_name, span_kind, span_name, statement, status_code, namespace, action, revision } =
          one;
        if (at % nth === 0) return one;
        return JSON.stringify([
          by,
          service_name,
          span_kind,
          span_name,
          statement,
          status_code,
          namespace,
          action,
          revision,
        ]);
      });
      for (const [key, [first, ...others]] of groups) {
        if (first === undefined) continue;
        const members = [first, ...others];
        const whole = typeof key !== "string";
        const alike = {
          ...first,
          start: at(0),
          end: at(0),
          trace_id: "",
          span_id: "",
          parent_span_id: first.parent_span_id,
        };
        const tally: SpanTally = {
          span: whole ? first : alike,
          isSingle: whole,
          spans: members.length,
          total: members.reduce((sum, one) => sum + calculateTotalTime(one), 0n),
          lengths:
            by === "deploy"
              ? members.map((one) => ({ length: Number(calculateTotalTime(one)), spans: 1 }))
              : undefined,
        };
        yield [tally];
      }
    },
  };
}

const arbitrary = fc
  .array(
    fc.record({
      kind: fc.constantFrom("server", "internal", "internal", "client", "consumer"),
      parent: fc.constantFrom(undefined, "p1", "p2"),
      action: fc.constantFrom(undefined, "A", "B"),
      statement: fc.constantFrom(undefined, "SELECT 1", "select 2"),
      status: fc.constantFrom("OK", "ERROR"),
      revision: fc.constantFrom("r1", "r2"),
      length: fc.integer({ min: 0, max: 50 }),
      host: fc.constantFrom(undefined, "a", "b"),
    }),
    // Many spans of few kinds, so that there are groups.
    { minLength: 20, maxLength: 60, size: "max" },
  )
  .map((rows) =>
    rows.map(({ kind, parent, status, length, host, ...rest }, n) =>
      createSpan({
        ...rest,
        trace_id: `t${n % 5}`,
        span_id: `s${n}`,
        parent_span_id: parent,
        span_kind: kind as Span["span_kind"],
        status_code: status as Span["status_code"],
        from: n,
        to: n + length,
        span_attributes: host === undefined ? {} : { host },
      }),
    ),
  );

const sorted = (rows: readonly unknown[]): unknown[] =>
  rows
    .map((row) => JSON.stringify(row, (_, value) => (typeof value === "bigint" ? `${value}` : value)))
    .sort();

test("actions, slow events and deploys do not depend on what the store aggregates", async () => {
  const property = fc.asyncProperty(arbitrary, fc.integer({ min: 1, max: 5 }), async (spans, nth) => {
    const [native, defined] = [
      createSpanAnalytics(createCountingReader(spans, nth)),
      createSpanAnalytics(createArrayReader(spans)),
    ];
    const query = () => ({ ...scope, budget: createTestBudget() });
    expect(sorted(await native.actions(query(), signal))).toEqual(
      sorted(await defined.actions(query(), signal)),
    );
    for (const over of [{}, { requiredAttributes: ["host"] }, { excludedAttributes: ["host"] }]) {
      const [counted, read] = [native, defined].map(({ slowEvents }) =>
        slowEvents({ ...query(), ...over }, signal),
      );
      expect(await counted).toEqual(await read);
    }
    const revision = () => ({ ...query(), revision: "r1" });
    expect(await native.revisionStats(revision(), signal)).toEqual(
      await defined.revisionStats(revision(), signal),
    );
    const revisions = ["r1", "r2", "r3", "r1"];
    const together = await native.statsOfRevisions({ ...query(), revisions }, signal);
    for (const one of revisions) {
      const alone = await defined.revisionStats({ ...query(), revision: one }, signal);
      expect(together.get(one)).toEqual(alone);
    }
    const all = await native.statsOfRevisions(query(), signal);
    expect(all).toEqual(await defined.statsOfRevisions(query(), signal));
    expect([...all.keys()].sort()).toEqual([...new Set(revisions)].filter((one) => together.has(one)).sort());
  });
  await fc.assert(property, { numRuns: sampleRuns(60) });
});

test.each([10, 200])("the ends of three revisions with %i requests each are found", async (count) => {
  const spans = Array.from({ length: 3 * count }, (_, n) =>
    createSpan({
      trace_id: `t${n}`,
      span_id: `s${n}`,
      span_kind: "server",
      revision: `r${n % 3}`,
      from: n,
      to: n + 5,
    }),
  );
  let scans = 0;
  const reader = createCountingReader(spans, 100_000);
  const own: SpanReader = {
    ...reader,
    scan: (query, signal) => {
      scans += 1;
      return reader.scan(query, signal);
    },
  };
  const query = { ...scope, range: { from: at(0), to: at(3_600_000) }, budget: createTestBudget() };
  const found = await createSpanAnalytics(own).statsOfRevisions(
    { ...query, revisions: ["r0", "r1", "r2", "r9"] },
    signal,
  );
  expect([...found.keys()]).toEqual(["r0", "r1", "r2"]);
  for (const [revision, stats] of found) {
    const first = Number(revision.slice(1));
    const ends = { first_seen: at(first + 5), last_seen: at(first + 3 * (count - 1) + 5) };
    expect(stats).toMatchObject({ ...ends, count });
  }
  // Few requests are read at once; else each end is searched for.
  if (count === 10) expect(scans).toBe(1);
  else expect(scans).toBeGreaterThan(1);
});

test("finds the first and last end beyond 10,000 longer requests without reading the whole range", async () => {
  const wide = { from: at(0), to: at(3_600_000) };
  const root = (n: number, from: number, to: number) =>
    createSpan({ trace_id: `t${n}`, span_id: `s${n}`, span_kind: "server", revision: "r1", from, to });
  const spans = [
    // The span that comes as a single one is neither the first nor the last.
    ...Array.from({ length: 200 }, (_, n) => root(200 + n, 3_500_000 + n, 3_550_000 + n)),
    ...Array.from({ length: 200 }, (_, n) => root(n, 9_000 + n, 10_000 + n)),
  ];
  const reader = createCountingReader(spans, 100_000);
  const lengths: number[] = [];
  const own: SpanReader = {
    ...reader,
    scan: (query, signal) => {
      lengths.push(Number(query.range.to - query.range.from) / 1e6);
      return reader.scan(query, signal);
    },
    // At any rank the split point is five seconds from the edge, where no request ends.
    findSplitPoint: async ({ order }) => (order === "asc" ? at(5_000) : at(3_595_000)),
  };
  const query = { ...scope, range: wide, revision: "r1", budget: createTestBudget() };
  expect(await createSpanAnalytics(own).revisionStats(query, signal)).toMatchObject({
    first_seen: at(10_000),
    last_seen: at(3_550_199),
  });
  expect(Math.max(...lengths)).toBeLessThan(100_000);
});

describe("N+1 detection over thousands of requests", () => {
  const root = (n: number, action: string) =>
    createSpan({ trace_id: `t${n}`, span_id: `r${n}`, span_kind: "server", action });
  const queries = (n: number, count: number, statement: (query: number) => string) =>
    Array.from({ length: count }, (_, query) =>
      createSpan({
        trace_id: `t${n}`,
        span_id: `q${n}.${query}`,
        parent_span_id: `r${n}`,
        span_kind: "client",
        statement: statement(query),
      }),
    );
  const spans = [
    ...Array.from({ length: 6_000 }, (_, n) => root(n, n % 2 === 0 ? "Even" : "Odd")),
    ...queries(4, 5, (query) => `SELECT ${query}`),
    ...queries(7, 6, (query) => `SELECT ${"a".repeat(query + 1)}`),
    // Outside the range, so that its request does not count.
    { ...root(9_000, "Odd"), end: (range.to + 1n) as Span["end"] },
    ...queries(9_000, 5, (query) => `SELECT ${query}`),
  ];

  test("looks only at the candidate parents that the store lists", async () => {
    const reader = createCountingReader(spans, 100_000);
    const limit = { limit: 1e9, spend: () => undefined };
    const parents = async () => ["r4", "r7", "r9000", "unknown"];
    const rows = await createSpanAnalytics({ ...reader, findNPlusOneParents: parents }).actions(
      { ...scope, budget: limit },
      signal,
    );
    expect(rows.map(({ action, has_npo }) => [action, has_npo]).sort()).toEqual([
      ["Even", true],
      ["Odd", false],
    ]);
    expect(reader.calls).toEqual(["find id", "find parent"]);
  });

  test("has only the traces of the requests searched where these are few against all queries", async () => {
    const inTraces = (traceIds: readonly string[] | undefined) =>
      ["r4", "r7", "r9000"].filter((id) => traceIds?.includes(id.replace("r", "t")) !== false);
    const searched: (number | undefined)[] = [];
    const answer = async (statements: number, over: Partial<SpanReader> = {}) => {
      const reader = createCountingReader(spans, 100_000);
      const own: SpanReader = {
        ...reader,
        count: async ({ range }) => (range === allTime ? statements : 11),
        findTraceIds: async ({ range: { from, to } }) =>
          spans.filter(({ entry, end }) => entry && end >= from && end <= to).map(({ trace_id }) => trace_id),
        findNPlusOneParents: async ({ traceIds }) => {
          searched.push(traceIds?.length);
          return inTraces(traceIds);
        },
        ...over,
      };
      const query = { ...scope, budget: createBudget(100_000) };
      const rows = await createSpanAnalytics(own).actions(query, signal);
      return rows.filter(({ has_npo }) => has_npo).map(({ action }) => action);
    };
    expect(await answer(36_000)).toEqual(["Even"]);
    expect(searched.splice(0)).toEqual([6_000]);
    // All queries are fewer, or the traces cannot be listed.
    expect(await answer(35_999)).toEqual(["Even"]);
    expect(await answer(100_000, { findTraceIds: async () => undefined })).toEqual(["Even"]);
    expect(searched).toEqual([undefined, undefined]);
  });

  describe("with several different queries per request", () => {
    const requests = Array.from({ length: 6_000 }, (_, n) => root(n, n % 2 === 0 ? "Even" : "Odd"));
    const various = (n: number) => queries(n, 5, (query) => `SELECT ${"a".repeat(query + 1)}`);
    const here = [
      ...requests,
      ...Array.from({ length: 1_000 }, (_, n) => various(n)).flat(),
      ...queries(1, 5, () => "SELECT 1"),
    ];
    const actions = async (parents: readonly string[], others: readonly Span[], limit: number) => {
      const reader = createCountingReader([...here, ...others], 100_000);
      const own = { ...reader, findNPlusOneParents: async () => parents, count: async () => 5_005 };
      const rows = await createSpanAnalytics(own).actions({ ...scope, budget: createBudget(limit) }, signal);
      return { npo: rows.filter(({ has_npo }) => has_npo).map(({ action }) => action), calls: reader.calls };
    };

    test("does not read candidate parents of other times when the traces of the range are fewer", async () => {
      const old = Array.from({ length: 30_000 }, (_, n) => {
        return { ...root(10_000 + n, "Even"), end: (range.to + 1n) as Span["end"] };
      });
      const parents = [
        ...old.map(({ span_id }) => span_id),
        ...Array.from({ length: 1_000 }, (_, n) => `r${n}`),
      ];
      // 6,000 requests are counted and then read, with 5,005 queries.
      const { npo, calls } = await actions(parents, old, 22_000);
      expect(npo).toEqual(["Odd"]);
      expect(calls).not.toContain("find id");
    });

    test("does not have all parents searched for a range that is a small part of what the index has", async () => {
      const searched: number[] = [];
      const answer = async (all: number) => {
        const reader = createCountingReader(here, 100_000);
        const own: SpanReader = {
          ...reader,
          findNPlusOneParents: async () => {
            searched.push(all);
            return Array.from({ length: 1_000 }, (_, n) => `r${n}`);
          },
          count: async (query) => (query.range === allTime ? all : 5_005),
        };
        const query = { ...scope, budget: createBudget(100_000) };
        const rows = await createSpanAnalytics(own).actions(query, signal);
        return rows.filter(({ has_npo }) => has_npo).map(({ action }) => action);
      };
      expect(await answer(200_000)).toEqual(["Odd"]);
      expect(await answer(400_000)).toEqual(["Odd"]);
      expect(searched).toEqual([200_000]);
    });

    test("gives up on candidate parents while the budget still allows reading the traces", async () => {
      const parents = Array.from({ length: 1_000 }, (_, n) => `r${n}`);
      const byParents = await actions(parents, [], 30_000);
      expect(byParents).toMatchObject({ npo: ["Odd"], calls: expect.not.arrayContaining(["find trace"]) });
      const byTraces = await actions(parents, [], 22_000);
      expect(byTraces).toMatchObject({
        npo: ["Odd"],
        calls: expect.arrayContaining(["find id", "find trace"]),
      });
      await expect(actions(parents, [], 7_000)).rejects.toMatchObject({ slug: "result_too_large" });
    });
  });

  test("looks at all traces when the store cannot list candidate parents", async () => {
    const reader = createCountingReader(spans, 100_000);
    const limit = { limit: 1e9, spend: () => undefined };
    const parents = async () => undefined;
    const rows = await createSpanAnalytics({ ...reader, findNPlusOneParents: parents }).actions(
      { ...scope, budget: limit },
      signal,
    );
    expect(rows.map(({ action, has_npo }) => [action, has_npo]).sort()).toEqual([
      ["Even", true],
      ["Odd", false],
    ]);
    expect(reader.calls).toContain("find trace");
  });
});

test("slowEvents counts the summed time of a compressed span, not its extent", async () => {
  const parent = { span_kind: "client", parent_span_id: "p", count: 4 } as const;
  const one = createSpan({ ...parent, sum: 2_000_000n, from: 0, to: 10 });
  const [event] = await createSpanAnalytics(createArrayReader([one])).slowEvents(
    { ...scope, budget: createTestBudget() },
    signal,
  );
  expect(event).toMatchObject({ count: 4, mean: 0.5, impact: 100 });
});
