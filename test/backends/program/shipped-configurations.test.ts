// The configurations that are shipped, over what their applications write: the program answers it, and starts again. The stack
// of docker-compose.yml has no templates of its own, so that a server maps its documents as it maps any.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join, resolve } from "node:path";
import { text as readAll } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { parseAllDocuments } from "yaml";
import { fromMillis, printInstantToMilli } from "#src/core/time.ts";
import { useConfigFolder } from "../../support/config-files.ts";
import { otelLogs } from "../../support/elastic/log-shippers.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { endAll, start, startReadout } from "../../support/process.ts";
import { named, type ServerName } from "../selected-servers.ts";

const configs = useConfigFolder();

/** What deploy/compose/load.ts writes until each of its applications has written a line, as text of the documents. */
const written: { readonly shop: string[]; readonly blog: string[] } = { shop: [], blog: [] };
/** Where the Collector and Vector put it. */
const indices = { shop: "logs-generic.otel-default", blog: "logs-blog-2026.11.30" };
/** What the program itself makes for front-end errors. */
const ownIndex = "readout-frontend-shop";
/** Elasticsearch has a template for the documents of the Collector, with fields that the others lack. */
const canHoldShop = (name: ServerName) => name === "es8" || name === "es9";

interface Received {
  readonly resourceLogs?: readonly {
    readonly scopeLogs: readonly { readonly logRecords: readonly LogRecord[] }[];
  }[];
}
interface LogRecord {
  readonly timeUnixNano: string;
  readonly severityText: string;
  readonly body: { readonly stringValue: string };
}
function printShopLine({ timeUnixNano, severityText, body }: LogRecord): string {
  const time = printInstantToMilli(fromMillis(Number(BigInt(timeUnixNano) / 1_000_000n)));
  return otelLogs.document({
    time,
    severity: severityText,
    message: body.stringValue,
    group: "web",
    json: "{}",
  });
}

beforeAll(async () => {
  const logFile = join(configs.folder, "blog.log");
  const collector = createServer(async (request, response) => {
    const { resourceLogs = [] }: Received = JSON.parse(await readAll(request));
    const records = resourceLogs.flatMap(({ scopeLogs }) =>
      scopeLogs.flatMap(({ logRecords }) => logRecords),
    );
    written.shop.push(...records.map(printShopLine));
    response.end("{}");
  });
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const address = collector.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const load = start(process.execPath, ["deploy/compose/load.ts", `http://127.0.0.1:${port}`, logFile]);
  await vi.waitFor(
    () => {
      expect(readFileSync(logFile, "utf8")).toMatch(/\n$/);
      expect(written.shop).not.toEqual([]);
    },
    { timeout: 200_000, interval: 100 },
  );
  load.child.kill();
  await load.ended;
  collector.close();
  written.blog.push(...readFileSync(logFile, "utf8").trim().split("\n"));
});

interface Shipped {
  readonly file: string;
  readonly text: string;
  /** What is written that the log source of each site has. */
  readonly sites: Readonly<Record<string, readonly (keyof typeof written)[]>>;
}
const compose = readFileSync("deploy/compose/readout.yaml", "utf8");
const tokens = /^tokens:\n(?: .*\n)+/m.exec(compose)?.[0] ?? "";
const configMap = parseAllDocuments(readFileSync("deploy/kubernetes/readout.yaml", "utf8"))
  .map((document) => document.toJS())
  .find(({ kind }) => kind === "ConfigMap");
const shipped: readonly Shipped[] = [
  { file: "deploy/compose/readout.yaml", text: compose, sites: { shop: ["shop"], blog: ["blog"] } },
  {
    file: "deploy/kubernetes/readout.yaml",
    text: configMap.data["readout.yaml"].replace(/^tokens: \[\]$/m, tokens.replace(", blog]", "]")),
    sites: { shop: ["shop", "blog"] },
  },
];

/** The configuration on this machine, with one server for all backends of logs and none for metrics. */
const place = (text: string, url: string): string =>
  text
    .replaceAll(/0\.0\.0\.0:\d+/g, "127.0.0.1:0")
    .replaceAll(/http:\/\/(?:elastic|open)search:9200/g, url)
    .replace("http://prometheus:9090", "http://127.0.0.1:9")
    .replace("/var/lib/readout/spool.db", join(configs.folder, "spool.db"))
    .replace("visuals: visuals", `visuals: ${resolve("deploy/visuals")}`);

async function readMessages(address: string, site: string): Promise<readonly string[]> {
  const answer = await fetch(`${address}/api/v2/logs/lines`, {
    method: "POST",
    headers: { authorization: "Bearer rdt_compose" },
    body: JSON.stringify({
      site_id: site,
      source_ids: ["app"],
      query: "",
      pagination: { per_page: 1_000, order: "ASC" },
    }),
  });
  const lines: unknown = await answer.json();
  if (!Array.isArray(lines)) return [JSON.stringify(lines)];
  return lines.map(({ message }) => message).toSorted();
}
const findMessage = (document: string): string => {
  const { message, body } = JSON.parse(document);
  return message ?? body.text;
};

describe.each(named())("on $name", ({ name, url }) => {
  let cluster: Cluster;
  const applications = (["shop", "blog"] as const).filter((one) => one !== "shop" || canHoldShop(name));
  const removeAll = () =>
    Promise.all([...Object.values(indices), ownIndex].map((index) => cluster.remove(`${index}*`)));
  beforeAll(() => {
    cluster = openCluster(url);
  });
  afterEach(async () => {
    endAll();
    await removeAll();
  });
  afterAll(() => cluster.close());

  test.each(shipped)("$file answers all lines, also after another start", async ({ text, sites }) => {
    const file = await configs.configure(place(text, url));
    const expectAll = async (address: string): Promise<void> => {
      for (const [site, own] of Object.entries(sites)) {
        const documents = own.filter((one) => applications.includes(one)).flatMap((one) => written[one]);
        await expect.poll(() => readMessages(address, site)).toEqual(documents.map(findMessage).toSorted());
      }
    };
    const first = startReadout("serve", "--config", file);
    const address = await first.listening;
    for (const site of Object.keys(sites)) expect(await readMessages(address, site)).toEqual([]);
    for (const one of applications) {
      if (one === "shop") await cluster.createIndex(indices[one], otelLogs.definition);
      await cluster.write(
        indices[one],
        written[one].map((document) => [undefined, document]),
      );
    }
    await expectAll(address);
    first.child.kill("SIGTERM");
    expect(await first.ended).toBe(0);

    const second = startReadout("serve", "--config", file);
    await expectAll(await second.listening);
    // A filter that is not exact ends the program once its source is inspected.
    const inspected = Object.keys(sites).map((site) => `sites.${site}.logs.sources.app`);
    await expect
      .poll(() =>
        inspected.filter((path) => !second.told.err.includes(path) && second.child.exitCode === null),
      )
      .toEqual([]);
    second.child.kill("SIGTERM");
    expect(await second.ended).toBe(0);
  });
});
