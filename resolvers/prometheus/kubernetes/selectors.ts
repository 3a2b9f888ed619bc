// The selectors, matchers and values that the queries about a cluster are built from. A value at a time is the newest
// sample of the `freshness` before it, never a default look-back: cAdvisor's series do not end with their pod, and servers
// differ in how far they look back.
import type { Millis } from "../../../src/core/time.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import {
  aggregate,
  binary,
  call,
  combineMetrics,
  type Expression,
  type Matcher,
  matchAnyOf,
  matchEqual,
  matchPresent,
  metricName,
  number,
  type RangeEdge,
  type RangeSelector,
  select,
  selectRange,
} from "../client/promql.ts";
import { faultTypes } from "./metric-sources.ts";

/** A sample belongs to a snapshot if it is less old than this. Two scrapes of a minute fit in. */
export const freshness: Millis = 120_000;
/** Scrapes of one target are hardly ever closer, so two of them do not have the same age. */
const ageStep: Millis = 15_000;
/** How old the sample may be that a rate begins at: allows for a failed scrape of a minute, and late ones. */
const rateReach: Millis = 300_000;

/** Which pods a query is about. An empty list stands for all. */
export interface PodScope {
  readonly namespaces: readonly string[];
  readonly pods: readonly string[];
}

/** The forced labels of a cluster, and the range edge of its server. */
export interface QueryScope {
  readonly match: ForcedLabels;
  readonly edge: RangeEdge;
}

// How exporters spell the labels of a pod.
export const plainLabels = { namespace: "namespace", pod: "pod" };
export const prefixedLabels = { namespace: "pod_namespace", pod: "pod_name" };
/** With underscores; `otel.ts` knows the spelling with dots. */
export const otelLabels = { namespace: "k8s_namespace_name", pod: "k8s_pod_name" };

/** The labels of a pod in one spelling. */
export type PodLabels = Readonly<Record<"namespace" | "pod", string>>;

/** Prefixes of virtual interfaces: bridges, tunnels and the node's ends of pod links. */
const virtualPrefixes = [
  "antrea",
  "azv",
  "br-",
  "cali",
  "cbr",
  "cilium",
  "cni",
  "docker",
  "dummy",
  "eni",
  "erspan",
  "flannel",
  "genev",
  "gke",
  "gre",
  "ifb",
  "ip6gre",
  "ip6tnl",
  "ip6_vti",
  "ip_vti",
  "ipvl",
  "kube-",
  "lxc",
  "lxdbr",
  "macvtap",
  "nodelocaldns",
  "ovn",
  "ovs",
  "podman",
  "sit",
  "tap",
  "tun",
  "veth",
  "virbr",
  "vlan",
  "vxlan",
  "weave",
  "wg",
  "wireguard",
];
/**
 * Virtual interfaces of the host, and VLANs: their traffic is counted again at the physical interface. No pattern matches
 * a path, since the node exporter also names disks in the label `device`.
 */
const virtualInterfaces = `lo|(?:${virtualPrefixes.join("|")})[^/]*|[^/]+\\.[0-9]+`;

/** The samples of the `reach` before the time of evaluation, which is included. */
export function selectSamples(
  { match, edge }: QueryScope,
  matchers: readonly Matcher[],
  reach: Millis,
): RangeSelector {
  return selectRange(select(match, matchers), edge, { from: reach - 1, to: 0 });
}

export function buildNewest(cluster: QueryScope, matchers: readonly Matcher[]): Expression {
  return call("last_over_time", selectSamples(cluster, matchers, freshness));
}

/**
 * Growth per second between the two newest samples: not extrapolated, and the same on every version. The functions on
 * both sides drop the labels `__type__` and `__unit__`, which would otherwise keep the sides from matching.
 */
export function buildRate(cluster: QueryScope, matchers: readonly Matcher[]): Expression {
  const fresh = call("count_over_time", selectSamples(cluster, matchers, freshness));
  return binary(call("irate", selectSamples(cluster, matchers, rateReach)), "and", fresh);
}

/** The time of the newest sample of live series; a series that its exporter ended has none. */
export function buildSampleTime({ match }: QueryScope, matchers: readonly Matcher[]): Expression {
  return call("timestamp", select(match, matchers));
}

/**
 * The time of the newest sample, and for ended series a number below every time, which is the greater the newer their
 * last sample is: a failed scrape ends all series of its target. Every sample of the series `aggregateBy` selects is 1.
 */
export function buildRecency(
  cluster: QueryScope,
  matchers: readonly Matcher[],
  aggregateBy: (of: Expression) => Expression,
): Expression {
  const ages = Array.from({ length: freshness / ageStep }, (_, index) => (index + 1) * ageStep);
  const ended = ages.map((age) => {
    const within = call("last_over_time", selectSamples(cluster, matchers, age));
    return binary(number((freshness - age) / ageStep + 1), "*", aggregateBy(within));
  });
  const live = aggregateBy(buildSampleTime(cluster, matchers));
  return ended.reduce((newer, older) => binary(newer, "or", older), live);
}

export function matchName(name: string): Matcher {
  return matchEqual(metricName, name);
}

/** The newest samples of several metrics, the greatest of each combination of the labels `by`, which keep their names. */
export function buildNewestOf(
  cluster: QueryScope,
  names: readonly string[],
  by: readonly string[],
  matchers: readonly Matcher[],
): Expression {
  return combineMetrics(names, (name) =>
    aggregateMax([metricName, ...by], buildNewest(cluster, [name, ...matchers])),
  );
}

export function aggregateMax(by: readonly string[], of: Expression): Expression {
  return aggregate("max", by, of);
}

export function keepPositive(of: Expression): Expression {
  return binary(of, ">", number(0));
}

/** Matches the pods of a scope by the labels of an exporter. */
export function matchPods(
  { namespaces, pods }: PodScope,
  labels: PodLabels = plainLabels,
): readonly Matcher[] {
  return [
    ...(namespaces.length > 0 ? [matchAnyOf(labels.namespace, namespaces)] : []),
    pods.length > 0 ? matchAnyOf(labels.pod, pods) : matchPresent(labels.pod),
  ];
}

// cAdvisor's page faults of a cgroup with all below it, or of a container by itself.
const hierarchyScope = matchAnyOf("scope", ["hierarchy", ""]);
const containerScope = matchAnyOf("scope", ["container", ""]);
const faults = matchAnyOf("failure_type", [...faultTypes, ""]);
export const allCpus = matchAnyOf("cpu", ["total", ""]);

/** cAdvisor's root cgroup: the node. */
export const rootCgroup = matchEqual("id", "/");
/** What the series of the root cgroup have to match besides. */
export const rootMatchers: readonly Matcher[] = [hierarchyScope, faults];
/** cAdvisor's cgroups of pods: neither a container nor its sandbox, which has an image. */
export const podCgroup: readonly Matcher[] = [
  matchEqual("container", ""),
  matchEqual("image", ""),
  hierarchyScope,
  faults,
  allCpus,
];
/** cAdvisor's cgroups of containers. */
export const containerCgroup: readonly Matcher[] = [
  { label: "container", operator: "!~", value: "POD|" },
  containerScope,
  faults,
  allCpus,
];

export const physicalInterface: Matcher = { label: "interface", operator: "!~", value: virtualInterfaces };
/** The same for the node exporter. */
export const physicalDevice: Matcher = { ...physicalInterface, label: "device" };

/**
 * Windows' virtual adapters: their traffic is counted again at the physical one. `nic` is the adapter's name, in which
 * older exporters replace all but letters and digits.
 */
export const physicalAdapter: Matcher = {
  label: "nic",
  operator: "!~",
  value: "(?i:vEthernet.*|Hyper.V.Virtual.*|isatap.*|Teredo.*|.*Loopback.*|6to4.*|.*Pseudo.Interface.*)",
};
/** The volume with the node's own files. */
export const systemVolume = matchAnyOf("volume", ["C:", ""]);

/** By OpenTelemetry's own name. Exporters spell it in several ways. */
export function isOtelMetric(name: string): boolean {
  return name.startsWith("k8s.");
}

export function isWindowsMetric(name: string): boolean {
  return name.startsWith("windows_");
}

/** Of the exporter that a machine runs beside the kubelet. */
export function isMachineMetric(name: string): boolean {
  return name.startsWith("node_") || isWindowsMetric(name);
}

export function deduplicate(names: readonly string[]): readonly string[] {
  return [...new Set(names)];
}
