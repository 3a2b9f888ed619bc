// Joins what kube-state-metrics tells into the pods of each snapshot, without asking anything. Pods that replaced each
// other under one name overlap for as long as samples are fresh; so do a container's reasons, and the twins of replicated
// exporters. Each overlap has one rule here, so that an answer never depends on the order of series.

import {
  type Buckets,
  type Container,
  compare,
  type OwnerReference,
  type PodOverviewRow,
  type PodPhase,
  type PodsRow,
} from "../../../src/core/rows.ts";
import { derivePodState } from "../../../src/store/kubernetes-rules.ts";
import { metricName } from "../client/promql.ts";
import type { IdentityQueryName, StateQueryName } from "./queries.ts";
import {
  ensureList,
  findGreatest,
  findNewest,
  hasValue,
  type SnapshotAnswers,
  type SnapshotSeries,
} from "./snapshot-series.ts";

/** Every pod that had a name within the snapshots. */
interface NamedPod {
  readonly namespace: string;
  readonly name: string;
  /** By uid. */
  readonly instances: Map<string, PodInstance>;
  /** When each of their `infos` was told last. */
  readonly infoTimes: SnapshotSeries[];
}
/** One pod: what has one uid. */
interface PodInstance {
  readonly uid: string;
  readonly infos: SnapshotSeries[];
  readonly phases: SnapshotSeries[];
  readonly containers: Map<string, ContainerSeries>;
  /** `kube_pod_created` and its like, by name. */
  readonly times: Map<string, SnapshotSeries[]>;
}
interface ContainerSeries {
  readonly name: string;
  /** By status. */
  readonly flags: Map<string, SnapshotSeries[]>;
  readonly waits: SnapshotSeries[];
  readonly ends: SnapshotSeries[];
  readonly exitCodes: SnapshotSeries[];
  readonly restarts: SnapshotSeries[];
  /** Where it is told of no more. */
  readonly dropped: SnapshotSeries[];
}

/** A pod as it is at one snapshot, without its figures. */
export interface PodSnapshot {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly node: string;
  readonly hostNetwork: boolean;
  /** Seconds. */
  readonly start: number | undefined;
  readonly row: Pick<
    PodsRow,
    | "timestamp"
    | `pod_${"name" | "namespace" | "restart_count" | "uptime_seconds"}`
    | "node_name"
    | "phase"
    | "state"
    | "containers"
  >;
}

const flagPrefix = "kube_pod_container_status_";

/** The pods of each snapshot, one per name, by namespace and name. */
export function joinPodState(
  answers: SnapshotAnswers<StateQueryName>,
  snapshots: Buckets,
): (index: number) => PodSnapshot[] {
  const pods = new Map<string, NamedPod>();
  // kube-state-metrics 1 names the uid in `kube_pod_info` alone; all else tells of whoever has the name.
  const holdersOf = ({ labels }: SnapshotSeries): readonly PodInstance[] => {
    const { namespace = "", pod: name = "", uid = "" } = labels;
    const holders = pods.get(formatPodKey(namespace, name))?.instances;
    if (uid === "") return [...(holders?.values() ?? [])];
    const holder = holders?.get(uid);
    return holder === undefined ? [] : [holder];
  };
  const containersOf = (track: SnapshotSeries): readonly ContainerSeries[] => {
    const { container: name } = track.labels;
    if (name === undefined) return [];
    return holdersOf(track).map(({ containers }) => {
      const held = containers.get(name);
      if (held !== undefined) return held;
      const made = { name, flags: new Map(), waits: [], ends: [], exitCodes: [], restarts: [], dropped: [] };
      containers.set(name, made);
      return made;
    });
  };
  for (const track of answers.infos) {
    const { namespace = "", pod: name = "", uid = "" } = track.labels;
    const key = formatPodKey(namespace, name);
    const pod: NamedPod = pods.get(key) ?? { namespace, name, instances: new Map(), infoTimes: [] };
    pods.set(key, pod);
    const holder: PodInstance = pod.instances.get(uid) ?? {
      uid,
      infos: [],
      phases: [],
      containers: new Map(),
      times: new Map(),
    };
    pod.instances.set(uid, holder);
    holder.infos.push(track);
  }
  for (const track of answers.informed) {
    const { namespace = "", pod: name = "" } = track.labels;
    pods.get(formatPodKey(namespace, name))?.infoTimes.push(track);
  }
  for (const track of answers.flags) {
    const metric = track.labels[metricName] ?? "";
    if (metric === "kube_pod_status_phase") for (const { phases } of holdersOf(track)) phases.push(track);
    else {
      const status = metric.slice(flagPrefix.length);
      for (const { flags } of containersOf(track)) ensureList(flags, status).push(track);
    }
  }
  for (const track of answers.dropped) for (const { dropped } of containersOf(track)) dropped.push(track);
  for (const track of answers.reasons) {
    const waits = track.labels[metricName] === `${flagPrefix}waiting_reason`;
    for (const container of containersOf(track)) (waits ? container.waits : container.ends).push(track);
  }
  for (const track of answers.numbers) {
    const metric = track.labels[metricName] ?? "";
    if (metric === `${flagPrefix}restarts_total`) {
      for (const { restarts } of containersOf(track)) restarts.push(track);
    } else if (metric === `${flagPrefix}last_terminated_exitcode`) {
      for (const { exitCodes } of containersOf(track)) exitCodes.push(track);
    } else for (const { times } of holdersOf(track)) ensureList(times, metric).push(track);
  }
  const sorted = [...pods.values()].sort(
    (a, b) => compare(a.namespace, b.namespace) || compare(a.name, b.name),
  );
  return (index) =>
    sorted.flatMap((pod) => {
      const holder = findCurrentInstance(pod, index);
      return holder === undefined ? [] : [buildPodSnapshot(pod, holder, answers, snapshots, index)];
    });
}

/** By which a pod's name is looked up: neither part has a slash. */
export const formatPodKey = (namespace: string, name: string): string => `${namespace}/${name}`;
const readTime = ({ times }: PodInstance, metric: string, index: number): number | undefined =>
  findGreatest(times.get(metric) ?? [], index);

/** The newest of the pods that have the name at a snapshot; where no times of creation tell, the one told of last. */
function findCurrentInstance(
  { instances: holders, infoTimes: informed }: NamedPod,
  index: number,
): PodInstance | undefined {
  const born = (holder: PodInstance): number =>
    readTime(holder, "kube_pod_created", index) ?? readTime(holder, "kube_pod_start_time", index) ?? -1;
  const present = [...holders.values()].filter(({ infos }) => infos.some((track) => hasValue(track, index)));
  if (present.length < 2) return present[0];
  const latest = Math.max(...present.map(born));
  const infos = present.filter((holder) => born(holder) === latest).flatMap((holder) => holder.infos);
  return holders.get(findNewest(infos, informed, index)?.labels.uid ?? "");
}

/** While replicas of the exporter disagree, the phase that is later in a pod's life is believed. */
const phaseOrder: readonly PodPhase[] = ["Failed", "Succeeded", "Unknown", "Running", "Pending"];
const finalPhases: ReadonlySet<PodPhase> = new Set(["Failed", "Succeeded"]);

function buildPodSnapshot(
  { namespace, name, infoTimes: informed }: NamedPod,
  holder: PodInstance,
  answers: SnapshotAnswers<StateQueryName>,
  { start: first, step }: Buckets,
  index: number,
): PodSnapshot {
  const infos = holder.infos.filter((track) => hasValue(track, index));
  // A pod that was just placed has a series without a node as well; pods without uids may have followed one another.
  const placed = infos.filter(({ labels: { node = "" } }) => node !== "");
  const info = findNewest(placed.length > 0 ? placed : infos, informed, index);
  const phases = new Set(
    holder.phases.filter((track) => hasValue(track, index)).map(({ labels }) => labels.phase),
  );
  const phase = phaseOrder.find((candidate) => phases.has(candidate)) ?? "Unknown";
  // An evicted pod has lost its containers at once; after a scrape that failed nothing is told of the pod either.
  const isTold = informed.some((track) => (track.labels.uid ?? "") === holder.uid && hasValue(track, index));
  const tracks = [...holder.containers.values()]
    .filter(({ dropped }) => !isTold || !dropped.some((track) => hasValue(track, index)))
    .sort((a, b) => compare(a.name, b.name));
  const containers = tracks.flatMap((container) => buildContainer(container, phase, answers, index) ?? []);
  const restarts = tracks.reduce((sum, container) => sum + (findGreatest(container.restarts, index) ?? 0), 0);
  const timestamp = first + index * step;
  const start = readTime(holder, "kube_pod_start_time", index);
  const completion = finalPhases.has(phase) ? readTime(holder, "kube_pod_completion_time", index) : undefined;
  const uptime = start === undefined ? 0 : (completion ?? timestamp / 1_000) - start;
  return {
    namespace,
    name,
    uid: holder.uid,
    node: info?.labels.node ?? "",
    hostNetwork: info?.labels.host_network === "true",
    start,
    row: {
      timestamp,
      pod_name: name,
      pod_namespace: namespace,
      node_name: info?.labels.node ?? "",
      phase,
      state: derivePodState(phase, containers),
      containers,
      pod_restart_count: restarts,
      pod_uptime_seconds: Math.max(0, Math.floor(uptime)),
    },
  };
}

/** Undefined while nothing is told of the container. The worse status wins while replicas disagree. */
function buildContainer(
  { name, flags, waits, ends, exitCodes, restarts }: ContainerSeries,
  phase: PodPhase,
  answers: SnapshotAnswers<StateQueryName>,
  index: number,
): Container | undefined {
  const is = (status: string): boolean => (flags.get(status) ?? []).some((track) => hasValue(track, index));
  const reasonOf = (reasons: readonly SnapshotSeries[], taken: readonly SnapshotSeries[]): string =>
    findNewest(reasons, taken, index)?.labels.reason ?? "";
  const lastExit = findGreatest(exitCodes, index);
  if (is("terminated")) {
    const reason = reasonOf(ends, answers.ends);
    const good = reason === "Completed" || phase === "Succeeded";
    const code = good ? 0 : (lastExit ?? (reason === "OOMKilled" ? 137 : 1));
    return { name, status: "Terminated", exit_code: code, reason };
  }
  if (is("waiting")) {
    return { name, status: "Waiting", exit_code: lastExit ?? 0, reason: reasonOf(waits, answers.waits) };
  }
  if (is("running")) return { name, status: "Running", exit_code: 0, reason: "" };
  return restarts.some((track) => hasValue(track, index))
    ? { name, status: "Unknown", exit_code: 0, reason: "" }
    : undefined;
}

// ---- Identity -----------------------------------------------------------------------------------------------

/** What the overview tells of a pod besides its state. */
export function joinOverviewRows(
  answers: SnapshotAnswers<IdentityQueryName>,
): (pods: readonly PodSnapshot[], index: number) => PodOverviewRow[] {
  const byUid = (tracks: readonly SnapshotSeries[]): ReadonlyMap<string, readonly SnapshotSeries[]> =>
    Map.groupBy(tracks, ({ labels }) => formatUidKey(labels.namespace, labels.pod, labels.uid ?? ""));
  const owners = byUid(answers.owners);
  const labels = byUid(answers.labels);
  const labelled = byUid(answers.labelled);
  return (pods, index) =>
    pods.map(({ namespace, name, uid, row }): PodOverviewRow => {
      // As with all else, what names no uid tells of whoever has the name.
      const keys = new Set([formatUidKey(namespace, name, uid), formatUidKey(namespace, name, "")]);
      const of = (tracks: ReadonlyMap<string, readonly SnapshotSeries[]>): readonly SnapshotSeries[] =>
        [...keys].flatMap((key) => tracks.get(key) ?? []);
      const told = findNewest(of(labels), of(labelled), index);
      return {
        timestamp: row.timestamp,
        node_name: row.node_name,
        pod_name: name,
        pod_namespace: namespace,
        pod_uuid: uid,
        phase: row.phase,
        labels: readPodLabels(told),
        owner_references: listOwners(of(owners), namespace, index),
        containers: row.containers,
        state: row.state,
        pod_restart_count: row.pod_restart_count,
        pod_uptime_seconds: row.pod_uptime_seconds,
      };
    });
}

const formatUidKey = (...parts: readonly (string | undefined)[]): string => JSON.stringify(parts);

/** Keys as the exporter spells them: `app.kubernetes.io/name` has become `app_kubernetes_io_name`. */
function readPodLabels(track: SnapshotSeries | undefined): Readonly<Record<string, string>> {
  const prefix = "label_";
  const entries = Object.entries(track?.labels ?? {}).filter(([key]) => key.startsWith(prefix));
  return Object.fromEntries(
    entries
      .map(([key, value]) => [key.slice(prefix.length), value])
      .sort(([a = ""], [b = ""]) => compare(a, b)),
  );
}

function listOwners(tracks: readonly SnapshotSeries[], namespace: string, index: number): OwnerReference[] {
  // Older exporters write <none> for a pod without owner.
  const known = (text: string): boolean => text !== "" && text !== "<none>";
  return tracks
    .filter((track) => hasValue(track, index))
    .map(({ labels: { owner_kind: kind = "", owner_name: name = "" } }) => ({
      name,
      kind,
      namespace: kind === "Node" ? "" : namespace,
    }))
    .filter(({ kind, name }) => known(kind) && known(name))
    .sort((a, b) => compare(a.kind, b.kind) || compare(a.name, b.name));
}
