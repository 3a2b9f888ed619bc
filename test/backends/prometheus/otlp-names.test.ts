// What Prometheus 3 makes of the names of metrics that are sent by OTLP, where nothing is configured: as the reference says.
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { type RunningPrometheus, startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import { never } from "../../support/signals.ts";
import { namedPrometheus } from "../selected-servers.ts";

const now = Date.now();
const point = { startTimeUnixNano: `${now - 10_000}000000`, timeUnixNano: `${now}000000`, asInt: "5" };
const buildSum = (name: string, unit: string) => ({
  ...{ name, unit },
  sum: { aggregationTemporality: 2, isMonotonic: true, dataPoints: [point] },
});
const metrics = [
  buildSum("http.server.requests", "{request}"),
  buildSum("process.cpu.time", "s"),
  { name: "cpu.utilization", unit: "1", gauge: { dataPoints: [point] } },
];
const expected = ["cpu_utilization_ratio", "http_server_requests_total", "process_cpu_time_seconds_total"];

const servers = namedPrometheus().filter(({ name }) => name === "prom3");
describe.runIf(servers.length > 0)("Prometheus with a receiver of OTLP", () => {
  let server: RunningPrometheus;
  beforeAll(async () => {
    server = await startPrometheus("prom3", "", undefined, [], undefined, ["--web.enable-otlp-receiver"]);
  });
  afterAll(() => server.stop());

  test("has underscores for dots, and the unit and type in the name", async () => {
    const resource = { attributes: [{ key: "service.name", value: { stringValue: "shop" } }] };
    const sent = await fetch(`${server.url}/api/v1/otlp/v1/metrics`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ resourceMetrics: [{ resource, scopeMetrics: [{ metrics }] }] }),
    });
    expect(sent.status).toBe(200);
    const backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
    const found = await backend.stores.metrics?.names({}, never);
    await backend.close();
    expect(found).toEqual(expect.arrayContaining(expected));
    const reference = readFileSync("docs/reference/prometheus.md", "utf8");
    for (const name of expected) expect(reference).toContain(`\`${name}\``);
  });
});
