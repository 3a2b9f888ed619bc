// printSpans assembles the text of a row from cached parts; the result must equal the row printed at once.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Attributes, Span } from "#src/core/rows.ts";
import { joinRows, printSpans, toSpanRow } from "#src/operations/traces/row-writer.ts";
import type { TraceDetailSpan } from "#src/tracing/trace-detail.ts";
import { at, createSpan } from "../tracing/span-builder.ts";

const few = (...texts: string[]) => fc.constantFrom(...texts);
const text = fc.oneof(
  few("", "web", '"', "\\", "é", "\ud800", "\u0000", "\u2028", "a\nb"),
  fc.string({ unit: "binary" }),
);
const attributes = fc.dictionary(
  fc.oneof(few("__proto__", "a.b", '"'), fc.string()),
  fc.oneof(text, fc.integer(), fc.bigInt(), fc.constant(null), fc.array(text)),
  { noNullPrototype: true, maxKeys: 3 },
);
/** Most spans of a process have equal resource attributes, in separate objects. */
const ofProcess = fc
  .constantFrom<Attributes[]>(
    { a: 1, b: "2" },
    { b: "2", a: 1 },
    { a: 1, b: 2 },
    { a: 1n, b: "2" },
    { a: 1 },
    { a: [1] },
  )
  .map((one) => ({ ...one }));
const names = [
  undefined,
  { namespace: "web", action: "A#b", digest: "act_1" },
  { namespace: 'w"', action: "é", digest: "act_2" },
];
const event = fc.record({ time: fc.nat(1_000).map(at), name: text, attributes });
const link = fc.record({ trace_id: text, span_id: text, trace_state: text, attributes });
const arranged: fc.Arbitrary<TraceDetailSpan> = fc
  .record({
    names: fc.constantFrom(...names),
    subtraceRoot: fc.boolean(),
    own: fc.record({
      trace_id: text,
      span_id: text,
      parent_span_id: fc.option(text, { nil: undefined }),
      from: fc.double({ min: -1e6, max: 1e6, noNaN: true }),
      to: fc.double({ min: 0, max: 1e6, noNaN: true }),
      site_id: few("shop", "blog"),
      service_name: few("web", "é"),
      span_name: few("a", "b", '"'),
      trace_state: fc.option(text, { nil: undefined }),
      revision: fc.option(few("r1"), { nil: undefined }),
      scope_name: fc.option(few("s"), { nil: undefined }),
      scope_version: fc.option(few("1"), { nil: undefined }),
      span_kind: fc.constantFrom("client" as const, "server" as const),
      status_code: fc.constantFrom("OK" as const, "ERROR" as const),
      status_message: fc.option(few("m"), { nil: undefined }),
      resource_attributes: attributes,
      span_attributes: attributes,
      events: fc.array(event, { maxLength: 2 }),
      links: fc.array(link, { maxLength: 2 }),
    }),
  })
  .map(({ own, ...rest }) => ({ ...rest, span: createSpan(own) }));

test("printSpans yields the same text as toSpanRow", () => {
  fc.assert(
    fc.property(fc.array(arranged, { maxLength: 12 }), (spans) => {
      const printed = [...printSpans(spans)].map(({ text }) => text).join(",");
      expect(printed).toBe(joinRows(spans.map(toSpanRow)));
    }),
  );
});

/** The members that spans of one name may share, with one of them changed. */
const change: fc.Arbitrary<Partial<Span> & Pick<TraceDetailSpan, "names">> = fc
  .oneof(
    ofProcess.map((resource_attributes) => ({ resource_attributes })),
    fc.constantFrom<Partial<Span>>(
      {},
      { site_id: "blog" },
      { trace_state: "x" },
      { service_name: "api" },
      { revision: "r1" },
      ...([{ span_kind: "client" }, { scope_name: "s" }, { scope_version: "1" }] as const),
      ...([{ status_code: "ERROR" }, { status_message: "m" }] as const),
    ),
  )
  .chain((own) => fc.constantFrom(...names.map((names) => ({ ...own, names }))));

test("printSpans keeps spans apart that differ in one member", () => {
  fc.assert(
    fc.property(fc.array(change, { minLength: 2, maxLength: 12 }), (changes) => {
      const spans = changes.map(({ names, ...own }): TraceDetailSpan => {
        return { span: createSpan({ resource_attributes: { a: 1 }, ...own }), names, subtraceRoot: true };
      });
      const printed = [...printSpans(spans)].map(({ text }) => text).join(",");
      expect(printed).toBe(joinRows(spans.map(toSpanRow)));
    }),
  );
});

test("printSpans yields chunks with their row counts", () => {
  const one = { span: createSpan(), names: undefined, subtraceRoot: true };
  const pieces = [...printSpans(Array.from({ length: 1_001 }, () => one))];
  expect(pieces.reduce((sum, { count }) => sum + count, 0)).toBe(1_001);
  expect(pieces.length).toBeGreaterThan(5);
  for (const { text, count } of pieces) expect(JSON.parse(`[${text}]`)).toHaveLength(count);
  expect(JSON.parse(`[${pieces.map(({ text }) => text).join(",")}]`)).toHaveLength(1_001);
});
