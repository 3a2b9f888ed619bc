// Nodes and pods: the contract of a Kubernetes store, and its queries. `kubernetes-rules.ts` has what all of them agree on.
// The promises of every store (`backend.ts`) hold here too.
import type { Buckets, NodesRow, PodOverviewRow, PodState, PodsRow } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { ForcedLabels } from "./metrics.ts";

/**
 * Rows are sorted by `timestamp`, then namespace, then name. A row shows the newest samples at its snapshot that are not
 * older than a bound which the store states, so an object may still be shown for that long after it has gone. A store
 * refuses before the first batch or not at all.
 */
export interface KubernetesStore {
  /** Returns a row for each node at each snapshot. @throws {Refused} `result_too_large` over `rowLimit` @throws {BackendError} */
  nodes(query: SnapshotQuery & NodeFilter, signal: AbortSignal): AsyncIterable<readonly NodesRow[]>;
  /** Returns a row for each pod name at each snapshot: of several pods of one name, the newest. Errors as `nodes`. */
  pods(query: SnapshotQuery & PodFilter, signal: AbortSignal): AsyncIterable<readonly PodsRow[]>;
  /** Returns a row for each pod of the range, as it was last. Errors as `nodes`. */
  overview(
    query: OverviewQuery & OverviewFilter,
    signal: AbortSignal,
  ): AsyncIterable<readonly PodOverviewRow[]>;
  /**
   * Returns the pods that are known by their usage alone, at each snapshot, in no order: they have no rows. Absent where a
   * source has usage only of pods that it has. @throws {BackendError}
   */
  listOrphanedUsage?(
    query: SnapshotQuery & Pick<PodFilter, "namespaces" | "pods">,
    signal: AbortSignal,
  ): Promise<readonly PodAtTime[]>;
}

export type PodAtTime = Pick<PodsRow, "timestamp" | "pod_namespace" | "pod_name">;

/** The snapshots are at `start + i * step`. Growth is counted since the snapshot before, also one before `start`. */
export interface SnapshotQuery {
  readonly match: ForcedLabels;
  readonly snapshots: Buckets;
  readonly rowLimit: number;
}

/** Pods are those of each full minute from `from` to `to`, and of `to`. */
export interface OverviewQuery {
  readonly match: ForcedLabels;
  readonly from: Millis;
  readonly to: Millis;
  readonly rowLimit: number;
}

/** A filter that is absent or empty accepts everything. */
export interface NodeFilter {
  readonly node?: string | undefined;
}

export interface PodFilter {
  readonly namespaces: readonly string[];
  /** By their names. */
  readonly pods?: readonly string[] | undefined;
  readonly nodes: readonly string[];
  readonly state?: PodState | undefined;
}

export interface OverviewFilter {
  readonly namespaces: readonly string[];
  /** Part of the name of the pod, its namespace, node or an owner, or of a `label=value`; case does not matter. */
  readonly text: string;
}
