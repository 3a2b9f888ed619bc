// Parameters without which a server changes what a search answers: only searches have them.
import { expect, test } from "vitest";
import { createElasticClient } from "#resolvers/elastic/client/client.ts";
import { guardDefaults } from "#resolvers/http/guard.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";

/** The parameters of two searches and of a request that is none, as a server of this version gets them. */
async function listSentQueries(version: object, product: string): Promise<readonly string[]> {
  const fake = await openScriptedSource((response, { url }) => {
    response.setHeader("x-elastic-product", product);
    sendJson(response, url === "/" ? { version } : {});
  });
  const settings = { ...guardDefaults, timeout: 10_000, headers: {}, maxResponseBytes: 1_000_000, view: "" };
  const client = createElasticClient("elk", { ...settings, nodes: [fake.url] }, testIO);
  const signal = new AbortController().signal;
  const query = { own: "1" };
  const post = (path: string, body: object) =>
    client.send({ method: "POST", path, query, body: JSON.stringify(body) }, signal);
  // A text of a query is no key of the body.
  await post("/logs/_search", { query: { term: { m: '"_source":' } } });
  await post("/logs/_search", { _source: ["site"] });
  await post("/logs/_pit", {});
  await client.close();
  await fake.close();
  return fake.requests.filter(({ method }) => method === "POST").map(({ path }) => path.split("?")[1] ?? "");
}

test("Elasticsearch 9.2 is asked for vectors where whole documents are read", async () => {
  expect(await listSentQueries({ number: "9.2.0" }, "Elasticsearch")).toEqual([
    "own=1&_source_exclude_vectors=false",
    "own=1",
    "own=1",
  ]);
});

test("OpenSearch is asked to skip the search pipeline of an index", async () => {
  const version = { number: "3.0.0", distribution: "opensearch" };
  expect(await listSentQueries(version, "")).toEqual([
    "own=1&search_pipeline=_none",
    "own=1&search_pipeline=_none",
    "own=1",
  ]);
});
