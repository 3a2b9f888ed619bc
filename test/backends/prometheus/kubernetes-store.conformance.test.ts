// The Kubernetes conformance suite on real Prometheus servers. promtool fills each with the exporters' series of two
// clusters whose pods and nodes have the same names.
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { kubernetesStoreSuite } from "../../conformance/kubernetes.ts";
import { model, neighbour } from "../../conformance/kubernetes-fixture.ts";
import { testIO } from "../../support/io.ts";
import { expose, scrape } from "../../support/prometheus/kubernetes-exporters.ts";
import { printOpenMetrics } from "../../support/prometheus/openmetrics.ts";
import { namedMetricServers } from "../selected-servers.ts";
import { startFilled } from "./filled-server.ts";

const labels = { model: { cluster: "model" }, neighbour: { cluster: "neighbour" } } as const;

for (const server of namedMetricServers()) {
  kubernetesStoreSuite({
    name: `${server.name} ${server.version}`,
    scrape,
    start: async () => {
      const series = [...expose(model, labels.model), ...expose(neighbour, labels.neighbour)];
      const { url, stop } = await startFilled(server, {
        printText: () => printOpenMetrics(series),
        listSeries: () => series,
      });
      const backend = prometheus.create("prom", prometheus.parseConfig({ url }), testIO);
      const { kubernetes } = backend.stores;
      if (kubernetes === undefined) throw new Error("no Kubernetes store");
      return {
        store: kubernetes,
        labels,
        stop: async () => {
          await backend.close();
          await stop();
        },
      };
    },
  });
}
