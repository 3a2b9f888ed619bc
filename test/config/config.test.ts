/* biome-ignore-all lint/suspicious/noTemplateCurlyInString: ${…} is the configuration's own syntax */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { kinds as realKinds } from "../../resolvers/index.ts";
import { hashToken } from "../../src/access/auth.ts";
import { parseConfig } from "../../src/config/config.ts";
import { defaults } from "../../src/config/schema.ts";
import { toPlaces } from "../../src/core/collections.ts";
import { ConfigError } from "../../src/core/errors.ts";
import { parseInstant } from "../../src/core/time.ts";
import { env, hash, kinds, listIssues, minimal, parse, readText, withBackend } from "./fixture.ts";

test("parses a file with every part", () => {
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
graphql: { documents: queries, introspection: false }
limits: { rows: "\${ROWS}", lines_per_millisecond: 20000, points: 1, documents: 2, spans: 3, look_back: 2h, deadline: 5s, requests: 4, streams: 5, token_requests: 7, token_streams: 8, connections: 9, rate: 6, export: 7, rollup_bytes: 10, metric_cache_bytes: 11, held_bytes: 13 }
admin: { listen: "[::1]:9001" }
mcp: { origins: ["https://Agents.example.com"] }
proxies: [10.0.0.7, "fd00::/8"]
compression: { codings: [gzip], level: 4, min_bytes: 0, loopback: true }
tail: { lateness: 90s, max_open: 8, per_token: 9 }
`);
  expect(config).toEqual({
    listen: { host: "0.0.0.0", port: 9000 },
    origins: ["https://agents.example.com"],
    admin: { listen: { host: "::1", port: 9001 } },
    proxies: ["10.0.0.7", "fd00::/8"],
    compression: { codings: ["gzip"], level: 4, minBytes: 0, loopback: true },
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
    graphql: { documents: "conf/queries", onlyDocuments: false, introspection: false },
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
      connections: 9,
      // Half of all, rounded up.
      addressConnections: 5,
      rate: 6,
      export: 7,
      rollupBytes: 10,
      metricCacheBytes: 11,
      heldBytes: 13,
      tail: { lateness: 90_000, maxOpen: 8, perToken: 9 },
    },
  });
});

test("fills in the default of an absent key", () => {
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
  expect(toPlaces(s?.metrics)[0]?.match).toEqual({});
});

test("freezes the configuration deeply, also the settings of backends", () => {
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
])("parses listen: %s", (listen, host, port) => {
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
])("refuses listen: %s", (listen) => {
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
])("substitutes %s", (written, value) => {
  expect(parse(`${minimal}visuals: '/${written}'`).visuals).toBe(`/${value}`);
});

test.each([
  ["${NOPE}", "the environment variable NOPE is not set"],
  ["${constructor}", "the environment variable constructor is not set"],
  ["${EMPTY}", "the environment variable EMPTY is empty"],
  ["${file:none}", "the file none cannot be read (ENOENT)"],
  ["${file:}", "${file:} is neither ${NAME} nor ${file:PATH}; a literal ${ is written $${"],
  ["${file:empty}", "the file empty is empty"],
  ["${SECRET", "${ without }; a literal ${ is written $${"],
  ["${}", "${} is neither ${NAME} nor ${file:PATH}; a literal ${ is written $${"],
  ["${A-B}", "${A-B} is neither ${NAME} nor ${file:PATH}; a literal ${ is written $${"],
])("reports a failed substitution of %s once, with its path", (written, message) => {
  expect(listIssues(`${minimal}listen: '${written}'`)).toEqual([`3 listen: ${message}`]);
});

// As the bytes of ISO 8859-1 are read. A replacement character that its writer has put there is a character like others.
test("refuses bytes that are not UTF-8, in the file and in a secret", () => {
  expect(listIssues(`${minimal}visuals: "\uDC80"\n# caf\uDC80\nmesh: "${"$"}{file:latin}"\n`)).toEqual([
    "3 : a character that cannot be read: save the file as UTF-8",
    "4 : a character that cannot be read: save the file as UTF-8",
    "5 mesh: the file latin is not UTF-8",
  ]);
  expect(parse(`${minimal}visuals: "/\uFFFD"\n# caf\uFFFD\n`).visuals).toBe("/\uFFFD");
});

test("a substituted value is text and never YAML", () => {
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

test("reports what is wrong with identity providers", () => {
  const entry = (more: string) => `    - { issuer: "https://id", audience: a, sites: s, ${more} }`;
  expect(
    listIssues(`backends: {}
sites: { shop: {} }
auth:
  jwt:
    - { issuer: nowhere, audience: [], sites: "" }
${entry("algorithms: [HS256]")}
${entry("typ: []")}
${entry("jwks: ftp://x, discovery: http://y")}
    - { issuer: "https://other", audience: a, sites: { claim: g, map: { sre: [shup], all: ["*"] } } }
    - { issuer: "https://id;script-src", audience: a, sites: s }
`),
  ).toEqual([
    "5 auth.jwt.0.issuer: expected the issuer as its tokens write it, such as https://id.example.com",
    "5 auth.jwt.0.audience: names no audience",
    "5 auth.jwt.0.sites: must not be empty",
    "6 auth.jwt.1.algorithms.0: expected one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA",
    "7 auth.jwt.2.issuer: is the same as auth.jwt.1.issuer",
    "7 auth.jwt.2.typ: names no type",
    "8 auth.jwt.3.issuer: is the same as auth.jwt.1.issuer",
    "8 auth.jwt.3.jwks: expected an http:// or https:// address",
    "8 auth.jwt.3.discovery: name `jwks` or `discovery`, not both",
    '9 auth.jwt.4.sites.map.sre.0: unknown site "shup"; did you mean "shop"?',
    '9 auth.jwt.4.sites.map.all.0: unknown site "*"; for all sites write all: "*"',
    "10 auth.jwt.5.issuer: expected the issuer as its tokens write it, such as https://id.example.com",
  ]);
});

test.each([
  [`public_url: "https://r"`, "{}", "client_id: is missing"],
  [`public_url: "https://r"`, '{ client_id: c, scope: "logs" }', "scope: has to name openid"],
  [`public_url: "https://r"`, "{ client_id: c, resource: nowhere }", "resource: expected an address without"],
  ["visuals: v", "{ client_id: c }", "console: needs public_url, the address to which people come back"],
  [
    `public_url: "http://r"`,
    "{ client_id: c }",
    "console: needs a public_url with https, or on this machine",
  ],
  [
    `public_url: "https://r"`,
    '{ client_id: c }, issuer: "http://id"',
    "console: needs an issuer with https, or on this machine",
  ],
  [
    `public_url: "https://r"`,
    '{ client_id: c }, discovery: "https://elsewhere/d"',
    "discovery: has to be on the issuer's origin, or on one of `console.origins`",
  ],
  [
    `public_url: "https://r"`,
    '{ client_id: c, origins: ["https://elsewhere"] }, discovery: "https://elsewhere/d"',
    undefined,
  ],
  [`public_url: "https://r"`, '{ client_id: c, origins: ["https://a/"] }', "origins.0: expected an origin"],
  [`public_url: "https://r"`, '{ client_id: c, origins: ["https://a;b"] }', "origins.0: expected an origin"],
  [`public_url: "https://r"`, '{ client_id: c, origins: ["http://a"] }', "origins.0: needs https"],
  [`public_url: "http://localhost:8080"`, '{ client_id: c }, issuer: "http://127.0.0.1:9000"', undefined],
])("a client of the console: %#", (top, client, message) => {
  const issuer = client.includes("issuer:") ? "" : 'issuer: "https://id", ';
  const issues = listIssues(`backends: {}
sites: {}
${top}
auth: { jwt: [{ ${issuer}audience: a, sites: s, console: ${client} }] }
`);
  if (message === undefined) expect(issues).toEqual([]);
  else expect(issues).toEqual([expect.stringContaining(message)]);
});

test.each([
  ["audit: {}", ["audit.key: is missing", "audit.file: name one of `file` and `otlp`"]],
  [
    "audit: { key: short, otlp: 5, rotate: { bytes: 5000 } }",
    [
      "audit.otlp: expected keys with values",
      "audit.key: expected at least 16 characters that nobody can guess",
      "audit.rotate: stands beside `file` only",
    ],
  ],
  [
    'auth: { jwt: [{ issuer: "https://id", audience: a, jwks: "http://a", discovery: "http://b" }] }',
    ["auth.jwt.0.sites: is missing", "auth.jwt.0.discovery: name `jwks` or `discovery`, not both"],
  ],
  [
    "auth: { certificates: [{ subject: { CN: 5 } }] }",
    [
      "auth.certificates: needs listen.client_ca, which verifies them",
      "auth.certificates: needs public_url, the address by which clients know this server",
      "auth.certificates.0.user: is missing",
      "auth.certificates.0.sites: is missing",
      "auth.certificates.0.subject.CN: expected a list",
      "auth.certificates.0.subject: name each attribute of the subject; a common name alone is no user, since others may have it too",
    ],
  ],
  [
    "auth: { certificates: [{ user: 5, sites: '*' }] }",
    [
      "auth.certificates: needs listen.client_ca, which verifies them",
      "auth.certificates: needs public_url, the address by which clients know this server",
      "auth.certificates.0.user: expected text; put it in quotes",
      "auth.certificates.0.subject: name one of `subject` and `san`",
    ],
  ],
  [
    "graphql: { introspection: 5, only_documents: true }",
    [
      "graphql.introspection: expected true or false",
      "graphql.only_documents: needs `documents`, the folder of those that are answered",
    ],
  ],
])("reports what is wrong across keys beside what is wrong with them: %s", (text, issues) => {
  expect(listIssues(`${minimal}${text}\n`)).toEqual(issues.map((issue) => `3 ${issue}`));
});

test.each([
  ["5", ["expected the token's SHA-256 as 64 hex digits in quotes; `readout token new` prints it"]],
  ["{ a: b }", ["expected the token's SHA-256 as 64 hex digits in quotes; `readout token new` prints it"]],
  ["[]", ["has no hash"]],
  [`["${hash}", "${hash.toLowerCase()}"]`, [".1: is the same as tokens.0.sha256.0"]],
])("says what is wrong with the hashes of a token: %s", (sha256, issues) => {
  const found = listIssues(`${minimal}tokens: [{ user: u, sites: "*", sha256: ${sha256} }]\n`);
  expect(found).toEqual(
    issues.map((issue) => `3 tokens.0.sha256${issue.startsWith(".") ? "" : ": "}${issue}`),
  );
});

test.each([
  [
    "2027-01-02T00:00:00Z",
    "2027-01-01T00:00:00Z",
    ["expires: has to be after `not_before`: the token would never be taken"],
  ],
  [
    "2027-01-01T01:00:00+01:00",
    "2027-01-01T00:00:00Z",
    ["expires: has to be after `not_before`: the token would never be taken"],
  ],
  ["2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z", []],
  [
    "2027-01-01T00:00:00Z",
    "soon",
    ["expires: expected an ISO 8601 time with a zone, such as 2027-01-01T00:00:00Z"],
  ],
])("a token is valid from %s until %s", (begin, end, issues) => {
  const found = listIssues(
    `${minimal}tokens: [{ user: u, sites: "*", sha256: "${hash}", not_before: "${begin}", expires: "${end}" }]\n`,
  );
  expect(found).toEqual(issues.map((issue) => `3 tokens.0.${issue}`));
});

test.each([
  ["[shop]", ["sites: expected the name of a claim, or { claim, map }"]],
  ["5", ["sites: expected the name of a claim, or { claim, map }"]],
  ["{ claim: g, map: { a: shop } }", ['sites.map.a: expected a list of sites, or "*" for all']],
  ["{ claim: 5 }", ["sites.claim: expected text; put it in quotes", "sites.map: is missing"]],
])("says what is wrong with the sites of an identity provider: %s", (sites, issues) => {
  const text = `${minimal}auth: { jwt: [{ issuer: "https://id", audience: a, sites: ${sites} }] }\n`;
  expect(listIssues(text)).toEqual(issues.map((issue) => `3 auth.jwt.0.${issue}`));
});

test("reports all issues of a file at once, in its order", () => {
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
    "7 tokens.3.sha256: is the SHA-256 of an empty text; `readout token new` prints that of a token",
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
    "31 limits.bogus: unknown key; known here: rows, lines_per_millisecond, points, documents, spans, look_back, deadline, requests, streams, token_requests, token_streams, connections, address_connections, rate, export, rollup_bytes, metric_cache_bytes, held_bytes",
    "32 visuals: expected text; put it in quotes",
  ]);
});

test("reports issues of a backend in the words of its kind", () => {
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
    "r.yaml:4: backends.c.auth: expected { username, password }, { bearer }, { api_key }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: es or aoss } }",
    "r.yaml:5: backends.d.url: expected an http:// or https:// address",
    "r.yaml:5: backends.d.auth.bearer: expected text; put it in quotes",
    `r.yaml:5: backends.d.seed: unknown key; known here: ${known}, settled`,
    "r.yaml:6: backends.e.url: expected an http:// or https:// address",
    "r.yaml:6: backends.e.auth: expected { username, password }, { bearer }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: aps } }",
    'r.yaml:7: backends.f.sed: unknown key; did you mean "seed"?',
    "r.yaml:8: backends.g.auth: expected { username, password }, { bearer }, { api_key }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: es or aoss } }",
    "r.yaml:9: backends.h.auth: expected { username, password }, { bearer }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: aps } }",
    "r.yaml:11: otlp.url: is missing",
  ]);
});

test("a token may use half of the requests and streams where the file does not say how many", () => {
  expect(parse(`${minimal}limits: { requests: 9, streams: 1 }\n`).limits).toMatchObject({
    requests: 9,
    tokenRequests: 5,
    streams: 1,
    tokenStreams: 1,
  });
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
])("refuses text that is no YAML or no configuration: %j", (text, issues) => {
  const found = listIssues(text);
  expect(found).toEqual(expect.arrayContaining([...issues]));
  expect(found.join()).not.toContain("hunter2");
});

test.each<[string, readonly number[]]>([
  ["x: { y: ${SECRET} }\nz: 1", [1]],
  ["x: { y: ${file:hunter2}, z: 1 }\nz: 1", [1]],
  ["x: [ab-${SECRET}, 1]", [1]],
  ["x:\n  { y: 1,\n    z: ${SECRET},\n    u: 2 }\nv:\n  - 1", [3]],
  ["x: { y: ${SECRET} }\nz: [${SECRET}]", [1, 2]],
])("says that a reference inside brackets needs quotes, and nothing of what follows: %j", (text, lines) => {
  const issues = lines.map((line) => `${line} : inside { } and [ ], a value with ${"$"}{…} needs quotes`);
  expect(listIssues(text)).toEqual(issues);
});

test("a YAML alias has the value and the issues of its anchor", () => {
  const text = (rows: string) =>
    `backends: { elk: { kind: elastic, url: 'http://h' } }\nsites:\n  a: &a { retention: ${rows} }\n  b: *a\n`;
  expect(parse(text("2d")).sites.b).toEqual(parse(text("2d")).sites.a);
  expect(listIssues(text("2")).map((issue) => issue.slice(0, 21))).toEqual([
    "3 sites.a.retention: ",
    "4 sites.b.retention: ".replace("4", "3"),
  ]);
});

// Followed, the aliases would make 10^30 values: the test would not end.
test("refuses YAML aliases that multiply or nest without end", () => {
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

test("no message repeats a substituted value or a value below auth", () => {
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

test.each([".", ".."])("refuses the name %s, which clients take out of an address", (name) => {
  const issue = (path: string, line: number) => `${line} ${path}.${name}: a name is neither . nor ..`;
  expect(
    listIssues(`
backends: { "${name}": { kind: memory } }
sites: { "${name}": { metrics: { backend: "${name}", match: {} } } }
`),
  ).toEqual(expect.arrayContaining([issue("backends", 2), issue("sites", 3)]));
});

test("names such as constructor and toString are ordinary names", () => {
  expect(
    listIssues(
      "backends: {}\nsites: { constructor: { logs: { backend: toString, sources: { a: { index: i } } } } }",
    ),
  ).toEqual(['2 sites.constructor.logs.backend: unknown backend "toString"']);
});

test("passes on an error of a kind of backend that is no issue of the file", () => {
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

test("the configuration of docker-compose.yml is valid and has the documented token", () => {
  const text = readFileSync("deploy/compose/readout.yaml", "utf8");
  const { listen, tokens } = parseConfig(text, "readout.yaml", { kinds: realKinds, env: {}, readText });
  expect(listen).toEqual({ host: "0.0.0.0", port: 8080 });
  expect(tokens.map(({ sha256 }) => sha256)).toEqual([hashToken("rdt_compose")]);
});

test("every number may come from the environment", () => {
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
test.each(["0s", "30d", "0ms", "2147483648ms"])("refuses a backend timeout of %s", (timeout) => {
  for (const kind of ["elastic", "prometheus"]) {
    const text = `backends: { one: { kind: ${kind}, url: "http://a", timeout: ${timeout} } }\nsites: {}\n`;
    expect(() => parseConfig(text, "r.yaml", { kinds: realKinds, env, readText })).toThrow(
      /^r\.yaml:1: backends\.one\.timeout: expected a duration such as \d+s, at most 1d$/,
    );
  }
});

test.each(["http://ana:secret@collector:4318", "http://collector:4318/?tenant=a", "collector:4318"])(
  "refuses %s as the address of a collector",
  (url) => {
    const [first, ...more] = listIssues(`${minimal}otlp: { url: "${url}" }\n`);
    expect(first).toMatch(/^3 otlp\.url: expected an .*address/);
    expect([more, first?.includes("secret")]).toEqual([[], false]);
  },
);

test.each([
  ["http://collector:4318/v1/traces", false],
  ["http://collector:4318/otlp/v1/logs/", false],
  ["http://collector:4318/", true],
  ["http://collector:4318/v1/traces/tenant", true],
])("a collector's address has no path of a signal, which is added: %s", (url, isRight) => {
  const wrong = "expected the address without /v1/…, which is added, such as http://collector:4318";
  const text = `${minimal}otlp: { url: "${url}" }\naudit: { key: 0123456789abcdef, otlp: { url: "${url}" } }\n`;
  expect(listIssues(text)).toEqual(isRight ? [] : [`3 otlp.url: ${wrong}`, `4 audit.otlp.url: ${wrong}`]);
});

test.each(['{ "A B": c }', '{ A: "b\\nc" }', '{ A: "b€" }', '{ "": a }'])(
  "refuses %s as headers of a collector",
  (headers) => {
    const [first, ...more] = listIssues(`${minimal}otlp: { url: "http://a", headers: ${headers} }\n`);
    expect(first).toMatch(/^3 otlp\.headers.*: (?:no name of a header|expected what may stand in a header)$/);
    expect(more).toEqual([]);
  },
);

test.each([
  ["rollups: { backend: elk }", undefined],
  ["rollups: { backend: nobody }", "rollups.backend: unknown backend"],
  ["rollups: { backend: elk, index: 'rollups-*' }", "expected the name of one index"],
  ["rollups: { backend: elk, index: Rollups }", "expected the name of one index"],
  ["rollups: { backend: elk, rate: 0 }", "expected a number from 0.001 to 1"],
  ["rollups: { backend: elk, rate: 0.0009 }", "expected a number from 0.001 to 1"],
  ["rollups: { backend: elk, rate: 1.5 }", "expected a number from 0.001 to 1"],
])("rollups are kept in one index, at a share of the time: %s", (written, issue) => {
  const issues = listIssues(
    `backends: { elk: { kind: elastic, url: "http://es:9200" } }\nsites: {}\n${written}\n`,
  );
  expect(issues).toEqual(issue === undefined ? [] : [expect.stringContaining(issue)]);
});
