// The growth of groups of counters, added up at the source. The sum of the last values of a group grows from one bucket to
// the next by what its series have grown, wherever each of them has a sample in both buckets and none restarts between
// them; where one does, the value before the restart is added. So two queries answer most of a grouped question, however
// many series there are. What they cannot answer exactly is left to be read.
//
// Everything that is used here lies in buckets that no longer change: each series has a sample in the bucket after.
import { requireAt } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  hasLabels,
  markNonFinite,
  number,
  type Selector,
} from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import type { CounterQuery } from "./bucket-survey.ts";
import {
  formatGroup,
  type GroupSums,
  type PartLook,
  type SeriesLook,
  subtractSums,
} from "./group-subtraction.ts";
import { type FoundRestarts, findLinkedRestarts, findRestarts } from "./restart-search.ts";
import { type GridSeries, runConcurrent, type SeriesReader } from "./series-reader.ts";
import { readSparseGrid } from "./sparse-grid.ts";
import { readWindow } from "./window-reader.ts";

/** The series of one name, such as the count of histograms. */
export interface GroupedPart extends CounterQuery {
  /** The labels whose values make a group: those of the answer, and of the buckets of histograms the bound too. */
  readonly by: readonly string[];
}

interface GroupingQuery {
  /**
   * In the same buckets. A restart of the first part, which counts all observations of histograms, is a restart of the
   * other parts' series of the same labels.
   */
  readonly parts: readonly [GroupedPart, ...GroupedPart[]];
  /** The labels whose values make a group of the answer. */
  readonly keys: readonly string[];
  /** Groups × buckets of the answer. */
  readonly pointLimit: number;
}

/** Buckets from `from` until before `to`. */
interface BucketSpan {
  readonly from: number;
  readonly to: number;
}

/** What has to be read instead. */
export interface UngroupedPart extends BucketSpan {
  /** Of these groups of the answer; of all if it is absent. */
  readonly groups?: readonly Labels[];
}

interface GroupedGrowth {
  /** For each part by its groups; NaN in what has to be read. */
  readonly parts: readonly (readonly GridSeries[])[];
  readonly ungrouped: readonly UngroupedPart[];
}

/** The last sample of a bucket is looked for in so much of its end. Nearly every live series has one there. */
export const longestReach: Millis = 5 * minute;
/** In less than this many buckets in a row it is not worth to group. */
const fewestBuckets = 4;
const mostSpans = 8;

/** `undefined` if grouping would answer too little of it. @throws {Refused} over the limit of points @throws {BackendError} */
export async function growGroups(
  reader: SeriesReader,
  { parts, keys, pointLimit }: GroupingQuery,
): Promise<GroupedGrowth | undefined> {
  const { buckets, lookBack } = parts[0];
  const reach = Math.min(buckets.step, longestReach);
  if (reader.hidesRestarts || lookBack === undefined || lookBack < reach) return undefined;
  if (buckets.step % reach !== 0 || reach % 1_000 !== 0) return undefined;
  // Only groups that show whether a label is present may be asked for without the matcher for its presence.
  if (!parts.every(({ selector, by }) => hasLabels(selector, listPresent(by)))) return undefined;
  const groupings = await runConcurrent(parts, async (part): Promise<Grouping> => {
    const { selector, matchesDropped } = await reader.dropPresenceMatchers(part.selector, buckets);
    const most = part === parts[0] ? pointLimit : Math.max(pointLimit, part.limit);
    const limit = most + Math.ceil(most / buckets.count) * 2;
    return { part, selector, reach, accepts: matchesDropped, limit };
  });
  // With a bucket before them, from which the first one grows, and one after, which shows that the last one is complete.
  const wider = { ...buckets, start: buckets.start - buckets.step, count: buckets.count + 2 };
  // Counts are read first: buckets that they show to be complete no longer change.
  const counts = await runConcurrent(groupings, (one) =>
    readGroups(reader, one, wider, aggregate("count", one.part.by, buildLast(reader, one))),
  );
  const steady = findSteadySpans(
    counts.flatMap((ofPart) => [...ofPart.values()]),
    wider.count,
  );
  if (steady.length === 0) return undefined;
  const [sums, restarts] = await Promise.all([
    runConcurrent(groupings, (one) => readSums(reader, one, wider)),
    runConcurrent(steady, (span) => findPartRestarts(reader, groupings, toBuckets(wider, span))),
  ]);
  const looks = await runConcurrent(steady, (span) =>
    runConcurrent(groupings, (one) => lookAtSeries(reader, one, toBuckets(wider, span))),
  );
  const tables = parts.map(({ by, canRestart }, at) => ({
    by,
    hasBounds: by.length > keys.length,
    isSplit: !canRestart,
    counts: requireAt(counts, at),
    sums: requireAt(sums, at),
    groups: createGroups(requireAt(counts, at), buckets.count),
  }));
  const ungrouped: UngroupedPart[] = [...listGaps(steady, buckets.count)];
  for (const [index, span] of steady.entries()) {
    const found = restarts[index];
    const look = requireAt(looks, index);
    const own = { from: span.from - 1, to: span.to - 1 };
    if (found === undefined) ungrouped.push(own);
    else {
      const looked = look.map((one, at): PartLook => ({ look: one, found: requireAt(found, at) }));
      const unread = await subtractSums({ keys, tables, wider }, span, looked);
      if (unread === "unequal") return undefined;
      if (unread === "all") ungrouped.push(own);
      else if (unread.length > 0) ungrouped.push({ ...own, groups: unread });
    }
  }
  return { parts: tables.map(({ groups }) => [...groups.values()]), ungrouped };
}

interface Grouping {
  readonly part: GroupedPart;
  /** Without matchers for the presence of labels, as far as no more series match it. */
  readonly selector: Selector;
  readonly accepts: (labels: Labels) => boolean;
  readonly reach: Millis;
  /** Groups × buckets that may be read. */
  readonly limit: number;
}

function listPresent(labels: readonly string[]): Labels {
  return Object.fromEntries(labels.map((key) => [key, "present"]));
}

function buildLast(reader: SeriesReader, { selector, reach }: Grouping): Expression {
  return call("last_over_time", reader.selectRange(selector, { from: reach, to: 1 }));
}

async function readGroups(
  reader: SeriesReader,
  { part: { by }, accepts, limit }: Grouping,
  wider: Buckets,
  of: Expression,
): Promise<ReadonlyMap<string, GridSeries>> {
  const found = await readSparseGrid(reader, of, wider, limit, accepts);
  return new Map(found.map((group) => [formatGroup(by, group.labels), group]));
}

/**
 * Sums of observations are fractions and grow large: their whole parts, sums of which are exact, are added up by
 * themselves, so that only sums of numbers below 1 are rounded.
 */
async function readSums(reader: SeriesReader, grouping: Grouping, wider: Buckets): Promise<GroupSums> {
  const { by, canRestart } = grouping.part;
  const last = buildLast(reader, grouping);
  if (canRestart) return { whole: await readGroups(reader, grouping, wider, aggregate("sum", by, last)) };
  const [whole, fractions] = await Promise.all([
    readGroups(reader, grouping, wider, aggregate("sum", by, call("floor", last))),
    readGroups(reader, grouping, wider, aggregate("sum", by, binary(last, "%", number(1)))),
  ]);
  return { whole, fractions };
}

function createGroups(
  counts: ReadonlyMap<string, GridSeries>,
  length: number,
): ReadonlyMap<string, GridSeries> {
  return new Map(
    [...counts].map(([key, { labels }]) => [
      key,
      { labels, values: new Float64Array(length).fill(Number.NaN) },
    ]),
  );
}

function toBuckets({ start, step }: Buckets, { from, to }: BucketSpan): Buckets {
  return { start: start + from * step, step, count: to - from };
}

// ---- Where the same series are there -------------------------------------------------------------------------------

/**
 * Spans of buckets in which each group has as many series as in the bucket before the span and the bucket after it: the longest
 * few, or none where they cover less than half of the buckets.
 */
function findSteadySpans(counts: readonly GridSeries[], count: number): readonly BucketSpan[] {
  const isSteady = (bucket: number) =>
    counts.every(({ values }) => Object.is(values[bucket], values[bucket - 1]));
  const spans: BucketSpan[] = [];
  let first = 0;
  for (let bucket = 1; bucket <= count; bucket++) {
    if (bucket < count && isSteady(bucket)) continue;
    const span = { from: first + 1, to: bucket - 1 };
    if (span.to - span.from >= fewestBuckets) spans.push(span);
    first = bucket;
  }
  const longest = spans.toSorted((a, b) => b.to - b.from - (a.to - a.from)).slice(0, mostSpans);
  const covered = longest.reduce((sum, { from, to }) => sum + to - from, 0);
  return covered * 2 < count ? [] : spans.filter((span) => longest.includes(span));
}

/** The buckets of the query that lie in none of the spans, whose numbers are one higher: they begin a bucket earlier. */
function listGaps(spans: readonly BucketSpan[], count: number): readonly BucketSpan[] {
  const edges = [0, ...spans.flatMap(({ from, to }) => [from - 1, to - 1]), count];
  return Array.from({ length: edges.length / 2 }, (_, at) => ({
    from: requireAt(edges, at * 2),
    to: requireAt(edges, at * 2 + 1),
  })).filter(({ from, to }) => from < to);
}

// ---- The series themselves -----------------------------------------------------------------------------------------

/** The restarts of each part; `undefined` if those of the first part cannot be determined. */
async function findPartRestarts(
  reader: SeriesReader,
  groupings: readonly Grouping[],
  buckets: Buckets,
): Promise<readonly FoundRestarts[] | undefined> {
  const [first, ...others] = groupings.map(({ part, selector, reach }) => ({
    selector,
    reach,
    limit: part.limit,
    canRestart: part.canRestart,
  }));
  const counted = first && (await findRestarts(reader, first, buckets));
  if (counted === undefined) return undefined;
  const linked = await runConcurrent(others, (one) => findLinkedRestarts(reader, one, buckets, counted));
  return [{ restarts: counted, unclear: [] }, ...linked];
}

/** Asked after the counts: a series that appears meanwhile makes the numbers of series differ, and its group is read. */
async function lookAtSeries(
  reader: SeriesReader,
  { part: { canRestart }, selector, reach, accepts }: Grouping,
  { start, step, count }: Buckets,
): Promise<SeriesLook> {
  const end = start + step * count;
  const before = reader.selectRange(selector, { from: reach, to: 1 });
  const selectNegative = (of: Expression) => binary(of, "<", number(0));
  const add = (one: number, other: number) => one + other;
  const selectNonFinite = (of: Expression) => binary(markNonFinite(of, true), "!=", number(0));
  const [totals, negative, lost] = await Promise.all([
    readWindow(
      reader,
      { selector, build: (samples) => call("sum_over_time", samples), join: add },
      start - reach,
      end,
    ),
    // Of what restarts when it falls, the first value and those after restarts are the least ones.
    canRestart
      ? reader.readInstant(selectNegative(call("last_over_time", before)), start)
      : readWindow(
          reader,
          { selector, build: (samples) => selectNegative(call("min_over_time", samples)), join: Math.min },
          start - reach,
          end,
        ),
    // A total of infinities may be no number, and then the source has lost the series.
    reader.losesNaN
      ? readWindow(reader, { selector, build: selectNonFinite, join: Math.max }, start - reach, end)
      : [],
  ]);
  const isOwn = ({ labels }: SampleSeries) => accepts(labels);
  return { totals: totals.filter(isOwn), unusable: [...negative, ...lost].filter(isOwn) };
}
