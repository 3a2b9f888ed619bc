// OpenTelemetry's kubelet metrics in every spelling in which exporters and servers keep them.
import { describe, expect, test } from "vitest";
import { inspectCluster } from "#resolvers/prometheus/kubernetes/coverage.ts";
import { base } from "../../../conformance/kubernetes-fixture.ts";
import type { Labels, WrittenSeries } from "../../../support/prometheus/kubernetes-exporters.ts";
import { createEvaluator } from "../../../support/prometheus/promql-evaluator.ts";
import { never, other, readNodes, readPods, scope, uid, writePodInfo, writeSeries } from "./small-cluster.ts";

type Unit = "seconds" | "bytes" | "1" | "none";

/** How one stack spells names and labels. */
interface Spelling {
  readonly name: (metric: string, unit: Unit, isCounter: boolean) => string;
  readonly label: (label: string) => string;
}

const underscore = (text: string): string => text.replaceAll(".", "_");
const same = (text: string): string => text;
const printUnit = (unit: Unit): string => (unit === "none" ? "" : unit === "1" ? "_ratio" : `_${unit}`);

const spellings: readonly (readonly [string, Spelling])[] = [
  [
    "underscores, units and _total",
    {
      name: (metric, unit, isCounter) =>
        `${underscore(metric)}${printUnit(unit)}${isCounter ? "_total" : ""}`,
      label: underscore,
    },
  ],
  [
    "underscores and units",
    { name: (metric, unit) => `${underscore(metric)}${printUnit(unit)}`, label: underscore },
  ],
  [
    "underscores and _total",
    {
      name: (metric, _, isCounter) => `${underscore(metric)}${isCounter ? "_total" : ""}`,
      label: underscore,
    },
  ],
  ["underscores", { name: underscore, label: underscore }],
  ["dots", { name: same, label: same }],
  ["dots, and underscores in labels", { name: same, label: underscore }],
  [
    "dots, units and _total",
    {
      name: (metric, unit, isCounter) => `${metric}${printUnit(unit)}${isCounter ? "_total" : ""}`,
      label: same,
    },
  ],
];

const figures: readonly (readonly [metric: string, unit: Unit, isCounter: boolean, value: number])[] = [
  ["cpu.usage", "none", false, 0.5],
  ["cpu.time", "seconds", true, 12],
  ["memory.rss", "bytes", false, 1],
  ["memory.usage", "bytes", false, 2],
  ["memory.working_set", "bytes", false, 3],
  ["memory.page_faults", "1", false, 4],
  ["memory.major_page_faults", "1", false, 5],
  ["filesystem.usage", "bytes", false, 40],
  ["filesystem.available", "bytes", false, 50],
  ["filesystem.capacity", "bytes", false, 100],
];

function writeOtel(spelling: Spelling, kind: "pod" | "node", labels: Labels): readonly WrittenSeries[] {
  const own = Object.fromEntries(
    Object.entries(labels).map(([label, value]) => [spelling.label(label), value]),
  );
  return writeSeries((write, time, age) => {
    for (const [metric, unit, isCounter, value] of figures) {
      write(time, spelling.name(`k8s.${kind}.${metric}`, unit, isCounter), own, value);
    }
    for (const [direction, rate] of [
      ["receive", 1],
      ["transmit", 2],
    ] as const) {
      const network = { ...own, interface: "eth0", direction };
      // Restarts 30 s before the snapshot, after which it has counted 15 s.
      const counted = time >= base - 30_000 ? (time - (base - 30_000)) / 1_000 : age;
      write(time, spelling.name(`k8s.${kind}.network.io`, "bytes", true), network, counted * rate);
    }
  });
}

describe("OpenTelemetry's figures of a pod", () => {
  const labels = { "k8s.namespace.name": "shop", "k8s.pod.name": "web-0", "k8s.pod.uid": uid };
  const expected = {
    pod_name: "web-0",
    cpu_usage_nano_cores: 5e8,
    cpu_usage_core_nano_seconds: 12e9,
    memory_rss_bytes: 1,
    memory_usage_bytes: 2,
    memory_working_set_bytes: 3,
    memory_page_faults: 4,
    memory_major_page_faults: 5,
    ephemeral_storage_used_bytes: 40,
    ephemeral_storage_capacity_bytes: 100,
    // From 60 s to 45 s before the snapshot 15, then from 0 up to 30.
    network_rx_bytes: 45,
    network_tx_bytes: 90,
  };

  test.each(spellings)("are read with %s", async (_, spelling) => {
    const foreign = { ...labels, "k8s.pod.uid": other, "k8s.pod.name": "web-1" };
    const series = [
      ...writeSeries(writePodInfo),
      ...writeOtel(spelling, "pod", labels),
      ...writeOtel(spelling, "pod", foreign),
    ];
    expect(await readPods(series)).toMatchObject([expected]);
    expect(await readPods(series, { namespaces: ["shop"], pods: ["web-0"] })).toMatchObject([expected]);
    expect(await readPods(series, { namespaces: ["shop"], pods: ["web-1"] })).toEqual([]);
  });

  test("count once while a stack changes from one spelling to another", async () => {
    const [[, first], , , , [, second]] = spellings as [
      (typeof spellings)[0],
      never,
      never,
      never,
      (typeof spellings)[0],
    ];
    const series = [
      ...writeSeries(writePodInfo),
      ...writeOtel(first, "pod", labels),
      ...writeOtel(second, "pod", labels),
    ];
    expect(await readPods(series)).toMatchObject([expected]);
  });
});

describe("OpenTelemetry's figures of a node", () => {
  test.each(spellings)("are read with %s, also without kube-state-metrics", async (_, spelling) => {
    const expected = {
      node_name: "n1",
      cpu_usage_nano_cores: 5e8,
      memory_rss_bytes: 1,
      memory_usage_bytes: 2,
      memory_working_set_bytes: 3,
      memory_page_faults: 4,
      memory_major_page_faults: 5,
      fs_used_bytes: 40,
      fs_available_bytes: 50,
      fs_capacity_bytes: 100,
      network_rx_bytes: 45,
      network_tx_bytes: 90,
    };
    const otel = writeOtel(spelling, "node", { "k8s.node.name": "n1" });
    expect(await readNodes(otel)).toMatchObject([expected]);
    const info = writeSeries((write, time) => write(time, "kube_node_info", { node: "n1" }, 1));
    expect(await readNodes([...info, ...otel])).toMatchObject([expected]);
  });
});

describe("check", () => {
  test.each(spellings)("counts the pods that have OpenTelemetry's figures with %s", async (_, spelling) => {
    const series = [
      ...writeSeries(writePodInfo),
      ...writeOtel(spelling, "pod", { "k8s.namespace.name": "shop", "k8s.pod.name": "web-0" }),
      ...writeOtel(spelling, "pod", { "k8s.namespace.name": "shop", "k8s.pod.name": "web-1" }),
      ...writeOtel(spelling, "node", { "k8s.node.name": "n1" }),
    ];
    const report = await inspectCluster(createEvaluator(series, "open"), scope.match, base, never);
    expect(report.found).toContain("OpenTelemetry kubelet stats: 2 pods");
    expect(report.problems).toEqual([]);
    expect(report.limitations.filter((text) => /rss|network|cpu/.test(text))).toEqual([]);
  });
});
