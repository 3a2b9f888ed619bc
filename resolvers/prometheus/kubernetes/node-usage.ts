// Joins the series about nodes into rows, one for each node at each snapshot.
import type { Buckets, NodesRow } from "../../../src/core/rows.ts";
import { compareNodes } from "../../../src/store/kubernetes-rules.ts";
import { metricName } from "../client/promql.ts";
import { readLabel } from "../counters/series-reader.ts";
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
import {
  type NameAnswers,
  type NodeNames,
  type NodeSourceKind,
  resolveNodeNames,
  type SourceSeries,
} from "./node-names.ts";
import { exporterCpu, type NodeQueryName, resourceCpu, windowsCpu } from "./queries.ts";
import {
  ensureList,
  findGreatest,
  hasValue,
  readValue,
  type SnapshotAnswers,
  type SnapshotSeries,
} from "./snapshot-series.ts";

/** All series about one node at any snapshot, by metric. */
type NodeSeries = Map<string, SnapshotSeries[]>;

/** The rows of one snapshot, by name. The growth of counters is that since the snapshot at `index - 1`. */
export function buildNodeRows(
  answers: SnapshotAnswers<NodeQueryName>,
  restarted: RestartSamples,
  { start, step }: Buckets,
  index: number,
): NodesRow[] {
  const names = resolveNodeNames(answers, listSources(answers), index);
  const restartedByNode = Map.groupBy(restarted.get(index) ?? [], ({ labels }) => names.find(labels));
  const readyByNode = Map.groupBy(answers.ready, ({ labels }) => names.find(labels));
  const since = start + (index - 1) * step;
  const rows: NodesRow[] = [];
  for (const [name, seriesByMetric] of groupByNode(answers, names, index)) {
    const restartedSeries = restartedByNode.get(name) ?? [];
    const interfaces = { seriesByMetric, index, since, restarted: restartedSeries, countsFromZero: false };
    rows.push({
      timestamp: start + index * step,
      node_name: name,
      cpu_usage_nano_cores: readFigure("cpu_usage_nano_cores", seriesByMetric, index),
      memory_rss_bytes: readFigure("memory_rss_bytes", seriesByMetric, index),
      memory_usage_bytes: readFigure("memory_usage_bytes", seriesByMetric, index),
      memory_working_set_bytes: readFigure("memory_working_set_bytes", seriesByMetric, index),
      memory_page_faults: readFigure("memory_page_faults", seriesByMetric, index),
      memory_major_page_faults: readFigure("memory_major_page_faults", seriesByMetric, index),
      ...readDiskFigures(seriesByMetric, index),
      network_rx_bytes: sumTraffic(nodeNetwork.network_rx_bytes, nodeInterfaces, interfaces),
      network_tx_bytes: sumTraffic(nodeNetwork.network_tx_bytes, nodeInterfaces, interfaces),
      phase: derivePhase(readyByNode.get(name) ?? [], index),
    });
  }
  return rows.sort(compareNodes);
}

function listSources(answers: SnapshotAnswers<NodeQueryName>): SourceSeries {
  const { roots, rootRates, resourceRates, exporters, exporterRates, windows, windowsRates, otel } = answers;
  return [
    [undefined, roots],
    ["cluster", rootRates],
    ["cluster", resourceRates],
    [undefined, exporters],
    ["machine", exporterRates],
    ["machine", windows],
    ["machine", windowsRates],
    ["otel", otel],
  ];
}

/** The series of each node that have a value at the snapshot. */
function groupByNode(
  answers: SnapshotAnswers<NodeQueryName>,
  names: NodeNames,
  index: number,
): ReadonlyMap<string, NodeSeries> {
  const nodes = new Map<string, NodeSeries>();
  const add = (
    series: SnapshotSeries,
    metric = readLabel(series.labels, metricName),
    source?: NodeSourceKind,
  ): void => {
    if (!hasValue(series, index)) return;
    const name = names.find(series.labels, source);
    if (name === undefined) return;
    const node: NodeSeries = nodes.get(name) ?? new Map();
    nodes.set(name, node);
    ensureList(node, formatMetricKey(metric, series.labels.failure_type)).push(series);
  };
  const { addresses, roots, rootRates, resourceRates, exporters, exporterRates, windows, otel } = answers;
  for (const series of [...roots, ...otel]) add(series);
  for (const series of rootRates) add(series, formatRateKey(cadvisorMetrics.cpu));
  for (const series of resourceRates) add(series, formatRateKey(resourceCpu.node), "cluster");
  for (const series of addresses) add(series, "kube_node_info");
  const known = new Set(nodes.keys());
  for (const series of [...exporters, ...windows]) add(series);
  for (const series of exporterRates) add(series, formatRateKey(exporterCpu), "machine");
  for (const series of answers.windowsRates) add(series, formatRateKey(windowsCpu), "machine");
  // Machines outside the cluster run the node exporter too. They are nodes only if nothing else names nodes.
  if (known.size > 0) for (const name of nodes.keys()) if (!known.has(name)) nodes.delete(name);
  return nodes;
}

function formatRateKey(metric: string): string {
  return `rate ${metric}`;
}

function formatMetricKey(metric: string, fault: string | undefined): string {
  return fault === undefined ? metric : `${metric} ${fault}`;
}

/** By the first source that has a value; 0 if none has. */
function readFigure(name: NodeFigure, series: NodeSeries, index: number): number {
  for (const source of nodeFigures[name]) {
    const value = readSource(source, series, index);
    if (value !== undefined) return Math.max(0, Math.round(value * source.scale));
  }
  return 0;
}

function readSource(source: NodeSource, series: NodeSeries, index: number): number | undefined {
  const { metric, minus, of, fault } = source;
  const key = of === "rate" ? formatRateKey(metric) : formatMetricKey(metric, fault);
  const value = findGreatest(series.get(key) ?? [], index);
  if (minus === undefined || value === undefined) return value;
  const less = findGreatest(series.get(minus) ?? [], index);
  return less === undefined ? undefined : value - less;
}

/** The condition `Ready` as the API numbers it. If replicas of the exporter differ, the worse one wins. */
function derivePhase(ready: readonly SnapshotSeries[], index: number): NodesRow["phase"] {
  const hasStatus = (status: string): boolean =>
    ready.some(({ labels, values }) => labels.status === status && values[index] === 1);
  if (hasStatus("false")) return 4;
  return hasStatus("true") && !hasStatus("unknown") ? 2 : 0;
}

// ---- Disks --------------------------------------------------------------------------------------------------

const noDisk = /^(?:tmpfs|shm|overlay|none|rootfs|ramfs)$|(?:^|\/)shm$/;

function readDevice({ labels }: SnapshotSeries): string {
  return labels.device ?? labels.volume ?? "";
}

/** The largest disk: the one with the node's own files, unless a larger one is mounted there. */
function findLargestDisk(disks: readonly SnapshotSeries[], index: number): SnapshotSeries | undefined {
  const readSize = (disk: SnapshotSeries): number => readValue(disk, index) ?? -1;
  return disks
    .filter((disk) => hasValue(disk, index) && !noDisk.test(readDevice(disk)))
    .toSorted((a, b) => (readDevice(a) < readDevice(b) ? -1 : 1))
    .reduce<SnapshotSeries | undefined>(
      (largest, disk) => (largest !== undefined && readSize(largest) >= readSize(disk) ? largest : disk),
      undefined,
    );
}

/** The disk of a node by the first source that has a capacity. */
function findDisk(
  series: ReadonlyMap<string, readonly SnapshotSeries[]>,
  index: number,
): { readonly source: DiskSource; readonly disk: SnapshotSeries } | undefined {
  for (const source of nodeDisks) {
    const disk = findLargestDisk(series.get(source.capacity) ?? [], index);
    if (disk !== undefined) return { source, disk };
  }
  return undefined;
}

type DiskFigures = Pick<
  NodesRow,
  `fs_${"used" | "available" | "capacity"}_bytes` | "fs_inodes" | `fs_inodes_${"free" | "used"}`
>;

function readDiskFigures(series: NodeSeries, index: number): DiskFigures {
  const found = findDisk(series, index);
  if (found !== undefined) return readDisk(found.source, found.disk, series, index);
  return {
    fs_used_bytes: 0,
    fs_available_bytes: 0,
    fs_capacity_bytes: 0,
    fs_inodes_free: 0,
    fs_inodes_used: 0,
    fs_inodes: 0,
  };
}

/** The figures of one disk. A figure that is not exported, nor follows from those that are, is 0. */
function readDisk(source: DiskSource, disk: SnapshotSeries, series: NodeSeries, index: number): DiskFigures {
  const read = (metric: string | undefined): number | undefined => {
    if (metric === undefined) return undefined;
    const ofDisk = (series.get(metric) ?? []).filter((other) => readDevice(other) === readDevice(disk));
    return findGreatest(ofDisk, index);
  };
  const capacity = readValue(disk, index) ?? 0;
  const free = read(source.free);
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

/** The capacity of each node's disk at a snapshot, the same as in the node's row. */
export function readDiskCapacities(
  answers: NameAnswers,
  disks: readonly SnapshotSeries[],
  index: number,
): ReadonlyMap<string, number> {
  const present = disks.filter((disk) => hasValue(disk, index));
  const names = resolveNodeNames(answers, [[undefined, present]], index);
  const byNode = Map.groupBy(present, ({ labels }) => names.find(labels) ?? "");
  return new Map(
    [...byNode].map(([node, ofNode]) => {
      const byMetric = Map.groupBy(ofNode, ({ labels }) => readLabel(labels, metricName));
      return [node, readValue(findDisk(byMetric, index)?.disk, index) ?? 0];
    }),
  );
}
