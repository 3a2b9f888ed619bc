// What the model cluster does not show: other exporters than kube-state-metrics and cAdvisor with all of its levels,
// exporters that disagree, and how much is asked.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { inspectCluster } from "#resolvers/prometheus/coverage.ts";
import type { Moments } from "#resolvers/prometheus/door.ts";
import { createKubernetesStore, type Source } from "#resolvers/prometheus/kubernetes.ts";
import { type Expression, print, type Selector } from "#resolvers/prometheus/promql.ts";
import { newest } from "#resolvers/prometheus/tracks.ts";
import type { NodesRow, PodOverviewRow, PodsRow } from "#src/model.ts";
import type { OverviewFilter, PodFilter } from "#src/store.ts";
import { base, minute, model } from "../../conformance/cluster.ts";
import { evaluateOver } from "../../support/evaluate.ts";
import {
  collectSeries,
  expose,
  type Labels,
  type Write,
  type WrittenSeries,
} from "../../support/exporters.ts";

const never = new AbortController().signal;
const uid = "12345678-1234-4234-8234-123456789abc";
const other = "99999999-1234-4234-8234-123456789abc";
const key = { namespace: "shop", pod: "web-0" };
const cgroup = `/kubepods/burstable/pod${uid}`;

/** Samples every 15 s of the ten minutes before `base` and of the minute after it. */
function written(each: (write: Write, time: number, age: number) => void): WrittenSeries[] {
  const { write, series } = collectSeries({ cluster: "c" });
  for (let time = base - 10 * minute; time <= base + minute; time += 15_000) {
    each(write, time, (time - base) / 1_000 + 600);
  }
  return series();
}
const info: Labels = { ...key, uid, node: "n1", host_network: "false" };
/** The pod that other series are told of. */
const exists = (write: Write, time: number): void => write(time, "kube_pod_info", info, 1);

const snapshots = { start: base, step: minute, count: 1 };
const scope = { match: { cluster: "c" }, snapshots, rowLimit: 1_000 };
const ended = { match: scope.match, from: base, to: base, rowLimit: 1_000 };
async function collect<Row>(batches: AsyncIterable<readonly Row[]>): Promise<Row[]> {
  const rows: Row[] = [];
  for await (const batch of batches) rows.push(...batch);
  return rows;
}
const storeOver = (series: readonly WrittenSeries[]) => createKubernetesStore(evaluateOver(series, "open"));
const readPods = (series: readonly WrittenSeries[], over: Partial<PodFilter> = {}): Promise<PodsRow[]> =>
  collect(storeOver(series).pods({ ...scope, namespaces: [], nodes: [], ...over }, never));
const readNodes = (series: readonly WrittenSeries[]): Promise<NodesRow[]> =>
  collect(storeOver(series).nodes(scope, never));
const readOverview = (
  series: readonly WrittenSeries[],
  over: Partial<OverviewFilter> = {},
): Promise<PodOverviewRow[]> =>
  collect(storeOver(series).overview({ ...ended, namespaces: [], text: "", ...over }, never));

describe("a pod's figures", () => {
  test("are 0 where nothing but kube-state-metrics is there", async () => {
    expect(await readPods(written(exists))).toEqual([
      {
        timestamp: base,
        pod_name: "web-0",
        pod_namespace: "shop",
        node_name: "n1",
        cpu_usage_nano_cores: 0,
        cpu_usage_core_nano_seconds: 0,
        memory_rss_bytes: 0,
        memory_usage_bytes: 0,
        memory_working_set_bytes: 0,
        memory_page_faults: 0,
        memory_major_page_faults: 0,
        ephemeral_storage_used_bytes: 0,
        ephemeral_storage_capacity_bytes: 0,
        network_rx_bytes: 0,
        network_tx_bytes: 0,
        process_count: 0,
        phase: "Unknown",
        state: "Unknown",
        containers: [],
        pod_restart_count: 0,
        pod_uptime_seconds: 0,
      },
    ]);
  });

  test("are found by its name and node where kube-state-metrics is told to drop uids", async () => {
    const series = written((write, time) => {
      const { uid: _, ...dropped } = info;
      write(time, "kube_pod_info", dropped, 1);
      write(time, "container_memory_rss", { ...key, node: "n1", id: cgroup }, 40);
      write(time, "container_memory_rss", { ...key, node: "n2", id: `/kubepods/pod${other}` }, 9_000);
      write(time, "container_memory_working_set_bytes", { ...key, id: cgroup }, 50);
    });
    const row = { memory_rss_bytes: 40, memory_working_set_bytes: 50 };
    expect(await readPods(series)).toMatchObject([row]);
  });

  test("of a static pod are told under its hash, by its cgroup and by the kubelet", async () => {
    const hash = "0123456789abcdef0123456789abcdef";
    const named = { k8s_namespace_name: "shop", k8s_pod_name: "web-0", k8s_pod_uid: hash };
    const series = written((write, time) => {
      exists(write, time);
      write(time, "container_memory_rss", { ...key, node: "n1", id: `/kubepods/burstable/pod${hash}` }, 40);
      write(time, "k8s_pod_memory_working_set_bytes", named, 50);
    });
    const row = { memory_rss_bytes: 40, memory_working_set_bytes: 50 };
    expect(await readPods(series)).toMatchObject([row]);
  });

  test("are rates also of series that tell their type, which half of the functions drop", async () => {
    const series = written((write, time, age) => {
      exists(write, time);
      const typed = { __type__: "counter", __unit__: "seconds", node: "n1", cpu: "total" };
      const cpu = "container_cpu_usage_seconds_total";
      write(time, cpu, { ...key, ...typed, id: cgroup }, age / 4);
      write(time, cpu, { ...typed, id: "/" }, age / 2);
    });
    expect(await readPods(series)).toMatchObject([{ cpu_usage_nano_cores: 0.25e9 }]);
    expect(await readNodes(series)).toMatchObject([{ cpu_usage_nano_cores: 0.5e9 }]);
  });

  test("are the sum of its containers where its own cgroup is not told, each by its newest cgroup", async () => {
    const series = written((write, time, age) => {
      exists(write, time);
      const of = (container: string, id: string): Labels => ({
        ...key,
        container,
        id: `${cgroup}/${id}`,
        image: "i",
      });
      write(time, "container_memory_rss", of("app", "b"), 1_000);
      write(time, "container_memory_rss", of("proxy", "c"), 200);
      write(time, "container_start_time_seconds", of("app", "b"), 50);
      write(time, "container_cpu_usage_seconds_total", of("app", "b"), age / 4);
      write(time, "container_cpu_usage_seconds_total", of("proxy", "c"), age / 2);
      // The sandbox is none of its containers.
      write(time, "container_memory_rss", { ...key, container: "POD", id: `${cgroup}/s`, image: "pause" }, 5);
      write(time, "container_memory_rss", { ...key, id: `${cgroup}/t`, image: "pause" }, 7);
      // Another pod of that name, which is gone.
      write(
        time,
        "container_memory_rss",
        { ...key, container: "app", id: `/kubepods/pod${other}/x` },
        90_000,
      );
      if (time < base - 20_000) {
        write(time, "container_memory_rss", of("app", "a"), 5_000);
        write(time, "container_start_time_seconds", of("app", "a"), 20);
      }
    });
    const [row] = await readPods(series);
    expect(row).toMatchObject({
      memory_rss_bytes: 1_200,
      cpu_usage_nano_cores: 750_000_000,
      cpu_usage_core_nano_seconds: 450_000_000_000,
    });
  });

  test("are not counted twice where the kubelet tells the same as cAdvisor", async () => {
    const series = written((write, time) => {
      exists(write, time);
      const container = { ...key, container: "app" };
      write(time, "container_memory_working_set_bytes", { ...container, id: `${cgroup}/b` }, 1_000);
      write(time, "container_start_time_seconds", { ...container, id: `${cgroup}/b` }, 50);
      write(
        time,
        "container_memory_working_set_bytes",
        { ...container, metrics_path: "/metrics/resource" },
        1_010,
      );
      write(time, "container_start_time_seconds", { ...container, metrics_path: "/metrics/resource" }, 50);
    });
    const [row] = await readPods(series);
    expect(row?.memory_working_set_bytes).toBe(1_000);
  });

  test("come from the kubelet's resource metrics where there is no cAdvisor", async () => {
    const series = written((write, time, age) => {
      exists(write, time);
      write(time, "pod_cpu_usage_seconds_total", { ...key, node: "n1" }, age / 8);
      write(time, "pod_memory_working_set_bytes", { ...key, node: "n1" }, 4_321);
      // Of a pod of that name on another node.
      write(time, "pod_memory_working_set_bytes", { ...key, node: "n2" }, 9_999);
    });
    const [row] = await readPods(series);
    expect(row).toMatchObject({
      cpu_usage_nano_cores: 125_000_000,
      cpu_usage_core_nano_seconds: 75_000_000_000,
      memory_working_set_bytes: 4_321,
    });
  });

  const names = ["k8s_pod_cpu_usage", "k8s_pod_cpu_utilization_ratio", "k8s_pod_cpu_utilization"];
  test.each(names)(
    "come from OpenTelemetry's kubelet stats where there is nothing else (%s)",
    async (cpu) => {
      const series = written((write, time, age) => {
        exists(write, time);
        const pod = (id: string): Labels => ({
          k8s_namespace_name: "shop",
          k8s_pod_name: "web-0",
          k8s_pod_uid: id,
        });
        write(time, cpu, pod(uid), 0.25);
        write(time, "k8s_pod_cpu_time_seconds_total", pod(uid), 12);
        write(time, "k8s_pod_memory_rss_bytes", pod(uid), 1);
        write(time, "k8s_pod_memory_usage_bytes", pod(uid), 2);
        write(time, "k8s_pod_memory_working_set_bytes", pod(uid), 3);
        write(time, "k8s_pod_memory_working_set_bytes", pod(other), 30);
        // Of unit 1: the collector, and Prometheus' own intake, name such a gauge a ratio.
        write(time, "k8s_pod_memory_page_faults_ratio", pod(uid), 4);
        write(time, "k8s_pod_memory_major_page_faults_ratio", pod(uid), 5);
        write(time, "k8s_pod_filesystem_usage_bytes", pod(uid), 6);
        write(time, "k8s_pod_filesystem_capacity_bytes", pod(uid), 7);
        for (const [direction, rate] of [
          ["receive", 10],
          ["transmit", 20],
        ] as const) {
          write(
            time,
            "k8s_pod_network_io_bytes_total",
            { ...pod(uid), interface: "eth0", direction },
            age * rate,
          );
        }
      });
      const [row] = await readPods(series);
      expect(row).toMatchObject({
        cpu_usage_nano_cores: 250_000_000,
        cpu_usage_core_nano_seconds: 12_000_000_000,
        memory_rss_bytes: 1,
        memory_usage_bytes: 2,
        memory_working_set_bytes: 3,
        memory_page_faults: 4,
        memory_major_page_faults: 5,
        ephemeral_storage_used_bytes: 6,
        ephemeral_storage_capacity_bytes: 7,
        network_rx_bytes: 600,
        network_tx_bytes: 1_200,
      });
      expect(await readPods(series, { pod: "web-0", namespaces: ["shop"] })).toEqual([row]);
    },
  );

  test.each<[spelling: string, labels: Labels]>([
    ["its own", { pod_name: "web-0", pod_namespace: "shop", pod: "exporter-x", namespace: "monitoring" }],
    ["the usual", key],
  ])("of ephemeral storage are read in %s spelling", async (_, labels) => {
    const series = written((write, time) => {
      exists(write, time);
      write(time, "kube_pod_info", { ...info, pod: "exporter-x", namespace: "monitoring", uid: other }, 1);
      write(time, "ephemeral_storage_pod_usage", labels, 555);
    });
    const rows = await readPods(series);
    expect(rows.map((row) => [row.pod_name, row.ephemeral_storage_used_bytes])).toEqual([
      ["exporter-x", 0],
      ["web-0", 555],
    ]);
  });

  test("are never negative, infinite or no number", async () => {
    const series = written((write, time) => {
      exists(write, time);
      write(time, "container_memory_rss", { ...key, id: cgroup }, Number.NaN);
      write(time, "container_memory_usage_bytes", { ...key, id: cgroup }, Number.POSITIVE_INFINITY);
      write(time, "container_memory_working_set_bytes", { ...key, id: cgroup }, -5);
    });
    const [row] = await readPods(series);
    expect(row).toMatchObject({ memory_rss_bytes: 0, memory_usage_bytes: 0, memory_working_set_bytes: 0 });
  });
});

describe("cpu per second", () => {
  // Seconds before the snapshot.
  test.each<[when: string, scrapes: readonly number[], shown: boolean]>([
    ["every 15 s", [45, 30, 15, 0], true],
    ["every minute", [170, 110, 50], true],
    ["every minute, the last but one failed", [179, 59], true],
    ["every minute, the newest failed", [219, 159, 99], true],
    ["every minute, with jitter", [240, 181.234, 119.999], true],
    ["after a long gap", [299.999, 0], true],
    ["after too long a gap", [300, 0], false],
    ["and no more", [240, 180, 120], false],
    ["for the first time", [10], false],
  ])("is the growth between two scrapes %s, as fresh as other figures", async (_, scrapes, shown) => {
    // Faster with time, so that each pair of samples has a growth of its own.
    const counter = (ago: number): number => (1_000 - ago) ** 2 / 16;
    const [last = 0, before = 0] = scrapes.toReversed();
    const perSecond = shown ? (counter(last) - counter(before)) / (before - last) : 0;
    const expected = Math.round(perSecond * 1e9);
    for (const [metric, labels] of [
      ["container_cpu_usage_seconds_total", { ...key, id: cgroup }],
      ["container_cpu_usage_seconds_total", { ...key, id: `${cgroup}/b`, container: "app", image: "i" }],
      ["pod_cpu_usage_seconds_total", { ...key, node: "n1" }],
      ["container_cpu_usage_seconds_total", { node: "n1", id: "/" }],
      ["node_cpu_usage_seconds_total", { node: "n1" }],
      ["node_cpu_seconds_total", { instance: "n1", cpu: "0", mode: "user" }],
    ] as const) {
      const { write, series } = collectSeries({ cluster: "c" });
      write(base, "kube_node_info", { node: "n1", internal_ip: "n1" }, 1);
      exists(write, base);
      for (const ago of scrapes) {
        const time = base - Math.round(ago * 1_000);
        write(time, metric, labels, counter(ago));
        if (metric.startsWith("container_")) write(time, "container_memory_rss", labels, 1_000);
      }
      const rows = "namespace" in labels ? await readPods(series()) : await readNodes(series());
      expect(rows.map((row) => Math.abs(row.cpu_usage_nano_cores - expected) <= 1)).toEqual([true]);
      const fresh = last < 120 && metric.startsWith("container_");
      expect(rows).toMatchObject([{ memory_rss_bytes: fresh ? 1_000 : 0 }]);
    }
  });
});

describe("a pod's network", () => {
  const traffic = (
    interfaces: readonly string[],
    start: number | undefined,
    counter = (age: number) => age,
  ) =>
    written((write, time, age) => {
      exists(write, time);
      if (start !== undefined) write(time, "kube_pod_start_time", { ...key, uid }, start / 1_000);
      for (const [position, name] of interfaces.entries()) {
        if (start !== undefined && time < start) continue;
        const labels = { ...key, id: `${cgroup}/s`, image: "pause", interface: name };
        write(time, "container_network_receive_bytes_total", labels, counter(age) * 10 ** position);
      }
    });
  const received = async (series: readonly WrittenSeries[]): Promise<number | undefined> =>
    (await readPods(series))[0]?.network_rx_bytes;

  test("is that of eth0, else of all interfaces that are real", async () => {
    expect(await received(traffic(["eth0", "net1", "net2"], base - 600_000))).toBe(60);
    expect(await received(traffic(["net1", "net2", "lo", "veth1"], base - 600_000))).toBe(660);
  });

  test("counts from 0 after a restart of the counter, and of the pod", async () => {
    expect(await received(traffic(["eth0"], base - 600_000, (age) => age % 590))).toBe(585 - 540 + 10);
    expect(await received(traffic(["eth0"], base - 30_000))).toBe(600);
  });

  test("is 0 while an older pod has no value to compare with", async () => {
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
])("network over an hour in which counters restart, of a source that %s it", (_, hidesRestarts) => {
  const hour = 60 * minute;
  const gigabyte = 1e9;
  /** Seconds after the earlier snapshot, and what the counter then shows. */
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
    return createKubernetesStore(evaluateOver(series(), "open", hidesRestarts));
  };
  const query = { ...scope, snapshots: { start: base, step: hour, count: 1 } };
  /** Of counters one after the other, each of which begins at 0. */
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
  /** Grows from a value at a time to one at another, told every 30 seconds. */
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
    ["restarts and passes what it showed", rebooted],
    ["restarts twice", twice],
  ])("is what a node's counter grew by when it %s", async (_, samples) => {
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
          // Another node, and a pod whose cgroup nobody names, have nothing to do with it.
          ["node_network_receive_bytes_total", { instance: "n2:9100", device: "ens5" }, twice],
          ["container_network_receive_bytes_total", { ...key, node: "n1", interface: "eth0" }, twice],
        ],
      );
      const rows = await collect(store.nodes(query, never));
      expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toEqual([Math.round(grownBy([samples]))]);
    }
  });

  // What a scrape or a collector adds: who it is, and where it was found.
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
      "a node that is found by its address",
      "node_network_receive_bytes_total",
      { instance: "n1:9100", device: "ens5" },
      collector,
    ],
    [
      "a node of OpenTelemetry's",
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
      "a pod of OpenTelemetry's",
      "k8s_pod_network_io_bytes_total",
      { k8s_namespace_name: "shop", k8s_pod_name: "web-0", interface: "eth0", direction: "receive" },
      { ...scraped, ...prefixed },
    ],
  ])(
    "is what the counter of %s grew by, whatever its collector says of itself",
    async (what, metric, labels, added) => {
      const store = hourly(
        (write, time) => {
          exists(write, time);
          write(time, "kube_node_info", { node: "n1", internal_ip: "n1" }, 1);
        },
        [[metric, { ...added, ...labels }, twice]],
      );
      const rows = what.startsWith("a node")
        ? await collect(store.nodes(query, never))
        : await collect(store.pods({ ...query, namespaces: [], nodes: [] }, never));
      expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toContain(Math.round(grownBy([twice])));
    },
  );

  const before = growing([-60, 5 * gigabyte], [600, 7 * gigabyte]);
  const between = growing([700, 100], [1_500, 3 * gigabyte]);
  const after = growing([1_600, 200], [3_600, 8 * gigabyte]);
  const sandbox = (name: string): Labels => ({ ...key, node: "n1", id: `${cgroup}/${name}`, image: "pause" });
  test("counts every sandbox of a pod that began since, also one that no snapshot shows", async () => {
    const started = base - hour + 650_000;
    const store = hourly(
      (write, time) => {
        if (time < started) return;
        exists(write, time);
        write(time, "kube_pod_start_time", { ...key, uid }, started / 1_000);
      },
      [
        ["container_network_receive_bytes_total", { ...sandbox("a"), interface: "eth0" }, between],
        ["container_network_receive_bytes_total", { ...sandbox("b"), interface: "eth0" }, after],
      ],
    );
    const rows = await collect(store.pods({ ...query, namespaces: [], nodes: [] }, never));
    expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toEqual([
      Math.round(grownBy([between, after])),
    ]);
  });

  test.each<[string, readonly (readonly [Labels, Samples])[]]>([
    ["one sandbox", [[sandbox("a"), quiet]]],
    [
      "a sandbox made anew",
      [
        [sandbox("a"), before],
        [sandbox("b"), after],
      ],
    ],
    [
      "a sandbox made anew twice",
      [
        [sandbox("a"), before],
        [sandbox("b"), between],
        [sandbox("c"), after],
      ],
    ],
    ["sandboxes whose cgroup is not told", [[key, [...before, ...between, ...after]]]],
    [
      "OpenTelemetry's figures",
      [
        [
          { k8s_namespace_name: "shop", k8s_pod_name: "web-0", k8s_pod_uid: uid, direction: "receive" },
          rebooted,
        ],
      ],
    ],
  ])("is what a pod's counters grew by with %s", async (_, counters) => {
    const series = counters.map(([labels, samples]): [string, Labels, Samples] => [
      "direction" in labels ? "k8s_pod_network_io_bytes_total" : "container_network_receive_bytes_total",
      { ...labels, interface: "eth0" },
      samples,
    ]);
    const store = hourly(exists, [
      ...series,
      // One that had the name before.
      [
        "container_network_receive_bytes_total",
        { ...key, id: `/kubepods/pod${other}/x`, interface: "eth0" },
        before,
      ],
    ]);
    const rows = await collect(store.pods({ ...query, namespaces: [], nodes: [] }, never));
    const expected = Math.round(grownBy(counters.map(([, samples]) => samples)));
    expect(rows.map(({ network_rx_bytes }) => network_rx_bytes)).toEqual([expected]);
  });
});

describe("nodes", () => {
  const uname = { instance: "10.0.0.7:9100", nodename: "worker-7" };
  const exporter = (write: Write, time: number, age: number, instance = uname.instance): void => {
    for (const [mode, rate] of Object.entries({ user: 0.5, system: 0.25, idle: 7, iowait: 1, steal: 2 })) {
      write(time, "node_cpu_seconds_total", { instance, cpu: "0", mode }, age * rate);
    }
    const figures = {
      ...{ node_memory_MemTotal_bytes: 1_000, node_memory_MemFree_bytes: 100 },
      ...{ node_memory_MemAvailable_bytes: 300, node_memory_AnonPages_bytes: 450 },
      ...{ node_vmstat_pgfault: 77, node_vmstat_pgmajfault: 7 },
    };
    for (const [name, value] of Object.entries(figures)) write(time, name, { instance }, value);
    for (const [mountpoint, factor] of Object.entries({ "/": 1, "/data": 100 })) {
      const disk = { instance, device: "/dev/sda1", mountpoint };
      write(time, "node_filesystem_size_bytes", disk, 5_000 * factor);
      write(time, "node_filesystem_free_bytes", disk, 2_000 * factor);
      write(time, "node_filesystem_avail_bytes", disk, 1_500 * factor);
      write(time, "node_filesystem_files", disk, 90 * factor);
      write(time, "node_filesystem_files_free", disk, 30 * factor);
    }
    for (const [device, rate] of Object.entries({ ens5: 3, ens6: 4, lo: 100, cni0: 100, veth9: 100 })) {
      write(time, "node_network_receive_bytes_total", { instance, device }, age * rate);
      write(time, "node_network_transmit_bytes_total", { instance, device }, age * rate * 2);
    }
  };
  const told = {
    timestamp: base,
    cpu_usage_nano_cores: 750_000_000,
    memory_rss_bytes: 450,
    memory_usage_bytes: 900,
    memory_working_set_bytes: 700,
    memory_page_faults: 77,
    memory_major_page_faults: 7,
    fs_used_bytes: 3_000,
    fs_available_bytes: 1_500,
    fs_capacity_bytes: 5_000,
    fs_inodes_free: 30,
    fs_inodes_used: 60,
    fs_inodes: 90,
    network_rx_bytes: 420,
    network_tx_bytes: 840,
    phase: 0,
  };

  test("are machines with a node exporter where nothing else knows them", async () => {
    const series = written((write, time, age) => {
      write(time, "node_uname_info", uname, 1);
      exporter(write, time, age);
    });
    expect(await readNodes(series)).toEqual([{ ...told, node_name: "worker-7" }]);
  });

  test("have the largest disk where several are mounted at the root, and none that is no disk", async () => {
    const sizes = { "/dev/sda2": 2_500, "/dev/sdb1": 4_999, rootfs: 90_000, overlay: 80_000, tmpfs: 70_000 };
    const series = written((write, time, age) => {
      write(time, "node_uname_info", uname, 1);
      exporter(write, time, age);
      for (const [device, size] of Object.entries(sizes)) {
        const disk = { instance: uname.instance, device, mountpoint: "/" };
        write(time, "node_filesystem_size_bytes", disk, size);
        write(time, "node_filesystem_avail_bytes", disk, 1);
      }
    });
    expect(await readNodes(series)).toEqual([{ ...told, node_name: "worker-7" }]);
  });

  test.each<[string, Labels]>([
    ["name", { node: "worker-7", internal_ip: "192.168.0.1" }],
    ["address", { node: "worker-7.internal", internal_ip: "10.0.0.7" }],
  ])("have a node exporter's figures by %s, and other machines are none", async (_, node) => {
    const series = written((write, time, age) => {
      write(time, "kube_node_info", node, 1);
      write(
        time,
        "kube_node_status_condition",
        { node: node.node ?? "", condition: "Ready", status: "true" },
        1,
      );
      write(time, "node_uname_info", uname, 1);
      exporter(write, time, age);
      write(time, "node_uname_info", { instance: "10.0.0.99:9100", nodename: "database" }, 1);
      exporter(write, time, age, "10.0.0.99:9100");
    });
    expect(await readNodes(series)).toEqual([{ ...told, node_name: node.node, phase: 2 }]);
  });

  test("have a node exporter's figures where the scraper calls its instance as the cluster calls the node", async () => {
    const series = written((write, time, age) => {
      write(time, "kube_node_info", { node: "worker-7.internal", internal_ip: "10.0.0.7" }, 1);
      write(time, "node_uname_info", { instance: "worker-7.internal", nodename: "WORKER-7" }, 1);
      exporter(write, time, age, "worker-7.internal");
    });
    expect(await readNodes(series)).toEqual([{ ...told, node_name: "worker-7.internal", phase: 0 }]);
  });

  test("have no figure of a disk that is not told, also where others of it are", async () => {
    const disk = { node: "worker-7", id: "/", device: "/dev/sda1" };
    const series = written((write, time) => {
      write(time, "container_fs_limit_bytes", disk, 100);
      write(time, "container_fs_inodes_total", disk, 10);
    });
    expect(await readNodes(series)).toMatchObject([
      {
        ...{ fs_used_bytes: 0, fs_available_bytes: 0, fs_capacity_bytes: 100 },
        ...{ fs_inodes_free: 0, fs_inodes_used: 0, fs_inodes: 10 },
      },
    ]);
  });

  test("are found by the scraper's address where cAdvisor names no node", async () => {
    const series = written((write, time) => {
      write(time, "kube_node_info", { node: "worker-7", internal_ip: "10.0.0.7" }, 1);
      write(time, "container_memory_rss", { instance: "10.0.0.7:10250", id: "/" }, 1_234);
    });
    expect(await readNodes(series)).toMatchObject([{ node_name: "worker-7", memory_rss_bytes: 1_234 }]);
  });

  const names = ["k8s_node_cpu_usage", "k8s_node_cpu_utilization_ratio", "k8s_node_cpu_utilization"];
  test.each(names)("have the figures of OpenTelemetry's kubelet stats (%s)", async (cpu) => {
    const node = { k8s_node_name: "n1" };
    const series = written((write, time, age) => {
      write(time, "kube_node_info", { node: "n1", internal_ip: "10.0.0.1" }, 1);
      write(time, cpu, node, 0.5);
      write(time, "k8s_node_memory_working_set_bytes", node, 8);
      write(time, "k8s_node_filesystem_capacity_bytes", node, 100);
      write(time, "k8s_node_filesystem_usage_bytes", node, 40);
      write(time, "k8s_node_filesystem_available_bytes", node, 50);
      write(
        time,
        "k8s_node_network_io_bytes_total",
        { ...node, interface: "eth0", direction: "receive" },
        age,
      );
    });
    expect(await readNodes(series)).toMatchObject([
      {
        cpu_usage_nano_cores: 5e8,
        memory_working_set_bytes: 8,
        fs_used_bytes: 40,
        fs_available_bytes: 50,
        fs_capacity_bytes: 100,
        network_rx_bytes: 60,
        network_tx_bytes: 0,
      },
    ]);
  });

  test.each<[metric: string, labels: Labels, figure: keyof NodesRow]>([
    ["container_memory_rss", { node: "n1", id: "/" }, "memory_rss_bytes"],
    ["container_cpu_usage_seconds_total", { node: "n1", id: "/" }, "cpu_usage_nano_cores"],
    ["node_memory_working_set_bytes", { node: "n1" }, "memory_working_set_bytes"],
    ["node_cpu_usage_seconds_total", { node: "n1" }, "cpu_usage_nano_cores"],
    ["node_vmstat_pgfault", { node: "n1" }, "memory_page_faults"],
    ["node_cpu_seconds_total", { node: "n1", mode: "user" }, "cpu_usage_nano_cores"],
    ["k8s_node_memory_rss_bytes", { k8s_node_name: "n1" }, "memory_rss_bytes"],
    // Of unit 1, as the collector names it in Prometheus, and without units in names.
    ["k8s_node_memory_page_faults_ratio", { k8s_node_name: "n1" }, "memory_page_faults"],
    ["k8s_node_memory_page_faults", { k8s_node_name: "n1" }, "memory_page_faults"],
    ["k8s_node_memory_major_page_faults_ratio", { k8s_node_name: "n1" }, "memory_major_page_faults"],
  ])("are shown where %s is all that is known of them", async (metric, labels, figure) => {
    const [row, ...others] = await readNodes(written((write, time, age) => write(time, metric, labels, age)));
    expect(others).toEqual([]);
    expect(row?.node_name).toBe("n1");
    expect(row?.[figure]).toBe(figure === "cpu_usage_nano_cores" ? 1e9 : 600);
  });

  test("more than the limit are refused before any is answered, whoever tells of them", async () => {
    // Half of the nodes are known to one exporter, half to another: no single count is over the limit.
    const series = written((write, time) => {
      for (let number = 0; number < 6; number += 1) {
        if (number < 3) write(time, "kube_node_info", { node: `a${number}` }, 1);
        else write(time, "container_memory_rss", { node: `b${number}`, id: "/" }, 1);
      }
    });
    const query = { ...scope, snapshots: { ...snapshots, start: base - 5 * minute, count: 6 } };
    expect(await collect(storeOver(series).nodes({ ...query, rowLimit: 36 }, never))).toHaveLength(36);
    const rows = storeOver(series)
      .nodes({ ...query, rowLimit: 35 }, never)
      [Symbol.asyncIterator]();
    await expect(rows.next()).rejects.toMatchObject({ slug: "result_too_large" });
  });

  // Of the interfaces each carries ten times as much as the one before; the first ones are the node's network.
  test.each<[where: string, network: readonly string[], others: string]>([
    ["Cilium", ["ens5"], "lo cilium_net cilium_host cilium_vxlan lxc_health lxc9a8b7c6d5e4f"],
    ["the CNI of AWS", ["ens5", "ens6"], "lo eni1a2b3c4d5e6 dummy0 pod-id-link0 vlan.eth.1"],
    ["Azure", ["eth0"], "lo enP5s1 azv1a2b3c4d5e6 docker0"],
    ["GKE", ["eth0"], "lo gke52e5a4b9 docker0"],
    ["Calico", ["enp3s0f1"], "lo cali1a2b3c4d5e6 tunl0 vxlan.calico wireguard.cali kube-ipvs0 nodelocaldns"],
    ["Flannel", ["eno1"], "lo cni0 flannel.1 veth1a2b3c4d kube-bridge"],
    ["OVN", ["enp1s0"], "lo br-ex br-int ovs-system ovn-k8s-mp0 genev_sys_6081 1a2b3c4d5e6f7_3"],
    [
      "Antrea and Weave",
      ["eth1", "eth2"],
      "lo antrea-gw0 antrea-tun0 weave vethwe-bridge vxlan-6784 datapath",
    ],
    ["a bond", ["bond0"], "lo ens1 ens2 bond0.100 vlan200 cali1a2b3c4d5e6"],
    ["a bond of eth0", ["bond0", "bond1"], "lo eth0 eth1 bond0.100"],
    ["virtual machines", ["eno1np0"], "lo virbr0 tap0 tun0 wg0 ip6tnl0 sit0 br0 vnet3"],
    ["wireless", ["wlan0"], "lo cni0 veth1a2b3c4d docker0 br-1a2b3c4d5e6f eth0.7"],
  ])("have each byte of their network once with %s", async (_, network, others) => {
    const all = [...network, ...others.split(" ")];
    const expected = network.reduce((sum, __, position) => sum + 60 * 10 ** position, 0);
    for (const [metric, label, own] of [
      ["container_network_receive_bytes_total", "interface", { node: "n1", id: "/" }],
      ["node_network_receive_bytes_total", "device", { instance: "n1:9100" }],
    ] as const) {
      const series = written((write, time, age) => {
        write(time, "kube_node_info", { node: "n1", internal_ip: "n1" }, 1);
        for (const [position, name] of all.entries()) {
          write(time, metric, { ...own, [label]: name }, age * 10 ** position);
        }
      });
      expect((await readNodes(series)).map((row) => row.network_rx_bytes)).toEqual([expected]);
    }
  });

  test("a renamed machine's figures go to its newest name", async () => {
    const series = written((write, time, age) => {
      write(time, "node_uname_info", { ...uname, nodename: time < base - 30_000 ? "zulu" : "alpha" }, 1);
      exporter(write, time, age);
    });
    expect((await readNodes(series)).map(({ node_name }) => node_name)).toEqual(["alpha"]);
  });

  test("an address that a node has taken over is the new node's, while both are told of", async () => {
    const series = written((write, time) => {
      // It had the address long before, so that its series is the first.
      const node = time < base - 9 * minute || time >= base - 30_000 ? "alpha" : "zulu";
      write(time, "kube_node_info", { node, internal_ip: "10.0.0.1" }, 1);
      write(time, "container_memory_rss", { instance: "10.0.0.1:10250", id: "/" }, 5);
    });
    const rows = await readNodes(series);
    expect(rows.map(({ node_name, memory_rss_bytes }) => [node_name, memory_rss_bytes])).toEqual([
      ["alpha", 5],
      ["zulu", 0],
    ]);
  });
});

describe("exporters that disagree", () => {
  test("while replicas see different phases, the later of a pod's life is shown, and the worse of a container", async () => {
    const series = written((write, time) => {
      exists(write, time);
      const flags = (instance: string, phase: string, status: string): void => {
        const twin = { ...key, uid, instance };
        for (const each of ["Pending", "Running", "Succeeded"]) {
          write(time, "kube_pod_status_phase", { ...twin, phase: each }, each === phase ? 1 : 0);
        }
        for (const each of ["running", "waiting", "terminated"]) {
          const flag = `kube_pod_container_status_${each}`;
          write(time, flag, { ...twin, container: "app" }, each === status ? 1 : 0);
        }
        write(time, "kube_pod_container_status_restarts_total", { ...twin, container: "app" }, 3);
      };
      flags("a", "Pending", "waiting");
      flags("b", "Running", "running");
    });
    expect(await readPods(series)).toMatchObject([
      {
        phase: "Running",
        state: "Pending",
        pod_restart_count: 3,
        containers: [{ name: "app", status: "Waiting", exit_code: 0, reason: "" }],
      },
    ]);
  });

  test.each(["n1", ""])("a pod is on a node as soon as one series says so (first %j)", async (first) => {
    const series = written((write, time) => {
      for (const node of first === "" ? ["", "n1"] : ["n1", ""]) {
        write(time, "kube_pod_info", { ...info, pod_ip: `ip of ${node}`, node }, 1);
      }
    });
    expect((await readPods(series)).map(({ node_name }) => node_name)).toEqual(["n1"]);
  });

  // What a scrape does not tell any more is marked as ended, and after a failed one that is everything.
  test("what was told last is told on while a scrape fails, which ends all series", async () => {
    const { write, series } = collectSeries({ cluster: "c" });
    const container = { ...key, uid, container: "app" };
    const scrapes = [-90, -60, -30, 0].map((seconds) => base + seconds * 1_000);
    for (const [at, time] of scrapes.entries()) {
      const failed = at === 3;
      const mark = (name: string, labels: Labels, there = true) =>
        write(time, name, labels, there && !failed ? 1 : Number.NaN);
      mark("kube_pod_info", info);
      mark("kube_pod_container_status_waiting", container);
      const reasons = ["CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff"];
      for (const reason of reasons) {
        // Of the three it is the second at last, which was told before the others as well.
        const there = reasons.indexOf(reason) === [1, 0, 1][at];
        mark("kube_pod_container_status_waiting_reason", { ...container, reason }, there);
      }
      mark("kube_pod_labels", { ...key, uid, label_v: "9" }, at < 1);
      mark("kube_pod_labels", { ...key, uid, label_v: "10" }, at >= 1);
    }
    const containers = [{ reason: "ErrImagePull" }];
    expect(await readPods(series())).toMatchObject([{ containers }]);
    expect(await readOverview(series())).toMatchObject([{ containers, labels: { v: "10" } }]);
  });

  // What the kubelet's eviction does to a pod's status.
  test.each([
    ["has none at once", false, [], 0],
    ["has those that it had while a scrape fails", true, [{ name: "app", status: "Running" }], 3],
  ])("a pod that lost its containers %s", async (_, fails, containers, restarts) => {
    const { write, series } = collectSeries({ cluster: "c" });
    const container = { ...key, uid, container: "app" };
    for (const seconds of [-90, -60, -30, 0]) {
      const gone = seconds >= -30;
      const tell = (name: string, labels: Labels, value: number, there = true) =>
        write(base + seconds * 1_000, name, labels, there && !(gone && fails) ? value : Number.NaN);
      tell("kube_pod_info", info, 1);
      tell("kube_pod_status_phase", { ...key, uid, phase: "Running" }, gone ? 0 : 1);
      tell("kube_pod_status_phase", { ...key, uid, phase: "Failed" }, gone ? 1 : 0);
      tell("kube_pod_container_status_running", container, 1, !gone);
      tell("kube_pod_container_status_restarts_total", container, 3, !gone);
    }
    expect(await readPods(series())).toMatchObject([
      { phase: fails ? "Running" : "Failed", containers, pod_restart_count: restarts },
    ]);
  });

  const none = Number.NaN;
  test.each<[when: string, zulu: readonly number[], alpha: readonly number[]]>([
    ["goes on", [10, none], [none, 20]],
    ["has begun since, and a scrape failed", [10, none], [none, none]],
    ["had begun before, and a scrape failed", [none, none], [10, none]],
  ])("what %s is the newest", (_, zulu, alpha) => {
    const track = (name: string, values: readonly number[]) => ({
      labels: { name },
      values: Float64Array.from(values),
    });
    const told = Number.isNaN(alpha[0] ?? none) ? [none, 1] : [1, 1];
    const tracks = [track("zulu", [1, 1]), track("alpha", told)];
    const taken = [track("zulu", zulu), track("alpha", alpha)];
    for (const each of [tracks, tracks.toReversed()]) {
      expect(newest(each, taken, 1)?.labels).toEqual({ name: "alpha" });
    }
  });

  test("all containers of a pod that succeeded have ended well, whatever their exporter knows of it", async () => {
    const series = written((write, time) => {
      exists(write, time);
      write(time, "kube_pod_status_phase", { ...key, uid, phase: "Succeeded" }, 1);
      write(time, "kube_pod_container_status_terminated", { ...key, uid, container: "app" }, 1);
    });
    const [row] = await readPods(series);
    expect(row?.containers).toEqual([{ name: "app", status: "Terminated", exit_code: 0, reason: "" }]);
  });

  test("a container without any status is Unknown", async () => {
    const series = written((write, time) => {
      exists(write, time);
      write(time, "kube_pod_container_status_restarts_total", { ...key, uid, container: "app" }, 2);
    });
    const [row] = await readPods(series);
    expect(row?.containers).toEqual([{ name: "app", status: "Unknown", exit_code: 0, reason: "" }]);
  });

  test.each<[reason: string, last: number | undefined, code: number]>([
    ["OOMKilled", undefined, 137],
    ["OOMKilled", 1, 1],
    ["Error", undefined, 1],
    ["Error", 42, 42],
    ["Completed", 42, 0],
  ])("a container that ended as %s, after a code of %s, shows %s", async (reason, last, code) => {
    const container = { ...key, uid, container: "app" };
    const series = written((write, time) => {
      exists(write, time);
      write(time, "kube_pod_container_status_terminated", container, 1);
      write(time, "kube_pod_container_status_terminated_reason", { ...container, reason }, 1);
      if (last !== undefined)
        write(time, "kube_pod_container_status_last_terminated_exitcode", container, last);
    });
    const [row] = await readPods(series);
    expect(row?.containers).toEqual([{ name: "app", status: "Terminated", exit_code: code, reason }]);
  });

  test("owners have a kind and a name: older exporters write <none> for none", async () => {
    const owners = [
      ["ReplicaSet", "web"],
      ["<none>", "<none>"],
      ["Job", "<none>"],
      ["<none>", "web"],
      ["", "web"],
      ["DaemonSet", ""],
      ["Node", "n1"],
    ] as const;
    const series = written((write, time) => {
      write(time, "kube_pod_info", info, 1);
      for (const [owner_kind, owner_name] of owners)
        write(time, "kube_pod_owner", { ...key, uid, owner_kind, owner_name }, 1);
    });
    expect(await readOverview(series)).toMatchObject([
      {
        owner_references: [
          { kind: "Node", name: "n1", namespace: "" },
          { kind: "ReplicaSet", name: "web", namespace: info.namespace },
        ],
      },
    ]);
  });

  test("without times of creation the later start decides between two pods of one name", async () => {
    const series = written((write, time) => {
      for (const [each, start] of [
        [uid, 100],
        [other, 50],
      ] as const) {
        write(time, "kube_pod_info", { ...info, uid: each }, 1);
        write(time, "kube_pod_start_time", { ...key, uid: each }, start);
      }
    });
    expect(await readOverview(series)).toMatchObject([{ pod_uuid: uid }]);
  });
});

describe("a kube-state-metrics that tells few uids", () => {
  const { uid: _, ...unnamed } = info;
  const bare: Labels = { namespace: "shop", pod: "web-0" };
  const container: Labels = { ...bare, container: "app" };
  /** Version 1 tells the uid in `kube_pod_info` alone. */
  function tell(write: Write, time: number): void {
    write(time, "kube_pod_created", bare, time < base - 30_000 ? 50 : 100);
    write(time, "kube_pod_start_time", bare, base / 1_000 - 700);
    write(time, "kube_pod_status_phase", { ...bare, phase: "Running" }, 1);
    write(time, "kube_pod_container_status_waiting", container, 1);
    write(time, "kube_pod_container_status_waiting_reason", { ...container, reason: "CrashLoopBackOff" }, 1);
    write(time, "kube_pod_container_status_restarts_total", container, 4);
    write(time, "kube_pod_owner", { ...bare, owner_kind: "StatefulSet", owner_name: "web" }, 1);
    write(time, "kube_pod_labels", { ...bare, label_app: "shop" }, 1);
  }

  test.each<[told: string, first: Labels, second: Labels, shown: string]>([
    ["in one family", { ...info, uid: other }, { ...info, uid }, uid],
    ["in none", unnamed, unnamed, ""],
  ])("shows all that it tells of pods (%s)", async (_, first, second, shown) => {
    const series = written((write, time) => {
      const old = time < base - 30_000;
      write(time, "kube_pod_info", old ? { ...first, node: "n0" } : { ...second, node: "n1" }, 1);
      // Nor does a pod become one on its node's own network by one that had the name before.
      if (old) write(time, "kube_pod_info", { ...first, node: "n0", host_network: "true" }, 1);
      tell(write, time);
    });
    const containers = [{ name: "app", status: "Waiting", exit_code: 0, reason: "CrashLoopBackOff" }];
    const row = { node_name: "n1", phase: "Running", state: "Failed", containers, pod_restart_count: 4 };
    expect(await readPods(series)).toMatchObject([{ ...row, pod_uptime_seconds: 700 }]);
    expect(await readOverview(series)).toMatchObject([
      {
        ...row,
        pod_uuid: shown,
        labels: { app: "shop" },
        owner_references: [{ name: "web", kind: "StatefulSet", namespace: "shop" }],
      },
    ]);
  });
});

describe("the overview", () => {
  test("has each pod of any range once, at the last minute that has it, however long both are", async () => {
    const second = 1_000;
    const lives = fc.array(fc.tuple(fc.nat(5 * 86_400), fc.oneof(fc.nat(300), fc.nat(90_000))), {
      minLength: 1,
      maxLength: 40,
    });
    const length = fc.oneof(fc.nat(90), fc.nat(20_000), fc.nat(5 * 86_400));
    const law = fc.asyncProperty(lives, fc.nat(5 * 86_400_000), length, async (pods, late, seconds) => {
      const { write, series } = collectSeries({ cluster: "c" });
      const to = base + late;
      const from = to - seconds * second;
      const moments = new Set([to]);
      for (let time = Math.ceil(from / minute) * minute; time <= to; time += minute) moments.add(time);
      const expected: [number, string][] = [];
      for (const [number, [start, age]] of pods.entries()) {
        const pod = `p-${String(number).padStart(2, "0")}`;
        const samples: number[] = [];
        for (let time = base + start * second; time <= base + (start + age) * second; time += minute) {
          samples.push(time);
          write(time, "kube_pod_info", { ...info, pod }, 1);
        }
        const [first = 0, end = 0] = [samples[0], samples.at(-1)];
        // Scraped every minute without a gap: it is seen from its first sample until two minutes after its last.
        const seen = [...moments].filter((time) => time >= first && time < end + 2 * minute);
        if (seen.length > 0) expected.push([Math.max(...seen), pod]);
      }
      const query = { ...ended, from, to, namespaces: [], text: "" };
      const rows = await collect(storeOver(series()).overview(query, never));
      const byTime = expected.sort(([a, p], [b, q]) => a - b || (p < q ? -1 : 1));
      expect(rows.map(({ timestamp, pod_name }) => [timestamp, pod_name])).toEqual(byTime);
    });
    await fc.assert(law, { numRuns: 60 });
  });
});

describe("what is asked", () => {
  interface Asked {
    readonly expression: Expression;
    readonly moments: Moments;
  }
  function watched(series: readonly WrittenSeries[], hidesRestarts = false) {
    const asked: Asked[] = [];
    const inner = evaluateOver(series, "open", hidesRestarts);
    const source: Source = {
      habits: inner.habits,
      query: (expression, moments, fold, signal) => {
        asked.push({ expression, moments });
        return inner.query(expression, moments, fold, signal);
      },
    };
    return { asked, source };
  }
  const selectors = (expression: Expression): Selector[] => {
    switch (expression.kind) {
      case "selector":
        return [expression];
      case "window":
      case "aggregate":
        return selectors(expression.of);
      case "call":
        return expression.arguments.flatMap(selectors);
      case "binary":
        return [...selectors(expression.left), ...selectors(expression.right)];
      case "number":
        return [];
    }
  };

  test("every selector holds every forced label, those of `check` too", async () => {
    const match = { cluster: "model", "odd.label": 'a"b\\' };
    const { source, asked } = watched(expose(model, match));
    const store = createKubernetesStore(source);
    const query = { ...scope, match, snapshots: { ...snapshots, count: 30 } };
    await collect(store.nodes(query, never));
    await collect(store.pods({ ...query, namespaces: ["shop"], nodes: [], pod: "web-0" }, never));
    await collect(store.overview({ ...ended, match, namespaces: [], text: "" }, never));
    await inspectCluster(source, match, base, never);
    const sent = asked.flatMap(({ expression }) => selectors(expression));
    expect(sent.length).toBeGreaterThan(50);
    for (const { matchers } of sent) {
      for (const [label, value] of Object.entries(match)) {
        expect(matchers).toContainEqual({ label, operator: "=", value });
      }
    }
  });

  test.each([false, true])(
    "restarts are asked for where the source shows them (hidden: %s)",
    async (hides) => {
      const { source, asked } = watched(expose(model, scope.match), hides);
      const store = createKubernetesStore(source);
      await collect(store.nodes(scope, never));
      await collect(store.pods({ ...scope, namespaces: [], nodes: [] }, never));
      const sent = asked.filter(({ expression }) => print(expression).includes("resets("));
      expect(sent).toHaveLength(hides ? 0 : 2);
    },
  );

  test("a refusal costs the source one count", async () => {
    const { source, asked } = watched(written(exists));
    const rows = createKubernetesStore(source).pods(
      { ...scope, rowLimit: 0, namespaces: [], nodes: [] },
      never,
    );
    await expect(collect(rows)).rejects.toMatchObject({ slug: "result_too_large" });
    expect(asked).toHaveLength(1);
  });

  test("no request has more moments than a source answers", async () => {
    const { write, series } = collectSeries({ cluster: "c" });
    for (const [pod, minutes] of [
      ["first", -24_000],
      ["second", -12_001],
      ["last", 0],
    ] as const) {
      write(base + minutes * minute, "kube_pod_info", { ...info, pod }, 1);
    }
    const { source, asked } = watched(series());
    const store = createKubernetesStore(source);
    const long = { start: base - 25_000 * minute, step: minute, count: 30_000 };
    const query = { ...scope, snapshots: long };
    const whole = { ...ended, from: long.start, to: long.start + 29_999 * minute };
    const name = ({ timestamp, pod_name: pod }: PodsRow | PodOverviewRow) => [
      (timestamp - base) / minute,
      pod,
    ];
    expect((await collect(store.pods({ ...query, namespaces: [], nodes: [] }, never))).map(name)).toEqual([
      [-24_000, "first"],
      [-23_999, "first"],
      [-12_001, "second"],
      [-12_000, "second"],
      [0, "last"],
      [1, "last"],
    ]);
    expect((await collect(store.overview({ ...whole, namespaces: [], text: "" }, never))).map(name)).toEqual([
      [-23_999, "first"],
      [-12_000, "second"],
      [1, "last"],
    ]);
    for (const { moments } of asked) {
      const count = "at" in moments ? 1 : (moments.end - moments.start) / moments.step + 1;
      expect(count).toBeLessThanOrEqual(11_000);
    }
  });

  test("rows do not depend on where slices are cut", async () => {
    const series = written((write, time, age) => {
      for (let pod = 0; pod < 700; pod += 1) {
        const labels = { namespace: "many", pod: `p-${String(pod).padStart(3, "0")}` };
        write(time, "kube_pod_info", { ...labels, uid: `u-${pod}` }, 1);
        const network = { ...labels, id: "/x", image: "pause", interface: "eth0" };
        write(time, "container_network_receive_bytes_total", network, age * (pod + 1));
      }
    });
    const { source, asked } = watched(series);
    const query = {
      ...scope,
      snapshots: { ...snapshots, start: base - 8 * minute, count: 9 },
      rowLimit: 10_000,
    };
    const rows = await collect(
      createKubernetesStore(source).pods({ ...query, namespaces: [], nodes: [] }, never),
    );
    expect(asked.filter(({ moments }) => "start" in moments).length).toBeGreaterThan(20);
    const wanted = Array.from({ length: 9 }, (_, at) =>
      Array.from({ length: 700 }, (_, pod) => [base + (at - 8) * minute, 60 * (pod + 1)]),
    ).flat();
    expect(rows.map((row) => [row.timestamp, row.network_rx_bytes])).toEqual(wanted);
  });

  test("a failing request ends the others and is the answer's failure", async () => {
    const failure = new Error("down");
    const source = evaluateOver(written(exists), "open");
    let asked = 0;
    let ended = 0;
    const flaky: Source = {
      habits: source.habits,
      query: (expression, moments, fold, signal) => {
        asked += 1;
        if (asked === 1) return source.query(expression, moments, fold, signal);
        if (asked === 5) return Promise.reject(failure);
        return new Promise((_, reject) => {
          signal.addEventListener("abort", () => {
            ended += 1;
            reject(signal.reason);
          });
        });
      },
    };
    const rows = createKubernetesStore(flaky).pods({ ...scope, namespaces: [], nodes: [] }, never);
    await expect(collect(rows)).rejects.toBe(failure);
    expect(ended).toBe(asked - 2);
    expect(asked).toBeLessThan(10);
  });
});

describe("check", () => {
  test("tells which exporters are there and what rows lack", async () => {
    const source = evaluateOver(
      written((write, time) => {
        exists(write, time);
        write(time, "pod_memory_working_set_bytes", key, 1);
      }),
      "open",
    );
    const { found, limitations, problems } = await inspectCluster(source, { cluster: "c" }, base, never);
    expect(found).toEqual(["kube-state-metrics: 1 pods", "kubelet resource metrics: 1 pods"]);
    expect(limitations).toContain("pods: no kube_pod_start_time: pod_uptime_seconds is 0");
    expect(limitations.filter((text) => text.includes("memory_"))).toEqual([
      "pods: memory_rss_bytes is 0: none of container_memory_rss, k8s_pod_memory_rss_bytes",
      "pods: memory_usage_bytes is 0: none of container_memory_usage_bytes, k8s_pod_memory_usage_bytes",
      "pods: memory_page_faults is 0: none of container_memory_failures_total, k8s_pod_memory_page_faults_ratio, k8s_pod_memory_page_faults",
      "pods: memory_major_page_faults is 0: none of container_memory_failures_total, k8s_pod_memory_major_page_faults_ratio, k8s_pod_memory_major_page_faults",
    ]);
    expect(problems).toEqual([
      "no kube_node_info, cAdvisor or node exporter behind the wall: nodes are empty",
    ]);
  });

  test("tells of a kube-state-metrics whose labels were not honored, and of no other", async () => {
    const itself = { namespace: "monitoring", pod: "kube-state-metrics-0" };
    const found = async (labels: (pod: string) => Labels) => {
      const series = written((write, time) => {
        for (const pod of ["a", "b", "c"]) write(time, "kube_pod_info", { ...labels(pod), uid: pod }, 1);
        write(time, "kube_node_info", { node: "n1" }, 1);
      });
      const source = evaluateOver(series, "open");
      return (await inspectCluster(source, { cluster: "c" }, base, never)).problems;
    };
    const moved = (pod: string) => ({ exported_namespace: "shop", exported_pod: pod });
    expect(await found((pod) => ({ ...itself, ...moved(pod) }))).toEqual([
      "kube_pod_info names 3 pods by exported_pod, and 1 by pod: kube-state-metrics has to be scraped with honor_labels",
    ]);
    // Put back by relabelling.
    expect(await found((pod) => ({ ...moved(pod), namespace: "shop", pod }))).toEqual([]);
    expect(await found((pod) => ({ namespace: "shop", pod }))).toEqual([]);
  });

  test("finds nothing to complain of where everything is exported", async () => {
    const source = evaluateOver(expose(model, { cluster: "c" }), "open");
    const report = await inspectCluster(source, { cluster: "c" }, base + 20 * minute, never);
    expect(report).toMatchObject({ limitations: [], problems: [] });
    expect(report.found).toHaveLength(4);
  });
});
