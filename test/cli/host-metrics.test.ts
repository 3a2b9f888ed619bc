// The names of host metrics that `readout init` proposes, and what `readout check` tells of names.
import { expect, test } from "vitest";
import { createMemoryMetrics, type FamilyKind } from "#resolvers/memory/stores/metric-store.ts";
import { findHostMetrics } from "#src/cli/init/host-metrics.ts";
import { inspectMetricAliases } from "#src/cli/support/metric-alias-inspection.ts";

const { signal } = new AbortController();
const site = { site: "shop" };

function createStore(series: readonly (readonly [metric: string, labels: object, kind?: FamilyKind])[]) {
  const store = createMemoryMetrics("memory");
  for (const [metric, labels, kind = "gauge"] of series)
    store.append(metric, kind, "value", { site: "shop", ...labels })(0, 1);
  return store;
}

test("init proposes what node_exporter has, by the instance", async () => {
  const store = createStore([
    ["node_load1", { instance: "a:9100" }],
    ["node_cpu_seconds_total", { instance: "a:9100", mode: "idle" }, "counter"],
  ]);
  expect(await findHostMetrics(store, site, signal)).toEqual({
    load_avg: { metric: "node_load1", tags: { hostname: "instance" }, match: {}, factor: 1 },
  });
});

test("init proposes what the host receiver of OpenTelemetry has, by the name of the host", async () => {
  const store = createStore([
    ["system.cpu.load_average.1m", { "host.name": "a", instance: "x" }],
    ["system_filesystem_utilization_ratio", { host_name: "a", mountpoint: "/" }],
  ]);
  expect(await findHostMetrics(store, site, signal)).toEqual({
    load_avg: {
      metric: "system.cpu.load_average.1m",
      tags: { hostname: "host.name" },
      match: {},
      factor: 1,
    },
    disk_usage: {
      metric: "system_filesystem_utilization_ratio",
      tags: { hostname: "host_name" },
      match: {},
      factor: 100,
    },
  });
});

test.each([
  ["of another site", [["node_load1", { site: "blog", instance: "a" }]]],
  ["of another type", [["node_load1", { instance: "a" }, "counter"]]],
  ["without a host", [["node_load1", {}]]],
  [
    "beside the name itself",
    [
      ["node_load1", { instance: "a" }],
      ["load_avg", { hostname: "a" }],
    ],
  ],
] as const)("init proposes nothing for a metric %s", async (_, series) => {
  expect(await findHostMetrics(createStore(series), site, signal)).toEqual({});
});

test("check tells absent metrics and labels, second names, and what is hidden", async () => {
  const store = createStore([
    ["node_load1", { instance: "a", hostname: "own" }],
    ["cpu", {}],
  ]);
  const base = { tags: {}, match: {}, factor: 1 };
  const aliases = {
    load_avg: { ...base, metric: "node_load1", tags: { hostname: "instance" } },
    load: { ...base, metric: "node_load1", tags: { host: "nodename" } },
    cpu: { ...base, metric: "node_load1", match: { instance: "a" } },
    gone: { ...base, metric: "nothing" },
    eth0: { ...base, metric: "node_load1", match: { device: "eth0" } },
  };
  expect(await inspectMetricAliases(store, site, aliases, signal)).toEqual([
    "names.load_avg.tags.hostname: hides the label hostname of node_load1",
    "names.load: load_avg is a name of the same metric, node_load1",
    "names.load.tags.host: no series of node_load1 has the label nodename",
    "names.cpu: hides the metric that the source calls cpu",
    "names.gone: the source has no nothing",
    "names.eth0: the source has no node_load1 with the labels of its match",
  ]);
  expect(await inspectMetricAliases(store, site, { cpu: { ...base, metric: "cpu" } }, signal)).toEqual([]);
});
