// Slow events: the spans below requests, grouped by service, kind, name and normalised statement. The impact of a group is its
// share of the time of all groups: it shows where time goes, and not only what is slow once.
import { mapInTurns, selectFirstInSteps, takeSteps, visitInTurns } from "../core/async/turns.ts";
import { type Attributes, compare, type SlowEvent, type SlowEventAction, type Span } from "../core/rows.ts";
import type { SlowEventActionsQuery, SlowEventsQuery } from "../store/span-analytics.ts";
import type { Budget, SpanReader, SpanTally } from "../store/spans.ts";
import { createDurationStats, type DurationStats } from "./duration-stats.ts";
import { decodeDigest, type EventKey, encodeEventDigest, hashStatement } from "./spans/digest.ts";
import { loadAncestors, readAllSpans } from "./spans/entry-lookup.ts";
import { holdSpans, releaseAfter } from "./spans/read-budget.ts";
import {
  type ActionNames,
  calculateDuration,
  calculateTotalTime,
  compareSpans,
  deriveNames,
  deriveNamesAbove,
  formatActionKey,
  isRequest,
} from "./spans/requests.ts";
import { readTallies, toTally } from "./spans/span-tally.ts";
import { createNormaliser } from "./spans/statement-cache.ts";

/** `SpanAnalytics.slowEvents`: greatest impact first, then by key. */
export async function findSlowEvents(
  reader: SpanReader,
  query: SlowEventsQuery,
  signal: AbortSignal,
): Promise<readonly SlowEvent[]> {
  const { sources, range, budget } = query;
  const events = createEventGroups(budget);
  let total = 0n;
  const scan = { sources, range, select: "children", budget } as const;
  // Tallies have no attributes, so that a filter by these needs each span.
  const hasAttributeFilter = query.requiredAttributes.length > 0 || query.excludedAttributes.length > 0;
  const tallied = hasAttributeFilter ? { scan: reader.scan, find: reader.find } : reader;
  for await (const batch of readTallies(tallied, { ...scan, by: "event" }, signal)) {
    const count = (tally: SpanTally) => {
      total += tally.total;
      if (isIncluded(query, tally.span)) events.add(tally);
    };
    await visitInTurns(batch, count, signal);
  }
  return events.listGreatest(query.limit, total, query.requiredAttributes, signal);
}

/**
 * The `limit` slowest events within requests of each action, by `formatActionKey`. Their impact relates to all spans below
 * requests, as in `findSlowEvents`.
 */
export function findSlowEventsByAction(
  reader: SpanReader,
  query: Pick<SlowEventsQuery, "sources" | "range" | "budget">,
  limit: number,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly SlowEvent[]>> {
  return releaseAfter(query.budget, (budget) =>
    readSlowEventsByAction(reader, { ...query, budget }, limit, signal),
  );
}

async function readSlowEventsByAction(
  reader: SpanReader,
  { sources, range, budget }: Pick<SlowEventsQuery, "sources" | "range" | "budget">,
  limit: number,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly SlowEvent[]>> {
  const spans = await readAllSpans(
    reader.scan({ sources, range, select: "children", withoutEvents: true, budget }, signal),
    budget,
  );
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  let total = 0n;
  const byAction = new Map<string, EventGroups>();
  const count = (span: Span) => {
    total += calculateTotalTime(span);
    const entry = ancestors.findEntry(span);
    if (entry === undefined || !isRequest(entry)) return;
    const key = formatActionKey(deriveNames(entry));
    const events = byAction.get(key) ?? createEventGroups(budget);
    events.add(toTally(span));
    byAction.set(key, events);
  };
  await visitInTurns(spans, count, signal);
  const greatest = new Map<string, readonly SlowEvent[]>();
  for (const [key, events] of byAction)
    greatest.set(key, await events.listGreatest(limit, total, [], signal));
  return greatest;
}

interface EventGroups {
  readonly add: (tally: SpanTally) => void;
  /** The groups with the greatest impact on `total` nanoseconds, with these attributes of the longest span of each. */
  readonly listGreatest: (
    limit: number,
    total: bigint,
    attributes: readonly string[],
    signal: AbortSignal,
  ) => Promise<readonly SlowEvent[]>;
}

function createEventGroups(budget: Budget): EventGroups {
  const normalise = createNormaliser();
  const groups = new Map<string, EventGroup>();
  return {
    add: (tally) => {
      const { span } = tally;
      const key = deriveEventKey(span, normalise);
      const id = formatEventKey(key);
      const known = groups.get(id);
      if (known === undefined) holdSpans(budget, [span]);
      const group = known ?? { key, stats: createDurationStats(), longest: span };
      group.stats.addTally(tally);
      if (compareByDuration(span, group.longest) < 0) group.longest = span;
      groups.set(id, group);
    },
    listGreatest: (limit, total, attributes, signal) =>
      rankEvents(listTotals(groups, attributes), limit, total, signal),
  };
}

/** One after the other, so that who ranks them can pause. */
function* listTotals(
  groups: ReadonlyMap<string, EventGroup>,
  attributes: readonly string[],
): Generator<readonly [string, EventTotals]> {
  for (const [id, { key, stats, longest }] of groups) {
    const picked = pickAttributes(longest.span_attributes, attributes);
    yield [id, { key, count: stats.count(), total: stats.total(), attributes: picked }];
  }
}

interface EventGroup {
  readonly key: EventKey;
  readonly stats: DurationStats;
  /** Used for its attributes only. */
  longest: Span;
}

/** What the spans of one slow event have in common. */
export function deriveEventKey(
  { service_name: service, span_kind: kind, span_name: name, statement }: Span,
  normalise: (statement: string) => string,
): EventKey {
  return { service, kind, name, statement: statement === undefined ? undefined : normalise(statement) };
}

/** Identifies a slow event. */
export function formatEventKey({ service, kind, name, statement }: EventKey): string {
  return JSON.stringify([service, kind, name, statement]);
}

export interface EventTotals {
  readonly key: EventKey;
  readonly count: number;
  /** Nanoseconds. */
  readonly total: bigint;
  readonly attributes: Attributes;
}

/**
 * The `limit` slow events with the greatest impact on `total` nanoseconds, then by `formatEventKey`, which comes with each.
 * @throws the signal's reason
 */
export async function rankEvents(
  events: Iterable<readonly [string, EventTotals]>,
  limit: number,
  total: bigint,
  signal?: AbortSignal,
): Promise<readonly SlowEvent[]> {
  const steps = selectFirstInSteps(
    events,
    limit,
    ([idOfA, a], [idOfB, b]) => compare(b.total, a.total) || compare(idOfA, idOfB),
  );
  const greatest = await takeSteps(steps, signal);
  return greatest.map(([, event]) => ({
    ...event.key,
    count: event.count,
    mean: event.count === 0 ? 0 : Number(event.total) / event.count / 1e6,
    impact: total === 0n ? 0 : (100 * Number(event.total)) / Number(total),
    attributes: event.attributes,
  }));
}

/** The digest of a span's slow event. */
function encodeSpanDigest(span: Span, normalise: (statement: string) => string): string {
  const key = deriveEventKey(span, normalise);
  const statement = key.statement === undefined ? undefined : hashStatement(key.statement);
  return encodeEventDigest({ ...key, statement });
}

/** `SpanAnalytics.slowEventActions`: a row for each action. Empty for a digest of anything else. */
export async function findSlowEventActions(
  reader: SpanReader,
  query: SlowEventActionsQuery,
  signal: AbortSignal,
): Promise<readonly SlowEventAction[]> {
  const { spans, deriveAction } = await readSpansOfEvent(reader, query, signal);
  const byAction: EventActions = new Map();
  const add = (span: Span) => addEventAction(byAction, deriveAction(span), toEventAction(span));
  await visitInTurns(spans, add, signal);
  return listEventActions(byAction, signal);
}

/** The spans of one slow event in actions, by `formatActionKey`. */
export type EventActions = Map<string, NamedEventAction>;

interface NamedEventAction {
  readonly names: ActionNames;
  readonly of: EventAction;
}

/** Spans of one slow event in one action: their number, and the longest. */
interface EventAction {
  readonly count: number;
  readonly longest: Pick<Span, "trace_id" | "span_id" | "site_id" | "span_kind" | "start" | "end">;
}

export function toEventAction({
  count,
  trace_id,
  span_id,
  site_id,
  span_kind,
  start,
  end,
}: Span): EventAction {
  return { count, longest: { trace_id, span_id, site_id, span_kind, start, end } };
}

export function addEventAction(byAction: EventActions, names: ActionNames, added: EventAction): void {
  const key = formatActionKey(names);
  const known = byAction.get(key)?.of ?? { ...added, count: 0 };
  const longest = compareByDuration(added.longest, known.longest) < 0 ? added.longest : known.longest;
  byAction.set(key, { names, of: { count: known.count + added.count, longest } });
}

/** In turns of the event loop. @throws the signal's reason */
export function listEventActions(
  byAction: EventActions,
  signal?: AbortSignal,
): Promise<readonly SlowEventAction[]> {
  const toRow = ({ names, of: { count, longest } }: NamedEventAction): SlowEventAction => ({
    namespace: names.namespace,
    action_name: names.action,
    count,
    trace_id: longest.trace_id,
    start_time: longest.start,
  });
  return mapInTurns(byAction.values(), toRow, signal);
}

/** The spans of a slow event, none for a digest of anything else, and what names the action above each. */
export async function readSpansOfEvent(
  reader: SpanReader,
  { sources, range, digest, budget }: SlowEventActionsQuery,
  signal: AbortSignal,
): Promise<{ readonly spans: readonly Span[]; readonly deriveAction: (span: Span) => ActionNames }> {
  const key = decodeDigest(digest);
  if (key?.of !== "event") return { spans: [], deriveAction: () => deriveNamesAbove(undefined) };
  const { service, kind, name } = key;
  const normalise = createNormaliser();
  const spans: Span[] = [];
  const pushdown = { service, kind, name };
  const scan = { sources, range, select: "children", pushdown, withoutEvents: true, budget } as const;
  for await (const batch of reader.scan(scan, signal)) {
    const keep = (span: Span) => {
      if (encodeSpanDigest(span, normalise) !== digest) return;
      holdSpans(budget, [span]);
      spans.push(span);
    };
    await visitInTurns(batch, keep, signal);
  }
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  return { spans, deriveAction: (span) => deriveNamesAbove(ancestors.findEntry(span)) };
}

/** All spans below requests, and what says the digest of their slow event and the action above each. */
export async function readSpansOfEvents(
  reader: SpanReader,
  { sources, range, budget }: Pick<SlowEventsQuery, "sources" | "range" | "budget">,
  normalise: (statement: string) => string,
  signal: AbortSignal,
): Promise<{
  readonly spans: readonly Span[];
  readonly deriveDigest: (span: Span) => string;
  readonly deriveAction: (span: Span) => ActionNames;
}> {
  const scan = { sources, range, select: "children", withoutEvents: true, budget } as const;
  const spans = await readAllSpans(reader.scan(scan, signal), budget);
  const ancestors = await loadAncestors(reader, sources, spans, budget, signal);
  const digests = new Map<string, string>();
  return {
    spans,
    deriveDigest: (span) => {
      const id = formatEventKey(deriveEventKey(span, normalise));
      const known = digests.get(id);
      if (known !== undefined) return known;
      const digest = encodeSpanDigest(span, normalise);
      digests.set(id, digest);
      return digest;
    },
    deriveAction: (span) => deriveNamesAbove(ancestors.findEntry(span)),
  };
}

/** The longest first, then the earliest, then by trace and span id. */
function compareByDuration(a: EventAction["longest"], b: EventAction["longest"]): number {
  return (
    compare(calculateDuration(b), calculateDuration(a)) ||
    compare(a.start, b.start) ||
    compare(a.trace_id, b.trace_id) ||
    compareSpans(a, b)
  );
}

function isIncluded({ kind, requiredAttributes, excludedAttributes }: SlowEventsQuery, span: Span): boolean {
  const has = (name: string): boolean =>
    Object.hasOwn(span.span_attributes, name) && span.span_attributes[name] !== null;
  return (
    (kind === undefined || span.span_kind === kind) &&
    requiredAttributes.every(has) &&
    !excludedAttributes.some(has)
  );
}

function pickAttributes(attributes: Attributes, names: readonly string[]): Attributes {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = attributes[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
