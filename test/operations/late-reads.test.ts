import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import { createGuard, type Guard } from "#resolvers/http/guard.ts";
import type { Site } from "#src/access/sites.ts";
import { awaitShared, noteClientRequest, raceAbort } from "#src/core/async/concurrency.ts";
import { failures } from "#src/core/errors.ts";
import { describeFailure } from "#src/operations/runtime/error-response.ts";
import { startRequest } from "#src/operations/runtime/lifetime.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createBudget, createBudgetShare, trackBudget } from "#src/tracing/spans/read-budget.ts";
import { createDemo, type Demo } from "../support/demo-server.ts";
import { testIO } from "../support/io.ts";

async function describeLate(
  read: (budget: ReturnType<typeof createBudget>) => void,
  silence?: number,
): Promise<unknown> {
  vi.useFakeTimers();
  const work = startRequest(new AbortController().signal, 30_000);
  const budget = createBudget(1_000_000, work.progress);
  vi.advanceTimersByTime(silence === undefined ? 28_000 : 30_000 - silence);
  read(budget);
  vi.advanceTimersByTime(30_000);
  vi.useRealTimers();
  while (!work.signal.aborted) await sleep(5);
  work.end();
  return describeFailure(work.signal.reason).body;
}

describe("deadline of a request", () => {
  test("names how many documents were read when its sources have sent some", async () => {
    const body = await describeLate((budget) => {
      budget.spend(400_000);
      budget.reportRead?.(300_000);
      const share = createBudgetShare(trackBudget(budget).budget, 200_000);
      share.spend(80_000);
      share.reportRead?.(10_000);
    });
    expect(body).toEqual({
      error:
        "The request took longer than 30s; 310,000 of about 480,000 documents were read; narrow the range or the filters",
    });
  });

  test("names a source that did not answer when it has sent nothing for a while", async () => {
    const read = (budget: ReturnType<typeof createBudget>): void => {
      budget.spend(400);
      budget.reportRead?.(300);
    };
    expect(await describeLate(read, 10_000)).toEqual({ error: failures.timeout });
  });

  test("names a source that did not answer when none has sent documents", async () => {
    expect(await describeLate((budget) => budget.spend(400))).toEqual({ error: failures.timeout });
  });
});

const describeRequest = () => ({ method: "GET", path: "/" });
/** A source that takes one request at a time. */
const openSource = () => createGuard("elk", { timeout: 10_000, concurrent: 1, queued: 1_000 }, testIO);
/** Sends that many requests, which may fail. */
function sendMany(source: Guard, count: number, signal: AbortSignal, answer: () => Promise<unknown>): void {
  for (let n = 0; n < count; n += 1)
    source.run(false, signal, answer, describeRequest).catch(() => undefined);
}

describe("deadline of a request whose turn at a source has not come", () => {
  const answer = () => new Promise((resolve) => setTimeout(resolve, 1_000));
  const hang = () => new Promise(() => {});

  /** Sends requests of ours behind those of another request of the account, and waits until the deadline has passed. */
  async function describeQueued(others: number, ours: number, ask: () => Promise<unknown>): Promise<unknown> {
    vi.useFakeTimers();
    const source = openSource();
    const [other, work] = [0, 1].map(() => startRequest(new AbortController().signal, 30_000));
    if (other === undefined || work === undefined) throw new Error("two requests");
    for (const { signal, progress } of [other, work]) noteClientRequest(signal, { account: "ana", progress });
    sendMany(source, others, other.signal, ask);
    sendMany(source, ours, work.signal, ask);
    await vi.advanceTimersByTimeAsync(30_000);
    vi.useRealTimers();
    expect(work.signal.aborted).toBe(true);
    return describeFailure(work.signal.reason).body;
  }

  test("says how long it waited, and how many of its requests were answered", async () => {
    expect(await describeQueued(10, 100, answer)).toEqual({
      error:
        "The request took longer than 30s; it waited 30s for its turn at a data source; 19 requests to data sources were answered; ask for less, or try again later",
    });
  });

  test.each([
    ["none of its requests was sent", 100, 30],
    ["its request was sent at last", 29, 29],
  ])("says so where %s", async (_, others, seconds) => {
    expect(await describeQueued(others, 1, answer)).toEqual({
      error: `The request took longer than 30s; it waited ${seconds}s for its turn at a data source; ask for less, or try again later`,
    });
  });

  test("names a source that did not answer when it answers nobody", async () => {
    expect(await describeQueued(4, 1, hang)).toEqual({ error: failures.timeout });
  });
});

/** Of a request whose three questions are answered, and which then waits past its deadline. */
async function describeAnswered(wait: (signal: AbortSignal) => Promise<unknown>): Promise<unknown> {
  vi.useFakeTimers();
  const { signal, progress } = startRequest(new AbortController().signal, 30_000);
  noteClientRequest(signal, { account: "ana", progress });
  sendMany(openSource(), 3, signal, async () => {});
  const ended = expect(wait(signal)).rejects.toThrow();
  await vi.advanceTimersByTimeAsync(30_000);
  vi.useRealTimers();
  await ended;
  return describeFailure(signal.reason).body;
}

test("a deadline that passes while no source owes an answer names none", async () => {
  expect(await describeAnswered((signal) => raceAbort(new Promise(() => {}), signal))).toEqual({
    error:
      "The request took longer than 30s; 3 requests to data sources were answered; ask for less, or try again later",
  });
});

test("a deadline that passes while a source owes what many wait for names it", async () => {
  const body = await describeAnswered((signal) => awaitShared(new Promise(() => {}), signal));
  expect(body).toEqual({ error: failures.timeout });
});

describe("a late answer over HTTP says how far it came", () => {
  const page = { from: "2026-01-15T11:00:00Z", to: "2026-01-15T12:00:00Z" };
  /** The answer to what is sent while the clock stands still; the clock passes the deadline once the source has been asked. */
  async function answerLate(
    deadline: number,
    asked: Promise<void>,
    send: () => ReturnType<Demo["rest"]>,
  ): ReturnType<Demo["rest"]> {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    try {
      const answer = send();
      await asked;
      await vi.advanceTimersByTimeAsync(deadline);
      return await answer;
    } finally {
      vi.useRealTimers();
    }
  }

  /** Sends ten at a time, and never the last. */
  async function readForEver(
    report: ((count: number) => void) | undefined,
    signal: AbortSignal,
  ): Promise<never> {
    for (;;) {
      signal.throwIfAborted();
      report?.(10);
      await pause();
    }
  }
  const pause = () => new Promise((resolve) => setTimeout(resolve, 20));

  /** The site with other log lines. */
  const replaceLines = (site: Site, lines: LogStore["lines"]): Site =>
    site.logs === undefined ? site : { ...site, logs: { ...site.logs, store: { lines } } };

  test("of requests that wait for their turn", async () => {
    const source = openSource();
    const asked = Promise.withResolvers<void>();
    const demo = await createDemo({
      limits: { deadline: 1_000 },
      site: (site) =>
        replaceLines(site, async function* (_, signal) {
          sendMany(source, 1_000, signal, pause);
          asked.resolve();
          await source.run(false, signal, pause, describeRequest);
          yield* [];
        }),
    });
    const body = { source_ids: ["app"], query: "", pagination: { per_page: 5, order: "DESC" } };
    const answer = await answerLate(1_000, asked.promise, () =>
      demo.rest("POST", "/api/v2/logs/lines", { site_id: "demo-shop", ...page, ...body }),
    );
    const sentence =
      /^The request took longer than .*; (it waited .* for its turn at a data source; )?\d+ requests to data sources were answered; /;
    expect(answer).toEqual({ status: 500, body: { error: expect.stringMatching(sentence) } });
    await demo.close();
  });

  test.each([
    [
      "of log lines",
      "/api/v2/logs/lines",
      { source_ids: ["app"], query: "", pagination: { per_page: 5, order: "DESC" } },
      /^The request took longer than .*; [\d,]+0 documents were read; narrow the range or the filters$/,
    ],
    [
      "of metrics",
      "/api/v2/metrics/timeseries",
      { select: [{ name: "cpu", field: "gauge", tags: {} }], resolution: "HOURLY" },
      /^The request took longer than .*; [\d,]+0 samples were read; ask for fewer series, a coarser resolution or a shorter range$/,
    ],
  ])("%s", async (_, path, body, sentence) => {
    const asked = Promise.withResolvers<void>();
    const demo = await createDemo({
      limits: { deadline: 400 },
      site: (site) => ({
        ...replaceLines(site, async function* ({ progressed }, signal) {
          asked.resolve();
          yield await readForEver(progressed, signal);
        }),
        ...(site.metrics && {
          metrics: {
            ...site.metrics,
            store: {
              ...site.metrics.store,
              series: ({ reportRead }, signal) => {
                asked.resolve();
                return readForEver(reportRead, signal);
              },
            },
          },
        }),
      }),
    });
    const answer = await answerLate(400, asked.promise, () =>
      demo.rest("POST", path, { site_id: "demo-shop", ...page, ...body }),
    );
    expect(answer).toEqual({ status: 500, body: { error: expect.stringMatching(sentence) } });
    await demo.close();
  });
});

test("a spent budget says how much there is and what the limit is", () => {
  expect(() => createBudget(500_000).spend(1_234_567)).toThrowError(
    expect.objectContaining({
      message:
        "At least 1,234,567 documents would have to be read, and the limit is 500,000; narrow the range or the filters",
      details: { limit: 500_000, wanted: 1_234_567 },
    }),
  );
});
