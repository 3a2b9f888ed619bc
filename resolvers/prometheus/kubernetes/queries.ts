// What is asked of Prometheus about a cluster, each question one expression for many metrics. A value at a moment is
// the newest sample of the `freshness` before it, never a default look-back: cAdvisor's series do not end with their
// pod, and servers differ in how far they look back. Aggregations merge the twins that replicated exporters make.

import type { Millis } from "../../../src/core/time.ts";
import type { Match } from "../../../src/store/store.ts";
import {
  aggregate,
  binary,
  call,
  type Edge,
  type Expression,
  equal,
  type Matcher,
  metricName,
  noneOf,
  number,
  oneOf,
  present,
  select,
  type Window,
  window,
} from "../client/promql.ts";
import {
  faultTypes,
  metrics,
  nodeDisks,
  nodeFigures,
  nodeNetwork,
  otelPodNetwork,
  type PodSource,
  podNetwork,
  podSources,
} from "./metric-sources.ts";

/** A sample is a snapshot's when it is less old than this. Two scrapes of a minute fit in. */
export const freshness: Millis = 120_000;
/** Scrapes are hardly ever closer: two of one target are not of one age. */
const ageStep: Millis = 15_000;
/** How old the sample before it may be, of which it grew: with a scrape of a minute that failed, and late ones. */
const rateReach: Millis = 300_000;

/** Which pods are asked about; empty is all. */
export interface PodScope {
  readonly namespaces: readonly string[];
  readonly pods: readonly string[];
}

export interface Wall {
  readonly match: Match;
  readonly edge: Edge;
}

// How exporters spell a pod's labels.
const plain = { namespace: "namespace", pod: "pod" };
const prefixed = { namespace: "pod_namespace", pod: "pod_name" };
const otel = { namespace: "k8s_namespace_name", pod: "k8s_pod_name" };

/** What names of virtual interfaces begin with: bridges, tunnels and the nodes' ends of pods' wires. */
const virtualPrefixes = [
  ...["antrea", "azv", "br-", "cali", "cbr", "cilium", "cni", "docker", "dummy", "eni", "erspan", "flannel"],
  ...["genev", "gke", "gre", "ifb", "ip6gre", "ip6tnl", "ip6_vti", "ip_vti", "ipvl", "kube-", "lxc", "lxdbr"],
  ...["macvtap", "nodelocaldns", "ovn", "ovs", "podman", "sit", "tap", "tun", "veth", "virbr", "vlan"],
  ...["vxlan", "weave", "wg", "wireguard"],
];
/**
 * Interfaces of the host's own plumbing, and VLANs: their traffic is counted once more at the real one. No pattern fits
 * a path, since the node exporter calls disks devices as well.
 */
const virtualInterfaces = `lo|(?:${virtualPrefixes.join("|")})[^/]*|[^/]+\\.[0-9]+`;

const newest = (wall: Wall, matchers: readonly Matcher[]): Expression =>
  call("last_over_time", samples(wall, matchers, freshness));
/**
 * Growth per second between the two newest samples: no extrapolation, and the same on every version. Both sides are of
 * functions that drop the labels `__type__` and `__unit__`, by which they would else never meet.
 */
const rate = (wall: Wall, matchers: readonly Matcher[]): Expression => {
  const fresh = call("count_over_time", samples(wall, matchers, freshness));
  return binary(call("irate", samples(wall, matchers, rateReach)), "and", fresh);
};
const samples = ({ match, edge }: Wall, matchers: readonly Matcher[], reach: Millis): Window =>
  window(select(match, matchers), edge, { from: reach - 1, to: 0 });
/** When the newest sample was taken, of series that go on: a series that its exporter ended is not among them. */
const taken = ({ match }: Wall, matchers: readonly Matcher[]): Expression =>
  call("timestamp", select(match, matchers));
/**
 * The same, and for series that have ended a number below every time, the greater the newer their last sample is: a scrape
 * that fails ends all series of its target. They are those of the `wanted`, of which every sample is 1.
 */
function recency(
  wall: Wall,
  matchers: readonly Matcher[],
  wanted: (of: Expression) => Expression,
): Expression {
  const ages = Array.from({ length: freshness / ageStep }, (_, index) => (index + 1) * ageStep);
  const ended = ages.map((age) => {
    const within = call("last_over_time", samples(wall, matchers, age));
    return binary(number((freshness - age) / ageStep + 1), "*", wanted(within));
  });
  return ended.reduce((newer, older) => binary(newer, "or", older), wanted(taken(wall, matchers)));
}
const named = (...names: readonly string[]): Matcher => oneOf(metricName, names);
const max = (by: readonly string[], of: Expression): Expression => aggregate("max", by, of);
const set = (of: Expression): Expression => binary(of, ">", number(0));

function scoped({ namespaces, pods }: PodScope, labels: typeof plain = plain): readonly Matcher[] {
  return [
    ...(namespaces.length > 0 ? [oneOf(labels.namespace, namespaces)] : []),
    pods.length > 0 ? oneOf(labels.pod, pods) : present(labels.pod),
  ];
}

/** How many pods each moment has, of one name once; with a longer reach also those that are gone so long. */
export function countPods(wall: Wall, scope: PodScope, reach = freshness): Expression {
  return aggregate("count", [], listPods(wall, scope, reach));
}

/** Which pods each moment has. */
export function listPods(wall: Wall, scope: PodScope, reach = freshness): Expression {
  const infos = call("last_over_time", samples(wall, [named("kube_pod_info"), ...scoped(scope)], reach));
  return aggregate("group", [plain.namespace, plain.pod], infos);
}

const podKey = [plain.namespace, plain.pod, "uid"];
const flag = "kube_pod_container_status_";

/** What kube-state-metrics tells of pods. */
export function askState(wall: Wall, scope: PodScope) {
  const pods = scoped(scope);
  const infoKey = [...podKey, "node", "host_network"];
  const containerKey = [...podKey, "container"];
  const reasonKey = [...containerKey, "reason"];
  const running = [named(`${flag}running`), ...pods];
  const reasons = (of: Expression): Expression => max(reasonKey, of);
  return {
    infos: max(infoKey, newest(wall, [named("kube_pod_info"), ...pods])),
    informed: max(infoKey, taken(wall, [named("kube_pod_info"), ...pods])),
    flags: set(
      max(
        [metricName, ...podKey, "phase", "container"],
        newest(wall, [
          named("kube_pod_status_phase", `${flag}running`, `${flag}waiting`, `${flag}terminated`),
          ...pods,
        ]),
      ),
    ),
    // Containers that were told of and are no more.
    dropped: binary(
      max(containerKey, newest(wall, running)),
      "unless",
      max(containerKey, taken(wall, running)),
    ),
    reasons: set(
      max(
        [metricName, ...reasonKey],
        newest(wall, [named(`${flag}waiting_reason`, `${flag}terminated_reason`), ...pods]),
      ),
    ),
    waits: recency(wall, [named(`${flag}waiting_reason`), ...pods], reasons),
    ends: recency(wall, [named(`${flag}terminated_reason`), ...pods], reasons),
    numbers: max(
      [metricName, ...containerKey],
      newest(wall, [
        named(
          ...["kube_pod_created", "kube_pod_start_time", "kube_pod_completion_time"],
          ...[`${flag}restarts_total`, `${flag}last_terminated_exitcode`],
        ),
        ...pods,
      ]),
    ),
  };
}
export type StateQuestion = keyof ReturnType<typeof askState>;

export function askIdentity(wall: Wall, scope: PodScope) {
  const pods = scoped(scope);
  return {
    owners: max([...podKey, "owner_kind", "owner_name"], newest(wall, [named("kube_pod_owner"), ...pods])),
    // Whole series: which labels there are is not known.
    labels: newest(wall, [named("kube_pod_labels"), ...pods]),
    labelled: recency(wall, [named("kube_pod_labels"), ...pods], (of) => of),
  };
}
export type IdentityQuestion = keyof ReturnType<typeof askIdentity>;

const unique = (names: readonly string[]): readonly string[] => [...new Set(names)];
const ofOtel = (name: string): boolean => name.startsWith("k8s_");
/** Told by an exporter that may spell a pod's labels in its own way, and the cpu of kubelets without cAdvisor. */
export const exported = "ephemeral_storage_pod_usage";
export const resourceCpu = { pod: "pod_cpu_usage_seconds_total", node: "node_cpu_usage_seconds_total" };
export const exporterCpu = "node_cpu_seconds_total";

// cAdvisor's page faults of a cgroup with all below it, or of nothing but a container.
const hierarchy = oneOf("scope", ["hierarchy", ""]);
const itself = oneOf("scope", ["container", ""]);
const faults = oneOf("failure_type", [...faultTypes, ""]);
const allCpus = oneOf("cpu", ["total", ""]);
const root = equal("id", "/");
/** Neither a container nor its sandbox, which has an image. */
const cgroup = [equal("container", ""), equal("image", ""), hierarchy, faults, allCpus];
const inside = [{ label: "container", operator: "!~", value: "POD|" } as const, itself, faults, allCpus];
const real: Matcher = { label: "interface", operator: "!~", value: virtualInterfaces };
const realDevice: Matcher = { ...real, label: "device" };

/** Whose interfaces. */
export type Owner = "pods" | "nodes";
/** Labels that name an interface, whoever tells of it. */
export const interfaceKeys: Readonly<Record<Owner, readonly string[]>> = {
  pods: [plain.namespace, plain.pod, otel.namespace, otel.pod, "interface"],
  nodes: ["node", "instance", "k8s_node_name", "interface", "device"],
};
/** Those that do in a metric's own spelling. */
function keysOf(owner: Owner, metric: string): readonly string[] {
  if (ofOtel(metric)) {
    return [...(owner === "pods" ? [otel.namespace, otel.pod] : ["k8s_node_name"]), "interface"];
  }
  if (owner === "pods") return [plain.namespace, plain.pod, "interface"];
  return ["node", "instance", metric.startsWith("node_") ? "device" : "interface"];
}
/**
 * All that its series tell of an interface. Others of their labels tell of the scrape: a collector adds its own pod's
 * name to what it passes on, in the spelling of others.
 */
export function interfaceLabels(owner: Owner, metric: string): readonly string[] {
  const more = ofOtel(metric) ? ["k8s_pod_uid", "direction"] : owner === "pods" ? ["id", "node"] : [];
  return [metricName, ...keysOf(owner, metric), ...more];
}
/** The counters of one metric from the snapshot before on, and what was fresh at that. */
function counters(wall: Wall, owner: Owner, metric: string, more: readonly Matcher[], step: Millis): Window {
  const machine = metric.startsWith("node_");
  const level = owner === "nodes" && metric.startsWith("container_") ? [root] : [];
  return samples(wall, [named(metric), machine ? realDevice : real, ...level, ...more], step + freshness);
}
/** Which interfaces have counters that fell since the snapshot before. */
function askRestarts(wall: Wall, owner: Owner, step: Millis, scope?: PodScope): Expression {
  const network = owner === "pods" ? podNetwork : nodeNetwork;
  const fell = networkNames(network).map((metric) => {
    const pods = scope === undefined ? [] : scoped(scope, ofOtel(metric) ? otel : plain);
    return max(keysOf(owner, metric), set(call("resets", counters(wall, owner, metric, pods, step))));
  });
  return fell.reduce((either, or) => binary(either, "or", or));
}
/**
 * The samples of some interfaces, and maybe of others, one expression for each metric: of the length before, and of the
 * time before that in which a snapshot at its beginning was fresh.
 */
export function askInterfaces(
  wall: Wall,
  owner: Owner,
  interfaces: readonly Readonly<Record<string, string>>[],
  length: Millis,
): readonly Expression[] {
  const network = owner === "pods" ? podNetwork : nodeNetwork;
  return networkNames(network).map((metric) => {
    const narrowed = keysOf(owner, metric).map((label) =>
      oneOf(label, [...new Set(interfaces.map((labels) => labels[label] ?? ""))]),
    );
    return counters(wall, owner, metric, narrowed, length);
  });
}

const networkNames = (network: typeof podNetwork): readonly string[] =>
  unique(Object.values(network).flatMap((sources) => sources.map(({ metric }) => metric)));

export function askFigures(wall: Wall, scope: PodScope, step: Millis) {
  const pods = scoped(scope);
  const values = (level: PodSource["level"]): readonly string[] =>
    podSources
      .filter((source) => source.level === level && source.of === "value")
      .map(({ metric }) => metric)
      .filter((name) => !ofOtel(name) && name !== exported);
  const podBy = [plain.namespace, plain.pod, "id", "node", "failure_type"];
  const containerBy = [...podBy, "container"];
  const ephemeral = (labels: typeof plain, more: readonly Matcher[]): Expression =>
    max([labels.namespace, labels.pod], newest(wall, [named(exported), ...scoped(scope, labels), ...more]));
  return {
    podValues: max(
      [metricName, ...podBy],
      newest(wall, [named(...unique(values("pod"))), ...cgroup, ...pods]),
    ),
    podRates: max(podBy, rate(wall, [named(metrics.cpu), ...cgroup, ...pods])),
    containerValues: max(
      [metricName, ...containerBy],
      newest(wall, [named(...unique(values("containers")), metrics.containerStart), ...inside, ...pods]),
    ),
    containerRates: max(containerBy, rate(wall, [named(metrics.cpu), ...inside, ...pods])),
    resourceRates: max(podBy, rate(wall, [named(resourceCpu.pod), ...pods])),
    podInterfaces: max(
      interfaceLabels("pods", metrics.received),
      newest(wall, [named(...networkNames(podNetwork).filter((name) => !ofOtel(name))), real, ...pods]),
    ),
    otelValues: max(
      [metricName, otel.namespace, otel.pod, "k8s_pod_uid"],
      newest(wall, [
        named(...unique(podSources.map(({ metric }) => metric).filter(ofOtel))),
        ...scoped(scope, otel),
      ]),
    ),
    otelInterfaces: max(
      interfaceLabels("pods", otelPodNetwork),
      newest(wall, [named(...networkNames(podNetwork).filter(ofOtel)), real, ...scoped(scope, otel)]),
    ),
    restarts: askRestarts(wall, "pods", step, scope),
    // An exporter that keeps its own spelling has labels of its own pod beside it.
    ephemeral: binary(ephemeral(prefixed, []), "or", ephemeral(plain, [equal(prefixed.pod, "")])),
    disks: max([metricName, "node", "instance", "device"], newest(wall, [named(metrics.diskLimit), root])),
    ...askAddresses(wall),
  };
}
export type FigureQuestion = keyof ReturnType<typeof askFigures>;

function askAddresses(wall: Wall) {
  const by = ["node", "internal_ip"];
  const infos = [named("kube_node_info")];
  return { addresses: max(by, newest(wall, infos)), addressed: recency(wall, infos, (of) => max(by, of)) };
}

export function askNodes(wall: Wall, step: Millis) {
  const own = ["node", "instance"];
  const told = nodeMetrics();
  return {
    ...askAddresses(wall),
    ready: set(
      max(
        ["node", "status"],
        newest(wall, [named("kube_node_status_condition"), equal("condition", "Ready")]),
      ),
    ),
    unames: max(["instance", "nodename"], newest(wall, [named("node_uname_info")])),
    uttered: recency(wall, [named("node_uname_info")], (of) => max(["instance", "nodename"], of)),
    roots: max(
      [metricName, ...own, "device", "interface", "failure_type"],
      newest(wall, [
        named(...told.filter((name) => name.startsWith("container_") && !rated.has(name))),
        ...[root, hierarchy, faults, real],
      ]),
    ),
    rootRates: max(own, rate(wall, [named(metrics.cpu), root, allCpus])),
    resourceRates: max(own, rate(wall, [named(resourceCpu.node)])),
    exporters: max(
      [metricName, ...own, "device"],
      newest(wall, [
        named(...told.filter((name) => name.startsWith("node_") && !rated.has(name))),
        oneOf("mountpoint", ["/", ""]),
        realDevice,
      ]),
    ),
    exporterRates: aggregate(
      "sum",
      own,
      max(
        [...own, "cpu", "mode"],
        rate(wall, [named(exporterCpu), noneOf("mode", ["idle", "iowait", "steal"])]),
      ),
    ),
    otel: max(
      [metricName, "k8s_node_name", "interface", "direction"],
      newest(wall, [named(...told.filter(ofOtel)), real]),
    ),
    restarts: askRestarts(wall, "nodes", step),
  };
}
export type NodeQuestion = keyof ReturnType<typeof askNodes>;
function nodeMetrics(): readonly string[] {
  return unique([
    ...Object.values(nodeFigures).flatMap((sources) =>
      sources.flatMap(({ metric, minus }) => (minus === undefined ? [metric] : [metric, minus])),
    ),
    ...nodeDisks.flatMap((disk) => Object.values(disk)),
    ...networkNames(nodeNetwork),
  ]);
}
const rated: ReadonlySet<string> = new Set([metrics.cpu, resourceCpu.node, exporterCpu]);

/** Expressions for how many nodes each moment has. Each is blind to some, and together they tell of some twice. */
export function countNodes(wall: Wall): readonly Expression[] {
  const told = nodeMetrics();
  const count = (by: readonly string[], ...matchers: readonly Matcher[]): Expression =>
    aggregate("count", [], aggregate("group", by, newest(wall, matchers)));
  const own = ["node", "instance"];
  return [
    count(["node"], named("kube_node_info")),
    count(own, named(...told.filter((name) => name.startsWith("container_"))), root),
    count(own, named(...told.filter((name) => name.startsWith("node_") && name !== exporterCpu))),
    count(own, named(exporterCpu), equal("mode", "user")),
    count(["k8s_node_name"], named(...told.filter(ofOtel))),
  ];
}

/** How many things each metric tells of, cAdvisor's at its three levels. */
export function askCoverage(wall: Wall) {
  const cadvisor = named(...Object.values(metrics));
  const count = (by: readonly string[], matchers: readonly Matcher[]): Expression =>
    aggregate("count", [metricName], aggregate("group", [metricName, ...by], newest(wall, matchers)));
  const pod = [plain.namespace, plain.pod];
  const names = { label: metricName, operator: "=~", value: "kube_(?:pod|node)_.+|k8s_.+|pod_.+" } as const;
  const machines = nodeMetrics().filter((name) => name.startsWith("node_"));
  return {
    cluster: count([...pod, otel.namespace, otel.pod, "node", "k8s_node_name"], [names]),
    machines: count(["node", "instance"], [named("node_uname_info", exported, ...machines)]),
    podCgroups: count(pod, [cadvisor, equal("container", ""), present(plain.pod)]),
    containers: count([...pod, "container"], [cadvisor, ...inside, present(plain.pod)]),
    roots: count(["node", "instance"], [cadvisor, root]),
    // What a scrape makes of a label that its target has as well, unless it is told to honor it.
    exported: count(
      ["exported_namespace", "exported_pod"],
      [named("kube_pod_info"), present("exported_pod")],
    ),
  };
}
export type CoverageQuestion = keyof ReturnType<typeof askCoverage>;
