// The growth of groups of counters, added up at the source. The sum of the last values of a group grows from one bucket to
// the next by what its series have grown, wherever each of them has a sample in both buckets and none restarts between
// them; where one does, the value before the restart is added. So one or two queries answer most of a grouped question,
// however many series there are. What they cannot answer exactly is left to be read.
//
// What is used here lies in buckets that no longer change: each series has a sample in the bucket after. Only the last
// bucket of a question may still change. Its sums are used if the same series were there before and after, and none has
// restarted until then.
import { readNumber, requireAt, requireFirst, zip } from "../../../src/core/collections.ts";
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
import {
  buildRestartsQuery,
  type FoundRestarts,
  findLinkedRestarts,
  findRestarts,
} from "./restart-search.ts";
import { type GridSeries, pointsPerQuery, runConcurrent, type SeriesReader } from "./series-reader.ts";
import { isSparse, readSparseGrid } from "./sparse-grid.ts";
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

interface SteadySpan extends BucketSpan {
  /** Its last bucket may still change: no sample has come after it. */
  readonly isOpen: boolean;
}

/** What has to be read instead. */
export interface UngroupedPart extends BucketSpan {
  /** Of these groups of the answer; of all if it is absent. */
  readonly groups?: readonly Labels[];
}

interface GroupedGrowth {
  /** For each part by its groups; NaN in what has to be read. */
  readonly parts: readonly (readonly GridSeries[])[];
  /** What has to be read beside the gaps. */
  readonly ungrouped: readonly UngroupedPart[];
}

/** The buckets that can be grouped, as the counts of the series show it. */
interface SteadyBuckets {
  /** What lies between them, which has to be read. */
  readonly gaps: readonly UngroupedPart[];
  readonly query: GroupingQuery;
  readonly groupings: readonly Grouping[];
  readonly wider: Buckets;
  readonly counted: readonly CountedGroups[];
  readonly spans: readonly SteadySpan[];
}

/** The last sample of a bucket is looked for in so much of its end. Nearly every live series has one there. */
export const longestReach: Millis = 5 * minute;
/** In less than this many buckets in a row it is not worth to group. */
const fewestBuckets = 4;
const mostSpans = 8;

/** `undefined` if grouping would answer too little of it. @throws {Refused} over the limit of points @throws {BackendError} */
export async function findSteadyBuckets(
  reader: SeriesReader,
  query: GroupingQuery,
): Promise<SteadyBuckets | undefined> {
  const { parts, pointLimit } = query;
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
  const counted = await runConcurrent(groupings, (one) => countGroups(reader, one, wider));
  // The last bucket may change between two queries: what is added up from several ones would not be of the same samples.
  const takesOpen = parts.length === 1 && parts[0].canRestart;
  const spans = findSteadySpans(
    counted.flatMap(({ counts }) => [...counts.values()]),
    wider.count,
    takesOpen,
  );
  if (spans.length === 0) return undefined;
  return { gaps: listGaps(spans, buckets.count), query, groupings, wider, counted, spans };
}

/** `undefined` if one histogram lacks a part. @throws {Refused} over the limit of points @throws {BackendError} */
export async function growGroups(
  reader: SeriesReader,
  { query: { parts, keys }, groupings, wider, counted, spans }: SteadyBuckets,
): Promise<GroupedGrowth | undefined> {
  const [{ sums, looks }, restarts] = await Promise.all([
    sumThenLook(reader, groupings, wider, counted, spans),
    runConcurrent(spans, (span) =>
      findPartRestarts(reader, groupings, toBuckets(wider, dropOpenBucket(span))),
    ),
  ]);
  const tables = parts.map(({ by, canRestart, buckets }, at) => {
    const { counts } = requireAt(counted, at);
    return {
      by,
      hasBounds: by.length > keys.length,
      isSplit: !canRestart,
      counts,
      sums: requireAt(sums, at),
      groups: createGroups(counts, buckets.count),
    };
  });
  const ungrouped: UngroupedPart[] = [];
  for (const [index, span] of spans.entries()) {
    const found = restarts[index];
    const { parts: look, restarted } = requireAt(looks, index);
    const own = { from: span.from - 1, to: span.to - 1 };
    if (found === undefined) ungrouped.push(own);
    else {
      const looked = look.map((one, at): PartLook => ({ look: one, found: requireAt(found, at) }));
      const unread = await subtractSums({ keys, tables, wider }, span, looked);
      if (unread === "unequal") return undefined;
      if (unread === "all") ungrouped.push(own);
      else if (unread.length > 0) ungrouped.push({ ...own, groups: unread });
      if (restarted.length === 0) continue;
      const open = own.to - 1;
      for (const { groups } of tables) clearBucket(keys, groups, open, restarted);
      ungrouped.push({ from: open, to: own.to, groups: restarted });
    }
  }
  return { parts: tables.map(({ groups }) => [...groups.values()]), ungrouped };
}

function dropOpenBucket({ from, to, isOpen }: SteadySpan): BucketSpan {
  return { from, to: isOpen ? to - 1 : to };
}

function clearBucket(
  keys: readonly string[],
  groups: ReadonlyMap<string, GridSeries>,
  bucket: number,
  cleared: readonly Labels[],
): void {
  const wanted = new Set(cleared.map((labels) => formatGroup(keys, labels)));
  for (const { labels, values } of groups.values())
    if (wanted.has(formatGroup(keys, labels))) values[bucket] = Number.NaN;
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

interface CountedGroups {
  /** How many series each group has at the end of each bucket. */
  readonly counts: ReadonlyMap<string, GridSeries>;
  /** The sums of their last values, if the same query has answered them: whole numbers. */
  readonly sums?: ReadonlyMap<string, GridSeries>;
}

/**
 * Counts the series of each group. One query tells the sums of their last values too, where these are whole and not too
 * large: it adds a small part of 1 to each value, so that the fraction of a sum tells how many values it has.
 */
async function countGroups(reader: SeriesReader, grouping: Grouping, wider: Buckets): Promise<CountedGroups> {
  const { part, selector } = grouping;
  const last = buildLast(reader, grouping);
  // Of several queries one may be answered before another shows that its buckets are complete.
  const isOneQuery = wider.count <= pointsPerQuery && !isSparse(wider);
  if (isOneQuery && !reader.needsSeparateCounts(selector)) {
    const { buckets } = part;
    const most = await reader.estimateSeries(part.selector, undefined, buckets, Number.POSITIVE_INFINITY);
    const bits = Math.ceil(Math.log2(most + 1));
    const whole = part.canRestart ? last : call("floor", last);
    const raised = aggregate("sum", part.by, binary(whole, "+", number(2 ** -bits)));
    const found = await readGroups(reader, grouping, wider, raised);
    const separated = separateCounts(found, bits, most, wider.count);
    if (separated !== undefined) return separated;
    reader.markSeparateCounts(selector);
  }
  return { counts: await readGroups(reader, grouping, wider, aggregate("count", part.by, last)) };
}

/**
 * Counts and sums from sums of values to each of which 2^-bits was added. `undefined` if a sum is too large to hold both, if
 * its values are no whole numbers, or if there seem to be more than `most` series, as with fractions.
 */
function separateCounts(
  found: ReadonlyMap<string, GridSeries>,
  bits: number,
  most: number,
  length: number,
): CountedGroups | undefined {
  const counts = new Map<string, GridSeries>();
  const sums = new Map<string, GridSeries>();
  const totals = new Float64Array(length);
  for (const [key, { labels, values }] of found) {
    const whole = values.map(Math.floor);
    const counted = values.map((value, at) => (value - readNumber(whole, at)) * 2 ** bits);
    for (const [at, count] of counted.entries()) {
      if (Number.isNaN(values[at])) continue;
      if (!Number.isInteger(count) || !(Math.abs(readNumber(values, at)) < 2 ** (53 - bits)))
        return undefined;
      totals[at] = readNumber(totals, at) + count;
    }
    counts.set(key, { labels, values: counted });
    sums.set(key, { labels, values: whole });
  }
  return totals.every((total) => total <= most) ? { counts, sums } : undefined;
}

/**
 * Sums of observations are fractions and grow large: their whole parts, sums of which are exact, are added up by
 * themselves, so that only sums of numbers below 1 are rounded.
 */
async function readSums(
  reader: SeriesReader,
  grouping: Grouping,
  wider: Buckets,
  { sums }: CountedGroups,
): Promise<GroupSums> {
  const { by, canRestart } = grouping.part;
  const last = buildLast(reader, grouping);
  const add = (of: Expression) => readGroups(reader, grouping, wider, aggregate("sum", by, of));
  if (canRestart) return { whole: sums ?? (await add(last)) };
  const [whole, fractions] = await Promise.all([
    sums ?? add(call("floor", last)),
    add(binary(last, "%", number(1))),
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
 * Spans of buckets in which each group has as many series as in the bucket before the span and the bucket after it, which an
 * open span does not need: the longest few, or none where they cover less than half of the buckets.
 */
function findSteadySpans(
  counts: readonly GridSeries[],
  count: number,
  takesOpen: boolean,
): readonly SteadySpan[] {
  const isSteady = (bucket: number) =>
    counts.every(({ values }) => Object.is(values[bucket], values[bucket - 1]));
  const spans: SteadySpan[] = [];
  let first = 0;
  for (let bucket = 1; bucket <= count; bucket++) {
    if (bucket < count && isSteady(bucket)) continue;
    const isOpen = takesOpen && bucket === count - 1;
    const span = { from: first + 1, to: isOpen ? bucket : bucket - 1, isOpen };
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

interface SummedGroups {
  /** For each part. */
  readonly sums: readonly GroupSums[];
  /** For each span. */
  readonly looks: readonly SpanLook[];
}

interface SpanLook {
  /** For each part. */
  readonly parts: readonly SeriesLook[];
  /** Series with a restart in the open bucket, maybe after the sums were read. */
  readonly restarted: readonly Labels[];
}

/**
 * The look comes after the counts and the sums: a series that appears meanwhile makes the numbers of series differ, and its
 * group is read.
 */
async function sumThenLook(
  reader: SeriesReader,
  groupings: readonly Grouping[],
  wider: Buckets,
  counted: readonly CountedGroups[],
  spans: readonly SteadySpan[],
): Promise<SummedGroups> {
  const sums = await runConcurrent(zip(groupings, counted), ([one, counts]) =>
    readSums(reader, one, wider, counts),
  );
  const looks = await runConcurrent(spans, async (span): Promise<SpanLook> => {
    const [parts, restarted] = await Promise.all([
      runConcurrent(groupings, (one) => lookAtSeries(reader, one, toBuckets(wider, span))),
      span.isOpen ? findOpenRestarts(reader, requireFirst(groupings), wider, span) : [],
    ]);
    return { parts, restarted };
  });
  return { sums, looks };
}

async function findOpenRestarts(
  reader: SeriesReader,
  { selector, reach, accepts }: Grouping,
  { start, step }: Buckets,
  { to }: SteadySpan,
): Promise<readonly Labels[]> {
  const restarts = buildRestartsQuery(reader, selector, step, reach);
  const found = await reader.readInstant(restarts, start + to * step);
  return found.map(({ labels }) => labels).filter(accepts);
}

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
