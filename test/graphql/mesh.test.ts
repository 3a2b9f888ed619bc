// `.meshrc.yaml`: what Mesh makes of it with our source alone, with a second one beside it, and when it is wrong; what
// `check` and a reload say of one's own.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createGzip } from "node:zlib";
import { type GraphQLSchema, isObjectType } from "graphql";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { run as check } from "#src/cli/check/check.ts";
import { createGraphqlLoader } from "#src/cli/support/graphql-loader.ts";
import { BackendError } from "#src/core/errors.ts";
import { loadMesh } from "#src/graphql/mesh.ts";
import { createDemo } from "../support/demo-server.ts";
import { createWatchedTelemetry } from "../support/error-reports.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const own = fileURLToPath(new URL("../../.meshrc.yaml", import.meta.url));
const prefixTransform = fileURLToPath(new URL("prefix-transform.ts", import.meta.url));
const quiet = { log: () => {} };
const page = `site_id: "demo-shop", source_ids: ["app"], use_expressions: true, query: "trace_id:a", pagination: { per_page: 3, order: DESC }`;
const linked = `{ logs_lines(${page}) { id trace { trace_id spans { span_id span_kind } } pod { pod_name } } }`;

/** A service of somebody else, with an OpenAPI document: who is on call for a site. */
const calls: string[] = [];
const service = createServer((request, response) => {
  calls.push(request.url ?? "");
  const site = /^\/oncall\/([^/]+)$/.exec(request.url ?? "")?.[1];
  response.setHeader("content-type", "application/json");
  if (request.url === "/openapi.json") response.end(JSON.stringify(document));
  else if (site === "demo-blog") answerWithoutEnd(response);
  else if (request.url === "/viewer") response.end('{"id":"a stranger"}');
  else if (site === "demo-shop") response.end('{"person":"Ana","since":"2026-01-12"}');
  else response.writeHead(500).end('{"error":"secret of the other service"}');
});
/** Compressed, a mebibyte in a kilobyte, until nobody reads it. */
let withoutEnd = { mebibytes: 0, closed: false };
function answerWithoutEnd(response: ServerResponse): void {
  const gzip = createGzip();
  response.writeHead(200, { "content-encoding": "gzip" });
  gzip.pipe(response);
  const blanks = Buffer.alloc(1_048_576, " ");
  const write = () => {
    while (!response.closed && withoutEnd.mebibytes < 10_000) {
      withoutEnd.mebibytes += 1;
      if (!gzip.write(blanks)) return void gzip.once("drain", write);
    }
    gzip.end();
  };
  response.on("close", () => {
    withoutEnd.closed = true;
    gzip.destroy();
  });
  write();
}
let document: object;
let port = 0;
beforeAll(async () => {
  await new Promise<void>((resolve) => service.listen(0, "127.0.0.1", resolve));
  const address = service.address();
  port = typeof address === "object" && address !== null ? address.port : 0;
  document = {
    openapi: "3.0.0",
    info: { title: "On call", version: "1" },
    servers: [{ url: `http://127.0.0.1:${port}` }],
    paths: {
      "/viewer": {
        get: {
          operationId: "viewer",
          responses: {
            200: {
              description: "Called as a field of ours",
              content: {
                "application/json": {
                  schema: { type: "object", title: "Stranger", properties: { id: { type: "string" } } },
                },
              },
            },
          },
        },
      },
      "/oncall/{site}": {
        get: {
          operationId: "onCall",
          parameters: [{ name: "site", in: "path", required: true, schema: { type: "string" } }],
          responses: {
            200: {
              description: "Who is on call",
              content: {
                "application/json": {
                  schema: {
                    type: "object",
                    title: "Duty",
                    properties: { person: { type: "string" }, since: { type: "string" } },
                  },
                },
              },
            },
          },
        },
      },
    },
  };
});
afterAll(() => service.close());

const beside = () => `
sources:
  - name: telemetry
    handler: { graphql: { source: ./src/graphql.ts#schema } }
  - name: duty
    handler:
      openapi: { source: "http://127.0.0.1:${port}/openapi.json" }
additionalTypeDefs: |
  extend type Site { on_call: Duty }
additionalResolvers:
  - targetTypeName: Site
    targetFieldName: on_call
    requiredSelectionSet: "{ id }"
    sourceName: duty
    sourceTypeName: Query
    sourceFieldName: onCall
    sourceArgs: { site: "{root.id}" }
`;

describe("our source alone", { timeout: 240_000 }, () => {
  test("is merged bare, and links and errors are as without Mesh", async () => {
    const text = await readFile(own, "utf8");
    const unified = await loadMesh({ file: own, text, ...quiet });
    expect(unified.stitched).toBe(false);
    const through = await createDemo({ graphql: async () => unified });
    const without = await createDemo();
    for (const query of [
      linked,
      `{ logs_lines(site_id: "nope", source_ids: ["app"], query: "", pagination: { per_page: 1, order: ASC }) { id } }`,
      `{ auth { message } nope }`,
    ]) {
      expect(await through.graphql(query)).toEqual(await without.graphql(query));
    }
    await Promise.all([through.close(), without.close()]);
  });
});

describe("a source beside ours", { timeout: 240_000 }, () => {
  test("is joined to a site; links and errors stay what they are", async () => {
    const unified = await loadMesh({ file: own, text: beside(), ...quiet });
    expect(unified.stitched).toBe(true);
    const through = await createDemo({ graphql: async () => unified });
    const without = await createDemo();
    expect(await through.graphql(linked)).toEqual(await without.graphql(linked));
    const joined = await through.graphql(`{ site(id: "demo-shop") { id on_call { person since } } }`);
    expect(joined).toEqual({
      status: 200,
      data: { site: { id: "demo-shop", on_call: { person: "Ana", since: "2026-01-12" } } },
    });
    expect(calls).toContain("/oncall/demo-shop");
    const refused = `{ logs_lines(site_id: "demo-shop", source_ids: ["x"], query: "", pagination: { per_page: 1, order: ASC }) { id } }`;
    const withVariable = "query ($id: String!) { site(id: $id) { id } }";
    const wrong = await through.graphql(withVariable, { id: 1 });
    expect(wrong.errors).toHaveLength(1);
    expect(wrong).toEqual(await without.graphql(withVariable, { id: 1 }));
    const { errors } = await through.graphql(refused);
    expect(errors?.[0]?.extensions).toEqual((await without.graphql(refused)).errors?.[0]?.extensions);
    await Promise.all([through.close(), without.close()]);
  });

  test("has the rows of a long list completed in turns of the event loop", async () => {
    const unified = await loadMesh({ file: own, text: beside(), ...quiet });
    const type = unified.schema.getType("LogLine");
    if (!isObjectType(type)) throw new Error("no type LogLine");
    const { id } = type.getFields();
    if (id === undefined) throw new Error("no field LogLine.id");
    let inTurn = 0;
    let most = 0;
    id.resolve = () => {
      inTurn += 1;
      most = Math.max(most, inTurn);
      if (inTurn === 1)
        setImmediate(() => {
          inTurn = 0;
        });
      // Some time passes, as with a field that costs more.
      for (const until = performance.now() + 0.1; performance.now() < until; );
      return "id";
    };
    const demo = await createDemo({ graphql: async () => unified });
    const names = Array.from({ length: 9 }, (_, at) => `a${at}: message`).join(" ");
    const query = `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "",
      pagination: { per_page: 2000, order: DESC }) { id ${names} } }`;
    const { data, errors } = await demo.graphql(query);
    expect(errors).toBeUndefined();
    expect(data?.logs_lines).toHaveLength(2_000);
    expect(most).toBeLessThan(500);
    await demo.close();
  });

  test("refuses more keys than a request may have, whichever alias is the one too many", async () => {
    const unified = await loadMesh({ file: own, text: beside(), ...quiet });
    const demo = await createDemo({ graphql: async () => unified });
    const field = "_entities(representations: $keys) { __typename }";
    const ask = (count: number) => {
      const keys = Array.from({ length: count }, () => ({ __typename: "Site", id: "demo-shop" }));
      return demo.graphql(`query ($keys: [_Any!]!) { a: ${field} b: ${field} }`, { keys });
    };
    expect((await ask(501)).errors).toMatchObject([{ extensions: { status: 422, slug: "invalid_request" } }]);
    expect((await ask(500)).errors).toBeUndefined();
    await demo.close();
  });

  test("leaves `@partial` on a field of ours", async () => {
    const unified = await loadMesh({ file: own, text: beside(), ...quiet });
    const fail = () => Promise.reject(new BackendError("other", "unreachable", "it is down"));
    const demo = await createDemo({
      graphql: async () => unified,
      site: ({ metrics, ...site }) => ({
        ...site,
        partial: { label: () => "eu" },
        ...(metrics && {
          metrics: {
            ...metrics,
            backends: ["memory", "other"],
            store: { ...metrics.store, names: fail },
            openWithout: () => metrics.store,
          },
        }),
      }),
    });
    const names = `metrics_names(site_id: "demo-shop")`;
    const found = expect.arrayContaining(["transaction_duration"]);
    const missing = { extensions: { missing: ["eu"] } };
    const alone = await demo.graphql(`{ ${names} @partial }`);
    expect(alone.data).toEqual({ metrics_names: found });
    expect(alone.errors).toMatchObject([{ path: ["metrics_names"], ...missing }]);
    // Mesh renames fields with an alias for their source.
    const both = await demo.graphql(`{ glance: ${names} @partial whole: ${names} }`);
    expect(both.data).toEqual({ glance: found, whole: null });
    expect(both.errors).toMatchObject([{ path: ["whole"], extensions: { status: 500 } }, missing]);
    expect(both.errors?.[1]).not.toHaveProperty("path");
    await demo.close();
  });

  test("is given up where its answer has no end", async () => {
    withoutEnd = { mebibytes: 0, closed: false };
    const unified = await loadMesh({ file: own, text: beside(), ...quiet });
    const demo = await createDemo({ graphql: async () => unified });
    const { data, errors } = await demo.graphql(`{ site(id: "demo-blog") { id on_call { person } } }`);
    expect(data).toEqual({ site: { id: "demo-blog", on_call: null } });
    expect(errors?.map(({ message }) => message)).toEqual(["Internal server error"]);
    await expect.poll(() => withoutEnd.closed).toBe(true);
    expect(withoutEnd.mebibytes).toBeLessThan(1_000);
    await demo.close();
  });

  test("takes no field of ours, wherever it stands in the file", async () => {
    const [sources = "", rest = ""] = beside().split("additionalTypeDefs");
    const [head, first, second] = sources.split(/(?= {2}- name: )/);
    for (const text of [`${head}${first}${second}`, `${head}${second}${first}`]) {
      const unified = await loadMesh({ file: own, text: `${text}additionalTypeDefs${rest}`, ...quiet });
      const demo = await createDemo({ graphql: async () => unified });
      expect(await demo.graphql("{ viewer { id } }")).toEqual({
        status: 200,
        data: { viewer: { id: "demo" } },
      });
      await demo.close();
    }
    expect(calls).not.toContain("/viewer");
  });

  test("its errors say nothing of it", async () => {
    const unified = await loadMesh({ file: own, text: beside(), ...quiet });
    const demo = await createDemo({ graphql: async () => unified });
    const { data, errors } = await demo.graphql(`{ onCall(site: "demo-blog") { person } }`);
    expect(data).toEqual({ onCall: null });
    expect(errors).toEqual([
      expect.objectContaining({ message: "Internal server error", extensions: { status: 500 } }),
    ]);
    expect(demo.logged()).toContain("a GraphQL field failed");
    await demo.close();
  });
});

describe("a source with types of our names", { timeout: 240_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-mesh-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const load = (types: string, rest = "") => {
    const source = join(folder, "other.graphql");
    writeFileSync(source, types);
    const base = "sources:\n  - { name: telemetry, handler: { graphql: {} } }\n";
    const text = `${base}  - { name: other, handler: { graphql: { source: ${source} } }${rest} }\n`;
    return loadMesh({ file: own, text, ...quiet });
  };

  test.each([
    ["type Query { me: User } type User { id: ID! email: String }", "User"],
    [
      "type Query { mine: Pod open: [Incident] } type Pod { ip: String } type Incident { id: ID }",
      "Pod, Incident",
    ],
    ["type Query { at: DateTime } type DateTime { day: String }", "DateTime"],
    ["type Query { a: Mine } scalar Mine scalar Trace extend type Query { b: Trace }", "Trace"],
  ])("is refused: %s", async (types, names) => {
    const message = `source other: Readout has types of these names too: ${names}. Give the source a prefix`;
    await expect(load(types)).rejects.toThrow(message);
  });

  test("is refused with the first ten names", async () => {
    const names = [
      "Action",
      "CpuPoint",
      "Deploy",
      "DurationPoint",
      "LogLine",
      "Pod",
      "PodsRow",
      "Site",
      "SlowEvent",
      "Span",
    ];
    const fields = [...names, "Trace", "User"].map((name, at) => [
      `f${at}: ${name}`,
      `type ${name} { own: ID }`,
    ]);
    const types = `type Query { ${fields.map(([field]) => field).join(" ")} } ${fields.map(([, type]) => type).join(" ")}`;
    await expect(load(types)).rejects.toThrow(`${names.join(", ")} and 2 more. Give`);
  });

  test.each([
    [
      "a scalar and root types are shared",
      "type Query { at: DateTime } scalar DateTime type Mutation { a: Own } type Own { a: ID }",
    ],
    [
      "it is a subgraph",
      "type Query { _service: _Service _entities: [_Entity] } type _Service { sdl: String } union _Entity = Own type Own { a: ID }",
    ],
  ])("is served where %s", async (_, types) => {
    expect((await load(types)).stitched).toBe(true);
  });

  test.each([true, false])("is served where a transform gives them others (bare: %s)", async (bare) => {
    const transform = `{ ${prefixTransform}: { prefix: Own_, bare: ${bare} } }`;
    const { schema } = await load(
      "type Query { me: User } type User { id: ID! shoe_size: Int }",
      `, transforms: [${transform}]`,
    );
    expect(Object.keys(fieldsOf(schema, "Own_User"))).toEqual(["id", "shoe_size"]);
    expect(fieldsOf(schema, "User")).not.toHaveProperty("shoe_size");
  });
});

function fieldsOf(schema: GraphQLSchema, name: string): object {
  const type = schema.getType(name);
  return isObjectType(type) ? type.getFields() : {};
}

describe("a file that `mesh` names", { timeout: 240_000 }, () => {
  const now = toInstant("2026-06-01T00:00:00Z");
  const config = "backends: {}\nsites: {}\nmesh: mesh.yaml\n";
  const checked = async (mesh: string) => {
    const shell = createShell({ now, files: { "readout.yaml": config, "mesh.yaml": mesh } });
    return { code: await check([], shell, 200_000), out: shell.printed() };
  };

  test.each([
    ["additionalTypeDefs: 'extend type Nope { a: Int }'", /PROBLEM mesh\.yaml: .*Nope/],
    ["- { name: gone, handler: { openapi: { source: 'http://127.0.0.1:9/' } } }", /PROBLEM .* source gone: /],
    ["- { name: x, handler: { nosuch: {} } }", /PROBLEM mesh\.yaml: .*nosuch/],
  ])("is loaded by `check`, which tells of %s", async (wrong, problem) => {
    const base = "sources:\n  - { name: telemetry, handler: { graphql: {} } }\n";
    const { code, out } = await checked(`${base}${wrong.startsWith("-") ? "  " : ""}${wrong}\n`);
    expect(out).toMatch(problem);
    expect(out).toMatch(/^1 problem, /m);
    expect(code).toBe(1);
  });

  test("is none of a problem where its sources answer", async () => {
    const { code, out } = await checked(beside());
    expect(out).toContain("GraphQL by mesh.yaml\n\n0 problems");
    expect(code).toBe(0);
  });

  test("is told to be another one only when what it held is served", async () => {
    const files: Record<string, string> = { "mesh.yaml": await readFile(own, "utf8") };
    const { telemetry } = createWatchedTelemetry();
    const { isOutdated: outdated, load } = createGraphqlLoader(
      { mesh: "mesh.yaml" },
      createShell({ now, files }),
      telemetry,
    );
    files["mesh.yaml"] += "# one\n";
    expect(outdated()).toBe(false);
    await load();
    expect(outdated()).toBe(false);
    files["mesh.yaml"] += "# two\n";
    expect(outdated()).toBe(true);
    delete files["mesh.yaml"];
    expect(outdated()).toBe(true);
  });
});

describe("a wrong file", { timeout: 240_000 }, () => {
  test.each([
    ["sources: [", /\.meshrc\.yaml:1: /],
    ["sources: []", /sources: expected a source named telemetry/],
    ["sources: [{ name: other, handler: { graphql: {} } }]", /sources: expected a source named telemetry/],
    ["sources: [{ name: telemetry }]", /sources\.0\.handler/],
    [
      "sources: [{ name: telemetry, handler: { graphql: {} } }]\nadditionalTypeDefs: 'extend type Nope { a: Int }'",
      /Nope/,
    ],
    [
      "sources: [{ name: telemetry, handler: { graphql: {} } }, { name: gone, handler: { openapi: { source: 'http://127.0.0.1:9/openapi.json' } } }]",
      /source gone: /,
    ],
    [
      "sources: [{ name: telemetry, handler: { graphql: {} } }, { name: x, handler: { nosuch: {} } }]",
      /nosuch/,
    ],
  ])("%s", async (text, message) => {
    await expect(loadMesh({ file: ".meshrc.yaml", text, ...quiet })).rejects.toThrow(message);
  });

  test("breaks GraphQL with a clear answer, and REST not at all; the next request tries again", async () => {
    let wrong = true;
    const demo = await createDemo({
      graphql: async () => {
        const text = wrong ? "sources: []" : await readFile(own, "utf8");
        return loadMesh({ file: own, text, ...quiet });
      },
    });
    const broken = await demo.graphql("{ viewer { id } }");
    expect(broken.status).toBe(500);
    expect(broken.errors?.[0]?.message).toMatch(/schema could not be loaded/);
    expect(demo.logged()).toContain("expected a source named telemetry");
    expect((await demo.rest("GET", "/api/v2/auth")).status).toBe(200);
    wrong = false;
    expect(await demo.graphql("{ viewer { id } }")).toEqual({
      status: 200,
      data: { viewer: { id: "demo" } },
    });
    await demo.close();
  });
});
