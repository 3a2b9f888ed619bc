// The `telemetry` schema: each operation is a field of `Query`, its arguments and its type are read off the
// operation's own schemas, and its resolver asks the request's session. So the module holds no state and knows no
// store: Mesh, its command line and a test can load it alike.
//
// A field is named after its operation (`logs.lines` is `logs_lines`), rows keep the wire's names, and a character
// that GraphQL cannot spell becomes `_`. What GraphQL's types cannot say (maps, unions of inputs) is the scalar JSON.
import {
  DirectiveLocation,
  type GraphQLArgumentConfig,
  GraphQLBoolean,
  GraphQLDirective,
  GraphQLEnumType,
  GraphQLError,
  type GraphQLFieldConfig,
  GraphQLFloat,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLInt,
  type GraphQLLeafType,
  GraphQLList,
  GraphQLNonNull,
  GraphQLObjectType,
  type GraphQLOutputType,
  type GraphQLResolveInfo,
  GraphQLScalarType,
  GraphQLSchema,
  GraphQLString,
  responsePathAsArray,
  specifiedDirectives,
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
import type { AnswerPlace, Context, Session, TailEvent } from "../operations/runtime/session.ts";
import { addEntities } from "./entities.ts";
import { addLinks, markRows } from "./links.ts";
import { completeListsInTurns } from "./lists/list-turns.ts";

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

const partial = new GraphQLDirective({
  name: "partial",
  description:
    "Takes an answer without what a failed backend holds, where the site allows that. An error with `missing` stands beside it. Elsewhere it changes nothing.",
  locations: [DirectiveLocation.FIELD],
});

/** The place of a field that takes a partial answer; undefined for any other. */
function findPartialPlace({ fieldNodes, path }: GraphQLResolveInfo): AnswerPlace | undefined {
  const isPartial = fieldNodes.some(({ directives }) =>
    directives?.some(({ name }) => name.value === partial.name),
  );
  return isPartial ? responsePathAsArray(path) : undefined;
}

/** Whether a time can be read is the operation's business: it says what is wrong, with the field's path. */
function checkTimeText(value: unknown): string {
  // A GraphQLError is the client's affair, and anything else would be ours.
  if (typeof value !== "string") throw new GraphQLError("DateTime: expected a time as text");
  return value;
}

/** The operations alone, without links. */
export function buildQuerySchema(endpoints: readonly Endpoint[]): GraphQLSchema {
  const described = describeOperations(endpoints);
  const registry = createTypeRegistry(described);
  const query = new GraphQLObjectType<unknown, Context>({
    name: "Query",
    description: "The monitoring data of the sites that the token may see.",
    fields: Object.fromEntries(
      described.operations.map((operation) => [
        toGraphqlName(operation.endpoint.name),
        buildQueryField(operation, registry),
      ]),
    ),
  });
  const lines = described.operations.find(({ endpoint }) => endpoint.name === "logs.lines");
  return new GraphQLSchema({
    query,
    subscription: lines && buildSubscription(lines, registry),
    types: [dateTime, json],
    directives: [...specifiedDirectives, partial],
  });
}

/** Nullable, whatever the operation answers: a failure of one field must not take the answers of the others. */
function buildQueryField(
  { endpoint, request, answer }: DescribedOperation,
  registry: TypeRegistry,
): GraphQLFieldConfig<unknown, Context> {
  const { name, summary, description, method, path, deprecation } = endpoint;
  const told = [`${summary}.`, description, `REST: \`${method} ${path}\`.`].filter(Boolean).join("\n\n");
  const [body] = resolveReference(registry, request, "inputs", "");
  const keys = Object.keys(body.properties ?? {});
  return {
    description: told,
    ...(deprecation === undefined ? {} : { deprecationReason: deprecation.instead }),
    type: toOutputType(registry, answer, toPascalCase(name)),
    args: buildInputFields(registry, body, toPascalCase(name)),
    resolve: async (_, args: Readonly<Record<string, unknown>>, { readout }, info) =>
      markRows(await readout.runOperation(name, toWireNames(args, keys), findPartialPlace(info)), args),
  };
}

/** The rows of a page of log lines as its live tail sends them. A tail has no pages; the operation wants one. */
function buildSubscription(
  { endpoint, request, answer }: DescribedOperation,
  registry: TypeRegistry,
): GraphQLObjectType<TailEvent, Context> {
  const { name, method, path } = endpoint;
  const [{ properties: { pagination: _, ...properties } = {}, ...body }] = resolveReference(
    registry,
    request,
    "inputs",
    "",
  );
  const { from, to, ...args } = buildInputFields(registry, { ...body, properties }, toPascalCase(name));
  const log_lines: GraphQLFieldConfig<TailEvent, Context> = {
    description: `Log lines as they come, once each, some in each event. An empty list tells that the sources answer again after an error.\n\nREST: \`${method} ${path}\` with \`Accept: text/event-stream\`.`,
    type: toOutputType(registry, answer, toPascalCase(name)),
    args: {
      ...args,
      ...(from && { from: { ...from, description: "Range start, inclusive. The default is now." } }),
      ...(to && { to: { ...to, description: "Range end, inclusive. Without it there is none." } }),
    },
    subscribe: (_, given: Readonly<Record<string, unknown>>, context) => {
      const page = { per_page: 1, order: "ASC" };
      const input = { ...toWireNames(given, Object.keys(properties)), pagination: page };
      return followRows(name, input, context);
    },
    resolve: (event, given: Readonly<Record<string, unknown>>, { readout }) => {
      if ("failure" in event) throw readout.toTailError(event.failure);
      return markRows(event.lines, given);
    },
  };
  const description = "What is told as it comes, as server-sent events.";
  return new GraphQLObjectType({ name: "Subscription", description, fields: { log_lines } });
}

/** The context of a subscription: GraphQL answers all of its events with this one object. */
interface SubscriptionContext {
  /** That of the event that is answered now. */
  readout: Session;
}

/**
 * The events of a tail. Each is answered with a session of its own, which replaces the one before in the context: a tail has no
 * end, and what a session reads has bounds.
 */
async function followRows(
  name: string,
  input: unknown,
  context: SubscriptionContext,
): Promise<AsyncIterable<TailEvent>> {
  const events = (await context.readout.followTail(name, input))[Symbol.asyncIterator]();
  const inSessions: AsyncIterableIterator<TailEvent> = {
    [Symbol.asyncIterator]: () => inSessions,
    // GraphQL asks for the next event when the one before has been sent.
    next: async () => {
      context.readout.releaseRows();
      const next = await events.next();
      context.readout = context.readout.createNext();
      return next;
    },
    return: async () => {
      context.readout.releaseRows();
      return (await events.return?.()) ?? { done: true, value: undefined };
    },
  };
  return inSessions;
}

type Side = "inputs" | "outputs";

/** The types made so far, by name, and what their references mean. */
interface TypeRegistry {
  readonly descriptions: OperationDescriptions;
  readonly enums: Map<string, GraphQLEnumType>;
  readonly inputs: Map<string, GraphQLInputObjectType>;
  readonly outputs: Map<string, GraphQLObjectType>;
}

function createTypeRegistry(descriptions: OperationDescriptions): TypeRegistry {
  return { descriptions, enums: new Map(), inputs: new Map(), outputs: new Map() };
}

/** The schema that a reference means, and the name that it has or is given. */
function resolveReference(
  { descriptions }: TypeRegistry,
  schema: JsonSchema,
  side: Side,
  name: string,
): readonly [schema: JsonSchema, name: string] {
  const id = schema.$ref?.replace("#/$defs/", "");
  if (id === undefined) return [schema, name];
  // An enumeration is the same both ways, and may be defined by the other.
  const other = side === "inputs" ? "outputs" : "inputs";
  const definition = descriptions[side].get(id) ?? descriptions[other].get(id);
  if (definition === undefined) throw new Error(`no schema ${id}`);
  return [definition, id];
}

/** Whether null may stand there: it is named, or nothing is said of the value. */
function isNullable(registry: TypeRegistry, schema: JsonSchema): boolean {
  const [{ type, anyOf, enum: words, const: only, properties }] = resolveReference(
    registry,
    schema,
    "outputs",
    "",
  );
  if (anyOf !== undefined) return anyOf.some((one) => isNullable(registry, one));
  if (words !== undefined) return words.includes(null);
  return type === "null" || (type === undefined && only === undefined && properties === undefined);
}

/** Whether an object always has a value under a key. */
function isAlwaysSet(registry: TypeRegistry, { required, properties }: JsonSchema, key: string): boolean {
  const property = properties?.[key];
  return property !== undefined && required?.includes(key) === true && !isNullable(registry, property);
}

function describeType(registry: TypeRegistry, schema: JsonSchema, side: Side): string | undefined {
  return resolveReference(registry, stripNull(schema), side, "")[0].description;
}

function toScalarType(registry: TypeRegistry, schema: JsonSchema, name: string) {
  if (schema.enum?.every((value) => typeof value === "string")) return toEnumType(registry, schema, name);
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

function toEnumType({ enums }: TypeRegistry, schema: JsonSchema, name: string): GraphQLEnumType {
  const known = enums.get(name);
  if (known !== undefined) return known;
  const { enum: words = [], description, "x-enumDescriptions": meanings } = schema;
  const values = words.map(String).map((word) => {
    return [toGraphqlName(word), { value: word, description: meanings?.[word] }] as const;
  });
  const type = new GraphQLEnumType({ name, description, values: Object.fromEntries(values) });
  enums.set(name, type);
  return type;
}

/** `proposed` is the name of a type that has no `id`. */
function toOutputType(
  registry: TypeRegistry,
  schema: JsonSchema,
  proposed: string,
): GraphQLNullableOutputType {
  const [meant, name] = resolveReference(registry, stripNull(schema), "outputs", proposed);
  if (meant.items !== undefined) {
    const item = toOutputType(registry, meant.items, name);
    return new GraphQLList(isNullable(registry, meant.items) ? item : new GraphQLNonNull(item));
  }
  if (meant.properties === undefined) return toScalarType(registry, meant, name);
  const known = registry.outputs.get(name);
  if (known !== undefined) return known;
  const type = new GraphQLObjectType({
    name,
    description: meant.description,
    fields: () => buildOutputFields(registry, meant, name),
  });
  registry.outputs.set(name, type);
  return type;
}
type GraphQLNullableOutputType = GraphQLList<GraphQLOutputType> | GraphQLObjectType | GraphQLLeafType;

/** A field that is never null says so. */
function buildOutputFields(registry: TypeRegistry, meant: JsonSchema, name: string) {
  return Object.fromEntries(
    Object.entries(meant.properties ?? {}).map(([key, property]) => {
      const type = toOutputType(registry, property, name + toPascalCase(key));
      const field: GraphQLFieldConfig<Readonly<Record<string, unknown>>, Context> = {
        description: describeField(key, property, describeType(registry, property, "outputs")),
        type: isAlwaysSet(registry, meant, key) ? new GraphQLNonNull(type) : type,
        ...(toGraphqlName(key) === key ? {} : { resolve: (row) => row[key] }),
      };
      return [toGraphqlName(key), field];
    }),
  );
}

function toInputType(registry: TypeRegistry, schema: JsonSchema, proposed: string): GraphQLNullableInputType {
  const [meant, name] = resolveReference(registry, stripNull(schema), "inputs", proposed);
  if (meant.items !== undefined) {
    return new GraphQLList(new GraphQLNonNull(toInputType(registry, meant.items, name)));
  }
  if (meant.properties === undefined) return toScalarType(registry, meant, name);
  const known = registry.inputs.get(name);
  if (known !== undefined) return known;
  const type = new GraphQLInputObjectType({
    name: `${name}Input`,
    description: meant.description,
    fields: () => buildInputFields(registry, meant, name),
  });
  registry.inputs.set(name, type);
  return type;
}
type GraphQLNullableInputType = GraphQLList<GraphQLInputType> | GraphQLInputObjectType | GraphQLLeafType;

function buildInputFields(
  registry: TypeRegistry,
  schema: JsonSchema,
  name: string,
): Readonly<Record<string, GraphQLArgumentConfig>> {
  return Object.fromEntries(
    Object.entries(schema.properties ?? {}).map(([key, property]) => {
      const type = toInputType(registry, property, name + toPascalCase(key));
      const description = describeField(key, property, describeType(registry, property, "inputs"));
      const isRequired = isAlwaysSet(registry, schema, key);
      return [toGraphqlName(key), { description, type: isRequired ? new GraphQLNonNull(type) : type }];
    }),
  );
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

function toGraphqlName(name: string): string {
  return name.replace(/\W/g, "_");
}

function toPascalCase(name: string): string {
  return name.replace(/(?:^|[\W_]+)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** Arguments under the names of the wire. */
function toWireNames(
  args: Readonly<Record<string, unknown>>,
  keys: readonly string[],
): Readonly<Record<string, unknown>> {
  const given = keys.filter((key) => Object.hasOwn(args, toGraphqlName(key)));
  return Object.fromEntries(given.map((key) => [key, args[toGraphqlName(key)]]));
}

/** What `.meshrc.yaml` names as the source `telemetry`. */
export const schema: GraphQLSchema = completeListsInTurns(
  addEntities(addLinks(buildQuerySchema(operations))),
);
