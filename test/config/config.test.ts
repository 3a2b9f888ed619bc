/* biome-ignore-all lint/suspicious/noTemplateCurlyInString: ${…} is the configuration's own syntax */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { z } from "zod";
import { kinds as realKinds } from "../../resolvers/index.ts";
import { hashToken } from "../../src/access/auth.ts";
import { type BackendKinds, type Config, parseConfig } from "../../src/config/config.ts";
import { defaults } from "../../src/config/schema.ts";
import { ConfigError } from "../../src/core/errors.ts";
import { parseDuration, parseInstant } from "../../src/core/time.ts";

const elastic = z.strictObject({
  url: z.union([z.url(), z.array(z.url()).min(1)]),
  auth: z
    .union([
      z.strictObject({ username: z.string(), password: z.string().max(8) }),
      z.strictObject({ api_key: z.string() }),
    ])
    .optional(),
});
const quoting = z.looseObject({}).transform((value, context) => {
  context.issues.push({ code: "custom", message: `bad ${JSON.stringify(value)}`, input: value });
  return z.NEVER;
});
const layout = z.strictObject({ name: z.string(), at: z.literal("here") });
const parseProfile = (text: string) => layout.parse(parseYaml(text));
const kinds: BackendKinds = new Map([
  [
    "elastic",
    {
      parseConfig: (value: unknown) => elastic.parse(value),
      layouts: {
        logs: { has: (name: string) => name === "ecs", parse: parseProfile },
        traces: { has: (name: string) => name === "otel", parse: parseProfile },
      },
    },
  ],
  ["prometheus", { parseConfig: (value: unknown) => z.strictObject({ url: z.url() }).parse(value) }],
  ["quoting", { parseConfig: (value: unknown) => quoting.parse(value) }],
]);
const env = { SECRET: "hunter2!", EMPTY: "", ROWS: "12", TYPO: "top-secret-name" };
const files: Readonly<Record<string, string>> = {
  "conf/password": "from a file\n\n",
  "conf/windows": "crlf\r\n",
  "/run/secrets/x": "absolute",
  "conf/empty": "\n",
  "conf/mine.yaml": "{ name: mine, at: here }",
  "conf/other.yaml": "{ at: there }",
  "conf/cut.yaml": "name: [",
};
const readText = (path: string): string => {
  const text = files[path];
  if (text === undefined) throw Object.assign(new Error(`no ${path}`), { code: "ENOENT" });
  return text;
};
const parse = (text: string): Config => parseConfig(text, "conf/r.yaml", { kinds, env, readText });

/** The issues of a file as `line path: message`. */
function listIssues(text: string): readonly string[] {
  try {
    parse(text);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.issues.map(({ line, path, message }) => `${line} ${path}: ${message}`);
  }
  return [];
}

const hash = "9F86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const minimal = "backends: {}\nsites: {}\n";
const withBackend = (entry: string) => `backends:\n  elk: ${entry}\nsites: {}\n`;

describe("layout files", () => {
  const site = (logs: string, traces: string) => `backends:
  elk: { kind: elastic, url: "http://elk" }
  prom: { kind: prometheus, url: "http://prom" }
sites:
  shop:
    logs:
      backend: elk
      sources:
        app: { index: a, layout: ${logs} }
    traces: { backend: elk, index: a, layout: ${traces} }
    frontend: { keys: [k], backend: elk, index: r, layout: ${traces} }
`;

  test("are files beside the configuration", () => {
    expect(listIssues(site("mine.yaml", "mine.yaml"))).toEqual([]);
    expect(listIssues(site("ecs", "otel"))).toEqual([]);
    expect(listIssues(site("auto", "auto"))).toEqual([]);
  });

  test("are read with the file, for the backend that they are of", () => {
    const { elk, prom } = parse(site("mine.yaml", "auto")).backends;
    const mine = { name: "mine", at: "here" };
    expect(elk?.layouts).toEqual({ logs: new Map([["mine.yaml", mine]]), traces: new Map() });
    expect(prom?.layouts).toBeUndefined();
  });

  test("are wrong before anything is served", () => {
    const app = "9 sites.shop.logs.sources.app.layout:";
    expect(listIssues(site("other.yaml", "auto"))).toEqual([
      `${app} is no layout: name: is missing`,
      `${app} is no layout: at: Invalid input: expected "here"`,
    ]);
    expect(listIssues(site("otel", "ecs"))).toEqual([
      `${app} is no built-in layout, and no file that can be read (ENOENT)`,
      "10 sites.shop.traces.layout: is no built-in layout, and no file that can be read (ENOENT)",
      "11 sites.shop.frontend.layout: is no built-in layout, and no file that can be read (ENOENT)",
    ]);
    expect(listIssues(site("cut.yaml", "auto"))).toEqual([
      expect.stringMatching(/^9 \S+ is no layout: Flow sequence .* at line 1, column 8$/),
    ]);
  });
});

describe("older names of keys", () => {
  const site = (key: string) => `backends: { elk: { kind: elastic, url: "http://elk" } }
sites:
  shop:
    logs: { backend: elk, sources: { app: { index: a, ${key}: ecs } } }
    traces: { backend: elk, index: a, ${key}: otel }
    frontend: { keys: [k], backend: elk, index: r, ${key}: otel }
`;

  test("a file with the older names means the same as one with today's", () => {
    const older = `${site("profile")}limits: { millisecond: 20000 }\ntail: { open: 8 }\n`;
    const today = `${site("layout")}limits: { lines_per_millisecond: 20000 }\ntail: { max_open: 8 }\n`;
    expect(parse(older)).toEqual(parse(today));
    expect(parse(older).limits).toMatchObject({ linesPerMillisecond: 20_000, tail: { maxOpen: 8 } });
  });

  test("a layout file may be named under the older key", () => {
    const text = site("profile").replace("profile: ecs", "profile: mine.yaml");
    expect(parse(text).backends.elk?.layouts?.logs.has("mine.yaml")).toBe(true);
  });

  test("messages name a key as the file spells it", () => {
    expect(listIssues(`${minimal}limits: { millisecond: 5 }\ntail: { open: 0 }\n`)).toEqual([
      "3 limits.millisecond: can only be raised: expected 10000 or more",
      "4 tail.open: expected a whole number from 1 up",
    ]);
    const text = site("profile").replace("profile: ecs", "profile: none.yaml");
    expect(listIssues(text)).toEqual([
      "4 sites.shop.logs.sources.app.profile: is no built-in layout, and no file that can be read (ENOENT)",
    ]);
  });

  test("both names of one key are an error", () => {
    const both = (older: string, key: string) =>
      `${older}: is the older name of ${key}, which is given too: remove one of them`;
    const text = site("layout: auto, profile");
    expect(
      listIssues(
        `${text}limits: { millisecond: 1, lines_per_millisecond: 20000 }\ntail: { max_open: 1, open: 0 }\n`,
      ),
    ).toEqual([
      both("4 sites.shop.logs.sources.app.profile", "layout"),
      both("5 sites.shop.traces.profile", "layout"),
      both("6 sites.shop.frontend.profile", "layout"),
      both("7 limits.millisecond", "lines_per_millisecond"),
      both("8 tail.open", "max_open"),
    ]);
  });
});

test("every part of a file", () => {
  const config = parse(`
listen: 0.0.0.0:9000
intake:
  listen: "[::1]:8081"
  spool: data/spool.db
  spool_bytes: 2000000
  key_rate: 7
  address_rate: 8
  proxies: 1
tokens:
  - { user: ana, sha256: "${hash}", sites: [shop], expires: 2027-01-01T00:00:00Z }
  - { user: bob, sha256: "${"0".repeat(64)}", sites: "*" }
backends:
  elk:  { kind: elastic, url: "http://127.0.0.1:9200", auth: { username: u, password: "\${SECRET}" } }
  prom: { kind: prometheus, url: "http://127.0.0.1:9090" }
sites:
  shop:
    name: My shop
    environment: production
    retention: 7d
    counter_default: increment
    logs:
      backend: elk
      sources:
        app:   { index: "logs-app-*", layout: auto, where: 'service.name="shop"' }
        nginx: { index: "filebeat-*", layout: ecs }
    traces: { backend: elk, index: "traces-*,logs-apm.error-*", tag_prefixes: [app.tag.], action_attribute: a }
    metrics:    { backend: prom, match: { site: shop } }
    kubernetes: { backend: prom, match: { cluster: prod } }
    frontend: { keys: ["\${SECRET}"], backend: elk, index: logs-readout.frontend-default, layout: otel }
visuals: visuals
limits: { rows: "\${ROWS}", lines_per_millisecond: 20000, points: 1, documents: 2, spans: 3, look_back: 2h, deadline: 5s, requests: 4, streams: 5, token_requests: 7, token_streams: 8, rate: 6, export: 7 }
tail: { lateness: 90s, max_open: 8, per_token: 9 }
`);
  expect(config).toEqual({
    listen: { host: "0.0.0.0", port: 9000 },
    intake: {
      listen: { host: "::1", port: 8081 },
      spool: "conf/data/spool.db",
      spoolBytes: 2_000_000,
      keyRate: 7,
      addressRate: 8,
      proxies: 1,
    },
    tokens: [
      {
        user: "ana",
        sha256: hash.toLowerCase(),
        sites: ["shop"],
        expires: parseInstant("2027-01-01T00:00:00Z"),
      },
      { user: "bob", sha256: "0".repeat(64), sites: "*" },
    ],
    backends: {
      elk: {
        kind: "elastic",
        settings: { url: "http://127.0.0.1:9200", auth: { username: "u", password: "hunter2!" } },
      },
      prom: { kind: "prometheus", settings: { url: "http://127.0.0.1:9090" } },
    },
    sites: {
      shop: {
        name: "My shop",
        environment: "production",
        retention: 7 * 86_400_000,
        counterDefault: "increment",
        logs: {
          backend: "elk",
          sources: {
            app: { index: "logs-app-*", layout: "auto", where: 'service.name="shop"' },
            nginx: { index: "filebeat-*", layout: "ecs" },
          },
        },
        traces: {
          backend: "elk",
          index: "traces-*,logs-apm.error-*",
          layout: "auto",
          tagPrefixes: ["app.tag."],
          actionAttribute: "a",
        },
        metrics: { backend: "prom", match: { site: "shop" } },
        kubernetes: { backend: "prom", match: { cluster: "prod" } },
        frontend: {
          keys: ["hunter2!"],
          backend: "elk",
          index: "logs-readout.frontend-default",
          layout: "otel",
        },
      },
    },
    visuals: "conf/visuals",
    limits: {
      rows: 12,
      linesPerMillisecond: 20_000,
      points: 1,
      documents: 2,
      spans: 3,
      lookBack: 7_200_000,
      deadline: 5_000,
      requests: 4,
      streams: 5,
      tokenRequests: 7,
      tokenStreams: 8,
      rate: 6,
      export: 7,
      tail: { lateness: 90_000, maxOpen: 8, perToken: 9 },
    },
  });
});

test("what is absent has its default", () => {
  const config = parse(
    "backends: { p: { kind: prometheus, url: 'http://p' } }\nintake: {}\n" +
      "sites: { s: { logs: { backend: p, sources: { a: { index: i } } }, metrics: { backend: p } } }",
  );
  expect(config.listen).toEqual(defaults.listen);
  expect(config.limits).toEqual(defaults.limits);
  expect(config.tokens).toEqual([]);
  const { spool, spoolBytes, keyRate, addressRate, proxies } = defaults;
  expect(config.intake).toEqual({ spool: `conf/${spool}`, spoolBytes, keyRate, addressRate, proxies });
  const { s } = config.sites;
  expect([s?.retention, s?.counterDefault]).toEqual([defaults.retention, defaults.counterDefault]);
  expect(s?.logs?.sources.a?.layout).toBe(defaults.layout);
  expect(s?.metrics?.match).toEqual({});
});

test("the result is frozen to the bottom, with the settings of the kinds", () => {
  const config = parse(withBackend("{ kind: elastic, url: ['http://a'] }"));
  const visit = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    expect(Object.isFrozen(value)).toBe(true);
    Object.values(value).forEach(visit);
  };
  visit(config);
  visit(defaults);
});

test.each([
  ["127.0.0.1:8080", "127.0.0.1", 8080],
  ["localhost:0", "localhost", 0],
  ["[::1]:8080", "::1", 8080],
  ["[::]:65535", "::", 65_535],
])("listen %s", (listen, host, port) => {
  expect(parse(`listen: "${listen}"\n${minimal}`).listen).toEqual({ host, port });
});

test.each([
  "8080",
  ":8080",
  "h",
  "h:",
  "h:65536",
  "::1:80",
  "[::g]:80",
  "[::1]",
  "300.1.1.1:80",
  "a b:80",
  "*:80",
])("listen %s is refused", (listen) => {
  expect(listIssues(`\nlisten: "${listen}"\n${minimal}`)).toEqual([
    "2 listen: expected host:port, such as 127.0.0.1:8080 or [::1]:8080",
  ]);
});

test.each([
  ["${SECRET}", "hunter2!"],
  ["a${ROWS}b${ROWS}", "a12b12"],
  ["${file:password}", "from a file\n"],
  ["${file:windows}", "crlf"],
  ["${file:/run/secrets/x}", "absolute"],
  ["$${SECRET}", "${SECRET}"],
  ["$$${ROWS}", "$${ROWS}"],
  ["$ROWS $ { $$", "$ROWS $ { $$"],
])("%s is put in", (written, value) => {
  expect(parse(`${minimal}visuals: '/${written}'`).visuals).toBe(`/${value}`);
});

test.each([
  ["${NOPE}", "the environment variable NOPE is not set"],
  ["${constructor}", "the environment variable constructor is not set"],
  ["${EMPTY}", "the environment variable EMPTY is empty"],
  ["${file:none}", "the file none cannot be read (ENOENT)"],
  ["${file:empty}", "the file empty is empty"],
  ["${SECRET", "${ without }; a literal ${ is written $${"],
  ["${}", "${} is neither ${NAME} nor ${file:PATH}; a literal ${ is written $${"],
  ["${A-B}", "${A-B} is neither ${NAME} nor ${file:PATH}; a literal ${ is written $${"],
])("%s is an error with its path, and the only one there", (written, message) => {
  expect(listIssues(`${minimal}listen: '${written}'`)).toEqual([`3 listen: ${message}`]);
});

test("what is put in is text, never YAML", () => {
  const injected = { ...env, EVIL: 'x", kind: prometheus, y: "' };
  const { backends } = parseConfig(
    withBackend('{ kind: elastic, url: "http://h", auth: { api_key: "${EVIL}" } }'),
    "r.yaml",
    { kinds, env: injected, readText },
  );
  expect(backends.elk).toEqual({
    kind: "elastic",
    settings: { url: "http://h", auth: { api_key: injected.EVIL } },
  });
});

test("all issues of a file at once, in its order", () => {
  expect(
    listIssues(`listen: nowhere
intake: { lisen: "[::1]:80" }
tokens:
  - { user: 12, sha256: abc, sites: [shup, shop], expires: 2026-02-30T00:00:00Z }
  - { user: ana, sha256: "${hash}", sites: shop, expire: 1 }
  - { sha256: "${hash.toLowerCase()}", sites: [] }
  - { user: x, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, sites: ["*"] }
backends:
  elk: { kind: elastik, url: 1 }
  elk2:
    kind: elastic
    url: foo
    auth:
      username: u
      pasword: p
  elk3: { url: "http://x" }
sites:
  shop:
    retention: 30
    retntion: 30d
    retention: 1d
    counter_default: sum
    logs:
      backend: elq
      sources:
        app: { idex: x, layout: "" }
    traces:
    metrics: { backend: elk2, match: [] }
  "a b": {}
  blog: { logs: { backend: elk, sources: {} } }
limits: { lines_per_millisecond: 5, rows: 0, deadline: 0s, look_back: 1w, streams: 1.5, requests: many, bogus: 1 }
visuals: 7
`),
  ).toEqual([
    "1 listen: expected host:port, such as 127.0.0.1:8080 or [::1]:8080",
    '2 intake.lisen: unknown key; did you mean "listen"?',
    '4 tokens.0.sites.0: unknown site "shup"; did you mean "shop"?',
    "4 tokens.0.user: expected text; put it in quotes",
    "4 tokens.0.sha256: expected the token's SHA-256 as 64 hex digits in quotes; `readout token new` prints it",
    "4 tokens.0.expires: expected an ISO 8601 time with a zone, such as 2027-01-01T00:00:00Z",
    '5 tokens.1.sites: expected a list of sites, or "*" for all',
    '5 tokens.1.expire: unknown key; did you mean "expires"?',
    "6 tokens.2.sha256: is the same as tokens.1.sha256",
    "6 tokens.2.user: is missing",
    '6 tokens.2.sites: names no site; for all sites write "*"',
    '7 tokens.3.sites.0: unknown site "*"; for all sites write sites: "*"',
    "7 tokens.3.sha256: expected the token's SHA-256 as 64 hex digits in quotes; `readout token new` prints it",
    '9 backends.elk.kind: unknown kind "elastik"; did you mean "elastic"?',
    "12 backends.elk2.url: Invalid URL",
    "13 backends.elk2.auth.password: is missing",
    "15 backends.elk2.auth.pasword: unknown key",
    "16 backends.elk3.kind: is missing",
    "19 sites.shop.retention: expected a duration such as 250ms, 10s or 30d, at most 36500d",
    '20 sites.shop.retntion: unknown key; did you mean "retention"?',
    "21 sites.shop.retention: duplicate key",
    "22 sites.shop.counter_default: expected cumulative or increment",
    '24 sites.shop.logs.backend: unknown backend "elq"; did you mean "elk"?',
    "26 sites.shop.logs.sources.app.index: is missing",
    "26 sites.shop.logs.sources.app.layout: must not be empty",
    '26 sites.shop.logs.sources.app.idex: unknown key; did you mean "index"?',
    "27 sites.shop.traces: is empty",
    "28 sites.shop.metrics.match: expected keys with values",
    '29 sites.a b: a name holds no space and none of / $ , { } " \\',
    "30 sites.blog.logs.sources: names no source",
    "31 limits.rows: expected a whole number from 1 up",
    "31 limits.lines_per_millisecond: can only be raised: expected 10000 or more",
    "31 limits.look_back: expected a duration such as 250ms, 10s or 30d, at most 366d",
    "31 limits.deadline: expected a duration such as 250ms, 10s or 30d, at most 1d",
    "31 limits.requests: expected a whole number from 1 up",
    "31 limits.streams: expected a whole number from 1 up",
    "31 limits.bogus: unknown key; known here: rows, lines_per_millisecond, points, documents, spans, look_back, deadline, requests, streams, token_requests, token_streams, rate, export",
    "32 visuals: expected text; put it in quotes",
  ]);
});

test("what is wrong with a backend is told in the words of its kind", () => {
  const text = `backends:
  a: { kind: elastic, tls: x, headers: [a], timeout: 5, answer_bytes: 5, seed: 1 }
  b: { kind: elastic, url: [], auth: { username: a, pasword: b }, tls: { cs: x }, answer_byte: 3 }
  c: { kind: elastic, url: 5, auth: x }
  d: { kind: prometheus, url: "ftp://x", seed: 3, auth: { bearer: 5 } }
  e: { kind: prometheus, url: ["http://a"], auth: { api_key: x } }
  f: { kind: memory, sed: 4 }
  g: { kind: elastic, url: "http://a", auth: {} }
  h: { kind: prometheus, url: "http://a", auth: {} }
sites: {}
otlp: {}
`;
  const known = "url, auth, tls, headers, timeout, answer_bytes";
  let told = "";
  try {
    parseConfig(text, "r.yaml", { kinds: realKinds, env, readText });
  } catch (error) {
    told = error instanceof ConfigError ? error.message : String(error);
  }
  expect(told.split("\n")).toEqual([
    "r.yaml:2: backends.a.url: is missing",
    "r.yaml:2: backends.a.tls: expected keys with values",
    "r.yaml:2: backends.a.headers: expected keys with values",
    "r.yaml:2: backends.a.timeout: expected text; put it in quotes",
    "r.yaml:2: backends.a.answer_bytes: expected a whole number from 1048576 up",
    `r.yaml:2: backends.a.seed: unknown key; known here: ${known}`,
    "r.yaml:3: backends.b.url: names no address",
    "r.yaml:3: backends.b.auth.password: is missing",
    'r.yaml:3: backends.b.auth.pasword: unknown key; did you mean "password"?',
    'r.yaml:3: backends.b.tls.cs: unknown key; did you mean "ca"?',
    'r.yaml:3: backends.b.answer_byte: unknown key; did you mean "answer_bytes"?',
    "r.yaml:4: backends.c.url: expected an address or a list of them",
    "r.yaml:4: backends.c.auth: expected { username, password }, { bearer } or { api_key }",
    "r.yaml:5: backends.d.url: expected an http:// or https:// address",
    "r.yaml:5: backends.d.auth.bearer: expected text; put it in quotes",
    `r.yaml:5: backends.d.seed: unknown key; known here: ${known}`,
    "r.yaml:6: backends.e.url: expected an http:// or https:// address",
    "r.yaml:6: backends.e.auth.bearer: is missing",
    "r.yaml:6: backends.e.auth.api_key: unknown key; known here: bearer",
    'r.yaml:7: backends.f.sed: unknown key; did you mean "seed"?',
    "r.yaml:8: backends.g.auth: expected { username, password }, { bearer } or { api_key }",
    "r.yaml:9: backends.h.auth: expected { username, password } or { bearer }",
    "r.yaml:11: otlp.url: is missing",
  ]);
});

test.each<[string, readonly string[]]>([
  ["", ["1 : is empty"]],
  ["[1, 2]", ["1 : expected keys with values"]],
  ["{}", ["1 backends: is missing", "1 sites: is missing"]],
  ["a: b: c", ["1 : two colons in one line: a value that holds a colon and a space needs quotes"]],
  [
    "x:\n  y: *nowhere",
    ["2 x.y: an alias (*name) needs an anchor (&name) before it; text that begins with * needs quotes"],
  ],
  ["x: @hunter2", ["1 : a value that begins with this character needs quotes"]],
  ["x: !hunter2 y", ["1 : tags (!name) are not supported; text that begins with ! needs quotes"]],
  ["a:\n\t- b", ["2 : a tab in the indentation: YAML takes spaces only"]],
  ["a: 1\n---\nb: 2", ["2 : more than one document (---) in the file"]],
  [
    'x: "hunter2',
    ["1 : something is not closed or separated: a quote, a bracket, a comma or a colon is missing"],
  ],
  [
    `${minimal}limits: &l { rows: 1 }\nintake: { <<: *l }`,
    ["4 intake.<<: merge keys are not supported: write the keys out"],
  ],
  [`${minimal}__proto__: { a: 1 }`, ["3 __proto__: this key is not allowed"]],
])("what is no YAML or no configuration: %j", (text, issues) => {
  const found = listIssues(text);
  expect(found).toEqual(expect.arrayContaining([...issues]));
  expect(found.join()).not.toContain("hunter2");
});

test("an alias stands for its anchor, and a fault in it for both", () => {
  const text = (rows: string) =>
    `backends: { elk: { kind: elastic, url: 'http://h' } }\nsites:\n  a: &a { retention: ${rows} }\n  b: *a\n`;
  expect(parse(text("2d")).sites.b).toEqual(parse(text("2d")).sites.a);
  expect(listIssues(text("2")).map((issue) => issue.slice(0, 21))).toEqual([
    "3 sites.a.retention: ",
    "4 sites.b.retention: ".replace("4", "3"),
  ]);
});

// Followed, the aliases would make 10^30 values: the test would not end.
test("aliases that multiply or nest without end are refused", () => {
  let bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (let level = 1; level < 30; level += 1) {
    bomb += `a${level}: &a${level} [${Array(10)
      .fill(`*a${level - 1}`)
      .join(", ")}]\n`;
  }
  for (const text of [bomb, "a: &a\n  b: *a\n", "a: ".padEnd(20_000, "[")]) {
    expect(listIssues(text).join()).toMatch(/too (many|deeply)/);
  }
});

test("no message holds what was put in, nor what stands under auth", () => {
  const found = listIssues(`
listen: "\${SECRET}"
tokens: [{ user: u, sha256: "\${SECRET}", sites: ["\${TYPO}"], expires: "\${SECRET}" }]
backends:
  a: { kind: "\${TYPO}" }
  b: { kind: elastic, url: "\${TYPO}", auth: { username: u, password: "\${TYPO}" } }
  c: { kind: quoting, x: "\${SECRET}", auth: { password: literally }, headers: { X: in-header } }
sites:
  s: { retention: "\${SECRET}", logs: { backend: "\${TYPO}", sources: {} }, counter_default: "\${SECRET}" }
limits: { rows: "\${SECRET}" }
`).join("\n");
  for (const secret of [env.SECRET, env.TYPO, "literally", "in-header"]) expect(found).not.toContain(secret);
  expect(found).toContain('unknown site "${TYPO}"');
  expect(found).toContain('unknown backend "${TYPO}"');
  expect(found).toContain('unknown kind "${TYPO}"');
  expect(found).toContain('bad {"x":"…"');
});

test("names that objects have anyway are names like others", () => {
  expect(
    listIssues(
      "backends: {}\nsites: { constructor: { logs: { backend: toString, sources: { a: { index: i } } } } }",
    ),
  ).toEqual(['2 sites.constructor.logs.backend: unknown backend "toString"']);
});

test("a kind that breaks is not the file's fault", () => {
  const broken = new Map([
    [
      "broken",
      {
        parseConfig() {
          throw new TypeError("bug");
        },
      },
    ],
  ]);
  expect(() => parseConfig(withBackend("{ kind: broken }"), "f", { kinds: broken, env, readText })).toThrow(
    TypeError,
  );
});

test("the configuration of docker-compose.yml is valid, and its documented token is in it", () => {
  const { listen, tokens } = parse(readFileSync("deploy/readout.compose.yaml", "utf8"));
  expect(listen).toEqual({ host: "0.0.0.0", port: 8080 });
  expect(tokens.map(({ sha256 }) => sha256)).toEqual([hashToken("rdt_compose")]);
});

test("numbers may come from the environment, everywhere", () => {
  const text = `
backends:
  elk: { kind: elastic, url: "http://127.0.0.1:9200", answer_bytes: "\${BYTES}" }
  prom: { kind: prometheus, url: "http://127.0.0.1:9090", answer_bytes: "\${BYTES}" }
  made: { kind: memory, seed: "\${SEED}" }
sites: {}
otlp: { url: "http://127.0.0.1:4318", ratio: "\${RATIO}" }
limits: { rows: "\${SEED}" }
`;
  const read = (env: Readonly<Record<string, string>>) =>
    parseConfig(text, "r.yaml", { kinds: realKinds, env, readText });
  const { backends, otlp, limits } = read({ BYTES: "2000000", SEED: "7", RATIO: "0.25" });
  expect(Object.values(backends).map(({ settings }) => settings)).toEqual([
    expect.objectContaining({ answer_bytes: 2_000_000 }),
    expect.objectContaining({ answer_bytes: 2_000_000 }),
    { seed: 7 },
  ]);
  expect([otlp?.ratio, limits.rows]).toEqual([0.25, 7]);
  for (const wrong of ["1.5", "-1", "0x10", "many", "1e3"]) {
    const message = read.bind(undefined, { BYTES: wrong, SEED: wrong, RATIO: wrong });
    expect(message).toThrow(/elk\.answer_bytes.*prom\.answer_bytes.*made\.seed.*otlp\.ratio.*limits\.rows/s);
    expect(message).not.toThrow(wrong);
  }
});

// A timer of more than 24 days fires at once, as one of no length does.
test.each(["0s", "30d", "0ms", "2147483648ms"])("a backend cannot have %s to answer", (timeout) => {
  for (const kind of ["elastic", "prometheus"]) {
    const text = `backends: { one: { kind: ${kind}, url: "http://a", timeout: ${timeout} } }\nsites: {}\n`;
    expect(() => parseConfig(text, "r.yaml", { kinds: realKinds, env, readText })).toThrow(
      /^r\.yaml:1: backends\.one\.timeout: expected a duration such as \d+s, at most 1d$/,
    );
  }
});

test.each(["http://ana:secret@collector:4318", "http://collector:4318/?tenant=a", "collector:4318"])(
  "%s is no address for traces",
  (url) => {
    const [first, ...more] = listIssues(`${minimal}otlp: { url: "${url}" }\n`);
    expect(first).toMatch(/^3 otlp\.url: expected an .*address/);
    expect([more, first?.includes("secret")]).toEqual([[], false]);
  },
);

test.each(['{ "A B": c }', '{ A: "b\\nc" }', '{ A: "b€" }', '{ "": a }'])(
  "%s are no headers of traces",
  (headers) => {
    const [first, ...more] = listIssues(`${minimal}otlp: { url: "http://a", headers: ${headers} }\n`);
    expect(first).toMatch(/^3 otlp\.headers.*: (?:no name of a header|expected what may stand in a header)$/);
    expect(more).toEqual([]);
  },
);

describe("front-end reports", () => {
  const withParts = (one: string, two: string) => `backends:
  elk: { kind: elastic, url: "http://a" }
  old: { kind: elastic, url: "http://b" }
sites:
  shop: { frontend: ${one} }
  blog: { frontend: ${two} }
`;
  const part = (over: string, backend = "elk") =>
    `{ keys: ["${over} ${backend}"], backend: ${backend}, index: "${over}" }`;

  test.each([
    ["r", "r-2"],
    ["shop-{date}", "blog-{date}"],
    ["r-{month}-shop", "s-{month}-shop"],
  ])("%s and %s lie apart", (one, two) => {
    expect(listIssues(withParts(part(one), part(two)))).toEqual([]);
  });

  test.each([
    ["r", "r"],
    ["r-{date}", "r-blog-{date}"],
    ["r-{date}", "r-blog"],
    ["r-blog-{month}", "r-{date}"],
  ])("%s and %s could hold each other's", (one, two) => {
    const own = "may hold reports of shop too: a site needs an index of its own";
    const issues = listIssues(withParts(part(one), `{ keys: [other], backend: elk, index: "${two}" }`));
    expect(issues).toEqual([`6 sites.blog.frontend.index: ${own}`]);
    expect(listIssues(withParts(part(one), `{ keys: [other], backend: old, index: "${two}" }`))).toEqual([]);
  });

  test.each(["a,b", "a*", "a b", "{year}", "a}"])("%s is no name of one index", (index) => {
    expect(listIssues(withParts(part(index), part("other", "old")))).toEqual([
      "5 sites.shop.frontend.index: expected the name of one index, with {date} or {month} or neither",
    ]);
  });

  test("a key belongs to one site", () => {
    const keyed = (index: string) => `{ keys: [a, "\${SECRET}"], backend: elk, index: ${index} }`;
    expect(listIssues(withParts(keyed("x"), keyed("y")))).toEqual([
      "6 sites.blog.frontend.keys.0: is a key of shop already",
      "6 sites.blog.frontend.keys.1: is a key of shop already",
    ]);
  });
});

describe("the page of the configuration", () => {
  const rows = readFileSync("docs/reference/configuration.md", "utf8")
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => line.split(" | "));
  /** The keys of a row: of `a.b`, `.c` the second is `a.c`. */
  const documented = rows.flatMap(([first = ""]) => {
    const [key = "", ...siblings] = [...first.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name);
    return [key, ...siblings.map((name) => key.replace(/\.[^.]+$/, name))];
  });
  const top = "backends: {}\nsites: {}\n";
  const inSite = (part: string) => `backends: {}\nsites: { s: ${part} }\n`;

  test.each([
    ["", `${top}zzzzzzzz: 1`],
    ["tokens[].", `${top}tokens: [{ zzzzzzzz: 1 }]`],
    ["intake.", `${top}intake: { zzzzzzzz: 1 }`],
    ["limits.", `${top}limits: { zzzzzzzz: 1 }`],
    ["tail.", `${top}tail: { zzzzzzzz: 1 }`],
    ["otlp.", `${top}otlp: { url: "http://c:4318", zzzzzzzz: 1 }`],
    ["sites.<id>.", inSite("{ zzzzzzzz: 1 }")],
    ["sites.<id>.logs.", inSite("{ logs: { zzzzzzzz: 1 } }")],
    ["sites.<id>.logs.sources.<source_id>.", inSite("{ logs: { sources: { a: { zzzzzzzz: 1 } } } }")],
    ["sites.<id>.traces.", inSite("{ traces: { zzzzzzzz: 1 } }")],
    ["sites.<id>.metrics.", inSite("{ metrics: { zzzzzzzz: 1 } }")],
    ["sites.<id>.kubernetes.", inSite("{ kubernetes: { zzzzzzzz: 1 } }")],
    ["sites.<id>.frontend.", inSite("{ frontend: { zzzzzzzz: 1 } }")],
  ])("names every key of %s and no other", (level, text) => {
    const known = /unknown key; known here: (.*)/.exec(listIssues(text).join("\n"))?.[1]?.split(", ");
    const below = documented
      .filter((key) => key.startsWith(level))
      .map((key) => key.slice(level.length).split(/[.[]/)[0]);
    expect([...new Set(below)].sort()).toEqual(known?.toSorted());
  });

  test("names every key of backends.<name>. and no other", () => {
    const known = [...realKinds.keys()].flatMap((kind) => {
      try {
        parseConfig(`backends: { b: { kind: ${kind}, zzzzzzzz: 1 } }\nsites: {}`, "r.yaml", {
          ...{ kinds: realKinds, env, readText },
        });
      } catch (error) {
        return /unknown key; known here: (.*)/.exec(String(error))?.[1]?.split(", ") ?? [];
      }
      return [];
    });
    const below = documented
      .filter((key) => key.startsWith("backends.<name>."))
      .map((key) => key.slice("backends.<name>.".length));
    expect(below.toSorted()).toEqual([...new Set(["kind", ...known])].sort());
  });

  test.each([
    ["listen", `${defaults.listen.host}:${defaults.listen.port}`],
    ["intake.spool", defaults.spool],
    ["intake.spool_bytes", defaults.spoolBytes],
    ["intake.key_rate", defaults.keyRate],
    ["intake.address_rate", defaults.addressRate],
    ["intake.proxies", defaults.proxies],
    ["sites.<id>.retention", defaults.retention],
    ["sites.<id>.counter_default", defaults.counterDefault],
    ["sites.<id>.logs.sources.<source_id>.layout", defaults.layout],
    ["limits.rows", defaults.limits.rows],
    ["limits.lines_per_millisecond", defaults.limits.linesPerMillisecond],
    ["limits.points", defaults.limits.points],
    ["limits.look_back", defaults.limits.lookBack],
    ["limits.documents", defaults.limits.documents],
    ["limits.spans", defaults.limits.spans],
    ["limits.rate", defaults.limits.rate],
    ["limits.deadline", defaults.limits.deadline],
    ["limits.requests", defaults.limits.requests],
    ["limits.streams", defaults.limits.streams],
    ["limits.token_requests", defaults.limits.tokenRequests],
    ["limits.token_streams", defaults.limits.tokenStreams],
    ["limits.export", defaults.limits.export],
    ["tail.lateness", defaults.limits.tail.lateness],
    ["tail.max_open", defaults.limits.tail.maxOpen],
    ["tail.per_token", defaults.limits.tail.perToken],
    ["otlp.ratio", defaults.otlp.ratio],
    ["otlp.service", defaults.otlp.service],
  ])("tells the default of %s", (key, value) => {
    const told = rows.find(([first]) => first === `| \`${key}\``)?.[1]?.replaceAll("`", "") ?? "";
    expect([told, String(parseDuration(told))]).toContain(String(value));
  });
});
