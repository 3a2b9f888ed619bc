// Coded bodies piece by piece: what went in comes out, at once where the next piece has to be waited for, and without an
// end where the body breaks off.
import { execFileSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { gunzipSync, constants as zlib, zstdDecompressSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { CodingName } from "#src/config/edge-settings.ts";
import type { StreamedBody } from "#src/http/body.ts";
import { encodeBody } from "#src/http/content-coding.ts";
import { toStreamedBody } from "#src/http/response.ts";
import { sampleRuns } from "../support/law-runs.ts";

const measuring = fileURLToPath(new URL("../support/coder-memory.ts", import.meta.url));
const never = new AbortController().signal;
const names: readonly CodingName[] = ["zstd", "gzip"];
const decode = (name: CodingName, bytes: Uint8Array) =>
  (name === "gzip" ? gunzipSync(bytes) : zstdDecompressSync(bytes)).toString();

/** All that can be decoded of bytes without an end. */
const decodeBegun = (name: CodingName, bytes: Uint8Array) =>
  name === "gzip"
    ? gunzipSync(bytes, { finishFlush: zlib.Z_SYNC_FLUSH }).toString()
    : zstdDecompressSync(bytes, { finishFlush: zlib.ZSTD_e_flush }).toString();

async function collect({ next }: StreamedBody): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for (let piece = await next(); piece.done !== true; piece = await next()) {
    chunks.push(typeof piece.value === "string" ? Buffer.from(piece.value) : piece.value);
  }
  return Buffer.concat(chunks);
}

describe.each(names)("%s", (name) => {
  const coding = (level = 1) => ({ name, level, minBytes: 0 });

  test("any pieces are the same after decoding, at any level", async () => {
    const unit = fc.constantFrom("", "x", "é😀", "x".repeat(70_000), '{"a":"ü"},'.repeat(9_000));
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(unit, fc.string())),
        fc.integer({ min: 1, max: 9 }),
        fc.boolean(),
        async (texts, level, isStream) => {
          async function* pieces() {
            for (const text of texts) {
              if (text.length === 1) await delay(1);
              yield text;
            }
          }
          const body = isStream ? toStreamedBody(pieces(), never) : texts;
          const coded = await collect(encodeBody(body, coding(level), never));
          expect(decode(name, coded)).toBe(texts.join(""));
        },
      ),
      { numRuns: sampleRuns(60) },
    );
  });

  test("what has come in is out before the next piece is waited for", async () => {
    const waiting = Promise.withResolvers<void>();
    async function* pieces() {
      yield "event: line\n\n";
      await waiting.promise;
      yield "event: end\n\n";
    }
    const { next } = encodeBody(toStreamedBody(pieces(), never), coding(), never);
    const chunks: Uint8Array[] = [];
    const reading = (async () => {
      for (let piece = await next(); piece.done !== true; piece = await next()) {
        chunks.push(Buffer.from(piece.value));
      }
    })();
    await expect.poll(() => decodeBegun(name, Buffer.concat(chunks))).toBe("event: line\n\n");
    waiting.resolve();
    await reading;
    expect(decode(name, Buffer.concat(chunks))).toBe("event: line\n\nevent: end\n\n");
  });

  test("a body that breaks off fails, and has no end", async () => {
    async function* pieces() {
      yield "a".repeat(200_000);
      throw new Error("cut");
    }
    const { next } = encodeBody(toStreamedBody(pieces(), never), coding(), never);
    const chunks: Uint8Array[] = [];
    const reading = (async () => {
      for (;;) chunks.push(Buffer.from((await next()).value ?? ""));
    })();
    await expect(reading).rejects.toThrow("cut");
    expect(() => decode(name, Buffer.concat(chunks))).toThrow();
  });

  test("closes its coder and its source when it is cancelled", async () => {
    let isOver = false;
    async function* pieces() {
      try {
        for (;;) yield "line\n".repeat(20_000);
      } finally {
        isOver = true;
      }
    }
    const body = encodeBody(toStreamedBody(pieces(), never), coding(), never);
    await body.next();
    await body.cancel();
    expect(isOver).toBe(true);
    await expect(collect(body)).rejects.toThrow("closed");
  });

  // In a process of its own: what other tests leave to the collector would count.
  test("a coder holds at most 256 KiB, however long its client reads nothing", () => {
    const kib = execFileSync(process.execPath, ["--expose-gc", measuring, name], { encoding: "utf8" });
    expect(Number(kib)).toBeGreaterThan(50);
    expect(Number(kib)).toBeLessThan(256);
  });
});
