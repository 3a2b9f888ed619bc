// What a view hands on does elsewhere what it did here: the line in a shell, the query in GraphQL.
import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { parse } from "graphql";
import { afterAll, describe, expect, test } from "vitest";
import { type Field, printCurl, printGraphiqlAddress, printGraphql } from "#src/console/base/share.js";
import { clock, createDemo } from "../support/demo-server.ts";
import { sampleRuns } from "../support/law-runs.ts";

const demo = await createDemo();
afterAll(() => demo.close());

const text = fc
  .string({
    unit: fc.oneof(
      fc.constantFrom(..."'\"\\$`!\n\t ()<>*~"),
      fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
    ),
  })
  .map((value) => value.replaceAll("\0", "").toWellFormed());

test("prints a curl command that a shell reads back as the same request", () => {
  const bodies = fc.sample(text, { numRuns: sampleRuns(60), seed: 7 }).map((query) => ({ query }));
  const lines = bodies.map((body) =>
    printCurl("http://r:1", { method: "POST", path: "/api/v2/logs/lines", body }),
  );
  // `curl` is a function that prints what it is given, each argument ended by a NUL.
  const script = `curl() { printf '%s\\0' "$@"; }\nTOKEN=secret\n${lines.join("\n")}`;
  const printed = execFileSync("sh", ["-c", script], { encoding: "utf8" }).split("\0");
  const expected = bodies.flatMap((body) => [
    "-sS",
    "http://r:1/api/v2/logs/lines",
    "-H",
    "Authorization: Bearer secret",
    "-H",
    "Content-Type: application/json",
    "-d",
    JSON.stringify(body),
  ]);
  expect(printed.slice(0, -1)).toEqual(expected);
});

test("prints a GET without a body", () => {
  expect(printCurl("http://r:1", { method: "GET", path: "/api/v2/metrics/names/a%20b" })).toBe(
    "curl -sS 'http://r:1/api/v2/metrics/names/a%20b' \\\n  -H \"Authorization: Bearer $TOKEN\"",
  );
});

describe("a shared GraphQL query", () => {
  const range = { from: new Date(clock - 3_600_000).toISOString(), to: new Date(clock).toISOString() };
  const fields: readonly [Field, string, object][] = [
    [
      {
        field: "logs_lines",
        selection: "id",
        arguments: {
          site_id: "demo-shop",
          source_ids: ["app"],
          query: 'severity!="in\\"fo"',
          use_expressions: true,
          ...range,
          pagination: { per_page: 5, order: "DESC", cursor: { time: null } },
        },
      },
      "logs/lines",
      {},
    ],
    [
      {
        field: "tracing_traces_errors",
        selection: "trace_id",
        arguments: {
          site_ids: ["demo-shop"],
          query: "",
          namespace: "web",
          duration: 10,
          ...range,
          pagination: { per_page: 3, order: "DESC", cursor: { duration: null } },
        },
      },
      "tracing/traces/errors",
      {},
    ],
    [
      {
        field: "kubernetes_pods_overview",
        selection: "pod_name",
        arguments: { site_id: "demo-shop", ...range, query: "web" },
      },
      "kubernetes/pods/overview",
      {},
    ],
    [
      {
        field: "tracing_slow_events",
        selection: "digest",
        arguments: { site_id: "demo-shop", ...range, span_kind: "client", limit: 5 },
      },
      "tracing/slow_events",
      {},
    ],
    [
      {
        field: "metrics_timeseries",
        selection: "series {\n  id\n}",
        arguments: { site_id: "demo-shop", ...range, resolution: "HOURLY", limit: 3 },
        variables: {
          select: {
            type: "[TimeseriesSelectorInput!]!",
            value: [{ name: "transaction_duration", tags: { action: "*" }, field: "p_95" }],
          },
        },
      },
      "metrics/timeseries",
      { select: [{ name: "transaction_duration", tags: { action: "*" }, field: "p_95" }] },
    ],
  ];

  test.each(fields)("$field answers what its route answers", async (field, route, more) => {
    const address = new URL(printGraphiqlAddress(field), "http://r");
    const query = address.searchParams.get("query") ?? "";
    const variables = JSON.parse(address.searchParams.get("variables") ?? "{}");
    expect(query).toBe(printGraphql(field));
    const { data, errors } = await demo.graphql(query, variables);
    expect(errors).toBeUndefined();
    const { body } = await demo.rest("POST", `/api/v2/${route}`, { ...field.arguments, ...more });
    const key = /\w+(?=\W*$)/.exec(field.selection)?.[0] ?? "";
    const ids = (answer: unknown) => JSON.stringify(answer).match(new RegExp(`"${key}":"[^"]*"`, "g"));
    expect(ids(data)).not.toBeNull();
    expect(ids(data)).toEqual(ids(body));
  });

  test("prints any text as a literal", () => {
    fc.assert(
      fc.property(text, (value) => {
        const document = parse(printGraphql({ field: "f", selection: "id", arguments: { query: value } }));
        expect(JSON.stringify(document)).toContain(`"kind":"StringValue","value":${JSON.stringify(value)}`);
      }),
    );
  });
});
