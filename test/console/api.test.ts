// What the console tells of answers that are none of the API's, that do not come, or that nobody waits for any more.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { isAborted, readServerTime, requestJson, requestViewer } from "#src/console/base/api.js";
import { streamEvents } from "#src/console/base/events.js";

beforeEach(() => {
  vi.stubGlobal("sessionStorage", { getItem: () => "token" });
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

/** Answers as a server does that falls silent behind these pieces; nothing at all where there are none. */
function answerAndHang(pieces: readonly string[], type = "application/json") {
  return async (_: string, { signal }: { readonly signal: AbortSignal }) => {
    const ended = new Promise<never>((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    if (pieces.length === 0) return await ended;
    const body = new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
        ended.catch((error) => controller.error(error));
      },
    });
    return new Response(body, { headers: { "Content-Type": type } });
  };
}

test("a request that is aborted while it is told what is wrong with it is aborted, and has not failed", async () => {
  const abort = new AbortController();
  const body = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('{"error": "invalid_request", '));
      abort.signal.addEventListener("abort", () => controller.error(abort.signal.reason));
    },
    pull: () => abort.abort(),
  });
  vi.stubGlobal("fetch", async () => new Response(body, { status: 422 }));
  const answer = requestJson({ method: "GET", path: "/" }, abort.signal);
  expect(await answer.catch(isAborted)).toBe(true);
});

test.each([
  { named: "the token that is in use", next: "token", times: 1 },
  { named: "a token that another has replaced meanwhile", next: "another", times: 0 },
])("a refusal of $named is told $times times", async ({ next, times }) => {
  let kept = "token";
  const told = vi.fn();
  vi.stubGlobal("sessionStorage", { getItem: () => kept });
  vi.stubGlobal("dispatchEvent", told);
  vi.stubGlobal("fetch", async () => {
    kept = next;
    return Response.json({ error: "Unauthorized" }, { status: 401 });
  });
  const answer = requestJson({ method: "GET", path: "/" }, new AbortController().signal);
  await expect(answer).rejects.toMatchObject({ status: 401 });
  expect(told).toHaveBeenCalledTimes(times);
});

test("a page of a proxy in the place of an answer is a failure that says what to do", async () => {
  vi.stubGlobal("fetch", async () => new Response("<html>Sign in</html>"));
  await expect(requestJson({ method: "GET", path: "/" }, new AbortController().signal)).rejects.toMatchObject(
    {
      name: "Failure",
      status: 200,
      message: expect.stringContaining("sign in"),
    },
  );
});

const silent = { name: "Failure", status: 0, message: "The server does not answer." };

test.each([[[]], [['{"a":']]])(
  "an answer that hangs behind %j fails half a minute after the server's deadline",
  async (pieces) => {
    vi.useFakeTimers();
    vi.stubGlobal("fetch", async () => Response.json({ user: "ana", sites: [], deadline_ms: 90_000 }));
    await requestViewer(new AbortController().signal);
    vi.stubGlobal("fetch", answerAndHang(pieces));
    let isOver = false;
    const answer = requestJson({ method: "GET", path: "/" }, new AbortController().signal);
    const failed = answer
      .catch((error) => error)
      .finally(() => {
        isOver = true;
      });
    await vi.advanceTimersByTimeAsync(119_000);
    expect(isOver).toBe(false);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await failed).toMatchObject(silent);
    expect(vi.getTimerCount()).toBe(0);
  },
);

test("a stream that misses three heartbeats fails, and one whose heartbeats come does not", async () => {
  vi.useFakeTimers();
  let send: (piece: string) => void = () => {};
  vi.stubGlobal("fetch", async (_: string, { signal }: { readonly signal: AbortSignal }) => {
    const body = new ReadableStream({
      start(controller) {
        send = (piece) => controller.enqueue(new TextEncoder().encode(piece));
        signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  });
  const ids: string[] = [];
  const follow = async () => {
    const request = { method: "GET", path: "/" } as const;
    for await (const { id } of streamEvents(request, { lastId: "" }, new AbortController().signal))
      ids.push(id);
  };
  const failed = follow().catch((error) => error);
  for (const id of ["a", "b", "c"]) {
    await vi.advanceTimersByTimeAsync(40_000);
    send(`id: ${id}\n\n`);
  }
  await vi.advanceTimersByTimeAsync(44_000);
  expect(ids).toEqual(["a", "b", "c"]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await failed).toMatchObject(silent);
  expect(vi.getTimerCount()).toBe(0);
});

test.each([
  { named: "an hour behind", lead: 3_600_000, wanted: 3_600_000 },
  { named: "an hour ahead", lead: -3_600_000, wanted: -3_600_000 },
  { named: "as far off as an answer takes", lead: -3_000, wanted: 0 },
])("the time is the server's where the browser's clock is $named", async ({ lead, wanted }) => {
  vi.useFakeTimers({ now: Date.UTC(2026, 0, 31, 12) });
  const headers = { Date: new Date(Date.now() + lead).toUTCString() };
  vi.stubGlobal("fetch", async () => Response.json({}, { headers }));
  await requestJson({ method: "GET", path: "/" }, new AbortController().signal);
  expect(Math.abs(readServerTime() - Date.now() - wanted)).toBeLessThanOrEqual(1_000);
  // Where an answer does not tell, it is as it was.
  vi.stubGlobal("fetch", async () => Response.json({}));
  await requestJson({ method: "GET", path: "/" }, new AbortController().signal);
  expect(Math.abs(readServerTime() - Date.now() - wanted)).toBeLessThanOrEqual(1_000);
});
