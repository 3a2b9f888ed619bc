// Inspects a cluster for `readout check`: which exporters are found, and which fields of rows are 0 or empty because a
// metric is missing. Metrics that only exist while something is wrong, such as waiting reasons, are not reported.

import type { Millis } from "../../../src/core/time.ts";
import type { PartInspection } from "../../../src/store/inspection.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import { type Expression, metricName } from "../client/promql.ts";
import type { SeriesFold } from "../client/response-scanner.ts";
import { readLabel } from "../counters/series-reader.ts";
import {
  cadvisorMetrics,
  nodeDisks,
  nodeFigures,
  nodeNetwork,
  podFigures,
  podNetwork,
  stateMetrics,
} from "./metric-sources.ts";
import type { MetricSpelling } from "./network-queries.ts";
import { buildOtelCoverageQueries, listOtelSpellings } from "./otel.ts";
import { buildCoverageQueries, type CoverageQueryName } from "./queries.ts";

/** How many pods, containers or nodes have each metric. */
type MetricCounts = ReadonlyMap<string, number>;

/** @throws {BackendError} */
export async function inspectCluster(
  client: Pick<PrometheusClient, "query" | "readTraits">,
  match: ForcedLabels,
  now: Millis,
  signal: AbortSignal,
): Promise<PartInspection> {
  const scope = { match, edge: (await client.readTraits(signal)).edge };
  const queries = buildCoverageQueries(scope);
  const query = (expression: Expression): Promise<MetricCounts> =>
    client.query(expression, { at: now }, countByName, signal);
  const count = (name: CoverageQueryName): Promise<MetricCounts> => query(queries[name]);
  const [cluster, machines, pods, containers, roots, exported, ...otelNames] = await Promise.all([
    count("cluster"),
    count("machines"),
    count("podCgroups"),
    count("containers"),
    count("roots"),
    count("exported"),
    count("podOtelNames"),
    count("nodeOtelNames"),
  ]);
  const spellings = listOtelSpellings(new Set(otelNames.flatMap((names) => [...names.keys()])));
  const otel = await Promise.all(buildOtelCoverageQueries(scope, spellings).map(query));
  const named = new Map([...cluster, ...machines, ...countOtelMetrics(otel, spellings)]);
  const report = describeCoverage(named, pods, containers, roots);
  return { ...report, problems: [...report.problems, ...describeRelabelling(cluster, exported)] };
}

/** By OpenTelemetry's own names, the greatest of all spellings. */
function countOtelMetrics(
  counts: readonly MetricCounts[],
  spellings: readonly MetricSpelling[],
): MetricCounts {
  const greatest = new Map<string, number>();
  for (const { name, metric } of spellings) {
    for (const counted of counts) {
      greatest.set(metric, Math.max(greatest.get(metric) ?? 0, counted.get(name) ?? 0));
    }
  }
  return greatest;
}

/** Reports a scrape that keeps the labels of its target and renames those of the exporter. */
function describeRelabelling(cluster: MetricCounts, exported: MetricCounts): string[] {
  const byPod = cluster.get("kube_pod_info") ?? 0;
  const byExportedPod = exported.get("kube_pod_info") ?? 0;
  if (byExportedPod <= byPod) return [];
  return [
    `kube_pod_info names ${byExportedPod} pods by exported_pod, and ${byPod} by pod: kube-state-metrics has to be scraped with honor_labels`,
  ];
}

function countByName(): SeriesFold<MetricCounts> {
  const counts = new Map<string, number>();
  return {
    series: ({ labels, values }) => void counts.set(readLabel(labels, metricName), values[0] ?? 0),
    result: () => counts,
  };
}

/** `named` are the counts of all metrics but cAdvisor's, which are counted at their three levels. */
function describeCoverage(
  named: MetricCounts,
  pods: MetricCounts,
  containers: MetricCounts,
  roots: MetricCounts,
): PartInspection {
  const greatest = (counts: MetricCounts, accepts: (name: string) => boolean): number =>
    Math.max(0, ...[...counts].map(([name, count]) => (accepts(name) ? count : 0)));
  const exporters = [
    ["kube-state-metrics", greatest(named, (name) => name === "kube_pod_info"), "pods"],
    ["cAdvisor", greatest(pods, () => true), "pods"],
    ["cAdvisor", greatest(containers, () => true), "containers"],
    ["cAdvisor", greatest(roots, (name) => name.startsWith("container_memory_")), "nodes"],
    ["kubelet resource metrics", greatest(named, (name) => /^pod_(?:cpu|memory)_/.test(name)), "pods"],
    ["node exporter", greatest(named, (name) => name === "node_uname_info"), "machines"],
    ["Windows exporter", greatest(named, (name) => name.startsWith("windows_")), "machines"],
    ["OpenTelemetry kubelet stats", greatest(named, (name) => name.startsWith("k8s.pod.")), "pods"],
  ] as const;
  const found = exporters
    .filter(([, count]) => count > 0)
    .map(([exporter, count, what]) => `${exporter}: ${count} ${what}`);
  const hasPods = named.has("kube_pod_info");
  const isNodeMetric = (name: string): boolean =>
    name === "kube_node_info" || /^(?:(?:node|windows)_|k8s\.node\.)/.test(name);
  const hasNodes = roots.size > 0 || [...named.keys()].some(isNodeMetric);
  return {
    found,
    limitations: [
      ...(hasPods ? [...listStateGaps(named), ...listPodGaps(named, pods, containers, roots)] : []),
      ...(hasNodes ? listNodeGaps(named, roots) : []),
    ],
    problems: [
      ...(hasPods ? [] : ["no kube_pod_info with the forced labels: pods and overview are empty"]),
      ...(hasNodes
        ? []
        : ["no kube_node_info, cAdvisor or node exporter with the forced labels: nodes are empty"]),
    ],
  };
}

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
  const hasMetric = (metric: string): boolean => pods.has(metric) || named.has(metric);
  const capacities = nodeDisks.map(({ capacity }) => capacity);
  const hasCapacity = (metric: string): boolean =>
    metric === cadvisorMetrics.diskLimit ? roots.has(metric) : named.has(metric);
  const figures = Object.entries(podFigures).map(([field, sources]) => {
    const hasNodeDisk = field === "ephemeral_storage_capacity_bytes" && capacities.some(hasCapacity);
    const found = sources.some(({ metric, level }) =>
      level === "containers" ? containers.has(metric) : hasMetric(metric),
    );
    return describeGap("pods", field, sources, hasNodeDisk || found);
  });
  const networks = Object.entries(podNetwork).map(([field, sources]) =>
    describeGap("pods", field, sources, hasAnySource(sources, hasMetric)),
  );
  return [...figures, ...networks].flat();
}

function listNodeGaps(named: MetricCounts, roots: MetricCounts): string[] {
  const hasMetric = (metric: string): boolean =>
    metric.startsWith("container_") ? roots.has(metric) : named.has(metric);
  const figures = Object.entries(nodeFigures).map(([field, sources]) => {
    const found = sources.some(
      ({ metric, minus }) => hasMetric(metric) && (minus === undefined || hasMetric(minus)),
    );
    return describeGap("nodes", field, sources, found);
  });
  const capacities = nodeDisks.map(({ capacity }) => ({ metric: capacity }));
  const inodes = nodeDisks.flatMap(({ inodes }) => (inodes === undefined ? [] : [{ metric: inodes }]));
  const others = Object.entries({ ...nodeNetwork, "fs_*": capacities, "fs_inodes*": inodes }).map(
    ([field, sources]) => describeGap("nodes", field, sources, hasAnySource(sources, hasMetric)),
  );
  const phase = named.has("kube_node_status_condition")
    ? []
    : ["nodes: phase is 0: no kube_node_status_condition"];
  return [...figures, ...others, phase].flat();
}

type Sources = readonly { readonly metric: string }[];

function hasAnySource(sources: Sources, hasMetric: (metric: string) => boolean): boolean {
  return sources.some(({ metric }) => hasMetric(metric));
}

function describeGap(rows: string, field: string, sources: Sources, isFound: boolean): string[] {
  if (isFound) return [];
  return [`${rows}: ${field} is 0: none of ${[...new Set(sources.map(({ metric }) => metric))].join(", ")}`];
}
