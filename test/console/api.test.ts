// What the console tells of answers that are none of the API's, or that nobody waits for any more.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { isAborted, requestJson } from "#src/console/base/api.js";

beforeEach(() => {
  vi.stubGlobal("sessionStorage", { getItem: () => "token" });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

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
