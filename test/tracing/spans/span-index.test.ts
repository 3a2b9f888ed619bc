// The index of spans against a list of all of them, also where many traces number their spans alike.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { compareDocuments, isSameSpan } from "#src/tracing/spans/repeated-spans.ts";
import {
  addToIndex,
  createSpanIndex,
  findIndexedSpans,
  hasSame,
  listSameIds,
} from "#src/tracing/spans/span-index.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { createSpan } from "../span-builder.ts";

function indexSpans(spans: readonly Span[]) {
  const index = createSpanIndex();
  for (const span of spans) addToIndex(index, span, isSameSpan);
  return index;
}

/** Many spans of few ids, so that most ids are shared by more traces than the index takes for unique. */
const spans = fc.array(
  fc
    .record({
      trace_id: fc.integer({ min: 1, max: 40 }).map((trace) => `t${trace}`),
      span_id: fc.constantFrom("s1", "s2"),
      from: fc.constantFrom(0, 1),
      to: fc.constantFrom(5, 6),
    })
    .map(createSpan),
  { maxLength: 150, size: "max" },
);

describe("the index of spans", () => {
  test("finds the document that stands for each span, and no other", () => {
    const runs = sampleRuns(100);
    let shared = 0;
    fc.assert(
      fc.property(spans, (all) => {
        const index = indexSpans(all);
        shared += index.sharedIds.size;
        const byId = Map.groupBy(all, ({ trace_id, span_id }) => `${trace_id} ${span_id}`);
        for (const own of byId.values()) {
          const expected = [...Map.groupBy(own, ({ start }) => start).values()].map(
            (documents) => documents.toSorted(compareDocuments)[0],
          );
          const [span] = own;
          if (span === undefined) throw new Error("an empty group");
          expect(findIndexedSpans(index, span)).toEqual(expected);
          expect(own.every((one) => hasSame(index, one, isSameSpan))).toBe(true);
        }
        expect(findIndexedSpans(index, { trace_id: "t0", span_id: "s1" })).toEqual([]);
        expect(hasSame(index, createSpan({ trace_id: "t0" }), isSameSpan)).toBe(false);
        // Each trace and id once.
        const listed = [...listSameIds(index)].map(([first]) => `${first?.trace_id} ${first?.span_id}`);
        expect(listed.toSorted()).toEqual([...byId.keys()].toSorted());
      }),
      { numRuns: runs },
    );
    expect(shared).toBeGreaterThan(runs / 5);
  });

  test("compares a span with few others, however many traces have its id", () => {
    let compared = 0;
    const index = createSpanIndex();
    const count = 2_000;
    for (let trace = 0; trace < count; trace += 1) {
      addToIndex(index, createSpan({ trace_id: `t${trace}` }), (a, b) => {
        compared += 1;
        return isSameSpan(a, b);
      });
    }
    expect(compared).toBeLessThan(count);
  });

  test("refuses more than a thousand spans of one trace with one id", () => {
    const all = Array.from({ length: 1_000 }, (_, from) => createSpan({ from, to: 2_000 }));
    const index = indexSpans([...all, ...all]);
    expect(findIndexedSpans(index, createSpan()).length).toBe(1_000);
    expect(() => addToIndex(index, createSpan({ from: 1_500, to: 2_000 }), isSameSpan)).toThrow(
      /More than 1,000 spans of one trace have the id s1/,
    );
  });
});
