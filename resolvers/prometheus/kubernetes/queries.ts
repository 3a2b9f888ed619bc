// The queries about a cluster, each one expression for many metrics: the union of one selector for each name. An answer
// takes some twenty backend requests and OpenTelemetry's four, whatever exporters there are. Aggregations merge the duplicate series of
// replicated exporters.
import type { Millis } from "../../../src/core/time.ts";
import {
  aggregate,
  binary,
  call,
  combineMetrics,
  type Expression,
  type Matcher,
  matchAnyOf,
  matchEqual,
  matchNoneOf,
  matchPresent,
  metricName,
} from "../client/promql.ts";
import {
  cadvisorMetrics,
  nodeDisks,
  nodeFigures,
  nodeNetwork,
  type PodSource,
  podSources,
  stateMetrics,
} from "./metric-sources.ts";
import {
  buildRestartQuery,
  listInterfaceLabels,
  listNetworkMetrics,
  listPlainSpellings,
  type MetricSpelling,
} from "./network-queries.ts";
import { buildOtelNamesQuery, buildOtelNodeQuery } from "./otel.ts";
import {
  aggregateMax,
  allCpus,
  buildNewest,
  buildNewestOf,
  buildRate,
  buildRecency,
  buildSampleTime,
  containerCgroup,
  deduplicate,
  freshness,
  isMachineMetric,
  isOtelMetric,
  isWindowsMetric,
  keepPositive,
  matchName,
  matchPods,
  type PodScope,
  physicalAdapter,
  physicalDevice,
  physicalInterface,
  plainLabels,
  podCgroup,
  prefixedLabels,
  type QueryScope,
  rootCgroup,
  rootMatchers,
  selectSamples,
  systemVolume,
} from "./selectors.ts";
import type { QueryOrder } from "./snapshot-reader.ts";

/** The number of pods, each name once; with a longer `reach` also of pods that have been gone for less than that. */
export function buildPodCount(cluster: QueryScope, scope: PodScope, reach = freshness): Expression {
  return aggregate("count", [], buildPodList(cluster, scope, reach));
}

/** One series for each pod. */
export function buildPodList(cluster: QueryScope, scope: PodScope, reach = freshness): Expression {
  const infos = call(
    "last_over_time",
    selectSamples(cluster, [matchName("kube_pod_info"), ...matchPods(scope)], reach),
  );
  return aggregate("group", [plainLabels.namespace, plainLabels.pod], infos);
}

/** One series for each pod that some exporter of usage knows, but for OpenTelemetry's. */
export function buildPodUsageList(cluster: QueryScope, pods: readonly Matcher[]): Expression {
  const names = [
    ...listCgroupMetrics("pod"),
    ...listCgroupMetrics("containers"),
    cadvisorMetrics.cpu,
    resourceCpu.pod,
    ...listPlainSpellings("pods").map(({ name }) => name),
  ];
  const by = [plainLabels.namespace, plainLabels.pod];
  return aggregate("group", by, buildNewestOf(cluster, deduplicate(names), by, pods));
}

const podKey = [plainLabels.namespace, plainLabels.pod, "uid"];
const flag = "kube_pod_container_status_";

/** The state of pods, from kube-state-metrics. */
export function buildStateQueries(cluster: QueryScope, scope: PodScope) {
  const pods = matchPods(scope);
  const infoKey = [...podKey, "node", "host_network"];
  const containerKey = [...podKey, "container"];
  const reasonKey = [...containerKey, "reason"];
  const running = [matchName(`${flag}running`), ...pods];
  const reasons = (of: Expression): Expression => aggregateMax(reasonKey, of);
  return {
    infos: aggregateMax(infoKey, buildNewest(cluster, [matchName("kube_pod_info"), ...pods])),
    infoTimes: aggregateMax(infoKey, buildSampleTime(cluster, [matchName("kube_pod_info"), ...pods])),
    // Fresh, but not exported any more.
    endedContainers: binary(
      aggregateMax(containerKey, buildNewest(cluster, running)),
      "unless",
      aggregateMax(containerKey, buildSampleTime(cluster, running)),
    ),
    flags: keepPositive(
      buildNewestOf(
        cluster,
        ["kube_pod_status_phase", `${flag}running`, `${flag}waiting`, `${flag}terminated`],
        [...podKey, "phase", "container"],
        pods,
      ),
    ),
    reasons: keepPositive(
      buildNewestOf(cluster, [`${flag}waiting_reason`, `${flag}terminated_reason`], reasonKey, pods),
    ),
    waitingTimes: buildRecency(cluster, [matchName(`${flag}waiting_reason`), ...pods], reasons),
    terminatedTimes: buildRecency(cluster, [matchName(`${flag}terminated_reason`), ...pods], reasons),
    numbers: buildNewestOf(
      cluster,
      [
        "kube_pod_created",
        "kube_pod_start_time",
        "kube_pod_completion_time",
        `${flag}restarts_total`,
        `${flag}last_terminated_exitcode`,
      ],
      containerKey,
      pods,
    ),
  };
}

/** A pod has its phase, a status its reason, and what was counted its restarts. */
export const podQueryOrder: QueryOrder = {
  infoTimes: ["infos"],
  flags: ["infos", "endedContainers"],
  reasons: ["flags"],
  waitingTimes: ["reasons"],
  terminatedTimes: ["reasons"],
  numbers: ["flags"],
  owners: ["infos"],
  labels: ["infos"],
  labelTimes: ["labels"],
  restarts: ["podInterfaces"],
};

export type StateQueryName = keyof ReturnType<typeof buildStateQueries>;

/** The owners and labels of pods, from kube-state-metrics. */
export function buildIdentityQueries(cluster: QueryScope, scope: PodScope) {
  const pods = matchPods(scope);
  return {
    owners: aggregateMax(
      [...podKey, "owner_kind", "owner_name"],
      buildNewest(cluster, [matchName("kube_pod_owner"), ...pods]),
    ),
    // Not aggregated, since the names of the labels are unknown.
    labels: buildNewest(cluster, [matchName("kube_pod_labels"), ...pods]),
    labelTimes: buildRecency(cluster, [matchName("kube_pod_labels"), ...pods], (of) => of),
  };
}

export type IdentityQueryName = keyof ReturnType<typeof buildIdentityQueries>;

/** Exported by an exporter that may have its own spelling of a pod's labels. */
export const ephemeralUsage = "ephemeral_storage_pod_usage";
/** The CPU of kubelets without cAdvisor. */
export const resourceCpu = { pod: "pod_cpu_usage_seconds_total", node: "node_cpu_usage_seconds_total" };
const resourceMemory = "pod_memory_working_set_bytes";
export const exporterCpu = "node_cpu_seconds_total";
export const windowsCpu = "windows_cpu_time_total";

const nodeKey = ["node", "instance"];

const podUsageBy = [plainLabels.namespace, plainLabels.pod, "id", "node", "failure_type"];
const containerUsageBy = [...podUsageBy, "container"];

/** What pods use, from all exporters. */
export function buildUsageQueries(cluster: QueryScope, scope: PodScope, step: Millis) {
  const pods = matchPods(scope);
  return {
    ...buildCgroupQueries(cluster, pods),
    resourceRates: aggregateMax(podUsageBy, buildRate(cluster, [matchName(resourceCpu.pod), ...pods])),
    podInterfaces: buildNewestOf(
      cluster,
      listPlainSpellings("pods").map(({ name }) => name),
      listInterfaceLabels("pods", cadvisorMetrics.received).slice(1),
      [physicalInterface, ...pods],
    ),
    restarts: buildRestartQuery(cluster, "pods", listPlainSpellings("pods"), step, scope),
    otelNames: buildOtelNamesQuery(cluster, "pods"),
    // An exporter with its own spelling has the labels of its own pod beside it.
    ephemeral: binary(
      buildEphemeralQuery(cluster, scope, prefixedLabels, []),
      "or",
      buildEphemeralQuery(cluster, scope, plainLabels, [matchEqual(prefixedLabels.pod, "")]),
    ),
    disks: combineMetrics(listPlainCapacities(), (name) =>
      aggregateMax(
        [metricName, ...nodeKey, "device", "volume"],
        buildNewest(cluster, [name, ...listDiskMatchers(name.value)]),
      ),
    ),
    ...buildAddressQueries(cluster),
    ...buildMachineQueries(cluster),
  };
}

export type UsageQueryName = keyof ReturnType<typeof buildUsageQueries>;

/** cAdvisor's values and rates of the cgroups of pods and of containers. */
function buildCgroupQueries(cluster: QueryScope, pods: readonly Matcher[]) {
  const podMetrics = listCgroupMetrics("pod");
  const containerMetrics = listCgroupMetrics("containers");
  const cpu = matchName(cadvisorMetrics.cpu);
  return {
    podValues: buildNewestOf(cluster, podMetrics, podUsageBy, [...podCgroup, ...pods]),
    podRates: aggregateMax(podUsageBy, buildRate(cluster, [cpu, ...podCgroup, ...pods])),
    containerValues: buildNewestOf(
      cluster,
      [...containerMetrics, cadvisorMetrics.containerStart],
      containerUsageBy,
      [...containerCgroup, ...pods],
    ),
    containerRates: aggregateMax(containerUsageBy, buildRate(cluster, [cpu, ...containerCgroup, ...pods])),
  };
}

function listCgroupMetrics(level: PodSource["level"]): readonly string[] {
  const sources = podSources.filter((source) => source.level === level && source.of === "value");
  const names = sources.map(({ metric }) => metric);
  return deduplicate(names.filter((name) => !isOtelMetric(name) && name !== ephemeralUsage));
}

function buildEphemeralQuery(
  cluster: QueryScope,
  scope: PodScope,
  labels: typeof plainLabels,
  more: readonly Matcher[],
): Expression {
  const matchers = [matchName(ephemeralUsage), ...matchPods(scope, labels), ...more];
  return aggregateMax([labels.namespace, labels.pod], buildNewest(cluster, matchers));
}

function buildAddressQueries(cluster: QueryScope) {
  const by = ["node", "internal_ip"];
  const infos = [matchName("kube_node_info")];
  return {
    addresses: aggregateMax(by, buildNewest(cluster, infos)),
    addressTimes: buildRecency(cluster, infos, (of) => aggregateMax(by, of)),
  };
}

/** The names of machines, as they themselves have them. */
function buildMachineQueries(cluster: QueryScope) {
  const by = ["instance", "nodename", "hostname"];
  const names = ["node_uname_info", "windows_os_hostname", "windows_cs_hostname"].map(matchName);
  const union = (build: (name: Matcher) => Expression): Expression =>
    names.map(build).reduce((either, or) => binary(either, "or", or));
  return {
    unames: union((name) => aggregateMax(by, buildNewest(cluster, [name]))),
    unameTimes: union((name) => buildRecency(cluster, [name], (of) => aggregateMax(by, of))),
  };
}

/** The state and usage of nodes, from all exporters. */
export function buildNodeQueries(cluster: QueryScope, step: Millis, otel: readonly MetricSpelling[]) {
  const metrics = listNodeMetrics().filter((name) => !rateMetrics.has(name));
  return {
    ...buildAddressQueries(cluster),
    ...buildMachineQueries(cluster),
    ready: keepPositive(
      aggregateMax(
        ["node", "status"],
        buildNewest(cluster, [matchName("kube_node_status_condition"), matchEqual("condition", "Ready")]),
      ),
    ),
    roots: buildNewestOf(
      cluster,
      metrics.filter((name) => name.startsWith("container_")),
      [...nodeKey, "device", "interface", "failure_type"],
      [rootCgroup, ...rootMatchers, physicalInterface],
    ),
    rootRates: aggregateMax(
      nodeKey,
      buildRate(cluster, [matchName(cadvisorMetrics.cpu), rootCgroup, allCpus]),
    ),
    resourceRates: aggregateMax(nodeKey, buildRate(cluster, [matchName(resourceCpu.node)])),
    exporters: buildNewestOf(
      cluster,
      metrics.filter((name) => name.startsWith("node_")),
      [...nodeKey, "device"],
      [rootMountPoint, physicalDevice],
    ),
    exporterRates: sumCpus(
      cluster,
      exporterCpu,
      ["cpu", "mode"],
      [matchNoneOf("mode", ["idle", "iowait", "steal"])],
    ),
    windows: buildNewestOf(
      cluster,
      metrics.filter(isWindowsMetric),
      [...nodeKey, "volume", "nic"],
      [systemVolume, physicalAdapter],
    ),
    // Privileged time includes that of interrupts and deferred calls.
    windowsRates: sumCpus(
      cluster,
      windowsCpu,
      ["core", "mode"],
      [matchAnyOf("mode", ["privileged", "user"])],
    ),
    otel: buildOtelNodeQuery(cluster, otel),
    restarts: buildRestartQuery(
      cluster,
      "nodes",
      [...listPlainSpellings("nodes"), ...otel.filter(({ metric }) => networkMetrics.has(metric))],
      step,
    ),
  };
}

/** What was counted has its restarts. */
export const nodeQueryOrder: QueryOrder = { restarts: ["roots", "exporters", "windows", "otel"] };

export type NodeQueryName = keyof ReturnType<typeof buildNodeQueries>;

/** The CPU of each machine: the sum over its cores and their modes. */
function sumCpus(
  cluster: QueryScope,
  metric: string,
  parts: readonly string[],
  modes: readonly Matcher[],
): Expression {
  const rates = buildRate(cluster, [matchName(metric), ...modes]);
  return aggregate("sum", nodeKey, aggregateMax([...nodeKey, ...parts], rates));
}

const networkMetrics: ReadonlySet<string> = new Set(listNetworkMetrics(nodeNetwork));

function listNodeMetrics(): readonly string[] {
  return deduplicate([
    ...Object.values(nodeFigures).flatMap((sources) =>
      sources.flatMap(({ metric, minus }) => (minus === undefined ? [metric] : [metric, minus])),
    ),
    ...nodeDisks.flatMap((disk) => Object.values(disk)),
    ...listNetworkMetrics(nodeNetwork),
  ]).filter((name) => !isOtelMetric(name));
}

function listPlainCapacities(): readonly string[] {
  return nodeDisks.map(({ capacity }) => capacity).filter((name) => !isOtelMetric(name));
}

const rootMountPoint = matchAnyOf("mountpoint", ["/", ""]);

/** What selects the disk with a node's own files. */
function listDiskMatchers(capacity: string): readonly Matcher[] {
  if (isWindowsMetric(capacity)) return [systemVolume];
  return isMachineMetric(capacity) ? [rootMountPoint] : [rootCgroup];
}

const rateMetrics: ReadonlySet<string> = new Set([
  cadvisorMetrics.cpu,
  resourceCpu.node,
  exporterCpu,
  windowsCpu,
]);

/** Expressions that each count the nodes of one exporter. Each may miss some, and together they count some twice. */
export function buildNodeCounts(cluster: QueryScope): readonly Expression[] {
  const metrics = listNodeMetrics();
  const count = (names: readonly string[], ...matchers: readonly Matcher[]): Expression =>
    countDistinct(cluster, names, nodeKey, matchers);
  const ofMachine = metrics.filter((name) => name.startsWith("node_") && name !== exporterCpu);
  const ofWindows = metrics.filter((name) => isWindowsMetric(name) && name !== windowsCpu);
  return [
    countDistinct(cluster, ["kube_node_info"], ["node"], []),
    count(
      metrics.filter((name) => name.startsWith("container_")),
      rootCgroup,
    ),
    count([...ofMachine, ...ofWindows]),
    count([exporterCpu, windowsCpu], matchAnyOf("mode", ["user"])),
  ];
}

function countDistinct(
  cluster: QueryScope,
  names: readonly string[],
  by: readonly string[],
  matchers: readonly Matcher[],
): Expression {
  return aggregate("count", [], aggregate("group", by, buildNewestOf(cluster, names, by, matchers)));
}

const clusterMetrics: readonly string[] = [
  "kube_pod_info",
  "kube_node_info",
  "kube_node_status_condition",
  ...stateMetrics.map(([metric]) => metric),
];

/** For each metric the number of pods, containers or nodes that have it, of cAdvisor at its three levels. */
export function buildCoverageQueries(cluster: QueryScope) {
  const count = (
    names: readonly string[],
    by: readonly string[],
    matchers: readonly Matcher[] = [],
  ): Expression => aggregate("count", [metricName], buildNewestOf(cluster, names, by, matchers));
  const cadvisor = Object.values(cadvisorMetrics);
  const pod = [plainLabels.namespace, plainLabels.pod];
  const machines = listNodeMetrics().filter(isMachineMetric);
  return {
    cluster: count([...clusterMetrics, resourceCpu.pod, resourceMemory], [...pod, "node"]),
    machines: count(["node_uname_info", ephemeralUsage, ...machines], nodeKey),
    podCgroups: count(cadvisor, pod, [matchEqual("container", ""), matchPresent(plainLabels.pod)]),
    containers: count(cadvisor, [...pod, "container"], [...containerCgroup, matchPresent(plainLabels.pod)]),
    roots: count(cadvisor, nodeKey, [rootCgroup]),
    // A scrape renames labels of the exporter to this if its target has them too, unless `honor_labels` is set.
    exported: count(
      ["kube_pod_info"],
      ["exported_namespace", "exported_pod"],
      [matchPresent("exported_pod")],
    ),
    podOtelNames: buildOtelNamesQuery(cluster, "pods"),
    nodeOtelNames: buildOtelNamesQuery(cluster, "nodes"),
  };
}

export type CoverageQueryName = keyof ReturnType<typeof buildCoverageQueries>;
