// What is seen of a model cluster at a moment, as the Kubernetes store in memory takes it.
import type { Observation } from "#resolvers/memory/stores/kubernetes-store.ts";
import { requireAt, requireLast } from "#src/core/collections.ts";
import {
  expectNodes,
  expectOverview,
  expectPods,
  grown,
  type ModelCluster,
  type ModelNode,
  measureNode,
  received,
  sent,
} from "./kubernetes-fixture.ts";

export const observed = { every: 15_000, offset: 0, fresh: 15_000, reach: 30_000 };

const observations = new WeakMap<ModelCluster, Map<number, Observation>>();

/** The rows of a moment, with what the network has carried until then for its deltas. Queries observe the same moments. */
export function observeModel(cluster: ModelCluster, time: number): Observation {
  const known = observations.get(cluster) ?? new Map<number, Observation>();
  observations.set(cluster, known);
  const observation = known.get(time) ?? observeAnew(cluster, time);
  known.set(time, observation);
  return observation;
}

type Carried = "received" | "sent";
const carriedByNode = new WeakMap<ModelNode, Record<Carried, number[]>>();

/** What the network of a node has carried since its first scrape; sums are kept, since each is one scrape more. */
function sumCarried(node: ModelNode, figure: Carried, time: number): number {
  const known = carriedByNode.get(node) ?? { received: [0], sent: [0] };
  carriedByNode.set(node, known);
  const sums = known[figure];
  const wanted = Math.max(0, Math.floor((time - node.from) / observed.every));
  while (sums.length <= wanted) {
    const last = node.from + (sums.length - 1) * observed.every;
    const more = grown((at) => measureNode(node, at)[figure], observed, last, last + observed.every);
    sums.push(requireLast(sums) + more);
  }
  return requireAt(sums, wanted);
}

function observeAnew(cluster: ModelCluster, time: number): Observation {
  const now = { start: time, step: 60_000, count: 1 };
  const overview = expectOverview(cluster, { from: time, to: time }, observed);
  return {
    nodes: expectNodes(cluster, now, observed).map(({ timestamp: _, ...row }) => {
      const node = cluster.nodes.find(({ name }) => name === row.node_name);
      if (node === undefined) throw new Error(row.node_name);
      return {
        ...row,
        network_rx_bytes: sumCarried(node, "received", time),
        network_tx_bytes: sumCarried(node, "sent", time),
      };
    }),
    pods: expectPods(cluster, now, observed).map(({ timestamp: _, state: __, ...row }, position) => {
      const { pod_uuid = "", labels = {}, owner_references = [] } = requireAt(overview, position);
      const pod = cluster.pods.find(({ uid }) => uid === pod_uuid);
      const { started = Infinity, finished = Infinity, hostNetwork } = pod ?? {};
      const measured = pod !== undefined && !hostNetwork && started <= time && time < finished;
      return {
        ...row,
        pod_uuid,
        labels,
        owner_references,
        start: started <= time ? started : undefined,
        network_rx_bytes: measured ? received(pod, time) : 0,
        network_tx_bytes: measured ? sent(pod, time) : 0,
      };
    }),
  };
}
