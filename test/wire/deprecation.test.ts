// An operation that goes: every answer of its route says so, and no other does.
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildQuerySchema } from "#src/graphql/schema.ts";
import { operations } from "#src/operations/index.ts";
import type { Endpoint } from "#src/operations/runtime/operation.ts";
import { buildOpenApi } from "#src/server/openapi.ts";
import { createDemo, type Demo, token } from "../support/demo-server.ts";

const deprecation = { since: "2027-01-01", sunset: "2027-07-01", instead: "Use the names." };
const endpoint = (one: Endpoint): Endpoint =>
  one.name === "metrics.names" || one.name === "logs.lines" ? { ...one, deprecation } : one;

let demo: Demo;
beforeAll(async () => {
  demo = await createDemo({ endpoint });
});
afterAll(() => demo.close());

const origin = "http://readout";

async function readHeaders(path: string, init: RequestInit = {}) {
  const headers = { authorization: `Bearer ${token}` };
  const answer = await demo.server.fetch(`${origin}${path}`, { headers, ...init });
  return [answer.status, answer.headers.get("deprecation"), answer.headers.get("sunset")];
}
const told = ["@1798761600", "Thu, 01 Jul 2027 00:00:00 GMT"];

test("answers carry Deprecation and Sunset, also refusals", async () => {
  const path = "/api/v2/metrics/names/demo-shop";
  expect(await readHeaders(path)).toEqual([200, ...told]);
  expect(await readHeaders(path, { headers: {} })).toEqual([401, ...told]);
  expect(await readHeaders("/api/v2/metrics/names/nowhere")).toEqual([404, ...told]);
  expect(await readHeaders("/api/v2/logs/lines", { method: "POST", body: "{}" })).toEqual([422, ...told]);
});

test("other answers carry neither", async () => {
  expect(await readHeaders("/api/v2/auth")).toEqual([200, null, null]);
  expect(await readHeaders("/api/v2/nothing")).toEqual([404, null, null]);
});

test("OpenAPI and GraphQL mark it, with what takes its place", () => {
  const marked = operations.map(endpoint);
  const { paths } = JSON.parse(JSON.stringify(buildOpenApi(marked)));
  expect(paths["/api/v2/logs/lines"].post).toMatchObject({ deprecated: true });
  expect(paths["/api/v2/logs/lines"].post.description).toContain(deprecation.instead);
  expect(paths["/api/v2/auth"].get).not.toHaveProperty("deprecated");
  const fields = buildQuerySchema(marked).getQueryType()?.getFields() ?? {};
  const reasons = Object.values(fields).map(({ name, deprecationReason }) => [name, deprecationReason]);
  expect(reasons.filter(([, reason]) => reason !== undefined)).toEqual([
    ["logs_lines", deprecation.instead],
    ["metrics_names", deprecation.instead],
  ]);
});
