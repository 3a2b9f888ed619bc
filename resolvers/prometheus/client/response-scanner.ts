// Reads the response of a query while it arrives. A matrix may have tens of megabytes, and JSON.parse would create an
// array and a string for each of its points. So the scanner walks the bytes in the one form in which Prometheus and its
// relatives print them. At any other form it gives up, and the client sends the query again and parses the response.

import { z } from "zod";
import { copyToLength, createView, hasTextAt } from "../../../src/core/bytes.ts";
import { readNumber } from "../../../src/core/collections.ts";
import {
  backslash,
  closeBrace,
  closeBracket,
  colon,
  comma,
  openBrace,
  openBracket,
  quote,
} from "../../../src/core/json/json-bytes.ts";
import { parseJson } from "../../../src/core/json/parse-json.ts";
import { scanNumber } from "../../../src/metrics/float-text.ts";

/** One series of a response. Times are milliseconds since 1970, ascending. */
export interface SampleSeries {
  readonly labels: Labels;
  readonly times: Float64Array;
  readonly values: Float64Array;
  /** Samples that are native histograms; they are not among `times`. */
  readonly histograms: readonly HistogramSample[];
}
export type Labels = Readonly<Record<string, string>>;

export interface HistogramSample {
  readonly time: number;
  readonly count: number;
  readonly sum: number;
  /** By upper bound. */
  readonly buckets: readonly HistogramBucket[];
}
export interface HistogramBucket {
  readonly lower: number;
  readonly upper: number;
  readonly count: number;
}

/** Takes the series of one response as they arrive. */
export interface SeriesFold<T> {
  readonly series: (series: SampleSeries) => void;
  /** Called once, after a complete response. */
  readonly result: () => T;
}

export function collectSeries(): SeriesFold<readonly SampleSeries[]> {
  const all: SampleSeries[] = [];
  return { series: (series) => void all.push(series), result: () => all };
}

/** The response may be well-formed, but it does not have the form that is expected. */
export class UnexpectedFormat extends Error {
  override readonly name = "UnexpectedFormat";
}

interface ResponseScanner {
  /** @throws {UnexpectedFormat} */
  push(chunk: Buffer): void;
  /** The response without its series, as JSON text. @throws {UnexpectedFormat} @throws {SyntaxError} if it is truncated */
  end(): string;
}

const resultOpening = '"result":[';
const metricKey = '{"metric":';
const valuesKey = ',"values":[';
const frameLimit = 1 << 20;
/** How much of a chunk is copied behind the rest of the one before. */
const bridgeBytes = 256;
/** The size of the arrays that series share, unless one series has more points. */
const pointsPerArray = 16_384;

type ScanPart = "head" | "element" | "labels" | "field" | "points" | "histograms" | "tail";

/**
 * How far a response has been read. The functions that read it belong to the module: V8 drops the compiled code of
 * closures that are created per response at each garbage collection, and compiling takes longer than most responses.
 */
interface ScanState {
  readonly emit: (series: SampleSeries) => void;
  data: Buffer;
  view: DataView;
  at: number;
  state: ScanPart;
  /** The text around the series. As latin1, since a chunk may end inside a character. */
  frame: string;
  elements: number;
  labels: Labels;
  // Many short series share these arrays, since an array costs more than their points.
  times: Float64Array<ArrayBuffer>;
  values: Float64Array<ArrayBuffer>;
  /** Where the points of the current series begin in them, and where its next point goes. */
  first: number;
  next: number;
  histograms: HistogramSample[];
  /** Whether the field is a list of points, as in a matrix, or one point, as in a vector. */
  isList: boolean;
  listLength: number;
  /** By the position of a point in its series: the bytes of its time, three words each, and the time. */
  readonly timestampWords: number[];
  readonly timestampValues: number[];
}

export function createScanner(emit: (series: SampleSeries) => void): ResponseScanner {
  const data: Buffer = Buffer.alloc(0);
  const scan: ScanState = {
    emit,
    data,
    view: createView(data),
    at: 0,
    state: "head",
    frame: "",
    elements: 0,
    labels: {},
    times: new Float64Array(1_024),
    values: new Float64Array(1_024),
    first: 0,
    next: 0,
    histograms: [],
    isList: true,
    listLength: 0,
    timestampWords: [],
    timestampValues: [],
  };
  return {
    push: (chunk) => pushChunk(scan, chunk),
    end() {
      const { state, frame } = scan;
      if (state === "tail") return Buffer.from(frame, "latin1").toString("utf8");
      if (state === "head") throw new UnexpectedFormat("no result");
      throw new SyntaxError(`the answer ends in its ${state}`);
    },
  };
}

/** A part that is incomplete is read again, from its start, with the next chunk. */
function pushChunk(scan: ScanState, chunk: Buffer): void {
  let rest = scan.data.subarray(scan.at);
  if (rest.length > 0 && chunk.length > bridgeBytes) {
    // A little of the chunk nearly always completes the part, and spares a copy of the whole chunk.
    readParts(scan, Buffer.concat([rest, chunk.subarray(0, bridgeBytes)]), 0);
    if (scan.at >= rest.length) {
      readParts(scan, chunk, scan.at - rest.length);
      return;
    }
    rest = rest.subarray(scan.at);
  }
  readParts(scan, rest.length === 0 ? chunk : Buffer.concat([rest, chunk]), 0);
}

function readParts(scan: ScanState, data: Buffer, from: number): void {
  scan.data = data;
  scan.view = createView(data);
  scan.at = from;
  for (let start = from; scan.at < data.length; start = scan.at) {
    if (!partReaders[scan.state](scan)) {
      scan.at = start;
      return;
    }
  }
}

/** Each reads one part; false if the part is incomplete. There is always a byte to read. */
const partReaders: Readonly<Record<ScanPart, (scan: ScanState) => boolean>> = {
  head(scan) {
    const { data } = scan;
    const found = data.indexOf(resultOpening);
    if (found < 0) {
      if (data.length > frameLimit) throw new UnexpectedFormat("no result");
      return false;
    }
    scan.at = found + resultOpening.length;
    scan.frame = data.toString("latin1", 0, scan.at);
    scan.state = "element";
    return true;
  },
  element(scan) {
    if (scan.data[scan.at] === closeBracket) {
      scan.state = "tail";
      return true;
    }
    if (scan.elements++ > 0) expectByte(scan, comma);
    scan.state = "labels";
    return true;
  },
  labels(scan) {
    const { data, at } = scan;
    if (!hasTextAt(data, at, metricKey)) {
      const there = data.toString("latin1", at, at + metricKey.length);
      if (!metricKey.startsWith(there)) throw new UnexpectedFormat(`${there} where a series was expected`);
      return false;
    }
    const start = at + metricKey.length;
    const end = findClosingBracket(data, start, openBrace, closeBrace);
    if (end < 0) return false;
    scan.labels = readLabels(parseJson(data.toString("utf8", start, end)));
    scan.at = end;
    scan.first = scan.next;
    scan.histograms = [];
    scan.state = "field";
    return true;
  },
  field(scan) {
    const { data, at } = scan;
    if (data[at] === closeBrace) {
      const { labels, times, values, first, next, histograms } = scan;
      scan.at++;
      scan.emit({
        labels,
        times: times.subarray(first, next),
        values: values.subarray(first, next),
        histograms,
      });
      scan.state = "element";
      return true;
    }
    scan.listLength = 0;
    if (hasTextAt(data, at, valuesKey)) {
      scan.at += valuesKey.length;
      scan.isList = true;
      scan.state = "points";
      return true;
    }
    const end = data.indexOf(colon, at);
    if (end < 0 || end + 1 >= data.length) return false;
    const key = data.toString("latin1", at, end);
    scan.at = end + 1;
    scan.isList = key === ',"values"' || key === ',"histograms"';
    if (scan.isList) expectByte(scan, openBracket);
    if (key === ',"values"' || key === ',"value"') scan.state = "points";
    else if (key === ',"histograms"' || key === ',"histogram"') scan.state = "histograms";
    else throw new UnexpectedFormat(`the field ${key}`);
    return true;
  },
  /** As many points as have arrived: one call for each would cost more than reading it. */
  points(scan) {
    const before = scan.at;
    do {
      const start = scan.at;
      if (readListEnd(scan)) return true;
      const end = readPoint(scan, scan.at);
      if (end < 0) {
        scan.at = start;
        return start > before;
      }
      scan.at = end;
      scan.listLength++;
    } while (scan.isList && scan.at < scan.data.length);
    if (!scan.isList) scan.state = "field";
    return true;
  },
  histograms(scan) {
    if (readListEnd(scan)) return true;
    const { data, at } = scan;
    const end = findClosingBracket(data, at, openBracket, closeBracket);
    if (end < 0) return false;
    scan.histograms.push(...readHistograms([JSON.parse(data.toString("latin1", at, end))]));
    scan.at = end;
    scan.listLength++;
    if (!scan.isList) scan.state = "field";
    return true;
  },
  tail(scan) {
    scan.frame += scan.data.toString("latin1", scan.at);
    scan.at = scan.data.length;
    if (scan.frame.length > frameLimit) throw new UnexpectedFormat("a frame of more than a megabyte");
    return true;
  },
};

/** Reads `[1700000000.123,"4.5"]` at `start`. Returns the index after it, or -1 if it is incomplete. */
function readPoint(scan: ScanState, start: number): number {
  if (scan.next === scan.times.length) allocateArrays(scan);
  const { data, times, values, next } = scan;
  if (!hasByteAt(data, start, openBracket)) return -1;
  let middle = copyKnownTimestamp(scan, start + 1);
  if (middle < 0) {
    middle = readPointNumber(scan, start + 1, comma, times);
    times[next] = Math.round(readNumber(times, next) * 1_000);
    if (middle < 0 || !hasByteAt(data, middle, quote)) return -1;
    middle += 1;
    recordTimestamp(scan, start + 1, middle);
  }
  const end = readPointNumber(scan, middle, quote, values);
  if (end < 0 || !hasByteAt(data, end, closeBracket)) return -1;
  scan.next++;
  return end + 1;
}

/** The bytes of a whole second and what follows it, `1700000000,"`, as three words. */
const timestampBytes = 12;
/** How many timestamps of a series are kept. */
const maxTimestamps = 16_384;

/**
 * The series of a response have the same times: a time with the same bytes as in the series before is not parsed again.
 * Returns the index after it, or -1 if the bytes differ.
 */
function copyKnownTimestamp(
  { data, view, timestampWords, timestampValues, times, first, next }: ScanState,
  start: number,
): number {
  const position = next - first;
  if (position >= timestampValues.length || start + timestampBytes > data.length) return -1;
  for (let word = 0; word < 3; word += 1) {
    if (view.getInt32(start + 4 * word) !== timestampWords[3 * position + word]) return -1;
  }
  const time = timestampValues[position];
  if (time === undefined) return -1;
  times[next] = time;
  return start + timestampBytes;
}

function recordTimestamp(scan: ScanState, start: number, end: number): void {
  const position = scan.next - scan.first;
  if (end - start !== timestampBytes || position >= maxTimestamps) return;
  // Without gaps: an array with holes would be slower than parsing.
  if (position > scan.timestampValues.length) return;
  for (let word = 0; word < 3; word += 1)
    scan.timestampWords[3 * position + word] = scan.view.getInt32(start + 4 * word);
  scan.timestampValues[position] = readNumber(scan.times, scan.next);
}

/** Begins new arrays with the points of the current series. Earlier series keep the old ones. */
function allocateArrays(scan: ScanState): void {
  const { times, values, first } = scan;
  const held = scan.next - first;
  const length = Math.max(2 * held, Math.min(2 * times.length, pointsPerArray));
  scan.times = copyToLength(times.subarray(first), length);
  scan.values = copyToLength(values.subarray(first), length);
  scan.first = 0;
  scan.next = held;
}

/** Reads the end of a list, or the comma before its next element. Returns whether the list has ended. */
function readListEnd(scan: ScanState): boolean {
  if (scan.isList && scan.data[scan.at] === closeBracket) {
    scan.at++;
    scan.state = "field";
    return true;
  }
  if (scan.listLength > 0) expectByte(scan, comma);
  return false;
}

function expectByte(scan: ScanState, byte: number): void {
  const { data, at } = scan;
  if (at < data.length && data[at] !== byte) throw new UnexpectedFormat(`an unexpected byte ${data[at]}`);
  scan.at++;
}

/** The index after the bracket that closes the one at `start`, or -1 if it has not arrived. */
function findClosingBracket(data: Buffer, start: number, open: number, close: number): number {
  if (start < data.length && data[start] !== open) throw new UnexpectedFormat("a value of another type");
  let depth = 0;
  for (let i = start; i < data.length; i++) {
    const byte = data[i];
    if (byte === quote) {
      for (i++; i < data.length && data[i] !== quote; i++) if (data[i] === backslash) i++;
    } else if (byte === open) depth++;
    else if (byte === close && --depth === 0) return i + 1;
  }
  return -1;
}

/** False if the byte has not arrived. @throws {UnexpectedFormat} at another byte */
function hasByteAt(bytes: Buffer, at: number, byte: number): boolean {
  if (at >= bytes.length) return false;
  if (bytes[at] !== byte) throw new UnexpectedFormat(`an unexpected byte ${bytes[at]}`);
  return true;
}

/**
 * Reads the number between `start` and the next `stop` into `numbers`, for the next point. Returns the index after the
 * stop, or -1 if it has not arrived. @throws {UnexpectedFormat}
 */
function readPointNumber(
  { data, view, next }: ScanState,
  start: number,
  stop: number,
  numbers: Float64Array,
): number {
  const end = scanNumber(view, start, data.length, numbers, next);
  if (end >= 0 && data[end] === stop) return end + 1;
  const stopped = data.indexOf(stop, start);
  if (stopped < 0) return -1;
  numbers[next] = parseNumber(data.toString("latin1", start, stopped));
  return stopped + 1;
}

function readLabels(value: unknown): Labels {
  const labels: Labels = Object(value);
  for (const name in labels) {
    if (typeof labels[name] !== "string") throw new UnexpectedFormat("a label that is not a string");
  }
  return labels;
}

/** Numbers as Prometheus spells them. @throws {UnexpectedFormat} */
function parseNumber(text: string): number {
  if (text === "NaN") return Number.NaN;
  if (/^[+-]?Inf$/.test(text))
    return text.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) throw new UnexpectedFormat(`the number ${text}`);
  return Number(text);
}

// ---- Parsed responses, and native histograms -----------------------------------------------------------------------

const pointSchema = z.tuple([z.number(), z.string()]);
const histogramText = z.object({
  count: z.string(),
  sum: z.string(),
  /** Which bounds are inclusive, lower bound, upper bound, count. */
  buckets: z.array(z.tuple([z.number(), z.string(), z.string(), z.string()])).default([]),
});
const histogramPoint = z.tuple([z.number(), histogramText]);
/** Not a record schema, which would drop the key `__proto__`. */
export const labelSet = z.custom<Labels>(
  (value) =>
    typeof value === "object" &&
    value !== null &&
    Object.values(value).every((label) => typeof label === "string"),
);
const seriesSchema = z.object({
  metric: labelSet,
  value: pointSchema.optional(),
  values: z.array(pointSchema).default([]),
  histogram: histogramPoint.optional(),
  histograms: z.array(histogramPoint).default([]),
});
const resultSchema = z.array(seriesSchema);

/** The response around its data, which shows whether it is complete. */
export const envelope = z.object({
  status: z.literal("success"),
  isPartial: z.boolean().optional(),
  warnings: z.array(z.string()).nullish(),
  data: z.unknown(),
});
export const resultData = z.object({ resultType: z.enum(["matrix", "vector"]), result: z.unknown() });

/** Reads parsed JSON: any order of keys, any white space. @throws {ZodError | UnexpectedFormat} */
export function readResult(value: unknown, visit: (series: SampleSeries) => void): void {
  for (const { metric, value: one, values, histogram, histograms } of resultSchema.parse(value)) {
    const points = one === undefined ? values : [one];
    visit({
      labels: metric,
      times: Float64Array.from(points, ([seconds]) => Math.round(seconds * 1_000)),
      values: Float64Array.from(points, ([, text]) => parseNumber(text)),
      histograms: readHistograms(histogram === undefined ? histograms : [histogram]),
    });
  }
}

function readHistograms(value: unknown): readonly HistogramSample[] {
  return z
    .array(histogramPoint)
    .parse(value)
    .map(([seconds, { count, sum, buckets }]) => ({
      time: Math.round(seconds * 1_000),
      count: parseNumber(count),
      sum: parseNumber(sum),
      buckets: clampZeroBucket(
        buckets
          .map(([, lower, upper, held]) => ({
            lower: parseNumber(lower),
            upper: parseNumber(upper),
            count: parseNumber(held),
          }))
          .sort((a, b) => a.upper - b.upper),
      ),
    }));
}

/**
 * If no bucket lies below the one around zero, that one begins at zero, as in `histogram_quantile`: measurements are
 * hardly ever negative.
 */
function clampZeroBucket(buckets: readonly HistogramBucket[]): readonly HistogramBucket[] {
  const [first, ...others] = buckets;
  const around = first !== undefined && first.lower < 0 && first.upper > 0 && Number.isFinite(first.lower);
  return around ? [{ ...first, lower: 0 }, ...others] : buckets;
}
