// Joins the series of kube-state-metrics into the pods of each snapshot. Pods that replaced each other under one name
// overlap for as long as samples are fresh, and so do a container's reasons and the series of replicated exporters. One rule
// here resolves each overlap, so that an answer never depends on the order of series.
import { groupInTurns, sortInSteps, takeSteps, visitInTurns } from "../../../src/core/async/turns.ts";
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

/**
 * Lists the pods of a snapshot, one per name, by namespace and name: those of `isListed` by their `formatPodKey`. Other names
 * are `undefined`, so that who takes them can pause.
 */
type ListPods = (index: number, isListed?: (key: string) => boolean) => Generator<PodSnapshot | undefined>;

/** Joins in turns of the event loop. The pods of a snapshot are made while they are taken. */
export async function joinPodState(
  answers: StateAnswers,
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<ListPods> {
  const pods = await groupByPod(answers, signal);
  const sorting = sortInSteps(
    [...pods],
    ([, a], [, b]) => compare(a.namespace, b.namespace) || compare(a.name, b.name),
  );
  const sorted = await takeSteps(sorting, signal);
  return function* (index, isListed = () => true) {
    for (const [key, pod] of sorted) {
      const instance = isListed(key) ? findCurrentInstance(pod, index) : undefined;
      yield instance && buildPodSnapshot(pod, instance, answers, snapshots, index);
    }
  };
}

// ---- Grouping ------------------------------------------------------------------------------------------------

/** By `formatPodKey`. */
type PodMap = Map<string, NamedPod>;

async function groupByPod(answers: StateAnswers, signal: AbortSignal): Promise<PodMap> {
  const pods: PodMap = new Map();
  const adders = [
    [answers.infos, addInfo],
    [answers.infoTimes, addInfoTime],
    [answers.flags, addFlag],
    [answers.endedContainers, addEnded],
    [answers.reasons, addReason],
    [answers.numbers, addNumber],
  ] as const;
  for (const [all, add] of adders) await visitInTurns(all, (series) => add(pods, series), signal);
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

function addInfoTime(pods: PodMap, series: SnapshotSeries): void {
  pods.get(readPodKey(series))?.infoTimes.push(series);
}

function addEnded(pods: PodMap, series: SnapshotSeries): void {
  for (const { ended } of ensureContainers(pods, series)) ended.push(series);
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

/** Joins in turns of the event loop. Returns the overview row of a pod at a snapshot. */
export async function joinOverviewRows(
  answers: SnapshotAnswers<IdentityQueryName>,
): Promise<(pod: PodSnapshot, index: number) => PodOverviewRow> {
  const owners = await groupInTurns(answers.owners, readUidKey);
  const labels = await groupInTurns(answers.labels, readUidKey);
  const labelTimes = await groupInTurns(answers.labelTimes, readUidKey);
  return ({ namespace, name, uid, row }, index) => {
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
  };
}

function readUidKey({ labels }: SnapshotSeries): string {
  return formatUidKey(labels.namespace, labels.pod, readLabel(labels, "uid"));
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
