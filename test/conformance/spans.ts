// What every span store must do, run against each of them. A subject is a store on a server with a data layout; it
// writes the neutral model (traces.ts) as that layout's shipper would. What a store answers natively is compared with
// the definition over the model, and laws hold that need no definition.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Span, TraceSummary } from "#src/core/rows.ts";
import { fromMillis, type Instant, type TimeRange } from "#src/core/time.ts";
import type { ListingQuery, SpanAnalytics, SpanStore } from "#src/store/span-analytics.ts";
import type { Budget, SpanLookup, SpanScan, SpanSource, SpanSources } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { compareRows, deriveTie } from "#src/tracing/listing/listing.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import {
  encodeActionDigest,
  encodeErrorDigest,
  encodeEventDigest,
  hashStatement,
} from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { deriveNames } from "#src/tracing/spans/requests.ts";
import {
  createArrayReader,
  isInSelection,
  isLookedUp,
  type ModelPart,
  type ModelSpan,
  makeTraces,
  midnight,
  removeParts,
  type SiteName,
  toSpan,
} from "./trace-fixture.ts";

export interface TracingSubject {
  readonly name: string;
  /** What the layout cannot carry, each with its reason. */
  readonly lacks: Readonly<Partial<Record<ModelPart, string>>>;
  readonly start: () => Promise<RunningTracingSubject>;
}
export interface RunningTracingSubject {
  readonly store: SpanStore;
  readonly sources: Readonly<Record<SiteName, SpanSource>>;
  /** Replaces all spans; resolves when they can be found. */
  readonly seed: (spans: readonly ModelSpan[]) => Promise<void>;
  readonly stop: () => Promise<void>;
}

const hour = 3_600_000;
const wide: TimeRange = { from: fromMillis(midnight - 12 * hour), to: fromMillis(midnight + 12 * hour) };
/** Cuts through what `makeTraces` makes. */
const narrow: TimeRange = { from: fromMillis(midnight - 30), to: fromMillis(midnight + 40) };
const trace = "0af7651916cd43dd8448eb211c80319c";
const at = (micros: number): Instant => (fromMillis(midnight) + BigInt(micros) * 1_000n) as Instant;

const plain: ModelSpan = {
  site: "shop",
  trace,
  id: "00f067aa0ba902b7",
  service: "shop-web",
  name: "GET /cart",
  kind: "server",
  start: at(0),
  end: at(10),
  status: "OK",
  attributes: { "http.request.method": "GET" },
  resource: {},
  events: [],
  links: [],
  count: 1,
};
const formatId = (n: number): string => n.toString(16).padStart(16, "0");

/** `rounds` is how many random sets of traces are written and asked about. */
export function spanStoreSuite(subject: TracingSubject, rounds = 2): void {
  const lacks = Object.keys(subject.lacks).filter((part): part is ModelPart => part in removeParts);
  const carried = (span: ModelSpan): ModelSpan => lacks.reduce((left, part) => removeParts[part](left), span);

  describe(`${subject.name}: span store`, () => {
    let running: RunningTracingSubject;
    beforeAll(async () => {
      running = await subject.start();
    });
    afterAll(() => running.stop());

    const all = (): SpanSources => [running.sources.shop, running.sources.stock, running.sources.blog];
    const scan = (over: Partial<SpanScan> = {}, signal = createSignal()) => {
      const query: SpanScan = {
        sources: all(),
        range: wide,
        select: "all",
        budget: createLargeBudget(),
        ...over,
      };
      return running.store.scan(query, signal);
    };
    const find = (of: SpanLookup["of"], sources = all()) =>
      running.store.find({ sources, of, budget: createLargeBudget() }, createSignal());

    describe("spans", () => {
      const rich: ModelSpan = {
        ...plain,
        end: (at(1_234_567) + 89n) as Instant,
        status: "ERROR",
        message: "it broke",
        revision: "3f9c",
        state: "vendor=1",
        scope: { name: "lib", version: "1.2" },
        attributes: {
          "http.request.method": "GET",
          "http.route": "/cart",
          "http.request.body.size": 12,
          ratio: 0.5,
          sampled: true,
          "appsignal.namespace": "web",
          "appsignal.tag.region": "eu",
        },
        resource: { "host.name": "web-1" },
        events: [
          { name: "cache.miss", time: at(3), attributes: { key: "cart" } },
          // Another millisecond: of events of one time in documents of their own no server tells the order.
          {
            name: "exception",
            time: at(2_005),
            attributes: { "exception.type": "KeyError", "exception.message": 'no "cart"\n🎉' },
          },
        ],
        links: [
          {
            trace_id: "b".repeat(32),
            span_id: formatId(7),
            trace_state: "a=b",
            attributes: { reason: "retry" },
          },
        ],
      };
      const compressed: ModelSpan = {
        ...plain,
        id: formatId(2),
        parent: plain.id,
        kind: "client",
        name: "query",
        status: "UNSET",
        attributes: { "db.system.name": "mysql", "db.query.text": "SELECT 1" },
        count: 6,
      };

      test("come back as they were written", async () => {
        const written = [rich, compressed].map(carried);
        await running.seed([rich, compressed]);
        const found = await readAllSpans(find({ by: "trace", traceIds: [trace], select: "all" }));
        for (const model of written) {
          const span = found.find(({ span_id }) => span_id === model.id);
          const { resource_attributes, span_attributes, events, ...rest } = toSpan(model);
          // A shipper may add attributes of its own; it drops and changes none.
          expect(span).toMatchObject({ resource_attributes, span_attributes, events });
          expect(span).toEqual({
            ...rest,
            resource_attributes: span?.resource_attributes,
            span_attributes: span?.span_attributes,
            events: span?.events,
          });
        }
        expect(found).toHaveLength(2);
      });

      test.each(Object.entries(subject.lacks))("an excuse that holds: %s (%s)", async (part) => {
        if (!(part in removeParts)) throw new Error("no such part");
        const others = lacks.filter((other) => other !== part);
        const claimed = [rich, compressed].map((span) =>
          others.reduce((left, other) => removeParts[other](left), span),
        );
        await running.seed([rich, compressed]);
        const found = await readAllSpans(find({ by: "trace", traceIds: [trace], select: "all" }));
        const inOrder = claimed.map(({ id }) => found.find(({ span_id }) => span_id === id));
        expect(inOrder).not.toMatchObject(claimed.map(toSpan));
      });

      test("that name nothing are nothing: no parent, revision, message, events", async () => {
        await running.seed([plain]);
        const [found] = await readAllSpans(scan());
        expect(found).toMatchObject({ entry: true, events: [], links: [], tags: {}, count: 1 });
        expect(found).toMatchObject({ parent_span_id: undefined, revision: undefined, namespace: undefined });
      });
    });

    describe("primitives", () => {
      test("scan: the range is that of the end, both bounds inclusive, however long a span is", async () => {
        const spans = [0, 1, 2, 3].map((n) => ({ ...plain, id: formatId(n + 1), end: at(n) }));
        const long = {
          ...plain,
          id: formatId(9),
          start: fromMillis(midnight - 40 * 24 * hour),
          end: at(2),
        };
        await running.seed([...spans.map((span) => ({ ...span, start: fromMillis(midnight - 1) })), long]);
        const found = await readAllSpans(scan({ range: { from: at(1), to: at(2) } }));
        expect(found.map(({ span_id }) => span_id).sort()).toEqual([formatId(2), formatId(3), formatId(9)]);
      });

      test("scan and find: a source holds its own site's spans, and each comes once", async () => {
        await running.seed(makeTraces(1, 20));
        const { shop, blog } = running.sources;
        const own = await readAllSpans(scan({ sources: [shop] }));
        expect(new Set(own.map(({ site_id }) => site_id))).toEqual(new Set(["shop"]));
        const both = await readAllSpans(scan({ sources: [shop, blog, shop] }));
        expect(new Set(both.map(formatKey)).size).toBe(both.length);
        expect(both.length).toBeGreaterThan(own.length);
      });

      test("thousands of ids, most of which nothing has", async () => {
        const model = makeTraces(2, 30);
        await running.seed(model);
        const ids = Array.from({ length: 5_000 }, (_, n) => ({
          trace_id: n.toString(16).padStart(32, "f"),
          span_id: formatId(n),
        }));
        const some = model.filter((_, n) => n % 3 === 0);
        const spans = [...ids, ...some.map(({ trace, id }) => ({ trace_id: trace, span_id: id }))];
        const found = await readAllSpans(find({ by: "span", spans }));
        expect(found.map(formatKey).sort()).toEqual(some.map((span) => formatKey(toSpan(span))).sort());
      });

      test("nothing found is nothing, and a budget refuses", async () => {
        await running.seed(makeTraces(3, 5));
        expect(await readAllSpans(find({ by: "trace", traceIds: ["f".repeat(32)], select: "all" }))).toEqual(
          [],
        );
        const signal = createSignal();
        await expect(readAllSpans(scan({ budget: createBudget(3) }, signal))).rejects.toMatchObject({
          slug: "result_too_large",
          details: { limit: 3 },
        });
      });

      test("an aborted signal rejects with its reason", async () => {
        await running.seed(makeTraces(3, 5));
        const reason = new Error("enough");
        await expect(readAllSpans(scan({}, AbortSignal.abort(reason)))).rejects.toBe(reason);
        const listing = running.store.summaries(buildListing(all()), AbortSignal.abort(reason));
        await expect(readAllRows(listing)).rejects.toBe(reason);
      });
    });

    describe.each(Array.from({ length: rounds }, (_, n) => n + 10))("traces of seed %i", (seed) => {
      const models = makeTraces(seed, 60);
      const spans = models.map((model) => toSpan(carried(model)));
      const expected = createSpanAnalytics(createArrayReader(spans));
      beforeAll(() => running.seed(models));

      test.each(["all", "entries", "children", "calls", "exceptions", "statements"] as const)(
        "scan selects %s",
        async (select) => {
          const found = await readAllSpans(scan({ range: narrow, select }));
          const wanted = spans.filter(
            (span) => span.end >= narrow.from && span.end <= narrow.to && isInSelection(select, span),
          );
          expect(found.map(formatKey).sort()).toEqual(wanted.map(formatKey).sort());
        },
      );

      test("find: by trace, span, id and caller", async () => {
        const some = spans.filter((_, n) => n % 7 === 0);
        const traceIds = [...new Set(some.map(({ trace_id }) => trace_id))];
        const lookups: readonly SpanLookup["of"][] = [
          { by: "trace", traceIds, select: "all" },
          { by: "trace", traceIds, select: "exceptions" },
          { by: "span", spans: some },
          { by: "id", spanIds: [...new Set(some.map(({ span_id }) => span_id))] },
          { by: "caller", spans },
        ];
        for (const of of lookups) {
          const found = await readAllSpans(find(of));
          const wanted = spans.filter((span) => isLookedUp(of, span));
          expect(found.map(formatKey).sort()).toEqual(wanted.map(formatKey).sort());
        }
      });

      test("failed traces: all that have an exception, of those of a type or digest, and listings made of them", async () => {
        const { store } = running;
        if (store.findTraceIdsWithExceptions === undefined) return;
        const failing = (accepts: (attributes: Span["span_attributes"]) => boolean): readonly string[] =>
          spans
            .filter(({ events }) => events.some((event) => isException(event) && accepts(event.attributes)))
            .map(({ trace_id }) => trace_id);
        const ask = (errors?: readonly { readonly digest: string; readonly exception?: string }[]) =>
          store.findTraceIdsWithExceptions?.(
            { sources: all(), errors, budget: createLargeBudget() },
            createSignal(),
          );
        expect(await ask()).toEqual(expect.arrayContaining([...failing(() => true)]));
        const chosen = failing((own) => {
          return own["exception.type"] === "Timeout" || own["appsignal.incident_digest"] === "digest-1";
        });
        const found = await ask([{ digest: "digest-1" }, { digest: "unknown", exception: "Timeout" }]);
        expect(found).toEqual(expect.arrayContaining([...chosen]));
        // Nobody knows that the range's requests are few.
        const unknowing = createSpanAnalytics({ ...store, count: async () => undefined });
        // A fifth of the filters: all of them go through a source like this in `tracing/windows.test.ts`.
        const some = buildListings(spans).filter((_, at) => at % 5 === 0);
        for (const [name, { filter = buildListing(all()).filter }] of some) {
          const query: ListingQuery = {
            ...{ ...buildListing(all()), filter, candidates: "errors", by: "duration", range: narrow },
          };
          const rows = await readAllRows(unknowing.summaries(query, createSignal()));
          const wanted = await readAllRows(
            expected.summaries({ ...query, budget: createLargeBudget() }, createSignal()),
          );
          expect([name, rows]).toEqual([name, wanted]);
        }
      });

      test.each(buildListings(spans))("listing %s", async (_, over) => {
        for (const sources of [all(), [running.sources.shop]] as const) {
          const query = { ...buildListing(sources), ...over };
          const [found, wanted] = [
            await readAllRows(running.store.summaries(query, createSignal())),
            await readAllRows(expected.summaries({ ...query, budget: createLargeBudget() }, createSignal())),
          ];
          expect(found).toEqual(wanted);
          if (query.range === wide && sources.length > 1) expect(wanted.length).toBeGreaterThan(0);
        }
      });

      test.each(orders)("pages by %s %s are the whole listing", async (by, order) => {
        for (const candidates of ["requests", "errors"] as const) {
          const query = { ...buildListing(all()), by, order, candidates, range: narrow };
          const whole = await readAllRows(running.store.summaries(query, createSignal()));
          expect(whole).toEqual(whole.toSorted((a, b) => compareRows(query, a, b)));
          const paged: TraceSummary[] = [];
          let beyond: bigint | undefined;
          for (;;) {
            const rows = await readPages(running.store, { ...query, beyond, budget: createLargeBudget() }, 7);
            paged.push(...rows);
            const last = rows.at(-1);
            if (last === undefined || rows.length < 7) break;
            beyond = deriveTie(query, last) + (by === "time" && order === "asc" ? 999_999n : 0n);
          }
          expect(paged).toEqual(whole);
        }
      });

      test("batches end between two milliseconds, and between two durations", async () => {
        for (const [by, order] of orders) {
          const query = { ...buildListing(all()), by, order, expectedRows: 1 };
          let last: bigint | undefined;
          for await (const batch of running.store.summaries(query, createSignal())) {
            expect(batch.length).toBeGreaterThan(0);
            const ties = batch.map((row) => deriveTie(query, row));
            expect(ties[0]).not.toBe(last);
            last = ties.at(-1);
          }
        }
      });

      test("too many rows in one tie are refused", async () => {
        const query = { ...buildListing(all()), by: "duration", tieLimit: 1 } as const;
        await expect(readAllRows(running.store.summaries(query, createSignal()))).rejects.toMatchObject({
          slug: "result_too_large",
          details: { limit: 1 },
        });
      });

      test("every listed trace is found by its id and by the locator", async () => {
        for (const candidates of ["requests", "errors"] as const) {
          const rows = await readAllRows(
            running.store.summaries({ ...buildListing(all()), candidates }, createSignal()),
          );
          expect(rows.length).toBeGreaterThan(5);
          for (const row of rows) {
            const of = { by: "trace", traceIds: [row.trace_id], select: "all" } as const;
            const found = await readAllSpans(find(of));
            expect(found.map(formatKey)).toContain(`${row.site_id} ${row.trace_id} ${row.span_id}`);
            const query = { sources: all(), traceId: row.trace_id, budget: createLargeBudget() };
            const located = await running.store.locate(query, createSignal());
            const { site_id, namespace, action_name } = row;
            if (candidates === "requests") {
              expect(located.performance).toContainEqual({ site_id, namespace, action_name });
            } else expect(located.errors.map((error) => error.site_id)).toContain(site_id);
            const wanted = await expected.locate({ ...query, budget: createLargeBudget() }, createSignal());
            expect(sortRows(located.performance)).toEqual(sortRows(wanted.performance));
            expect(sortRows(located.errors)).toEqual(sortRows(wanted.errors));
          }
        }
      });

      test.each(analyses)("%s", async (_, ask) => {
        for (const range of [wide, narrow]) {
          const { shop, stock, blog } = running.sources;
          for (const site of [shop, stock]) {
            const partners = [shop, stock, blog].filter((other) => other !== site);
            const [found, wanted] = [
              await ask(running.store, { sources: [site], partners, range, budget: createLargeBudget() }),
              await ask(expected, { sources: [site], partners, range, budget: createLargeBudget() }),
            ];
            expectNearly(found, wanted);
          }
        }
      });

      test("what A sees downstream at B is what B sees upstream at A", async () => {
        const { shop, stock } = running.sources;
        const range = narrow;
        const down = { sources: [shop], partners: [stock], range, budget: createLargeBudget() } as const;
        const up = { sources: [stock], partners: [shop], range, budget: createLargeBudget() } as const;
        const { upstream } = await running.store.siteEdges(up, createSignal());
        const { downstream } = await running.store.siteEdges(down, createSignal());
        const atStock = downstream.find(({ service }) => service === "stock");
        expect(atStock?.count).toBeGreaterThan(3);
        expect(upstream.reduce((sum, edge) => sum + edge.count, 0)).toBe(atStock?.count);
        expect(upstream.reduce((sum, edge) => sum + edge.error_count, 0)).toBe(atStock?.error_count);

        const reserve = { service: "stock", namespace: "web", action: "POST /reserve" };
        const taken = await running.store.actionEdges(
          { ...up, ...reserve, budget: createLargeBudget() },
          createSignal(),
        );
        const known = taken.upstream.filter(({ action }) => action !== "");
        expect(known.length).toBeGreaterThan(1);
        for (const { service, namespace = "", action = "", ...figures } of known) {
          const asked = { service, namespace, action, budget: createLargeBudget() };
          const made = await running.store.actionEdges({ ...down, ...asked }, createSignal());
          const {
            service: _,
            namespace: __,
            action: ___,
            ...same
          } = made.downstream.find((edge) => edge.action === reserve.action && edge.service === "stock") ??
          {};
          expect(same).toEqual(figures);
        }
      });

      test("the sums over actions are those over the entries of the range", async () => {
        for (const range of [wide, narrow]) {
          const query = { sources: [running.sources.shop], range, budget: createLargeBudget() } as const;
          const rows = await running.store.actions({ ...query, namespaces: [] }, createSignal());
          const entries = spans.filter(
            ({ site_id, entry, end }) => site_id === "shop" && entry && end >= range.from && end <= range.to,
          );
          const errors = entries.filter(({ status_code }) => status_code === "ERROR");
          expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(entries.length);
          expect(rows.reduce((sum, { error_count }) => sum + error_count, 0)).toBe(errors.length);
        }
      });
    });

    test("percentiles lie within 2 % of the order statistics around the rank", async () => {
      const lengths = Array.from({ length: 300 }, (_, n) => (n < 260 ? 1_000 + n * 7 : 50_000 + n * 311));
      const calls = lengths.map((micros, n) => ({
        ...plain,
        ...{
          id: formatId(n + 1),
          kind: "client" as const,
          parent: formatId(9_999),
          start: at(0),
          end: at(micros),
        },
        attributes: { "peer.service": "pay" },
      }));
      await running.seed(calls);
      const query = {
        sources: [running.sources.shop],
        partners: [],
        range: wide,
        budget: createLargeBudget(),
      } as const;
      const { downstream } = await running.store.siteEdges(query, createSignal());
      const [edge] = downstream;
      expect(edge).toMatchObject({ service: "pay", count: 300 });
      for (const [rank, value] of [
        [270, edge?.p_90],
        [285, edge?.p_95],
      ] as const) {
        expect(value).toBeGreaterThanOrEqual(((lengths[rank - 2] ?? 0) / 1_000) * 0.98);
        expect(value).toBeLessThanOrEqual(((lengths[rank] ?? 0) / 1_000) * 1.02);
      }
    });

    test("a trace of 10,000 spans comes whole", async () => {
      const children = Array.from({ length: 9_999 }, (_, n) => ({
        ...plain,
        ...{
          id: formatId(n + 1),
          parent: plain.id,
          kind: "internal" as const,
          name: `step ${n}`,
          end: at(n),
        },
      }));
      await running.seed([plain, ...children]);
      const found = await readAllSpans(find({ by: "trace", traceIds: [trace], select: "all" }));
      expect(new Set(found.map(({ span_id }) => span_id)).size).toBe(10_000);
    });
  });
}

// ---- Questions ----------------------------------------------------------------------------------------------

const orders = [
  ["time", "asc"],
  ["time", "desc"],
  ["duration", "asc"],
  ["duration", "desc"],
] as const;

function buildListing(sources: SpanSources): ListingQuery {
  return {
    sources,
    candidates: "requests",
    range: wide,
    filter: { query: { kind: "all" } },
    by: "time",
    order: "desc",
    expectedRows: 25,
    tieLimit: 10_000,
    budget: createLargeBudget(),
  };
}

function buildListings(spans: readonly Span[]): readonly (readonly [string, Partial<ListingQuery>])[] {
  const all = { kind: "all" } as const;
  const failed = spans.find(({ entry, events }) => entry && events.length > 0)?.trace_id;
  const digest = encodeActionDigest({ namespace: "web", action: "Cart#show" });
  /** A root with the only exception of its trace. */
  const broken = spans.find(
    ({ trace_id, parent_span_id, events }) =>
      parent_span_id === undefined &&
      events.some(isException) &&
      spans.filter((span) => span.trace_id === trace_id && span.events.some(isException)).length === 1,
  );
  const unnumbered = spans.flatMap((span) =>
    span.entry
      ? span.events.flatMap(({ name, attributes }) =>
          name === "exception" && attributes["appsignal.incident_digest"] === undefined
            ? [encodeErrorDigest(String(attributes["exception.type"]), deriveNames(span))]
            : [],
        )
      : [],
  );
  const [derived = ""] = unnumbered;
  const filters: readonly (readonly [string, ListingQuery["filter"]])[] = [
    ["of all", { query: all }],
    ["of a namespace", { namespace: "web", query: all }],
    ["of an action", { action: "Cart#show", query: all }],
    ["of a span's name as action", { action: "POST /reserve", query: all }],
    ["from a length on", { minDuration: 22_000_000n, query: all }],
    ["of one trace", { traceId: failed, query: all }],
    ["of an action's digest", { digests: [digest], query: all }],
    ["of an error's digest", { digests: ["digest-1", "unknown"], query: all }],
    ["of a tag", { query: parseTraceQuery("tag.region=eu") }],
    ["of a required tag and revision", { query: parseTraceQuery("revision=r1 tag.region=us") }],
    ["of required names", { query: parseTraceQuery('namespace=web action_name="Cart#show"') }],
    ["of a trace in the query", { query: parseTraceQuery(`trace_id=${failed} namespace!=x`) }],
    ["of a span", { query: parseTraceQuery(`span_id=${broken?.span_id}`) }],
    ["of the digest of an error of ours", { digests: [derived], query: all }],
    ["of other tags", { query: parseTraceQuery("tag.region!=eu revision:r") }],
    ["of either", { query: parseTraceQuery("revision=r1 OR (namespace=admin action_name!:Cart)") }],
    ["of a word", { query: parseTraceQuery("Cart") }],
  ];
  return filters.flatMap(([name, filter]) => [
    [`${name}: requests`, { filter }],
    [`${name}: requests of a part`, { filter, range: narrow, order: "asc" }],
    [`${name}: errors`, { filter, candidates: "errors" }],
    [
      `${name}: errors of a part by duration`,
      { filter, candidates: "errors", range: narrow, by: "duration" },
    ],
  ]);
}

const isException = ({ name }: { readonly name: string }): boolean => name === "exception";

interface AnalysisInput {
  readonly sources: SpanSources;
  readonly partners: readonly SpanSource[];
  readonly range: TimeRange;
  readonly budget: Budget;
}
type Analysis = (store: SpanAnalytics, asked: AnalysisInput) => Promise<unknown>;

const slow = { requiredAttributes: [], excludedAttributes: [], limit: 100 };
const analyses: readonly (readonly [string, Analysis])[] = [
  ["actions", (store, asked) => store.actions({ ...asked, namespaces: [] }, createSignal())],
  [
    "actions of a namespace and revision",
    (store, asked) =>
      store.actions({ ...asked, namespaces: ["web", "admin"], revision: "r1" }, createSignal()),
  ],
  [
    "one action",
    (store, asked) => store.actions({ ...asked, namespaces: [], action: "Cart#pay" }, createSignal()),
  ],
  ["site edges", (store, asked) => store.siteEdges(asked, createSignal())],
  ...(
    [
      ["shop-web", "web", "Cart#show"],
      ["stock", "web", "POST /reserve"],
      ["shop-worker", "background", "MailJob"],
    ] as const
  ).map(([service, namespace, action]): readonly [string, Analysis] => [
    `edges of ${action}`,
    (store, asked) => store.actionEdges({ ...asked, service, namespace, action }, createSignal()),
  ]),
  ["slow events", (store, asked) => store.slowEvents({ ...asked, ...slow }, createSignal())],
  ["the slowest event", (store, asked) => store.slowEvents({ ...asked, ...slow, limit: 1 }, createSignal())],
  [
    "slow events of a kind with an attribute",
    (store, asked) =>
      store.slowEvents(
        { ...asked, ...slow, kind: "client", requiredAttributes: ["db.system.name"] },
        createSignal(),
      ),
  ],
  [
    "slow events without an attribute",
    (store, asked) =>
      store.slowEvents({ ...asked, ...slow, excludedAttributes: ["db.system.name"] }, createSignal()),
  ],
  [
    "the actions of a slow event",
    (store, asked) => {
      const statement = hashStatement("select * from users where id = ?");
      const key = { service: "shop-web", kind: "client", name: "query", statement } as const;
      return store.slowEventActions({ ...asked, digest: encodeEventDigest(key) }, createSignal());
    },
  ],
  ["a revision", (store, asked) => store.revisionStats({ ...asked, revision: "r1" }, createSignal())],
  [
    "an unknown revision",
    (store, asked) => store.revisionStats({ ...asked, revision: "r9" }, createSignal()),
  ],
];

// ---- Reading and comparing ----------------------------------------------------------------------------------

function createLargeBudget(): Budget {
  return createBudget(1_000_000);
}

function createSignal(): AbortSignal {
  return new AbortController().signal;
}

async function readAllSpans(batches: AsyncIterable<readonly Span[]>): Promise<Span[]> {
  const spans: Span[] = [];
  for await (const batch of batches) {
    expect(batch.length).toBeGreaterThan(0);
    spans.push(...batch);
  }
  return spans;
}

async function readAllRows(batches: AsyncIterable<readonly TraceSummary[]>): Promise<TraceSummary[]> {
  const rows: TraceSummary[] = [];
  for await (const batch of batches) rows.push(...batch);
  return rows;
}

/** At least so many rows, and the rest of the last tie. */
async function readPages(store: SpanStore, query: ListingQuery, perPage: number): Promise<TraceSummary[]> {
  const rows: TraceSummary[] = [];
  for await (const batch of store.summaries({ ...query, expectedRows: perPage }, createSignal())) {
    for (const row of batch) {
      const last = rows.at(-1);
      if (rows.length >= perPage && last && deriveTie(query, row) !== deriveTie(query, last)) return rows;
      rows.push(row);
    }
  }
  return rows;
}

function formatKey({ site_id, trace_id, span_id }: Pick<Span, "site_id" | "trace_id" | "span_id">): string {
  return `${site_id} ${trace_id} ${span_id}`;
}

function sortRows<T>(rows: readonly T[]): T[] {
  return rows.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}

/** Equal but for the order of rows, the last digits of figures, and percentiles, which have a test of their own. */
function expectNearly(found: unknown, wanted: unknown): void {
  expect(roundNumbers(found)).toEqual(roundNumbers(wanted));
}

function roundNumbers(value: unknown): unknown {
  if (typeof value === "number") return Number(value.toPrecision(9));
  if (Array.isArray(value)) return sortRows(value.map(roundNumbers).map(toText));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      key === "p_90" || key === "p_95" || inner === undefined ? [] : [[key, roundNumbers(inner)]],
    ),
  );
}

function toText(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "bigint"
      ? `${inner}n`
      : typeof inner === "object" && inner !== null && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : inner,
  );
}
