// Joins what Prometheus tells of nodes into rows, without asking anything. Three parties name a node differently: the
// cluster (`node`), the machine itself (`node_uname_info`) and the scraper (`instance`); the cluster's names win.

import type { Buckets, NodesRow } from "../../../src/core/rows.ts";
import { compareNodes } from "../../../src/store/kubernetes-rules.ts";
import { metricName } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  cadvisorMetrics,
  type DiskSource,
  type NodeFigure,
  type NodeSource,
  nodeDisks,
  nodeFigures,
  nodeInterfaces,
  nodeNetwork,
} from "./metric-sources.ts";
import { type RestartSamples, sumTraffic } from "./network.ts";
import { exporterCpu, type NodeQueryName, resourceCpu } from "./queries.ts";
import {
  ensureList,
  findGreatest,
  findNewest,
  hasValue,
  readValue,
  type SnapshotAnswers,
  type SnapshotSeries,
} from "./snapshot-series.ts";

/** Finds the node that a series tells of at one snapshot. */
interface NodeNames {
  /** Names that the cluster itself uses. */
  readonly nodes: ReadonlySet<string>;
  readonly find: (labels: Labels) => string | undefined;
}

export function resolveNodeNames(
  {
    addresses,
    addressed,
    unames,
    uttered,
  }: Pick<SnapshotAnswers<NodeQueryName>, "addresses" | "addressed" | "unames" | "uttered">,
  index: number,
): NodeNames {
  const nodes = new Set(
    addresses.flatMap((track) => (hasValue(track, index) ? (track.labels.node ?? []) : [])),
  );
  const byAddress = new Map<string, string>();
  for (const [address, tracks] of Map.groupBy(addresses, ({ labels }) => labels.internal_ip)) {
    // A machine that was renamed, or an address that was given anew, is known by two names for a while.
    const node = findNewest(tracks, addressed, index)?.labels.node;
    if (address !== undefined && node !== undefined) byAddress.set(address, node);
  }
  const byInstance = new Map<string, string>();
  for (const [instance, tracks] of Map.groupBy(unames, ({ labels }) => labels.instance ?? "")) {
    const name = findNewest(tracks, uttered, index)?.labels.nodename;
    if (name !== undefined) byInstance.set(instance, name);
  }
  const find = ({ node, k8s_node_name: told, instance = "" }: Labels): string | undefined => {
    const own = node ?? told;
    if (own !== undefined) return own;
    const host = instance.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
    // A scraper may be told to call instances as the cluster does, whatever a machine calls itself.
    if (nodes.has(host)) return host;
    const spoken = byInstance.get(instance);
    if (spoken !== undefined && nodes.has(spoken)) return spoken;
    return byAddress.get(host) ?? spoken ?? (host === "" ? undefined : host);
  };
  return { nodes, find };
}

/** All that is known of one node at any snapshot, by metric. */
type NodeSeries = Map<string, SnapshotSeries[]>;

/** The rows of one snapshot; the one before it is at `index - 1`. */
export function buildNodeRows(
  answers: SnapshotAnswers<NodeQueryName>,
  restarted: RestartSamples,
  { start, step }: Buckets,
  index: number,
): NodesRow[] {
  const naming = resolveNodeNames(answers, index);
  const restartedOf = Map.groupBy(restarted.get(index) ?? [], ({ labels }) => naming.find(labels));
  const readyOf = Map.groupBy(answers.ready, ({ labels }) => labels.node);
  const since = start + (index - 1) * step;
  const nodes = new Map<string, NodeSeries>();
  const keep = (track: SnapshotSeries, metric = track.labels[metricName] ?? ""): void => {
    if (!hasValue(track, index)) return;
    const name = naming.find(track.labels);
    if (name === undefined) return;
    const held = nodes.get(name) ?? new Map();
    nodes.set(name, held);
    ensureList(held, formatMetricKey(metric, track.labels.failure_type)).push(track);
  };
  const { addresses, roots, rootRates, resourceRates, exporters, exporterRates, otel } = answers;
  for (const track of [...roots, ...otel]) keep(track);
  for (const track of rootRates) keep(track, formatRateKey(cadvisorMetrics.cpu));
  for (const track of resourceRates) keep(track, formatRateKey(resourceCpu.node));
  for (const track of addresses) keep(track, "kube_node_info");
  // Machines that are no nodes run the node exporter too; they count only where nothing knows the nodes.
  const known = nodes.size > 0 ? new Set(nodes.keys()) : undefined;
  for (const track of exporters) keep(track);
  for (const track of exporterRates) keep(track, formatRateKey(exporterCpu));
  const rows: NodesRow[] = [];
  for (const [name, tracks] of nodes) {
    if (known !== undefined && !known.has(name)) continue;
    const interfaces = {
      seriesByMetric: tracks,
      index,
      since,
      restarted: restartedOf.get(name) ?? [],
      countsFromZero: false,
    };
    rows.push({
      timestamp: start + index * step,
      node_name: name,
      cpu_usage_nano_cores: readFigure("cpu_usage_nano_cores", tracks, index),
      memory_rss_bytes: readFigure("memory_rss_bytes", tracks, index),
      memory_usage_bytes: readFigure("memory_usage_bytes", tracks, index),
      memory_working_set_bytes: readFigure("memory_working_set_bytes", tracks, index),
      memory_page_faults: readFigure("memory_page_faults", tracks, index),
      memory_major_page_faults: readFigure("memory_major_page_faults", tracks, index),
      ...readDiskFigures(tracks, index),
      network_rx_bytes: sumTraffic(nodeNetwork.network_rx_bytes, nodeInterfaces, interfaces),
      network_tx_bytes: sumTraffic(nodeNetwork.network_tx_bytes, nodeInterfaces, interfaces),
      phase: derivePhase(readyOf.get(name) ?? [], index),
    });
  }
  return rows.sort(compareNodes);
}

const formatRateKey = (metric: string): string => `rate ${metric}`;
const formatMetricKey = (metric: string, fault: string | undefined): string =>
  fault === undefined ? metric : `${metric} ${fault}`;

function readFigure(name: NodeFigure, tracks: NodeSeries, index: number): number {
  for (const source of nodeFigures[name]) {
    const value = readSource(source, tracks, index);
    if (value !== undefined) return Math.max(0, Math.round(value * source.scale));
  }
  return 0;
}

function readSource(source: NodeSource, tracks: NodeSeries, index: number): number | undefined {
  const { metric, minus, of, fault } = source;
  const key = of === "rate" ? formatRateKey(metric) : formatMetricKey(metric, fault);
  const value = findGreatest(tracks.get(key) ?? [], index);
  if (minus === undefined || value === undefined) return value;
  const less = findGreatest(tracks.get(minus) ?? [], index);
  return less === undefined ? undefined : value - less;
}

/** The condition `Ready`, as the contract numbers it. */
function derivePhase(ready: readonly SnapshotSeries[], index: number): NodesRow["phase"] {
  const is = (status: string): boolean =>
    ready.some(({ labels, values }) => labels.status === status && values[index] === 1);
  // While replicas of the exporter disagree, the worse one is believed.
  if (is("false")) return 4;
  return is("true") && !is("unknown") ? 2 : 0;
}

// ---- Disks --------------------------------------------------------------------------------------------------

const noDisk = /^(?:tmpfs|shm|overlay|none|rootfs|ramfs)$|(?:^|\/)shm$/;

/** The largest disk: the one with the node's own files, unless its owner has mounted a larger one there. */
function findLargestDisk(tracks: readonly SnapshotSeries[], index: number): SnapshotSeries | undefined {
  const size = (track: SnapshotSeries): number => readValue(track, index) ?? -1;
  const disks = tracks.filter((track) => hasValue(track, index) && !noDisk.test(track.labels.device ?? ""));
  return disks
    .toSorted((a, b) => ((a.labels.device ?? "") < (b.labels.device ?? "") ? -1 : 1))
    .reduce<SnapshotSeries | undefined>(
      (best, disk) => (best !== undefined && size(best) >= size(disk) ? best : disk),
      undefined,
    );
}

type DiskFigures = Pick<
  NodesRow,
  `fs_${"used" | "available" | "capacity"}_bytes` | "fs_inodes" | `fs_inodes_${"free" | "used"}`
>;
function readDiskFigures(tracks: NodeSeries, index: number): DiskFigures {
  for (const source of nodeDisks) {
    const disk = findLargestDisk(tracks.get(source.capacity) ?? [], index);
    if (disk !== undefined) return readDisk(source, disk, tracks, index);
  }
  return {
    fs_used_bytes: 0,
    fs_available_bytes: 0,
    fs_capacity_bytes: 0,
    fs_inodes_free: 0,
    fs_inodes_used: 0,
    fs_inodes: 0,
  };
}

function readDisk(source: DiskSource, disk: SnapshotSeries, tracks: NodeSeries, index: number): DiskFigures {
  const read = (metric: string | undefined): number | undefined => {
    const same = (tracks.get(metric ?? "") ?? []).filter(
      ({ labels }) => labels.device === disk.labels.device,
    );
    return findGreatest(same, index);
  };
  const capacity = readValue(disk, index) ?? 0;
  const free = read(source.free);
  // Nothing is worked out from what nobody tells.
  const used = read(source.used) ?? (free === undefined ? undefined : capacity - free);
  const inodes = read(source.inodes) ?? 0;
  const inodesFree = read(source.inodesFree);
  return {
    fs_used_bytes: used ?? 0,
    fs_available_bytes: read(source.available) ?? (used === undefined ? 0 : capacity - used),
    fs_capacity_bytes: capacity,
    fs_inodes_free: inodesFree ?? 0,
    fs_inodes_used: Math.max(0, inodes - (inodesFree ?? inodes)),
    fs_inodes: inodes,
  };
}

/** The capacity of each node's disk at a snapshot. */
export function readDiskCapacities(
  disks: readonly SnapshotSeries[],
  naming: NodeNames,
  index: number,
): ReadonlyMap<string, number> {
  const byNode = Map.groupBy(disks, ({ labels }) => naming.find(labels) ?? "");
  return new Map(
    [...byNode].map(([node, tracks]) => [node, readValue(findLargestDisk(tracks, index), index) ?? 0]),
  );
}
