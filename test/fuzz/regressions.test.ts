// Minimal cases of the defects that the other fuzz suites have found.
import { afterAll, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import { compileFilter } from "#resolvers/elastic/query/filter-compiler.ts";
import { readReport } from "#src/intake/error-report.ts";
import { parse } from "#src/log-query/parse.ts";
import { normaliseStatement } from "#src/tracing/spans/normalise-statement.js";
import { startProcessorTime } from "../support/cpu-time.ts";
import { createDemo, token } from "../support/demo-server.ts";
import { readIndexMetadata } from "../support/elastic/index-metadata.ts";

const demo = await createDemo();
afterAll(() => demo.close());

test.each([
  ["/api/v2/auth", { authorization: `Bearer ${token}` }],
  [`/api/v2/auth?token=${token}`, {}],
])("a token sent as request id is not kept: %s", async (path, headers) => {
  const answer = await demo.server.fetch(`http://readout${path}`, {
    headers: { ...headers, "x-request-id": token },
  });
  expect(answer.status).toBe(200);
  expect(answer.headers.get("x-request-id")).not.toContain(token);
  expect(demo.logged()).not.toContain(token);
});

test.each([
  ['{ metrics_list(site_id: "x", from: [], to: 1, select: [], group_by: []) { resolution } }', {}],
  [
    'query ($to: DateTime!) { metrics_list(site_id: "x", from: $to, to: $to, select: [], group_by: []) { resolution } }',
    { to: [1] },
  ],
])("a GraphQL time of the wrong type is a client error: %s", async (query, variables) => {
  const { data, errors = [] } = await demo.graphql(query, variables);
  expect(data ?? undefined).toBeUndefined();
  expect(errors.map(({ message }) => message).join()).toContain("DateTime");
  expect(demo.logged()).not.toContain('"level":"warn"');
});

test("searching analysed text for a long word takes linear time", async () => {
  const ecs = logLayouts.get("ecs");
  if (ecs === undefined) throw new Error("no layout ecs");
  const known = readIndexMetadata({
    logs: {
      mappings: { properties: { t: { type: "text" } } },
      settings: { index: { number_of_shards: "1", version: { created: "8190899" } } },
    },
  });
  const word = "a".repeat(32_000);
  const used = startProcessorTime();
  const compiled = await compileFilter(
    parse(`t:"${word}é ${word}"`),
    known,
    ecs,
    describeProduct("Elasticsearch", "8.19.8"),
    new AbortController().signal,
  );
  expect(used()).toBeLessThan(1_000);
  expect(JSON.stringify(compiled).length).toBeLessThan(2_000);
});

test("a statement cut at a backslash is masked in linear time", () => {
  expect(normaliseStatement("SELECT 'it\\'s secret\\")).toBe("select ?");
  const used = startProcessorTime();
  normaliseStatement("'\\".repeat(50_000));
  normaliseStatement('{"\\'.repeat(50_000));
  expect(used()).toBeLessThan(1_000);
});

test("a report with a too deeply nested tag is kept without the tag", async () => {
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  const report = await readReport(
    `{"timestamp":1768478400,"namespace":"frontend","error":{"name":"E","message":${deep}},"tags":{"deep":${deep},"plan":"pro"}}`,
  );
  expect(report).toMatchObject({ error: { name: "E", message: undefined }, tags: { plan: "pro" } });
  expect(report?.tags).not.toHaveProperty("deep");
});
