// What `check` and `init` report about indices with copies of spans and with log lines beside spans, over a search server in
// memory.
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { apm, apm7 } from "../../../support/elastic/span-shippers/apm.ts";
import { jaegerFields } from "../../../support/elastic/span-shippers/jaeger.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../../support/elastic/span-shippers/shipper.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { createSpan } from "../../../tracing/span-builder.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

async function open(indices: Readonly<Record<string, FakeIndex>>) {
  const search = createFakeSearch(indices, "Elasticsearch");
  const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url, timeout: "60s" }), testIO);
  opened.push(fake, backend);
  const signal = new AbortController().signal;
  const limitations = async (index: string, over: { readonly where?: string } = {}) => {
    const report = await backend.inspections.traces?.(
      buildSpanSource("shop", { index, layout: "auto", ...over }),
      signal,
    );
    expect(report?.problems).toEqual([]);
    return report?.limitations ?? [];
  };
  return { limitations, survey: (...patterns: string[]) => backend.survey?.(patterns, signal) };
}

const request = createSpan({
  site_id: "shop",
  trace_id: "a".repeat(32),
  span_id: "b".repeat(16),
  span_kind: "server",
  from: 0,
  to: 5,
  service_name: "shop",
  resource_attributes: { "service.name": "shop" },
});

/** The indices of a shipper with one request, and the documents of `more`. */
function written(shipper: SpanShipper, more: Readonly<Record<string, readonly object[]>> = {}) {
  const shipped = shipper.write("x", [request]);
  return Object.fromEntries(
    Object.entries(shipper.indices("x")).map(([name, definition]) => {
      const own = shipped.filter(({ index }) => index === name).map(({ document }) => JSON.parse(document));
      const { mappings } = definition as { readonly mappings: object };
      return [name, { mappings, documents: [...own, ...(more[name] ?? [])] }] as const;
    }),
  );
}

test("check advises excluding archived Jaeger spans, and init does not propose their index", async () => {
  const [[name = "", held] = []] = Object.entries(written(jaegerFields));
  if (held === undefined) throw new Error("no index");
  const { limitations, survey } = await open({ [name]: held, "x-jaeger-span-archive": held });
  expect(await limitations("*jaeger-span-*")).toContain(
    "x-jaeger-span-archive: copies of other spans, which figures count again; let the pattern end in ,-*jaeger-span-archive*",
  );
  expect((await limitations(name)).filter((text) => text.includes("copies"))).toEqual([]);
  const found = await survey(name, "x-jaeger-span-archive");
  expect(found?.traces.map(({ index }) => index)).toEqual([name]);
  expect(found?.notes).toEqual(["x-jaeger-span-archive: copies of spans that other indices hold"]);
});

describe("log lines beside spans", () => {
  const keyword = { type: "keyword" };
  const line = { "@timestamp": "2026-01-15T10:00:00Z", message: "m", log: { level: "info" } };
  const lineMapping = {
    properties: {
      "@timestamp": { type: "date" },
      message: { type: "text" },
      log: { properties: { level: keyword } },
    },
  };

  test.each([
    ["APM", apm],
    ["OpenTelemetry", otel],
  ])("are no limitation: %s", async (_, shipper) => {
    const lines = { documents: [line], mappings: lineMapping };
    const spans = written(shipper);
    const without = await open(spans);
    const { limitations } = await open({ ...spans, "x-logs-app": lines });
    expect(await limitations("x-*")).toEqual(await without.limitations("x-*"));
  });

  test("are no limitation in an index of spans, where other documents are", async () => {
    const { properties, ...rest } = Object(Object.values(written(apm7))[0]?.mappings);
    const mappings = { ...rest, properties: { ...properties, ...lineMapping.properties } };
    const [[name = "", held] = []] = Object.entries(written(apm7));
    if (held === undefined) throw new Error("no index");
    const read = async (...documents: readonly object[]) => {
      const index = { mappings, documents: [...held.documents, ...documents] };
      const found = await (await open({ [name]: index })).limitations(name);
      return found.filter((text) => text.includes("beside the spans"));
    };
    expect(await read(line, line)).toEqual([]);
    expect(await read(line, { "@timestamp": line["@timestamp"], message: "of no layout" })).toEqual([
      expect.stringMatching(/nor log lines, not shown: 1$/),
    ]);
  });

  test("count no other documents of another tenant", async () => {
    const { properties, ...rest } = Object(Object.values(written(apm7))[0]?.mappings);
    const mappings = { ...rest, properties: { ...properties, tenant: keyword } };
    const [[name = "", held] = []] = Object.entries(written(apm7));
    if (held === undefined) throw new Error("no index");
    const other = (tenant: string) => ({ "@timestamp": line["@timestamp"], tenant });
    const documents = [...held.documents, other("a"), other("b"), other("b")];
    const { limitations } = await open({ [name]: { mappings, documents } });
    const found = await limitations(name, { where: "tenant=a" });
    expect(found.filter((text) => text.includes("beside the spans"))).toEqual([
      expect.stringMatching(/not shown: 1$/),
    ]);
  });

  test("leave what is neither spans nor lines a limitation", async () => {
    const others = { documents: [], mappings: { properties: { value: { type: "long" } } } };
    const { limitations } = await open({ ...written(otel), "x-a": others, "x-b": others, "x-c": others });
    expect(await limitations("x-*")).toContain(
      "3 indices (x-a, x-b and 1 more): holds no spans of a known layout",
    );
  });
});
