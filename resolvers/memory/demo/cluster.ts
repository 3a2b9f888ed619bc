// The demo's cluster as a function of seed and time: each pod lives for the length of its workload's turn, then
// another takes its place, and every counter is the integral of a wave since then. So any moment can be observed
// without the ones before it, and two observations always fit together.
import type { Container, OwnerReference, PodPhase } from "../../../src/core/rows.ts";
import { day, hour, type Millis, minute } from "../../../src/core/time.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import type { Observation, ObservedPod } from "../stores/kubernetes-store.ts";
import { createRandom, generateHex, type Random } from "./seeded-random.ts";

/** The labels that every series of the cluster has. */
export const clusterMatch: ForcedLabels = { cluster: "demo" };

const nodeNames = ["demo-node-1", "demo-node-2", "demo-node-3"] as const;
const gibibyte = 2 ** 30;

interface WorkloadSize {
  /** Used on average. */
  readonly cores: number;
  /** GiB used on average. */
  readonly memory: number;
  readonly hostNetwork?: true;
}

/** A workload whose pods have fixed places, each taken by one pod after the other. */
interface Workload extends WorkloadSize {
  readonly namespace: string;
  readonly name: string;
  readonly kind: "StatefulSet" | "ReplicaSet" | "DaemonSet";
  readonly replicas: number;
  /** How long a pod lives; all pods of a ReplicaSet end together, as in a roll-out. */
  readonly turn: Millis;
  readonly condition?: (age: Millis, ordinal: number) => PodCondition;
}
/** What is not as it should be. */
interface PodCondition {
  readonly phase: PodPhase;
  readonly container?: Omit<Container, "name">;
  readonly restarts: number;
}

const web = { kind: "StatefulSet", replicas: 9, cores: 0.25, memory: 0.4 } as const;
const server = { namespace: "shop", kind: "ReplicaSet", cores: 0.1, memory: 0.2 } as const;
const workloads: readonly Workload[] = [
  // The demo's log lines name these pods.
  { ...web, namespace: "shop", name: "shop-web", turn: 7 * hour },
  { ...web, namespace: "blog", name: "blog-web", turn: 11 * hour },
  { ...server, name: "shop-api", replicas: 3, turn: day, cores: 0.4, memory: 0.7 },
  { ...server, name: "shop-payments", replicas: 2, turn: 2 * day, condition: describeCrashLoop },
  { ...server, name: "shop-search", replicas: 2, turn: 3 * day, memory: 2, condition: describeUnplaced },
  {
    namespace: "kube-system",
    name: "node-agent",
    kind: "DaemonSet",
    replicas: nodeNames.length,
    turn: 30 * day,
    cores: 0.05,
    memory: 0.1,
    hostNetwork: true,
  },
];

/** The first of two goes up and down: it runs for forty seconds, then waits for minutes. */
function describeCrashLoop(age: Millis, ordinal: number): PodCondition {
  if (ordinal > 0) return { phase: "Running", restarts: 0 };
  const pause = 5 * minute;
  const restarts = Math.floor(age / pause);
  const up = age % pause < 40_000;
  const container: Omit<Container, "name"> = up
    ? { status: "Running", exit_code: 0, reason: "" }
    : { status: "Waiting", exit_code: 137, reason: "CrashLoopBackOff" };
  return { phase: "Running", container, restarts };
}

/** The second of two fits on no node. */
function describeUnplaced(_: Millis, ordinal: number): PodCondition {
  return { phase: ordinal > 0 ? "Pending" : "Running", restarts: 0 };
}

/** A CronJob that runs every ten minutes for some ninety seconds. Every fifth run fails. The last three jobs are kept,
 * and the last that failed: the demo has a failed pod at any time. */
const job = {
  namespace: "shop",
  name: "shop-reindex",
  every: 10 * minute,
  memory: 0.3,
  cores: 0.8,
  kept: 3,
  failsEvery: 5,
};

/** The cluster at a moment, or undefined where the forced labels exclude it. */
export function observeCluster(seed: number, match: ForcedLabels, time: Millis): Observation | undefined {
  const hidden = Object.entries(match).some(([label, value]) => clusterMatch[label] !== value);
  if (hidden) return undefined;
  const pods = [
    ...workloads.flatMap((workload) => [...generatePods(seed, workload, time)]),
    ...generateJobPods(seed, time),
  ];
  return { nodes: nodeNames.map((name) => observeNode(seed, name, pods, time)), pods };
}

function* generatePods(seed: number, workload: Workload, time: Millis): Generator<ObservedPod> {
  const { namespace, name, kind, replicas, turn, condition } = workload;
  for (let ordinal = 0; ordinal < replicas; ordinal += 1) {
    const place = kind === "ReplicaSet" ? name : `${name} ${ordinal}`;
    const shift = Math.floor(createRandom(`${seed} ${place} shift`)() * turn);
    const generation = Math.floor((time + shift) / turn);
    const start = generation * turn - shift;
    const random = createRandom(`${seed} ${name} ${ordinal} ${generation}`);
    const replicaSet = `${name}-${generateSuffix(createRandom(`${seed} ${name} ${generation}`), 9)}`;
    const { phase, container, restarts } = condition?.(time - start, ordinal) ?? {
      phase: "Running",
      restarts: 0,
    };
    const placed = phase !== "Pending";
    const node = nodeNames[(kind === "DaemonSet" ? ordinal : Math.floor(random() * 97)) % nodeNames.length];
    const main: Container = { name, status: "Running", exit_code: 0, reason: "", ...container };
    yield {
      pod_name: formatPodName(kind, name, ordinal, replicaSet, random),
      pod_namespace: namespace,
      pod_uuid: generateUuid(random),
      node_name: placed && node !== undefined ? node : "",
      phase,
      containers: placed ? [main] : [],
      pod_restart_count: restarts,
      pod_uptime_seconds: placed ? Math.floor((time - start) / 1_000) : 0,
      start: placed ? start : undefined,
      labels: { app_kubernetes_io_name: name, app_kubernetes_io_part_of: namespace },
      owner_references: [{ kind, name: kind === "ReplicaSet" ? replicaSet : name, namespace }],
      ...computeFigures(random, placed ? workload : undefined, main.status === "Running", start, time),
    };
  }
}

function formatPodName(
  kind: Workload["kind"],
  name: string,
  ordinal: number,
  replicaSet: string,
  random: Random,
): string {
  if (kind === "StatefulSet") return `${name}-${ordinal}`;
  return `${kind === "ReplicaSet" ? replicaSet : name}-${generateSuffix(random, 5)}`;
}

function* generateJobPods(seed: number, time: Millis): Generator<ObservedPod> {
  const latest = Math.floor(time / job.every);
  const failed = latest - 1 - ((latest - 1) % job.failsEvery);
  const kept = Array.from({ length: job.kept }, (_, age) => latest - age);
  for (const run of new Set([failed, ...kept.reverse()])) {
    const random = createRandom(`${seed} ${job.name} ${run}`);
    const start = run * job.every;
    const name = `${job.name}-${start / minute}`;
    const end = start + (60 + Math.floor(random() * 60)) * 1_000;
    const fails = run % job.failsEvery === 0;
    const over = time >= end;
    const container: Container = {
      name: job.name,
      status: over ? "Terminated" : "Running",
      exit_code: over && fails ? 1 : 0,
      reason: over ? (fails ? "Error" : "Completed") : "",
    };
    const owner: OwnerReference = { kind: "Job", name, namespace: job.namespace };
    yield {
      pod_name: `${name}-${generateSuffix(random, 5)}`,
      pod_namespace: job.namespace,
      pod_uuid: generateUuid(random),
      node_name: nodeNames[run % nodeNames.length] ?? "",
      phase: over ? (fails ? "Failed" : "Succeeded") : "Running",
      containers: [container],
      pod_restart_count: 0,
      pod_uptime_seconds: Math.floor((Math.min(time, end) - start) / 1_000),
      start,
      labels: { app_kubernetes_io_name: job.name, batch_kubernetes_io_job_name: name },
      owner_references: [owner],
      ...computeFigures(random, over ? undefined : job, true, start, time),
    };
  }
}

type Figures = Pick<
  ObservedPod,
  | "cpu_usage_nano_cores"
  | "cpu_usage_core_nano_seconds"
  | `memory_${"rss" | "usage" | "working_set"}_bytes`
  | "memory_page_faults"
  | "memory_major_page_faults"
  | `ephemeral_storage_${"used" | "capacity"}_bytes`
  | `network_${"rx" | "tx"}_bytes`
  | "process_count"
>;

/** All zero without a size, as nothing is measured. Where nothing runs for a while, counters stay. */
function computeFigures(
  random: Random,
  size: WorkloadSize | undefined,
  running: boolean,
  start: Millis,
  time: Millis,
): Figures {
  const phase = random() * 2 * Math.PI;
  const load = size !== undefined && running ? computeWave(time, phase) : 0;
  const done = size === undefined ? 0 : sumWave(start, time, phase);
  const { cores = 0, memory = 0, hostNetwork = false } = size ?? {};
  const used = Math.floor(memory * gibibyte * load);
  const traffic = hostNetwork ? 0 : 40_000 + random() * 60_000;
  return {
    cpu_usage_nano_cores: Math.floor(cores * 1e9 * load),
    cpu_usage_core_nano_seconds: Math.floor(cores * 1e9 * done),
    memory_rss_bytes: Math.floor(used * 0.8),
    memory_usage_bytes: Math.floor(used * 1.15),
    memory_working_set_bytes: used,
    memory_page_faults: Math.floor(120 * done),
    memory_major_page_faults: Math.floor(0.01 * done),
    ephemeral_storage_used_bytes: Math.floor(0.05 * gibibyte * load),
    ephemeral_storage_capacity_bytes: size === undefined ? 0 : 100 * gibibyte,
    network_rx_bytes: Math.floor(traffic * done),
    network_tx_bytes: Math.floor(traffic * 0.7 * done),
    process_count: load === 0 ? 0 : 1 + Math.floor(random() * 12),
  };
}

/** As the condition `Ready` of a node says. */
const nodePhases = { ready: 2, notReady: 4 } as const;

function observeNode(
  seed: number,
  name: string,
  pods: readonly ObservedPod[],
  time: Millis,
): Observation["nodes"][number] {
  const random = createRandom(`${seed} ${name}`);
  const shift = Math.floor(random() * 40 * day);
  const boot = Math.floor((time + shift) / (40 * day)) * 40 * day - shift;
  const wavePhase = random() * 2 * Math.PI;
  const own = pods.filter(({ node_name }) => node_name === name);
  const sum = (figure: (pod: ObservedPod) => number): number =>
    own.reduce((total, pod) => total + figure(pod), 0);
  const done = sumWave(boot, time, wavePhase);
  const ever = sumWave(0, time, wavePhase);
  const used = Math.floor((20 + 10 * computeWave(time, wavePhase)) * gibibyte);
  const inodes = 6_553_600;
  const inodesUsed = Math.floor(400_000 + 50_000 * computeWave(time, wavePhase));
  return {
    node_name: name,
    cpu_usage_nano_cores:
      Math.floor(1.5e8 * computeWave(time, wavePhase)) + sum((pod) => pod.cpu_usage_nano_cores),
    memory_rss_bytes: gibibyte + sum((pod) => pod.memory_rss_bytes),
    memory_usage_bytes: 2 * gibibyte + sum((pod) => pod.memory_usage_bytes),
    memory_working_set_bytes: 1.5 * gibibyte + sum((pod) => pod.memory_working_set_bytes),
    memory_page_faults: Math.floor(2_000 * done),
    memory_major_page_faults: Math.floor(0.2 * done),
    fs_used_bytes: used,
    fs_available_bytes: 100 * gibibyte - used,
    fs_capacity_bytes: 100 * gibibyte,
    fs_inodes_free: inodes - inodesUsed,
    fs_inodes_used: inodesUsed,
    fs_inodes: inodes,
    network_rx_bytes: Math.floor(900_000 * ever),
    network_tx_bytes: Math.floor(700_000 * ever),
    // The third is out of order for eight minutes of every two hours.
    phase:
      name === nodeNames[2] && time % (2 * hour) >= 112 * minute ? nodePhases.notReady : nodePhases.ready,
  };
}

// ---- Waves --------------------------------------------------------------------------------------------------

const amplitude = 0.4;
const period = 47 * minute;

/** Load at a moment, around 1. */
function computeWave(time: Millis, phase: number): number {
  return 1 + amplitude * Math.sin((2 * Math.PI * time) / period + phase);
}

/** The integral of `computeWave` in seconds: it only grows. */
function sumWave(from: Millis, to: Millis, phase: number): number {
  const swing = (time: Millis): number => Math.cos((2 * Math.PI * time) / period + phase);
  return (to - from + ((amplitude * period) / (2 * Math.PI)) * (swing(from) - swing(to))) / 1_000;
}

// ---- Names --------------------------------------------------------------------------------------------------

/** The alphabet of generated names in Kubernetes. */
const alphabet = "bcdfghjklmnpqrstvwxz2456789";
function generateSuffix(random: Random, count: number): string {
  return Array.from({ length: count }, () => alphabet[Math.floor(random() * alphabet.length)]).join("");
}

function generateUuid(random: Random): string {
  return generateHex(random, 32).replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, "$1-$2-4$3-a$4-$5");
}
