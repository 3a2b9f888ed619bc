// How whoever reads on and on parts what is left of a range into searches. A sorted search costs the source as much as
// there are documents in its range, however few it returns: of two million, a thousand by an open range cost ten times
// what they cost by a range that ends soon behind them. So each search asks for a window, judged by how far the one
// before has come, and for as many hits as weigh what is to be held.

import { floorToMilli, type Instant, nanosPerMilli, type TimeRange } from "../../../src/core/time.ts";
import type { LogQuery } from "../../../src/store/store.ts";

/** Of one search, of all sources together: what is cut and held at once. */
const bytesOfSearch = 1_048_576;
/** Hits of a search: not so few that asking is all it does, not so many that others wait while it is cut. */
const hits = { least: 100, first: 512, most: 1_024 } as const;
/** A window is so many times what the last full search came through: lines come unevenly, and a wide one costs no more. */
const ahead = 8n;

interface Pace {
  /** Hits to ask for. */
  readonly size: number;
  /** The most that `size` may become. */
  readonly most: number;
  /** The part of what is left that the next search asks for: whole milliseconds from its near end on. */
  first(rest: TimeRange): TimeRange;
  /** An answer has come, which ends with this millisecond. Only now `size` and `first` change: the next may be asked ahead. */
  reached(range: TimeRange, milli: Instant): void;
  weighed(bytes: number, hits: number): void;
  /** The window held less than was asked for: there may be a long gap behind it, so the next one has no end. */
  ranDry(): void;
}

const largestPage = 10_000;

/** Whoever wants more than a page reads on and on. */
export function paceOf({ wanted, order, sources }: LogQuery): Pace | undefined {
  return wanted > largestPage ? createPace(order, sources.length) : undefined;
}

function createPace(order: "asc" | "desc", sources: number): Pace {
  const share = bytesOfSearch / sources;
  let size: number = hits.first;
  let bytesOfHit: number | undefined;
  let span: bigint | undefined;
  return {
    get size() {
      return size;
    },
    most: hits.most,
    first({ from, to }) {
      if (span === undefined) return { from, to };
      if (order === "asc") {
        const end = (floorToMilli(from) + span + nanosPerMilli - 1n) as Instant;
        return { from, to: end < to ? end : to };
      }
      const start = (floorToMilli(to) - span) as Instant;
      return { from: start > from ? start : from, to };
    },
    reached({ from, to }, milli) {
      const passed = order === "asc" ? milli - floorToMilli(from) : floorToMilli(to) - milli;
      span = ahead * (passed > nanosPerMilli ? passed : nanosPerMilli);
      if (bytesOfHit !== undefined) {
        size = Math.min(hits.most, Math.max(hits.least, Math.floor(share / bytesOfHit)));
      }
    },
    weighed(bytes, count) {
      if (count > 0) bytesOfHit = bytes / count;
    },
    ranDry() {
      span = undefined;
    },
  };
}
