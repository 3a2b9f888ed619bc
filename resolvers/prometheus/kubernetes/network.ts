// What interfaces carried between two snapshots. Where no counter restarted in between, that is the difference of two
// values. Where one did, what it had counted before would be lost: the raw samples of that interface are read, and
// every growth between two of them counts. Restarts are rare, so hardly anything is read twice; of a source that hides
// them all interfaces are read raw.

import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { findFirstAtOrAfter } from "../../../src/metrics/samples.ts";
import { calculateGrowth } from "../../../src/store/kubernetes-rules.ts";
import type { PrometheusClient } from "../client/client.ts";
import { metricName } from "../client/promql.ts";
import { collectSeries, type Labels, type SampleSeries } from "../client/response-scanner.ts";
import { chunkSeries, runConcurrent } from "../metrics/series-reader.ts";
import { type NetworkSource, nodeNetwork, podNetwork } from "./metric-sources.ts";
import {
  buildInterfaceQueries,
  freshness,
  type InterfaceOwner,
  interfaceKeys,
  listInterfaceLabels,
  type QueryScope,
} from "./queries.ts";
import { hasValue, readValue, type SnapshotSeries } from "./snapshot-series.ts";

/** By snapshot, the raw samples of interfaces that restarted since the one before, from when that one was fresh. */
export type RestartSamples = ReadonlyMap<number, readonly SampleSeries[]>;

/** Interfaces × snapshots that are read together. */
const maxRunInterfaces = 2_000;

/** Snapshots in a row, from `first` on, each with the interfaces of which it needs the samples. */
interface SnapshotRun {
  readonly first: number;
  readonly keys: ReadonlySet<string>[];
  /** By key. */
  readonly interfaces: Map<string, Labels>;
}

/** `restarts` have labels that name an interface, and a value at the snapshots that need its samples. */
export async function readRestartSamples(
  source: Pick<PrometheusClient, "query">,
  forcedLabels: QueryScope,
  owner: InterfaceOwner,
  restarts: readonly SnapshotSeries[],
  { start, step, count }: Buckets,
  signal: AbortSignal,
): Promise<RestartSamples> {
  const wanted = groupIntoRuns(owner, restarts, count).flatMap((run) =>
    chunkSeries([...run.interfaces.values()]).flatMap((part) =>
      buildInterfaceQueries(forcedLabels, owner, part, run.keys.length * step).map((samples) => ({
        run,
        samples,
      })),
    ),
  );
  const read = await runConcurrent(wanted, async ({ run: { first, keys }, samples }) => {
    const last = start + (first + keys.length - 1) * step;
    const found = await source.query(samples, { at: last }, collectSeries, signal);
    const series = found.map((one) => keepOwnLabels(owner, one));
    return keys.map((keysAt, offset) => {
      const index = first + offset;
      const needed = series.filter(({ labels }) => keysAt.has(formatInterfaceKey(owner, labels)));
      return { index, series: needed.map((one) => sliceRecent(one, start + index * step, step)) };
    });
  });
  const byIndex = Map.groupBy(read.flat(), ({ index }) => index);
  return new Map([...byIndex].map(([index, parts]) => [index, parts.flatMap(({ series }) => series)]));
}

function groupIntoRuns(
  owner: InterfaceOwner,
  restarts: readonly SnapshotSeries[],
  count: number,
): readonly SnapshotRun[] {
  const runs: SnapshotRun[] = [];
  // The first moment is there for the growth since it alone.
  for (let index = 1; index < count; index += 1) {
    const labels = restarts.filter((track) => hasValue(track, index)).map((track) => track.labels);
    const own = new Map(labels.map((one) => [formatInterfaceKey(owner, one), one]));
    if (own.size === 0) continue;
    const last = runs.at(-1);
    const together = new Map([...(last?.interfaces ?? []), ...own]);
    const joins = last !== undefined && last.first + last.keys.length === index;
    if (joins && together.size * (last.keys.length + 1) <= maxRunInterfaces) {
      last.keys.push(new Set(own.keys()));
      for (const [key, one] of own) last.interfaces.set(key, one);
    } else runs.push({ first: index, keys: [new Set(own.keys())], interfaces: own });
  }
  return runs;
}

/** With the labels alone that the exporter itself gives it. */
function keepOwnLabels(owner: InterfaceOwner, series: SampleSeries): SampleSeries {
  const own = listInterfaceLabels(owner, series.labels[metricName] ?? "");
  return {
    ...series,
    labels: Object.fromEntries(Object.entries(series.labels).filter(([label]) => own.includes(label))),
  };
}

/** The samples from when the snapshot before `timeSchema` was fresh. */
function sliceRecent(
  { labels, times, values, histograms }: SampleSeries,
  time: Millis,
  step: Millis,
): SampleSeries {
  const from = findFirstAtOrAfter(times, time - step - freshness + 1);
  const end = findFirstAtOrAfter(times, time + 1);
  return { labels, times: times.subarray(from, end), values: values.subarray(from, end), histograms };
}

const networkMetrics: ReadonlySet<string | undefined> = new Set(
  [podNetwork, nodeNetwork].flatMap((network) =>
    Object.values(network)
      .flat()
      .map(({ metric }) => metric),
  ),
);
/** Whether this is the counter of an interface. */
export function isInterfaceCounter({ labels }: SnapshotSeries): boolean {
  return networkMetrics.has(labels[metricName]);
}

const formatInterfaceKey = (owner: InterfaceOwner, labels: Labels): string =>
  JSON.stringify(interfaceKeys[owner].map((label) => labels[label] ?? ""));

/**
 * Where a pod's interface is told of under a cgroup that it did not have at the snapshot before: its sandbox was made
 * anew. Between snapshots that lie far apart that may also be so where the pod began, of which no snapshot tells then.
 */
export function findSandboxChanges(
  interfaces: readonly SnapshotSeries[],
  { step, count }: Buckets,
): readonly SnapshotSeries[] {
  const hidden = step > freshness;
  const groups = Map.groupBy(interfaces, ({ labels }) => formatInterfaceKey("pods", labels));
  return [...groups.values()].flatMap((tracks): SnapshotSeries[] => {
    const [first] = tracks;
    if (first === undefined) return [];
    if (!hidden && tracks.every(({ labels }) => labels.id === first.labels.id)) return [];
    const values = new Float64Array(count).fill(Number.NaN);
    for (let index = 1; index < count; index += 1) {
      const known = hidden || tracks.some((track) => hasValue(track, index - 1));
      if (known && tracks.some((track) => hasValue(track, index) && !hasValue(track, index - 1)))
        values[index] = 1;
    }
    return [{ labels: first.labels, values }];
  });
}

/** The interfaces of one node or pod at one snapshot. */
interface InterfaceSnapshot {
  /** By metric. */
  readonly seriesByMetric: ReadonlyMap<string, readonly SnapshotSeries[]>;
  readonly index: number;
  /** When the snapshot before was. */
  readonly since: Millis;
  /** Samples of what restarted since. */
  readonly restarted: readonly SampleSeries[];
  /** Counters of what was not known then count from 0. */
  readonly countsFromZero: boolean;
}

/**
 * Bytes since the snapshot before, of the first source that tells any, on all interfaces of the first kind that it
 * tells of.
 */
export function sumTraffic(
  sources: readonly NetworkSource[],
  kinds: readonly RegExp[],
  { seriesByMetric: tracks, index, since, restarted, countsFromZero: began }: InterfaceSnapshot,
): number {
  for (const { metric, direction } of sources) {
    const directed = ({ labels }: { readonly labels: Labels }): boolean =>
      direction === undefined || labels.direction === direction;
    const byInterface = Map.groupBy((tracks.get(metric) ?? []).filter(directed), readInterface);
    const told = [...byInterface].filter(([, twins]) => twins.some((track) => hasValue(track, index)));
    if (told.length === 0) continue;
    const kind = kinds.find((pattern) => told.some(([name]) => pattern.test(name)));
    const samples = restarted.filter((series) => series.labels[metricName] === metric && directed(series));
    const samplesOf = Map.groupBy(samples, readInterface);
    return told
      .filter(([name]) => kind?.test(name))
      .reduce((sum, [name, twins]) => {
        const ends = twins.map((track) => ({
          labels: track.labels,
          before: readValue(track, index - 1),
          growth: (before: number | undefined) =>
            calculateGrowth(before, readValue(track, index) ?? before ?? 0),
        }));
        const counted = (samplesOf.get(name) ?? []).map((series) => toCounter(series, since));
        return sum + Math.round(sumGrowth(counted, began) ?? sumGrowth(ends, began) ?? 0);
      }, 0);
  }
  return 0;
}

const readInterface = ({ labels }: { readonly labels: Labels }): string =>
  labels.interface ?? labels.device ?? "";

/** One counter between two snapshots. */
interface InterfaceCounter {
  readonly labels: Labels;
  /** What it showed at the earlier one. */
  readonly before: number | undefined;
  readonly growth: (before: number | undefined) => number;
}

function toCounter({ labels, times, values }: SampleSeries, since: Millis): InterfaceCounter {
  const finite = [...values.entries()].filter(([, value]) => Number.isFinite(value));
  const isEarlier = ([position]: readonly [number, number]): boolean => (times[position] ?? 0) <= since;
  const later = finite.filter((sample) => !isEarlier(sample)).map(([, value]) => value);
  return {
    labels,
    before: finite.findLast(isEarlier)?.[1],
    growth: (before) => {
      let [last, sum] = [before, 0];
      for (const value of later) {
        sum += calculateGrowth(last, value);
        last = value;
      }
      return sum;
    },
  };
}

/**
 * What counters of one interface grew by together; undefined where nothing was known before. Those of one cgroup are
 * twins, of which the greatest growth counts. Another cgroup has counters of its own, which began at 0.
 */
function sumGrowth(counters: readonly InterfaceCounter[], began: boolean): number | undefined {
  const known = counters.filter(({ before }) => before !== undefined);
  if (known.length === 0 && !(began && counters.length > 0)) return undefined;
  let sum = 0;
  for (const twins of Map.groupBy(counters, ({ labels }) => labels.id).values()) {
    const older = twins.filter(({ before }) => before !== undefined);
    const grown = older.length > 0 ? older : twins;
    sum += Math.max(...grown.map(({ before, growth }) => growth(before ?? 0)));
  }
  return sum;
}
