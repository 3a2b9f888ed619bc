// Which document stands for a span that was sent more than once.
import fc from "fast-check";
import { expect, test } from "vitest";
import { runSteps } from "#src/core/async/turns.ts";
import { spanKinds } from "#src/core/rows.ts";
import { chooseDocuments } from "#src/tracing/spans/repeated-spans.ts";
import { countSteps } from "../../support/event-loop-turns.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { createSpan } from "../span-builder.ts";

const document = fc
  .record({
    site_id: fc.constantFrom("a", "b"),
    trace_id: fc.constantFrom("t1", "t2"),
    span_id: fc.constantFrom("s1", "s2"),
    span_kind: fc.constantFrom(...spanKinds),
    from: fc.constantFrom(0, 1),
    to: fc.constantFrom(10, 20),
    span_name: fc.constantFrom("work", "rest"),
    sum: fc.constantFrom(1n, undefined),
    tags: fc.constantFrom({}, { region: "eu" }),
    links: fc.constantFrom([], [{ trace_id: "t3", span_id: "s3", trace_state: "", attributes: {} }]),
  })
  .map(createSpan);

test("one document of each span, the one that ends last, whatever comes first", () => {
  const property = fc.property(fc.array(document, { maxLength: 12 }), (documents) => {
    const name = (span: (typeof documents)[number]) =>
      [span.site_id, span.trace_id, span.span_id, span.span_kind, span.start].join();
    const chosen = runSteps(chooseDocuments(documents));
    expect(chosen.map(name)).toEqual([...new Set(documents.map(name))]);
    for (const span of chosen) {
      const own = documents.filter((other) => name(other) === name(span));
      expect(own).toContain(span);
      expect(own.every(({ end }) => end <= span.end)).toBe(true);
    }
    const reversed = runSteps(chooseDocuments(documents.toReversed()));
    expect(new Set(reversed)).toEqual(new Set(chosen));
  });
  fc.assert(property, { numRuns: sampleRuns(300) });
});

test("the documents of many spans are chosen in steps", () => {
  const spans = Array.from({ length: 10_000 }, (_, n) => createSpan({ span_id: `${n}`, from: n }));
  expect(countSteps(chooseDocuments(spans))).toBeGreaterThanOrEqual(6);
});
