// Pages of the trace listings over memory stores, and traces with missing or late spans.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { makeTraces } from "../conformance/trace-fixture.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { createException } from "../tracing/span-builder.ts";
import {
  first,
  hex,
  type Json,
  listing,
  nights,
  type Placed,
  request,
  serve,
  storedOf,
} from "./trace-harness.ts";

const everywhere = ["shop", "stock", "blog"];

/** Reads all pages as a client does: the cursor is the last row's value, and the first short page is the last. */
async function readPages(
  run: ReturnType<typeof serve>,
  route: string,
  by: "time" | "duration",
  order: string,
  per_page: number,
): Promise<Json[]> {
  const rows: Json[] = [];
  let cursor: unknown = { [by]: null };
  for (;;) {
    const pagination = { per_page, order, cursor };
    const page = await run(`tracing/traces/${route}`, { site_ids: everywhere, pagination });
    rows.push(...page);
    const last = page.at(-1);
    if (page.length < per_page || last === undefined) return rows;
    cursor = { [by]: last[by] };
  }
}

describe("trace listing pages", () => {
  const pagesArbitrary = [
    fc.nat(1_000),
    fc.constantFrom("performance", "errors"),
    fc.constantFrom("time", "duration"),
    fc.constantFrom("ASC", "DESC"),
    fc.integer({ min: 1, max: 30 }),
  ] as const;

  test("concatenated equal the full listing, for every order, cursor and page size", async () => {
    const law = fc.asyncProperty(...pagesArbitrary, async (seed, route, by, order, per_page) => {
      const run = serve(makeTraces(seed, 25).map(storedOf), undefined, nights);
      const cursor = by === "time" ? "Time" : "Duration";
      const whole = await run(`tracing/traces/${route}`, {
        site_ids: everywhere,
        pagination: { per_page: 10_000, order, cursor },
      });
      const keys = (rows: readonly Json[]) =>
        rows.map((row) => `${row.site_id} ${row.trace_id} ${row.span_id}`);
      expect(keys(await readPages(run, route, by, order, per_page))).toEqual(keys(whole));
      const values = whole.map((row) =>
        by === "time" ? Date.parse(String(row.time)) : Number(row.duration),
      );
      const ascending = values.toSorted((a, b) => a - b);
      expect(values).toEqual(order === "ASC" ? ascending : ascending.reverse());
    });
    await fc.assert(law, { numRuns: sampleRuns(40) });
  });

  test("of sites on several backends equal those of one backend with all sites", async () => {
    const law = fc.asyncProperty(
      ...pagesArbitrary,
      fc.array(fc.constantFrom("a", "b", "c"), { minLength: 3, maxLength: 3 }),
      async (seed, route, by, order, per_page, backends) => {
        const spans = makeTraces(seed, 25).map(storedOf);
        const places = Object.fromEntries(everywhere.map((site, n) => [site, backends[n] ?? "a"]));
        const [one, several] = [serve(spans, undefined, nights), serve(spans, places, nights)];
        const rows = await readPages(one, route, by, order, per_page);
        expect(await readPages(several, route, by, order, per_page)).toEqual(rows);
        const traces = [...new Set(rows.map(({ trace_id }) => trace_id))].slice(0, 3);
        for (const trace_id of traces) {
          for (const detail of ["trace", "trace/performance", "trace/error", "locator"]) {
            const body = { site_ids: everywhere, trace_id };
            expect(await several(`tracing/${detail}`, body)).toEqual(await one(`tracing/${detail}`, body));
          }
        }
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(25) });
  });

  const tied = Array.from({ length: 30 }, (_, n) =>
    request({ trace_id: `${n}`.padStart(32, "0"), from: n % 3, to: 10 + (n % 3) }),
  );

  test("end between two milliseconds or durations, and grow rather than cut one", async () => {
    const run = serve(tied);
    const page = async (cursor: unknown, per_page = 5, order = "ASC") =>
      (await run("tracing/traces/performance", { ...listing, pagination: { per_page, order, cursor } }))
        .length;
    expect(await page("Time")).toBe(10);
    expect(await page({ time: "2026-01-15T10:00:00.010Z" })).toBe(10);
    expect(await page({ time: "2026-01-15T10:00:00.010Z" }, 11)).toBe(20);
    expect(await page({ time: "2026-01-15T10:00:00.012Z" })).toBe(0);
    expect(await page({ time: "2026-01-15T10:00:00.012Z" }, 5, "DESC")).toBe(10);
    expect(await page("Duration")).toBe(30);
    expect(await page({ duration: 10 })).toBe(0);
    expect(await page({ duration: 9.9999 })).toBe(30);
    expect(await page({ duration: 10.0001 }, 5, "DESC")).toBe(30);
  });

  test.each(["2026-01-15T10:00:00.011Z", "2026-01-15T10:00:00.0115Z", "2026-01-15T10:00:00.011999999Z"])(
    "exclude the whole millisecond of the cursor %s",
    async (time) => {
      const run = serve(tied);
      const listTimes = async (order: string) => {
        const pagination = { per_page: 100, order, cursor: { time } };
        const rows = await run("tracing/traces/performance", { ...listing, pagination });
        return new Set(rows.map((row) => row.time));
      };
      expect(await listTimes("DESC")).toEqual(new Set(["2026-01-15T10:00:00.010Z"]));
      expect(await listTimes("ASC")).toEqual(new Set(["2026-01-15T10:00:00.012Z"]));
    },
  );

  test("accept duration cursors larger than any duration", async () => {
    const run = serve(tied);
    const page = async (over: Json, order = "ASC", cursor: unknown = "Duration") =>
      (
        await run("tracing/traces/performance", {
          ...listing,
          ...over,
          pagination: { per_page: 5, order, cursor },
        })
      ).length;
    expect(await page({ duration: 1e308 })).toBe(0);
    expect(await page({}, "ASC", { duration: 1e308 })).toBe(0);
    expect(await page({}, "DESC", { duration: 1e308 })).toBe(30);
  });

  test("choose the row of a trace before the cursor, so that no trace appears twice", async () => {
    const early = request({ span_id: hex("1", 16), parent_span_id: hex("a", 16), from: 1, to: 5 });
    const run = serve([request({ to: 20 }), early]);
    const next = { ...listing, pagination: { ...first, cursor: { time: "2026-01-15T10:00:00.020Z" } } };
    expect(await run("tracing/traces/performance", next)).toEqual([]);
    expect(
      await run("tracing/traces/performance", { ...listing, to: "2026-01-15T10:00:00.019Z" }),
    ).toHaveLength(1);
  });

  test("allow 10,000 traces on one millisecond and refuse more", async () => {
    const many = Array.from({ length: 10_001 }, (_, n) => request({ trace_id: `${n}` }));
    await expect(serve(many)("tracing/traces/performance", listing)).rejects.toMatchObject({
      slug: "result_too_large",
      details: { limit: 10_000 },
    });
    expect(await serve(many.slice(1))("tracing/traces/performance", listing)).toHaveLength(10_000);
    const halves = many.map((one, n) => ({ ...one, site_id: n % 2 === 0 ? "shop" : "blog" }));
    const both = { ...listing, site_ids: ["shop", "blog"] };
    await expect(
      serve(halves, { shop: "a", blog: "b" })("tracing/traces/performance", both),
    ).rejects.toMatchObject({ slug: "result_too_large", details: { limit: 10_000 } });
  });
});

describe("traces with missing or late spans", () => {
  const run = async (spans: readonly Placed[], route = "traces/performance") =>
    serve(spans)(`tracing/${route}`, { ...listing, site_ids: everywhere });

  test("are listed when the root is missing, late or in another site", async () => {
    const entry = request({ span_id: hex("1", 16), parent_span_id: hex("f", 16), to: 5 });
    expect(await run([entry])).toMatchObject([{ span_id: entry.span_id }]);
    const root = request({ span_id: hex("f", 16), to: 50 });
    expect(await run([entry, root])).toMatchObject([{ span_id: root.span_id }]);
    const elsewhere = { ...root, site_id: "stock" };
    expect(await run([entry, elsewhere])).toMatchObject([{ site_id: "stock" }, { site_id: "shop" }]);
  });

  test("list an error below a missing parent, with empty names", async () => {
    const lost = request({
      parent_span_id: hex("e", 16),
      span_kind: "client",
      span_name: "charge",
      to: 5,
      events: [createException(1, "Oops")],
    });
    expect(await run([lost])).toEqual([]);
    expect(await run([lost], "traces/errors")).toMatchObject([
      { namespace: "background", action_name: "charge" },
    ]);
    const [row] = await serve([lost])("tracing/trace", { site_ids: ["shop"], trace_id: lost.trace_id });
    expect(row).toMatchObject({ namespace: "", action_name: "", digest: "", subtrace_root: true });
  });

  test("return 10,000 spans", async () => {
    const root = request();
    const children = Array.from({ length: 9_999 }, (_, n) =>
      request({
        span_id: n.toString(16).padStart(16, "0"),
        parent_span_id: root.span_id,
        span_kind: "internal",
      }),
    );
    const rows = await serve([root, ...children])("tracing/trace", {
      site_ids: ["shop"],
      trace_id: root.trace_id,
    });
    expect(rows).toHaveLength(10_000);
    expect(rows[0]).toMatchObject({ span_id: root.span_id });
    expect(new Set(rows.map(({ action_name }) => action_name))).toEqual(new Set(["GET /"]));
  });
});
