// Rollups: figures of whole segments that are kept and added up, so that a range costs what has changed in it. Before kept
// figures are used, a snapshot proves that they still hold: what was added since they were read names the segments to read
// again, and if anything else has changed, all are read again. Everything that an answer needs is read from that snapshot, so
// the answer is the definition's over one moment.

import { awaitShared } from "../../core/async/concurrency.ts";
import { lockMutex } from "../../core/async/mutex.ts";
import { requireAt, requireLast } from "../../core/collections.ts";
import type { BackendError, Refused } from "../../core/errors.ts";
import { compare } from "../../core/rows.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type { Budget, SpanReader, SpanSnapshot } from "../../store/spans.ts";
import { releaseAfter, trackBudget } from "../spans/read-budget.ts";
import { type PieceChoice, recordChoice } from "./choice.ts";
import { type AnalysisKind, nameGroup, type RollupQuery, type RollupTask } from "./figures-kind.ts";
import { dropChanged, hasSegments, loadStored, lookUpStored, openGroupSnapshot } from "./group-snapshot.ts";
import { createEndsError, documentsPerSpan, isReadingCheaper, readWithinLimit } from "./reading-cost.ts";
import {
  dropSegments,
  findGroup,
  type Group,
  keepSegment,
  type PendingFigures,
  type RollupCache,
  releaseGroup,
} from "./rollup-cache.ts";
import {
  divideRange,
  estimateMaxPieces,
  groupAdjacentPieces,
  type Piece,
  segmentLengths,
} from "./segments.ts";
import { coversRange } from "./stored-cover.ts";

const maxPieces = 2_000;
/** So many pieces cost little, however few spans are in each. */
const fewPieces = 300;
/** Figures are kept after so many pieces, so that a request that ends early has not read in vain. */
const piecesPerRead = 50;
/** After a range took few documents to read, this many requests read it as a whole before its figures are kept again. */
const directReadsAfterCheapRead = 100;
/** A request starts at most this often: again where another one, for which it waited, ended without figures. */
const maxAttempts = 3;
/** Where the index of figures does not answer, at most this many segments are read from the source instead. */
const segmentsReadInstead = 6;

/**
 * The answer from kept figures and from what has to be read besides. None where the definition should read the whole range:
 * it is short, the source has no snapshots, or there is more to read than the budget allows, which the definition may still
 * count at the source or refuse at once. `refusal` is then what to say, where more is known. Errors as those of the kind's `read`.
 */
export async function answerFromRollups<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  kind: AnalysisKind<Query, Figures, Answer>,
  reader: SpanReader,
  query: Query,
  signal: AbortSignal,
): Promise<{ readonly answer: Answer } | { readonly refusal: Refused | undefined }> {
  const { range, budget } = query;
  const named = { backend: cache.backend, of: kind.name };
  const readDirectly = (why: string, refusal?: Refused) => {
    recordChoice(named, "read", why);
    return { refusal };
  };
  const isKept = cache.maxBytes > 0 || cache.stored !== undefined;
  if (!isKept) return readDirectly("limits.rollup_bytes is 0, so no figures are kept");
  if (isAddedUp(kind, reader) && cache.stored === undefined) {
    return readDirectly("the source adds requests up, and no index keeps figures of them");
  }
  if (reader.openSnapshot === undefined) return readDirectly("the source cannot hold one moment");
  if (estimateMaxPieces(range, requireLast(segmentLengths)) > maxPieces)
    return readDirectly("the range is too long");
  const sources = kind.listSources(query);
  const spans = await reader.count?.({ sources, range, select: kind.select, budget }, signal);
  if (spans === undefined) return readDirectly("the source does not know how many spans there are");
  // Few spans are read in as little time, but only where they may be.
  const minSpans = Math.min(cache.minSpans, Math.ceil(budget.limit / documentsPerSpan));
  if (spans < minSpans)
    return readDirectly(`figures are kept of ${minSpans} spans or more, and there are about ${spans}`);
  const group = findGroup(cache, nameGroup(kind, query).key);
  if (group.directReadsLeft > 0 && spans <= group.directReadMaxSpans) {
    group.directReadsLeft -= 1;
    return readDirectly("the source counts nearly all of the range, so that little is read");
  }
  group.users += 1;
  try {
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const task = { kind, sources, reader, query, estimatedSpans: spans, minSpans };
      const collected = await collectFigures(cache, group, task, signal);
      if (collected === "again") continue;
      if ("instead" in collected) return readDirectly(collected.instead, collected.refusal);
      const { figures, pieces } = collected;
      const kept = pieces.filter(({ how }) => how !== "read").length;
      recordChoice(named, "rollups", `figures of ${kept} of ${pieces.length} pieces were there`, pieces);
      return { answer: await kind.combine(figures, query) };
    }
    return readDirectly("other requests have ended before what they were reading was there");
  } finally {
    releaseGroup(cache, group);
  }
}

function isAddedUp<Query extends RollupQuery, Figures, Answer>(
  { canBeTallied = false }: AnalysisKind<Query, Figures, Answer>,
  { tally }: SpanReader,
): boolean {
  return canBeTallied && tally !== undefined;
}

/**
 * The figures of all pieces of the range: kept ones, those that other requests are reading, and the others, which are read.
 * "again" where another request has ended without its figures.
 */
async function collectFigures<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  task: RollupTask<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<CollectedFigures<Figures> | "again"> {
  const { kind, sources, reader, query } = task;
  const wasEmpty = group.segments.size === 0;
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
      return plan.isCovered ? { instead, refusal: createEndsError(budget.limit, toRead) } : { instead };
    }
    const cost = { spans: task.estimatedSpans, toRead, extraSearch: kind.extraSearch, sources, budget };
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
  if (known.length === 0 && awaited.length === 0 && spent() < task.minSpans) {
    noteLittleRead(cache, group, task.estimatedSpans, wasEmpty);
  }
  for (const pending of awaited) {
    const found = await awaitShared(pending.promise, signal);
    if (found === undefined) return "again";
    // Figures of a group are of its kind, whose name is part of the group's key.
    all.push(found.figures as Figures);
  }
  return { figures: all, pieces: choices };
}

/** A request for so many spans has read few documents: the source counts, and figures of such requests save nothing. */
function noteLittleRead(cache: RollupCache, group: Group, spans: number, wasEmpty: boolean): void {
  group.directReadsLeft = directReadsAfterCheapRead;
  group.directReadMaxSpans = spans;
  // Those of other requests may save much.
  if (wasEmpty) dropSegments(cache, group);
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
  /** Whether the index keeps all of the range, so that only its two ends are left to read, where they cut segments. */
  readonly isCovered: boolean;
}

interface OwnPiece {
  readonly piece: Piece;
  readonly pending: PendingFigures;
}

/** One request at a time opens a snapshot and drops what does not hold in it, so that what is left does in all later ones. */
async function planReading<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  task: RollupTask<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<ReadingPlan<Figures> | undefined> {
  const { kind, sources, estimatedSpans } = task;
  const release = await lockMutex(group.mutex, signal);
  let snapshot: SpanSnapshot | undefined;
  try {
    const lookup = await lookUpStored(cache, task, signal);
    snapshot = await openGroupSnapshot(cache, group, task, lookup, signal);
    if (snapshot === undefined) return undefined;
    const dropped = await dropChanged(cache, group, { kind, sources, snapshot }, signal);
    const loaded = await loadStored(cache, group, task, { ...lookup, snapshot }, signal);
    const { figures: stored, gaps, isComplete, choices, failure } = loaded;
    chooseLength(cache, group, estimatedSpans, task.query.range, gaps);
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
    const isCovered = isComplete && gaps.every((gap) => coversRange(group.cover, gap));
    return { snapshot, known, awaited, own, choices, failure, isCovered };
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
    const pieces = gaps.reduce((sum, gap) => sum + estimateMaxPieces(gap, length), 0);
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
  { select }: AnalysisKind<Query, Figures, Answer>,
  { reader }: SpanSnapshot,
  signal: AbortSignal,
): Promise<number> {
  let spans = 0;
  for (const run of groupAdjacentPieces(pieces)) {
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
  kind: AnalysisKind<Query, Figures, Answer>,
  { trackOrigins }: SpanSnapshot,
  query: Query,
  signal: AbortSignal,
): Promise<readonly Figures[]> {
  const all: Figures[] = [];
  const pendings = new Map(own.map(({ piece, pending }) => [piece, pending]));
  for (const run of groupAdjacentPieces(own.map(({ piece }) => piece)).flatMap(cutRun)) {
    const ranges = run.map(({ range }) => range);
    const origins = new Set<string>();
    const reader = trackOrigins((origin) => origins.add(origin));
    const read = await releaseAfter(query.budget, (budget) =>
      kind.read(reader, { ...query, budget, range: joinRange(run) }, ranges, signal),
    );
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
