// Fields that a mapping gains after it was read and that no `exists` finds, over a search server in memory: the next request finds
// their documents, and mappings are read no oftener than that takes.
import { setTimeout } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { fromMillis } from "#src/core/time.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createFakeSearch, type ProductName } from "../../../support/elastic/fake-cluster.ts";
import { dataPrepper } from "../../../support/elastic/span-shippers/data-prepper.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";

const blind = { type: "keyword", index: false, doc_values: false };
const short = { type: "keyword", ignore_above: 3 };
const key = "appsignal.tag.plan";
const noDocument = { bool: { must_not: [{ match_all: {} }] } };

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

/** Spans behind a mapping with a template for attributes. `exists` finds nothing at the tag, as where it is not indexed. */
async function open(product: ProductName, template: object | undefined) {
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
    return createFakeSearch({ spans: { mappings: own, documents } }, product);
  };
  let server = serve();
  const exists = JSON.stringify({ exists: { field: `attributes.${key}` } });
  const source = await openScriptedSource((response, request, body) =>
    server.reply(response, request, body.replaceAll(exists, JSON.stringify(noDocument))),
  );
  const { traces, close } = openCluster(source.url);
  cleanups.push(close, source.close);
  return {
    setField: (field: object) => {
      server = serve(field);
    },
    countMappingReads: () => source.requests.filter(({ path }) => /^\/spans\?/.test(path)).length,
    findTagged: async () => {
      const range = { from: fromMillis(0), to: fromMillis(10_000) };
      const sources = [buildSpanSource("shop", { index: "spans", layout: "data-prepper" })] as const;
      const pushdown = { tags: [{ name: "plan", value: "free" }] };
      const scan = { sources, range, select: "all", pushdown, budget: createBudget(1_000) } as const;
      const found = await Array.fromAsync(traces.scan(scan, new AbortController().signal));
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
    const { setField, findTagged, countMappingReads } = await open(product, template);
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
    const { setField, findTagged, countMappingReads } = await open(product, template);
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
