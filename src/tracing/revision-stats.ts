// The requests of one revision: their number and durations, and when the first and the last of them ended.

import type { RevisionStats, Span } from "../core/rows.ts";
import { fromMillis, type Instant, second, type TimeRange } from "../core/time.ts";
import type { RevisionQuery } from "../store/span-analytics.ts";
import type { SpanReader, SpanScan } from "../store/spans.ts";
import { createDurationDistribution } from "./duration-stats.ts";
import { deriveNames, isRequest } from "./spans/requests.ts";
import { readTallies } from "./spans/span-tally.ts";

/** `SpanAnalytics.revisionStats`: undefined where the range has no request of the revision. */
export async function findRevisionStats(
  reader: SpanReader,
  { sources, range, revision, budget }: RevisionQuery,
  signal: AbortSignal,
): Promise<RevisionStats | undefined> {
  const durations = createDurationDistribution();
  const namespaces = new Set<string>();
  const ends: Instant[] = [];
  let isAggregated = false;
  const scan: SpanScan = {
    ...{ sources, range, select: "entries", pushdown: { revision }, withoutEvents: true, budget },
  };
  const accepts = (span: Span): boolean => isRequest(span) && span.revision === revision;
  for await (const batch of readTallies(reader, { ...scan, by: "deploy" }, signal)) {
    for (const tally of batch) {
      const { span, isSingle } = tally;
      if (!accepts(span)) continue;
      durations.addTally(tally);
      namespaces.add(deriveNames(span).namespace);
      if (isSingle) widenRange(ends, span.end);
      else isAggregated = true;
    }
  }
  if (isAggregated) {
    for (const order of ["asc", "desc"] as const) {
      const end = await findOutermostEnd(reader, scan, order, accepts, signal);
      if (end !== undefined) widenRange(ends, end);
    }
  }
  const [first_seen, last_seen] = ends;
  if (first_seen === undefined || last_seen === undefined) return undefined;
  return {
    first_seen,
    last_seen,
    count: durations.count(),
    error_count: durations.errorCount(),
    mean: durations.mean(),
    p_90: durations.percentile(90),
    p_95: durations.percentile(95),
    namespaces: [...namespaces].sort(),
  };
}

/** Widens a pair of the first and the last instant. */
function widenRange(ends: Instant[], end: Instant): void {
  const [first = end, last = end] = ends;
  ends[0] = end < first ? end : first;
  ends[1] = end > last ? end : last;
}

/** The greatest `nth` of a split point. */
const maxSplitPointRank = 10_000;
const minWindow: bigint = fromMillis(second);
const windowGrowth = 4n;

/**
 * The first or the last end of the accepted spans of a scan. Reads windows from one edge of the range: up to the store's
 * split points, each with more spans than the one before. Where more spans than a split point can count lie before the
 * first end (many long requests at once), the windows grow by a factor.
 */
async function findOutermostEnd(
  reader: SpanReader,
  scan: SpanScan,
  order: "asc" | "desc",
  accepts: (span: Span) => boolean,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const length = scan.range.to - scan.range.from;
  let size = 0n;
  for (let nth = 16; ; nth *= 16) {
    if (nth <= maxSplitPointRank) {
      const cut = await reader.findSplitPoint?.({ ...scan, by: "time", order, nth }, signal);
      size = cut === undefined ? length : measureWindow(scan.range, cut, order);
    } else size = size * windowGrowth > minWindow ? size * windowGrowth : minWindow;
    const isWhole = size >= length;
    const range = isWhole ? scan.range : cutWindow(scan.range, size, order);
    const outermost = await readOutermostEnd(reader, { ...scan, range }, order, accepts, signal);
    if (outermost !== undefined || isWhole) return outermost;
  }
}

/** The length of the part of a range up to a cut; 0 for a cut outside. */
function measureWindow({ from, to }: TimeRange, cut: bigint, order: "asc" | "desc"): bigint {
  const size = order === "asc" ? cut - from : to - cut;
  return size < 0n ? 0n : size;
}

/** The part of a range of this length at its beginning, or at its end. */
function cutWindow({ from, to }: TimeRange, size: bigint, order: "asc" | "desc"): TimeRange {
  return order === "asc" ? { from, to: (from + size) as Instant } : { from: (to - size) as Instant, to };
}

async function readOutermostEnd(
  reader: SpanReader,
  scan: SpanScan,
  order: "asc" | "desc",
  accepts: (span: Span) => boolean,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  let outermost: Instant | undefined;
  for await (const batch of reader.scan(scan, signal)) {
    for (const { end } of batch.filter(accepts)) {
      if (outermost === undefined || (order === "asc" ? end < outermost : end > outermost)) outermost = end;
    }
  }
  return outermost;
}
