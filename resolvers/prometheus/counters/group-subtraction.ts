// Subtracts the sums of groups from one bucket to the next, where that is exact. A group of the answer has all of its parts
// or none: what of it cannot be subtracted is left to be read.

import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { readNumber, requireFirst, zip } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { parseBound } from "../../../src/metrics/samples.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import { dropBoundLabels, formatNumericKey, hasBoundLabel } from "./bound-spellings.ts";
import { type FoundRestarts, formatRestart, type Restart } from "./restart-search.ts";
import { formatSeriesKey, type GridSeries, readLabel } from "./series-reader.ts";

/** The sums of groups, and of sums of observations those of whole parts and of what is left. */
export interface GroupSums {
  readonly whole: ReadonlyMap<string, GridSeries>;
  readonly fractions?: ReadonlyMap<string, GridSeries>;
}

export interface SeriesLook {
  /** For each series the sum of all its samples, from shortly before the buckets on. */
  readonly totals: readonly SampleSeries[];
  /** Those with samples that are below 0 or not finite, as far as the totals do not show it. */
  readonly unusable: readonly SampleSeries[];
}

/** What was found of one part in one span. */
export interface PartLook {
  readonly look: SeriesLook;
  readonly found: FoundRestarts;
}

interface PartTables {
  readonly by: readonly string[];
  /** One of its labels is the bound. */
  readonly hasBounds: boolean;
  /** Its whole parts and fractions were added up separately. */
  readonly isSplit: boolean;
  readonly counts: ReadonlyMap<string, GridSeries>;
  readonly sums: GroupSums;
  /** Takes the growth. */
  readonly groups: ReadonlyMap<string, GridSeries>;
}

interface Tables {
  /** The labels whose values make a group of the answer. */
  readonly keys: readonly string[];
  readonly tables: readonly PartTables[];
  /** The buckets of the counts and sums: one more than the answer's at each end. */
  readonly wider: Buckets;
}

interface BucketSpan {
  readonly from: number;
  readonly to: number;
}

/** Identifies a group by the values of its labels. */
export function formatGroup(by: readonly string[], labels: Labels): string {
  return JSON.stringify(by.map((key) => readLabel(labels, key)));
}

/**
 * Writes the growth in the buckets of a span, and returns the groups of the answer that have to be read. `unequal` if a
 * histogram lacks one of the parts, so that what is read of the others depends on it.
 */
export async function subtractSums(
  { keys, tables, wider }: Tables,
  span: BucketSpan,
  looks: readonly PartLook[],
): Promise<readonly Labels[] | "all" | "unequal"> {
  if (!(await hasEqualParts(tables, looks))) return "unequal";
  const counted = Map.groupBy(requireFirst(looks).found.restarts, ({ labels }) => formatSeriesKey(labels));
  const unread = new Map<string, Labels>();
  const answers: (readonly GroupAnswer[])[] = [];
  for (const [table, part] of zip(tables, looks)) {
    const indexed = await indexPart(table, part, counted);
    // A group without a series in the buckets before has appeared since, and with it who knows what.
    if ([...indexed.totals.keys()].some((key) => !table.counts.has(key))) return "all";
    const grown = subtractPart(table, wider, span, indexed);
    answers.push(grown);
    for (const { labels, values } of grown)
      if (values === undefined) unread.set(formatGroup(keys, labels), labels);
  }
  for (const [{ groups }, grown] of zip(tables, answers)) {
    for (const { key, labels, values } of grown) {
      if (values !== undefined && !unread.has(formatGroup(keys, labels)))
        groups.get(key)?.values.set(values, span.from - 1);
    }
  }
  return [...unread.values()];
}

/** How many series are put into groups in one turn of the event loop: some milliseconds. */
const seriesPerTurn = 2_000;

interface IndexedPart {
  readonly totals: ReadonlyMap<string, readonly SampleSeries[]>;
  readonly restarts: ReadonlyMap<string, readonly Restart[]>;
  /** The groups that cannot be subtracted. */
  readonly unusable: ReadonlySet<string>;
}

/** `counted` are the restarts of the first part. */
async function indexPart(
  { by }: PartTables,
  { look, found }: PartLook,
  counted: ReadonlyMap<string, readonly Restart[]>,
): Promise<IndexedPart> {
  const keyOf = (labels: Labels) => formatGroup(by, labels);
  const totals = new Map<string, SampleSeries[]>();
  const restarted = new Set(found.restarts.map(formatRestart));
  const spellings = new Set<string>();
  const unusable = new Set<string>();
  for (const [index, series] of look.totals.entries()) {
    if (index % seriesPerTurn === 0) await yieldToEventLoop();
    const key = keyOf(series.labels);
    const group = totals.get(key);
    if (group === undefined) totals.set(key, [series]);
    else group.push(series);
    if (!hasAllRestarts(series.labels, counted, restarted)) unusable.add(key);
    if (!hasBoundLabel(series.labels)) continue;
    // Two spellings of one bound are one series.
    const spelling = formatNumericKey(series.labels);
    if (spellings.has(spelling)) unusable.add(key);
    spellings.add(spelling);
  }
  for (const { labels } of look.unusable) unusable.add(keyOf(labels));
  for (const { labels, value } of found.restarts) if (value < 0) unusable.add(keyOf(labels));
  for (const labels of found.unclear) unusable.add(keyOf(labels));
  return { totals, restarts: Map.groupBy(found.restarts, ({ labels }) => keyOf(labels)), unusable };
}

/** Whether the series has each restart of its count. */
function hasAllRestarts(
  labels: Labels,
  counted: ReadonlyMap<string, readonly Restart[]>,
  restarted: ReadonlySet<string>,
): boolean {
  if (counted.size === 0) return true;
  const own = counted.get(formatSeriesKey(dropBoundLabels(labels))) ?? [];
  return own.every(({ time }) => restarted.has(formatRestart({ labels, time })));
}

interface GroupAnswer {
  readonly key: string;
  readonly labels: Labels;
  /** `undefined` if the group has to be read. */
  readonly values: Float64Array | undefined;
}

function subtractPart(
  table: PartTables,
  wider: Buckets,
  span: BucketSpan,
  { totals, restarts, unusable }: IndexedPart,
): readonly GroupAnswer[] {
  const { counts, sums, hasBounds } = table;
  return [...counts].flatMap(([key, { labels, values: counted }]): readonly GroupAnswer[] => {
    const size = Number.isNaN(counted[span.from]) ? 0 : readNumber(counted, span.from);
    const series = totals.get(key) ?? [];
    if (size === 0 && series.length === 0) return [];
    const whole = sums.whole.get(key)?.values;
    const fractions = sums.fractions?.get(key)?.values;
    const isClean =
      series.length === size &&
      !unusable.has(key) &&
      series.every((one) => isCountable(one) && hasBoundLabel(one.labels) === hasBounds);
    if (!isClean || whole === undefined) return [{ key, labels, values: undefined }];
    const group = { series, restarts: restarts.get(key) ?? [] };
    const values = table.isSplit
      ? fractions && subtractSplit(whole, fractions, wider, span, group)
      : subtractGroup(whole, wider, span, group);
    return [{ key, labels, values }];
  });
}

/** Whether all samples are finite numbers. */
function isCountable({ values, histograms }: SampleSeries): boolean {
  return histograms.length === 0 && Number.isFinite(values[0]);
}

// ---- Parts of histograms -------------------------------------------------------------------------------------------

/** Whether each histogram has all parts, and the bucket of all observations. */
async function hasEqualParts(tables: readonly PartTables[], looks: readonly PartLook[]): Promise<boolean> {
  if (tables.length < 2) return true;
  let counted: ReadonlyMap<string, readonly number[]> | undefined;
  for (const [{ hasBounds }, { look }] of zip(tables, looks)) {
    const histograms = await listHistograms(look);
    counted ??= histograms;
    if (histograms.size !== counted.size) return false;
    for (const [histogram, bounds] of histograms) {
      if (!counted.has(histogram)) return false;
      if (hasBounds && (!bounds.includes(Number.POSITIVE_INFINITY) || bounds.some(Number.isNaN)))
        return false;
    }
  }
  return true;
}

/** The bounds of each histogram. */
async function listHistograms({ totals }: SeriesLook): Promise<ReadonlyMap<string, readonly number[]>> {
  const histograms = new Map<string, number[]>();
  for (const [index, { labels }] of totals.entries()) {
    if (index % seriesPerTurn === 0) await yieldToEventLoop();
    const key = formatSeriesKey(dropBoundLabels(labels));
    const bounds = histograms.get(key);
    const bound = parseBound(readLabel(labels, "le"));
    if (bounds === undefined) histograms.set(key, [bound]);
    else bounds.push(bound);
  }
  return histograms;
}

// ---- Subtraction ---------------------------------------------------------------------------------------------------

interface GroupMembers {
  readonly series: readonly SampleSeries[];
  readonly restarts: readonly Restart[];
}

/** What is lost by restarts in each bucket. */
function sumLost(
  { start, step }: Buckets,
  { from, to }: BucketSpan,
  restarts: readonly Restart[],
  part: (left: number) => number,
): Float64Array {
  const lost = new Float64Array(to - from);
  for (const { time, left } of restarts) {
    const bucket = Math.floor((time - start) / step) - from;
    if (bucket >= 0 && bucket < lost.length) lost[bucket] = readNumber(lost, bucket) + part(left);
  }
  return lost;
}

/** The growth of one group; `undefined` if rounding may show in it. */
function subtractGroup(
  sums: Float64Array,
  wider: Buckets,
  { from, to }: BucketSpan,
  { series, restarts }: GroupMembers,
): Float64Array | undefined {
  const lost = sumLost(wider, { from, to }, restarts, (left) => left);
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

/**
 * The growth of one group whose whole parts and fractions were added up separately: NaN in a bucket where rounding may
 * show in it, and `undefined` if the whole parts may be rounded.
 */
function subtractSplit(
  whole: Float64Array,
  fractions: Float64Array,
  wider: Buckets,
  span: BucketSpan,
  { series, restarts }: GroupMembers,
): Float64Array | undefined {
  const { from, to } = span;
  const used = { whole: whole.slice(from - 1, to), fractions: fractions.slice(from - 1, to) };
  const lost = {
    whole: sumLost(wider, span, restarts, Math.floor),
    fractions: sumLost(wider, span, restarts, (left) => left % 1),
  };
  if (![...used.whole, ...lost.whole].every(isWholeNumber) || !used.fractions.every(Number.isFinite))
    return undefined;
  const size = series.length + restarts.length + 3;
  return lost.whole.map((more, at) => {
    const large = readNumber(used.whole, at + 1) - readNumber(used.whole, at) + more;
    const [after, before] = [readNumber(used.fractions, at + 1), readNumber(used.fractions, at)];
    const small = after - before + readNumber(lost.fractions, at);
    const error = size * (after + before + readNumber(lost.fractions, at)) * unitRoundoff;
    return error <= tolerance * (large + small) ? large + small : Number.NaN;
  });
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
