// A store of spans that come, change and go, a store of rollups beside it that may fail at any point, and a roller between them.
import fc from "fast-check";
import { expect } from "vitest";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { isNonEmpty, requireAt, requireFirst } from "#src/core/collections.ts";
import { compare, type Span, spanKinds } from "#src/core/rows.ts";
import { day, minute, type TimeRange } from "#src/core/time.ts";
import type { RollupStore } from "#src/store/rollups.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createPartnerTargets, createSiteTargets } from "#src/tracing/figures/roll-targets.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCatalogue } from "#src/tracing/rollup-store/catalogue.ts";
import type { GroupToRoll } from "#src/tracing/rollup-store/group-manifests.ts";
import { type RollContext, type RollStep, rollGroups } from "#src/tracing/rollup-store/roll-step.ts";
import { groupTargets, type RollTarget } from "#src/tracing/rollup-store/roll-target.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { encodeEventDigest, hashStatement } from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { createStoredSpans } from "../rollups/stored-spans.ts";
import { at, base, createSource, createSpan, signal } from "../span-builder.ts";

/** Of the time in which spans end, milliseconds. */
export const length = 150 * minute;
/** When rollers work: all segments are closed. */
export const rolledAt = length + 10 * minute;

const traceId = fc.constantFrom("t1", "t2", "t3", "t4");
const callerId = fc.constantFrom("c1", "c2", "c3", "c4", "c5");
let made = 0;
/** One document, as each site that holds it reads it. */
export const documents = fc
  .record({
    trace_id: traceId,
    parent_span_id: fc.option(callerId, { nil: undefined }),
    link: fc.option(fc.record({ trace_id: traceId, span_id: callerId }), { nil: undefined, freq: 2 }),
    to: fc.oneof(
      fc.integer({ min: 0, max: length - 1 }),
      fc.constantFrom(0, 5 * minute - 1, 5 * minute, 60 * minute - 1, 60 * minute),
    ),
    length: fc.integer({ min: 0, max: 90_000 }),
    service_name: fc.constantFrom("x", "y"),
    status_code: fc.constantFrom("OK", "ERROR"),
    peer: fc.constantFrom("db", undefined),
    statement: fc.constantFrom("select 1", "select 2", undefined),
    // Five calls with one statement are an N+1.
    count: fc.constantFrom(1, 1, 3, 5),
    revision: fc.constantFrom("r1", "r2", undefined),
    span_kind: fc.constantFrom(...spanKinds),
    id: fc.option(callerId, { nil: undefined }),
    sites: fc.constantFrom(["a"], ["b"], ["a", "b"]),
  })
  .map(({ id, sites, link, to, length, ...rest }): readonly [Span, ...Span[]] => {
    made += 1;
    // Half of them have the ids that others name, as parents and in links.
    const span_id = id ?? `s${made}`;
    const links = link === undefined ? [] : [{ ...link, trace_state: "", attributes: {} }];
    const copy = (site_id: string) => createSpan({ ...rest, site_id, span_id, links, from: to - length, to });
    const [first = "a", ...others] = sites;
    return [copy(first), ...others.map(copy)];
  });

/** A request of a revision of its own, and its five calls that end in another hour. */
export const requestWithNpo: readonly (readonly [Span])[] = [
  { span_id: "n1", span_kind: "server", to: 10 * minute } as const,
  { span_id: "n2", parent_span_id: "n1", span_kind: "client", count: 5, to: 95 * minute } as const,
].map(({ to, ...fields }) => {
  const statement = "select 3";
  return [
    createSpan({
      site_id: "a",
      trace_id: "t5",
      revision: "r3",
      statement,
      ...fields,
      from: to - 9,
      to,
    }),
  ];
});

/** Ends whatever works: at the n-th call of a store from now on, before or after it has had its effect. */
export interface Killer {
  /** Undefined: never. */
  calls: number | undefined;
  isAfter: boolean;
}

export class Killed extends Error {}

function createKilledStore(store: RollupStore, killer: Killer): RollupStore {
  const run = async <T>(work: () => Promise<T>): Promise<T> => {
    const isLast = killer.calls === 0;
    if (killer.calls !== undefined) killer.calls -= 1;
    if (isLast && !killer.isAfter) throw new Killed();
    const result = await work();
    if (isLast) throw new Killed();
    return result;
  };
  return {
    read: (ids, own) => run(() => store.read(ids, own)),
    create: (created, own) => run(() => store.create(created, own)),
    replace: (document, revision, own) => run(() => store.replace(document, revision, own)),
    list: (own) => store.list(own),
    remove: (ids, own) => run(() => store.remove(ids, own)),
  };
}

/** Sites `a` and `b` on one source; `a` is seen alone and with `b`. `maxBytes` are of the figures in memory. */
export function openRolledSpans(
  maxBytes = 0,
  maxMergedBytes = 2_000_000,
  spans = createStoredSpans(),
  inner: RollupStore = createMemoryRollups(),
) {
  const killer: Killer = { calls: undefined, isAfter: false };
  const store = createKilledStore(inner, killer);
  const [a, b] = [createSource("a"), createSource("b")] as const;
  const rolled = { backend: "es", reader: countByRange(spans), source: a, retention: 30 * day };
  const targets = [
    ...createSiteTargets(rolled),
    ...createPartnerTargets(rolled, []),
    ...createPartnerTargets(rolled, [b]),
  ];
  // Each request reads the manifest anew.
  let time = base;
  const catalogue = createRollupCatalogue(
    () => inner,
    () => (time += minute),
    (error) => {
      throw error;
    },
  );
  const stored: boolean[] = [];
  const recordLookup = (hit: boolean) => void stored.push(hit);
  const cache = createRollupCache({
    backend: "es",
    maxBytes,
    minSpans: 0,
    segmentSpans: 10,
    behindPause: 0,
    stored: catalogue,
    recordLookup,
  });
  const analytics = createRollupAnalytics(spans.reader, cache);
  const definition = () => createSpanAnalytics(createArrayReader(spans.listSpans()));
  const context: RollContext = {
    store,
    now: () => at(rolledAt),
    segmentSpans: 4,
    maxDocuments: 100_000,
    maxHeldSpans: 1_000,
    maxMergedBytes,
    behindPause: 0,
  };
  return { spans, inner, store, killer, targets, context, analytics, definition, stored, sources: { a, b } };
}

/** The reader of some spans, whose snapshots count those of a range. */
function countByRange({ reader, listSpans }: ReturnType<typeof createStoredSpans>): SpanReader {
  return {
    ...reader,
    openSnapshot: async (...query) => {
      const snapshot = await reader.openSnapshot?.(...query);
      const count: SpanReader["count"] = async ({ range: { from, to } }) =>
        listSpans().filter(({ end }) => end >= from && end <= to).length;
      return snapshot && { ...snapshot, reader: { ...snapshot.reader, count } };
    },
  };
}

/** What a snapshot lacks is deleted: it has been missing for long. */
const usualOrder = {
  skipped: [],
  isUnverified: false,
  mayTakeAsDeleted: () => true,
  isUnstable: () => false,
};

/** One step of a roller for one group. */
export async function rollGroup(
  context: RollContext,
  target: RollTarget,
  over: Partial<GroupToRoll> = {},
): Promise<RollStep> {
  const order = { target, ...usualOrder, ...over };
  return requireFirst(await rollGroups(context, [order], signal));
}

/** One step of a roller for the groups of the same sources as one of them. */
export async function rollWithOthers(
  context: RollContext,
  targets: readonly RollTarget[],
  { group }: RollTarget,
  over: Partial<GroupToRoll> = {},
): Promise<readonly RollStep[]> {
  const orders = groupTargets(targets)
    .filter((own) => own.some((one) => one.group === group))
    .flat()
    .map((target) => ({ target, ...usualOrder, ...over }));
  return isNonEmpty(orders) ? rollGroups(context, orders, signal) : [];
}

export type RolledSpans = ReturnType<typeof openRolledSpans>;

/** What was compared. */
export interface ComparedRows {
  /** Of calls and slow events by action. */
  ofActions: number;
  /** Actions with an N+1. */
  withNpo: number;
  ofRevisions: number;
}

/**
 * Compares the stored kinds of answers, of both views, with those of the definition; `limit` is what a request may read. Adds to
 * `compared`.
 */
export async function expectAnswersOfReading(
  rolled: RolledSpans,
  [one, other]: readonly [number, number],
  compared: ComparedRows,
  limit = 1_000_000,
): Promise<void> {
  const range = { from: at(Math.min(one, other)), to: at(Math.max(one, other)) };
  await expectRequestsOfReading(rolled, range, compared, limit);
  await expectCallsOfReading(rolled, range, compared, limit);
}

async function expectRequestsOfReading(
  { analytics, definition, sources: { a } }: RolledSpans,
  range: TimeRange,
  compared: ComparedRows,
  limit: number,
): Promise<void> {
  const sources = [a] as const;
  const exact = { sources, range, budget: createBudget(1_000_000) };
  const asked = { sources, range, budget: createBudget(limit) };
  for (const revision of [undefined, "r1", "r3"]) {
    for (const action of [undefined, "work"]) {
      const of = { namespaces: action === undefined ? [] : ["web"], revision, action };
      const read = await definition().actions({ ...exact, ...of }, signal);
      expect(toTexts(await analytics.actions({ ...asked, ...of }, signal))).toEqual(toTexts(read));
      compared.withNpo += read.filter(({ has_npo }) => has_npo).length;
    }
    if (revision === undefined) continue;
    const read = await definition().revisionStats({ ...exact, revision }, signal);
    const found = await analytics.revisionStats({ ...asked, revision }, signal);
    expect(found && toTexts([found])).toEqual(read && toTexts([read]));
    const together = await analytics.statsOfRevisions({ ...asked, revisions: [revision, "r0"] }, signal);
    expect(together.get(revision)).toEqual(found);
    const all = await analytics.statsOfRevisions(asked, signal);
    expect(all.get(revision)).toEqual(found);
    expect(all.has("")).toBe(false);
    if (found === undefined || read === undefined) continue;
    compared.ofRevisions += 1;
    for (const name of ["p_90", "p_95"] as const)
      expect(Math.abs(found[name] - read[name])).toBeLessThanOrEqual(0.02 * read[name]);
  }
}

async function expectCallsOfReading(
  { analytics, definition, sources: { a, b } }: RolledSpans,
  range: TimeRange,
  compared: ComparedRows,
  limit: number,
): Promise<void> {
  for (const partners of [[], [b]]) {
    const query = { sources: [a], partners, range, budget: createBudget(limit) } as const;
    const exact = await definition().siteEdges({ ...query, budget: createBudget(1_000_000) }, signal);
    expect(withoutPercentiles(await analytics.siteEdges(query, signal))).toEqual(withoutPercentiles(exact));
    for (const service of ["x", "y", "z"]) {
      const of = { ...query, service, namespace: "web", action: "work" };
      const exact = await definition().actionEdges({ ...of, budget: createBudget(1_000_000) }, signal);
      compared.ofActions += exact.upstream.length + exact.downstream.length;
      expect(withoutPercentiles(await analytics.actionEdges(of, signal))).toEqual(withoutPercentiles(exact));
    }
  }
  const query = {
    sources: [a] as const,
    range,
    kind: undefined,
    limit: 100,
    budget: createBudget(limit),
    requiredAttributes: [],
    excludedAttributes: [],
  };
  const events = await definition().slowEvents({ ...query, budget: createBudget(1_000_000) }, signal);
  expect(await analytics.slowEvents(query, signal)).toEqual(events);
  for (const { service, kind, name, statement } of events) {
    const hash = statement === undefined ? undefined : hashStatement(statement);
    const digest = encodeEventDigest({ service, kind, name, statement: hash });
    const of = { sources: [a] as const, range, digest, budget: createBudget(limit) };
    const exact = await definition().slowEventActions({ ...of, budget: createBudget(1_000_000) }, signal);
    const sort = (rows: typeof exact) =>
      rows.toSorted((x, y) => compare(x.action_name, y.action_name) || compare(x.namespace, y.namespace));
    expect(sort(await analytics.slowEventActions(of, signal))).toEqual(sort(exact));
    compared.ofActions += exact.length;
  }
}

function withoutPercentiles(edges: object): unknown {
  return Object.fromEntries(Object.entries(edges).map(([side, rows]) => [side, toTexts(rows)]));
}

/** Rows in an order of their own, without what may differ: percentiles, and the last digits of a mean. */
function toTexts(rows: readonly object[]): readonly string[] {
  return rows
    .map((row) => {
      const { p_90, p_95, mean, ...rest } = row as Record<string, unknown>;
      const fixed = { ...rest, mean: (mean as number).toFixed(9) };
      const entries = Object.entries(fixed).filter(([, value]) => value !== undefined);
      return entries
        .map(([name, value]) => `${name}: ${String(value)}`)
        .sort()
        .join(", ");
    })
    .sort();
}

export const pickTarget = ({ targets }: RolledSpans, number: number) =>
  requireAt(targets, number % targets.length);
