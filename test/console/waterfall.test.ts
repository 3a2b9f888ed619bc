// The waterfall shows every span once, in its place, and marks what the server calls an N+1.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { buildWaterfall, type Span } from "#src/console/traces/waterfall.js";
import { normaliseStatement } from "#src/tracing/spans/normalise-statement.js";
import { createDemo } from "../support/demo-server.ts";

const start = Date.UTC(2026, 0, 31, 12);
function span(id: string, parent: string, from: number, to: number, more: Partial<Span> = {}): Span {
  const time = (at: number) => new Date(start + at).toISOString();
  return {
    trace_id: "t",
    span_id: id,
    parent_span_id: parent,
    site_id: "shop",
    span_name: id,
    start_time: time(from),
    end_time: time(to),
    duration: to - from,
    service_name: "web",
    span_kind: "internal",
    status_code: "UNSET",
    status_message: "",
    subtrace_root: false,
    namespace: "",
    action_name: "",
    revision: "",
    scope_name: "",
    scope_version: "",
    trace_state: "",
    span_attributes: {},
    resource_attributes: {},
    "events.timestamp": [],
    "events.name": [],
    "events.attributes": [],
    "links.trace_id": [],
    "links.span_id": [],
    ...more,
  };
}
const show = (spans: readonly Span[]) =>
  buildWaterfall(spans, normaliseStatement).rows.map(
    ({ span: { span_id }, depth }) => `${" ".repeat(depth)}${span_id}`,
  );

describe("the tree of spans", () => {
  test("puts parents before children and siblings by start", () => {
    const spans = [span("c", "a", 5, 6), span("b", "a", 2, 4), span("d", "b", 3, 4), span("a", "", 0, 10)];
    expect(show(spans)).toEqual(["a", " b", "  d", " c"]);
  });

  test("keeps spans without a known parent and spans in a cycle", () => {
    expect(
      show([span("a", "gone", 0, 1), span("x", "y", 2, 3), span("y", "x", 3, 4), span("z", "z", 5, 6)]),
    ).toEqual(["a", "x", " y", "z"]);
  });

  test("shows each span once for any parents", () => {
    const id = fc.constantFrom("a", "b", "c", "d", "");
    const one = fc.record({ id, parent: id, from: fc.nat(20), length: fc.integer({ min: -3, max: 20 }) });
    fc.assert(
      fc.property(fc.array(one, { maxLength: 12 }), (given) => {
        const spans = given.map(({ id, parent, from, length }) => span(id, parent, from, from + length));
        const { rows } = buildWaterfall(spans, normaliseStatement);
        expect(new Set(rows.map((row) => row.span))).toEqual(new Set(spans));
        expect(rows).toHaveLength(spans.length);
        for (const { offset, width } of rows) {
          expect(offset).toBeGreaterThanOrEqual(0);
          expect(width).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });

  test("accepts a chain of any length", () => {
    const spans = Array.from({ length: 20_000 }, (_, at) =>
      span(`s${at}`, at === 0 ? "" : `s${at - 1}`, at, at + 1),
    );
    const { rows } = buildWaterfall(spans, normaliseStatement);
    expect(rows.at(-1)?.depth).toBe(19_999);
  });
});

test("places a bar where its span lies in the trace", () => {
  const { rows, length } = buildWaterfall(
    [
      span("a", "", 0, 8),
      span("b", "a", 2, 4),
      { ...span("c", "b", 3, 3), start_time: "2026-01-31T12:00:00.003500Z" },
    ],
    normaliseStatement,
  );
  expect(length).toBe(8);
  expect(rows.map(({ offset, width }) => [offset, width])).toEqual([
    [0, 1],
    [0.25, 0.25],
    [expect.closeTo(3.5 / 8, 4), 0],
  ]);
});

test("marks a span as failed for status ERROR or an exception", () => {
  const { rows } = buildWaterfall(
    [
      span("a", "", 0, 8),
      span("b", "a", 1, 2, { status_code: "ERROR" }),
      span("c", "a", 2, 3, { "events.name": ["exception"] }),
      span("d", "a", 3, 4, { "events.name": ["message"] }),
    ],
    normaliseStatement,
  );
  expect(rows.map(({ failed }) => failed)).toEqual([false, true, true, false]);
});

test("marks five equal sibling queries, or one span that counts five, as N+1", () => {
  const query = (id: string, parent: string, number: number, more: object = {}) =>
    span(id, parent, 1, 2, {
      span_kind: "client",
      span_attributes: { "db.query.text": `SELECT * FROM t WHERE id = ${number}`, ...more },
    });
  const marks = (spans: readonly Span[]) =>
    Object.fromEntries(
      buildWaterfall(spans, normaliseStatement).rows.map((row) => [row.span.span_id, row.repeated]),
    );
  const four = [1, 2, 3, 4].map((number) => query(`q${number}`, "a", number));
  expect(marks([span("a", "", 0, 9), ...four])).toEqual({
    a: undefined,
    q1: undefined,
    q2: undefined,
    q3: undefined,
    q4: undefined,
  });
  expect(marks([span("a", "", 0, 9), ...four, query("q5", "a", 5), query("other", "b", 6)])).toMatchObject({
    q1: 5,
    q5: 5,
    other: undefined,
  });
  expect(marks([span("a", "", 0, 9), query("q", "a", 1, { "span.composite.count": 7 })])).toMatchObject({
    q: 7,
  });
});

test("marks the traces of the demo that their listing marks", async () => {
  const demo = await createDemo();
  const body = { site_ids: ["demo-shop"], pagination: { per_page: 60, order: "DESC" } };
  const { body: rows } = await demo.rest("POST", "/api/v2/tracing/traces/performance", body);
  const listed = rows as readonly { trace_id: string; has_npo: boolean }[];
  const chosen = [
    ...listed.filter(({ has_npo }) => has_npo).slice(0, 2),
    ...listed.filter(({ has_npo }) => !has_npo).slice(0, 4),
  ];
  expect(chosen).toHaveLength(6);
  for (const { trace_id, has_npo } of chosen) {
    const { body: spans } = await demo.rest("POST", "/api/v2/tracing/trace", {
      site_ids: ["demo-shop"],
      trace_id,
    });
    const { rows: drawn } = buildWaterfall(spans as readonly Span[], normaliseStatement);
    expect(
      drawn.some(({ repeated }) => repeated !== undefined),
      trace_id,
    ).toBe(has_npo);
  }
  await demo.close();
});
