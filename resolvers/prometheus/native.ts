// Native histograms, read raw and turned into cumulative counts by bound, so that they are answered by the same
// definition as classic ones. Their sparse bounds are brought to those that cut no bucket of any sample: a histogram
// that was made coarser on its way would else seem to restart.
import type { CounterSamples, Observations } from "../../src/samples.ts";
import type { Millis } from "../../src/time.ts";
import type { HistogramSample, Labels } from "./answer.ts";
import { keyOf, narrowTo, type Reader } from "./reader.ts";
import { birthsOf, type ThinQuery } from "./thin.ts";

/** A histogram has some hundred buckets, so that fewer of them may be read than numbers. */
const histogramLimit = 50_000;
/** Where the histogram before the buckets is looked for at first. */
const near: Millis = 300_000;

export async function readNative(
  reader: Reader,
  query: ThinQuery,
): Promise<readonly { readonly labels: Labels; readonly observations: Observations }[]> {
  const { selector, buckets, lookBack = 0 } = query;
  const { start } = buckets;
  const end = start + buckets.step * buckets.count;
  const raw = await reader.raw(selector, start, end, histogramLimit);
  const series = raw.filter(({ histograms }) => histograms.length > 0);
  if (series.length === 0) return [];
  const bases = new Map<string, HistogramSample>();
  let open = series;
  // Raw again: `last_over_time` of a histogram is 0 in 2.x.
  for (const length of [Math.min(near, lookBack), lookBack]) {
    if (open.length === 0) break;
    const of = narrowTo(
      selector,
      open.map(({ labels }) => labels),
    );
    for (const { labels, histograms } of await reader.raw(of, start - length, start, histogramLimit)) {
      const last = histograms.at(-1);
      if (last !== undefined) bases.set(keyOf(labels), last);
    }
    open = series.filter(({ labels }) => !bases.has(keyOf(labels)));
  }
  const { born } = await birthsOf(reader, query, open, open.length < series.length);
  return series.map(({ labels, histograms }) => {
    const key = keyOf(labels);
    const base = bases.get(key);
    const all = base === undefined ? histograms : [base, ...histograms];
    return { labels, observations: observe(all, born.has(key) ? "zero" : "own") };
  });
}

function observe(histograms: readonly HistogramSample[], birth: CounterSamples["birth"]): Observations {
  const part = (read: (histogram: HistogramSample) => number): CounterSamples => {
    const kept = histograms.filter((histogram) => Number.isFinite(read(histogram)));
    return {
      times: Float64Array.from(kept, ({ time }) => time),
      values: Float64Array.from(kept, read),
      birth,
    };
  };
  const bounds = boundsOf(histograms).map((bound) => ({
    bound,
    samples: part(({ buckets }) =>
      buckets.reduce((sum, { upper, count }) => (upper <= bound ? sum + count : sum), 0),
    ),
  }));
  const count = part((histogram) => histogram.count);
  const all = { bound: Number.POSITIVE_INFINITY, samples: count };
  return { count, sum: part(({ sum }) => sum), buckets: [...bounds, all] };
}

/** The finite bounds of all buckets that lie inside no other bucket, ascending. */
function boundsOf(histograms: readonly HistogramSample[]): readonly number[] {
  const all = histograms.flatMap(({ buckets }) => buckets);
  const bounds = new Set(all.flatMap(({ lower, upper }) => [lower, upper]).filter(Number.isFinite));
  const spans = new Map(all.map(({ lower, upper }) => [`${lower} ${upper}`, { lower, upper }]));
  return [...bounds]
    .filter((bound) => ![...spans.values()].some(({ lower, upper }) => lower < bound && bound < upper))
    .sort((a, b) => a - b);
}
