// Finds labels that tell the replicas of a pair of scrapers apart. Both scrape the same targets, so that every series is
// there twice, and sums count everything twice. The samples of both, put in the order of time, rise as one counter does;
// counters of different targets fall back and forth. A replica's label is on all series, so that small metrics show it.

import { mapConcurrent } from "../../src/core/async/concurrency.ts";
import { readNumber } from "../../src/core/collections.ts";
import { type Millis, minute } from "../../src/core/time.ts";
import type { ForcedLabels } from "../../src/store/metrics.ts";
import type { PrometheusClient } from "./client/client.ts";
import {
  aggregate,
  call,
  combineMetrics,
  type Matcher,
  matchEqual,
  metricName,
  type RangeEdge,
  type RangeSelector,
  select,
  selectRange,
} from "./client/promql.ts";
import { collectSeries, type SampleSeries } from "./client/response-scanner.ts";
import { formatSeriesKey, readLabel } from "./counters/series-reader.ts";

/** The samples that are compared, per series. Fewer of a series show nothing: counters of a young target are often equal. */
const reach: Millis = 5 * minute;
const leastSamples = 4;
/** Counters that are counted, and those of them whose samples are read. */
const [maxCounted, maxRead] = [40, 8];
/** A metric with more series is not read. */
const maxSeries = 2_000;
const maxConcurrent = 4;

/** Every target has these. */
const targetMetrics = ["up", "process_start_time_seconds", "process_cpu_seconds_total"];
/**
 * What the documentation of Prometheus' operator, Thanos, Mimir and VictoriaMetrics calls the label. One of another name needs
 * more evidence.
 */
const usualName =
  /^_*(?:(?:prometheus|thanos|receive|rule|ruler|ha|monitor|vmagent|scraper)_)?replica(?:_label)?_*$/i;

/**
 * A sentence for each label that divides equal series, with what to do. `names` are those of all metrics under the forced
 * labels. Reads at most eight metrics of 2,000 series in nine backend requests, and one more for each label without a usual
 * name. @throws {BackendError}
 */
export async function describeReplicaLabels(
  client: Pick<PrometheusClient, "query" | "readTraits">,
  match: ForcedLabels,
  names: readonly string[],
  now: Millis,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const counters = names.filter((name) => /_(?:total|count)$/.test(name) && !targetMetrics.includes(name));
  const chosen = [...targetMetrics.filter((name) => names.includes(name)), ...spreadOver(counters)];
  if (chosen.length === 0) return [];
  const { edge } = await client.readTraits(signal);
  const selected = (name: string): RangeSelector => selectRecent(match, edge, name);
  const counts = combineMetrics(chosen, ({ value }) =>
    aggregate("count", [metricName], call("last_over_time", selected(value))),
  );
  const counted = await client.query(counts, { at: now }, collectSeries, signal);
  const small = counted
    .map(({ labels, values }) => ({ name: readLabel(labels, metricName), count: values[0] ?? 0 }))
    .filter(({ count }) => count > 1 && count <= maxSeries)
    .sort((a, b) => a.count - b.count || (a.name < b.name ? -1 : 1))
    .slice(0, maxRead);
  const metrics = await mapConcurrent(
    small,
    maxConcurrent,
    ({ name }, either) => client.query(selected(name), { at: now }, collectSeries, either),
    signal,
  );
  const isEverywhere = async (label: string): Promise<boolean> => {
    const lacking = combineMetrics(chosen, ({ value }) => {
      const without = selectRecent(match, edge, value, matchEqual(label, ""));
      return aggregate("count", [metricName], call("last_over_time", without));
    });
    return (await client.query(lacking, { at: now }, collectSeries, signal)).length === 0;
  };
  const sentences: string[] = [];
  for (const found of findReplicaLabels(metrics))
    if (usualName.test(found.label) || (await isEverywhere(found.label)))
      sentences.push(describeLabel(found));
  return sentences;
}

function selectRecent(
  match: ForcedLabels,
  edge: RangeEdge,
  name: string,
  ...matchers: readonly Matcher[]
): RangeSelector {
  const selector = select(match, [matchEqual(metricName, name), ...matchers]);
  return selectRange(selector, edge, { from: reach - 1, to: 0 });
}

/** Some names from all over the list. */
function spreadOver(names: readonly string[]): readonly string[] {
  const every = Math.max(1, Math.ceil(names.length / maxCounted));
  return names.filter((_, position) => position % every === 0);
}

function describeLabel({ label, values, copies, everywhere }: ReplicaLabel): string {
  const shown =
    values.length > 3 ? `${values.slice(0, 2).join(", ")} and ${values.length - 2} more` : values.join(", ");
  const forced =
    everywhere === undefined ? "" : `, or force one replica: \`match: { ${label}: ${everywhere} }\``;
  return `the label ${label} (${shown}) divides equal series, as replicas of one scraper do: counters count everything ${copies} times. Drop the label where the replicas are merged (\`--query.replica-label=${label}\` of Thanos, the HA tracker of Mimir and Cortex, deduplication of VictoriaMetrics)${forced}`;
}

// ---- Comparison ----------------------------------------------------------------------------------------------

interface ReplicaLabel {
  readonly label: string;
  /** Sorted. */
  readonly values: readonly string[];
  /** How often a series is there. Each of several clusters has replicas of its own, so that there may be more values. */
  readonly copies: number;
  /** The first value that every series has a copy with: only such a one can be forced, and no series is lost. */
  readonly everywhere: string | undefined;
}

/** What the metrics say of one label. */
interface Evidence {
  readonly values: Set<string>;
  /** The most series that differ in the label only. */
  copies: number;
  /** The values that all of them have so far; undefined before the first. */
  common: ReadonlySet<string> | undefined;
  /** Metrics whose series that differ in the label only are the same counter. */
  risen: number;
  /** The same, but no value changed. */
  equal: number;
  differing: number;
}
type Verdict = "risen" | "equal" | "plain" | "few" | "differing";

/** The labels whose values divide series that are equal otherwise, in any of the metrics and against none. */
function findReplicaLabels(metrics: readonly (readonly SampleSeries[])[]): readonly ReplicaLabel[] {
  const labels = new Set(metrics.flat().flatMap((series) => Object.keys(series.labels)));
  labels.delete(metricName);
  return [...labels].sort().flatMap((label) => {
    const evidence: Evidence = {
      values: new Set(),
      copies: 0,
      common: undefined,
      risen: 0,
      equal: 0,
      differing: 0,
    };
    for (const series of metrics) weighMetric(series, label, evidence);
    if (!isReplicaLabel(label, evidence)) return [];
    const { copies, common = new Set() } = evidence;
    const values = [...evidence.values].sort();
    return [{ label, values, copies, everywhere: values.find((value) => common.has(value)) }];
  });
}

/** A counter may be equal to another one by chance, above all at rest: a label without a usual name needs two metrics. */
function isReplicaLabel(label: string, { values, risen, equal, differing }: Evidence): boolean {
  if (values.size < 2 || differing > 0) return false;
  return usualName.test(label) ? risen + equal > 0 : risen > 0 && risen + equal > 1;
}

function weighMetric(all: readonly SampleSeries[], label: string, evidence: Evidence): void {
  const groups = Map.groupBy(all, ({ labels: { [label]: _, ...others } }) => formatSeriesKey(others));
  const verdicts = new Set<Verdict>();
  for (const series of groups.values()) {
    const group = series.filter(({ labels }) => labels[label] !== undefined);
    const values = new Set(group.map(({ labels }) => readLabel(labels, label)));
    const { common } = evidence;
    evidence.common = common === undefined ? values : new Set([...common].filter((one) => values.has(one)));
    if (group.length < 2) continue;
    for (const value of values) evidence.values.add(value);
    evidence.copies = Math.max(evidence.copies, group.length);
    verdicts.add(compareCounters(group));
  }
  if (verdicts.has("differing")) evidence.differing += 1;
  else if (verdicts.has("risen")) evidence.risen += 1;
  // Zeros and ones are equal everywhere, such as those of `up`; the names of labels still tell.
  else if (verdicts.has("equal") || (verdicts.has("plain") && usualName.test(label))) evidence.equal += 1;
}

/**
 * Whether the samples of all series are those of one counter: `plain` if that never was anything but 0 or 1, `few` where that
 * may be by chance.
 */
function compareCounters(group: readonly SampleSeries[]): Verdict {
  const merged = mergeSamples(group);
  let [falls, rises, changes] = [0, 0, 0];
  for (const [position, sample] of merged.entries()) {
    const before = merged[position - 1];
    if (before === undefined) continue;
    if (areOfTwoCounters(before, sample)) return "differing";
    if (sample.value < before.value) falls += 1;
    if (sample.value > before.value) rises += 1;
    if (sample.series !== before.series) changes += 1;
  }
  // The target may have restarted once.
  if (falls > 1) return "differing";
  if (group.some(({ times }) => times.length < leastSamples)) return "few";
  if (rises + falls > 0) return changes > 2 ? "risen" : "differing";
  return (merged[0]?.value ?? 0) > 1 ? "equal" : "plain";
}

interface Sample {
  readonly time: number;
  readonly series: number;
  readonly value: number;
  /** Below the one before it of its own series. */
  readonly isFall: boolean;
}

/** A counter has one value at a time, and falls where its target restarts: in the samples of each scraper. */
function areOfTwoCounters(before: Sample, { time, value, isFall }: Sample): boolean {
  return time === before.time ? value !== before.value : value < before.value && !isFall;
}

/** The samples of all series in the order of time. */
function mergeSamples(group: readonly SampleSeries[]): readonly Sample[] {
  return group
    .flatMap(({ times, values }, series) =>
      [...times].map((time, position) => {
        const value = readNumber(values, position);
        return { time, series, value, isFall: position > 0 && value < readNumber(values, position - 1) };
      }),
    )
    .sort((a, b) => a.time - b.time || a.value - b.value);
}
