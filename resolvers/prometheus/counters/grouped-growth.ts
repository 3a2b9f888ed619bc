// The growth of groups of counters, added up at the source. The sum of the last values of a group grows from one bucket to
// the next by what its series have grown, wherever each of them has a sample in both buckets and none restarts between
// them; where one does, the value before the restart is added. So two queries answer most of a grouped question, however
// many series there are. What they cannot answer exactly is left to be read.
//
// Everything that is used here lies in buckets that no longer change: each series has a sample in the bucket after.
import { readNumber, requireAt, zip } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { type Millis, minute } from "../../../src/core/time.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  hasLabels,
  number,
  type Selector,
} from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import { hasBoundLabel } from "./bound-spellings.ts";
import type { CounterQuery } from "./bucket-survey.ts";
import { findRestarts, type Restart } from "./restart-search.ts";
import { type GridSeries, readLabel, runConcurrent, type SeriesReader } from "./series-reader.ts";

interface GroupingQuery extends CounterQuery {
  /** The labels whose values make a group. */
  readonly by: readonly string[];
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
  /** Of these groups; of all if it is absent. */
  readonly groups?: readonly Labels[];
}

interface GroupedGrowth {
  /** By group; NaN in what has to be read. */
  readonly groups: readonly GridSeries[];
  readonly ungrouped: readonly UngroupedPart[];
}

/** The last sample of a bucket is looked for in so much of its end. Nearly every live series has one there. */
const longestReach: Millis = 5 * minute;
/** In less than this many buckets in a row it is not worth to group. */
const fewestBuckets = 4;
const mostSpans = 8;

/** `undefined` if grouping would answer too little of it. @throws {Refused} over the limit of points @throws {BackendError} */
export async function growGroups(
  reader: SeriesReader,
  query: GroupingQuery,
): Promise<GroupedGrowth | undefined> {
  const { buckets, lookBack, pointLimit, by } = query;
  const reach = Math.min(buckets.step, longestReach);
  if (reader.hidesRestarts || lookBack === undefined || lookBack < reach) return undefined;
  if (buckets.step % reach !== 0 || reach % 1_000 !== 0) return undefined;
  // Only groups that show whether a label is present may be asked for without the matcher for its presence.
  if (!hasLabels(query.selector, Object.fromEntries(by.map((key) => [key, "present"])))) return undefined;
  const { selector, matchesDropped } = await reader.dropPresenceMatchers(query.selector, buckets);
  const grouping: Grouping = { ...query, selector, reach, accepts: matchesDropped };
  // With a bucket before them, from which the first one grows, and one after, which shows that the last one is complete.
  const wider = { ...buckets, start: buckets.start - buckets.step, count: buckets.count + 2 };
  const limit = pointLimit + Math.ceil(pointLimit / buckets.count) * 2;
  const readGroups = async (operator: "count" | "sum"): Promise<ReadonlyMap<string, GridSeries>> => {
    const of = aggregate(operator, by, buildLast(reader, grouping));
    const found = await reader.readGrid(of, wider, limit, matchesDropped);
    return new Map(found.map((group) => [formatGroup(by, group.labels), group]));
  };
  // In this order: what the counts show to be complete does not change any more.
  const counts = await readGroups("count");
  const spans = findSteadySpans([...counts.values()], wider.count);
  if (spans.length === 0) return undefined;
  const [sums, restarts] = await Promise.all([
    readGroups("sum"),
    runConcurrent(spans, (span) => findRestarts(reader, grouping, toBuckets(wider, span))),
  ]);
  const looks = await runConcurrent(spans, (span) => lookAtSeries(reader, grouping, toBuckets(wider, span)));
  const groups = new Map<string, GridSeries>();
  for (const [key, { labels }] of counts)
    groups.set(key, { labels, values: new Float64Array(buckets.count).fill(Number.NaN) });
  const ungrouped = [...listGaps(spans, buckets.count)];
  for (const [span, [found, look]] of zip(spans, zip(restarts, looks))) {
    const own = { from: span.from - 1, to: span.to - 1 };
    if (found === undefined) ungrouped.push(own);
    else ungrouped.push(...subtractSums({ by, counts, sums, groups }, wider, span, found, look));
  }
  return { groups: [...groups.values()], ungrouped };
}

interface Grouping extends Omit<GroupingQuery, "selector"> {
  readonly selector: Selector;
  readonly reach: Millis;
  readonly accepts: (labels: Labels) => boolean;
}

function buildLast(reader: SeriesReader, { selector, reach }: Grouping): Expression {
  return call("last_over_time", reader.selectRange(selector, { from: reach, to: 1 }));
}

function formatGroup(by: readonly string[], labels: Labels): string {
  return JSON.stringify(by.map((key) => readLabel(labels, key)));
}

function toBuckets({ start, step }: Buckets, { from, to }: BucketSpan): Buckets {
  return { start: start + from * step, step, count: to - from };
}

// ---- Where the same series are there -------------------------------------------------------------------------------

/** Spans of buckets in which each group has as many series as in the bucket before the span and the bucket after it. */
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

/** The buckets of the query that lie in none of the spans, which count one bucket more before them. */
function listGaps(spans: readonly BucketSpan[], count: number): readonly BucketSpan[] {
  const edges = [0, ...spans.flatMap(({ from, to }) => [from - 1, to - 1]), count];
  return Array.from({ length: edges.length / 2 }, (_, at) => ({
    from: requireAt(edges, at * 2),
    to: requireAt(edges, at * 2 + 1),
  })).filter(({ from, to }) => from < to);
}

// ---- The series themselves -----------------------------------------------------------------------------------------

interface SeriesLook {
  /** For each series the sum of all its samples, from shortly before the buckets on. */
  readonly totals: readonly SampleSeries[];
  /** Those whose value before the buckets is below 0. */
  readonly negative: readonly SampleSeries[];
}

/** Asked last: a series that appears while the question is being answered is one too many. */
async function lookAtSeries(
  reader: SeriesReader,
  { selector, reach, accepts }: Grouping,
  { start, step, count }: Buckets,
): Promise<SeriesLook> {
  const length = step * count;
  const whole = reader.selectRange(selector, { from: length + reach, to: 1 });
  const before = reader.selectRange(selector, { from: reach, to: 1 });
  const [totals, negative] = await Promise.all([
    reader.readInstant(call("sum_over_time", whole), start + length),
    reader.readInstant(binary(call("last_over_time", before), "<", number(0)), start),
  ]);
  const isOwn = ({ labels }: SampleSeries) => accepts(labels);
  return { totals: totals.filter(isOwn), negative: negative.filter(isOwn) };
}

// ---- Subtraction ---------------------------------------------------------------------------------------------------

interface GroupTables {
  readonly by: readonly string[];
  readonly counts: ReadonlyMap<string, GridSeries>;
  readonly sums: ReadonlyMap<string, GridSeries>;
  /** Takes the growth. */
  readonly groups: ReadonlyMap<string, GridSeries>;
}

/** Writes the growth in the buckets of a span, and returns what of it has to be read. */
function subtractSums(
  { by, counts, sums, groups }: GroupTables,
  wider: Buckets,
  span: BucketSpan,
  restarts: readonly Restart[],
  { totals, negative }: SeriesLook,
): readonly UngroupedPart[] {
  const keyOf = ({ labels }: { readonly labels: Labels }) => formatGroup(by, labels);
  const totalsOf = Map.groupBy(totals, keyOf);
  const restartsOf = Map.groupBy(restarts, keyOf);
  const unusable = new Set([...negative, ...restarts.filter(({ value }) => value < 0)].map(keyOf));
  const own = { from: span.from - 1, to: span.to - 1 };
  // A group without a series in the buckets before has appeared since, and with it who knows what.
  if ([...totalsOf.keys()].some((key) => !counts.has(key))) return [own];
  const unread: Labels[] = [];
  for (const [key, { labels, values: counted }] of counts) {
    const size = Number.isNaN(counted[span.from]) ? 0 : readNumber(counted, span.from);
    const series = totalsOf.get(key) ?? [];
    if (size === 0 && series.length === 0) continue;
    const summed = sums.get(key)?.values;
    const isClean = series.length === size && !unusable.has(key) && series.every(isCountable);
    const grown =
      isClean && summed !== undefined
        ? subtractGroup(summed, wider, span, restartsOf.get(key) ?? [], series)
        : undefined;
    if (grown === undefined) unread.push(labels);
    else groups.get(key)?.values.set(grown, own.from);
  }
  return unread.length === 0 ? [] : [{ ...own, groups: unread }];
}

/** Whether all samples are finite numbers, and the series is no spelling of another one. */
function isCountable({ labels, values, histograms }: SampleSeries): boolean {
  return histograms.length === 0 && Number.isFinite(values[0]) && !hasBoundLabel(labels);
}

/** The growth of one group; `undefined` if rounding may show in it. */
function subtractGroup(
  sums: Float64Array,
  { start, step }: Buckets,
  { from, to }: BucketSpan,
  restarts: readonly Restart[],
  series: readonly SampleSeries[],
): Float64Array | undefined {
  const lost = new Float64Array(to - from);
  for (const { time, left } of restarts) {
    const bucket = Math.floor((time - start) / step) - from;
    if (bucket >= 0 && bucket < lost.length) lost[bucket] = readNumber(lost, bucket) + left;
  }
  const used = sums.slice(from - 1, to);
  const isWhole =
    series.every(({ values: [total] }) => isWholeNumber(total)) &&
    used.every(isWholeNumber) &&
    restarts.every(({ left }) => isWholeNumber(left));
  const grown = lost.map((more, at) => readNumber(used, at + 1) - readNumber(used, at) + more);
  if (isWhole) return grown;
  const isExact = grown.every((value, at) => {
    // One series needs no addition.
    if (series.length === 1 && lost[at] === 0) return Number.isFinite(value);
    const added = readNumber(used, at + 1) + readNumber(used, at) + readNumber(lost, at);
    return Number.isFinite(added) && (series.length + 3) * added * unitRoundoff <= tolerance * value;
  });
  return isExact ? grown : undefined;
}

/** From here on, sums of fractions are whole by their rounding. */
const largestWhole = 2 ** 48;

function isWholeNumber(value: number | undefined): boolean {
  return Number.isInteger(value) && Math.abs(value ?? Number.NaN) < largestWhole;
}

/** The most that one rounding changes a number, as a part of it. */
const unitRoundoff = 2 ** -53;
/** How far from the definition a fraction may be, as a part of it. */
const tolerance = 1e-9;
