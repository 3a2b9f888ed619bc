// Difficult cases of reading spans on real servers: another tenant in the same indices, unusual spellings of ids, values
// that are not indexed, indices that appear during a read, and several layouts behind one pattern.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import type { ListingQuery } from "#src/store/span-analytics.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { normaliseId } from "#src/tracing/spans/span-ids.ts";
import { toSpan } from "../../conformance/trace-fixture.ts";
import { apm } from "../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../support/elastic/span-shippers/data-prepper.ts";
import { jaeger, jaegerFields } from "../../support/elastic/span-shippers/jaeger.ts";
import { otel } from "../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../support/elastic/span-shippers/shipper.ts";
import { ss4oBare } from "../../support/elastic/span-shippers/ss4o.ts";
import { onServers } from "../selected-servers.ts";
import { at, id, make, never, plenty, range, start, trace, useSpanCluster } from "./span-cluster.ts";

type Json = Readonly<Record<string, unknown>>;

const tenantFields: readonly (readonly [SpanShipper, string])[] = [
  [otel, "resource.attributes.service.name"],
  [apm, "service.name"],
  [dataPrepper, "serviceName"],
  [ss4oBare, "resource.service.name.keyword"],
  [jaeger, "process.serviceName"],
];

onServers((server) => {
  const store = useSpanCluster(server.url, "hurt");
  const { prefix, source, write, empty, find, scan } = store;

  /** Whether the layout is in use on such a server. */
  const here = (shipper: SpanShipper): boolean => {
    if (shipper === jaeger) return true;
    if (server.product === "opensearch") return shipper === dataPrepper || shipper === ss4oBare;
    return shipper === apm || (shipper === otel && !server.version.startsWith("7"));
  };

  test.each(tenantFields.filter(([shipper]) => here(shipper)))(
    "finds a tag however the index stores it: $name",
    async (shipper) => {
      const texts = ["eu", "EU", "Ä b", "5", "05", "5.0", "1e3", "true", "0", "-0", "x".repeat(2_000)];
      const numbers = [5, 0.5, 1_000, -7, 0, 12_345_678_901];
      const lists = [
        ["eu", "us"],
        ["a", "5"],
      ];
      // The first document decides the mapping of a field.
      const tags = [
        ...[...texts, ...lists, ...numbers, true].map((value) => ({ "some.key": value })),
        ...numbers.toReversed().map((value) => ({ size: value })),
      ];
      await empty(shipper);
      const models = tags.map((tag, n) => {
        const [[name, value] = ["", ""]] = Object.entries(tag);
        return make({
          trace: (n + 1).toString(16).padStart(32, "0"),
          id: id(n + 1),
          attributes: { [`appsignal.tag.${name}`]: value, "appsignal.tag.other": "x" },
        });
      });
      // Written alone, because shards that see a new field at the same time may map it as different types.
      const firsts = [0, tags.findIndex((tag) => "size" in tag)].map((n) => models.slice(n, n + 1));
      for (const first of firsts) await write(shipper, first);
      await write(
        shipper,
        models.filter((model) => !firsts.flat().includes(model)),
      );
      const spans = await scan(source(shipper), "entries");
      expect(spans).toHaveLength(tags.length);
      const textsOf = ({ tags }: Span): readonly string[] =>
        Object.entries(tags).flatMap(([name, value]) => [value].flat().map((one) => `${name} ${one}`));
      const sought = new Set(spans.flatMap(textsOf));
      expect(sought.size).toBeGreaterThan(15);
      for (const text of sought) {
        const [name = "", ...value] = text.split(" ");
        const leaf = parseTraceQuery(`tag.${name}=${JSON.stringify(value.join(" "))}`);
        const query: ListingQuery = {
          sources: [source(shipper)],
          candidates: "requests",
          range,
          filter: { query: leaf },
          by: "time",
          order: "asc",
          expectedRows: 100,
          tieLimit: 100,
          budget: plenty(),
          beyond: undefined,
        };
        const found: string[] = [];
        for await (const rows of store.cluster.traces.summaries(query, never))
          found.push(...rows.map(({ span_id }) => span_id));
        const expected = spans.filter((span) => textsOf(span).includes(text)).map(({ span_id }) => span_id);
        expect([text, found.sort()]).toEqual([text, expected.sort()]);
      }
    },
  );

  test.each(tenantFields.filter(([shipper]) => here(shipper)))(
    "hides another tenant in the same index and trace: $name",
    async (shipper, field) => {
      const secret = "the other's";
      const mine = make({
        events: [{ name: "exception", time: at(5), attributes: { "exception.type": "Mine" } }],
      });
      const call = make({
        id: id(0xa2),
        parent: mine.id,
        kind: "client",
        name: "query",
        attributes: { "db.query.text": "SELECT 1" },
      });
      const theirs = [
        // Equal ids as well: a child of the own span, a request that it called, and the own span itself.
        make({
          id: id(0xb1),
          parent: mine.id,
          kind: "client",
          name: secret,
          attributes: { "db.query.text": "SELECT 2" },
        }),
        make({ id: id(0xb2), parent: call.id, name: secret }),
        make({
          id: id(0xb3),
          trace: "f".repeat(32),
          kind: "consumer",
          name: secret,
          links: [{ trace_id: trace, span_id: call.id, trace_state: "", attributes: {} }],
        }),
        make({
          name: secret,
          start: at(1),
          events: [{ name: "exception", time: at(6), attributes: { "exception.type": secret } }],
        }),
      ].map((span) => ({ ...span, service: "blog-web" }));
      await empty(shipper);
      await write(shipper, [mine, call, ...theirs]);
      const filteredSource = source(shipper, { tenantFilter: `${field}="shop-web"` });

      const selections = ["all", "entries", "children", "calls", "exceptions", "statements"] as const;
      const spans = [mine, call, ...theirs].map((span) => ({ trace_id: span.trace, span_id: span.id }));
      const traceIds = [trace, "f".repeat(32)];
      const found = [
        ...(await Promise.all(selections.map((select) => scan(filteredSource, select)))),
        ...(await Promise.all(
          selections.map((select) => find(filteredSource, { by: "trace", traceIds, select })),
        )),
        await find(filteredSource, { by: "span", spans }),
        await find(filteredSource, { by: "caller", spans }),
      ];
      expect(found[0]).toHaveLength(2);
      expect(found[6]).toHaveLength(2);
      expect(found.flat().filter(({ service_name }) => service_name !== "shop-web")).toEqual([]);
      expect(
        JSON.stringify(found, (_, value) => (typeof value === "bigint" ? String(value) : value)),
      ).not.toContain(secret);
      const query = {
        sources: [filteredSource] as const,
        partners: [],
        range,
        budget: plenty(),
        namespaces: [],
      };
      const answers = [
        await store.cluster.traces.locate({ ...query, traceId: trace }, never),
        await store.cluster.traces.actions(query, never),
        await store.cluster.traces.siteEdges(query, never),
        await store.cluster.traces.slowEvents(
          { ...query, requiredAttributes: [], excludedAttributes: [], limit: 10 },
          never,
        ),
      ];
      expect(JSON.stringify(answers)).toContain("Mine");
      expect(JSON.stringify(answers)).not.toContain(secret);
      // Without the tenant filter everything is found, so it was the filter that hid it.
      expect(await scan(source(shipper))).toHaveLength(6);
      await expect(scan(source(shipper, { tenantFilter: `${field}:shop` }))).rejects.toMatchObject({
        slug: "not_supported_by_backend",
      });
    },
  );

  describe("Jaeger spans", () => {
    test("finds ids in upper case or without zeros and answers one spelling", async () => {
      await empty(jaegerFields);
      const spelled = [
        { trace: "af7651916cd43dd", id: "a1", parent: undefined },
        { trace: "0AF7651916CD43DD", id: "00000000000000A2", parent: "A1" },
        { trace: trace.toUpperCase(), id: "A3", parent: "00000000000000a1" },
      ];
      const documents = spelled.map((ids) => ({
        ...(JSON.parse(jaegerFields.write("", [toSpan(make({}))])[0]?.document ?? "") as object),
        traceID: ids.trace,
        spanID: ids.id,
        parentSpanID: ids.parent,
        references: [],
      }));
      const [index = ""] = Object.keys(jaegerFields.indices(prefix));
      await store.cluster.write(
        index,
        documents.map((document) => [undefined, JSON.stringify(document)]),
      );
      const from = source(jaegerFields);
      const ids = [id(0xa1), id(0xa2), id(0xa3)];
      const many = Array.from({ length: 50 }, (_, n) => ({ trace_id: trace, span_id: id(0xf000 + n) }));
      const of = (span_id: string) => ({ trace_id: trace, span_id });
      for (const found of [
        await find(from, { by: "trace", traceIds: [trace], select: "all" }),
        await find(from, {
          by: "trace",
          traceIds: [trace, ...many.map((_, n) => id(n).repeat(2))],
          select: "all",
        }),
        await find(from, { by: "span", spans: ids.map(of) }),
        await find(from, { by: "span", spans: [...many, ...ids.map(of)] }),
      ]) {
        expect(found.map(({ span_id }) => span_id).sort()).toEqual(ids);
        expect(new Set(found.map(({ trace_id }) => trace_id))).toEqual(new Set([trace]));
        expect(found.filter(({ parent_span_id }) => parent_span_id === id(0xa1))).toHaveLength(2);
      }
      const called = await find(from, { by: "caller", spans: [...many, of(id(0xa1))] });
      // The first span is a server: a client span of that id would be the other side of its call.
      expect(called.map(({ span_id }) => span_id).sort()).toEqual(ids);
    });

    test("distinguishes ids of another alphabet by case", async () => {
      await empty(jaegerFields);
      const traces = ["aB3dE12f", "ab3de12f", "AB3DE12F0", "V1StGXR8_Z5jdHi6B-myT", "v1stgxr8_z5jdhi6b-myt"];
      const documents = traces.map((traceID, n) => ({
        ...(JSON.parse(jaegerFields.write("", [toSpan(make({}))])[0]?.document ?? "") as object),
        traceID,
        spanID: `${n}`,
        parentSpanID: undefined,
        references: [],
      }));
      const [index = ""] = Object.keys(jaegerFields.indices(prefix));
      await store.cluster.write(
        index,
        documents.map((document) => [undefined, JSON.stringify(document)]),
      );
      const others = Array.from({ length: 50 }, (_, n) => id(0xf000 + n).repeat(2));
      for (const [n, trace] of traces.entries()) {
        const trace_id = normaliseId(trace, 32);
        for (const traceIds of [[trace_id], [trace_id, ...others]]) {
          const found = await find(source(jaegerFields), { by: "trace", traceIds, select: "all" });
          expect(found.map((span) => [span.trace_id, span.span_id])).toEqual([[trace_id, id(n)]]);
        }
      }
    });

    test("reads tags beyond the index limit, big integers and missing roots", async () => {
      await empty(jaeger);
      const long = "x".repeat(5_000);
      const model = make({
        parent: id(0xdead),
        attributes: {
          "appsignal.tag.long": long,
          "db.query.text": long,
          big: 9_007_199_254_740_993n,
          "a.b.c": 1,
        },
        kind: "client",
        events: [{ name: "exception", time: at(1), attributes: { "exception.message": long } }],
      });
      await write(jaeger, [model]);
      for (const select of ["all", "children", "calls", "statements", "exceptions"] as const) {
        const [found] = await scan(source(jaeger), select);
        expect(found).toMatchObject({
          span_attributes: model.attributes,
          tags: { long },
          statement: long,
          entry: false,
        });
      }
      expect(await scan(source(jaeger), "entries")).toEqual([]);
    });
  });

  test.each([
    ["texts", 0],
    ["numbers", 3],
    ["booleans", 7],
  ])("aggregates the same figures as reading, over attributes as %s", async (_, first) => {
    const [shipper, attributes, parent, length] =
      server.product === "elasticsearch"
        ? ([apm, "labels", "parent.id", "transaction.duration.us"] as const)
        : ([dataPrepper, "attributes", "parentSpanId", "durationInNanos"] as const);
    const action = shipper === apm ? "appsignal_action_name" : "appsignal.action_name";
    const long = "x".repeat(2_000);
    const strange: readonly Readonly<Record<string, unknown>>[] = [
      ...[
        "A",
        "7",
        "007",
        7,
        1.5,
        "1.5",
        "1e3",
        true,
        "true",
        ["A"],
        ["A", "B"],
        [null, "A"],
        [],
        "",
        null,
        long,
      ].map((value) => ({ [`${attributes}.${action}`]: value })),
      { [attributes]: { [action]: "A" } },
      ...["", "0000", [""], ["", id(3)], id(3)].map((value) => ({ [parent]: value })),
      ...[["GET /", "GET /cart"], long, "404", ""].map((value) => ({
        [shipper === apm ? "transaction.name" : "name"]: value,
      })),
      ...[0, "12", 12.7, 5e15].map((value) => ({ [length]: value })),
      ...(shipper === apm ? [] : [{ kind: ["SPAN_KIND_SERVER", "SPAN_KIND_CLIENT"] }, { kind: "odd" }]),
    ];
    await empty(shipper);
    const [index = ""] = Object.keys(shipper.indices(prefix));
    const documents = strange.map((fields, n) => {
      const [shipped] = shipper.write(prefix, [toSpan(make({ id: id(n + 1), trace: id(n + 1).repeat(2) }))]);
      return JSON.stringify({ ...(JSON.parse(shipped?.document ?? "") as object), ...fields });
    });
    // One document is written first: in one bulk over several shards, any of them could decide the type of the action.
    const bulk = (some: readonly string[]) =>
      store.cluster.request(
        "POST",
        `/${index}/_bulk?refresh=true`,
        some.map((document) => `{"create":{}}\n${document}\n`).join(""),
      );
    await bulk(documents.slice(first, first + 1));
    // A mapping may reject an unusual value, which is then missing for both.
    await bulk(documents.toSpliced(first, 1));
    const from = source(shipper);
    const { scan: plain, find: look } = store.cluster.traces;
    const defined = createSpanAnalytics({ scan: plain, find: look });
    const query = { sources: [from] as const, range: { from: at(-1), to: at(100_000) }, namespaces: [] };
    const sorted = (rows: readonly unknown[]) => rows.map((row) => JSON.stringify(row)).sort();
    const [native, read] = [
      await store.cluster.traces.actions({ ...query, budget: plenty() }, never),
      await defined.actions({ ...query, budget: plenty() }, never),
    ];
    expect(read.length).toBeGreaterThan(1);
    expect(sorted(native)).toEqual(sorted(read));
    const events = { ...query, requiredAttributes: [], excludedAttributes: [], limit: 100 };
    expect(sorted(await store.cluster.traces.slowEvents({ ...events, budget: plenty() }, never))).toEqual(
      sorted(await defined.slowEvents({ ...events, budget: plenty() }, never)),
    );
  });

  if (here(otel)) {
    test("otel: assigns an exception to the server span of a shared id", async () => {
      const event = { name: "exception", time: at(5), attributes: { "exception.type": "E" } };
      const call = make({ parent: id(1), kind: "client" });
      const called = make({ parent: id(1), kind: "server", start: at(1), end: at(9), events: [event] });
      for (const written of [
        [call, called],
        [called, call],
      ]) {
        await empty(otel);
        await write(otel, written);
        for (const spans of [
          await find(source(otel), { by: "trace", traceIds: [trace], select: "all" }),
          await scan(source(otel)),
          await scan(source(otel), "exceptions"),
        ]) {
          const failed = spans.filter(({ events }) => events.length > 0);
          expect(failed.map(({ span_kind }) => span_kind)).toEqual(["server"]);
        }
      }
    });
  }

  if (here(apm)) {
    test("apm: assigns an exception to its nearest existing span, or to itself", async () => {
      await empty(apm);
      const request = make({});
      const child = make({ id: id(2), parent: request.id, kind: "client", name: "query" });
      const lone = "e5".padStart(32, "0");
      await write(apm, [request, child]);
      const error = (parent: string, n: number) =>
        JSON.stringify({
          "@timestamp": new Date(start + n).toISOString(),
          timestamp: { us: (start + n) * 1_000 },
          trace: { id: trace },
          parent: { id: parent },
          transaction: { id: request.id },
          service: { name: "shop-web" },
          error: { id: `e${n}`, grouping_key: "g", exception: [{ type: `E${n}`, message: "boom" }] },
        });
      const lost = JSON.stringify({
        ...(JSON.parse(error(id(7), 4)) as object),
        transaction: { id: id(8), name: "POST /pay", type: "request", sampled: false },
      });
      const { trace: _, parent: __, transaction: ___, ...outside } = JSON.parse(error(id(7), 5)) as Json;
      const [, errors = ""] = Object.keys(apm.indices(prefix));
      await store.cluster.write(errors, [
        [undefined, error(child.id, 1)],
        [undefined, error(request.id, 2)],
        [undefined, error(id(9), 3)],
        [undefined, lost],
        [undefined, JSON.stringify(outside)],
      ]);
      const types = (span: Span | undefined) =>
        span?.events.map(({ attributes }) => attributes["exception.type"]);
      for (const spans of [
        await find(source(apm), { by: "trace", traceIds: [trace, lone], select: "exceptions" }),
        await find(source(apm), { by: "trace", traceIds: [trace, lone], select: "all" }),
        await scan(source(apm), "exceptions"),
        await scan(source(apm)),
        // One at a time: the owner of an event must not depend on what is read together.
        [
          ...(await find(source(apm), { by: "span", spans: [{ trace_id: trace, span_id: request.id }] })),
          ...(await find(source(apm), { by: "span", spans: [{ trace_id: trace, span_id: child.id }] })),
          ...(await find(source(apm), { by: "id", spanIds: ["00000000000000e4", "00000000000000e5"] })),
        ],
      ]) {
        expect(types(spans.find(({ span_id }) => span_id === request.id))).toEqual(["E2", "E3"]);
        expect(types(spans.find(({ span_id }) => span_id === child.id))).toEqual(["E1"]);
        const alone = spans.filter(({ report }) => report);
        expect(alone.flatMap(types)).toEqual(expect.arrayContaining(["E4", "E5"]));
        expect(alone.map(({ trace_id, span_name }) => `${trace_id} ${span_name}`).sort()).toEqual(
          [`${trace} POST /pay`, `${lone} E5`].sort(),
        );
        expect(spans).toHaveLength(4);
      }
      const requests = await scan(source(apm), "entries");
      expect(requests.map(({ span_id }) => span_id)).toEqual([request.id]);
      const failed = { sources: [source(apm)] as const, budget: plenty() };
      expect((await store.cluster.traces.findTraceIdsWithExceptions?.(failed, never))?.toSorted()).toEqual(
        [lone, trace].sort(),
      );
    });
  }
});
