// Responses with a coding that nobody asked for, as some proxies send them.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { afterEach, describe, expect, test } from "vitest";
import {
  createElasticsearchTransport,
  createOpenSearchTransport,
} from "#resolvers/elastic/client/transports.ts";
import { never } from "../../../support/signals.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

/** Answers each request with these bytes in a coding. `gone` counts the connections that ended before their answer. */
async function serve(coding: string, bytes: Buffer, isHanging = false) {
  const seen = { requests: 0, gone: 0 };
  const server = createServer((_, response) => {
    seen.requests += 1;
    response.on("close", () => {
      if (!response.writableFinished) seen.gone += 1;
    });
    response.writeHead(200, {
      "content-type": "application/json",
      "content-encoding": coding,
      "x-elastic-product": "Elasticsearch",
    });
    if (isHanging) response.write(bytes);
    else response.end(bytes);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  servers.push(server);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

const settings = { headers: {}, timeout: 10_000, maxResponseBytes: 2 ** 30 };
const request = { method: "GET", path: "/" } as const;
/** Made once: to pack it takes a second. */
let bomb: Buffer | undefined;
const mebibytes = (bytes: number): number => bytes / 2 ** 20;

describe.each([
  ["Elasticsearch's client", createElasticsearchTransport],
  ["OpenSearch's client", createOpenSearchTransport],
] as const)("%s, a coded response", (_, create) => {
  test.each([
    ["gzip", gzipSync],
    ["GZIP", gzipSync],
    ["deflate", deflateSync],
  ] as const)("is decoded from %s", async (coding, compress) => {
    const { url } = await serve(coding, compress('{"a":"é"}'));
    const transport = await create(url, settings);
    const { body } = await transport.send(request, never);
    expect(body.toString()).toBe('{"a":"é"}');
    await transport.close();
  });

  test.each([
    ["br", brotliCompressSync('{"a":1}')],
    ["gzip, gzip", gzipSync(gzipSync('{"a":1}'))],
    ["unknown", Buffer.from('{"a":1}')],
  ] as const)("is refused unread in %s", async (coding, bytes) => {
    const { url, seen } = await serve(coding, bytes, true);
    const transport = await create(url, settings);
    const sent = transport.send(request, never);
    await expect(sent).rejects.toThrow(`unexpected content-encoding ${coding}`);
    await expect.poll(() => seen.gone).toBe(1);
    await transport.close();
  });

  test("is refused at the limit of its decoded length", async () => {
    const { url } = await serve("gzip", gzipSync(Buffer.alloc(8 * 2 ** 20)));
    const transport = await create(url, { ...settings, maxResponseBytes: 2 ** 20 });
    await expect(transport.send(request, never)).rejects.toThrow(RangeError);
    await transport.close();
  });

  test("is decoded no further once its request has ended", async () => {
    bomb ??= gzipSync(Buffer.alloc(256 * 2 ** 20));
    const { url, seen } = await serve("gzip", bomb);
    const transport = await create(url, settings);
    const before = process.memoryUsage().arrayBuffers;
    const leaving = new AbortController();
    const sent = Array.from({ length: 8 }, () => transport.send(request, leaving.signal));
    await expect.poll(() => seen.requests).toBe(8);
    leaving.abort(new Error("left"));
    for (const result of await Promise.allSettled(sent)) expect(result.status).toBe("rejected");
    let most = 0;
    for (let round = 0; round < 20; round++) {
      most = Math.max(most, mebibytes(process.memoryUsage().arrayBuffers - before));
      await sleep(20);
    }
    // One whole response is 256 MiB.
    expect(most).toBeLessThan(128);
    await transport.close();
  });
});
