// Nothing that a server lists is lost: each index is proposed once, or stands under "Left out" with the reason.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseConfig } from "#src/config/config.ts";
import { toPlaces } from "#src/core/collections.ts";
import { createFakeSearch, type FakeIndex } from "../support/elastic/fake-cluster.ts";
import { apm } from "../support/elastic/span-shippers/apm.ts";
import { jaegerFields } from "../support/elastic/span-shippers/jaeger.ts";
import { otel } from "../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../support/elastic/span-shippers/shipper.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { openScriptedSource } from "../support/scripted-http-source.ts";
import { createException, createSpan } from "../tracing/span-builder.ts";
import { fakes, fluentBit, init, mapping, prepareInitTests, world, written } from "./init-harness.ts";

prepareInitTests();

/** What an index may hold. */
type Content = "lines" | "other lines" | "spans" | "otel spans" | "events" | "errors" | "nothing known";

const time = "2026-11-20T00:00:00Z";
const span = createSpan({
  trace_id: "ab".repeat(16),
  span_id: "cd".repeat(8),
  resource_attributes: { "service.name": "s" },
  events: [createException(1, "Boom")],
});

/** The index of a shipper whose name has the word. */
function ship(shipper: SpanShipper, word: string): FakeIndex {
  const [name = "", definition] =
    Object.entries(shipper.indices("x")).find(([index]) => index.includes(word)) ?? [];
  const { mappings } = definition as { readonly mappings: object };
  const own = shipper.write("x", [span]).filter(({ index }) => index === name);
  return { mappings, documents: own.map(({ document }) => JSON.parse(document)) };
}

const contents: Readonly<Record<Content, FakeIndex>> = {
  lines: { ...mapping(), documents: [{ "@timestamp": time, message: "m", log: { level: "info" } }] },
  "other lines": {
    ...fluentBit,
    documents: [{ "@timestamp": time, log: "m", kubernetes: { pod_name: "p" } }],
  },
  spans: ship(jaegerFields, "span"),
  "otel spans": ship(otel, "traces"),
  events: ship(otel, "logs"),
  errors: ship(apm, "error"),
  "nothing known": { mappings: { properties: { value: { type: "long" } } }, documents: [{ value: 1 }] },
};
/** As the settings of an index have it, that are no part of `FakeIndex`. */
const plain = ({ mappings, documents }: FakeIndex): FakeIndex => ({ mappings, documents });

/** Which indices the proposal reads as lines and as traces, and which it leaves out, by the server's own rules. */
async function propose(
  indices: Readonly<Record<string, FakeIndex>>,
  requested: readonly string[] = [],
  product: "Elasticsearch" | "OpenSearch" = "Elasticsearch",
) {
  const search = createFakeSearch(indices, product);
  const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
  fakes.push(fake);
  const args = requested.flatMap((pattern) => ["--index", pattern]);
  const { code, out, err } = await init(["--elastic", fake.url, "--force", ...args]);
  expect([code, err]).toEqual([0, ""]);
  const reach = async (pattern: string) => {
    const answer = await fetch(`${fake.url}/${encodeURIComponent(pattern)}`);
    return Object.keys((await answer.json()) as object);
  };
  const text = written();
  const sites = Object.values(parseConfig(text, "r.yaml", world).sites);
  const lines = sites.flatMap(({ logs }) =>
    Object.values(logs?.sources ?? {}).flatMap(({ index }) => index ?? []),
  );
  const traces = sites.flatMap(({ traces }) => toPlaces(traces).map(({ index }) => index));
  const [, notes = ""] = text.split("Found and left out:\n");
  const leftOut = notes.split("\n").flatMap((line) => /^# {3}(\S+): ./.exec(line)?.[1] ?? []);
  const reachAll = async (patterns: readonly string[]) =>
    (await Promise.all(patterns.map(reach))).flat().sort();
  return {
    text,
    out,
    patterns: { lines, traces },
    lines: await reachAll(lines),
    traces: await reachAll(traces),
    leftOut: await reachAll(leftOut),
  };
}

describe("a requested pattern with spans", () => {
  const indices = {
    "x-app-2026.11.20": plain(contents.lines),
    "x-app-2026.11.21": plain(contents.lines),
    "x-spans-2026.11.20": plain(contents.spans),
    "x-strange": plain(contents["nothing known"]),
  };

  test("is proposed for its lines and its spans", async () => {
    const found = await propose(indices, ["x-*"]);
    expect(found.patterns).toEqual({ lines: ["x-*,-x-spans-*,-x-strange"], traces: ["x-spans-*"] });
    expect(found.leftOut).toEqual(["x-strange"]);
  });

  test("has what is no span or line under Left out", async () => {
    const { "x-app-2026.11.20": _, "x-app-2026.11.21": __, ...others } = indices;
    const found = await propose(others, ["x-*"]);
    expect(found.patterns).toEqual({ lines: [], traces: ["x-*,-x-strange"] });
    expect(found.out).toContain("Left out:\n  x-strange: no known layout of lines or spans; ");
  });

  test("says that lines among the spans of one index are not proposed", async () => {
    const { mappings, documents } = contents.spans;
    const { properties, ...rest } = mappings as { readonly properties: object };
    const both = { mappings: { ...rest, properties: { ...properties, ...mapping().mappings.properties } } };
    const found = await propose({
      "x-1": { ...both, documents: [...documents, ...contents.lines.documents] },
    });
    expect(found.patterns.traces).toEqual(["x-1"]);
    expect(found.out).toContain("x-1: its log lines: a source of them would show its spans as lines\n");
  });

  test("that is the name of an alias cannot exclude, so that its indices are named", async () => {
    const named = Object.entries(indices).map(
      ([name, index]) => [name, { ...index, aliases: ["all"] }] as const,
    );
    const found = await propose(Object.fromEntries(named), ["all"]);
    expect(found.patterns).toEqual({ lines: ["x-app-*"], traces: ["x-spans-*"] });
    expect(found.leftOut).toEqual(["x-strange"]);
    const alike = await propose(Object.fromEntries(named.slice(0, 2)), ["all"]);
    expect(alike.patterns).toEqual({ lines: ["all"], traces: [] });
  });

  test("takes nothing away from the spans of another one", async () => {
    const [spans, strange] = [plain(contents.spans), plain(contents["nothing known"])];
    const names = { "app-spans-1": spans, "app-strange": strange, "web-spans-1": spans };
    // In the traces of a site all patterns stand in one list, where an exclusion takes away what stands before it.
    const found = await propose(names, ["app-*", "*-spans-*"]);
    expect(found.traces).toEqual(["app-spans-1", "web-spans-1"]);
    expect(found.leftOut).toEqual(["app-strange"]);
  });

  test("gives way to a narrower one", async () => {
    const found = await propose(indices, ["x-*", "x-app-*"]);
    expect(found.patterns).toEqual({ lines: ["x-app-*"], traces: ["x-*,-x-app-*,-x-strange"] });
    const same = await propose(indices, ["x-app-*", "x-a*"]);
    expect(same.patterns.lines).toEqual(["x-app-*"]);
    expect(same.out).toContain("x-a*: all of its indices are in other patterns\n");
  });
});

describe("log records of OpenTelemetry in an index that does not tell them from events of spans", () => {
  const ids = { trace_id: "ab".repeat(16), span_id: "cd".repeat(8) };
  const record = (n: number) => {
    return { "@timestamp": time, severity_text: "INFO", body: { text: `order ${n}` }, ...ids };
  };
  const { properties } = contents.events.mappings as { readonly properties: object };
  const index: FakeIndex = {
    mappings: { dynamic: false, properties: { ...properties, attributes: { type: "flattened" } } },
    documents: Array.from({ length: 30 }, (_, n) => record(n)),
  };
  const events = contents.events.documents;
  // As OpenSearch keeps no record of longer values.
  const limited = { type: "keyword", ignore_above: 1024 };
  const names = { trace_id: limited, span_id: limited, event_name: limited };
  const onOpenSearch = { ...index, mappings: { dynamic: false, properties: { ...properties, ...names } } };

  test.each([
    ["of a flattened object", index, "Elasticsearch"],
    ["of keywords with a limit", onOpenSearch, "OpenSearch"],
  ] as const)("are proposed as lines: %s", async (_, { mappings, documents }, product) => {
    const own = { "logs-x": { mappings, documents } };
    const alone = await propose(own, [], product);
    expect(alone.patterns.lines).toEqual(["logs-x"]);
    expect(alone.leftOut).toEqual([]);
    const beside = await propose({ ...own, "traces-x": plain(contents["otel spans"]) }, [], product);
    expect(beside.lines).toEqual(["logs-x"]);
    expect(beside.traces).toEqual(["logs-x", "traces-x"]);
    // Few events come before the first record that is none.
    const among = { mappings, documents: [...events, ...documents] };
    expect((await propose({ "logs-x": among }, [], product)).lines).toEqual(["logs-x"]);
    expect((await propose({ "logs-x": { mappings, documents: events } }, [], product)).lines).toEqual([]);
  });
});

describe("indices under several names", () => {
  const line = plain(contents.lines);

  test("of a lifecycle are proposed by the name that they had, each once", async () => {
    const found = await propose({
      "orders-000008": { ...line, aliases: ["orders"] },
      "shrink-a1b2-orders-000007": { ...line, aliases: ["orders-000007"] },
      "partial-orders-000006": { ...line, aliases: ["orders-000006"] },
      "partial-invoices-000001": { ...line, aliases: ["invoices-000001"] },
      "shrink-c3d4-invoices-000002": { ...line, aliases: ["invoices-000002"] },
    });
    expect(found.patterns.lines).toEqual(["invoices-*", "orders-*"]);
    expect(found.lines).toHaveLength(5);
  });

  test("are copies where OpenSearch has shrunk them, which are left out", async () => {
    const copyOf = (name: string): FakeIndex => ({
      ...line,
      settings: { resize: { source: { name, uuid: name } } },
    });
    const indices = {
      "orders-000001": line,
      "orders-000001_shrunken": copyOf("orders-000001"),
      "orders-000002": line,
    };
    for (const requested of [[], ["orders-*"]]) {
      const found = await propose(indices, requested);
      expect(found.patterns.lines).toEqual(["orders-*,-*_shrunken"]);
      expect(found.out).toContain("orders-*_shrunken: copies of indices that are there (orders-000001)\n");
    }
    // Where the original is gone, the copy is all that there is.
    const { "orders-000001": _, ...without } = indices;
    expect((await propose(without)).lines).toEqual(["orders-000001_shrunken", "orders-000002"]);
  });
});

const word = fc.constantFrom("app", "logs", "orders", "errors", "web");
const name = fc
  .tuple(word, fc.option(word), fc.option(fc.constantFrom("2026.11.20", "2026.11.21", "000001", "000002")))
  .map((parts) => parts.filter((part) => part !== null).join("-"));
const content = fc.constantFrom(...(Object.keys(contents) as Content[]));
const cluster = fc
  .uniqueArray(
    fc.record({
      name,
      content,
      form: fc.constantFrom("index", "index", "shrunk", "stream", "copied", "aliased"),
      alias: name,
    }),
    { selector: ({ name }) => name, minLength: 1, maxLength: 7 },
  )
  .map((members) => {
    const names = new Set(members.map((member) => member.name));
    const held: Record<string, { readonly content: Content; readonly isCopy: boolean } & FakeIndex> = {};
    for (const { name, content, form, alias } of members) {
      const own = { ...plain(contents[content]), content, isCopy: false };
      if (form === "stream") held[`.ds-${name}-2026.11.20-000001`] = { ...own, stream: name };
      else if (form === "shrunk") held[`shrink-a1b2-${name}`] = { ...own, aliases: [name] };
      else held[name] = form === "aliased" && !names.has(alias) ? { ...own, aliases: [alias] } : own;
      if (form !== "copied") continue;
      const settings = { resize: { source: { name, uuid: name } } };
      held[`${name}_shrunken`] = { ...own, settings, isCopy: true };
    }
    return held;
  });

test("every index is proposed once or left out", { timeout: 120_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(
      cluster,
      fc.constantFrom([], ["*"], ["app*", "*-orders*", "*"]),
      async (indices, requested) => {
        const found = await propose(indices, requested);
        const count = (list: readonly string[], index: string) => list.filter((one) => one === index).length;
        for (const [index, { content, isCopy }] of Object.entries(indices)) {
          const lines = count(found.lines, index);
          const traces = count(found.traces, index);
          const context = [index, content, found.patterns, found.text];
          expect([lines <= 1, traces <= 1, ...context]).toEqual([true, true, ...context]);
          const isProposed = lines + traces > 0;
          expect([isProposed || count(found.leftOut, index) > 0, ...context]).toEqual([true, ...context]);
          // What is not known may lie beside lines of the same stem, which have it read as lines too.
          if (isCopy) expect([isProposed, ...context]).toEqual([false, ...context]);
          else if (content.includes("lines")) expect([lines, traces, ...context]).toEqual([1, 0, ...context]);
          else if (content.includes("spans")) expect([lines, traces, ...context]).toEqual([0, 1, ...context]);
          else if (content === "errors") expect([lines, ...context]).toEqual([0, ...context]);
        }
      },
    ),
    {
      seed: Number(process.env.SEED ?? 20_261_126),
      numRuns: Number(process.env.ROUNDS ?? sampleRuns(20, { share: 4, least: 5 })),
    },
  );
});
