// Spans of several backends: every route over traces answers as over one store that holds all, for random splits of random
// traces, also where several backends hold the same span.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { BackendError } from "#src/core/errors.ts";
import type { Instant } from "#src/core/time.ts";
import { createFederatedSpans, type SpanPlace } from "#src/federation/federated-spans.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import type { SpanReader, SpanSource } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { makeTraces, midnight } from "../conformance/trace-fixture.ts";
import {
  ask,
  hex,
  type Json,
  listing,
  nights,
  type Placed,
  request,
  storedOf,
} from "../operations/trace-harness.ts";
import { sampleRuns } from "../support/law-runs.ts";

type Run = ReturnType<typeof ask>;
const siteIds = ["shop", "stock", "blog"] as const;
const backends = ["old", "new", "eu"] as const;

function connect(id: string, names: readonly string[], store: SpanStore, source: SpanSource): Site {
  const several = names.length > 1 && { backends: names };
  return {
    id,
    retention: 86_400_000,
    counterDefault: "cumulative",
    traces: { backend: names.join(", "), ...several, store, source },
  };
}

/** The same spans in one backend, and in those that `placesOf` names for each site. */
function serve(
  spans: readonly Placed[],
  placesOf: Readonly<Record<string, readonly number[]>>,
  choose: (span: number, places: readonly number[]) => readonly number[],
  change: (store: SpanStore, backend: number) => SpanStore = (store) => store,
): { readonly one: Run; readonly several: Run } {
  const whole = createMemorySpans();
  const stores = backends.map(() => createMemorySpans());
  const changed = stores.map(change);
  const places = new Map<SpanSource, readonly SpanPlace[]>();
  const federated = createFederatedSpans({ listPlaces: (source) => places.get(source) ?? [] });
  const [joined, divided]: [Site[], Site[]] = [[], []];
  for (const id of Object.keys(placesOf)) {
    const own = spans.filter(({ site_id }) => site_id === id);
    const source = buildSpanSource(id, { index: id, layout: "auto" });
    const used = placesOf[id] ?? [];
    whole.add(id, own);
    for (const at of used)
      stores[at]?.add(
        id,
        own.filter((_, n) => choose(n, used).includes(at)),
      );
    joined.push(connect(id, ["old"], whole, source));
    const all = used.flatMap((at) => {
      const store = changed[at];
      return store === undefined ? [] : [{ backend: backends[at] ?? "", store, source: { ...source } }];
    });
    const [only] = all;
    if (only !== undefined && all.length === 1) {
      places.set(only.source, all);
      divided.push(
        connect(
          id,
          used.map((at) => backends[at] ?? ""),
          only.store,
          only.source,
        ),
      );
    } else {
      places.set(source, all);
      divided.push(
        connect(
          id,
          used.map((at) => backends[at] ?? ""),
          federated,
          source,
        ),
      );
    }
  }
  return { one: ask(joined, nights), several: ask(divided, nights) };
}

const night = {
  from: new Date(midnight - 3_600_000).toISOString(),
  to: new Date(midnight + 3_600_000).toISOString(),
};

/** The answers of every route that reads spans. */
async function askAll(run: Run, ids: readonly string[]): Promise<Json> {
  const answers: Json = {};
  for (const id of ids) {
    const one = { site_id: id, ...night };
    const actions = await run("tracing/actions", one);
    const events = await run("tracing/slow_events", { ...one, limit: 100 });
    answers[`${id} actions`] = actions;
    answers[`${id} events`] = events;
    answers[`${id} edges`] = await run("tracing/site_edges", one);
    for (const { digest } of events)
      answers[`${id} event ${digest}`] = await run("tracing/slow_events/actions", { ...one, digest });
    for (const { namespace, action } of actions) {
      const asked = { ...one, namespace: `${id}-web/${namespace}`, action };
      answers[`${id} edges of ${action}`] = await run("tracing/action_edges", asked);
    }
  }
  for (const cursor of ["Time", "Duration"]) {
    for (const order of ["ASC", "DESC"]) {
      for (const kind of ["performance", "errors"]) {
        const key = `${kind} by ${cursor} ${order}`;
        answers[key] = await readPages(
          run,
          `tracing/traces/${kind}`,
          { site_ids: ids, ...night },
          cursor,
          order,
        );
      }
    }
  }
  const traceIds = new Set((answers["performance by Time ASC"] as Json[]).map(({ trace_id }) => trace_id));
  for (const trace_id of traceIds) {
    answers[`trace ${trace_id}`] = await run("tracing/trace", { site_ids: ids, trace_id });
    answers[`locator ${trace_id}`] = await run("tracing/locator", { site_ids: ids, trace_id });
  }
  answers.first = await run("tracing/trace/performance", { site_ids: ids, ...night });
  answers.error = await run("tracing/trace/error", { site_ids: ids, ...night });
  return answers;
}

async function readPages(run: Run, route: string, body: Json, by: string, order: string): Promise<Json[]> {
  const key = by === "Time" ? "time" : "duration";
  const rows: Json[] = [];
  for (let at: unknown = null; ; ) {
    const pagination = { per_page: 7, order, cursor: { [key]: at } };
    const page = await run(route, { ...body, pagination });
    rows.push(...page);
    if (page.length < 7) return rows;
    at = page.at(-1)?.[key];
  }
}

describe("random traces", () => {
  test.each([
    ["over two backends", { shop: [0, 1], stock: [1, 0], blog: [0, 1] }, false],
    ["over three, with copies", { shop: [0, 1, 2], stock: [0, 1, 2], blog: [2, 0] }, true],
    ["with partners in one of the backends", { shop: [0, 1], stock: [1], blog: [0] }, false],
  ] as const)("%s", async (_, placesOf, hasCopies) => {
    const law = fc.asyncProperty(fc.nat(1_000), fc.infiniteStream(fc.nat(6)), async (seed, draws) => {
      const spans = makeTraces(seed, 12).map(storedOf);
      const drawn = spans.map(() => draws.next().value ?? 0);
      const choose = (n: number, places: readonly number[]) => {
        const [first = 0, copy = 0] = [drawn[n], drawn[n + 1]];
        const own = places[first % places.length] ?? 0;
        return hasCopies ? [own, places[copy % places.length] ?? 0] : [own];
      };
      const { one, several } = serve(spans, placesOf, choose);
      const [expected, found] = [await askAll(one, siteIds), await askAll(several, siteIds)];
      expect(found).toEqual(expected);
    });
    await fc.assert(law, { numRuns: sampleRuns(12, { share: 6, least: 2 }) });
  });
});

test("a trace whose root lies in one backend and whose spans lie in another is one", async () => {
  const root = request();
  const child = request({ span_id: hex("b", 16), parent_span_id: root.span_id, span_kind: "client" });
  const spans = [root, child].map((span) => ({ ...span, site_id: "shop" }));
  const { several } = serve(spans, { shop: [0, 1] }, (n) => [n]);
  expect(await several("tracing/trace", { site_ids: ["shop"], trace_id: root.trace_id })).toHaveLength(2);
});

test("a span that one backend has twice counts twice, whatever copies another has", async () => {
  const spans = [request(), request()].map((span) => ({ ...span, site_id: "shop" }));
  const { several } = serve(spans, { shop: [0, 1] }, (n) => (n === 0 ? [0, 1] : [1]));
  const one = { site_id: "shop", from: "2026-01-15T00:00:00Z", to: "2026-01-17T00:00:00Z" };
  expect(await several("tracing/actions", one)).toMatchObject([{ throughput: 2 }]);
});

test("a span that was sent with two ends counts twice, in whichever order two backends have it", async () => {
  const first = { ...request(), site_id: "shop" };
  const spans = [first, { ...first, end: (first.end + 1_000_000n) as Instant }];
  const wait = async (turns: number) => {
    for (let turn = 0; turn < turns; turn += 1) await new Promise(setImmediate);
  };
  // The second backend has them in the other order, its first one early and its last one late.
  const reorder = (store: SpanStore, at: number): SpanStore => {
    const reader: SpanReader = {
      ...store,
      scan: async function* (query, signal) {
        for await (const batch of store.scan(query, signal)) {
          for (const [turn, span] of (at === 1 ? batch.toReversed() : batch).entries()) {
            await wait(at === 1 ? 10 * turn : 1);
            yield [span];
          }
        }
      },
    };
    return { ...reader, ...createSpanAnalytics(reader) };
  };
  const { one, several } = serve(spans, { shop: [0, 1] }, () => [0, 1], reorder);
  const day = { site_id: "shop", from: "2026-01-15T00:00:00Z", to: "2026-01-17T00:00:00Z" };
  const found = await several<Json>("tracing/actions", day);
  expect(found).toMatchObject([{ throughput: 2 }]);
  expect(found).toEqual(await one("tracing/actions", day));
});

test("partners are looked for only where a backend is shared", async () => {
  const call = request({ span_id: hex("b", 16), span_kind: "client", site_id: "shop" });
  const callee = request({ span_id: hex("c", 16), parent_span_id: call.span_id, site_id: "stock" });
  const day = { site_id: "shop", from: "2026-01-15T00:00:00Z", to: "2026-01-17T00:00:00Z" };
  const askEdges = (stock: readonly number[]) =>
    serve([call, callee], { shop: [0, 1], stock }, (_, [first = 0]) => [first]).several<Json>(
      "tracing/site_edges",
      day,
    );
  expect(await askEdges([1, 2])).toMatchObject({ downstream: [{ service: "web", count: 1 }] });
  expect(await askEdges([2])).toMatchObject({ downstream: [] });
});

test("a backend that fails fails each question, and the others are given up", async () => {
  const down = new BackendError("new", "unreachable", "down");
  const given: unknown[] = [];
  const change = (store: SpanStore, at: number): SpanStore => ({
    ...store,
    async *scan(query, signal) {
      if (at === 1) throw down;
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      given.push(signal.reason);
      yield* store.scan(query, signal);
    },
    async *find(query, signal) {
      if (at === 1) throw down;
      yield* store.find(query, signal);
    },
  });
  const spans = [{ ...request(), site_id: "shop" }];
  const { several } = serve(spans, { shop: [0, 1] }, () => [0], change);
  const one = { site_id: "shop", from: "2026-01-15T00:00:00Z", to: "2026-01-17T00:00:00Z" };
  for (const route of ["actions", "site_edges", "slow_events"])
    await expect(several(`tracing/${route}`, one), route).rejects.toBe(down);
  await expect(several("tracing/traces/performance", listing)).rejects.toBe(down);
  await expect(several("tracing/trace", { ...listing, trace_id: hex("a", 32) })).rejects.toBe(down);
  await expect.poll(() => given.length).toBe(4);
});
