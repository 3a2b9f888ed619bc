import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import { fromMillis } from "#src/core/time.ts";
import { createFederatedLogs } from "#src/federation/federated-logs.ts";
import { createFederatedSpans } from "#src/federation/federated-spans.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { logStoreSuite } from "./logs.ts";
import { spanStoreSuite } from "./spans.ts";
import { type SiteName, toSpan } from "./trace-fixture.ts";

logStoreSuite({
  name: "memory",
  excuses: {},
  start: async () => {
    const store = createMemoryLogs();
    return {
      store,
      sources: {
        app: { id: "app", index: "app", layout: "auto", tenantFilter: undefined },
        nginx: { id: "nginx", index: "nginx", layout: "auto", tenantFilter: undefined },
        twin: { id: "twin", index: "app", layout: "auto", tenantFilter: undefined },
      },
      seed: async (index, lines) => {
        store.forget(index, fromMillis(Number.MAX_SAFE_INTEGER));
        store.add(
          index,
          lines.map((line) => ({ ...line, severity: parseSeverity(line.severity) })),
        );
      },
      stop: async () => {},
    };
  },
});

spanStoreSuite({
  name: "memory",
  lacks: {},
  start: async () => {
    let store = createMemorySpans();
    const source = (site: SiteName) =>
      buildSpanSource(site, { index: `${site}-other,${site}`, layout: "auto" });
    return {
      get store() {
        return store;
      },
      sources: { shop: source("shop"), stock: source("stock"), blog: source("blog") },
      seed: async (models) => {
        store = createMemorySpans();
        for (const [site, own] of Map.groupBy(models, (model) => model.site)) {
          store.add(
            site,
            own.map((model) => {
              const { site_id: _, namespace: __, action: ___, tags: ____, ...span } = toSpan(model);
              return span;
            }),
          );
        }
      },
      stop: async () => {},
    };
  },
});

/** Each line in one of two stores, by turns; a source is named by both, and its ids are those of one store. */
logStoreSuite({
  name: "two memory stores read as one",
  excuses: {},
  start: async () => {
    const stores = [createMemoryLogs(), createMemoryLogs()];
    const source = (id: string, index: string) => ({ id, index, layout: "auto", tenantFilter: undefined });
    const sources = {
      app: source("app", "app"),
      nginx: source("nginx", "nginx"),
      twin: source("twin", "app"),
    };
    const places = Object.values(sources).map((source) => {
      const all = stores.map((store, at) => ({ backend: `memory-${at}`, store, source }));
      return [source.id, { places: all, dedupe: "id" as const }] as const;
    });
    return {
      store: createFederatedLogs(new Map(places)),
      sources,
      seed: async (index, lines) => {
        for (const [at, store] of stores.entries()) {
          store.forget(index, fromMillis(Number.MAX_SAFE_INTEGER));
          const own = lines.filter((_, n) => n % stores.length === at);
          store.add(
            index,
            own.map((line) => ({ ...line, severity: parseSeverity(line.severity) })),
          );
        }
      },
      stop: async () => {},
    };
  },
});

/** Each span in one of two stores, by turns. */
spanStoreSuite({
  name: "two memory stores read as one",
  lacks: {},
  start: async () => {
    const names: readonly SiteName[] = ["shop", "stock", "blog"];
    const source = (site: SiteName) => buildSpanSource(site, { index: site, layout: "auto" });
    const sources = { shop: source("shop"), stock: source("stock"), blog: source("blog") };
    // The memory store cannot list traces with exceptions, so the joined one cannot either.
    const join = (places: Parameters<typeof createFederatedSpans>[0]): SpanStore => {
      const { findTraceIdsWithExceptions: _, ...store } = createFederatedSpans(places);
      return store;
    };
    let store = join({ listPlaces: () => [] });
    return {
      get store() {
        return store;
      },
      sources,
      seed: async (models) => {
        const stores = [createMemorySpans(), createMemorySpans()];
        for (const [turn, store] of stores.entries()) {
          const own = models.filter((_, n) => n % stores.length === turn).map(toSpan);
          for (const [site, spans] of Map.groupBy(own, ({ site_id }) => site_id)) {
            store.add(
              site,
              spans.map(({ site_id, namespace: _, action: __, tags: ___, ...span }) => span),
            );
          }
        }
        const places = names.map((site) => {
          const all = stores.map((store, at) => ({ backend: String(at), store, source: sources[site] }));
          return [sources[site], all] as const;
        });
        const placesOf = new Map(places);
        store = join({ listPlaces: (source) => placesOf.get(source) ?? [] });
      },
      stop: async () => {},
    };
  },
});
