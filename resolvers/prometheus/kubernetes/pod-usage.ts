// Joins what is measured of pods to the pods of each snapshot. cAdvisor shows the uid of a pod only in the path of its
// cgroup, and a restarted container leaves samples of its old cgroup behind for as long as they are fresh. Other exporters
// only have names.
import { visitInTurns } from "../../../src/core/async/turns.ts";
import type { Buckets, PodsRow } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import { metricName } from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import { readLabel } from "../counters/series-reader.ts";
import {
  cadvisorMetrics,
  type NetworkFigure,
  type PodFigure,
  type PodSource,
  podFigures,
  podInterfaces,
  podNetwork,
  podSources,
} from "./metric-sources.ts";
import { type RestartSamples, sumTraffic } from "./network.ts";
import { isSameHost } from "./node-names.ts";
import { readDiskCapacities } from "./node-usage.ts";
import type { OtelPodQueryName } from "./otel.ts";
import { formatPodKey, type PodSnapshot } from "./pod-state.ts";
import { ephemeralUsage, resourceCpu, type UsageQueryName } from "./queries.ts";
import { freshness } from "./selectors.ts";
import {
  ensureList,
  findGreatest,
  hasValue,
  readValue,
  type SnapshotAnswers,
  type SnapshotSeries,
} from "./snapshot-series.ts";

/** A series of a pod, with the uid if its labels show one. */
interface OwnedSeries {
  readonly labels: Labels;
  readonly uid: string | undefined;
}

type MeasuredSeries = SnapshotSeries & OwnedSeries;

type UsageAnswers = SnapshotAnswers<UsageQueryName | OtelPodQueryName>;

/** What is measured of all pods that had one name. */
interface PodUsage {
  readonly figures: Map<PodSource, MeasuredSeries[]>;
  /** By metric. */
  readonly interfaces: Map<string, MeasuredSeries[]>;
}

/** The usage of pods by `formatPodKey`, and the start times of containers. */
interface UsageIndex {
  readonly usages: Map<string, PodUsage>;
  readonly starts: ContainerStarts;
}

/** The start times of containers by cgroup. */
type ContainerStarts = Map<string | undefined, SnapshotSeries>;

function formatSourceKey(
  of: PodSource["of"],
  level: PodSource["level"],
  metric: string,
  fault: string | undefined,
): string {
  return `${of} ${level} ${metric} ${fault ?? ""}`;
}

const sourcesByKey = new Map(
  podSources.map((source) => [formatSourceKey(source.of, source.level, source.metric, source.fault), source]),
);

/** Joins in turns of the event loop. Returns what makes the row of a pod at a snapshot. The one before is at `index - 1`. */
export async function joinPodRows(
  answers: UsageAnswers,
  restarted: RestartSamples,
  { step }: Buckets,
  signal: AbortSignal,
): Promise<(index: number) => (pod: PodSnapshot) => PodsRow> {
  const usageIndex = await indexUsage(answers, signal);
  const disks = [...answers.disks, ...answers.otelDisks];
  return (index) => {
    const capacities = readDiskCapacities(answers, disks, index);
    const restartedByPod = Map.groupBy((restarted.get(index) ?? []).map(identifyOwner), readPodKey);
    return (pod) => {
      const ofName = restartedByPod.get(formatPodKey(pod.namespace, pod.name)) ?? [];
      const own = ofName.filter((series) => isOwnedBy(series, pod));
      return buildPodRow(usageIndex, own, capacities, pod, index, step);
    };
  };
}

function buildPodRow(
  { usages, starts }: UsageIndex,
  restarted: readonly SampleSeries[],
  capacities: ReadonlyMap<string, number>,
  pod: PodSnapshot,
  index: number,
  step: Millis,
): PodsRow {
  const usage = usages.get(formatPodKey(pod.namespace, pod.name));
  const figure = (name: PodFigure): number =>
    usage === undefined ? 0 : readFigure(name, usage, starts, pod, index);
  const network = (name: NetworkFigure): number =>
    usage === undefined ? 0 : sumPodTraffic(name, usage, restarted, pod, index, step);
  const capacity = figure("ephemeral_storage_capacity_bytes");
  return {
    timestamp: pod.row.timestamp,
    pod_name: pod.name,
    pod_namespace: pod.namespace,
    node_name: pod.node,
    cpu_usage_nano_cores: figure("cpu_usage_nano_cores"),
    cpu_usage_core_nano_seconds: figure("cpu_usage_core_nano_seconds"),
    memory_rss_bytes: figure("memory_rss_bytes"),
    memory_usage_bytes: figure("memory_usage_bytes"),
    memory_working_set_bytes: figure("memory_working_set_bytes"),
    memory_page_faults: figure("memory_page_faults"),
    memory_major_page_faults: figure("memory_major_page_faults"),
    ephemeral_storage_used_bytes: figure("ephemeral_storage_used_bytes"),
    ephemeral_storage_capacity_bytes: capacity === 0 ? (capacities.get(pod.node) ?? 0) : capacity,
    network_rx_bytes: network("network_rx_bytes"),
    network_tx_bytes: network("network_tx_bytes"),
    process_count: figure("process_count"),
    phase: pod.row.phase,
    state: pod.row.state,
    containers: pod.row.containers,
    pod_restart_count: pod.row.pod_restart_count,
    pod_uptime_seconds: pod.row.pod_uptime_seconds,
  };
}

async function indexUsage(answers: UsageAnswers, signal: AbortSignal): Promise<UsageIndex> {
  const usages = new Map<string, PodUsage>();
  const starts: ContainerStarts = new Map();
  const add = (
    series: SnapshotSeries,
    of: PodSource["of"],
    level: PodSource["level"],
    metric = readLabel(series.labels, metricName),
  ): void => {
    const source = sourcesByKey.get(formatSourceKey(of, level, metric, series.labels.failure_type));
    if (source !== undefined)
      ensureList(ensureUsage(usages, series).figures, source).push(identifyOwner(series));
  };
  const addContainerValue = (series: SnapshotSeries): void => {
    if (series.labels[metricName] === cadvisorMetrics.containerStart) starts.set(series.labels.id, series);
    else add(series, "value", "containers");
  };
  const addInterface = (series: SnapshotSeries): void => {
    const { interfaces } = ensureUsage(usages, series);
    ensureList(interfaces, readLabel(series.labels, metricName)).push(identifyOwner(series));
  };
  const visit = (all: readonly SnapshotSeries[], each: (series: SnapshotSeries) => void) =>
    visitInTurns(all, each, signal);
  await visit(answers.podValues, (series) => add(series, "value", "pod"));
  await visit(answers.otelValues, (series) => add(series, "value", "pod"));
  await visit(answers.podRates, (series) => add(series, "rate", "pod", cadvisorMetrics.cpu));
  await visit(answers.resourceRates, (series) => add(series, "rate", "pod", resourceCpu.pod));
  await visit(answers.ephemeral, (series) => add(series, "value", "pod", ephemeralUsage));
  await visit(answers.containerRates, (series) => add(series, "rate", "containers", cadvisorMetrics.cpu));
  await visit(answers.containerValues, addContainerValue);
  await visit(answers.podInterfaces, addInterface);
  await visit(answers.otelInterfaces, addInterface);
  return { usages, starts };
}

function ensureUsage(usages: Map<string, PodUsage>, series: SnapshotSeries): PodUsage {
  const key = readPodKey(series);
  const usage = usages.get(key) ?? { figures: new Map(), interfaces: new Map() };
  usages.set(key, usage);
  return usage;
}

// ---- Owners -------------------------------------------------------------------------------------------------

// A cgroup's path names its pod as `pod<uid>`, under systemd with `_` for `-`. For static pods the kubelet uses a hash, there
// and in its metrics. It is no uid, so it identifies nothing.
const uidPattern = "([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})";
const uidInPath = new RegExp(`pod${uidPattern}`);
const wholeUid = new RegExp(`^${uidPattern}$`);

function identifyOwner<Series extends { readonly labels: Labels }>(series: Series): Series & OwnedSeries {
  const { id = "", k8s_pod_uid: otelUid = "" } = series.labels;
  const found = uidInPath.exec(id) ?? wholeUid.exec(otelUid);
  return { ...series, uid: found?.[1]?.replaceAll("_", "-") };
}

/** By uid. If one side has none (kube-state-metrics can drop them), the name and the node decide. */
function isOwnedBy({ uid, labels: { node } }: OwnedSeries, pod: PodSnapshot): boolean {
  if (uid !== undefined && pod.uid !== "") return uid === pod.uid;
  return node === undefined || pod.node === "" || isSameHost(node, pod.node);
}

function readPodKey({ labels }: { readonly labels: Labels }): string {
  const namespace = labels.pod_namespace ?? labels.k8s_namespace_name ?? labels.namespace ?? "";
  return formatPodKey(namespace, labels.pod_name ?? labels.k8s_pod_name ?? labels.pod ?? "");
}

/** By the first source that has a value of the pod; 0 if none has. */
function readFigure(
  name: PodFigure,
  usage: PodUsage,
  starts: ContainerStarts,
  pod: PodSnapshot,
  index: number,
): number {
  for (const source of podFigures[name]) {
    const own = (usage.figures.get(source) ?? []).filter((series) => isOwnedBy(series, pod));
    const value = source.level === "pod" ? findGreatest(own, index) : sumContainers(own, starts, index);
    if (value !== undefined) return Math.max(0, Math.round(value * source.scale));
  }
  return 0;
}

/** The sum over the containers, each by its cgroup that started last, or by a series without cgroup. */
function sumContainers(
  series: readonly MeasuredSeries[],
  starts: ContainerStarts,
  index: number,
): number | undefined {
  const fresh = series.filter((one) => hasValue(one, index));
  if (fresh.length === 0) return undefined;
  const readStart = ({ labels: { id } }: SnapshotSeries): number =>
    id === undefined ? -2 : (readValue(starts.get(id), index) ?? -1);
  let sum = 0;
  for (const cgroups of Map.groupBy(fresh, ({ labels }) => readLabel(labels, "container")).values()) {
    const latest = Math.max(...cgroups.map(readStart));
    const newest = cgroups.filter((cgroup) => readStart(cgroup) === latest);
    sum += findGreatest(newest, index) ?? 0;
  }
  return sum;
}

/** The bytes since the snapshot before. A pod in the network of its node has no traffic of its own. */
function sumPodTraffic(
  name: NetworkFigure,
  usage: PodUsage,
  restarted: readonly SampleSeries[],
  pod: PodSnapshot,
  index: number,
  step: Millis,
): number {
  if (pod.hostNetwork) return 0;
  const seriesByMetric = new Map(
    podNetwork[name].map(({ metric }) => [
      metric,
      (usage.interfaces.get(metric) ?? []).filter((series) => isOwnedBy(series, pod)),
    ]),
  );
  const since = pod.row.timestamp - step;
  // A pod that started after the snapshot before, or too shortly before it to have been measured, counts from 0.
  const countsFromZero = (pod.start ?? 0) * 1_000 > since - freshness;
  return sumTraffic(podNetwork[name], podInterfaces, {
    seriesByMetric,
    index,
    since,
    restarted,
    countsFromZero,
  });
}
