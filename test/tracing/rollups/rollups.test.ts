// Rollups against reading: whatever comes, changes and goes between two questions, and whichever sites are visible.
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { type SlowEventAction, type Span, spanKinds } from "#src/core/rows.ts";
import { type Instant, minute } from "#src/core/time.ts";
import type { EdgesQuery, SiteEdges, SlowEventsQuery } from "#src/store/span-analytics.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { type Choice, runWithRecorder } from "#src/telemetry/request-recorder.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { encodeEventDigest, hashStatement } from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { at, createSource, createSpan, signal } from "../span-builder.ts";
import { createFederatedStoredSpans } from "./federated-stored-spans.ts";
import {
  createLateReader,
  createStoredSpans,
  type DocumentCopies,
  type StoredSpans,
} from "./stored-spans.ts";

const siteNames = ["a", "b", "c"] as const;
const traceId = fc.constantFrom("t1", "t2", "t3");
/** Few, so that both sides of a call share one, and an exporter sends a span twice. */
const spanId = fc.constantFrom("s1", "s2", "s3", "s4", "s5");
/** Milliseconds within half an hour, so that segments of a minute and of five are cut and whole. */
const time = fc.oneof(
  fc.integer({ min: 0, max: 30 * minute }),
  fc.constantFrom(0, 5 * minute - 1, 5 * minute, 10 * minute, 10 * minute + 1),
);
const links = fc
  .option(fc.record({ trace_id: traceId, span_id: spanId }), { nil: undefined, freq: 2 })
  .map((link) => (link === undefined ? [] : [{ ...link, trace_state: "", attributes: {} }]));
const fields = fc.record({
  trace_id: traceId,
  parent_span_id: fc.option(spanId, { nil: undefined }),
  links,
  from: fc.oneof(time, fc.constantFrom(60_000, 120_000)),
  length: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 90_000 })),
  service_name: fc.constantFrom("x", "y"),
  span_name: fc.constantFrom("work", "rest"),
  status_code: fc.constantFrom("OK", "ERROR"),
  peer: fc.constantFrom("db", undefined),
  statement: fc.constantFrom("select 1", "select 2", undefined),
  count: fc.constantFrom(1, 1, 3),
  span_kind: fc.constantFrom(...spanKinds),
  id: fc.option(spanId, { nil: undefined, freq: 2 }),
  sites: fc.uniqueArray(fc.constantFrom(...siteNames), { minLength: 1, maxLength: 2 }),
});
let madeSpans = 0;
const documentCopies = fields.map(({ id, sites, from, length, ...rest }): DocumentCopies => {
  madeSpans += 1;
  const span_id = id ?? `u${madeSpans}`;
  const [first = "a", ...others] = sites;
  const copy = (site_id: string): Span => createSpan({ ...rest, site_id, span_id, from, to: from + length });
  return [copy(first), ...others.map(copy)];
});

/** What another document of the same span says, or the same document after an update. */
const alteration = fc
  .record(
    {
      parent_span_id: fc.option(spanId, { nil: undefined }),
      links,
      later: time,
      service_name: fc.constantFrom("x", "y", "z"),
      span_name: fc.constantFrom("work", "rest"),
      span_kind: fc.constantFrom(...spanKinds),
      status_code: fc.constantFrom("OK", "ERROR"),
      peer: fc.constantFrom("queue", undefined),
      count: fc.constantFrom(1, 2),
    },
    { requiredKeys: [] },
  )
  .map(({ later = 0, ...fields }) => (span: Span): Span => {
    const { start, end } = span;
    const altered = { ...span, ...fields };
    return {
      ...createSpan(withoutEntry(altered)),
      start,
      end: (end + BigInt(later) * 1_000_000n) as Instant,
    };
  });

function withoutEntry({ entry, start, end, ...span }: Span) {
  return span;
}

const place = fc.nat(50);
const views = [["a"], ["a", "b"], ["b", "a", "c"]] as const;
const question = fc.record({
  view: fc.constantFrom(...views),
  ends: fc.oneof(fc.constant<readonly [number, number]>([0, 30 * minute]), fc.tuple(time, time)),
});
const change = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      does: fc.constant("add" as const),
      documents: fc.array(documentCopies, { maxLength: 2 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("fallBehind" as const) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("remove" as const), place }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("replace" as const), place, alter: alteration }) },
  { weight: 3, arbitrary: fc.record({ does: fc.constant("addAgain" as const), place, alter: alteration }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("exchange" as const), place }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("rollOver" as const) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("removeIndex" as const), place }) },
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;

function applyChange(store: StoredSpans, change: Change): void {
  if (change.does === "fallBehind") store.fallBehind();
  else if (change.does === "add") change.documents.forEach(store.add);
  else if (change.does === "rollOver") store.rollOver();
  else if (change.does === "removeIndex") store.removeIndex(change.place);
  else if (change.does === "replace") store.replace(change.place, change.alter);
  else if (change.does === "addAgain") store.addAgain(change.place, change.alter);
  else {
    store.remove(change.place);
    if (change.does === "exchange") store.reveal();
  }
}

const history = fc.record({
  /** So that segments are short and long. */
  segmentSpans: fc.constantFrom(1, 10, 20),
  first: fc.array(documentCopies, { maxLength: 30 }),
  /** Has a number among the first ones, and is seen when another document goes. */
  late: documentCopies,
  steps: fc.array(fc.record({ change, question }), { minLength: 1, maxLength: 12 }),
});

interface Question {
  readonly view: readonly [string, ...string[]];
  /** Milliseconds. */
  readonly ends: readonly [number, number];
}

const budget = () => createBudget(Number.MAX_SAFE_INTEGER);

describe("rollups", () => {
  test.each([
    ["one backend", createStoredSpans],
    ["two backends", createFederatedStoredSpans],
  ] as const)(
    "of %s answer as reading does, through additions, deletions and updates, for each view",
    async (_, open) => {
      let [kept, asked] = [0, 0];
      const property = fc.asyncProperty(history, async ({ segmentSpans, first, late, steps }) => {
        const store = open();
        const recordLookup = (hit: boolean) => {
          asked += 1;
          if (hit) kept += 1;
        };
        const cache = createRollupCache({
          backend: "es",
          maxBytes: 1_000_000,
          minSpans: 0,
          behindPause: 0,
          segmentSpans,
          recordLookup,
        });
        const analytics = createRollupAnalytics(store.reader, cache);
        store.addLate(late);
        first.forEach(store.add);
        for (const { change, question } of steps) {
          await compareAnswers(question, store.listSpans(), analytics);
          applyChange(store, change);
          await compareAnswers(question, store.listSpans(), analytics);
        }
      });
      await fc.assert(property, { numRuns: sampleRuns(200, { share: 20 }) });
      // Else the property would compare reading with itself.
      expect(kept / asked).toBeGreaterThan(0.2);
    },
  );

  test("answer as reading at one moment does, also while others ask and documents come", async () => {
    let shared = 0;
    const asks = fc.array(fc.record({ question, ticks: fc.nat(60), leaves: fc.boolean() }), {
      minLength: 2,
      maxLength: 5,
    });
    const property = fc.asyncProperty(
      fc.array(documentCopies, { maxLength: 30 }),
      fc.array(fc.record({ change, asks }), { maxLength: 4 }),
      async (first, rounds) => {
        const store = createStoredSpans(() => new Promise(setImmediate));
        const recordLookup = (hit: boolean) => (shared += Number(hit));
        const cache = createRollupCache({
          backend: "es",
          maxBytes: 1_000_000,
          minSpans: 0,
          behindPause: 0,
          segmentSpans: 5,
          recordLookup,
        });
        const analytics = createRollupAnalytics(store.reader, cache);
        first.forEach(store.add);
        for (const { change, asks } of rounds) {
          const before = createSpanAnalytics(createArrayReader(store.listSpans()));
          const answers = asks.map(async ({ question: asked, ticks, leaves }) => {
            await waitTicks(ticks);
            const leaving = new AbortController();
            if (leaves) setTimeout(() => leaving.abort(new Error("left")), 1);
            const query = toEdgesQuery(asked);
            const answer = analytics.siteEdges(query, leaving.signal).catch((error: unknown) => {
              if (!leaves) throw error;
            });
            return { query, answer: await answer };
          });
          await waitTicks(20);
          applyChange(store, change);
          const after = createSpanAnalytics(createArrayReader(store.listSpans()));
          for (const { query, answer } of await Promise.all(answers)) {
            if (answer === undefined) continue;
            const moments = [await before.siteEdges(query, signal), await after.siteEdges(query, signal)];
            expect(moments.map(formatEdges)).toContain(formatEdges(answer));
          }
        }
      },
    );
    await fc.assert(property, { numRuns: sampleRuns(400, { share: 20 }) });
    expect(shared).toBeGreaterThan(50);
  });

  test("let a request read its own segments while another one reads others", async () => {
    const firstHalf = Promise.withResolvers<void>();
    const { ask } = openBusyStore({}, async (range) => {
      if (range !== undefined && range.from < at(5 * minute)) await firstHalf.promise;
    });
    const first = ask({ to: 5 * minute });
    await waitTicks(20);
    expect((await ask({ from: 5 * minute })).downstream).toMatchObject([{ count: 50 }]);
    firstHalf.resolve();
    expect((await first).downstream).toMatchObject([{ count: 50 }]);
  });

  test("wait for a copy of the shards that shows what was counted", async () => {
    const { store, lookups, ask, cache } = openBusyStore();
    store.add([{ ...makeCall(55), span_id: "late" }]);
    await ask();
    store.fallBehind();
    lookups.length = 0;
    const { reader, countOpened } = createLateReader(store);
    const analytics = createRollupAnalytics(reader, cache);
    const range = { from: at(0), to: at(10 * minute - 1e-6) };
    const query = { sources: [createSource("a")], partners: [], range, budget: budget() } as const;
    expect((await analytics.siteEdges(query, signal)).downstream).toMatchObject([{ count: 101 }]);
    expect(lookups).toEqual(Array(10).fill(true));
    expect(countOpened()).toBe(2);
    // No copy has what was deleted.
    store.remove(0);
    expect((await ask()).downstream).toMatchObject([{ count: 100 }]);
  });

  test("keep nothing of a segment that loses an index while it is read", async () => {
    const { store, askWhileRead } = openHeldUpStore();
    store.rollOver();
    store.add([{ ...makeCall(55), span_id: "late" }]);
    expect(await askWhileRead(() => store.removeIndex(0))).toEqual([101, 1, 1]);
  });

  test("keep what was made of other indices than one that is deleted", async () => {
    const { store, lookups, ask } = openBusyStore();
    store.rollOver();
    for (const place of [3, 55]) store.add([{ ...makeCall(place), span_id: "late" }]);
    expect((await ask()).downstream).toMatchObject([{ count: 102 }]);
    lookups.length = 0;
    store.removeIndex(1);
    const before = store.countRead();
    expect((await ask()).downstream).toMatchObject([{ count: 100 }]);
    // All ten were read together the first time, so that nobody knows in which the deleted ones were.
    expect(lookups.filter((hit) => !hit)).toHaveLength(10);
    expect(store.countRead()).toBeGreaterThan(before);
    store.rollOver();
    store.add([{ ...makeCall(99), span_id: "later" }]);
    await ask();
    lookups.length = 0;
    store.removeIndex(2);
    expect((await ask()).downstream).toMatchObject([{ count: 100 }]);
    expect(lookups.filter((hit) => !hit)).toHaveLength(1);
  });

  test("keep nothing of a segment that changes while it is read", async () => {
    const { store, askWhileRead } = openHeldUpStore();
    const counts = await askWhileRead(() => store.add([{ ...makeCall(55), span_id: "late" }]));
    expect(counts).toEqual([100, 101, 101]);
  });

  /** A busy store whose first reading ends when it is told to. */
  function openHeldUpStore() {
    const begun = Promise.withResolvers<void>();
    const mayEnd = Promise.withResolvers<void>();
    let waits = 0;
    const { store, ask } = openBusyStore({}, async () => {
      waits += 1;
      begun.resolve();
      if (waits === 1) await mayEnd.promise;
    });
    const countCalls = async (asked: ReturnType<typeof ask>) => {
      const { downstream } = await asked;
      expect(downstream).toHaveLength(1);
      return downstream[0]?.count;
    };
    /** How many calls a first request has, a second one that is asked after a change while the first reads, and a third one. */
    const askWhileRead = async (change: () => unknown) => {
      const first = ask();
      await begun.promise;
      change();
      const second = ask();
      await waitTicks(20);
      mayEnd.resolve();
      return [await countCalls(first), await countCalls(second), await countCalls(ask())];
    };
    return { store, askWhileRead };
  }

  test("read what a request has left that was waited for", async () => {
    const begun = Promise.withResolvers<void>();
    const { ask } = openBusyStore({}, async () => {
      begun.resolve();
      await waitTicks(20);
    });
    const leaving = new AbortController();
    const first = ask({ own: leaving.signal });
    await begun.promise;
    const second = ask();
    leaving.abort(new Error("the client left"));
    await expect(first).rejects.toThrow("the client left");
    expect((await second).downstream).toMatchObject([{ count: 100 }]);
  });

  /** A store with ten calls a minute for ten minutes, and the edges of all of them. */
  function openBusyStore(
    settings: Partial<Parameters<typeof createRollupCache>[0]> = {},
    wait?: Parameters<typeof createStoredSpans>[0],
  ) {
    const store = createStoredSpans(wait);
    for (let n = 0; n < 100; n += 1) store.add([makeCall(n)]);
    const lookups: boolean[] = [];
    const cache = createRollupCache({
      backend: "es",
      maxBytes: 1_000_000,
      minSpans: 0,
      segmentSpans: 10,
      behindPause: 0,
      recordLookup: (hit: boolean) => lookups.push(hit),
      ...settings,
    });
    const analytics = createRollupAnalytics(store.reader, cache);
    const ask = ({ limit = 1_000, own = signal, from = 0, to = 10 * minute } = {}) => {
      const range = { from: at(from), to: at(to - 1e-6) };
      const query = {
        sources: [createSource("a")],
        partners: [],
        range,
        budget: createBudget(limit),
      } as const;
      return analytics.siteEdges(query, own);
    };
    return { store, cache, lookups, ask };
  }

  const makeCall = (n: number): Span =>
    createSpan({
      site_id: "a",
      span_id: `c${n}`,
      trace_id: `t${n}`,
      span_kind: "client",
      peer: "db",
      from: n * 6_000,
      to: n * 6_000 + 5,
    });

  test("reads only what has come since", async () => {
    const { store, lookups, ask } = openBusyStore();
    await ask();
    const first = store.countRead();
    lookups.length = 0;
    store.add([{ ...makeCall(55), span_id: "late" }]);
    expect((await ask()).downstream).toMatchObject([{ service: "db", count: 101 }]);
    expect(lookups.filter((hit) => !hit)).toHaveLength(1);
    // The added span, its trace, and its segment twice: as callers and as entries.
    expect(store.countRead() - first).toBeLessThan(first / 3);
  });

  test("read a range once for two requests at the same time", async () => {
    const { lookups, ask } = openBusyStore();
    expect(await Promise.all([ask(), ask()])).toMatchObject([
      { downstream: [{ count: 100 }] },
      { downstream: [{ count: 100 }] },
    ]);
    expect(lookups.filter((hit) => hit)).toHaveLength(10);
  });

  test("let a request leave that waits for another one", async () => {
    const { ask } = openBusyStore();
    const leaving = AbortSignal.abort(new Error("the client left"));
    const first = ask();
    await expect(ask({ own: leaving })).rejects.toThrow("the client left");
    expect(await first).toMatchObject({ downstream: [{ count: 100 }] });
    expect(await ask()).toMatchObject({ downstream: [{ count: 100 }] });
  });

  test.each([
    ["501 days", 501 * 86_400_000],
    ["two centuries", 200 * 365 * 86_400_000],
  ])("leave a range of %s to the definition or cut it into few pieces", async (_, millis) => {
    const { store, cache } = openBusyStore();
    const analytics = createRollupAnalytics(store.reader, cache);
    const range = { from: at(0), to: at(millis) };
    const query = { sources: [createSource("a")], partners: [], range, budget: createBudget(1_000) } as const;
    expect((await analytics.siteEdges(query, signal)).downstream).toMatchObject([{ count: 100 }]);
  });

  test("take no more memory than they may", async () => {
    const { cache, ask } = openBusyStore({ maxBytes: 3_000 });
    expect((await ask()).downstream).toMatchObject([{ count: 100 }]);
    expect(cache.bytes).toBeLessThanOrEqual(3_000);
    expect(cache.bytes).toBeGreaterThan(0);
    expect((await ask()).downstream).toMatchObject([{ count: 100 }]);
  });

  test.each([
    ["all are kept", 0],
    ["few spans are mostly read", 10_000],
  ])("answer a range beyond the budget once its parts are kept, where %s", async (_, minSpans) => {
    const { store, cache, ask } = openBusyStore({ minSpans });
    await expect(ask({ limit: 90 })).rejects.toMatchObject({ slug: "result_too_large" });
    const analytics = createRollupAnalytics(store.reader, cache);
    for (const half of [0, 1]) {
      const range = { from: at(half * 5 * minute), to: at((half + 1) * 5 * minute - 1e-6) };
      const budget = createBudget(300);
      await analytics.siteEdges({ sources: [createSource("a")], partners: [], range, budget }, signal);
    }
    expect((await ask({ limit: 90 })).downstream).toMatchObject([{ count: 100 }]);
  });

  test("keep no more questions than fit, whatever clients ask", async () => {
    const { store, cache } = openBusyStore({ maxBytes: 50_000, minSpans: 50 });
    const analytics = createRollupAnalytics(store.reader, cache);
    for (let n = 0; n < 300; n += 1) {
      const digest = encodeEventDigest({ service: `x${n}`, kind: "client", name: "a", statement: undefined });
      const range = { from: at(0), to: at(10 * minute - 1e-6) };
      const query = { sources: [createSource("a")], range, digest, budget: createBudget(1_000) } as const;
      await analytics.slowEventActions(query, signal);
    }
    expect(cache.bytes).toBeLessThanOrEqual(50_000);
    expect(cache.groups.size).toBeLessThan(100);
    expect(cache.groups.size).toBeGreaterThan(1);
  });

  test("tell an explanation what was kept, what was read, and why", async () => {
    const recordBytes = vi.fn();
    const { store, ask, cache } = openBusyStore({ recordBytes });
    const explain = async (options?: Parameters<typeof ask>[0]) => {
      const choices: Choice[] = [];
      const recorder = {
        recordRequest: () => undefined,
        recordDocuments: () => undefined,
        recordSamples: () => undefined,
        recordChoice: (choice: Choice) => void choices.push(choice),
      };
      await runWithRecorder(recorder, () => ask(options).catch(() => undefined));
      return choices;
    };
    const minutes = (from: number, to: number) => ({
      from: `2026-01-15T10:0${from}:00.000Z`,
      to: to === 10 ? "2026-01-15T10:09:59.999999999Z" : `2026-01-15T10:0${to - 1}:59.999999999Z`,
    });
    const named = { backend: "es", of: "site_edges" };
    expect(await explain()).toMatchObject([
      { ...named, how: "rollups", ranges: [{ ...minutes(0, 10), how: "read", why: "not kept" }] },
    ]);
    expect(recordBytes).toHaveBeenLastCalledWith(cache.bytes);
    expect(cache.bytes).toBeGreaterThan(1_000);
    store.add([{ ...makeCall(55), span_id: "late" }]);
    expect(await explain({ to: 9.5 * minute })).toMatchObject([
      {
        how: "rollups",
        why: "figures of 8 of 10 pieces were there",
        ranges: [
          { ...minutes(0, 5), how: "kept" },
          { ...minutes(5, 6), how: "read", why: expect.stringContaining("changed") },
          { ...minutes(6, 9), how: "kept" },
          { how: "read", why: expect.stringContaining("only a part") },
        ],
      },
    ]);
    store.remove(0);
    expect(await explain({ limit: 50 })).toMatchObject([
      { ...named, how: "read", why: expect.stringContaining("limits.documents") },
    ]);
  });

  test("leave questions to the source that it answers by counting", async () => {
    const { store } = openBusyStore();
    const tally: SpanReader["tally"] = async function* ({ budget }) {
      budget.spend(1);
      yield [{ span: makeCall(0), isSingle: false, spans: 100, total: 100n }];
    };
    const lookups: boolean[] = [];
    const recordLookup = (hit: boolean) => lookups.push(hit);
    const cache = createRollupCache({
      backend: "es",
      maxBytes: 1_000_000,
      minSpans: 50,
      segmentSpans: 10,
      recordLookup,
    });
    const openSnapshot: SpanReader["openSnapshot"] = async (...query) => {
      const snapshot = await store.reader.openSnapshot?.(...query);
      return snapshot && { ...snapshot, reader: { ...snapshot.reader, tally } };
    };
    const analytics = createRollupAnalytics({ ...store.reader, tally, openSnapshot }, cache);
    const ask = () =>
      analytics.slowEvents(
        {
          sources: [createSource("a")],
          range: { from: at(0), to: at(10 * minute - 1e-6) },
          requiredAttributes: [],
          excludedAttributes: [],
          limit: 1,
          budget: createBudget(1_000),
        },
        signal,
      );
    await ask();
    expect(lookups.splice(0)).toHaveLength(10);
    for (let again = 0; again < 100; again += 1) await ask();
    expect(lookups).toHaveLength(0);
    // The spans may not be of that kind any more.
    await ask();
    expect(lookups).toHaveLength(10);
  });

  async function compareAnswers(
    { view: [site, ...partners], ends: [one, other] }: Question,
    spans: readonly Span[],
    analytics: ReturnType<typeof createRollupAnalytics>,
  ): Promise<void> {
    const range = { from: at(Math.min(one, other)), to: at(Math.max(one, other)) };
    const definition = createSpanAnalytics(createArrayReader(spans));
    const edges = toEdgesQuery({ view: [site, ...partners], ends: [one, other] });
    expectEqualEdges(await analytics.siteEdges(edges, signal), await definition.siteEdges(edges, signal));
    const actionEdges = { ...edges, service: "x", namespace: "web", action: "work" };
    const [found, expected] = [
      await analytics.actionEdges(actionEdges, signal),
      await definition.actionEdges(actionEdges, signal),
    ];
    expectEqualEdges({ ...found, internal: [] }, { ...expected, internal: [] });
    const key = { service: "x", kind: "client", name: "work", statement: hashStatement("select ?") } as const;
    const actions = {
      sources: [createSource(site)],
      range,
      budget: budget(),
      digest: encodeEventDigest(key),
    } as const;
    const byAction = (rows: readonly SlowEventAction[]) =>
      rows.toSorted((x, y) =>
        JSON.stringify([x.namespace, x.action_name]) < JSON.stringify([y.namespace, y.action_name]) ? -1 : 1,
      );
    expect(byAction(await analytics.slowEventActions(actions, signal))).toEqual(
      byAction(await definition.slowEventActions(actions, signal)),
    );
    for (const kind of [undefined, "client"] as const) {
      const events: SlowEventsQuery = {
        sources: [createSource(site)],
        range,
        budget: budget(),
        kind,
        requiredAttributes: [],
        excludedAttributes: [],
        limit: 3,
      };
      expect(await analytics.slowEvents(events, signal)).toEqual(await definition.slowEvents(events, signal));
    }
  }
});

function toEdgesQuery({ view: [site, ...partners], ends: [one, other] }: Question): EdgesQuery {
  const range = { from: at(Math.min(one, other)), to: at(Math.max(one, other)) };
  return { sources: [createSource(site)], partners: partners.map(createSource), range, budget: budget() };
}

/** Turns of the event loop. */
async function waitTicks(ticks: number): Promise<void> {
  for (let tick = 0; tick < ticks; tick += 1) await new Promise(setImmediate);
}

/** All but the percentiles. */
function formatEdges(edges: SiteEdges): string {
  return JSON.stringify(
    (["upstream", "downstream", "internal"] as const).map((side) =>
      edges[side]
        .map((edge) => [formatEdgeKey(edge), edge.count, edge.error_count, edge.mean.toFixed(9)].join(" "))
        .sort(),
    ),
  );
}

function expectEqualEdges(found: SiteEdges, expected: SiteEdges): void {
  for (const side of ["upstream", "downstream", "internal"] as const) {
    const byKey = (edges: SiteEdges) =>
      edges[side].toSorted((x, y) => (formatEdgeKey(x) < formatEdgeKey(y) ? -1 : 1));
    const [rows, wanted] = [byKey(found), byKey(expected)];
    expect(rows.map(({ p_90, p_95, ...row }) => row)).toEqual(wanted.map(({ p_90, p_95, ...row }) => row));
    for (const [index, row] of rows.entries()) {
      for (const percentile of ["p_90", "p_95"] as const) {
        const exact = wanted[index]?.[percentile] ?? Number.NaN;
        expect(Math.abs(row[percentile] - exact)).toBeLessThanOrEqual(0.0101 * exact);
      }
    }
  }
}

function formatEdgeKey({
  count,
  error_count,
  mean,
  p_90,
  p_95,
  ...key
}: SiteEdges["upstream"][number]): string {
  return JSON.stringify(Object.entries(key).sort());
}
