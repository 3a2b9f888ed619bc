// Every way in which a delivery can end, with a source that the test plays.
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Sites } from "#src/access/sites.ts";
import { BackendError } from "#src/core/errors.ts";
import { type Delivery, startDelivery } from "#src/intake/delivery.ts";
import type { SpoolClient } from "#src/intake/spool-client.ts";
import type { ErrorReportStore, ErrorReportTarget } from "#src/store/error-reports.ts";
import {
  createMemorySpooler,
  createSites,
  createWatchedTelemetry,
  renderReport,
} from "../support/error-reports.ts";

const pace = { gather: 1, firstRetry: 5, lastRetry: 20 };
const running: Delivery[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const delivery of running.splice(0)) await delivery.close();
});

function start(sites: Sites, spooler: SpoolClient) {
  const watched = createWatchedTelemetry();
  const delivery = startDelivery({ spool: spooler, sites, telemetry: watched.telemetry, pace });
  running.push(delivery);
  return { delivery, ...watched };
}

async function spool(
  spooler: SpoolClient,
  site: string,
  count: number,
  over: { index?: string; from?: number } = {},
) {
  for (let number = over.from ?? 0; number < (over.from ?? 0) + count; number += 1) {
    const body = renderReport(number);
    expect(await spooler.append({ site, index: over.index ?? "reports", received: 0, body })).toBe(true);
  }
}

test("each site that has a source is counted from 0 on, so that an alert sees its first report", async () => {
  const sites = createSites({ shop: { keys: ["k"], store: source().store }, blog: { keys: ["l"] } });
  const { telemetry } = start(sites, createMemorySpooler());
  const { text } = await telemetry.metrics();
  expect(text).toContain('readout_intake_delivered_total{site="shop"} 0\n');
  expect(text).toContain('readout_intake_refused_total{site="shop"} 0\n');
  expect(text).not.toContain('site="blog"');
});

/** A source by id, that keeps what it is sent and then does what the test says. */
function source(after: (call: number) => void | ReadonlyMap<string, string> | Promise<void> = () => {}) {
  const held = new Map<string, string>();
  const calls: { readonly target: ErrorReportTarget; readonly ids: readonly string[] }[] = [];
  const store: ErrorReportStore = {
    async deliver(target, reports) {
      calls.push({ target, ids: reports.map(({ trace_id }) => trace_id) });
      for (const { trace_id, status_message } of reports) held.set(trace_id, status_message ?? "");
      return (await after(calls.length)) ?? new Map();
    },
  };
  return { store, held, calls };
}
/** A source that keeps what it takes, and refuses the whole of a request for the reason that the test gives: `status N: …`. */
function refusing(why: (texts: readonly string[]) => string | undefined) {
  const held: string[] = [];
  const store: ErrorReportStore = {
    async deliver(_, reports) {
      const texts = reports.map(({ status_message }) => status_message ?? "");
      const reason = why(texts);
      if (reason !== undefined) {
        const status = Number(/^status (\d+)/.exec(reason)?.[1]);
        throw new BackendError("fake", "rejected", reason, { status });
      }
      held.push(...texts);
      return new Map();
    },
  };
  return { store, held };
}
const tooLarge = "status 413: Request Entity Too Large";
const messages = (count: number) => Array.from({ length: count }, (_, number) => `number ${number}`);

test("reports of one request are read in turns of the event loop", async () => {
  // By this clock each of them takes longer than a turn.
  let clock = 0;
  vi.spyOn(performance, "now").mockImplementation(() => (clock += 10));
  const spooler = createMemorySpooler();
  await spool(spooler, "shop", 6);
  let [turns, found] = [0, 0];
  const counted: SpoolClient = {
    ...spooler,
    async readOldest(...request) {
      const reports = await spooler.readOldest(...request);
      [turns, found] = [0, reports.length];
      return reports;
    },
  };
  const delivered = Promise.withResolvers<readonly [found: number, turns: number]>();
  let isOver = false;
  const countTurn = () => {
    turns += 1;
    if (!isOver) setImmediate(countTurn);
  };
  countTurn();
  start(
    createSites({ shop: { keys: ["k"], store: source(() => delivered.resolve([found, turns])).store } }),
    counted,
  );
  const [reports, between] = await delivered.promise;
  isOver = true;
  expect(reports).toBe(6);
  expect(between).toBeGreaterThanOrEqual(6);
});

test("delivers earlier and later reports in order and removes them from the spool", async () => {
  const spooler = createMemorySpooler();
  const { store, held, calls } = source();
  await spool(spooler, "shop", 3);
  const { delivery, metric } = start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(() => held.size).toBe(3);
  await spool(spooler, "shop", 2, { from: 3 });
  delivery.wake("shop");
  await expect.poll(() => held.size).toBe(5);
  expect([...held.values()]).toEqual(messages(5));
  expect(calls[0]?.target).toEqual({ site: "shop", index: "reports", layout: "auto" });
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
  await expect.poll(() => metric('readout_intake_delivered_total{site="shop"}')).toBe(5);
});

test("keeps all reports and their order when the clock goes back", async () => {
  const spooler = createMemorySpooler();
  const { store, held } = source();
  // The clock at each arrival: an hour back, a day ahead, before 1970.
  const clocks = [3_600_000, 0, 86_400_000, -5_000, 7_200_000];
  for (const [number, received] of clocks.entries()) {
    const body = renderReport(number);
    expect(await spooler.append({ site: "shop", index: "reports", received, body })).toBe(true);
  }
  start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(() => held.size).toBe(clocks.length);
  expect([...held.values()]).toEqual(messages(clocks.length));
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
});

test("delivers all reports to an unreachable source once it answers again", async () => {
  const spooler = createMemorySpooler();
  const away = source((call) => {
    if (call < 4) throw new BackendError("fake", "unreachable", "connection refused");
  });
  await spool(spooler, "shop", 450);
  const { logged } = start(createSites({ shop: { keys: ["k"], store: away.store } }), spooler);
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
  expect([...away.held.values()]).toEqual(messages(450));
  expect(logged()).toContain("front-end reports wait for their source");
  // The three failures were all of the first batch, under the same ids.
  expect(away.calls.slice(1, 4).every(({ ids }) => ids.join() === away.calls[0]?.ids.join())).toBe(true);
});

test("delivers in smaller parts when a proxy refuses a request as too large", async () => {
  const spooler = createMemorySpooler();
  let refused = 0;
  const { store, held } = refusing(({ length }) => {
    if (length <= 20) return undefined;
    refused += 1;
    return tooLarge;
  });
  await spool(spooler, "shop", 450);
  start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
  expect(held).toEqual(messages(450));
  // The smaller size is kept for as long as reports wait.
  expect(refused).toBe(2);
});

describe("a report that the source refuses as a whole, even alone,", () => {
  /** What a proxy does that takes nothing in which the text stands. */
  const refusingText = (text: string) =>
    refusing((texts) => (texts.some((one) => one.endsWith(text)) ? tooLarge : undefined));

  test("becomes a dead letter with the reason, and its neighbours are delivered once", async () => {
    const spooler = createMemorySpooler();
    const { store, held } = refusingText("number 70");
    await spool(spooler, "shop", 300);
    const { metric, logged } = start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 1 });
    expect(held.toSorted()).toEqual(
      messages(300)
        .filter((text) => text !== "number 70")
        .toSorted(),
    );
    expect(await metric('readout_intake_refused_total{site="shop"}')).toBe(1);
    expect(logged()).toContain("front-end report refused by its source");
  });

  test("is delivered when the source accepts all requests again", async () => {
    const spooler = createMemorySpooler();
    let calls = 0;
    const { store, held } = refusing(() => (++calls < 30 ? "status 404: no such index" : undefined));
    await spool(spooler, "shop", 120);
    start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 0 });
    expect(held.toSorted()).toEqual(messages(120).toSorted());
  });

  test("is delivered when the source accepts it after another report", async () => {
    const spooler = createMemorySpooler();
    // Refused are single requests, as by a source that comes back in between.
    let [singles, batches] = [0, 0];
    const { store, held } = refusing(({ length }) => {
      const isRefused = length > 1 ? batches++ < 2 : singles++ === 0;
      return isRefused ? "status 400: no" : undefined;
    });
    await spool(spooler, "shop", 3);
    start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 0 });
    expect(held.toSorted()).toEqual(messages(3));
  });

  test("does not delay later reports, even beside others like it", async () => {
    const spooler = createMemorySpooler();
    const { store, held } = refusing((texts) => {
      const numbers = texts.map((text) => Number(text.slice(7)));
      return numbers.some((number) => number >= 5 && number < 70) ? tooLarge : undefined;
    });
    await spool(spooler, "shop", 200);
    start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 65 });
    expect(held).toHaveLength(135);
  });

  test("stays in the spool when the source answers it with 5xx", async () => {
    const spooler = createMemorySpooler();
    let failures = 0;
    const { store, held } = refusing((texts) =>
      texts.includes("number 70") && ++failures < 12 ? "status 500: an error of its own" : undefined,
    );
    await spool(spooler, "shop", 200);
    start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 0 });
    expect(held).toEqual(messages(200));
  });

  test("waits while no later report is accepted", async () => {
    const spooler = createMemorySpooler();
    const { store, held } = refusingText("");
    await spool(spooler, "shop", 3);
    start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await spooler.readLevel()).toMatchObject({ reports: 3, deadLetters: 0 });
    expect(held).toEqual([]);
  });

  test("waits while it is the only report", async () => {
    const spooler = createMemorySpooler();
    const { store, held } = refusingText("number 0");
    await spool(spooler, "shop", 1);
    const { delivery } = start(createSites({ shop: { keys: ["k"], store } }), spooler);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(await spooler.readLevel()).toMatchObject({ reports: 1, deadLetters: 0 });
    await spool(spooler, "shop", 1, { from: 1 });
    delivery.wake("shop");
    await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 1 });
    expect(held).toEqual(["number 1"]);
  });
});

test("delivers again under the same ids and index after a lost confirmation", async () => {
  const spooler = createMemorySpooler();
  const { store, held, calls } = source((call) => {
    if (call === 1) throw new BackendError("fake", "timeout", "no answer");
  });
  await spool(spooler, "shop", 10);
  start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
  expect(calls).toHaveLength(2);
  expect(calls[1]).toEqual(calls[0]);
  expect(held.size).toBe(10);
});

test("delivers again under the same ids after an end between confirmation and removal", async () => {
  const spooler = createMemorySpooler();
  const { store, held, calls } = source();
  await spool(spooler, "shop", 5);
  const falls: SpoolClient = {
    ...spooler,
    settle: async () => {
      throw new Error("killed here");
    },
  };
  const first = start(createSites({ shop: { keys: ["k"], store } }), falls);
  await expect.poll(() => calls.length).toBeGreaterThan(0);
  await first.delivery.close();
  expect((await spooler.readLevel()).reports).toBe(5);
  start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
  expect(held.size).toBe(5);
  for (const { ids } of calls) expect(ids).toEqual(calls[0]?.ids);
});

test("makes dead letters of refused reports and delivers their neighbours", async () => {
  const spooler = createMemorySpooler();
  let refused = "";
  const store: ErrorReportStore = {
    deliver: async (_, reports) => {
      refused = reports[1]?.trace_id ?? refused;
      return new Map(reports.slice(1, 2).map(({ trace_id }) => [trace_id, "status 400: does not fit"]));
    },
  };
  await spool(spooler, "shop", 3);
  const { metric, logged } = start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(async () => (await spooler.readLevel()).deadLetters).toBe(1);
  expect(await spooler.readLevel()).toMatchObject({ reports: 0 });
  await expect.poll(() => metric('readout_intake_refused_total{site="shop"}')).toBe(1);
  expect(await metric('readout_intake_delivered_total{site="shop"}')).toBe(2);
  expect(logged()).toContain("status 400: does not fit");
});

test("makes a dead letter of an unreadable report without sending it", async () => {
  const spooler = createMemorySpooler();
  const { store, held } = source();
  await spooler.append({ site: "shop", index: "reports", received: 0, body: '{"of":"another version"}' });
  await spool(spooler, "shop", 1);
  start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(async () => await spooler.readLevel()).toMatchObject({ reports: 0, deadLetters: 1 });
  expect(held.size).toBe(1);
});

test("delivers each report to the index that was chosen when it arrived", async () => {
  const spooler = createMemorySpooler();
  const { store, calls } = source();
  await spool(spooler, "shop", 2, { index: "reports-2026.11.21" });
  await spool(spooler, "shop", 2, { index: "reports-2026.11.22", from: 2 });
  start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
  expect(calls.map(({ target, ids }) => [target.index, ids.length])).toEqual([
    ["reports-2026.11.21", 2],
    ["reports-2026.11.22", 2],
  ]);
});

describe("delivery for several sites", () => {
  test("does not delay a site when the source of another is unreachable", async () => {
    const spooler = createMemorySpooler();
    const away = source(() => {
      throw new BackendError("fake", "unreachable", "connection refused");
    });
    const there = source();
    await spool(spooler, "shop", 3);
    await spool(spooler, "blog", 3);
    start(
      createSites({ shop: { keys: ["k"], store: away.store }, blog: { keys: ["b"], store: there.store } }),
      spooler,
    );
    await expect.poll(async () => (await spooler.readLevel()).sites).toEqual({ shop: 3 });
    expect(there.held.size).toBe(3);
  });

  test("keeps the reports of a site without a store", async () => {
    const spooler = createMemorySpooler();
    await spool(spooler, "shop", 1);
    start(createSites({ shop: { keys: ["k"] } }), spooler);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await spooler.readLevel()).reports).toBe(1);
  });
});

test("aborts a hanging delivery at its close and keeps its reports", async () => {
  const spooler = createMemorySpooler();
  const store: ErrorReportStore = {
    deliver: (_, __, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  };
  await spool(spooler, "shop", 1);
  const { delivery } = start(createSites({ shop: { keys: ["k"], store } }), spooler);
  await new Promise((resolve) => setTimeout(resolve, 20));
  await delivery.close();
  expect((await spooler.readLevel()).reports).toBe(1);
});
