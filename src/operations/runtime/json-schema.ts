// What the operations' schemas say, as JSON Schema: the one form from which the GraphQL schema and the OpenAPI
// document are built, so that no field is described twice.
import { isDeepStrictEqual } from "node:util";
import * as z from "zod";
import { enumWords } from "./enum-words.ts";
import type { Endpoint } from "./operation.ts";

/** The part of JSON Schema 2020-12 that our schemas become. */
export interface JsonSchema {
  readonly $ref?: string;
  readonly type?: string;
  readonly format?: string;
  readonly description?: string;
  readonly examples?: readonly unknown[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  /** The unit of a number, such as `ms`. */
  readonly "x-unit"?: string;
  /** What each value of an enumeration means. */
  readonly "x-enumDescriptions"?: Readonly<Record<string, string>>;
}

export interface DescribedOperation {
  readonly endpoint: Endpoint;
  readonly request: JsonSchema;
  readonly answer: JsonSchema;
}

export interface OperationDescriptions {
  readonly operations: readonly DescribedOperation[];
  /** What `#/$defs/<name>` refers to: each schema that has an `id` in its `meta`. */
  readonly inputs: ReadonlyMap<string, JsonSchema>;
  readonly outputs: ReadonlyMap<string, JsonSchema>;
}

/** A text of a row or a report, and what is said of it. */
export function textField(description: string, example: string) {
  return z.string().meta({ description, examples: [example] });
}

/** The same of a time. */
export function instantField(description: string, example = "2026-01-31T12:00:00.123Z") {
  return z.string().meta({ format: "date-time", description, examples: [example] });
}

/** @throws {Error} two different schemas of one id, which is a mistake of ours */
export function describeOperations(endpoints: readonly Endpoint[]): OperationDescriptions {
  const inputs = new Map<string, JsonSchema>();
  const outputs = new Map<string, JsonSchema>();
  const operations = endpoints.map((endpoint) => ({
    endpoint,
    request: describeSchema(endpoint.request, "input", inputs),
    answer: describeSchema(endpoint.answer, "output", outputs),
  }));
  return { operations, inputs, outputs };
}

/** The schema without its definitions, which are added to `definitions`. */
export function describeSchema(
  schema: z.ZodType,
  io: "input" | "output",
  definitions: Map<string, JsonSchema>,
): JsonSchema {
  // zod's type of a JSON Schema is all of JSON Schema; ours is what our schemas can become.
  const { $defs, $schema, ...rest } = z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) => {
      // zod takes the examples of a schema that transforms for those of its output; ours are of the wire.
      const { examples, id } = z.globalRegistry.get(zodSchema) ?? {};
      if (Array.isArray(examples)) jsonSchema.examples = examples;
      if (jsonSchema.enum !== undefined && id !== undefined) jsonSchema["x-enumDescriptions"] = enumWords[id];
      // Generators of clients take a number that says no more for one of 32 bits, and would round it.
      const { type, minimum, maximum } = jsonSchema;
      if (type === "number") jsonSchema.format = "double";
      if (type === "integer") jsonSchema.format = isInt32(minimum) && isInt32(maximum) ? "int32" : "int64";
      delete jsonSchema.propertyNames;
      delete jsonSchema.id;
    },
  }) as JsonSchema & { $defs?: Readonly<Record<string, JsonSchema>>; $schema?: string };
  for (const [name, definition] of Object.entries($defs ?? {})) {
    const known = definitions.get(name);
    const spelt = rewriteNullable(definition);
    if (known !== undefined && !isDeepStrictEqual(known, spelt)) {
      throw new Error(`two schemas have the id ${name}`);
    }
    definitions.set(name, spelt);
  }
  return rewriteNullable(rest);
}

export function isInt32(value: number | undefined): value is number {
  return value !== undefined && value >= -(2 ** 31) && value < 2 ** 31;
}

/** zod has two spellings of "or null"; one is enough for those who read this. */
function rewriteNullable<T>(node: T): T;
function rewriteNullable(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(rewriteNullable);
  if (typeof node !== "object" || node === null) return node;
  const { type, ...rest } = Object.fromEntries(
    Object.entries(node).map(([key, value]) => [key, rewriteMember(key, value)]),
  );
  if (!Array.isArray(type)) return type === undefined ? rest : { type, ...rest };
  const { description, examples, ...bounds } = rest;
  return {
    ...(description === undefined ? {} : { description }),
    ...(examples === undefined ? {} : { examples }),
    anyOf: type.map((one) => (one === "null" ? { type: one } : { type: one, ...bounds })),
  };
}

/** The names of properties may be those of keywords, which mean nothing there. */
function rewriteMember(key: string, value: unknown): unknown {
  if (key === "examples") return value;
  if (key !== "properties" || typeof value !== "object" || value === null) return rewriteNullable(value);
  return Object.fromEntries(Object.entries(value).map(([name, schema]) => [name, rewriteNullable(schema)]));
}
