import { expect } from "vitest";
import { createMemorySpans, type StoredSpan } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { createHeldBytes } from "#src/core/async/held-bytes.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import type { Context } from "#src/operations/runtime/operation.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { type ModelSpan, midnight, toSpan } from "../conformance/trace-fixture.ts";
import { base, createSpan } from "../tracing/span-builder.ts";

export type Json = Record<string, unknown>;
export type Placed = StoredSpan & { readonly site_id: string };

export function storedOf(model: ModelSpan): Placed {
  const { namespace: _, action: __, tags: ___, ...stored } = toSpan(model);
  return stored;
}

/** Sites with their backends. */
export function serve(
  spans: readonly Placed[],
  places: Readonly<Record<string, string>> = { shop: "m", stock: "m", blog: "m" },
  now = base + 3_600_000,
) {
  const stores = new Map<string, ReturnType<typeof createMemorySpans>>();
  for (const backend of Object.values(places))
    stores.set(backend, stores.get(backend) ?? createMemorySpans());
  for (const [site, backend] of Object.entries(places)) {
    stores.get(backend)?.add(
      site,
      spans.filter(({ site_id }) => site_id === site),
    );
  }
  const sites = Object.entries(places).map(([id, backend]): Site => {
    const store: SpanStore = stores.get(backend) ?? createMemorySpans();
    const source = buildSpanSource(id, { index: id, layout: "auto" });
    return { id, retention: 86_400_000, counterDefault: "cumulative", traces: { backend, store, source } };
  });
  return ask(sites, now);
}

export function ask(sites: readonly Site[], now: number, limits: Partial<Context["limits"]> = {}) {
  const context: Context = {
    user: "ana",
    sites: new Map(sites.map((site) => [site.id, site])),
    limits: { ...defaults.limits, ...limits },
    now: () => fromMillis(now),
    signal: new AbortController().signal,
    held: createHeldBytes(limits.heldBytes ?? defaults.limits.heldBytes),
  };
  return async <T = Json[]>(route: string, body: Json): Promise<T> => {
    const operation = operations.find(({ path }) => path === `/api/v2/${route}`);
    if (operation === undefined) throw new Error(`no route ${route}`);
    const answer = operation.prepare(body).run(context);
    if (!(Symbol.asyncIterator in answer)) return JSON.parse(JSON.stringify(await answer));
    const texts: string[] = [];
    for await (const { count, text } of answer) {
      expect(JSON.parse(`[${text}]`)).toHaveLength(count);
      texts.push(text);
    }
    return JSON.parse(`[${texts.join(",")}]`);
  };
}

export const hex = (digit: string, length: number): string => digit.repeat(length);
/** A request of the shop, 16 and 32 digits of ids. */
export function request(over: Parameters<typeof createSpan>[0] = {}): Placed {
  const {
    namespace: _,
    action: __,
    tags: ___,
    ...stored
  } = createSpan({
    trace_id: hex("a", 32),
    span_id: hex("a", 16),
    span_kind: "server",
    span_name: "GET /",
    ...over,
  });
  return stored;
}
export const first = { per_page: 100, order: "DESC", cursor: { time: null } };
export const listing = { site_ids: ["shop"], pagination: first };
export const range = { from: "2026-01-15T10:00:00Z", to: "2026-01-15T11:00:00Z" };

/** An hour after the night that the generated traces cross. */
export const nights = midnight + 3_600_000;
