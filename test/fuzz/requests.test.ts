// Random requests on every route, from valid by the OpenAPI document to arbitrary.
import { afterAll, beforeAll, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { operations } from "#src/operations/index.ts";
import { slugSchemas } from "#src/operations/runtime/error-response.ts";
import { explanationSchema, explanationType } from "#src/operations/runtime/explain.ts";
import { hostileTexts } from "../conformance/metrics/injection-texts.ts";
import { createDemo, type Demo } from "../support/demo-server.ts";
import { hostileText, mutate, print, spoilBytes } from "./hostile-values.ts";
import { drawValue, type Route, readVocabulary, routes, type Vocabulary } from "./openapi-requests.ts";
import { type Draw, fuzz } from "./seeded-generator.ts";

const secret = "rdt_fuzz-hK3v9Zq-0123456789_abcdefghij";
const refused = "rdt_none-Qx7w2Lp-9876543210_klmnopqrst";
let demo: Demo;
let vocabulary: Vocabulary;
beforeAll(async () => {
  demo = await createDemo({
    tokens: [{ user: "fuzz", sha256: hashToken(secret), sites: "*" }],
    // What may be asked for is bounded as ever, only sooner: a large answer that is right is not what is looked for.
    limits: { points: 20_000, rows: 20_000, documents: 50_000 },
  });
  vocabulary = await readVocabulary(demo);
});
afterAll(() => demo.close());

interface Asked {
  readonly route: Route;
  readonly url: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string | Uint8Array<ArrayBuffer> | undefined;
}

function drawRequest(draw: Draw): Asked {
  const route = draw.pick(routes) ?? routes[0];
  if (route === undefined) throw new Error("no routes");
  const parameters = route.parameters.map((name) => [
    `{${name}}`,
    draw.chance(0.6) ? String(draw.pick(vocabulary[name] ?? ["x"])) : hostileText(draw).slice(0, 2_000),
  ]);
  const path = parameters.reduce(
    (text, [name = "", value = ""]) => text.replace(name, () => encode(value, draw)),
    route.path,
  );
  const search = [
    ...(draw.chance(0.15)
      ? [`explain=${draw.pick(["true", "true", "true", "false", "1", "", "%74rue"])}`]
      : []),
    ...draw.some(
      1,
      () => `${encode(draw.pick(hostileTexts) ?? "", draw)}=${encode(draw.pick(hostileTexts) ?? "", draw)}`,
    ),
  ];
  const headers: [string, string][] = [
    ["accept", draw.pick(accepts) ?? ""],
    [
      "content-type",
      draw.pick(["application/json", "text/plain", "application/json; charset=utf-16", "x", ""]),
    ],
  ];
  const how = draw.below(20);
  const token = draw.chance(0.95) ? secret : refused;
  if (how === 0) search.push(`token=${token}`);
  else if (how === 1) search.push(`%74oken=${token}`, "token=");
  else if (how === 2) headers.push(["authorization", `bEaReR \t${token}`]);
  else headers.push(["authorization", `Bearer ${token}`]);
  if (draw.chance(0.1)) headers.push(["last-event-id", latin(hostileText(draw))]);
  if (draw.chance(0.1))
    headers.push(["x-request-id", latin(draw.pick([hostileText(draw), "a".repeat(128), token]))]);
  const query = search.length === 0 ? "" : `?${search.join("&")}`;
  return { route, url: `http://readout${path}${query}`, headers, body: drawBody(route, draw) };
}

const accepts = [
  "*/*",
  "application/json",
  "text/html",
  "text/csv",
  "application/x-ndjson",
  "",
  "*",
  "a/b;q=0",
  ";;;,,,",
  "application/json;q=1e9",
  "text/event-stream, */*;q=0.1",
  `${"text/html,".repeat(2_000)}*/*`,
  `${" ".repeat(9_000)}x`,
];

function drawBody(route: Route, draw: Draw): Asked["body"] {
  if (route.body === undefined) return undefined;
  const value = drawValue(route.body, "", vocabulary, draw);
  switch (draw.below(8)) {
    case 0:
      return spoilBytes(print(value), draw) as Uint8Array<ArrayBuffer>;
    case 1:
      return print(mutate([value], draw)).slice(1, -1);
    case 2:
    case 3:
    case 4:
      return print(mutate(value, draw));
    default:
      return print(value);
  }
}

/** Percent-encoded fully, minimally or not at all. */
function encode(text: string, draw: Draw): string {
  const whole = encodeURIComponent(text.toWellFormed());
  return draw.pick([
    whole,
    whole,
    whole.replaceAll("%", "%25"),
    whole.replace(/%.$/, ""),
    `${whole}%ff`,
    `${whole}%`,
  ]);
}

/** What may stand in a header. */
function latin(text: string): string {
  return text
    .replace(/[^\x20-\xff]/g, "?")
    .slice(0, 4_000)
    .trim();
}

const statuses = new Map<number, number>();

async function check({ route, url, headers, body }: Asked): Promise<void> {
  const init = {
    method: route.method,
    headers: headers.map(([name, value]): [string, string] => [name, value]),
  };
  const response = await demo.server.fetch(url, body === undefined ? init : { ...init, body });
  const { status } = response;
  const type = response.headers.get("content-type") ?? "";
  // A live tail has no end.
  if (type.startsWith("text/event-stream")) return response.body?.cancel();
  const text = await response.text();
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
  expect([200, 401, 404, 422]).toContain(status);
  expect(response.headers.get("x-request-id")).toMatch(/^[\w.:-]{1,128}$/);
  expect(leaks(text)).toEqual([]);
  if (status === 200 && /^(text\/csv|application\/x-ndjson)/.test(type)) return;
  const answered: unknown = JSON.parse(text);
  if (status === 200 && type.startsWith(explanationType)) {
    expect(url).toContain("explain=");
    expect(explanationSchema.safeParse(answered).error?.issues ?? []).toEqual([]);
    return;
  }
  expect(type).toBe("application/json; charset=utf-8");
  if (status === 422) checkRefusal(answered);
  else if (status === 200) {
    const operation = operations.find((one) => one.path === route.path && one.method === route.method);
    expect(operation?.answer.safeParse(answered).error?.issues ?? []).toEqual([]);
  } else {
    expect(answered).toEqual({ error: status === 401 ? "Unauthorized" : "Not found" });
  }
}

/** An envelope as the document has it: a slug, a sentence, and the details that go with the slug. */
function checkRefusal(answered: unknown): void {
  const { error, message, details } = answered as {
    error: keyof typeof slugSchemas;
    message: string;
    details: unknown;
  };
  expect(Object.keys(slugSchemas)).toContain(error);
  expect(message.length).toBeGreaterThan(0);
  expect(slugSchemas[error].details.safeParse(details).error?.issues ?? []).toEqual([]);
}

function leaks(text: string): readonly string[] {
  const told = [secret, refused].filter((token) => text.includes(token));
  return /\bat .{1,200}\.(ts|js):\d|node_modules|\/src\//.test(text) ? [...told, text.slice(0, 500)] : told;
}

test("random requests get an answer or a documented error", async () => {
  await fuzz(12_000, drawRequest, check);
  // A law that no request gets as far as would hold as well.
  for (const status of [200, 401, 404, 422])
    expect(statuses.get(status) ?? 0, String(status)).toBeGreaterThan(3);
});

test("no token appears in logs or metrics", async () => {
  const metrics = await (await demo.server.fetch("http://readout/metrics")).text();
  expect(metrics).toContain("readout_requests_total");
  expect(demo.logged()).toContain('"user":"fuzz"');
  expect(leaks(metrics + demo.logged())).toEqual([]);
  expect(demo.logged()).not.toContain("request failed");
});
