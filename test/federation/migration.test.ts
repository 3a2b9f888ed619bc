// The guide of a migration: at each of its steps, with the configuration that it shows, clients get the same answers as from one
// cluster that holds everything.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { connectSites } from "#src/access/sites.ts";
import { parseConfig } from "#src/config/config.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import { ask, hex, type Json, request } from "../operations/trace-harness.ts";
import { base } from "../tracing/span-builder.ts";

const guide = readFileSync(new URL("../../docs/how-to/move-to-another-cluster.md", import.meta.url), "utf8");
const [before = "", both = "", after = ""] = [...guide.matchAll(/```yaml readout\n([\s\S]*?)```/g)].map(
  ([, text = ""]) => text,
);

/** A cluster that holds what the test writes. */
function openCluster(name: string) {
  const [logs, traces] = [createMemoryLogs(), createMemorySpans()];
  const unused = async () => ({ product: "memory", version: "1" });
  const backend: Backend = {
    name,
    kind: "elastic",
    stores: { logs, traces },
    inspections: {},
    probe: unused,
    close: async () => {},
  };
  return { backend, logs, traces };
}

function createWorld() {
  const [old, next, whole] = [openCluster("old"), openCluster("new"), openCluster("old")];
  const now = base + 3_600_000;
  let written = 0;
  /** Writes a line and a span at the next second to these clusters. */
  const write = (...clusters: readonly ReturnType<typeof openCluster>[]) => {
    written += 1;
    const at = (fromMillis(base) + BigInt(written) * 1_000_000_000n) as Instant;
    const id = `shop-logs/${written}`;
    const line = { id, time: at, severity: "info", message: `line ${written}`, json: "{}" } as const;
    const span = {
      ...request({
        trace_id: hex("a", 31) + written.toString(16),
        from: written * 1_000,
        to: written * 1_000,
      }),
      site_id: "shop",
    };
    for (const { logs, traces } of [whole, ...clusters]) {
      logs.add("shop-logs", [line]);
      traces.add("shop-spans", [span]);
    }
  };
  const serve = (text: string, clusters: readonly ReturnType<typeof openCluster>[]) => {
    const config = parseConfig(text, "readout.yaml", { kinds, env: {}, readText: () => "" });
    const backends = new Map(clusters.map(({ backend }) => [backend.name, backend]));
    return ask([...connectSites(config, backends).values()], now);
  };
  const wanted = serve(before, [whole]);
  return { old, next, write, serve: (text: string) => serve(text, [old, next]), wanted };
}

const span = { from: new Date(base).toISOString(), to: new Date(base + 3_600_000).toISOString() };

/** What a dashboard shows, and how it goes on from its last page. */
async function askDashboard(run: ReturnType<typeof ask>, from = span.from) {
  const range = { ...span, from };
  const rows: Json[] = [];
  for (let time: unknown = null; ; ) {
    const pagination = { per_page: 2, order: "ASC", cursor: { time } };
    const page = await run("logs/lines", {
      site_id: "shop",
      source_ids: ["app"],
      query: "",
      ...range,
      pagination,
    });
    rows.push(...page);
    if (page.length < 2) break;
    time = page.at(-1)?.timestamp;
  }
  const listing = {
    site_ids: ["shop"],
    ...range,
    pagination: { per_page: 100, order: "DESC", cursor: "Time" },
  };
  return [
    rows,
    await run("tracing/traces/performance", listing),
    await run("tracing/actions", { site_id: "shop", ...range }),
  ];
}

test("at each step of the guide a dashboard shows the same", async () => {
  const { old, next, write, serve, wanted } = createWorld();
  const expectSame = async (text: string, from?: string) => {
    const found = await askDashboard(serve(text), from);
    expect(found).toEqual(await askDashboard(wanted, from));
    expect(found.every((rows) => rows.length > 0)).toBe(true);
  };
  for (let n = 0; n < 5; n += 1) write(old);
  await expectSame(before);
  await expectSame(both);
  for (let n = 0; n < 5; n += 1) write(old, next);
  await expectSame(both);
  for (let n = 0; n < 4; n += 1) write(next);
  await expectSame(both);
  // What only the old cluster holds is older than what dashboards show.
  await expectSame(after, new Date(base + 6_000).toISOString());
});

test("a page that began before a step goes on after it", async () => {
  const { old, next, write, serve, wanted } = createWorld();
  for (let n = 0; n < 3; n += 1) write(old);
  for (let n = 0; n < 3; n += 1) write(next);
  const page = (run: ReturnType<typeof ask>, time: unknown) =>
    run("logs/lines", {
      site_id: "shop",
      source_ids: ["app"],
      query: "",
      ...span,
      pagination: { per_page: 2, order: "DESC", cursor: { time } },
    });
  const first = await page(serve(both), null);
  const second = await page(serve(both), first.at(-1)?.timestamp);
  expect([...first, ...second]).toEqual([
    ...(await page(wanted, null)),
    ...(await page(wanted, first.at(-1)?.timestamp)),
  ]);
});
