// Subjects of the conformance suites on real clusters. Each writes lines or spans as a shipper does, into indices of its own.
import { buildSpanSource } from "#src/access/sites.ts";
import { printNanos } from "#src/core/time.ts";
import type { Excuse, Subject } from "../../conformance/logs.ts";
import type { CountingSubject } from "../../conformance/span-aggregation.ts";
import { type ModelSpan, type SiteName, toSpan } from "../../conformance/trace-fixture.ts";
import type { LogShipper } from "../../support/elastic/log-shippers.ts";
import type { SpanShipper } from "../../support/elastic/span-shippers/shipper.ts";
import type { Cluster } from "../../support/elastic/test-index.ts";

/** What no server keeps of a line. */
export const unindexable: Excuse = {
  reason:
    "servers refuse empty keys, dots at the ends of keys, mixed types and numbers beyond long and double",
  failure: /a document was refused/,
};

/** Of a layout whose body is the whole document: queries on a field of the line find its name in the body too. */
export const rooted = (name: string): Excuse => ({
  reason: `the body is the whole document, in which ${name} stands for itself`,
  failure: /to deeply equal/,
});

interface LogSubjectOptions extends Pick<Subject, "excuses"> {
  /** Of the layout, as a test's name has it. */
  readonly name: string;
  readonly shipper: LogShipper;
  /** The name by which the server reaches its own indices as those of a remote cluster. */
  readonly remote?: string;
}

export function createLogSubject(
  server: string,
  { name, shipper, excuses, remote }: LogSubjectOptions,
  open: () => Cluster,
): Subject {
  return {
    name: `${server}, ${name}`,
    excuses,
    start: async () => {
      const cluster = open();
      const prefix = `store-${name.replace(/[^a-z0-9]+/g, "-")}`;
      await cluster.remove(`${prefix}-*`);
      const source = (id: string, index = id) => ({
        id,
        index: `${remote === undefined ? "" : `${remote}:`}${prefix}-${index}-*`,
        layout: shipper.layout,
        tenantFilter: undefined,
      });
      let seeds = 0;
      return {
        store: {
          ...cluster.store,
          // Ids include the index, whose name changes with each seed.
          async *lines(query, signal) {
            for await (const batch of cluster.store.lines(query, signal)) {
              yield batch.map((line) => ({ ...line, id: line.id.slice(line.id.indexOf("/") + 1) }));
            }
          },
        },
        sources: { app: source("app"), nginx: source("nginx"), twin: source("twin", "app") },
        async seed(name, lines) {
          await cluster.remove(`${prefix}-${name}-*`);
          const index = shipper.index(`${prefix}-${name}-${seeds++}`);
          await cluster.createIndex(index, shipper.definition);
          const documents = lines.map(({ id, ...line }): [string, string] => [
            id,
            shipper.document({ ...line, time: printNanos(line.time) }),
          ]);
          await cluster.write(index, documents);
        },
        async stop() {
          await cluster.remove(`${prefix}-*`);
          await cluster.close();
        },
      };
    },
  };
}

interface SpanSubjectOptions extends Pick<CountingSubject, "lacks"> {
  readonly shipper: SpanShipper;
  /** What the layout cannot aggregate at the source. */
  readonly reads?: CountingSubject["reads"];
  /** The field of the tenant filter; without one each site has its own indices. */
  readonly service: string | undefined;
}

const services: Readonly<Record<SiteName, readonly string[]>> = {
  shop: ["shop-web", "shop-api", "shop-worker"],
  stock: ["stock"],
  blog: ["blog-web"],
};

/** Where the service is a keyword, all sites share their indices and are separated by tenant filters. */
export function createSpanSubject(
  server: string,
  { shipper, lacks, reads = {}, service }: SpanSubjectOptions,
  open: () => Cluster,
): CountingSubject {
  return {
    name: `${server}, ${shipper.name}`,
    lacks,
    reads,
    start: async () => {
      const cluster = open();
      const own = `spans-${shipper.name.replace(/[^a-z0-9]+/g, "-")}`;
      let round = 0;
      await cluster.remove(`${own}-*`);
      const prefixOf = (site: SiteName) => `${own}-${round}${service === undefined ? `-${site}` : ""}`;
      const source = (site: SiteName) =>
        buildSpanSource(site, {
          index: shipper.pattern(prefixOf(site)),
          layout: "auto",
          where: service && services[site].map((text) => `${service}="${text}"`).join(" OR "),
        });
      return {
        store: cluster.traces,
        get sources() {
          return { shop: source("shop"), stock: source("stock"), blog: source("blog") };
        },
        seed: async (models: readonly ModelSpan[]) => {
          await cluster.remove(`${own}-*`);
          round += 1;
          for (const prefix of new Set((["shop", "stock", "blog"] as const).map(prefixOf))) {
            for (const [index, definition] of Object.entries(shipper.indices(prefix))) {
              await cluster.createIndex(index, definition);
            }
          }
          const documents = models.flatMap((model) => shipper.write(prefixOf(model.site), [toSpan(model)]));
          for (const [index, shipped] of Map.groupBy(documents, ({ index }) => index)) {
            await cluster.write(
              index,
              shipped.map(({ document }) => [undefined, document]),
            );
          }
        },
        stop: async () => {
          await cluster.remove(`${own}-*`);
          await cluster.close();
        },
      };
    },
  };
}
