// A cluster as operators run it: TLS, passwords, and roles that may read some indices and see the mappings of some. Both
// products silently leave out what a role may not read, which must not become an incomplete response.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SourceInspection } from "#src/store/inspection.ts";
import type { LogQuery, LogSource } from "#src/store/logs.ts";
import { type Running, type Security, start } from "../../servers/servers.ts";
import { testIO } from "../../support/io.ts";
import { never } from "../../support/signals.ts";
import { pem, readPem } from "../../support/tls.ts";
import { named } from "../selected-servers.ts";

const password = "as long as it is secret";
const roles = `
writer: { cluster: [monitor], indices: [{ names: ["*"], privileges: [all] }] }
reader: { indices: [{ names: ["app-*"], privileges: [read, view_index_metadata] }] }
blind: { indices: [{ names: ["app-*"], privileges: [read] }] }
half:
  indices:
    - { names: [app-1], privileges: [read, view_index_metadata] }
    - { names: [app-2], privileges: [view_index_metadata] }
one_mapping:
  indices:
    - { names: [app-1], privileges: [read, view_index_metadata] }
    - { names: [app-2], privileges: [read] }
`;
const security: Security = {
  ca: pem.ca,
  ...pem.server,
  users: ["writer", "reader", "blind", "half", "one_mapping"].map((role) => ({ name: role, password, role })),
  roles,
};
const indices = ["app-1", "app-2", "secret-1"];

describe.each(named().filter(({ name }) => name === "es8"))("$name with security", ({ name }) => {
  let server: Running;
  const open = (username: string, secret = password): Backend => {
    const settings = {
      url: server.url,
      auth: { username, password: secret },
      tls: { ca: pem.ca },
      timeout: "60s",
    };
    return elastic.create("elk", elastic.parseConfig(settings), { ...testIO, readText: readPem });
  };
  beforeAll(async () => {
    server = await start(name, undefined, { security });
    const { Client } = await import("@elastic/elasticsearch");
    const writer = new Client({
      node: server.url,
      auth: { username: "writer", password },
      tls: { ca: readPem(pem.ca) },
    });
    for (const index of indices) {
      await writer.indices.create({
        index,
        mappings: { properties: { log: { properties: { level: { type: "keyword" } } } } },
      });
      const document = {
        "@timestamp": "2024-06-01T10:00:00Z",
        message: `in ${index}`,
        log: { level: "info" },
      };
      await writer.index({ index, id: "a", refresh: true, document });
    }
    await writer.close();
  });
  afterAll(() => server?.stop());

  async function use<T>(user: string, ask: (backend: Backend) => Promise<T>, secret?: string): Promise<T> {
    const backend = open(user, secret);
    try {
      return await ask(backend);
    } finally {
      await backend.close();
    }
  }
  async function lines(user: string, query = "", over: Partial<LogSource> = {}, secret?: string) {
    return use(
      user,
      async ({ stores: { logs } }) => {
        const logQuery: LogQuery = {
          sources: [{ id: "app", index: "app-*", layout: "ecs", tenantFilter: undefined, ...over }],
          range: { from: fromMillis(0), to: fromMillis(Date.UTC(2025, 0)) },
          filter: parse(query),
          order: "asc",
          expectedLines: 10,
          tieLimit: 10_000,
          documentLimit: 10_000,
        };
        const ids: string[] = [];
        for await (const batch of logs?.lines(logQuery, never) ?? []) ids.push(...batch.map(({ id }) => id));
        return ids;
      },
      secret,
    );
  }
  const inspected = (user: string): Promise<SourceInspection | undefined> =>
    use(user, async ({ inspections }) =>
      inspections.logs?.({ id: "app", index: "app-*", layout: "ecs", tenantFilter: undefined }, never),
    );

  test("reads its own indices only with the smallest documented role", async () => {
    expect(await lines("reader")).toEqual(["app-1/a", "app-2/a"]);
    expect(await lines("reader", "message:app-2 AND severity=info")).toEqual(["app-2/a"]);
    expect(await lines("reader", "", { index: "*" })).toEqual(["app-1/a", "app-2/a"]);
    expect(await lines("reader", "", { tenantFilter: "log.level=info" })).toEqual(["app-1/a", "app-2/a"]);
    expect(await inspected("reader")).toMatchObject({ indices: 2, problems: [] });
  });

  test("reports an explicitly named forbidden index as denied", async () => {
    for (const index of ["secret-1", "app-1,secret-1"]) {
      await expect(lines("reader", "", { index })).rejects.toMatchObject({ failure: "denied" });
      await expect(lines("blind", "", { index })).rejects.toMatchObject({ failure: "denied" });
    }
    expect(await lines("reader", "", { index: "app-3" })).toEqual([]);
  });

  test("verifies every line without mapping access, and reports a tenant filter as denied", async () => {
    expect(await lines("blind")).toEqual(["app-1/a", "app-2/a"]);
    expect(await lines("blind", "message:app-2")).toEqual(["app-2/a"]);
    await expect(lines("blind", "", { tenantFilter: "log.level=info" })).rejects.toMatchObject({
      failure: "denied",
    });
    const report = await inspected("blind");
    expect(report).toMatchObject({ problems: [] });
    expect(report?.indices).toBeUndefined();
    expect(report?.limitations.join()).toContain("view_index_metadata");
  });

  test.each([
    ["half", "an index that can be seen, not read", /reaches 1 of the 2 shards/],
    ["one_mapping", "an index that can be read, not seen", /each that can be read needs view_index_metadata/],
  ])("%s: reports %s as an error", async (user, _, problem) => {
    await expect(lines(user)).rejects.toMatchObject({
      failure: "partial",
      message: expect.stringMatching(problem),
    });
    expect((await inspected(user))?.problems.join()).toMatch(problem);
  });

  test("reports an unreadable index beside one that has a routed alias", async () => {
    const { Client } = await import("@elastic/elasticsearch");
    const auth = { username: "writer", password };
    const writer = new Client({ node: server.url, auth, tls: { ca: readPem(pem.ca) } });
    await writer.indices.putAlias({ index: "app-1", name: "other", search_routing: "7" });
    await expect(lines("half")).rejects.toMatchObject({ failure: "partial" });
    expect((await inspected("half"))?.problems.join()).toMatch(/reaches 1 of the 2 shards/);
    await writer.indices.deleteAlias({ index: "app-1", name: "other" });
    await writer.close();
  });

  test("reports a wrong password as denied", async () => {
    const wrong = "not this one";
    const error: unknown = await lines("reader", "", {}, wrong).catch((error: unknown) => error);
    expect(error).toMatchObject({ failure: "denied" });
    expect(String(error)).not.toContain(wrong);
  });

  test.each<[string, readonly string[], readonly RegExp[]]>([
    ["writer", ["app-1", "app-2", "secret-1"], []],
    ["reader", ["app-1", "app-2"], []],
    ["half", ["app-1"], [/^app-2: .*reaches 0 of the 1 shards/]],
    ["one_mapping", ["app-1"], [/^app-2: its mapping is not shown/]],
    ["blind", [], [/^app-1: its mapping may not be read/, /^app-2: its mapping may not be read/]],
  ])("surveys what %s may see and read, and names the rest", async (user, found, notes) => {
    const survey = await use(user, async (backend) => backend.survey?.([], never));
    expect(survey?.logs.map(({ index }) => index)).toEqual(found);
    expect(survey?.notes).toEqual(notes.map((note) => expect.stringMatching(note)));
  });

  test("surveys readable patterns without mapping access and reports it", async () => {
    const survey = await use("blind", async (backend) => backend.survey?.(["app-*"], never));
    expect(survey?.logs).toEqual([]);
    expect(survey?.notes).toEqual([
      expect.stringMatching(/^app-\*: its mapping may not be read \(it needs view_index_metadata/),
    ]);
  });
});
