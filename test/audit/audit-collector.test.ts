// The audit log at a collector: each line arrives, once the collector takes it, and none is lost while it does not.
import { expect, test } from "vitest";
import { createAuditCollector } from "#src/audit/audit-collector.ts";
import { fromMillis } from "#src/core/time.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

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
  });
  const at = fromMillis(1_000);
  await Promise.all(["a", "b", "c"].map((line) => sink.append(`{"n":"${line}"}\n`, at)));
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
  });
  await sink.append("{}\n", fromMillis(0));
  const closed = sink.close();
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(failures).toBeGreaterThan(0);
  expect(failures).toBeLessThan(5);
  await closed;
});

test("lines are refused once too many wait", async () => {
  const sink = createAuditCollector({
    otlp: { url: "http://127.0.0.1:9", headers: {} },
    sync: "1s",
    onFailure: () => {},
  });
  const at = fromMillis(0);
  await Promise.all(Array.from({ length: 10_000 }, () => sink.append("{}\n", at)));
  await expect(sink.append("{}\n", at)).rejects.toThrow("takes no lines");
});
