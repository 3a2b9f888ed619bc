// How whoever reads on and on parts what is left of a range into searches. A sorted search costs the source as much as
// there are documents in its range, however few it returns: of two million, a thousand by an open range cost ten times
// what they cost by a range that ends soon behind them. So each search asks for a window, judged by how far the one
// before has come, and for as many hits as weigh what is to be held.

import { floorToMilli, type Instant, nanosPerMilli, type TimeRange } from "../../../src/core/time.ts";
import type { LogQuery } from "../../../src/store/store.ts";

/** Of one search, of all sources together: what is cut and held at once. */
const bytesPerSearch = 1_048_576;
/** Hits of a search: not so few that asking is all it does, not so many that others wait while it is cut. */
const hitLimits = { least: 100, first: 512, most: 1_024 } as const;
/** A window is so many times what the last full search came through: lines come unevenly, and a wide one costs no more. */
const windowFactor = 8n;

interface ExportWindow {
  /** Hits to ask for. */
  readonly size: number;
  /** The most that `size` may become. */
  readonly maxSize: number;
  /** The part of what is left that the next search asks for: whole milliseconds from its near end on. */
  clipRange(rest: TimeRange): TimeRange;
  /** An answer has come, which ends with this millisecond. Only now `size` and `first` change: the next may be asked ahead. */
  recordProgress(range: TimeRange, milli: Instant): void;
  recordSize(bytes: number, hits: number): void;
  /** The window held less than was asked for: there may be a long gap behind it, so the next one has no end. */
  recordExhausted(): void;
}

const largestPage = 10_000;

/** Whoever wants more than a page reads on and on. */
export function createExportWindow({
  expectedLines: wanted,
  order,
  sources,
}: LogQuery): ExportWindow | undefined {
  return wanted > largestPage ? createAdaptiveWindow(order, sources.length) : undefined;
}

function createAdaptiveWindow(order: "asc" | "desc", sources: number): ExportWindow {
  const share = bytesPerSearch / sources;
  let size: number = hitLimits.first;
  let bytesOfHit: number | undefined;
  let span: bigint | undefined;
  return {
    get size() {
      return size;
    },
    maxSize: hitLimits.most,
    clipRange({ from, to }) {
      if (span === undefined) return { from, to };
      if (order === "asc") {
        const end = (floorToMilli(from) + span + nanosPerMilli - 1n) as Instant;
        return { from, to: end < to ? end : to };
      }
      const start = (floorToMilli(to) - span) as Instant;
      return { from: start > from ? start : from, to };
    },
    recordProgress({ from, to }, milli) {
      const passed = order === "asc" ? milli - floorToMilli(from) : floorToMilli(to) - milli;
      span = windowFactor * (passed > nanosPerMilli ? passed : nanosPerMilli);
      if (bytesOfHit !== undefined) {
        size = Math.min(hitLimits.most, Math.max(hitLimits.least, Math.floor(share / bytesOfHit)));
      }
    },
    recordSize(bytes, count) {
      if (count > 0) bytesOfHit = bytes / count;
    },
    recordExhausted() {
      span = undefined;
    },
  };
}
