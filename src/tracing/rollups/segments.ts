// Segments: equal pieces of time on the UTC grid. The figures of a whole segment can be kept; a range is cut into whole
// segments and the pieces at its two ends.
import { requireAt } from "../../core/collections.ts";
import { type Instant, minute, nanosPerMilli, type TimeRange } from "../../core/time.ts";

/** The lengths that segments may have, nanoseconds, shortest first. */
export const segmentLengths: readonly bigint[] = [1, 5, 15, 60, 360].map(
  (minutes) => BigInt(minutes * minute) * nanosPerMilli,
);

export interface Piece {
  readonly range: TimeRange;
  /** The start of the segment, where the piece is a whole one. */
  readonly segment: Instant | undefined;
}

/** The start of the segment in which an instant lies. */
export function findSegmentStart(instant: Instant, length: bigint): Instant {
  const rest = instant % length;
  return (rest < 0n ? instant - rest - length : instant - rest) as Instant;
}

/** How many pieces a range has at most. */
export function estimateMaxPieces({ from, to }: TimeRange, length: bigint): number {
  return Number((to - from) / length) + 2;
}

/** The pieces of a range in the order of time, without gaps. */
export function divideRange({ from, to }: TimeRange, length: bigint): readonly Piece[] {
  const pieces: Piece[] = [];
  for (let start = from; start <= to; ) {
    const segment = findSegmentStart(start, length);
    const last = (segment + length - 1n) as Instant;
    const end = last < to ? last : to;
    const isWhole = segment === start && end === last;
    pieces.push({ range: { from: start, to: end }, segment: isWhole ? segment : undefined });
    start = (end + 1n) as Instant;
  }
  return pieces;
}

/** Groups ordered pieces into lists without gaps. */
export function groupAdjacentPieces(pieces: readonly Piece[]): readonly (readonly Piece[])[] {
  const runs: Piece[][] = [];
  for (const piece of pieces) {
    const run = runs.at(-1);
    if (run?.at(-1)?.range.to === piece.range.from - 1n) run.push(piece);
    else runs.push([piece]);
  }
  return runs;
}

/** The index of the range in which an instant lies; the ranges are in order and without gaps. */
export function findRangeIndex(ranges: readonly TimeRange[], instant: Instant): number {
  let low = 0;
  let high = ranges.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (requireAt(ranges, middle).to < instant) low = middle + 1;
    else high = middle;
  }
  return low;
}
