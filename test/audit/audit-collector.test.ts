// The audit log at a collector: each line arrives, once the collector takes it, and none is lost while it does not.
import { describe, expect, test } from "vitest";
import { createAuditCollector } from "#src/audit/audit-collector.ts";
import { fromMillis } from "#src/core/time.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

const { signal } = new AbortController();

test("lines arrive in order, also those that the collector refused at first", async () => {
  let failures = 1;
  const collector = await openScriptedSource((response) => {
    if (failures === 0) return sendJson(response, {});
    failures -= 1;
    response.writeHead(503).end();
  });
  const problems: string[] = [];
  const sink = createAuditCollector({
    otlp: { url: `${collector.url}/`, headers: { "x-tenant": "ops" } },
    sync: "always",
    onFailure: (problem) => problems.push(problem),
    onRejected: () => {},
    onWarning: () => {},
  });
  const at = fromMillis(1_000);
  await Promise.all(["a", "b", "c"].map((line) => sink.append(`{"n":"${line}"}\n`, at, signal)));
  await sink.close();
  expect(problems).toEqual(["status 503"]);
  const taken = collector.requests.slice(1).flatMap(({ path, body }) => {
    expect(path).toBe("/v1/logs");
    const { resourceLogs } = JSON.parse(body);
    expect(resourceLogs[0].resource.attributes[0].value.stringValue).toBe("readout");
    return resourceLogs[0].scopeLogs[0].logRecords;
  });
  expect(taken.map(({ body }) => body.stringValue)).toEqual(['{"n":"a"}', '{"n":"b"}', '{"n":"c"}']);
  expect(taken[0].timeUnixNano).toBe("1000000000");
  await collector.close();
});

test("a collector that is down is asked once a second for the last lines", async () => {
  let failures = 0;
  const sink = createAuditCollector({
    otlp: { url: "http://127.0.0.1:1", headers: {} },
    sync: "1s",
    onFailure: () => {
      failures += 1;
    },
    onRejected: () => {},
    onWarning: () => {},
  });
  await sink.append("{}\n", fromMillis(0), signal);
  const awaited = createAuditCollector({
    otlp: { url: "http://127.0.0.1:1", headers: {} },
    sync: "always",
    onFailure: () => {},
    onRejected: () => {},
    onWarning: () => {},
  });
  const refused = expect(awaited.append("{}\n", fromMillis(0), signal)).rejects.toThrow("takes no lines");
  const closed = Promise.all([sink.close(), awaited.close()]);
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(failures).toBeGreaterThan(0);
  expect(failures).toBeLessThan(5);
  // Lines that nobody waits for are handed back; who waits for the others is told.
  const [left, others] = await closed;
  expect([left.map(({ line }) => line), others]).toEqual([["{}\n"], []]);
  await refused;
});

test("lines are refused once too many wait", async () => {
  let isDown = true;
  const collector = await openScriptedSource((response) =>
    isDown ? void response.writeHead(503).end() : sendJson(response, {}),
  );
  const sink = createAuditCollector({
    otlp: { url: collector.url, headers: {} },
    sync: "1s",
    onFailure: () => {},
    onRejected: () => {},
    onWarning: () => {},
  });
  const at = fromMillis(0);
  await Promise.all(Array.from({ length: 10_000 }, () => sink.append("{}\n", at, signal)));
  await expect(sink.append("{}\n", at, signal)).rejects.toThrow("takes no lines");
  isDown = false;
  expect(await sink.close()).toEqual([]);
  await collector.close();
});

describe("a line that is withdrawn", () => {
  const late = new Error("too late");

  test("is not sent, also not again where the collector has refused it meanwhile", async () => {
    const asked = Promise.withResolvers<() => void>();
    const collector = await openScriptedSource((response) => {
      if (collector.requests.length > 1) sendJson(response, {});
      else asked.resolve(() => response.writeHead(503).end());
    });
    const sink = createAuditCollector({
      otlp: { url: collector.url, headers: {} },
      sync: "always",
      onFailure: () => {},
      onRejected: () => {},
      onWarning: () => {},
    });
    const withdrawing = new AbortController();
    const append = (line: string, until = withdrawing.signal) => sink.append(line, fromMillis(0), until);
    const sent = append("sent");
    const kept = append("kept", signal);
    const refuse = await asked.promise;
    const waiting = append("waiting");
    withdrawing.abort(late);
    await expect(waiting).rejects.toBe(late);
    refuse();
    await expect(sent).rejects.toBe(late);
    await kept;
    const bodies = collector.requests.slice(1).map(({ body }) => body);
    expect(bodies).toHaveLength(1);
    expect(bodies[0]).toContain("kept");
    expect(bodies[0]).not.toMatch(/sent|waiting/);
    await sink.close();
    await collector.close();
  });

  test("is written where the collector takes what is under way", async () => {
    const asked = Promise.withResolvers<() => void>();
    const collector = await openScriptedSource((response) => asked.resolve(() => sendJson(response, {})));
    const sink = createAuditCollector({
      otlp: { url: collector.url, headers: {} },
      sync: "always",
      onFailure: () => {},
      onRejected: () => {},
      onWarning: () => {},
    });
    const withdrawing = new AbortController();
    const sent = sink.append("sent", fromMillis(0), withdrawing.signal);
    const take = await asked.promise;
    withdrawing.abort(late);
    take();
    await sent;
    await sink.close();
    await collector.close();
  });
});

test.each(["always", "1s"] as const)(
  "lines that the collector rejects are told, with sync: %s",
  async (sync) => {
    const collector = await openScriptedSource((response) =>
      sendJson(response, { partialSuccess: { rejectedLogRecords: "2", errorMessage: "over the quota" } }),
    );
    const rejected: unknown[] = [];
    const sink = createAuditCollector({
      otlp: { url: collector.url, headers: {} },
      sync,
      onFailure: () => {},
      onRejected: (...lines) => rejected.push(lines),
      onWarning: () => {},
    });
    const appended = ["a", "b", "c"].map((line) => sink.append(line, fromMillis(0), signal));
    const errors = (await Promise.allSettled(appended)).map((one) =>
      one.status === "rejected" ? one.reason : undefined,
    );
    expect(await sink.close()).toEqual([]);
    const problem = "the collector rejected 2: over the quota";
    // Of one line there cannot be two.
    const told = sync === "always" ? [1, 2] : [2];
    expect(rejected).toEqual(told.map((lines) => [lines, problem]));
    const refused = expect.objectContaining({ name: "LineRejected" });
    expect(errors).toEqual(
      sync === "always" ? [refused, refused, refused] : [undefined, undefined, undefined],
    );
    expect(collector.requests).toHaveLength(told.length);
    await collector.close();
  },
);

test("what a collector says of lines that it takes is told once", async () => {
  const collector = await openScriptedSource((response) =>
    sendJson(response, { partialSuccess: { rejectedLogRecords: "0", errorMessage: "use gzip" } }),
  );
  const told: string[] = [];
  const sink = createAuditCollector({
    otlp: { url: collector.url, headers: {} },
    sync: "always",
    onFailure: (problem) => told.push(problem),
    onRejected: (_, problem) => told.push(problem),
    onWarning: (warning) => told.push(warning),
  });
  for (const line of ["a", "b"]) await sink.append(line, fromMillis(0), signal);
  await sink.close();
  expect(told).toEqual(["use gzip"]);
  expect(collector.requests).toHaveLength(2);
  await collector.close();
});
