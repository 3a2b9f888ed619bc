// Error documents of Elastic APM without a stored transaction: unsampled, dropped by tail-based sampling, or unaborted started.
// Which of them are standalone spans is derived here from the raw documents.
import { afterEach, describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span, TraceSummary } from "#src/core/rows.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { ListingQuery, SpanStore } from "#src/store/span-analytics.ts";
import type { SpanLookup } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader, createLookup, isInSelection } from "../../../conformance/trace-fixture.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { apm, apm7 } from "../../../support/elastic/span-shippers/apm.ts";
import type { SpanShipper } from "../../../support/elastic/span-shippers/shipper.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { sampleCases } from "../../../support/law-runs.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const start = Date.UTC(2026, 0, 15, 10);
const at = (millis: number): Instant => fromMillis(start + millis);
const unaborted = new AbortController().signal;
const createLargeBudget = () => createBudget(1_000_000);
const range = { from: at(-1_000), to: at(100_000) };

const common = (millis: number, service: string) => ({
  "@timestamp": new Date(start + millis).toISOString(),
  timestamp: { us: (start + millis) * 1_000 },
  agent: { name: "nodejs" },
  service: { name: service, version: "r1", environment: "prod" },
});
interface Place {
  readonly trace: string;
  readonly id: string;
  readonly parent?: string;
}
const request = (millis: number, { trace, id, parent }: Place, name = "GET /cart", service = "shop") => ({
  ...common(millis, service),
  processor: { event: "transaction", name: "transaction" },
  trace: { id: trace },
  ...(parent === undefined ? {} : { parent: { id: parent } }),
  event: { outcome: "success" },
  transaction: { id, name, type: "request", sampled: true, duration: { us: 5_000 } },
  span: { id },
});
const inner = (millis: number, { trace, id, parent = "" }: Place, transaction: string) => ({
  ...common(millis, "shop"),
  processor: { event: "span", name: "transaction" },
  trace: { id: trace },
  parent: { id: parent },
  transaction: { id: transaction },
  event: { outcome: "success" },
  span: { id, name: "render", type: "app", duration: { us: 1_000 } },
});
/** As agents send an error, also of an unsampled transaction, or outside any transaction. */
const error = (
  millis: number,
  id: string,
  in_: { trace?: string; parent?: string; transaction?: object & { id: string } } = {},
  more: object = {},
) => ({
  ...common(millis, "shop"),
  processor: { event: "error", name: "error" },
  ...(in_.trace === undefined ? {} : { trace: { id: in_.trace } }),
  ...(in_.parent === undefined ? {} : { parent: { id: in_.parent } }),
  ...(in_.transaction === undefined
    ? {}
    : { transaction: in_.transaction, span: { id: in_.transaction.id } }),
  error: {
    id,
    grouping_key: "7ec6bd5ec4a6b9b9f7cbd5e0a1a2a3a4",
    culprit: "pay (cart.js)",
    exception: [{ type: "CardError", message: "declined" }],
  },
  ...more,
});

type Document = Readonly<Record<string, unknown>>;

/** `lacks` are fields that no error has had yet, so that the mapping of their index has none. */
async function open(
  shipper: SpanShipper,
  documents: readonly Document[],
  { where, lacks = [] }: { readonly where?: string; readonly lacks?: readonly string[] } = {},
) {
  const indices: Record<string, FakeIndex> = {};
  for (const [name, definition] of Object.entries(shipper.indices("x"))) {
    const { mappings } = definition as { readonly mappings: { readonly properties: object } };
    const known = Object.entries(mappings.properties).filter(([field]) => !lacks.includes(field));
    const properties = name.includes("error") ? Object.fromEntries(known) : mappings.properties;
    const own = documents.filter(
      (document) => shipper === apm7 || name.includes("error") === "error" in document,
    );
    indices[name] = { mappings: { ...mappings, properties }, documents: own };
  }
  const search = createFakeSearch(indices, "Elasticsearch");
  const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  const source = buildSpanSource("shop", { index: shipper.pattern("x"), layout: "auto", where });
  return { store: cluster.traces, sources: [source] as const };
}
type Opened = Awaited<ReturnType<typeof open>>;

async function readAll<T>(batches: AsyncIterable<readonly T[]>): Promise<T[]> {
  return (await Array.fromAsync(batches)).flat();
}
const find = ({ store, sources }: Opened, of: SpanLookup["of"]) =>
  readAll(store.find({ sources, of, budget: createLargeBudget() }, new AbortController().signal));
const listing = (
  { store, sources }: { readonly store: Pick<SpanStore, "summaries">; readonly sources: Opened["sources"] },
  over: Partial<ListingQuery> & { readonly text?: string } = {},
): Promise<TraceSummary[]> => {
  const { text = "", filter = {}, ...rest } = over;
  const query: ListingQuery = {
    sources,
    range,
    candidates: "errors",
    by: "time",
    order: "asc",
    beyond: undefined,
    expectedRows: 100,
    tieLimit: 10_000,
    budget: createLargeBudget(),
    ...rest,
    filter: { ...filter, query: parseTraceQuery(text) },
  };
  return readAll(store.summaries(query, new AbortController().signal));
};
const idOf = (n: number, digits = 16) => n.toString(16).padStart(digits, "0");

describe("an APM error whose transaction is not stored", () => {
  const missing = { id: idOf(9), type: "request", name: "POST /pay", sampled: false };
  const trace = idOf(1, 32);
  const own = idOf(0xe1, 32);
  const unsampled = error(
    10,
    own,
    { trace, parent: missing.id, transaction: missing },
    {
      labels: { appsignal_tag_region: "eu" },
    },
  );

  test("becomes a span without length, named as its transaction, with its exception", async () => {
    const opened = await open(apm, [unsampled, request(0, { trace: idOf(2, 32), id: idOf(2) })]);
    const [span, ...others] = await find(opened, { by: "trace", traceIds: [trace], select: "all" });
    expect(others).toEqual([]);
    expect(span).toMatchObject({
      trace_id: trace,
      span_id: own,
      parent_span_id: missing.id,
      entry: true,
      report: true,
      start: at(10),
      end: at(10),
      service_name: "shop",
      revision: "r1",
      status_code: "ERROR",
      span_name: "POST /pay",
      span_kind: "server",
      tags: { region: "eu" },
      count: 1,
      events: [{ name: "exception", time: at(10), attributes: { "exception.type": "CardError" } }],
    });
  });

  test("is listed as an error of its action, found by filters, and never counted as a request", async () => {
    const opened = await open(apm, [unsampled, request(0, { trace: idOf(2, 32), id: idOf(2) })]);
    const row = { trace_id: trace, span_id: own, namespace: "web", action_name: "POST /pay", time: at(10) };
    expect(await listing(opened)).toMatchObject([{ ...row, duration: 0n, revision: "r1", has_npo: false }]);
    for (const text of [`span_id=${own}`, "tag.region=eu", `trace_id=${trace}`, "revision=r1", "pay"]) {
      expect([text, await listing(opened, { text })]).toMatchObject([text, [row]]);
    }
    for (const text of ["span_id=e2", "tag.region=us", "revision=r2"]) {
      expect([text, await listing(opened, { text })]).toEqual([text, []]);
    }
    expect(await listing(opened, { by: "duration", order: "desc" })).toMatchObject([row]);
    expect(await listing(opened, { range: { from: at(10), to: at(10) } })).toMatchObject([row]);
    expect(await listing(opened, { range: { from: at(11), to: at(99) } })).toEqual([]);
    expect(await listing(opened, { candidates: "requests" })).toMatchObject([{ trace_id: idOf(2, 32) }]);
    const { store, sources } = opened;
    const query = { sources, partners: [], range, namespaces: [], budget: createLargeBudget() };
    expect(await store.actions(query, unaborted)).toMatchObject([{ action: "GET /cart", count: 1 }]);
    expect(
      await store.locate({ sources, traceId: trace, budget: createLargeBudget() }, unaborted),
    ).toMatchObject({
      performance: [],
      errors: [{ site_id: "shop", exception_name: "CardError" }],
    });
  });

  test("outside any trace becomes a trace of its own under the error id", async () => {
    const standalone = error(20, own, {}, { agent: { name: "rum-js" } });
    const lacks = ["trace", "parent", "span", "transaction", "labels", "numeric_labels"];
    const opened = await open(apm, [standalone, error(30, idOf(0xe2, 32))], { lacks });
    expect(await listing(opened)).toMatchObject([
      { trace_id: own, span_id: own, namespace: "web", action_name: "CardError" },
      { trace_id: idOf(0xe2, 32), namespace: "background", action_name: "CardError" },
    ]);
    const failed = await opened.store.findTraceIdsWithExceptions?.(
      { sources: opened.sources, budget: createLargeBudget() },
      unaborted,
    );
    expect(failed?.toSorted()).toEqual([own, idOf(0xe2, 32)]);
    const [span] = await find(opened, { by: "trace", traceIds: [own], select: "all" });
    expect(span).toMatchObject({ span_id: own, parent_span_id: undefined });
  });

  test("belongs to no other trace, also when the trace id is too long for the index", async () => {
    const kept = error(20, idOf(0xe3, 32), { trace: idOf(2, 32), parent: idOf(2) });
    const opened = await open(apm, [unsampled, request(0, { trace: idOf(2, 32), id: idOf(2) }), kept]);
    // Longer than the `ignore_above` of trace ids.
    const long = "a".repeat(1_100);
    for (const select of ["all", "exceptions"] as const)
      expect(await find(opened, { by: "trace", traceIds: [long], select })).toEqual([]);
    const { store, sources } = opened;
    const nowhere = { performance: [], errors: [] };
    expect(await store.locate({ sources, traceId: long, budget: createLargeBudget() }, unaborted)).toEqual(
      nowhere,
    );
  });

  test("becomes a standalone span when the tenant filter excludes its transaction", async () => {
    const kept = request(0, { trace, id: idOf(5) }, "GET /cart", "other");
    const foreign = error(10, own, { trace, parent: idOf(5), transaction: { id: idOf(5) } });
    const opened = await open(apm, [kept, foreign], { where: 'service.name="shop"' });
    expect(await listing(opened)).toMatchObject([{ span_id: own, action_name: "CardError" }]);
    const whole = await open(apm, [kept, foreign]);
    expect(await listing(whole)).toMatchObject([{ span_id: idOf(5), action_name: "GET /cart" }]);
  });

  test("from an OTLP log record belongs to the span that it names", async () => {
    const named = error(2, own, { trace }, { span: { id: idOf(6) } });
    const opened = await open(apm, [
      request(0, { trace, id: idOf(5) }),
      inner(1, { trace, id: idOf(6), parent: idOf(5) }, idOf(5)),
      named,
    ]);
    const spans = await find(opened, { by: "trace", traceIds: [trace], select: "exceptions" });
    expect(spans).toMatchObject([{ span_id: idOf(6), report: false }]);
  });
});

/** Transactions, of which some are stored, spans below them, and errors that name any of them or none. */
function makeRandomDocuments(seed: number): readonly Document[] {
  let state = seed;
  const below = (limit: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * limit);
  };
  const documents: Document[] = [];
  for (let n = 1; n <= 40; n += 1) {
    const millis = below(2_000);
    const trace = idOf(1 + below(30), 32);
    const id = idOf(0x100 + n);
    const kept = below(3) > 0;
    const hasSpan = kept && below(2) === 0;
    const child = idOf(0x200 + n);
    const action = ["GET /cart", "POST /pay"][below(2)] ?? "";
    if (kept) documents.push(request(millis, { trace, id }, action));
    if (hasSpan) documents.push(inner(millis + 1, { trace, id: child, parent: id }, id));
    for (let many = below(3); many > 0; many -= 1) {
      const own = idOf(0xe000 + n * 8 + many, 32);
      const transaction = { id, type: "request", name: action, sampled: below(2) === 0 };
      const parent = below(3) === 0 ? child : id;
      const time = millis + below(50);
      const outside = below(5) === 0;
      documents.push(error(time, own, outside ? {} : { trace, parent, transaction }));
    }
  }
  return documents;
}

interface Ids {
  readonly trace?: { readonly id: string };
  readonly parent?: { readonly id: string };
  readonly span?: { readonly id: string };
  readonly transaction?: { readonly id: string; readonly duration?: object };
  readonly error?: { readonly id: string };
}

/** For each error the span that shows it: the nearest stored one, or the error itself. */
function derivePlaces(documents: readonly Ids[]): ReadonlyMap<string, string> {
  const kept = new Set(
    documents.flatMap(({ trace, span, transaction, error }) =>
      error === undefined ? [`${trace?.id} ${transaction?.duration ? transaction.id : span?.id}`] : [],
    ),
  );
  return new Map(
    documents.flatMap(({ trace, parent, transaction, error }) => {
      if (error === undefined) return [];
      const near = [parent?.id, transaction?.id].find((id) => kept.has(`${trace?.id} ${id}`));
      return [[error.id, `${trace?.id ?? error.id} ${near ?? error.id}`]];
    }),
  );
}

describe.each([apm, apm7])("$name: errors of stored and missing transactions", (shipper) => {
  test.each(sampleCases([1, 2], { share: 2 }))(
    "shows each error exactly once, at its nearest stored span; seed %i",
    async (seed) => {
      const documents = makeRandomDocuments(seed);
      const opened = await open(shipper, documents);
      const places = derivePlaces(documents);
      const traceIds = [...new Set([...places.values()].map((place) => place.slice(0, 32)))];
      const all = await find(opened, {
        by: "trace",
        traceIds: [...new Set([...traceIds, ...documents.flatMap((one) => (one as Ids).trace?.id ?? [])])],
        select: "all",
      });
      const shown = (spans: readonly Span[]) =>
        spans.flatMap(({ trace_id, span_id, events }) =>
          events.map(({ attributes }) => [attributes["error.id"], `${trace_id} ${span_id}`] as const),
        );
      const sorted = (pairs: readonly (readonly unknown[])[]) => pairs.map(String).sort();
      expect(sorted(shown(all))).toEqual(sorted([...places]));
      const { store, sources } = opened;
      const scan = (select: "all" | "entries" | "exceptions" | "children", over = range) =>
        readAll(
          store.scan(
            { sources, range: over, select, budget: createLargeBudget() },
            new AbortController().signal,
          ),
        );
      const keys = (spans: readonly Span[]) =>
        spans.map(({ trace_id, span_id }) => `${trace_id} ${span_id}`).sort();
      for (const over of [range, { from: at(500), to: at(1_200) }]) {
        const inRange = all.filter(({ end }) => end >= over.from && end <= over.to);
        for (const select of ["all", "entries", "exceptions", "children"] as const) {
          const wanted = inRange.filter((span) => isInSelection(select, span));
          expect([select, keys(await scan(select, over))]).toEqual([select, keys(wanted)]);
        }
      }
      for (const of of [
        { by: "trace", traceIds: traceIds.slice(0, 5), select: "exceptions" },
        { by: "id", spanIds: [...places.values()].map((place) => place.slice(33)) },
        { by: "span", spans: all },
        { by: "caller", spans: all },
      ] as const) {
        const wanted = all.filter(createLookup(of));
        expect([of.by, keys(await find(opened, of))]).toEqual([of.by, keys(wanted)]);
      }
      const expected = { store: createSpanAnalytics(createArrayReader(all)), sources };
      for (const over of [
        {},
        { order: "desc", by: "duration" },
        { candidates: "requests" },
        { range: { from: at(500), to: at(1_200) } },
        { text: 'action_name="POST /pay"' },
        { filter: { namespace: "web", query: parseTraceQuery("") } },
      ] as const) {
        const rows = await listing(opened, over);
        expect([over, rows]).toEqual([over, await listing(expected, over)]);
      }
      const query = { sources, partners: [], range, namespaces: [], budget: createLargeBudget() };
      expect((await store.actions(query, unaborted)).toSorted(compareByAction)).toEqual(
        (await expected.store.actions(query, unaborted)).toSorted(compareByAction),
      );
    },
  );
});

function compareByAction(a: { readonly action: string }, b: { readonly action: string }): number {
  return a.action < b.action ? -1 : 1;
}
