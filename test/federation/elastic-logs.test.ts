// Logs split by document over test doubles of Elasticsearch and OpenSearch: every paging history is that of one of them
// which holds all.
import fc from "fast-check";
import { afterEach, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { createFederatedLogs } from "#src/federation/federated-logs.ts";
import type { LogSource, LogStore } from "#src/store/logs.ts";
import { createFakeSearch } from "../support/elastic/fake-cluster.ts";
import { testIO } from "../support/io.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { openScriptedSource } from "../support/scripted-http-source.ts";
import { waitUntil } from "../support/waits.ts";
import { createContext, readPages } from "./paging.ts";
import { base } from "./split-logs.ts";

const source: LogSource = { id: "app", index: "logs-*", layout: "ecs", tenantFilter: undefined };
const keyword = { type: "keyword" };
const mappings = {
  properties: { "@timestamp": { type: "date" }, message: keyword, n: { type: "long" } },
};

/** Of one request to a cluster that hangs, in milliseconds. */
const timeout = 500;

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  vi.useRealTimers();
  for (const one of opened.splice(0).reverse()) await one.close();
});

/**
 * A document needs an id that is the same in any cluster, so each lies in an index of its own number. Requests for
 * which `hangs` is true are never answered.
 */
async function openStore(
  documents: ReadonlyMap<number, object>,
  product: "Elasticsearch" | "OpenSearch",
  hangs?: () => boolean,
) {
  const indices = Object.fromEntries(
    [...documents].map(([n, document]) => [
      `logs-${String(n).padStart(2, "0")}`,
      { mappings, documents: [document] },
    ]),
  );
  const search = createFakeSearch({ "logs-empty": { mappings, documents: [] }, ...indices }, product);
  const fake = await openScriptedSource((...asked) => {
    if (hangs?.() !== true) search.reply(...asked);
  });
  const settings = elastic.parseConfig({ url: fake.url, ...(hangs && { timeout: `${timeout}ms` }) });
  const backend = elastic.create("elk", settings, testIO);
  opened.push(fake, backend);
  const { logs } = backend.stores;
  if (logs === undefined) throw new Error("no log store");
  return logs;
}

const corpora = fc.array(fc.record({ milli: fc.nat(6), old: fc.boolean(), red: fc.boolean() }), {
  minLength: 1,
  maxLength: 24,
});

test("every paging history is that of one cluster", async () => {
  const law = fc.asyncProperty(
    corpora,
    fc.constantFrom("ASC", "DESC"),
    fc.integer({ min: 1, max: 12 }),
    fc.integer({ min: 1, max: 6 }),
    fc.constantFrom("", "message=red", "message:d n>3"),
    async (corpus, order, perPage, cap, query) => {
      const documents = corpus.map(({ milli, old, red }, n) => {
        const time = new Date(base + milli).toISOString();
        return { n, old, document: { "@timestamp": time, message: red ? "red" : "blue", n } };
      });
      const select = (keep: (old: boolean) => boolean) =>
        new Map(documents.filter(({ old }) => keep(old)).map(({ n, document }) => [n, document]));
      const store = await openStore(
        select(() => true),
        "Elasticsearch",
      );
      const whole = createFederatedLogs(new Map([["app", { places: [{ backend: "all", store, source }] }]]));
      const places: { backend: string; store: LogStore; source: LogSource }[] = [
        {
          backend: "old",
          store: await openStore(
            select((old) => old),
            "Elasticsearch",
          ),
          source,
        },
        {
          backend: "new",
          store: await openStore(
            select((old) => !old),
            "OpenSearch",
          ),
          source,
        },
      ];
      const split = createFederatedLogs(new Map([["app", { places, dedupe: "id" as const }]]));
      const asked = { perPage, order, query, sources: ["app"] };
      const pages = await readPages(createContext(split, cap), asked);
      expect(pages).toEqual(await readPages(createContext(whole, cap), asked));
      if (query === "") expect(pages.flat()).toHaveLength(corpus.length);
      for (const one of opened.splice(0).reverse()) await one.close();
    },
  );
  await fc.assert(law, { numRuns: sampleRuns(25, { share: 5, least: 5 }) });
});

test.each([0, 1, 2, 3])(
  "a cluster that hangs from request %i on fails a page with its time-out",
  async (answered) => {
    const documents = new Map(
      [0, 1, 2].map((n) => [n, { "@timestamp": new Date(base + n).toISOString(), message: "red", n }]),
    );
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    let requests = 0;
    let isHanging = false;
    const hanging = await openStore(documents, "OpenSearch", () => {
      requests += 1;
      if (requests <= answered) return false;
      isHanging = true;
      return true;
    });
    const places = [
      { backend: "old", store: await openStore(documents, "Elasticsearch"), source },
      { backend: "new", store: hanging, source },
    ];
    const store = createFederatedLogs(new Map([["app", { places }]]));
    const asked = { perPage: 10, order: "ASC" as const, query: "", sources: ["app"] };
    let isOver = false;
    const failed = readPages(createContext(store, 100), asked)
      .then(
        () => undefined,
        (error: unknown) => error,
      )
      .finally(() => {
        isOver = true;
      });
    await waitUntil(() => isHanging || isOver);
    // Where fewer requests are needed, nothing hangs.
    if (!isHanging) return expect(await failed).toBeUndefined();
    // The only time that passes here: a second wait for the cluster would not end.
    await vi.advanceTimersByTimeAsync(timeout);
    expect(await failed).toMatchObject({ backend: "elk", failure: "timeout" });
    expect(answered).toBeLessThan(requests);
  },
);
