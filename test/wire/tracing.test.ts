// The tracing routes over HTTP: which sites a token reaches, and statuses.
import { expect, test } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { createServer } from "#src/server/server.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { base, createSpan } from "../tracing/span-builder.ts";

const store = createMemorySpans();
const ids = { trace_id: "a".repeat(32), service_name: "" };
store.add("shop", [
  createSpan({ ...ids, span_id: "1".repeat(16), parent_span_id: "2".repeat(16), span_kind: "server" }),
]);
store.add("foreign", [
  createSpan({ ...ids, span_id: "2".repeat(16), span_kind: "client", service_name: "secret" }),
]);
const site = (id: string): [string, Site] => {
  const traces = { backend: "m", store, source: buildSpanSource(id, { index: id, layout: "auto" }) };
  return [id, { id, retention: 86_400_000, counterDefault: "cumulative", traces }];
};
const now = () => fromMillis(base + 60_000);
const server = createServer({
  loadGraphql: () => Promise.reject(new Error("not asked for")),
  operations,
  authenticate: createAuthenticator(
    [
      { user: "ana", sha256: hashToken("ana"), sites: ["shop"] },
      { user: "eve", sha256: hashToken("eve"), sites: "*" },
    ],
    now,
  ),
  sites: new Map([site("shop"), site("foreign")]),
  limits: defaults.limits,
  telemetry: createTelemetry({ write: () => {}, level: "debug" }),
  now,
});
async function post(route: string, body: object, token = "ana"): Promise<[number, unknown]> {
  const response = await server.fetch(`http://readout/api/v2/${route}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  return [response.status, await response.json()];
}
const range = { from: "2026-01-15T10:00:00Z", to: "2026-01-15T11:00:00Z" };
const notFound = [404, { error: "Not found" }];

test("a forbidden and an unknown site fail the trace request in the same way", async () => {
  const pagination = { per_page: 1, cursor: "Time" };
  for (const route of [
    "locator",
    "trace",
    "trace/performance",
    "trace/error",
    "traces/performance",
    "traces/errors",
  ]) {
    const body = { trace_id: "a", pagination };
    for (const other of ["foreign", "missing", "__proto__"]) {
      expect(await post(`tracing/${route}`, { ...body, site_ids: ["shop", other] })).toEqual(notFound);
    }
    expect((await post(`tracing/${route}`, { ...body, site_ids: ["shop"] }))[0]).toBe(200);
  }
  for (const route of ["actions", "site_edges", "slow_events"]) {
    expect(await post(`tracing/${route}`, { site_id: "foreign", ...range })).toEqual(notFound);
  }
  expect(await post("deploys/stats", { site_id: "foreign", revision: "r" })).toEqual(notFound);
});

test("edges include a partner only for tokens that may see it", async () => {
  const body = { site_id: "shop", ...range };
  expect(await post("tracing/site_edges", body)).toMatchObject([200, { upstream: [] }]);
  expect(await post("tracing/site_edges", body, "eve")).toMatchObject([
    200,
    { upstream: [{ service: "secret" }] },
  ]);
  expect(await post("tracing/site_edges", body)).toMatchObject([200, { upstream: [] }]);
});

test("an unknown revision is a 404, an invalid body or query a 422", async () => {
  expect(await post("deploys/stats", { site_id: "shop", revision: "none" })).toEqual(notFound);
  expect(await post("tracing/trace", { site_ids: [] })).toMatchObject([422, { error: "invalid_request" }]);
  const listing = { site_ids: ["shop"], pagination: { per_page: 1 }, query: "tag.x>1" };
  expect(await post("tracing/traces/errors", listing)).toMatchObject([422, { error: "invalid_log_query" }]);
});
