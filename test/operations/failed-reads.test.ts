// Of two reads of a request one fails: the request has its answer, and the other read must not go on at its source.
import { expect, test } from "vitest";
import { BackendError } from "#src/core/errors.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { createDemo } from "../support/demo-server.ts";

const body = { site_ids: ["demo-shop"], trace_id: "5b8efff798038103d269b633813fc60c" };
const field = `{ tracing_locator(site_ids: ["demo-shop"], trace_id: "${body.trace_id}") { performance { site_id } } }`;

test.each(["REST", "GraphQL"])("what is left of a failed request of %s is given up", async (api) => {
  const down = new BackendError("new", "unreachable", "down");
  const other = Promise.withResolvers<unknown>();
  const locate: SpanStore["locate"] = async (_, signal) => {
    signal.addEventListener("abort", () => other.resolve(signal.reason), { once: true });
    const [, failed] = await Promise.all([other.promise, Promise.reject(down)]);
    return failed;
  };
  const demo = await createDemo({
    site: ({ traces, ...site }) => ({
      ...site,
      ...(traces && { traces: { ...traces, store: { ...traces.store, locate } } }),
    }),
  });
  if (api === "REST")
    expect(await demo.rest("POST", "/api/v2/tracing/locator", body)).toMatchObject({ status: 500 });
  else expect((await demo.graphql(field)).errors).toHaveLength(1);
  expect(await other.promise).toBe(down);
  await demo.close();
});
