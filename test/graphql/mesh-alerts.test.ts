// The example of docs/how-to/join-your-graphql-source.md: Alertmanager beside the program's own source.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { loadMesh } from "#src/graphql/mesh.ts";
import { createDemo } from "../support/demo-server.ts";
import { readUserPages } from "../support/docs/pages.ts";

const blocks = readUserPages().flatMap((page) => page.blocks);
const readBlock = (kind: string) => {
  const found = blocks.filter((block) => block.kind === kind);
  expect(found).toHaveLength(1);
  return found[0]?.text ?? "";
};

/** Of Alertmanager's document, as much as the example needs. */
const document = `
swagger: "2.0"
info: { version: 0.0.1, title: Alertmanager API }
consumes: [application/json]
produces: [application/json]
basePath: /api/v2/
paths:
  /alerts:
    get:
      operationId: getAlerts
      parameters:
        - { name: active, in: query, type: boolean, default: true }
        - { name: filter, in: query, type: array, collectionFormat: multi, items: { type: string } }
      responses:
        "200": { description: Get alerts response, schema: { $ref: "#/definitions/gettableAlerts" } }
definitions:
  gettableAlerts: { type: array, items: { $ref: "#/definitions/gettableAlert" } }
  gettableAlert:
    allOf:
      - type: object
        required: [fingerprint, startsAt, annotations]
        properties:
          fingerprint: { type: string }
          startsAt: { type: string, format: date-time }
          annotations: { $ref: "#/definitions/labelSet" }
      - { $ref: "#/definitions/alert" }
  alert:
    type: object
    required: [labels]
    properties:
      labels: { $ref: "#/definitions/labelSet" }
      generatorURL: { type: string, format: uri }
  labelSet: { type: object, additionalProperties: { type: string } }
`;

let alerts: readonly object[] = [];
const service = createServer((request, response) => {
  const isAsked = request.url?.startsWith("/api/v2/alerts") === true;
  response.writeHead(isAsked ? 200 : 404, { "content-type": "application/json" });
  response.end(isAsked ? JSON.stringify(alerts) : "{}");
});
await new Promise<void>((resolve) => service.listen(0, "127.0.0.1", resolve));
afterAll(() => service.close());

test("an alert has the log lines of its pod, as the routes have them", { timeout: 120_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), "readout-alerts-"));
  const address = service.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  await writeFile(join(folder, "alertmanager.yaml"), document);
  const text = readBlock("yaml meshrc alerts")
    .replace("alertmanager:9093", `127.0.0.1:${port}`)
    .replace("site_id: shop", "site_id: demo-shop");
  const unified = await loadMesh({ file: join(folder, "meshrc.yaml"), text, log: () => {} });
  const demo = await createDemo({ graphql: async () => unified });
  const range = { site_id: "demo-shop", from: "2026-01-15T11:45:00Z", to: "2026-01-15T12:00:00Z" };
  const rows = await demo.rest("POST", "/api/v2/kubernetes/pods", { ...range, from: range.to });
  const pods = rows.body as readonly { pod_name: string; pod_namespace: string; state: string }[];
  const named = pods.map(({ pod_name: pod, pod_namespace: namespace }) => ({ namespace, pod }));
  const labels = [...named, { namespace: "blog", pod: "gone" }, { alertname: "Watchdog" }];
  alerts = labels.map((own, at) => ({
    fingerprint: String(at),
    startsAt: range.from,
    labels: own,
    annotations: {},
  }));

  const { data, errors } = await demo.graphql(readBlock("graphql alerts"));
  expect(errors).toBeUndefined();
  const found = data?.getAlerts as readonly {
    labels: object;
    pod: { log_lines: readonly object[] } | null;
  }[];
  expect(found.map((alert) => alert.labels)).toEqual(labels);
  expect(found.slice(-2).map(({ pod }) => pod)).toEqual([null, null]);
  let lines = 0;
  for (const [at, { pod_name, state }] of pods.entries()) {
    const page = await demo.rest("POST", "/api/v2/logs/lines", {
      ...range,
      source_ids: ["app", "nginx", "worker"],
      query: `k8s\\.pod\\.name="${pod_name}"`,
      use_expressions: true,
      pagination: { per_page: 5, order: "DESC" },
    });
    const own = (page.body as readonly { timestamp: string; message: string }[]).slice(0, 5);
    const log_lines = own.map(({ timestamp, message }) => ({ timestamp, message }));
    expect(found[at]?.pod).toEqual({ row: { state }, log_lines });
    lines += log_lines.length;
  }
  expect(lines).toBeGreaterThan(5);
  await demo.close();
  await rm(folder, { recursive: true });
});
