// Rollups: figures of whole segments that are kept and added up, so that a range costs what has changed in it. Before kept
// figures are used, a snapshot proves that they still hold: what was added since they were read names the segments to read
// again, and if anything else has changed, all are read again. Everything that an answer needs is read from that snapshot, so
// the answer is the definition's over one moment.
import { requireFirst, requireLast } from "../../core/collections.ts";
import { compare, type Span } from "../../core/rows.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type {
  Budget,
  SnapshotVersion,
  SpanReader,
  SpanSelection,
  SpanSnapshot,
  SpanSources,
} from "../../store/spans.ts";
import { createBudgetShare, suppressShareSpent, trackBudget } from "../spans/read-budget.ts";
import { measureText } from "./duration-figures.ts";
import { lockMutex, type Mutex } from "./mutex.ts";
import { countPieces, divideRange, findSegment, joinPieces, type Piece, segmentLengths } from "./segments.ts";

interface RollupQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly budget: Budget;
}

/** An analysis whose figures can be added up over time. */
export interface RollupKind<Query extends RollupQuery, Figures, Answer> {
  readonly name: string;
  /** What the figures depend on besides the sources and the range. */
  readonly key: (query: Query) => readonly unknown[];
  /** All sources that are read. */
  readonly listSources: (query: Query) => SpanSources;
  /** The spans to which figures belong by their end. */
  readonly select: SpanSelection;
  /** Whether a span changes the figures of its own segment only; else those of all its trace and of the traces it links to. */
  readonly isLocal: boolean;
  /** The figures of each range; the ranges are the query's range in pieces. */
  readonly read: (
    reader: SpanReader,
    query: Query,
    ranges: readonly TimeRange[],
    signal: AbortSignal,
  ) => Promise<readonly Figures[]>;
  readonly combine: (figures: readonly Figures[], query: Query) => Answer;
  /** About how many bytes of memory the figures take. */
  readonly measure: (figures: Figures) => number;
}

/** Kept figures, by what they depend on; the group that was used last comes last. */
export interface RollupCache extends RollupSettings {
  readonly groups: Map<string, Group>;
  bytes: number;
}

interface RollupSettings {
  /** Of all kept figures; 0 keeps none. */
  readonly maxBytes: number;
  /** Fewer spans than this are read again each time, since the proof costs as much. */
  readonly minSpans: number;
  /** Most segments have about so many spans or fewer: what the two ends of a range cut off is read each time. */
  readonly segmentSpans: number;
  readonly recordLookup: (hit: boolean) => void;
}

/** The figures of one kind and its key. All hold as of one version. */
interface Group {
  version: SnapshotVersion | undefined;
  length: bigint;
  /** By the start of the segment. */
  readonly segments: Map<Instant, { readonly figures: unknown; readonly bytes: number }>;
  readonly mutex: Mutex;
  /** Requests that use the group or wait for it. */
  users: number;
  /** Whether all of a range took few documents, because the source counts: reading the whole range is quicker then. */
  readsLittle: boolean;
}

export function createRollupCache(
  settings: Pick<RollupSettings, "maxBytes" | "recordLookup"> & Partial<RollupSettings>,
): RollupCache {
  return { minSpans: 10_000, segmentSpans: 8_000, ...settings, groups: new Map(), bytes: 0 };
}

const maxPieces = 2_000;
/** So many pieces cost little, however few spans are in each. */
const fewPieces = 300;
/** Figures are kept after so many pieces, so that a request that ends early has not read in vain. */
const piecesPerRead = 50;
/** More added documents than this cost as much as reading the segments again. */
const maxAdded = 50_000;
/** Bytes of a segment besides its figures, or of a group besides its key. */
const segmentOverhead = 200;

/**
 * The answer from kept figures and from what has to be read besides. Undefined where the definition should read the whole range:
 * it is short, the source has no snapshots, or there is more to read than the budget allows, which the definition may still
 * count at the source or refuse at once. Errors as those of the kind's `read`.
 */
export async function answerFromRollups<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  kind: RollupKind<Query, Figures, Answer>,
  reader: SpanReader,
  query: Query,
  signal: AbortSignal,
): Promise<Answer | undefined> {
  const { range, budget } = query;
  const mayKeep = reader.openSnapshot !== undefined && cache.maxBytes > 0;
  if (!mayKeep || countPieces(range, requireLast(segmentLengths)) > maxPieces) return undefined;
  const sources = kind.listSources(query);
  const spans = await reader.count?.({ sources, range, select: kind.select, budget }, signal);
  if (spans === undefined || spans < cache.minSpans) return undefined;
  const key = JSON.stringify([kind.name, sources, kind.key(query)]);
  const group = findGroup(cache, key);
  if (group.readsLittle) return undefined;
  group.users += 1;
  try {
    const release = await lockMutex(group.mutex, signal);
    try {
      return await answerLocked(cache, group, { kind, sources, reader, query, spans }, signal);
    } finally {
      release();
    }
  } finally {
    group.users -= 1;
    evict(cache, group);
    if (group.segments.size === 0 && group.users === 0 && !group.readsLittle) dropGroup(cache, key, group);
  }
}

interface Task<Query extends RollupQuery, Figures, Answer> {
  readonly kind: RollupKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly reader: SpanReader;
  readonly query: Query;
  /** About how many there are in the range. */
  readonly spans: number;
}

async function answerLocked<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  { kind, sources, reader, query, spans }: Task<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<Answer | undefined> {
  const { range, budget } = query;
  const snapshot = await reader.openSnapshot?.(sources, group.version, signal);
  if (snapshot === undefined) return undefined;
  try {
    await dropChanged(cache, group, { kind, sources, snapshot }, signal);
    chooseLength(cache, group, spans, range);
    const pieces = divideRange(range, group.length);
    if (await exceedsBudget(group, pieces, { sources, budget }, kind, snapshot, signal)) return undefined;
    const isFirst = group.segments.size === 0;
    const tracked = trackBudget(budget);
    const own = { ...query, budget: tracked.budget };
    const figures = await readPieces(cache, group, pieces, kind, snapshot, own, signal);
    if (isFirst && tracked.spent() < cache.minSpans) {
      group.readsLittle = true;
      dropSegments(cache, group);
    }
    return kind.combine(figures, query);
  } finally {
    snapshot.close();
  }
}

function findGroup(cache: RollupCache, key: string): Group {
  const known = cache.groups.get(key);
  const group: Group = known ?? {
    version: undefined,
    length: 0n,
    segments: new Map(),
    mutex: { last: Promise.resolve() },
    users: 0,
    readsLittle: false,
  };
  if (known === undefined) cache.bytes += measureGroup(key);
  cache.groups.delete(key);
  cache.groups.set(key, group);
  return group;
}

const unlimited: Budget = { limit: Number.POSITIVE_INFINITY, spend: () => undefined };

// ---- Changes --------------------------------------------------------------------------------------------------

interface Comparison<Query extends RollupQuery, Figures, Answer> {
  readonly kind: RollupKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly snapshot: SpanSnapshot;
}

/** Drops the figures that do not hold any more. Those that are left hold as of the snapshot. */
async function dropChanged<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  comparison: Comparison<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<void> {
  const { added, version } = comparison.snapshot;
  if (group.segments.size > 0) {
    const changed =
      added === undefined || added.documents > maxAdded
        ? undefined
        : await findChangedSegments(group, comparison, signal);
    for (const segment of changed ?? [...group.segments.keys()]) dropSegment(cache, group, segment);
  }
  cache.bytes += version.bytes - (group.version?.bytes ?? 0);
  group.version = version;
}

/** The segments whose figures the added spans may change. Undefined where finding them takes too much. */
async function findChangedSegments<Query extends RollupQuery, Figures, Answer>(
  { length }: Group,
  { kind, sources, snapshot }: Comparison<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<ReadonlySet<Instant> | undefined> {
  const changed = new Set<Instant>();
  const { added, reader } = snapshot;
  if (added === undefined) return undefined;
  if (added.documents === 0) return changed;
  // Of its own: a request that reads all in the end has the whole of its budget for that.
  const share = createBudgetShare(unlimited, 4 * maxAdded);
  const traceIds = new Set<string>();
  const addSegments = async (batches: AsyncIterable<readonly Span[]>): Promise<true> => {
    for await (const batch of batches) for (const { end } of batch) changed.add(findSegment(end, length));
    return true;
  };
  const addTraces = async function* (batches: AsyncIterable<readonly Span[]>) {
    for await (const batch of batches) {
      for (const { trace_id, links } of batch) {
        traceIds.add(trace_id);
        for (const link of links) traceIds.add(link.trace_id);
      }
      yield batch;
    }
  };
  const isRead = await suppressShareSpent(addSegments(addTraces(added.read(share, signal))));
  if (isRead === undefined || kind.isLocal) return isRead && changed;
  const of = { by: "trace", traceIds: [...traceIds], select: "all" } as const;
  const inTraces = reader.find({ sources, of, withoutEvents: true, budget: share }, signal);
  return (await suppressShareSpent(addSegments(inTraces))) && changed;
}

// ---- Segments -------------------------------------------------------------------------------------------------

/** Keeps the length of the group's segments as long as they hold a fair number of spans; else drops them for a better one. */
function chooseLength(cache: RollupCache, group: Group, spans: number, { from, to }: TimeRange): void {
  const measure = (length: bigint) => {
    const pieces = countPieces({ from, to }, length);
    return { length, pieces, perSegment: (spans * Number(length)) / Number(to - from + 1n) };
  };
  if (group.segments.size > 0) {
    const { pieces, perSegment } = measure(group.length);
    const isWorth = pieces <= fewPieces || perSegment >= cache.segmentSpans / 8;
    if (isWorth && pieces <= maxPieces && perSegment <= 4 * cache.segmentSpans) return;
  }
  dropSegments(cache, group);
  const possible = segmentLengths.map(measure).filter(({ pieces }) => pieces <= maxPieces);
  const longest = possible.findLast(({ perSegment }) => perSegment <= cache.segmentSpans);
  group.length = (longest ?? requireFirst(possible)).length;
}

/** Whether more spans have to be read than the budget allows. */
async function exceedsBudget<Query extends RollupQuery, Figures, Answer>(
  { segments }: Group,
  pieces: readonly Piece[],
  { sources, budget }: Pick<Query, "sources" | "budget">,
  { select }: RollupKind<Query, Figures, Answer>,
  { reader }: SpanSnapshot,
  signal: AbortSignal,
): Promise<boolean> {
  let spans = 0;
  for (const run of joinPieces(pieces.filter(({ segment }) => !isKept(segments, segment)))) {
    const count = await reader.count?.({ sources, range: joinRange(run), select, budget }, signal);
    spans += count ?? 0;
  }
  return spans > budget.limit;
}

function isKept(segments: Group["segments"], segment: Instant | undefined): segment is Instant {
  return segment !== undefined && segments.has(segment);
}

function joinRange(run: readonly Piece[]): TimeRange {
  const [first, last] = [run.at(0), run.at(-1)];
  if (first === undefined || last === undefined) throw new RangeError("a run without pieces");
  return { from: first.range.from, to: last.range.to };
}

/** The figures of all pieces. Keeps those of whole segments. */
async function readPieces<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  pieces: readonly Piece[],
  kind: RollupKind<Query, Figures, Answer>,
  { reader }: SpanSnapshot,
  query: Query,
  signal: AbortSignal,
): Promise<readonly Figures[]> {
  const all: Figures[] = [];
  const missing: Piece[] = [];
  for (const piece of pieces) {
    const kept = piece.segment === undefined ? undefined : group.segments.get(piece.segment);
    // Figures of a group are of its kind, whose name is part of the group's key.
    if (kept !== undefined) all.push(kept.figures as Figures);
    else missing.push(piece);
    if (piece.segment !== undefined) cache.recordLookup(kept !== undefined);
  }
  for (const run of joinPieces(missing).flatMap(cutRun)) {
    const ranges = run.map(({ range }) => range);
    const read = await kind.read(reader, { ...query, range: joinRange(run) }, ranges, signal);
    for (const [at, figures] of read.entries()) {
      all.push(figures);
      const segment = run[at]?.segment;
      if (segment !== undefined) keepSegment(cache, group, segment, figures, kind.measure(figures));
    }
  }
  return all;
}

function cutRun(run: readonly Piece[]): readonly (readonly Piece[])[] {
  return Array.from({ length: Math.ceil(run.length / piecesPerRead) }, (_, part) =>
    run.slice(part * piecesPerRead, (part + 1) * piecesPerRead),
  );
}

// ---- Memory ---------------------------------------------------------------------------------------------------

function keepSegment(
  cache: RollupCache,
  group: Group,
  segment: Instant,
  figures: unknown,
  size: number,
): void {
  const bytes = size + segmentOverhead;
  group.segments.set(segment, { figures, bytes });
  cache.bytes += bytes;
}

function dropSegment(cache: RollupCache, group: Group, segment: Instant): void {
  cache.bytes -= group.segments.get(segment)?.bytes ?? 0;
  group.segments.delete(segment);
}

/** Clients choose the keys of groups, so these count too. */
function measureGroup(key: string): number {
  return measureText(key) + segmentOverhead;
}

function dropGroup(cache: RollupCache, key: string, group: Group): void {
  dropSegments(cache, group);
  if (cache.groups.delete(key)) cache.bytes -= measureGroup(key) + (group.version?.bytes ?? 0);
}

function dropSegments(cache: RollupCache, group: Group): void {
  for (const segment of [...group.segments.keys()]) dropSegment(cache, group, segment);
}

/** Drops the groups that were used longest ago, then the oldest segments of the group in use, until the rest fits. */
function evict(cache: RollupCache, current: Group): void {
  for (const [key, group] of cache.groups) {
    if (cache.bytes <= cache.maxBytes) return;
    if (group.users > 0 || group === current) continue;
    dropGroup(cache, key, group);
  }
  for (const segment of [...current.segments.keys()].sort(compare)) {
    if (cache.bytes <= cache.maxBytes) return;
    dropSegment(cache, current, segment);
  }
}
