// Indices under several names, and copies of indices, on real servers: what a pattern reaches, what `check` says, and what
// `init` proposes.
import { afterAll, beforeAll, expect, test } from "vitest";
import { listReached } from "#resolvers/elastic/mapping/index-patterns.ts";
import { readListedIndices } from "#resolvers/elastic/mapping/listed-indices.ts";
import { buildTemplate, printDocument } from "../../support/elastic/filebeat.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { onServers, withoutDataStreams } from "../selected-servers.ts";

const document = printDocument({
  time: "2026-11-20T00:00:00.000Z",
  message: "m",
  severity: "info",
  json: "{}",
});

onServers((server) => {
  let cluster: Cluster;
  const send = (method: string, path: string, body: object) =>
    cluster.request(method, path, JSON.stringify(body));
  const hasStreams = withoutDataStreams[server.name] === undefined;

  async function create(index: string, shards = 1): Promise<void> {
    await cluster.createIndex(index, buildTemplate("date", shards));
    await cluster.write(index, [["1", document]]);
  }
  /** Makes a copy, as a lifecycle does. */
  async function copy(index: string, verb: "_shrink" | "_clone", target: string): Promise<void> {
    await send("PUT", `/${index}/_settings`, { "index.blocks.write": true });
    await send("POST", `/${index}/${verb}/${target}`, { settings: { "index.number_of_replicas": 0 } });
    await cluster.request("GET", `/_cluster/health/${target}?wait_for_status=yellow&timeout=30s`);
  }

  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("names-*,shrink-*,partial-*");
    await create("names-orders-000008");
    for (const [former, name] of [
      ["names-orders-000007", "shrink-a1b2-names-orders-000007"],
      ["names-orders-000006", "partial-names-orders-000006"],
    ] as const) {
      await create(former, 2);
      await copy(former, "_shrink", name);
      const actions = [{ remove_index: { index: former } }, { add: { index: name, alias: former } }];
      await send("POST", "/_aliases", { actions });
    }
    await create("names-legacy-000001");
    await send("POST", "/_aliases", {
      actions: [{ add: { index: "names-legacy-000001", alias: "names-orders-all" } }],
    });
    await create("names-app-000001", 2);
    await copy("names-app-000001", "_shrink", "names-app-000001_shrunken");
    await create("names-app-000002");
    if (!hasStreams) return;
    const { mappings } = buildTemplate("date", 1);
    await send("PUT", "/_index_template/names", {
      index_patterns: ["names-stream-*"],
      data_stream: {},
      priority: 900,
      template: { mappings },
    });
    for (const stream of ["names-stream-a", "names-stream-b"])
      await cluster.write(stream, [[undefined, document]]);
  });
  afterAll(async () => {
    if (hasStreams) {
      await cluster.request("DELETE", "/_data_stream/names-stream-*");
      await cluster.request("DELETE", "/_index_template/names");
    }
    await cluster.remove("names-*,shrink-*,partial-*");
    await cluster.close();
  });

  test("a pattern reaches what is computed from the listed names", async () => {
    const listed = readListedIndices(await cluster.request("GET", "/_resolve/index/*"));
    const backing = listed.filter(({ isStream }) => isStream).flatMap(({ indices }) => indices);
    for (const pattern of [
      "names-*",
      "names-orders-*",
      "names-orders-000007",
      "shrink-*,partial-*",
      "names-orders-*,-names-legacy-*",
      "names-orders-*,-names-legacy-000001",
      "names-orders-*,-names-orders-all",
      "names-orders-*,-names-orders-a*",
      "names-orders-*,-names-orders-000007",
      "names-orders-*,-shrink-a1b2-names-orders-000007",
      "names-app-*,-*_shrunken",
      "names-orders-all,-names-legacy-000001",
      "names-*,-names-orders-*,names-orders-all",
      "names-*,-names-stream-a",
      "names-*,-*names-stream-a",
      ...backing.map((index) => `names-stream-*,-${index}`),
    ]) {
      const options = "ignore_unavailable=true&allow_no_indices=true&expand_wildcards=open";
      const found = Object.keys((await cluster.request("GET", `/${pattern}?${options}`)) as object);
      const reached = listed.flatMap((one) => listReached(pattern, one));
      expect([pattern, reached.sort()]).toEqual([pattern, found.sort()]);
    }
  });

  test("init proposes each index once, by the name that it had", async () => {
    const found = await cluster.backend.survey?.([], never);
    const own = found?.logs.map(({ index }) => index).filter((index) => /names|shrink|partial/.test(index));
    const streams = hasStreams ? ["names-stream-a", "names-stream-b"] : [];
    expect(own).toEqual(
      ["names-app-*,-*_shrunken", "names-legacy-*", "names-orders-*,-names-legacy-*", ...streams].sort(),
    );
    expect(found?.notes).toContain(
      "names-app-*_shrunken: copies of indices that are there (names-app-000001)",
    );
  });

  test("check tells that the lines of copies are shown twice", async () => {
    const inspect = (index: string) =>
      cluster.inspect({ id: "app", index, layout: "ecs", tenantFilter: undefined }, never);
    const told = (await inspect("names-app-*")).limitations.filter((text) => text.includes("copies"));
    expect(told).toEqual([
      "names-app-000001_shrunken: copies of other indices, whose lines are shown twice; let the pattern end in ,-*_shrunken",
    ]);
    expect((await inspect("names-app-*,-*_shrunken")).limitations.join()).not.toContain("copies");
    await create("names-copied-000001", 2);
    await copy("names-copied-000001", "_shrink", "shrink-c3d4-names-copied-000001");
    const both = await inspect("names-copied-*,shrink-c3d4-*");
    expect(both.limitations).toContain(
      "shrink-c3d4-names-copied-000001: copies of other indices, whose lines are shown twice; take them out of the pattern (names-copied-*,shrink-c3d4-*,-shrink-c3d4-names-copied-000001)",
    );
  });
});
