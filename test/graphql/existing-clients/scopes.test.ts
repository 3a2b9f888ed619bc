// A token that may use GraphQL and nothing else: what existing clients ask for is refused, whatever the site has.
import { afterAll, describe, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { createDemo } from "../../support/demo-server.ts";

const demo = await createDemo({
  tokens: [{ user: "nobody", sha256: hashToken("graphql-alone"), sites: "*", scopes: ["graphql"] }],
  site: (site) => {
    const { logs, metrics, traces, ...rest } = site;
    return site.id === "demo-shop" ? site : rest;
  },
});
afterAll(() => demo.close());

const ask = (site: string, fields: string, as: string) =>
  demo.graphql(
    `{ app(id: "${site}") { ${fields} } }`,
    {},
    { headers: { authorization: `Bearer ${as}`, "content-type": "application/json" } },
  );

describe.each(["demo-shop", "demo-blog"])("of %s", (site) => {
  test.each([
    "logs { lines { id } }",
    "logs { lines(sourceIds: []) { id } }",
    "logs { metrics(resolution: HOURLY) { values { values { key } } } }",
    "metrics { keys { name } }",
    "metrics { timeseries(timeframe: R1H) { start } }",
    'metrics { timeseries(timeframe: R1H, query: [{ name: "cpu", fields: [{ field: GAUGE }] }]) { start } }',
    "metrics { list(timeframe: R1H, query: []) { total } }",
    "exceptionIncidents { id }",
    "performanceIncidents { id }",
    "incidents { __typename }",
    "paginatedExceptionIncidents { total }",
    "paginatedPerformanceIncidents(state: CLOSED) { total }",
    "exceptionIncidents(state: CLOSED) { id }",
    "incident(incidentNumber: 1) { __typename }",
    'incidentByDigest(digest: "a") { __typename }',
    'backtrace(id: "a-b", revision: "") { original }',
    'backtrace(id: "", revision: "") { original }',
    "deployMarkers { id }",
    "markers { __typename }",
    'marker(id: "a") { __typename }',
    "namespaces { name }",
  ])("%s is not found", async (fields) => {
    const { errors = [] } = await ask(site, fields, "graphql-alone");
    expect(errors.map(({ message, extensions }) => [message, extensions?.status])).toEqual([
      ["Not found", 404],
    ]);
  });
});

test("a site without the parts answers those that may ask that it has nothing", async () => {
  const fields =
    'logs { lines { id } metrics { series { name } } } metrics { keys { name } timeseries { start } list(query: []) { total } } backtrace(id: "", revision: "") { original }';
  const { data, errors } = await ask("demo-blog", fields, "demo-token");
  expect(errors).toBeUndefined();
  expect(data?.app).toEqual({
    logs: { lines: [], metrics: null },
    metrics: { keys: [], timeseries: null, list: null },
    backtrace: [],
  });
});
