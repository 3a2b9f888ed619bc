// The requests of a revision, or of several: their number and durations, and when the first and the last of them ended.

import { mapConcurrent } from "../core/async/concurrency.ts";
import type { RevisionStats, Span } from "../core/rows.ts";
import { earlier, fromMillis, type Instant, later, second, type TimeRange } from "../core/time.ts";
import type { RevisionQuery, RevisionsQuery } from "../store/span-analytics.ts";
import type { SpanReader, SpanScan, SpanTally } from "../store/spans.ts";
import { createDurationDistribution } from "./duration-stats.ts";
import { deriveNames, isRequest } from "./spans/requests.ts";
import { readTallies } from "./spans/span-tally.ts";

/** `SpanAnalytics.revisionStats`: undefined where the range has no request of the revision. */
export async function findRevisionStats(
  reader: SpanReader,
  { revision, ...query }: RevisionQuery,
  signal: AbortSignal,
): Promise<RevisionStats | undefined> {
  return (await findStatsOfRevisions(reader, { ...query, revisions: [revision] }, signal)).get(revision);
}

/** What is known of one revision. */
interface RevisionSum {
  readonly durations: ReturnType<typeof createDurationDistribution>;
  readonly namespaces: Set<string>;
  /** The first and the last that are known. */
  ends: { first: Instant; last: Instant } | undefined;
  /** Whether the source has counted requests whose ends are not known. */
  isAggregated: boolean;
}

/** By revision. */
type Sums = Map<string, RevisionSum>;

function createSum(): RevisionSum {
  return {
    durations: createDurationDistribution(),
    namespaces: new Set(),
    ends: undefined,
    isAggregated: false,
  };
}

/** `SpanAnalytics.statsOfRevisions`: all are counted together. */
export async function findStatsOfRevisions(
  reader: SpanReader,
  { sources, range, revisions, budget }: RevisionsQuery,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, RevisionStats>> {
  const sums: Sums = new Map(revisions?.map((revision) => [revision, createSum()]));
  const scan: SpanScan = { sources, range, select: "entries", withoutEvents: true, budget };
  const narrow = (revision: string): SpanScan => ({ ...scan, pushdown: { revision } });
  const [only, ...others] = sums.keys();
  const counted = only !== undefined && others.length === 0 ? narrow(only) : scan;
  const tallies = readTallies(reader, { ...counted, by: "deploy" }, signal);
  const entries = await addTallies(sums, tallies, revisions === undefined);
  const open = [...sums].filter(([, { isAggregated }]) => isAggregated);
  if (open.length > 1 && entries <= open.length * entriesPerSearch) {
    for await (const batch of reader.scan(scan, signal)) {
      for (const span of batch) {
        const sum = findSum(sums, span);
        if (sum !== undefined) addEnd(sum, span.end);
      }
    }
  } else {
    const addEnds = ([revision, sum]: (typeof open)[number], stopped: AbortSignal) =>
      addOutermostEnds(reader, narrow(revision), sum, stopped);
    await mapConcurrent(open, maxSearches, addEnds, signal);
  }
  return new Map(
    [...sums].flatMap(([revision, sum]) => {
      const stats = toStats(sum);
      return stats === undefined ? [] : [[revision, stats] as const];
    }),
  );
}

/** The searches for a revision's ends read about this many entries. Up to so many, one scan reads them all. */
const entriesPerSearch = 64;
const maxSearches = 4;

/** Returns how many entries there are. `isOpen` is whether revisions are added that have no sum yet. */
async function addTallies(
  sums: Sums,
  tallies: AsyncIterable<readonly SpanTally[]>,
  isOpen: boolean,
): Promise<number> {
  let entries = 0;
  for await (const batch of tallies) {
    for (const tally of batch) {
      entries += tally.spans;
      const sum = findSum(sums, tally.span) ?? (isOpen ? addSum(sums, tally.span) : undefined);
      if (sum !== undefined) addTally(sum, tally);
    }
  }
  return entries;
}

function findSum(sums: Sums, span: Span): RevisionSum | undefined {
  const revision = readRequestRevision(span);
  return revision === undefined ? undefined : sums.get(revision);
}

function readRequestRevision(span: Span): string | undefined {
  return isRequest(span) ? span.revision : undefined;
}

/** None for a request without a revision; an empty text is none. */
function addSum(sums: Sums, span: Span): RevisionSum | undefined {
  const revision = readRequestRevision(span);
  if (revision === undefined || revision === "") return undefined;
  const sum = createSum();
  sums.set(revision, sum);
  return sum;
}

function addTally(sum: RevisionSum, tally: SpanTally): void {
  const { span, isSingle } = tally;
  sum.durations.addTally(tally);
  sum.namespaces.add(deriveNames(span).namespace);
  if (isSingle) addEnd(sum, span.end);
  else sum.isAggregated = true;
}

function toStats({ durations, namespaces, ends }: RevisionSum): RevisionStats | undefined {
  if (ends === undefined) return undefined;
  return {
    first_seen: ends.first,
    last_seen: ends.last,
    count: durations.count(),
    error_count: durations.errorCount(),
    mean: durations.mean(),
    p_90: durations.percentile(90),
    p_95: durations.percentile(95),
    namespaces: [...namespaces].sort(),
  };
}

/** The scan is of one revision. */
async function addOutermostEnds(
  reader: SpanReader,
  scan: SpanScan,
  sum: RevisionSum,
  signal: AbortSignal,
): Promise<void> {
  const accepts = (span: Span): boolean => readRequestRevision(span) === scan.pushdown?.revision;
  for (const order of ["asc", "desc"] as const) {
    const end = await findOutermostEnd(reader, scan, order, accepts, signal);
    if (end !== undefined) addEnd(sum, end);
  }
}

function addEnd(sum: RevisionSum, end: Instant): void {
  sum.ends ??= { first: end, last: end };
  sum.ends.first = earlier(sum.ends.first, end);
  sum.ends.last = later(sum.ends.last, end);
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
