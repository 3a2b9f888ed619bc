// The exporter of the program's own traces, as a collector sees it. The program's own are in `test/program/tracing.test.ts`.
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import { createOtlpExporter } from "#src/telemetry/otlp-exporter.ts";
import { listSpans } from "../support/otlp-spans.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const clientSpan = "b7ad6b7169203331";
const base = Date.UTC(2026, 0, 15, 10);

describe.concurrent("an exporter", () => {
  function open(url: string) {
    const counts = { sent: 0, dropped: 0 };
    const logged: string[] = [];
    const exporter = createOtlpExporter({
      config: { url, headers: {}, ratio: 1, service: "readout-test" },
      now: () => fromMillis(base),
      log: ({ message }) => logged.push(message),
      exported: (result, steps) => {
        counts[result] += steps;
      },
    });
    const end = (traceparent: string | null = null, tracestate: string | null = null) => {
      const step = exporter.startRequestSpan(traceparent, tracestate);
      step?.end("GET", {});
      step?.end("again", {});
      return step;
    };
    return { exporter, counts, logged, end };
  }

  test("without a collector keeps a bounded number of spans, counts dropped ones and logs it once", async ({
    expect,
  }) => {
    const silent: ServerResponse[] = [];
    const collector = await openScriptedSource((response) => void silent.push(response));
    const { exporter, counts, end, logged } = open(collector.url);
    for (let n = 0; n < 10_000; n += 1) end();
    expect(counts).toEqual({ sent: 0, dropped: 10_000 - 4_096 - 512 });
    await expect.poll(() => collector.requests.length).toBe(1);
    await exporter.close(50);
    expect(counts).toEqual({ sent: 0, dropped: 10_000 });
    expect(logged).toEqual(["traces cannot be sent"]);
    await collector.close();
  });

  test("resumes when its collector is back", async ({ expect }) => {
    let up = false;
    const collector = await openScriptedSource((response) => sendJson(response, {}, up ? 200 : 503));
    const { exporter, counts, end, logged } = open(collector.url);
    end();
    await expect.poll(() => counts.dropped).toBe(1);
    up = true;
    end();
    await expect.poll(() => counts.sent).toBe(1);
    expect(logged).toEqual(["traces cannot be sent", "traces are sent again"]);
    await exporter.close(1_000);
    await collector.close();
  });

  test("counts spans that its collector rejects as dropped, and sends them no second time", async ({
    expect,
  }) => {
    const collector = await openScriptedSource((response) =>
      sendJson(response, { partialSuccess: { rejectedSpans: "2", errorMessage: "too old" } }),
    );
    const { exporter, counts, end, logged } = open(collector.url);
    for (let n = 0; n < 5; n += 1) end();
    await exporter.close(50_000);
    expect(counts).toEqual({ sent: 3, dropped: 2 });
    expect(logged).toEqual(["traces cannot be sent"]);
    expect(collector.requests).toHaveLength(1);
    await collector.close();
  });

  test("says once what its collector warns of", async ({ expect }) => {
    const collector = await openScriptedSource((response) =>
      sendJson(response, { partialSuccess: { errorMessage: "use gzip" } }),
    );
    const { exporter, counts, end, logged } = open(collector.url);
    for (let n = 0; n < 600; n += 1) end();
    await exporter.close(50_000);
    expect(counts).toEqual({ sent: 600, dropped: 0 });
    expect(collector.requests).toHaveLength(2);
    expect(logged).toEqual(["the collector of traces warns"]);
    await collector.close();
  });

  test("reads no more than the start of an answer without an end", async ({ expect }) => {
    const collector = await openScriptedSource((response) => {
      response.writeHead(200, { "content-type": "application/json" });
      const write = (): void => {
        while (!response.destroyed && response.write("x".repeat(4_096))) if (response.destroyed) return;
      };
      response.on("drain", write);
      write();
    });
    const { exporter, counts, end } = open(collector.url);
    end();
    await exporter.close(50_000);
    expect(counts).toEqual({ sent: 1, dropped: 0 });
    await expect.poll(() => collector.left).toBe(1);
    await collector.close();
  });

  test("sends spans at its end that were added while a batch was under way and failed", async ({
    expect,
  }) => {
    const waiting: ServerResponse[] = [];
    const collector = await openScriptedSource((response) => void waiting.push(response));
    const { exporter, counts, end } = open(collector.url);
    for (let n = 0; n < 512; n += 1) end();
    await expect.poll(() => waiting.length).toBe(1);
    for (let n = 0; n < 3; n += 1) end();
    const closed = exporter.close(50_000);
    sendJson(waiting[0] as ServerResponse, {}, 503);
    await expect.poll(() => waiting.length).toBe(2);
    sendJson(waiting[1] as ServerResponse, {});
    await closed;
    expect(counts).toEqual({ sent: 3, dropped: 512 });
    await collector.close();
  });

  test("sends a batch once more where the collector closes a connection instead of an answer", async ({
    expect,
  }) => {
    let closings = 1;
    const collector = await openScriptedSource((response) => {
      if (closings > 0) response.socket?.destroy();
      else sendJson(response, {});
      closings -= 1;
    });
    const { exporter, counts, end, logged } = open(collector.url);
    end();
    await exporter.close(50_000);
    expect(counts).toEqual({ sent: 1, dropped: 0 });
    expect(collector.requests).toHaveLength(2);
    expect(logged).toEqual([]);
    await collector.close();
  });

  test("counts spans that wait when it is switched off as dropped", async ({ expect }) => {
    const collector = await openScriptedSource((response) => sendJson(response, {}));
    const { exporter, counts, end } = open(collector.url);
    for (let n = 0; n < 3; n += 1) end();
    exporter.configure(undefined);
    expect(counts).toEqual({ sent: 0, dropped: 3 });
    await exporter.close(1_000);
    expect(counts).toEqual({ sent: 0, dropped: 3 });
    expect(collector.requests).toEqual([]);
    await collector.close();
  });

  test("ignores an invalid trace context and starts a trace of its own", async ({ expect }) => {
    const collector = await openScriptedSource((response) => sendJson(response, {}));
    const { exporter, end } = open(collector.url);
    const own = /^00-(?!0af7651916cd43dd)[0-9a-f]{32}-[0-9a-f]{16}-01$/;
    const id = `${traceId}-${clientSpan}`;
    for (const [sent, passed] of [
      [`00-${id}-01`, new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`)],
      [`00-${id}-00`, new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`)],
      [`cc-${id}-03-what-comes`, new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`)],
      [`00-${id}-01-more`, own],
      [`ff-${id}-01`, own],
      [`00-${id.toUpperCase()}-01`, own],
      [`00-${"0".repeat(32)}-${clientSpan}-01`, own],
      [`00-${traceId}-${"0".repeat(16)}-01`, own],
      ["nonsense", own],
      [null, own],
    ] as const) {
      const step = end(sent, "vendor=1");
      expect(step?.headers.traceparent, String(sent)).toMatch(passed);
      expect(step?.headers.tracestate).toBe(passed === own ? undefined : "vendor=1");
    }
    expect(end(`00-${id}-01`, "a\u00e9")?.headers.tracestate).toBeUndefined();
    await exporter.close(1_000);
    // The one that its client does not want is not sent.
    expect(listSpans(collector)).toHaveLength(10);
    exporter.configure(undefined);
    expect(exporter.startRequestSpan(null, null)).toBeUndefined();
    await sleep(0);
    await collector.close();
  });
});
