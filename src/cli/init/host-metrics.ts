// The names of host metrics that dashboards of the hosted service ask for, over what node_exporter and the host receiver of
// OpenTelemetry export. Only gauges with the same meaning are here: CPU, memory, swap and network have no such gauge.
import type { MetricAliases } from "../../config/metric-aliases.ts";
import type { ForcedLabels, MetricStore } from "../../store/metrics.ts";

interface HostMetric {
  readonly name: string;
  /** The first that the source has is taken. OpenTelemetry's come with and without the dots and the unit of the original. */
  readonly metrics: readonly string[];
  readonly factor: number;
}

const hostMetrics: readonly HostMetric[] = [
  {
    name: "load_avg",
    metrics: ["node_load1", "system_cpu_load_average_1m", "system.cpu.load_average.1m"],
    factor: 1,
  },
  {
    name: "disk_usage",
    metrics: [
      "system_filesystem_utilization_ratio",
      "system_filesystem_utilization",
      "system.filesystem.utilization",
    ],
    // The dashboards show percent.
    factor: 100,
  },
];

/** Labels that name the host, the most precise first. */
const hostLabels = ["host_name", "host.name", "instance"] as const;

/** Returns the aliases for what the source has under `forced`; none for a name that it has itself. @throws {BackendError} */
export async function findHostMetrics(
  store: MetricStore,
  forced: ForcedLabels,
  signal: AbortSignal,
): Promise<MetricAliases> {
  const stored = new Set(await store.names(forced, signal));
  const found: [string, MetricAliases[string]][] = [];
  for (const { name, metrics, factor } of hostMetrics) {
    const metric = metrics.find((metric) => stored.has(metric));
    if (metric === undefined || stored.has(name)) continue;
    if ((await store.type(forced, metric, signal)) !== "gauge") continue;
    const labels = new Set((await store.tagKeys(forced, metric, signal))?.flat());
    const host = hostLabels.find((label) => labels.has(label));
    if (host !== undefined) found.push([name, { metric, tags: { hostname: host }, match: {}, factor }]);
  }
  return Object.fromEntries(found);
}
