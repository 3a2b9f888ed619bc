// Which piece of time a roller makes or merges next. All times are of whole minutes.
import { requireAt } from "../../core/collections.ts";
import { compare } from "../../core/rows.ts";
import {
  day,
  earlier,
  fromMillis,
  hour,
  type Instant,
  minute,
  nanosPerMilli,
  type TimeRange,
} from "../../core/time.ts";
import { findGaps, type KeptSegments, type StoredSegment } from "../rollups/stored-cover.ts";

/** A piece of time without figures; its end is not in it. */
export interface Hole {
  readonly start: Instant;
  readonly end: Instant;
}

const toLength = (minutes: number): bigint => BigInt(minutes * minute) * nanosPerMilli;
/** The lengths of segments, in nanoseconds. Each divides the next. */
const shortest = toLength(1);
const fiveMinutes = toLength(5);
const hourLength = toLength(60);
const dayLength = toLength(1_440);
const longerLengths: readonly bigint[] = [fiveMinutes, toLength(15), hourLength, dayLength];

/** The newest piece of time between two instants that is neither in a segment nor in one of the others. */
export function findNewestHole(
  segments: readonly StoredSegment[],
  others: readonly TimeRange[],
  { start, end }: Hole,
): Hole | undefined {
  const taken = [...segments.map(({ range }) => range), ...others].sort((a, b) => Number(b.to - a.to));
  let next = end;
  for (const { from, to } of taken) {
    const after = (to + 1n) as Instant;
    if (after < next) return after >= start ? { start: after, end: next } : toHole(start, next);
    next = earlier(next, from);
  }
  return toHole(start, next);
}

function toHole(start: Instant, end: Instant): Hole | undefined {
  return start < end ? { start, end } : undefined;
}

/**
 * The end of what is made now: all before it is closed. Minutes wait until five of them are over, unless they have many spans.
 */
export async function findEndOfClosed(
  closed: Instant,
  maxSpans: number,
  count: (range: TimeRange) => Promise<number>,
): Promise<Instant> {
  const end = (closed - (closed % shortest)) as Instant;
  const five = (closed - (closed % fiveMinutes)) as Instant;
  const isBusy = five < end && (await count(toRange(five, end))) > maxSpans / 5;
  return isBusy ? end : five;
}

/** The longest segment at the end of a hole that has at most `maxSpans` spans; one of a minute whatever it has. */
export async function choosePiece(
  { start, end }: Hole,
  maxSpans: number,
  count: (range: TimeRange) => Promise<number>,
): Promise<TimeRange> {
  const pieces = [shortest, ...longerLengths]
    .filter((length) => end % length === 0n && end - length >= start)
    .map((length) => toRange((end - length) as Instant, end));
  const shortestPiece = toRange((end - shortest) as Instant, end);
  let [low, high] = [0, pieces.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((await count(requireAt(pieces, middle))) <= maxSpans) low = middle;
    else high = middle - 1;
  }
  return pieces[low] ?? shortestPiece;
}

function toRange(start: Instant, end: Instant): TimeRange {
  return { from: start, to: (end - 1n) as Instant };
}

/** Puts a segment among others, in the order of time. */
export function insertSegment(
  segments: readonly StoredSegment[],
  added: StoredSegment,
): readonly StoredSegment[] {
  const at = segments.findLastIndex(({ range }) => range.from < added.range.from) + 1;
  return segments.toSpliced(at, 0, added);
}

/** Segments to be merged into one of this range. */
interface Merge {
  readonly range: TimeRange;
  readonly segments: readonly StoredSegment[];
}

/**
 * How long after its end an hour or a day is merged: late spans change a short segment rather than a long one while many of them
 * may come.
 */
const hourMergeDelay = fromMillis(hour);
const dayMergeDelay = fromMillis(6 * hour);
/**
 * How long the short segments are kept beside the hour made of them. A range may begin within an hour, and then its cut-off part
 * is read from short segments.
 */
const shortSegmentsKept = fromMillis(8 * day);

/** Which segments stay apart, although they fill an hour or a day. */
type IsApart = (segments: readonly StoredSegment[]) => boolean;

/** An hour whose segments are added up; they stay beside it. */
export function findHourToMerge(
  { segments, merged }: KeptSegments,
  now: Instant,
  isApart: IsApart,
): Merge | undefined {
  const known = listBegins(merged, hourLength);
  const open = segments.filter(({ range: { from } }) => !known.has(floorTo(from, hourLength)));
  return findMerge(open, hourLength, (now - hourMergeDelay) as Instant, isApart);
}

/** A day whose hours are added up; they stay beside it. */
export function findDayToMerge(
  { segments, merged }: KeptSegments,
  now: Instant,
  isApart: IsApart,
): Merge | undefined {
  const known = listBegins(merged, dayLength);
  const hours = [...segments.filter((one) => measureLength(one) >= hourLength), ...merged]
    .filter((one) => measureLength(one) < dayLength && !known.has(floorTo(one.range.from, dayLength)))
    .sort((a, b) => compare(a.range.from, b.range.from));
  return findMerge(hours, dayLength, (now - dayMergeDelay) as Instant, isApart);
}

/** Puts old hours into the place of the segments that fill them. */
export function replaceOldSegments({ segments, merged }: KeptSegments, now: Instant): KeptSegments {
  const isOld = (one: StoredSegment): boolean =>
    measureLength(one) === hourLength && one.range.to < now - shortSegmentsKept;
  const old = merged.filter(isOld);
  if (old.length === 0) return { segments, merged };
  const replaced = listBegins(old, hourLength);
  const kept = segments.filter(({ range: { from } }) => !replaced.has(floorTo(from, hourLength)));
  return {
    segments: [...kept, ...old].sort((a, b) => compare(a.range.from, b.range.from)),
    merged: merged.filter((one) => !isOld(one)),
  };
}

function listBegins(segments: readonly StoredSegment[], length: bigint): ReadonlySet<bigint> {
  return new Set(segments.filter((one) => measureLength(one) === length).map(({ range }) => range.from));
}

function measureLength({ range: { from, to } }: StoredSegment): bigint {
  return to + 1n - from;
}

function floorTo(time: Instant, length: bigint): bigint {
  return time - (time % length);
}

/** The newest piece of this length that several segments fill, and that ends before an instant. */
function findMerge(
  segments: readonly StoredSegment[],
  length: bigint,
  before: Instant,
  isApart: IsApart,
): Merge | undefined {
  const pieces = Map.groupBy(segments, ({ range }) => range.from / length);
  for (const [place, own] of [...pieces].reverse()) {
    const range = toRange((place * length) as Instant, ((place + 1n) * length) as Instant);
    if (own.length > 1 && fillsRange(own, range) && range.to < before && !isApart(own))
      return { range, segments: own };
  }
  return undefined;
}

/** Whether segments, in the order of time, have each moment of a range once. */
function fillsRange(segments: readonly StoredSegment[], range: TimeRange): boolean {
  const filled = segments.reduce((sum, one) => sum + measureLength(one), 0n);
  return filled === range.to + 1n - range.from && findGaps(range, segments).length === 0;
}
