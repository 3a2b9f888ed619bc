// The rules of every Kubernetes store, whatever it reads: the state of a pod, the growth of a counter between snapshots,
// the minutes of an overview, filters, and the order of rows.
import {
  type Buckets,
  type Container,
  compare,
  type NodesRow,
  type PodOverviewRow,
  type PodPhase,
  type PodState,
  type PodsRow,
} from "../core/rows.ts";
import { type Millis, minute } from "../core/time.ts";
import type { OverviewFilter, PodFilter } from "./kubernetes.ts";

/** Reasons of a waiting container that do not end by themselves. */
const permanentReasons: ReadonlySet<string> = new Set([
  "CrashLoopBackOff",
  "ImagePullBackOff",
  "ErrImagePull",
  "InvalidImageName",
  "CreateContainerError",
  "CreateContainerConfigError",
  "RunContainerError",
]);

/**
 * Spec, "PodState": derived from the phase and the containers. A final or unknown phase is the state. Otherwise a
 * container that ended with a code other than 0, or that waits for a permanent reason, makes the pod `Failed`; one that
 * waits for another reason makes it `Pending`.
 */
export function derivePodState(phase: PodPhase, containers: readonly Container[]): PodState {
  if (phase !== "Running" && phase !== "Pending") return phase;
  const fails = ({ status, reason, exit_code }: Container): boolean =>
    (status === "Waiting" && permanentReasons.has(reason)) || (status === "Terminated" && exit_code !== 0);
  if (containers.some(fails)) return "Failed";
  return containers.some(({ status }) => status === "Waiting") ? "Pending" : phase;
}

/** The growth of a counter between two snapshots: from 0 where it fell, and 0 where the earlier value is unknown. */
export function calculateGrowth(before: number | undefined, now: number): number {
  if (before === undefined) return 0;
  return now < before ? now : now - before;
}

/** The full minutes from `from` to `to`; undefined without any. */
export function toMinuteBuckets({
  from,
  to,
}: {
  readonly from: Millis;
  readonly to: Millis;
}): Buckets | undefined {
  const start = Math.ceil(from / minute) * minute;
  const count = Math.floor((to - start) / minute) + 1;
  return count > 0 ? { start, step: minute, count } : undefined;
}

/** The order of the contract: by time, namespace and name. */
export function comparePods(
  a: Pick<PodsRow, "timestamp" | "pod_namespace" | "pod_name">,
  b: Pick<PodsRow, "timestamp" | "pod_namespace" | "pod_name">,
): number {
  return (
    a.timestamp - b.timestamp || compare(a.pod_namespace, b.pod_namespace) || compare(a.pod_name, b.pod_name)
  );
}

export function compareNodes(a: NodesRow, b: NodesRow): number {
  return a.timestamp - b.timestamp || compare(a.node_name, b.node_name);
}

export function createPodFilter({
  namespaces,
  pods = [],
  nodes,
  state,
}: PodFilter): (row: PodsRow) => boolean {
  const namespaceSet = new Set(namespaces);
  const podSet = new Set(pods);
  const nodeSet = new Set(nodes);
  return (row) =>
    (namespaceSet.size === 0 || namespaceSet.has(row.pod_namespace)) &&
    (podSet.size === 0 || podSet.has(row.pod_name)) &&
    (nodeSet.size === 0 || nodeSet.has(row.node_name)) &&
    (state === undefined || row.state === state);
}

export function createOverviewFilter({ namespaces, text }: OverviewFilter): (row: PodOverviewRow) => boolean {
  const namespaceSet = new Set(namespaces);
  const part = text.toLowerCase();
  const holds = (name: string): boolean => name.toLowerCase().includes(part);
  return (row) =>
    (namespaceSet.size === 0 || namespaceSet.has(row.pod_namespace)) &&
    (part === "" ||
      [row.pod_name, row.pod_namespace, row.node_name].some(holds) ||
      row.owner_references.some(({ name }) => holds(name)) ||
      Object.entries(row.labels).some(([key, value]) => holds(`${key}=${value}`)));
}
