// Finds every restart of the series of a counter in a range, with the value before it. Only the samples around restarts
// are read; the counts of restarts in wide windows prove that none is missing.
import { readNumber } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { binary, call, number, type Selector } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { findMarkedCells, findMarksInCells, type MarkedCell, type MarkQuery } from "./mark-search.ts";
import { groupIntoRuns } from "./raw-runs.ts";
import {
  chunkSeries,
  formatSeriesKey,
  narrowToSeries,
  runConcurrent,
  type SeriesReader,
} from "./series-reader.ts";

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
  const { selector, reach, limit } = query;
  const marks: MarkQuery = {
    selector,
    build: (of, length) => {
      const around = reader.selectRange(of, { from: length + reach, to: 1 });
      return binary(call("resets", around), ">", number(0));
    },
    accepts: () => true,
    limit,
  };
  const cells = await findMarkedCells(reader, marks, buckets);
  if (cells.length === 0) return [];
  const restarts = await readRestarts(reader, query, buckets, marks, cells);
  return isComplete(restarts, cells, buckets, reach) ? restarts : undefined;
}

async function readRestarts(
  reader: SeriesReader,
  { selector, reach, limit }: RestartQuery,
  { start, step, count }: Buckets,
  marks: MarkQuery,
  cells: readonly MarkedCell[],
): Promise<readonly Restart[]> {
  const scale = step / reach;
  const finer = { start, step: reach, count: count * scale };
  const scaled = cells.map(({ from, to, series }) => ({ from: from * scale, to: to * scale, series }));
  const suspects = await findMarksInCells(reader, marks, finer, scaled);
  // A selector is narrowed to so many values of a label only.
  const runs = groupIntoRuns(suspects, reach).flatMap(({ from, to, members }) =>
    chunkSeries(members).map((chunk) => ({ from, to, labels: chunk.map(({ labels }) => labels) })),
  );
  const found = await runConcurrent(runs, async ({ from, to, labels }) => {
    const narrowed = narrowToSeries(selector, labels);
    const [first, last] = [start + (from - 1) * reach, start + (to + 1) * reach];
    const raw = await reader.readRaw(narrowed, first, last, limit);
    return raw.flatMap(({ labels, times, values }) => listFalls(labels, times, values));
  });
  // Windows overlap by the reach.
  const distinct = new Map(found.flat().map((one) => [`${one.time} ${formatSeriesKey(one.labels)}`, one]));
  return [...distinct.values()];
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

/** Whether each cell has as many restarts as the source counts in it and in the reach before it. */
function isComplete(
  restarts: readonly Restart[],
  cells: readonly MarkedCell[],
  { start, step }: Buckets,
  reach: Millis,
): boolean {
  const bySeries = Map.groupBy(restarts, ({ labels }) => formatSeriesKey(labels));
  return cells.every(({ from, to, series }) =>
    series.every(({ labels, value }) => {
      const inside = (bySeries.get(formatSeriesKey(labels)) ?? []).filter(
        ({ leftAt, time }) => leftAt >= start + from * step - reach && time < start + to * step,
      );
      return inside.length === value;
    }),
  );
}
