// What a filter allows a store to leave out, and that listings pass it on. The suites over real servers check that no row is
// missing: they compare with a store that leaves out nothing.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import type { ListingQuery, TraceFilter } from "#src/store/span-analytics.ts";
import type { SpanLookup, SpanPushdown, SpanReader } from "#src/store/spans.ts";
import { listSummaries } from "#src/tracing/listing/listing.ts";
import { derivePushdown } from "#src/tracing/listing/pushdown.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { encodeActionDigest, encodeErrorDigest, encodeEventDigest } from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import {
  at,
  createException,
  createSource,
  createSpan,
  createTestBudget,
  range,
  signal,
} from "../span-builder.ts";

const cart = { namespace: "web", action: "Cart#show" };
const job = { namespace: "background", action: "MailJob" };
const buildFilter = (over: Partial<TraceFilter>, query = ""): TraceFilter => ({
  ...over,
  query: parseTraceQuery(query),
});
const deriveWithDefaults = (filter: TraceFilter): Partial<SpanPushdown> =>
  Object.fromEntries(
    Object.entries(derivePushdown(filter)).filter(([, value]) => value !== undefined && value.length !== 0),
  );

describe("derivePushdown", () => {
  test("narrows to the names that digests stand for", () => {
    const digests = [
      encodeActionDigest(cart),
      encodeErrorDigest("Timeout", job),
      encodeActionDigest(cart),
    ] as const;
    expect(deriveWithDefaults(buildFilter({ digests: [...digests] }))).toEqual({
      namespaces: ["web", "background"],
      actions: ["Cart#show", "MailJob"],
    });
  });

  test("narrows to the exceptions that digests stand for or equal", () => {
    const [timeout, untyped] = [encodeErrorDigest("Timeout", job), encodeErrorDigest("unknown", job)];
    expect(deriveWithDefaults(buildFilter({ digests: [timeout, "incident-7"] }))).toEqual({
      errors: [{ digest: timeout, exception: "Timeout" }, { digest: "incident-7" }],
    });
    for (const other of [untyped, encodeActionDigest(job)])
      expect(deriveWithDefaults(buildFilter({ digests: [timeout, other] }))).not.toHaveProperty("errors");
  });

  test("narrows nothing when a digest is the backend's own or a slow event's", () => {
    const event = encodeEventDigest({ service: "web", kind: "client", name: "query", statement: undefined });
    for (const other of ["incident-7", event, "act_broken"]) {
      const { errors: _, ...entries } = deriveWithDefaults(
        buildFilter({ digests: [encodeActionDigest(cart), other] }),
      );
      expect(entries).toEqual({});
    }
  });

  test("narrows to values that the query requires", () => {
    const query = "tag.region=eu (revision=r1 tag.plan=pro) namespace=web action_name=A";
    expect(deriveWithDefaults(buildFilter({}, query))).toEqual({
      tags: [
        { name: "region", value: "eu" },
        { name: "plan", value: "pro" },
      ],
      revision: "r1",
      namespaces: ["web"],
      actions: ["A"],
    });
  });

  test("narrows nothing by tags named like fields", async () => {
    const fields = ["namespace", "action_name", "revision", "trace_id", "span_id"];
    const filter = buildFilter({}, fields.map((name) => `tag.${name}=1`).join(" "));
    expect(deriveWithDefaults(filter)).toEqual({ tags: fields.map((name) => ({ name, value: "1" })) });
    const tags = Object.fromEntries(fields.map((name) => [name, "1"]));
    expect((await listRows([createSpan({ tags })], filter)).found).toEqual(["s1"]);
  });

  test("narrows nothing by optional terms or terms other than equality", () => {
    for (const query of [
      "tag.region=eu OR revision=r1",
      "tag.region!=eu",
      "revision:r",
      "eu",
      "site_id=shop",
    ]) {
      expect(deriveWithDefaults(buildFilter({}, query))).toEqual({});
    }
  });
});

// ---- Listings -----------------------------------------------------------------------------------------------

interface RecordedCalls {
  readonly scans: (SpanPushdown | undefined)[];
  readonly finds: SpanLookup["of"]["by"][];
}

async function listRows(
  spans: readonly Span[],
  filter: TraceFilter,
  candidates: ListingQuery["candidates"] = "requests",
): Promise<RecordedCalls & { readonly found: readonly string[] }> {
  const reader = createArrayReader(spans);
  const [scans, finds]: [RecordedCalls["scans"], RecordedCalls["finds"]] = [[], []];
  const listening: SpanReader = {
    scan: (query, signal) => {
      scans.push(query.pushdown);
      return reader.scan(query, signal);
    },
    find: (query, signal) => {
      finds.push(query.of.by);
      return reader.find(query, signal);
    },
  };
  const query: ListingQuery = {
    sources: [createSource("shop")],
    candidates,
    range,
    filter,
    by: "time",
    order: "desc",
    expectedRows: 10,
    tieLimit: 100,
    budget: createTestBudget(),
  };
  const found: string[] = [];
  for await (const rows of listSummaries(listening, query, signal))
    found.push(...rows.map(({ span_id }) => span_id));
  return { found, scans, finds };
}

const formatHex = (n: number, digits: number): string => n.toString(16).padStart(digits, "0");
const spans = [1, 2, 3].flatMap((n) => [
  createSpan({
    trace_id: formatHex(n, 32),
    span_id: formatHex(n, 16),
    span_kind: "server",
    action: "A",
    to: n * 10,
  }),
  createSpan({
    trace_id: formatHex(n, 32),
    span_id: formatHex(n + 16, 16),
    parent_span_id: formatHex(n, 16),
    to: n * 10,
    events: [createException(n, "Timeout")],
  }),
]);

describe("listSummaries with narrowing", () => {
  test("scans nothing when the query names a trace or a span", async () => {
    for (const query of [
      `trace_id=${formatHex(2, 32)}`,
      "trace_id=2",
      `span_id=${formatHex(2, 16)}`,
      "span_id=2",
    ]) {
      expect(await listRows(spans, buildFilter({}, query))).toMatchObject({
        found: [formatHex(2, 16)],
        scans: [],
      });
    }
    expect(await listRows(spans, buildFilter({}, "span_id=12"), "errors")).toMatchObject({
      found: [formatHex(18, 16)],
      scans: [],
    });
    expect(await listRows(spans, buildFilter({}, "trace_id=2 span_id=3"))).toMatchObject({
      found: [],
      scans: [],
    });
    const early = await listRows([...spans], buildFilter({}, "trace_id=2"));
    expect(early.finds).toContain("trace");
  });

  test("passes the narrowing to scans of requests and of exceptions", async () => {
    const { scans } = await listRows(spans, buildFilter({}, "tag.x=1"), "errors");
    expect(scans.length).toBeGreaterThan(1);
    for (const pushdown of scans) expect(pushdown).toMatchObject({ tags: [{ name: "x", value: "1" }] });
    const digests = [encodeActionDigest({ namespace: "web", action: "A" })] as const;
    const { scans: byDigest, found } = await listRows(spans, buildFilter({ digests: [...digests] }));
    for (const pushdown of byDigest) expect(pushdown).toMatchObject({ actions: ["A"], namespaces: ["web"] });
    expect(found).toHaveLength(3);
  });

  test("finds by a derived digest only what it stands for, whatever digests exceptions carry", async () => {
    const foreign = encodeActionDigest(cart);
    const stolen = encodeErrorDigest("Timeout", cart);
    const own = encodeErrorDigest("Timeout", { namespace: "web", action: "A" });
    const [root, child] = spans;
    if (root === undefined || child === undefined) throw new Error("no spans");
    const carrying = (digest: string) => [root, { ...child, events: [createException(1, "Other", digest)] }];
    for (const candidates of ["requests", "errors"] as const) {
      const foundBy = async (digest: string) =>
        (await listRows(carrying(digest), buildFilter({ digests: [digest] }), candidates)).found.length;
      expect(await foundBy(foreign)).toBe(0);
      expect(await foundBy(stolen)).toBe(0);
      expect(await foundBy(own)).toBe(1);
      expect(await foundBy("incident-7")).toBe(1);
    }
  });
});

test("reads few errors among many requests without the errors of other times", async () => {
  const day = 10_000;
  // One failed request a second, for longer than the range; and in the range many without an exception.
  const failed = Array.from({ length: 1_000 }, (_, n) => {
    const [trace_id, span_id] = [formatHex(n + 1, 32), formatHex(n + 1, 16)];
    const to = 90_000 - n * 1_000;
    const root = createSpan({ trace_id, span_id, span_kind: "server", from: to - 1, to });
    // Asynchronous: it ends after the range.
    return [
      root,
      {
        ...root,
        span_id: formatHex(n + day, 16),
        parent_span_id: span_id,
        span_kind: "internal",
        entry: false,
        end: at(to + 5_000),
        events: [createException(to, "Timeout")],
      } as const,
    ];
  }).flat();
  const healthy = Array.from({ length: 4_000 }, (_, n) =>
    createSpan({
      trace_id: formatHex(n + day, 32),
      span_id: formatHex(n + 2 * day, 16),
      span_kind: "server",
      to: n * 25,
    }),
  );
  const all = [...failed, ...healthy];
  const reader = createArrayReader(all);
  const traceIds = [...new Set(failed.map(({ trace_id }) => trace_id))];
  const failedTraceReader: SpanReader = {
    scan: reader.scan,
    find: ({ within, budget, ...query }, signal) => {
      const { from, to } = within?.range ?? range;
      const kept = createArrayReader(
        within === undefined ? all : all.filter(({ end }) => end >= from && end <= to),
      );
      return kept.find({ ...query, budget }, signal);
    },
    findTraceIdsWithExceptions: async () => traceIds,
  };
  const ask = async (from: SpanReader, limit: number): Promise<number> => {
    const query: ListingQuery = {
      sources: [createSource("shop")],
      candidates: "errors",
      filter: buildFilter({}),
      by: "time",
      range: { from: at(0), to: at(100_000) },
      order: "desc",
      expectedRows: 100,
      tieLimit: 100,
      budget: createBudget(limit),
    };
    let rows = 0;
    for await (const batch of listSummaries(from, query, signal)) rows += batch.length;
    return rows;
  };
  expect(await ask(reader, 100_000)).toBe(91);
  await expect(ask(reader, 1_500)).rejects.toMatchObject({ slug: "result_too_large" });
  expect(await ask(failedTraceReader, 1_500)).toBe(91);
});

test("selects by the end of the span, also when the query names its trace", async () => {
  const late = createSpan({
    trace_id: formatHex(9, 32),
    span_id: formatHex(9, 16),
    span_kind: "server",
    to: 2_000,
  });
  expect(late.end).toBe(at(2_000));
  expect(await listRows([late], buildFilter({}, "trace_id=9"))).toMatchObject({ found: [] });
});
