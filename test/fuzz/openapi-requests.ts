// Random requests generated from the OpenAPI document, with names that exist in the demo so that many reach the stores.

import { operations } from "#src/operations/index.ts";
import type { JsonSchema } from "#src/operations/runtime/json-schema.ts";
import { buildOpenApi } from "#src/server/openapi.ts";
import { clock, type Demo } from "../support/demo-server.ts";
import { base } from "../tracing/span-builder.ts";
import { absurdTimes, Members } from "./hostile-values.ts";
import type { Draw } from "./seeded-generator.ts";

export interface Route {
  readonly method: "GET" | "POST";
  /** With its placeholders: `{site_id}`. */
  readonly path: string;
  readonly parameters: readonly string[];
  readonly explains: boolean;
  readonly body: JsonSchema | undefined;
}

interface Entry {
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: {
    readonly content: { readonly "application/json": { readonly schema: JsonSchema } };
  };
}
const document = JSON.parse(JSON.stringify(buildOpenApi(operations))) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Entry>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> };
};

/** Those of the read API; the intake of reports is no part of this server. */
export const routes: readonly Route[] = Object.entries(document.paths)
  .filter(([path]) => path.startsWith("/api/v2/"))
  .flatMap(([path, entries]) =>
    Object.entries(entries).map(([method, { parameters = [], requestBody }]): Route => {
      const named = (place: string) => parameters.filter((one) => one.in === place).map(({ name }) => name);
      return {
        method: method === "get" ? "GET" : "POST",
        path,
        parameters: named("path"),
        explains: named("query").includes("explain"),
        body: requestBody?.content["application/json"].schema,
      };
    }),
  );

/** Values that the demo has, by the name of the field that takes them. */
export type Vocabulary = Readonly<Record<string, readonly unknown[]>>;

export async function readVocabulary(demo: Demo): Promise<Vocabulary> {
  const range = { from: new Date(clock - 1_800_000).toISOString(), to: new Date(clock).toISOString() };
  const ask = async (path: string, body: object) => {
    const answer = await demo.rest("POST", `/api/v2/${path}`, body);
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status}`);
    return answer.body as readonly Readonly<Record<string, unknown>>[];
  };
  const listing = { site_ids: ["demo-shop"], ...range, pagination: { per_page: 50 } };
  const errors = await ask("tracing/traces/errors", listing);
  const requests = await ask("tracing/traces/performance", listing);
  const lines = await ask("logs/lines", {
    site_id: "demo-shop",
    source_ids: ["app"],
    query: "",
    pagination: { per_page: 50, order: "DESC" },
  });
  const pods = await ask("kubernetes/pods/overview", {
    site_id: "demo-shop",
    ...range,
    query: "",
    namespaces: [],
  });
  const names = (await demo.rest("GET", "/api/v2/metrics/names/demo-shop")).body as readonly string[];
  const of = (rows: readonly Readonly<Record<string, unknown>>[], key: string): unknown[] =>
    [...new Set(rows.map((row) => row[key]))].filter((value) => value !== undefined);
  const rows = [...errors, ...requests];
  return {
    site_id: ["demo-shop", "demo-shop", "demo-blog", "nowhere"],
    site_ids: ["demo-shop", "demo-shop", "demo-blog"],
    source_ids: ["app", "nginx", "worker", "none"],
    name: names,
    metric_name: names,
    hostname: of(lines, "hostname"),
    ...Object.fromEntries(
      ["trace_id", "span_id", "namespace", "action_name", "revision", "digest", "digests"].map((key) => [
        key,
        of(rows, key.replace(/s$/, "")),
      ]),
    ),
    namespaces: [...of(rows, "namespace"), ...of(pods, "pod_namespace"), ...of(pods, "namespace")],
    pod: of(pods, "pod_name"),
    node: of(pods, "node_name"),
    timezone: ["UTC", "Europe/Berlin", "+02:00"],
    expression: ["0 3 * * *", "*/5 * * * *", "@daily"],
    time: of(lines, "timestamp"),
  };
}

/** A value of the schema, for the field of that name. */
export function drawValue(schema: JsonSchema, field: string, vocabulary: Vocabulary, draw: Draw): unknown {
  const known = Object.hasOwn(vocabulary, field) ? vocabulary[field] : undefined;
  const meant =
    schema.$ref === undefined ? schema : document.components.schemas[schema.$ref.split("/").at(-1) ?? ""];
  if (meant === undefined) throw new Error(`no schema ${schema.$ref}`);
  if (meant.anyOf !== undefined) return drawValue(draw.pick(meant.anyOf) ?? {}, field, vocabulary, draw);
  if (meant.enum !== undefined) return draw.pick(meant.enum);
  if (meant.const !== undefined) return meant.const;
  if (meant.properties !== undefined) {
    const present = Object.entries(meant.properties).filter(
      ([key]) => meant.required?.includes(key) || draw.chance(0.4),
    );
    return new Members(present.map(([key, one]) => [key, drawValue(one, key, vocabulary, draw)]));
  }
  const { items } = meant;
  if (items !== undefined) {
    return [0, ...draw.some(2, () => 0)].map(() => drawValue(items, field, vocabulary, draw));
  }
  if (meant.format === "date-time") return drawTime(draw);
  switch (meant.type) {
    case "string":
      return draw.pick([...(known ?? []), ...(meant.examples ?? ["", "x"])]);
    case "integer":
    case "number":
      return draw.pick([...(meant.examples ?? []), 1, 10, 100, meant.minimum ?? 1]);
    case "boolean":
      return draw.chance(0.5);
    case "null":
      return null;
    case "object":
      return new Members(
        draw.some(2, () => [
          draw.pick(["namespace", "action", "hostname", "Tag"]),
          draw.pick(["*", "web", "web*", "*e*", "checkout"]),
        ]),
      );
    default:
      return draw.pick(["Name", new Members([["Tag", draw.pick(["namespace", "hostname", "action"])]])]);
  }
}

/** Mostly within the two hours of which the demo has data. */
function drawTime(draw: Draw): string {
  if (draw.chance(0.05)) return draw.pick(absurdTimes) ?? "";
  const text = new Date(clock - draw.below(7_200_000)).toISOString();
  return draw.pick([text, text.replace(/\.\d+/, ""), text.replace("Z", "456Z"), text.replace("Z", "+00:00")]);
}

/** A time in that half of the hour of which the marked sites have data. */
export function drawTimeIn(draw: Draw, half: 0 | 1): string {
  return new Date(base + (half * 30 + draw.below(30)) * 60_000).toISOString();
}
