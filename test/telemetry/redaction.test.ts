// What the log and the state of GraphQL show of texts with credentials.
import { expect, test } from "vitest";
import { redactCredentials } from "#src/telemetry/redaction.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { startProcessorTime } from "../support/cpu-time.ts";

test.each([
  ["Authorization: Bearer abc.d-e_f", "Authorization: Bearer [redacted]"],
  ["authorization: ApiKey YTpi==", "authorization: ApiKey [redacted]"],
  ["basic YTpi", "basic [redacted]"],
  ["GET /x?token=abc&site=1", "GET /x?token=[redacted]&site=1"],
  ["GET /x?api_key=abc#top", "GET /x?api_key=[redacted]#top"],
  ["/x?apikey=abc", "/x?apikey=[redacted]"],
  ["/x?api-key=abc", "/x?api-key=[redacted]"],
  ["/x?access_token=abc, refused", "/x?access_token=[redacted], refused"],
  ["id_token=abc&refresh_token=d", "id_token=[redacted]&refresh_token=[redacted]"],
  ["/x?accessToken=abc", "/x?accessToken=[redacted]"],
  ["X-Amz-Security-Token=abc&X-Amz-Date=1", "X-Amz-Security-Token=[redacted]&X-Amz-Date=1"],
  ["client_id=a&client_secret=b;", "client_id=a&client_secret=[redacted];"],
  ["username=a&password=b", "username=a&password=[redacted]"],
  ['{"url":"/x?client_secret=abc"}', '{"url":"/x?client_secret=[redacted]"}'],
  ["of eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln.", "of [redacted]."],
  ['{"password":"hunter2","a":1}', '{"password":"[redacted]","a":1}'],
  [
    '{"refresh_token": "r\\"r", "x-api-key":"abc\\\\"}',
    '{"refresh_token": "[redacted]", "x-api-key":"[redacted]"}',
  ],
  ['{"apiKey":"","DB_PASSWD":"a, b & c"}', '{"apiKey":"","DB_PASSWD":"[redacted]"}'],
  ["{'client-secret': 'a b'}", "{'client-secret': '[redacted]'}"],
  ['sent password="hunter 2" twice', 'sent password="[redacted]" twice'],
  ["https://u:it's@es/", "https://[redacted]@es/"],
  ["https://u:p4ss@es:9200/ and https://a:b@c@es/", "https://[redacted]@es:9200/ and https://[redacted]@es/"],
  ["Basic dXNlcjpwYXNz", "Basic [redacted]"],
  ["basic user:pass", "basic [redacted]"],
])("redactCredentials: %s", (text, shown) => {
  expect(redactCredentials(text)).toBe(shown);
});

test.each([
  "token expired",
  "tokens=3",
  "secret_id=4",
  "keys=5",
  "a bearer",
  "basic authentication failed",
  "Basic auth.",
  '{"tokens":"3"}',
  "https://es:9200/@a",
  '{"a":"token","b":"c"}',
])("redactCredentials leaves what is no credential: %s", (text) => {
  expect(redactCredentials(text)).toBe(text);
});

test("redactCredentials is done with hostile texts at once", () => {
  const used = startProcessorTime();
  for (const part of ["password=", '"token":"', "://a", "basic a", '\\"', 'secret\\":\\"', "passw"]) {
    redactCredentials(part.repeat(50_000));
    redactCredentials(`token="${part.repeat(50_000)}`);
    redactCredentials(`basic ${"a".repeat(100_000)} ://${"a".repeat(100_000)}`);
  }
  expect(used()).toBeLessThan(5_000);
});

test("members of what is logged lose their secrets however deep they are, and the line stays JSON", () => {
  let line = "";
  const { log } = createTelemetry({
    write: (text) => {
      line += text;
    },
  });
  const secret = 'p"a\\s\\"';
  const body = JSON.stringify({
    password: secret,
    user: "ana",
    nested: JSON.stringify({ token: secret, n: 1 }),
  });
  const settings = { api_key: secret, headers: { "x-api-key": secret, authorization: `Token ${secret}` } };
  log({ level: "warn", message: `answer: ${body}`, password: secret, settings, cut: body.slice(0, 18) });
  expect(JSON.parse(line)).toMatchObject({
    msg: `answer: ${JSON.stringify({ password: "[redacted]", user: "ana", nested: '{"token":"[redacted]","n":1}' })}`,
    password: "[redacted]",
    settings: { api_key: "[redacted]", headers: { "x-api-key": "[redacted]", authorization: "[redacted]" } },
    cut: '{"password":"[redacted]',
  });
});

test.each([
  "http://x/login?token=",
  "bad query: password=",
  'unexpected end after "token":',
  "token=\\",
  'secret="',
  'x "token":"',
])("a text that ends where a secret could begin takes nothing from the members behind it: %s", (text) => {
  let line = "";
  const { log } = createTelemetry({
    write: (more) => {
      line += more;
    },
  });
  log({ level: "warn", message: text, url: text, user: "bob" });
  log({ level: "warn", message: "next" });
  const [first = "", second = ""] = line.trim().split("\n");
  expect(JSON.parse(first)).toMatchObject({ msg: text, url: text, user: "bob" });
  expect(JSON.parse(second)).toMatchObject({ msg: "next" });
});
