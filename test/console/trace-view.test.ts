// The view of traces: the critical path covers the trace, folding hides what is below, durations fall into one column each.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { findCriticalPath } from "#src/console/traces/critical-path.js";
import { binDurations, chooseDurations, listDurationMarks } from "#src/console/traces/duration-bins.js";
import { compareTraces, hasChildren, listShown } from "#src/console/traces/span-rows.js";
import { buildWaterfall, type Row, type Span } from "#src/console/traces/waterfall.js";

const start = Date.UTC(2026, 0, 31, 12);
const time = (at: number) => new Date(start + at).toISOString();
const span = (id: string, parent: string, from: number, to: number) =>
  ({
    span_id: id,
    parent_span_id: parent,
    start_time: time(from),
    end_time: time(to),
    duration: to - from,
    span_name: id,
    service_name: "web",
    span_kind: "internal",
    status_code: "UNSET",
    span_attributes: {},
    "events.name": [],
  }) as unknown as Span;
const rowsOf = (spans: readonly Span[]) => buildWaterfall(spans, (text) => text).rows;

describe("the critical path", () => {
  const ids = ["a", "b", "c", "d", "e", "f"];
  const spans = fc
    .array(fc.record({ parent: fc.nat(5), from: fc.nat(90), length: fc.nat(60) }), { maxLength: 5 })
    .map((others) => [
      span("a", "", 0, 100),
      ...others.map(({ parent, from, length }, at) =>
        span(ids[at + 1] ?? "", ids[Math.min(parent, at)] ?? "a", from, from + length),
      ),
    ]);

  test("covers the first span from its end to its start, without gap or overlap", () => {
    fc.assert(
      fc.property(spans, (given) => {
        const rows = rowsOf(given);
        const path = findCriticalPath(rows).toSorted((a, b) => a.from - b.from);
        const root = rows[0] as Row;
        let at = root.offset;
        for (const { row, from, to } of path) {
          expect(from).toBeCloseTo(at, 9);
          expect(from).toBeGreaterThanOrEqual(row.offset - 1e-9);
          expect(to).toBeLessThanOrEqual(row.offset + row.width + 1e-9);
          at = to;
        }
        expect(at).toBeCloseTo(root.offset + root.width, 9);
      }),
    );
  });

  test("is the span that ended last before each moment", () => {
    const rows = rowsOf([
      span("root", "", 0, 100),
      span("early", "root", 5, 30),
      span("late", "root", 20, 80),
      span("inner", "late", 30, 60),
      span("asynchronous", "root", 90, 140),
    ]);
    const names = new Set(findCriticalPath(rows).map(({ row }) => row.span.span_id));
    expect([...names].sort()).toEqual(["inner", "late", "root"]);
  });

  test("accepts a chain of any length", () => {
    const chain = Array.from({ length: 20_000 }, (_, at) =>
      span(`s${at}`, at === 0 ? "" : `s${at - 1}`, 0, 20_000 - at / 2),
    );
    expect(findCriticalPath(rowsOf(chain)).length).toBeGreaterThan(10_000);
  });
});

test("what is folded hides all below it, and nothing else", () => {
  const depths = fc.array(fc.nat(3), { maxLength: 12 }).map((steps) => {
    let depth = -1;
    return steps.map((step) => {
      depth = Math.min(depth + 1, step);
      return { depth };
    });
  });
  fc.assert(
    fc.property(depths, fc.array(fc.nat(11)), (rows, fold) => {
      const folded = new Set(fold);
      const shown = listShown(rows, folded);
      for (const [at, { depth }] of rows.entries()) {
        const above: number[] = [];
        let level = depth;
        for (let other = at - 1; other >= 0; other -= 1)
          if ((rows[other]?.depth ?? 0) < level) {
            above.push(other);
            level = rows[other]?.depth ?? 0;
          }
        expect(shown[at]).toBe(!above.some((one) => folded.has(one)));
        if (hasChildren(rows, at)) expect(rows[at + 1]?.depth).toBe(depth + 1);
      }
    }),
  );
});

describe("durations", () => {
  const durations = fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 60 });

  test("fall into one column each", () => {
    fc.assert(
      fc.property(durations, (all) => {
        const bins = binDurations(all);
        expect(bins.reduce((sum, { count }) => sum + count, 0)).toBe(all.length);
        for (const [at, { from, to, count }] of bins.entries()) {
          expect(all.filter((one) => from <= one && one < to)).toHaveLength(count);
          expect(bins[at + 1]?.from ?? to).toBe(to);
        }
      }),
    );
  });

  test("have marks where their columns begin and end", () => {
    fc.assert(
      fc.property(durations, (all) => {
        const bins = binDurations(all);
        const marks = listDurationMarks(bins);
        expect([marks[0], marks.at(-1)]).toEqual([
          { place: 0, duration: bins[0]?.from },
          { place: 1, duration: bins.at(-1)?.to },
        ]);
        for (const { place, duration } of marks.slice(0, -1)) {
          expect(bins[Math.round(place * bins.length)]?.from).toBe(duration);
          // What is chosen from there on is what the mark says.
          expect(chooseDurations(bins, place + 1e-9, 1).min).toBe(duration);
        }
      }),
    );
  });

  test("are chosen by whole columns", () => {
    const bins = binDurations([1, 10, 100]);
    expect(chooseDurations(bins, 0, 0.999)).toEqual({ min: bins[0]?.from, below: bins.at(-1)?.to });
    expect(chooseDurations(bins, 0, 0)).toEqual({ min: bins[0]?.from, below: bins[0]?.to });
  });
});

test("two traces are compared by the names of their spans, and no span is left out", () => {
  const one = [span("x", "", 0, 10), span("y", "x", 0, 4), { ...span("z", "x", 5, 9), span_name: "y" }];
  const rows = compareTraces(one, [span("x", "", 0, 30)]);
  expect(rows.map(({ name, counts, times }) => ({ name, counts, times }))).toEqual([
    { name: "x", counts: [1, 1], times: [10, 30] },
    { name: "y", counts: [2, 0], times: [8, 0] },
  ]);
});
