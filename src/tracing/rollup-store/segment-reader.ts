// A reader that holds the spans of a segment, so that figures of all kinds are made of one reading: the spans that end in it, all
// others of their traces, and the requests that link to its callers. What else is asked for is read from the source.

import { takeTurns } from "../../core/async/turns.ts";
import { requireKey } from "../../core/collections.ts";
import type { Attributes, Span } from "../../core/rows.ts";
import type { TimeRange } from "../../core/time.ts";
import type { Budget, SpanLookup, SpanReader, SpanScan, SpanSource, SpanSources } from "../../store/spans.ts";
import { createCalleeTest } from "../spans/callees.ts";
import { suppressShareSpent } from "../spans/read-budget.ts";
import { listTraceIds } from "../spans/requests.ts";
import { isInSelection } from "../spans/selection.ts";
import {
  addSpanId,
  createSpanIdSet,
  hasSpanId,
  listSpanIds,
  type MutableSpanIdSet,
} from "../spans/span-ids.ts";

interface Segment {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  /** A share. Nothing is held of a segment that exceeds it. */
  readonly budget: Budget;
}

/**
 * Reads a segment from a snapshot, and holds its spans, without attributes, tags and events. Undefined where they are more than
 * its share of a budget. Errors as `SpanReader.scan`.
 */
export async function readSegment(
  reader: SpanReader,
  segment: Segment,
  signal: AbortSignal,
): Promise<SpanReader | undefined> {
  const held = await suppressShareSpent(holdSegment(reader, segment, signal));
  if (held === undefined) return undefined;
  return {
    scan: (query, limited) =>
      isHeld(held, query) ? scanHeld(held, query, limited) : reader.scan(query, limited),
    find: (query, limited) =>
      mayFind(held, query) ? findHeld(held, reader, query, limited) : reader.find(query, limited),
  };
}

interface HeldSegment {
  readonly range: TimeRange;
  /** The texts of the sources of each site. */
  readonly sources: ReadonlyMap<string, string>;
  readonly spans: Span[];
  /** All spans of the traces that have any in the range. */
  readonly byTrace: Map<string, Span[]>;
  /** The callers in the range. All requests that link to one of them are held. */
  readonly callers: MutableSpanIdSet;
  /** Those with links, also of other traces. */
  readonly linking: Span[];
  /** Those that end outside of the range. */
  readonly outer: Span[];
}

async function holdSegment(
  reader: SpanReader,
  { sources, range, budget }: Segment,
  signal: AbortSignal,
): Promise<HeldSegment> {
  const held: HeldSegment = {
    range,
    sources: formatSources(sources),
    spans: [],
    linking: [],
    outer: [],
    byTrace: new Map(),
    callers: new Map(),
  };
  const how = { sources, withoutEvents: true, budget } as const;
  for await (const batch of reader.scan({ ...how, range, select: "all" }, signal)) {
    for (const span of batch) {
      const kept = omitAttributes(span);
      held.spans.push(kept);
      addToTrace(held, kept);
      if (isInSelection("calls", kept)) addSpanId(held.callers, kept.trace_id, kept.span_id);
    }
  }
  const traceIds = [...held.byTrace.keys()];
  if (traceIds.length === 0) return held;
  const ofTraces = { by: "trace", traceIds, select: "all" } as const;
  for await (const batch of reader.find({ ...how, of: ofTraces, outside: range }, signal)) {
    for (const span of batch) if (!isWithin(span, range)) addToTrace(held, omitAttributes(span));
  }
  const ofCallers = { by: "caller", spans: listSpanIds(held.callers), areTracesRead: true } as const;
  for await (const batch of reader.find({ ...how, of: ofCallers, outside: range }, signal)) {
    for (const span of batch) addLinking(held, span);
  }
  return held;
}

function addToTrace({ range, byTrace, linking, outer }: HeldSegment, span: Span): void {
  if (!isWithin(span, range)) outer.push(span);
  if (span.links.length > 0) linking.push(span);
  const known = byTrace.get(span.trace_id);
  if (known === undefined) byTrace.set(span.trace_id, [span]);
  else known.push(span);
}

/** Adds a span that links to a caller; those of the traces that are held are there already. */
function addLinking({ range, byTrace, linking, outer }: HeldSegment, span: Span): void {
  if (byTrace.has(span.trace_id)) return;
  const kept = omitAttributes(span);
  linking.push(kept);
  if (!isWithin(kept, range)) outer.push(kept);
}

const none: Attributes = {};

function omitAttributes(span: Span): Span {
  return { ...span, resource_attributes: none, span_attributes: none, tags: none, events: [] };
}

function isWithinRange({ from, to }: TimeRange, outer: TimeRange): boolean {
  return from >= outer.from && to <= outer.to;
}

function isWithin({ end }: Span, { from, to }: TimeRange): boolean {
  return end >= from && end <= to;
}

// ---- What is asked --------------------------------------------------------------------------------------------

function formatSources(sources: readonly SpanSource[]): ReadonlyMap<string, string> {
  const bySite = Map.groupBy(sources, ({ site }) => site);
  return new Map(
    [...bySite].map(([site, own]) => [site, JSON.stringify(own.map((one) => JSON.stringify(one)).sort())]),
  );
}

/** Whether all of the sites' sources are held, and no others. */
function hasSources(held: HeldSegment, sources: readonly SpanSource[]): boolean {
  return [...formatSources(sources)].every(([site, text]) => held.sources.get(site) === text);
}

function isHeld(held: HeldSegment, { sources, range, select }: SpanScan): boolean {
  return isWithinRange(range, held.range) && select !== "exceptions" && hasSources(held, sources);
}

/** Exceptions are events, which are not held. */
function mayFind(held: HeldSegment, { sources, of }: SpanLookup): boolean {
  return !(of.by === "trace" && of.select === "exceptions") && hasSources(held, sources);
}

async function* scanHeld(
  held: HeldSegment,
  { sources, range, select }: SpanScan,
  signal: AbortSignal,
): AsyncGenerator<readonly Span[]> {
  const isOfSites = createSiteTest(sources);
  const accepts = (span: Span): boolean =>
    isOfSites(span) && isWithin(span, range) && isInSelection(select, span);
  for await (const chunk of takeTurns(held.spans, signal)) yield chunk.filter(accepts);
}

function createSiteTest(sources: readonly SpanSource[]): (span: Span) => boolean {
  const sites = new Set(sources.map(({ site }) => site));
  return ({ site_id }) => sites.has(site_id);
}

async function* findHeld(
  held: HeldSegment,
  reader: SpanReader,
  query: SpanLookup,
  signal: AbortSignal,
): AsyncGenerator<readonly Span[]> {
  const { candidates, accepts, rest, isInBoth = () => false } = divideLookup(held, query);
  const isOfSites = createSiteTest(query.sources);
  for await (const chunk of takeTurns(candidates, signal)) {
    yield chunk.filter((span) => isOfSites(span) && accepts(span));
  }
  if (rest === undefined) return;
  for await (const batch of reader.find({ ...query, of: rest }, signal)) {
    yield batch.filter((span) => !isInBoth(span));
  }
}

interface DividedLookup {
  /** The held spans that may match; `accepts` decides. */
  readonly candidates: Iterable<Span>;
  readonly accepts: (span: Span) => boolean;
  /** What has to be looked up at the source. */
  readonly rest: SpanLookup["of"] | undefined;
  /** Whether a span that the source finds is among those that are held. */
  readonly isInBoth?: (span: Span) => boolean;
}

function divideLookup(held: HeldSegment, { of, outside }: SpanLookup): DividedLookup {
  switch (of.by) {
    case "trace": {
      const [known, others] = partition(of.traceIds, (id) => held.byTrace.has(id));
      return {
        candidates: listSpansOfTraces(held, known),
        accepts: (span) => isInSelection(of.select, span),
        rest: others.length === 0 ? undefined : { ...of, traceIds: others },
      };
    }
    case "span": {
      const [known, others] = partition(of.spans, ({ trace_id }) => held.byTrace.has(trace_id));
      const wanted = createSpanIdSet(known);
      return {
        candidates: listSpansOfTraces(held, listTraceIds(known)),
        accepts: ({ trace_id, span_id }) => hasSpanId(wanted, trace_id, span_id),
        rest: others.length === 0 ? undefined : { ...of, spans: others },
      };
    }
    case "caller": {
      const [known, others] = partition(of.spans, ({ trace_id, span_id }) =>
        hasSpanId(held.callers, trace_id, span_id),
      );
      const accepts = createCalleeTest(known);
      return {
        // Where only spans that end outside are asked for, few of those that are held have to be looked at.
        candidates:
          outside !== undefined && isWithinRange(held.range, outside)
            ? held.outer
            : listCalleeCandidates(held, listTraceIds(known)),
        accepts,
        rest: others.length === 0 ? undefined : { ...of, spans: others },
        isInBoth: accepts,
      };
    }
    default:
      return { candidates: [], accepts: () => false, rest: of };
  }
}

function partition<T>(
  list: readonly T[],
  accepts: (item: T) => boolean,
): readonly [accepted: readonly T[], others: readonly T[]] {
  const [accepted, others]: [T[], T[]] = [[], []];
  for (const item of list) (accepts(item) ? accepted : others).push(item);
  return [accepted, others];
}

function* listSpansOfTraces({ byTrace }: HeldSegment, traceIds: Iterable<string>): Generator<Span> {
  for (const id of traceIds) yield* requireKey(byTrace, id);
}

/** A link to a span leads into its trace from anywhere, so that all spans with links are candidates. */
function* listCalleeCandidates(held: HeldSegment, traceIds: readonly string[]): Generator<Span> {
  const own = new Set(traceIds);
  yield* listSpansOfTraces(held, own);
  for (const span of held.linking) if (!own.has(span.trace_id)) yield span;
}
