// Pods beyond the model cluster: other exporters than kube-state-metrics and cAdvisor with all of its levels, and
// exporters that contradict each other.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { findNewest } from "#resolvers/prometheus/kubernetes/snapshot-series.ts";
import { base, minute } from "../../../conformance/kubernetes-fixture.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import { collectSeries, type Labels, type Write } from "../../../support/prometheus/kubernetes-exporters.ts";
import {
  cgroup,
  collectRows,
  createStoreOver,
  ended,
  info,
  key,
  never,
  other,
  readNodes,
  readOverview,
  readPods,
  uid,
  writePodInfo,
  writeSeries,
} from "./small-cluster.ts";

describe("pod figures", () => {
  test("are 0 with kube-state-metrics only", async () => {
    expect(await readPods(writeSeries(writePodInfo))).toEqual([
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

  test("are found by name and node if kube-state-metrics has no uids", async () => {
    const series = writeSeries((write, time) => {
      const { uid: _, ...dropped } = info;
      write(time, "kube_pod_info", dropped, 1);
      write(time, "container_memory_rss", { ...key, node: "n1", id: cgroup }, 40);
      write(time, "container_memory_rss", { ...key, node: "n2", id: `/kubepods/pod${other}` }, 9_000);
      write(time, "container_memory_working_set_bytes", { ...key, id: cgroup }, 50);
    });
    const row = { memory_rss_bytes: 40, memory_working_set_bytes: 50 };
    expect(await readPods(series)).toMatchObject([row]);
  });

  test("of a static pod are found under its hash, in cgroup paths and OpenTelemetry labels", async () => {
    const hash = "0123456789abcdef0123456789abcdef";
    const named = { k8s_namespace_name: "shop", k8s_pod_name: "web-0", k8s_pod_uid: hash };
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
      write(time, "container_memory_rss", { ...key, node: "n1", id: `/kubepods/burstable/pod${hash}` }, 40);
      write(time, "k8s_pod_memory_working_set_bytes", named, 50);
    });
    const row = { memory_rss_bytes: 40, memory_working_set_bytes: 50 };
    expect(await readPods(series)).toMatchObject([row]);
  });

  test("include rates of series with type and unit labels", async () => {
    const series = writeSeries((write, time, age) => {
      writePodInfo(write, time);
      const typed = { __type__: "counter", __unit__: "seconds", node: "n1", cpu: "total" };
      const cpu = "container_cpu_usage_seconds_total";
      write(time, cpu, { ...key, ...typed, id: cgroup }, age / 4);
      write(time, cpu, { ...typed, id: "/" }, age / 2);
    });
    expect(await readPods(series)).toMatchObject([{ cpu_usage_nano_cores: 0.25e9 }]);
    expect(await readNodes(series)).toMatchObject([{ cpu_usage_nano_cores: 0.5e9 }]);
  });

  test("sum up containers if the pod cgroup is missing, each by its newest cgroup", async () => {
    const series = writeSeries((write, time, age) => {
      writePodInfo(write, time);
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
      // The sandbox does not count as a container.
      write(time, "container_memory_rss", { ...key, container: "POD", id: `${cgroup}/s`, image: "pause" }, 5);
      write(time, "container_memory_rss", { ...key, id: `${cgroup}/t`, image: "pause" }, 7);
      // An earlier pod of the same name.
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

  test("are not counted twice if kubelet and cAdvisor both export them", async () => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
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

  test("come from the kubelet's resource metrics without cAdvisor", async () => {
    const series = writeSeries((write, time, age) => {
      writePodInfo(write, time);
      write(time, "pod_cpu_usage_seconds_total", { ...key, node: "n1" }, age / 8);
      write(time, "pod_memory_working_set_bytes", { ...key, node: "n1" }, 4_321);
      // A pod of the same name on another node.
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
      const series = writeSeries((write, time, age) => {
        writePodInfo(write, time);
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
        // Of unit 1: the collector and the OTLP receiver of Prometheus call such a gauge a ratio.
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
      expect(await readPods(series, { pods: ["web-0"], namespaces: ["shop"] })).toEqual([row]);
    },
  );

  test.each<[spelling: string, labels: Labels]>([
    ["its own", { pod_name: "web-0", pod_namespace: "shop", pod: "exporter-x", namespace: "monitoring" }],
    ["the usual", key],
  ])("of ephemeral storage are read in %s spelling", async (_, labels) => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
      write(time, "kube_pod_info", { ...info, pod: "exporter-x", namespace: "monitoring", uid: other }, 1);
      write(time, "ephemeral_storage_pod_usage", labels, 555);
    });
    const rows = await readPods(series);
    expect(rows.map((row) => [row.pod_name, row.ephemeral_storage_used_bytes])).toEqual([
      ["exporter-x", 0],
      ["web-0", 555],
    ]);
  });

  test.each<[string, metric: string, labels: Labels]>([
    ["cAdvisor", "container_fs_limit_bytes", { node: "n1", id: "/", device: "/dev/sda1" }],
    [
      "cAdvisor, by the address",
      "container_fs_limit_bytes",
      { instance: "10.0.0.1:10250", id: "/", device: "a" },
    ],
    // kube-prometheus-stack drops cAdvisor's series of the node by default.
    [
      "the node exporter, by the address",
      "node_filesystem_size_bytes",
      { instance: "10.0.0.1:9100", mountpoint: "/" },
    ],
    [
      "the node exporter, by its name",
      "node_filesystem_size_bytes",
      { instance: "192.168.0.1:9100", mountpoint: "/" },
    ],
    [
      "the Windows exporter",
      "windows_logical_disk_size_bytes",
      { instance: "192.168.0.1:9182", volume: "C:" },
    ],
    ["OpenTelemetry", "k8s_node_filesystem_capacity_bytes", { k8s_node_name: "n1" }],
    ["OpenTelemetry, with dots", "k8s.node.filesystem.capacity", { "k8s.node.name": "n1" }],
  ])("have the disk capacity of their node's row from %s", async (_, metric, labels) => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
      write(time, "kube_node_info", { node: "n1", internal_ip: "10.0.0.1" }, 1);
      write(time, "node_uname_info", { instance: "192.168.0.1:9100", nodename: "n1" }, 1);
      write(time, "windows_os_hostname", { instance: "192.168.0.1:9182", hostname: "N1" }, 1);
      write(time, metric, labels, 5_000);
      write(
        time,
        metric,
        { ...labels, device: "/dev/sdb", mountpoint: "/data", volume: "D:", id: "/x" },
        90_000,
      );
      write(time, "container_memory_rss", { ...key, id: cgroup }, 1);
    });
    const other = metric.startsWith("k8s") ? 90_000 : 5_000;
    expect((await readPods(series)).map((row) => row.ephemeral_storage_capacity_bytes)).toEqual([other]);
    expect((await readNodes(series)).map((row) => row.fs_capacity_bytes)).toEqual([other]);
  });

  test("are found by the node's short name if no label has a uid", async () => {
    const node = "n1.example.com";
    const series = writeSeries((write, time) => {
      write(time, "kube_pod_info", { ...info, node }, 1);
      write(time, "kube_node_info", { node }, 1);
      write(time, "container_memory_rss", { ...key, node: "n1", id: "/pod" }, 5);
      write(time, "container_memory_rss", { ...key, node: "n2", id: "/pod" }, 50);
      write(time, "container_fs_limit_bytes", { node: "n1", id: "/", device: "a" }, 70);
    });
    expect(await readPods(series)).toMatchObject([
      { memory_rss_bytes: 5, ephemeral_storage_capacity_bytes: 70 },
    ]);
  });

  test("are never negative, infinite or NaN", async () => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
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
  ])("is the growth between the last two scrapes: %s", async (_, scrapes, shown) => {
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
      writePodInfo(write, base);
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

describe("conflicting exporters", () => {
  test("shows the later pod phase and the worse container status if replicas differ", async () => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
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

  test.each(["n1", ""])(
    "assigns a pod to a node if one of its series has the node (first series %j)",
    async (first) => {
      const series = writeSeries((write, time) => {
        for (const node of first === "" ? ["", "n1"] : ["n1", ""]) {
          write(time, "kube_pod_info", { ...info, pod_ip: `ip of ${node}`, node }, 1);
        }
      });
      expect((await readPods(series)).map(({ node_name }) => node_name)).toEqual(["n1"]);
    },
  );

  // A series that a scrape does not have any more is marked as ended. A failed scrape ends all series.
  test("keeps the last known state while a failed scrape ends all series", async () => {
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
        // The last reason is the second one, which was also exported before the others.
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

  // As the status of a pod that the kubelet evicts.
  test.each([
    ["shows none at once after eviction", false, [], 0],
    ["keeps its containers while a scrape fails", true, [{ name: "app", status: "Running" }], 3],
  ])("a pod without containers %s", async (_, fails, containers, restarts) => {
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
    ["continues", [10, none], [none, 20]],
    ["began last, if a scrape failed", [10, none], [none, none]],
    ["began before, if a scrape failed", [none, none], [10, none]],
  ])("findNewest picks the series that %s", (_, zulu, alpha) => {
    const track = (name: string, values: readonly number[]) => ({
      labels: { name },
      values: Float64Array.from(values),
    });
    const alphaValues = Number.isNaN(alpha[0] ?? none) ? [none, 1] : [1, 1];
    const tracks = [track("zulu", [1, 1]), track("alpha", alphaValues)];
    const taken = [track("zulu", zulu), track("alpha", alpha)];
    for (const each of [tracks, tracks.toReversed()]) {
      expect(findNewest(each, taken, 1)?.labels).toEqual({ name: "alpha" });
    }
  });

  test("shows exit code 0 for all containers of a succeeded pod", async () => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
      write(time, "kube_pod_status_phase", { ...key, uid, phase: "Succeeded" }, 1);
      write(time, "kube_pod_container_status_terminated", { ...key, uid, container: "app" }, 1);
    });
    const [row] = await readPods(series);
    expect(row?.containers).toEqual([{ name: "app", status: "Terminated", exit_code: 0, reason: "" }]);
  });

  test("shows a container without status as Unknown", async () => {
    const series = writeSeries((write, time) => {
      writePodInfo(write, time);
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
  ])(
    "shows a container terminated with %s, last exit code %s, with exit code %s",
    async (reason, last, code) => {
      const container = { ...key, uid, container: "app" };
      const series = writeSeries((write, time) => {
        writePodInfo(write, time);
        write(time, "kube_pod_container_status_terminated", container, 1);
        write(time, "kube_pod_container_status_terminated_reason", { ...container, reason }, 1);
        if (last !== undefined)
          write(time, "kube_pod_container_status_last_terminated_exitcode", container, last);
      });
      const [row] = await readPods(series);
      expect(row?.containers).toEqual([{ name: "app", status: "Terminated", exit_code: code, reason }]);
    },
  );

  test("drops owners without kind or name, also written as <none>", async () => {
    const owners = [
      ["ReplicaSet", "web"],
      ["<none>", "<none>"],
      ["Job", "<none>"],
      ["<none>", "web"],
      ["", "web"],
      ["DaemonSet", ""],
      ["Node", "n1"],
    ] as const;
    const series = writeSeries((write, time) => {
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

  test("picks the pod with the later start if creation times are missing", async () => {
    const series = writeSeries((write, time) => {
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

describe("a kube-state-metrics without uids", () => {
  const { uid: _, ...unnamed } = info;
  const bare: Labels = { namespace: "shop", pod: "web-0" };
  const container: Labels = { ...bare, container: "app" };
  /** Version 1 has uids in `kube_pod_info` only. */
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

  test.each<[uids: string, first: Labels, second: Labels, shown: string]>([
    ["in one family", { ...info, uid: other }, { ...info, uid }, uid],
    ["in none", unnamed, unnamed, ""],
  ])("still gives complete pods (uid %s)", async (_, first, second, shown) => {
    const series = writeSeries((write, time) => {
      const old = time < base - 30_000;
      write(time, "kube_pod_info", old ? { ...first, node: "n0" } : { ...second, node: "n1" }, 1);
      // The host network of an earlier pod of the name does not make this one a host network pod.
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

describe("the pod overview", () => {
  test("lists each pod once, at the last minute in range that has it", async () => {
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
      const rows = await collectRows(createStoreOver(series()).overview(query, never));
      const byTime = expected.sort(([a, p], [b, q]) => a - b || (p < q ? -1 : 1));
      expect(rows.map(({ timestamp, pod_name }) => [timestamp, pod_name])).toEqual(byTime);
    });
    await fc.assert(law, { numRuns: sampleRuns(60) });
  });
});
