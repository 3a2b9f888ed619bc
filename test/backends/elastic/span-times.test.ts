// Spans on real servers whose times the index lacks or keeps badly: without `timestamp.us`, as a float, as a keyword, or in an
// index whose documents cannot be read. What holds for the other indices of the pattern goes on.
import { describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { parseInstant, printMillis } from "#src/core/time.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { toSpan } from "../../conformance/trace-fixture.ts";
import { apm } from "../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../support/elastic/span-shippers/data-prepper.ts";
import { jaeger } from "../../support/elastic/span-shippers/jaeger.ts";
import { onServers } from "../selected-servers.ts";
import { at, id, make, never, plenty, range, start, trace, useSpanCluster } from "./span-cluster.ts";

type Document = Record<string, unknown>;

onServers((server) => {
  const store = useSpanCluster(server.url, "timed");
  const { prefix, write, empty, find, scan } = store;
  const source = buildSpanSource("shop", { index: `${prefix}-*`, layout: "apm" });
  const query = { sources: [source] as const, partners: [], range, budget: plenty(), namespaces: [] };
  const brief = ({ span_id, start: begun, end }: Span) => [span_id, begun - at(0), end - at(0)] as const;
  const sorted = (spans: readonly Span[]) => spans.map(brief).sort(([a], [b]) => (a < b ? -1 : 1));

  /** Writes these spans with changed documents. */
  async function writeChanged(
    models: readonly Parameters<typeof toSpan>[0][],
    change: (document: Document) => Document,
    toIndex = (index: string) => index,
  ): Promise<void> {
    for (const [index, shipped] of Map.groupBy(apm.write(prefix, models.map(toSpan)), (one) => one.index)) {
      const documents = shipped.map(({ document }) =>
        JSON.stringify(change(JSON.parse(document) as Document)),
      );
      await store.cluster.write(
        toIndex(index),
        documents.map((document) => [undefined, document] as const),
      );
    }
  }
  const withoutMicros = ({ timestamp: _, ...rest }: Document): Document => rest;

  /** An index of the pattern whose mapping differs in some properties or in other settings. */
  async function createOther(changed: object, over: object = {}): Promise<string> {
    const [definition] = Object.values(apm.indices(prefix)) as {
      settings: object;
      mappings: { properties: object };
    }[];
    const { settings, mappings } = definition ?? { settings: {}, mappings: { properties: {} } };
    const properties = { ...mappings.properties, ...changed };
    const name = `${prefix}-other`;
    await store.cluster.createIndex(name, { settings, mappings: { ...mappings, properties, ...over } });
    return name;
  }

  const toMicros = (us: object) => ({ timestamp: { properties: { us } } });

  const call = { kind: "client", attributes: { "db.system": "postgresql" } } as const;
  const models = [
    make({ id: id(1), start: at(0, 250_000n), end: at(10, 250_000n) }),
    make({ id: id(2), parent: id(1), ...call, name: "query", start: at(2, 400_000n), end: at(5, 400_000n) }),
    make({
      id: id(3),
      trace: "f".repeat(32),
      start: at(20, 999_000n),
      end: at(30, 999_000n),
      status: "ERROR",
      events: [{ name: "exception", time: at(25, 1_000n), attributes: { "exception.type": "E" } }],
    }),
  ];

  describe("spans without timestamp.us", () => {
    test("start at the millisecond of @timestamp, in every answer", async () => {
      await empty(apm);
      await write(apm, models.slice(0, 1));
      await writeChanged(models.slice(1), withoutMicros);
      const micros = 1_000n;
      const expected = [
        [id(1), 250n * micros, 10_250n * micros],
        [id(2), 2_000n * micros, 5_000n * micros],
        [id(3), 20_000n * micros, 30_000n * micros],
      ];
      expect(sorted(await scan(source))).toEqual(expected);
      expect(sorted(await scan(source, "entries", { from: at(11), to: at(31) }))).toEqual([expected[2]]);
      expect(await scan(source, "all", { from: at(11), to: at(29, 999_999n) })).toEqual([]);
      const failed = await scan(source, "exceptions");
      expect(failed.map(({ span_id, events }) => [span_id, events.length])).toEqual([[id(3), 1]]);
      expect(await find(source, { by: "trace", traceIds: [trace], select: "all" })).toHaveLength(2);
      const actions = await store.cluster.traces.actions(query, never);
      expect(actions.map(({ count, error_count }) => [count, error_count])).toEqual([[2, 1]]);
      const report = await store.cluster.inspectTraces(source, never);
      expect(report.problems).toEqual([]);
      expect(report.newest).toBe(at(30));
      expect(report.limitations).toContain(
        "documents without timestamp.us, whose time is @timestamp to the millisecond: 3",
      );
    });

    test("are counted by check where they have no @timestamp either", async () => {
      await empty(apm);
      await write(apm, models.slice(0, 1));
      await writeChanged(models.slice(1, 2), ({ timestamp: _, "@timestamp": __, ...rest }) => rest);
      expect(sorted(await scan(source)).map(([span]) => span)).toEqual([id(1)]);
      const { limitations } = await store.cluster.inspectTraces(source, never);
      expect(limitations).toContain(
        "documents without timestamp.us and @timestamp, which have no time and are not shown: 1",
      );
    });
  });

  describe("one index of a pattern with another type of time", () => {
    test.each([
      ["float", { type: "float" }],
      ["double", { type: "double" }],
      ["keyword", { type: "keyword" }],
      ["an unsearchable long", { type: "long", index: false }],
    ])("is read exactly, and the others with it: %s", async (_, us) => {
      await empty(apm);
      await write(apm, models.slice(0, 1));
      const other = await createOther(toMicros(us));
      await writeChanged(
        models.slice(1),
        (document) => document,
        (index) => (index.includes("error") ? index : other),
      );
      const micros = 1_000n;
      expect(sorted(await scan(source))).toEqual([
        [id(1), 250n * micros, 10_250n * micros],
        [id(2), 2_400n * micros, 5_400n * micros],
        [id(3), 20_999n * micros, 30_999n * micros],
      ]);
      expect(await scan(source, "all", { from: at(31), to: at(60_000) })).toEqual([]);
      expect(await find(source, { by: "trace", traceIds: [trace], select: "all" })).toHaveLength(2);
      const actions = await store.cluster.traces.actions(query, never);
      expect(actions.map(({ count, error_count }) => [count, error_count])).toEqual([[2, 1]]);
      const edges = await store.cluster.traces.siteEdges(query, never);
      expect(edges.downstream.map(({ count }) => count)).toEqual([1]);
      expect((await store.cluster.inspectTraces(source, never)).problems).toEqual([]);
    });

    test("is refused only where its documents may belong to the answer, if they cannot be read", async () => {
      await empty(apm);
      await write(apm, models.slice(0, 2));
      const other = await createOther(toMicros({ type: "long" }), { _source: { enabled: false } });
      await writeChanged(
        models.slice(2),
        (document) => document,
        (index) => (index.includes("error") ? index : other),
      );
      expect(await scan(source, "all", { from: at(-1), to: at(15) })).toHaveLength(2);
      expect(await find(source, { by: "trace", traceIds: [trace], select: "all" })).toHaveLength(2);
      await expect(scan(source)).rejects.toMatchObject({ slug: "not_supported_by_backend" });
      await expect(
        find(source, { by: "trace", traceIds: ["f".repeat(32)], select: "all" }),
      ).rejects.toMatchObject({ slug: "not_supported_by_backend" });
    });
  });

  describe("numbers where another index has dates under the same name", () => {
    const spans = [
      make({ id: id(1) }),
      make({ id: id(2), trace: id(2).repeat(2), start: at(40), end: at(50) }),
    ];

    test.each([
      ["nanoseconds", { type: "date_nanos" }],
      ["milliseconds", { type: "date" }],
      ["a format that numbers do not have", { type: "date", format: "strict_date_time" }],
    ])("bound the range as exactly as dates do: %s", async (_, startTime) => {
      await empty(dataPrepper);
      await store.cluster.remove(`${prefix}-*`);
      const [[name = "", shipped] = []] = Object.entries(dataPrepper.indices(prefix));
      const { mappings, ...more } = shipped as { mappings: { properties: object } };
      const properties = { ...mappings.properties, startTime };
      await store.cluster.createIndex(name, { ...more, mappings: { ...mappings, properties } });
      for (const [index, definition] of Object.entries(jaeger.indices(prefix)))
        await store.cluster.createIndex(index, definition);
      await write(jaeger, spans);
      const other = make({ id: id(3), trace: id(3).repeat(2) });
      for (const { document } of dataPrepper.write(prefix, [toSpan(other)])) {
        const millis = JSON.stringify({ ...JSON.parse(document), startTime: printMillis(start) });
        await store.cluster.write(name, [[undefined, millis]]);
      }
      const both = buildSpanSource("shop", { index: `${prefix}-*`, layout: "auto" });
      const ids = async (from: number, to: number) =>
        (await scan(both, "all", { from: at(from), to: at(to) })).map(({ span_id }) => span_id).sort();
      expect(await ids(-1_000, 1_000)).toEqual([id(1), id(2), id(3)]);
      expect(await ids(49, 51)).toEqual([id(2)]);
      expect(await ids(51, 1_000)).toEqual([]);
      const asked = { ...query, sources: [both] as const, budget: createBudget(10) };
      const actions = await store.cluster.traces.actions(asked, never);
      expect(actions.reduce((sum, { count }) => sum + count, 0)).toBe(3);
      const until = { ...asked, range: { from: at(-1_000), to: at(20) } };
      const early = await store.cluster.traces.actions(until, never);
      expect(early.reduce((sum, { count }) => sum + count, 0)).toBe(2);
      expect((await store.cluster.traces.siteEdges(asked, never)).downstream).toEqual([]);
    });
  });

  describe("a pattern of dates and nanoseconds", () => {
    const parse = (text: string) => parseInstant(text) ?? at(0);
    const beyond = [
      ["before 1970", "1969-12-31T23:59:50Z", "1950-01-01T00:00:00Z", "1970-01-01T00:00:00Z"],
      ["after 2262", "2262-04-12T00:00:00Z", "2262-04-11T23:47:17Z", "2300-01-01T00:00:00Z"],
    ] as const;

    test("is answered in all ranges, and has the spans of all times", async () => {
      await empty(apm);
      await writeChanged(models.slice(0, 1), withoutMicros);
      const other = await createOther({ "@timestamp": { type: "date_nanos" } });
      await writeChanged(models.slice(1), withoutMicros, (index) =>
        index.includes("error") ? index : other,
      );
      const ids = (spans: readonly Span[]) => spans.map(({ span_id }) => span_id).sort();
      for (const [from, to] of [
        ["1970-01-01T00:00:00Z", "2262-04-11T23:47:16.854775807Z"],
        ["1970-02-01T00:00:00Z", "2262-04-11T23:47:17Z"],
        ["1900-01-01T00:00:00Z", "2300-01-01T00:00:00Z"],
        ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"],
      ] as const) {
        const wide = { ...query, range: { from: parse(from), to: parse(to) } };
        expect(ids(await scan(source, "all", wide.range))).toEqual([id(1), id(2), id(3)]);
        const actions = await store.cluster.traces.actions(wide, never);
        expect(actions.map(({ count, error_count }) => [count, error_count])).toEqual([[2, 1]]);
        expect((await store.cluster.traces.siteEdges(wide, never)).downstream).toHaveLength(1);
      }
      const asked = { ...query, service: "shop-web", namespace: "background", action: "GET /cart" };
      expect((await store.cluster.traces.actionEdges(asked, never)).downstream).toHaveLength(1);
      for (const [turn, [, time, from, to]] of beyond.entries()) {
        const start = parse(time);
        const far = make({ id: id(16 + turn), trace: id(turn + 1).repeat(2), start, end: start });
        await writeChanged([far], withoutMicros);
        const range = { from: parse(from), to: parse(to) };
        expect(ids(await scan(source, "all", range))).toEqual([id(16 + turn)]);
        const actions = await store.cluster.traces.actions({ ...query, range }, never);
        expect(actions.map(({ count }) => count)).toEqual([1]);
      }
      expect(await scan(source)).toHaveLength(3);
    });
  });
});
