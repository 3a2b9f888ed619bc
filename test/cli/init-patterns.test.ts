import { describe, expect, test } from "vitest";
import { parseConfig } from "#src/config/config.ts";
import { toPlaces } from "#src/core/collections.ts";
import { createFakeSearch, type FakeIndex } from "../support/elastic/fake-cluster.ts";
import { openScriptedSource } from "../support/scripted-http-source.ts";

import {
  each,
  fakes,
  fluentBit,
  init,
  jaeger,
  listProposed,
  mapping,
  prepareInitTests,
  serveEach,
  unread,
  world,
  written,
} from "./init-harness.ts";

prepareInitTests();

describe("indices with a common prefix", () => {
  test("are proposed as one pattern for lines and one for spans", async () => {
    const definitions = new Map([
      ...each(30, (at) => `acme-app${at}-2026.11.20`, mapping()),
      ...each(4, (at) => `acme-traces-${at}x-2026.11.20`, jaeger),
      ...each(5, (at) => `acme-pod${at}-2026.11.20`, fluentBit),
      ["acme-nothing", { mappings: {}, settings: {} }] as const,
    ]);
    const { url } = await serveEach(definitions);
    expect((await init(["--elastic", url])).code).toBe(0);
    const { lines, spans, held } = listProposed(definitions.keys());
    expect(lines).toHaveLength(6);
    expect(lines[0]).toMatch(/^acme-\*,-acme-nothing,-acme-pod0-\*,.*-acme-traces-3x-\*$/);
    expect(spans).toBe("acme-traces-0x-*,acme-traces-1x-*,acme-traces-2x-*,acme-traces-3x-*");
    expect(held).toEqual(
      [...definitions.keys()].map((name) => [
        name,
        Number(/-(?:app|pod)/.test(name)),
        name.includes("-traces-"),
      ]),
    );
  });

  test("are proposed as patterns also where they are data streams", async () => {
    const definitions = new Map([
      ...each(20, (at) => `logs-acme.app${at}-default`, mapping()),
      ...each(10, (at) => `logs-acme.spans${at}-default`, jaeger),
    ]);
    const { url } = await serveEach(definitions, [...definitions.keys()]);
    expect((await init(["--elastic", url])).code).toBe(0);
    const { lines, held } = listProposed(definitions.keys());
    expect(lines).toHaveLength(1);
    expect(written()).toMatch(/^ +acme: \{ index: "logs-acme\.\*-default/m);
    expect(held).toEqual(
      [...definitions.keys()].map((name) => [name, Number(name.includes(".app")), name.includes(".spans")]),
    );
  });

  test("get no common pattern where many differ or one could not be read", async () => {
    const halves = new Map([
      ...each(26, (at) => `acme-${at}x-logs-2026.11.20`, mapping()),
      ...each(26, (at) => `acme-${at}x-spans-2026.11.20`, jaeger),
    ]);
    const { url } = await serveEach(halves);
    await init(["--elastic", url]);
    expect(listProposed(halves.keys()).lines).toHaveLength(26);
    expect(listProposed(halves.keys()).held).toEqual(
      [...halves.keys()].map((name) => [name, Number(name.includes("-logs-")), name.includes("-spans-")]),
    );
    const spoilt = new Map([...each(29, (at) => `acme-${at}x-spans`, jaeger), ["acme-bad-spans", unread]]);
    const other = await serveEach(spoilt);
    const { out } = await init(["--elastic", other.url, "--force"]);
    expect(out).toMatch(/acme-bad-spans: .*_source is not kept whole/);
    expect(listProposed(spoilt.keys()).held.filter(([, , spans]) => spans === true)).toHaveLength(29);
  });
});

describe("data streams of several environments", () => {
  const streams = ["logs-db-prod", "logs-db-staging", "logs-web-dev", "logs-web-prod", "logs-web-staging"];
  const spans = ["dev", "prod", "staging"].map((namespace) => `traces-shop-${namespace}`);
  const definitions = new Map([
    ...each(21, (at) => `app${at}x`, mapping()),
    ...streams.map((name) => [name, mapping()] as const),
    ...spans.map((name) => [name, jaeger] as const),
  ]);
  const listSites = () =>
    Object.entries(parseConfig(written(), "r.yaml", world).sites).map(([id, { logs, traces }]) => [
      id,
      Object.values(logs?.sources ?? {}).flatMap(({ index = "" }) =>
        index.startsWith("app") ? [] : [index],
      ),
      toPlaces(traces).map(({ index }) => index),
    ]);

  test("are in the site of their own namespace, however many other indices there are", async () => {
    const { url } = await serveEach(definitions, [...streams, ...spans]);
    expect((await init(["--elastic", url])).code).toBe(0);
    expect(listSites()).toEqual([
      ["prod", ["logs-db-prod", "logs-web-prod"], ["traces-shop-prod"]],
      ["staging", ["logs-db-staging", "logs-web-staging"], ["traces-shop-staging"]],
      ["dev", ["logs-web-dev"], ["traces-shop-dev"]],
    ]);
  });

  test("are one site with the reason, where a requested pattern has several", async () => {
    const { url } = await serveEach(definitions, [...streams, ...spans]);
    expect((await init(["--elastic", url, "--index", "logs-web-*", "--index", "logs-db-prod"])).code).toBe(0);
    expect(listSites()).toEqual([["main", ["logs-web-*", "logs-db-prod"], []]]);
    expect(written().replaceAll(/\n *# */g, " ")).toContain(
      "logs-web-* has the data streams of several environments (dev, prod, staging); each site is what ",
    );
  });
});

test("proposes no source whose message is only an alias field", async () => {
  const { mappings, settings } = mapping();
  const aliased = {
    ...mappings.properties,
    message: { type: "alias", path: "text" },
    text: { type: "text" },
  };
  const { url } = await serveEach(new Map([["app", { mappings: { properties: aliased }, settings }]]));
  const { out } = await init(["--elastic", url]);
  expect(out).toContain("app: looks like ecs, but no field is mapped for its message (message, ");
});

test.each<readonly [string, object]>([
  ["documents", {}],
  ["mapping", { log: { properties: { level: { type: "keyword" } } } }],
])(
  "proposes lines whose message the mapping hides, and whose layout the %s shows",
  async (shown, properties) => {
    const document = { "@timestamp": "2026-11-20T00:00:00Z", message: "m", log: { level: "info" } };
    const hidden = { dynamic: false, properties: { "@timestamp": { type: "date" }, ...properties } };
    const index = { mappings: hidden, documents: Array.from({ length: 25 }, () => document) };
    for (const others of [{}, { "app-b": { ...mapping(), documents: [document] } }]) {
      const search = createFakeSearch({ "app-a": index, ...others }, "Elasticsearch");
      const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
      fakes.push(fake);
      const { out } = await init(["--elastic", fake.url, "--force"]);
      expect(out).not.toContain("Left out");
      const [source] = Object.values(parseConfig(written(), "r.yaml", world).sites.main?.logs?.sources ?? {});
      expect(source?.index).toMatch(/^app-[a*]$/);
      expect(written()).toContain(`ecs by its ${"app-b" in others ? "mapping" : shown}, `);
    }
  },
);

test("suggests no service without a name", async () => {
  const { properties } = mapping().mappings;
  const service = { properties: { name: { type: "keyword" } } };
  const hold = (names: readonly string[]): FakeIndex => ({
    mappings: { properties: { ...properties, service } },
    documents: names.map((name) => {
      return {
        "@timestamp": "2026-11-20T00:00:00Z",
        message: "m",
        log: { level: "info" },
        service: { name },
      };
    }),
  });
  const search = createFakeSearch({ some: hold(["", "", "web"]), none: hold([""]) }, "Elasticsearch");
  const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
  fakes.push(fake);
  await init(["--elastic", fake.url]);
  expect(written().match(/service\.name=.*/g)).toEqual([expect.stringMatching(/^service\.name="web"'$/)]);
});

describe("lines without a known layout", () => {
  const held = (documents: readonly object[], properties: object = {}): FakeIndex => ({
    documents: documents.map((document) => ({ "@timestamp": "2026-11-20T00:00:00Z", ...document })),
    mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "text" }, ...properties } },
  });
  const level = { level: { type: "keyword" } };
  const said = { message: "m", level: "WARN" };
  async function propose(indices: Readonly<Record<string, FakeIndex>>) {
    const search = createFakeSearch(indices, "Elasticsearch");
    const fake = await openScriptedSource((...exchange) => search.reply(...exchange));
    fakes.push(fake);
    expect((await init(["--elastic", fake.url])).code).toBe(0);
    return parseConfig(written(), "r.yaml", world).sites.main?.logs?.sources;
  }

  test("are proposed as auto where all have a message and most a severity", async () => {
    const sources = await propose({
      "app-2026.11.19": held([said], level),
      // Mapped otherwise, so that it is told by documents of its own.
      "app-2026.11.20": held([said, said, { message: "m" }], { ...level, user: { type: "keyword" } }),
      comments: held([{ message: "m" }]),
      quiet: held([said, { message: "m" }], level),
      tickets: held([said, { level: "info" }], level),
      untimed: { documents: [said], mappings: { properties: { message: { type: "text" }, ...level } } },
    });
    expect(sources).toEqual({ app: { index: "app-*", layout: "auto" } });
    const text = written();
    expect(text).toContain("# no known layout; read as ecs, by which ");
    expect(text).toMatch(
      /untimed: no known layout .* a severity; no document in untimed has a readable time field \(@timestamp\)/,
    );
    for (const name of ["comments", "quiet", "tickets"])
      expect(text).toMatch(new RegExp(`#\\s+${name}: no known layout of lines or spans; a source of it`));
  });

  test("are left out with the reasons of those indices of a pattern that give one", async () => {
    await propose({
      "app-2026.11.19": held([said], level),
      "app-2026.11.20": held([{ message: "m" }, { message: "m" }], { user: { type: "keyword" } }),
      "app-2026.11.21": held([{ took: 5 }], { took: { type: "long" } }),
    });
    const left = /# +(app-\*: no known layout.*)/.exec(written().replaceAll(/\n# {5,}/g, " "))?.[1];
    expect(left).toBe(
      "app-*: no known layout of lines or spans; a source of it is " +
        "read as ecs, by which 2 of 2 documents have a message and 0 a severity (app-2026.11.20); " +
        "read as ecs, although none of 1 documents has a message by it (app-2026.11.21)",
    );
  });

  test("are proposed without indices that have no lines", async () => {
    const apps = Array.from({ length: 30 }, (_, at) => [`acme-${at}x`, held([said], level)] as const);
    const sources = await propose({
      ...Object.fromEntries(apps),
      "acme-comments": held([{ message: "m" }]),
    });
    expect(Object.values(sources ?? {})).toEqual([{ index: "acme-*,-acme-comments", layout: "auto" }]);
  });
});
