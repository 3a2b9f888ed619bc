// For `readout check`: which exporters are found behind a wall, and which fields of rows are 0 or empty for lack of
// which metric. What only exists while something is wrong, such as the reason of a waiting container, is not judged.

import type { Millis } from "../../../src/core/time.ts";
import type { ForcedLabels, PartInspection } from "../../../src/store/store.ts";
import type { PrometheusClient } from "../client/client.ts";
import { metricName } from "../client/promql.ts";
import type { SeriesFold } from "../client/response-scanner.ts";
import { nodeDisks, nodeFigures, nodeNetwork, podFigures, podNetwork } from "./metric-sources.ts";
import { buildCoverageQueries, type CoverageQueryName } from "./queries.ts";

/** How many pods, containers or nodes each metric tells of. */
type MetricCounts = ReadonlyMap<string, number>;

export async function inspectCluster(
  source: Pick<PrometheusClient, "query" | "readTraits">,
  match: ForcedLabels,
  now: Millis,
  signal: AbortSignal,
): Promise<PartInspection> {
  const questions = buildCoverageQueries({ match, edge: (await source.readTraits(signal)).edge });
  const count = (question: CoverageQueryName): Promise<MetricCounts> =>
    source.query(questions[question], { at: now }, countByName, signal);
  const [cluster, machines, pods, containers, roots, exported] = await Promise.all([
    count("cluster"),
    count("machines"),
    count("podCgroups"),
    count("containers"),
    count("roots"),
    count("exported"),
  ]);
  const report = describeCoverage(new Map([...cluster, ...machines]), pods, containers, roots);
  return { ...report, problems: [...report.problems, ...describeRelabelling(cluster, exported)] };
}

/** Where a scrape has put the exporter's own labels before those of what it tells of. */
function describeRelabelling(cluster: MetricCounts, exported: MetricCounts): string[] {
  const [told = 0, hidden = 0] = [cluster, exported].map((counts) => counts.get("kube_pod_info"));
  if (hidden <= told) return [];
  return [
    `kube_pod_info names ${hidden} pods by exported_pod, and ${told} by pod: kube-state-metrics has to be scraped with honor_labels`,
  ];
}

function countByName(): SeriesFold<MetricCounts> {
  const counts = new Map<string, number>();
  return {
    series: ({ labels, values }) => void counts.set(labels[metricName] ?? "", values[0] ?? 0),
    result: () => counts,
  };
}

/** `matchNames` counts what is told under a name of its own; cAdvisor's names are counted at their three levels. */
function describeCoverage(
  named: MetricCounts,
  pods: MetricCounts,
  containers: MetricCounts,
  roots: MetricCounts,
): PartInspection {
  const most = (counts: MetricCounts, like: (name: string) => boolean): number =>
    Math.max(0, ...[...counts].map(([name, count]) => (like(name) ? count : 0)));
  const exporters = [
    ["kube-state-metrics", most(named, (name) => name === "kube_pod_info"), "pods"],
    ["cAdvisor", most(pods, () => true), "pods"],
    ["cAdvisor", most(containers, () => true), "containers"],
    ["cAdvisor", most(roots, (name) => name.startsWith("container_memory_")), "nodes"],
    ["kubelet resource metrics", most(named, (name) => /^pod_(?:cpu|memory)_/.test(name)), "pods"],
    ["node exporter", most(named, (name) => name === "node_uname_info"), "machines"],
    ["OpenTelemetry kubelet stats", most(named, (name) => name.startsWith("k8s_pod_")), "pods"],
  ] as const;
  const found = exporters
    .filter(([, count]) => count > 0)
    .map(([exporter, count, what]) => `${exporter}: ${count} ${what}`);
  const hasPods = named.has("kube_pod_info");
  const ofNode = (name: string): boolean => name === "kube_node_info" || /^(?:k8s_)?node_/.test(name);
  const hasNodes = roots.size > 0 || [...named.keys()].some(ofNode);
  return {
    found,
    limitations: [
      ...(hasPods ? [...listStateGaps(named), ...listPodGaps(named, pods, containers, roots)] : []),
      ...(hasNodes ? listNodeGaps(named, roots) : []),
    ],
    problems: [
      ...(hasPods ? [] : ["no kube_pod_info behind the wall: pods and overview are empty"]),
      ...(hasNodes ? [] : ["no kube_node_info, cAdvisor or node exporter behind the wall: nodes are empty"]),
    ],
  };
}

/** What kube-state-metrics alone can tell. */
const stateMetrics: readonly (readonly [metric: string, consequence: string])[] = [
  ["kube_pod_status_phase", "phase and state are Unknown"],
  ["kube_pod_container_status_running", "containers are not shown as Running"],
  ["kube_pod_container_status_waiting", "containers are not shown as Waiting"],
  ["kube_pod_container_status_terminated", "containers are not shown as Terminated"],
  ["kube_pod_container_status_restarts_total", "pod_restart_count is 0"],
  ["kube_pod_start_time", "pod_uptime_seconds is 0"],
  ["kube_pod_created", "of pods that replaced each other the later start decides"],
  ["kube_pod_owner", "owner_references are empty"],
  ["kube_pod_labels", "labels are empty; see --metric-labels-allowlist of kube-state-metrics"],
];

function listStateGaps(named: MetricCounts): string[] {
  return stateMetrics
    .filter(([metric]) => !named.has(metric))
    .map(([metric, consequence]) => `pods: no ${metric}: ${consequence}`);
}

function listPodGaps(
  named: MetricCounts,
  pods: MetricCounts,
  containers: MetricCounts,
  roots: MetricCounts,
): string[] {
  const told = (metric: string): boolean => pods.has(metric) || named.has(metric);
  const figures = Object.entries(podFigures).map(([field, sources]) => {
    const disk = field === "ephemeral_storage_capacity_bytes" && roots.has(nodeDisks[0]?.capacity ?? "");
    const found = sources.some(({ metric, level }) =>
      level === "containers" ? containers.has(metric) : told(metric),
    );
    return describeGap("pods", field, sources, disk || found);
  });
  const networks = Object.entries(podNetwork).map(([field, sources]) =>
    describeGap("pods", field, sources, hasAnySource(sources, told)),
  );
  return [...figures, ...networks].flat();
}

function listNodeGaps(named: MetricCounts, roots: MetricCounts): string[] {
  const told = (metric: string): boolean =>
    metric.startsWith("container_") ? roots.has(metric) : named.has(metric);
  const figures = Object.entries(nodeFigures).map(([field, sources]) => {
    const whole = sources.some(({ metric, minus }) => told(metric) && (minus === undefined || told(minus)));
    return describeGap("nodes", field, sources, whole);
  });
  const capacities = nodeDisks.map(({ capacity }) => ({ metric: capacity }));
  const inodes = nodeDisks.flatMap(({ inodes }) => (inodes === undefined ? [] : [{ metric: inodes }]));
  const others = Object.entries({ ...nodeNetwork, "fs_*": capacities, "fs_inodes*": inodes }).map(
    ([field, sources]) => describeGap("nodes", field, sources, hasAnySource(sources, told)),
  );
  const phase = named.has("kube_node_status_condition")
    ? []
    : ["nodes: phase is 0: no kube_node_status_condition"];
  return [...figures, ...others, phase].flat();
}

type Sources = readonly { readonly metric: string }[];

function hasAnySource(sources: Sources, told: (metric: string) => boolean): boolean {
  return sources.some(({ metric }) => told(metric));
}

function describeGap(rows: string, field: string, sources: Sources, told: boolean): string[] {
  if (told) return [];
  return [`${rows}: ${field} is 0: none of ${[...new Set(sources.map(({ metric }) => metric))].join(", ")}`];
}
