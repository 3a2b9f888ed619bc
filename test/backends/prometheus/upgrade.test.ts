// An upgrade from version 2 to 3 on one data directory, while a target is scraped. Version 3 rewrites the bounds that the
// target exports, so each bucket continues under another label. All answers are those of one histogram.
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { Measure } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import { type RunningPrometheus, startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import { never } from "../../support/signals.ts";
import { namedPrometheus } from "../selected-servers.ts";

const minute = 60_000;
const names = namedPrometheus().map(({ name }) => name);
const isNamed = names.includes("prom2") && names.includes("prom3");

/** Observations per bound, by the state of the target; the bounds as targets in Go, Java and Python export them. */
const bounds = ["2.5E-4", "1", "2097152", "1.0E8", "+Inf"] as const;
const states = {
  first: [10, 20, 30, 40, 50],
  beforeUpgrade: [110, 220, 330, 440, 550],
  // 400 more: 40 up to 2.5E-4, 80 up to 1, 300 up to 2,097,152, 360 up to 1.0E8.
  afterUpgrade: [150, 300, 630, 800, 950],
} as const;
let state: keyof typeof states = "first";

function printExposition(): string {
  const counts = states[state];
  const [, , , , total] = counts;
  return [
    "# TYPE size_bytes histogram",
    ...bounds.map((le, n) => `size_bytes_bucket{le="${le}"} ${counts[n]}`),
    `size_bytes_sum ${total * 2}`,
    `size_bytes_count ${total}`,
    "# TYPE wait_seconds summary",
    ...["0.5", "0.90", "1"].map(
      (quantile) => `wait_seconds{quantile="${quantile}"} ${total * Number(quantile)}`,
    ),
    `wait_seconds_sum ${total * 2}`,
    `wait_seconds_count ${total}`,
    "",
  ].join("\n");
}

describe.runIf(isNamed)("an upgrade from prom2 to prom3 on one data directory", () => {
  let target: Server;
  let data: string;
  let backend: Backend;
  let server: RunningPrometheus;
  /** When the target had its second state at all scrapes of version 2, and when its third began. */
  let [settled, seam, ended] = [0, 0, 0];

  beforeAll(async () => {
    data = await mkdtemp(join(tmpdir(), "readout-upgrade-"));
    target = createServer((_, response) => {
      response.setHeader("content-type", "text/plain; version=0.0.4");
      response.end(printExposition());
    });
    await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
    const address = target.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    const kept = { data, target: `127.0.0.1:${address.port}` };

    server = await startPrometheus("prom2", "", undefined, [], kept);
    await awaitCount(server.url, 50);
    state = "beforeUpgrade";
    await awaitCount(server.url, 550);
    settled = Date.now();
    await server.stop();

    state = "afterUpgrade";
    seam = Date.now();
    server = await startPrometheus("prom3", "", undefined, [], kept);
    await awaitCount(server.url, 950);
    ended = Date.now();
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
  }, 240_000);
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
    target?.close();
    if (data !== undefined) await rm(data, { recursive: true, force: true });
  });

  async function readOne(metric: string, measure: Measure, start: number, step: number, count = 1) {
    const query = {
      match: {},
      metric,
      measure,
      tags: {},
      buckets: { start, step, count },
      lookBack: 1_440 * minute,
      pointLimit: 100_000,
    };
    const found = (await backend.stores.metrics?.series(query, never)) ?? [];
    expect(found).toHaveLength(1);
    return [...(found[0]?.values ?? [])];
  }
  const observed = (combine: "count" | "mean" | "min" | "max"): Measure => ({ of: "observations", combine });
  const quantile = (quantile: number): Measure => ({ of: "observations", combine: "quantile", quantile });

  test("the source holds each bound in two spellings", async () => {
    const found = await fetch(`${server.url}/api/v1/label/le/values`).then((response) => response.json());
    expect(Object(found).data).toEqual(
      expect.arrayContaining(["2.5E-4", "0.00025", "1", "1.0", "2097152", "2.097152e+06", "1.0E8", "1e+08"]),
    );
  });

  // The range begins between the last sample of the old spelling and the first of the new, or before it.
  test.each(["from the seam", "from before it"])("the growth after it is exact, asked %s", async (from) => {
    const start = from === "from the seam" ? seam : settled;
    const step = ended - start;
    expect(await readOne("size_bytes", observed("count"), start, step)).toEqual([400]);
    expect(await readOne("size_bytes", observed("mean"), start, step)).toEqual([2]);
    // The rank 360 is all up to 1.0E8; the rank 200 is the 120th of the 220 between 1 and 2,097,152.
    expect(await readOne("size_bytes", quantile(0.9), start, step)).toEqual([1e8]);
    const [half = 0] = await readOne("size_bytes", quantile(0.5), start, step);
    expect(half).toBeCloseTo(1 + (120 / 220) * 2_097_151, 3);
    expect(await readOne("size_bytes", observed("min"), start, step)).toEqual([0]);
  });

  test("the growth over it is exact in one bucket", async () => {
    // From the first state on: the range begins before the first sample of this metric, which counts from its own value.
    const start = settled - 10 * minute;
    const [count = 0] = await readOne("size_bytes", observed("count"), start, ended - start);
    expect(count).toBe(900);
    // 60 % lie at or below 2,097,152: 600 of 900. The rank 540 is 540 - 280 = the 260th of the 320 between.
    const [value = 0] = await readOne("size_bytes", quantile(0.6), start, ended - start);
    expect(value).toBeCloseTo(1 + (260 / 320) * 2_097_151, 3);
  });

  test("the buckets of seconds over it add up to the growth", async () => {
    const count = Math.ceil((ended - settled) / 1_000);
    const values = await readOne("size_bytes", observed("count"), settled, 1_000, count);
    expect(values.reduce((sum, value) => sum + (value || 0), 0)).toBe(400);
    const quantiles = await readOne("size_bytes", quantile(0.9), settled, 1_000, count);
    expect(quantiles.filter((value) => !Number.isNaN(value))).toEqual([1e8]);
  });

  test("a quantile of a summary continues", async () => {
    const step = Math.ceil((ended - settled + 1_000) / 2);
    const values = await readOne("wait_seconds", quantile(0.9), settled - 1_000, step, 2);
    expect(values.at(-1)).toBe(855);
    expect(await readOne("wait_seconds", observed("max"), settled - 1_000, 2 * step)).toEqual([950]);
  });
});

/** Waits until three scrapes in a row have found this count, so that it stands for a while. */
async function awaitCount(url: string, count: number): Promise<void> {
  const deadline = Date.now() + 60_000;
  const query = `count_over_time((size_bytes_count == ${count})[1m:1s])`;
  for (;;) {
    const response = await fetch(`${url}/api/v1/query?${new URLSearchParams({ query })}`);
    const body: unknown = await response.json();
    const [, value] = Object(body).data?.result?.[0]?.value ?? [];
    if (Number(value) >= 3) return;
    if (Date.now() > deadline) throw new Error(`no scrape found the count ${count}: ${JSON.stringify(body)}`);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}
