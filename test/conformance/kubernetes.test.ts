import { createMemoryKubernetes } from "#resolvers/memory/stores/kubernetes-store.ts";
import { createKubernetesStore } from "#resolvers/prometheus/kubernetes/kubernetes-store.ts";
import type { ForcedLabels } from "#src/store/metrics.ts";
import { expose, scrape } from "../support/prometheus/kubernetes-exporters.ts";
import { createEvaluator } from "../support/prometheus/promql-evaluator.ts";
import { kubernetesStoreSuite } from "./kubernetes.ts";
import { model, neighbour, seeded } from "./kubernetes-fixture.ts";
import { observed, observeModel } from "./observed-cluster.ts";

const labels = { model: { cluster: "model" }, neighbour: { cluster: "neighbour" } } as const;

kubernetesStoreSuite({
  name: "memory",
  scrape: observed,
  start: async () => ({
    labels,
    store: createMemoryKubernetes((match: ForcedLabels, time) => {
      const cluster = { model, neighbour }[match.cluster ?? ""];
      return cluster === undefined || time > seeded.to ? undefined : observeModel(cluster, time);
    }),
    stop: async () => {},
  }),
});

for (const hidesRestarts of [false, true]) {
  kubernetesStoreSuite({
    name: `${hidesRestarts ? "Thanos" : "Prometheus"}, evaluated here`,
    scrape,
    start: async () => {
      const series = [...expose(model, labels.model), ...expose(neighbour, labels.neighbour)];
      const source = createEvaluator(series, "open", hidesRestarts);
      return { labels, store: createKubernetesStore("prom", source), stop: async () => {} };
    },
  });
}
