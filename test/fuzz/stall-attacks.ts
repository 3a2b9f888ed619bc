// Requests that cost much for their size: each as large as a body may be, and as unfavourable as its kind can be.
import { bodyLimitBytes } from "#src/intake/intake.ts";

const mebibyte = 1_048_576;

export interface Attack {
  readonly method?: "GET";
  readonly path: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const lines = "/api/v2/logs/lines";
const timeseries = "/api/v2/metrics/timeseries";
const list = "/api/v2/metrics/list";
const errors = "/api/v2/tracing/traces/errors";

const moment = { from: "2026-01-15T11:00:00.000Z", to: "2026-01-15T11:00:00.000Z" };
const page = { per_page: 1, order: "ASC" };

/** As many texts as fit into a body beside some keys. */
function fill(unit: (n: number) => string, room = mebibyte - 1_000): string {
  const parts: string[] = [];
  let size = 0;
  for (let n = 0; ; n += 1) {
    const part = unit(n);
    size += part.length + 1;
    if (size > room) return parts.join();
    parts.push(part);
  }
}

/** A body with raw JSON in place of one of its values. */
function withRaw(body: object, key: string, raw: string): string {
  const members = Object.entries(body).map(
    ([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`,
  );
  return `{${[...members, `${JSON.stringify(key)}:${raw}`].join()}}`;
}
const linesBody = (query: string) =>
  JSON.stringify({
    site_id: "demo-shop",
    source_ids: ["app"],
    query,
    use_expressions: true,
    ...moment,
    pagination: page,
  });
const inLines = { site_id: "demo-shop", query: "", ...moment, pagination: page };
const inMetrics = { site_id: "demo-shop", ...moment };
const inTraces = { ...moment, pagination: page };
const selector = { name: "x", tags: {}, field: "gauge" };
const half = mebibyte / 2 - 1_000;
const queryBytes = 65_536;
const fillQuery = (unit: string) => unit.repeat(Math.floor(queryBytes / unit.length));
const headerRoom = 7_000;

/** JSON texts that cost much, none longer than that. */
function buildShapes(length: number): Readonly<Record<string, string>> {
  const half = length / 2 - 1_000;
  const fillShape = (unit: (n: number) => string) => fill(unit, length - 1_000);
  return {
    "brackets that open": "[".repeat(length - 10),
    "brackets that close": `${"[".repeat(half)}${"]".repeat(half)}`,
    "objects within objects": `${'{"a":'.repeat(half / 3)}1${"}".repeat(half / 3)}`,
    "empty objects": `[${fillShape(() => "{}")}]`,
    "empty arrays": `[${fillShape(() => "[]")}]`,
    numbers: `[${fillShape(() => "1")}]`,
    "long numbers": `[${fillShape((n) => `1.${n}234567890123e-300`)}]`,
    "different keys": `{${fillShape((n) => `"k${n}":1`)}}`,
    "numeric keys": `{${fillShape((n) => `"${n * 7_919}":1`)}}`,
    "equal keys": `{${fillShape(() => '"a":1')}}`,
    "different shapes": `[${fillShape((n) => `{"x${n}":1}`)}]`,
    "short texts": `[${fillShape((n) => `"t${n}"`)}]`,
    "escaped texts": `["${"\\u0041".repeat(Math.floor(half / 3))}"]`,
    "blanks before the end": `[${" ".repeat(length - 10)}`,
  };
}
const shapes = buildShapes(mebibyte);

function repeatField(field: string): string {
  return Array.from({ length: 40 }, (_, at) => `a${at}: ${field}`).join(" ");
}

export const attacks: Readonly<Record<string, Attack>> = {
  ...Object.fromEntries(
    Object.entries(shapes).map(([name, body]) => [`body: ${name}`, { path: lines, body }]),
  ),
  ...Object.fromEntries(
    Object.entries(shapes).map(([name, body]) => [
      `body: an unknown key with ${name}`,
      {
        path: lines,
        body: withRaw({ ...inLines, source_ids: ["app"] }, "other", body.slice(0, mebibyte - 400)),
      },
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(shapes).map(([name, body]) => [`GraphQL: ${name}`, { path: "/graphql", body }]),
  ),
  ...Object.fromEntries(
    ["brackets that close", "different keys", "empty objects"].map((name) => [
      `GraphQL: variables of ${name}`,
      {
        path: "/graphql",
        body: withRaw(
          { query: "{ viewer { id } }" },
          "variables",
          `{"a":${shapes[name]?.slice(0, mebibyte - 200)}}`,
        ),
      },
    ]),
  ),
  "site_ids: 100,000 sites": {
    path: errors,
    body: withRaw(inTraces, "site_ids", `[${fill((n) => `"s${n}"`)}]`),
  },
  "site_ids: one site 70,000 times": {
    path: errors,
    body: withRaw(inTraces, "site_ids", `[${fill(() => '"demo-shop"')}]`),
  },
  "site_ids: half a million numbers": {
    path: errors,
    body: withRaw(inTraces, "site_ids", `[${fill(() => "1")}]`),
  },
  "site_ids: one wrong of 100,000": {
    path: errors,
    body: withRaw(inTraces, "site_ids", `[${fill((n) => `"s${n}"`)},1]`),
  },
  "digests: 100,000": {
    path: errors,
    body: withRaw({ ...inTraces, site_ids: ["demo-shop"] }, "digests", `[${fill((n) => `"d${n}"`)}]`),
  },
  "digests: one of a megabyte": {
    path: errors,
    body: JSON.stringify({ ...inTraces, site_ids: ["demo-shop"], digests: ["e".repeat(mebibyte - 500)] }),
  },
  "source_ids: 100,000 that the site lacks": {
    path: lines,
    body: withRaw(inLines, "source_ids", `[${fill((n) => `"s${n}"`)}]`),
  },
  "source_ids: one 170,000 times": {
    path: lines,
    body: withRaw(inLines, "source_ids", `[${fill(() => '"app"')}]`),
  },
  "select: 340,000 empty selectors": {
    path: timeseries,
    body: withRaw(inMetrics, "select", `[${fill(() => "{}")}]`),
  },
  "select: half a million numbers": {
    path: timeseries,
    body: withRaw(inMetrics, "select", `[${fill(() => "1")}]`),
  },
  "select: 20,000 selectors": {
    path: timeseries,
    body: withRaw(inMetrics, "select", `[${fill(() => JSON.stringify(selector))}]`),
  },
  "select: 1,000 wrong selectors": {
    path: timeseries,
    body: JSON.stringify({
      ...inMetrics,
      select: Array.from({ length: 1_000 }, (_, n) => ({ tags: { a: n, b: n }, field: n, aggregation: n })),
    }),
  },
  "select: a selector of 80,000 tags": {
    path: timeseries,
    body: withRaw(
      inMetrics,
      "select",
      `[{"name":"x","field":"gauge","tags":{${fill((n) => `"k${n}":"*"`)}}}]`,
    ),
  },
  "select: a selector of 80,000 wrong tags": {
    path: timeseries,
    body: withRaw(inMetrics, "select", `[{"name":"x","field":"gauge","tags":{${fill((n) => `"k${n}":1`)}}}]`),
  },
  "select: a list with 80,000 tags": {
    path: list,
    body: withRaw(
      { ...inMetrics, group_by: [] },
      "select",
      `[{"id":"a","name":"cpu","field":"gauge","tags":{${fill((n) => `"k${n}":"v"`)}}}]`,
    ),
  },
  "select: 10,000 selectors with equal ids": {
    path: list,
    body: withRaw(
      { ...inMetrics, group_by: [] },
      "select",
      `[${fill(() => '{"id":"a","name":"x","field":"gauge","tags":{}}')}]`,
    ),
  },
  "group_by: 300,000 wrong": {
    path: list,
    body: withRaw({ ...inMetrics, select: [{ ...selector, id: "a" }] }, "group_by", `[${fill(() => "{}")}]`),
  },
  "group_by: 80,000 tags": {
    path: list,
    body: withRaw(
      { ...inMetrics, select: [{ ...selector, id: "a" }] },
      "group_by",
      `[${fill((n) => `{"Tag":"t${n}"}`)}]`,
    ),
  },
  "wanted_attributes: 100,000": {
    path: "/api/v2/tracing/slow_events",
    body: withRaw(
      { site_id: "demo-shop", ...moment, limit: 1 },
      "wanted_attributes",
      `[${fill((n) => `"a${n}"`)}]`,
    ),
  },
  "a time of a megabyte": {
    path: lines,
    body: withRaw(inLines, "from", `"2026${"0".repeat(mebibyte - 500)}"`),
  },
  "a time with many fraction digits": {
    path: lines,
    body: withRaw(inLines, "from", `"2026-01-15T11:00:00.${"1".repeat(mebibyte - 500)}Z"`),
  },
  "a cron expression of a megabyte": {
    path: "/api/v2/check_ins/test_cron",
    body: JSON.stringify({ expression: `${"1,".repeat(half - 200)}1 * * * *` }),
  },
  "a trace id of a megabyte": {
    path: "/api/v2/tracing/trace",
    body: JSON.stringify({ site_ids: ["demo-shop"], trace_id: "0".repeat(mebibyte - 500) }),
  },
  "a path of 400,000 segments": { path: lines, body: linesBody(`${"a.".repeat(400_000)}a=1`) },
  "a word of 800 kB": { path: lines, body: linesBody("a".repeat(800_000)) },
  "a query of 1,000 paths": { path: lines, body: linesBody(`${"a.".repeat(20)}b=1 `.repeat(1_000)) },
  "a query of dots": { path: lines, body: linesBody(fillQuery(".")) },
  "a query of escaped dots": { path: lines, body: linesBody(`${fillQuery("\\.").slice(0, -2)}=1`) },
  "a query of escaped spaces": { path: lines, body: linesBody(fillQuery("a\\ ")) },
  "a query of parentheses": { path: lines, body: linesBody(fillQuery("(")) },
  "a query of quotes": { path: lines, body: linesBody(fillQuery('\\"')) },
  "a query of exclamation marks": { path: lines, body: linesBody(fillQuery("!")) },
  "a query of backslashes": { path: lines, body: linesBody(fillQuery("\\")) },
  "a query of spaces": { path: lines, body: linesBody(fillQuery(" ")) },
  "a list of 30,000 values": {
    path: lines,
    body: linesBody(`a=[${fillQuery("x,").slice(0, -10)}]`).replace('"use_expressions":true,', ""),
  },
  "a trace query of 65,000 bytes": {
    path: errors,
    body: JSON.stringify({ ...inTraces, site_ids: ["demo-shop"], query: fillQuery("tag.a=1 ") }),
  },
  "a trace query of 900 terms that a day of requests satisfies": {
    path: "/api/v2/tracing/traces/performance",
    body: JSON.stringify({
      from: "2026-01-14T12:00:00.000Z",
      to: "2026-01-15T12:00:00.000Z",
      pagination: { per_page: 10_000, order: "DESC", cursor: "Duration" },
      site_ids: ["demo-shop"],
      query: Array.from({ length: 900 }, (_, n) => `tag.a${n}!=x`).join(" "),
    }),
  },
  "a pod query of a megabyte": {
    path: "/api/v2/kubernetes/overview",
    body: JSON.stringify({ site_id: "demo-shop", ...moment, query: "İ".repeat(half / 2) }),
  },
  "a URL of segments": { method: "GET", path: "/a".repeat(4_000) },
  "a URL of parameters": { method: "GET", path: `/api/v2/auth?${"a&".repeat(4_000)}` },
  "a URL of escapes": { method: "GET", path: `/api/v2/metrics/names/${"%41".repeat(2_600)}` },
  "an Accept header of commas": {
    path: lines,
    body: linesBody(""),
    headers: { accept: ",".repeat(headerRoom) },
  },
  "an Accept header of types": {
    path: lines,
    body: linesBody(""),
    headers: { accept: fill((n) => `a/${n};q=0.1`, headerRoom) },
  },
  "a request id of words": {
    path: lines,
    body: linesBody(""),
    headers: { "x-request-id": "a-".repeat(64) },
  },
  "a trace state of members": {
    path: lines,
    body: linesBody(""),
    headers: {
      traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01`,
      tracestate: fill((n) => `k${n}=v`, headerRoom),
    },
  },
  "GraphQL: a link of 10,000 lines under 40 names": {
    path: "/graphql",
    body: JSON.stringify({
      query: `{ logs_lines(site_id: "demo-shop", source_ids: ["app", "nginx", "worker"], query: "",
      pagination: { per_page: 10000, order: DESC }) { ${repeatField("trace { trace_id }")} } }`,
    }),
  },
  "GraphQL: attributes of 10,000 lines under 40 names": {
    path: "/graphql",
    body: JSON.stringify({
      query: `{ app(id: "demo-shop") { logs { lines(limit: 10000) { ${repeatField("attributes { key value }")} } } } }`,
    }),
  },
};

/** Bodies of front-end error reports: one number keeps its spelling, beside a part that costs much. */
export const reports: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(buildShapes(bodyLimitBytes - 100)).flatMap(([name, shape]) => {
    const report = { timestamp: 1, namespace: "frontend", error: { name: "E" } };
    return [
      [name, withRaw(report, "other", `[1e1,${shape}]`)],
      [`tags: ${name}`, withRaw(report, "tags", shape.replace(/:1/, ":1e1"))],
    ];
  }),
);
