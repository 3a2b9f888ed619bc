// The queries about a cluster, each one expression for many metrics. Aggregations merge the duplicate series of
// replicated exporters.
import type { Millis } from "../../../src/core/time.ts";
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
} from "../client/promql.ts";
import {
  cadvisorMetrics,
  nodeDisks,
  nodeFigures,
  nodeNetwork,
  otelPodNetwork,
  type PodSource,
  podNetwork,
  podSources,
} from "./metric-sources.ts";
import { buildRestartQuery, listInterfaceLabels, listNetworkMetrics } from "./network-queries.ts";
import {
  aggregateMax,
  allCpus,
  buildNewest,
  buildRate,
  buildRecency,
  buildSampleTime,
  containerCgroup,
  deduplicate,
  freshness,
  isOtelMetric,
  keepPositive,
  matchNames,
  matchPods,
  otelLabels,
  type PodScope,
  physicalDevice,
  physicalInterface,
  plainLabels,
  podCgroup,
  prefixedLabels,
  type QueryScope,
  rootCgroup,
  rootMatchers,
  selectSamples,
} from "./selectors.ts";

/** The number of pods, each name once; with a longer `reach` also of pods that have been gone for less than that. */
export function buildPodCount(cluster: QueryScope, scope: PodScope, reach = freshness): Expression {
  return aggregate("count", [], buildPodList(cluster, scope, reach));
}

/** One series for each pod. */
export function buildPodList(cluster: QueryScope, scope: PodScope, reach = freshness): Expression {
  const infos = call(
    "last_over_time",
    selectSamples(cluster, [matchNames("kube_pod_info"), ...matchPods(scope)], reach),
  );
  return aggregate("group", [plainLabels.namespace, plainLabels.pod], infos);
}

const podKey = [plainLabels.namespace, plainLabels.pod, "uid"];
const flag = "kube_pod_container_status_";

/** The state of pods, from kube-state-metrics. */
export function buildStateQueries(cluster: QueryScope, scope: PodScope) {
  const pods = matchPods(scope);
  const infoKey = [...podKey, "node", "host_network"];
  const containerKey = [...podKey, "container"];
  const reasonKey = [...containerKey, "reason"];
  const running = [matchNames(`${flag}running`), ...pods];
  const reasons = (of: Expression): Expression => aggregateMax(reasonKey, of);
  return {
    infos: aggregateMax(infoKey, buildNewest(cluster, [matchNames("kube_pod_info"), ...pods])),
    infoTimes: aggregateMax(infoKey, buildSampleTime(cluster, [matchNames("kube_pod_info"), ...pods])),
    flags: keepPositive(
      aggregateMax(
        [metricName, ...podKey, "phase", "container"],
        buildNewest(cluster, [
          matchNames("kube_pod_status_phase", `${flag}running`, `${flag}waiting`, `${flag}terminated`),
          ...pods,
        ]),
      ),
    ),
    // Fresh, but not exported any more.
    endedContainers: binary(
      aggregateMax(containerKey, buildNewest(cluster, running)),
      "unless",
      aggregateMax(containerKey, buildSampleTime(cluster, running)),
    ),
    reasons: keepPositive(
      aggregateMax(
        [metricName, ...reasonKey],
        buildNewest(cluster, [matchNames(`${flag}waiting_reason`, `${flag}terminated_reason`), ...pods]),
      ),
    ),
    waitingTimes: buildRecency(cluster, [matchNames(`${flag}waiting_reason`), ...pods], reasons),
    terminatedTimes: buildRecency(cluster, [matchNames(`${flag}terminated_reason`), ...pods], reasons),
    numbers: aggregateMax(
      [metricName, ...containerKey],
      buildNewest(cluster, [
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

/** The owners and labels of pods, from kube-state-metrics. */
export function buildIdentityQueries(cluster: QueryScope, scope: PodScope) {
  const pods = matchPods(scope);
  return {
    owners: aggregateMax(
      [...podKey, "owner_kind", "owner_name"],
      buildNewest(cluster, [matchNames("kube_pod_owner"), ...pods]),
    ),
    // Not aggregated, since the names of the labels are unknown.
    labels: buildNewest(cluster, [matchNames("kube_pod_labels"), ...pods]),
    labelTimes: buildRecency(cluster, [matchNames("kube_pod_labels"), ...pods], (of) => of),
  };
}

export type IdentityQueryName = keyof ReturnType<typeof buildIdentityQueries>;

/** Exported by an exporter that may have its own spelling of a pod's labels. */
export const ephemeralUsage = "ephemeral_storage_pod_usage";
/** The CPU of kubelets without cAdvisor. */
export const resourceCpu = { pod: "pod_cpu_usage_seconds_total", node: "node_cpu_usage_seconds_total" };
export const exporterCpu = "node_cpu_seconds_total";

const podUsageBy = [plainLabels.namespace, plainLabels.pod, "id", "node", "failure_type"];
const containerUsageBy = [...podUsageBy, "container"];

/** What pods use, from all exporters. */
export function buildUsageQueries(cluster: QueryScope, scope: PodScope, step: Millis) {
  const pods = matchPods(scope);
  return {
    ...buildCgroupQueries(cluster, pods),
    resourceRates: aggregateMax(podUsageBy, buildRate(cluster, [matchNames(resourceCpu.pod), ...pods])),
    podInterfaces: aggregateMax(
      listInterfaceLabels("pods", cadvisorMetrics.received),
      buildNewest(cluster, [
        matchNames(...listNetworkMetrics(podNetwork).filter((name) => !isOtelMetric(name))),
        physicalInterface,
        ...pods,
      ]),
    ),
    otelValues: aggregateMax(
      [metricName, otelLabels.namespace, otelLabels.pod, "k8s_pod_uid"],
      buildNewest(cluster, [
        matchNames(...deduplicate(podSources.map(({ metric }) => metric).filter(isOtelMetric))),
        ...matchPods(scope, otelLabels),
      ]),
    ),
    otelInterfaces: aggregateMax(
      listInterfaceLabels("pods", otelPodNetwork),
      buildNewest(cluster, [
        matchNames(...listNetworkMetrics(podNetwork).filter(isOtelMetric)),
        physicalInterface,
        ...matchPods(scope, otelLabels),
      ]),
    ),
    restarts: buildRestartQuery(cluster, "pods", step, scope),
    // An exporter with its own spelling has the labels of its own pod beside it.
    ephemeral: binary(
      buildEphemeralQuery(cluster, scope, prefixedLabels, []),
      "or",
      buildEphemeralQuery(cluster, scope, plainLabels, [matchEqual(prefixedLabels.pod, "")]),
    ),
    disks: aggregateMax(
      [metricName, "node", "instance", "device"],
      buildNewest(cluster, [matchNames(cadvisorMetrics.diskLimit), rootCgroup]),
    ),
    ...buildAddressQueries(cluster),
  };
}

export type UsageQueryName = keyof ReturnType<typeof buildUsageQueries>;

/** cAdvisor's values and rates of the cgroups of pods and of containers. */
function buildCgroupQueries(cluster: QueryScope, pods: readonly Matcher[]) {
  const podMetrics = listCgroupMetrics("pod");
  const containerMetrics = listCgroupMetrics("containers");
  const cpu = matchNames(cadvisorMetrics.cpu);
  return {
    podValues: aggregateMax(
      [metricName, ...podUsageBy],
      buildNewest(cluster, [matchNames(...podMetrics), ...podCgroup, ...pods]),
    ),
    podRates: aggregateMax(podUsageBy, buildRate(cluster, [cpu, ...podCgroup, ...pods])),
    containerValues: aggregateMax(
      [metricName, ...containerUsageBy],
      buildNewest(cluster, [
        matchNames(...containerMetrics, cadvisorMetrics.containerStart),
        ...containerCgroup,
        ...pods,
      ]),
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
  const matchers = [matchNames(ephemeralUsage), ...matchPods(scope, labels), ...more];
  return aggregateMax([labels.namespace, labels.pod], buildNewest(cluster, matchers));
}

function buildAddressQueries(cluster: QueryScope) {
  const by = ["node", "internal_ip"];
  const infos = [matchNames("kube_node_info")];
  return {
    addresses: aggregateMax(by, buildNewest(cluster, infos)),
    addressTimes: buildRecency(cluster, infos, (of) => aggregateMax(by, of)),
  };
}

/** The state and usage of nodes, from all exporters. */
export function buildNodeQueries(cluster: QueryScope, step: Millis) {
  const own = ["node", "instance"];
  const metrics = listNodeMetrics();
  return {
    ...buildAddressQueries(cluster),
    ready: keepPositive(
      aggregateMax(
        ["node", "status"],
        buildNewest(cluster, [matchNames("kube_node_status_condition"), matchEqual("condition", "Ready")]),
      ),
    ),
    unames: aggregateMax(["instance", "nodename"], buildNewest(cluster, [matchNames("node_uname_info")])),
    unameTimes: buildRecency(cluster, [matchNames("node_uname_info")], (of) =>
      aggregateMax(["instance", "nodename"], of),
    ),
    roots: aggregateMax(
      [metricName, ...own, "device", "interface", "failure_type"],
      buildNewest(cluster, [
        matchNames(...metrics.filter((name) => name.startsWith("container_") && !rateMetrics.has(name))),
        ...[rootCgroup, ...rootMatchers, physicalInterface],
      ]),
    ),
    rootRates: aggregateMax(own, buildRate(cluster, [matchNames(cadvisorMetrics.cpu), rootCgroup, allCpus])),
    resourceRates: aggregateMax(own, buildRate(cluster, [matchNames(resourceCpu.node)])),
    exporters: aggregateMax(
      [metricName, ...own, "device"],
      buildNewest(cluster, [
        matchNames(...metrics.filter((name) => name.startsWith("node_") && !rateMetrics.has(name))),
        matchAnyOf("mountpoint", ["/", ""]),
        physicalDevice,
      ]),
    ),
    exporterRates: aggregate(
      "sum",
      own,
      aggregateMax(
        [...own, "cpu", "mode"],
        buildRate(cluster, [matchNames(exporterCpu), matchNoneOf("mode", ["idle", "iowait", "steal"])]),
      ),
    ),
    otel: aggregateMax(
      [metricName, "k8s_node_name", "interface", "direction"],
      buildNewest(cluster, [matchNames(...metrics.filter(isOtelMetric)), physicalInterface]),
    ),
    restarts: buildRestartQuery(cluster, "nodes", step),
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

/** Expressions that each count the nodes of one exporter. Each may miss some, and together they count some twice. */
export function buildNodeCounts(cluster: QueryScope): readonly Expression[] {
  const metrics = listNodeMetrics();
  const count = (by: readonly string[], ...matchers: readonly Matcher[]): Expression =>
    aggregate("count", [], aggregate("group", by, buildNewest(cluster, matchers)));
  const own = ["node", "instance"];
  return [
    count(["node"], matchNames("kube_node_info")),
    count(own, matchNames(...metrics.filter((name) => name.startsWith("container_"))), rootCgroup),
    count(own, matchNames(...metrics.filter((name) => name.startsWith("node_") && name !== exporterCpu))),
    count(own, matchNames(exporterCpu), matchEqual("mode", "user")),
    count(["k8s_node_name"], matchNames(...metrics.filter(isOtelMetric))),
  ];
}

/** For each metric the number of pods, containers or nodes that have it, of cAdvisor at its three levels. */
export function buildCoverageQueries(cluster: QueryScope) {
  const cadvisor = matchNames(...Object.values(cadvisorMetrics));
  const count = (by: readonly string[], matchers: readonly Matcher[]): Expression =>
    aggregate("count", [metricName], aggregate("group", [metricName, ...by], buildNewest(cluster, matchers)));
  const pod = [plainLabels.namespace, plainLabels.pod];
  const names = { label: metricName, operator: "=~", value: "kube_(?:pod|node)_.+|k8s_.+|pod_.+" } as const;
  const machines = listNodeMetrics().filter((name) => name.startsWith("node_"));
  return {
    cluster: count([...pod, otelLabels.namespace, otelLabels.pod, "node", "k8s_node_name"], [names]),
    machines: count(["node", "instance"], [matchNames("node_uname_info", ephemeralUsage, ...machines)]),
    podCgroups: count(pod, [cadvisor, matchEqual("container", ""), matchPresent(plainLabels.pod)]),
    containers: count([...pod, "container"], [cadvisor, ...containerCgroup, matchPresent(plainLabels.pod)]),
    roots: count(["node", "instance"], [cadvisor, rootCgroup]),
    // A scrape renames labels of the exporter to this if its target has them too, unless `honor_labels` is set.
    exported: count(
      ["exported_namespace", "exported_pod"],
      [matchNames("kube_pod_info"), matchPresent("exported_pod")],
    ),
  };
}

export type CoverageQueryName = keyof ReturnType<typeof buildCoverageQueries>;
