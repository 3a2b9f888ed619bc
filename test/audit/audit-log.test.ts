// What a line of the audit log says, and what happens to requests whose line cannot be written.
import { createHmac } from "node:crypto";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type AuditEntry, type AuditSink, createAuditLog, LineRejected } from "#src/audit/audit-log.ts";
import type { AuditConfig } from "#src/config/edge-settings.ts";
import { LimitReached } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { sampleRuns } from "../support/law-runs.ts";

const key = "a key that nobody knows";
const token = "secret-token-of-ana";

function open(over: Partial<AuditConfig> = {}) {
  const lines: string[] = [];
  const state = {
    isFull: false,
    problem: undefined as Error | undefined,
    dropped: 0,
    problems: [] as (string | undefined)[],
  };
  const sink: AuditSink = {
    append: async (line) => {
      if (state.isFull) throw new Error("no space");
      if (state.problem !== undefined) throw state.problem;
      lines.push(line);
    },
    reopen: () => {},
    close: async () => [],
  };
  const audit = createAuditLog({
    config: { key, queries: "hash", onFull: "refuse", ...over },
    sink,
    now: () => fromMillis(Date.UTC(2026, 0, 15)),
    onDropped: (count) => {
      state.dropped += count;
    },
    onState: (problem) => state.problems.push(problem),
  });
  const record = (entry: Partial<AuditEntry> = {}) =>
    audit.record(
      { event: "request", request: "r1", operation: "logs.lines", ...entry },
      (text) => text === token,
    );
  return { audit, record, state, read: () => lines.map((line) => JSON.parse(line)) };
}

test("a line has what is known, and a hash of the query that needs the key", async () => {
  const { record, read } = open();
  const query = "severity=error";
  await record({ user: "ana", sites: ["shop"], query, status: 200, rows: 3, from: "2026-01-15T10:00:00Z" });
  expect(read()).toEqual([
    {
      time: "2026-01-15T00:00:00.000Z",
      event: "request",
      request: "r1",
      operation: "logs.lines",
      user: "ana",
      sites: ["shop"],
      from: "2026-01-15T10:00:00Z",
      query_hash: createHmac("sha256", key).update(query).digest("hex"),
      status: 200,
      decision: "allowed",
      rows: 3,
    },
  ]);
});

test.each([
  [undefined, "allowed"],
  [200, "allowed"],
  [401, "denied"],
  [403, "denied"],
  [404, "denied"],
  [406, "refused"],
  [422, "refused"],
  [429, "limited"],
  [500, "failed"],
])("status %j is %s", async (status, decision) => {
  const { record, read } = open();
  await record({ status });
  expect(read()[0].decision).toBe(decision);
});

test("each of the first fifty sites is named once, however often a request names others", async () => {
  const { record, read } = open();
  const named = Array.from({ length: 60 }, (_, n) => `site-${n}`);
  await record({ sites: [...Array.from({ length: 1_000 }, () => "shop"), ...named] });
  expect(read()[0].sites).toEqual(["shop", ...named.slice(0, 49)]);
});

test("no token is written, wherever a client puts it", async () => {
  const made = `rdt_${"x".repeat(43)}`;
  const jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ.abc";
  const noise = fc.stringMatching(/^[ =("',]{0,3}$/);
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(token, made, jwt), noise, noise, async (secret, before, after) => {
      const { record, read } = open({ queries: "text" });
      const text = `message${before || "="}${secret}${after}`;
      await record({ query: text, sites: [secret, `a ${secret}`] });
      expect(JSON.stringify(read())).not.toContain(secret);
      expect(read()[0].query).toContain("[redacted]");
    }),
    { numRuns: sampleRuns(50) },
  );
});

test("a long query is written in part, with no token and no part of one", async () => {
  const { record, read } = open({ queries: "text" });
  const secret = `rdt_${"x".repeat(43)}`;
  for (const before of [16_340, 16_370, 16_383]) {
    await record({ query: `${"a".repeat(before - 1)} ${secret} ${"b ".repeat(500_000)}` });
    const { query } = read().at(-1);
    expect(query.length).toBeLessThanOrEqual(16_384);
    expect(query).not.toContain("rdt_");
  }
});

describe("a line that cannot be written", () => {
  test("refuses its request, and is told of when there is room again", async () => {
    const { record, read, state } = open();
    state.isFull = true;
    await expect(record()).rejects.toThrow(LimitReached);
    await expect(record()).rejects.toThrow(LimitReached);
    expect(state).toMatchObject({ dropped: 2, problems: ["no space"] });
    state.isFull = false;
    await record({ request: "r2" });
    expect(read()).toMatchObject([
      { event: "request", request: "r2" },
      { event: "dropped", lines: 2 },
    ]);
    await record({ request: "r3" });
    expect(read()).toHaveLength(3);
    expect(state.problems).toEqual(["no space", undefined]);
  });

  test("refuses its request, and counts once, where it is among lines of which some are rejected", async () => {
    const { audit, record, read, state } = open();
    state.problem = new LineRejected("over the quota");
    audit.countRejected(2, "over the quota");
    for (let n = 0; n < 3; n += 1) await expect(record()).rejects.toThrow(LimitReached);
    state.problem = undefined;
    await record({ request: "r2" });
    expect(state).toMatchObject({ dropped: 2, problems: ["over the quota", undefined] });
    expect(read()).toMatchObject([{ request: "r2" }, { event: "dropped", lines: 2 }]);
  });

  test("is dropped and counted where the configuration says so", async () => {
    const { record, read, state } = open({ onFull: "drop" });
    state.isFull = true;
    await record();
    state.isFull = false;
    await record();
    expect(state.dropped).toBe(1);
    expect(read()).toMatchObject([{ event: "request" }, { event: "dropped", lines: 1 }]);
  });
});

describe("a line that takes longer than 10 seconds", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A sink whose first line is being written, and whose second waits, until the disk answers. */
  function openSlow(onFull: AuditConfig["onFull"]) {
    const lines: string[] = [];
    const disk = Promise.withResolvers<void>();
    const seen = { dropped: 0, problems: [] as (string | undefined)[], settled: [] as string[] };
    let isWriting = false;
    const audit = createAuditLog({
      config: { key, queries: "hash", onFull },
      sink: {
        append: async (line, _at, signal) => {
          if (isWriting) await Promise.race([disk.promise, rejectAborted(signal)]);
          isWriting = true;
          await disk.promise;
          lines.push(JSON.parse(line).request ?? JSON.parse(line).event);
        },
        reopen: () => {},
        close: async () => [],
      },
      now: () => fromMillis(0),
      onDropped: (count) => {
        seen.dropped += count;
      },
      onState: (problem) => seen.problems.push(problem),
    });
    const record = (request: string) =>
      audit
        .record({ event: "request", request, operation: "logs.lines", status: 200 }, () => false)
        .then(
          () => seen.settled.push(`${request} answered`),
          () => seen.settled.push(`${request} refused`),
        );
    return { lines, disk, seen, recorded: [record("written"), record("waiting")] };
  }

  test("is withdrawn and counted where it waits; one that is being written is neither", async () => {
    const { lines, disk, seen, recorded } = openSlow("refuse");
    await vi.advanceTimersByTimeAsync(10_000);
    expect(seen).toEqual({
      dropped: 1,
      problems: ["writing takes too long"],
      settled: ["waiting refused"],
    });
    disk.resolve();
    await Promise.all(recorded);
    expect(seen.settled).toEqual(["waiting refused", "written answered"]);
    expect([seen.dropped, seen.problems]).toEqual([1, ["writing takes too long", undefined]]);
    expect(lines).toEqual(["written", "dropped"]);
  });

  test("holds up no answer where answers go on, and counts once its writing has failed", async () => {
    const { lines, disk, seen, recorded } = openSlow("drop");
    await vi.advanceTimersByTimeAsync(10_000);
    await Promise.all(recorded);
    expect([seen.dropped, seen.settled]).toEqual([1, ["written answered", "waiting answered"]]);
    disk.reject(new Error("no space"));
    await vi.advanceTimersByTimeAsync(0);
    expect([seen.dropped, lines]).toEqual([2, []]);
  });
});

function rejectAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

test("lines go where the configuration says by then, and the place that is left has all of its own", async () => {
  const { audit, record, read } = open();
  const other: string[] = [];
  const closed: string[] = [];
  const sink = (isFull: boolean): AuditSink => ({
    append: async (line) => {
      if (isFull) throw new Error("no space");
      other.push(line);
    },
    reopen: () => {},
    close: async () => {
      closed.push("other");
      return [];
    },
  });
  const settings = { key, queries: "text", onFull: "refuse" } as const;
  await expect(audit.configure(settings, { sink: sink(true), unsynced: 0 })).rejects.toThrow("no space");
  await record({ request: "before", query: "a=1" });
  expect(read().at(-1)).toHaveProperty("query_hash");
  await audit.configure(settings, { sink: sink(false), unsynced: 3 });
  await record({ request: "after", query: "a=1" });
  await audit.close();
  expect(read().map(({ event, request }) => request ?? event)).toEqual(["before", "stop"]);
  const lines = other.map((line) => JSON.parse(line));
  expect(lines).toMatchObject([
    { event: "start", unsynced: 3 },
    { request: "after", query: "a=1" },
    { event: "stop" },
  ]);
  expect(closed).toEqual(["other"]);
});

test("lines that the place that is left has not taken go to the next one, or are counted", async () => {
  const dropped: number[] = [];
  const taken: string[] = [];
  const full = JSON.stringify("too many");
  const openSink = (left: readonly string[]): AuditSink => ({
    append: async (line) => {
      if (line === full) throw new Error("no space");
      taken.push(JSON.parse(line).event);
    },
    reopen: () => {},
    close: async () => left.map((line) => ({ line, at: fromMillis(0) })),
  });
  const problems: (string | undefined)[] = [];
  const settings = { key, queries: "hash", onFull: "refuse" } as const;
  const audit = createAuditLog({
    config: settings,
    sink: openSink(['{"event":"waited"}', full, full]),
    now: () => fromMillis(0),
    onDropped: (lines) => dropped.push(lines),
    onState: (problem) => problems.push(problem),
  });
  await audit.configure(settings, { sink: openSink(["{}"]), unsynced: 0 });
  expect(taken).toEqual(["start", "stop", "waited", "dropped"]);
  expect([dropped, problems]).toEqual([[2], ["no space", undefined]]);
  await audit.close();
  expect([dropped, problems.at(-1)]).toEqual([[2, 1], "lines that waited are lost: 1"]);
});

test("a last line that cannot be written is counted, and one that can tells of those that could not", async () => {
  const { audit, record, read, state } = open({ onFull: "drop" });
  state.isFull = true;
  await record();
  await audit.stop();
  expect(state.dropped).toBe(2);
  state.isFull = false;
  await audit.start(0);
  state.isFull = true;
  await record();
  state.isFull = false;
  await audit.close();
  expect(read()).toMatchObject([
    { event: "start" },
    { event: "dropped", lines: 2 },
    { event: "stop" },
    { event: "dropped", lines: 1 },
  ]);
});

test("a run begins with what the last one may have lost, and ends with a line of its own", async () => {
  const { audit, read } = open();
  await audit.start(4);
  await audit.close();
  expect(read()).toMatchObject([{ event: "start", unsynced: 4 }, { event: "stop" }]);
});
