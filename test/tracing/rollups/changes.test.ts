// Which minutes of what is kept may have changed, from the documents that were added since.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { type Instant, minute, type TimeRange } from "#src/core/time.ts";
import type { AddedSpans, SpanReader } from "#src/store/spans.ts";
import { findChanges, findChangesForRequest } from "#src/tracing/rollups/changes.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { at, createSource, createSpan, signal } from "../span-builder.ts";

const sources = [createSource("shop")] as const;
const isWithin = ({ end }: Span, { from, to }: TimeRange) => end >= from && end <= to;
const findMinute = ({ end }: Span): Instant => (end - (end % 60_000_000_000n)) as Instant;
const cover = (from: number, to: number): TimeRange => ({
  from: at(from * minute),
  to: (at(to * minute) - 1n) as Instant,
});

/** Readers that return what they are asked for and no more, and how many spans that was. */
function openSpans(spans: readonly Span[], added: readonly Span[], documents = added.length) {
  const read = { spans: 0 };
  const select = async function* (found: readonly Span[]) {
    read.spans += found.length;
    if (found.length > 0) yield found;
  };
  const reader: SpanReader = {
    scan: () => select([]),
    find: ({ of, within }) => {
      const ids = new Set(of.by === "trace" ? of.traceIds : []);
      const isFound = (span: Span) => ids.has(span.trace_id) && (!within || isWithin(span, within.range));
      return select(spans.filter(isFound));
    },
  };
  const of: AddedSpans = {
    documents,
    changedOrigins: new Set(),
    read: ({ range }) => select(added.filter((span) => isWithin(span, range))),
  };
  return { reader, added: of, read };
}

const fated = fc.record({
  trace: fc.nat(5),
  ends: fc.nat(59),
  isAdded: fc.boolean(),
  link: fc.option(fc.nat(5), { nil: undefined }),
});
const ranges = fc
  .array(fc.tuple(fc.nat(49), fc.integer({ min: 1, max: 10 })), { minLength: 1, maxLength: 3 })
  .map((list) => list.map(([from, length]) => cover(from, from + length)));

test("finds each kept minute that may have changed, and no others", async () => {
  const property = fc.asyncProperty(
    fc.array(fated, { maxLength: 30 }),
    ranges,
    fc.boolean(),
    async (fates, kept, isLocal) => {
      const all = fates.map(({ trace, ends, isAdded, link }, n) => ({
        isAdded,
        span: createSpan({
          trace_id: `t${trace}`,
          span_id: `s${n}`,
          to: ends * minute + n,
          links:
            link === undefined
              ? []
              : [{ trace_id: `t${link}`, span_id: "s", trace_state: "", attributes: {} }],
        }),
      }));
      const added = all.filter(({ isAdded }) => isAdded).map(({ span }) => span);
      const opened = openSpans(
        all.map(({ span }) => span),
        added,
      );
      const query = { sources, isLocal, kept, reader: opened.reader, added: opened.added, maxAdded: 1_000 };
      const changes = await findChanges(query, signal);
      const traces = new Set(
        added.flatMap(({ trace_id, links }) => [trace_id, ...links.map((l) => l.trace_id)]),
      );
      const changed = isLocal
        ? added
        : all.map(({ span }) => span).filter((span) => added.includes(span) || traces.has(span.trace_id));
      const expected = new Set(changed.map(findMinute));
      const isKept = (minuteStart: Instant) =>
        kept.some(({ from, to }) => minuteStart >= from && minuteStart <= to);
      const sort = (minutes: Iterable<Instant> = []) => [...minutes].filter(isKept).map(String).sort();
      expect(sort(changes?.minutes)).toEqual(sort(expected));
    },
  );
  await fc.assert(property, { numRuns: sampleRuns(200) });
});

describe("on a busy site, of which nearly all that was added is newer than what is kept", () => {
  const old = createSpan({ trace_id: "a", span_id: "1", to: 5 * minute });
  const late = createSpan({ trace_id: "a", span_id: "2", to: 6 * minute });
  const newer = Array.from({ length: 200 }, (_, n) =>
    createSpan({ trace_id: `n${n}`, span_id: `${n}`, to: 30 * minute + n }),
  );
  const kept = [cover(0, 10), cover(12, 20)];
  const open = (documents?: number) => openSpans([old, late, ...newer], [late, ...newer], documents);

  const ask = (isLocal: boolean, isStored: boolean, documents?: number) => {
    const { reader, added, read } = open(documents);
    const query = { sources, isLocal, reader, added, kept, isStored };
    return { changes: findChangesForRequest(query, signal), read };
  };

  test("figures of spans by themselves take the late ones only, however many have come", async () => {
    const { changes, read } = ask(true, false, 10_000_000);
    expect([...((await changes)?.minutes ?? [])]).toEqual([findMinute(late)]);
    expect(read.spans).toBe(1);
  });

  test("figures of traces take what was added, and of its traces what is kept", async () => {
    const { changes, read } = ask(false, false);
    expect((await changes)?.minutes).toContain(findMinute(old));
    expect(read.spans).toBe(1 + newer.length + 2);
  });

  test("figures of traces are given up where too much was added, later where an index keeps them", async () => {
    for (const [isStored, documents, isGivenUp] of [
      [false, 50_001, true],
      [true, 50_001, false],
      [true, 200_001, true],
    ] as const) {
      const { changes, read } = ask(false, isStored, documents);
      expect((await changes) === undefined).toBe(isGivenUp);
      expect(read.spans === 0).toBe(isGivenUp);
    }
  });
});
