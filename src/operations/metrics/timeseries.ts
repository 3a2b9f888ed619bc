// `metrics/timeseries`: a series for each selector and combination of tags. Each series is printed when it is sent, so a large
// answer is never held as text.

import { createPause, sortInSteps, takeSteps, visitInTurns } from "../../core/async/turns.ts";
import type { Buckets, Series } from "../../core/rows.ts";
import { chooseResolution, computeGrid } from "../../metrics/measures.ts";
import {
  type ChunkedBody,
  type Context,
  charsPerChunk,
  type Operation,
  type RowBatch,
} from "../runtime/operation.ts";
import {
  type AnsweredSelector,
  checkPoints,
  explainSelectors,
  findMetricsPart,
  type MetricsPart,
  readSelectors,
  rejectForcedTags,
} from "./read-series.ts";
import { printRange, type Selector, type TimeseriesRequest, timeseriesBody, toTimeRange } from "./request.ts";
import { timeseriesAnswer } from "./schema.ts";
import {
  type ChunkWriter,
  createChunkWriter,
  pointsPerTurn,
  printAscii,
  printNumber,
  printPoints,
  printText,
  takeText,
} from "./series-writer.ts";

export const timeseries: Operation<TimeseriesRequest, never> = {
  name: "metrics.timeseries",
  method: "POST",
  path: "/api/v2/metrics/timeseries",
  access: "token",
  scope: "metrics",
  summary: "Series of metrics over time",
  description:
    "One series for each combination of the values of the tags that a selector names. Buckets are whole and lie on the UTC grid of the resolution.",
  request: timeseriesBody,
  answer: timeseriesAnswer,
  sites: ({ site_id }) => [site_id],
  mayBePartial: () => true,
  run: (request, context) => {
    const metrics = findMetricsPart(context.sites.get(request.site_id));
    rejectForcedTags(request.select, [], metrics);
    const range = toTimeRange(request);
    const chosen = request.resolution ?? chooseResolution(range);
    const buckets = computeGrid(range, chosen);
    checkPoints(buckets.count, context);
    const opening = `{"resolution":"${chosen}",${printRange(request)},"series":[`;
    return { pieces: printTimeseries(opening, request, metrics, buckets, context) } satisfies ChunkedBody;
  },
  explain: async (request, context) => {
    const range = toTimeRange(request);
    const resolution = request.resolution ?? chooseResolution(range);
    return { resolution, ...(await explainSelectors(request, computeGrid(range, resolution), context)) };
  },
};

async function* printTimeseries(
  opening: string,
  { select, limit = Number.POSITIVE_INFINITY }: TimeseriesRequest,
  metrics: MetricsPart,
  buckets: Buckets,
  context: Context,
): AsyncGenerator<RowBatch> {
  const answered = await readSelectors(select, metrics, buckets, context);
  const { found, chars } = await collectSeries(answered, limit, context.signal);
  let unprinted = chars;
  const pause = createPause(context.signal);
  const piece = createChunkWriter(buckets);
  let count = 0;
  let separator = "";
  printText(piece, opening);
  for (const [id, { selector, series }] of found) {
    const paused = pause();
    if (paused !== undefined) await paused;
    const values = drawValues(selector, series);
    printAscii(piece, separator);
    printSeriesHead(piece, id, selector, series.tags, values);
    separator = ",";
    let points = 0;
    for (let first = 0; first < buckets.count; first += pointsPerTurn) {
      const end = Math.min(first + pointsPerTurn, buckets.count);
      points += printPoints(piece, values, { first, end }, points === 0);
      if (piece.end < charsPerChunk) continue;
      unprinted -= piece.end;
      yield { count, text: takeText(piece), unprinted };
      count = 0;
    }
    printAscii(piece, points === 0 ? "]}" : "}]}");
    count += 1;
  }
  printAscii(piece, "]}");
  yield { count, text: takeText(piece) };
}

/** A point, and a series without its points, as they are printed: roughly. */
const charsPerPoint = 70;

const charsPerSeriesHead = 300;

interface SelectedSeries {
  readonly selector: Selector;
  readonly series: Series;
}

/**
 * The series of the answer by their ids, and how many characters they have in it, roughly. Two selectors may find one
 * series; it is answered once, as the first of them wants it.
 */
async function collectSeries(
  answered: readonly AnsweredSelector<Selector>[],
  limit: number,
  signal: AbortSignal,
): Promise<{ readonly found: ReadonlyMap<string, SelectedSeries>; readonly chars: number }> {
  const found = new Map<string, SelectedSeries>();
  let chars = 0;
  for (const { selector, series: all } of answered) {
    const idOf = createIdPrinter(selector);
    const own: { readonly id: string; readonly series: Series }[] = [];
    await visitInTurns(all, (series) => own.push({ id: idOf(series.tags), series }), signal);
    const sorted = await takeSteps(
      sortInSteps(own, (a, b) => (a.id < b.id ? -1 : 1)),
      signal,
    );
    const select = ({ id, series }: (typeof own)[number]) => {
      if (found.size >= limit || found.has(id)) return;
      found.set(id, { selector, series });
      chars += charsPerSeriesHead + countPoints(selector, series) * charsPerPoint;
    };
    await visitInTurns(sorted, select, signal);
  }
  return { found, chars };
}

function countPoints({ draw_null_as_zero: fill }: Selector, { values }: Series): number {
  if (fill === true) return values.length;
  let points = 0;
  for (const value of values) if (Number.isFinite(value)) points += 1;
  return points;
}

/** With a zero for each bucket without a value where the selector wants them. */
function drawValues({ draw_null_as_zero: fill }: Selector, { values }: Series): Float64Array {
  return fill === true ? values.map((value) => (Number.isFinite(value) ? value : 0)) : values;
}

/**
 * An entry of `series` up to its points, its keys in the specification's order. Points are the values that are finite: a
 * sum may pass what a number holds.
 */
function printSeriesHead(
  piece: ChunkWriter,
  id: string,
  { name, field }: Selector,
  tags: Series["tags"],
  values: Float64Array,
): void {
  const named = `{"id":${JSON.stringify(id)},"name":${JSON.stringify(name)},"tags":${JSON.stringify(tags)}`;
  printText(piece, `${named},"field":"${field}","min":`);
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  if (min > max) printAscii(piece, 'null,"max":null');
  else {
    printNumber(piece, min);
    printAscii(piece, ',"max":');
    printNumber(piece, max);
  }
  printAscii(piece, ',"data":[');
}

/**
 * `cpu|hostname=a,state=user|gauge`, and the aggregation after it when one was named (docs/reference/api/metrics.md, "Selectors and
 * series").
 */
function createIdPrinter({
  name,
  tags,
  field,
  aggregation,
}: Selector): (tags: Readonly<Record<string, string>>) => string {
  const tail = aggregation === undefined ? `|${field}` : `|${field}|${aggregation}`;
  const [head, keys] = [`${encodeIdPart(name)}|`, sortTagKeys(Object.keys(tags))];
  return (tags) => head + printTags(keys, tags) + tail;
}

// ---- Ids, which rows of `metrics/list` have too -----------------------------------------------------------------

/** The key of a tag, and what stands for it in an id, before the value. */
type PrintedTagKey = readonly [key: string, text: string];

/** Each key with its text, in the order of their texts. */
export function sortTagKeys(keys: readonly string[]): readonly PrintedTagKey[] {
  const printed = keys.map((key): PrintedTagKey => [key, `${encodeIdPart(key)}=`]);
  return printed.sort(([, a], [, b]) => (a < b ? -1 : 1));
}

export function printTags(keys: readonly PrintedTagKey[], tags: Readonly<Record<string, string>>): string {
  let text = "";
  for (const [key, before] of keys)
    text += `${text === "" ? "" : ","}${before}${encodeIdPart(tags[key] ?? "")}`;
  return text;
}

/** A name, key or value without the characters that separate the parts of an id. */
export function encodeIdPart(text: string): string {
  return !/[%|,=]/.test(text)
    ? text
    : text.replaceAll(/[%|,=]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}
