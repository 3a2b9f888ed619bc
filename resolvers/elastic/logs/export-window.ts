// Adaptive time windows for exports. A sorted search costs the backend as much as there are documents in its range, however
// few it returns: of two million, a thousand by an open range cost ten times what they cost by a range that ends soon behind
// them. So each search covers a window sized by the progress of the last one, and asks for hits by their size in bytes.

import { floorToMilli, type Instant, nanosPerMilli, type TimeRange } from "../../../src/core/time.ts";
import type { LogQuery } from "../../../src/store/logs.ts";
import { fitHits } from "../search/hit-size.ts";

/** What the searches of all sources together may return at once. */
const bytesPerSearch = 1_048_576;
/**
 * Hits of one search: few enough that decoding them does not delay other requests, and the first ones few enough to be large.
 */
export const exportSizes = { first: 32, most: 1_024 } as const;
/** A window is this many times what the last full search covered: lines come unevenly, and a wide one costs no more. */
const windowFactor = 8n;

export interface ExportWindow {
  /** Hits to ask for. */
  readonly size: number;
  /** The part of the rest that the next search covers: whole milliseconds from its near end. */
  clipRange(rest: TimeRange): TimeRange;
  /**
   * A full response over `range` ends with this millisecond. Only this call changes `size` and the window, so that the next
   * search can be sent ahead.
   */
  recordProgress(range: TimeRange, milli: Instant): void;
  /** From the first response on, the next search can be sent before a response is read. */
  readonly knowsHitSize: boolean;
  recordHitSize(bytes: number): void;
  /** The window held fewer hits than were asked for. A long gap may follow, so the next window is open-ended. */
  recordExhausted(): void;
}

export function createExportWindow(
  { order, sources }: LogQuery,
  knownBytesPerHit: number | undefined,
): ExportWindow {
  const share = bytesPerSearch / sources.length;
  let bytesPerHit = knownBytesPerHit;
  const chooseSize = () =>
    bytesPerHit === undefined ? exportSizes.first : fitHits(share, bytesPerHit, exportSizes.most);
  let size = chooseSize();
  let length: bigint | undefined;
  return {
    get size() {
      return size;
    },
    clipRange({ from, to }) {
      if (length === undefined) return { from, to };
      if (order === "asc") {
        const end = (floorToMilli(from) + length + nanosPerMilli - 1n) as Instant;
        return { from, to: end < to ? end : to };
      }
      const start = (floorToMilli(to) - length) as Instant;
      return { from: start > from ? start : from, to };
    },
    recordProgress({ from, to }, milli) {
      const covered = order === "asc" ? milli - floorToMilli(from) : floorToMilli(to) - milli;
      const last = size;
      size = chooseSize();
      const factor = windowFactor * BigInt(Math.ceil(size / last));
      length = factor * (covered > nanosPerMilli ? covered : nanosPerMilli);
    },
    get knowsHitSize() {
      return bytesPerHit !== undefined;
    },
    recordHitSize(bytes) {
      bytesPerHit = bytes;
    },
    recordExhausted() {
      length = undefined;
    },
  };
}
