// Spans split by document over two servers of different products, in Jaeger's layout, which is written to both.
import { describe } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { createFederatedSpans } from "#src/federation/federated-spans.ts";
import type { SpanSource } from "#src/store/spans.ts";
import { spanStoreSuite } from "../../conformance/spans.ts";
import { type SiteName, toSpan } from "../../conformance/trace-fixture.ts";
import { jaeger } from "../../support/elastic/span-shippers/jaeger.ts";
import { openCluster } from "../../support/elastic/test-index.ts";
import { named } from "../selected-servers.ts";

const [one, two] = ["es7", "os3"].flatMap((name) => named().find((server) => server.name === name) ?? []);
const own = "spans-federated";
const siteNames: readonly SiteName[] = ["shop", "stock", "blog"];

describe.runIf(one !== undefined && two !== undefined)("es7 and os3", () => {
  if (one === undefined || two === undefined) return;
  spanStoreSuite(
    {
      name: "es7 and os3 read as one",
      lacks: {
        count: "only Elastic APM compresses spans",
        nanoseconds: "times are microseconds",
        linkAttributes: "references are two ids",
        linkState: "references are two ids",
      },
      start: async () => {
        const clusters = [openCluster(one.url), openCluster(two.url)];
        for (const cluster of clusters) await cluster.remove(`${own}-*`);
        let round = 0;
        const prefixOf = (site: SiteName) => `${own}-${round}-${site}`;
        const source = (site: SiteName): SpanSource =>
          buildSpanSource(site, { index: jaeger.pattern(`${own}-*-${site}`), layout: "auto" });
        const sources = { shop: source("shop"), stock: source("stock"), blog: source("blog") };
        const places = siteNames.map((site) => {
          const all = clusters.map(({ traces }, at) => ({
            backend: String(at),
            store: traces,
            source: sources[site],
          }));
          return [sources[site], all] as const;
        });
        return {
          store: createFederatedSpans({ listPlaces: (source) => new Map(places).get(source) ?? [] }),
          sources,
          seed: async (models) => {
            round += 1;
            for (const [at, cluster] of clusters.entries()) {
              await cluster.remove(`${own}-*`);
              for (const site of siteNames) {
                for (const [index, definition] of Object.entries(jaeger.indices(prefixOf(site))))
                  await cluster.createIndex(index, definition);
              }
              const held = models.filter((_, n) => n % 2 === at);
              const documents = held.flatMap((model) => jaeger.write(prefixOf(model.site), [toSpan(model)]));
              for (const [index, shipped] of Map.groupBy(documents, ({ index }) => index))
                await cluster.write(
                  index,
                  shipped.map(({ document }) => [undefined, document]),
                );
            }
          },
          stop: async () => {
            for (const cluster of clusters) {
              await cluster.remove(`${own}-*`);
              await cluster.close();
            }
          },
        };
      },
    },
    1,
  );
});
