// Fields that a mapping gains after it was read and that no `exists` finds, over a search server in memory: the next request finds
// their documents, and mappings are read no oftener than that takes.
import { setTimeout } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { fromMillis, type Millis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createFakeSearch, type ProductName } from "../../../support/elastic/fake-cluster.ts";
import { dataPrepper } from "../../../support/elastic/span-shippers/data-prepper.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const blind = { type: "keyword", index: false, doc_values: false };
const short = { type: "keyword", ignore_above: 3 };
const key = "appsignal.tag.plan";
const noDocument = { bool: { must_not: [{ match_all: {} }] } };

const range = { from: fromMillis(0), to: fromMillis(10_000 - 1) };

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

type Served = ReturnType<typeof createFakeSearch>;

/** A source that gets other indices later. `exists` finds nothing at the hidden names, as where these are not indexed. */
async function openHiding(first: Served, hidden: readonly string[]) {
  let server = first;
  let delay = Promise.resolve();
  let noteAsked = () => {};
  const clauses = hidden.map((field) => JSON.stringify({ exists: { field } }));
  const source = await openScriptedSource(async (response, request, body) => {
    const sent = clauses.reduce((text, clause) => text.replaceAll(clause, JSON.stringify(noDocument)), body);
    // What it answers is as old as the question, however late it arrives.
    const asked = server;
    if (/^\/held\?/.test(request.url ?? "")) {
      noteAsked();
      await delay;
    }
    asked.reply(response, request, sent);
  });
  const cluster = openCluster(source.url);
  cleanups.push(cluster.close, source.close);
  return {
    cluster,
    replace: (next: Served) => {
      server = next;
    },
    countMappingReads: () => source.requests.filter(({ path }) => /^\/held\?/.test(path)).length,
    /** Mappings arrive once `release` is called. `asked` resolves with the first question for them. */
    delayMappings: () => {
      const arrival = Promise.withResolvers<void>();
      const question = Promise.withResolvers<void>();
      delay = arrival.promise;
      noteAsked = question.resolve;
      return { asked: question.promise, release: arrival.resolve };
    },
  };
}

/** Spans behind a mapping with a template for attributes. */
async function openSpans(product: ProductName, template: object | undefined) {
  const [definition] = Object.values(dataPrepper.indices("x"));
  const { mappings } = definition as { readonly mappings: { readonly properties: object } };
  const span = {
    traceId: "1".padStart(32, "0"),
    spanId: "1".padStart(16, "0"),
    name: "a",
    kind: "SPAN_KIND_SERVER",
    startTime: "1970-01-01T00:00:01Z",
    endTime: "1970-01-01T00:00:02Z",
    durationInNanos: 1e9,
  };
  const serve = (field?: object) => {
    const properties = field === undefined ? {} : { [key]: field };
    const attributes = { type: "object", properties };
    const dynamic_templates = template === undefined ? [] : [{ texts: { mapping: template } }];
    const documents = [{ ...span, ...(field === undefined ? {} : { attributes: { [key]: "free" } }) }];
    const own = { ...mappings, dynamic_templates, properties: { ...mappings.properties, attributes } };
    return createFakeSearch({ held: { mappings: own, documents } }, product);
  };
  const { cluster, replace, countMappingReads } = await openHiding(serve(), [`attributes.${key}`]);
  return {
    setField: (field: object) => replace(serve(field)),
    countMappingReads,
    findTagged: async () => {
      const sources = [buildSpanSource("shop", { index: "held", layout: "data-prepper" })] as const;
      const pushdown = { tags: [{ name: "plan", value: "free" }] };
      const scan = { sources, range, select: "all", pushdown, budget: createBudget(1_000) } as const;
      const found = await Array.fromAsync(cluster.traces.scan(scan, new AbortController().signal));
      return found.flat().filter(({ span_attributes }) => span_attributes[key] === "free").length;
    },
  };
}

describe("spans with an attribute that is mapped after the mappings were read", () => {
  test.each<[ProductName, string, object]>([
    ["Elasticsearch", "that is not indexed", blind],
    ["OpenSearch", "that is not indexed", blind],
    ["OpenSearch", "whose long values are left out", short],
  ])("%s: are found by one %s", async (product, _, template) => {
    const { setField, findTagged, countMappingReads } = await openSpans(product, template);
    expect(await findTagged()).toBe(0);
    const before = countMappingReads();
    expect(await findTagged()).toBe(0);
    expect(countMappingReads() - before).toBe(1);
    setField(template);
    expect(await findTagged()).toBe(1);
  });

  test.each<[ProductName, string, object | undefined]>([
    ["Elasticsearch", "where nothing hides it", undefined],
    ["OpenSearch", "where nothing hides it", { type: "keyword" }],
    ["Elasticsearch", "where `_ignored` lists what is left out", short],
  ])("%s: take one reading in five seconds %s", async (product, _, template) => {
    const { setField, findTagged, countMappingReads } = await openSpans(product, template);
    for (const _ of [1, 2, 3]) expect(await findTagged()).toBe(0);
    expect(countMappingReads()).toBe(1);
    setField(blind);
    const start = performance.now();
    vi.spyOn(performance, "now").mockReturnValue(start + 6_000);
    // The cache reads its clock anew a millisecond later.
    await setTimeout(5);
    expect(await findTagged()).toBe(1);
    const reads = countMappingReads();
    expect(reads).toBeLessThanOrEqual(3);
    expect(await findTagged()).toBe(1);
    expect(countMappingReads()).toBe(reads);
  });
});

/** Lines behind a mapping with a template for texts; none has a message or a severity at first. */
async function openLines(product: ProductName, template: object, layout = "ecs") {
  const names = ["message", "level", "host.name", "event.dataset", "attributes.k"];
  const serve = (field?: object) => {
    const properties = { "@timestamp": { type: "date" } };
    const mapped = field && Object.fromEntries(names.map((name) => [name, field]));
    const line = { "@timestamp": "1970-01-01T00:00:01.000Z" };
    const texts = {
      message: "boom",
      level: "error",
      "host.name": "web-1",
      "event.dataset": "nginx",
      "attributes.k": "v",
    };
    const documents = [field === undefined ? line : { ...line, ...texts }];
    const mappings = {
      dynamic_templates: [{ texts: { mapping: template } }],
      properties: { ...properties, ...mapped },
    };
    return createFakeSearch({ held: { mappings, documents } }, product);
  };
  const { cluster, replace, ...mappings } = await openHiding(serve(), names);
  const source = { id: "app", index: "held", layout, tenantFilter: undefined };
  return {
    ...mappings,
    setFields: (field: object) => replace(serve(field)),
    countLines: async (text: string) => {
      const limits = { expectedLines: 100, documentLimit: 1_000, tieLimit: 1_000 };
      const query = { sources: [source], range, filter: parse(text), order: "asc", ...limits } as const;
      return (await Array.fromAsync(cluster.store.lines(query, never))).flat().length;
    },
    countErrors: async () => {
      const grouping = { kind: "line", name: "severity" } as const;
      const query = { source, range, filter: parse(""), step: 1_000 as Millis, grouping };
      const counts = await cluster.store.count?.(query, never);
      return counts?.groups;
    },
  };
}

const ofFields = ["message:boom", "severity=error", "hostname=web-1", "group=nginx"];

describe("lines with a field that is mapped after the mappings were read", () => {
  test.each<[ProductName, object, string]>([
    ...ofFields.map((query): [ProductName, object, string] => ["Elasticsearch", blind, query]),
    ...ofFields.map((query): [ProductName, object, string] => ["OpenSearch", short, query]),
    // Of neither type does `exists` find what lies below the field.
    ["Elasticsearch", { type: "ip_range" }, "message:boom"],
    ["OpenSearch", { type: "date_range" }, "message:boom"],
    // A type that nobody knows may be another one.
    ["Elasticsearch", { type: "new_type" }, "message:boom"],
    ["Elasticsearch", { type: "flattened", ignore_above: 3 }, "message:boom"],
  ])("%s: are found where a template %o hides it from %s", async (product, template, query) => {
    const { setFields, countLines, countMappingReads } = await openLines(product, template);
    expect(await countLines(query)).toBe(0);
    const before = countMappingReads();
    expect(await countLines(query)).toBe(0);
    expect(countMappingReads() - before).toBe(1);
    setFields(template);
    expect(await countLines(query)).toBe(1);
  });

  test("are found by who asks while mappings arrive that are older than the lines", async () => {
    const { setFields, countLines, delayMappings } = await openLines("Elasticsearch", blind);
    expect(await countLines("message:boom")).toBe(0);
    const { asked, release } = delayMappings();
    const earlier = countLines("message:boom");
    await asked;
    setFields(blind);
    const later = countLines("message:boom");
    release();
    expect(await later).toBe(1);
    await earlier;
  });

  test("are counted by it", async () => {
    const { setFields, countErrors } = await openLines("Elasticsearch", blind);
    expect(await countErrors()).toEqual(new Map([["unknown", 1]]));
    setFields(blind);
    expect(await countErrors()).not.toEqual(new Map([["unknown", 1]]));
  });

  test.each([...ofFields.map((query) => ["ecs", query] as const), ["ss4o", "k=v"] as const])(
    "%s: take one reading in five seconds for %s where nothing hides it",
    async (layout, query) => {
      const { setFields, countLines, countMappingReads } = await openLines(
        "OpenSearch",
        { type: "keyword" },
        layout,
      );
      for (const _ of [1, 2, 3]) expect(await countLines(query)).toBe(0);
      expect(countMappingReads()).toBe(1);
      setFields(blind);
      const start = performance.now();
      vi.spyOn(performance, "now").mockReturnValue(start + 6_000);
      // The cache reads its clock anew a millisecond later.
      await setTimeout(5);
      expect(await countLines(query)).toBe(1);
      expect(countMappingReads()).toBe(2);
    },
  );

  test("take none for names that are mapped", async () => {
    const { setFields, countLines, countMappingReads } = await openLines("Elasticsearch", blind);
    setFields({ type: "keyword" });
    for (const _ of [1, 2, 3]) expect(await countLines("level=error")).toBe(1);
    expect(countMappingReads()).toBe(1);
  });
});
