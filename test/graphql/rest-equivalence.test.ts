// The law of GraphQL: a field answers what its route answers, rows and errors alike. Inputs are made from the
// operations' own schemas, so a new operation is under the law the day it is added.
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { schema } from "#src/graphql/schema.ts";
import { operations } from "#src/operations/index.ts";
import { describeOperations, type JsonSchema } from "#src/operations/runtime/json-schema.ts";
import { clock, createDemo } from "../support/demo-server.ts";

const demo = await createDemo();
afterAll(() => demo.close());
const described = describeOperations(operations);

// ---- Inputs -------------------------------------------------------------------------------------------------

const time = fc
  .integer({ min: -70 * 60_000, max: 10 * 60_000 })
  .map((offset) => new Date(clock + offset).toISOString());
/** A request that the demo has: ids and revisions are its own. */
const known = await (async () => {
  const body = { site_ids: ["demo-shop"], pagination: { per_page: 1 } };
  const { body: rows } = await demo.rest("POST", "/api/v2/tracing/traces/performance", body);
  return (rows as { trace_id: string; revision: string }[])[0] ?? { trace_id: "", revision: "" };
})();
const tagged = ["transaction_duration", "error_rate", "nope"];
/** What makes an answer of rows likely: names that the demo has, beside some that it lacks. */
const pools: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  site_id: fc.constantFrom("demo-shop", "demo-shop", "demo-blog", "nope"),
  site_ids: fc.constantFrom(["demo-shop"], ["demo-shop", "demo-blog"], ["nope"], []),
  source_ids: fc.constantFrom(["app"], ["app", "nginx"], ["worker", "nope"], []),
  query: fc.constantFrom("", "error", "severity=error", "namespace=web", "a=", "tag.region=eu-west", "web"),
  namespace: fc.constantFrom("web", "background", "shop-web/web", "x"),
  namespaces: fc.constantFrom([], ["web"], ["shop"]),
  action: fc.constantFrom("CheckoutController#create", "nope"),
  action_name: fc.constantFrom("CheckoutController#create", "nope"),
  revision: fc.constantFrom(known.revision, known.revision, "nope"),
  trace_id: fc.constantFrom(known.trace_id, known.trace_id, "0", "x"),
  digests: fc.constantFrom([], ["nope"], ["act_WyJ3ZWIiLCJDaGVja291dENvbnRyb2xsZXIjY3JlYXRlIl0"]),
  digest: fc.constantFrom("nope", "act_WyJ3ZWIiLCJDaGVja291dENvbnRyb2xsZXIjY3JlYXRlIl0"),
  cursor: fc.oneof(
    fc.constant({ time: null }),
    time.map((at) => ({ time: at })),
  ),
  per_page: fc.integer({ min: 1, max: 40 }),
  name: fc.constantFrom(...tagged),
  metric_name: fc.constantFrom(...tagged),
  tags: fc.constantFrom({}, { namespace: "*" }, { namespace: "web" }, { action: "*", namespace: "web" }),
  group_by: fc.constantFrom(["Name"], [{ Tag: "namespace" }], [{ Tag: "namespace" }, { Tag: "action" }], []),
  "group_by as string": fc.constantFrom(
    "severity",
    "source",
    "hostname",
    "trace_id",
    "http.request.method",
    "a=b",
  ),
  id: fc.constantFrom("9Ubquyg0qqEEfpH6Xefmrg", "73h_ogaRMCuYHGmgjkhUbg", "b"),
  limit: fc.integer({ min: 1, max: 20 }),
  duration: fc.constantFrom(0, 100, 1e6),
  duration_ms: fc.constantFrom(0, 100.5),
  ttl: fc.constantFrom(60, 3_600),
  expression: fc.constantFrom("*/5 * * * *", "@daily", "61 * * * *", ""),
  cron: fc.constantFrom("0 3 * * *"),
  schedule: fc.constantFrom("0 3 * * *"),
  state: fc.constantFrom("Running", "Failed"),
  timezone: fc.constantFrom("UTC", "Europe/Berlin", "Mars/Olympus"),
  wanted_attributes: fc.constantFrom([], ["db.system"], ["db.system.name"]),
  excluded_attributes: fc.constantFrom([], ["http.route"]),
  node_name: fc.constantFrom("", "demo-node-1"),
  node_names: fc.constantFrom([], ["demo-node-1"]),
  pod_name: fc.constantFrom("", "shop-web-1"),
};

function inputs(written: JsonSchema, name = ""): fc.Arbitrary<unknown> {
  const id = written.$ref?.replace("#/$defs/", "");
  const schema = id === undefined ? written : (described.inputs.get(id) ?? written);
  const { type } = schema.anyOf?.find((one) => one.type !== "null") ?? schema;
  const pool = pools[`${name} as ${type}`] ?? pools[name];
  if (pool !== undefined) return pool;
  const choices = schema.anyOf?.filter(({ type }) => type !== "null");
  const [only] = choices ?? [];
  if (only !== undefined) return inputs(only, name);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.format === "date-time") return time;
  if (schema.type === "boolean") return fc.boolean();
  if (schema.items !== undefined) return fc.array(inputs(schema.items), { minLength: 1, maxLength: 3 });
  if (schema.properties !== undefined) {
    const { properties, required = [] } = schema;
    const fields = Object.entries(properties).map(([key, property]) => [key, inputs(property, key)] as const);
    return fc.record(Object.fromEntries(fields), { requiredKeys: [...required] });
  }
  if (schema.type === undefined) return fc.constant(null);
  throw new Error(`no inputs for ${name}: ${JSON.stringify(schema)}`);
}

// ---- Both ways ----------------------------------------------------------------------------------------------

const query = schema.getQueryType();

/** All fields of the operation's own answer, and no links. */
function selection(written: JsonSchema): string {
  const id = written.$ref?.replace("#/$defs/", "");
  const schema = (id === undefined ? undefined : described.outputs.get(id)) ?? written;
  if (schema.anyOf !== undefined) return schema.anyOf.map(selection).join("");
  if (schema.items !== undefined) return selection(schema.items);
  if (schema.properties === undefined) return "";
  const fields = Object.entries(schema.properties).map(
    ([key, property]) => `${key.replace(/\W/g, "_")}${selection(property)}`,
  );
  return ` { ${fields.join(" ")} }`;
}

/** Rows under GraphQL's names; only spans have names that it cannot spell. */
function respell(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(respell);
  if (typeof value !== "object" || value === null || !("events.name" in value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key.replace(".", "_"), inner]));
}

/** What REST leaves out is null in GraphQL. */
function withoutAbsent(answer: unknown, body: unknown): unknown {
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) return answer;
  const kept = Object.entries(answer).filter(
    ([key, value]) => value !== null || Object.hasOwn(Object(body), key),
  );
  return Object.fromEntries(kept);
}

async function askBoth(name: string, input: Readonly<Record<string, unknown>>) {
  const operation = described.operations.find(({ endpoint }) => endpoint.name === name);
  const field = query?.getFields()[name.replaceAll(".", "_")];
  if (operation === undefined || field === undefined) throw new Error(`no field for ${name}`);
  const { method, path } = operation.endpoint;
  const route = path.replace(/\{(\w+)\}/g, (_, key: string) => encodeURIComponent(String(input[key])));
  const rest = await demo.rest(method, route, method === "GET" ? undefined : input);
  const used = field.args.filter((arg) => Object.hasOwn(input, arg.name));
  const declared = used.map((arg) => `$${arg.name}: ${arg.type}`).join(", ");
  const given = used.map((arg) => `${arg.name}: $${arg.name}`).join(", ");
  const text = `query${declared === "" ? "" : `(${declared})`} { answer: ${field.name}${given === "" ? "" : `(${given})`}${selection(operation.answer)} }`;
  const graphql = await demo.graphql(text, input);
  return { rest, graphql };
}

describe("GraphQL answers what REST answers", () => {
  test.each(described.operations.map(({ endpoint }) => endpoint.name))("%s", async (name) => {
    const operation = described.operations.find(({ endpoint }) => endpoint.name === name);
    let answered = 0;
    await fc.assert(
      fc.asyncProperty(inputs(operation?.request ?? {}), async (input) => {
        const { rest, graphql } = await askBoth(name, (input ?? {}) as Record<string, unknown>);
        if (rest.status === 200) {
          answered += 1;
          expect(withoutAbsent(graphql.data?.answer, rest.body)).toEqual(respell(rest.body));
          expect(graphql.errors).toBeUndefined();
          return;
        }
        const { error, message, details } = rest.body as Record<string, unknown>;
        expect(graphql.data).toEqual({ answer: null });
        expect(graphql.errors).toHaveLength(1);
        const [told] = graphql.errors ?? [];
        expect(told?.path).toEqual(["answer"]);
        expect(told?.message).toBe(message ?? error);
        expect(told?.extensions).toEqual(
          rest.status === 422 ? { status: 422, slug: error, details } : { status: rest.status },
        );
      }),
      { numRuns: 12, seed: 7 },
    );
    expect(answered, "no input was answered").toBeGreaterThan(0);
  });
});
