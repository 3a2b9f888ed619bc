// Surveys a Prometheus server for `readout init`: how many metrics it has, which labels of targets separate tenants, and
// which Kubernetes clusters it monitors. Labels are read from `up`, which every scraped target has.
import { fromMillis, type Instant, type Millis } from "../../src/core/time.ts";
import type { Survey } from "../../src/store/inspection.ts";
import type { ForcedLabels } from "../../src/store/metrics.ts";
import type { PrometheusClient } from "./client/client.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  matchEqual,
  metricName,
  number,
  select,
} from "./client/promql.ts";
import { collectSeries, type Labels, type SeriesFold } from "./client/response-scanner.ts";
import { inspectCluster } from "./kubernetes/coverage.ts";
import type { MetricFamilies } from "./metrics/metric-families.ts";

/** Labels that usually separate tenants, environments, clusters and teams, in the order in which they are proposed. */
const candidateLabels = ["site", "tenant", "environment", "env", "cluster", "namespace", "job"] as const;
/** Targets count that were scraped within this time. */
const freshness: Millis = 300_000;

/** @throws {BackendError} */
export async function surveyMetrics(
  client: PrometheusClient,
  families: Pick<MetricFamilies, "inspect">,
  now: Millis,
  signal: AbortSignal,
): Promise<Survey> {
  const everything: ForcedLabels = {};
  const listGroups = (name: string, labels: readonly string[]): Promise<readonly Labels[]> =>
    client.query(buildNewestSamples(name, labels), { at: now }, collectLabelSets, signal);
  const [metrics, targets, pods] = await Promise.all([
    families.inspect(everything, signal),
    listGroups("up", candidateLabels),
    listGroups("kube_pod_info", ["cluster"]),
  ]);
  const labels = new Map(
    candidateLabels.flatMap((label) => {
      const values = [...new Set(targets.flatMap((target) => target[label] ?? []))].filter(
        (value) => value !== "",
      );
      return values.length === 0 ? [] : [[label, values.sort()] as const];
    }),
  );
  // A cluster without a name needs no forced labels, and is proposed only if it is the only one.
  const names = [...new Set(pods.map(({ cluster = "" }) => cluster))].sort();
  const matches =
    names.length === 1 && names[0] === ""
      ? [everything]
      : names.filter((name) => name !== "").map((cluster) => ({ cluster }));
  const kubernetes = await Promise.all(
    matches.map(async (match) => ({ match, report: await inspectCluster(client, match, now, signal) })),
  );
  return { logs: [], traces: [], metrics, labels, kubernetes, notes: [] };
}

/**
 * The last scrape of a target that was up; without any, the newest `target_info`, which collectors write. All series cannot be
 * asked at once: `timestamp` drops their names, and a server refuses series that are then alike. Undefined where the server takes
 * all of them for ended. @throws {BackendError}
 */
export async function findNewestSample(
  client: PrometheusClient,
  match: ForcedLabels,
  now: Millis,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const up = select(match, [matchEqual(metricName, "up")]);
  const info = select(match, [matchEqual(metricName, "target_info")]);
  const scraped = binary(call("timestamp", up), "and", binary(up, ">", number(0)));
  const newest = binary(aggregate("max", [], scraped), "or", aggregate("max", [], call("timestamp", info)));
  return askTime(client, newest, now, signal);
}

/**
 * The newest sample of what pods are taken from; without any, of what nodes are, by the first exporter that there is. Undefined
 * where the server takes all of them for ended. @throws {BackendError}
 */
export async function findNewestSnapshot(
  client: PrometheusClient,
  match: ForcedLabels,
  now: Millis,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const newest = clusterMetrics
    .map((name) => aggregate("max", [], call("timestamp", select(match, [matchEqual(metricName, name)]))))
    .reduce((first, next) => binary(first, "or", next));
  return askTime(client, newest, now, signal);
}

/** Of kube-state-metrics, cAdvisor and the node exporter. */
const clusterMetrics = [
  "kube_pod_info",
  "kube_node_info",
  "container_cpu_usage_seconds_total",
  "node_uname_info",
] as const;

/** `seconds` has one series at most, whose value is a time. */
async function askTime(
  client: PrometheusClient,
  seconds: Expression,
  now: Millis,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const [found] = await client.query(seconds, { at: now }, collectSeries, signal);
  const time = found?.values[0];
  return time === undefined ? undefined : fromMillis(Math.round(time * 1_000));
}

function buildNewestSamples(name: string, labels: readonly string[]): Expression {
  const selector = select({}, [matchEqual(metricName, name)]);
  const samples = { kind: "range", of: selector, length: freshness, offset: 0 } as const;
  return aggregate("group", labels, call("last_over_time", samples));
}

function collectLabelSets(): SeriesFold<readonly Labels[]> {
  const found: Labels[] = [];
  return { series: ({ labels }) => void found.push(labels), result: () => found };
}
