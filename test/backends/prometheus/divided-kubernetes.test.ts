// A Kubernetes cluster whose exporters are scraped by two servers: pods and their usage have to be in one of them.
import { expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { PodsRow } from "#src/core/rows.ts";
import { createFederatedKubernetes } from "#src/federation/federated-kubernetes.ts";
import type { PodAtTime } from "#src/store/kubernetes.ts";
import { base, minute, model } from "../../conformance/kubernetes-fixture.ts";
import { testIO } from "../../support/io.ts";
import { expose } from "../../support/prometheus/kubernetes-exporters.ts";
import { printOpenMetrics } from "../../support/prometheus/openmetrics.ts";
import { namedMetricServers } from "../selected-servers.ts";
import { startFilled } from "./filled-server.ts";

const match = { cluster: "model" };
const { signal } = new AbortController();
const query = {
  match,
  namespaces: [],
  nodes: [],
  rowLimit: 10_000,
  snapshots: { start: base, step: 5 * minute, count: 5 },
};
const all = expose(model, match);
type Series = (typeof all)[number];
const isState = ({ labels }: Series): boolean => labels.__name__?.startsWith("kube_") === true;

async function open(server: ReturnType<typeof namedMetricServers>[number], series: readonly Series[]) {
  const filled = await startFilled(server, {
    printText: () => printOpenMetrics(series),
    listSeries: () => series,
  });
  const backend = prometheus.create("prom", prometheus.parseConfig({ url: filled.url }), testIO);
  const { kubernetes } = backend.stores;
  if (kubernetes === undefined) throw new Error("no Kubernetes store");
  const stop = async () => {
    await backend.close();
    await filled.stop();
  };
  return { store: kubernetes, stop };
}

for (const server of namedMetricServers()) {
  test(`${server.name}: usage without its pods is told, and refused beside a server that has them`, async () => {
    const [state, usage, whole] = await Promise.all([
      open(server, all.filter(isState)),
      open(
        server,
        all.filter((series) => !isState(series)),
      ),
      open(server, all),
    ]);
    const listed = await usage.store.listOrphanedUsage?.(query, signal);
    const rows: PodsRow[] = [];
    for await (const batch of whole.store.pods(query, signal)) rows.push(...batch);
    const used = rows.filter(({ memory_working_set_bytes }) => memory_working_set_bytes > 0);
    const nameOf = ({ timestamp, pod_namespace, pod_name }: PodAtTime) =>
      `${timestamp} ${pod_namespace}/${pod_name}`;
    const found = new Set(listed?.map(nameOf));
    expect(used.length).toBeGreaterThan(0);
    expect(used.map(nameOf).filter((name) => !found.has(name))).toEqual([]);
    expect(await state.store.listOrphanedUsage?.(query, signal)).toEqual([]);
    const places = [state, usage].map(({ store }, at) => ({ backend: `b${at}`, store, match }));
    const read = async () => {
      for await (const _ of createFederatedKubernetes(places).pods(query, signal));
    };
    await expect(read()).rejects.toMatchObject({ slug: "not_supported_by_backend" });
    await Promise.all([state.stop(), usage.stop(), whole.stop()]);
  });
}
