// The `telemetry` schema: each operation is a field of `Query`, its arguments and its type are read off the
// operation's own schemas, and its resolver asks the request's session. So the module holds no state and knows no
// store: Mesh, its command line and a test can load it alike.
//
// A field is named after its operation (`logs.lines` is `logs_lines`), rows keep the wire's names, and a character
// that GraphQL cannot spell becomes `_`. What GraphQL's types cannot say (maps, unions of inputs) is the scalar JSON.
import {
  type GraphQLArgumentConfig,
  GraphQLBoolean,
  GraphQLEnumType,
  GraphQLError,
  type GraphQLFieldConfig,
  GraphQLFloat,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLInt,
  GraphQLList,
  GraphQLNonNull,
  GraphQLObjectType,
  type GraphQLOutputType,
  GraphQLScalarType,
  GraphQLSchema,
  GraphQLString,
  type ValueNode,
  valueFromASTUntyped,
} from "graphql";
import { operations } from "../operations/index.ts";
import {
  type DescribedOperation,
  describeOperations,
  isInt32,
  type JsonSchema,
  type OperationDescriptions,
} from "../operations/runtime/json-schema.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import { addLinks, markRows } from "./links.ts";
import type { Context } from "./session.ts";

const dateTime = new GraphQLScalarType<string, string>({
  name: "DateTime",
  description:
    "An ISO 8601 time with a zone. Answers are in UTC, with as many fraction digits as REST gives them.",
  serialize: checkTimeText,
  parseValue: checkTimeText,
});

const json = new GraphQLScalarType<unknown, unknown>({
  name: "JSON",
  description: "Any JSON value. Numbers that a double cannot hold keep all their digits.",
  serialize: (value) => value,
  parseValue: (value) => value,
  parseLiteral: (node: ValueNode, variables) => valueFromASTUntyped(node, variables),
});

/** Whether a time can be read is the operation's business: it says what is wrong, with the field's path. */
function checkTimeText(value: unknown): string {
  // A GraphQLError is the client's affair, and anything else would be ours.
  if (typeof value !== "string") throw new GraphQLError("DateTime: expected a time as text");
  return value;
}

/** The operations alone, without links. */
function buildQuerySchema(endpoints: readonly Endpoint[]): GraphQLSchema {
  const described = describeOperations(endpoints);
  const types = createTypes(described);
  const query = new GraphQLObjectType<unknown, Context>({
    name: "Query",
    description: "The monitoring data of the sites that the token may see.",
    fields: Object.fromEntries(
      described.operations.map((operation) => [
        toGraphqlName(operation.endpoint.name),
        buildQueryField(operation, types),
      ]),
    ),
  });
  return new GraphQLSchema({ query, types: [dateTime, json] });
}

function buildQueryField(
  { endpoint, request, answer }: DescribedOperation,
  types: Types,
): GraphQLFieldConfig<unknown, Context> {
  const { name, summary, description, method, path } = endpoint;
  const told = [`${summary}.`, description, `REST: \`${method} ${path}\`.`].filter(Boolean).join("\n\n");
  const properties = types.resolve(request, "inputs").properties ?? {};
  return {
    description: told,
    type: types.output(answer, toPascalCase(name)),
    args: types.inputFields(types.resolve(request, "inputs"), toPascalCase(name)),
    resolve: async (_, args: Readonly<Record<string, unknown>>, { readout }) =>
      markRows(await readout.runOperation(name, toWireNames(args, properties)), args),
  };
}

interface Types {
  readonly output: (schema: JsonSchema, name: string) => GraphQLOutputType;
  readonly inputFields: (schema: JsonSchema, name: string) => Readonly<Record<string, GraphQLArgumentConfig>>;
  readonly resolve: (schema: JsonSchema, side: "inputs" | "outputs") => JsonSchema;
}

function createTypes(descriptions: OperationDescriptions): Types {
  const enums = new Map<string, GraphQLEnumType>();
  const inputs = new Map<string, GraphQLInputObjectType>();
  const outputs = new Map<string, GraphQLObjectType>();

  /** The schema that a reference means, and the name that it has or is given. */
  function deref(schema: JsonSchema, side: "inputs" | "outputs", name: string): [JsonSchema, string] {
    const id = schema.$ref?.replace("#/$defs/", "");
    // An enumeration is the same both ways, and may be defined by the other.
    const other = side === "inputs" ? "outputs" : "inputs";
    const definition =
      id === undefined ? undefined : (descriptions[side].get(id) ?? descriptions[other].get(id));
    return id === undefined || definition === undefined ? [schema, name] : [definition, id];
  }

  const wordsOf = (schema: JsonSchema, side: "inputs" | "outputs") =>
    deref(stripNull(schema), side, "")[0].description;

  function scalar(schema: JsonSchema, name: string) {
    if (schema.enum?.every((value) => typeof value === "string")) return enumeration(schema, name);
    switch (schema.type) {
      case "string":
        return schema.format === "date-time" ? dateTime : GraphQLString;
      case "boolean":
        return GraphQLBoolean;
      case "integer":
        // GraphQL's Int has 32 bits; a double holds every whole number that JSON may safely.
        return isInt32(schema.minimum) && isInt32(schema.maximum) ? GraphQLInt : GraphQLFloat;
      case "number":
        return GraphQLFloat;
      default:
        return json;
    }
  }

  function enumeration({ enum: words = [], description }: JsonSchema, name: string): GraphQLEnumType {
    const known = enums.get(name);
    if (known !== undefined) return known;
    const type = new GraphQLEnumType({
      name,
      description,
      values: Object.fromEntries(words.map((word) => [toGraphqlName(String(word)), { value: word }])),
    });
    enums.set(name, type);
    return type;
  }

  function output(schema: JsonSchema, proposed: string): GraphQLOutputType {
    const [meant, name] = deref(stripNull(schema), "outputs", proposed);
    if (meant.items !== undefined) {
      const item = output(meant.items, name);
      return new GraphQLList(isNullable(meant.items) ? item : new GraphQLNonNull(item));
    }
    if (meant.properties === undefined) return scalar(meant, name);
    const known = outputs.get(name);
    if (known !== undefined) return known;
    const type = new GraphQLObjectType({
      name,
      description: meant.description,
      fields: () =>
        Object.fromEntries(
          Object.entries(meant.properties ?? {}).map(([key, property]) => [
            toGraphqlName(key),
            {
              description: describeField(key, property, wordsOf(property, "outputs")),
              type: output(property, name + toPascalCase(key)),
              ...(toGraphqlName(key) === key
                ? {}
                : { resolve: (row: Readonly<Record<string, unknown>>) => row[key] }),
            },
          ]),
        ),
    });
    outputs.set(name, type);
    return type;
  }

  function input(schema: JsonSchema, proposed: string): GraphQLInputType {
    const [meant, name] = deref(stripNull(schema), "inputs", proposed);
    if (meant.items !== undefined) return new GraphQLList(new GraphQLNonNull(input(meant.items, name)));
    if (meant.properties === undefined) return scalar(meant, name);
    const known = inputs.get(name);
    if (known !== undefined) return known;
    const type = new GraphQLInputObjectType({
      name: `${name}Input`,
      description: meant.description,
      fields: () => inputFields(meant, name),
    });
    inputs.set(name, type);
    return type;
  }

  function inputFields(schema: JsonSchema, name: string): Readonly<Record<string, GraphQLArgumentConfig>> {
    return Object.fromEntries(
      Object.entries(schema.properties ?? {}).map(([key, property]) => {
        const type = input(property, name + toPascalCase(key));
        const required = schema.required?.includes(key) === true && !isNullable(property);
        const description = describeField(key, property, wordsOf(property, "inputs"));
        return [toGraphqlName(key), { description, type: required ? new GraphQLNonNull(type) : type }];
      }),
    );
  }

  return { output, inputFields, resolve: (schema, side) => deref(schema, side, "")[0] };
}

/** The text of a field: its own or its type's, its unit, its bounds and an example, as OpenAPI shows them apart. */
function describeField(key: string, schema: JsonSchema, ofType: string | undefined): string | undefined {
  const told = { ...stripNull(schema), ...schema };
  const { description = ofType, minimum, maximum, examples, "x-unit": unit } = told;
  const bounds =
    isInt32(minimum) && isInt32(maximum)
      ? `From ${minimum} to ${maximum}.`
      : minimum !== undefined && Math.abs(minimum) < Number.MAX_SAFE_INTEGER
        ? `At least ${minimum}.`
        : undefined;
  const text = [
    description,
    unit === undefined ? undefined : `Unit: ${unit}.`,
    bounds,
    examples?.[0] === undefined ? undefined : `Example: \`${JSON.stringify(examples[0])}\`.`,
    toGraphqlName(key) === key ? undefined : `\`${key}\` over REST.`,
  ]
    .filter((part) => part !== undefined)
    .join(" ");
  return text === "" ? undefined : text;
}

/**
 * The one schema beside null, or the schema itself; a real union stays one, and has no type. The empty text stands
 * for null in a few REST filters, and is not needed beside it.
 */
function stripNull(schema: JsonSchema): JsonSchema {
  const others = schema.anyOf?.filter((one) => one.type !== "null" && one.const !== "") ?? [];
  const [only] = others;
  return others.length === 1 && only !== undefined ? stripNull(only) : schema;
}

function isNullable(schema: JsonSchema): boolean {
  return schema.anyOf?.some(({ type }) => type === "null") === true;
}

function toGraphqlName(name: string): string {
  return name.replace(/\W/g, "_");
}

function toPascalCase(name: string): string {
  return name.replace(/(?:^|[\W_]+)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** Arguments under the names of the wire. */
function toWireNames(
  args: Readonly<Record<string, unknown>>,
  properties: Readonly<Record<string, JsonSchema>>,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.keys(properties)
      .filter((key) => Object.hasOwn(args, toGraphqlName(key)))
      .map((key) => [key, args[toGraphqlName(key)]]),
  );
}

/** What `.meshrc.yaml` names as the source `telemetry`. */
export const schema: GraphQLSchema = addLinks(buildQuerySchema(operations));
