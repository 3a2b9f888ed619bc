// The sources of each figure as data, in the order of preference: the first that has a value wins. The queries, the joins
// and `readout check` all read these tables. The fields are those of the kubelet's Summary API. cAdvisor has the same
// figures at three levels: the node (root cgroup), the pod's cgroup and its containers. The pod's cgroup is what the
// Summary API reports, and its counters continue when a container restarts; processes and disks exist for containers only.
// OpenTelemetry's metrics stand here by their own names; `otel.ts` knows how exporters spell them.
import type { NodesRow, PodsRow } from "../../../src/core/rows.ts";

export const cadvisorMetrics = {
  cpu: "container_cpu_usage_seconds_total",
  rss: "container_memory_rss",
  usage: "container_memory_usage_bytes",
  workingSet: "container_memory_working_set_bytes",
  faults: "container_memory_failures_total",
  processes: "container_processes",
  containerStart: "container_start_time_seconds",
  diskUsed: "container_fs_usage_bytes",
  diskLimit: "container_fs_limit_bytes",
  inodes: "container_fs_inodes_total",
  inodesFree: "container_fs_inodes_free",
  received: "container_network_receive_bytes_total",
  sent: "container_network_transmit_bytes_total",
} as const;

/** Metrics of pods that only kube-state-metrics has, and what rows show without them. */
export const stateMetrics: readonly (readonly [metric: string, consequence: string])[] = [
  ["kube_pod_status_phase", "phase and state are Unknown"],
  ["kube_pod_container_status_running", "containers are not shown as Running"],
  ["kube_pod_container_status_waiting", "containers are not shown as Waiting"],
  ["kube_pod_container_status_terminated", "containers are not shown as Terminated"],
  ["kube_pod_container_status_restarts_total", "pod_restart_count is 0"],
  ["kube_pod_start_time", "pod_uptime_seconds is 0"],
  ["kube_pod_created", "if pods replace each other under one name, the later start decides"],
  ["kube_pod_owner", "owner_references are empty"],
  ["kube_pod_labels", "labels are empty; see --metric-labels-allowlist of kube-state-metrics"],
];

/** Kinds of page faults, as `failure_type` names them. */
export const faultTypes = ["pgfault", "pgmajfault"] as const;
type FaultType = (typeof faultTypes)[number];

/** The names of cores in use, which older versions of OpenTelemetry's kubelet receiver call a utilization. */
function listOtelCpuNames(prefix: string): readonly string[] {
  return [`${prefix}.usage`, `${prefix}.utilization`];
}

// ---- Pods ---------------------------------------------------------------------------------------------------

/** One source of a pod's figure. */
export interface PodSource {
  readonly metric: string;
  /** `containers`: the sum over the pod's containers. */
  readonly level: "pod" | "containers";
  /** `rate`: the growth per second between the two newest samples. */
  readonly of: "value" | "rate";
  readonly fault?: FaultType;
  /** Converts the unit of the metric to that of the field. */
  readonly scale: number;
}

function pod(metric: string, more: Partial<PodSource> = {}): PodSource {
  return { metric, level: "pod", of: "value", scale: 1, ...more };
}

function containers(metric: string, more: Partial<PodSource> = {}): PodSource {
  return pod(metric, { level: "containers", ...more });
}

function listBothLevels(metric: string, more: Partial<PodSource> = {}): readonly PodSource[] {
  return [pod(metric, more), containers(metric, more)];
}

const nano = { scale: 1e9 } as const;
const nanoRate = { scale: 1e9, of: "rate" } as const;

export type PodFigure = Exclude<
  keyof PodsRow & (`${string}_bytes` | `cpu_${string}` | `memory_${string}` | "process_count"),
  `network_${string}`
>;
export const podFigures: Readonly<Record<PodFigure, readonly PodSource[]>> = {
  cpu_usage_nano_cores: [
    ...listBothLevels(cadvisorMetrics.cpu, nanoRate),
    pod("pod_cpu_usage_seconds_total", nanoRate),
    ...listOtelCpuNames("k8s.pod.cpu").map((metric) => pod(metric, nano)),
  ],
  cpu_usage_core_nano_seconds: [
    ...listBothLevels(cadvisorMetrics.cpu, nano),
    pod("pod_cpu_usage_seconds_total", nano),
    pod("k8s.pod.cpu.time", nano),
  ],
  memory_rss_bytes: [...listBothLevels(cadvisorMetrics.rss), pod("k8s.pod.memory.rss")],
  memory_usage_bytes: [...listBothLevels(cadvisorMetrics.usage), pod("k8s.pod.memory.usage")],
  memory_working_set_bytes: [
    ...listBothLevels(cadvisorMetrics.workingSet),
    pod("pod_memory_working_set_bytes"),
    pod("k8s.pod.memory.working_set"),
  ],
  memory_page_faults: [
    ...listBothLevels(cadvisorMetrics.faults, { fault: "pgfault" }),
    pod("k8s.pod.memory.page_faults"),
  ],
  memory_major_page_faults: [
    ...listBothLevels(cadvisorMetrics.faults, { fault: "pgmajfault" }),
    pod("k8s.pod.memory.major_page_faults"),
  ],
  // These exporters have the kubelet's own figure. cAdvisor's does not include volumes and logs.
  ephemeral_storage_used_bytes: [
    pod("ephemeral_storage_pod_usage"),
    pod("k8s.pod.filesystem.usage"),
    containers(cadvisorMetrics.diskUsed),
  ],
  // By default the capacity of the disk of the pod's node, as its own row has it.
  ephemeral_storage_capacity_bytes: [pod("k8s.pod.filesystem.capacity")],
  process_count: [containers(cadvisorMetrics.processes)],
};

export const podSources: readonly PodSource[] = Object.values(podFigures).flat();

/** One source of network figures: the cumulative bytes of an interface. */
export interface NetworkSource {
  readonly metric: string;
  readonly direction?: "receive" | "transmit";
}
/**
 * Which physical interfaces are the network of a pod or node: all of the first kind that it has. The kubelet reports
 * `eth0`. The traffic of a bond is counted again at its slaves, whatever their names are.
 */
export const podInterfaces: readonly RegExp[] = [/^eth0$/, /^/];
export const nodeInterfaces: readonly RegExp[] = [
  /^(?:bond|team)\d+$/,
  /^eth0$/,
  /^(?:en[Popsx]\w+|eth\d+)$/,
  /^/,
];
export const otelPodNetwork = "k8s.pod.network.io";
export type NetworkFigure = "network_rx_bytes" | "network_tx_bytes";
export const podNetwork: Readonly<Record<NetworkFigure, readonly NetworkSource[]>> = {
  network_rx_bytes: [{ metric: cadvisorMetrics.received }, { metric: otelPodNetwork, direction: "receive" }],
  network_tx_bytes: [{ metric: cadvisorMetrics.sent }, { metric: otelPodNetwork, direction: "transmit" }],
};

// ---- Nodes --------------------------------------------------------------------------------------------------

/** One source of a node's figure: a metric, or the difference of two, as in `MemTotal - MemFree`. */
export interface NodeSource {
  readonly metric: string;
  readonly minus?: string;
  readonly of: "value" | "rate";
  readonly fault?: FaultType;
  readonly scale: number;
}

function node(metric: string, more: Partial<NodeSource> = {}): NodeSource {
  return { metric, of: "value", scale: 1, ...more };
}

/** All memory without a part of it. Versions of Windows' exporter name all memory differently. */
function listWindowsMemory(minus: string): readonly NodeSource[] {
  return [
    node("windows_memory_physical_total_bytes", { minus }),
    node("windows_cs_physical_memory_bytes", { minus }),
    node("windows_os_visible_memory_bytes", { minus }),
  ];
}

export type NodeFigure = keyof NodesRow & (`cpu_${string}` | `memory_${string}`);
export const nodeFigures: Readonly<Record<NodeFigure, readonly NodeSource[]>> = {
  cpu_usage_nano_cores: [
    node(cadvisorMetrics.cpu, nanoRate),
    node("node_cpu_usage_seconds_total", nanoRate),
    node("node_cpu_seconds_total", nanoRate),
    node("windows_cpu_time_total", nanoRate),
    ...listOtelCpuNames("k8s.node.cpu").map((metric) => node(metric, nano)),
  ],
  memory_rss_bytes: [
    node(cadvisorMetrics.rss),
    node("node_memory_AnonPages_bytes"),
    node("k8s.node.memory.rss"),
  ],
  memory_usage_bytes: [
    node(cadvisorMetrics.usage),
    node("node_memory_MemTotal_bytes", { minus: "node_memory_MemFree_bytes" }),
    ...listWindowsMemory("windows_memory_physical_free_bytes"),
    ...listWindowsMemory("windows_os_physical_memory_free_bytes"),
    node("k8s.node.memory.usage"),
  ],
  memory_working_set_bytes: [
    node(cadvisorMetrics.workingSet),
    node("node_memory_working_set_bytes"),
    node("node_memory_MemTotal_bytes", { minus: "node_memory_MemAvailable_bytes" }),
    ...listWindowsMemory("windows_memory_available_bytes"),
    node("k8s.node.memory.working_set"),
  ],
  memory_page_faults: [
    node(cadvisorMetrics.faults, { fault: "pgfault" }),
    node("node_vmstat_pgfault"),
    node("windows_memory_page_faults_total"),
    node("k8s.node.memory.page_faults"),
  ],
  memory_major_page_faults: [
    node(cadvisorMetrics.faults, { fault: "pgmajfault" }),
    node("node_vmstat_pgmajfault"),
    node("k8s.node.memory.major_page_faults"),
  ],
};

/** The metrics of a node's disk. All figures come from one source, the first that has a capacity. */
export interface DiskSource {
  readonly capacity: string;
  /** Absent if it is computed: the capacity without what is free or available. */
  readonly used?: string;
  readonly free?: string;
  readonly available?: string;
  readonly inodes?: string;
  readonly inodesFree?: string;
}
export const nodeDisks: readonly DiskSource[] = [
  {
    capacity: cadvisorMetrics.diskLimit,
    used: cadvisorMetrics.diskUsed,
    inodes: cadvisorMetrics.inodes,
    inodesFree: cadvisorMetrics.inodesFree,
  },
  {
    capacity: "node_filesystem_size_bytes",
    free: "node_filesystem_free_bytes",
    available: "node_filesystem_avail_bytes",
    inodes: "node_filesystem_files",
    inodesFree: "node_filesystem_files_free",
  },
  { capacity: "windows_logical_disk_size_bytes", free: "windows_logical_disk_free_bytes" },
  {
    capacity: "k8s.node.filesystem.capacity",
    used: "k8s.node.filesystem.usage",
    available: "k8s.node.filesystem.available",
    inodes: "k8s.node.filesystem.inode.count",
    inodesFree: "k8s.node.filesystem.inode.free",
  },
];

export const nodeNetwork: Readonly<Record<NetworkFigure, readonly NetworkSource[]>> = {
  network_rx_bytes: [
    { metric: cadvisorMetrics.received },
    { metric: "node_network_receive_bytes_total" },
    { metric: "windows_net_bytes_received_total" },
    { metric: "k8s.node.network.io", direction: "receive" },
  ],
  network_tx_bytes: [
    { metric: cadvisorMetrics.sent },
    { metric: "node_network_transmit_bytes_total" },
    { metric: "windows_net_bytes_sent_total" },
    { metric: "k8s.node.network.io", direction: "transmit" },
  ],
};
