// Spans on real servers while indices appear, gain fields, are closed or hold several layouts, and what `check` reports of them.
import { describe, expect, test } from "vitest";
import { spanLayouts } from "#resolvers/elastic/layout/span-layout.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { type BackendRequest, runWithRecorder } from "#src/telemetry/request-recorder.ts";
import { toSpan } from "../../conformance/trace-fixture.ts";
import { apm } from "../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../support/elastic/span-shippers/data-prepper.ts";
import { jaegerFields } from "../../support/elastic/span-shippers/jaeger.ts";
import { otel } from "../../support/elastic/span-shippers/otel.ts";
import { ss4oBare } from "../../support/elastic/span-shippers/ss4o.ts";
import { onServers } from "../selected-servers.ts";
import {
  at,
  chooseShipper,
  id,
  make,
  never,
  plenty,
  range,
  start,
  trace,
  useSpanCluster,
} from "./span-cluster.ts";

onServers((server) => {
  const store = useSpanCluster(server.url, "changing");
  const { prefix, source, write, empty, find, scan } = store;

  describe("span store, changing indices", () => {
    test("reads an index that appears during the read, within the tenant filter", async () => {
      const shipper = server.product === "elasticsearch" ? apm : dataPrepper;
      const field = shipper === apm ? "service.name" : "serviceName";
      await empty(shipper);
      await write(shipper, [make({})]);
      const from = source(shipper, { tenantFilter: `${field}="shop-web"` });
      expect(await scan(from)).toHaveLength(1);
      for (const [index, definition] of Object.entries(shipper.indices(prefix))) {
        const next = `${index}-next`;
        await store.cluster.createIndex(next, definition);
        const documents = shipper
          .write(prefix, [make({ id: id(2) }), make({ id: id(3), service: "blog-web" })].map(toSpan))
          .filter((shipped) => shipped.index === index);
        await store.cluster.write(
          next,
          documents.map(({ document }) => [undefined, document]),
        );
      }
      expect((await scan(from)).map(({ span_id }) => span_id).sort()).toEqual([id(2), id(0xa1)]);
      expect(await find(from, { by: "span", spans: [{ trace_id: trace, span_id: id(3) }] })).toEqual([]);
    });

    test("reads spans and exceptions that become mapped during the read", async () => {
      await empty(ss4oBare);
      await store.cluster.remove(`${prefix}-*`);
      const bare = { mappings: { properties: { "@timestamp": { type: "date" } } } };
      for (const index of Object.keys(otel.indices(prefix))) await store.cluster.createIndex(index, bare);
      const from = source(otel);
      expect(await scan(from)).toEqual([]);
      await write(otel, [make({})]);
      expect(await scan(from)).toHaveLength(1);
      expect(await scan(from, "exceptions")).toEqual([]);
      const failed = make({
        id: id(2),
        events: [{ name: "exception", time: at(5), attributes: { "exception.type": "E" } }],
      });
      await write(otel, [failed]);
      expect((await scan(from, "exceptions")).map(({ span_id }) => span_id)).toEqual([id(2)]);
    });

    test("finds attributes that a template hides and that become mapped during the read", async () => {
      await empty(dataPrepper);
      const templates = {
        short: { type: "keyword", ignore_above: 3 },
        blind: { type: "keyword", index: false, doc_values: false },
        number: { type: "long", ignore_malformed: true },
      };
      const dynamic_templates = Object.entries(templates).map(([name, mapping]) => ({
        [name]: { path_match: `attributes.appsignal.tag.${name}`, mapping },
      }));
      for (const index of Object.keys(dataPrepper.indices(prefix)))
        await store.cluster.request("PUT", `/${index}/_mapping`, JSON.stringify({ dynamic_templates }));
      const findTagged = async (name: string) => {
        const pushdown = { tags: [{ name, value: "longer" }] };
        const query = { sources: [source(dataPrepper)], range, select: "all", pushdown } as const;
        const read = { ...query, budget: plenty() } as const;
        const found = await Array.fromAsync(store.cluster.traces.scan(read, new AbortController().signal));
        return found.flat().map(({ span_id }) => span_id);
      };
      await write(dataPrepper, [make({})]);
      for (const name of Object.keys(templates)) await findTagged(name);
      for (const [n, name] of Object.keys(templates).entries()) {
        await write(dataPrepper, [
          make({ id: id(n + 1), attributes: { [`appsignal.tag.${name}`]: "longer" } }),
        ]);
        expect({ name, found: await findTagged(name) }).toMatchObject({
          name,
          found: expect.arrayContaining([id(n + 1)]),
        });
      }
    });

    test("opens a snapshot of several sites behind one pattern with few readings of its mappings", async () => {
      const { shipper } = chooseShipper(server);
      await empty(shipper);
      const mapping = { type: "keyword", index: false, doc_values: false };
      const blind = { match_mapping_type: "string", path_match: "*.original", mapping };
      const template = JSON.stringify({ dynamic_templates: [{ blind }] });
      for (const index of Object.keys(shipper.indices(prefix)))
        await store.cluster.request("PUT", `/${index}/_mapping`, template);
      await write(shipper, [make({})]);
      const createSource = (site: string) =>
        buildSpanSource(site, { index: shipper.pattern(prefix), layout: "auto" });
      const open = async (site: string, ...others: readonly string[]) => {
        const sources = [createSource(site), ...others.map(createSource)] as const;
        // Of a request of its own.
        const { signal } = new AbortController();
        let reads = 0;
        const recordRequest = ({ method, path }: BackendRequest) => {
          if (method === "GET" && path.startsWith(`/${prefix}`)) reads += 1;
        };
        const recorder = { recordRequest, recordDocuments: () => {}, recordSamples: () => {} };
        const opening = () => store.cluster.traces.openSnapshot?.(sources, undefined, signal);
        const snapshot = await runWithRecorder(recorder, opening);
        snapshot?.close();
        return { isOpen: snapshot !== undefined, reads };
      };
      await open("shop");
      const alone = await open("shop");
      expect(alone.isOpen).toBe(true);
      expect(await open("shop", "blog", "stock")).toEqual(alone);
    });

    test("reads several layouts behind one pattern as one source", async () => {
      const both = server.product === "elasticsearch" ? [apm, jaegerFields] : [dataPrepper, ss4oBare];
      await empty(both[0] ?? apm);
      for (const [index, definition] of Object.entries(both[1]?.indices(prefix) ?? {})) {
        await store.cluster.createIndex(index, definition);
      }
      for (const [n, shipper] of both.entries()) {
        const events = [{ name: "exception", time: at(n), attributes: { "exception.type": `E${n}` } }];
        await write(shipper, [make({ id: id(n + 1), end: at(20 + n), events })]);
      }
      const from = buildSpanSource("shop", { index: `${prefix}-*`, layout: "auto" });
      const found = await find(from, { by: "trace", traceIds: [trace], select: "exceptions" });
      expect(
        found.map(({ span_id, events }) => [span_id, events[0]?.attributes["exception.type"]]).sort(),
      ).toEqual([
        [id(1), "E0"],
        [id(2), "E1"],
      ]);
      expect(await scan(from, "exceptions")).toHaveLength(2);
      const report = await store.cluster.inspectTraces(from, never);
      expect(report.problems).toEqual([]);
      expect(report.layout.split(", ").sort()).toEqual(both.map(({ layout }) => layout).sort());
      expect(report.newest).toBe(at(21));
      expect(await store.cluster.backend.findNewest?.traces?.(from, never)).toBe(at(21));
    });

    test("counts spans whose fields are integers in one index and keywords in another", async () => {
      await empty(dataPrepper);
      const [[index = "", definition] = []] = Object.entries(dataPrepper.indices(prefix));
      const { mappings } = definition as { mappings: { properties: object } };
      const [integer, keyword] = [{ type: "integer" }, { type: "keyword" }];
      const changed = { kind: integer, status: { properties: { code: keyword } } };
      const next = `${index}-next`;
      const properties = { ...mappings.properties, ...changed };
      await store.cluster.createIndex(next, {
        ...(definition as object),
        mappings: { ...mappings, properties },
      });
      // More revisions than a page has groups. Those of the first index are texts.
      const revisions = Array.from({ length: 70 }, (_, n) => String(n + 1));
      const models = [index, next].flatMap((_, place) =>
        revisions.flatMap((revision, n) =>
          [0, 1].flatMap((turn) => {
            const number = 1 + turn + 2 * (n + revisions.length * place);
            const own = { trace: id(number).repeat(2), resource: { "service.version": revision } };
            const error = { status: "ERROR", end: at(20) } as const;
            const entry = make({ ...own, ...error, id: id(0x1000 + number) });
            const call = { kind: "client", name: "query", parent: entry.id, status: "ERROR" } as const;
            return [entry, make({ ...own, ...call, id: id(0x2000 + number) })];
          }),
        ),
      );
      const documents = dataPrepper.write(prefix, models.map(toSpan)).map(({ document }) => document);
      const half = documents.length / 2;
      await store.cluster.write(
        index,
        documents.slice(0, half).map((document) => [undefined, document]),
      );
      await store.cluster.write(
        next,
        documents.slice(half).map((text) => {
          const kind = text.includes("SPAN_KIND_CLIENT") ? 3 : 2;
          const document = text.replace(/"service.version":"(\d+)"/, '"service.version":$1');
          return [undefined, JSON.stringify({ ...JSON.parse(document), kind, status: { code: "2" } })];
        }),
      );
      const sources = [source(dataPrepper)] as const;
      const asked = () => ({ sources, range, namespaces: [], budget: plenty() });
      for (const [by, select] of [
        ["request", "entries"],
        ["deploy", "entries"],
        ["event", "children"],
      ] as const) {
        const found: (readonly [number, boolean])[] = [];
        for await (const batch of store.cluster.traces.tally?.({ ...asked(), by, select }, never) ?? [])
          found.push(...batch.map(({ spans, isSingle }) => [spans, isSingle] as const));
        const each = by === "deploy" ? 2 : half / 2;
        const groups = by === "deploy" ? 2 * revisions.length : 2;
        expect(found).toEqual(Array.from({ length: groups }, () => [each, false]));
      }
      const actions = await store.cluster.traces.actions(asked(), never);
      expect(actions.map(({ count, error_count }) => [count, error_count])).toEqual([[half, half]]);
      const stats = await store.cluster.traces.statsOfRevisions({ ...asked(), revisions }, never);
      expect([...stats.values()].map(({ count }) => count)).toEqual(revisions.map(() => 4));
      const attributes = { requiredAttributes: [], excludedAttributes: [], limit: 10 };
      const events = await store.cluster.traces.slowEvents({ ...asked(), ...attributes }, never);
      expect(events.map(({ name, count }) => [name, count])).toEqual([["query", half]]);
    });

    test("refuses a closed index until it is open, and a remote cluster always", async () => {
      const shipper = server.product === "elasticsearch" ? apm : dataPrepper;
      await empty(shipper);
      await write(shipper, [make({})]);
      const beside = `${prefix}-old`;
      await store.cluster.createIndex(beside, {});
      const both = source(shipper, { index: `${shipper.pattern(prefix)},${beside}` });
      const refusal = { slug: "not_supported_by_backend" };
      expect(await scan(both)).toHaveLength(1);
      await store.cluster.request("POST", `/${beside}/_close`);
      await expect(scan(both)).rejects.toMatchObject(refusal);
      await expect(find(both, { by: "trace", traceIds: [trace], select: "all" })).rejects.toMatchObject(
        refusal,
      );
      const query = { sources: [both] as const, partners: [], range, budget: plenty(), namespaces: [] };
      await expect(store.cluster.traces.actions(query, never)).rejects.toMatchObject(refusal);
      expect((await store.cluster.inspectTraces(both, never)).problems.join()).toContain(`${beside}: closed`);
      await store.cluster.request("POST", `/${beside}/_open?wait_for_active_shards=1`);
      expect(await store.cluster.inspectTraces(both, never)).toMatchObject({ problems: [] });
      expect(await scan(both)).toHaveLength(1);

      const remote = source(shipper, { index: `${shipper.pattern(prefix)},other:spans-*` });
      await expect(scan(remote)).rejects.toMatchObject(refusal);
      expect((await store.cluster.inspectTraces(remote, never)).problems.join()).toContain("remote");
    });

    test("reports layout, limitations and problems to operators", async () => {
      const shipper = server.product === "elasticsearch" ? apm : dataPrepper;
      await empty(shipper);
      await write(shipper, [make({})]);
      const good = await store.cluster.inspectTraces(source(shipper), never);
      expect(good).toMatchObject({ layout: shipper.layout, problems: [], newest: at(10) });
      const wrong = await store.cluster.inspectTraces(source(shipper, { tenantFilter: "nothing!=x" }), never);
      expect(wrong.problems.join()).toContain("where: nothing is not mapped");
      const none = await store.cluster.inspectTraces(
        { ...source(shipper), index: "nothing-like-it-*" },
        never,
      );
      expect(none.problems).toEqual(["no open index matches nothing-like-it-*"]);
      const foreign = await store.cluster.inspectTraces(source(shipper, { layout: "jaeger" }), never);
      expect(foreign.problems.join()).toContain("holds spans of a known layout");
      const { lacks } = spanLayouts.get(shipper.layout) ?? { lacks: [] };
      expect(good.limitations).toEqual(lacks.map((lack) => `${shipper.layout}: ${lack}`));
      const [spans = ""] = Object.keys(shipper.indices(prefix));
      await store.cluster.write(spans, [
        [undefined, JSON.stringify({ "@timestamp": new Date(start).toISOString(), event_name: "note" })],
      ]);
      const beside = await store.cluster.inspectTraces(source(shipper), never);
      expect(beside.limitations.join()).toContain("not shown: 1");
    });
  });
});
