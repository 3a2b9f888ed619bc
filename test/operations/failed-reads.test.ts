// Of two reads of a request one fails: the request has its answer, and the other read must not go on at its source.
import { expect, test } from "vitest";
import { BackendError } from "#src/core/errors.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { createDemo } from "../support/demo-server.ts";

const range = { from: "2026-01-15T00:00:00Z", to: "2026-01-16T00:00:00Z" };
const body = { site_id: "demo-shop", ...range };
const field = `{ tracing_actions(site_id: "demo-shop", from: "${range.from}", to: "${range.to}") { action } }`;

test.each(["REST", "GraphQL"])("what is left of a failed request of %s is given up", async (api) => {
  const down = new BackendError("new", "unreachable", "down");
  const other = Promise.withResolvers<unknown>();
  const actions: SpanStore["actions"] = async (_, signal) => {
    signal.addEventListener("abort", () => other.resolve(signal.reason), { once: true });
    const [, failed] = await Promise.all([other.promise, Promise.reject(down)]);
    return failed;
  };
  const demo = await createDemo({
    site: ({ traces, ...site }) => ({
      ...site,
      ...(traces && { traces: { ...traces, store: { ...traces.store, actions } } }),
    }),
  });
  if (api === "REST")
    expect(await demo.rest("POST", "/api/v2/tracing/actions", body)).toMatchObject({ status: 500 });
  else expect((await demo.graphql(field)).errors).toHaveLength(1);
  expect(await other.promise).toBe(down);
  await demo.close();
});
