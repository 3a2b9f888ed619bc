// Joins what is measured of pods to the pods of each snapshot, without asking anything. cAdvisor knows a pod's uid only
// from the path of its cgroup, and a container that restarts leaves its old cgroup's samples behind for as long as they
// are fresh; other sources know names alone.
import type { Buckets, PodsRow } from "../../../src/core/rows.ts";
import { metricName } from "../client/promql.ts";
import type { Labels, SampleSeries } from "../client/response-scanner.ts";
import {
  metrics,
  type NetworkFigure,
  type PodFigure,
  type PodSource,
  podFigures,
  podInterfaces,
  podNetwork,
  podSources,
} from "./metric-sources.ts";
import { type Restarted, traffic } from "./network.ts";
import { diskCapacities, nameNodes } from "./node-usage.ts";
import { nameKey, type Present } from "./pod-state.ts";
import { exported, type FigureQuestion, freshness, resourceCpu } from "./queries.ts";
import { type Answers, at, greatest, has, listOf, type Track } from "./snapshot-series.ts";

/** A series of a pod, with what tells whose it is. */
interface Owned {
  readonly labels: Labels;
  readonly uid: string | undefined;
}
type Measured = Track & Owned;
/** What is measured of all pods that had one name. */
interface Usage {
  readonly figures: Map<PodSource, Measured[]>;
  /** By metric. */
  readonly interfaces: Map<string, Measured[]>;
}
/** When containers started, by cgroup. */
type Starts = ReadonlyMap<string | undefined, Track>;

const sourceKey = (of: PodSource["of"], level: PodSource["level"], metric: string, fault = ""): string =>
  `${of} ${level} ${metric} ${fault}`;
const sourcesByKey = new Map(
  podSources.map((source) => [sourceKey(source.of, source.level, source.metric, source.fault), source]),
);

/** The rows of present pods; the snapshot before is at `index - 1`. */
export function podRows(
  answers: Answers<FigureQuestion>,
  restarted: Restarted,
  { step }: Buckets,
): (pods: readonly Present[], index: number) => PodsRow[] {
  const usages = new Map<string, Usage>();
  const usageOf = (track: Track): Usage => {
    const key = podKey(track);
    const usage = usages.get(key) ?? { figures: new Map(), interfaces: new Map() };
    usages.set(key, usage);
    return usage;
  };
  const keep = (
    track: Track,
    of: PodSource["of"],
    level: PodSource["level"],
    metric = track.labels[metricName] ?? "",
  ): void => {
    const source = sourcesByKey.get(sourceKey(of, level, metric, track.labels.failure_type));
    if (source !== undefined) listOf(usageOf(track).figures, source).push(owned(track));
  };
  for (const track of [...answers.podValues, ...answers.otelValues]) keep(track, "value", "pod");
  for (const track of answers.podRates) keep(track, "rate", "pod", metrics.cpu);
  for (const track of answers.resourceRates) keep(track, "rate", "pod", resourceCpu.pod);
  for (const track of answers.ephemeral) keep(track, "value", "pod", exported);
  for (const track of answers.containerRates) keep(track, "rate", "containers", metrics.cpu);
  const starts = new Map<string | undefined, Track>();
  for (const track of answers.containerValues) {
    if (track.labels[metricName] === metrics.containerStart) starts.set(track.labels.id, track);
    else keep(track, "value", "containers");
  }
  for (const track of [...answers.podInterfaces, ...answers.otelInterfaces]) {
    listOf(usageOf(track).interfaces, track.labels[metricName] ?? "").push(owned(track));
  }

  return (pods, index) => {
    const { addresses, addressed } = answers;
    const naming = nameNodes({ addresses, addressed, unames: [], uttered: [] }, index);
    const capacities = diskCapacities(answers.disks, naming, index);
    const restartedOf = Map.groupBy((restarted.get(index) ?? []).map(owned), podKey);
    return pods.map((pod): PodsRow => {
      const key = nameKey(pod.namespace, pod.name);
      const usage = usages.get(key);
      const own = (restartedOf.get(key) ?? []).filter((series) => belongs(series, pod));
      const figure = (name: PodFigure): number =>
        usage === undefined ? 0 : figureOf(name, usage, starts, pod, index);
      const network = (name: NetworkFigure): number =>
        usage === undefined ? 0 : podTraffic(name, usage, own, pod, index, step);
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
const uidTold = new RegExp(`^${uidPattern}$`);

function owned<Series extends { readonly labels: Labels }>(series: Series): Series & Owned {
  const { id = "", k8s_pod_uid: told = "" } = series.labels;
  const found = uidInPath.exec(id) ?? uidTold.exec(told);
  return { ...series, uid: found?.[1]?.replaceAll("_", "-") };
}

/** Where kube-state-metrics tells no uids, which some drop, the name and the node decide. */
function belongs({ uid, labels: { node } }: Owned, pod: Present): boolean {
  if (uid !== undefined && pod.uid !== "") return uid === pod.uid;
  return node === undefined || pod.node === "" || node === pod.node;
}

function podKey({ labels }: { readonly labels: Labels }): string {
  const namespace = labels.pod_namespace ?? labels.k8s_namespace_name ?? labels.namespace ?? "";
  return nameKey(namespace, labels.pod_name ?? labels.k8s_pod_name ?? labels.pod ?? "");
}

/** By the first source that tells of the pod. */
function figureOf(name: PodFigure, usage: Usage, starts: Starts, pod: Present, index: number): number {
  for (const source of podFigures[name]) {
    const tracks = (usage.figures.get(source) ?? []).filter((track) => belongs(track, pod));
    const value = source.level === "pod" ? greatest(tracks, index) : sumContainers(tracks, starts, index);
    if (value !== undefined) return Math.max(0, Math.round(value * source.scale));
  }
  return 0;
}

/** One value for each container: of its cgroups the one that started last, or what knows no cgroups. */
function sumContainers(tracks: readonly Measured[], starts: Starts, index: number): number | undefined {
  const fresh = tracks.filter((track) => has(track, index));
  if (fresh.length === 0) return undefined;
  let sum = 0;
  for (const cgroups of Map.groupBy(fresh, ({ labels }) => labels.container ?? "").values()) {
    const started = ({ labels: { id } }: Track): number =>
      id === undefined ? -2 : (at(starts.get(id), index) ?? -1);
    const latest = Math.max(...cgroups.map(started));
    sum +=
      greatest(
        cgroups.filter((track) => started(track) === latest),
        index,
      ) ?? 0;
  }
  return sum;
}

/** A pod on its node's own network has no traffic of its own. */
function podTraffic(
  name: NetworkFigure,
  usage: Usage,
  restarted: readonly SampleSeries[],
  pod: Present,
  index: number,
  step: number,
): number {
  if (pod.hostNetwork) return 0;
  const tracks = new Map(
    podNetwork[name].map(({ metric }) => [
      metric,
      (usage.interfaces.get(metric) ?? []).filter((track) => belongs(track, pod)),
    ]),
  );
  const since = pod.row.timestamp - step;
  // What began since the snapshot before, or too shortly before it to have been measured, counts from 0.
  const began = (pod.start ?? 0) * 1_000 > since - freshness;
  return traffic(podNetwork[name], podInterfaces, { tracks, index, since, restarted, began });
}
