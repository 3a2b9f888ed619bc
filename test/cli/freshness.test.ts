// What the metrics tell of the newest row of each source, and until when.
import { afterEach, expect, test } from "vitest";
import { watchFreshness } from "#src/cli/serve/freshness.ts";
import { parseConfig } from "#src/config/config.ts";
import { BackendError } from "#src/core/errors.ts";
import type { Instant } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";

const text = `
backends: { old: { kind: fake }, new: { kind: fake }, prom: { kind: fake }, blind: { kind: fake } }
sites:
  shop:
    logs:
      sources:
        app: { backends: [{ backend: old, index: app-old }, { backend: new, index: app-new }] }
        nginx: { backend: new, index: nginx, where: "tenant=shop" }
    traces: [{ backend: old, index: spans-a }, { backend: new, index: spans-b }]
    metrics: { backend: prom, match: { site: shop } }
    kubernetes: { backend: prom, match: { site: shop-pods } }
  blog:
    logs: { backend: blind, sources: { app: { index: blog } } }
`;

const at = (seconds: number) => (BigInt(seconds) * 1_000_000_000n) as Instant;
const stops: AbortController[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop.abort();
});

type Answers = Record<string, Instant | undefined | Error>;

/** Asks all the time. What is told follows `answers`, by index or by the label `site`, which a test may change. */
function watch(answers: Answers, freshness: number | null = 5) {
  const parsed = parseConfig(text, "readout.yaml", {
    kinds: new Map([["fake", { parseConfig: () => undefined }]]),
    env: {},
    readText: () => "",
  });
  const asked: string[] = [];
  const find = async (name = ""): Promise<Instant | undefined> => {
    asked.push(name);
    const answer = answers[name];
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const findNewest: Backend["findNewest"] = {
    logs: ({ index, tenantFilter = "" }) => find(`${index}${tenantFilter && ` where ${tenantFilter}`}`),
    traces: ({ index }) => find(index),
    metrics: ({ site }) => find(site),
    kubernetes: ({ site }) => find(site),
  };
  const backends = new Map(
    ["old", "new", "prom", "blind"].map((name): [string, Backend] => [
      name,
      {
        name,
        kind: "fake",
        stores: {},
        inspections: {},
        close: async () => undefined,
        probe: async () => ({ product: "fake", version: "1" }),
        ...(name !== "blind" && { findNewest }),
      },
    ]),
  );
  const telemetry = createTelemetry({ write: () => undefined });
  const stop = new AbortController();
  stops.push(stop);
  const ended = watchFreshness(
    { config: { ...parsed, freshness: freshness ?? undefined }, backends },
    telemetry,
    stop.signal,
  );
  const list = async (): Promise<readonly string[]> => {
    const { text } = await telemetry.metrics();
    return text.split("\n").filter((line) => line.startsWith("readout_newest_timestamp_seconds"));
  };
  return { asked, list, stop, ended };
}

const metric = (backend: string, part: string, source: string, seconds: number) =>
  `readout_newest_timestamp_seconds{backend="${backend}",site="shop",part="${part}",source="${source}"} ${seconds}`;
const answers = (): Answers => ({
  "app-old": at(100),
  "app-new": at(160),
  "nginx where tenant=shop": at(150),
  "spans-a": at(90),
  "spans-b": at(140),
  shop: at(170),
  "shop-pods": at(180),
});

test("each source of each backend has the time of its newest row", async () => {
  const { list } = watch(answers());
  await expect
    .poll(async () => [...(await list())].sort())
    .toEqual(
      [
        metric("old", "logs", "app", 100),
        metric("new", "logs", "app", 160),
        metric("new", "logs", "nginx", 150),
        metric("old", "traces", "", 90),
        metric("new", "traces", "", 140),
        metric("prom", "metrics", "", 170),
        metric("prom", "kubernetes", "", 180),
      ].sort(),
    );
});

test("a source is asked again, keeps what it told while it fails, and loses it when it is empty", async () => {
  const changing = answers();
  const { list, asked } = watch(changing);
  const count = (name: string) => asked.filter((one) => one === name).length;
  await expect.poll(list).toContain(metric("old", "logs", "app", 100));
  changing["app-old"] = at(101);
  await expect.poll(list).toContain(metric("old", "logs", "app", 101));
  changing["app-old"] = new BackendError("old", "unreachable", "no");
  const before = count("app-old");
  await expect.poll(() => count("app-old")).toBeGreaterThan(before + 2);
  expect(await list()).toContain(metric("old", "logs", "app", 101));
  changing["app-old"] = undefined;
  await expect.poll(async () => (await list()).join()).not.toContain('backend="old",site="shop",part="logs"');
});

test("nothing is told when it has ended, such as by another configuration", async () => {
  const { list, stop, ended } = watch(answers());
  await expect.poll(list).toHaveLength(7);
  stop.abort();
  await ended;
  expect(await list()).toEqual([]);
});

test("without freshness nobody is asked", async () => {
  const { asked, ended } = watch(answers(), null);
  await ended;
  expect(asked).toEqual([]);
});
