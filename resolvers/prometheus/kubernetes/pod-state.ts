// Joins the series of kube-state-metrics into the pods of each snapshot. Pods that replaced each other under one name
// overlap for as long as samples are fresh, and so do a container's reasons and the series of replicated exporters. One rule
// here resolves each overlap, so that an answer never depends on the order of series.
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
import { readLabel } from "../counters/series-reader.ts";
import type { IdentityQueryName, StateQueryName } from "./queries.ts";
import {
  ensureList,
  findGreatest,
  findNewest,
  hasValue,
  type SnapshotAnswers,
  type SnapshotSeries,
} from "./snapshot-series.ts";

/** All pods that had a name within the snapshots. */
interface NamedPod {
  readonly namespace: string;
  readonly name: string;
  /** By uid. */
  readonly instances: Map<string, PodInstance>;
  /** The times of the samples of their `infos`. */
  readonly infoTimes: SnapshotSeries[];
}

/** One pod: all series with one uid. */
interface PodInstance {
  readonly uid: string;
  readonly infos: SnapshotSeries[];
  readonly phases: SnapshotSeries[];
  /** By name. */
  readonly containers: Map<string, ContainerSeries>;
  /** `kube_pod_created` and other times, by metric. */
  readonly times: Map<string, SnapshotSeries[]>;
}

interface ContainerSeries {
  readonly name: string;
  /** By status. */
  readonly flags: Map<string, SnapshotSeries[]>;
  readonly waitingReasons: SnapshotSeries[];
  readonly terminatedReasons: SnapshotSeries[];
  readonly exitCodes: SnapshotSeries[];
  readonly restarts: SnapshotSeries[];
  /** Has a value where the container is not exported any more. */
  readonly ended: SnapshotSeries[];
}

/** A pod at one snapshot, without its usage. */
export interface PodSnapshot {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly node: string;
  readonly hostNetwork: boolean;
  /** Seconds since 1970. */
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

type StateAnswers = SnapshotAnswers<StateQueryName>;

const statusPrefix = "kube_pod_container_status_";

/** Returns the pods of a snapshot by its index, one per name, by namespace and name. */
export function joinPodState(answers: StateAnswers, snapshots: Buckets): (index: number) => PodSnapshot[] {
  const pods = groupByPod(answers);
  const sorted = [...pods.values()].sort(
    (a, b) => compare(a.namespace, b.namespace) || compare(a.name, b.name),
  );
  return (index) =>
    sorted.flatMap((pod) => {
      const instance = findCurrentInstance(pod, index);
      return instance === undefined ? [] : [buildPodSnapshot(pod, instance, answers, snapshots, index)];
    });
}

// ---- Grouping ------------------------------------------------------------------------------------------------

/** By `formatPodKey`. */
type PodMap = Map<string, NamedPod>;

function groupByPod(answers: StateAnswers): PodMap {
  const pods: PodMap = new Map();
  for (const series of answers.infos) addInfo(pods, series);
  for (const series of answers.infoTimes) pods.get(readPodKey(series))?.infoTimes.push(series);
  for (const series of answers.flags) addFlag(pods, series);
  for (const series of answers.endedContainers) {
    for (const { ended } of ensureContainers(pods, series)) ended.push(series);
  }
  for (const series of answers.reasons) addReason(pods, series);
  for (const series of answers.numbers) addNumber(pods, series);
  return pods;
}

function addInfo(pods: PodMap, series: SnapshotSeries): void {
  const { namespace = "", pod: name = "", uid = "" } = series.labels;
  const key = formatPodKey(namespace, name);
  const pod: NamedPod = pods.get(key) ?? { namespace, name, instances: new Map(), infoTimes: [] };
  pods.set(key, pod);
  const instance: PodInstance = pod.instances.get(uid) ?? {
    uid,
    infos: [],
    phases: [],
    containers: new Map(),
    times: new Map(),
  };
  pod.instances.set(uid, instance);
  instance.infos.push(series);
}

function addFlag(pods: PodMap, series: SnapshotSeries): void {
  const metric = readLabel(series.labels, metricName);
  if (metric === "kube_pod_status_phase") {
    for (const { phases } of listInstances(pods, series)) phases.push(series);
    return;
  }
  const status = metric.slice(statusPrefix.length);
  for (const { flags } of ensureContainers(pods, series)) ensureList(flags, status).push(series);
}

function addReason(pods: PodMap, series: SnapshotSeries): void {
  const isWaiting = series.labels[metricName] === `${statusPrefix}waiting_reason`;
  for (const { waitingReasons, terminatedReasons } of ensureContainers(pods, series)) {
    (isWaiting ? waitingReasons : terminatedReasons).push(series);
  }
}

function addNumber(pods: PodMap, series: SnapshotSeries): void {
  const metric = readLabel(series.labels, metricName);
  if (metric === `${statusPrefix}restarts_total`) {
    for (const { restarts } of ensureContainers(pods, series)) restarts.push(series);
  } else if (metric === `${statusPrefix}last_terminated_exitcode`) {
    for (const { exitCodes } of ensureContainers(pods, series)) exitCodes.push(series);
  } else {
    for (const { times } of listInstances(pods, series)) ensureList(times, metric).push(series);
  }
}

/** The instances that a series is about: without a uid all that had the name. kube-state-metrics 1 has uids in infos only. */
function listInstances(pods: PodMap, series: SnapshotSeries): readonly PodInstance[] {
  const pod = pods.get(readPodKey(series));
  if (pod === undefined) return [];
  const uid = readLabel(series.labels, "uid");
  if (uid === "") return [...pod.instances.values()];
  const instance = pod.instances.get(uid);
  return instance === undefined ? [] : [instance];
}

/** The containers that a series is about, one for each instance; added where they are new. */
function ensureContainers(pods: PodMap, series: SnapshotSeries): readonly ContainerSeries[] {
  const { container: name } = series.labels;
  if (name === undefined) return [];
  return listInstances(pods, series).map(({ containers }) => {
    const known = containers.get(name);
    if (known !== undefined) return known;
    const reasons = { waitingReasons: [], terminatedReasons: [] };
    const added: ContainerSeries = {
      name,
      flags: new Map(),
      ...reasons,
      exitCodes: [],
      restarts: [],
      ended: [],
    };
    containers.set(name, added);
    return added;
  });
}

/** A key for namespace and name of a pod, neither of which has a slash. */
export function formatPodKey(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

function readPodKey({ labels }: SnapshotSeries): string {
  return formatPodKey(readLabel(labels, "namespace"), readLabel(labels, "pod"));
}

// ---- One snapshot --------------------------------------------------------------------------------------------

function readTime({ times }: PodInstance, metric: string, index: number): number | undefined {
  return findGreatest(times.get(metric) ?? [], index);
}

/** The newest pod with the name at a snapshot by its creation, or without creation times by its newest sample. */
function findCurrentInstance({ instances, infoTimes }: NamedPod, index: number): PodInstance | undefined {
  const readCreation = (instance: PodInstance): number =>
    readTime(instance, "kube_pod_created", index) ?? readTime(instance, "kube_pod_start_time", index) ?? -1;
  const present = [...instances.values()].filter(({ infos }) => infos.some((info) => hasValue(info, index)));
  if (present.length < 2) return present[0];
  const latest = Math.max(...present.map(readCreation));
  const infos = present
    .filter((instance) => readCreation(instance) === latest)
    .flatMap((instance) => instance.infos);
  const newest = findNewest(infos, infoTimes, index);
  return newest && instances.get(readLabel(newest.labels, "uid"));
}

/** If replicas of the exporter differ, the phase that is later in a pod's life wins. */
const phaseOrder: readonly PodPhase[] = ["Failed", "Succeeded", "Unknown", "Running", "Pending"];
const finalPhases: ReadonlySet<PodPhase> = new Set(["Failed", "Succeeded"]);

function buildPodSnapshot(
  { namespace, name, infoTimes }: NamedPod,
  instance: PodInstance,
  answers: StateAnswers,
  { start: first, step }: Buckets,
  index: number,
): PodSnapshot {
  const info = findInfo(instance, infoTimes, index);
  const node = info === undefined ? "" : readLabel(info.labels, "node");
  const phase = findPhase(instance, index);
  const present = listPresentContainers(instance, infoTimes, index);
  const containers = present.flatMap((container) => buildContainer(container, phase, answers, index) ?? []);
  const restarts = present.reduce(
    (sum, container) => sum + (findGreatest(container.restarts, index) ?? 0),
    0,
  );
  const timestamp = first + index * step;
  const start = readTime(instance, "kube_pod_start_time", index);
  const completion = finalPhases.has(phase)
    ? readTime(instance, "kube_pod_completion_time", index)
    : undefined;
  const uptime = start === undefined ? 0 : (completion ?? timestamp / 1_000) - start;
  return {
    namespace,
    name,
    uid: instance.uid,
    node,
    hostNetwork: info?.labels.host_network === "true",
    start,
    row: {
      timestamp,
      pod_name: name,
      pod_namespace: namespace,
      node_name: node,
      phase,
      state: derivePodState(phase, containers),
      containers,
      pod_restart_count: restarts,
      pod_uptime_seconds: Math.max(0, Math.floor(uptime)),
    },
  };
}

/** The newest info, if possible one with a node: a pod that was just scheduled also has a series without it. */
function findInfo(
  { infos }: PodInstance,
  infoTimes: readonly SnapshotSeries[],
  index: number,
): SnapshotSeries | undefined {
  const fresh = infos.filter((info) => hasValue(info, index));
  const scheduled = fresh.filter(({ labels }) => readLabel(labels, "node") !== "");
  return findNewest(scheduled.length > 0 ? scheduled : fresh, infoTimes, index);
}

function findPhase({ phases }: PodInstance, index: number): PodPhase {
  const present = new Set(
    phases.filter((series) => hasValue(series, index)).map(({ labels }) => labels.phase),
  );
  return phaseOrder.find((phase) => present.has(phase)) ?? "Unknown";
}

/** Without ended containers, as of an evicted pod. After a failed scrape, which ends all series of the pod, with them. */
function listPresentContainers(
  { uid, containers }: PodInstance,
  infoTimes: readonly SnapshotSeries[],
  index: number,
): readonly ContainerSeries[] {
  const isExported = infoTimes.some(
    (series) => readLabel(series.labels, "uid") === uid && hasValue(series, index),
  );
  return [...containers.values()]
    .filter(({ ended }) => !isExported || !ended.some((series) => hasValue(series, index)))
    .sort((a, b) => compare(a.name, b.name));
}

/** `undefined` if nothing is known of the container. If replicas of the exporter differ, the worse status wins. */
function buildContainer(
  { name, flags, waitingReasons, terminatedReasons, exitCodes, restarts }: ContainerSeries,
  phase: PodPhase,
  answers: StateAnswers,
  index: number,
): Container | undefined {
  const hasStatus = (status: string): boolean =>
    (flags.get(status) ?? []).some((series) => hasValue(series, index));
  const lastExit = findGreatest(exitCodes, index);
  if (hasStatus("terminated")) {
    const reason = findReason(terminatedReasons, answers.terminatedTimes, index);
    const succeeded = reason === "Completed" || phase === "Succeeded";
    const code = succeeded ? 0 : (lastExit ?? (reason === "OOMKilled" ? 137 : 1));
    return { name, status: "Terminated", exit_code: code, reason };
  }
  if (hasStatus("waiting")) {
    const reason = findReason(waitingReasons, answers.waitingTimes, index);
    return { name, status: "Waiting", exit_code: lastExit ?? 0, reason };
  }
  if (hasStatus("running")) return { name, status: "Running", exit_code: 0, reason: "" };
  return restarts.some((series) => hasValue(series, index))
    ? { name, status: "Unknown", exit_code: 0, reason: "" }
    : undefined;
}

function findReason(
  reasons: readonly SnapshotSeries[],
  times: readonly SnapshotSeries[],
  index: number,
): string {
  const newest = findNewest(reasons, times, index);
  return newest === undefined ? "" : readLabel(newest.labels, "reason");
}

// ---- Identity -----------------------------------------------------------------------------------------------

/** Returns the overview rows of some pods at a snapshot, in the order of the pods. */
export function joinOverviewRows(
  answers: SnapshotAnswers<IdentityQueryName>,
): (pods: readonly PodSnapshot[], index: number) => PodOverviewRow[] {
  const owners = groupByUid(answers.owners);
  const labels = groupByUid(answers.labels);
  const labelTimes = groupByUid(answers.labelTimes);
  return (pods, index) =>
    pods.map(({ namespace, name, uid, row }): PodOverviewRow => {
      // Series without a uid are about whichever pod has the name.
      const keys = new Set([formatUidKey(namespace, name, uid), formatUidKey(namespace, name, "")]);
      const listOwn = (groups: ReadonlyMap<string, readonly SnapshotSeries[]>): readonly SnapshotSeries[] =>
        [...keys].flatMap((key) => groups.get(key) ?? []);
      const newestLabels = findNewest(listOwn(labels), listOwn(labelTimes), index);
      return {
        timestamp: row.timestamp,
        node_name: row.node_name,
        pod_name: name,
        pod_namespace: namespace,
        pod_uuid: uid,
        phase: row.phase,
        labels: readPodLabels(newestLabels),
        owner_references: listOwners(listOwn(owners), namespace, index),
        containers: row.containers,
        state: row.state,
        pod_restart_count: row.pod_restart_count,
        pod_uptime_seconds: row.pod_uptime_seconds,
      };
    });
}

function groupByUid(series: readonly SnapshotSeries[]): ReadonlyMap<string, readonly SnapshotSeries[]> {
  return Map.groupBy(series, ({ labels }) =>
    formatUidKey(labels.namespace, labels.pod, readLabel(labels, "uid")),
  );
}

function formatUidKey(...parts: readonly (string | undefined)[]): string {
  return JSON.stringify(parts);
}

/** The keys are as the exporter spells them: `app.kubernetes.io/name` has become `app_kubernetes_io_name`. */
function readPodLabels(series: SnapshotSeries | undefined): Readonly<Record<string, string>> {
  if (series === undefined) return {};
  const prefix = "label_";
  return Object.fromEntries(
    Object.entries(series.labels)
      .filter(([key]) => key.startsWith(prefix))
      .map(([key, value]) => [key.slice(prefix.length), value] as const)
      .sort(([a], [b]) => compare(a, b)),
  );
}

function listOwners(owners: readonly SnapshotSeries[], namespace: string, index: number): OwnerReference[] {
  // Older exporters write <none> for a pod without owner.
  const isKnown = (text: string): boolean => text !== "" && text !== "<none>";
  return owners
    .filter((series) => hasValue(series, index))
    .map(({ labels: { owner_kind: kind = "", owner_name: name = "" } }) => ({
      name,
      kind,
      namespace: kind === "Node" ? "" : namespace,
    }))
    .filter(({ kind, name }) => isKnown(kind) && isKnown(name))
    .sort((a, b) => compare(a.kind, b.kind) || compare(a.name, b.name));
}
