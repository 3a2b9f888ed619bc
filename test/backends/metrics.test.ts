// The metric store on real Prometheus servers, each filled by promtool with the raw samples of the suite.
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { printOpenMetrics } from "../conformance/metrics/raw.ts";
import { metricStoreSuite } from "../conformance/metrics.ts";
import { startPrometheus } from "../servers/prometheus.ts";
import { testIO } from "../support/cluster.ts";
import { namedPrometheus } from "./named.ts";

for (const server of namedPrometheus()) {
  metricStoreSuite({
    name: `${server.name} ${server.version}`,
    async start(families) {
      const { url, stop } = await startPrometheus(server.name, printOpenMetrics(families));
      const backend = prometheus.create("prom", prometheus.parseConfig({ url }), testIO);
      const { metrics } = backend.stores;
      if (metrics === undefined) throw new Error("no metric store");
      return {
        store: metrics,
        match: (tenant) => ({ tenant }),
        async stop() {
          await backend.close();
          await stop();
        },
      };
    },
    ...(server.name === "prom2" && {
      excuses: {
        "quoted names": {
          reason: "Prometheus 2 has no syntax for such names",
          slug: "not_supported_by_backend",
        },
      },
    }),
  });
}
