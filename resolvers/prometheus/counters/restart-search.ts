// Finds every restart of the series of a counter in a range, with the value before it. Only the samples around restarts
// are read; the counts of restarts in wide windows prove that none is missing.
import { findFirstAtOrAfter, readNumber } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { binary, call, type Expression, number, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { dropBoundLabels } from "./bound-spellings.ts";
import { findMarkedCells, findMarksInCells, type MarkedCell, type MarkQuery } from "./mark-search.ts";
import { groupIntoRuns, type SuspectBucket } from "./raw-runs.ts";
import { chunkSeries, narrowToSeries } from "./series-narrowing.ts";
import { formatSeriesKey, type RawSeries, runConcurrent, type SeriesReader } from "./series-reader.ts";

/** A sample below the one before it. */
export interface Restart {
  readonly labels: Labels;
  /** The time and value of the sample before. */
  readonly leftAt: Millis;
  readonly left: number;
  /** The time and value of the sample that is below it. */
  readonly time: Millis;
  readonly value: number;
}

interface RestartQuery {
  readonly selector: Selector;
  /** Before each of these buckets, each series has a sample in this reach, which divides the length of a bucket. */
  readonly reach: Millis;
  /** Samples that may be read. */
  readonly limit: number;
}

/**
 * The restarts whose later sample lies in the buckets, and maybe some that lie around. `undefined` if the source counts
 * more or fewer than the samples show, as where a series has a gap inside a bucket. @throws {Refused | BackendError}
 */
export async function findRestarts(
  reader: SeriesReader,
  query: RestartQuery,
  buckets: Buckets,
): Promise<readonly Restart[] | undefined> {
  const marks = buildMarks(reader, query);
  const cells = await findMarkedCells(reader, marks, buckets);
  if (cells.length === 0) return [];
  const { reach } = query;
  const scale = buckets.step / reach;
  const finer = { start: buckets.start, step: reach, count: buckets.count * scale };
  const scaled = cells.map(({ from, to, series }) => ({ from: from * scale, to: to * scale, series }));
  const suspects = await findMarksInCells(reader, marks, finer, scaled);
  const raw = await readAround(reader, query, finer, suspects);
  const restarts = listDistinct(raw.flatMap(({ labels, times, values }) => listFalls(labels, times, values)));
  const missed = findIncomplete(restarts, cells, buckets, reach);
  return missed.length === 0 ? restarts : undefined;
}

/** What is left open for series of which it cannot be told. */
export interface FoundRestarts {
  readonly restarts: readonly Restart[];
  readonly unclear: readonly Labels[];
}

/**
 * The restarts of the parts of histograms, of which these of their counts are known. Each is a restart of all series of
 * its labels beside the bound, whether these fall or not. @throws {Refused | BackendError}
 */
export async function findLinkedRestarts(
  reader: SeriesReader,
  query: RestartQuery & { readonly canRestart: boolean },
  buckets: Buckets,
  counted: readonly Restart[],
): Promise<FoundRestarts> {
  const { reach, canRestart } = query;
  const scale = buckets.step / reach;
  const finer = { start: buckets.start, step: reach, count: buckets.count * scale };
  const suspects = counted.map(({ labels, time }) => ({
    labels,
    bucket: Math.floor((time - buckets.start) / reach),
  }));
  const [raw, cells] = await Promise.all([
    readAround(reader, query, finer, suspects),
    canRestart ? findMarkedCells(reader, buildMarks(reader, query), buckets) : [],
  ]);
  const falls = canRestart
    ? listDistinct(raw.flatMap(({ labels, times, values }) => listFalls(labels, times, values)))
    : [];
  const unclear = findIncomplete(falls, cells, buckets, reach);
  const restarts = new Map(falls.map((one) => [formatRestart(one), one]));
  const byHistogram = Map.groupBy(counted, ({ labels }) => formatSeriesKey(labels));
  for (const [histogram, pieces] of Map.groupBy(raw, ({ labels }) =>
    formatSeriesKey(dropBoundLabels(labels)),
  )) {
    for (const [, own] of Map.groupBy(pieces, ({ labels }) => formatSeriesKey(labels))) {
      for (const restart of byHistogram.get(histogram) ?? []) {
        const found = own.map((piece) => findAt(piece, restart)).find((one) => one !== undefined);
        const [one] = own;
        if (found !== undefined) restarts.set(formatRestart(found), found);
        else if (one !== undefined) unclear.push(one.labels);
      }
    }
  }
  return { restarts: [...restarts.values()], unclear };
}

/** Where a restart lies in the window of this length or in the reach before it: how many do. */
export function buildRestartsQuery(
  reader: SeriesReader,
  selector: Selector,
  length: Millis,
  reach: Millis,
): Expression {
  const around = reader.selectRange(selector, { from: length + reach, to: 1 });
  return binary(call("resets", around), ">", number(0));
}

function buildMarks(reader: SeriesReader, { selector, reach, limit }: RestartQuery): MarkQuery {
  return {
    selector,
    build: (of, length) => buildRestartsQuery(reader, of, length, reach),
    accepts: () => true,
    limit,
  };
}

/** If more than one series in so many is wanted, all of them are read together. */
const shareOfAll = 4;

/** The samples of the suspects in their buckets, and in those before and after. Windows overlap. */
async function readAround(
  reader: SeriesReader,
  { selector, limit }: RestartQuery,
  buckets: Buckets,
  suspects: readonly SuspectBucket[],
): Promise<readonly RawSeries[]> {
  if (suspects.length === 0) return [];
  const { start, step } = buckets;
  const size = await reader.estimateSeries(selector, undefined, buckets, Number.POSITIVE_INFINITY);
  const runs = groupIntoRuns(suspects, step).flatMap(({ from, to, members }) => {
    const series = [...new Set(members.map(({ labels }) => labels))];
    // A selector is narrowed to so many values of a label only. After a deployment nearly all series are wanted.
    const chunks = series.length * shareOfAll > size ? [series] : chunkSeries(series);
    return chunks.map((labels) => ({ from, to, labels }));
  });
  const found = await runConcurrent(runs, ({ from, to, labels }) =>
    reader.readRaw(
      narrowToSeries(selector, labels),
      start + (from - 1) * step,
      start + (to + 1) * step,
      limit,
    ),
  );
  return found.flat();
}

function listDistinct(restarts: readonly Restart[]): readonly Restart[] {
  return [...new Map(restarts.map((one) => [formatRestart(one), one])).values()];
}

export function formatRestart({ time, labels }: Pick<Restart, "labels" | "time">): string {
  return `${time} ${formatSeriesKey(labels)}`;
}

/** The same restart of another series, which has samples at the same times. */
function findAt({ labels, times, values }: RawSeries, { leftAt, time }: Restart): Restart | undefined {
  const index = findFirstAtOrAfter(times, time);
  if (index === 0 || times[index] !== time || times[index - 1] !== leftAt) return undefined;
  return { labels, leftAt, left: readNumber(values, index - 1), time, value: readNumber(values, index) };
}

function listFalls(labels: Labels, times: Float64Array, values: Float64Array): readonly Restart[] {
  const falls: Restart[] = [];
  for (let index = 1; index < times.length; index++) {
    const [left, value] = [readNumber(values, index - 1), readNumber(values, index)];
    if (value < left)
      falls.push({
        labels,
        leftAt: readNumber(times, index - 1),
        left,
        time: readNumber(times, index),
        value,
      });
  }
  return falls;
}

/** The series of which a cell has more or fewer restarts than the source counts in it and in the reach before it. */
function findIncomplete(
  restarts: readonly Restart[],
  cells: readonly MarkedCell[],
  { start, step }: Buckets,
  reach: Millis,
): Labels[] {
  const bySeries = Map.groupBy(restarts, ({ labels }) => formatSeriesKey(labels));
  return cells.flatMap(({ from, to, series }) =>
    series.flatMap(({ labels, value }) => {
      const inside = (bySeries.get(formatSeriesKey(labels)) ?? []).filter(
        ({ leftAt, time }) => leftAt >= start + from * step - reach && time < start + to * step,
      );
      return inside.length === value ? [] : [labels];
    }),
  );
}
