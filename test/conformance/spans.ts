// The conformance suite of span stores. A subject is a store on a server with a data layout. It writes the spans of the model
// (`trace-fixture.ts`) as a shipper of that layout does. Native answers are compared with the definition over the model.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Span, TraceSummary } from "#src/core/rows.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { ListingQuery, SpanStore } from "#src/store/span-analytics.ts";
import type { SpanLookup, SpanScan, SpanSource, SpanSources } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { compareRows, deriveTie } from "#src/tracing/listing/listing.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import {
  analyses,
  buildListing,
  buildListings,
  createLargeBudget,
  createSignal,
  expectNearly,
  formatKey,
  isException,
  narrow,
  orders,
  readAllRows,
  readAllSpans,
  readPages,
  sortRows,
  wide,
} from "./span-queries.ts";
import {
  createArrayReader,
  createLookup,
  isInSelection,
  isOfReadTrace,
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
  /** Replaces all spans. Resolves when they can be found. */
  readonly seed: (spans: readonly ModelSpan[]) => Promise<void>;
  readonly stop: () => Promise<void>;
}

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

/** Runs the suite. `rounds` is the number of random sets of traces that are written and queried. */
export function spanStoreSuite(subject: TracingSubject, rounds = 2): void {
  const lacks = Object.keys(subject.lacks).filter((part): part is ModelPart => part in removeParts);
  const reduce = (span: ModelSpan): ModelSpan => lacks.reduce((left, part) => removeParts[part](left), span);

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

    describe("reading spans", () => {
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
          // Another millisecond, because servers return separate events of one time in any order.
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

      test("returns spans as they were written", async () => {
        const written = [rich, compressed].map(reduce);
        await running.seed([rich, compressed]);
        const found = await readAllSpans(find({ by: "trace", traceIds: [trace], select: "all" }));
        for (const model of written) {
          const span = found.find(({ span_id }) => span_id === model.id);
          const { resource_attributes, span_attributes, events, ...rest } = toSpan(model);
          // A shipper may add attributes of its own, but drops and changes none.
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

      test.each(Object.entries(subject.lacks))("does not carry %s (%s)", async (part) => {
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

      test("leaves out absent fields: parent, revision, message, events", async () => {
        await running.seed([plain]);
        const [found] = await readAllSpans(scan());
        expect(found).toMatchObject({ entry: true, events: [], links: [], tags: {}, count: 1 });
        expect(found).toMatchObject({ parent_span_id: undefined, revision: undefined, namespace: undefined });
      });
    });

    describe("scan and find", () => {
      test("scan selects by the end of a span, both bounds inclusive, whatever its length", async () => {
        const spans = [0, 1, 2, 3].map((n) => ({ ...plain, id: formatId(n + 1), end: at(n) }));
        const long = {
          ...plain,
          id: formatId(9),
          start: fromMillis(midnight - 40 * 86_400_000),
          end: at(2),
        };
        await running.seed([...spans.map((span) => ({ ...span, start: fromMillis(midnight - 1) })), long]);
        const found = await readAllSpans(scan({ range: { from: at(1), to: at(2) } }));
        expect(found.map(({ span_id }) => span_id).sort()).toEqual([formatId(2), formatId(3), formatId(9)]);
      });

      test("scan returns only spans of the source's site, each once", async () => {
        await running.seed(makeTraces(1, 20));
        const { shop, blog } = running.sources;
        const own = await readAllSpans(scan({ sources: [shop] }));
        expect(new Set(own.map(({ site_id }) => site_id))).toEqual(new Set(["shop"]));
        const both = await readAllSpans(scan({ sources: [shop, blog, shop] }));
        expect(new Set(both.map(formatKey)).size).toBe(both.length);
        expect(both.length).toBeGreaterThan(own.length);
      });

      test("find accepts thousands of ids, most of them unknown", async () => {
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

      test("find returns nothing for unknown traces, and a spent budget refuses", async () => {
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

      test("rejects with the reason of an aborted signal", async () => {
        await running.seed(makeTraces(3, 5));
        const reason = new Error("enough");
        await expect(readAllSpans(scan({}, AbortSignal.abort(reason)))).rejects.toBe(reason);
        const listing = running.store.summaries(buildListing(all()), AbortSignal.abort(reason));
        await expect(readAllRows(listing)).rejects.toBe(reason);
      });
    });

    describe.each(Array.from({ length: rounds }, (_, n) => n + 10))("random traces of seed %i", (seed) => {
      const models = makeTraces(seed, 60);
      const spans = models.map((model) => toSpan(reduce(model)));
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

      test("find looks up by trace, span, id and caller", async () => {
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
          const wanted = spans.filter(createLookup(of));
          expect(found.map(formatKey).sort()).toEqual(wanted.map(formatKey).sort());
        }
      });

      test.each([
        { by: "caller", spans },
        { by: "trace", traceIds: [...new Set(spans.map(({ trace_id }) => trace_id))], select: "all" },
      ] as const)(
        "find by $by omits only spans whose end lies in the range that it may leave out",
        async (of) => {
          const query = { sources: all(), of, outside: narrow, budget: createLargeBudget() };
          const found = (await readAllSpans(running.store.find(query, createSignal()))).map(formatKey);
          const wanted = spans.filter(createLookup(of));
          const left = wanted.filter(({ end }) => end < narrow.from || end > narrow.to);
          expect(left.length).toBeGreaterThan(0);
          expect(wanted.map(formatKey)).toEqual(expect.arrayContaining(found));
          expect(found).toEqual(expect.arrayContaining(left.map(formatKey)));
        },
      );

      test.each([undefined, narrow])(
        "find by caller may omit spans of traces that have been read, and no others: outside %o",
        async (outside) => {
          const callers = spans.filter(({ span_kind }) => span_kind === "producer");
          const of = { by: "caller", spans: callers, areTracesRead: true } as const;
          const query = { sources: all(), of, outside, budget: createLargeBudget() };
          const found = (await readAllSpans(running.store.find(query, createSignal()))).map(formatKey);
          const wanted = spans.filter(createLookup({ ...of, areTracesRead: false }));
          const left = wanted.filter(
            (span) =>
              !isOfReadTrace(of, span) &&
              (outside === undefined || span.end < outside.from || span.end > outside.to),
          );
          // Some layouts have no links.
          if (outside === undefined && spans.some(({ links }) => links.length > 0))
            expect(left.length).toBeGreaterThan(0);
          expect(wanted.map(formatKey)).toEqual(expect.arrayContaining(found));
          expect(found).toEqual(expect.arrayContaining(left.map(formatKey)));
        },
      );

      test("lists all traces with an exception, of a type or digest, and builds the error listing from them", async () => {
        const { store } = running;
        if (store.findTraceIdsWithExceptions === undefined) return;
        const failing = (accepts: (attributes: Span["span_attributes"]) => boolean): readonly string[] =>
          spans
            .filter(({ events }) => events.some((event) => isException(event) && accepts(event.attributes)))
            .map(({ trace_id }) => trace_id);
        const listFailed = (errors?: readonly { readonly digest: string; readonly exception?: string }[]) =>
          store.findTraceIdsWithExceptions?.(
            { sources: all(), errors, budget: createLargeBudget() },
            createSignal(),
          );
        expect(await listFailed()).toEqual(expect.arrayContaining([...failing(() => true)]));
        const chosen = failing((own) => {
          return own["exception.type"] === "Timeout" || own["appsignal.incident_digest"] === "digest-1";
        });
        const found = await listFailed([{ digest: "digest-1" }, { digest: "unknown", exception: "Timeout" }]);
        expect(found).toEqual(expect.arrayContaining([...chosen]));
        // Without a count, the store does not know that the range has few requests.
        const unknowing = createSpanAnalytics({ ...store, count: async () => undefined });
        // A fifth of the filters: `tracing/listing/windows.test.ts` tests all of them over such a store.
        const some = buildListings(spans).filter((_, at) => at % 5 === 0);
        for (const [name, { filter = buildListing(all()).filter }] of some) {
          const query: ListingQuery = {
            ...buildListing(all()),
            filter,
            candidates: "errors",
            by: "duration",
            range: narrow,
          };
          const rows = await readAllRows(unknowing.summaries(query, createSignal()));
          const wanted = await readAllRows(
            expected.summaries({ ...query, budget: createLargeBudget() }, createSignal()),
          );
          expect([name, rows]).toEqual([name, wanted]);
        }
      });

      test.each(buildListings(spans))("lists traces %s", async (_, over) => {
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

      test.each(orders)("pages by %s %s add up to the whole listing", async (by, order) => {
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

      test("ends a batch of the listing only between two milliseconds or two durations", async () => {
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

      test("refuses a listing with too many rows in one tie", async () => {
        const query = { ...buildListing(all()), by: "duration", tieLimit: 1 } as const;
        await expect(readAllRows(running.store.summaries(query, createSignal()))).rejects.toMatchObject({
          slug: "result_too_large",
          details: { limit: 1 },
        });
      });

      test("finds every listed trace by its id and locates it", async () => {
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

      test.each(analyses)("analyses %s as the definition does", async (_, analyse) => {
        for (const range of [wide, narrow]) {
          const { shop, stock, blog } = running.sources;
          for (const site of [shop, stock]) {
            const partners = [shop, stock, blog].filter((other) => other !== site);
            const [found, wanted] = [
              await analyse(running.store, { sources: [site], partners, range, budget: createLargeBudget() }),
              await analyse(expected, { sources: [site], partners, range, budget: createLargeBudget() }),
            ];
            expectNearly(found, wanted);
          }
        }
      });

      test("the downstream edges of a site equal the upstream edges of its partner", async () => {
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
          const edge = { service, namespace, action, budget: createLargeBudget() };
          const made = await running.store.actionEdges({ ...down, ...edge }, createSignal());
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

      test("the sums over actions equal those over the entries of the range", async () => {
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
        id: formatId(n + 1),
        kind: "client" as const,
        parent: formatId(9_999),
        start: at(0),
        end: at(micros),
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

    test("returns a trace of 10,000 spans completely", async () => {
      const children = Array.from({ length: 9_999 }, (_, n) => ({
        ...plain,
        id: formatId(n + 1),
        parent: plain.id,
        kind: "internal" as const,
        name: `step ${n}`,
        end: at(n),
      }));
      await running.seed([plain, ...children]);
      const found = await readAllSpans(find({ by: "trace", traceIds: [trace], select: "all" }));
      expect(new Set(found.map(({ span_id }) => span_id)).size).toBe(10_000);
    });
  });
}
