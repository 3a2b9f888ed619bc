// The listing of traces against rows worked out by hand. `windows.test.ts` compares it with its definition.
import { describe, expect, test } from "vitest";
import type { Attributes, Span, TraceSummary } from "#src/core/rows.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { encodeErrorDigest } from "#src/tracing/spans/digest.ts";
import { listExceptions } from "#src/tracing/spans/exceptions.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import {
  at,
  createException,
  createSource,
  createSpan,
  createTestBudget,
  listRows,
  signal,
} from "../span-builder.ts";

const shop = createSource("shop");

describe("listSummaries", () => {
  const root = createSpan({ span_id: "root", from: 0, to: 100, action: "Root", span_kind: "server" });
  const early = createSpan({
    span_id: "b",
    parent_span_id: "root",
    from: 10,
    to: 20,
    action: "Early",
    span_kind: "server",
  });
  const twin = createSpan({
    span_id: "a",
    parent_span_id: "root",
    from: 10,
    to: 30,
    action: "Twin",
    span_kind: "server",
  });
  const ids = (rows: readonly TraceSummary[]): string[] => rows.map(({ span_id }) => span_id);

  test("chooses one row per site and trace: the root, else the earliest start, then the least id", async () => {
    expect(ids(await listRows([early, root, twin]))).toEqual(["root"]);
    expect(ids(await listRows([early, twin]))).toEqual(["a"]);
    expect(ids(await listRows([root, { ...early, site_id: "stock" }]))).toEqual(["b", "root"]);
    expect(ids(await listRows([root, { ...root, trace_id: "t2" }]))).toEqual(["root", "root"]);
  });

  test("filters before it chooses the row, and applies the page position after", async () => {
    const filter = { action: "Early", query: { kind: "all" } } as const;
    expect(ids(await listRows([early, root, twin], { filter }))).toEqual(["b"]);
    expect(ids(await listRows([early, root, twin], { range: { from: at(0), to: at(99) } }))).toEqual(["a"]);
    expect(ids(await listRows([early, root, twin], { order: "desc", beyond: at(50) }))).toEqual([]);
  });

  test("selects requests by their end, to the nanosecond", async () => {
    expect(ids(await listRows([root], { range: { from: at(100), to: at(100) } }))).toEqual(["root"]);
    expect(ids(await listRows([root], { range: { from: at(0), to: at(99.999999) } }))).toEqual([]);
    expect(ids(await listRows([root], { range: { from: at(100.000001), to: at(200) } }))).toEqual([]);
  });

  test("reports no negative duration when a clock ran backwards", async () => {
    expect(await listRows([createSpan({ from: 20, to: 10 })])).toMatchObject([
      { time: at(10), duration: 0n },
    ]);
  });

  test("refuses too many rows in one millisecond, but not over several", async () => {
    const rows = (to: (n: number) => number) =>
      listRows(
        [1, 2, 3].map((n) => createSpan({ trace_id: `t${n}`, to: to(n) })),
        { tieLimit: 2 },
      );
    expect(await rows((n) => n)).toHaveLength(3);
    expect(await rows((n) => (n === 3 ? 2 : 1))).toHaveLength(3);
    await expect(rows((n) => 1 + n / 10)).rejects.toMatchObject({ slug: "result_too_large" });
  });

  test("takes duration and end from the entry, not from asynchronous children that end later", async () => {
    const late = createSpan({ span_id: "late", parent_span_id: "root", to: 900 });
    const [row] = await listRows([{ ...root, tags: { region: "eu" }, revision: "r1" }, late]);
    expect(row).toEqual({
      site_id: "shop",
      trace_id: "t1",
      span_id: "root",
      namespace: "web",
      action_name: "Root",
      revision: "r1",
      time: at(100),
      duration: 100_000_000n,
      tags: { region: "eu" },
      has_npo: false,
    });
  });

  test("reports an N+1 for five equal queries below one parent of this request", async () => {
    const query = (n: number, over: Partial<Span> = {}): Span =>
      createSpan({
        span_id: `q${n}`,
        parent_span_id: "m",
        span_kind: "client",
        statement: `SELECT ${n} FROM t`,
        to: 2_000 + n,
        ...over,
      });
    const middle = createSpan({ span_id: "m", parent_span_id: "root" });
    const queries = (count: number, over: Partial<Span> = {}) =>
      Array.from({ length: count }, (_, n) => query(n, over));
    const detects = async (...spans: readonly Span[]): Promise<boolean | undefined> =>
      (await listRows([root, middle, ...spans]))[0]?.has_npo;
    expect(await detects(...queries(5))).toBe(true);
    expect(await detects(...queries(4))).toBe(false);
    expect(await detects(query(0, { count: 5 }))).toBe(true);
    expect(await detects(...queries(3), query(7, { count: 2 }))).toBe(true);
    expect(await detects(...queries(4), query(5, { statement: "SELECT 1 FROM other" }))).toBe(false);
    expect(await detects(...queries(4), query(5, { parent_span_id: "root" }))).toBe(false);
    expect(await detects(...queries(5, { span_kind: "internal" }))).toBe(false);
    expect(await detects(...queries(5, { statement: undefined }))).toBe(false);
    expect(await detects(...queries(5, { parent_span_id: "lost" }))).toBe(false);
    // Below a request of its own, the root has none.
    expect(await detects({ ...early, site_id: "shop" }, ...queries(5, { parent_span_id: "b" }))).toBe(false);
  });

  test.each([undefined, "", 5, null])("names an exception without a type `unknown`: %j", (type) => {
    const carried = { "exception.type": type, "appsignal.incident_digest": type };
    const attributes = Object.fromEntries(Object.entries(carried).filter(([, value]) => value !== undefined));
    const one = createSpan({
      events: [{ name: "exception", time: at(1), attributes: attributes as Attributes }],
    });
    const names = { namespace: "web", action: "A" };
    expect(listExceptions(one, names)).toEqual([
      { time: at(1), name: "unknown", digest: encodeErrorDigest("unknown", names) },
    ]);
  });

  describe("error rows", () => {
    const inner = createSpan({
      span_id: "i",
      parent_span_id: "root",
      from: 5,
      to: 50,
      span_name: "charge",
      events: [createException(20, "Timeout"), createException(6, "KeyError")],
    });
    const other = createSpan({
      span_id: "j",
      parent_span_id: "root",
      events: [createException(10, "Timeout", "d1")],
    });

    test("chooses the first exception's span, selected by the end of the entry above it", async () => {
      const errors = { candidates: "errors" } as const;
      const [row] = await listRows([root, inner, other], errors);
      expect(row).toMatchObject({ span_id: "j", action_name: "Root", time: at(100), duration: 100_000_000n });
      expect(await listRows([root, inner, other], { ...errors, range: { from: at(0), to: at(60) } })).toEqual(
        [],
      );
      const after = { ...errors, range: { from: at(90), to: at(110) } };
      expect(ids(await listRows([root, inner, other], after))).toEqual(["j"]);
      expect(await listRows([root, { ...inner, status_code: "ERROR", events: [] }], errors)).toEqual([]);
      // An earlier one, of a request that ends after the range.
      const entry = { span_id: "l", parent_span_id: "root", span_kind: "server", to: 1_500 } as const;
      const ended = createSpan({ ...entry, events: [createException(1, "Early")] });
      expect(ids(await listRows([root, inner, ended], errors))).toEqual(["i"]);
    });

    test("chooses the first exception that the digest filter accepts", async () => {
      const digest = encodeErrorDigest("KeyError", { namespace: "web", action: "Root" });
      const only = async (digests: readonly [string, ...string[]]) =>
        ids(
          await listRows([root, inner, other], {
            candidates: "errors",
            filter: { digests, query: { kind: "all" } },
          }),
        );
      expect(await only([digest])).toEqual(["i"]);
      expect(await only(["d1"])).toEqual(["j"]);
      expect(await only(["d2"])).toEqual([]);
      const requests = await listRows([root, inner, other], {
        filter: { digests: ["d1"], query: { kind: "all" } },
      });
      expect(ids(requests)).toEqual(["root"]);
    });

    test("takes name, kind, end and duration from the span when no entry is above it", async () => {
      const orphan = { ...inner, parent_span_id: "gone", span_kind: "client" } as const;
      const [row] = await listRows([orphan], { candidates: "errors" });
      expect(row).toMatchObject({
        span_id: "i",
        namespace: "background",
        action_name: "charge",
        time: at(50),
      });
    });

    test("lists reports as errors and not as requests", async () => {
      const report = createSpan({
        report: true,
        namespace: "frontend",
        events: [createException(0, "TypeError")],
        to: 0,
      });
      expect(await listRows([report])).toEqual([]);
      expect(await listRows([report], { candidates: "errors" })).toMatchObject([{ namespace: "frontend" }]);
      const located = await createSpanAnalytics(createArrayReader([report])).locate(
        { sources: [shop], traceId: "t1", budget: createTestBudget() },
        signal,
      );
      expect(located).toMatchObject({ performance: [], errors: [{ exception_name: "TypeError" }] });
    });
  });
});
