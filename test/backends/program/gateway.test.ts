// Behind a gateway of another hand: two Readouts, one asked for Kubernetes and one for all else, and a subgraph of somebody else,
// composed and served by Hive Gateway. What clients get through it is what Readout answers them directly.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { composeServices } from "@theguild/federation-composition";
import { Kind, parse, visit } from "graphql";
import { createSchema, createYoga } from "graphql-yoga";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { run as printSchema } from "#src/cli/schema.ts";
import { installNpmPackage } from "../../servers/npm-package.ts";
import { createDemo, type Demo, token } from "../../support/demo-server.ts";
import { createShell, toInstant } from "../../support/fake-shell.ts";
import { endAll, start } from "../../support/process.ts";

const link = `extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key"])`;
const ownTypes = `
  type Query { alerts: [Alert!]! }
  type Alert { name: String! pod: Pod! trace: Trace }
  type Pod @key(fields: "site_id namespace name") {
    site_id: String! namespace: String! name: String! alerts: [Alert!]!
  }
  type Trace @key(fields: "site_id trace_id") { site_id: String! trace_id: String! }`;

interface Pod {
  readonly site_id: string;
  readonly namespace: string;
  readonly name: string;
}
interface Alert {
  readonly name: string;
  readonly pod: Pod;
  readonly trace: { readonly site_id: string; readonly trace_id: string };
}

/** Who knows of pods and traces by their keys alone. */
function createAlerts(alerts: readonly Alert[]) {
  const typeDefs = `
    directive @key(fields: String!) on OBJECT
    ${ownTypes}
    scalar _Any
    union _Entity = Pod
    type _Service { sdl: String! }
    extend type Query { _entities(representations: [_Any!]!): [_Entity]! _service: _Service! }`;
  const resolvers = {
    Query: {
      alerts: () => alerts,
      _entities: (_: unknown, { representations }: { readonly representations: readonly Pod[] }) =>
        representations,
      _service: () => ({ sdl: `${link}\n${ownTypes}` }),
    },
    Pod: { alerts: ({ name }: Pod) => alerts.filter(({ pod }) => pod.name === name) },
    _Entity: { __resolveType: () => "Pod" },
  };
  return createServer(createYoga({ schema: createSchema({ typeDefs, resolvers }), logging: false }));
}

/** The subgraph with these fields of `Query` alone. Both know the same types, so that each may be asked for them. */
function takePart(subgraph: string, isTaken: (field: string) => boolean) {
  const shared = subgraph
    .replace('"@key"', '"@key", "@shareable"')
    .replaceAll(/^type (?!Query|Subscription)\w+/gm, "$& @shareable");
  return visit(parse(shared), {
    [Kind.OBJECT_TYPE_DEFINITION]: (node) => {
      if (node.name.value === "Subscription") return isTaken("log_lines") ? undefined : null;
      if (node.name.value !== "Query") return undefined;
      return { ...node, fields: node.fields?.filter(({ name }) => isTaken(name.value)) };
    },
  });
}

async function listenAnywhere(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

const readouts: Demo[] = [];
let alerts: ReturnType<typeof createAlerts>;
let known: readonly Alert[] = [];
let address = "";
let direct = "";
const folder = mkdtempSync(join(tmpdir(), "readout-gateway-"));

async function ask(at: string, query: string, bearer = token) {
  const headers = { authorization: `Bearer ${bearer}`, "content-type": "application/json" };
  const answer = await fetch(at, { method: "POST", headers, body: JSON.stringify({ query }) });
  return answer.json();
}

const selection = `site_id: "demo-shop", source_ids: ["app"], use_expressions: true, query: "trace_id:a"`;
const blogToken = "token-for-the-blog";

beforeAll(async () => {
  const programs = installNpmPackage("@graphql-hive/gateway", "2.15.1");
  const tokens = [{ user: "bo", sha256: hashToken(blogToken), sites: ["demo-blog"] }];
  const listening: string[] = [];
  for (const _ of ["logs", "kubernetes"]) {
    const demo = await createDemo({ tokens });
    readouts.push(demo);
    const { port } = await demo.server.listen({ host: "127.0.0.1", port: 0 });
    listening.push(`http://127.0.0.1:${port}/graphql`);
  }
  direct = listening[0] ?? "";
  const { data } = await ask(
    direct,
    `{ kubernetes_pods(site_id: "demo-shop", from: "2026-01-15T12:00:00Z", to: "2026-01-15T12:00:00Z") { pod { site_id namespace name } }
       tracing_traces_performance(site_ids: ["demo-shop"], from: "2026-01-15T11:00:00Z", to: "2026-01-15T12:00:00Z", pagination: { per_page: 3 }) { site_id trace_id } }`,
  );
  const pods: readonly Pod[] = data.kubernetes_pods.map(({ pod }: { readonly pod: Pod }) => pod);
  known = pods
    .slice(0, 3)
    .map((pod, at) => ({ name: `alert ${at}`, pod, trace: data.tracing_traces_performance[at] }));
  alerts = createAlerts(known);
  const alertsPort = await listenAnywhere(alerts);
  const shell = createShell({ now: toInstant("2026-01-15T12:00:00Z") });
  await printSchema(["--subgraph"], shell);
  const [logs = "", kubernetes = ""] = listening;
  const isOfKubernetes = (field: string) => /^(?:kubernetes_|pod$)/.test(field);
  const { supergraphSdl, errors } = composeServices([
    { name: "logs", url: logs, typeDefs: takePart(shell.printed(), (field) => !isOfKubernetes(field)) },
    { name: "kubernetes", url: kubernetes, typeDefs: takePart(shell.printed(), isOfKubernetes) },
    {
      name: "alerts",
      url: `http://127.0.0.1:${alertsPort}/graphql`,
      typeDefs: parse(`${link}\n${ownTypes}`),
    },
  ]);
  expect(errors).toBeUndefined();
  writeFileSync(join(folder, "supergraph.graphql"), supergraphSdl ?? "");
  // As the guide has it.
  const guide = readFileSync(
    new URL("../../../docs/how-to/put-it-behind-your-gateway.md", import.meta.url),
    "utf8",
  );
  const config = /^```js\n([\s\S]*?)^```$/m.exec(guide)?.[1] ?? "";
  writeFileSync(join(folder, "gateway.config.mjs"), config);
  const reserved = createServer();
  const port = await listenAnywhere(reserved);
  await new Promise((resolve) => reserved.close(resolve));
  const options = ["-h", "127.0.0.1", "-p", String(port), "-c", join(folder, "gateway.config.mjs")];
  const args = [join(programs, "hive-gateway"), "supergraph", join(folder, "supergraph.graphql"), ...options];
  const { told } = start(process.execPath, args);
  address = `http://127.0.0.1:${port}/graphql`;
  const awaitReady = async () => {
    const { status } = await fetch(`http://127.0.0.1:${port}/readiness`);
    if (status !== 200) throw new Error(told.err);
  };
  await vi.waitFor(awaitReady, { timeout: 200_000, interval: 200 });
});
afterAll(async () => {
  endAll();
  alerts?.close();
  for (const demo of readouts) {
    await demo.server.close(0);
    await demo.close();
  }
  rmSync(folder, { recursive: true });
});

const requestsOf = (demo: Demo | undefined) =>
  demo?.logged().match(/"operation":"graphql","status":200/g)?.length ?? 0;

test("a query of all three is answered as directly, with the objects that the foreign subgraph names", async () => {
  const range = `from: "2026-01-15T12:00:00Z", to: "2026-01-15T12:00:00Z"`;
  const own = `
    logs_lines(${selection}, pagination: { per_page: 20, order: DESC }) { id message json trace { trace_id spans { span_id } } }
    kubernetes_pods(site_id: "demo-shop", ${range}) { pod_name state cpu(minutes: 3) { cpu_usage_nano_cores } }`;
  const before = readouts.map(requestsOf);
  const through = await ask(
    address,
    `{ ${own} alerts { name pod { row { pod_name state } log_lines(minutes: 5, limit: 2) { id } alerts { name } } trace { spans { span_id } } } }`,
  );
  expect(through.errors).toBeUndefined();
  const { alerts: found, ...others } = through.data;
  for (const [at, demo] of readouts.entries()) expect(requestsOf(demo)).toBeGreaterThan(before[at] ?? 0);
  expect(others).toEqual((await ask(direct, `{ ${own} }`)).data);
  expect(others.logs_lines).toHaveLength(20);
  const entities = `query ($keys: [_Any!]!) { _entities(representations: $keys) {
    ... on Pod { row { pod_name state } log_lines(minutes: 5, limit: 2) { id } }
    ... on Trace { spans { span_id } } } }`;
  const keys = known.flatMap(({ pod, trace }) => [
    { __typename: "Pod", ...pod },
    { __typename: "Trace", ...trace },
  ]);
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const body = JSON.stringify({ query: entities, variables: { keys } });
  const { data } = await (await fetch(direct, { method: "POST", headers, body })).json();
  expect(data._entities).not.toContain(null);
  expect(found).toEqual(
    known.map(({ name }, at) => ({
      name,
      pod: { ...data._entities[2 * at], alerts: [{ name }] },
      trace: data._entities[2 * at + 1],
    })),
  );
});

test("the token of the client decides what it sees", async () => {
  const query = "{ sites { id } alerts { name pod { name row { pod_name } } } }";
  const { data } = await ask(address, query, blogToken);
  expect(data.sites).toEqual([{ id: "demo-blog" }]);
  expect(data.alerts).toHaveLength(3);
  for (const { pod } of data.alerts) expect(pod?.row ?? null).toBeNull();
  expect((await ask(address, "{ sites { id } }", "wrong")).errors).not.toEqual([]);
  const refused = await ask(
    address,
    `{ logs_lines(${selection.replace("trace_id:a", "(")}, pagination: { per_page: 1, order: DESC }) { id } }`,
  );
  expect(refused.errors[0].extensions).toMatchObject({ status: 422, slug: "invalid_log_query" });
});

test("a subscription passes it", async () => {
  const range = `from: "2026-01-15T11:00:00Z", to: "2026-01-15T11:05:00Z"`;
  const query = `subscription { log_lines(${selection}, ${range}) { id message } }`;
  const listen = async (at: string) => {
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "text/event-stream",
    };
    const answer = await fetch(at, { method: "POST", headers, body: JSON.stringify({ query }) });
    const texts = [...(await answer.text()).matchAll(/^data: (\{.*\})$/gm)];
    return texts.flatMap(([, text = ""]) => JSON.parse(text).data.log_lines);
  };
  const lines = await listen(direct);
  expect(lines).not.toEqual([]);
  expect(await listen(address)).toEqual(lines);
});
