// Joins what is measured of pods to the pods of each snapshot, without asking anything. cAdvisor knows a pod's uid only
// from the path of its cgroup, and a container that restarts leaves its old cgroup's samples behind for as long as they
// are fresh; other sources know names alone.
import type { Buckets, PodsRow } from "../../../src/core/rows.ts";
import { metricName } from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
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
import { readDiskCapacities, resolveNodeNames } from "./node-usage.ts";
import { formatPodKey, type PodSnapshot } from "./pod-state.ts";
import { ephemeralUsage, freshness, resourceCpu, type UsageQueryName } from "./queries.ts";
import {
  ensureList,
  findGreatest,
  hasValue,
  readValue,
  type SnapshotAnswers,
  type SnapshotSeries,
} from "./snapshot-series.ts";

/** A series of a pod, with what tells whose it is. */
interface OwnedSeries {
  readonly labels: Labels;
  readonly uid: string | undefined;
}
type MeasuredSeries = SnapshotSeries & OwnedSeries;
/** What is measured of all pods that had one name. */
interface PodUsage {
  readonly figures: Map<PodSource, MeasuredSeries[]>;
  /** By metric. */
  readonly interfaces: Map<string, MeasuredSeries[]>;
}
/** When containers started, by cgroup. */
type ContainerStarts = ReadonlyMap<string | undefined, SnapshotSeries>;

const formatSourceKey = (
  of: PodSource["of"],
  level: PodSource["level"],
  metric: string,
  fault = "",
): string => `${of} ${level} ${metric} ${fault}`;
const sourcesByKey = new Map(
  podSources.map((source) => [formatSourceKey(source.of, source.level, source.metric, source.fault), source]),
);

/** The rows of present pods; the snapshot before is at `index - 1`. */
export function joinPodRows(
  answers: SnapshotAnswers<UsageQueryName>,
  restarted: RestartSamples,
  { step }: Buckets,
): (pods: readonly PodSnapshot[], index: number) => PodsRow[] {
  const usages = new Map<string, PodUsage>();
  const usageOf = (track: SnapshotSeries): PodUsage => {
    const key = readPodKey(track);
    const usage = usages.get(key) ?? { figures: new Map(), interfaces: new Map() };
    usages.set(key, usage);
    return usage;
  };
  const keep = (
    track: SnapshotSeries,
    of: PodSource["of"],
    level: PodSource["level"],
    metric = track.labels[metricName] ?? "",
  ): void => {
    const source = sourcesByKey.get(formatSourceKey(of, level, metric, track.labels.failure_type));
    if (source !== undefined) ensureList(usageOf(track).figures, source).push(identifyOwner(track));
  };
  for (const track of [...answers.podValues, ...answers.otelValues]) keep(track, "value", "pod");
  for (const track of answers.podRates) keep(track, "rate", "pod", cadvisorMetrics.cpu);
  for (const track of answers.resourceRates) keep(track, "rate", "pod", resourceCpu.pod);
  for (const track of answers.ephemeral) keep(track, "value", "pod", ephemeralUsage);
  for (const track of answers.containerRates) keep(track, "rate", "containers", cadvisorMetrics.cpu);
  const starts = new Map<string | undefined, SnapshotSeries>();
  for (const track of answers.containerValues) {
    if (track.labels[metricName] === cadvisorMetrics.containerStart) starts.set(track.labels.id, track);
    else keep(track, "value", "containers");
  }
  for (const track of [...answers.podInterfaces, ...answers.otelInterfaces]) {
    ensureList(usageOf(track).interfaces, track.labels[metricName] ?? "").push(identifyOwner(track));
  }

  return (pods, index) => {
    const { addresses, addressed } = answers;
    const naming = resolveNodeNames({ addresses, addressed, unames: [], uttered: [] }, index);
    const capacities = readDiskCapacities(answers.disks, naming, index);
    const restartedOf = Map.groupBy((restarted.get(index) ?? []).map(identifyOwner), readPodKey);
    return pods.map((pod): PodsRow => {
      const key = formatPodKey(pod.namespace, pod.name);
      const usage = usages.get(key);
      const own = (restartedOf.get(key) ?? []).filter((series) => isOwnedBy(series, pod));
      const figure = (name: PodFigure): number =>
        usage === undefined ? 0 : readFigure(name, usage, starts, pod, index);
      const network = (name: NetworkFigure): number =>
        usage === undefined ? 0 : sumPodTraffic(name, usage, own, pod, index, step);
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
    });
  };
}

// ---- Whose it is --------------------------------------------------------------------------------------------

// A cgroup's path names its pod as `pod<uid>`, with `_` for `-` under systemd. Static pods have a hash there, and so tells
// the kubelet of them, which is no uid, so that nothing can be told from it.
const uidPattern = "([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})";
const uidInPath = new RegExp(`pod${uidPattern}`);
const wholeUid = new RegExp(`^${uidPattern}$`);

function identifyOwner<Series extends { readonly labels: Labels }>(series: Series): Series & OwnedSeries {
  const { id = "", k8s_pod_uid: told = "" } = series.labels;
  const found = uidInPath.exec(id) ?? wholeUid.exec(told);
  return { ...series, uid: found?.[1]?.replaceAll("_", "-") };
}

/** Where kube-state-metrics tells no uids, which some drop, the name and the node decide. */
function isOwnedBy({ uid, labels: { node } }: OwnedSeries, pod: PodSnapshot): boolean {
  if (uid !== undefined && pod.uid !== "") return uid === pod.uid;
  return node === undefined || pod.node === "" || node === pod.node;
}

function readPodKey({ labels }: { readonly labels: Labels }): string {
  const namespace = labels.pod_namespace ?? labels.k8s_namespace_name ?? labels.namespace ?? "";
  return formatPodKey(namespace, labels.pod_name ?? labels.k8s_pod_name ?? labels.pod ?? "");
}

/** By the first source that tells of the pod. */
function readFigure(
  name: PodFigure,
  usage: PodUsage,
  starts: ContainerStarts,
  pod: PodSnapshot,
  index: number,
): number {
  for (const source of podFigures[name]) {
    const tracks = (usage.figures.get(source) ?? []).filter((track) => isOwnedBy(track, pod));
    const value = source.level === "pod" ? findGreatest(tracks, index) : sumContainers(tracks, starts, index);
    if (value !== undefined) return Math.max(0, Math.round(value * source.scale));
  }
  return 0;
}

/** One value for each container: of its cgroups the one that started last, or what knows no cgroups. */
function sumContainers(
  tracks: readonly MeasuredSeries[],
  starts: ContainerStarts,
  index: number,
): number | undefined {
  const fresh = tracks.filter((track) => hasValue(track, index));
  if (fresh.length === 0) return undefined;
  let sum = 0;
  for (const cgroups of Map.groupBy(fresh, ({ labels }) => labels.container ?? "").values()) {
    const started = ({ labels: { id } }: SnapshotSeries): number =>
      id === undefined ? -2 : (readValue(starts.get(id), index) ?? -1);
    const latest = Math.max(...cgroups.map(started));
    sum +=
      findGreatest(
        cgroups.filter((track) => started(track) === latest),
        index,
      ) ?? 0;
  }
  return sum;
}

/** A pod on its node's own network has no traffic of its own. */
function sumPodTraffic(
  name: NetworkFigure,
  usage: PodUsage,
  restarted: readonly SampleSeries[],
  pod: PodSnapshot,
  index: number,
  step: number,
): number {
  if (pod.hostNetwork) return 0;
  const tracks = new Map(
    podNetwork[name].map(({ metric }) => [
      metric,
      (usage.interfaces.get(metric) ?? []).filter((track) => isOwnedBy(track, pod)),
    ]),
  );
  const since = pod.row.timestamp - step;
  // What began since the snapshot before, or too shortly before it to have been measured, counts from 0.
  const began = (pod.start ?? 0) * 1_000 > since - freshness;
  return sumTraffic(podNetwork[name], podInterfaces, {
    seriesByMetric: tracks,
    index,
    since,
    restarted,
    countsFromZero: began,
  });
}
