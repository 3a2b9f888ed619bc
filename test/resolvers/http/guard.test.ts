// The guard of a source, on a clock that the test moves: who is let through, who waits, who is sent away, and when.
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { createBulkhead } from "#resolvers/http/bulkhead.ts";
import { createGuard } from "#resolvers/http/guard.ts";
import { BackendError, type Failure, Refused } from "#src/core/errors.ts";

const never = new AbortController().signal;
const settings = { timeout: 10_000, concurrent: 2, queued: 3 };
const rest = 5_000;

let outcomes: string[] = [];
let asked = 0;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  outcomes = [];
  asked = 0;
});
afterEach(() => {
  // Whatever was started has been cleared away.
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

type Run = <T>(
  repeatable: boolean,
  signal: AbortSignal,
  request: (signal: AbortSignal) => Promise<T>,
) => Promise<T>;
const open = (over: Partial<typeof settings> = {}): { readonly run: Run } => {
  const io = { requested: (_: string, outcome: string) => outcomes.push(outcome) };
  const guard = createGuard("elk", { ...settings, ...over }, io);
  return { run: (...asked) => guard.run(...asked, () => ({ method: "GET", path: "/" })) };
};
type Guard = ReturnType<typeof open>;
const fail = (failure: Failure, retryAfter?: number) => async (): Promise<never> => {
  asked += 1;
  throw new BackendError("elk", failure, "no", { retryAfterSeconds: retryAfter });
};
const answer = async (): Promise<string> => {
  asked += 1;
  return "ok";
};
/** Heeds its signal, and answers when it is told to. */
function slow() {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const request = (signal: AbortSignal): Promise<string> => {
    asked += 1;
    signal.addEventListener("abort", () => reject(new Error("the client's own words")));
    return promise;
  };
  return { request, answer: () => resolve("ok") };
}
const outcomeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "ok",
    (error: unknown) => (error instanceof BackendError ? error.failure : error),
  );
async function times(count: number, guard: Guard, request: () => Promise<unknown>): Promise<unknown[]> {
  const results: unknown[] = [];
  for (let n = 0; n < count; n++) results.push(await outcomeOf(guard.run(false, never, request)));
  return results;
}

describe("the deadline of a request", () => {
  test("ends it, also where it does not heed its signal, and its place is free again", async () => {
    const guard = open({ concurrent: 1 });
    const deaf = outcomeOf(guard.run(false, never, () => new Promise(() => {})));
    const next = outcomeOf(guard.run(false, never, answer));
    await vi.advanceTimersByTimeAsync(9_999);
    expect(outcomes).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(await Promise.all([deaf, next])).toEqual(["timeout", "ok"]);
    expect(outcomes).toEqual(["timeout", "ok"]);
  });

  test("does not count the time in the queue, and the caller's own does", async () => {
    const guard = open({ concurrent: 1 });
    const first = outcomeOf(guard.run(false, never, slow().request));
    const leaving = new AbortController();
    const late = new BackendError("readout", "timeout", "the request's own deadline");
    const second = outcomeOf(guard.run(false, leaving.signal, slow().request));
    const third = outcomeOf(guard.run(false, never, slow().request));
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

describe("places and the queue", () => {
  test("no more than so many at once, in the order of their coming; who finds the queue full is told so", async () => {
    const guard = open();
    const requests = Array.from({ length: 5 }, slow);
    const order: number[] = [];
    const results = requests.map(({ request }, n) =>
      guard.run(false, never, (signal) => {
        order.push(n);
        return request(signal);
      }),
    );
    await expect(guard.run(true, never, answer)).rejects.toMatchObject({ failure: "overloaded" });
    expect(asked).toBe(2);
    for (const { answer } of requests) {
      answer();
      await vi.advanceTimersByTimeAsync(0);
    }
    expect(await Promise.all(results)).toEqual(Array(5).fill("ok"));
    expect(order).toEqual([0, 1, 2, 3, 4]);
  });

  test("a caller who leaves the queue leaves it at once, and his place in it is another's", async () => {
    const guard = open();
    const running = [slow(), slow()];
    const results = running.map(({ request }) => guard.run(false, never, request));
    const leaving = new AbortController();
    const waiting = Array.from({ length: 3 }, () => outcomeOf(guard.run(false, leaving.signal, answer)));
    const left = new Error("left");
    leaving.abort(left);
    expect(await Promise.all(waiting)).toEqual([left, left, left]);
    const patient = guard.run(false, never, answer);
    for (const { answer } of running) answer();
    await Promise.all(results);
    expect(await patient).toBe("ok");
    expect(asked).toBe(3);
  });

  test("a caller who leaves before his turn asks nothing", async () => {
    const leaving = new AbortController();
    const left = new Error("left");
    const run = outcomeOf(open().run(true, leaving.signal, answer));
    leaving.abort(left);
    expect(await run).toBe(left);
    expect(asked).toBe(0);
  });

  test("a place is given back once, whatever leaves and comes in between", async () => {
    const places = createBulkhead(1, 2);
    const release = await places.acquire(never);
    const leaving = new AbortController();
    const gone = places.acquire(leaving.signal);
    const next = places.acquire(never);
    leaving.abort(new Error("left"));
    await expect(gone).rejects.toThrow("left");
    release();
    (await next)();
    (await places.acquire(never))();
  });
});

describe("the breaker", () => {
  test("opens after ten failures in a row, asks nothing while it rests, and lets one probe through", async () => {
    const guard = open();
    expect(await times(10, guard, fail("unreachable"))).toEqual(Array(10).fill("unreachable"));
    expect(await times(20, guard, answer)).toEqual(Array(20).fill("unreachable"));
    expect(asked).toBe(10);
    await vi.advanceTimersByTimeAsync(rest - 1);
    expect(await times(1, guard, answer)).toEqual(["unreachable"]);
    await vi.advanceTimersByTimeAsync(1);
    const probe = slow();
    const probing = guard.run(false, never, probe.request);
    // Nobody waits for somebody else's probe.
    expect(await times(3, guard, answer)).toEqual(Array(3).fill("unreachable"));
    probe.answer();
    expect(await probing).toBe("ok");
    expect(await times(3, guard, answer)).toEqual(["ok", "ok", "ok"]);
    expect(asked).toBe(14);
  });

  test("a probe that fails begins another rest", async () => {
    const guard = open();
    await times(10, guard, fail("timeout"));
    await vi.advanceTimersByTimeAsync(rest);
    expect(await times(2, guard, fail("timeout"))).toEqual(["timeout", "unreachable"]);
    await vi.advanceTimersByTimeAsync(rest - 1);
    expect(await times(1, guard, answer)).toEqual(["unreachable"]);
    await vi.advanceTimersByTimeAsync(1);
    expect(await times(1, guard, answer)).toEqual(["ok"]);
  });

  test("a probe whose caller leaves has proved nothing: the next one probes", async () => {
    const guard = open();
    await times(10, guard, fail("unreachable"));
    await vi.advanceTimersByTimeAsync(rest);
    const leaving = new AbortController();
    const probing = outcomeOf(guard.run(false, leaving.signal, slow().request));
    await vi.advanceTimersByTimeAsync(0);
    const left = new Error("left");
    leaving.abort(left);
    expect(await probing).toBe(left);
    expect(await times(2, guard, fail("unreachable"))).toEqual(["unreachable", "unreachable"]);
    expect(asked).toBe(12);
  });

  test.each(["overloaded", "denied", "rejected", "partial", "malformed"] as const)(
    "an answer that is %s is an answer",
    async (failure) => {
      const guard = open();
      await times(9, guard, fail("unreachable"));
      await times(1, guard, fail(failure));
      await times(9, guard, fail("unreachable"));
      expect(await times(30, guard, fail(failure))).toEqual(Array(30).fill(failure));
      expect(await times(1, guard, answer)).toEqual(["ok"]);
    },
  );

  test("an answer too large for its reader is an answer", async () => {
    const guard = open();
    await times(9, guard, fail("timeout"));
    const refused = new Refused("result_too_large", "too large", { limit: 1 });
    expect(await times(1, guard, () => Promise.reject(refused))).toEqual([refused]);
    expect(outcomes.at(-1)).toBe("ok");
    expect(await times(9, guard, fail("timeout"))).toEqual(Array(9).fill("timeout"));
    expect(await times(1, guard, answer)).toEqual(["ok"]);
  });

  test("callers who leave say nothing of the source; deadlines that pass while it is waited for do", async () => {
    const guard = open({ concurrent: 32 });
    const waitFor = (reason: unknown, duration: number) => {
      const leaving = new AbortController();
      setTimeout(() => leaving.abort(reason), duration);
      return outcomeOf(guard.run(false, leaving.signal, slow().request));
    };
    const left = new Error("left");
    const late = new BackendError("readout", "timeout", "the request's own deadline");
    const all = [
      ...Array.from({ length: 10 }, () => waitFor(left, 9_000)),
      // What was left of its time when this source's turn came was too little to tell.
      ...Array.from({ length: 10 }, () => waitFor(late, 4_999)),
    ];
    await vi.advanceTimersByTimeAsync(9_000);
    expect(await Promise.all(all)).toEqual([...Array(10).fill(left), ...Array(10).fill("timeout")]);
    expect(await times(1, guard, answer)).toEqual(["ok"]);
    const dead = Array.from({ length: 10 }, () => waitFor(late, 5_000));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await Promise.all(dead)).toEqual(Array(10).fill("timeout"));
    expect(await times(1, guard, answer)).toEqual(["unreachable"]);
  });

  test("who waits when it opens is sent away", async () => {
    const guard = open({ concurrent: 10, queued: 5 });
    const dead = Array.from({ length: 10 }, () => outcomeOf(guard.run(false, never, slow().request)));
    const waiting = Array.from({ length: 5 }, () => outcomeOf(guard.run(true, never, answer)));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await Promise.all(dead)).toEqual(Array(10).fill("timeout"));
    // The places that come free one after another before the tenth failure let some ask.
    const sentAway = (await Promise.all(waiting)).filter((outcome) => outcome === "unreachable");
    expect(sentAway.length + asked - 10).toBe(5);
  });
});

describe("refused credentials", () => {
  const refuse = async (): Promise<never> => {
    asked += 1;
    throw new BackendError("elk", "denied", "no", { status: 401 });
  };
  const denied = (count: number): unknown[] => Array(count).fill("denied");

  test("are not tried by everybody: after three in a row one tries, ever later, for five minutes at most", async () => {
    const guard = open();
    expect(await times(100, guard, refuse)).toEqual(denied(100));
    expect(asked).toBe(3);
    for (const seconds of [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]) {
      await vi.advanceTimersByTimeAsync(seconds * 1_000 - 1);
      asked = 0;
      expect(await times(5, guard, refuse)).toEqual(denied(5));
      expect(asked).toBe(0);
      await vi.advanceTimersByTimeAsync(1);
      await times(5, guard, refuse);
      expect(asked).toBe(1);
    }
    await vi.advanceTimersByTimeAsync(300_000);
    expect(await times(50, guard, answer)).toEqual(Array(50).fill("ok"));
  });

  test("what was under way together counts as one", async () => {
    const guard = open({ concurrent: 20 });
    const together = () => guard.run(false, never, () => vi.advanceTimersByTimeAsync(1).then(refuse));
    await Promise.all(Array.from({ length: 10 }, () => outcomeOf(together())));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await times(1, guard, answer)).toEqual(["ok"]);
  });

  test("a path that alone is refused, and what may not be read, stop nobody", async () => {
    const guard = open();
    const forbid = () => Promise.reject(new BackendError("elk", "denied", "no", { status: 403 }));
    for (let n = 0; n < 10; n++)
      expect([...(await times(2, guard, refuse)), ...(await times(1, guard, forbid))]).toEqual(denied(3));
    expect(asked).toBe(20);
    await times(20, guard, forbid);
    expect(await times(1, guard, answer)).toEqual(["ok"]);
  });
});

describe("retries", () => {
  test("once, for reads, after what a second try can mend", async () => {
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
      asked = 0;
      const run = outcomeOf(open().run(repeatable, never, fail(failure)));
      await vi.advanceTimersByTimeAsync(200);
      expect([failure, await run, asked]).toEqual([failure, failure, tries]);
    }
  });

  test("an overloaded source that says when to come back is not asked before, and the client is told", async () => {
    await expect(open().run(true, never, fail("overloaded", 7))).rejects.toMatchObject({
      failure: "overloaded",
      retryAfterSeconds: 7,
    });
    expect(asked).toBe(1);
  });

  test("at most three at once, and then one for ten requests", async () => {
    const guard = open();
    let requests = 0;
    const request = async (): Promise<void> => {
      requests += 1;
      // The breaker would open on failures alone: each request is answered the second time it is asked, or the next.
      if (requests % 2 === 1) throw new BackendError("elk", "unreachable", "no");
    };
    const run = () => outcomeOf(guard.run(true, never, request));
    const first = [await run(), await run(), await run(), await run()];
    expect(first).toEqual(["ok", "ok", "ok", "unreachable"]);
    expect(requests).toBe(7);
    requests = 0;
    for (let n = 0; n < 1_000; n++) await run();
    // A thousand first tries, and a tenth of them again.
    expect(requests).toBeGreaterThan(1_000);
    expect(requests).toBeLessThanOrEqual(1_100);
  });

  test("a caller who leaves in the pause before it", async () => {
    const half = vi.spyOn(Math, "random").mockReturnValue(0.5);
    onTestFinished(() => half.mockRestore());
    const leaving = new AbortController();
    const run = outcomeOf(open().run(true, leaving.signal, fail("overloaded")));
    await vi.advanceTimersByTimeAsync(0);
    const left = new Error("left");
    leaving.abort(left);
    expect(await run).toBe(left);
    expect(asked).toBe(1);
  });
});
