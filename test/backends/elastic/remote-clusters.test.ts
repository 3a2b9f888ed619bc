// Log lines in indices of a remote cluster (`eu:logs-*`). Each server is its own remote cluster here, so that the conformance
// suite runs as it does without.
import { beforeAll, describe, expect, test } from "vitest";
import { BackendError, Refused } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { logStoreSuite } from "../../conformance/logs.ts";
import { buildTemplate, printDocument } from "../../support/elastic/filebeat.ts";
import type { LogShipper } from "../../support/elastic/log-shippers.ts";
import { openCluster } from "../../support/elastic/test-index.ts";
import { onServers } from "../selected-servers.ts";
import { at, createSource, listIds, useLogCluster } from "./log-cluster.ts";
import { createLogSubject, rooted, unindexable } from "./store-subjects.ts";

const filebeat: LogShipper = {
  layout: "ecs",
  index: (prefix) => `${prefix}-filebeat`,
  definition: buildTemplate("date_nanos", 1),
  document: printDocument,
};

interface Nodes {
  readonly nodes: Readonly<Record<string, { readonly transport_address: string }>>;
}

/** Names the server itself `eu`, and two clusters that are down; only one of these is an error of the server. */
async function nameClusters(url: string): Promise<void> {
  const { nodes } = (await (await fetch(`${url}/_nodes/transport`)).json()) as Nodes;
  const seeds = Object.values(nodes).map((node) => node.transport_address);
  const down = ["127.0.0.1:9"];
  const remote = {
    eu: { seeds, skip_unavailable: true },
    us: { seeds, skip_unavailable: false },
    lost: { seeds: down, skip_unavailable: true },
    down: { seeds: down, skip_unavailable: false },
  };
  const answer = await fetch(`${url}/_cluster/settings`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ persistent: { cluster: { remote } } }),
  });
  expect(answer.status).toBe(200);
}

onServers((server) => {
  beforeAll(() => nameClusters(server.url));

  logStoreSuite(
    createLogSubject(
      server.name,
      {
        name: "ecs in a remote cluster",
        shipper: filebeat,
        remote: "eu",
        excuses: { "script unindexable": unindexable, "script keys": rooted("hostname") },
      },
      () => openCluster(server.url),
    ),
  );

  /** Others say only that a cluster was skipped, and not why. */
  const tellsReasons = server.name === "es8" || server.name === "es9";

  describe("patterns", () => {
    const logs = useLogCluster(server.url, "remote-*");
    const { read } = logs;
    beforeAll(async () => {
      for (const name of ["a", "b"]) {
        const line = (millis: number): [string, string] => [
          `${name}${millis}`,
          JSON.stringify({
            "@timestamp": at(millis),
            message: `line ${millis} of ${name}`,
            "event.dataset": name,
          }),
        ];
        await logs.cluster.createIndex(`remote-${name}`, buildTemplate("date", 2));
        await logs.cluster.write(`remote-${name}`, [line(1), line(2), line(3)]);
      }
    });

    test.each(["eu", "us"])("a comparison is read exactly, and %s stands in ids", async (name) => {
      const lines = await read(createSource(`${name}:remote-*`), 'group="a"');
      expect(lines.map(({ id }) => id)).toEqual([1, 2, 3].map((millis) => `${name}:remote-a/a${millis}`));
    });

    test("indices of the cluster itself and of others are merged", async () => {
      const lines = await read(createSource("remote-a,eu:remote-b"));
      expect(listIds(lines).toSorted()).toEqual(["a1", "a2", "a3", "b1", "b2", "b3"]);
      expect(listIds(await read(createSource("eu:remote-*,eu:-remote-b")))).toEqual(["a1", "a2", "a3"]);
    });

    test.each(["lost", "down"])("an answer without the cluster %s is an error", async (name) => {
      for (const pattern of [
        `${name}:remote-*`,
        `eu:remote-*,${name}:remote-*`,
        `remote-*,${name}:remote-*`,
      ]) {
        await expect(read(createSource(pattern)), pattern).rejects.toThrow(BackendError);
      }
    });

    test("names that no cluster has are an error, and names with stars are refused", async () => {
      await expect(read(createSource("nobody:remote-*"))).rejects.toThrow(BackendError);
      // A server that knows no such cluster would search all of its own indices.
      for (const pattern of ["x*:remote-*", "*:remote-*", "eu:remote-*,-lost:*", "remote-*,x*:remote-*"])
        await expect(read(createSource(pattern)), pattern).rejects.toThrow(Refused);
    });

    test.each(["eu", "us"])(
      "a closed index of %s is refused, and a missing one has no lines",
      async (name) => {
        await logs.cluster.createIndex("remote-shut", {});
        await logs.cluster.request("POST", "/remote-shut/_close");
        const isTold = name === "us" || tellsReasons;
        for (const pattern of [`${name}:remote-*`, `${name}:remote-none,${name}:remote-*`]) {
          const refused = await read(createSource(pattern)).catch((error: unknown) => error);
          expect(refused, pattern).toBeInstanceOf(isTold ? Refused : BackendError);
        }
        await logs.cluster.remove("remote-shut");
        expect(await read(createSource(`${name}:remote-*`))).toHaveLength(6);
        for (const [pattern, ids] of [
          [`${name}:remote-none`, []],
          [`${name}:remote-none,${name}:remote-a`, ["a1", "a2", "a3"]],
        ] as const) {
          const lines = await read(createSource(pattern)).then(listIds, (error: unknown) => error);
          if (isTold) expect(lines, pattern).toEqual(ids);
          else expect(lines, pattern).toBeInstanceOf(BackendError);
        }
      },
    );

    test("a tenant filter is refused, and check says why", async () => {
      const never = new AbortController().signal;
      const own = createSource("eu:remote-*", { tenantFilter: 'event.dataset="a"' });
      await expect(read(own)).rejects.toThrow(Refused);
      expect((await logs.cluster.inspect(own, never)).problems.join()).toMatch(/mapping may not be read/);
      const open = await logs.cluster.inspect(createSource("eu:remote-*"), never);
      expect(open).toMatchObject({ problems: [], newest: fromMillis(Date.parse(at(3))) });
      expect(open.limitations.join()).toMatch(/remote clusters cannot be read/);
      await expect(logs.cluster.inspect(createSource("lost:remote-*"), never)).rejects.toThrow(/lost/);
    });
  });
});
