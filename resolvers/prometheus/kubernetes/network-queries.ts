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
import { readLabel } from "../counters/series-reader.ts";
import { nodeNetwork, podNetwork } from "./metric-sources.ts";
import {
  aggregateMax,
  deduplicate,
  freshness,
  isMachineMetric,
  isOtelMetric,
  isWindowsMetric,
  keepPositive,
  matchName,
  matchPods,
  otelLabels,
  type PodScope,
  physicalAdapter,
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
  nodes: ["node", "instance", "k8s_node_name", "interface", "device", "nic"],
};

/** A metric, and how it is exported. */
export interface MetricSpelling {
  /** The exported name. */
  readonly name: string;
  /** The name in `metric-sources.ts`. */
  readonly metric: string;
  /** Only of OpenTelemetry's labels. */
  readonly hasDottedLabels: boolean;
}

/** The metrics that have one name only. */
export function listPlainSpellings(owner: InterfaceOwner): readonly MetricSpelling[] {
  return listNetworkMetrics(owner === "pods" ? podNetwork : nodeNetwork)
    .filter((metric) => !isOtelMetric(metric))
    .map((metric) => ({ name: metric, metric, hasDottedLabels: false }));
}

/** `k8s_pod_name` is `k8s.pod.name` where labels have dots. */
export function spellLabel({ hasDottedLabels }: MetricSpelling, label: string): string {
  return hasDottedLabels && label.startsWith("k8s_") ? label.replaceAll("_", ".") : label;
}

/** The labels that identify an interface in the spelling of one metric. */
function listInterfaceKeys(owner: InterfaceOwner, metric: string): readonly string[] {
  if (isOtelMetric(metric)) {
    return [...(owner === "pods" ? [otelLabels.namespace, otelLabels.pod] : ["k8s_node_name"]), "interface"];
  }
  if (owner === "pods") return [plainLabels.namespace, plainLabels.pod, "interface"];
  const name = isWindowsMetric(metric) ? "nic" : isMachineMetric(metric) ? "device" : "interface";
  return ["node", "instance", name];
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
  { name, metric }: MetricSpelling,
  more: readonly Matcher[],
  step: Millis,
): RangeSelector {
  const level = owner === "nodes" && metric.startsWith("container_") ? [rootCgroup] : [];
  return selectSamples(
    cluster,
    [matchName(name), matchPhysical(metric), ...level, ...more],
    step + freshness,
  );
}

function matchPhysical(metric: string): Matcher {
  if (isWindowsMetric(metric)) return physicalAdapter;
  return isMachineMetric(metric) ? physicalDevice : physicalInterface;
}

/** Which interfaces have counters that restarted since the snapshot before; `undefined` without metrics. */
export function buildRestartQuery(
  cluster: QueryScope,
  owner: InterfaceOwner,
  spellings: readonly MetricSpelling[],
  step: Millis,
  scope?: PodScope,
): Expression | undefined {
  const fell = spellings.map((spelling) => {
    const { metric } = spelling;
    const labels = isOtelMetric(metric) ? otelLabels : plainLabels;
    const spelled = {
      namespace: spellLabel(spelling, labels.namespace),
      pod: spellLabel(spelling, labels.pod),
    };
    const pods = scope === undefined ? [] : matchPods(scope, spelled);
    return aggregateMax(
      listInterfaceKeys(owner, metric).map((label) => spellLabel(spelling, label)),
      keepPositive(call("resets", selectCounters(cluster, owner, spelling, pods, step))),
    );
  });
  const [first, ...others] = fell;
  return first && others.reduce((either, or) => binary(either, "or", or), first);
}

/**
 * The samples of some interfaces, and maybe of others, one expression for each spelling: of the last `length`, and of the
 * freshness before that.
 */
export function buildInterfaceQueries(
  cluster: QueryScope,
  owner: InterfaceOwner,
  spellings: readonly MetricSpelling[],
  interfaces: readonly Readonly<Record<string, string>>[],
  length: Millis,
): readonly Expression[] {
  return spellings.map((spelling) => {
    const narrowed = listInterfaceKeys(owner, spelling.metric).map((label) =>
      matchAnyOf(spellLabel(spelling, label), [
        ...new Set(interfaces.map((labels) => readLabel(labels, label))),
      ]),
    );
    return selectCounters(cluster, owner, spelling, narrowed, length);
  });
}

export function listNetworkMetrics(network: typeof podNetwork): readonly string[] {
  return deduplicate(Object.values(network).flatMap((sources) => sources.map(({ metric }) => metric)));
}
