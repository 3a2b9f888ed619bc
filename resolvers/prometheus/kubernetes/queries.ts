// What is asked of Prometheus about a cluster, each question one expression for many metrics. A value at a moment is
// the newest sample of the `freshness` before it, never a default look-back: cAdvisor's series do not end with their
// pod, and servers differ in how far they look back. Aggregations merge the twins that replicated exporters make.

import type { Millis } from "../../../src/core/time.ts";
import type { ForcedLabels } from "../../../src/store/store.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  type Matcher,
  matchAnyOf,
  matchEqual,
  matchNoneOf,
  matchPresent,
  metricName,
  number,
  type RangeEdge,
  type RangeSelector,
  select,
  selectRange,
} from "../client/promql.ts";
import {
  cadvisorMetrics,
  faultTypes,
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

export interface QueryScope {
  readonly match: ForcedLabels;
  readonly edge: RangeEdge;
}

// How exporters spell a pod's labels.
const plainLabels = { namespace: "namespace", pod: "pod" };
const prefixedLabels = { namespace: "pod_namespace", pod: "pod_name" };
const otelLabels = { namespace: "k8s_namespace_name", pod: "k8s_pod_name" };

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

const buildNewest = (forcedLabels: QueryScope, matchers: readonly Matcher[]): Expression =>
  call("last_over_time", selectSamples(forcedLabels, matchers, freshness));
/**
 * Growth per second between the two newest samples: no extrapolation, and the same on every version. Both sides are of
 * functions that drop the labels `__type__` and `__unit__`, by which they would else never meet.
 */
const buildRate = (forcedLabels: QueryScope, matchers: readonly Matcher[]): Expression => {
  const fresh = call("count_over_time", selectSamples(forcedLabels, matchers, freshness));
  return binary(call("irate", selectSamples(forcedLabels, matchers, rateReach)), "and", fresh);
};
const selectSamples = (
  { match, edge }: QueryScope,
  matchers: readonly Matcher[],
  reach: Millis,
): RangeSelector => selectRange(select(match, matchers), edge, { from: reach - 1, to: 0 });
/** When the newest sample was taken, of series that go on: a series that its exporter ended is not among them. */
const buildSampleTime = ({ match }: QueryScope, matchers: readonly Matcher[]): Expression =>
  call("timestamp", select(match, matchers));
/**
 * The same, and for series that have ended a number below every time, the greater the newer their last sample is: a scrape
 * that fails ends all series of its target. They are those of the `wanted`, of which every sample is 1.
 */
function buildRecency(
  forcedLabels: QueryScope,
  matchers: readonly Matcher[],
  wanted: (of: Expression) => Expression,
): Expression {
  const ages = Array.from({ length: freshness / ageStep }, (_, index) => (index + 1) * ageStep);
  const ended = ages.map((age) => {
    const within = call("last_over_time", selectSamples(forcedLabels, matchers, age));
    return binary(number((freshness - age) / ageStep + 1), "*", wanted(within));
  });
  return ended.reduce(
    (newer, older) => binary(newer, "or", older),
    wanted(buildSampleTime(forcedLabels, matchers)),
  );
}
const matchNames = (...names: readonly string[]): Matcher => matchAnyOf(metricName, names);
const aggregateMax = (by: readonly string[], of: Expression): Expression => aggregate("max", by, of);
const keepPositive = (of: Expression): Expression => binary(of, ">", number(0));

function matchPods(
  { namespaces, pods }: PodScope,
  labels: typeof plainLabels = plainLabels,
): readonly Matcher[] {
  return [
    ...(namespaces.length > 0 ? [matchAnyOf(labels.namespace, namespaces)] : []),
    pods.length > 0 ? matchAnyOf(labels.pod, pods) : matchPresent(labels.pod),
  ];
}

/** How many pods each moment has, of one name once; with a longer reach also those that are gone so long. */
export function buildPodCount(forcedLabels: QueryScope, scope: PodScope, reach = freshness): Expression {
  return aggregate("count", [], buildPodList(forcedLabels, scope, reach));
}

/** Which pods each moment has. */
export function buildPodList(forcedLabels: QueryScope, scope: PodScope, reach = freshness): Expression {
  const infos = call(
    "last_over_time",
    selectSamples(forcedLabels, [matchNames("kube_pod_info"), ...matchPods(scope)], reach),
  );
  return aggregate("group", [plainLabels.namespace, plainLabels.pod], infos);
}

const podKey = [plainLabels.namespace, plainLabels.pod, "uid"];
const flag = "kube_pod_container_status_";

/** What kube-state-metrics tells of pods. */
export function buildStateQueries(forcedLabels: QueryScope, scope: PodScope) {
  const pods = matchPods(scope);
  const infoKey = [...podKey, "node", "host_network"];
  const containerKey = [...podKey, "container"];
  const reasonKey = [...containerKey, "reason"];
  const running = [matchNames(`${flag}running`), ...pods];
  const reasons = (of: Expression): Expression => aggregateMax(reasonKey, of);
  return {
    infos: aggregateMax(infoKey, buildNewest(forcedLabels, [matchNames("kube_pod_info"), ...pods])),
    informed: aggregateMax(infoKey, buildSampleTime(forcedLabels, [matchNames("kube_pod_info"), ...pods])),
    flags: keepPositive(
      aggregateMax(
        [metricName, ...podKey, "phase", "container"],
        buildNewest(forcedLabels, [
          matchNames("kube_pod_status_phase", `${flag}running`, `${flag}waiting`, `${flag}terminated`),
          ...pods,
        ]),
      ),
    ),
    // Containers that were told of and are no more.
    dropped: binary(
      aggregateMax(containerKey, buildNewest(forcedLabels, running)),
      "unless",
      aggregateMax(containerKey, buildSampleTime(forcedLabels, running)),
    ),
    reasons: keepPositive(
      aggregateMax(
        [metricName, ...reasonKey],
        buildNewest(forcedLabels, [matchNames(`${flag}waiting_reason`, `${flag}terminated_reason`), ...pods]),
      ),
    ),
    waits: buildRecency(forcedLabels, [matchNames(`${flag}waiting_reason`), ...pods], reasons),
    ends: buildRecency(forcedLabels, [matchNames(`${flag}terminated_reason`), ...pods], reasons),
    numbers: aggregateMax(
      [metricName, ...containerKey],
      buildNewest(forcedLabels, [
        matchNames(
          ...["kube_pod_created", "kube_pod_start_time", "kube_pod_completion_time"],
          ...[`${flag}restarts_total`, `${flag}last_terminated_exitcode`],
        ),
        ...pods,
      ]),
    ),
  };
}
export type StateQueryName = keyof ReturnType<typeof buildStateQueries>;

export function buildIdentityQueries(forcedLabels: QueryScope, scope: PodScope) {
  const pods = matchPods(scope);
  return {
    owners: aggregateMax(
      [...podKey, "owner_kind", "owner_name"],
      buildNewest(forcedLabels, [matchNames("kube_pod_owner"), ...pods]),
    ),
    // Whole series: which labels there are is not known.
    labels: buildNewest(forcedLabels, [matchNames("kube_pod_labels"), ...pods]),
    labelled: buildRecency(forcedLabels, [matchNames("kube_pod_labels"), ...pods], (of) => of),
  };
}
export type IdentityQueryName = keyof ReturnType<typeof buildIdentityQueries>;

const deduplicate = (names: readonly string[]): readonly string[] => [...new Set(names)];
const isOtelMetric = (name: string): boolean => name.startsWith("k8s_");
/** Told by an exporter that may spell a pod's labels in its own way, and the cpu of kubelets without cAdvisor. */
export const ephemeralUsage = "ephemeral_storage_pod_usage";
export const resourceCpu = { pod: "pod_cpu_usage_seconds_total", node: "node_cpu_usage_seconds_total" };
export const exporterCpu = "node_cpu_seconds_total";

// cAdvisor's page faults of a cgroup with all below it, or of nothing but a container.
const hierarchy = matchAnyOf("scope", ["hierarchy", ""]);
const itself = matchAnyOf("scope", ["container", ""]);
const faults = matchAnyOf("failure_type", [...faultTypes, ""]);
const allCpus = matchAnyOf("cpu", ["total", ""]);
const root = matchEqual("id", "/");
/** Neither a container nor its sandbox, which has an image. */
const cgroup = [matchEqual("container", ""), matchEqual("image", ""), hierarchy, faults, allCpus];
const inside = [{ label: "container", operator: "!~", value: "POD|" } as const, itself, faults, allCpus];
const real: Matcher = { label: "interface", operator: "!~", value: virtualInterfaces };
const realDevice: Matcher = { ...real, label: "device" };

/** Whose interfaces. */
export type InterfaceOwner = "pods" | "nodes";
/** Labels that name an interface, whoever tells of it. */
export const interfaceKeys: Readonly<Record<InterfaceOwner, readonly string[]>> = {
  pods: [plainLabels.namespace, plainLabels.pod, otelLabels.namespace, otelLabels.pod, "interface"],
  nodes: ["node", "instance", "k8s_node_name", "interface", "device"],
};
/** Those that do in a metric's own spelling. */
function listInterfaceKeys(owner: InterfaceOwner, metric: string): readonly string[] {
  if (isOtelMetric(metric)) {
    return [...(owner === "pods" ? [otelLabels.namespace, otelLabels.pod] : ["k8s_node_name"]), "interface"];
  }
  if (owner === "pods") return [plainLabels.namespace, plainLabels.pod, "interface"];
  return ["node", "instance", metric.startsWith("node_") ? "device" : "interface"];
}
/**
 * All that its series tell of an interface. Others of their labels tell of the scrape: a collector adds its own pod's
 * name to what it passes on, in the spelling of others.
 */
export function listInterfaceLabels(owner: InterfaceOwner, metric: string): readonly string[] {
  const more = isOtelMetric(metric) ? ["k8s_pod_uid", "direction"] : owner === "pods" ? ["id", "node"] : [];
  return [metricName, ...listInterfaceKeys(owner, metric), ...more];
}
/** The counters of one metric from the snapshot before on, and what was fresh at that. */
function selectCounters(
  forcedLabels: QueryScope,
  owner: InterfaceOwner,
  metric: string,
  more: readonly Matcher[],
  step: Millis,
): RangeSelector {
  const machine = metric.startsWith("node_");
  const level = owner === "nodes" && metric.startsWith("container_") ? [root] : [];
  return selectSamples(
    forcedLabels,
    [matchNames(metric), machine ? realDevice : real, ...level, ...more],
    step + freshness,
  );
}
/** Which interfaces have counters that fell since the snapshot before. */
function buildRestartQuery(
  forcedLabels: QueryScope,
  owner: InterfaceOwner,
  step: Millis,
  scope?: PodScope,
): Expression {
  const network = owner === "pods" ? podNetwork : nodeNetwork;
  const fell = listNetworkMetrics(network).map((metric) => {
    const pods = scope === undefined ? [] : matchPods(scope, isOtelMetric(metric) ? otelLabels : plainLabels);
    return aggregateMax(
      listInterfaceKeys(owner, metric),
      keepPositive(call("resets", selectCounters(forcedLabels, owner, metric, pods, step))),
    );
  });
  return fell.reduce((either, or) => binary(either, "or", or));
}
/**
 * The samples of some interfaces, and maybe of others, one expression for each metric: of the length before, and of the
 * time before that in which a snapshot at its beginning was fresh.
 */
export function buildInterfaceQueries(
  forcedLabels: QueryScope,
  owner: InterfaceOwner,
  interfaces: readonly Readonly<Record<string, string>>[],
  length: Millis,
): readonly Expression[] {
  const network = owner === "pods" ? podNetwork : nodeNetwork;
  return listNetworkMetrics(network).map((metric) => {
    const narrowed = listInterfaceKeys(owner, metric).map((label) =>
      matchAnyOf(label, [...new Set(interfaces.map((labels) => labels[label] ?? ""))]),
    );
    return selectCounters(forcedLabels, owner, metric, narrowed, length);
  });
}

const listNetworkMetrics = (network: typeof podNetwork): readonly string[] =>
  deduplicate(Object.values(network).flatMap((sources) => sources.map(({ metric }) => metric)));

export function buildUsageQueries(forcedLabels: QueryScope, scope: PodScope, step: Millis) {
  const pods = matchPods(scope);
  const values = (level: PodSource["level"]): readonly string[] =>
    podSources
      .filter((source) => source.level === level && source.of === "value")
      .map(({ metric }) => metric)
      .filter((name) => !isOtelMetric(name) && name !== ephemeralUsage);
  const podBy = [plainLabels.namespace, plainLabels.pod, "id", "node", "failure_type"];
  const containerBy = [...podBy, "container"];
  const ephemeral = (labels: typeof plainLabels, more: readonly Matcher[]): Expression =>
    aggregateMax(
      [labels.namespace, labels.pod],
      buildNewest(forcedLabels, [matchNames(ephemeralUsage), ...matchPods(scope, labels), ...more]),
    );
  return {
    podValues: aggregateMax(
      [metricName, ...podBy],
      buildNewest(forcedLabels, [matchNames(...deduplicate(values("pod"))), ...cgroup, ...pods]),
    ),
    podRates: aggregateMax(
      podBy,
      buildRate(forcedLabels, [matchNames(cadvisorMetrics.cpu), ...cgroup, ...pods]),
    ),
    containerValues: aggregateMax(
      [metricName, ...containerBy],
      buildNewest(forcedLabels, [
        matchNames(...deduplicate(values("containers")), cadvisorMetrics.containerStart),
        ...inside,
        ...pods,
      ]),
    ),
    containerRates: aggregateMax(
      containerBy,
      buildRate(forcedLabels, [matchNames(cadvisorMetrics.cpu), ...inside, ...pods]),
    ),
    resourceRates: aggregateMax(podBy, buildRate(forcedLabels, [matchNames(resourceCpu.pod), ...pods])),
    podInterfaces: aggregateMax(
      listInterfaceLabels("pods", cadvisorMetrics.received),
      buildNewest(forcedLabels, [
        matchNames(...listNetworkMetrics(podNetwork).filter((name) => !isOtelMetric(name))),
        real,
        ...pods,
      ]),
    ),
    otelValues: aggregateMax(
      [metricName, otelLabels.namespace, otelLabels.pod, "k8s_pod_uid"],
      buildNewest(forcedLabels, [
        matchNames(...deduplicate(podSources.map(({ metric }) => metric).filter(isOtelMetric))),
        ...matchPods(scope, otelLabels),
      ]),
    ),
    otelInterfaces: aggregateMax(
      listInterfaceLabels("pods", otelPodNetwork),
      buildNewest(forcedLabels, [
        matchNames(...listNetworkMetrics(podNetwork).filter(isOtelMetric)),
        real,
        ...matchPods(scope, otelLabels),
      ]),
    ),
    restarts: buildRestartQuery(forcedLabels, "pods", step, scope),
    // An exporter that keeps its own spelling has labels of its own pod beside it.
    ephemeral: binary(
      ephemeral(prefixedLabels, []),
      "or",
      ephemeral(plainLabels, [matchEqual(prefixedLabels.pod, "")]),
    ),
    disks: aggregateMax(
      [metricName, "node", "instance", "device"],
      buildNewest(forcedLabels, [matchNames(cadvisorMetrics.diskLimit), root]),
    ),
    ...buildAddressQueries(forcedLabels),
  };
}
export type UsageQueryName = keyof ReturnType<typeof buildUsageQueries>;

function buildAddressQueries(forcedLabels: QueryScope) {
  const by = ["node", "internal_ip"];
  const infos = [matchNames("kube_node_info")];
  return {
    addresses: aggregateMax(by, buildNewest(forcedLabels, infos)),
    addressed: buildRecency(forcedLabels, infos, (of) => aggregateMax(by, of)),
  };
}

export function buildNodeQueries(forcedLabels: QueryScope, step: Millis) {
  const own = ["node", "instance"];
  const told = listNodeMetrics();
  return {
    ...buildAddressQueries(forcedLabels),
    ready: keepPositive(
      aggregateMax(
        ["node", "status"],
        buildNewest(forcedLabels, [
          matchNames("kube_node_status_condition"),
          matchEqual("condition", "Ready"),
        ]),
      ),
    ),
    unames: aggregateMax(
      ["instance", "nodename"],
      buildNewest(forcedLabels, [matchNames("node_uname_info")]),
    ),
    uttered: buildRecency(forcedLabels, [matchNames("node_uname_info")], (of) =>
      aggregateMax(["instance", "nodename"], of),
    ),
    roots: aggregateMax(
      [metricName, ...own, "device", "interface", "failure_type"],
      buildNewest(forcedLabels, [
        matchNames(...told.filter((name) => name.startsWith("container_") && !rateMetrics.has(name))),
        ...[root, hierarchy, faults, real],
      ]),
    ),
    rootRates: aggregateMax(own, buildRate(forcedLabels, [matchNames(cadvisorMetrics.cpu), root, allCpus])),
    resourceRates: aggregateMax(own, buildRate(forcedLabels, [matchNames(resourceCpu.node)])),
    exporters: aggregateMax(
      [metricName, ...own, "device"],
      buildNewest(forcedLabels, [
        matchNames(...told.filter((name) => name.startsWith("node_") && !rateMetrics.has(name))),
        matchAnyOf("mountpoint", ["/", ""]),
        realDevice,
      ]),
    ),
    exporterRates: aggregate(
      "sum",
      own,
      aggregateMax(
        [...own, "cpu", "mode"],
        buildRate(forcedLabels, [matchNames(exporterCpu), matchNoneOf("mode", ["idle", "iowait", "steal"])]),
      ),
    ),
    otel: aggregateMax(
      [metricName, "k8s_node_name", "interface", "direction"],
      buildNewest(forcedLabels, [matchNames(...told.filter(isOtelMetric)), real]),
    ),
    restarts: buildRestartQuery(forcedLabels, "nodes", step),
  };
}
export type NodeQueryName = keyof ReturnType<typeof buildNodeQueries>;
function listNodeMetrics(): readonly string[] {
  return deduplicate([
    ...Object.values(nodeFigures).flatMap((sources) =>
      sources.flatMap(({ metric, minus }) => (minus === undefined ? [metric] : [metric, minus])),
    ),
    ...nodeDisks.flatMap((disk) => Object.values(disk)),
    ...listNetworkMetrics(nodeNetwork),
  ]);
}
const rateMetrics: ReadonlySet<string> = new Set([cadvisorMetrics.cpu, resourceCpu.node, exporterCpu]);

/** Expressions for how many nodes each moment has. Each is blind to some, and together they tell of some twice. */
export function buildNodeCounts(forcedLabels: QueryScope): readonly Expression[] {
  const told = listNodeMetrics();
  const count = (by: readonly string[], ...matchers: readonly Matcher[]): Expression =>
    aggregate("count", [], aggregate("group", by, buildNewest(forcedLabels, matchers)));
  const own = ["node", "instance"];
  return [
    count(["node"], matchNames("kube_node_info")),
    count(own, matchNames(...told.filter((name) => name.startsWith("container_"))), root),
    count(own, matchNames(...told.filter((name) => name.startsWith("node_") && name !== exporterCpu))),
    count(own, matchNames(exporterCpu), matchEqual("mode", "user")),
    count(["k8s_node_name"], matchNames(...told.filter(isOtelMetric))),
  ];
}

/** How many things each metric tells of, cAdvisor's at its three levels. */
export function buildCoverageQueries(forcedLabels: QueryScope) {
  const cadvisor = matchNames(...Object.values(cadvisorMetrics));
  const count = (by: readonly string[], matchers: readonly Matcher[]): Expression =>
    aggregate(
      "count",
      [metricName],
      aggregate("group", [metricName, ...by], buildNewest(forcedLabels, matchers)),
    );
  const pod = [plainLabels.namespace, plainLabels.pod];
  const names = { label: metricName, operator: "=~", value: "kube_(?:pod|node)_.+|k8s_.+|pod_.+" } as const;
  const machines = listNodeMetrics().filter((name) => name.startsWith("node_"));
  return {
    cluster: count([...pod, otelLabels.namespace, otelLabels.pod, "node", "k8s_node_name"], [names]),
    machines: count(["node", "instance"], [matchNames("node_uname_info", ephemeralUsage, ...machines)]),
    podCgroups: count(pod, [cadvisor, matchEqual("container", ""), matchPresent(plainLabels.pod)]),
    containers: count([...pod, "container"], [cadvisor, ...inside, matchPresent(plainLabels.pod)]),
    roots: count(["node", "instance"], [cadvisor, root]),
    // What a scrape makes of a label that its target has as well, unless it is told to honor it.
    exported: count(
      ["exported_namespace", "exported_pod"],
      [matchNames("kube_pod_info"), matchPresent("exported_pod")],
    ),
  };
}
export type CoverageQueryName = keyof ReturnType<typeof buildCoverageQueries>;
