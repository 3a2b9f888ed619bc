// `readout init` without a network but loopback: what is proposed of what was found, the text that is written, and every
// way in which nothing is.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { isNameInPattern } from "#resolvers/elastic/mapping/index-patterns.ts";
import { kinds } from "#resolvers/index.ts";
import { run } from "#src/cli/init/init.ts";
import { proposeSites } from "#src/cli/init/propose.ts";
import { printDraft } from "#src/cli/init/render.ts";
import { parseConfig } from "#src/config/config.ts";
import type { FoundSource, Survey } from "#src/store/inspection.ts";
import { createFakeSearch, type FakeIndex } from "../support/elastic/fake-cluster.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";
import { openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../support/scripted-http-source.ts";

const now = toInstant("2026-11-21T12:00:00Z");
/** As a file refers to an environment variable. */
const ref = (name: string): string => `${"$"}{${name}}`;
const minutesAgo = (minutes: number) => (now - BigInt(minutes) * 60_000_000_000n) as typeof now;
const world = { ...createShell({ now }), kinds };

const nothing: Survey = { logs: [], traces: [], labels: new Map(), kubernetes: [], notes: [] };
const lines = (index: string, over: Partial<FoundSource> = {}): FoundSource => ({
  ...{ holds: "lines", index, layout: "ecs", indices: 3, newest: minutesAgo(4), limitations: [] },
  ...over,
});
const fine = (...found: string[]) => ({ found, limitations: [], problems: [] });

/** The text for what was found, and the configuration that it is. */
function buildDraft(documents: Partial<Survey>, metrics?: Partial<Survey>, notes: readonly string[] = []) {
  const found = [
    { backend: "elk", survey: { ...nothing, ...documents } },
    ...(metrics === undefined ? [] : [{ backend: "prom", survey: { ...nothing, ...metrics } }]),
  ];
  const url = "http://127.0.0.1:9200";
  const text = printDraft({
    preface: ["Written by a test."],
    listen: "127.0.0.1:8080",
    token: { user: "admin", sha256: "ab".repeat(32) },
    backends: [
      {
        name: "elk",
        kind: "elastic",
        url,
        auth: { api_key: ref("KEY") },
        tls: {},
        reasons: ["Elasticsearch 9"],
      },
      ...(metrics === undefined
        ? []
        : [{ name: "prom", kind: "prometheus", url, auth: {}, tls: { ca: "ca.pem" }, reasons: [] }]),
    ],
    sites: proposeSites(found, "main", now),
    notes,
  });
  return { text, config: parseConfig(text, "readout.yaml", { ...world, env: { KEY: "k" } }) };
}

describe("a proposal of init", () => {
  test("prints the complete file for several environments", async () => {
    const { text, config } = buildDraft(
      {
        logs: [
          lines("app-*,-app-errors-*"),
          lines("app-errors-*", { indices: 1, newest: undefined }),
          lines("logs-nginx.access-prod", {
            namespace: "prod",
            services: { field: "service.name", names: ["web", 'o"dd'] },
          }),
          lines("logs-nginx.access-test", { namespace: "test" }),
        ],
        traces: [
          { ...lines("traces-generic.otel-prod", { layout: "otel", namespace: "prod" }), holds: "spans" },
          { ...lines("logs-generic.otel-prod", { layout: "otel", namespace: "prod" }), holds: "events" },
        ],
      },
      {
        metrics: fine("214 metrics: 120 gauges, 94 counters"),
        labels: new Map([
          ["environment", ["prod", "test"]],
          ["job", ["api", "node"]],
        ]),
        kubernetes: [{ match: { cluster: "eu-1" }, report: fine("kube-state-metrics: 12 pods") }],
      },
      ["strange: no known layout\nof lines # or spans"],
    );
    await expect(text).toMatchFileSnapshot("golden/init.yaml");
    expect(config.sites).toMatchObject({
      prod: {
        logs: { sources: { app: {}, "app-errors": {}, "nginx.access": { index: "logs-nginx.access-prod" } } },
        traces: { index: "logs-generic.otel-prod,traces-generic.otel-prod", layout: "otel" },
        metrics: { match: { environment: "prod" } },
        kubernetes: { match: { cluster: "eu-1" } },
      },
      test: { logs: { sources: { "nginx.access": {} } }, metrics: { match: { environment: "test" } } },
    });
  });

  test("proposes one site with all metrics where nothing separates several", () => {
    const { config, text } = buildDraft(
      { logs: [lines("filebeat-*"), lines("filebeat-7-*"), lines("logs-x-prod", { namespace: "prod" })] },
      { metrics: fine("3 metrics"), labels: new Map([["job", ["a", "b", "c", "d", "e", "f", "g", "h"]]]) },
    );
    expect(Object.keys(config.sites)).toEqual(["main"]);
    expect(Object.keys(config.sites.main?.logs?.sources ?? {})).toEqual(["filebeat", "filebeat-7", "x"]);
    expect(config.sites.main?.metrics?.match).toEqual({});
    expect(text).toContain("#   job: a, b, c, d, e, f, and 2 more\n");
  });

  test("gives a site to each environment whose name has no valid character", () => {
    const { config } = buildDraft({
      logs: ["прод", "тест"].map((namespace) => lines(`logs-x-${namespace}`, { namespace })),
    });
    expect(Object.values(config.sites).map(({ logs }) => Object.values(logs?.sources ?? {}))).toEqual([
      [{ index: "logs-x-прод", layout: "ecs" }],
      [{ index: "logs-x-тест", layout: "ecs" }],
    ]);
  });

  test("reads spans of several layouts by auto and omits events without spans", () => {
    const traces: FoundSource[] = [
      { ...lines("b-*", { layout: "jaeger" }), holds: "spans" },
      { ...lines("a-*,-a-x-*", { layout: "otel" }), holds: "spans" },
      { ...lines("e-*", { layout: "apm" }), holds: "events" },
    ];
    const { config } = buildDraft({ traces });
    expect(config.sites.main?.traces).toMatchObject({ index: "a-*,-a-x-*,b-*", layout: "auto" });
    expect(buildDraft({ traces: traces.slice(2) }).config.sites.main?.traces).toBeUndefined();
  });

  test.each([
    ["otel", ["traces-generic.otel-prod"], "logs-generic.otel-prod,traces-generic.otel-prod"],
    ["otel", ["traces-*.otel-*"], "logs-*.otel-*,traces-*.otel-*"],
    [
      "apm",
      ["traces-apm-default", "traces-apm.rum-default"],
      "logs-apm.error-default,traces-apm-default,traces-apm.rum-default",
    ],
    ["otel", ["spans"], "spans"],
    ["jaeger", ["traces-x-prod"], "traces-x-prod"],
  ])(
    "where nothing has failed yet, %s spans of %s are proposed with the place of their events",
    (layout, indices, index) => {
      const traces = indices.map(
        (name): FoundSource => ({ ...lines(name, { layout: layout }), holds: "spans" }),
      );
      const { config, text } = buildDraft({ traces });
      expect(config.sites.main?.traces).toMatchObject({ index, layout });
      expect(text.includes("none was found yet")).toBe(index !== indices.join());
    },
  );

  test("gives a site to each cluster where valid names would be equal", () => {
    const kubernetes = ["main", "eu 1", "eu/1"].map((cluster) => {
      return { match: { cluster }, report: fine("pods") };
    });
    const { config } = buildDraft({}, { metrics: fine("3 metrics"), kubernetes });
    const found = Object.entries(config.sites).map(([id, site]) => [id, site?.kubernetes?.match.cluster]);
    expect(found).toEqual([
      ["main", "main"],
      ["eu-1", "eu 1"],
      ["eu-1-2", "eu/1"],
    ]);
  });

  test("gives a site to each cluster that no site is named after", () => {
    const cluster = (name: string) => ({ match: { cluster: name }, report: fine("pods") });
    const labels = new Map([["cluster", ["a", "b", "main"]]]);
    const metrics = fine("3 metrics");
    const { config } = buildDraft(
      {},
      { metrics, labels, kubernetes: [cluster("a"), cluster("b"), cluster("main")] },
    );
    expect(config.sites).toMatchObject({
      main: { kubernetes: { match: { cluster: "main" } } },
      a: { kubernetes: { match: { cluster: "a" } }, metrics: { match: { cluster: "a" } } },
      b: { kubernetes: { match: { cluster: "b" } } },
    });
  });

  test("prints a valid file where nothing was found", () => {
    const { text, config } = buildDraft({});
    expect(config.sites).toMatchObject({ main: { retention: 30 * 86_400_000 } });
    expect(text).toContain("# nothing was found for it yet");
  });

  test("quotes names that YAML would read as something else", () => {
    const evil = fc.oneof(
      fc.string({ unit: "binary", minLength: 1 }),
      fc.constantFrom(
        ref("HOME"),
        "null",
        "x: y",
        "a\nb: c",
        "# x",
        "{a}",
        "\u2028",
        "'",
        '"',
        "on",
        "~",
        "*a",
        "&a",
      ),
    );
    fc.assert(
      fc.property(evil, evil, evil, (name, label, value) => {
        const survey = { logs: [lines(name, { services: { field: label, names: [value] } })] };
        const { config } = buildDraft(
          survey,
          {
            metrics: fine(label),
            labels: new Map([[label, [value]]]),
            kubernetes: [{ match: { cluster: value }, report: fine(name) }],
          },
          [name, value],
        );
        const [site] = Object.values(config.sites);
        expect(Object.values(site?.logs?.sources ?? {})).toEqual([{ index: name, layout: "ecs" }]);
        expect(site?.kubernetes?.match).toEqual({ cluster: value });
      }),
      { seed: 20_260_104, numRuns: 80 },
    );
  });
});

// ---- The command --------------------------------------------------------------------------------------------

let folder: string;
let fakes: { close(): Promise<void> }[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-init-"));
});
afterEach(async () => {
  rmSync(folder, { recursive: true, force: true });
  await Promise.all(fakes.map((fake) => fake.close()));
  fakes = [];
});

async function init(args: readonly string[], env: Readonly<Record<string, string>> = {}, deadline?: number) {
  const shell = {
    ...createShell({ now, env }),
    kinds,
    readText: (path: string) => readFileSync(path, "utf8"),
  };
  const code = await run(["--out", join(folder, "r.yaml"), ...args], shell, deadline);
  return { code, out: shell.printed(), err: shell.complained() };
}
const written = () => readFileSync(join(folder, "r.yaml"), "utf8");

const mapping = (created = "8190899") => ({
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      message: { type: "text" },
      log: { properties: { level: { type: "keyword" } } },
    },
  },
  settings: { index: { number_of_shards: "1", version: { created } } },
});

/** A cluster of these names; `denied` may not be looked at. */
async function serve(
  names: readonly string[],
  streams: readonly string[] = [],
  denied: RegExp = /^$/,
): Promise<ScriptedSource> {
  const reply: Responder = (response, request) => {
    const path = decodeURIComponent(request.url ?? "").split("?", 1)[0] ?? "";
    if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (denied.test(path)) return sendJson(response, { error: "security_exception" }, 403);
    if (path.startsWith("/_resolve/index/")) {
      const indices = names.map((name) => ({ name, attributes: ["open"] }));
      return sendJson(response, { indices, aliases: [], data_streams: streams.map((name) => ({ name })) });
    }
    if (path.endsWith("/_search")) {
      const shards = { total: 1, successful: 1, skipped: 0, failed: 0 };
      return sendJson(response, { took: 1, timed_out: false, _shards: shards, hits: { hits: [] } });
    }
    return sendJson(response, { [`behind-${path.slice(1, 9)}`]: mapping() });
  };
  const fake = await openScriptedSource(reply);
  fakes.push(fake);
  return fake;
}

const jaeger = {
  mappings: {
    properties: {
      traceID: { type: "keyword" },
      spanID: { type: "keyword" },
      startTime: { type: "long" },
      startTimeMillis: { type: "date" },
      duration: { type: "long" },
    },
  },
  settings: mapping().settings,
};
const fluentBit = {
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      log: { type: "text" },
      kubernetes: { properties: { pod_name: { type: "keyword" }, labels: { type: "object" } } },
    },
  },
  settings: mapping().settings,
};
const unread = { mappings: { ...jaeger.mappings, _source: { enabled: false } }, settings: jaeger.settings };

/** A cluster of these names, each with a mapping of its own; data streams have indices behind them. */
async function serveEach(definitions: ReadonlyMap<string, object>, streams: readonly string[] = []) {
  const behind = (name: string) => (streams.includes(name) ? `.ds-${name}-2026.11.20-000001` : name);
  const fake = await openScriptedSource((response, request) => {
    const path = decodeURIComponent(request.url ?? "").split("?", 1)[0] ?? "";
    if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
    const names = [...definitions.keys()];
    if (path.startsWith("/_resolve/index/")) {
      const plain = names.filter((name) => !streams.includes(name)).map((name) => ({ name }));
      const backing = streams.map((name) => ({ name, backing_indices: [behind(name)] }));
      return sendJson(response, { indices: plain, aliases: [], data_streams: backing });
    }
    // As servers do: a data stream is taken out by a name with a star alone.
    const parts = path
      .slice(1)
      .replace(/\/_search$/, "")
      .split(",");
    const pattern = parts.filter((part) => !part.startsWith("-") || !streams.includes(part.slice(1))).join();
    const covered = names.filter((name) => isNameInPattern(pattern, name));
    if (path.endsWith("/_search")) {
      const _shards = { total: covered.length, successful: covered.length, skipped: 0, failed: 0 };
      return sendJson(response, { took: 1, timed_out: false, _shards, hits: { hits: [] } });
    }
    const shown = covered.map((name) => [behind(name), definitions.get(name)]);
    return sendJson(response, Object.fromEntries(shown));
  });
  fakes.push(fake);
  return fake;
}

const each = (count: number, nameOf: (at: number) => string, definition: object) =>
  Array.from({ length: count }, (_, at) => [nameOf(at), definition] as const);

/** Which sources hold which names, and which names the traces. */
function listProposed(names: Iterable<string>) {
  const { logs, traces } = parseConfig(written(), "r.yaml", world).sites.main ?? {};
  const sources = Object.values(logs?.sources ?? {});
  return {
    lines: sources.map(({ index }) => index),
    spans: traces?.index,
    /** How often each name is read as lines and as spans. */
    held: [...names].map((name) => [
      name,
      sources.filter(({ index }) => isNameInPattern(index, name)).length,
      traces !== undefined && isNameInPattern(traces.index, name),
    ]),
  };
}

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

test("proposes no source whose message is only an alias field", async () => {
  const { mappings, settings } = mapping();
  const aliased = {
    ...mappings.properties,
    message: { type: "alias", path: "text" },
    text: { type: "text" },
  };
  const { url } = await serveEach(new Map([["app", { mappings: { properties: aliased }, settings }]]));
  const { out } = await init(["--elastic", url]);
  expect(out).toContain("app: looks like ecs, but has no message");
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
    const names = Object.keys(indices).map((name) => ({ name, attributes: ["open"] }));
    const fake = await openScriptedSource((response, request, body) => {
      if (!request.url?.startsWith("/_resolve/")) return search.reply(response, request, body);
      return sendJson(response, { indices: names, aliases: [], data_streams: [] });
    });
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

  test("are proposed without indices that have no lines", async () => {
    const apps = Array.from({ length: 30 }, (_, at) => [`acme-${at}x`, held([said], level)] as const);
    const sources = await propose({
      ...Object.fromEntries(apps),
      "acme-comments": held([{ message: "m" }]),
    });
    expect(Object.values(sources ?? {})).toEqual([{ index: "acme-*,-acme-comments", layout: "auto" }]);
  });
});

describe("readout init", () => {
  test("writes a file, prints its token once, and checks it", async () => {
    const { url } = await serve(["filebeat-2026.11.20", "filebeat-2026.11.21"], ["logs-app-default"]);
    const { code, out, err } = await init(["--elastic", url, "--user", "ana"]);
    expect([code, err]).toEqual([0, ""]);
    expect(readdirSync(folder)).toEqual(["r.yaml"]);
    const [, token = ""] = /\n {2}(rdt_\S{43})\n/.exec(out) ?? [];
    expect(token).not.toBe("");
    expect(out.split(token)).toHaveLength(2);
    expect(written()).not.toContain(token);
    expect(written()).toContain('filebeat: { index: "filebeat-*", layout: ecs }');
    expect(written()).toContain('app: { index: "logs-app-default", layout: ecs }');
    expect(out).toMatch(/whoever holds it reads as ana.*Tokens {4}1.*0 problems/s);
  });

  test("proposes a few patterns for hundreds of indices and reads mappings by pattern", async () => {
    const names = Array.from({ length: 400 }, (_, at) => `tenant${at % 40}-app-2026.11.${10 + (at % 20)}`);
    const fake = await serve(names);
    const { code } = await init(["--elastic", fake.url]);
    expect(code).toBe(0);
    expect(written().match(/index:/g)?.length).toBe(40);
    expect(fake.requests.filter(({ path }) => /tenant\d+-app-2026/.test(path))).toEqual([]);
  });

  test("omits and names what it may not read; --index helps where it may not list", async () => {
    const { url } = await serve(["open-2026.11.20", "secret-2026.11.20"], [], /^\/secret/);
    const { code, out } = await init(["--elastic", url]);
    expect(code).toBe(0);
    expect(out).toContain("secret-*: its mapping may not be read (it needs view_index_metadata, ");
    expect(written()).not.toMatch(/^[^#]*secret/m);
    const closed = await serve(["open-2026.11.20"], [], /^\/_resolve/);
    const blind = await init(["--elastic", closed.url, "--force"]);
    expect(blind.out).toContain("may not be listed: name those that may be read with --index");
    await init(["--elastic", closed.url, "--force", "--index", "open-*"]);
    expect(written()).toContain('open: { index: "open-*", layout: ecs }');
  });

  test("keeps an existing file without --force", async () => {
    const { url } = await serve(["app-2026.11.20"]);
    writeFileSync(join(folder, "r.yaml"), "mine\n");
    const kept = await init(["--elastic", url]);
    expect([kept.code, written()]).toEqual([1, "mine\n"]);
    expect(kept.err).toMatch(/r\.yaml is there already; --force replaces it/);
    expect((await init(["--elastic", url, "--force"])).code).toBe(0);
    expect(written()).toContain("app-*");
    expect(readdirSync(folder)).toEqual(["r.yaml"]);
  });

  test("sends credentials and writes only references to them", async () => {
    const seen: (string | undefined)[] = [];
    const fake = await serve(["app-2026.11.20"]);
    const watched = await openScriptedSource((response, request, body) => {
      seen.push(request.headers.authorization);
      void fetch(fake.url + (request.url ?? ""), {
        method: request.method ?? "GET",
        ...(body && { body }),
      }).then(async (answer) => sendJson(response, await answer.text(), answer.status));
    });
    fakes.push(watched);
    const env = { ELASTIC_USERNAME: "elastic", ELASTIC_PASSWORD: "hunter2", OTHER: "s3cret" };
    const { code, out } = await init(["--elastic", watched.url], env);
    expect([code, new Set(seen)]).toEqual([0, new Set([`Basic ${btoa("elastic:hunter2")}`])]);
    expect(written()).toContain(
      `auth: { username: "${ref("ELASTIC_USERNAME")}", password: "${ref("ELASTIC_PASSWORD")}" }`,
    );
    seen.length = 0;
    await init(["--elastic", watched.url, "--force", "--elastic-api-key", ref("OTHER")], env);
    expect(new Set(seen)).toEqual(new Set(["ApiKey s3cret"]));
    expect(written()).toContain(`auth: { api_key: "${ref("OTHER")}" }`);
    expect(written() + out).not.toMatch(/hunter2|s3cret/);
  });

  test.each<[string, string[], RegExp]>([
    ["nothing to look at", [], /--elastic, --prometheus or both/],
    ["no address", ["--elastic", "localhost:9200"], /--elastic: expected an http/],
    [
      "a password in the address",
      ["--elastic", "http://u:hunter2@h"],
      /--elastic: expected an address without user and password/,
    ],
    ["a query in the address", ["--prometheus", "http://h/?a=1"], /--prometheus: .*without a query/],
    ["a literal", ["--elastic", "http://h", "--elastic-api-key", "hunter2"], /expected a reference/],
    ["half of a pair", ["--elastic", "http://h", "--elastic-username", "u"], /belong together/],
    [
      "two ways",
      ["--elastic", "http://h", "--elastic-api-key", ref("A"), "--elastic-bearer", ref("B")],
      /one way to authenticate/,
    ],
    ["a site that is no name", ["--elastic", "http://h", "--site", "a b"], /--site/],
    ["a word too many", ["--elastic", "http://h", "x"], /x/],
  ])("refuses wrong arguments: %s", async (_, args, complaint) => {
    const { code, out, err } = await init(args);
    expect([code, out, readdirSync(folder)]).toEqual([2, "", []]);
    expect(err).toMatch(complaint);
    expect(err).not.toContain("hunter2");
  });

  test("writes nothing when a source is unreachable, refuses, is another product, or is slow", async () => {
    const { url } = await serve(["app-2026.11.20"]);
    const refusing = await openScriptedSource((response) => sendJson(response, { error: "no" }, 401));
    const strange = await openScriptedSource((response) => response.end("<html>"));
    const silent = await openScriptedSource(() => {});
    fakes.push(refusing, strange, silent);
    const gone = await openScriptedSource(() => {});
    await gone.close();
    for (const [args, complaint] of [
      [["--elastic", url, "--prometheus", gone.url], /^--prometheus http\S+: unreachable: /],
      [["--elastic", gone.url], /^--elastic http\S+: unreachable: /],
      [["--elastic", refusing.url], /^--elastic http\S+: denied: /],
      [["--elastic", strange.url], /^--elastic http\S+: malformed: /],
      [["--prometheus", strange.url], /^--prometheus http\S+: malformed: /],
      [["--elastic", silent.url], /^--elastic http\S+: it takes too long: /],
    ] as const) {
      const { code, out, err } = await init(args, {}, args[1] === silent.url ? 200 : undefined);
      expect([args, code, out, readdirSync(folder)]).toEqual([args, 1, "", []]);
      expect(err).toMatch(complaint);
      expect(err).toMatch(/\nNothing was written\.\n$/);
    }
  });

  test("reports a variable that is not set and a folder that does not exist", async () => {
    const unset = await init(["--elastic", "http://h", "--elastic-api-key", ref("NO_SUCH")]);
    expect([unset.code, readdirSync(folder)]).toEqual([1, []]);
    expect(unset.err).toContain("NO_SUCH");
    const { url } = await serve(["app-2026.11.20"]);
    const nowhere = await init(["--elastic", url, "--out", join(folder, "a/b/r.yaml")]);
    expect([nowhere.code, nowhere.err, readdirSync(folder)]).toEqual([
      1,
      `${join(folder, "a/b/r.yaml")}: cannot be written (ENOENT)\n`,
      [],
    ]);
  });

  test("writes a file for Prometheus alone", async () => {
    const fake = await openFakePrometheus({});
    fakes.push(fake);
    const { code, out } = await init(["--prometheus", fake.url]);
    expect(out).toContain("Its sites:\n  main:");
    expect(code).toBe(0);
    expect(written()).not.toContain("elastic");
  });
});
