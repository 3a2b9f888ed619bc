// The bytes that network interfaces carried between two snapshots. If no counter restarted in between, they are the
// difference of two values. A restart would lose what was counted before it, so the raw samples of that interface are read
// and every growth between two samples counts. Restarts are rare. If the server hides them, all interfaces are read raw.
import { groupInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { findFirstAtOrAfter, readNumber, requireFirst } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { calculateGrowth } from "../../../src/store/kubernetes-rules.ts";
import type { PrometheusClient } from "../client/client.ts";
import { metricName } from "../client/promql.ts";
import { collectSeries, type Labels, type SampleSeries } from "../client/response-scanner.ts";
import { chunkSeries } from "../counters/series-narrowing.ts";
import { readLabel, runConcurrent } from "../counters/series-reader.ts";
import { type NetworkSource, nodeNetwork, podNetwork } from "./metric-sources.ts";
import {
  buildInterfaceQueries,
  type InterfaceOwner,
  interfaceKeys,
  listInterfaceLabels,
  type MetricSpelling,
} from "./network-queries.ts";
import { normaliseOtelLabels } from "./otel.ts";
import { freshness, type QueryScope } from "./selectors.ts";
import { hasValue, readValue, type SnapshotSeries } from "./snapshot-series.ts";

/**
 * By the index of a snapshot, the raw samples of interfaces that restarted since the snapshot before, including those
 * that were fresh at that.
 */
export type RestartSamples = ReadonlyMap<number, readonly SampleSeries[]>;

/** How many interfaces × snapshots are read together. */
const maxRunInterfaces = 2_000;

/** Consecutive snapshots from `first` on, each with the interfaces whose samples it needs. */
interface SnapshotRun {
  readonly first: number;
  /** The keys of the interfaces by snapshot. */
  readonly keys: ReadonlySet<string>[];
  /** By key. */
  readonly interfaces: Map<string, Labels>;
}

/**
 * Reads the samples of interfaces. The series of `restarts` have the labels of an interface, and a value at the snapshots
 * that need its samples. `spellings` are those of the metrics that may be there. @throws {BackendError}
 */
export async function readRestartSamples(
  client: Pick<PrometheusClient, "query">,
  cluster: QueryScope,
  owner: InterfaceOwner,
  spellings: readonly MetricSpelling[],
  restarts: readonly SnapshotSeries[],
  { start, step, count }: Buckets,
  signal: AbortSignal,
): Promise<RestartSamples> {
  const queries = groupIntoRuns(owner, restarts, count).flatMap((run) =>
    chunkSeries([...run.interfaces.values()]).flatMap((part) =>
      buildInterfaceQueries(cluster, owner, spellings, part, run.keys.length * step).map((samples) => ({
        run,
        samples,
      })),
    ),
  );
  const read = await runConcurrent(queries, async ({ run: { first, keys }, samples }) => {
    const last = start + (first + keys.length - 1) * step;
    const found = await client.query(samples, { at: last }, collectSeries, signal);
    const series = (await normaliseOtelLabels(found, signal)).map((one) => keepOwnLabels(owner, one));
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
  // The first snapshot only serves as the one before the second.
  for (let index = 1; index < count; index += 1) {
    const labels = restarts.filter((series) => hasValue(series, index)).map((series) => series.labels);
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

/** Drops the labels that do not come from the exporter. */
function keepOwnLabels(owner: InterfaceOwner, series: SampleSeries): SampleSeries {
  const own = listInterfaceLabels(owner, readLabel(series.labels, metricName));
  return {
    ...series,
    labels: Object.fromEntries(Object.entries(series.labels).filter(([label]) => own.includes(label))),
  };
}

/** The samples until `time` that are newer than what was fresh at the snapshot before. */
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

export function isInterfaceCounter({ labels }: SnapshotSeries): boolean {
  return networkMetrics.has(labels[metricName]);
}

export function isInterfaceSpelling({ metric }: MetricSpelling): boolean {
  return networkMetrics.has(metric);
}

function formatInterfaceKey(owner: InterfaceOwner, labels: Labels): string {
  return JSON.stringify(interfaceKeys[owner].map((label) => readLabel(labels, label)));
}

/**
 * Finds the snapshots at which a pod's interface has a cgroup that it did not have before: its sandbox was recreated. If
 * snapshots are further apart than samples are fresh, a sandbox may also have come and gone in between without a trace.
 */
export async function findSandboxChanges(
  interfaces: readonly SnapshotSeries[],
  { step, count }: Buckets,
  signal: AbortSignal,
): Promise<readonly SnapshotSeries[]> {
  const mayMissSandbox = step > freshness;
  const keyOf = ({ labels }: SnapshotSeries) => formatInterfaceKey("pods", labels);
  const groups = await groupInTurns(interfaces, keyOf, signal);
  const changes: SnapshotSeries[] = [];
  const findChanges = (group: readonly SnapshotSeries[]): void => {
    const { labels } = requireFirst(group);
    if (!mayMissSandbox && group.every((series) => series.labels.id === labels.id)) return;
    const values = new Float64Array(count).fill(Number.NaN);
    for (let index = 1; index < count; index += 1) {
      const existed = mayMissSandbox || group.some((series) => hasValue(series, index - 1));
      const isNew = group.some((series) => hasValue(series, index) && !hasValue(series, index - 1));
      if (existed && isNew) values[index] = 1;
    }
    changes.push({ labels, values });
  };
  await visitInTurns(groups.values(), findChanges, signal);
  return changes;
}

// ---- Traffic -------------------------------------------------------------------------------------------------

/** The interfaces of one node or pod at one snapshot. */
interface InterfaceSnapshot {
  readonly seriesByMetric: ReadonlyMap<string, readonly SnapshotSeries[]>;
  readonly index: number;
  /** The time of the snapshot before. */
  readonly since: Millis;
  /** Samples of the interfaces that restarted since then. */
  readonly restarted: readonly SampleSeries[];
  /** Counters without a value at the snapshot before count from 0. */
  readonly countsFromZero: boolean;
}

/**
 * The bytes since the snapshot before, by the first source that has a value, on all interfaces of the first of the
 * `kinds` that it has.
 */
export function sumTraffic(
  sources: readonly NetworkSource[],
  kinds: readonly RegExp[],
  snapshot: InterfaceSnapshot,
): number {
  for (const source of sources) {
    const interfaces = listInterfaces(source, snapshot);
    if (interfaces.length === 0) continue;
    const kind = kinds.find((pattern) => interfaces.some(([name]) => pattern.test(name)));
    const counted = interfaces.filter(([name]) => kind?.test(name));
    const restarted = groupRestarted(source, snapshot.restarted);
    return counted.reduce(
      (sum, [name, group]) => sum + countInterface(group, restarted.get(name) ?? [], snapshot),
      0,
    );
  }
  return 0;
}

/** The series of a source by the name of the interface, of those that have a value. */
function listInterfaces(
  source: NetworkSource,
  { seriesByMetric, index }: InterfaceSnapshot,
): readonly (readonly [string, readonly SnapshotSeries[]])[] {
  const series = seriesByMetric.get(source.metric) ?? [];
  const byName = Map.groupBy(
    series.filter((one) => hasDirection(source, one)),
    readInterface,
  );
  return [...byName].filter(([, group]) => group.some((one) => hasValue(one, index)));
}

function groupRestarted(
  source: NetworkSource,
  restarted: readonly SampleSeries[],
): ReadonlyMap<string, readonly SampleSeries[]> {
  const own = restarted.filter(
    (series) => series.labels[metricName] === source.metric && hasDirection(source, series),
  );
  return Map.groupBy(own, readInterface);
}

/** The bytes of one interface: by raw samples if it restarted, and otherwise by the values at the two snapshots. */
function countInterface(
  group: readonly SnapshotSeries[],
  restarted: readonly SampleSeries[],
  { index, since, countsFromZero }: InterfaceSnapshot,
): number {
  const bySamples = sumGrowth(
    restarted.map((series) => toCounter(series, since)),
    countsFromZero,
  );
  if (bySamples !== undefined) return Math.round(bySamples);
  const counters = group.map((series): InterfaceCounter => {
    const now = readValue(series, index);
    return {
      labels: series.labels,
      before: readValue(series, index - 1),
      growth: (before) => calculateGrowth(before, now ?? before ?? 0),
    };
  });
  return Math.round(sumGrowth(counters, countsFromZero) ?? 0);
}

function hasDirection({ direction }: NetworkSource, { labels }: { readonly labels: Labels }): boolean {
  return direction === undefined || labels.direction === direction;
}

function readInterface({ labels }: { readonly labels: Labels }): string {
  return labels.interface ?? labels.device ?? labels.nic ?? "";
}

/** One counter between two snapshots. */
interface InterfaceCounter {
  readonly labels: Labels;
  /** Its value at the earlier snapshot. */
  readonly before: number | undefined;
  /** What it has grown by since it had the value `before`. */
  readonly growth: (before: number | undefined) => number;
}

function toCounter({ labels, times, values }: SampleSeries, since: Millis): InterfaceCounter {
  const finite = [...values.entries()].filter(([, value]) => Number.isFinite(value));
  const isEarlier = ([position]: readonly [number, number]): boolean => readNumber(times, position) <= since;
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
 * The growth of the counters of one interface; `undefined` if none had a value before. Counters of one cgroup are
 * duplicates, of which the greatest growth counts. Another cgroup has counters of its own, which started at 0.
 */
function sumGrowth(counters: readonly InterfaceCounter[], countsFromZero: boolean): number | undefined {
  const known = counters.filter(({ before }) => before !== undefined);
  if (known.length === 0 && !(countsFromZero && counters.length > 0)) return undefined;
  let sum = 0;
  for (const duplicates of Map.groupBy(counters, ({ labels }) => labels.id).values()) {
    const older = duplicates.filter(({ before }) => before !== undefined);
    const grown = older.length > 0 ? older : duplicates;
    sum += Math.max(...grown.map(({ before, growth }) => growth(before ?? 0)));
  }
  return sum;
}
