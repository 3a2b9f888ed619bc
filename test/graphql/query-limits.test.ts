// What strangers and careless clients send to /graphql: the checks of graphql-cop and what lies around them, through
// Mesh as it is served.
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { getIntrospectionQuery } from "graphql";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import type { Site } from "#src/access/sites.ts";
import { BackendError, failures } from "#src/core/errors.ts";
import { loadMesh } from "#src/graphql/mesh.ts";
import { startProcessorTime } from "../support/cpu-time.ts";
import { createDemo, token } from "../support/demo-server.ts";
import { waitUntil } from "../support/waits.ts";
import { token as ana, createSubject, linesBody, openWaitingStore, otherToken } from "../wire/harness.ts";

const file = fileURLToPath(new URL("../../.meshrc.yaml", import.meta.url));
const unified = await loadMesh({ file, text: await readFile(file, "utf8"), log: () => {} });
const graphql = async () => unified;
const demo = await createDemo({ graphql });
afterAll(() => demo.close());
const url = "http://readout/graphql";
const bearer = { authorization: `Bearer ${token}` };
const json = { "content-type": "application/json" };

async function refused(query: string): Promise<string> {
  const used = startProcessorTime();
  const { data, errors = [] } = await demo.graphql(query);
  expect(used()).toBeLessThan(2_000);
  expect(data ?? undefined).toBeUndefined();
  expect(errors).toHaveLength(1);
  return errors[0]?.message ?? "";
}

describe("a query that costs too much is refused before it runs, with one error", () => {
  const fields = (n: number, field: (at: number) => string) =>
    `{ ${Array.from({ length: n }, (_, at) => field(at)).join(" ")} }`;
  test("aliases, without an allow-list", async () => {
    expect(await refused(fields(101, (at) => `a${at}: viewer { id }`))).toMatch(/Aliases limit/);
    expect(await refused(fields(101, (at) => `a${at}: __typename`))).toMatch(/Aliases limit/);
  });
  test("but not what a gateway asks for a page of its rows", async () => {
    const { data, errors } = await demo.graphql(
      fields(50, (at) => `_${at}_app: app(id: "demo-shop") { __typename id name environment }`),
    );
    expect(errors).toBeUndefined();
    expect(Object.keys(data ?? {})).toHaveLength(50);
  });
  test("directives", async () => {
    expect(await refused(`{ viewer { id ${"@include(if: true) ".repeat(10)} } }`)).toMatch(
      /Directives limit/,
    );
    expect(await refused(`{ viewer { id ${"@aa ".repeat(10)} } }`)).toMatch(/Directives limit/);
    expect(await refused(fields(51, () => "viewer { id @include(if: true) }"))).toMatch(/Directives limit/);
  });
  test("but not a query for the schema that says by variables what is wanted", async () => {
    const kinds = "kind @include(if: true) name @include(if: true)";
    const { data, errors } = await demo.graphql(`{ __schema { types { ${kinds} fields { name @skip(if: false)
      type { ${kinds} ofType { ${kinds} ofType { ${kinds} ofType { ${kinds} } } } } } } } }`);
    expect(errors).toBeUndefined();
    expect(JSON.stringify(data)).toContain("logs_lines");
  });
  test.each([
    ["blanks", `{ viewer { id } }${" ".repeat(65_536)}`],
    ["a comment", `{ viewer { id } } # ${"x".repeat(65_536)}`],
    ["a name", `query ${"x".repeat(65_536)} { viewer { id } }`],
  ])("the length of its text, as %s", async (_, query) => {
    expect(await refused(query)).toMatch(/^Syntax Error: Query limit of 65536 characters exceeded, found /);
  });
  test("duplicated fields", async () => {
    expect(await refused(`{ viewer { ${"id ".repeat(10_000)} } }`)).toMatch(/Syntax Error/);
  });
  test("depth", async () => {
    const spans = "log_lines { trace { ".repeat(6);
    const query = `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: 1, order: ASC }) {
      trace { ${spans} trace_id ${"} } ".repeat(6)} } } }`;
    expect(await refused(query)).toMatch(/depth limit/i);
  });
  test("cost", async () => {
    const wide = "log_lines { id message severity hostname json group source_id trace { trace_id ".repeat(4);
    const query = `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: 1, order: ASC }) {
      trace { ${wide.repeat(1)} ${"} } ".repeat(4)} } } }`;
    const many = `{ ${Array.from({ length: 14 }, (_, at) => query.slice(1, -1).replace("logs_lines", `a${at}: logs_lines`)).join(" ")} }`;
    expect(await refused(many)).toMatch(/Syntax Error/);
  });
  test("fragments that lead back to themselves", async () => {
    const { errors } = await demo.graphql(
      "{ viewer { ...A } } fragment A on Viewer { ...B } fragment B on Viewer { ...A }",
    );
    expect(errors?.length).toBeGreaterThan(0);
  });
  test("introspection in circles", async () => {
    const circles = "fields { type { ".repeat(8);
    const query = `{ __schema { types { ${circles} name ${"} } ".repeat(8)} } } }`;
    const { errors, data } = await demo.graphql(query);
    expect(data ?? undefined).toBeUndefined();
    expect(errors?.length).toBeGreaterThan(0);
  });
  test("introspection by aliases, as large as many schemas", async () => {
    const types = "types { name description fields { name description args { name } } }";
    const twenty = fields(40, (at) => `a${at}: __schema { ${types} }`);
    expect(await refused(twenty)).toMatch(/Introspection limit of \d+ values exceeded/);
    const inner = fields(90, (at) => `a${at}: description`);
    expect(await refused(`{ __schema { types { fields ${inner} } } }`)).toMatch(/Introspection limit/);
    const fragment = `fragment T on __Type ${fields(40, (at) => `b${at}: description`)}`;
    expect(await refused(`{ __schema { types { fields { type { ...T } } ...T } } } ${fragment}`)).toMatch(
      /Introspection limit/,
    );
    const query = fields(
      90,
      (at) => `a${at}: __type(name: "App") { fields { name args { name type { name } } } }`,
    );
    expect(await refused(query)).toMatch(/Introspection limit/);
  });
  test("but not the schema with all that it says, nor single types of it", async () => {
    const all = getIntrospectionQuery({
      descriptions: true,
      specifiedByUrl: true,
      directiveIsRepeatable: true,
      schemaDescription: true,
      inputValueDeprecation: true,
      oneOf: true,
    });
    expect((await demo.graphql(all)).data).toHaveProperty("__schema.types");
    const some = fields(20, (at) => `a${at}: __type(name: "LogLine") { fields { name type { name } } }`);
    expect((await demo.graphql(some)).errors).toBeUndefined();
    const named = "query ($name: String!) { __type(name: $name) { name fields { name } } }";
    expect((await demo.graphql(named, { name: "Span" })).data).toHaveProperty("__type.name", "Span");
  });
  test("fragments, which are compared with each other", async () => {
    const many = (n: number) =>
      `${fields(n, (at) => `...F${at}`)} ${fields(n, (at) => `} fragment F${at} on Query { viewer { id }`).slice(3)}`;
    expect(await refused(many(101))).toMatch(/Fragments limit of 100 exceeded, found 101/);
    expect((await demo.graphql(many(50))).errors).toBeUndefined();
  });
  test("one field more often than can be compared", async () => {
    expect(await refused(`{ viewer { ${"id ".repeat(1_900)} } }`)).toMatch(/Limit of comparisons exceeded/);
  });
  test("mistakes, of which the first are listed", async () => {
    const { errors = [], data } = await demo.graphql(fields(500, (at) => `nothing${at}`));
    expect(data).toBeUndefined();
    expect(errors).toHaveLength(21);
    expect(errors.at(-1)?.message).toMatch(/Mistakes limit of 20 exceeded/);
    expect(errors[19]?.message).toMatch(/nothing19/);
  });
  test("batches", async () => {
    const body = JSON.stringify(Array.from({ length: 10 }, () => ({ query: "{ viewer { id } }" })));
    const answer = await demo.server.fetch(url, { method: "POST", headers: { ...bearer, ...json }, body });
    expect(answer.status).toBe(400);
    expect(await answer.json()).not.toHaveProperty("data");
  });
});

describe("who may ask, and how", () => {
  const query = encodeURIComponent("{ viewer { id } }");
  const status = async (path: string, init: RequestInit) =>
    (await demo.server.fetch(`http://readout${path}`, init)).status;
  test("introspection is for any valid token, and for nobody else", async () => {
    expect((await demo.graphql(getIntrospectionQuery())).data).toHaveProperty("__schema.types");
    const init = {
      method: "POST",
      headers: json,
      body: JSON.stringify({ query: "{ __schema { types { name } } }" }),
    };
    expect(await status("/graphql", init)).toBe(401);
    expect(await status(`/graphql?query=${query}`, { headers: { "x-requested-with": "x" } })).toBe(401);
  });
  test("the token may stand in the address", async () => {
    const init = { method: "POST", headers: json, body: JSON.stringify({ query: "{ viewer { id } }" }) };
    expect(await status(`/graphql?token=${token}`, init)).toBe(200);
  });
  test("GET asks only, and only on purpose: another origin's page cannot send such a header unasked", async () => {
    expect(await status(`/graphql?query=${query}`, { headers: bearer })).toBe(200);
    expect(await status(`/graphql?query=${query}&token=${token}`, {})).toBe(403);
    expect(
      await status(`/graphql?query=${query}&token=${token}`, { headers: { "x-requested-with": "x" } }),
    ).toBe(200);
    const mutation = encodeURIComponent("mutation { a }");
    expect(await status(`/graphql?query=${mutation}`, { headers: bearer })).toBe(405);
  });
  test.each([
    "application/x-www-form-urlencoded",
    "text/plain",
    "multipart/form-data; boundary=x",
    undefined,
  ])("a POST of %s is refused", async (type) => {
    const headers = type === undefined ? bearer : { ...bearer, "content-type": type };
    const body = new TextEncoder().encode("query=%7Bviewer%7Bid%7D%7D");
    expect(await status("/graphql", { method: "POST", headers, body })).toBe(415);
  });
  test.each(["application/xml", "text/html"])("an answer as %s is refused in words", async (accept) => {
    const headers = { ...bearer, accept, "content-type": "application/json" };
    const body = JSON.stringify({ query: "{ viewer { id } }" });
    const answer = await demo.server.fetch(url, { method: "POST", headers, body });
    expect([answer.status, answer.headers.get("content-type"), await answer.json()]).toEqual([
      406,
      "application/json; charset=utf-8",
      { errors: [{ message: expect.stringMatching(/application\/json/) }] },
    ]);
  });
});

describe("errors say what a client can mend, and nothing else", () => {
  test("names that are near a wrong one are told, since any token may read the schema", async () => {
    const { errors = [] } = await demo.graphql("{ viewr { id } viewer { idd } nothing_like_it }");
    expect(errors.map(({ message }) => message)).toEqual([
      'Cannot query field "viewr" on type "Query". Did you mean "viewer"?',
      'Cannot query field "idd" on type "Viewer". Did you mean "id"?',
      'Cannot query field "nothing_like_it" on type "Query".',
    ]);
  });
  test.each(["", "{", "nope", "null", "[]", '{"query":1}', '{"variables":{}}', '{"query":"{"}'])(
    "%j is refused without a stack",
    async (body) => {
      const answer = await demo.server.fetch(url, { method: "POST", headers: { ...bearer, ...json }, body });
      const text = await answer.text();
      expect(answer.status).toBeLessThan(500);
      expect(text).toContain('"errors"');
      expect(text).not.toMatch(/\bat .*\.(ts|js):\d|node_modules|stack/i);
    },
  );
  test.each([[5], [0], [true], [{}], [[]]])(
    "a query that is no text, as %j, is told as such",
    async (query) => {
      const countLimited = async () => {
        const metrics = await (await demo.server.fetch("http://readout/metrics")).text();
        return metrics.match(/limited_total\{limit="graphql"\} .*/)?.[0];
      };
      const before = await countLimited();
      const body = JSON.stringify({ query });
      const answer = await demo.server.fetch(url, { method: "POST", headers: { ...bearer, ...json }, body });
      expect(answer.status).toBe(400);
      const message = expect.stringMatching(/^Expected "query" param to be a string, but given /);
      expect((await answer.json()).errors).toEqual([{ message }]);
      expect(await countLimited()).toBe(before);
    },
  );
  test("no tracing, and a variable of the wrong type is told", async () => {
    const { errors } = await demo.graphql("query ($id: String!) { site(id: $id) { id } }", { id: 1 });
    expect(errors?.[0]?.message).toMatch(/"\$id"/);
    const plain = await demo.graphql("{ viewer { id } }");
    expect(Object.keys(plain)).toEqual(["status", "data"]);
  });
  test.each([
    ["a query that cannot be parsed", { query: "{\n  viewer {" }, [{ line: 2, column: 11 }]],
    ["a field that is not there", { query: "{\n  viewr { id } }" }, [{ line: 2, column: 3 }]],
    [
      "a variable that is missing",
      { query: "query ($id: String!) { site(id: $id) { id } }" },
      [{ line: 1, column: 8 }],
    ],
    [
      "a variable of the wrong type",
      { query: "query ($id: String!) { site(id: $id) { id } }", variables: { id: 1 } },
      [{ line: 1, column: 8 }],
    ],
    [
      "a variable that is missing, of a query that is not compiled",
      { query: "query ($id: String!, $no: Boolean = false) { site(id: $id) { id @skip(if: $no) } }" },
      [{ line: 1, column: 8 }],
    ],
    [
      "a variable of the wrong type, of such a query",
      {
        query: "query ($id: String!, $no: Boolean = false) { site(id: $id) { id @skip(if: $no) } }",
        variables: { id: 1 },
      },
      [{ line: 1, column: 8 }],
    ],
    ["a subscription that there is none of", { query: "subscription { lines }" }, [{ line: 1, column: 16 }]],
    ["a query that is missing", {}, undefined],
  ])(
    "%s is told where it stands, as a wrong request to those who ask for GraphQL's own type",
    async (_, asked, locations) => {
      for (const [accept, status] of [
        ["application/json", 200],
        ["application/graphql-response+json", 400],
      ] as const) {
        const answer = await demo.server.fetch(url, {
          method: "POST",
          headers: { ...bearer, ...json, accept },
          body: JSON.stringify(asked),
        });
        expect([answer.status, answer.headers.get("content-type")]).toEqual([
          status,
          `${accept}; charset=utf-8`,
        ]);
        const { errors, ...rest } = await answer.json();
        expect(rest).toEqual({});
        expect(errors).toEqual([{ message: expect.any(String), ...(locations && { locations }) }]);
      }
    },
  );
  test.each([
    ["application/graphql-response+json;q=0, */*", 200, "application/json; charset=utf-8"],
    ["application/graphql-response+json;q=0.5, application/json", 200, "application/json; charset=utf-8"],
    ["application/json;q=0, */*", 400, "application/graphql-response+json; charset=utf-8"],
    ["application/json;q=0", 406, "application/json; charset=utf-8"],
    ["text/event-stream;q=0, multipart/mixed;q=0", 406, "application/json; charset=utf-8"],
    ["text/event-stream, application/json;q=0", 406, "application/json; charset=utf-8"],
  ])("what is refused by its weight is not sent: %s", async (accept, status, type) => {
    const headers = { ...bearer, ...json, accept };
    const answer = await demo.server.fetch(url, { method: "POST", headers, body: '{"query":"{ nope }"}' });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([status, type]);
  });
  test("a field that fails is told where it stands, and does not change the status", async () => {
    const query = '{ auth { message }\n  metrics_names(site_id: "nope") }';
    for (const accept of ["application/json", "application/graphql-response+json"]) {
      const answer = await demo.server.fetch(url, {
        method: "POST",
        headers: { ...bearer, ...json, accept },
        body: JSON.stringify({ query }),
      });
      expect(answer.status).toBe(200);
      expect((await answer.json()).errors).toEqual([
        {
          message: "Not found",
          locations: [{ line: 2, column: 3 }],
          path: ["metrics_names"],
          extensions: { status: 404 },
        },
      ]);
    }
  });
  test.each(["variables", "extensions"])(
    "%s of a GET that are no JSON are the client's mistake",
    async (name) => {
      const query = encodeURIComponent("{ viewer { id } }");
      const logged = demo.logged().length;
      const answer = await demo.server.fetch(`${url}?query=${query}&${name}=%7Ba`, {
        headers: { ...bearer, accept: "application/graphql-response+json" },
      });
      expect(answer.status).toBe(400);
      expect(await answer.json()).toEqual({ errors: [{ message: `The parameter ${name} is not JSON` }] });
      expect(demo.logged().slice(logged)).not.toContain("failed");
    },
  );
  test("variables of a GET are read as what they say, whatever others sent before", async () => {
    // JSON.parse of V8 13.6 reads the second one as the first.
    const texts = [String.raw`{"page":{"none such":0,"\\":1}}`, String.raw`{"page":{"none such":0,"\"":1}}`];
    const query = encodeURIComponent(
      'query ($page: LogPaginationInput!) { logs_lines(site_id: "1", source_ids: [], query: "", pagination: $page) { __typename } }',
    );
    const answers = texts.map(async (text) => {
      const address = `${url}?query=${query}&variables=${encodeURIComponent(text)}`;
      const { errors } = await (await demo.server.fetch(address, { headers: bearer })).json();
      const messages: string[] = errors.map(({ message }: { message: string }) => message);
      return messages.flatMap((message) => /Field (.+) is not defined/.exec(message)?.[1] ?? []);
    });
    expect(await Promise.all(answers)).toEqual([
      ['"none such"', String.raw`"\"`],
      ['"none such"', '"""'],
    ]);
  });
  test("a body that is no JSON is no request, whatever type of answer is asked for", async () => {
    for (const accept of ["application/json", "application/graphql-response+json", "*/*"]) {
      const headers = { ...bearer, ...json, accept };
      const answer = await demo.server.fetch(url, { method: "POST", headers, body: "{ viewer { id } }" });
      expect(answer.status).toBe(400);
      expect(await answer.json()).toEqual({ errors: [{ message: "POST body sent invalid JSON." }] });
    }
  });
  test("a query of which nothing has begun waits no longer than a request of REST", async () => {
    const { store, seen, end } = openWaitingStore();
    const limits = { requests: 1, tokenRequests: 1, deadline: 30_000 };
    const { server, post, limited } = createSubject({ store, limits });
    const own = { authorization: `Bearer ${ana}` };
    await (await server.fetch(`${url}?query={__typename}`, { headers: own })).text();
    const first = post(linesBody(), { headers: { authorization: `Bearer ${otherToken}` } });
    await expect.poll(() => seen.begun).toBe(1);
    const lines =
      'logs_lines(site_id: "shop", source_ids: ["app"], query: "", pagination: { per_page: 9, order: ASC }) { id }';
    const query = encodeURIComponent(`{ a: ${lines} b: ${lines} c: ${lines} }`);
    const answer = await (await server.fetch(`${url}?query=${query}`, { headers: own })).json();
    const overloaded = { message: failures.overloaded };
    expect(answer).toMatchObject({ errors: [overloaded, overloaded, overloaded] });
    expect(await limited()).toEqual({ requests: 1 });
    end();
    await first;
  });
  test("a client that knows the query by its hash is told to send it", async () => {
    const extensions = { persistedQuery: { version: 1, sha256Hash: "0".repeat(64) } };
    const ask = async (body: object) => {
      const init = { method: "POST", headers: { ...bearer, ...json }, body: JSON.stringify(body) };
      return (await demo.server.fetch(url, init)).json();
    };
    expect(await ask({ extensions })).toEqual({ errors: [{ message: "PersistedQueryNotSupported" }] });
    const parameters = new URLSearchParams({ extensions: JSON.stringify(extensions) });
    const byGet = await demo.server.fetch(`${url}?${parameters}`, { headers: bearer });
    expect(await byGet.json()).toEqual({ errors: [{ message: "PersistedQueryNotSupported" }] });
    const query = "{ auth { message } }";
    expect(await ask({ query, extensions })).toEqual({
      data: { auth: { message: "Authenticated as demo" } },
    });
  });
  test("an empty name of the operation is none", async () => {
    const ask = async (query: string) => {
      const body = JSON.stringify({ query, operationName: "", variables: {} });
      return (await demo.server.fetch(url, { method: "POST", headers: { ...bearer, ...json }, body })).json();
    };
    for (const query of ["{ auth { message } }", "query A { auth { message } }"]) {
      expect(await ask(query)).toEqual({ data: { auth: { message: "Authenticated as demo" } } });
    }
    expect(await ask("query A { auth { message } } query B { auth { message } }")).toHaveProperty("errors");
  });
  test("a body over 1 MiB", async () => {
    const { status } = await demo.graphql(`{ viewer { id } } # ${"x".repeat(1_048_576)}`);
    expect(status).toBe(422);
  });

  const failing = (error: unknown) => (site: Site) =>
    site.logs === undefined
      ? site
      : {
          ...site,
          logs: {
            ...site.logs,
            store: {
              // biome-ignore lint/correctness/useYield: it fails
              async *lines() {
                throw error;
              },
            },
          },
        };
  const lines = `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: 1, order: ASC }) { id } auth { message } }`;
  test("a source that fails: one safe sentence, and the other fields stay", async () => {
    const broken = await createDemo({
      graphql,
      site: failing(new BackendError("elk", "overloaded", "secret of elk")),
    });
    const { data, errors } = await broken.graphql(lines);
    expect(data).toEqual({ logs_lines: null, auth: { message: "Authenticated as demo" } });
    expect(errors).toEqual([
      expect.objectContaining({
        message: "A data source is overloaded",
        extensions: { status: 500, retry_after: 1 },
      }),
    ]);
    expect(broken.logged()).toContain("secret of elk");
    await broken.close();
  });
  test("anything else says nothing", async () => {
    const broken = await createDemo({ graphql, site: failing(new TypeError("x is undefined")) });
    const { errors } = await broken.graphql(lines);
    expect(errors?.[0]).toMatchObject({ message: "Internal server error", extensions: { status: 500 } });
    await broken.close();
  });
  test("a source that never answers is given up at the deadline, and its signal is aborted", async () => {
    let given: AbortSignal | undefined;
    const hanging = await createDemo({
      graphql,
      limits: { deadline: 200 },
      site: (site) =>
        site.logs === undefined
          ? site
          : {
              ...site,
              logs: {
                ...site.logs,
                store: {
                  async *lines(_, signal) {
                    given = signal;
                    await new Promise(() => {});
                  },
                },
              },
            },
    });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const answer = hanging.graphql(lines);
    await waitUntil(() => given !== undefined);
    vi.advanceTimersByTime(200);
    const { errors } = await answer;
    expect(errors?.[0]).toMatchObject({
      message: "A data source did not answer in time",
      extensions: { status: 500 },
    });
    expect(given?.aborted).toBe(true);
    await hanging.close();
  });
  test("rows of all fields together are bounded", async () => {
    const small = await createDemo({ graphql, limits: { rows: 150 } });
    const field = (name: string, n: number) =>
      `${name}: logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: ${n}, order: ASC }) { id }`;
    expect((await small.graphql(`{ ${field("a", 100)} }`)).errors).toBeUndefined();
    const { errors } = await small.graphql(`{ ${field("a", 100)} ${field("b", 100)} }`);
    expect(errors).toHaveLength(1);
    expect(errors?.[0]?.extensions).toMatchObject({
      status: 422,
      slug: "result_too_large",
      details: { limit: 150 },
    });
    await small.close();
  });
  test("requests under way are bounded with those of REST", async () => {
    const none = await createDemo({ graphql, limits: { requests: 0 } });
    const query = "query=%7B%20auth%20%7B%20message%20%7D%20%7D";
    const headers = { authorization: `Bearer ${token}` };
    const answer = await none.server.fetch(`http://readout/graphql?${query}`, { headers });
    const { errors } = (await answer.json()) as { errors: { extensions: object }[] };
    expect(errors[0]?.extensions).toEqual({ status: 500, retry_after: 1 });
    // A body takes a place of its own while it is read.
    expect(await none.graphql("{ auth { message } }")).toEqual({
      status: 500,
      errors: [{ message: failures.overloaded, extensions: { status: 500, retry_after: 1 } }],
    });
    await none.close();
  });
});

test("existing clients' questions about apps validate and are answered", async () => {
  const { data, errors } = await demo.graphql(
    `query ($id: String!, $slug: String!) {
      app(id: $id) {
        id name environment createdAt updatedAt
        logs { sources { id name type fmt key } source(id: "nginx") { id name type fmt key } other: source(id: "x") { id } }
      }
      viewer { id email name apps { id } }
      organization(slug: $slug) { slug apps { id name environment } }
      none: app(id: "nope") { id }
    }`,
    { id: "demo-blog", slug: "acme" },
  );
  expect(errors).toBeUndefined();
  const source = (id: string) => ({ id, name: id, type: "custom", fmt: "JSON", key: "" });
  const sources = ["app", "nginx", "worker"].map(source);
  expect(data).toEqual({
    app: {
      id: "demo-blog",
      name: "demo-blog",
      environment: "",
      createdAt: null,
      updatedAt: null,
      logs: { sources, source: source("nginx"), other: null },
    },
    viewer: { id: "demo", email: "", name: "demo", apps: [{ id: "demo-shop" }, { id: "demo-blog" }] },
    organization: {
      slug: "acme",
      apps: ["demo-shop", "demo-blog"].map((id) => ({ id, name: id, environment: "" })),
    },
    none: null,
  });
});

test("a site's name and environment are those of its configuration", async () => {
  const named = await createDemo({
    graphql,
    site: (site) => (site.id === "demo-blog" ? { ...site, name: "Blog", environment: "production" } : site),
  });
  const { data } = await named.graphql("{ viewer { apps { id name environment } } }");
  expect(data).toEqual({
    viewer: {
      apps: [
        { id: "demo-shop", name: "demo-shop", environment: "" },
        { id: "demo-blog", name: "Blog", environment: "production" },
      ],
    },
  });
  await named.close();
});

test("two operations in one document are two queries, also when compiled", async () => {
  const query = "query A { viewer { id } } query B { auth { message } }";
  const run = async (operationName: string) => {
    const body = JSON.stringify({ query, operationName });
    const answer = await demo.server.fetch(url, { method: "POST", headers: { ...bearer, ...json }, body });
    return (await answer.json()).data;
  };
  for (const _ of [1, 2]) {
    expect(await run("A")).toEqual({ viewer: { id: "demo" } });
    expect(await run("B")).toEqual({ auth: { message: "Authenticated as demo" } });
  }
});

test("a variable that is left out has its default, also where null may not stand", async () => {
  const query = `query ($shop: String! = "demo-shop", $with: Boolean! = true, $order: Order! = DESC, $size: Int! = 2) {
    site(id: $shop) { id sources @include(if: $with) }
    logs_lines(site_id: $shop, source_ids: ["app"], query: "", pagination: { per_page: $size, order: $order }) { id }
  }`;
  const usual = await demo.graphql(query);
  expect(usual.errors).toBeUndefined();
  expect(usual.data?.site).toEqual({ id: "demo-shop", sources: ["app", "nginx", "worker"] });
  const { data } = await demo.graphql(query, { shop: "demo-shop", with: true, order: "DESC", size: 2 });
  expect(usual.data).toEqual(data);
  const other = await demo.graphql(query, { shop: "demo-blog", with: false });
  expect(other.data?.site).toEqual({ id: "demo-blog" });
  expect((await demo.graphql(query, { with: null })).errors?.[0]?.message).toMatch(/"\$with"/);
  const wrong = await demo.graphql(
    'query ($ids: [String!]!) { tracing_trace(site_ids: $ids, trace_id: "a") { span_id } }',
    {
      ids: Array.from({ length: 10_000 }, () => 1),
    },
  );
  expect(wrong.errors?.length).toBeLessThan(100);
});

const list = (rest: string) =>
  `logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "trace_id:a", ${rest}) { trace { log_lines { id } } }`;

test.each([
  ["an argument", 'query ($x: String = "demo-shop") { site(id: $x) { id } }', "String!"],
  [
    "an argument, compiled or not",
    'query ($x: String = "a") { site(id: $x) { id @skip(if: false) } }',
    "String!",
  ],
  [
    "an argument in a fragment",
    'query ($x: String = "a") { ...F } fragment F on Query { site(id: $x) { id } }',
    "String!",
  ],
  ["a directive", "query ($x: Boolean = true) { sites { id @include(if: $x) } }", "Boolean!"],
  [
    "a field of an input",
    `query ($x: Int = 1) { ${list("pagination: { per_page: $x, order: DESC }")} }`,
    "Int!",
  ],
  [
    "such a field, not compiled",
    `query ($x: Int = 1) { sites { id @skip(if: false) } ${list("pagination: { per_page: $x, order: DESC }")} }`,
    "Int!",
  ],
  [
    "a list",
    'query ($x: String = "a") { logs_lines(site_id: "demo-shop", source_ids: [$x], query: "", pagination: { per_page: 1, order: ASC }) { id } }',
    "String!",
  ],
  [
    "an argument with a default",
    `query ($x: Int) { ${list("pagination: { per_page: 1, order: ASC }").replace("log_lines", "log_lines(limit: $x)")} }`,
    "Int!",
  ],
])("a variable that is null where null may not stand is a wrong request: %s", async (_, query, type) => {
  const wrong = await demo.graphql(query, { x: null });
  expect(wrong).toMatchObject({
    status: 200,
    errors: [{ message: `Variable "$x" must not be null where "${type}" is expected.` }],
  });
  expect(wrong).not.toHaveProperty("data");
  expect((await demo.graphql(query)).data).toBeDefined();
});

test.each([
  ["a field", "sites { id } site(id: $x) @include(if: $on) { id }"],
  ["a fragment", "sites { id } ...F @include(if: $on) } fragment F on Query { site(id: $x) { id }"],
  ["an inline fragment", "sites { id } ... @include(if: $on) { site(id: $x) { id } }"],
])("a variable that is null refuses nothing in what is left out: %s", async (_, selection) => {
  const query = `query ($x: String = "demo-shop", $on: Boolean = false) { ${selection} }`;
  expect((await demo.graphql(query, { x: null })).data).toBeDefined();
  expect(await demo.graphql(query, { x: null, on: true })).not.toHaveProperty("data");
});

test("a variable that is null of another operation refuses nothing", async () => {
  const document = 'query A { viewer { id } } query B($x: String = "demo-shop") { site(id: $x) { id } }';
  const body = JSON.stringify({ query: document, operationName: "A", variables: { x: null } });
  const answer = await demo.server.fetch(url, { method: "POST", headers: { ...bearer, ...json }, body });
  expect(await answer.json()).toEqual({ data: { viewer: { id: "demo" } } });
});

test("a variable may stand within a literal of any type", async () => {
  const series = (action: string) => `metrics_timeseries(
    site_id: "demo-shop", from: "2026-01-15T11:00:00Z", to: "2026-01-15T12:00:00Z", resolution: HOURLY,
    select: [{ name: "transaction_duration", tags: { action: ${action} }, field: mean }]) { series { id data { value } } }`;
  const every = await demo.graphql(`{ ${series('"*"')} }`);
  const id = JSON.stringify(every.data).match(/action=([^,|"]+)/)?.[1] ?? "";
  const action = decodeURIComponent(id);
  const meant = await demo.graphql(`{ ${series(JSON.stringify(action))} }`);
  expect(JSON.stringify(meant.data)).toContain(id);
  expect(await demo.graphql(`query ($action: JSON) { ${series("$action")} }`, { action })).toEqual(meant);

  const requests = (time: string) => `tracing_traces_performance(site_ids: ["demo-shop"],
    pagination: { per_page: 3, order: DESC, cursor: { time: ${time} } }) { trace_id time }`;
  const first = await demo.graphql(`{ ${requests("null")} }`);
  const rows = (first.data?.tracing_traces_performance ?? []) as { time: string }[];
  const time = rows[1]?.time ?? "";
  const next = await demo.graphql(`{ ${requests(JSON.stringify(time))} }`);
  expect(next).not.toEqual(first);
  expect(await demo.graphql(`query ($time: JSON) { ${requests("$time")} }`, { time })).toEqual(next);
});

test("what one place leaves out, another still has", async () => {
  const answer = async (query: string) => (await demo.graphql(`query ($no: Boolean! = false) ${query}`)).data;
  const own = { id: "demo", name: "demo" };
  const fragments =
    "fragment A on Viewer { ...C } fragment B on Viewer { ...C } fragment C on Viewer { id name }";
  expect(await answer(`{ viewer { ...A @include(if: $no) ...B } } ${fragments}`)).toEqual({ viewer: own });
  expect(await answer("{ ... @include(if: $no) { viewer { id } } viewer { name } }")).toEqual({
    viewer: { name: "demo" },
  });
});

test("fragments within fragments cost no more than they are long", async () => {
  const inner = Array.from(
    { length: 30 },
    (_, at) => `fragment F${at} on __Schema { ...F${at + 1} ...F${at + 1} }`,
  );
  const used = startProcessorTime();
  const query = `{ __schema { ...F0 } } ${inner.join(" ")} fragment F30 on __Schema { queryType { name } }`;
  expect((await demo.graphql(query)).data).toEqual({ __schema: { queryType: { name: "Query" } } });
  expect(used()).toBeLessThan(2_000);
});

test("the log tells of a request without its token", async () => {
  await demo.server.fetch(`${url}?token=${token}`, {
    method: "POST",
    headers: json,
    body: JSON.stringify({ query: "{ viewer { id } }" }),
  });
  expect(demo.logged()).toMatch(/"operation":"graphql","status":200.*"user":"demo"/);
  expect(demo.logged()).not.toContain(token);
});

test.each([
  ["application/json", "application/json; charset=utf-8"],
  ["application/graphql-response+json", "application/graphql-response+json; charset=utf-8"],
  ["application/graphql-response+json;q=0, application/json", "application/json; charset=utf-8"],
])("a wrong token is a GraphQL error with status 401, as %s where that is accepted", async (accept, type) => {
  const init = { headers: { ...json, accept, authorization: "Bearer wrong" } };
  for (const request of [
    new Request(`${url}?query=%7Bauth%7Bmessage%7D%7D`, init),
    new Request(url, { ...init, method: "POST", body: JSON.stringify({ query: "{ auth { message } }" }) }),
  ]) {
    const response = await demo.server.fetch(request.url, request);
    expect([response.status, response.headers.get("content-type")]).toEqual([401, type]);
    expect(await response.json()).toEqual({
      errors: [{ message: "Unauthorized", extensions: { status: 401 } }],
    });
  }
});
