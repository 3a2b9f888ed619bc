// One pod on one node as exporters write it: the fixture of the Kubernetes tests that do not use the model cluster.
import { createKubernetesStore } from "#resolvers/prometheus/kubernetes/kubernetes-store.ts";
import type { NodesRow, PodOverviewRow, PodsRow } from "#src/core/rows.ts";
import type { OverviewFilter, PodFilter } from "#src/store/kubernetes.ts";
import { base, minute } from "../../../conformance/kubernetes-fixture.ts";
import {
  collectSeries,
  type Labels,
  type Write,
  type WrittenSeries,
} from "../../../support/prometheus/kubernetes-exporters.ts";
import { createEvaluator } from "../../../support/prometheus/promql-evaluator.ts";

export const never = new AbortController().signal;
export const uid = "12345678-1234-4234-8234-123456789abc";
export const other = "99999999-1234-4234-8234-123456789abc";
export const key = { namespace: "shop", pod: "web-0" };
export const cgroup = `/kubepods/burstable/pod${uid}`;

/** Samples every 15 s, from ten minutes before `base` until one minute after it. */
export function writeSeries(each: (write: Write, time: number, age: number) => void): WrittenSeries[] {
  const { write, series } = collectSeries({ cluster: "c" });
  for (let time = base - 10 * minute; time <= base + minute; time += 15_000) {
    each(write, time, (time - base) / 1_000 + 600);
  }
  return series();
}
export const info: Labels = { ...key, uid, node: "n1", host_network: "false" };
/** The pod that other series are about. */
export const writePodInfo = (write: Write, time: number): void => write(time, "kube_pod_info", info, 1);

export const snapshots = { start: base, step: minute, count: 1 };
export const scope = { match: { cluster: "c" }, snapshots, rowLimit: 1_000 };
export const ended = { match: scope.match, from: base, to: base, rowLimit: 1_000 };
export async function collectRows<Row>(batches: AsyncIterable<readonly Row[]>): Promise<Row[]> {
  return (await Array.fromAsync(batches)).flat();
}
export const createStoreOver = (series: readonly WrittenSeries[]) =>
  createKubernetesStore("prom", createEvaluator(series, "open"));
export const readPods = (
  series: readonly WrittenSeries[],
  over: Partial<PodFilter> = {},
): Promise<PodsRow[]> =>
  collectRows(createStoreOver(series).pods({ ...scope, namespaces: [], nodes: [], ...over }, never));
export const readNodes = (series: readonly WrittenSeries[]): Promise<NodesRow[]> =>
  collectRows(createStoreOver(series).nodes(scope, never));
export const readOverview = (
  series: readonly WrittenSeries[],
  over: Partial<OverviewFilter> = {},
): Promise<PodOverviewRow[]> =>
  collectRows(createStoreOver(series).overview({ ...ended, namespaces: [], text: "", ...over }, never));
