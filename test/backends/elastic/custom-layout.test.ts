// A custom layout, the file of the documentation, configured by its path, on documents that no built-in layout reads.
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { parseLogLayout } from "#resolvers/elastic/layout/log-layout.ts";
import { kinds } from "#resolvers/index.ts";
import { hashToken } from "#src/access/auth.ts";
import { connectSites } from "#src/access/sites.ts";
import { run as check } from "#src/cli/check/check.ts";
import { parseConfig } from "#src/config/config.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { operations } from "#src/operations/index.ts";
import { createServer, type Server } from "#src/server/server.ts";
import type { Backend } from "#src/store/backend.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { createShell } from "../../support/fake-shell.ts";
import { testIO } from "../../support/io.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

const guide = readFileSync(new URL("../../../docs/how-to/add-a-log-layout.md", import.meta.url), "utf8");
const layout = /```yaml log-layout\n(name: mine\n[\s\S]*?)```/.exec(guide)?.[1] ?? "";
const inParts = /```yaml log-layout\n(name: parts\n[\s\S]*?)```/.exec(guide)?.[1] ?? "";
const reference = /^ {6}(sources:\n[\s\S]*?)```/m.exec(guide)?.[1]?.replaceAll(/^ {6}/gm, "") ?? "";
const now = fromMillis(Date.UTC(2024, 5, 2));

const documents = {
  a: '{"at":"2024-06-01T10:00:00.000Z","text":"first","lvl":"WARNING","node":"n1","team":{"name":"blue"},"took":1.50}',
  b: '{"at":"2024-06-01T10:00:01.000Z","msg":"second","lvl":"crit","node":["n2","n3"],"team.name":"red"}',
  c: '{"at":"2024-06-01T10:00:02.000Z","text":"third","msg":"unused","lvl":"whatever"}',
  e: '{"at":"2024-06-01T10:00:04.000Z","text":"fifth","lvl":"whatever","rank":39}',
  f: '{"at":"2024-06-01T10:00:05.000Z","text":"sixth","stream":"stderr","rank":10}',
  d: '{"@timestamp":"2024-06-01T10:00:03.000Z","text":"without its time"}',
};
const expected = [
  ["a", "2024-06-01T10:00:00.000Z", "warn", "first", "n1", "blue"],
  ["b", "2024-06-01T10:00:01.000Z", "critical", "second", "n2", "red"],
  ["c", "2024-06-01T10:00:02.000Z", "unknown", "third", "", ""],
  ["e", "2024-06-01T10:00:04.000Z", "info", "fifth", "", ""],
  ["f", "2024-06-01T10:00:05.000Z", "error", "sixth", "", ""],
] as const;

onServers((server) => {
  let cluster: Cluster;
  let backend: Backend;
  let readout: Server;
  let files: Record<string, string>;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("app-odd*");
    await cluster.createIndex("app-odd", {
      settings: { number_of_shards: 1, number_of_replicas: 0 },
      mappings: { properties: { at: { type: "date" } } },
    });
    await cluster.write("app-odd", Object.entries(documents));
    const file = "/etc/readout/readout.yaml";
    files = {
      [file]: [
        `tokens: [{ user: ana, sha256: "${hashToken("t")}", sites: [shop] }]`,
        `backends: { elk: { kind: elastic, url: "${server.url}" } }`,
        "sites:",
        "  shop:",
        "    logs:",
        "      backend: elk",
        ...reference
          .trimEnd()
          .split("\n")
          .map((line) => `      ${line}`),
      ].join("\n"),
      "/etc/readout/layouts/mine.yaml": layout,
    };
    const world = createShell({ now, files });
    const config = parseConfig(files[file] ?? "", file, { ...world, kinds });
    const elk = config.backends.elk;
    const kind = kinds.get(elk?.kind ?? "");
    if (elk === undefined || kind === undefined) throw new Error("no backend");
    backend = kind.create("elk", elk.settings, testIO, elk.layouts);
    readout = createServer({
      operations,
      authenticate: async () => ({
        user: "ana",
        token: "ana",
        account: "ana",
        maySee: () => true,
        hasScope: () => true,
      }),
      sites: connectSites(config, new Map([["elk", backend]])),
      limits: config.limits,
      telemetry: createTelemetry({ write: () => {}, level: "silent" }),
      now: () => now,
      loadGraphql: () => Promise.reject(new Error("not asked for")),
    });
  });
  afterAll(async () => {
    await backend.close();
    await cluster.remove("app-odd*");
    await cluster.close();
  });

  async function lines(query: string): Promise<Record<string, string>[]> {
    const pagination = { per_page: 100, order: "ASC" };
    const body = { site_id: "shop", source_ids: ["app"], query, use_expressions: true, pagination };
    const answer = await readout.fetch("http://readout/api/v2/logs/lines", {
      method: "POST",
      body: JSON.stringify(body),
    });
    expect(answer.status).toBe(200);
    return (await answer.json()) as Record<string, string>[];
  }

  test("reads lines exactly by a custom layout", async () => {
    const found = await lines("");
    expect(
      found.map(({ id, timestamp, severity, message, hostname, group }) => [
        id?.replace("app-odd/", ""),
        timestamp,
        severity,
        message,
        hostname,
        group,
      ]),
    ).toEqual(expected);
    expect(found.map(({ json }) => json)).toEqual([
      documents.a,
      documents.b,
      documents.c,
      documents.e,
      documents.f,
    ]);
  });

  test.each([
    ["severity=warn", ["a"]],
    ["severity=unknown", ["c"]],
    ["message=second OR message:hir", ["b", "c"]],
    ["message:unused", []],
    ["hostname=n2", ["b"]],
    ["hostname=n3", []],
    ["group=blue OR group=red", ["a", "b"]],
    ["group!=blue", ["b", "c", "e", "f"]],
    ["severity=error OR severity=info", ["e", "f"]],
    ["rank>=39", ["e"]],
    ["took=1.50", ["a"]],
    ["took=1.5", []],
    ["team.name=red", []],
    ["team\\.name=red", ["b"]],
  ])("finds the lines of %s", async (query, ids) => {
    expect((await lines(query)).map(({ id }) => id?.replace("app-odd/", ""))).toEqual(ids);
  });

  test("assembles a body from several sources", async () => {
    await cluster.createIndex("app-odd-parts", {
      settings: { number_of_shards: 1, number_of_replicas: 0 },
      mappings: { properties: { at: { type: "date" } } },
    });
    await cluster.write("app-odd-parts", [
      [
        "a",
        '{"at":"2024-06-01T10:00:00.000Z","text":"one\\n","attrs":{"http@code":200.0,"internal":{"x":1}},"tags":[{"key":"ok","type":"bool","value":"true"},{"key":"n","type":"int64","value":"7"},{"key":"http.code","type":"string","value":"late"}],"ctx":{"trace":"t1"}}',
      ],
      ["b", '{"at":"2024-06-01T10:00:01.000Z","text":"{\\"k\\":2.50}","attrs.deep":{"k":[1]},"lvl":"warn"}'],
      ["c", '{"at":"2024-06-01T10:00:02.000Z","payload":{"user": {"id":1.0}},"node":"n1","app":"blue"}'],
    ]);
    const own = elasticWith("parts.yaml", inParts);
    const source = { id: "app", index: "app-odd-parts", layout: "parts.yaml", tenantFilter: undefined };
    async function find(text: string): Promise<LogLine[]> {
      const found: LogLine[] = [];
      const range = { from: fromMillis(Date.UTC(2024, 5, 1)), to: now };
      const limits = { expectedLines: 10, documentLimit: 1_000, tieLimit: 1_000 };
      const query = {
        sources: [source] as const,
        range,
        filter: parse(text),
        order: "asc" as const,
        ...limits,
      };
      for await (const batch of own.lines(query, never)) found.push(...batch);
      return found;
    }
    const found = await find("");
    expect(
      found.map(({ message, severity, hostname, group }) => [message, severity, hostname, group]),
    ).toEqual([
      ["one", "unknown", undefined, undefined],
      ['{"k":2.50}', "warn", undefined, undefined],
      ['{"user":{"id":1.0}}', "unknown", "n1", "blue"],
    ]);
    expect(found.map(({ json }) => json)).toEqual([
      '{"http.code":200.0,"ok":true,"n":7,"trace_id":"t1","ctx":{"trace":"t1"}}',
      '{"deep":{"k":[1]},"k":2.50}',
      '{"user":{"id":1.0}}',
    ]);
    for (const [text, ids] of [
      ["message=one", ["a"]],
      ["http\\.code=200.0 n=7", ["a"]],
      ["ok=true OR k>2.4", ["a", "b"]],
      ["deep.k=1", ["b"]],
      ["user.id=1.0", ["c"]],
      ["ctx.trace=t1 trace_id=t1", ["a"]],
      ["internal.x=1", []],
      ["http\\.code=late", []],
    ] as const) {
      const kept = (await find(text)).map(({ id }) => id.replace("app-odd-parts/", ""));
      expect({ text, ids: kept }).toEqual({ text, ids });
    }
    await cluster.remove("app-odd-parts");
  });

  function elasticWith(name: string, layout: string): LogStore {
    const config = elastic.parseConfig({ url: server.url, timeout: "60s" });
    const own = { logs: new Map([[name, parseLogLayout(layout)]]), traces: new Map() };
    const { logs } = elastic.create("elk", config, testIO, own).stores;
    if (logs === undefined) throw new Error("no log store");
    return logs;
  }

  test("check reports the custom layout", async () => {
    const shell = createShell({ now, files, kinds: [...kinds.values()] });
    expect(await check(["--config", "/etc/readout/readout.yaml"], shell)).toBe(0);
    expect(shell.printed()).toMatch(/app {2}app-\* {2}layout mine {2}\d+ ind\S+ {2}newest line 13 h ago/);
  });

  test("check reports an invalid layout file", async () => {
    const broken = { ...files, "/etc/readout/layouts/mine.yaml": "name: mine\nlogs: { time: at }\n" };
    const shell = createShell({ now, files: broken, kinds: [...kinds.values()] });
    expect(await check(["--config", "/etc/readout/readout.yaml"], shell)).toBe(1);
    expect(shell.complained()).toMatch(/layout: is no layout: logs\./);
  });
});
