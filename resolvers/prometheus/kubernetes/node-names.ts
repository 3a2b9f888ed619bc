// Finds the node that a series is about. Three parties name a node differently: the cluster (`node`), the machine itself
// (`node_uname_info`, `windows_os_hostname`) and the scraper (`instance`). The cluster's names win. Host names differ in
// length too: `ip-10-0-0-7` and `ip-10-0-0-7.ec2.internal` are one node, unless another one could be meant.
import { metricName } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { readLabel } from "../counters/series-reader.ts";
import { type NodeQueryName, resourceCpu } from "./queries.ts";
import { isMachineMetric, isOtelMetric } from "./selectors.ts";
import { findNewest, hasValue, type SnapshotAnswers, type SnapshotSeries } from "./snapshot-series.ts";

/** The names of nodes at one snapshot. */
export interface NodeNames {
  /** The node that a series is about; `undefined` if its labels name none. */
  readonly find: (labels: Labels, source?: NodeSourceKind) => string | undefined;
}

export type NameAnswers = Pick<
  SnapshotAnswers<NodeQueryName>,
  "addresses" | "addressTimes" | "unames" | "unameTimes"
>;

/** Who exports a series. Each names all nodes in one way. */
export type NodeSourceKind = "cluster" | "machine" | "otel";

/** The kubelet's metrics with the prefix of the node exporter. */
const kubeletMetrics: ReadonlySet<string> = new Set([resourceCpu.node, "node_memory_working_set_bytes"]);

/** By the name of the metric. */
function classifySource(labels: Labels): NodeSourceKind {
  const name = readLabel(labels, metricName);
  if (isOtelMetric(name)) return "otel";
  return isMachineMetric(name) && !kubeletMetrics.has(name) ? "machine" : "cluster";
}

/** Series by who exports them; by the names of their metrics if that is `undefined`. */
export type SourceSeries = readonly (readonly [NodeSourceKind | undefined, readonly SnapshotSeries[]])[];

/** The names of the cluster, and those of machines by address and instance. */
interface KnownNames {
  /** The names that the cluster itself uses. */
  readonly nodes: ReadonlySet<string>;
  readonly byAddress: ReadonlyMap<string, string>;
  readonly byInstance: ReadonlyMap<string, string>;
}

/** `sources` are all series about nodes. Those that have a value at the snapshot decide which names are ambiguous. */
export function resolveNodeNames(answers: NameAnswers, sources: SourceSeries, index: number): NodeNames {
  const known = indexNames(answers, index);
  const foreign: Record<NodeSourceKind, Set<string>> = {
    cluster: new Set(),
    machine: new Set(),
    otel: new Set(),
  };
  for (const [source, list] of sources) {
    for (const series of list) {
      const name = hasValue(series, index) ? findName(known, series.labels) : undefined;
      if (name !== undefined) foreign[source ?? classifySource(series.labels)].add(name);
    }
  }
  const nodes = completeNodes(known.nodes, foreign);
  const aliases: Readonly<Record<NodeSourceKind, ReadonlyMap<string, string>>> = {
    // Machines outside of the cluster may have a node's name in another form. All kubelets are in it.
    cluster: matchHosts(nodes, dropKnown(foreign.cluster, nodes)),
    machine: matchHosts(nodes, foreign.machine),
    otel: matchHosts(nodes, dropKnown(foreign.otel, nodes)),
  };
  return {
    find: (labels, source = classifySource(labels)) => {
      const name = findName(known, labels);
      return name === undefined ? undefined : (aliases[source].get(name) ?? name);
    },
  };
}

function indexNames({ addresses, addressTimes, unames, unameTimes }: NameAnswers, index: number): KnownNames {
  const present = addresses.filter((series) => hasValue(series, index));
  const nodes = new Set(present.flatMap(({ labels }) => labels.node ?? []));
  // A renamed machine, or a reassigned address, has two names for a while: the newest one counts.
  const byAddress = new Map<string, string>();
  for (const [address, group] of Map.groupBy(addresses, ({ labels }) => labels.internal_ip)) {
    const node = findNewest(group, addressTimes, index)?.labels.node;
    if (address !== undefined && node !== undefined) byAddress.set(address, node);
  }
  const byInstance = new Map<string, string>();
  for (const [instance, group] of Map.groupBy(unames, ({ labels }) => readLabel(labels, "instance"))) {
    const labels = findNewest(group, unameTimes, index)?.labels;
    const name = labels?.nodename ?? labels?.hostname;
    if (name !== undefined) byInstance.set(instance, name);
  }
  return { nodes, byAddress, byInstance };
}

/** The name by the labels of a series, whether or not the cluster has such a node. */
function findName(
  { nodes, byAddress, byInstance }: KnownNames,
  { node, k8s_node_name: otelNode, instance = "" }: Labels,
): string | undefined {
  const own = node ?? otelNode;
  if (own !== undefined) return own;
  const host = instance.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  // A scraper may be configured to use the cluster's names for instances, whatever the machines' own names are.
  if (nodes.has(host)) return host;
  const machine = byInstance.get(instance);
  if (machine !== undefined && nodes.has(machine)) return machine;
  return byAddress.get(host) ?? machine ?? (host === "" ? undefined : host);
}

/** The names that others are joined to. Without kube-state-metrics the kubelet's come first, and then OpenTelemetry's. */
function completeNodes(
  nodes: ReadonlySet<string>,
  { cluster, otel }: Readonly<Record<NodeSourceKind, ReadonlySet<string>>>,
): ReadonlySet<string> {
  if (nodes.size > 0) return nodes;
  return cluster.size > 0 ? cluster : otel;
}

/**
 * The node of each name that is another form of the node's. A name that fits several nodes has none, nor has one of
 * several names that fit a node.
 */
function matchHosts(nodes: ReadonlySet<string>, names: ReadonlySet<string>): ReadonlyMap<string, string> {
  const unknown = [...names].filter((name) => !nodes.has(name));
  if (unknown.length === 0) return new Map();
  const nodesByHost = groupByHost(nodes);
  const namesByHost = groupByHost(names);
  const found = new Map<string, string>();
  for (const name of unknown) {
    const [node, ...others] = findSameHost(nodesByHost, name);
    if (node === undefined || others.length > 0) continue;
    const rivals = findSameHost(namesByHost, node);
    if (rivals.every((rival) => rival === name)) found.set(name, node);
  }
  return found;
}

function dropKnown(names: ReadonlySet<string>, nodes: ReadonlySet<string>): ReadonlySet<string> {
  return new Set([...names].filter((name) => !nodes.has(name)));
}

function groupByHost(names: Iterable<string>): ReadonlyMap<string, readonly string[]> {
  return Map.groupBy(names, toHostKey);
}

function findSameHost(byHost: ReadonlyMap<string, readonly string[]>, name: string): readonly string[] {
  const candidates = byHost.get(toHostKey(name)) ?? [];
  return candidates.filter((candidate) => isSameHost(candidate, name));
}

/** The first label of the host name, in lower case: Windows writes its own in capitals. */
function toHostKey(name: string): string {
  return name.toLowerCase().replace(/\..*/, "");
}

const address = /^\d+(?:\.\d+){3}$/;

/** Whether one is the other, or the beginning of it up to a dot. */
export function isSameHost(one: string, other: string): boolean {
  const [a, b] = [one.toLowerCase(), other.toLowerCase()];
  if (a === b) return true;
  if (address.test(a) || address.test(b)) return false;
  return a.startsWith(`${b}.`) || b.startsWith(`${a}.`);
}
