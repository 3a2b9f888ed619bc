// A small cluster as plain facts, and the rows that it must give. Every expectation is written down or computed here
// from the facts alone, by code that shares nothing with the stores: which state a pod is in and which exit code a
// container shows are stated, not derived.
import type {
  Buckets,
  Container,
  NodesRow,
  OwnerReference,
  PodOverviewRow,
  PodPhase,
  PodState,
  PodsRow,
} from "#src/core/rows.ts";

export const base = Date.UTC(2026, 0, 15, 10);
export const minute = 60_000;
const m = (minutes: number): number => base + minutes * minute;

/** A value that holds from a time on. */
type Steps<T> = readonly (readonly [from: number, value: T])[];
export const valueAt = <T>(steps: Steps<T>, time: number): T | undefined =>
  steps.findLast(([from]) => from <= time)?.[1];

export interface ModelNode {
  readonly name: string;
  readonly address: string;
  readonly from: number;
  readonly gone?: number;
  readonly ready: Steps<"true" | "false" | "unknown">;
  /** Counters begin anew here. */
  readonly boots: readonly number[];
  readonly size: number;
}
export interface ModelPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly node: Steps<string>;
  readonly created: number;
  /** Taken on by its node: from here on it is measured. */
  readonly started?: number;
  readonly finished?: number;
  readonly gone?: number;
  readonly hostNetwork?: true;
  /** Its cgroup is named by a hash, as that of a pod from a file on the node. */
  readonly isStatic?: true;
  readonly phases: Steps<PodPhase>;
  readonly states: Steps<PodState>;
  readonly containers: readonly ModelContainer[];
  readonly owners: readonly OwnerReference[];
  readonly labels: Steps<Readonly<Record<string, string>>>;
  readonly size: number;
}
interface ModelContainer {
  readonly name: string;
  readonly life: Steps<Moment>;
}
interface Moment {
  readonly shown: Omit<Container, "name">;
  /** The code with which it ended the last time, once there was one. */
  readonly lastExit?: number;
  readonly restarts: number;
}
export interface ModelCluster {
  readonly nodes: readonly ModelNode[];
  readonly pods: readonly ModelPod[];
}

// ---- The facts ----------------------------------------------------------------------------------------------

const running = (restarts = 0, lastExit?: number): Moment => ({
  shown: { status: "Running", exit_code: 0, reason: "" },
  restarts,
  ...(lastExit !== undefined && { lastExit }),
});
const waiting = (reason: string, restarts = 0, lastExit?: number): Moment => ({
  shown: { status: "Waiting", exit_code: lastExit ?? 0, reason },
  restarts,
  ...(lastExit !== undefined && { lastExit }),
});
const ended = (reason: string, exit_code: number, more: Partial<Moment> = {}): Moment => ({
  shown: { status: "Terminated", exit_code, reason },
  restarts: 0,
  ...more,
});

let drawn = 0;
function uuid(): string {
  drawn += 1;
  return `${drawn.toString(16).padStart(8, "a")}-0000-4000-8000-${drawn.toString(16).padStart(12, "0")}`;
}

function pod(over: Partial<ModelPod> & Pick<ModelPod, "namespace" | "name">): ModelPod {
  const created = over.created ?? m(-30);
  return {
    uid: uuid(),
    node: [[created, "n1"]],
    created,
    started: created,
    phases: [[created, "Running"]],
    states: [[created, "Running"]],
    containers: [{ name: "app", life: [[created, running()]] }],
    owners: [{ kind: "ReplicaSet", name: `${over.name}-5d4f`, namespace: over.namespace }],
    labels: [[created, { app: over.name }]],
    size: 1,
    ...over,
  };
}

const replaced = { namespace: "shop", name: "web-0", node: [[m(-60), "n1"]] } as const;
const webOwner: OwnerReference = { kind: "StatefulSet", name: "web", namespace: "shop" };
const twoContainers: readonly ModelContainer[] = [
  { name: "proxy", life: [[m(-60), running(2, 0)]] },
  { name: "app", life: [[m(-60), running(1, 3)]] },
];

export const model: ModelCluster = {
  nodes: [
    { name: "n1", address: "10.0.0.1", from: m(-60), ready: [[m(-60), "true"]], boots: [m(-60)], size: 3 },
    {
      name: "n2",
      address: "10.0.0.2",
      from: m(-60),
      boots: [m(-60), m(18) + 5_000],
      size: 5,
      ready: [
        [m(-60), "true"],
        [m(10), "false"],
        [m(12), "unknown"],
        [m(14), "true"],
      ],
    },
    // One machine that was renamed.
    {
      name: "old-name",
      address: "10.0.0.3",
      from: m(-60),
      gone: m(15),
      boots: [m(-60)],
      size: 2,
      ready: [[m(-60), "true"]],
    },
    {
      name: "new-name",
      address: "10.0.0.3",
      from: m(15),
      boots: [m(-60)],
      size: 2,
      ready: [[m(15), "true"]],
    },
  ],
  pods: [
    pod({
      ...replaced,
      created: m(-60),
      gone: m(20),
      containers: twoContainers,
      owners: [webOwner],
      size: 7,
    }),
    pod({
      ...replaced,
      created: m(20) + 30_000,
      started: m(20) + 40_000,
      owners: [webOwner],
      size: 2,
      node: [[m(20), "n1"]],
      labels: [[m(20), { app: "web-0", version: "2" }]],
    }),
    pod({ namespace: "shop", name: "api-1", size: 3, node: [[m(-30), "n2"]] }),
    pod({
      namespace: "blog",
      name: "api-1",
      size: 4,
      labels: [[m(-30), { app: "Blog", Tier: "Front=End" }]],
    }),
    pod({
      namespace: "shop",
      name: "crash-1",
      size: 1,
      states: [
        [m(-30), "Running"],
        [m(4), "Failed"],
        [m(8), "Running"],
        [m(11), "Failed"],
        [m(13), "Pending"],
        [m(14), "Failed"],
      ],
      containers: [
        {
          name: "app",
          life: [
            [m(-30), running(5)],
            [m(4), waiting("CrashLoopBackOff", 5, 137)],
            [m(8), running(6, 137)],
            [m(11), ended("OOMKilled", 137, { restarts: 6, lastExit: 137 })],
            [m(13), waiting("ContainerCreating", 7, 137)],
            [m(14), waiting("CreateContainerConfigError", 7, 137)],
          ],
        },
      ],
    }),
    pod({
      namespace: "shop",
      name: "pending-1",
      created: m(1),
      started: m(15),
      node: [[m(15), "n2"]],
      phases: [
        [m(1), "Pending"],
        [m(17), "Running"],
      ],
      states: [
        [m(1), "Pending"],
        [m(17), "Running"],
      ],
      containers: [
        {
          name: "app",
          life: [
            [m(15), waiting("ContainerCreating")],
            [m(17), running()],
          ],
        },
      ],
    }),
    pod({
      namespace: "blog",
      name: "image-1",
      phases: [[m(-30), "Pending"]],
      states: [[m(-30), "Failed"]],
      containers: [{ name: "app", life: [[m(-30), waiting("ImagePullBackOff")]] }],
    }),
    pod({
      namespace: "shop",
      name: "job-1",
      created: m(2),
      started: m(2),
      finished: m(5) + 20_000,
      gone: m(25),
      node: [[m(2), "new-name"]],
      phases: [
        [m(2), "Running"],
        [m(5) + 20_000, "Succeeded"],
      ],
      states: [
        [m(2), "Running"],
        [m(5) + 20_000, "Succeeded"],
      ],
      containers: [
        {
          name: "work",
          life: [
            [m(2), running()],
            [m(5) + 20_000, ended("Completed", 0)],
          ],
        },
      ],
      owners: [{ kind: "Job", name: "job", namespace: "shop" }],
    }),
    pod({
      namespace: "shop",
      name: "job-2",
      created: m(2),
      started: m(2),
      finished: m(9),
      phases: [
        [m(2), "Running"],
        [m(9), "Failed"],
      ],
      states: [
        [m(2), "Running"],
        [m(9), "Failed"],
      ],
      containers: [
        {
          name: "work",
          life: [
            [m(2), running()],
            // Nothing tells the code of a first end; 1 stands for it.
            [m(9), ended("Error", 1)],
          ],
        },
      ],
      owners: [
        { kind: "Job", name: "job", namespace: "shop" },
        { kind: "Workflow", name: "Nightly", namespace: "shop" },
      ],
    }),
    pod({
      namespace: "blog",
      name: "evicted-1",
      phases: [[m(-30), "Failed"]],
      states: [[m(-30), "Failed"]],
      containers: [],
      owners: [],
      finished: m(-29),
    }),
    pod({
      namespace: "kube-system",
      name: "agent-x",
      hostNetwork: true,
      node: [[m(-30), "n2"]],
      owners: [{ kind: "DaemonSet", name: "agent", namespace: "kube-system" }],
    }),
    pod({
      namespace: "kube-system",
      name: "etcd-n1",
      isStatic: true,
      labels: [[m(-30), {}]],
      owners: [{ kind: "Node", name: "n1", namespace: "" }],
    }),
    pod({
      namespace: "blog",
      name: "lost-1",
      phases: [[m(-30), "Unknown"]],
      states: [[m(-30), "Unknown"]],
      labels: [
        [m(-30), { app: "lost-1", color: "blue" }],
        [m(10), { app: "lost-1", color: "red" }],
      ],
    }),
  ],
};

/** The same names with other figures, under other forced labels. */
export const neighbour: ModelCluster = {
  nodes: model.nodes.map((node) => ({ ...node, size: node.size + 100 })),
  pods: model.pods.map((each) => ({ ...each, uid: uuid(), size: each.size + 100 })),
};

/** The time within which a store was given facts. */
export const seeded = { from: m(-6), to: m(45) };

// ---- What is measured: whole numbers, each figure another function of size and time ---------------------------

const seconds = (from: number, to: number): number => Math.floor((to - from) / 1_000);

export interface Measures {
  readonly cpu: number;
  readonly rss: number;
  readonly usage: number;
  readonly workingSet: number;
  readonly faults: number;
  readonly majorFaults: number;
}
const wave = (time: number): number => Math.floor(time / 15_000) % 7;

/** Of a container since it was (re)started. `cpu` in seconds, twice as fast after ten minutes. */
export function measureContainer(size: number, position: number, since: number, time: number): Measures {
  const age = seconds(since, time);
  const share = size * (position + 1);
  return {
    cpu: share * 0.0625 * (age + Math.max(0, age - 600)),
    rss: share * 1_000_000 + wave(time) * 4_096,
    usage: share * 3_000_000 + wave(time) * 4_096,
    workingSet: share * 2_000_000 + wave(time) * 4_096,
    faults: share * 40 * age,
    majorFaults: share * age,
  };
}
export const sandbox = { rss: 500_000, usage: 600_000, workingSet: 550_000, faults: 77, majorFaults: 3 };
/** Of the whole pod: its containers since the pod began, and its sandbox. */
export function measurePod({ size, containers, started = 0 }: ModelPod, time: number): Measures {
  const parts = containers.map((_, position) => measureContainer(size, position, started, time));
  const sum = (figure: keyof Measures): number => parts.reduce((total, part) => total + part[figure], 0);
  return {
    cpu: sum("cpu"),
    rss: sum("rss") + sandbox.rss,
    usage: sum("usage") + sandbox.usage,
    workingSet: sum("workingSet") + sandbox.workingSet,
    faults: sum("faults") + sandbox.faults,
    majorFaults: sum("majorFaults") + sandbox.majorFaults,
  };
}
export const processesOf = ({ size }: ModelPod, position: number): number => size + position;
export const diskOf = ({ size }: ModelPod, position: number): number => size * 11_000 + position;
export const received = ({ size, started = 0 }: ModelPod, time: number): number =>
  size * 1_300 * seconds(started, time);
export const sent = ({ size, started = 0 }: ModelPod, time: number): number =>
  size * 700 * seconds(started, time);

const booted = ({ boots }: ModelNode, time: number): number => boots.findLast((boot) => boot <= time) ?? 0;
export function measureNode(node: ModelNode, time: number) {
  const age = seconds(booted(node, time), time);
  const { size } = node;
  return {
    cpu: size * 0.25 * age,
    rss: size * 1_000_000_000 + wave(time),
    usage: size * 3_000_000_000 + wave(time),
    workingSet: size * 2_000_000_000 + wave(time),
    faults: size * 1_000 * age,
    majorFaults: size * age,
    diskUsed: size * 10_000_000 + wave(time),
    diskLimit: size * 100_000_000,
    inodes: size * 60_000,
    inodesFree: size * 50_000 - wave(time),
    received: size * 90_000 * age,
    sent: size * 50_000 * age,
  };
}

// ---- Expectations -------------------------------------------------------------------------------------------

/** How a subject comes to know the facts. */
export interface Scrape {
  readonly every: number;
  /** After the full interval. */
  readonly offset: number;
  /** How old what was scraped may be to be shown, and the older of two for a rate. */
  readonly fresh: number;
  readonly reach: number;
}

/** The newest scrape up to a time that lies within `[from, until)`, if it is fresh. */
function scrapeAt(scrape: Scrape, time: number, from: number, until = Infinity): number | undefined {
  const { every, offset, fresh } = scrape;
  const floor = (at: number): number => Math.floor((at - offset) / every) * every + offset;
  const last = floor(Math.min(time, until - 1, seeded.to));
  return last >= from && time - last < fresh ? last : undefined;
}

export function expectNodes({ nodes }: ModelCluster, snapshots: Buckets, scrape: Scrape): NodesRow[] {
  return moments(snapshots).flatMap((time) =>
    nodes
      .flatMap((node): NodesRow[] => {
        const { name, from, gone } = node;
        const last = scrapeAt(scrape, time, from, gone);
        if (last === undefined) return [];
        const now = measureNode(node, last);
        const earlier = scrapeAt(scrape, time - snapshots.step, from, gone);
        const since = (figure: "received" | "sent"): number =>
          earlier === undefined ? 0 : grown((at) => measureNode(node, at)[figure], scrape, earlier, last);
        const ready = valueAt(node.ready, last);
        return [
          {
            timestamp: time,
            node_name: name,
            cpu_usage_nano_cores: rate((at) => measureNode(node, at).cpu, scrape, time, from, gone),
            memory_rss_bytes: now.rss,
            memory_usage_bytes: now.usage,
            memory_working_set_bytes: now.workingSet,
            memory_page_faults: now.faults,
            memory_major_page_faults: now.majorFaults,
            fs_used_bytes: now.diskUsed,
            fs_available_bytes: now.diskLimit - now.diskUsed,
            fs_capacity_bytes: now.diskLimit,
            fs_inodes_free: now.inodesFree,
            fs_inodes_used: now.inodes - now.inodesFree,
            fs_inodes: now.inodes,
            network_rx_bytes: since("received"),
            network_tx_bytes: since("sent"),
            phase: ready === "true" ? 2 : ready === "false" ? 4 : 0,
          },
        ];
      })
      .sort((a, b) => (a.node_name < b.node_name ? -1 : 1)),
  );
}

/** Over every scrape after one until another; a counter that went back grew by what it then showed. */
export function grown(
  counter: (time: number) => number,
  { every }: Scrape,
  from: number,
  to: number,
): number {
  let sum = 0;
  for (let time = from + every; time <= to; time += every) {
    const [now, then] = [counter(time), counter(time - every)];
    sum += now < then ? now : now - then;
  }
  return sum;
}

/** In nano: between the two newest scrapes. */
function rate(
  counter: (time: number) => number,
  scrape: Scrape,
  time: number,
  from: number,
  until?: number,
): number {
  const last = scrapeAt(scrape, time, from, until);
  if (last === undefined) return 0;
  const before = last - scrape.every;
  if (before < from || time - before >= scrape.reach) return 0;
  return Math.round((grown(counter, scrape, before, last) / (scrape.every / 1_000)) * 1e9);
}

/** Pods that are known at a time, with when each was last looked at; of one name the newest. */
function present({ pods }: ModelCluster, scrape: Scrape, time: number) {
  const known = pods.flatMap((each) => {
    const last = scrapeAt(scrape, time, each.created, each.gone);
    return last === undefined ? [] : [{ each, last }];
  });
  const newest = known.filter(
    ({ each }) =>
      !known.some(
        ({ each: other }) =>
          other.namespace === each.namespace && other.name === each.name && other.created > each.created,
      ),
  );
  return newest.sort((a, b) => (key(a.each) < key(b.each) ? -1 : 1));
}
const key = ({ namespace, name }: ModelPod): string => `${namespace}\u0000${name}`;

function stateOf(each: ModelPod, last: number, time: number) {
  const { name, namespace, started, finished } = each;
  const shown = each.containers
    .flatMap((container) => {
      const moment = valueAt(container.life, last);
      return moment === undefined ? [] : [{ name: container.name, moment }];
    })
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  const begun = started !== undefined && started <= last;
  const over = finished !== undefined && finished <= last;
  return {
    timestamp: time,
    pod_name: name,
    pod_namespace: namespace,
    node_name: valueAt(each.node, last) ?? "",
    phase: valueAt(each.phases, last) ?? "Unknown",
    state: valueAt(each.states, last) ?? "Unknown",
    containers: shown.map(({ name, moment }) => ({ name, ...moment.shown })),
    pod_restart_count: shown.reduce((sum, { moment }) => sum + moment.restarts, 0),
    pod_uptime_seconds: begun ? Math.floor(((over ? finished : time) - started) / 1_000) : 0,
  } as const;
}

export function expectPods(cluster: ModelCluster, snapshots: Buckets, scrape: Scrape): PodsRow[] {
  return moments(snapshots).flatMap((time) =>
    present(cluster, scrape, time).map(({ each, last }): PodsRow => {
      const { started = Infinity, finished, gone } = each;
      const until = finished ?? gone;
      const measured = scrapeAt(scrape, time, started, until);
      const now = measured === undefined ? undefined : measurePod(each, measured);
      // A container is seen for a while after it went down, as a pod is.
      const parts = each.containers.filter((part) =>
        upTimes(each, part).some(([from, until]) => scrapeAt(scrape, time, from, until) !== undefined),
      );
      const earlier = scrapeAt(scrape, time - snapshots.step, started, until);
      const since = (counter: typeof received): number => {
        if (measured === undefined || each.hostNetwork) return 0;
        if (earlier !== undefined) return counter(each, measured) - counter(each, earlier);
        return started > time - snapshots.step - scrape.fresh ? counter(each, measured) : 0;
      };
      const sum = (figure: typeof diskOf): number =>
        parts.reduce((total, part) => total + figure(each, each.containers.indexOf(part)), 0);
      const node = cluster.nodes.find(
        ({ name, from, gone }) =>
          name === valueAt(each.node, last) && scrapeAt(scrape, time, from, gone) !== undefined,
      );
      return {
        ...stateOf(each, last, time),
        cpu_usage_nano_cores: rate((at) => measurePod(each, at).cpu, scrape, time, started, until),
        cpu_usage_core_nano_seconds: Math.round((now?.cpu ?? 0) * 1e9),
        memory_rss_bytes: now?.rss ?? 0,
        memory_usage_bytes: now?.usage ?? 0,
        memory_working_set_bytes: now?.workingSet ?? 0,
        memory_page_faults: now?.faults ?? 0,
        memory_major_page_faults: now?.majorFaults ?? 0,
        ephemeral_storage_used_bytes: sum(diskOf),
        ephemeral_storage_capacity_bytes: node === undefined ? 0 : measureNode(node, time).diskLimit,
        network_rx_bytes: since(received),
        network_tx_bytes: since(sent),
        process_count: sum(processesOf),
      };
    }),
  );
}

/** When the container ran, as `[from, until)`. */
export function upTimes({ finished, gone }: ModelPod, { life }: ModelContainer): [number, number][] {
  const last = finished ?? gone ?? Infinity;
  return life.flatMap(([from, { shown }], position): [number, number][] => {
    const until = Math.min(life[position + 1]?.[0] ?? Infinity, last);
    return shown.status === "Running" && from < until ? [[from, until]] : [];
  });
}

export interface OverviewRange {
  readonly from: number;
  readonly to: number;
}

/** At every full minute of the range, and at its end. */
export function expectOverview(
  cluster: ModelCluster,
  range: OverviewRange,
  scrape: Scrape,
): PodOverviewRow[] {
  const rows = new Map<string, PodOverviewRow>();
  const times: number[] = [];
  for (let time = range.from; time <= range.to; time += 1_000) if (time % minute === 0) times.push(time);
  for (const time of new Set([...times, range.to])) {
    for (const { each, last } of present(cluster, scrape, time)) {
      rows.delete(key(each));
      rows.set(key(each), {
        ...stateOf(each, last, time),
        pod_uuid: each.uid,
        labels: valueAt(each.labels, last) ?? {},
        owner_references: each.owners,
      });
    }
  }
  // Insertion order is that of the last moment, then namespace and name.
  return [...rows.values()];
}

export const moments = ({ start, step, count }: Buckets): number[] =>
  Array.from({ length: count }, (_, index) => start + index * step);
