// Kubernetes rows from whole observations of a cluster: what is there at a moment, figure by figure. It is as plain
// as that on purpose, since other stores are compared with it. Only the network's deltas need a second observation.

import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { Refused } from "../../../src/core/errors.ts";
import type { NodesRow, PodOverviewRow, PodsRow } from "../../../src/core/rows.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { KubernetesStore, SnapshotQuery } from "../../../src/store/kubernetes.ts";
import {
  calculateGrowth,
  compareNodes,
  comparePods,
  createOverviewFilter,
  createPodFilter,
  derivePodState,
  toMinuteBuckets,
} from "../../../src/store/kubernetes-rules.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";

/** Every node and pod that exists at a moment. Network figures are counters here, which go on over restarts. */
export interface Observation {
  readonly nodes: readonly Omit<NodesRow, "timestamp">[];
  readonly pods: readonly ObservedPod[];
}
export interface ObservedPod
  extends Omit<PodsRow, "timestamp" | "state">,
    Pick<PodOverviewRow, "pod_uuid" | "labels" | "owner_references"> {
  /** Absent until its node has taken it on. */
  readonly start?: Millis | undefined;
}
/** Undefined when nothing with the forced labels was observed at that moment. */
type Observe = (match: ForcedLabels, time: Millis) => Observation | undefined;

/** What one query observes: each moment once, though it is needed for its own rows and the next one's deltas. */
type Observed = (time: Millis) => Observation | undefined;

export function createMemoryKubernetes(observe: Observe): KubernetesStore {
  return {
    nodes: (query, signal) => {
      const observed = cacheObservations(observe, query.match);
      const accepts = ({ node_name: name }: NodesRow): boolean =>
        query.node === undefined || name === query.node;
      return readSnapshots(query, signal, (time) =>
        listNodes(observed, time, query.snapshots.step).filter(accepts),
      );
    },
    pods: (query, signal) => {
      const observed = cacheObservations(observe, query.match);
      const accepts = createPodFilter(query);
      return readSnapshots(query, signal, (time) =>
        listPods(observed, time, query.snapshots.step).filter(accepts),
      );
    },
    overview: async function* (query, signal) {
      const observed: Observed = (time) => observe(query.match, time);
      const last = new Map<string, PodOverviewRow>();
      const look = (time: Millis): void => {
        for (const row of listOverviews(observed, time))
          last.set(`${row.pod_namespace}/${row.pod_name}`, row);
      };
      const minutes = toMinuteBuckets(query);
      if (minutes !== undefined)
        for await (const time of iterateSnapshotTimes({ snapshots: minutes }, signal)) look(time);
      look(query.to);
      const rows = [...last.values()].filter(createOverviewFilter(query)).sort(comparePods);
      checkLimit(rows.length, query);
      if (rows.length > 0) yield rows;
    },
  };
}

/** The nodes at a moment, sorted. Their network figures are deltas to the moment one step before. */
function listNodes(observed: Observed, time: Millis, step: Millis): NodesRow[] {
  const before = observed(time - step)?.nodes ?? [];
  const counters = new Map(before.map((node) => [node.node_name, node]));
  const rows = (observed(time)?.nodes ?? []).map((node): NodesRow => {
    const earlier = counters.get(node.node_name);
    return {
      timestamp: time,
      ...node,
      network_rx_bytes: calculateGrowth(earlier?.network_rx_bytes, node.network_rx_bytes),
      network_tx_bytes: calculateGrowth(earlier?.network_tx_bytes, node.network_tx_bytes),
    };
  });
  return rows.sort(compareNodes);
}

/** The pods at a moment, as `listNodes`. The counters of one that began since the step before began at 0. */
function listPods(observed: Observed, time: Millis, step: Millis): PodsRow[] {
  const before = observed(time - step)?.pods ?? [];
  const counters = new Map(before.map((pod) => [pod.pod_uuid, pod]));
  const rows = (observed(time)?.pods ?? []).map((pod): PodsRow => {
    const { pod_uuid, labels, owner_references, start, ...figures } = pod;
    const began = start !== undefined && start > time - step;
    const earlier =
      counters.get(pod_uuid) ?? (began ? { network_rx_bytes: 0, network_tx_bytes: 0 } : undefined);
    return {
      timestamp: time,
      ...figures,
      state: derivePodState(pod.phase, pod.containers),
      network_rx_bytes: calculateGrowth(earlier?.network_rx_bytes, pod.network_rx_bytes),
      network_tx_bytes: calculateGrowth(earlier?.network_tx_bytes, pod.network_tx_bytes),
    };
  });
  return rows.sort(comparePods);
}

function listOverviews(observed: Observed, time: Millis): PodOverviewRow[] {
  return (observed(time)?.pods ?? []).map((pod) => ({
    timestamp: time,
    node_name: pod.node_name,
    pod_name: pod.pod_name,
    pod_namespace: pod.pod_namespace,
    pod_uuid: pod.pod_uuid,
    phase: pod.phase,
    labels: pod.labels,
    owner_references: pod.owner_references,
    containers: pod.containers,
    state: derivePodState(pod.phase, pod.containers),
    pod_restart_count: pod.pod_restart_count,
    pod_uptime_seconds: pod.pod_uptime_seconds,
  }));
}

function cacheObservations(observe: Observe, match: ForcedLabels): Observed {
  const known = new Map<Millis, Observation>();
  return (time) => {
    const observation = known.get(time) ?? observe(match, time);
    if (observation !== undefined) known.set(time, observation);
    return observation;
  };
}

/** A batch per snapshot that has rows. They are counted first, so that nothing is sent before it may be refused. */
async function* readSnapshots<Row>(
  query: SnapshotQuery,
  signal: AbortSignal,
  rowsAt: (time: Millis) => readonly Row[],
): AsyncGenerator<readonly Row[]> {
  let count = 0;
  for await (const time of iterateSnapshotTimes(query, signal)) {
    count += rowsAt(time).length;
    checkLimit(count, query);
  }
  for await (const time of iterateSnapshotTimes(query, signal)) {
    const rows = rowsAt(time);
    if (rows.length > 0) yield rows;
  }
}

/** The snapshots' times; between them others get their turn, and an abort is noticed. */
async function* iterateSnapshotTimes(
  { snapshots }: Pick<SnapshotQuery, "snapshots">,
  signal: AbortSignal,
): AsyncGenerator<Millis> {
  signal.throwIfAborted();
  for (let index = 0; index < snapshots.count; index += 1) {
    yield snapshots.start + index * snapshots.step;
    if (index % stride === stride - 1) await yieldToEventLoop();
    signal.throwIfAborted();
  }
}
const stride = 16;

function checkLimit(count: number, { rowLimit }: Pick<SnapshotQuery, "rowLimit">): void {
  if (count <= rowLimit) return;
  const message = `The answer has more than ${rowLimit} rows; narrow the range or the filters`;
  throw new Refused("result_too_large", message, { limit: rowLimit });
}
