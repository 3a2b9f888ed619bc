// Lists of a request that are longer than any request needs are refused before their members are read, and what is named
// twice counts once.
import { afterAll, beforeAll, expect, test } from "vitest";
import { createDemo, type Demo } from "../support/demo-server.ts";

let demo: Demo;
beforeAll(async () => {
  demo = await createDemo();
});
afterAll(() => demo.close());

const pagination = { per_page: 10, order: "DESC" };
const range = { from: "2026-01-15T11:00:00Z", to: "2026-01-15T12:00:00Z" };
const listing = (site_ids: readonly string[]) =>
  demo.rest("POST", "/api/v2/tracing/traces/performance", { site_ids, ...range, pagination });

test("a site that is named often is answered once", async () => {
  const once = await listing(["demo-shop"]);
  expect(once.body).not.toEqual([]);
  expect(await listing(["demo-shop", "demo-shop", "demo-shop"])).toEqual(once);
});

test("10,000 sites may be named, and one more is refused", async () => {
  expect((await listing(Array.from({ length: 10_000 }, () => "demo-shop"))).status).toBe(200);
  const refused = await listing(Array.from({ length: 10_001 }, () => "demo-shop"));
  expect(refused).toMatchObject({
    status: 422,
    body: {
      error: "invalid_request",
      details: { issues: [{ path: "site_ids", message: "expected at most 10000" }] },
    },
  });
});

test("tags may come as a list of keys and values", async () => {
  const ask = (tags: unknown) =>
    demo.rest("POST", "/api/v2/metrics/timeseries", {
      site_id: "demo-shop",
      from: "2026-01-15T11:30:00Z",
      to: "2026-01-15T12:00:00Z",
      select: [{ name: "transaction_duration", tags, field: "mean" }],
    });
  const object = await ask({ namespace: "*", action: null });
  expect(object.status).toBe(200);
  expect(
    await ask([
      { key: "namespace", value: "*" },
      { key: "action", value: null },
    ]),
  ).toEqual(object);
  expect(await ask([])).toEqual(await ask({}));
  const refused = (tags: unknown) => ask(tags).then(({ body }) => JSON.stringify(body));
  expect(
    await refused([
      { key: "a", value: "1" },
      { key: "a", value: "2" },
    ]),
  ).toContain("is there twice");
  expect(await refused([{ key: "a", value: 1 }])).toContain("expected a string");
  for (const wrong of [["a"], [null], [{ value: "1" }], "a", 1]) {
    expect(await refused(wrong)).toContain("expected an object");
  }
});

test("a selector has at most 100 tags", async () => {
  const ask = (count: number) => {
    const tags = Object.fromEntries(Array.from({ length: count }, (_, n) => [`t${n}`, "*"]));
    const select = [{ name: "cpu", tags, field: "gauge" }];
    return demo.rest("POST", "/api/v2/metrics/timeseries", { site_id: "demo-shop", ...range, select });
  };
  expect((await ask(100)).status).toBe(200);
  expect(await ask(101)).toMatchObject({
    status: 422,
    body: { details: { issues: [{ path: "select.0.tags", message: "expected at most 100 tags" }] } },
  });
});

test("bounds of a range that are objects are refused as no times", async () => {
  const refused = await demo.rest("POST", "/api/v2/tracing/traces/performance", {
    site_ids: ["demo-shop"],
    pagination,
    from: { instant: 2 },
    to: { instant: 1, text: "" },
  });
  expect(refused).toMatchObject({ status: 422, body: { error: "invalid_request" } });
});
