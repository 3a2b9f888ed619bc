// What an index keeps of a group of figures: segments of several lengths, whose figures hold as of a version of the source.
// Before a request uses them, its snapshot of the source proves which of them still hold. These are the group's cover. A request
// loads those that cover its range. The gaps between them are read from the source, or come from memory.
import type { MaybePromise } from "../../core/async/turns.ts";
import { findLowerBound } from "../../core/collections.ts";
import type { BackendError } from "../../core/errors.ts";
import { compare } from "../../core/rows.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type { SnapshotVersion, SpanReader, SpanSnapshot, SpanSources } from "../../store/spans.ts";
import { type Changes, findChangesForRequest } from "./changes.ts";

/** Figures that are kept outside of this process. */
export interface StoredRollups {
  /**
   * Returns what is kept of a group of figures; undefined where nothing is, or it cannot be used. `parseVersion` is that of the
   * source. @throws {BackendError}
   */
  readonly find: (
    group: GroupName,
    parseVersion: NonNullable<SpanReader["parseVersion"]>,
    signal: AbortSignal,
  ) => Promise<StoredGroup | undefined>;
  /**
   * Returns the error of a request that would have to read too much without figures of a group, where these are being made or
   * cannot be read now; undefined where nobody makes them, or not for all of the range.
   */
  readonly explainMissing: (group: GroupName, range: TimeRange, signal: AbortSignal) => Promise<unknown>;
  /** Is told why figures could not be read. */
  readonly reportFailure: (error: BackendError) => void;
}

/** Which figures: a kind, and what they depend on. */
export interface GroupName {
  readonly site: string;
  /** The text of all that the figures depend on. */
  readonly key: string;
}

export interface StoredGroup {
  /** Changes whenever the rest does. */
  readonly revision: string;
  /** The state of the source in which all segments were right. */
  readonly version: SnapshotVersion;
  /** In the order of time. None overlaps another. */
  readonly segments: readonly StoredSegment[];
  /**
   * Hours and days, each with the sum of the shorter segments that fill it. Where the hours of a day are here too, the day has
   * their figures as well. Others do not overlap.
   */
  readonly merged: readonly StoredSegment[];
  /**
   * Returns figures by segment. Those that are not there any more, or that `decode` returns undefined for, are left out.
   * @throws {BackendError}
   */
  readonly load: <Figures>(
    segments: readonly StoredSegment[],
    decode: FiguresCodec<Figures>["decode"],
    signal: AbortSignal,
  ) => Promise<ReadonlyMap<StoredSegment, Figures>>;
}

export interface StoredSegment {
  readonly range: TimeRange;
  readonly id: string;
  /** Of the document that it is kept in. */
  readonly bytes: number;
  /** Where its spans came from, as `SpanSnapshot.trackOrigins` reports it: sorted, each once. */
  readonly origins: readonly string[];
}

/** How figures of a kind are kept. What is long takes turns with other work. */
export interface FiguresCodec<Figures> {
  /** A value of JSON. */
  readonly encode: (figures: Figures) => unknown;
  /** Undefined for a value that `encode` does not return. */
  readonly decode: (value: unknown) => MaybePromise<Figures | undefined>;
  /** The figures of neighbouring segments as those of one. */
  readonly merge: (figures: readonly Figures[]) => MaybePromise<Figures>;
}

/** The segments of a group, or those that are left of them; as in `StoredGroup`. */
export type KeptSegments = Pick<StoredGroup, "segments" | "merged">;

/** The segments that still hold, as of the last snapshot of the group in memory. The revision is of the stored group. */
export interface ProvedCover extends KeptSegments {
  readonly revision: string;
}

/** Whether what was made has documents of one of these origins. */
export function isMadeOf(
  { origins }: { readonly origins: Iterable<string> },
  some: ReadonlySet<string>,
): boolean {
  for (const origin of origins) if (some.has(origin)) return true;
  return false;
}

export function isCoverMadeOf({ segments, merged }: KeptSegments, some: ReadonlySet<string>): boolean {
  return some.size > 0 && [...segments, ...merged].some((segment) => isMadeOf(segment, some));
}

/** Leaves out the segments in which a minute has changed, and those made of documents of a changed origin, such as an index. */
export function dropFromCover<Cover extends KeptSegments>(
  cover: Cover,
  { minutes, changedOrigins }: Changes,
): Cover {
  if (minutes.size === 0 && changedOrigins.size === 0) return cover;
  const sorted = [...BigInt64Array.from(minutes).sort()];
  const isUnchanged = (segment: StoredSegment): boolean => {
    const { from, to } = segment.range;
    const first = sorted[findLowerBound(sorted, (minute) => minute >= from)];
    return (first === undefined || first > to) && !isMadeOf(segment, changedOrigins);
  };
  return {
    ...cover,
    segments: cover.segments.filter(isUnchanged),
    merged: cover.merged.filter(isUnchanged),
  };
}

/** The segments that hold in the snapshot. */
export async function proveCover(
  { revision, version, segments, merged }: StoredGroup,
  {
    sources,
    isLocal,
    snapshot,
  }: {
    readonly sources: SpanSources;
    readonly isLocal: boolean;
    readonly snapshot: SpanSnapshot;
  },
  signal: AbortSignal,
): Promise<ProvedCover> {
  const { reader } = snapshot;
  const { added } = await snapshot.select(sources, version, signal);
  const kept = [...segments, ...merged].map(({ range }) => range);
  const query = { sources, isLocal, added, reader, kept, isStored: true };
  const changes = await findChangesForRequest(query, signal);
  if (changes === undefined) return { revision, segments: [], merged: [] };
  return dropFromCover({ revision, segments, merged }, changes);
}

/** The segments that lie in the range, the longest ones where there are several, in the order of time. */
export function selectSegments(
  { segments, merged }: KeptSegments,
  { from, to }: TimeRange,
): readonly StoredSegment[] {
  const within = [...segments, ...merged].filter(({ range }) => range.from >= from && range.to <= to);
  // Before all that lie in a longer one comes that one.
  within.sort((a, b) => compare(a.range.from, b.range.from) || compare(b.range.to, a.range.to));
  const selected: StoredSegment[] = [];
  for (const segment of within) {
    const last = selected.at(-1);
    if (last === undefined || segment.range.from > last.range.to) selected.push(segment);
  }
  return selected;
}

/** What the segments leave of a range, in the order of time. */
export function findGaps({ from, to }: TimeRange, segments: readonly StoredSegment[]): readonly TimeRange[] {
  const gaps: TimeRange[] = [];
  let next = from;
  for (const { range } of segments) {
    if (range.from > next) gaps.push({ from: next, to: (range.from - 1n) as Instant });
    next = (range.to + 1n) as Instant;
  }
  if (next <= to) gaps.push({ from: next, to });
  return gaps;
}

/** Whether segments hold all of a range, which may cut them. */
export function coversRange(cover: KeptSegments | undefined, range: TimeRange): boolean {
  const cut = cover?.segments.filter(({ range: own }) => own.to >= range.from && own.from <= range.to);
  return cut !== undefined && findGaps(range, cut).length === 0;
}
