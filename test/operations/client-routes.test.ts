// Routes of existing clients beside `/api/v2`: their answers against the listings of the specification.
import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { clientOperations, operations } from "#src/operations/index.ts";
import { createDemo, type Demo } from "../support/demo-server.ts";

let demo: Demo;
beforeAll(async () => {
  demo = await createDemo({ tokens: [] });
});
afterAll(() => demo.close());

const get = async (path: string) => {
  const { status, body } = await demo.rest("GET", path);
  return { status, body: body as Record<string, unknown> };
};

interface Sample {
  readonly id: string;
  readonly action: string;
  readonly time: number;
  readonly is_exception: boolean;
  readonly exception: { readonly name: string | null };
}
interface Viewer {
  readonly name: string;
  readonly apps: readonly {
    readonly id: string;
    readonly logs: { readonly sources: readonly { readonly id: string }[] };
  }[];
}
const readSamples = async (path: string) => (await get(path)).body.log_entries as Sample[];

async function list(route: string) {
  const body = { site_ids: ["demo-shop"], pagination: { per_page: 10_000, cursor: { time: null } } };
  const answer = await demo.rest("POST", `/api/v2/tracing/traces/${route}`, body);
  return answer.body as { trace_id: string; span_id: string; time: string; action_name: string }[];
}

test("they have names and paths of their own", () => {
  const all = [...operations, ...clientOperations];
  expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
  expect(new Set(all.map(({ method, path }) => `${method} ${path}`)).size).toBe(all.length);
  for (const { access } of clientOperations) expect(access).toBe("token");
});

describe("samples", () => {
  test("of errors are those of the listing, ten or as many as there may be", async () => {
    const listed = (await list("errors")).map(({ trace_id, span_id }) => `${trace_id}-${span_id}`);
    const ten = await readSamples("/api/demo-shop/samples/errors.json");
    expect(ten).toHaveLength(10);
    const all = await readSamples("/api/demo-shop/samples/errors.json?limit=1000");
    expect(all.slice(0, 10)).toEqual(ten);
    for (const id of listed) expect(all.map((sample) => sample.id)).toContain(id);
    for (const { is_exception, exception } of all) {
      expect(is_exception).toBe(true);
      expect(exception.name).toBeTruthy();
    }
    const times = all.map(({ time }) => time);
    expect(times).toEqual(times.toSorted((a, b) => b - a));
    const counted = await get("/api/demo-shop/samples/errors.json?count_only=true");
    expect(counted.body).toEqual({ count: all.length });
  });

  test("are filtered by action, exception and time, as their clients write them", async () => {
    const some = await readSamples(
      "/api/demo-shop/samples/performance.json?action_id=CheckoutController-hash-create",
    );
    expect(some.map(({ action }) => action)).toEqual(
      Array.from({ length: 10 }, () => "CheckoutController#create"),
    );
    const [newest] = await readSamples("/api/demo-shop/samples.json?exception=NoMethodError&limit=1");
    expect(newest?.exception.name).toBe("NoMethodError");
    const second = newest?.time ?? 0;
    const until = new Date(second * 1_000).toISOString();
    for (const before of [String(second), until]) {
      const older = await readSamples(`/api/demo-shop/samples.json?exception=NoMethodError&before=${before}`);
      expect(older.length).toBeGreaterThan(0);
      for (const { time } of older) expect(time).toBeLessThanOrEqual(second);
    }
    expect(await readSamples(`/api/demo-shop/samples.json?since=${second + 86_400}`)).toEqual([]);
  });

  test("one by its id is that of the list, with what is known of it", async () => {
    const [first] = await readSamples("/api/demo-shop/samples/errors.json?limit=1");
    const { status, body } = await get(`/api/demo-shop/samples/${first?.id}.json`);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      id: first?.id,
      action: first?.action,
      time: first?.time,
      is_exception: true,
    });
    expect(body.exception).toMatchObject({ name: first?.exception.name, backtrace: expect.any(Array) });
    for (const id of ["nope.json", "0-0.json", `${first?.id}`, `${first?.id}x.json`]) {
      expect(await get(`/api/demo-shop/samples/${id}`)).toEqual({
        status: 404,
        body: { error: "Not found" },
      });
    }
  });
});

test("markers are the revisions, newest first", async () => {
  const { body } = await get("/api/demo-shop/markers.json?limit=100");
  const markers = body.markers as { revision: string; created_at: string; closed_at: string | null }[];
  expect(body.count).toBe(markers.length);
  expect(markers.length).toBeGreaterThan(1);
  for (const { revision, created_at } of markers) {
    const stats = await demo.rest("POST", "/api/v2/deploys/stats", { site_id: "demo-shop", revision });
    expect((stats.body as { first_seen: string }).first_seen.slice(0, 23)).toBe(created_at.slice(0, 23));
  }
  expect(markers[0]?.closed_at).toBeNull();
  expect(markers[1]?.closed_at).toBe(markers[0]?.created_at);
  expect((await get("/api/demo-shop/markers.json?count_only=true")).body).toEqual({ count: markers.length });
});

test("the organization of a token is the one that GraphQL has", async () => {
  expect(await get("/oauth/token/info")).toEqual({ status: 200, body: { account: { slug: "readout" } } });
});

describe("what the console opens with", () => {
  const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
  let others: Demo;
  beforeAll(async () => {
    others = await createDemo({
      tokens: [
        { user: "of nothing", sha256: sha256("nothing"), sites: [] },
        { user: "of metrics", sha256: sha256("metrics"), sites: "*", scopes: ["metrics", "graphql"] },
        { user: "without GraphQL", sha256: sha256("plain"), sites: ["demo-shop"], scopes: ["logs"] },
        { user: "of logs", sha256: sha256("logs"), sites: ["demo-shop"], scopes: ["logs", "graphql"] },
        { user: "of traces", sha256: sha256("traces"), sites: ["demo-shop"], scopes: ["tracing"] },
        { user: "of another site", sha256: sha256("another"), sites: ["demo-blog"] },
        { user: "of deploys", sha256: sha256("deploys"), sites: ["demo-shop"], scopes: ["deploys"] },
      ],
    });
  });
  afterAll(() => others.close());

  test.each([
    ["demo-token", "demo", 2, true],
    ["nothing", "of nothing", 0, false],
    ["metrics", "of metrics", 2, false],
    ["logs", "of logs", 1, true],
  ])("is for the token %s what GraphQL tells", async (token, user, sites, hasLogs) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const query = "{ viewer { name apps { id logs { sources { id } } } } }";
    const { data } = await others.graphql(query, {}, { headers });
    const { viewer } = data as { viewer: Viewer };
    const answer = await others.server.fetch("http://readout/console/viewer", { headers });
    const told = (await answer.json()) as { sites: readonly { sources: readonly string[] }[] };
    const deploys = token === "demo-token";
    expect([answer.status, told]).toEqual([
      200,
      {
        user,
        sites: viewer.apps.map(({ id, logs }) => ({
          id,
          sources: logs.sources.map((source) => source.id),
          deploys,
        })),
        deadline_ms: 30_000,
      },
    ]);
    expect(told.sites).toHaveLength(sites);
    expect(told.sites.some(({ sources }) => sources.length > 0)).toBe(hasLogs);
  });

  test("needs a token, and no scope", async () => {
    const ask = (headers: Record<string, string>) =>
      others.server.fetch("http://readout/console/viewer", { headers });
    expect((await ask({})).status).toBe(401);
    const answer = await ask({ authorization: "Bearer plain" });
    expect(await answer.json()).toMatchObject({ user: "without GraphQL", sites: [{ id: "demo-shop" }] });
  });

  test.each([
    ["deploys", true],
    ["traces", false],
    ["logs", false],
  ])("says whether the token %s may read deploys, also those of a visual", async (token, deploys) => {
    const headers = { authorization: `Bearer ${token}` };
    const ask = async (path: string) =>
      await (await others.server.fetch(`http://readout/console/${path}`, { headers })).json();
    expect(await ask("viewer")).toMatchObject({ sites: [{ id: "demo-shop", deploys }] });
    expect(await ask("visuals/9Ubquyg0qqEEfpH6Xefmrg/site")).toMatchObject({ id: "demo-shop", deploys });
  });

  test("tells whose a visual is to those alone who may see the site", async () => {
    const ask = async (id: string, headers: Record<string, string>) => {
      const answer = await others.server.fetch(`http://readout/console/visuals/${id}/site`, { headers });
      return { status: answer.status, body: await answer.json() };
    };
    const [known, unknown] = ["9Ubquyg0qqEEfpH6Xefmrg", "AAAAAAAAAAAAAAAAAAAAAA"];
    expect(await ask(known, {})).toMatchObject({ status: 401 });
    const missing = await ask(unknown, { authorization: "Bearer deploys" });
    expect(missing).toEqual({ status: 404, body: { error: "Not found" } });
    for (const token of ["nothing", "another"])
      expect(await ask(known, { authorization: `Bearer ${token}` })).toEqual(missing);
  });
});

test.each([
  ["samples.json?limit=1001", "limit"],
  ["samples.json?limit=x", "limit"],
  ["samples.json?since=yesterday", "since"],
  ["samples/errors.json?count_only=maybe", "count_only"],
  ["markers.json?from=2026-02-30", "from"],
  ["markers.json?from=2000000000&to=1000000000", "from"],
  ["samples.json?since=2000000000&before=1000000000", "since"],
  ["samples/errors.json?since=2026-01-15T11:00:00.001Z&before=2026-01-15T11:00:00Z&count_only=true", "since"],
])("%s is refused at %s", async (path, field) => {
  const { status, body } = await get(`/api/demo-shop/${path}`);
  expect(status).toBe(422);
  expect(body).toMatchObject({ error: "invalid_request", details: { issues: [{ path: field }] } });
});

test("a site that may not be seen is a missing one, and a token is needed", async () => {
  for (const path of ["markers.json", "samples.json", "samples/errors.json", "samples/a-b.json"]) {
    expect(await get(`/api/nope/${path}`)).toEqual({ status: 404, body: { error: "Not found" } });
    const answer = await demo.server.fetch(`http://readout/api/demo-shop/${path}`);
    expect(answer.status).toBe(401);
  }
});
