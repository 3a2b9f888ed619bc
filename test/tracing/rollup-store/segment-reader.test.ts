// A held segment against its source: whatever is asked, the same spans are found.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { minute, type TimeRange } from "#src/core/time.ts";
import type { SpanLookup, SpanReader, SpanSelection } from "#src/store/spans.ts";
import { readSegment } from "#src/tracing/rollup-store/segment-reader.ts";
import { readAllSpans } from "#src/tracing/spans/entry-lookup.ts";
import { createBudget, createBudgetShare } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { at, createSource, createSpan, signal } from "../span-builder.ts";
import { documents, length } from "./rolled-spans.ts";

const range = { from: at(30 * minute), to: at(90 * minute - 1e-6) };
const [a, b] = [createSource("a"), createSource("b")] as const;
const sources = fc.constantFrom([a], [b], [a, b], [b, a]) as fc.Arbitrary<SpanLookup["sources"]>;
const id = fc.record({
  trace_id: fc.constantFrom("t1", "t2", "t3", "t4", "t9"),
  span_id: fc.constantFrom("c1", "c2", "c3", "c4", "c5", "c9"),
});
const ids = fc.uniqueArray(id, { minLength: 1, selector: (one) => JSON.stringify(one) });
const spanIds = fc.uniqueArray(
  id.map(({ span_id }) => span_id),
  { minLength: 1 },
);
const traceIds = fc.uniqueArray(
  id.map(({ trace_id }) => trace_id),
  { minLength: 1 },
);
const select = fc.constantFrom<SpanSelection>("all", "entries", "children", "calls", "statements");
const lookup: fc.Arbitrary<SpanLookup["of"]> = fc.oneof(
  fc.record({ by: fc.constant("trace" as const), traceIds, select }),
  fc.record({ by: fc.constant("span" as const), spans: ids }),
  fc.record({ by: fc.constant("caller" as const), spans: ids }),
  fc.record({ by: fc.constant("id" as const), spanIds }),
  fc.record({ by: fc.constant("parent" as const), spanIds }),
);
const piece = fc.constantFrom(
  range,
  { from: at(45 * minute), to: range.to },
  { from: at(0), to: at(length) },
);

const budget = createBudget(1e9);
const share = (spans: number) => createBudgetShare(createBudget(1e9), spans);
async function hold(source: SpanReader): Promise<SpanReader> {
  const held = await readSegment(source, { sources: [a, b], range, budget: share(1_000) }, signal);
  if (held === undefined) throw new Error("not held");
  return held;
}
const createOutsideTest =
  (range: TimeRange | undefined) =>
  ({ end }: Span): boolean =>
    range === undefined || end < range.from || end > range.to;
const sortTexts = (spans: readonly Span[]): readonly string[] =>
  spans
    .map(({ site_id, start, end, ...span }) => JSON.stringify([site_id, `${start}`, `${end}`, span]))
    .sort();

describe("a held segment", () => {
  test("finds what its source finds", async () => {
    let found = 0;
    const property = fc.asyncProperty(
      fc.array(documents, { minLength: 5, maxLength: 40 }),
      fc.array(fc.record({ of: lookup, sources, left: fc.option(piece, { nil: undefined }) }), {
        minLength: 1,
        maxLength: 8,
      }),
      fc.array(fc.record({ select, sources, range: piece }), { minLength: 1, maxLength: 4 }),
      async (all, lookups, scans) => {
        const source = createArrayReader(all.flat());
        const held = await hold(source);
        for (const { of, sources, left } of lookups) {
          const outside = of.by === "caller" || of.by === "trace" ? left : undefined;
          const query = { of, sources, outside, withoutEvents: true, budget };
          // What ends in that range may be left out or not.
          const find = async (reader: SpanReader) =>
            sortTexts((await readAllSpans(reader.find(query, signal))).filter(createOutsideTest(outside)));
          const wanted = await find(source);
          expect(await find(held)).toEqual(wanted);
          found += wanted.length;
        }
        for (const scan of scans) {
          const query = { ...scan, withoutEvents: true, budget };
          const wanted = sortTexts(await readAllSpans(source.scan(query, signal)));
          expect(sortTexts(await readAllSpans(held.scan(query, signal)))).toEqual(wanted);
        }
      },
    );
    const runs = sampleRuns(2_000);
    await fc.assert(property, { numRuns: runs });
    expect(found).toBeGreaterThan(10 * runs);
  });

  test("reads nothing more for its own traces, and what links to them", async () => {
    const caller = createSpan({ site_id: "a", span_id: "c1", span_kind: "producer", to: 40 * minute });
    const links = [{ trace_id: "t1", span_id: "c1", trace_state: "", attributes: {} }];
    const taken = createSpan({ site_id: "a", trace_id: "t2", span_id: "s2", links, to: 120 * minute });
    const above = createSpan({ site_id: "a", span_id: "s0", to: 100 * minute });
    const source = createArrayReader([caller, taken, above]);
    let reads = 0;
    const counted: SpanReader = {
      scan: (...query) => {
        reads += 1;
        return source.scan(...query);
      },
      find: (...query) => {
        reads += 1;
        return source.find(...query);
      },
    };
    const held = await hold(counted);
    const before = reads;
    const find = (of: SpanLookup["of"]) =>
      readAllSpans(held.find({ sources: [a], of, withoutEvents: true, budget }, signal));
    expect(await find({ by: "caller", spans: [caller] })).toEqual([taken]);
    expect(await find({ by: "span", spans: [above] })).toEqual([above]);
    expect(await find({ by: "trace", traceIds: ["t1"], select: "all" })).toHaveLength(2);
    expect(reads).toBe(before);
  });

  test("leaves exceptions to its source, since it holds no events", async () => {
    const events: Span["events"] = [{ time: at(40 * minute), name: "exception", attributes: {} }];
    const span = createSpan({ site_id: "a", span_id: "s1", events, to: 40 * minute });
    const held = await hold(createArrayReader([span]));
    const of = { by: "trace", traceIds: ["t1"], select: "exceptions" } as const;
    const found = await readAllSpans(held.find({ sources: [a], of, budget }, signal));
    expect(found.map((one) => one.events)).toEqual([events]);
  });

  test("is none where it has too many spans", async () => {
    const spans = [1, 2, 3].map((n) => createSpan({ site_id: "a", span_id: `s${n}`, to: 40 * minute }));
    expect(
      await readSegment(createArrayReader(spans), { sources: [a], range, budget: share(2) }, signal),
    ).toBe(undefined);
  });
});
