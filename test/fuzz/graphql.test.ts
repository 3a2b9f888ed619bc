// Random GraphQL documents: selections of the schema with nearly valid arguments, and corrupted texts of them.
import {
  type GraphQLInputType,
  type GraphQLOutputType,
  isEnumType,
  isInputObjectType,
  isListType,
  isNonNullType,
  isObjectType,
} from "graphql";
import { expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { schema } from "#src/graphql/schema.ts";
import { createDemo } from "../support/demo-server.ts";
import { absurdTimes, hostileKey, hostileText, hostileValue, mutate, print } from "./hostile-values.ts";
import { readVocabulary, type Vocabulary } from "./openapi-requests.ts";
import { type Draw, fuzz, long } from "./seeded-generator.ts";

const secret = "rdt_fuzz-hK3v9Zq-0123456789_abcdefghij";
const demo = await createDemo({
  tokens: [{ user: "fuzz", sha256: hashToken(secret), sites: "*" }],
  limits: { points: 20_000, rows: 5_000, documents: 50_000 },
});
const vocabulary = await readVocabulary(demo);

function drawArgument(type: GraphQLInputType, name: string, draw: Draw): string {
  if (isNonNullType(type)) return drawArgument(type.ofType, name, draw);
  if (draw.chance(0.04))
    return draw.pick([
      "null",
      "[]",
      "{}",
      "-1",
      "1e400",
      "2147483648",
      "X",
      "$v",
      '""',
      JSON.stringify(hostileText(draw)),
    ]);
  if (isListType(type))
    return `[${[0, ...draw.some(1, () => 0)].map(() => drawArgument(type.ofType, name, draw)).join(" ")}]`;
  if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields()).filter(
      (field) => isNonNullType(field.type) || draw.chance(0.3),
    );
    return `{${fields.map((field) => `${field.name}: ${drawArgument(field.type, field.name, draw)}`).join(" ")}}`;
  }
  if (isEnumType(type)) return draw.pick(type.getValues())?.name ?? "X";
  switch (type.name) {
    case "DateTime":
      return JSON.stringify(
        draw.chance(0.1)
          ? draw.pick(absurdTimes)
          : draw.pick(["2026-01-15T11:00:00Z", "2026-01-15T11:59:00Z", "2026-01-15T12:00:00Z"]),
      );
    case "Int":
    case "Float":
      return draw.pick(["1", "5", "20", "0", "-1"]);
    case "Boolean":
      return draw.pick(["true", "false"]);
    case "String":
    case "ID":
      return JSON.stringify(word(vocabulary, name, draw));
    default:
      return draw.pick([
        '{namespace: "*"}',
        "{}",
        '"Name"',
        '{Tag: "namespace"}',
        '{__proto__: "x"}',
        "{constructor: {prototype: 1}}",
        "[1 [2]]",
      ]);
  }
}

function word(known: Vocabulary, name: string, draw: Draw): string {
  const words = Object.hasOwn(known, name) ? known[name] : undefined;
  return draw.chance(0.1)
    ? hostileText(draw).slice(0, 500)
    : String(draw.pick([...(words ?? [""]), "demo-shop"]));
}

function drawSelection(type: GraphQLOutputType, depth: number, draw: Draw): string {
  if (isNonNullType(type) || isListType(type)) return drawSelection(type.ofType, depth, draw);
  if (!isObjectType(type)) return "";
  const fields = Object.values(type.getFields());
  const selected = [0, ...draw.some(3, () => 0)].map(() => {
    if (draw.chance(0.05))
      return draw.pick([
        "__typename",
        "__schema { types { name } }",
        "nothing",
        `... on ${type.name} { __typename }`,
        "...F",
        "a: __typename @skip(if: true)",
        "... @include(if: false) { __typename }",
      ]);
    const field = draw.pick(fields);
    if (field === undefined || (depth === 0 && drawSelection(field.type, -1, draw) !== ""))
      return "__typename";
    if (depth < 0) return "__typename";
    const args = field.args.filter((one) => isNonNullType(one.type) || draw.chance(0.3));
    const given = args.map((one) => `${one.name}: ${drawArgument(one.type, one.name, draw)}`);
    // Two selections of one field with other arguments are an error of the client's, unless one has another name.
    const alias = draw.chance(0.5) ? `f${draw.below(1_000)}: ` : "";
    return `${alias}${field.name}${given.length === 0 ? "" : `(${given.join(" ")})`}${drawSelection(field.type, depth - 1, draw)}`;
  });
  return ` { ${selected.join(" ")} }`;
}

const operators = [
  "",
  "",
  "",
  "query ",
  "query Q ",
  "mutation ",
  "subscription ",
  "query Q($v: String) ",
  "query ($v: DateTime) ",
  "query ($v: JSON = {__proto__: 1}) ",
];

function drawDocument(draw: Draw): string {
  const query = schema.getQueryType();
  if (query == null) throw new Error("no queries");
  const operation = `${draw.pick(operators)}${drawSelection(query, 1 + draw.below(5), draw)}`;
  const fragment = draw.chance(0.1)
    ? ` fragment F on ${draw.pick(["Query", "LogLine", "Nothing"])} { __typename ...F }`
    : "";
  const text = draw.chance(0.05) ? `${operation} query B { __typename }` : operation + fragment;
  return draw.chance(0.15) ? spoil(text, draw) : text;
}

function spoil(text: string, draw: Draw): string {
  let spoiled = text;
  for (let left = 1 + draw.below(3); left > 0; left--) {
    const at = draw.below(spoiled.length + 1);
    const piece = draw.pick([
      "",
      "{",
      "}",
      "(",
      "@",
      "$",
      '"',
      '"""',
      "...",
      "!",
      "\0",
      "\ud800",
      "{ ".repeat(1_000),
      "[".repeat(1_500),
      "#",
      hostileText(draw),
    ]);
    spoiled = spoiled.slice(0, at) + piece + spoiled.slice(at + draw.below(10));
  }
  return spoiled;
}

interface Asked {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly body: string;
}
function drawRequest(draw: Draw): Asked {
  const query = drawDocument(draw);
  const members = [`"query":${JSON.stringify(query)}`];
  if (draw.chance(0.2))
    members.push(
      `"variables":${draw.chance(0.5) ? `{"v":${hostileValue(draw).text}}` : hostileValue(draw).text}`,
    );
  if (draw.chance(0.1))
    members.push(
      `"operationName":${draw.pick(['"Q"', '"B"', '"__proto__"', '"constructor"', '""', hostileValue(draw).text])}`,
    );
  if (draw.chance(0.05)) members.push(`${JSON.stringify(hostileKey(draw))}:${hostileValue(draw).text}`);
  const body = `{${members.join(",")}}`;
  const inAddress = draw.chance(0.1);
  return {
    url: `http://readout/graphql${inAddress ? `?token=${secret}` : ""}`,
    headers: {
      "content-type": draw.pick([
        "application/json",
        "application/json",
        "application/json",
        "application/graphql+json",
      ]),
      accept: draw.pick([
        "application/json",
        "*/*",
        "application/graphql-response+json",
        "text/event-stream",
        "multipart/mixed",
        "text/html",
        "a/b",
      ]),
      ...(inAddress ? {} : { authorization: `Bearer ${secret}` }),
    },
    body: draw.chance(0.05) ? print(mutate([query, body], draw)) : body,
  };
}

test("random GraphQL documents return data or client errors, never a server failure", async () => {
  let answered = 0;
  let refused = 0;
  await fuzz(10_000, drawRequest, async ({ url, headers, body }) => {
    const response = await demo.server.fetch(url, { method: "POST", headers, body });
    const text = await response.text();
    expect(response.status).toBeLessThan(500);
    expect(text).not.toMatch(/\bat .{1,200}\.(ts|js):\d|node_modules|Internal server error/);
    expect(text).not.toContain(secret);
    if (response.headers.get("content-type")?.includes("json") !== true) return;
    const { data, errors = [] } = JSON.parse(text) as {
      data?: object;
      errors?: { extensions?: { status?: number } }[];
    };
    for (const { extensions } of errors) expect(extensions?.status ?? 422).toBeLessThan(500);
    if (data != null && errors.length === 0) answered += 1;
    if (errors.length > 0) refused += 1;
  });
  expect(answered).toBeGreaterThan(long ? 100 : 0);
  expect(refused).toBeGreaterThan(10);
  expect(demo.logged()).not.toContain(secret);
  expect(
    demo
      .logged()
      .split("\n")
      .filter((line) => /"level":"(warn|error)"/.test(line)),
  ).toEqual([]);
  await demo.close();
});
