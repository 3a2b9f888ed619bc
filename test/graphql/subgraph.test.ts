// What gateways that compose subgraphs ask for: the schema with its keys, and objects by them.
import { createHash } from "node:crypto";
import { composeServices } from "@theguild/federation-composition";
import fc from "fast-check";
import { isObjectType, parse } from "graphql";
import { afterAll, describe, expect, test } from "vitest";
import { run } from "#src/cli/schema.ts";
import { clientTypes } from "#src/graphql/existing-clients/client-schema.ts";
import { schema } from "#src/graphql/schema.ts";
import type { Backend } from "#src/store/backend.ts";
import { createCallLog } from "../support/call-log.ts";
import { createDemo } from "../support/demo-server.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const { asked, counted } = createCallLog();
const watch = (backend: Backend): Backend => {
  const { logs, traces, kubernetes } = backend.stores;
  if (logs === undefined || traces === undefined || kubernetes === undefined) throw new Error("no stores");
  return {
    ...backend,
    stores: {
      ...backend.stores,
      logs: { ...logs, lines: counted("logs.lines", logs.lines) },
      traces: {
        ...traces,
        find: counted("traces.find", traces.find),
        statsOfRevisions: counted("traces.statsOfRevisions", traces.statsOfRevisions),
      },
      kubernetes: { ...kubernetes, pods: counted("kubernetes.pods", kubernetes.pods) },
    },
  };
};
const hash = (token: string) => createHash("sha256").update(token).digest("hex");
const demo = await createDemo({
  watch,
  tokens: [
    { user: "ana", sha256: hash("blog"), sites: ["demo-blog"] },
    { user: "bo", sha256: hash("graphql"), sites: ["demo-shop"], scopes: ["graphql"] },
  ],
});
afterAll(() => demo.close());

const fields = `{
  __typename
  ... on Site { id sources }
  ... on Trace { site_id trace_id spans { span_id } log_lines(limit: 3) { id } }
  ... on Pod { site_id namespace name row { pod_name state } log_lines(minutes: 5, limit: 3) { id } }
  ... on LogLine { site_id source_id timestamp id message }
  ... on Deploy { site_id revision stats { throughput } }
}`;
interface Entity {
  readonly __typename: string;
  readonly id?: string;
  readonly message?: string;
  readonly spans?: readonly object[];
  readonly log_lines?: readonly object[];
  readonly row?: Readonly<Record<string, unknown>>;
  readonly stats?: Readonly<Record<string, unknown>>;
}

async function findEntities(representations: readonly object[], token?: string) {
  asked.length = 0;
  const query = `query ($representations: [_Any!]!) { _entities(representations: $representations) ${fields} }`;
  const body = JSON.stringify({ query, variables: { representations } });
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const init = token === undefined ? {} : { body, headers };
  const { data, errors } = await demo.graphql(query, { representations }, init);
  return { entities: data?._entities as readonly (Entity | null)[], errors };
}

const sites = { site_ids: ["demo-shop"], from: "2026-01-15T11:00:00Z", to: "2026-01-15T12:00:00Z" };
const lines = (await readRows("/api/v2/logs/lines", {
  site_id: "demo-shop",
  source_ids: ["app", "nginx"],
  query: "",
  pagination: { per_page: 200, order: "DESC" },
})) as readonly { id: string; source_id: string; timestamp: string; message: string }[];
const traces = (await readRows("/api/v2/tracing/traces/performance", {
  ...sites,
  pagination: { per_page: 50 },
})) as readonly { trace_id: string; revision: string }[];
const pods = (await readRows("/api/v2/kubernetes/pods", {
  site_id: "demo-shop",
  from: "2026-01-15T12:00:00Z",
  to: "2026-01-15T12:00:00Z",
})) as readonly { pod_name: string; pod_namespace: string; state: string }[];

async function readRows(path: string, body: object): Promise<unknown> {
  const answer = await demo.rest("POST", path, body);
  expect(answer.status).toBe(200);
  return answer.body;
}

const site_id = "demo-shop";
const toLineKey = ({ id, source_id, timestamp }: (typeof lines)[number]) => ({
  __typename: "LogLine",
  site_id,
  source_id,
  timestamp,
  id,
});
const toPodKey = ({ pod_name: name, pod_namespace: namespace }: (typeof pods)[number]) => ({
  __typename: "Pod",
  site_id,
  namespace,
  name,
});
const toTraceKey = (trace_id: string) => ({ __typename: "Trace", site_id, trace_id });
const revisions = [...new Set(traces.map(({ revision }) => revision))];
const known = [
  { __typename: "Site", id: site_id },
  ...lines.slice(0, 3).map(toLineKey),
  ...pods.slice(0, 3).map(toPodKey),
  ...traces.slice(0, 3).map(({ trace_id }) => toTraceKey(trace_id)),
  ...revisions.slice(0, 1).map((revision) => ({ __typename: "Deploy", site_id, revision })),
];

describe("the schema", () => {
  test("composes with a subgraph of somebody else, which knows pods and lines by their keys", async () => {
    const shell = createShell({ now: toInstant("2026-01-15T12:00:00Z") });
    expect(await run(["--subgraph"], shell)).toBe(0);
    const alerts = `
      extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key"])
      type Query { alerts: [Alert!]! viewer: Alert }
      type Alert { name: String! pod: Pod line: LogLine deploy: Deploy }
      type Pod @key(fields: "site_id namespace name") {
        site_id: String! namespace: String! name: String! alerts: [Alert!]!
      }
      type Deploy @key(fields: "site_id revision") { site_id: String! revision: String! author: String }
      type LogLine @key(fields: "site_id source_id timestamp id") {
        site_id: String! source_id: String! timestamp: DateTime! id: String! note: String
      }
      scalar DateTime`;
    const { supergraphSdl, errors } = composeServices([
      { name: "readout", url: "http://readout/graphql", typeDefs: parse(shell.printed()) },
      { name: "alerts", url: "http://alerts/graphql", typeDefs: parse(alerts) },
    ]);
    expect(errors).toBeUndefined();
    expect(supergraphSdl).toContain("logs_lines");
  });

  test("is what `_service` answers, and has every type and field but those for existing clients", async () => {
    const shell = createShell({ now: toInstant("2026-01-15T12:00:00Z") });
    await run(["--subgraph"], shell);
    const { data } = await demo.graphql("{ _service { sdl } }");
    expect(data?._service).toEqual({ sdl: shell.printed() });
    const printed = new Map(
      parse(shell.printed()).definitions.flatMap((node) =>
        "name" in node && node.name ? [[node.name.value, node]] : [],
      ),
    );
    const others = new Set(
      parse(clientTypes).definitions.flatMap((node) =>
        node.kind !== "ObjectTypeExtension" && "name" in node && node.name ? [node.name.value] : [],
      ),
    );
    for (const [name, type] of Object.entries(schema.getTypeMap())) {
      const isOwn = !/^_|^(?:Boolean|Float|Int|String|ID)$/.test(name) && !others.has(name);
      expect(printed.has(name), name).toBe(isOwn);
      const node = printed.get(name);
      if (!isObjectType(type) || node?.kind !== "ObjectTypeDefinition" || name === "Query") continue;
      expect(node.fields?.map((field) => field.name.value)).toEqual(Object.keys(type.getFields()).toSorted());
    }
    const query = printed.get("Query");
    const names =
      query?.kind === "ObjectTypeDefinition" ? query.fields?.map((field) => field.name.value) : [];
    expect(names).toContain("pod");
    expect(names).not.toContain("viewer");
    expect(names).not.toContain("_entities");
  });
});

describe("objects by their keys", () => {
  test("are those of the routes, at their place", async () => {
    const { entities, errors } = await findEntities(known);
    expect(errors).toBeUndefined();
    expect(entities).toHaveLength(known.length);
    for (const [at, entity] of entities.entries()) expect(entity).toMatchObject(known[at] ?? {});
    for (const [at, line] of lines.slice(0, 3).entries())
      expect(entities[1 + at]?.message).toBe(line.message);
    for (const [at, pod] of pods.slice(0, 3).entries())
      expect(entities[4 + at]?.row).toEqual({ pod_name: pod.pod_name, state: pod.state });
    for (const entity of entities.slice(7, 10)) expect(entity?.spans?.length).toBeGreaterThan(0);
    const deploy = await readRows("/api/v2/deploys/stats", { site_id, revision: revisions[0] });
    expect(deploy).toMatchObject(entities[10]?.stats ?? {});
  });

  test("two hundred of a kind are one request to the source", async () => {
    expect(lines).toHaveLength(200);
    const found = await findEntities(lines.map(toLineKey));
    expect(found.entities.map((one) => one?.id)).toEqual(lines.map(({ id }) => id));
    expect(asked).toEqual(["logs.lines"]);
    await findEntities(traces.map(({ trace_id }) => toTraceKey(trace_id)));
    expect(asked).toEqual(["traces.find", "logs.lines"]);
    await findEntities(pods.map(toPodKey));
    expect(asked).toEqual(["kubernetes.pods", "logs.lines"]);
    expect(revisions.length).toBeGreaterThan(1);
    const deploys = revisions.map((revision) => ({ __typename: "Deploy", site_id, revision }));
    const known = await findEntities([...deploys, ...deploys]);
    expect(asked).toEqual(["traces.statsOfRevisions"]);
    expect(known.entities).toHaveLength(2 * revisions.length);
    for (const [at, entity] of known.entities.entries()) {
      const revision = revisions[at % revisions.length];
      expect(await readRows("/api/v2/deploys/stats", { site_id, revision })).toMatchObject(
        entity?.stats ?? {},
      );
    }
  });

  test("a trace is the same by each spelling of its id", async () => {
    const keys = traces.slice(0, 3).map(({ trace_id }) => toTraceKey(trace_id));
    const upper = keys.map((key) => ({ ...key, trace_id: key.trace_id.toUpperCase() }));
    expect(upper).not.toEqual(keys);
    const { entities } = await findEntities(upper);
    expect(entities).toEqual((await findEntities(keys)).entities);
    expect(entities.every((one) => one?.log_lines?.length)).toBe(true);
  });

  test("one that is not there is null, and so is one that the token may not see", async () => {
    const absent = known.map((key) => ({
      ...key,
      site_id: "demo-shop",
      id: "none",
      trace_id: "0",
      name: "none",
      revision: "none",
    }));
    const foreign = await findEntities(known, "blog");
    expect(await findEntities(absent)).toEqual(foreign);
    expect(foreign.entities).toEqual(known.map(() => null));
    const unscoped = await findEntities(known.slice(1), "graphql");
    expect(unscoped).toEqual({ entities: known.slice(1).map(() => null), errors: undefined });
    expect(asked).toEqual([]);
    const elsewhere = known.slice(1).map((key) => ({ ...key, site_id: "nowhere" }));
    expect((await findEntities(elsewhere)).entities).toEqual(elsewhere.map(() => null));
  });

  test("those of a site without the part are null", async () => {
    const bare = await createDemo({
      site: ({ logs, traces, reports, kubernetes, ...site }) => site,
    });
    const query = `query ($representations: [_Any!]!) { _entities(representations: $representations) ${fields} }`;
    const { data, errors } = await bare.graphql(query, { representations: known.slice(1) });
    expect(errors).toBeUndefined();
    expect(data).toEqual({ _entities: known.slice(1).map(() => null) });
    await bare.close();
  });

  test("neither the order nor what is asked beside it changes an answer", async () => {
    const { entities } = await findEntities(known);
    await fc.assert(
      fc.asyncProperty(fc.shuffledSubarray([...known.keys()]), async (chosen) => {
        const some = await findEntities(chosen.map((at) => known[at] ?? {}));
        expect(some.entities).toEqual(chosen.map((at) => entities[at]));
      }),
      { numRuns: 5 },
    );
  });

  test("a key that is none is an error of its own", async () => {
    const wrong = [
      { __typename: "Span", span_id: "1" },
      { __typename: "Pod", site_id },
      { ...known[1], id: 7 },
      {},
    ];
    const { entities, errors } = await findEntities([...wrong, ...known.slice(0, 1)]);
    expect(entities.map((one) => one?.__typename)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      "Site",
    ]);
    expect(errors?.map(({ path }) => path)).toEqual(wrong.map((_, at) => ["_entities", at]));
    expect(errors?.[1]).toMatchObject({
      extensions: { slug: "invalid_request", details: { issues: [{ path: "representations.namespace" }] } },
    });
  });

  test("a request asks for a thousand at most, by whichever aliases", async () => {
    const ask = async (count: number, aliases: number) => {
      const fields = Array.from(
        { length: aliases },
        (_, n) => `a${n}: _entities(representations: $representations) { __typename }`,
      );
      const representations = Array.from({ length: count }, () => ({ __typename: "Site", id: "demo-shop" }));
      return demo.graphql(`query ($representations: [_Any!]!) { ${fields.join(" ")} }`, { representations });
    };
    expect((await ask(500, 2)).errors).toBeUndefined();
    for (const [count, aliases] of [
      [1_001, 1],
      [501, 2],
    ] as const) {
      expect((await ask(count, aliases)).errors?.at(-1)).toMatchObject({
        extensions: {
          slug: "invalid_request",
          details: { issues: [{ path: "representations", message: "expected at most 1000 in a request" }] },
        },
      });
    }
  });

  test("a row leads to its pod, and a line to its site", async () => {
    const { data, errors } = await demo.graphql(`{
      kubernetes_pods(site_id: "demo-shop", from: "2026-01-15T12:00:00Z", to: "2026-01-15T12:00:00Z") {
        pod_name pod_namespace pod { site_id namespace name row { pod_name } }
      }
      logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: 1, order: DESC }) { site_id }
      pod(site_id: "demo-shop", namespace: "default", name: "none") { name }
    }`);
    expect(errors).toBeUndefined();
    expect(data?.logs_lines).toEqual([{ site_id }]);
    expect(data?.pod).toBeNull();
    expect(data?.kubernetes_pods).not.toEqual([]);
    for (const row of (data?.kubernetes_pods ?? []) as {
      pod_name: string;
      pod_namespace: string;
      pod: object;
    }[]) {
      const { pod_name: name, pod_namespace: namespace, pod } = row;
      expect(pod).toEqual({ site_id, namespace, name, row: { pod_name: name } });
    }
  });
});
