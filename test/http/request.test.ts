// The bodies of requests: how many bytes of them are held, by all and by each token, and how they are parsed.
import { describe, expect, test } from "vitest";
import { LimitReached, TooMany, Unprocessable } from "#src/core/errors.ts";
import { createBodyReader, type Exchange } from "#src/http/request.ts";
import { findCollector } from "../support/garbage.ts";

const kib = 1_024;
const never = new AbortController().signal;

/** A request whose body comes chunk by chunk, as the test sends it. */
function createRequest() {
  const waiting: (Uint8Array | undefined)[] = [];
  let wake = (): void => {};
  const send = (chunk: Uint8Array | undefined) => {
    waiting.push(chunk);
    wake();
  };
  async function* body() {
    for (;;) {
      while (waiting.length === 0) await new Promise<void>((resolve) => (wake = resolve));
      const chunk = waiting.shift();
      if (chunk === undefined) return;
      yield chunk;
    }
  }
  const exchange: Exchange = {
    id: "r",
    method: "POST",
    path: "/",
    search: "",
    headers: new Headers(),
    gone: never,
    body: body(),
  };
  return { exchange, send };
}
const settle = () => new Promise<void>((resolve) => setTimeout(resolve, 5));
const bytes = (size: number) => new Uint8Array(size).fill(0x20);
const [ana, eve] = ["ana", "eve"];

test("a key that is written with an escape is read as what it says, whatever others sent before", async () => {
  const { parseJson } = createBodyReader();
  // JSON.parse of V8 13.6 reads the second one as the first.
  const [first, second] = [String.raw`{"only here":0,"\\":1}`, String.raw`{"only here":0,"\"":1}`];
  const read = async (text: string, owner: string) => Object.keys((await parseJson(text, owner)) as object);
  expect(await read(first, eve)).toEqual(["only here", "\\"]);
  expect(await read(second, ana)).toEqual(["only here", '"']);
  await expect(parseJson('{"\\u0041":1,}', ana)).rejects.toMatchObject({ details: { position: 12 } });
});

describe("the bodies that are held", () => {
  test("are counted as they arrive, for all and for each owner", async () => {
    const { readText } = createBodyReader(64 * kib);
    const held = createRequest();
    const first = readText(held.exchange, ana, never);
    held.send(bytes(32 * kib));
    await settle();
    // Half of all is ana's.
    const more = createRequest();
    more.send(bytes(1));
    await expect(readText(more.exchange, ana, never)).rejects.toThrow(TooMany);
    const others = createRequest();
    others.send(bytes(32 * kib));
    others.send(undefined);
    const second = await readText(others.exchange, eve, never);
    const third = createRequest();
    third.send(bytes(1));
    await expect(readText(third.exchange, "bob", never)).rejects.toThrow(LimitReached);
    // What is released is free for others, and twice is once.
    second.release();
    second.release();
    const fourth = createRequest();
    fourth.send(bytes(4 * kib));
    fourth.send(undefined);
    expect((await readText(fourth.exchange, eve, never)).text).toBe(" ".repeat(4 * kib));
    held.send(undefined);
    expect((await first).text).toHaveLength(32 * kib);
  });

  test("are let go when their request is given up, and when they break off or are too large", async () => {
    const reader = createBodyReader(8 * kib);
    const control = new AbortController();
    const stalled = createRequest();
    const reading = reader.readText(stalled.exchange, ana, control.signal);
    stalled.send(bytes(4 * kib));
    await settle();
    control.abort(new Error("the deadline"));
    const next = async () => {
      const request = createRequest();
      request.send(bytes(4 * kib));
      request.send(undefined);
      const { text, release } = await reader.readText(request.exchange, ana, never);
      release();
      return text.length;
    };
    // At once, although no further chunk of the first has come.
    expect(await next()).toBe(4 * kib);
    stalled.send(bytes(1));
    await expect(reading).rejects.toThrow("the deadline");
    const large = createRequest();
    large.send(bytes(1_048_577));
    await expect(reader.readText(large.exchange, ana, never)).rejects.toThrow(Unprocessable);
    const garbled = createRequest();
    garbled.send(new Uint8Array([0xff]));
    garbled.send(undefined);
    await expect(reader.readText(garbled.exchange, ana, never)).rejects.toThrow("not UTF-8");
    expect(await next()).toBe(4 * kib);
  });

  test("take no more memory in pieces of one byte", async () => {
    const { readText } = createBodyReader();
    const request = createRequest();
    const reading = readText(request.exchange, ana, never);
    const collect = findCollector();
    const measure = () => {
      collect();
      const { external, arrayBuffers } = process.memoryUsage();
      return external + arrayBuffers;
    };
    const before = measure();
    for (let n = 0; n < 100_000; n += 1) {
      // Each a view of a network buffer of its own.
      request.send(new Uint8Array(1_024).fill(0x61).subarray(0, 1));
      if (n % 1_000 === 0) await settle();
    }
    await settle();
    // Threads give collected buffers back, on a busy machine later.
    await expect.poll(() => measure() - before).toBeLessThan(100_000_000);
    request.send(undefined);
    expect((await reading).text).toBe("a".repeat(100_000));
  });
});

describe("a JSON body", () => {
  const { readJson } = createBodyReader();
  const read = (text: string) => {
    const request = createRequest();
    request.send(Buffer.from(text));
    request.send(undefined);
    return readJson(request.exchange, ana, never);
  };

  test.each([
    // V8 quotes a short text instead of naming the place.
    ['{"a":1', 6],
    [`[${" ".repeat(120_000)}1,]`, 120_003],
    [`{"a":"${"x".repeat(150_000)}`, 150_006],
    [`${"[".repeat(200_000)}`, 200_000],
  ])("that is none tells where, small or large: %.20s…", async (text, position) => {
    await expect(read(text)).rejects.toMatchObject({ slug: "invalid_json", details: { position } });
  });

  test("is not kept when its request has it, also a large one", async () => {
    const collect = findCollector();
    const { parseJson } = createBodyReader();
    const text = JSON.stringify(Array.from({ length: 40_000 }, (_, n) => ({ n })));
    const parsed = new WeakRef((await parseJson(text, ana)) as object);
    await settle();
    collect();
    expect(parsed.deref()).toBeUndefined();
  });

  test("is the same small and large", async () => {
    expect(await read('{"a":[1,{"b":null}]}')).toEqual({ a: [1, { b: null }] });
    const large = Array.from({ length: 40_000 }, (_, n) => ({ n }));
    expect(await read(JSON.stringify(large))).toEqual(large);
    await expect(read(" ")).rejects.toThrow("A JSON body is required");
  });
});
