// The network traffic of pods and nodes, over restarts of counters, of pods and of their sandboxes.
import { describe, expect, test } from "vitest";
import { createKubernetesStore } from "#resolvers/prometheus/kubernetes/kubernetes-store.ts";
import { base, minute } from "../../../conformance/kubernetes-fixture.ts";
import {
  collectSeries,
  type Labels,
  type Write,
  type WrittenSeries,
} from "../../../support/prometheus/kubernetes-exporters.ts";
import { createEvaluator } from "../../../support/prometheus/promql-evaluator.ts";
import {
  cgroup,
  collectRows,
  key,
  never,
  other,
  readPods,
  scope,
  uid,
  writePodInfo,
  writeSeries,
} from "./small-cluster.ts";

describe("pod network", () => {
  const traffic = (
    interfaces: readonly string[],
    start: number | undefined,
    counter = (age: number) => age,
  ) =>
    writeSeries((write, time, age) => {
      writePodInfo(write, time);
      if (start !== undefined) write(time, "kube_pod_start_time", { ...key, uid }, start / 1_000);
      for (const [position, name] of interfaces.entries()) {
        if (start !== undefined && time < start) continue;
        const labels = { ...key, id: `${cgroup}/s`, image: "pause", interface: name };
        write(time, "container_network_receive_bytes_total", labels, counter(age) * 10 ** position);
      }
    });
  const received = async (series: readonly WrittenSeries[]): Promise<number | undefined> =>
    (await readPods(series))[0]?.network_rx_bytes;

  test("is eth0, otherwise the sum of all physical interfaces", async () => {
    expect(await received(traffic(["eth0", "net1", "net2"], base - 600_000))).toBe(60);
    expect(await received(traffic(["net1", "net2", "lo", "veth1"], base - 600_000))).toBe(660);
  });

  test("counts from 0 after a restart of the counter or the pod", async () => {
    expect(await received(traffic(["eth0"], base - 600_000, (age) => age % 590))).toBe(585 - 540 + 10);
    expect(await received(traffic(["eth0"], base - 30_000))).toBe(600);
  });

  test("is 0 for an older pod without a previous value", async () => {
    const late = traffic(["eth0"], base - 600_000).map((series) =>
      series.labels.__name__ === "container_network_receive_bytes_total"
        ? { ...series, samples: series.samples.filter(([time]) => time > base - minute) }
        : series,
    );
    expect(await received(late)).toBe(0);
  });
});

describe.each([
  ["shows", false],
  ["hides", true],
])("network over an hour with restarts, of a source that %s restarts", (_, hidesRestarts) => {
  const hour = 60 * minute;
  const gigabyte = 1e9;
  /** Seconds after the earlier snapshot, and the value of the counter. */
  type Samples = readonly (readonly [time: number, value: number])[];
  const hourly = (
    each: (write: Write, time: number) => void,
    counters: readonly [string, Labels, Samples][],
  ) => {
    const { write, series } = collectSeries({ cluster: "c" });
    for (let time = base - hour - minute; time <= base; time += 30_000) each(write, time);
    for (const [metric, labels, samples] of counters) {
      for (const [time, value] of samples) write(base - hour + time * 1_000, metric, labels, value);
    }
    return createKubernetesStore("prom", createEvaluator(series(), "open", hidesRestarts));
  };
  const query = { ...scope, snapshots: { start: base, step: hour, count: 1 } };
  /** The growth of consecutive counters, each of which begins at 0. */
  function grownBy(counters: readonly Samples[]): number {
    let [sum, last] = [0, 0];
    for (const [position, samples] of counters.entries()) {
      if (position > 0) last = 0;
      for (const [time, value] of samples) {
        if (time > 0) sum += value < last ? value : value - last;
        last = value;
      }
    }
    return sum;
  }
  /** Grows from one value to another, with a sample every 30 seconds. */
  function growing(
    from: readonly [time: number, value: number],
    to: readonly [time: number, value: number],
  ): Samples {
    const slope = (to[1] - from[1]) / (to[0] - from[0]);
    const count = Math.floor((to[0] - from[0]) / 30) + 1;
    return Array.from({ length: count }, (_, at) => [from[0] + at * 30, from[1] + at * 30 * slope] as const);
  }
  const quiet = growing([-60, 5 * gigabyte], [3_600, 8 * gigabyte]);
  const rebooted = [
    ...growing([-60, 5 * gigabyte], [300, 5.25 * gigabyte]),
    ...growing([420, 0.5 * gigabyte], [3_600, 6.5 * gigabyte]),
  ];
  const twice = [...rebooted.slice(0, 60), ...growing([2_400, 7], [3_600, 9 * gigabyte])];

  test.each<[string, Samples]>([
    ["does not restart", quiet],
    ["restarts and exceeds its old value", rebooted],
    ["restarts twice", twice],
  ])("is the exact growth of a node's counter that %s", async (_, samples) => {
    const twin = samples.map(([time, value]) => [time + 5, value] as const);
    for (const [metric, labels] of [
      ["container_network_receive_bytes_total", { node: "n1", id: "/", interface: "eth0" }],
      ["node_network_receive_bytes_total", { instance: "n1:9100", device: "ens5" }],
      ["k8s_node_network_io_bytes_total", { k8s_node_name: "n1", interface: "eth0", direction: "receive" }],
    ] as const) {
      const store = hourly(
        (write, time) => write(time, "kube_node_info", { node: "n1", internal_ip: "n1" }, 1),
        [
          [metric, { ...labels, job: "a" }, samples],
          [metric, { ...labels, job: "b" }, twin.filter(([time]) => time <= 3_600)],
          // Another node, and a pod without a cgroup, must not count.
          ["node_network_receive_bytes_total", { instance: "n2:9100", device: "ens5" }, twice],
          ["container_network_receive_bytes_total", { ...key, node: "n1", interface: "eth0" }, twice],
        ],
      );
      const rows = await collectRows(store.nodes(query, never));
      expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toEqual([Math.round(grownBy([samples]))]);
    }
  });

  // Labels that a scrape or a collector adds about itself.
  const collector: Labels = { k8s_namespace_name: "tools", k8s_pod_name: "collector-0", k8s_node_name: "n9" };
  const scraped: Labels = { namespace: "tools", pod: "collector-0", node: "n9", id: "/x", instance: "n9:1" };
  const prefixed: Labels = { pod_namespace: "tools", pod_name: "collector-0" };

  test.each<[string, string, Labels, Labels]>([
    [
      "a node",
      "container_network_receive_bytes_total",
      { id: "/", node: "n1", interface: "eth0" },
      collector,
    ],
    [
      "a node identified by its address",
      "node_network_receive_bytes_total",
      { instance: "n1:9100", device: "ens5" },
      collector,
    ],
    [
      "a node of OpenTelemetry",
      "k8s_node_network_io_bytes_total",
      { k8s_node_name: "n1", interface: "eth0", direction: "receive" },
      scraped,
    ],
    [
      "a pod",
      "container_network_receive_bytes_total",
      { ...key, node: "n1", id: `${cgroup}/a`, interface: "eth0" },
      { ...collector, ...prefixed },
    ],
    [
      "a pod of OpenTelemetry",
      "k8s_pod_network_io_bytes_total",
      { k8s_namespace_name: "shop", k8s_pod_name: "web-0", interface: "eth0", direction: "receive" },
      { ...scraped, ...prefixed },
    ],
  ])(
    "is the exact growth of the counter of %s, despite labels of the collector",
    async (what, metric, labels, added) => {
      const store = hourly(
        (write, time) => {
          writePodInfo(write, time);
          write(time, "kube_node_info", { node: "n1", internal_ip: "n1" }, 1);
        },
        [[metric, { ...added, ...labels }, twice]],
      );
      const rows = what.startsWith("a node")
        ? await collectRows(store.nodes(query, never))
        : await collectRows(store.pods({ ...query, namespaces: [], nodes: [] }, never));
      expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toContain(Math.round(grownBy([twice])));
    },
  );

  const before = growing([-60, 5 * gigabyte], [600, 7 * gigabyte]);
  const between = growing([700, 100], [1_500, 3 * gigabyte]);
  const after = growing([1_600, 200], [3_600, 8 * gigabyte]);
  const sandbox = (name: string): Labels => ({ ...key, node: "n1", id: `${cgroup}/${name}`, image: "pause" });
  test("counts every sandbox of a new pod, also one between two snapshots", async () => {
    const started = base - hour + 650_000;
    const store = hourly(
      (write, time) => {
        if (time < started) return;
        writePodInfo(write, time);
        write(time, "kube_pod_start_time", { ...key, uid }, started / 1_000);
      },
      [
        ["container_network_receive_bytes_total", { ...sandbox("a"), interface: "eth0" }, between],
        ["container_network_receive_bytes_total", { ...sandbox("b"), interface: "eth0" }, after],
      ],
    );
    const rows = await collectRows(store.pods({ ...query, namespaces: [], nodes: [] }, never));
    expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toEqual([
      Math.round(grownBy([between, after])),
    ]);
  });

  test.each<[string, readonly (readonly [Labels, Samples])[]]>([
    ["one sandbox", [[sandbox("a"), quiet]]],
    [
      "a recreated sandbox",
      [
        [sandbox("a"), before],
        [sandbox("b"), after],
      ],
    ],
    [
      "a sandbox recreated twice",
      [
        [sandbox("a"), before],
        [sandbox("b"), between],
        [sandbox("c"), after],
      ],
    ],
    ["sandboxes without cgroup labels", [[key, [...before, ...between, ...after]]]],
    [
      "OpenTelemetry metrics",
      [
        [
          { k8s_namespace_name: "shop", k8s_pod_name: "web-0", k8s_pod_uid: uid, direction: "receive" },
          rebooted,
        ],
      ],
    ],
  ])("is the exact growth of a pod's counters with %s", async (_, counters) => {
    const series = counters.map(([labels, samples]): [string, Labels, Samples] => [
      "direction" in labels ? "k8s_pod_network_io_bytes_total" : "container_network_receive_bytes_total",
      { ...labels, interface: "eth0" },
      samples,
    ]);
    const store = hourly(writePodInfo, [
      ...series,
      // An earlier pod of the name.
      [
        "container_network_receive_bytes_total",
        { ...key, id: `/kubepods/pod${other}/x`, interface: "eth0" },
        before,
      ],
    ]);
    const rows = await collectRows(store.pods({ ...query, namespaces: [], nodes: [] }, never));
    const expected = Math.round(grownBy(counters.map(([, samples]) => samples)));
    expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toEqual([expected]);
  });
});
