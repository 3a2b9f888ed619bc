// Scopes of tokens: what a token may not be used for answers as a site that does not exist, byte for byte, whichever way it
// is asked for.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { memory } from "#resolvers/memory/memory.ts";
import { hashToken } from "#src/access/auth.ts";
import { connectSites, createSiteViews } from "#src/access/sites.ts";
import { buildDemoConfig } from "#src/cli/demo.ts";
import { type Scope, scopes } from "#src/core/scopes.ts";
import { operations } from "#src/operations/index.ts";
import { describeOperations } from "#src/operations/runtime/json-schema.ts";
import type { Endpoint } from "#src/operations/runtime/operation.ts";
import { createDemo, type Demo } from "../support/demo-server.ts";
import { testIO } from "../support/io.ts";

const only = (scope: Scope) => `only-${scope}`;
const without = (scope: Scope) => `without-${scope}`;
const everySite = { user: "ana", sites: "*" } as const;

let demo: Demo;
beforeAll(async () => {
  demo = await createDemo({
    tokens: scopes.flatMap((scope) => [
      { ...everySite, sha256: hashToken(only(scope)), scopes: [scope] },
      {
        ...everySite,
        sha256: hashToken(without(scope)),
        scopes: scopes.filter((one) => one !== scope),
      },
    ]),
  });
});
afterAll(() => demo.close());

const requests = new Map(
  describeOperations(operations).operations.map(({ endpoint, request }) => [
    endpoint.name,
    request as {
      readonly examples?: readonly object[];
      readonly properties?: Readonly<Record<string, { readonly examples?: readonly unknown[] }>>;
    },
  ]),
);

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers: object;
}
async function ask(token: string, endpoint: Endpoint, site?: string, accept = "*/*"): Promise<Answer> {
  const { examples = [], properties = {} } = requests.get(endpoint.name) ?? {};
  const parameters: Readonly<Record<string, unknown>> = Object.fromEntries(
    Object.entries(properties).map(([key, property]) => [key, property.examples?.[0]]),
  );
  const path = endpoint.path.replace(/\{(\w+)\}/g, (_, key: string) =>
    encodeURIComponent(String((key === "site_id" ? site : undefined) ?? parameters[key])),
  );
  const [example = {}] = examples;
  const named =
    site === undefined
      ? {}
      : {
          ...("site_id" in example && { site_id: site }),
          ...("site_ids" in example && { site_ids: [site] }),
        };
  const response = await demo.server.fetch(`http://readout${path}`, {
    method: endpoint.method,
    headers: { authorization: `Bearer ${token}`, accept },
    ...(endpoint.method === "POST" && { body: JSON.stringify({ ...example, ...named }) }),
  });
  const { date: _date, "x-request-id": _id, ...headers } = Object.fromEntries(response.headers);
  // A tail has no end.
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
  if (isStream) await response.body?.cancel();
  return { status: response.status, body: isStream ? "" : await response.text(), headers };
}

const scoped = operations.flatMap((endpoint) =>
  endpoint.scope === "none" ? [] : [{ endpoint, name: endpoint.name, scope: endpoint.scope }],
);

test.each(scoped)("$name needs the scope $scope and no other", async ({ endpoint, scope }) => {
  const missing = await ask(only(scope), endpoint, "no-such-site");
  expect(missing).toMatchObject({ status: 404, body: '{"error":"Not found"}' });
  expect(await ask(without(scope), endpoint)).toEqual(missing);
  const { status, body } = await ask(only(scope), endpoint);
  // A deploy of that revision, or a metric, may not be there.
  if (status !== 200) expect(await ask("demo-token", endpoint)).toMatchObject({ status, body });
  for (const other of scopes) {
    const allowed = other === scope;
    const answer = await ask(only(other), endpoint);
    if (!allowed) expect(answer, other).toEqual(missing);
  }
});

test("operations of each kind of data need the scope of that name", () => {
  const families = new Set(scoped.map(({ name, scope }) => `${name.split(".", 1)}: ${scope}`));
  expect([...families].sort()).toEqual([
    "deploys: deploys",
    "kubernetes: kubernetes",
    "logs: logs",
    "metrics: metrics",
    "tracing: tracing",
  ]);
  const open = operations.filter(({ scope }) => scope === "none").map(({ name }) => name);
  expect(open.sort()).toEqual(["auth", "check_ins.test_cron", "saved_visuals.csv", "saved_visuals.get"]);
});

describe("what needs no scope", () => {
  test.each(operations.filter(({ scope }) => scope === "none"))("$name", async (endpoint) => {
    const expected = await ask("demo-token", endpoint);
    for (const scope of scopes) {
      const answer = await ask(only(scope), endpoint);
      if (endpoint.name === "auth") expect(answer.body).toBe('{"message":"Authenticated as ana"}');
      else expect(answer).toEqual(expected);
    }
  });
});

describe("forms of log lines", () => {
  const lines = operations.find(({ name }) => name === "logs.lines") as Endpoint;
  test.each(lines.representations)("$mediaType needs $scope beside logs", async ({ mediaType, scope }) => {
    const missing = await ask("demo-token", lines, "no-such-site", mediaType);
    expect(missing.status).toBe(404);
    for (const token of [without("logs"), without(scope), only("logs"), only(scope)]) {
      expect(await ask(token, lines, undefined, mediaType), token).toEqual(missing);
    }
    const other = scope === "tail" ? "export" : "tail";
    expect((await ask(without(other), lines, undefined, mediaType)).status).toBe(200);
  });
});

describe("GraphQL", () => {
  const post = async (token: string, query: string) => {
    const response = await demo.server.fetch("http://readout/graphql", {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ query }),
    });
    return { status: response.status, text: await response.text() };
  };

  test("needs the scope graphql", async () => {
    const refused = await post(without("graphql"), "{ __typename }");
    expect(refused.status).toBe(404);
    expect(JSON.parse(refused.text)).toEqual({
      errors: [{ message: "Not found", extensions: { status: 404 } }],
    });
    expect((await post(only("graphql"), "{ __typename }")).status).toBe(200);
  });

  test("opens no operation by itself: each field needs the scope of its operation", async () => {
    const query = (site: string) => `{ metrics_names(site_id: "${site}") }`;
    const missing = JSON.parse((await post(without("metrics"), query("no-such-site"))).text);
    expect(missing.errors[0].extensions.status).toBe(404);
    expect(JSON.parse((await post(without("metrics"), query("demo-shop"))).text)).toEqual(missing);
    expect(JSON.parse((await post(without("logs"), query("demo-shop"))).text)).not.toHaveProperty("errors");
  });

  test("links into a part without its scope fail as for a foreign site", async () => {
    const query = `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "trace_id:a", pagination: { per_page: 1, order: DESC }) {
      trace { spans { span_id } }
    } }`;
    expect(JSON.parse((await post("demo-token", query)).text)).not.toHaveProperty("errors");
    const refused = JSON.parse((await post(without("tracing"), query)).text);
    expect(refused.errors[0]).toMatchObject({ message: "Not found", extensions: { status: 404 } });
  });
});

test("the sites of a token lack the parts that it has no scope for", async () => {
  const view = createSiteViews(
    connectSites(
      buildDemoConfig(0, "t"),
      new Map([["memory", memory.create("memory", memory.parseConfig({}), testIO)]]),
    ),
  );
  const list = (allowed: readonly Scope[]) => {
    const hasScope = (scope: Scope) => allowed.includes(scope);
    const site = view({ maySee: () => true, hasScope }).get("demo-shop");
    return ["logs", "traces", "metrics", "kubernetes"].filter(
      (part) => site?.[part as keyof typeof site] !== undefined,
    );
  };
  expect(list(scopes)).toEqual(["logs", "traces", "metrics", "kubernetes"]);
  expect(list(["logs", "tail"])).toEqual(["logs"]);
  expect(list(["deploys"])).toEqual(["traces"]);
  expect(list(["graphql", "mcp"])).toEqual([]);
});
