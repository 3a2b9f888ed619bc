// Evaluates PromQL over written series, so that tests run without a server: the few forms that the Kubernetes store
// sends, and the metric store to a server that hides restarts. Any other form is an error. An expression is evaluated at
// all times at once.
import type { PrometheusClient } from "#resolvers/prometheus/client/client.ts";
import {
  type Expression,
  type Matcher,
  printExpression,
  type RangeEdge,
  type RangeSelector,
  type Selector,
} from "#resolvers/prometheus/client/promql.ts";
import type { EvaluationTime } from "#resolvers/prometheus/client/query-request.ts";
import type { SeriesFold } from "#resolvers/prometheus/client/response-scanner.ts";
import type { Labels, WrittenSeries } from "./kubernetes-exporters.ts";

/** A value at each time, NaN where there is none. */
interface Row {
  readonly labels: Labels;
  readonly values: Float64Array;
}
type Sample = readonly [time: number, value: number];

/** The written series, and the kind of server that evaluates them. */
interface Evaluation {
  readonly seriesByName: ReadonlyMap<string, readonly WrittenSeries[]>;
  /** What selectors have selected. */
  readonly selected: Map<string, readonly WrittenSeries[]>;
  readonly edge: RangeEdge;
  readonly hidesRestarts: boolean;
}

/** A client of the written series, for what asks nothing but queries. `sent` takes each as it is sent. */
export function createRecordingClient(
  series: readonly WrittenSeries[],
  edge: RangeEdge,
  sent: string[],
): PrometheusClient {
  const { query, readTraits } = createEvaluator(series, edge);
  const client: Pick<PrometheusClient, "query"> & { readTraits: typeof readTraits } = {
    query: (expression, ...more) => {
      sent.push(printExpression(expression));
      return query(expression, ...more);
    },
    readTraits,
  };
  return client as unknown as PrometheusClient;
}

/**
 * A client of the written series. With `hidesRestarts` it behaves as Thanos, whose `resets` counts none. Values that are NaN
 * are left out; a server with left-open ranges says so, as VictoriaMetrics does.
 */
export function createEvaluator(series: readonly WrittenSeries[], edge: RangeEdge, hidesRestarts = false) {
  const seriesByName = Map.groupBy(series, ({ labels }) => labels.__name__ ?? "");
  const evaluation: Evaluation = { seriesByName, selected: new Map(), edge, hidesRestarts };
  return {
    select: (selector: Selector) => selectWritten(evaluation, selector),
    readTraits: async () => ({ edge, hidesRestarts, losesNaN: edge === "open" }),
    async query<T>(
      expression: Expression,
      time: EvaluationTime,
      fold: () => SeriesFold<T>,
      signal: AbortSignal,
    ): Promise<T> {
      signal.throwIfAborted();
      const { start, end, step } = "at" in time ? { start: time.at, end: time.at, step: 1 } : time;
      const times = Array.from({ length: (end - start) / step + 1 }, (_, index) => start + index * step);
      const { series: take, result } = fold();
      const found =
        expression.kind === "range"
          ? listRawSamples(evaluation, expression, end)
          : evaluate(evaluation, expression, times).map((row) => toWrittenSeries(row, times));
      for (const { labels, samples } of found) {
        const column = (of: 0 | 1): Float64Array => fillValues(samples, (sample) => sample[of]);
        if (samples.length > 0) take({ labels, times: column(0), values: column(1), histograms: [] });
      }
      return result();
    },
  };
}

interface SampledSeries {
  readonly labels: Labels;
  readonly samples: readonly Sample[];
}

/** The samples of a range selector at the time `at`. */
function listRawSamples(
  evaluation: Evaluation,
  { of, length, offset }: RangeSelector,
  at: number,
): readonly SampledSeries[] {
  const to = at - offset;
  const from = to - findReach(evaluation, length);
  return selectWritten(evaluation, of).map(({ labels, samples }) => ({
    labels,
    samples: samples.filter(([time]) => time > from && time <= to),
  }));
}

function toWrittenSeries({ labels, values }: Row, times: readonly number[]): SampledSeries {
  const samples = times.flatMap((time, at) =>
    Number.isNaN(values[at]) ? [] : [[time, values[at] ?? 0] as const],
  );
  return { labels, samples };
}

/** In whole milliseconds a closed range is an open one that is a millisecond longer. */
function findReach({ edge }: Evaluation, length: number): number {
  return edge === "closed" ? length + 1 : length;
}

function selectWritten({ seriesByName, selected }: Evaluation, selector: Selector): readonly WrittenSeries[] {
  const key = JSON.stringify(selector.matchers);
  const known = selected.get(key);
  if (known !== undefined) return known;
  const tests = selector.matchers.map(createMatcherTest);
  const names = tests.filter(({ label }) => label === "__name__");
  const candidates = [...seriesByName].flatMap(([name, list]) =>
    names.every(({ is }) => is(name)) ? list : [],
  );
  const found = candidates.filter(({ labels }) => tests.every(({ label, is }) => is(labels[label] ?? "")));
  selected.set(key, found);
  return found;
}

/** Without the samples that are NaN: they mark that the exporter ended the series. */
function dropStaleMarkers(series: readonly WrittenSeries[]): readonly WrittenSeries[] {
  return series.map((one) => {
    const { labels, samples } = one;
    const known = unmarked.get(one);
    if (known?.of === samples.length) return known.series;
    const kept = samples.some(([, value]) => Number.isNaN(value))
      ? { labels, samples: samples.filter(([, value]) => !Number.isNaN(value)) }
      : one;
    unmarked.set(one, { of: samples.length, series: kept });
    return kept;
  });
}
const unmarked = new WeakMap<WrittenSeries, { readonly of: number; readonly series: WrittenSeries }>();

type Binary = Extract<Expression, { kind: "binary" }>;
type Aggregate = Extract<Expression, { kind: "aggregate" }>;

function evaluate(evaluation: Evaluation, expression: Expression, times: readonly number[]): readonly Row[] {
  switch (expression.kind) {
    case "call":
      return evaluateCall(evaluation, expression.function, expression.arguments, times);
    case "aggregate":
      return evaluateAggregate(evaluation, expression, times);
    case "binary":
      return evaluateBinary(evaluation, expression, times);
    default:
      throw new Error(`not evaluated here: ${expression.kind}`);
  }
}

function evaluateAggregate(
  evaluation: Evaluation,
  { operator, by, of }: Aggregate,
  times: readonly number[],
): readonly Row[] {
  const groups = Map.groupBy(evaluate(evaluation, of, times), ({ labels }) =>
    formatLabelsKey(pickLabels(labels, by)),
  );
  return [...groups.values()].map((rows) => ({
    labels: pickLabels(rows[0]?.labels ?? {}, by),
    values: fillValues(times, (_, at) => {
      const present: number[] = [];
      for (const { values } of rows) {
        const value = values[at] ?? Number.NaN;
        if (!Number.isNaN(value)) present.push(value);
      }
      return present.length === 0 ? Number.NaN : combineValues(operator, present);
    }),
  }));
}

function evaluateBinary(
  evaluation: Evaluation,
  { operator, left, right, on, ignoring = [] }: Binary,
  times: readonly number[],
): readonly Row[] {
  if (operator === "*" && left.kind === "number") {
    return mapValues(evaluate(evaluation, right, times), (value) => left.value * value);
  }
  const rows = evaluate(evaluation, left, times);
  if (right.kind === "number") {
    const { value: limit } = right;
    if (operator === "%") return mapValues(rows, (value) => value % limit);
    if (operator === "+") return mapValues(rows, (value) => value + limit);
    if (operator === ">") return mapValues(rows, (value) => (value > limit ? value : Number.NaN));
    if (operator === "<") return mapValues(rows, (value) => (value < limit ? value : Number.NaN));
    if (operator === "!=") return mapValues(rows, (value) => (value !== limit ? value : Number.NaN));
    throw new Error("not evaluated here");
  }
  const others = evaluate(evaluation, right, times);
  switch (operator) {
    case "or":
      return mergeRows(rows, others, on);
    case "and":
      return intersectRows(rows, others);
    case "unless":
      return filterByOthers(rows, others, false, on, ignoring);
    case "+":
      return addRows(rows, others, 1);
    case "-":
      return addRows(rows, others, -1);
    default:
      throw new Error("not evaluated here");
  }
}

function evaluateCall(
  evaluation: Evaluation,
  name: string,
  [argument, second]: readonly Expression[],
  times: readonly number[],
): readonly Row[] {
  if (name === "timestamp" && argument?.kind === "selector") {
    const readTime = ([time, value]: Sample): number => (Number.isNaN(value) ? value : time / 1_000);
    const selected = selectWritten(evaluation, argument);
    return rejectDuplicates(
      mapRows(selected, times, 300_000, 0, (last) => (last ? readTime(last) : Number.NaN)),
    );
  }
  if (argument !== undefined && (name === "abs" || name === "floor")) {
    return mapValues(evaluate(evaluation, argument, times), Math[name]);
  }
  // Written series have no histograms.
  if (name === "histogram_count") return [];
  if (name === "quantile_over_time" && argument?.kind === "number" && second?.kind === "range") {
    const { value: quantile } = argument;
    return evaluateOverValues(evaluation, second, times, (values) => interpolateQuantile(values, quantile));
  }
  if (argument?.kind !== "range") throw new Error(`not evaluated here: ${name}`);
  return evaluateOverRange(evaluation, name, argument, times);
}

/** In proportion between the two values around its rank; a NaN sorts before all numbers, as in Prometheus. */
function interpolateQuantile(values: readonly number[], quantile: number): number {
  const sorted = values.toSorted((a, b) => (Number.isNaN(a) ? -1 : Number.isNaN(b) ? 1 : a - b));
  const rank = quantile * (sorted.length - 1);
  const weight = rank - Math.floor(rank);
  const lower = sorted[Math.floor(rank)] ?? Number.NaN;
  const upper = sorted[Math.min(Math.floor(rank) + 1, sorted.length - 1)] ?? Number.NaN;
  return lower * (1 - weight) + upper * weight;
}

function evaluateOverRange(
  evaluation: Evaluation,
  name: string,
  range: RangeSelector,
  times: readonly number[],
): readonly Row[] {
  const { of, length, offset } = range;
  const series = dropStaleMarkers(selectWritten(evaluation, of));
  const reach = findReach(evaluation, length);
  if (name === "last_over_time")
    return mapRows(series, times, reach, offset, (last) => last?.[1] ?? Number.NaN);
  if (name === "irate") return rejectDuplicates(mapRows(series, times, reach, offset, calculateRate));
  const overTime = buildOverTimeFunctions(evaluation.hidesRestarts)[name];
  if (overTime === undefined) throw new Error(`not evaluated here: ${name}`);
  return evaluateOverValues(evaluation, range, times, overTime);
}

/** Of each series what `overTime` makes of the values in the range, where it has some. */
function evaluateOverValues(
  evaluation: Evaluation,
  { of, length, offset }: RangeSelector,
  times: readonly number[],
  overTime: (values: readonly number[]) => number,
): readonly Row[] {
  const reach = findReach(evaluation, length);
  const rows = dropStaleMarkers(selectWritten(evaluation, of)).map(({ labels, samples }) => ({
    labels,
    values: fillValues(times, (time) => {
      const end = time - offset;
      const inside = samples.slice(countUntil(samples, end - reach), countUntil(samples, end));
      return inside.length === 0 ? Number.NaN : overTime(inside.map(([, value]) => value));
    }),
  }));
  return rejectDuplicates(rows);
}

/** `Float64Array.from`, which takes several times as long. */
function fillValues<T>(all: readonly T[], read: (one: T, at: number) => number): Float64Array {
  const values = new Float64Array(all.length);
  for (let at = 0; at < all.length; at += 1) values[at] = read(all[at] as T, at);
  return values;
}

/** How many samples lie at or before a time. Samples are in the order of their times. */
function countUntil(samples: readonly Sample[], time: number): number {
  let [low, high] = [0, samples.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((samples[middle]?.[0] ?? Number.POSITIVE_INFINITY) <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function calculateRate(last: Sample | undefined, before: Sample | undefined): number {
  if (last === undefined || before === undefined) return Number.NaN;
  return (last[1] < before[1] ? last[1] : last[1] - before[1]) / ((last[0] - before[0]) / 1_000);
}

/** Functions of the values in a range. If restarts are hidden, `resets` takes the values with restarts added up. */
function buildOverTimeFunctions(
  hidesRestarts: boolean,
): Readonly<Record<string, (values: readonly number[]) => number>> {
  const ofCounter = (values: readonly number[]): readonly number[] =>
    hidesRestarts ? sumRestarts(values) : values;
  const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
  const numbers = (values: readonly number[]): readonly number[] => {
    const all = values.filter((value) => !Number.isNaN(value));
    return all.length === 0 ? values : all;
  };
  return {
    count_over_time: (values) => values.length,
    min_over_time: (values) => combineValues("min", numbers(values)),
    max_over_time: (values) => combineValues("max", numbers(values)),
    sum_over_time: sum,
    changes: (values) => values.filter((value, at) => at > 0 && value !== values[at - 1]).length,
    delta: (values) => (values.at(-1) ?? 0) - (values[0] ?? 0),
    increase: (values) => (sumRestarts(values).at(-1) ?? 0) - (values[0] ?? 0),
    resets: (values) => ofCounter(values).filter((value, at, all) => value < (all[at - 1] ?? value)).length,
  };
}

function sumRestarts(values: readonly number[]): readonly number[] {
  let lost = 0;
  return values.map((value, at) => {
    const before = values[at - 1] ?? value;
    if (value < before) lost += before;
    return value + lost;
  });
}

/** For each series and time, from the newest two samples of `(time - offset - reach, time - offset]`. */
function mapRows(
  series: readonly WrittenSeries[],
  times: readonly number[],
  reach: number,
  offset: number,
  value: (last: Sample | undefined, before: Sample | undefined) => number,
): readonly Row[] {
  return series.map(({ labels, samples }) => {
    let next = countUntil(samples, (times[0] ?? 0) - offset);
    const values = fillValues(times, (time) => {
      const end = time - offset;
      while ((samples[next]?.[0] ?? Number.POSITIVE_INFINITY) <= end) next += 1;
      const inReach = (sample: Sample | undefined) =>
        sample !== undefined && sample[0] > end - reach ? sample : undefined;
      return value(inReach(samples[next - 1]), inReach(samples[next - 2]));
    });
    return { labels, values };
  });
}

/** Drops the name, type and unit of the metric. Prometheus refuses a vector that then has a label set twice. */
function rejectDuplicates(rows: readonly Row[]): readonly Row[] {
  const merged = new Map<string, Row>();
  for (const { labels: named, values } of rows) {
    const labels = dropName(named);
    const key = formatLabelsKey(labels);
    const held = merged.get(key)?.values ?? new Float64Array(values.length).fill(Number.NaN);
    if (values.some((value, at) => !Number.isNaN(value) && !Number.isNaN(held[at]))) {
      throw new Error("vector cannot contain metrics with the same labelset");
    }
    merged.set(key, {
      labels,
      values: values.map((value, at) => (Number.isNaN(value) ? (held[at] ?? value) : value)),
    });
  }
  return [...merged.values()];
}

/** Rows on the right count only where no row on the left has the same labels, apart from the metric's name. */
function mergeRows(left: readonly Row[], right: readonly Row[], on?: readonly string[]): readonly Row[] {
  return [...left, ...filterByOthers(right, left, false, on)];
}

function mapValues(rows: readonly Row[], change: (value: number) => number): readonly Row[] {
  return rows.map(({ labels, values }) => ({ labels, values: values.map(change) }));
}

function addRows(left: readonly Row[], right: readonly Row[], sign: 1 | -1): readonly Row[] {
  const rightOf = new Map(right.map((row) => [formatNamelessKey(row), row.values]));
  return left.map((row) => {
    const other = rightOf.get(formatNamelessKey(row));
    return {
      labels: row.labels,
      values: row.values.map((value, at) => value + sign * (other?.[at] ?? Number.NaN)),
    };
  });
}

/** Rows on the left count only where a row on the right has the same labels. */
function intersectRows(left: readonly Row[], right: readonly Row[]): readonly Row[] {
  return filterByOthers(left, right, true);
}

function filterByOthers(
  rows: readonly Row[],
  others: readonly Row[],
  isWanted: boolean,
  on?: readonly string[],
  ignoring: readonly string[] = [],
): readonly Row[] {
  const dropIgnored = (row: Row): Row => {
    if (ignoring.length === 0) return row;
    const kept = Object.entries(row.labels).filter(([label]) => !ignoring.includes(label));
    return { ...row, labels: Object.fromEntries(kept) };
  };
  const format = (row: Row): string =>
    on === undefined ? formatNamelessKey(dropIgnored(row)) : formatLabelsKey(pickLabels(row.labels, on));
  const othersByKey = Map.groupBy(others, format);
  return rows.map((row) => {
    const same = othersByKey.get(format(row)) ?? [];
    const has = (at: number): boolean => same.some(({ values }) => !Number.isNaN(values[at]));
    const values = row.values.map((value, at) => (has(at) === isWanted ? value : Number.NaN));
    return { labels: row.labels, values };
  });
}

function formatNamelessKey({ labels }: Row): string {
  if (labels.__name__ === undefined) return formatLabelsKey(labels);
  const known = nameless.get(labels);
  if (known !== undefined) return formatLabelsKey(known);
  const { __name__: _, ...rest } = labels;
  nameless.set(labels, rest);
  return formatLabelsKey(rest);
}

// The labels of written series are asked for again and again: each is worked out once.
const picked = new WeakMap<Labels, Map<string, Labels>>();

function pickLabels(labels: Labels, names: readonly string[]): Labels {
  const known = picked.get(labels) ?? new Map<string, Labels>();
  picked.set(labels, known);
  const key = names.join();
  const found =
    known.get(key) ??
    Object.fromEntries(names.flatMap((name) => (labels[name] ? [[name, labels[name]]] : [])));
  known.set(key, found);
  return found;
}

const keys = new WeakMap<Labels, string>();
const nameless = new WeakMap<Labels, Labels>();
const untyped = new WeakMap<Labels, Labels>();

function formatLabelsKey(labels: Labels): string {
  const known = keys.get(labels);
  if (known !== undefined) return known;
  const key = JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
  keys.set(labels, key);
  return key;
}

function dropName(named: Labels): Labels {
  const known = untyped.get(named);
  if (known !== undefined) return known;
  const { __name__: _, __type__, __unit__, ...labels } = named;
  untyped.set(named, labels);
  return labels;
}

function combineValues(operator: string, values: readonly number[]): number {
  if (operator === "max") return Math.max(...values);
  if (operator === "min") return Math.min(...values);
  if (operator === "avg") return combineValues("sum", values) / values.length;
  if (operator === "sum") return values.reduce((sum, value) => sum + value, 0);
  if (operator === "count") return values.length;
  if (operator === "group") return 1;
  throw new Error(`not evaluated here: ${operator}`);
}

function createMatcherTest({ label, operator, value }: Matcher): {
  readonly label: string;
  readonly is: (text: string) => boolean;
} {
  if (operator === "=") return { label, is: (text) => text === value };
  if (operator === "!=") return { label, is: (text) => text !== value };
  const pattern = new RegExp(`^(?:${value.replace(/^\(\?s:/, "(?:")})$`, "s");
  return { label, is: (text) => pattern.test(text) === (operator === "=~") };
}
