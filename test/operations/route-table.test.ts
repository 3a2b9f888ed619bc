import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { operations } from "#src/operations/index.ts";

// The specification's endpoint tables, as `METHOD path`. A copy, so that the suite needs nothing outside the checkout.
const routes = readFileSync(new URL("routes.txt", import.meta.url), "utf8")
  .trim()
  .split("\n");

/** Routes of ours, beside the specification. */
const ownRoutes = ["POST /api/v2/logs/counts"];

test("each route of the specification has exactly one operation", () => {
  const served = operations.map(({ method, path }) => `${method} ${path}`);
  expect(served.toSorted()).toEqual([...routes, ...ownRoutes].toSorted());
  expect(new Set(operations.map(({ name }) => name)).size).toBe(operations.length);
});

test("only saved visuals are public", () => {
  for (const { path, access } of operations) {
    expect(access).toBe(path.startsWith("/api/v2/saved_visuals/") ? "public" : "token");
  }
});
