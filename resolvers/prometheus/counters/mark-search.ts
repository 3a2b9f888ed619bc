// Finds the few buckets in which an expression has a value, such as those with a restart. Nearly all series have none in
// the whole range. So wide cells are asked first, and single buckets only of the series and cells that have one.
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Expression, Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { isOverSampleLimit } from "./sample-limit.ts";
import { narrowToSeries } from "./series-narrowing.ts";
import { runConcurrent, type SeriesReader } from "./series-reader.ts";

/** A question whose answer has a value where a window of some length is marked. */
export interface MarkQuery {
  readonly selector: Selector;
  /** The expression for the window of this length that ends at the time of evaluation. */
  readonly build: (selector: Selector, length: Millis) => Expression;
  /** Which of the series count. */
  readonly accepts: (labels: Labels) => boolean;
  /** Series × buckets that may be read. */
  readonly limit: number;
}

/** A bucket of a series that is marked. */
export interface Mark {
  readonly labels: Labels;
  readonly bucket: number;
}

/** A range is asked about in so many cells first: each costs little over what its samples cost. */
const cellCount = 16;
/** More buckets are searched by narrower cells again: each takes an evaluation. */
const mostBuckets = 1_000;

/**
 * The marked buckets, and maybe some before the first one, whose numbers are below 0. A window that is marked has to be
 * marked too as a part of a longer one.
 */
export async function findMarks(
  reader: SeriesReader,
  query: MarkQuery,
  buckets: Buckets,
): Promise<readonly Mark[]> {
  if (buckets.count <= cellCount) return readMarks(reader, query, buckets, 0, buckets.count);
  return findMarksInCells(reader, query, buckets, await findMarkedCells(reader, query, buckets));
}

/** The marked buckets within marked cells. */
export async function findMarksInCells(
  reader: SeriesReader,
  query: MarkQuery,
  buckets: Buckets,
  cells: readonly MarkedCell[],
): Promise<readonly Mark[]> {
  const isWide = cells.some(({ from, to }) => to - from > mostBuckets);
  const runs = isWide ? cells : joinNeighbours(cells);
  const found = await runConcurrent(runs, async ({ from, to, series }) => {
    const labels = series.map((one) => one.labels);
    const narrowed = { ...query, selector: narrowToSeries(query.selector, labels) };
    if (!isWide) return readMarks(reader, narrowed, buckets, from, to);
    const part = { start: buckets.start + from * buckets.step, step: buckets.step, count: to - from };
    const marks = await findMarks(reader, narrowed, part);
    return marks.map((mark) => ({ ...mark, bucket: from + mark.bucket }));
  });
  return found.flat();
}

/** The marks of the buckets from `from` until before `to`. */
async function readMarks(
  reader: SeriesReader,
  { selector, build, accepts, limit }: MarkQuery,
  { start, step }: Buckets,
  from: number,
  to: number,
): Promise<readonly Mark[]> {
  const part = { start: start + from * step, step, count: to - from };
  const found = await reader.readGrid(build(selector, step), part, limit, accepts);
  return found.flatMap(({ labels, values }) =>
    [...values.entries()].flatMap(([at, value]) =>
      Number.isNaN(value) ? [] : [{ labels, bucket: from + at }],
    ),
  );
}

export interface MarkedCell {
  /** Holds the buckets from `from` until before `to`; the first cell may begin before the first bucket, below 0. */
  readonly from: number;
  readonly to: number;
  /** The series that are marked there, with the value of the mark. */
  readonly series: readonly { readonly labels: Labels; readonly value: number }[];
}

/** The marked cells, in order: few, or more if the source would load too many samples for so wide ones. */
export async function findMarkedCells(
  reader: SeriesReader,
  query: MarkQuery,
  buckets: Buckets,
): Promise<readonly MarkedCell[]> {
  for (let size = Math.ceil(buckets.count / cellCount); ; size = Math.ceil(size / 4)) {
    try {
      return await findCellsOf(size, reader, query, buckets);
    } catch (error) {
      if (!isOverSampleLimit(error) || size === 1) throw error;
    }
  }
}

async function findCellsOf(
  size: number,
  reader: SeriesReader,
  { selector, build, accepts, limit }: MarkQuery,
  { start, step, count }: Buckets,
): Promise<readonly MarkedCell[]> {
  const cellStep = size * step;
  const needed = Math.ceil(count / size);
  // The first cell may begin before the buckets: a query of its own for a short one would cost more.
  const first = count - needed * size;
  const grid = { start: start + first * step, step: cellStep, count: needed };
  const found = await reader.readGrid(build(selector, cellStep), grid, limit, accepts);
  const cells = Array.from({ length: needed }, (_, cell) => ({
    from: first + cell * size,
    to: first + (cell + 1) * size,
    series: [] as MarkedCell["series"][number][],
  }));
  for (const { labels, values } of found) {
    for (const [cell, value] of values.entries())
      if (!Number.isNaN(value)) cells[cell]?.series.push({ labels, value });
  }
  return cells.filter(({ series }) => series.length > 0);
}

/** Neighbouring cells together, as far as they are not too wide. */
function joinNeighbours(cells: readonly MarkedCell[]): readonly MarkedCell[] {
  const runs: { from: number; to: number; series: MarkedCell["series"][number][] }[] = [];
  for (const { from, to, series } of cells) {
    const run = runs.at(-1);
    if (run?.to !== from || to - run.from > mostBuckets) runs.push({ from, to, series: [...series] });
    else {
      run.to = to;
      for (const one of series) run.series.push(one);
    }
  }
  return runs;
}
