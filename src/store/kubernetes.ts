// Nodes and pods: the contract of a Kubernetes store, and its queries. `kubernetes-rules.ts` has what all of them agree on.
// The promises of every store (`backend.ts`) hold here too.
import type { Buckets, NodesRow, PodOverviewRow, PodState, PodsRow } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { ForcedLabels } from "./metrics.ts";

/**
 * The promises of `LogStore` hold here too. Rows come by `timestamp`, then namespace, then name. A row shows the newest
 * that is known at its snapshot, within a bound that the store states: so what is gone may be shown until the bound is
 * over. A refusal comes before the first batch. What stores must agree on is in `kubernetes.ts`.
 */
export interface KubernetesStore {
  /** A row per node at each snapshot. @throws {Refused} `result_too_large` over `rowLimit` @throws {BackendError} */
  nodes(query: SnapshotQuery & NodeFilter, signal: AbortSignal): AsyncIterable<readonly NodesRow[]>;
  /** A row per pod at each snapshot: of pods that replaced each other under one name, the newest. Errors as `nodes`. */
  pods(query: SnapshotQuery & PodFilter, signal: AbortSignal): AsyncIterable<readonly PodsRow[]>;
  /** One row per pod that is seen, as it was when it was seen last. Errors as `nodes`. */
  overview(
    query: OverviewQuery & OverviewFilter,
    signal: AbortSignal,
  ): AsyncIterable<readonly PodOverviewRow[]>;
}

/** Snapshots are taken at `start + i * step`; the deltas of the first are taken against the moment one step before. */
export interface SnapshotQuery {
  readonly match: ForcedLabels;
  readonly snapshots: Buckets;
  readonly rowLimit: number;
}

/** Pods are looked for at each full minute from `from` to `to`, and at `to`. */
export interface OverviewQuery {
  readonly match: ForcedLabels;
  readonly from: Millis;
  readonly to: Millis;
  readonly rowLimit: number;
}

/** Absent or empty filters let everything pass. */
export interface NodeFilter {
  readonly node?: string | undefined;
}

export interface PodFilter {
  readonly namespaces: readonly string[];
  readonly pod?: string | undefined;
  readonly nodes: readonly string[];
  readonly state?: PodState | undefined;
}

export interface OverviewFilter {
  readonly namespaces: readonly string[];
  /** Case-insensitive part of the pod's, namespace's, node's or an owner's name, or of a `label=value`. */
  readonly text: string;
}
