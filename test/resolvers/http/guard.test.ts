// The guard of a backend on a fake clock: which requests run, wait or are rejected, and when.
import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { type Bulkhead, createBulkhead, QueueFullError } from "#resolvers/http/bulkhead.ts";
import { createGuard } from "#resolvers/http/guard.ts";
import { noteClientRequest } from "#src/core/async/concurrency.ts";
import { createReadProgress } from "#src/core/async/read-progress.ts";
import { BackendError, type Failure, LimitReached, Refused, TooMany } from "#src/core/errors.ts";

const never = new AbortController().signal;
const settings = { timeout: 10_000, concurrent: 2, queued: 3 };
const openFor = 5_000;

let outcomes: string[] = [];
let sent = 0;
/** Holds inside the requests of these tests. What other files have left in the worker sends requests too. */
const inRequest = new AsyncLocalStorage<true>();
/** Timers of these requests that have neither fired nor been cleared. */
const running = new Set<NodeJS.Timeout>();
beforeEach(() => {
  running.clear();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const start = globalThis.setTimeout;
  const stop = globalThis.clearTimeout;
  vi.stubGlobal("setTimeout", (run: () => void, duration: number) => {
    const timer = start(() => {
      running.delete(timer);
      run();
    }, duration);
    if (inRequest.getStore()) running.add(timer);
    return timer;
  });
  vi.stubGlobal("clearTimeout", (timer: NodeJS.Timeout) => {
    running.delete(timer);
    stop(timer);
  });
  outcomes = [];
  sent = 0;
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
  // Every timer that was started has fired, or has been cleared.
  expect([...running].length).toBe(0);
});

type Run = <T>(
  repeatable: boolean,
  signal: AbortSignal,
  request: (signal: AbortSignal) => Promise<T>,
) => Promise<T>;
const createTestGuard = (over: Partial<typeof settings> = {}): { readonly run: Run } => {
  const io = { recordRequest: (_: string, outcome: string) => outcomes.push(outcome) };
  const guard = createGuard("elk", { ...settings, ...over }, io);
  const describeRequest = () => ({ method: "GET", path: "/" });
  return { run: (...args) => inRequest.run(true, () => guard.run(...args, describeRequest)) };
};
type Guard = ReturnType<typeof createTestGuard>;
const fail = (failure: Failure, retryAfter?: number) => async (): Promise<never> => {
  sent += 1;
  throw new BackendError("elk", failure, "no", { retryAfterSeconds: retryAfter });
};
const answer = async (): Promise<string> => {
  sent += 1;
  return "ok";
};
/** A request that obeys its signal, and functions that answer it and break its connection. */
function createSlowRequest() {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const request = (signal: AbortSignal): Promise<string> => {
    sent += 1;
    signal.addEventListener("abort", () => reject(new Error("the client's own words")));
    return promise;
  };
  const breakOff = () => reject(new BackendError("elk", "unreachable", "no"));
  return { request, answer: () => resolve("ok"), breakOff };
}
const readOutcome = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "ok",
    (error: unknown) => (error instanceof BackendError ? error.failure : error),
  );
/** The signal of a client's request. */
function startRequestOf(account: string): AbortSignal {
  const { signal } = new AbortController();
  noteClientRequest(signal, { account, progress: createReadProgress() });
  return signal;
}
async function runTimes(count: number, guard: Guard, request: () => Promise<unknown>): Promise<unknown[]> {
  const results: unknown[] = [];
  for (let n = 0; n < count; n++) results.push(await readOutcome(guard.run(false, never, request)));
  return results;
}

describe("request deadline", () => {
  test("ends a request that ignores its signal and frees its slot", async () => {
    const guard = createTestGuard({ concurrent: 1 });
    const deaf = readOutcome(guard.run(false, never, () => new Promise(() => {})));
    const next = readOutcome(guard.run(false, never, answer));
    await vi.advanceTimersByTimeAsync(9_999);
    expect(outcomes).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(await Promise.all([deaf, next])).toEqual(["timeout", "ok"]);
    expect(outcomes).toEqual(["timeout", "ok"]);
  });

  test("excludes the time in the queue, unlike the caller's deadline", async () => {
    const guard = createTestGuard({ concurrent: 1 });
    const first = readOutcome(guard.run(false, never, createSlowRequest().request));
    const leaving = new AbortController();
    const late = new LimitReached("deadline", "timeout", "the request's own deadline");
    const second = readOutcome(guard.run(false, leaving.signal, createSlowRequest().request));
    const third = readOutcome(guard.run(false, never, createSlowRequest().request));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await first).toBe("timeout");
    leaving.abort(late);
    expect(await second).toBe("timeout");
    await vi.advanceTimersByTimeAsync(9_999);
    expect(outcomes).toEqual(["timeout"]);
    await vi.advanceTimersByTimeAsync(1);
    expect(await third).toBe("timeout");
  });
});

describe("bulkhead", () => {
  test("runs requests in order up to the limit and rejects when the queue is full", async () => {
    const guard = createTestGuard();
    const requests = Array.from({ length: 5 }, createSlowRequest);
    const order: number[] = [];
    const results = requests.map(({ request }, n) =>
      guard.run(false, never, (signal) => {
        order.push(n);
        return request(signal);
      }),
    );
    await expect(guard.run(true, never, answer)).rejects.toMatchObject({ failure: "overloaded" });
    expect(sent).toBe(2);
    for (const { answer } of requests) {
      answer();
      await vi.advanceTimersByTimeAsync(0);
    }
    expect(await Promise.all(results)).toEqual(Array(5).fill("ok"));
    expect(order).toEqual([0, 1, 2, 3, 4]);
  });

  test("frees the queue position of a caller who leaves", async () => {
    const guard = createTestGuard();
    const running = [createSlowRequest(), createSlowRequest()];
    const results = running.map(({ request }) => guard.run(false, never, request));
    const leaving = new AbortController();
    const waiting = Array.from({ length: 3 }, () => readOutcome(guard.run(false, leaving.signal, answer)));
    const left = new Error("left");
    leaving.abort(left);
    expect(await Promise.all(waiting)).toEqual([left, left, left]);
    const patient = guard.run(false, never, answer);
    for (const { answer } of running) answer();
    await Promise.all(results);
    expect(await patient).toBe("ok");
    expect(sent).toBe(3);
  });

  test("sends nothing for a caller who leaves before his turn", async () => {
    const leaving = new AbortController();
    const left = new Error("left");
    const run = readOutcome(createTestGuard().run(true, leaving.signal, answer));
    leaving.abort(left);
    expect(await run).toBe(left);
    expect(sent).toBe(0);
  });

  test("releases a slot exactly once while callers leave and arrive", async () => {
    const bulkhead = createBulkhead(1, 2);
    const release = await bulkhead.acquire(undefined, never);
    const leaving = new AbortController();
    const gone = bulkhead.acquire(undefined, leaving.signal);
    const next = bulkhead.acquire(undefined, never);
    leaving.abort(new Error("left"));
    await expect(gone).rejects.toThrow("left");
    release();
    (await next)();
    (await bulkhead.acquire(undefined, never))();
  });

  /** Calls of an account, and the order in which those of all accounts enter. */
  function createCallers(bulkhead: Bulkhead) {
    const entered: string[] = [];
    const call = async (account: string): Promise<() => void> => {
      const release = await bulkhead.acquire(account, never);
      entered.push(account);
      return release;
    };
    return { entered, call };
  }

  test("keeps an eighth of the slots from each account", async () => {
    const { entered, call } = createCallers(createBulkhead(16, 10));
    const many = Array.from({ length: 16 }, () => call("ana"));
    await Promise.all([...many.slice(0, 14), call("ben"), call("ben")]);
    expect(entered).toEqual([...Array(14).fill("ana"), "ben", "ben"]);
    (await many[0])?.();
    await many[14];
    expect(entered.slice(16)).toEqual(["ana"]);
  });

  test("gives a freed slot to the account that holds the fewest", async () => {
    const { entered, call } = createCallers(createBulkhead(4, 10));
    const [first, second, third] = await Promise.all([call("ana"), call("ana"), call("ana"), call("ben")]);
    const waiting = [call("ana"), call("ana"), call("ben"), call("cleo")];
    for (const release of [first, second, third]) {
      release?.();
      await new Promise(setImmediate);
    }
    // From the second on, ana and ben hold as many as each other: they take turns.
    expect(entered.slice(4)).toEqual(["cleo", "ana", "ben"]);
    expect(waiting).toHaveLength(4);
  });

  test("takes a place in a full queue from the account with the most callers in it", async () => {
    const { call } = createCallers(createBulkhead(1, 3));
    const release = await call("ana");
    const waiting = [call("ana"), call("ana"), call("ana")];
    const other = call("ben");
    await expect(waiting[2]).rejects.toThrow(QueueFullError);
    await expect(call("ana")).rejects.toThrow(QueueFullError);
    await expect(call("ben")).rejects.toThrow(QueueFullError);
    release();
    await Promise.all([waiting[0], waiting[1], other].map(async (slot) => (await slot)?.()));
  });

  test("knows an account by the signal of its request", async () => {
    const guard = createTestGuard({ concurrent: 4 });
    const [ana, ben] = [startRequestOf("ana"), startRequestOf("ben")];
    const slow = Array.from({ length: 6 }, createSlowRequest);
    const results = slow.map(({ request }) => guard.run(false, ana, request));
    expect(await guard.run(false, ben, answer)).toBe("ok");
    for (const { answer } of slow) answer();
    await Promise.all(results);
  });
});

describe("circuit breaker", () => {
  test("opens after ten consecutive failures and lets one probe through after the rest", async () => {
    const guard = createTestGuard();
    expect(await runTimes(10, guard, fail("unreachable"))).toEqual(Array(10).fill("unreachable"));
    expect(await runTimes(20, guard, answer)).toEqual(Array(20).fill("unreachable"));
    expect(sent).toBe(10);
    await vi.advanceTimersByTimeAsync(openFor - 1);
    expect(await runTimes(1, guard, answer)).toEqual(["unreachable"]);
    await vi.advanceTimersByTimeAsync(1);
    const probe = createSlowRequest();
    const probing = guard.run(false, never, probe.request);
    // Other callers do not wait for the probe.
    expect(await runTimes(3, guard, answer)).toEqual(Array(3).fill("unreachable"));
    probe.answer();
    expect(await probing).toBe("ok");
    expect(await runTimes(3, guard, answer)).toEqual(["ok", "ok", "ok"]);
    expect(sent).toBe(14);
  });

  test("stays open after a failed probe", async () => {
    const guard = createTestGuard();
    await runTimes(10, guard, fail("timeout"));
    await vi.advanceTimersByTimeAsync(openFor);
    expect(await runTimes(2, guard, fail("timeout"))).toEqual(["timeout", "unreachable"]);
    await vi.advanceTimersByTimeAsync(openFor - 1);
    expect(await runTimes(1, guard, answer)).toEqual(["unreachable"]);
    await vi.advanceTimersByTimeAsync(1);
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });

  test("lets each account probe, and all through as soon as one is answered", async () => {
    const guard = createTestGuard({ concurrent: 32 });
    const [ana, ben] = [startRequestOf("ana"), startRequestOf("ben")];
    const ask = (signal: AbortSignal) => readOutcome(guard.run(false, signal, answer));
    const hang = () => readOutcome(guard.run(false, ana, createSlowRequest().request));
    const slow = Array.from({ length: 10 }, hang);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await Promise.all(slow)).toEqual(Array(10).fill("timeout"));
    expect(await readOutcome(guard.run(false, ben, fail("timeout")))).toBe("timeout");
    expect(await ask(ben)).toBe("unreachable");
    await vi.advanceTimersByTimeAsync(openFor);
    const probe = hang();
    await vi.advanceTimersByTimeAsync(0);
    expect(await ask(ana)).toBe("unreachable");
    expect(await ask(ben)).toBe("ok");
    expect(await ask(ana)).toBe("ok");
    // The slow one does not close it again.
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await probe).toBe("timeout");
    expect(await ask(ben)).toBe("ok");
  });

  test("is open for the account alone whose requests have failed, also of those that wait", async () => {
    const guard = createTestGuard({ concurrent: 12, queued: 60 });
    const [ana, ben] = [startRequestOf("ana"), startRequestOf("ben")];
    const hang = (signal: AbortSignal) => {
      const { request, answer } = createSlowRequest();
      return { outcome: readOutcome(guard.run(false, signal, request)), answer };
    };
    const slow = Array.from({ length: 30 }, () => hang(ana));
    await vi.advanceTimersByTimeAsync(5_000);
    const others = Array.from({ length: 8 }, () => hang(ben));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await readOutcome(guard.run(false, ana, answer))).toBe("unreachable");
    const last = readOutcome(guard.run(false, ben, answer));
    for (const { answer } of others) answer();
    expect(await Promise.all(others.map(({ outcome }) => outcome))).toEqual(Array(8).fill("ok"));
    expect(await last).toBe("ok");
    expect(await readOutcome(guard.run(false, ana, answer))).toBe("ok");
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await Promise.all(slow.map(({ outcome }) => outcome))).toContain("unreachable");
  });

  test("probes again when the caller of a probe leaves", async () => {
    const guard = createTestGuard();
    await runTimes(10, guard, fail("unreachable"));
    await vi.advanceTimersByTimeAsync(openFor);
    const leaving = new AbortController();
    const probing = readOutcome(guard.run(false, leaving.signal, createSlowRequest().request));
    await vi.advanceTimersByTimeAsync(0);
    const left = new Error("left");
    leaving.abort(left);
    expect(await probing).toBe(left);
    expect(await runTimes(2, guard, fail("unreachable"))).toEqual(["unreachable", "unreachable"]);
    expect(sent).toBe(12);
  });

  test.each(["overloaded", "denied", "rejected", "partial", "malformed"] as const)(
    "counts a response that is %s as a sign of life",
    async (failure) => {
      const guard = createTestGuard();
      await runTimes(9, guard, fail("unreachable"));
      await runTimes(1, guard, fail(failure));
      await runTimes(9, guard, fail("unreachable"));
      expect(await runTimes(30, guard, fail(failure))).toEqual(Array(30).fill(failure));
      expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
    },
  );

  test("counts a response too large for its reader as a sign of life", async () => {
    const guard = createTestGuard();
    await runTimes(9, guard, fail("timeout"));
    const limited = [
      new Refused("result_too_large", "too large", { limit: 1 }),
      new TooMany(1, "token_held"),
      new LimitReached("held", "overloaded", "too much is held"),
    ];
    for (const error of limited) {
      await expect(guard.run(true, never, () => Promise.reject(error))).rejects.toBe(error);
      expect(outcomes.at(-1)).toBe("ok");
    }
    expect(await runTimes(9, guard, fail("timeout"))).toEqual(Array(9).fill("timeout"));
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });

  test.each<[string, unknown]>([
    ["leave", new Error("left")],
    [
      "give up since another backend is late",
      new BackendError("other", "timeout", "no answer within 5000 ms"),
    ],
    ["give up at another limit", new LimitReached("backend_share", "overloaded", "too much at once")],
  ])("ignores callers who %s", async (_, reason) => {
    const guard = createTestGuard({ concurrent: 32 });
    const leaving = new AbortController();
    const all = Array.from({ length: 10 }, () =>
      readOutcome(guard.run(false, leaving.signal, createSlowRequest().request)),
    );
    await vi.advanceTimersByTimeAsync(9_000);
    leaving.abort(reason);
    await Promise.all(all);
    expect(outcomes).toEqual([]);
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });

  test("counts deadlines that pass during a long wait", async () => {
    const guard = createTestGuard({ concurrent: 32 });
    const waitFor = (reason: unknown, duration: number) => {
      const leaving = new AbortController();
      setTimeout(() => leaving.abort(reason), duration);
      return readOutcome(guard.run(false, leaving.signal, createSlowRequest().request));
    };
    const late = new LimitReached("deadline", "timeout", "the request's own deadline");
    // Less than five seconds of waiting say nothing about the backend.
    const early = Array.from({ length: 10 }, () => waitFor(late, 4_999));
    await vi.advanceTimersByTimeAsync(4_999);
    expect(await Promise.all(early)).toEqual(Array(10).fill("timeout"));
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
    const dead = Array.from({ length: 10 }, () => waitFor(late, 5_000));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await Promise.all(dead)).toEqual(Array(10).fill("timeout"));
    expect(await runTimes(1, guard, answer)).toEqual(["unreachable"]);
  });

  test.each([
    ["time out", "timeout", () => vi.advanceTimersByTimeAsync(1_000)],
    ["are cut off", "unreachable", undefined],
  ])("stays closed when many requests %s together after another was answered", async (_, outcome, wait) => {
    const guard = createTestGuard({ concurrent: 32 });
    const slow = Array.from({ length: 16 }, createSlowRequest);
    const failing = slow.map(({ request }) => readOutcome(guard.run(false, never, request)));
    await vi.advanceTimersByTimeAsync(9_000);
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
    for (const { breakOff } of wait === undefined ? slow : []) breakOff();
    await wait?.();
    expect(await Promise.all(failing)).toEqual(Array(16).fill(outcome));
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });

  test("opens in front of a backend that died while requests were under way", async () => {
    const guard = createTestGuard({ concurrent: 32 });
    const wait = () => readOutcome(guard.run(false, never, createSlowRequest().request));
    const before = Array.from({ length: 10 }, wait);
    await runTimes(1, guard, answer);
    const after = Array.from({ length: 10 }, wait);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await Promise.all([...before, ...after])).toEqual(Array(20).fill("timeout"));
    expect(await runTimes(1, guard, answer)).toEqual(["unreachable"]);
  });

  test("stays closed when a probe fails after another request was answered", async () => {
    const guard = createTestGuard({ concurrent: 32 });
    const late = createSlowRequest();
    const first = guard.run(false, never, late.request);
    await runTimes(10, guard, fail("unreachable"));
    await vi.advanceTimersByTimeAsync(openFor);
    const probe = createSlowRequest();
    const probing = readOutcome(guard.run(false, never, probe.request));
    late.answer();
    expect(await first).toBe("ok");
    probe.breakOff();
    expect(await probing).toBe("unreachable");
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });

  test("rejects queued requests when it opens", async () => {
    const guard = createTestGuard({ concurrent: 11, queued: 5 });
    const dead = Array.from({ length: 10 }, () =>
      readOutcome(guard.run(false, never, createSlowRequest().request)),
    );
    const waiting = Array.from({ length: 5 }, () => readOutcome(guard.run(true, never, answer)));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await Promise.all(dead)).toEqual(Array(10).fill("timeout"));
    // Slots that are released before the tenth failure let some requests through.
    const sentAway = (await Promise.all(waiting)).filter((outcome) => outcome === "unreachable");
    expect(sentAway.length + sent - 10).toBe(5);
  });
});

describe("refused credentials backoff", () => {
  const refuse = async (): Promise<never> => {
    sent += 1;
    throw new BackendError("elk", "denied", "no", { status: 401 });
  };
  const denied = (count: number): unknown[] => Array(count).fill("denied");

  test("backs off exponentially after three refusals, up to five minutes", async () => {
    const guard = createTestGuard();
    expect(await runTimes(100, guard, refuse)).toEqual(denied(100));
    expect(sent).toBe(3);
    for (const seconds of [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]) {
      await vi.advanceTimersByTimeAsync(seconds * 1_000 - 1);
      sent = 0;
      expect(await runTimes(5, guard, refuse)).toEqual(denied(5));
      expect(sent).toBe(0);
      await vi.advanceTimersByTimeAsync(1);
      await runTimes(5, guard, refuse);
      expect(sent).toBe(1);
    }
    await vi.advanceTimersByTimeAsync(300_000);
    expect(await runTimes(50, guard, answer)).toEqual(Array(50).fill("ok"));
  });

  test("ends with an answer that is too large for its reader", async () => {
    const guard = createTestGuard();
    await runTimes(3, guard, refuse);
    await vi.advanceTimersByTimeAsync(1_000);
    const tooLarge = () => Promise.reject(new TooMany(1, "token_held"));
    await expect(guard.run(false, never, tooLarge)).rejects.toThrow(TooMany);
    expect(await runTimes(5, guard, answer)).toEqual(Array(5).fill("ok"));
  });

  test("counts concurrent refusals as one", async () => {
    const guard = createTestGuard({ concurrent: 20 });
    const runTogether = () => guard.run(false, never, () => vi.advanceTimersByTimeAsync(1).then(refuse));
    await Promise.all(Array.from({ length: 10 }, () => readOutcome(runTogether())));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });

  test("is not triggered by single refused paths or by 403", async () => {
    const guard = createTestGuard();
    const forbid = () => Promise.reject(new BackendError("elk", "denied", "no", { status: 403 }));
    for (let n = 0; n < 10; n++)
      expect([...(await runTimes(2, guard, refuse)), ...(await runTimes(1, guard, forbid))]).toEqual(
        denied(3),
      );
    expect(sent).toBe(20);
    await runTimes(20, guard, forbid);
    expect(await runTimes(1, guard, answer)).toEqual(["ok"]);
  });
});

describe("request retries", () => {
  test("retries reads once after unreachable and overloaded", async () => {
    const table: [Failure, boolean, number][] = [
      ["unreachable", true, 2],
      ["overloaded", true, 2],
      ["unreachable", false, 1],
      ["timeout", true, 1],
      ["rejected", true, 1],
      ["denied", true, 1],
      ["partial", true, 1],
      ["malformed", true, 1],
    ];
    for (const [failure, repeatable, tries] of table) {
      sent = 0;
      const run = readOutcome(createTestGuard().run(repeatable, never, fail(failure)));
      await vi.advanceTimersByTimeAsync(200);
      expect([failure, await run, sent]).toEqual([failure, failure, tries]);
    }
  });

  test("does not retry when the source sends Retry-After, and passes it on", async () => {
    await expect(createTestGuard().run(true, never, fail("overloaded", 7))).rejects.toMatchObject({
      failure: "overloaded",
      retryAfterSeconds: 7,
    });
    expect(sent).toBe(1);
  });

  test("allows three retries at once and then one per ten requests", async () => {
    const guard = createTestGuard();
    let requests = 0;
    const request = async (): Promise<void> => {
      requests += 1;
      // Every second try succeeds, so that the breaker stays closed.
      if (requests % 2 === 1) throw new BackendError("elk", "unreachable", "no");
    };
    const run = () => readOutcome(guard.run(true, never, request));
    const first = [await run(), await run(), await run(), await run()];
    expect(first).toEqual(["ok", "ok", "ok", "unreachable"]);
    expect(requests).toBe(7);
    requests = 0;
    for (let n = 0; n < 1_000; n++) await run();
    // A thousand first tries, and retries for at most a tenth of them.
    expect(requests).toBeGreaterThan(1_000);
    expect(requests).toBeLessThanOrEqual(1_100);
  });

  test("ends the pause before a retry when the caller leaves", async () => {
    const half = vi.spyOn(Math, "random").mockReturnValue(0.5);
    onTestFinished(() => half.mockRestore());
    const leaving = new AbortController();
    const run = readOutcome(createTestGuard().run(true, leaving.signal, fail("overloaded")));
    await vi.advanceTimersByTimeAsync(0);
    const left = new Error("left");
    leaving.abort(left);
    expect(await run).toBe(left);
    expect(sent).toBe(1);
  });
});
