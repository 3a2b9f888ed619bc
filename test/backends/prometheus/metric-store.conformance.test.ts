// The metric conformance suite on real Prometheus servers. promtool fills each with the raw samples of the suite. All
// requests pass a recorder, which checks that every selector has the forced labels.
import { expect } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { nameSeries, printOpenMetrics, tenants } from "../../conformance/metrics/fixture.ts";
import { metricStoreSuite } from "../../conformance/metrics.ts";
import { readByOriginalNames, renameFamilies } from "../../conformance/renamed-metrics.ts";
import { testIO } from "../../support/io.ts";
import type { ParsedMatcher } from "../../support/prometheus/promql-selectors.ts";
import { openRecorder } from "../../support/prometheus/recording-proxy.ts";
import { namedMetricServers } from "../selected-servers.ts";
import { startFilled } from "./filled-server.ts";

/** The names of the suite, and on one server other names behind a mapping. */
const subjects = namedMetricServers().flatMap((server) => [
  { server, renamed: false },
  ...(server.name === "prom3" ? [{ server, renamed: true }] : []),
]);

for (const { server, renamed } of subjects) {
  metricStoreSuite({
    name: `${server.name} ${server.version}${renamed ? ", through a mapping of names" : ""}`,
    ...(renamed ? { hasMembers: false } : {}),
    async start(originals) {
      const families = renamed ? renameFamilies(originals) : originals;
      const { url, stop } = await startFilled(server, {
        printText: () => printOpenMetrics(families),
        listSeries: () => nameSeries(families),
      });
      const recorder = await openRecorder(url);
      const backend = prometheus.create("prom", prometheus.parseConfig({ url: recorder.url }), testIO);
      const { metrics } = backend.stores;
      if (metrics === undefined) throw new Error("no metric store");
      return {
        store: renamed ? readByOriginalNames(metrics, originals) : metrics,
        match: (tenant) => ({ tenant }),
        async stop() {
          await backend.close();
          await recorder.close();
          await stop();
          expect(recorder.strange).toEqual([]);
          expect(recorder.selectors.length).toBeGreaterThan(10_000);
          const isForced = ({ label, operator, value }: ParsedMatcher) =>
            label === "tenant" && operator === "=" && tenants.some((tenant) => tenant === value);
          const outside = recorder.selectors.filter((matchers) => !matchers.some(isForced));
          expect(outside).toEqual([]);
          // Metadata ignore forced labels, so they may only be read for names that were found under them.
          const held = new Set(families.flatMap(({ metric }) => [metric, metric.replace(/_total$/, "")]));
          expect([...recorder.metadata].filter((metric) => !held.has(metric))).toEqual([]);
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
