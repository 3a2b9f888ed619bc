// The few forms of PromQL that the Kubernetes store sends, and the metric store to a source that hides restarts, evaluated
// over written series, so that tests run without a server. Whatever else they send is an error here. An expression is
// evaluated for all moments at once.

import type { EvaluationTime } from "#resolvers/prometheus/client/client.ts";
import type { Expression, Matcher, RangeEdge, Selector } from "#resolvers/prometheus/client/promql.ts";
import type { SeriesFold } from "#resolvers/prometheus/client/response-scanner.ts";
import type { Labels, WrittenSeries } from "./kubernetes-exporters.ts";

/** A value for each moment, NaN where there is none. */
interface Row {
  readonly labels: Labels;
  readonly values: Float64Array;
}
type Sample = readonly [time: number, value: number];

/** The samples of series, of which NaN is none: it marks that the exporter ended the series. */
const dropStaleMarkers = (series: readonly WrittenSeries[]): readonly WrittenSeries[] =>
  series.map(({ labels, samples }) => ({
    labels,
    samples: samples.some(([, value]) => Number.isNaN(value))
      ? samples.filter(([, value]) => !Number.isNaN(value))
      : samples,
  }));

/** With `hidesRestarts` as Thanos, which tells `resets` and its like of none. */
export function createEvaluator(series: readonly WrittenSeries[], edge: RangeEdge, hidesRestarts = false) {
  const byName = Map.groupBy(series, ({ labels }) => labels.__name__ ?? "");

  function select(selector: Selector): readonly WrittenSeries[] {
    const tests = selector.matchers.map(createMatcherTest);
    const names = tests.filter(({ label }) => label === "__name__");
    const candidates = [...byName].flatMap(([name, list]) => (names.every(({ is }) => is(name)) ? list : []));
    return candidates.filter(({ labels }) => tests.every(({ label, is }) => is(labels[label] ?? "")));
  }

  function evaluate(expression: Expression, times: readonly number[]): readonly Row[] {
    switch (expression.kind) {
      case "call":
        return evaluateCall(expression.function, expression.arguments[0], times);
      case "aggregate": {
        const groups = Map.groupBy(evaluate(expression.of, times), ({ labels }) =>
          formatLabelsKey(pickLabels(labels, expression.by)),
        );
        return [...groups.values()].map((rows) => ({
          labels: pickLabels(rows[0]?.labels ?? {}, expression.by),
          values: Float64Array.from(times, (_, at) => {
            const present = rows.flatMap(({ values }) =>
              Number.isNaN(values[at]) ? [] : (values[at] ?? []),
            );
            return present.length === 0 ? Number.NaN : combineValues(expression.operator, present);
          }),
        }));
      }
      case "binary": {
        const { operator, left: first, right } = expression;
        if (operator === "*" && first.kind === "number") {
          return mapValues(evaluate(right, times), (value) => first.value * value);
        }
        const left = evaluate(first, times);
        if (operator === "or") return mergeRows(left, evaluate(right, times));
        if (operator === "and") return intersectRows(left, evaluate(right, times));
        if (operator === "unless") return filterByOthers(left, evaluate(right, times), false);
        if (operator === "-" || operator === "+") {
          const sign = operator === "-" ? -1 : 1;
          return addRows(left, evaluate(right, times), sign);
        }
        if (right.kind !== "number" || (operator !== ">" && operator !== "!=")) {
          throw new Error("not evaluated here");
        }
        const holds = (value: number): boolean =>
          operator === ">" ? value > right.value : value !== right.value;
        return mapValues(left, (value) => (holds(value) ? value : Number.NaN));
      }
      default:
        throw new Error(`not evaluated here: ${expression.kind}`);
    }
  }

  function evaluateCall(
    name: string,
    argument: Expression | undefined,
    times: readonly number[],
  ): readonly Row[] {
    if (name === "timestamp" && argument?.kind === "selector") {
      const timeOf = ([time, value]: Sample): number => (Number.isNaN(value) ? value : time / 1_000);
      return rejectDuplicates(
        mapRows(select(argument), times, 300_000, 0, ([last]) => (last ? timeOf(last) : Number.NaN)),
      );
    }
    if (argument !== undefined && (name === "abs" || name === "floor")) {
      return mapValues(evaluate(argument, times), Math[name]);
    }
    // Written series have no histograms.
    if (name === "histogram_count") return [];
    if (argument?.kind !== "window") throw new Error(`not evaluated here: ${name}`);
    const { length, offset } = argument;
    const held = dropStaleMarkers(select(argument.of));
    // In whole milliseconds a closed range of one length is an open one that is a millisecond longer.
    const reach = edge === "closed" ? length + 1 : length;
    if (name === "last_over_time")
      return mapRows(held, times, reach, offset, ([last]) => last?.[1] ?? Number.NaN);
    const overTime = buildOverTimeFunctions(hidesRestarts)[name];
    if (overTime !== undefined) {
      const rows = held.map(({ labels, samples }) => ({
        labels,
        values: Float64Array.from(times, (time) => {
          const end = time - offset;
          const inside = samples.filter(([at]) => at > end - reach && at <= end);
          return inside.length === 0 ? Number.NaN : overTime(inside.map(([, value]) => value));
        }),
      }));
      return rejectDuplicates(rows);
    }
    if (name !== "irate") throw new Error(`not evaluated here: ${name}`);
    const rates = mapRows(held, times, reach, offset, ([last, before]) => {
      if (last === undefined || before === undefined) return Number.NaN;
      return (last[1] < before[1] ? last[1] : last[1] - before[1]) / ((last[0] - before[0]) / 1_000);
    });
    return rejectDuplicates(rates);
  }

  return {
    select,
    readTraits: async () => ({ edge, hidesRestarts }),
    async query<T>(
      expression: Expression,
      moments: EvaluationTime,
      fold: () => SeriesFold<T>,
      signal: AbortSignal,
    ): Promise<T> {
      signal.throwIfAborted();
      const { start, end, step } =
        "at" in moments ? { start: moments.at, end: moments.at, step: 1 } : moments;
      const times = Array.from({ length: (end - start) / step + 1 }, (_, index) => start + index * step);
      const { series: take, result } = fold();
      if (expression.kind === "window") {
        const { of, length, offset } = expression;
        const to = end - offset;
        const from = to - (edge === "closed" ? length + 1 : length);
        for (const { labels, samples } of select(of)) {
          const held = samples.filter(([time]) => time > from && time <= to);
          const column = (part: 0 | 1): Float64Array => Float64Array.from(held, (sample) => sample[part]);
          if (held.length > 0) take({ labels, times: column(0), values: column(1), histograms: [] });
        }
        return result();
      }
      for (const { labels, values } of evaluate(expression, times)) {
        const held = times.flatMap((time, at) =>
          Number.isNaN(values[at]) ? [] : [[time, values[at] ?? 0] as const],
        );
        if (held.length === 0) continue;
        const column = (of: 0 | 1): Float64Array => Float64Array.from(held, (sample) => sample[of]);
        take({ labels, times: column(0), values: column(1), histograms: [] });
      }
      return result();
    },
  };
}

/** Of the values in a window. Where restarts are hidden, functions of counters are given what has been added up. */
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

/** For each series and moment, from the newest two samples of `(time - offset - reach, time - offset]`. */
function mapRows(
  series: readonly WrittenSeries[],
  times: readonly number[],
  reach: number,
  offset: number,
  value: (newest: readonly [last: Sample | undefined, before: Sample | undefined]) => number,
): readonly Row[] {
  return series.map(({ labels, samples }) => {
    let next = 0;
    const values = Float64Array.from(times, (time) => {
      const end = time - offset;
      while ((samples[next]?.[0] ?? Number.POSITIVE_INFINITY) <= end) next += 1;
      const held = [samples[next - 1], samples[next - 2]].filter(
        (sample) => sample !== undefined && sample[0] > end - reach,
      );
      return value([held[0], held[1]]);
    });
    return { labels, values };
  });
}

/** Without its metric's name, type and unit; Prometheus refuses a vector that then has a label set twice. */
function rejectDuplicates(rows: readonly Row[]): readonly Row[] {
  const merged = new Map<string, Row>();
  for (const { labels: named, values } of rows) {
    const { __name__: _, __type__, __unit__, ...labels } = named;
    const held =
      merged.get(formatLabelsKey(labels))?.values ?? new Float64Array(values.length).fill(Number.NaN);
    if (values.some((value, at) => !Number.isNaN(value) && !Number.isNaN(held[at]))) {
      throw new Error("vector cannot contain metrics with the same labelset");
    }
    merged.set(formatLabelsKey(labels), {
      labels,
      values: values.map((value, at) => (Number.isNaN(value) ? (held[at] ?? value) : value)),
    });
  }
  return [...merged.values()];
}

/** What is on the right counts only where nothing on the left has its labels; the metric's name is none of them. */
function mergeRows(left: readonly Row[], right: readonly Row[]): readonly Row[] {
  return [...left, ...filterByOthers(right, left, false)];
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

/** What is on the left counts only where something on the right has its labels. */
function intersectRows(left: readonly Row[], right: readonly Row[]): readonly Row[] {
  return filterByOthers(left, right, true);
}

function filterByOthers(rows: readonly Row[], others: readonly Row[], there: boolean): readonly Row[] {
  const twinsOf = Map.groupBy(others, formatNamelessKey);
  return rows.map((row) => {
    const twins = twinsOf.get(formatNamelessKey(row)) ?? [];
    const has = (at: number): boolean => twins.some(({ values }) => !Number.isNaN(values[at]));
    const values = row.values.map((value, at) => (has(at) === there ? value : Number.NaN));
    return { labels: row.labels, values };
  });
}

function formatNamelessKey({ labels: { __name__: _, ...labels } }: Row): string {
  return formatLabelsKey(labels);
}

function pickLabels(labels: Labels, names: readonly string[]): Labels {
  return Object.fromEntries(names.flatMap((name) => (labels[name] ? [[name, labels[name]]] : [])));
}

function formatLabelsKey(labels: Labels): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
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
