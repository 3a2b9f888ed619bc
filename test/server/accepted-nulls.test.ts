// Where a request body may have a null: the document and the schemas that read bodies say the same of every place.
import { describe, expect, test } from "vitest";
import { operations } from "#src/operations/index.ts";
import type { JsonSchema } from "#src/operations/runtime/json-schema.ts";
import { buildOpenApi } from "#src/server/openapi.ts";

interface Body {
  readonly content: {
    readonly "application/json": {
      readonly schema: JsonSchema;
      readonly examples: Readonly<Record<string, { readonly value: unknown }>>;
    };
  };
}
const { paths, components } = JSON.parse(JSON.stringify(buildOpenApi(operations))) as {
  readonly paths: Readonly<Record<string, { readonly post?: { readonly requestBody: Body } }>>;
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> };
};

/** The alternatives of a schema, references resolved. */
function listAlternatives(
  schema: JsonSchema & { readonly oneOf?: readonly JsonSchema[] },
): readonly JsonSchema[] {
  const { $ref, anyOf, oneOf } = schema;
  const named = $ref === undefined ? undefined : components.schemas[$ref.split("/").at(-1) ?? ""];
  if ($ref !== undefined && named === undefined) throw new Error(`no schema ${$ref}`);
  if (named !== undefined) return listAlternatives(named);
  return (anyOf ?? oneOf)?.flatMap(listAlternatives) ?? [schema];
}

const isNullable = (schema: JsonSchema): boolean =>
  listAlternatives(schema).some(({ type }) => type === undefined || type === "null");

interface Variant {
  readonly path: string;
  readonly value: unknown;
  /** The same with no value in the place, where it is the key of an object. */
  readonly without?: unknown;
  /** Whether the document allows the null of this variant. */
  readonly allowed: boolean;
}

/** The variants of a value of which one documented place is null. A place that the value lacks is added. */
function listVariants(schema: JsonSchema, value: unknown, path = "body"): readonly Variant[] {
  const own: Variant = { path, value: null, allowed: isNullable(schema) };
  const inner = listAlternatives(schema).flatMap((one) => listInnerVariants(one, value, path));
  return [own, ...inner];
}

function listInnerVariants(schema: JsonSchema, value: unknown, path: string): readonly Variant[] {
  const { properties = {}, items, additionalProperties } = schema;
  const members: object = typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  const within = (key: string, inner: JsonSchema) =>
    listVariants(inner, Reflect.get(members, key), `${path}.${key}`).map((variant) => ({
      ...variant,
      value: { ...members, [key]: variant.value },
      without: omitUndefined({ ...members, [key]: variant.without }),
    }));
  const [item] = Array.isArray(value) ? value : [];
  return [
    ...Object.entries(properties).flatMap(([key, inner]) => within(key, inner)),
    ...(typeof additionalProperties === "object" ? within("any", additionalProperties) : []),
    ...(items === undefined
      ? []
      : listVariants(items, item, `${path}[]`).map((variant) => ({
          ...variant,
          value: [variant.value],
          without: variant.without === undefined ? [] : [variant.without],
        }))),
  ];
}

function omitUndefined(members: object): object {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

describe.each(
  operations
    .filter(({ method }) => method === "POST")
    .map((operation) => [operation.path, operation] as const),
)("nulls in the body of %s", (path, { request }) => {
  const { schema, examples } = paths[path]?.post?.requestBody.content["application/json"] ?? {};
  const variants = Object.values(examples ?? {}).flatMap(({ value }) => listVariants(schema ?? {}, value));

  test("are those of the document", () => {
    expect(variants.length).toBeGreaterThan(1);
    const isAccepted = (value: unknown) => request.safeParse(value).success;
    const wrong = variants
      // Null means absent, so it may be refused where one of several keys is required.
      .filter(({ value, without, allowed }) => isAccepted(value) !== (allowed && isAccepted(without)))
      .map(
        ({ path, allowed }) =>
          `${path}: ${allowed ? "documented but refused" : "accepted but not documented"}`,
      );
    expect([...new Set(wrong)]).toEqual([]);
  });
});
