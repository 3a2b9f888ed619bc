// Which fields of an index a tenant filter may name, over a small search server in memory.
import { afterEach, describe, expect, test } from "vitest";
import { allOf, anyOf, matchAll, matchNone, not } from "#resolvers/elastic/client/query-dsl.ts";
import { elastic } from "#resolvers/elastic/elastic.ts";
import {
  compileTenantFilter,
  hasUnmappedField,
  listFieldNames,
  parseTenantFilter,
} from "#resolvers/elastic/query/tenant-filter.ts";
import { buildLogSource, buildSpanSource } from "#src/access/sites.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch } from "../../../support/elastic/fake-cluster.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const at = "2026-01-15T10:00:00.000Z";
const keyword = { type: "keyword" };
const documents = [
  { "@timestamp": at, message: "mine", attributes: { tenant: "a" }, tenant_string: "[a]", is_bool: true },
  { "@timestamp": at, message: "theirs", attributes: { tenant: "b" }, tenant_string: "b", is_bool: false },
];

describe("tenant filter, field names", () => {
  test.each([
    "attributes.tenant=a",
    "attributes.tenant!=b",
    "tenant_string=[a]",
    "is_bool=true",
    "\\attributes.tenant=a",
  ])("reads %s as an index field, not as legacy syntax", async (where) => {
    const properties = {
      "@timestamp": { type: "date" },
      message: { type: "text" },
      attributes: { properties: { tenant: keyword } },
      tenant_string: keyword,
      is_bool: { type: "boolean" },
    };
    const search = createFakeSearch({ "logs-1": { documents, mappings: { properties } } }, "OpenSearch");
    const fake = await openScriptedSource((...asked) => search.reply(...asked));
    const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
    opened.push(fake, backend);
    const source = { id: "app", index: "logs-*", layout: "ecs", tenantFilter: where };
    const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };
    const limits = { expectedLines: 100, documentLimit: 1_000, tieLimit: 1_000 };
    const query = { sources: [source], range, filter: parse(""), order: "asc", ...limits } as const;
    const messages: (string | undefined)[] = [];
    for await (const batch of backend.stores.logs?.lines(query, never) ?? [])
      messages.push(...batch.map(({ message }) => message));
    expect(messages).toEqual(["mine"]);
    const report = await backend.inspections.logs?.(source, never);
    expect(report?.problems).toEqual([]);
  });

  test("rejects != on a dotted key that may also lie within an object", () => {
    const attributes = { type: "passthrough", properties: { a: { type: "flattened" }, "a.b": keyword } };
    const { groups } = readIndexMetadata({ "logs-1": { mappings: { properties: { attributes } } } });
    const [group] = groups;
    if (group === undefined) throw new Error("no group");
    const compile = (where: string) => compileTenantFilter(parseTenantFilter(where), group);
    expect(compile("attributes.a.b=x")).toEqual({ term: { "attributes.a.b": "x" } });
    expect(() => compile("attributes.a.b!=x")).toThrow("within an object");
  });
});

describe("an inspection", () => {
  const properties = {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    log: { properties: { level: keyword } },
    tenant: { type: "text" },
    trace_id: keyword,
    span_id: keyword,
    kind: keyword,
    duration: { type: "long" },
  };

  test.each(["logs", "traces"] as const)(
    "of %s tells which problem is that of the tenant filter",
    async (kind) => {
      const search = createFakeSearch({ "x-1": { documents: [], mappings: { properties } } }, "OpenSearch");
      const fake = await openScriptedSource((...asked) => search.reply(...asked));
      const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
      opened.push(fake, backend);
      const inspect = async (index: string, where: string) => {
        const part = { index, layout: "auto", where };
        const signal = new AbortController().signal;
        if (kind === "logs") return backend.inspections.logs?.(buildLogSource("app", part), signal);
        return backend.inspections.traces?.(buildSpanSource("shop", part), signal);
      };
      const [fault, problem] = [
        "where: tenant is of type text in x-1; it must be a keyword",
        expect.anything(),
      ];
      expect(await inspect("x-*", "tenant=a")).toMatchObject({ problems: [fault], tenantFilterFault: fault });
      const unreadable = await inspect("x-*", "tenant:a");
      expect(unreadable?.problems).toEqual([unreadable?.tenantFilterFault]);
      const elsewhere = await inspect("none-*", "tenant=a");
      expect(elsewhere).toMatchObject({ problems: expect.arrayContaining([problem]) });
      expect(elsewhere).not.toHaveProperty("tenantFilterFault");
    },
  );
});

describe("tenant filter", () => {
  const properties = {
    tenant: keyword,
    other: { type: "alias", path: "tenant" },
    short: { type: "keyword", ignore_above: 3 },
    lower: { type: "keyword", normalizer: "lowercase" },
    hidden: { type: "keyword", index: false },
    fixed: { type: "constant_keyword" },
    flag: { type: "boolean" },
    text: { type: "text" },
    dynamic: {
      type: "text",
      fields: { raw: { ...keyword, index: false }, keyword: { ...keyword, ignore_above: 3 } },
    },
    number: { type: "long" },
    map: { type: "flattened" },
    cut: { type: "flattened", ignore_above: 3 },
    flat: { type: "flat_object" },
    nest: { type: "nested", properties: { key: keyword } },
    through: { type: "passthrough", properties: { team: keyword } },
  };
  const { groups } = readIndexMetadata({ "logs-1": { mappings: { properties } } });
  const [group] = groups;
  if (group === undefined) throw new Error("no group");
  const compile = (where: string) => compileTenantFilter(parseTenantFilter(where), group);
  const term = (name: string, value: string) => ({ term: { [name]: value } });

  test.each([
    ["", matchAll],
    ["tenant=a", term("tenant", "a")],
    ["tenant!=a", not(term("tenant", "a"))],
    ["other=a", term("other", "a")],
    ["short=abc", term("short", "abc")],
    ["fixed=a", term("fixed", "a")],
    ["flag=false", term("flag", "false")],
    ["team=a", term("team", "a")],
    ["map.key=a", term("map.key", "a")],
    ["map.key!=a", not(term("map.key", "a"))],
    ["map.service.name='a=b'", term("map.service.name", "'a=b'")],
    ["flat.service.name=shop", term("flat.service.name", "shop")],
    ["flat.service.name!=shop", not(term("flat.service.name", "shop"))],
    ["unknown=a", matchNone],
    ["message=a", matchNone],
    ["tenant=a flag!=true", allOf([term("tenant", "a"), not(term("flag", "true"))])],
    ["tenant=a OR fixed=b", anyOf([term("tenant", "a"), term("fixed", "b")])],
  ])("compiles an exact tenant filter: %s", (where, query) => {
    expect(compile(where)).toEqual(query);
  });

  test.each([
    ["tenant:a", "only = and !="],
    ["number>1", "only = and !="],
    ["unknown!=a", "not mapped"],
    ["tenant=a OR unknown!=a", "not mapped"],
    ["text=a", "of type text in logs-1; it must be a keyword"],
    ["dynamic=a", "of type text in logs-1; it must be a keyword, as dynamic.keyword is there"],
    ["number=1", "of type long"],
    ["lower=a", "rewritten"],
    ["short=abcd", "left out of the index"],
    ["hidden=a", "not searchable"],
    ["flag=yes", "has no yes"],
    ["nest.key=a", "nested"],
    ["cut.key=abcd", "left out of the index"],
    ["flat.service.name=a=b", "not exact"],
    ["flat=a", "of type flat_object"],
    ["(tenant=a", "expected"],
  ])("rejects an inexact tenant filter: %s", (where, reason) => {
    expect(() => compile(where)).toThrow(reason);
  });

  test("names no multi-field that would be inexact too", () => {
    expect(() => compile("dynamic=abcd")).toThrow(/it must be a keyword$/);
  });

  test.each([
    ["number>1", "only = and != are exact, not >"],
    ["tenant=a OR secret", "only = and != are exact, not : or a word alone"],
    ["tenant=(", "expected a value at character 8"],
    ["tenant=a)", "expected the end of the query at character 9"],
    [`tenant=${"a".repeat(70_000)}`, "The query has more than 65536 bytes."],
    [" ", "compares nothing"],
    ["tenant=a unknown!=b", undefined],
  ])("is judged by its text before the backend answers: %s", (where, fault) => {
    expect(elastic.findTenantFilterFault?.(where)).toBe(fault);
  });

  test("finds unmapped fields and lists the mapped ones", () => {
    const unknown = (where: string) => hasUnmappedField(parseTenantFilter(where), groups);
    expect(["", "tenant=a", "team=a other!=b"].map(unknown)).toEqual([false, false, false]);
    expect(["gone=a", "tenant=a OR (fixed=b gone=a)"].map(unknown)).toEqual([true, true]);
    expect(listFieldNames(parseTenantFilter("other=a OR team=b gone=c"), groups)).toEqual([
      "tenant",
      "through.team",
    ]);
    expect(listFieldNames(parseTenantFilter(""), groups)).toEqual([]);
  });
});
