// Log lines split by document over two servers of different products: the conformance suite of a log store, and every paging
// history as one server answers it that holds all.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { printNanos } from "#src/core/time.ts";
import { createFederatedLogs } from "#src/federation/federated-logs.ts";
import type { LogSource, LogStore } from "#src/store/logs.ts";
import { logStoreSuite } from "../../conformance/logs.ts";
import { createContext, readPages } from "../../federation/paging.ts";
import { base } from "../../federation/split-logs.ts";
import { buildTemplate, printDocument } from "../../support/elastic/filebeat.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { named } from "../selected-servers.ts";
import { rooted, unindexable } from "./store-subjects.ts";

const [one, two] = ["es7", "os3"].flatMap((name) => named().find((server) => server.name === name) ?? []);

/** Ids without the index, whose name differs between the servers and changes with each seed. */
function shortenIds(store: LogStore): LogStore {
  return {
    ...store,
    async *lines(query, signal) {
      for await (const batch of store.lines(query, signal)) {
        yield batch.map((line) => ({ ...line, id: line.id.slice(line.id.indexOf("/") + 1) }));
      }
    },
  };
}

function buildSource(id: string, index = id): LogSource {
  return { id, index: `federated-${index}-*`, layout: "ecs", tenantFilter: undefined };
}

describe.runIf(one !== undefined && two !== undefined)("es7 and os3", () => {
  if (one === undefined || two === undefined) return;

  logStoreSuite({
    name: "es7 and os3 read as one",
    excuses: { "script unindexable": unindexable, "script keys": rooted("hostname") },
    start: async () => {
      const clusters = [openCluster(one.url), openCluster(two.url)];
      for (const cluster of clusters) await cluster.remove("federated-*");
      const sources = {
        app: buildSource("app"),
        nginx: buildSource("nginx"),
        twin: buildSource("twin", "app"),
      };
      const places = Object.values(sources).map((source) => {
        const all = clusters.map(({ store }, at) => ({
          backend: `c${at}`,
          store: shortenIds(store),
          source,
        }));
        return [source.id, { places: all, dedupe: "id" as const }] as const;
      });
      let seeds = 0;
      return {
        store: createFederatedLogs(new Map(places)),
        sources,
        async seed(name, lines) {
          seeds += 1;
          for (const [at, cluster] of clusters.entries()) {
            await cluster.remove(`federated-${name}-*`);
            const index = `federated-${name}-${seeds}-filebeat`;
            await cluster.createIndex(index, buildTemplate("date_nanos", 1));
            const own = lines.filter((_, n) => n % 2 === at);
            await cluster.write(
              index,
              own.map(({ id, ...line }): [string, string] => [
                id,
                printDocument({ ...line, time: printNanos(line.time) }),
              ]),
            );
          }
        },
        async stop() {
          for (const cluster of clusters) {
            await cluster.remove("federated-*");
            await cluster.close();
          }
        },
      };
    },
  });

  describe("random splits", () => {
    let clusters: readonly [Cluster, Cluster];
    beforeAll(() => {
      clusters = [openCluster(one.url), openCluster(two.url)];
    });
    afterAll(async () => {
      for (const cluster of clusters) {
        await cluster.remove("split-*");
        await cluster.close();
      }
    });

    const corpora = fc.array(
      fc.record({
        milli: fc.nat(10),
        nanos: fc.constantFrom(0, 0, 1_000, 999_999),
        at: fc.nat(1),
        severity: fc.constantFrom("info", "error", "WARN"),
      }),
      { minLength: 50, maxLength: 400 },
    );

    test("every paging history is that of one server which holds all", async () => {
      const law = fc.asyncProperty(corpora, fc.integer({ min: 3, max: 60 }), async (corpus, cap) => {
        const documents = corpus.map(({ milli, nanos, at, severity }, n) => {
          const time = printNanos((BigInt(base + milli) * 1_000_000n + BigInt(nanos)) as never);
          const id = `d${(n * 7_919) % 1_000}`;
          return {
            at,
            document: [id, printDocument({ severity, message: `m${n}`, json: `{"n":${n}}`, time })] as const,
          };
        });
        const load = async (cluster: Cluster, index: string, own: typeof documents) => {
          await cluster.remove(`${index}*`);
          await cluster.createIndex(index, buildTemplate("date_nanos", 2));
          await cluster.write(
            index,
            own.map(({ document }) => document),
          );
        };
        for (const [at, cluster] of clusters.entries())
          await load(
            cluster,
            "split-half",
            documents.filter((one) => one.at === at),
          );
        await load(clusters[0], "split-whole", documents);
        const [first] = clusters;
        const source = (index: string): LogSource => ({ ...buildSource("app"), index });
        const places = clusters.map(({ store }, at) => ({
          backend: `c${at}`,
          store: shortenIds(store),
          source: source("split-half"),
        }));
        const split = createFederatedLogs(new Map([["app", { places, dedupe: "id" as const }]]));
        const whole = createFederatedLogs(
          new Map([
            [
              "app",
              { places: [{ backend: "c0", store: shortenIds(first.store), source: source("split-whole") }] },
            ],
          ]),
        );
        for (const order of ["ASC", "DESC"]) {
          for (const perPage of [1 + (corpus.length % 7), 100]) {
            for (const query of ["", "severity=error", "message:1"]) {
              const asked = { order, perPage, query, sources: ["app"] };
              const pages = await readPages(createContext(split, cap), asked);
              expect(pages).toEqual(await readPages(createContext(whole, cap), asked));
              if (query === "") expect(pages.flat()).toHaveLength(corpus.length);
            }
          }
        }
      });
      await fc.assert(law, { numRuns: Number(process.env.ROUNDS ?? 6), seed: Number(process.env.SEED ?? 1) });
    }, 300_000);
  });
});
