// Many queries with links at once: whatever has begun is answered in full, and nothing waits for ever.
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { LogStore } from "#src/store/logs.ts";
import { clock, createDemo, type Demo } from "../support/demo-server.ts";

const rows = 1_000;
/** Links of the page above are 5 backend requests, each of 200 traces. */
const linksPerQuery = rows / 200;

const opened: Demo[] = [];
afterEach(() => Promise.all(opened.splice(0).map((demo) => demo.close())));

/** A log store whose lines name a trace each. Link requests last until `hold` resolves, and some milliseconds. */
async function open(
  limits: { readonly requests?: number; readonly tokenRequests?: number; readonly deadline?: number },
  hold?: Promise<void>,
) {
  const seen = { open: 0, most: 0, links: 0 };
  const lines: LogStore["lines"] = async function* ({ sources: [{ id: source_id }], order }, signal) {
    if (order === "desc") {
      const traced = (n: number): LogLine => ({
        id: `l${n}`,
        time: fromMillis(clock - n),
        source_id,
        severity: "info",
        json: `{"trace_id":"${n.toString(16).padStart(32, "0")}"}`,
      });
      yield Array.from({ length: rows }, (_, n) => traced(n));
      return;
    }
    seen.links += 1;
    seen.open += 1;
    seen.most = Math.max(seen.most, seen.open);
    const left = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    await Promise.race([hold, left]);
    await sleep(3);
    seen.open -= 1;
  };
  const demo = await createDemo({
    limits,
    site: (site) => ({ ...site, ...(site.logs && { logs: { ...site.logs, store: { lines } } }) }),
  });
  opened.push(demo);
  return { demo, seen };
}

const query = `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "",
  pagination: { per_page: ${rows}, order: DESC }) { id trace { log_lines { id } } } }`;

test.each([
  ["the usual bounds", {}],
  ["few slots of the token", { tokenRequests: 16 }],
  ["few slots of the server", { requests: 16 }],
])(
  "eight queries at a time, thirty-two in all, keep all their fields with %s",
  { timeout: 120_000 },
  async (_, limits) => {
    const { demo, seen } = await open(limits);
    const ask = async () => {
      for (let round = 0; round < 4; round++) {
        const { status, data, errors } = await demo.graphql(query);
        expect([status, errors]).toEqual([200, undefined]);
        expect(data?.logs_lines).toHaveLength(rows);
      }
    };
    await Promise.all(Array.from({ length: 8 }, ask));
    expect(seen.links).toBe(32 * linksPerQuery);
    expect(seen.open).toBe(0);
  },
);

test("links that wait leave half of a token's slots to its other requests", async () => {
  const hold = Promise.withResolvers<void>();
  const { demo, seen } = await open({ tokenRequests: 12 }, hold.promise);
  const queries = Array.from({ length: 4 }, () => demo.graphql(query));
  await expect.poll(() => seen.open).toBe(6);
  const linked = await Promise.all(Array.from({ length: 5 }, () => demo.rest("GET", "/api/v2/auth")));
  expect(linked.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  expect(seen.most).toBe(6);
  hold.resolve();
  for (const { errors } of await Promise.all(queries)) expect(errors).toBeUndefined();
});

test("links that wait when their client leaves are given up, and hold nobody up", async () => {
  const hold = Promise.withResolvers<void>();
  const { demo, seen } = await open({ tokenRequests: 4 }, hold.promise);
  const leaving = new AbortController();
  const left = demo
    .graphql(query, {}, { signal: leaving.signal, body: JSON.stringify({ query }) })
    .catch(() => "left");
  await expect.poll(() => seen.open).toBe(2);
  leaving.abort();
  await expect.poll(() => seen.open).toBe(0);
  expect(seen.links).toBe(2);
  hold.resolve();
  await left;
  expect((await demo.graphql(query)).errors).toBeUndefined();
  expect(seen.links).toBe(2 + linksPerQuery);
});

test("links that wait end with the deadline of their query", async () => {
  const { demo, seen } = await open({ tokenRequests: 4, deadline: 4_000 }, new Promise(() => {}));
  const { data, errors = [] } = await demo.graphql(query);
  expect(data?.logs_lines).toHaveLength(rows);
  expect(errors).toHaveLength(rows);
  await expect.poll(() => seen.open).toBe(0);
});
