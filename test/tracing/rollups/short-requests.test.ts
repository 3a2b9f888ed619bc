// A request for a short range, which the source counts itself, says nothing of longer ones: their figures stay.
import { expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import type { SlowEventsQuery } from "#src/store/span-analytics.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSiteTargets } from "#src/tracing/figures/roll-targets.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCatalogue } from "#src/tracing/rollup-store/catalogue.ts";
import { rollGroups } from "#src/tracing/rollup-store/roll-step.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { toTally } from "#src/tracing/spans/span-tally.ts";
import { createMemoryRollups } from "../../../resolvers/memory/stores/rollup-store.ts";
import { at, base, createSource, createSpan, signal } from "../span-builder.ts";
import { createStoredSpans } from "./stored-spans.ts";

const minute = 60_000;
const createEvent = (n: number, minutes: number, statement: string): Span =>
  createSpan({
    site_id: "a",
    span_id: `s${minutes}-${n}`,
    parent_span_id: "p",
    trace_id: `t${minutes}`,
    from: minutes * minute + n,
    to: minutes * minute + n + 10,
    statement,
    span_kind: "client",
  });

/** Counts equal spans of a short range, as an index does, and has too many different ones in a long one. */
function addTallies(reader: SpanReader, spans: () => readonly Span[]): SpanReader {
  return {
    ...reader,
    count: async ({ range }) => spans().filter(({ end }) => end >= range.from && end <= range.to).length,
    tally: async function* (query, signal) {
      const isShort = at(20 * minute) - at(0) > query.range.to - query.range.from;
      const budget = isShort ? createBudget(10_000) : query.budget;
      const found: Span[] = [];
      for await (const batch of reader.scan({ ...query, budget }, signal)) found.push(...batch);
      if (!isShort) yield found.map(toTally);
      else {
        for (const own of Map.groupBy(found, ({ statement }) => statement).values()) {
          const [span] = own;
          if (span === undefined) continue;
          query.budget.spend(1);
          const total = own.reduce((sum, { start, end }) => sum + end - start, 0n);
          yield [{ span, isSingle: false, spans: own.length, total }];
        }
      }
    },
  };
}

test.each([
  ["an index keeps figures", true],
  ["figures are in memory alone", false],
])("a short request keeps figures of long ranges where %s", async (_, isStored) => {
  const held = createStoredSpans();
  for (let minutes = 0; minutes < 150; minutes++)
    for (const n of [0, 1]) held.add([createEvent(n, minutes, `select ${minutes}`)]);
  for (let n = 0; n < 20; n++) held.add([createEvent(n, 170, "select 1")]);
  const withTallies = (reader: SpanReader) => addTallies(reader, held.listSpans);
  const reader: SpanReader = {
    ...withTallies(held.reader),
    openSnapshot: async (...query) => {
      const snapshot = await held.reader.openSnapshot?.(...query);
      return (
        snapshot && {
          ...snapshot,
          reader: withTallies(snapshot.reader),
          trackOrigins: (record) => withTallies(snapshot.trackOrigins(record)),
        }
      );
    },
  };
  const store = createMemoryRollups();
  const source = createSource("a");
  const now = () => base + 161 * minute;
  if (isStored) {
    const targets = createSiteTargets({ backend: "es", reader, source, retention: 30 * 24 * 60 * minute });
    const target = targets.find(({ kind }) => kind === "slow_events");
    if (target === undefined) throw new Error("no target");
    const context = {
      store,
      now: () => at(161 * minute),
      segmentSpans: 50,
      maxDocuments: 100_000,
      maxHeldSpans: 10_000,
      maxMergedBytes: 2_000_000,
      behindPause: 0,
    };
    const group = {
      target,
      skipped: [],
      isUnverified: false,
      mayTakeAsDeleted: () => true,
      isUnstable: () => false,
    };
    for (let did = ""; did !== "idle"; ) did = (await rollGroups(context, [group], signal))[0]?.did ?? "idle";
  }
  const cache = createRollupCache({
    backend: "es",
    maxBytes: 10_000_000,
    minSpans: 10,
    segmentSpans: 50,
    behindPause: 0,
    ...(isStored && {
      stored: createRollupCatalogue(
        () => store,
        now,
        () => undefined,
      ),
    }),
  });
  const analytics = createRollupAnalytics(reader, cache);
  // Less than the 300 spans of the long range: only who has its figures can answer for it.
  const ask = async (from: number, to: number, limit = 100) => {
    const range = { from: at(from * minute), to: at(to * minute) };
    const query: SlowEventsQuery = {
      sources: [source],
      range,
      requiredAttributes: [],
      excludedAttributes: [],
      limit: 1_000,
      budget: createBudget(limit),
    };
    const rows = await analytics.slowEvents(query, signal);
    return rows.reduce((sum, { count }) => sum + count, 0);
  };
  // With enough to read all of it once, where no index has it.
  if (!isStored) for (const part of [0, 45, 90, 135]) await ask(part, Math.min(part + 45, 150));
  expect(await ask(0, 150)).toBe(300);
  for (let n = 0; n < 5; n++) {
    expect(await ask(165, 175)).toBe(20);
    expect(await ask(0, 150)).toBe(300);
  }
});
