// The OpenAPI document and the pages of documentation.
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, describe, expect, test } from "vitest";
import { readReport } from "#src/intake/error-report.ts";
import { operations } from "#src/operations/index.ts";
import { slugSchemas } from "#src/operations/runtime/error-response.ts";
import { explanationSchema, explanationType } from "#src/operations/runtime/explain.ts";
import { describeOperations, describeSchema, type JsonSchema } from "#src/operations/runtime/json-schema.ts";
import { buildOpenApi } from "#src/server/openapi.ts";
import { createDemo, token } from "../support/demo-server.ts";

const demo = await createDemo();
afterAll(() => demo.close());
const origin = "http://readout";
const described = describeOperations(operations);

describe("/openapi.json", () => {
  test("is a valid document of OpenAPI 3.1", async () => {
    const answer = await demo.server.fetch(`${origin}/openapi.json`);
    expect(answer.headers.get("content-type")).toBe("application/json; charset=utf-8");
    const document = await answer.json();
    const validator = new Validator();
    expect(await validator.validate(document)).toEqual({ valid: true });
    expect(validator.version).toBe("3.1");
    expect(document).toEqual(JSON.parse(JSON.stringify(buildOpenApi(operations))));
  });

  test("has every operation, its errors, and both ways to authenticate", () => {
    const { paths, security, components } = JSON.parse(JSON.stringify(buildOpenApi(operations)));
    for (const { method, path, access } of operations) {
      const entry = paths[path][method.toLowerCase()];
      expect(Object.keys(entry.responses)).toEqual(
        access === "public"
          ? ["200", "404", "406", "422", "429", "500"]
          : ["200", "401", "404", "406", "422", "429", "500"],
      );
    }
    expect(security).toEqual([{ bearer: [] }, { token: [] }]);
    const known = components.schemas.Unprocessable.oneOf.map(({ $ref }: { $ref: string }) => $ref);
    expect(known).toEqual(Object.keys(slugSchemas).map((slug) => `#/components/schemas/Error_${slug}`));
  });

  test("is one that generators of clients read in full: no number is cut to 32 bits, no choice and no body has no name", () => {
    const found: string[] = [];
    const numbers = { number: ["double"], integer: ["int32", "int64"] } as const;
    const visit = (node: unknown, path: string): void => {
      if (typeof node !== "object" || node === null) return;
      const { type, format, minimum, maximum, anyOf = [], ...rest } = node as JsonSchema;
      if (type === "number" || type === "integer") {
        if (!numbers[type].some((one) => one === format)) found.push(`${path}: ${type} ${format}`);
        const fits = (minimum ?? -Infinity) >= -(2 ** 31) && (maximum ?? Infinity) < 2 ** 31;
        if (format === "int32" && !fits) found.push(`${path}: from ${minimum} to ${maximum}`);
      }
      if ("pattern" in rest && String(rest.pattern).includes("\\"))
        found.push(`${path}: an escape in a pattern`);
      if ("contentMediaType" in rest) found.push(`${path}: a text that is taken for a file`);
      if (type === "boolean" && "const" in rest) found.push(`${path}: a boolean that is a constant`);
      if (anyOf.filter((one) => one.type !== "null").length > 1) found.push(`${path}: several of a choice`);
      if ("oneOf" in rest && path.split(".").length > 2) found.push(`${path}: a choice without a name`);
      for (const [key, value] of Object.entries(node)) {
        if (key !== "examples" && key !== "example") visit(value, `${path}.${key}`);
      }
    };
    const { paths, components } = JSON.parse(JSON.stringify(buildOpenApi(operations)));
    visit(components.schemas, "schemas");
    for (const [path, entry] of Object.entries<{ servers?: unknown; post?: { requestBody: unknown } }>(
      paths,
    )) {
      visit(entry, `${path}.`);
      // What has an address of its own in the document is sent to that address, wherever the others go.
      if (entry.servers !== undefined) found.push(`${path}: servers of its own`);
      const named = { content: { "application/json": { schema: { $ref: expect.stringMatching(/\w$/) } } } };
      if (entry.post !== undefined) expect(entry.post.requestBody, path).toMatchObject(named);
    }
    expect(found).toEqual([]);
  });

  test("says what every field is, with an example, and the unit of every measured number", () => {
    const missing: string[] = [];
    const visit = (schema: JsonSchema, path: string): void => {
      for (const [key, property] of Object.entries(schema.properties ?? {})) {
        const at = `${path}.${key}`;
        const id = property.$ref ?? property.anyOf?.find(({ $ref }) => $ref !== undefined)?.$ref;
        const own = id === undefined ? property : definition(id);
        const inner = property.anyOf?.find(({ type }) => type !== "null");
        if ((property.description ?? own?.description ?? inner?.description) === undefined) {
          missing.push(`${at}: description`);
        }
        const isObject = (own?.properties ?? own?.items) !== undefined || own?.anyOf !== undefined;
        if (!isObject && (property.examples ?? own?.examples ?? own?.enum ?? inner?.examples) === undefined) {
          missing.push(`${at}: example`);
        }
        if (/duration|^mean$|^p_9|bytes|seconds|nano|error_rate|impact/.test(key) && own?.type === "number") {
          if ((property["x-unit"] ?? own["x-unit"]) === undefined) missing.push(`${at}: unit`);
        }
        if (property.properties !== undefined) visit(property, at);
        if (property.items?.properties !== undefined) visit(property.items, at);
      }
    };
    const definition = (id: string): JsonSchema | undefined => {
      const name = id.replace("#/$defs/", "");
      return described.inputs.get(name) ?? described.outputs.get(name);
    };
    for (const { endpoint, request, answer } of described.operations) {
      visit(request, endpoint.name);
      visit(answer, endpoint.name);
    }
    for (const [name, schema] of [...described.inputs, ...described.outputs]) visit(schema, name);
    expect(missing).toEqual([]);
  });

  test.each(
    described.operations.flatMap(({ endpoint, request }) => {
      const fields = Object.entries(request.properties ?? {});
      const ofPath = Object.fromEntries(fields.map(([key, { examples }]) => [key, examples?.[0]]));
      const bodies: readonly unknown[] = endpoint.method === "GET" ? [ofPath] : (request.examples ?? []);
      expect(bodies.length, endpoint.name).toBeGreaterThan(0);
      return bodies.map((body) => [endpoint.path, body, endpoint] as const);
    }),
  )("%s answers its example %j as it says", async (path, input, { method, answer }) => {
    const values = input as Readonly<Record<string, unknown>>;
    const route = path.replace(/\{(\w+)\}/g, (_, key: string) => encodeURIComponent(String(values[key])));
    const { status, body } = await demo.rest(method, route, method === "GET" ? undefined : input);
    // A revision of an example is nobody's.
    expect([path, status]).toEqual([path, path === "/api/v2/deploys/stats" ? 404 : 200]);
    if (status === 200) expect(answer.parse(body)).toEqual(body);
  });

  test("the example of a front-end report is one that the intake keeps", async () => {
    const { paths } = JSON.parse(JSON.stringify(buildOpenApi(operations)));
    const { example_1 } = paths["/errors"].post.requestBody.content["application/json"].examples;
    expect(await readReport(JSON.stringify(example_1.value))).toMatchObject({
      namespace: "frontend",
      error: { name: "TypeError", message: "x is undefined", backtrace: ["at pay (checkout.js:12:7)"] },
      action: "CheckoutPage",
      tags: { plan: "pro" },
    });
  });

  test("answers of rows are as they say, too", async () => {
    const range = { site_id: "demo-shop", from: "2026-01-15T11:30:00Z", to: "2026-01-15T12:00:00Z" };
    const listing = { site_ids: ["demo-shop"], pagination: { per_page: 20 } };
    const trace = (await demo.rest("POST", "/api/v2/tracing/traces/performance", listing)).body as {
      trace_id: string;
      revision: string;
    }[];
    const first = trace[0];
    const events = (await demo.rest("POST", "/api/v2/tracing/slow_events", range)).body as {
      digest: string;
    }[];
    const select = [{ id: "m", name: "transaction_duration", tags: { namespace: "*" }, field: "mean" }];
    const bodies: Readonly<Record<string, unknown>> = {
      "tracing.trace": { site_ids: ["demo-shop"], trace_id: first?.trace_id },
      "tracing.locator": { site_ids: ["demo-shop"], trace_id: first?.trace_id },
      "tracing.traces_performance": listing,
      "tracing.traces_errors": listing,
      "tracing.trace_error": { site_ids: ["demo-shop"] },
      "tracing.actions": range,
      "tracing.site_edges": range,
      "tracing.action_edges": { ...range, namespace: "shop-web/web", action: "CheckoutController#create" },
      "tracing.slow_events": range,
      "tracing.slow_event_actions": { ...range, digest: events[0]?.digest },
      "deploys.stats": { site_id: "demo-shop", revision: first?.revision },
      "metrics.timeseries": { ...range, select },
      "metrics.list": { ...range, select, group_by: [{ Tag: "namespace" }] },
      "kubernetes.nodes": range,
      "kubernetes.pods": range,
      "kubernetes.pods.overview": range,
    };
    for (const [name, body] of Object.entries(bodies)) {
      const endpoint = operations.find((one) => one.name === name);
      const answered = await demo.rest("POST", endpoint?.path ?? "", body);
      expect([name, answered.status]).toEqual([name, 200]);
      expect(JSON.stringify(answered.body).length, name).toBeGreaterThan(150);
      expect(endpoint?.answer.parse(answered.body)).toEqual(answered.body);
    }
  });
});

describe("?explain=true", () => {
  const of = operations.filter(({ isExplainable: explains }) => explains);
  test.each(of)(
    "of $path is said to be no rows, but an answer of a media type of its own",
    async (endpoint) => {
      const { path, request } = endpoint;
      const { paths, components } = JSON.parse(JSON.stringify(buildOpenApi(operations)));
      const { content } = paths[path].post.responses["200"];
      // A second type of JSON would have some clients compare the whole header, which has a charset.
      expect(Object.keys(content).filter((type) => /[/+]json$/.test(type))).toEqual(["application/json"]);
      expect(content["application/*"].schema).toEqual({ $ref: "#/components/schemas/Explanation" });
      expect(components.schemas.Explanation.properties).toHaveProperty("answer");
      const [body] = describeSchema(request, "input", new Map()).examples ?? [];
      const init = {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, accept: "application/json" },
        body: JSON.stringify(body),
      };
      const rows = await demo.server.fetch(`${origin}${path}`, init);
      expect(rows.headers.get("content-type")).toBe("application/json; charset=utf-8");
      const told = await demo.server.fetch(`${origin}${path}?explain=true`, init);
      expect(told.headers.get("content-type")).toBe(`${explanationType}; charset=utf-8`);
      explanationSchema.parse(await told.json());
    },
  );
});

describe("pages", () => {
  const open = (path: string, headers: Record<string, string> = { accept: "text/html" }) =>
    demo.server.fetch(`${origin}${path}`, { headers });

  test.each(["/docs", "/graphql"])("%s needs nothing from elsewhere, and says so", async (path) => {
    const page = await open(path);
    expect(page.status).toBe(200);
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    const policy = page.headers.get("content-security-policy") ?? "";
    expect(policy).toMatch(/^default-src 'none'; script-src 'self'; /);
    expect(policy).not.toMatch(/https?:|\*|'unsafe-eval'|script-src[^;]*'unsafe-inline'/);
    const html = await page.text();
    const linked = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, target]) => target ?? "");
    expect(linked.length).toBeGreaterThan(2);
    for (const target of linked) {
      expect(target).toMatch(/^\//);
      expect((await open(target)).status, target).toBe(200);
    }
    expect(html.match(/<script(?![^>]*\ssrc=)/)).toBeNull();
    expect(html).not.toMatch(/\son\w+=|<style/);
  });

  test("are compressed for those who can read it", async () => {
    const page = await open("/docs/swagger-ui.css", { "accept-encoding": "gzip, br" });
    expect(page.headers.get("content-encoding")).toBe("gzip");
    expect(page.headers.get("vary")).toContain("Accept-Encoding");
    expect((await open("/docs/swagger-ui.css")).headers.get("content-encoding")).toBeNull();
  });

  test.each([
    ["gzip;q=0", null],
    ["gzip;q=0.000, *", null],
    ["br, *;q=0", null],
    ["identity;q=0", null],
    ["x-gzip-like", null],
    ["br;q=1, GZIP;q=0.1", "gzip"],
    ["*", "gzip"],
  ])("Accept-Encoding %s: %s", async (accepted, coding) => {
    const page = await open("/docs/start.js", { "accept-encoding": accepted });
    expect(page.headers.get("content-encoding")).toBe(coding);
  });

  test("a client's GET of /graphql is a query, and needs its token; a browser's is GraphiQL", async () => {
    const query = "/graphql?query=%7Bviewer%7Bid%7D%7D";
    expect((await open("/graphql", { accept: "application/json" })).status).toBe(401);
    expect((await open(query, { accept: "*/*" })).status).toBe(401);
    // GraphiQL writes what is typed into its address, which then has to open again.
    expect((await open(query)).headers.get("content-type")).toBe("text/html; charset=utf-8");
    // What Java's HttpURLConnection accepts where nothing else is said.
    const accept = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2";
    const asked = await open(query, { accept, authorization: `Bearer ${token}` });
    expect([asked.status, await asked.json()]).toMatchObject([200, { data: { viewer: {} } }]);
  });

  test.each(["/docs/", "/docs/nope", "/docs/../package.json", "/graphql/nope", "/docs/index.html"])(
    "%s is none",
    async (path) => {
      expect((await open(path)).status).toBe(404);
    },
  );
});
