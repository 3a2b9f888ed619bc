import { describe, expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";
import { listIssues } from "../../config/fixture.ts";

describe.each(["elastic", "prometheus"])("address of %s", (kind) => {
  const parse = (url: string) => kinds.get(kind)?.parseConfig({ url });

  test.each(["http://host:9200", "https://host/prefix/", "http://[::1]:9090"])("accepts %s", (url) => {
    expect(parse(url)).toMatchObject({ url });
  });

  test.each([
    ["https://ana:secret@host", "without user and password"],
    ["https://ana@host", "without user and password"],
    ["https://host/?db=metrics", "without a query and a fragment"],
    ["https://host/#here", "without a query and a fragment"],
    ["localhost:9200", "expected an http:// or https:// address"],
    ["ftp://host", "expected an http:// or https:// address"],
    ["", "expected an http:// or https:// address"],
  ])("refuses %s", (url, reason) => {
    expect(() => parse(url)).toThrow(reason);
  });
});

// Sent, each of these would fail in the client before the source is asked, or there as a login that is wrong.
describe.each(["elastic", "prometheus"])("what %s sends as headers", (kind) => {
  const parse = (settings: object) => kinds.get(kind)?.parseConfig({ url: "http://host", ...settings });

  test.each([
    ["a line break at the end of a secret", { auth: { bearer: "hush-hush\n" } }],
    ["a line break within a secret", { auth: { bearer: "hush\nhush" } }],
    ["a byte order mark", { auth: { bearer: "\uFEFFhush" } }],
    ["a user with a colon", { auth: { username: "hush:a", password: "b" } }],
    ["a user with a line break", { auth: { username: "hush\n", password: "b" } }],
    ["a password with a line break", { auth: { username: "a", password: "hush\r\n" } }],
    [
      "a region with a line break",
      { auth: { aws: { region: "hush\n", service: kind === "elastic" ? "es" : "aps" } } },
    ],
    ["a space in the name of a header", { headers: { "a b": "hush" } }],
    ["no name of a header", { headers: { "": "hush" } }],
    ["a line break in a header", { headers: { x: "hush\nb" } }],
    ["a header with no byte for a character", { headers: { x: "hush €" } }],
    ["a header of the connection", { headers: { "Transfer-Encoding": "hush" } }],
    ["the length of a body", { headers: { "content-length": "5" } }],
  ])("is refused with %s", (_, settings) => {
    const read = () => parse(settings);
    expect(read).toThrow(
      /no name of a header|expected what may stand in a header|decides it|must not hold|name of a region/,
    );
    expect(read).not.toThrow("hush");
  });

  test.each([
    { auth: { bearer: "eyJ.a-b_c/d+e==" } },
    { auth: { username: "ana@example.com", password: "ü: €" } },
    { auth: { username: "", password: "" } },
    { auth: { oauth2: { token_url: "http://id", client_id: "a:b", client_secret: "c\n€" } } },
    { headers: { "X-Scope-OrgID": "acme|ü", "x_y.z": "a\tb" } },
  ])("may be %j", (settings) => {
    expect(parse(settings)).toMatchObject({ headers: expect.anything() });
  });
});

test.each(["hush\n", "\uFEFFhush", "hu\nsh"])("an API key is refused where no header holds it: %j", (key) => {
  const read = () => kinds.get("elastic")?.parseConfig({ url: "http://host", auth: { api_key: key } });
  expect(read).toThrow("expected what may stand in a header");
  expect(read).not.toThrow("hush");
});

// Alone, neither would be presented, and the source would be blamed for its refusal.
test.each([
  ["{ cert: c.pem }", ["1 backends.b.tls.cert: stands beside `key` only"]],
  ["{ ca: a.pem, key: k.pem }", ["1 backends.b.tls.key: stands beside `cert` only"]],
  [
    '{ cert: c.pem, ca: "", bogus: 1 }',
    [
      "1 backends.b.tls.ca: must not be empty",
      "1 backends.b.tls.bogus: unknown key; known here: ca, cert, key",
      "1 backends.b.tls.cert: stands beside `key` only",
    ],
  ],
  ["{ cert: c.pem, key: k.pem }", []],
])("certificate and key of a client stand together: %s", (tls, issues) => {
  for (const kind of ["elastic", "prometheus"]) {
    const text = `backends: { b: { kind: ${kind}, url: "http://h", tls: ${tls} } }\nsites: {}\n`;
    expect(listIssues(text, { kinds })).toEqual(issues);
  }
});

const forms =
  "expected { username, password }, { bearer }, { api_key }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: es or aoss } }";

test.each([
  ["{ username: a, password: b, bearer: c }", [`: ${forms}`]],
  ["{ api_key: a, password: b }", [`: ${forms}`]],
  ["{ tokn: a }", [`: ${forms}`]],
  ["[a]", [`: ${forms}`]],
  ["", [": is empty"]],
  [
    "{ bearer: 5, bogus: 6 }",
    [".bearer: expected text; put it in quotes", ".bogus: unknown key; known here: bearer"],
  ],
  ["{ oauth2: 5 }", [".oauth2: expected keys with values"]],
  ["{ password: b }", [".username: is missing"]],
])("the keys of a login choose its form: %s", (auth, issues) => {
  const text = `backends: { b: { kind: elastic, url: "http://h", auth: ${auth} } }\nsites: {}\n`;
  expect(listIssues(text, { kinds })).toEqual(issues.map((issue) => `1 backends.b.auth${issue}`));
});
