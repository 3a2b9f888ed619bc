import { describe, expect, test } from "vitest";
import { clusterMatch, observeCluster } from "#resolvers/memory/demo/cluster.ts";
import { generateLines } from "#resolvers/memory/demo/logs.ts";
import type { Observation } from "#resolvers/memory/stores/kubernetes-store.ts";
import { fromMillis } from "#src/core/time.ts";

const base = Date.UTC(2026, 0, 15, 10);
const minute = 60_000;
function observe(time: number, seed = 1): Observation {
  const observed = observeCluster(seed, clusterMatch, time);
  if (observed === undefined) throw new Error("hidden");
  return observed;
}
/** Two days, every ten minutes and 17 seconds, so that what comes and goes is met at all of its ages. */
const moments = Array.from({ length: 288 }, (_, index) => base + index * (10 * minute + 17_000));
const observations = moments.map((time) => observe(time));

describe("the generated cluster", () => {
  test("is the same for the same seed, and another for another", () => {
    expect(observe(base)).toEqual(observe(base));
    expect(observe(base, 2).pods.map(({ pod_uuid }) => pod_uuid)).not.toEqual(
      observe(base).pods.map(({ pod_uuid }) => pod_uuid),
    );
  });

  test("is found by its forced labels only", () => {
    expect(observeCluster(1, {}, base)).toBeDefined();
    for (const match of [{ cluster: "other" }, { cluster: "" }, { ...clusterMatch, site: "demo-shop" }]) {
      expect(observeCluster(1, match, base)).toBeUndefined();
    }
  });

  test("has every pod that a log line names", () => {
    const range = { from: fromMillis(base), to: fromMillis(base + 20 * minute) };
    const names = new Set(observe(base).pods.map(({ pod_name }) => pod_name));
    const named = ["shop", "blog"].flatMap((site) =>
      generateLines(1, `demo-${site}-app`, range).map(
        ({ json }): unknown => JSON.parse(json)["k8s.pod.name"],
      ),
    );
    expect(named.length).toBeGreaterThan(500);
    expect(named.filter((name) => typeof name !== "string" || !names.has(name))).toEqual([]);
  });

  test("has one pod of a name and of a uid, on a node that is there", () => {
    for (const { nodes, pods } of observations) {
      const known = new Set(["", ...nodes.map(({ node_name }) => node_name)]);
      expect(new Set(pods.map(({ pod_name, pod_namespace }) => `${pod_namespace}/${pod_name}`)).size).toBe(
        pods.length,
      );
      expect(new Set(pods.map(({ pod_uuid }) => pod_uuid)).size).toBe(pods.length);
      expect(pods.filter(({ node_name }) => !known.has(node_name))).toEqual([]);
    }
  });

  test("has a pod that failed at any moment", () => {
    const without = moments.filter((_, at) =>
      observations[at]?.pods.every(({ phase }) => phase !== "Failed"),
    );
    expect(without).toEqual([]);
  });

  test("shows pods in every way of being well or not", () => {
    const pods = observations.flatMap((observation) => observation.pods);
    const shown = new Set(
      pods.flatMap(({ phase, node_name, containers }) => [
        `${phase} ${node_name === "" ? "nowhere" : "placed"}`,
        ...containers.map(({ status, reason, exit_code }) => `${status} ${reason} ${exit_code}`),
      ]),
    );
    expect([...shown].sort()).toEqual([
      "Failed placed",
      "Pending nowhere",
      "Running  0",
      "Running placed",
      "Succeeded placed",
      "Terminated Completed 0",
      "Terminated Error 1",
      "Waiting CrashLoopBackOff 137",
    ]);
    const kinds = new Set(pods.flatMap(({ owner_references: owners }) => owners.map(({ kind }) => kind)));
    expect(kinds).toEqual(new Set(["StatefulSet", "ReplicaSet", "DaemonSet", "Job"]));
    const holders = pods.filter(({ pod_name }) => pod_name === "shop-web-3").map(({ pod_uuid }) => pod_uuid);
    expect(new Set(holders).size).toBeGreaterThan(5);
  });

  test("counts upwards: what is cumulative falls only with its pod's end, restarts never", () => {
    const last = new Map<string, Observation["pods"][number]>();
    for (const pod of observations.flatMap(({ pods }) => pods)) {
      const before = last.get(pod.pod_uuid);
      last.set(pod.pod_uuid, pod);
      if (before === undefined || pod.phase === "Succeeded" || pod.phase === "Failed") continue;
      for (const counter of [
        "cpu_usage_core_nano_seconds",
        "memory_page_faults",
        "network_rx_bytes",
        "network_tx_bytes",
        "pod_restart_count",
        "pod_uptime_seconds",
      ] as const) {
        expect(pod[counter]).toBeGreaterThanOrEqual(before[counter]);
      }
    }
    expect(last.size).toBeGreaterThan(100);
  });
});
