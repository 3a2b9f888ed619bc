// What is seen of a model cluster at a moment, as the Kubernetes store in memory takes it.
import type { Observation } from "#resolvers/memory/stores/kubernetes-store.ts";
import {
  expectNodes,
  expectOverview,
  expectPods,
  grown,
  type ModelCluster,
  measureNode,
  received,
  sent,
} from "./kubernetes-fixture.ts";

export const observed = { every: 15_000, offset: 0, fresh: 15_000, reach: 30_000 };

/** The rows of a moment, with what the network has carried until then for its deltas. */
export function observeModel(cluster: ModelCluster, time: number): Observation {
  const now = { start: time, step: 60_000, count: 1 };
  const overview = expectOverview(cluster, { from: time, to: time }, observed);
  return {
    nodes: expectNodes(cluster, now, observed).map(({ timestamp: _, ...row }) => {
      const node = cluster.nodes.find(({ name }) => name === row.node_name);
      if (node === undefined) throw new Error(row.node_name);
      const carried = (figure: "received" | "sent"): number =>
        grown((at) => measureNode(node, at)[figure], observed, node.from, time);
      return { ...row, network_rx_bytes: carried("received"), network_tx_bytes: carried("sent") };
    }),
    pods: expectPods(cluster, now, observed).map(({ timestamp: _, state: __, ...row }, position) => {
      const { pod_uuid = "", labels = {}, owner_references = [] } = overview[position] ?? {};
      const pod = cluster.pods.find(({ uid }) => uid === pod_uuid);
      const { started = Infinity, finished = Infinity, hostNetwork } = pod ?? {};
      const measured = pod !== undefined && !hostNetwork && started <= time && time < finished;
      return {
        ...row,
        ...{ pod_uuid, labels, owner_references },
        start: started <= time ? started : undefined,
        network_rx_bytes: measured ? received(pod, time) : 0,
        network_tx_bytes: measured ? sent(pod, time) : 0,
      };
    }),
  };
}
