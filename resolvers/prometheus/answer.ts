// Reads the answer of a query while it arrives. A matrix may have tens of megabytes, and JSON.parse would build each of
// its points as an array and a string before we made a number of it. So this scanner walks the bytes in the one form in
// which Prometheus and its kin print them; at the first surprise it gives up, and the caller asks again and parses.
import { z } from "zod";
import { headDigits, nearest, tailDigits } from "../../src/decimal.ts";

/** One series of an answer. Times are milliseconds since 1970, ascending. */
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

/** Takes the series of one answer as they come. `result` is asked for only when the whole answer was read. */
export interface Fold<T> {
  readonly series: (series: SampleSeries) => void;
  readonly result: () => T;
}

export function collect(): Fold<readonly SampleSeries[]> {
  const all: SampleSeries[] = [];
  return { series: (series) => void all.push(series), result: () => all };
}

/** The answer is well-formed as far as we know, but not in the form that the scanner reads. */
export class Surprise extends Error {
  override readonly name = "Surprise";
}

export interface Scanner {
  /** @throws {Surprise} */
  push(chunk: Buffer): void;
  /** The answer without its series, as JSON text. @throws {Surprise | SyntaxError} the second where it is cut */
  end(): string;
}

const opening = '"result":[';
const frameLimit = 1 << 20;
/** So many points are kept together, unless one series has more. */
const pointsOfArray = 16_384;

const quoteByte = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const zero = 0x30;
const dot = 0x2e;
const minus = 0x2d;
/** A head of as many digits as it may have is no less. */
const fullHead = 10 ** (headDigits - 1);

type State = "head" | "element" | "labels" | "field" | "points" | "histograms" | "tail";

export function createScanner(series: (series: SampleSeries) => void): Scanner {
  let data: Buffer = Buffer.alloc(0);
  let at = 0;
  let state: State = "head";
  /** As latin1, since a chunk may end inside a character. */
  let frame = "";
  let elements = 0;
  let labels: Labels = {};
  // Shared by many series, each of which is a part: the points of a short series cost less than an array of its own.
  let times = new Float64Array(1_024);
  let values = new Float64Array(1_024);
  /** Where the series begins, and where its next point goes. */
  let first = 0;
  let next = 0;
  let histograms: HistogramSample[] = [];
  /** Whether the field is a list of points, as in a matrix, or one point, as in a vector. */
  let list = true;
  let listed = 0;
  const parsed = new Float64Array(1);

  function push(chunk: Buffer): void {
    data = at === data.length ? chunk : Buffer.concat([data.subarray(at), chunk]);
    at = 0;
    // A part that has not wholly arrived is read again, from its start, with the next chunk.
    for (let start = 0; at < data.length; start = at) {
      if (!parts[state]()) {
        at = start;
        return;
      }
    }
  }

  /** Each reads one part of the answer; false when it has not wholly arrived. There is always a byte to read. */
  const parts: Readonly<Record<State, () => boolean>> = {
    head() {
      const found = data.indexOf(opening);
      if (found < 0) {
        if (data.length > frameLimit) throw new Surprise("no result");
        return false;
      }
      at = found + opening.length;
      frame = data.toString("latin1", 0, at);
      state = "element";
      return true;
    },
    element() {
      if (data[at] === closeBracket) {
        state = "tail";
        return true;
      }
      if (elements++ > 0) expect(comma);
      state = "labels";
      return true;
    },
    labels() {
      const key = '{"metric":';
      const there = data.toString("latin1", at, at + key.length);
      if (!key.startsWith(there)) throw new Surprise(`${there} where a series was expected`);
      const start = at + key.length;
      const end = endOf(start, openBrace, closeBrace);
      if (end < 0) return false;
      labels = readLabels(JSON.parse(data.toString("utf8", start, end)));
      at = end;
      first = next;
      histograms = [];
      state = "field";
      return true;
    },
    field() {
      if (data[at] === closeBrace) {
        at++;
        series({
          labels,
          times: times.subarray(first, next),
          values: values.subarray(first, next),
          histograms,
        });
        state = "element";
        return true;
      }
      const end = data.indexOf(colon, at);
      if (end < 0 || end + 1 >= data.length) return false;
      const key = data.toString("latin1", at, end);
      at = end + 1;
      list = key === ',"values"' || key === ',"histograms"';
      if (list) expect(openBracket);
      listed = 0;
      if (key === ',"values"' || key === ',"value"') state = "points";
      else if (key === ',"histograms"' || key === ',"histogram"') state = "histograms";
      else throw new Surprise(`the field ${key}`);
      return true;
    },
    /** `[1700000000.123,"4.5"]`, as many as have arrived: one call each would cost more than reading them. */
    points() {
      const before = at;
      do {
        const start = at;
        if (ends()) return true;
        const end = point(data, at);
        if (end < 0) {
          at = start;
          return start > before;
        }
        at = end;
        listed++;
      } while (list && at < data.length);
      if (!list) state = "field";
      return true;
    },
    histograms() {
      if (ends()) return true;
      const end = endOf(at, openBracket, closeBracket);
      if (end < 0) return false;
      histograms.push(...readHistograms([JSON.parse(data.toString("latin1", at, end))]));
      at = end;
      listed++;
      if (!list) state = "field";
      return true;
    },
    tail() {
      frame += data.toString("latin1", at);
      at = data.length;
      if (frame.length > frameLimit) throw new Surprise("a frame of more than a megabyte");
      return true;
    },
  };

  /** Takes the point at `start`; where it ends, or -1 while it has not arrived. */
  function point(bytes: Buffer, start: number): number {
    if (!follows(bytes, start, openBracket)) return -1;
    const middle = readNumber(bytes, start + 1, comma, parsed);
    const time = Math.round((parsed[0] ?? 0) * 1_000);
    if (middle < 0 || !follows(bytes, middle, quoteByte)) return -1;
    const end = readNumber(bytes, middle + 1, quoteByte, parsed);
    if (end < 0 || !follows(bytes, end, closeBracket)) return -1;
    if (next === times.length) makeRoom();
    times[next] = time;
    values[next] = parsed[0] ?? 0;
    next++;
    return end + 1;
  }

  /** Begins new arrays with the points of this series; those before it have theirs. */
  function makeRoom(): void {
    const held = next - first;
    const length = Math.max(2 * held, Math.min(2 * times.length, pointsOfArray));
    times = moved(times.subarray(first), length);
    values = moved(values.subarray(first), length);
    first = 0;
    next = held;
  }

  /** Whether the list ends here; else what separates its elements is taken. */
  function ends(): boolean {
    if (list && data[at] === closeBracket) {
      at++;
      state = "field";
      return true;
    }
    if (listed > 0) expect(comma);
    return false;
  }

  function expect(byte: number): void {
    if (at < data.length && data[at] !== byte) throw new Surprise(`an unexpected byte ${data[at]}`);
    at++;
  }

  /** Behind the bracket that closes the one at `start`, or -1 while it has not arrived. */
  function endOf(start: number, open: number, close: number): number {
    if (start < data.length && data[start] !== open) throw new Surprise("a value of another type");
    let depth = 0;
    for (let i = start; i < data.length; i++) {
      const byte = data[i];
      if (byte === quoteByte) {
        for (i++; i < data.length && data[i] !== quoteByte; i++) if (data[i] === backslash) i++;
      } else if (byte === open) depth++;
      else if (byte === close && --depth === 0) return i + 1;
    }
    return -1;
  }

  return {
    push,
    end() {
      if (state === "tail") return Buffer.from(frame, "latin1").toString("utf8");
      if (state === "head") throw new Surprise("no result");
      throw new SyntaxError(`the answer ends in its ${state}`);
    },
  };
}

/** False where nothing has arrived there. @throws {Surprise} at another byte */
function follows(bytes: Buffer, at: number, byte: number): boolean {
  if (at >= bytes.length) return false;
  if (bytes[at] !== byte) throw new Surprise(`an unexpected byte ${bytes[at]}`);
  return true;
}

/**
 * Reads the number between `start` and the next `stop` into `parsed`, in which it costs no memory. Where it ends, the
 * stop included, or -1 while that has not arrived.
 */
function readNumber(bytes: Buffer, start: number, stop: number, parsed: Float64Array): number {
  const end = bytes.length;
  const first = start < end && bytes[start] === minus ? start + 1 : start;
  let at = first;
  let point = -1;
  // The first significant digits, and those that follow: both are small integers.
  let head = 0;
  for (; at < end && head < fullHead; at++) {
    const digit = (bytes[at] ?? 0) - zero;
    if (digit >= 0 && digit <= 9) head = head * 10 + digit;
    else if (digit === dot - zero && point < 0) point = at;
    else break;
  }
  const rest = at;
  let tail = 0;
  for (; at < end; at++) {
    const digit = (bytes[at] ?? 0) - zero;
    if (digit >= 0 && digit <= 9) tail = tail * 10 + digit;
    else if (digit === dot - zero && point < 0) point = at;
    else break;
  }
  const length = at - first - (point < 0 ? 0 : 1);
  const tailLength = at - rest - (point < rest ? 0 : 1);
  if (at < end && bytes[at] === stop && length > 0 && tailLength <= tailDigits) {
    const size = nearest(head, tail, tailLength, point < 0 ? 0 : at - point - 1);
    if (!Number.isNaN(size)) {
      parsed[0] = first > start ? -size : size;
      return at + 1;
    }
  }
  const found = bytes.indexOf(stop, at);
  if (found < 0) return -1;
  parsed[0] = parseNumber(bytes.toString("latin1", start, found));
  return found + 1;
}

function moved(part: Float64Array, length: number): Float64Array<ArrayBuffer> {
  const array = new Float64Array(length);
  array.set(part);
  return array;
}

function readLabels(value: unknown): Labels {
  const labels: Labels = Object(value);
  for (const text of Object.values(labels)) {
    if (typeof text !== "string") throw new Surprise("a label that is no text");
  }
  return labels;
}

/** Numbers as Prometheus spells them. @throws {Surprise} */
function parseNumber(text: string): number {
  if (text === "NaN") return Number.NaN;
  if (/^[+-]?Inf$/.test(text))
    return text.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) throw new Surprise(`the number ${text}`);
  return Number(text);
}

// ---- The slow way, and native histograms ------------------------------------------------------------------------

const point = z.tuple([z.number(), z.string()]);
const histogramText = z.object({
  count: z.string(),
  sum: z.string(),
  /** Which bounds are inclusive, lower bound, upper bound, count. */
  buckets: z.array(z.tuple([z.number(), z.string(), z.string(), z.string()])).default([]),
});
const histogramPoint = z.tuple([z.number(), histogramText]);
const element = z.object({
  metric: z.record(z.string(), z.string()),
  value: point.optional(),
  values: z.array(point).default([]),
  histogram: histogramPoint.optional(),
  histograms: z.array(histogramPoint).default([]),
});
const result = z.array(element);

/** What an answer without its series tells: whether it is whole. */
export const envelope = z.object({
  status: z.literal("success"),
  isPartial: z.boolean().optional(),
  warnings: z.array(z.string()).nullish(),
  data: z.unknown(),
});
export const resultData = z.object({ resultType: z.enum(["matrix", "vector"]), result: z.unknown() });

/** Reads parsed JSON: any order of keys, any white space. @throws {ZodError | Surprise} */
export function readResult(value: unknown, visit: (series: SampleSeries) => void): void {
  for (const { metric, value: one, values, histogram, histograms } of result.parse(value)) {
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
      buckets: fromZero(
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
 * The bucket around zero begins at zero where no other lies below it, as `histogram_quantile` takes it: what is measured
 * is hardly ever negative.
 */
function fromZero(buckets: readonly HistogramBucket[]): readonly HistogramBucket[] {
  const [first, ...others] = buckets;
  const around = first !== undefined && first.lower < 0 && first.upper > 0 && Number.isFinite(first.lower);
  return around ? [{ ...first, lower: 0 }, ...others] : buckets;
}
