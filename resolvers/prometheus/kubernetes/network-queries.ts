// Queries about the counters of network interfaces, which exporters spell in different ways.
import type { Millis } from "../../../src/core/time.ts";
import {
  binary,
  call,
  type Expression,
  type Matcher,
  matchAnyOf,
  metricName,
  type RangeSelector,
} from "../client/promql.ts";
import { readLabel } from "../metrics/series-reader.ts";
import { nodeNetwork, podNetwork } from "./metric-sources.ts";
import {
  aggregateMax,
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
  type QueryScope,
  rootCgroup,
  selectSamples,
} from "./selectors.ts";

/** Whose interfaces. */
export type InterfaceOwner = "pods" | "nodes";

/** The labels that identify an interface, in the spellings of all exporters. */
export const interfaceKeys: Readonly<Record<InterfaceOwner, readonly string[]>> = {
  pods: [plainLabels.namespace, plainLabels.pod, otelLabels.namespace, otelLabels.pod, "interface"],
  nodes: ["node", "instance", "k8s_node_name", "interface", "device"],
};

/** The labels that identify an interface in the spelling of one metric. */
function listInterfaceKeys(owner: InterfaceOwner, metric: string): readonly string[] {
  if (isOtelMetric(metric)) {
    return [...(owner === "pods" ? [otelLabels.namespace, otelLabels.pod] : ["k8s_node_name"]), "interface"];
  }
  if (owner === "pods") return [plainLabels.namespace, plainLabels.pod, "interface"];
  return ["node", "instance", metric.startsWith("node_") ? "device" : "interface"];
}

/**
 * All labels of a metric that describe an interface. Its other labels describe the scrape: a collector adds the name of
 * its own pod to what it forwards, in the spelling of other exporters.
 */
export function listInterfaceLabels(owner: InterfaceOwner, metric: string): readonly string[] {
  const more = isOtelMetric(metric) ? ["k8s_pod_uid", "direction"] : owner === "pods" ? ["id", "node"] : [];
  return [metricName, ...listInterfaceKeys(owner, metric), ...more];
}

/** The counters of one metric since the snapshot before, and the samples that were fresh at that. */
function selectCounters(
  cluster: QueryScope,
  owner: InterfaceOwner,
  metric: string,
  more: readonly Matcher[],
  step: Millis,
): RangeSelector {
  const isExporter = metric.startsWith("node_");
  const level = owner === "nodes" && metric.startsWith("container_") ? [rootCgroup] : [];
  return selectSamples(
    cluster,
    [matchNames(metric), isExporter ? physicalDevice : physicalInterface, ...level, ...more],
    step + freshness,
  );
}

/** Which interfaces have counters that restarted since the snapshot before. */
export function buildRestartQuery(
  cluster: QueryScope,
  owner: InterfaceOwner,
  step: Millis,
  scope?: PodScope,
): Expression {
  const network = owner === "pods" ? podNetwork : nodeNetwork;
  const fell = listNetworkMetrics(network).map((metric) => {
    const pods = scope === undefined ? [] : matchPods(scope, isOtelMetric(metric) ? otelLabels : plainLabels);
    return aggregateMax(
      listInterfaceKeys(owner, metric),
      keepPositive(call("resets", selectCounters(cluster, owner, metric, pods, step))),
    );
  });
  return fell.reduce((either, or) => binary(either, "or", or));
}

/**
 * The samples of some interfaces, and maybe of others, one expression for each metric: of the last `length`, and of the
 * freshness before that.
 */
export function buildInterfaceQueries(
  cluster: QueryScope,
  owner: InterfaceOwner,
  interfaces: readonly Readonly<Record<string, string>>[],
  length: Millis,
): readonly Expression[] {
  const network = owner === "pods" ? podNetwork : nodeNetwork;
  return listNetworkMetrics(network).map((metric) => {
    const narrowed = listInterfaceKeys(owner, metric).map((label) =>
      matchAnyOf(label, [...new Set(interfaces.map((labels) => readLabel(labels, label)))]),
    );
    return selectCounters(cluster, owner, metric, narrowed, length);
  });
}

export function listNetworkMetrics(network: typeof podNetwork): readonly string[] {
  return deduplicate(Object.values(network).flatMap((sources) => sources.map(({ metric }) => metric)));
}
