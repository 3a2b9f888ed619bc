// A site on real servers for the tests of the console: so many lines, spans, services and series as its views have to bear,
// beside a site that has nothing and one whose sources are down. All is of one range, which is over.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hashToken } from "#src/access/auth.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import { model, base as start } from "../../conformance/kubernetes-fixture.ts";
import { type ModelSpan, toSpan } from "../../conformance/trace-fixture.ts";
import type { SpanShipper } from "../../support/elastic/span-shippers/shipper.ts";
import { openCluster } from "../../support/elastic/test-index.ts";
import { expose } from "../../support/prometheus/kubernetes-exporters.ts";
import { printOpenMetrics } from "../../support/prometheus/openmetrics.ts";
import { chooseShipper } from "../elastic/span-cluster.ts";
import type { NamedServer } from "../selected-servers.ts";
import { type Served, startProgram, token } from "./console-harness.ts";

const minutes = 40;
export const range = {
  from: new Date(start).toISOString(),
  to: new Date(start + minutes * 60_000).toISOString(),
};
export const lineCount = 10_000;
export const spanCount = 5_000;
export const serviceCount = 100;
export const seriesCount = 200;
export const largeTrace = "0000000000000000000000000000aaaa";
export const visual = "AAAAAAAAAAAAAAAAAAAAAQ";
/** Nothing listens there. */
const nowhere = "http://127.0.0.1:9";

const lineIndex = { shop: "console-shop-logs", empty: "console-empty-logs" };
const lineMappings = {
  properties: {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    log: { properties: { level: { type: "keyword" } } },
    host: { properties: { name: { type: "keyword" } } },
    http: { properties: { response: { properties: { status_code: { type: "long" } } } } },
    trace: { properties: { id: { type: "keyword" } } },
  },
};

/** Severities and codes come in turns, each tenth line is an error. */
function printLine(at: number): string {
  return JSON.stringify({
    "@timestamp": new Date(start + 100 + (at * minutes * 60_000) / lineCount).toISOString(),
    message: `request ${at} took ${at % 97} ms`,
    log: { level: at % 10 === 0 ? "error" : at % 10 === 1 ? "warn" : "info" },
    host: { name: `web-${at % 3}` },
    http: { response: { status_code: at % 10 === 0 ? 500 : 200 } },
    trace: { id: at === 5_000 ? largeTrace : `none-${at}` },
  });
}

const id = (number: number) => number.toString(16).padStart(16, "0");

function makeSpan(
  over: Pick<ModelSpan, "trace" | "id"> & Partial<ModelSpan>,
  begin: number,
  length: number,
): ModelSpan {
  return {
    site: "shop",
    service: "shop-web",
    name: "GET /cart",
    kind: "server",
    status: "UNSET",
    attributes: {},
    resource: {},
    events: [],
    links: [],
    count: 1,
    start: fromMillis(start + begin),
    end: fromMillis(start + begin + length),
    ...over,
  };
}

function* makeLargeTrace(): Generator<ModelSpan> {
  const names = { "appsignal.namespace": "web", "appsignal.action_name": "ReportController#large" };
  yield makeSpan({ trace: largeTrace, id: id(1), attributes: names }, 60_000, 9_000);
  for (let at = 2; at <= spanCount; at += 1) {
    const parent = id(Math.max(1, Math.floor(at / 10)));
    yield makeSpan(
      {
        trace: largeTrace,
        id: id(at),
        parent,
        name: at === spanCount ? "the last step" : `step ${at % 20}`,
        kind: "internal",
      },
      60_000 + at,
      100,
    );
  }
}

function* makeServices(): Generator<ModelSpan> {
  const trace = "0000000000000000000000000000bbbb";
  const names = { "appsignal.namespace": "web", "appsignal.action_name": "FanController#all" };
  yield makeSpan({ trace, id: id(10_001), attributes: names }, 120_000, 500);
  for (let at = 0; at < serviceCount; at += 1) {
    const attributes = { "peer.service": `service-${String(at).padStart(3, "0")}` };
    const own = { trace, id: id(10_010 + at), parent: id(10_001), kind: "client" as const, name: "GET /" };
    yield makeSpan({ ...own, attributes }, 120_000 + at, 100);
  }
}

/** Sixty requests of six actions over two revisions; each fifth fails, and each has a statement. */
function* makeRequests(): Generator<ModelSpan> {
  for (let at = 0; at < 60; at += 1) {
    const begin = 180_000 + at * 30_000;
    const [trace, root] = [(0xc000 + at).toString(16).padStart(32, "0"), id(20_000 + 2 * at)];
    const time = fromMillis(start + begin + 5) as Instant;
    const thrown = { "exception.type": `Error${at % 2}`, "exception.message": `it failed ${at % 2}` };
    const isFailed = at % 5 === 0;
    const attributes = {
      "appsignal.namespace": "web",
      "appsignal.action_name": `Action${at % 6}#show`,
      "appsignal.tag.plan": at % 2 === 0 ? "pro" : "free",
    };
    yield makeSpan(
      {
        trace,
        id: root,
        attributes,
        revision: at < 30 ? "r1" : "r2",
        status: isFailed ? "ERROR" : "UNSET",
        events: isFailed ? [{ name: "exception", time, attributes: thrown }] : [],
      },
      begin,
      50 + at * 10,
    );
    const statement = {
      "db.system.name": "postgresql",
      "db.query.text": `SELECT * FROM t${at % 4} WHERE id = 1`,
    };
    const own = { trace, id: id(20_001 + 2 * at), parent: root, kind: "client" as const, name: "SELECT" };
    yield makeSpan({ ...own, attributes: statement }, begin + 2, 20);
  }
}

/** The value of a series in a minute of the range. */
export const valueAt = (series: number, minute: number) => series * 10 + minute;

/** OpenMetrics text of the site's metrics and of its cluster. */
export function printMetrics(): string {
  const series = Array.from({ length: seriesCount }, (_, at) => ({
    labels: { __name__: "queue_depth", site: "shop", worker: `w${String(at).padStart(3, "0")}` },
    samples: Array.from(
      { length: minutes + 1 },
      (_, minute) => [start + minute * 60_000, valueAt(at, minute)] as const,
    ).map(([time, value]): [number, number] => [time, value]),
  }));
  return printOpenMetrics([...series, ...expose(model, { cluster: "model" })]);
}

/** Fills a server with lines and spans, and serves them; it leaves none of them when it stops. */
export async function serveLinesAndSpans(server: NamedServer): Promise<Served> {
  const cluster = openCluster(server.url);
  const { shipper } = chooseShipper(server);
  try {
    await cluster.remove("console-*");
    for (const index of Object.values(lineIndex))
      await cluster.createIndex(index, { mappings: lineMappings });
    for (const prefix of ["console-shop", "console-empty"])
      for (const [index, definition] of Object.entries(shipper.indices(prefix)))
        await cluster.createIndex(index, definition);
    const lines = Array.from({ length: lineCount }, (_, at) => [String(at), printLine(at)] as const);
    await cluster.write(lineIndex.shop, lines);
    const spans = [...makeLargeTrace(), ...makeServices(), ...makeRequests()].map(toSpan);
    const documents = Map.groupBy(shipper.write("console-shop", spans), ({ index }) => index);
    for (const [index, own] of documents)
      await cluster.write(
        index,
        own.map(({ document }) => [undefined, document]),
      );
    const served = await serve(printElasticConfig(server.url, shipper));
    const stop = async () => {
      await served.stop();
      await cluster.remove("console-*");
      await cluster.close();
    };
    return { ...served, stop };
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

function printElasticConfig(url: string, shipper: SpanShipper): string {
  const site = (backend: string, logs: string, prefix: string) => `
    logs: { backend: ${backend}, sources: { app: { index: ${logs}, layout: ecs } } }
    traces: { backend: ${backend}, index: "${shipper.pattern(prefix)}", layout: ${shipper.layout} }`;
  return `
backends: { elk: { kind: elastic, url: "${url}" }, gone: { kind: elastic, url: "${nowhere}" } }
sites:
  shop: ${site("elk", lineIndex.shop, "console-shop")}
  empty: ${site("elk", lineIndex.empty, "console-empty")}
  down: ${site("gone", lineIndex.shop, "console-shop")}
`;
}

/** Serves the metrics of a Prometheus that holds `printMetrics()`. */
export function serveMetrics(url: string): Promise<Served> {
  const site = (backend: string, name: string, cluster: string) => `
    metrics: { backend: ${backend}, match: { site: ${name} } }
    kubernetes: { backend: ${backend}, match: { cluster: ${cluster} } }`;
  return serve(`
visuals: .
backends: { prom: { kind: prometheus, url: "${url}" }, gone: { kind: prometheus, url: "${nowhere}" } }
sites:
  shop: ${site("prom", "shop", "model")}
  empty: ${site("prom", "none", "none")}
  down: ${site("gone", "shop", "model")}
`);
}

const visualText = `id: ${visual}
title: Depth of the queues
type: line
site: shop
from: "${range.from}"
to: "${range.to}"
resolution: MINUTELY
select:
  - { name: queue_depth, tags: { worker: w007 }, field: gauge }
`;

/** @param config without addresses and tokens */
async function serve(config: string): Promise<Served> {
  const folder = await mkdtemp(join(tmpdir(), "readout-console-"));
  const file = join(folder, "readout.yaml");
  const own = `listen: 127.0.0.1:0\ntokens: [{ user: ana, sha256: "${hashToken(token)}", sites: "*" }]\n`;
  await writeFile(file, own + config);
  await writeFile(join(folder, "visual.yaml"), visualText);
  const served = await startProgram(["serve", "--config", file]);
  const stop = async () => {
    await served.stop();
    await rm(folder, { recursive: true });
  };
  return { ...served, stop };
}
