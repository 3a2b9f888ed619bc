// The model cluster as its exporters show it to Prometheus: series with a sample of every scrape.
import {
  diskOf,
  type Measures,
  type ModelCluster,
  type ModelNode,
  type ModelPod,
  measureContainer,
  measureNode,
  measurePod,
  processesOf,
  received,
  sandbox,
  seeded,
  sent,
  upTimes,
  valueAt,
} from "../../conformance/kubernetes-fixture.ts";

export type Labels = Readonly<Record<string, string>>;
export interface WrittenSeries {
  readonly labels: Labels;
  readonly samples: (readonly [time: number, value: number])[];
}
export type Write = (time: number, name: string, labels: Labels, value: number) => void;

/** Collects samples by labels. `more` is added to each series, as an external label is. */
export function collectSeries(more: Labels): {
  readonly write: Write;
  readonly series: () => WrittenSeries[];
} {
  const held = new Map<string, WrittenSeries>();
  return {
    write: (time, name, labels, value) => {
      // The labels of a metric always have the same order.
      const key = `${name} ${JSON.stringify(labels)}`;
      const series: WrittenSeries = held.get(key) ?? {
        labels: { __name__: name, ...more, ...labels },
        samples: [],
      };
      held.set(key, series);
      series.samples.push([time, value]);
    },
    series: () => [...held.values()],
  };
}

export const scrape = { every: 15_000, offset: 7_000, fresh: 120_000, reach: 300_000 } as const;

/** The times of all scrapes. */
export function* listScrapes(): Generator<number> {
  for (let time = seeded.from + scrape.offset; time <= seeded.to; time += scrape.every) yield time;
}

const exposed = new WeakMap<ModelCluster, Map<string, readonly WrittenSeries[]>>();

/** Two replicas of kube-state-metrics, and cAdvisor with all of its levels. Made once: several suites ask for the same ones. */
export function expose(cluster: ModelCluster, more: Labels): readonly WrittenSeries[] {
  const byLabels = exposed.get(cluster) ?? new Map<string, readonly WrittenSeries[]>();
  exposed.set(cluster, byLabels);
  const key = JSON.stringify(more);
  const series = byLabels.get(key) ?? exposeAnew(cluster, more);
  byLabels.set(key, series);
  return series;
}

function exposeAnew({ nodes, pods }: ModelCluster, more: Labels): readonly WrittenSeries[] {
  const { write, series } = collectSeries(more);
  for (const time of listScrapes()) {
    for (const instance of ["10.9.0.1:8080", "10.9.0.2:8080"]) {
      const ksm: Write = (at, name, labels, value) =>
        write(at, name, { job: "kube-state-metrics", instance, ...labels }, value);
      for (const node of nodes) exposeNodeState(ksm, node, time);
      for (const pod of pods) exposePodState(ksm, pod, time);
    }
    for (const node of nodes) if (isPresent(node.from, node.gone, time)) exposeRoot(write, node, time);
    for (const pod of pods) exposeCgroups(write, pod, time);
  }
  return series();
}

const isPresent = (from: number, until: number | undefined, time: number): boolean =>
  from <= time && (until === undefined || time < until);

function exposeNodeState(write: Write, { name, address, from, gone, ready }: ModelNode, time: number): void {
  if (!isPresent(from, gone, time)) return;
  write(time, "kube_node_info", { node: name, internal_ip: address, kernel_version: "6.1" }, 1);
  for (const condition of ["Ready", "DiskPressure"]) {
    const now = condition === "Ready" ? valueAt(ready, time) : "false";
    for (const status of ["true", "false", "unknown"]) {
      write(time, "kube_node_status_condition", { node: name, condition, status }, status === now ? 1 : 0);
    }
  }
}

function exposePodState(write: Write, pod: ModelPod, time: number): void {
  const { namespace, name, uid, created, started, finished, gone } = pod;
  if (!isPresent(created, gone, time)) return;
  const key = { namespace, pod: name, uid };
  const node = valueAt(pod.node, time);
  const host_network = pod.hostNetwork ? "true" : "false";
  // An unscheduled pod has no label `node`.
  write(
    time,
    "kube_pod_info",
    { ...key, host_network, pod_ip: "10.1.2.3", ...(node !== undefined && { node }) },
    1,
  );
  write(time, "kube_pod_created", key, created / 1_000);
  if (started !== undefined && started <= time) write(time, "kube_pod_start_time", key, started / 1_000);
  if (finished !== undefined && finished <= time)
    write(time, "kube_pod_completion_time", key, finished / 1_000);
  for (const phase of ["Pending", "Running", "Succeeded", "Failed", "Unknown"]) {
    write(time, "kube_pod_status_phase", { ...key, phase }, phase === valueAt(pod.phases, time) ? 1 : 0);
  }
  const owners = pod.owners.length > 0 ? pod.owners : [{ kind: "<none>", name: "<none>" }];
  for (const { kind, name: owner } of owners) {
    write(
      time,
      "kube_pod_owner",
      { ...key, owner_kind: kind, owner_name: owner, owner_is_controller: "true" },
      1,
    );
  }
  const labels = Object.entries(valueAt(pod.labels, time) ?? {}).map(([label, value]) => [
    `label_${label}`,
    value,
  ]);
  write(time, "kube_pod_labels", { ...key, ...Object.fromEntries(labels) }, 1);
  for (const container of pod.containers) exposeContainerState(write, key, container, time);
}

function exposeContainerState(
  write: Write,
  pod: Labels,
  { name, life }: ModelPod["containers"][number],
  time: number,
): void {
  const state = valueAt(life, time);
  if (state === undefined) return;
  const { shown, restarts, lastExit } = state;
  const prefix = "kube_pod_container_status_";
  const key = { ...pod, container: name };
  for (const status of ["Running", "Waiting", "Terminated"] as const) {
    write(time, `${prefix}${status.toLowerCase()}`, key, status === shown.status ? 1 : 0);
  }
  if (shown.status === "Waiting") write(time, `${prefix}waiting_reason`, { ...key, reason: shown.reason }, 1);
  if (shown.status === "Terminated") {
    write(time, `${prefix}terminated_reason`, { ...key, reason: shown.reason }, 1);
  }
  write(time, `${prefix}restarts_total`, key, restarts);
  if (lastExit !== undefined) write(time, `${prefix}last_terminated_exitcode`, key, lastExit);
}

const cadvisor = { job: "kubelet", metrics_path: "/metrics/cadvisor" };

function exposeMeasures(write: Write, time: number, labels: Labels, scope: string, measures: Measures): void {
  const { cpu, rss, usage, workingSet, faults, majorFaults } = measures;
  write(time, "container_cpu_usage_seconds_total", { ...labels, cpu: "total" }, cpu);
  write(time, "container_memory_rss", labels, rss);
  write(time, "container_memory_usage_bytes", labels, usage);
  write(time, "container_memory_working_set_bytes", labels, workingSet);
  const other = scope === "hierarchy" ? "container" : "hierarchy";
  for (const [failure_type, value] of [
    ["pgfault", faults],
    ["pgmajfault", majorFaults],
  ] as const) {
    write(time, "container_memory_failures_total", { ...labels, failure_type, scope }, value);
    write(
      time,
      "container_memory_failures_total",
      { ...labels, failure_type, scope: other },
      value + 1_000_000,
    );
  }
}

function exposeRoot(write: Write, node: ModelNode, time: number): void {
  const labels = { ...cadvisor, node: node.name, instance: `${node.address}:10250`, id: "/" };
  const measured = measureNode(node, time);
  exposeMeasures(write, time, labels, "hierarchy", measured);
  const disk = { ...labels, device: "/dev/sda1" };
  write(time, "container_fs_usage_bytes", disk, measured.diskUsed);
  write(time, "container_fs_limit_bytes", disk, measured.diskLimit);
  write(time, "container_fs_inodes_total", disk, measured.inodes);
  write(time, "container_fs_inodes_free", disk, measured.inodesFree);
  // A memory file system larger than the disk, and the overlays of containers.
  write(time, "container_fs_limit_bytes", { ...labels, device: "tmpfs" }, measured.diskLimit * 10);
  for (const [device, factor] of [
    ["eth0", 1],
    ["eth1", 3],
    ["veth12", 5],
    ["lo", 7],
  ] as const) {
    const network = { ...labels, interface: device };
    write(time, "container_network_receive_bytes_total", network, measured.received * factor);
    write(time, "container_network_transmit_bytes_total", network, measured.sent * factor);
  }
}

/** The cgroup of a pod, as systemd or as cgroupfs spells it. */
function formatCgroup({ namespace, uid, isStatic }: ModelPod): string {
  if (isStatic) return "/kubepods/burstable/pod0123456789abcdef0123456789abcdef";
  return namespace === "shop"
    ? `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod${uid.replaceAll("-", "_")}.slice`
    : `/kubepods/besteffort/pod${uid}`;
}

function exposeCgroups(write: Write, pod: ModelPod, time: number): void {
  const { namespace, name, started, finished, gone } = pod;
  if (started === undefined || !isPresent(started, finished ?? gone, time)) return;
  const cgroup = formatCgroup(pod);
  const node = valueAt(pod.node, time) ?? "";
  const of = { ...cadvisor, node, instance: `${node}:10250`, namespace, pod: name };
  exposeMeasures(write, time, { ...of, id: cgroup }, "hierarchy", measurePod(pod, time));
  // The sandbox: without a container's name, with an image.
  const box = { ...of, id: `${cgroup}/box`, image: "registry.k8s.io/pause:3.9", name: "box" };
  exposeMeasures(write, time, box, "container", { cpu: 0, ...sandbox });
  for (const [device, factor] of [
    ["eth0", 1],
    ["eth7", 2],
  ] as const) {
    const network = { ...box, interface: device };
    write(time, "container_network_receive_bytes_total", network, received(pod, time) * factor);
    write(time, "container_network_transmit_bytes_total", network, sent(pod, time) * factor);
  }
  for (const [position, container] of pod.containers.entries()) {
    for (const [since, until] of upTimes(pod, container)) {
      if (!isPresent(since, until, time)) continue;
      const id = `${cgroup}/cri-${container.name}-${since}.scope`;
      const inside = { ...of, id, container: container.name, image: "shop:1", name: container.name };
      const begun = Math.max(since, started);
      exposeMeasures(write, time, inside, "container", measureContainer(pod.size, position, begun, time));
      write(time, "container_start_time_seconds", inside, begun / 1_000);
      write(time, "container_processes", inside, processesOf(pod, position));
      write(time, "container_fs_usage_bytes", { ...inside, device: "/dev/sda1" }, diskOf(pod, position));
    }
  }
}
