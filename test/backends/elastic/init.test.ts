// `readout init` on real servers with two layouts and other indices: the file loads, `check` passes on the same stack, and
// each index belongs to exactly one source.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";
import { run } from "#src/cli/init/init.ts";
import { parseConfig } from "#src/config/config.ts";
import { now, printInstantToMilli, toMillis } from "#src/core/time.ts";
import { startPrometheus } from "../../servers/prometheus.ts";
import { buildTemplate, printDocument } from "../../support/elastic/filebeat.ts";
import { apm7 } from "../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../support/elastic/span-shippers/data-prepper.ts";
import { otel } from "../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../support/elastic/span-shippers/shipper.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { createShell } from "../../support/fake-shell.ts";
import { sendRemoteWrite } from "../../support/prometheus/remote-write.ts";
import { createException, createSpan } from "../../tracing/span-builder.ts";
import { named, namedPrometheus, type ServerName, withoutDataStreams } from "../selected-servers.ts";

/** The span layout that each server is filled with, beside lines of `ecs`. */
const shippers: Readonly<Record<ServerName, SpanShipper>> = {
  es7: apm7,
  es8: otel,
  es9: otel,
  os2: dataPrepper,
  os3: dataPrepper,
};

const folder = mkdtempSync(join(tmpdir(), "readout-init-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const out = join(folder, "readout.yaml");

async function init(...args: string[]) {
  const shell = {
    ...createShell({ now: now() }),
    readText: (path: string) => readFileSync(path, "utf8"),
    kinds,
  };
  const code = await run([...args, "--out", out, "--force"], shell);
  const output = shell.printed();
  expect([code, shell.complained(), output]).toEqual([0, "", output]);
  const text = readFileSync(out, "utf8");
  return { output, text, config: parseConfig(text, out, shell) };
}

describe.each(named())("readout init on $name", ({ name, url }) => {
  const shipper = shippers[name];
  const lines = ["init-app-2026.11.20", "init-app-2026.11.21", "init-app-audit-2026.11.21"];
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(url);
    await cluster.remove("init-*");
    const time = printInstantToMilli(now());
    for (const index of lines) {
      await cluster.createIndex(index, buildTemplate("date", 1));
      const json = '{"service":{"name":"checkout"}}';
      await cluster.write(index, [["1", printDocument({ time, message: "hello", severity: "error", json })]]);
    }
    await cluster.createIndex("init-strange", { mappings: { properties: { x: { type: "keyword" } } } });
    for (const [index, definition] of Object.entries(shipper.indices("init"))) {
      await cluster.createIndex(index, definition);
    }
    const ids = { trace_id: "ab".repeat(16), span_id: "cd".repeat(8) };
    for (const { index, document } of shipper.write("init", [
      createSpan({ ...ids, events: [createException(1, "Boom")] }),
    ])) {
      await cluster.write(index, [[undefined, document]]);
    }
  });
  afterAll(async () => {
    await cluster.remove("init-*");
    await cluster.close();
  });

  test("writes the detected layouts, and check passes", async () => {
    const { output, text, config } = await init("--elastic", url, "--site", "shop");
    const sites = Object.values(config.sites);
    const sources = sites.flatMap(({ logs }) => Object.values(logs?.sources ?? {}));
    expect(sources).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ index: "init-app-*,-init-app-audit-*", layout: "ecs" }),
        expect.objectContaining({ index: "init-app-audit-*", layout: "ecs" }),
      ]),
    );
    const traces = sites.flatMap(({ traces }) => traces ?? []);
    expect(traces).toHaveLength(1);
    expect([shipper.layout, "auto"]).toContain(traces[0]?.layout);
    const named = (traces[0]?.index ?? "").split(",");
    for (const index of Object.keys(shipper.indices("init")).filter((index) => index.includes("trac"))) {
      expect(named).toContain(index);
    }
    expect(text).toContain(`where: 'service.name="checkout"'`);
    expect(text).toMatch(/#\s+init-strange: no known layout/);
    expect(output).toMatch(/0 problems, \d+ limitations\n$/);
    const [, token] = /\n {2}(rdt_\S+)\n/.exec(output) ?? [];
    expect(token).toBeDefined();
    expect(text).not.toContain(token);
  });

  test("surveys a single pattern with --index", async () => {
    const { config } = await init("--elastic", url, "--index", "init-app-*");
    expect(config.sites).toMatchObject({
      main: { logs: { sources: { "init-app": { index: "init-app-*" } } } },
    });
    expect(config.sites.main?.traces).toBeUndefined();
  });

  test("names data streams by their own names", async () => {
    const { mappings } = buildTemplate("date", 1);
    const patterns = { index_patterns: ["logs-init.*"], data_stream: {}, priority: 900 };
    const template = JSON.stringify({ ...patterns, template: { mappings } });
    const made = cluster.request("PUT", "/_index_template/init", template);
    const excuse = withoutDataStreams[name];
    if (excuse?.templates === false) {
      await expect(made).rejects.toThrow(excuse.failure);
      return;
    }
    await made;
    const remove = () => cluster.request("DELETE", "/_data_stream/logs-init.*");
    try {
      if (excuse !== undefined) {
        await expect(remove()).rejects.toThrow(excuse.failure);
        return;
      }
      for (const stream of ["logs-init.web-prod", "logs-init.web-test"]) {
        const document = printDocument({ time: printInstantToMilli(now()), json: "{}" });
        await cluster.write(stream, [[undefined, document]]);
        await cluster.request("POST", `/${stream}/_rollover`);
      }
      const { config } = await init("--elastic", url);
      await remove();
      expect(config.sites).toMatchObject({
        prod: { logs: { sources: { "init.web": { index: "logs-init.web-prod" } } } },
        test: { logs: { sources: { "init.web": { index: "logs-init.web-test" } } } },
      });
    } finally {
      await cluster.request("DELETE", "/_index_template/init");
    }
  });

  test("writes a usable file when nothing is found", async () => {
    const { text, config } = await init("--elastic", url, "--index", "init-none-*");
    expect(config.sites.main).not.toMatchObject({ logs: expect.anything() });
    expect(text).toContain("init-none-*: no open index");
  });
});

describe.each(namedPrometheus())("readout init on $name", ({ name }) => {
  test("surveys labels, clusters and metrics, and an empty server", async () => {
    const server = await startPrometheus(name, "");
    try {
      const empty = await init("--prometheus", server.url);
      expect(empty.config.sites).toMatchObject({ main: {} });
      expect(empty.text).toMatch(/#\s+metrics: there are no series/);
      const time = toMillis(now());
      const sample = (labels: Readonly<Record<string, string>>) => ({
        labels,
        samples: [[time, 1]] as const,
      });
      await sendRemoteWrite(server.url, [
        ...["east", "west"].flatMap((cluster) => [
          sample({ __name__: "up", job: "api", cluster, instance: "a:1" }),
          sample({
            __name__: "kube_pod_info",
            job: "ksm",
            cluster,
            namespace: "n",
            pod: "p",
            uid: "u",
            node: "m",
          }),
          sample({ __name__: "kube_node_info", job: "ksm", cluster, node: "m" }),
        ]),
      ]);
      const { text, config } = await init("--prometheus", server.url);
      expect(config.sites).toMatchObject({
        main: { metrics: { match: {} }, kubernetes: { match: { cluster: "east" } } },
        west: { metrics: { match: { cluster: "west" } }, kubernetes: { match: { cluster: "west" } } },
      });
      expect(text).toContain("#   cluster: east, west\n");
      expect(text).toContain("#   job: api\n");
    } finally {
      await server.stop();
    }
  });
});
