// Nodes beyond the model cluster: other exporters, and the names under which they export nodes.
import { describe, expect, test } from "vitest";
import type { NodesRow } from "#src/core/rows.ts";
import { base, minute } from "../../../conformance/kubernetes-fixture.ts";
import type { Labels, Write } from "../../../support/prometheus/kubernetes-exporters.ts";
import {
  collectRows,
  createStoreOver,
  never,
  readNodes,
  scope,
  snapshots,
  writeSeries,
} from "./small-cluster.ts";

describe("nodes", () => {
  const uname = { instance: "10.0.0.7:9100", nodename: "worker-7" };
  const exporter = (write: Write, time: number, age: number, instance = uname.instance): void => {
    for (const [mode, rate] of Object.entries({ user: 0.5, system: 0.25, idle: 7, iowait: 1, steal: 2 })) {
      write(time, "node_cpu_seconds_total", { instance, cpu: "0", mode }, age * rate);
    }
    const figures = {
      node_memory_MemTotal_bytes: 1_000,
      node_memory_MemFree_bytes: 100,
      node_memory_MemAvailable_bytes: 300,
      node_memory_AnonPages_bytes: 450,
      node_vmstat_pgfault: 77,
      node_vmstat_pgmajfault: 7,
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
  const expectedRow = {
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

  test("are the machines with a node exporter if nothing else names nodes", async () => {
    const series = writeSeries((write, time, age) => {
      write(time, "node_uname_info", uname, 1);
      exporter(write, time, age);
    });
    expect(await readNodes(series)).toEqual([{ ...expectedRow, node_name: "worker-7" }]);
  });

  test("have the largest physical disk mounted at the root", async () => {
    const sizes = { "/dev/sda2": 2_500, "/dev/sdb1": 4_999, rootfs: 90_000, overlay: 80_000, tmpfs: 70_000 };
    const series = writeSeries((write, time, age) => {
      write(time, "node_uname_info", uname, 1);
      exporter(write, time, age);
      for (const [device, size] of Object.entries(sizes)) {
        const disk = { instance: uname.instance, device, mountpoint: "/" };
        write(time, "node_filesystem_size_bytes", disk, size);
        write(time, "node_filesystem_avail_bytes", disk, 1);
      }
    });
    expect(await readNodes(series)).toEqual([{ ...expectedRow, node_name: "worker-7" }]);
  });

  test.each<[string, Labels]>([
    ["name", { node: "worker-7", internal_ip: "192.168.0.1" }],
    ["address", { node: "worker-7.internal", internal_ip: "10.0.0.7" }],
  ])("have the node exporter's figures by %s, without machines outside the cluster", async (_, node) => {
    const series = writeSeries((write, time, age) => {
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
    expect(await readNodes(series)).toEqual([{ ...expectedRow, node_name: node.node, phase: 2 }]);
  });

  test("have the node exporter's figures if the instance label equals the node name", async () => {
    const series = writeSeries((write, time, age) => {
      write(time, "kube_node_info", { node: "worker-7.internal", internal_ip: "10.0.0.7" }, 1);
      write(time, "node_uname_info", { instance: "worker-7.internal", nodename: "WORKER-7" }, 1);
      exporter(write, time, age, "worker-7.internal");
    });
    expect(await readNodes(series)).toEqual([{ ...expectedRow, node_name: "worker-7.internal", phase: 0 }]);
  });

  test.each<[string, nodes: readonly string[], machines: readonly string[], joined: boolean]>([
    ["the short name of a full one", ["web-1.example.com"], ["web-1"], true],
    ["the full name of a short one", ["web-1"], ["web-1.example.com"], true],
    ["a name up to a dot", ["web-1.example"], ["web-1.example.com"], true],
    ["a name in capitals", ["web-1.example.com"], ["WEB-1"], true],
    ["a name that begins alike", ["web-1.example.com"], ["web"], false],
    ["a name with another domain", ["web-1.example.com"], ["web-1.example.org"], false],
    ["one that fits two nodes", ["web-1.a.net", "web-1.b.net"], ["web-1"], false],
    ["two machines that fit one node", ["web-1"], ["web-1.a.net", "web-1.b.net"], false],
    ["the beginning of an address", ["10.0.0.7"], ["10"], false],
  ])("have the node exporter's figures by %s, or none", async (_, nodes, machines, isJoined) => {
    const series = writeSeries((write, time, age) => {
      for (const node of nodes) write(time, "kube_node_info", { node }, 1);
      for (const [position, nodename] of machines.entries()) {
        const instance = `192.168.0.${position}:9100`;
        write(time, "node_uname_info", { instance, nodename }, 1);
        exporter(write, time, age, instance);
      }
    });
    const rows = await readNodes(series);
    expect(rows.map(({ node_name }) => node_name)).toEqual(nodes);
    for (const row of rows) expect(row.memory_rss_bytes).toBe(isJoined ? 450 : 0);
    if (isJoined) expect(rows).toEqual([{ ...expectedRow, node_name: nodes[0] }]);
  });

  test("keep their own machine beside one outside of the cluster with a longer name", async () => {
    const series = writeSeries((write, time, age) => {
      write(time, "kube_node_info", { node: "web-1" }, 1);
      write(time, "node_uname_info", { instance: "10.0.0.1:9100", nodename: "web-1" }, 1);
      exporter(write, time, age, "10.0.0.1:9100");
      write(time, "node_uname_info", { instance: "10.0.0.2:9100", nodename: "web-1.office.example" }, 1);
      write(time, "node_memory_AnonPages_bytes", { instance: "10.0.0.2:9100" }, 9_999);
    });
    expect(await readNodes(series)).toEqual([{ ...expectedRow, node_name: "web-1" }]);
  });

  test("are one row if the kubelet, OpenTelemetry and a machine spell the name differently", async () => {
    const series = writeSeries((write, time) => {
      write(time, "kube_node_info", { node: "ip-10-0-0-7.ec2.internal" }, 1);
      write(time, "container_memory_rss", { node: "ip-10-0-0-7", id: "/" }, 5);
      write(time, "k8s_node_memory_usage_bytes", { k8s_node_name: "ip-10-0-0-7" }, 6);
      write(time, "node_memory_working_set_bytes", { node: "ip-10-0-0-7.ec2.internal" }, 7);
      write(time, "node_vmstat_pgfault", { instance: "ip-10-0-0-7:9100" }, 8);
    });
    expect(await readNodes(series)).toMatchObject([
      {
        node_name: "ip-10-0-0-7.ec2.internal",
        memory_rss_bytes: 5,
        memory_usage_bytes: 6,
        memory_working_set_bytes: 7,
        memory_page_faults: 8,
      },
    ]);
  });

  const windowsNames = {
    new: {
      total: "windows_memory_physical_total_bytes",
      free: "windows_memory_physical_free_bytes",
      hostname: "windows_os_hostname",
    },
    old: {
      total: "windows_cs_physical_memory_bytes",
      free: "windows_os_physical_memory_free_bytes",
      hostname: "windows_cs_hostname",
    },
  };
  test.each(["new", "old"] as const)(
    "have the figures of the Windows exporter (%s names)",
    async (version) => {
      const names = windowsNames[version];
      const instance = "10.0.0.8:9182";
      const series = writeSeries((write, time, age) => {
        write(time, "kube_node_info", { node: "win-8" }, 1);
        const ready = { node: "win-8", condition: "Ready", status: "true" };
        write(time, "kube_node_status_condition", ready, 1);
        write(time, names.hostname, { instance, hostname: "WIN-8", domain: "", fqdn: "WIN-8" }, 1);
        for (const core of ["0,0", "0,1"]) {
          const modes = { user: 0.25, privileged: 0.125, interrupt: 0.0625, dpc: 0.0625, idle: 0.625 };
          for (const [mode, rate] of Object.entries(modes)) {
            write(time, "windows_cpu_time_total", { instance, core, mode }, age * rate);
          }
        }
        write(time, names.total, { instance }, 1_000);
        write(time, names.free, { instance }, 100);
        write(time, "windows_memory_available_bytes", { instance }, 300);
        write(time, "windows_memory_page_faults_total", { instance }, 77);
        for (const [volume, factor] of Object.entries({ "C:": 1, "D:": 100, HarddiskVolume1: 1_000 })) {
          write(time, "windows_logical_disk_size_bytes", { instance, volume }, 5_000 * factor);
          write(time, "windows_logical_disk_free_bytes", { instance, volume }, 2_000 * factor);
        }
        const adapters = {
          "Microsoft Hyper-V Network Adapter": 7,
          "vEthernet (Ethernet)": 100,
          "Hyper-V Virtual Ethernet Adapter": 100,
          Hyper_V_Virtual_Ethernet_Adapter__2: 100,
          "isatap.{C0FFEE}": 100,
          "Teredo Tunneling Pseudo-Interface": 100,
        };
        for (const [nic, rate] of Object.entries(adapters)) {
          // The counter restarts 30 s before the snapshot.
          const counted = time >= base - 30_000 ? (time - (base - 30_000)) / 1_000 : age;
          write(time, "windows_net_bytes_received_total", { instance, nic }, counted * rate);
          write(time, "windows_net_bytes_sent_total", { instance, nic }, age * rate * 2);
        }
      });
      expect(await readNodes(series)).toEqual([
        {
          timestamp: base,
          node_name: "win-8",
          // Two cores, each a quarter in user and an eighth in privileged mode.
          cpu_usage_nano_cores: 750_000_000,
          memory_rss_bytes: 0,
          memory_usage_bytes: 900,
          memory_working_set_bytes: 700,
          memory_page_faults: 77,
          memory_major_page_faults: 0,
          fs_used_bytes: 3_000,
          fs_available_bytes: 2_000,
          fs_capacity_bytes: 5_000,
          fs_inodes_free: 0,
          fs_inodes_used: 0,
          fs_inodes: 0,
          network_rx_bytes: 45 * 7,
          network_tx_bytes: 60 * 14,
          phase: 2,
        },
      ]);
    },
  );

  test("have 0 for the disk figures that are not exported", async () => {
    const disk = { node: "worker-7", id: "/", device: "/dev/sda1" };
    const series = writeSeries((write, time) => {
      write(time, "container_fs_limit_bytes", disk, 100);
      write(time, "container_fs_inodes_total", disk, 10);
    });
    expect(await readNodes(series)).toMatchObject([
      {
        fs_used_bytes: 0,
        fs_available_bytes: 0,
        fs_capacity_bytes: 100,
        fs_inodes_free: 0,
        fs_inodes_used: 0,
        fs_inodes: 10,
      },
    ]);
  });

  test("are found by the instance address if cAdvisor has no node label", async () => {
    const series = writeSeries((write, time) => {
      write(time, "kube_node_info", { node: "worker-7", internal_ip: "10.0.0.7" }, 1);
      write(time, "container_memory_rss", { instance: "10.0.0.7:10250", id: "/" }, 1_234);
    });
    expect(await readNodes(series)).toMatchObject([{ node_name: "worker-7", memory_rss_bytes: 1_234 }]);
  });

  const names = ["k8s_node_cpu_usage", "k8s_node_cpu_utilization_ratio", "k8s_node_cpu_utilization"];
  test.each(names)("have the figures of OpenTelemetry's kubelet stats (%s)", async (cpu) => {
    const node = { k8s_node_name: "n1" };
    const series = writeSeries((write, time, age) => {
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
    ["windows_cpu_time_total", { node: "n1", core: "0,0", mode: "user" }, "cpu_usage_nano_cores"],
    ["windows_memory_page_faults_total", { instance: "n1:9182" }, "memory_page_faults"],
    ["k8s_node_memory_rss_bytes", { k8s_node_name: "n1" }, "memory_rss_bytes"],
    // Of unit 1, named with and without units.
    ["k8s_node_memory_page_faults_ratio", { k8s_node_name: "n1" }, "memory_page_faults"],
    ["k8s_node_memory_page_faults", { k8s_node_name: "n1" }, "memory_page_faults"],
    ["k8s_node_memory_major_page_faults_ratio", { k8s_node_name: "n1" }, "memory_major_page_faults"],
  ])("are listed if %s is their only metric", async (metric, labels, figure) => {
    const [row, ...others] = await readNodes(
      writeSeries((write, time, age) => write(time, metric, labels, age)),
    );
    expect(others).toEqual([]);
    expect(row?.node_name).toBe("n1");
    expect(row?.[figure]).toBe(figure === "cpu_usage_nano_cores" ? 1e9 : 600);
  });

  test("over the limit are refused before the first row, across exporters", async () => {
    // Half of the nodes are known to one exporter, half to another: no single count is over the limit.
    const series = writeSeries((write, time) => {
      for (let number = 0; number < 6; number += 1) {
        if (number < 3) write(time, "kube_node_info", { node: `a${number}` }, 1);
        else write(time, "container_memory_rss", { node: `b${number}`, id: "/" }, 1);
      }
    });
    const query = { ...scope, snapshots: { ...snapshots, start: base - 5 * minute, count: 6 } };
    expect(await collectRows(createStoreOver(series).nodes({ ...query, rowLimit: 36 }, never))).toHaveLength(
      36,
    );
    const rows = createStoreOver(series)
      .nodes({ ...query, rowLimit: 35 }, never)
      [Symbol.asyncIterator]();
    await expect(rows.next()).rejects.toMatchObject({ slug: "result_too_large" });
  });

  // Each interface carries ten times as much as the one before. The first ones are the node's network.
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
  ])("count each network byte once with %s", async (_, network, others) => {
    const all = [...network, ...others.split(" ")];
    const expected = network.reduce((sum, __, position) => sum + 60 * 10 ** position, 0);
    for (const [metric, label, own] of [
      ["container_network_receive_bytes_total", "interface", { node: "n1", id: "/" }],
      ["node_network_receive_bytes_total", "device", { instance: "n1:9100" }],
    ] as const) {
      const series = writeSeries((write, time, age) => {
        write(time, "kube_node_info", { node: "n1", internal_ip: "n1" }, 1);
        for (const [position, name] of all.entries()) {
          write(time, metric, { ...own, [label]: name }, age * 10 ** position);
        }
      });
      expect((await readNodes(series)).map((row) => row.network_rx_bytes)).toEqual([expected]);
    }
  });

  test("have the newest name of a renamed machine", async () => {
    const series = writeSeries((write, time, age) => {
      write(time, "node_uname_info", { ...uname, nodename: time < base - 30_000 ? "zulu" : "alpha" }, 1);
      exporter(write, time, age);
    });
    expect((await readNodes(series)).map(({ node_name }) => node_name)).toEqual(["alpha"]);
  });

  test("get the figures of an address that they took over from another node", async () => {
    const series = writeSeries((write, time) => {
      // `alpha` also had the address long before, so that its series is the first.
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
