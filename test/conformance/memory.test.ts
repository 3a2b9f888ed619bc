import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import { fromMillis } from "#src/core/time.ts";
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
