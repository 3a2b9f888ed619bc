// Slow events: the spans below requests, grouped by what they do. A group's impact is its share of the time that all of
// them took, so it says where time goes and not only what is slow once.
import { type Attributes, compare, type SlowEvent, type SlowEventAction, type Span } from "../core/rows.ts";
import type { SlowEventActionsQuery, SlowEventsQuery } from "../store/span-analytics.ts";
import type { SpanReader, SpanTally } from "../store/spans.ts";
import { createDurationStats, type DurationStats } from "./duration-stats.ts";
import { decodeDigest, type EventKey, encodeEventDigest, hashStatement } from "./spans/digest.ts";
import { loadAncestors, readAllSpans } from "./spans/entry-lookup.ts";
import {
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

/** `slowEvents` of the contract, greatest impact first, then by key. */
export async function findSlowEvents(
  reader: SpanReader,
  query: SlowEventsQuery,
  signal: AbortSignal,
): Promise<readonly SlowEvent[]> {
  const { sources, range, budget } = query;
  const events = createEventGroups();
  let total = 0n;
  const scan = { sources, range, select: "children", budget } as const;
  // Who is asked for attributes has to look at each span.
  const plain = query.requiredAttributes.length === 0 && query.excludedAttributes.length === 0;
  const tallies = plain
    ? readTallies(reader, { ...scan, by: "event" }, signal)
    : readTallies({ scan: reader.scan, find: reader.find }, { ...scan, by: "event" }, signal);
  for await (const batch of tallies) {
    for (const one of batch) {
      total += one.total;
      if (isIncluded(query, one.span)) events.add(one);
    }
  }
  return events.listGreatest(query.limit, total, query.requiredAttributes);
}

/** The slow events within requests of each action, by `formatActionKey`; their impact is as in `findSlowEvents`. */
export async function findSlowEventsByAction(
  reader: SpanReader,
  { sources, range, budget }: Pick<SlowEventsQuery, "sources" | "range" | "budget">,
  limit: number,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly SlowEvent[]>> {
  const spans = await readAllSpans(
    reader.scan({ sources, range, select: "children", withoutEvents: true, budget }, signal),
  );
  const family = await loadAncestors(reader, sources, spans, budget, signal);
  const total = spans.reduce((sum, span) => sum + calculateTotalTime(span), 0n);
  const byAction = new Map<string, EventGroups>();
  for (const span of spans) {
    const entry = family.findEntry(span);
    if (entry === undefined || !isRequest(entry)) continue;
    const key = formatActionKey(deriveNames(entry));
    const events = byAction.get(key) ?? createEventGroups();
    events.add(toTally(span));
    byAction.set(key, events);
  }
  return new Map([...byAction].map(([key, events]) => [key, events.listGreatest(limit, total, [])]));
}

interface EventGroups {
  readonly add: (tally: SpanTally) => void;
  readonly listGreatest: (limit: number, total: bigint, wanted: readonly string[]) => readonly SlowEvent[];
}

function createEventGroups(): EventGroups {
  const normalise = createNormaliser();
  const groups = new Map<string, EventGroup>();
  return {
    add: (one) => {
      const { span } = one;
      const { service_name: service, span_kind: kind, span_name: name } = span;
      const statement = span.statement === undefined ? undefined : normalise(span.statement);
      const id = JSON.stringify([service, kind, name, statement]);
      const group = groups.get(id) ?? {
        key: { service, kind, name, statement },
        figures: createDurationStats(),
        longest: span,
      };
      group.figures.addTally(one);
      if (compareByDuration(span, group.longest) < 0) group.longest = span;
      groups.set(id, group);
    },
    listGreatest: (limit, total, wanted) =>
      [...groups]
        .sort(([idA, a], [idB, b]) => compare(b.figures.total(), a.figures.total()) || compare(idA, idB))
        .slice(0, limit)
        .map(([, { key, figures, longest }]) => ({
          ...key,
          count: figures.count(),
          mean: figures.mean(),
          impact: total === 0n ? 0 : (100 * Number(figures.total())) / Number(total),
          attributes: pickAttributes(longest.span_attributes, wanted),
        })),
  };
}

interface EventGroup {
  readonly key: EventKey;
  readonly figures: DurationStats;
  /** Means something only where attributes are wanted. */
  longest: Span;
}

/** The slow event that a span belongs to, as its digest has it. */
function toEventKey(
  { service_name: service, span_kind: kind, span_name: name, statement }: Span,
  normalise: (statement: string) => string,
): EventKey {
  return {
    service,
    kind,
    name,
    statement: statement === undefined ? undefined : hashStatement(normalise(statement)),
  };
}

/** `slowEventActions` of the contract. */
export async function findSlowEventActions(
  reader: SpanReader,
  { sources, range, digest, budget }: SlowEventActionsQuery,
  signal: AbortSignal,
): Promise<readonly SlowEventAction[]> {
  const key = decodeDigest(digest);
  if (key?.of !== "event") return [];
  const { service, kind, name } = key;
  const normalise = createNormaliser();
  const spans: Span[] = [];
  const pushdown = { service, kind, name };
  const scan = { sources, range, select: "children", pushdown, withoutEvents: true, budget } as const;
  for await (const batch of reader.scan(scan, signal)) {
    for (const span of batch) if (encodeEventDigest(toEventKey(span, normalise)) === digest) spans.push(span);
  }
  const family = await loadAncestors(reader, sources, spans, budget, signal);
  const rows = Map.groupBy(spans, (span) => formatActionKey(deriveNamesAbove(family.findEntry(span))));
  return [...rows.values()].map((found) => {
    const longest = found.reduce((best, span) => (compareByDuration(span, best) < 0 ? span : best));
    const { namespace, action } = deriveNamesAbove(family.findEntry(longest));
    return {
      namespace,
      action_name: action,
      count: found.reduce((count, span) => count + span.count, 0),
      trace_id: longest.trace_id,
      start_time: longest.start,
    };
  });
}

/** The longest, then the earliest, then by trace and span id. */
function compareByDuration(a: Span, b: Span): number {
  return (
    compare(calculateDuration(b), calculateDuration(a)) ||
    compare(a.start, b.start) ||
    compare(a.trace_id, b.trace_id) ||
    compareSpans(a, b)
  );
}

function isIncluded(
  { kind, requiredAttributes: wanted, excludedAttributes: excluded }: SlowEventsQuery,
  span: Span,
): boolean {
  const has = (name: string): boolean =>
    Object.hasOwn(span.span_attributes, name) && span.span_attributes[name] !== null;
  return (kind === undefined || span.span_kind === kind) && wanted.every(has) && !excluded.some(has);
}

function pickAttributes(attributes: Attributes, names: readonly string[]): Attributes {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = attributes[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
