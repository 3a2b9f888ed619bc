// A server of one kind configured as another: its probe, which `readout check` prints, says what the server is.
import type { IncomingMessage, ServerResponse } from "node:http";
import { expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Backend } from "#src/store/backend.ts";
import { testIO } from "../support/io.ts";
import { openScriptedSource } from "../support/scripted-http-source.ts";

const signal = new AbortController().signal;

function send(response: ServerResponse, status: number, body: string | object, headers = {}): void {
  const isText = typeof body === "string";
  response.writeHead(status, { "content-type": isText ? "text/plain" : "application/json", ...headers });
  response.end(isText ? body : JSON.stringify(body));
}

type Reply = (response: ServerResponse, path: string, request: IncomingMessage) => void;

async function probe(reply: Reply, open: (url: string) => Backend, path = ""): Promise<unknown> {
  const source = await openScriptedSource((response, request) =>
    reply(response, new URL(request.url ?? "", "http://source").pathname, request),
  );
  const backend = open(`${source.url}${path}`);
  try {
    return await backend.probe(signal).catch((error: unknown) => error);
  } finally {
    await backend.close();
    await source.close();
  }
}
const openPrometheus = (url: string): Backend =>
  prometheus.create("prom", prometheus.parseConfig({ url }), testIO);
const openElastic = (url: string): Backend => elastic.create("elk", elastic.parseConfig({ url }), testIO);

const product = { "x-elastic-product": "Elasticsearch" };
const noForms = {
  error: "Content-Type header [application/x-www-form-urlencoded] is not supported",
  status: 406,
};

test.each<[string, root: (response: ServerResponse) => void, pattern: RegExp]>([
  [
    "Elasticsearch 8.19.8",
    (response) =>
      send(response, 200, { version: { number: "8.19.8" }, tagline: "You Know, for Search" }, product),
    /the server is Elasticsearch 8\.19\.8, not Prometheus.*`elastic`/,
  ],
  [
    "an Elasticsearch that shows its version to nobody",
    (response) => send(response, 405, { error: "Incorrect HTTP method" }, product),
    /the server is Elasticsearch, not Prometheus/,
  ],
  [
    "OpenSearch 3.8.0",
    (response) => send(response, 200, { version: { distribution: "opensearch", number: "3.8.0" } }),
    /the server is OpenSearch 3\.8\.0, not Prometheus/,
  ],
])("the probe of `prometheus` names %s", async (_, root, pattern) => {
  const reply: Reply = (response, path) => (path === "/" ? root(response) : send(response, 406, noForms));
  for (const path of ["", "/prometheus"]) {
    expect(await probe(reply, openPrometheus, path)).toMatchObject({
      failure: "rejected",
      message: expect.stringMatching(pattern),
    });
  }
});

test("the probe of `prometheus` keeps the error of a server that it does not know", async () => {
  const reply: Reply = (response) => send(response, 404, "404 page not found\n");
  expect(await probe(reply, openPrometheus)).toMatchObject({
    failure: "rejected",
    message: expect.stringMatching(/^status 404: 404 page not found\s*$/),
  });
});

test.each(["/graph", "/query", "/api/v1", "/api/v1/query", "/classic/graph", "/team/graph/"])(
  "the probe of `prometheus` hints at a url that ends with %s",
  async (path) => {
    const reply: Reply = (response) => send(response, 404, "404 page not found\n");
    const { message } = Object(await probe(reply, openPrometheus, path));
    expect(message).toContain(`url ends with ${path.replace(/\/$/, "")}`);
    expect(message).toContain("leave it out");
  },
);

const success = { status: "success", data: { resultType: "scalar", result: [1, "1"] } };
test.each<[string, root: (response: ServerResponse) => void]>([
  [
    "that redirects",
    (response) => send(response, 302, '<a href="/query">Found</a>.', { location: "/query" }),
  ],
  ["that shows a page", (response) => send(response, 200, "<!doctype html>")],
  ["that has no page", (response) => send(response, 404, "404 page not found")],
])("the probe of `elastic` names a Prometheus %s", async (_, root) => {
  const reply: Reply = (response, path) => {
    if (path === "/") root(response);
    else if (path === "/api/v1/query") send(response, 200, success);
    else send(response, 404, "404 page not found");
  };
  expect(await probe(reply, openElastic)).toMatchObject({
    failure: "rejected",
    message: expect.stringMatching(/the server is Prometheus.*not Elasticsearch.*`prometheus`/),
  });
});

test("the probe of `elastic` accepts a cluster that shows its version to nobody", async () => {
  const reply: Reply = (response) => send(response, 403, { error: "no permissions", status: 403 });
  expect(await probe(reply, openElastic)).toEqual({ product: "OpenSearch", version: "unknown" });
});

test.each<[string, root: (response: ServerResponse) => void]>([
  ["a redirection to a login", (response) => send(response, 302, "", { location: "/login" })],
  ["a page", (response) => send(response, 200, "<!doctype html>")],
  ["other JSON", (response) => send(response, 200, { name: "something" })],
])("the probe of `elastic` refuses a server that answers with %s", async (_, root) => {
  const reply: Reply = (response, path) => (path === "/" ? root(response) : send(response, 404, "Not Found"));
  expect(await probe(reply, openElastic)).toMatchObject({
    failure: "malformed",
    message: expect.stringMatching(/something else than Elasticsearch or OpenSearch; check url$/),
  });
});

test("the probe of `elastic` takes the version of the node where a proxy shows a page of its own", async () => {
  const reply: Reply = (response, path) =>
    path === "/"
      ? send(response, 200, "<!doctype html>")
      : send(response, 200, { nodes: { a: { version: "2.19.1" } } });
  expect(await probe(reply, openElastic)).toEqual({ product: "OpenSearch", version: "2.19.1" });
});

test.each(["5.6.16", "6.8.23"])("the probe of `elastic` refuses Elasticsearch %s", async (number) => {
  const reply: Reply = (response) => send(response, 200, { version: { number } });
  expect(await probe(reply, openElastic)).toMatchObject({
    failure: "rejected",
    message: expect.stringContaining(`Elasticsearch ${number} is older than 7.17`),
  });
});
