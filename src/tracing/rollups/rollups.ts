// Rollups: figures of whole segments that are kept and added up, so that a range costs what has changed in it. Before kept
// figures are used, a snapshot proves that they still hold: what was added since they were read names the segments to read
// again, and if anything else has changed, all are read again. Everything that an answer needs is read from that snapshot, so
// the answer is the definition's over one moment.
import { requireAt, requireFirst, requireLast } from "../../core/collections.ts";
import { raceAbort } from "../../core/concurrency.ts";
import { BackendError, isTrouble, type Refused } from "../../core/errors.ts";
import { compare } from "../../core/rows.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type { Budget, SpanReader, SpanSelection, SpanSnapshot, SpanSources } from "../../store/spans.ts";
import { trackBudget } from "../spans/read-budget.ts";
import { findChanges, maxAddedOfRequest } from "./changes.ts";
import { type PieceChoice, recordChoice } from "./choice.ts";
import { lockMutex } from "./mutex.ts";
import { createEndsError, documentsPerSpan, isReadingCheaper, readWithinLimit } from "./reading-cost.ts";
import {
  dropChangedSegments,
  dropSegments,
  findGroup,
  type Group,
  keepSegment,
  type PendingFigures,
  type RollupCache,
  releaseGroup,
  setVersion,
} from "./rollup-cache.ts";
import { countPieces, divideRange, joinPieces, type Piece, segmentLengths } from "./segments.ts";
import {
  coversRange,
  type FiguresCodec,
  findGaps,
  type GroupName,
  type MaybePromise,
  proveCover,
  selectSegments,
} from "./stored-cover.ts";

export interface RollupQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly budget: Budget;
}

/** Figures that can be added up over time. */
interface FiguresKind<Query extends RollupQuery, Figures> {
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
}

/** An analysis that is answered from figures. */
export interface RollupKind<Query extends RollupQuery, Figures, Answer> extends FiguresKind<Query, Figures> {
  /** What is long takes turns with other work. */
  readonly combine: (figures: readonly Figures[], query: Query) => MaybePromise<Answer>;
  /** About how many bytes of memory the figures take. */
  readonly measure: (figures: Figures) => number;
  /** Whether a source that can tally adds up most of what the definition asks for: then figures pay only where little is read. */
  readonly isTallied?: boolean;
  /** The spans of any time that the source searches besides, where it adds up. */
  readonly searched?: SpanSelection;
  readonly stored: StoredForm<Query, Figures>;
}

/** Where the figures of a query are kept outside of this process. */
interface StoredForm<Query, Figures> {
  /** What is kept may answer other queries too. */
  readonly nameGroup: (query: Query) => GroupName;
  /** The query's figures, of a value that the codec of the group returns; undefined for any other value. */
  readonly decode: (value: unknown, query: Query) => MaybePromise<Figures | undefined>;
}

/** Figures that can be kept outside of this process. */
export interface StorableKind<Query extends RollupQuery, Figures> extends FiguresKind<Query, Figures> {
  readonly codec: FiguresCodec<Figures>;
}

const maxPieces = 2_000;
/** So many pieces cost little, however few spans are in each. */
const fewPieces = 300;
/** Figures are kept after so many pieces, so that a request that ends early has not read in vain. */
const piecesPerRead = 50;
/** So many requests read a whole range that took few documents, before its figures are kept again. */
const definitionRequests = 100;
/** A request begins anew where another one ends without the figures that it was waited for. */
const maxAttempts = 3;
/** So many segments are read instead of figures that an index does not answer. */
const segmentsReadInstead = 6;

/**
 * The answer from kept figures and from what has to be read besides. None where the definition should read the whole range:
 * it is short, the source has no snapshots, or there is more to read than the budget allows, which the definition may still
 * count at the source or refuse at once. `refusal` is then what to say, where more is known. Errors as those of the kind's `read`.
 */
export async function answerFromRollups<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  kind: RollupKind<Query, Figures, Answer>,
  reader: SpanReader,
  query: Query,
  signal: AbortSignal,
): Promise<{ readonly answer: Answer } | { readonly refusal: Refused | undefined }> {
  const { range, budget } = query;
  const named = { backend: cache.backend, of: kind.name };
  const read = (why: string, refusal?: Refused) => {
    recordChoice(named, "read", why);
    return { refusal };
  };
  const isKept = cache.maxBytes > 0 || cache.stored !== undefined;
  if (!isKept) return read("limits.rollup_bytes is 0, so no figures are kept");
  if (isAddedUp(kind, reader) && cache.stored === undefined) {
    return read("the source adds requests up, and no index keeps figures of them");
  }
  if (reader.openSnapshot === undefined) return read("the source cannot hold one moment");
  if (countPieces(range, requireLast(segmentLengths)) > maxPieces) return read("the range is too long");
  const sources = kind.listSources(query);
  const spans = await reader.count?.({ sources, range, select: kind.select, budget }, signal);
  if (spans === undefined) return read("the source does not know how many spans there are");
  // Few spans are read in as little time, but only where they may be.
  const least = Math.min(cache.minSpans, Math.ceil(budget.limit / documentsPerSpan));
  if (spans < least) return read(`figures are kept of ${least} spans or more, and there are about ${spans}`);
  const group = findGroup(cache, nameGroup(kind, query).key);
  if (group.definitionRequests > 0) {
    group.definitionRequests -= 1;
    return read("the source counts nearly all of the range, so that little is read");
  }
  group.users += 1;
  try {
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const task = { kind, sources, reader, query, spans, least };
      const collected = await collectFigures(cache, group, task, signal);
      if (collected === "again") continue;
      if ("instead" in collected) return read(collected.instead, collected.refusal);
      const { figures, pieces } = collected;
      const kept = pieces.filter(({ how }) => how !== "read").length;
      recordChoice(named, "rollups", `figures of ${kept} of ${pieces.length} pieces were there`, pieces);
      return { answer: await kind.combine(figures, query) };
    }
    return read("other requests have ended before what they were reading was there");
  } finally {
    releaseGroup(cache, group);
  }
}

function isAddedUp<Query extends RollupQuery, Figures, Answer>(
  { isTallied = false }: RollupKind<Query, Figures, Answer>,
  { tally }: SpanReader,
): boolean {
  return isTallied && tally !== undefined;
}

/** Which figures answer a query: the text is of all that they depend on, besides the range. */
export function nameGroup<Query extends RollupQuery, Figures>(
  kind: FiguresKind<Query, Figures>,
  query: Query,
): GroupName {
  const sources = kind.listSources(query);
  return { site: requireFirst(sources).site, key: JSON.stringify([kind.name, sources, kind.key(query)]) };
}

interface Task<Query extends RollupQuery, Figures, Answer> {
  readonly kind: RollupKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly reader: SpanReader;
  readonly query: Query;
  /** About how many there are in the range. */
  readonly spans: number;
  /** Fewer are not worth keeping figures of. */
  readonly least: number;
}

/**
 * The figures of all pieces of the range: kept ones, those that other requests are reading, and the others, which are read.
 * "again" where another request has ended without its figures.
 */
async function collectFigures<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  task: Task<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<CollectedFigures<Figures> | "again"> {
  const { kind, sources, reader, query } = task;
  const plan = await planReading(cache, group, task, signal);
  if (plan === undefined) {
    return { instead: "the source has no points in time, or the user may not open them" };
  }
  const { snapshot, known, awaited, own, choices } = plan;
  const { budget, spent } = trackBudget(query.budget);
  const isAddedAtSource = isAddedUp(kind, reader);
  const all = [...known];
  try {
    const pieces = own.map(({ piece }) => piece);
    const toRead = await countSpans(pieces, { sources, budget }, kind, snapshot, signal);
    const isMuch = toRead > segmentsReadInstead * cache.segmentSpans;
    if (plan.failure !== undefined && !isAddedAtSource && isMuch) throw plan.failure;
    if (toRead > budget.limit) {
      const instead = "what is not kept exceeds limits.documents, unless the source counts it";
      return plan.isFinished ? { instead, refusal: createEndsError(budget.limit, toRead) } : { instead };
    }
    const cost = { spans: task.spans, toRead, searched: kind.searched, sources, budget };
    if (isAddedAtSource && !(await isReadingCheaper(reader, cost, signal))) {
      return { instead: "the source adds requests up at less cost than what is not kept is read" };
    }
    const read = (budget: Budget) =>
      readPieces(cache, group, own, kind, snapshot, { ...query, budget }, signal);
    const figures = await (isAddedAtSource ? readWithinLimit(budget, read) : read(budget));
    if (figures === undefined) return { instead: "what is not kept exceeds limits.documents" };
    all.push(...figures);
  } finally {
    snapshot.close();
    for (const { piece, pending } of own) {
      pending.resolve(undefined);
      if (isPending(group, piece.segment, pending)) group.pending.delete(piece.segment);
    }
  }
  if (known.length === 0 && awaited.length === 0 && spent() < task.least) {
    group.definitionRequests = definitionRequests;
    dropSegments(cache, group);
  }
  for (const pending of awaited) {
    const found = await raceAbort(pending.promise, signal);
    if (found === undefined) return "again";
    // Figures of a group are of its kind, whose name is part of the group's key.
    all.push(found.figures as Figures);
  }
  return { figures: all, pieces: choices };
}

type CollectedFigures<Figures> =
  | { readonly figures: readonly Figures[]; readonly pieces: readonly PieceChoice[] }
  /** Why the definition should read the whole range, and what to say where it refuses. */
  | { readonly instead: string; readonly refusal?: Refused };

interface ReadingPlan<Figures> {
  readonly snapshot: SpanSnapshot;
  readonly known: readonly Figures[];
  readonly awaited: readonly PendingFigures[];
  /** To be read from the snapshot. */
  readonly own: readonly OwnPiece[];
  /** Of each piece. */
  readonly choices: readonly PieceChoice[];
  readonly failure: BackendError | undefined;
  /** Whether the index keeps all of the range, of which only the ends of segments are to be read. */
  readonly isFinished: boolean;
}

interface OwnPiece {
  readonly piece: Piece;
  readonly pending: PendingFigures;
}

/** One request at a time opens a snapshot and drops what does not hold in it, so that what is left does in all later ones. */
async function planReading<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  task: Task<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<ReadingPlan<Figures> | undefined> {
  const { kind, sources, reader, spans } = task;
  const release = await lockMutex(group.mutex, signal);
  let snapshot: SpanSnapshot | undefined;
  try {
    snapshot = await reader.openSnapshot?.(sources, group.version, signal);
    if (snapshot === undefined) return undefined;
    const dropped = await dropChanged(cache, group, { kind, sources, snapshot }, signal);
    const loaded = await loadStored(cache, group, task, snapshot, signal);
    const { figures: stored, gaps, choices, failure } = loaded;
    chooseLength(cache, group, spans, task.query.range, gaps);
    const explain = failure === undefined ? explainRead : () => "the index could not be read";
    const known = [...stored];
    const [awaited, own]: [PendingFigures[], OwnPiece[]] = [[], []];
    for (const piece of gaps.flatMap((gap) => divideRange(gap, group.length))) {
      const { segment } = piece;
      const kept = segment === undefined ? undefined : group.segments.get(segment);
      const read = segment === undefined ? undefined : group.pending.get(segment);
      const choose = (how: PieceChoice["how"], why: string) => choices.push({ range: piece.range, how, why });
      if (kept !== undefined) {
        known.push(kept.figures as Figures);
        choose("kept", "proved to be unchanged");
      } else if (read !== undefined) {
        awaited.push(read);
        choose("shared", "another request is reading it");
      } else {
        own.push({ piece, pending: Promise.withResolvers() });
        choose("read", explain(segment, dropped));
      }
      if (segment !== undefined) cache.recordLookup(kept !== undefined || read !== undefined);
    }
    for (const { piece, pending } of own)
      if (piece.segment !== undefined) group.pending.set(piece.segment, pending);
    choices.sort((a, b) => compare(a.range.from, b.range.from));
    const isFinished = gaps.every((gap) => coversRange(group.cover, gap));
    return { snapshot, known, awaited, own, choices, failure, isFinished };
  } catch (error) {
    snapshot?.close();
    throw error;
  } finally {
    release();
  }
}

function explainRead(segment: Instant | undefined, dropped: ReadonlySet<Instant>): string {
  if (segment === undefined) return "the range has only a part of the segment";
  return dropped.has(segment) ? "changed since it was kept, or may have" : "not kept";
}

function isPending(group: Group, segment: Instant | undefined, pending: PendingFigures): segment is Instant {
  return segment !== undefined && group.pending.get(segment) === pending;
}

interface LoadedFigures<Figures> {
  readonly figures: readonly Figures[];
  /** What is left of the range. */
  readonly gaps: readonly TimeRange[];
  readonly choices: PieceChoice[];
  /** Why nothing could be read in time, although there may be figures. */
  readonly failure?: BackendError;
}

/**
 * The figures that are kept outside of this process, of the segments that hold in the snapshot. None where they cannot be read: a
 * small range is then read from the source.
 */
async function loadStored<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  task: Task<Query, Figures, Answer>,
  snapshot: SpanSnapshot,
  signal: AbortSignal,
): Promise<LoadedFigures<Figures>> {
  const nothing = { figures: [], gaps: [task.query.range], choices: [] };
  try {
    return (await findStored(cache, group, task, snapshot, signal)) ?? nothing;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof BackendError)) throw error;
    cache.stored?.reportFailure(error);
    return isTrouble(error) ? { ...nothing, failure: error } : nothing;
  }
}

async function findStored<Query extends RollupQuery, Figures, Answer>(
  { stored, recordLookup }: RollupCache,
  group: Group,
  { kind, sources, reader, query }: Task<Query, Figures, Answer>,
  snapshot: SpanSnapshot,
  signal: AbortSignal,
): Promise<LoadedFigures<Figures> | undefined> {
  const { range } = query;
  const { stored: form, isLocal } = kind;
  if (stored === undefined || reader.parseVersion === undefined) return undefined;
  const found = await stored.find(form.nameGroup(query), reader.parseVersion, signal);
  if (found === undefined) return undefined;
  // Those of an earlier revision held until now, like all of the group.
  if (group.cover?.revision !== found.revision) {
    group.cover = await proveCover(found, { sources, isLocal, snapshot }, signal);
  }
  const decode = (value: unknown) => form.decode(value, query);
  const loaded = await found.load(selectSegments(group.cover, range), decode, signal);
  for (const _ of loaded) recordLookup(true);
  return {
    figures: [...loaded.values()],
    gaps: findGaps(range, [...loaded.keys()]),
    choices: [...loaded.keys()].map((segment) => ({
      ...{ range: segment.range, how: "stored", why: "proved to be unchanged since the index kept it" },
    })),
  };
}

// ---- Changes --------------------------------------------------------------------------------------------------

interface Comparison<Query extends RollupQuery, Figures, Answer> {
  readonly kind: RollupKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly snapshot: SpanSnapshot;
}

/** Drops the figures that do not hold any more; returns their segments. Those that are left hold as of the snapshot. */
async function dropChanged<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  { kind: { isLocal }, sources, snapshot }: Comparison<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<ReadonlySet<Instant>> {
  const { added, reader, version } = snapshot;
  let dropped: ReadonlySet<Instant> = new Set();
  if (hasSegments(group) || group.cover !== undefined) {
    const since = added && { sources, isLocal, added, reader, maxAdded: maxAddedOfRequest };
    dropped = dropChangedSegments(cache, group, since && (await findChanges(since, signal)));
  }
  setVersion(cache, group, version);
  return dropped;
}

function hasSegments({ segments, pending }: Group): boolean {
  return segments.size > 0 || pending.size > 0;
}

// ---- Segments -------------------------------------------------------------------------------------------------

/** Keeps the length of the group's segments as long as they hold a fair number of spans; else drops them for a better one. */
function chooseLength(
  cache: RollupCache,
  group: Group,
  spans: number,
  { from, to }: TimeRange,
  gaps: readonly TimeRange[],
): void {
  const measure = (length: bigint) => {
    const pieces = gaps.reduce((sum, gap) => sum + countPieces(gap, length), 0);
    return { length, pieces, perSegment: (spans * Number(length)) / Number(to - from + 1n) };
  };
  if (hasSegments(group)) {
    const { pieces, perSegment } = measure(group.length);
    const isWorth = pieces <= fewPieces || perSegment >= cache.segmentSpans / 8;
    if (isWorth && pieces <= maxPieces && perSegment <= 4 * cache.segmentSpans) return;
  }
  dropSegments(cache, group);
  const all = segmentLengths.map(measure);
  const possible = all.filter(({ pieces }) => pieces <= maxPieces);
  const longest = possible.findLast(({ perSegment }) => perSegment <= cache.segmentSpans);
  group.length = (longest ?? possible.at(0) ?? requireLast(all)).length;
}

/** About how many spans have to be read. */
async function countSpans<Query extends RollupQuery, Figures, Answer>(
  pieces: readonly Piece[],
  { sources, budget }: Pick<Query, "sources" | "budget">,
  { select }: RollupKind<Query, Figures, Answer>,
  { reader }: SpanSnapshot,
  signal: AbortSignal,
): Promise<number> {
  let spans = 0;
  for (const run of joinPieces(pieces)) {
    const count = await reader.count?.({ sources, range: joinRange(run), select, budget }, signal);
    spans += count ?? 0;
  }
  return spans;
}

function joinRange(run: readonly Piece[]): TimeRange {
  const [first, last] = [run.at(0), run.at(-1)];
  if (first === undefined || last === undefined) throw new RangeError("a run without pieces");
  return { from: first.range.from, to: last.range.to };
}

/** The figures of the pieces. Keeps those of whole segments that still hold. */
async function readPieces<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  own: readonly OwnPiece[],
  kind: RollupKind<Query, Figures, Answer>,
  { trackOrigins }: SpanSnapshot,
  query: Query,
  signal: AbortSignal,
): Promise<readonly Figures[]> {
  const all: Figures[] = [];
  const pendings = new Map(own.map(({ piece, pending }) => [piece, pending]));
  for (const run of joinPieces(own.map(({ piece }) => piece)).flatMap(cutRun)) {
    const ranges = run.map(({ range }) => range);
    const origins = new Set<string>();
    const reader = trackOrigins((origin) => origins.add(origin));
    const read = await kind.read(reader, { ...query, range: joinRange(run) }, ranges, signal);
    for (const [at, figures] of read.entries()) {
      all.push(figures);
      const piece = requireAt(run, at);
      const pending = pendings.get(piece);
      pending?.resolve({ figures });
      if (pending === undefined || !isPending(group, piece.segment, pending)) continue;
      const kept = { figures, origins, bytes: kind.measure(figures) };
      keepSegment(cache, group, piece.segment, kept, query.range);
    }
  }
  return all;
}

function cutRun(run: readonly Piece[]): readonly (readonly Piece[])[] {
  return Array.from({ length: Math.ceil(run.length / piecesPerRead) }, (_, part) =>
    run.slice(part * piecesPerRead, (part + 1) * piecesPerRead),
  );
}
