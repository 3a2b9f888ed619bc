// Completes the types for existing clients: descriptions, and default resolvers. A field without data is null or empty, as its
// type allows.
import {
  type GraphQLField,
  type GraphQLInterfaceType,
  type GraphQLNamedType,
  type GraphQLObjectType,
  type GraphQLOutputType,
  type GraphQLSchema,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isListType,
  isNonNullType,
  isObjectType,
  isScalarType,
  isUnionType,
  parse,
} from "graphql";
import type { Context, Resolvers } from "../../operations/runtime/session.ts";
import { argumentWords, fieldWords, typeWords, valueWords } from "./descriptions.ts";

/** Names of fields by type that every row has as they are answered: these need no resolver, which would cost a call for each. */
export type PlainFields = Readonly<Record<string, readonly string[]>>;

/** Sets resolvers and descriptions of the types that a document defines. */
export function completeTypes(
  schema: GraphQLSchema,
  definitions: string,
  resolvers: Resolvers,
  plainFields: PlainFields,
): void {
  for (const node of parse(definitions).definitions) {
    if (!("name" in node) || node.name === undefined) continue;
    const type = schema.getType(node.name.value);
    if (type === undefined) throw new Error(`no type ${node.name.value}`);
    type.description ??= typeWords[type.name] ?? otherTypeWords;
    const names = "fields" in node ? (node.fields ?? []).map(({ name }) => name.value) : [];
    if (isObjectType(type) || isInterfaceType(type)) completeFields(type, names, resolvers, plainFields);
    if (isUnionType(type) || isInterfaceType(type)) type.resolveType = (row) => row.__typename;
    describeInputType(type);
  }
}

function completeFields(
  type: GraphQLObjectType | GraphQLInterfaceType,
  names: readonly string[],
  resolvers: Resolvers,
  plainFields: PlainFields,
): void {
  const fields = type.getFields();
  for (const name of names) {
    const field = fields[name];
    if (field === undefined) continue;
    describeField(field, type);
    if (isInterfaceType(type) || plainFields[type.name]?.includes(name)) continue;
    field.resolve = createResolver(field, resolvers[type.name]?.[name]);
  }
}

function describeInputType(type: GraphQLNamedType): void {
  if (isInputObjectType(type)) {
    for (const field of Object.values(type.getFields()))
      field.description ??= argumentWords[field.name] ?? otherWords;
  }
  if (isEnumType(type)) {
    for (const value of type.getValues()) value.description ??= valueWords[value.name] ?? otherWords;
  }
}

const otherTypeWords = "For existing clients; no site has one.";
const otherWords = "For existing clients.";

type Resolve = NonNullable<NonNullable<Resolvers[string]>[string]>;

function describeField(field: GraphQLField<unknown, Context>, type: GraphQLNamedType): void {
  const words = fieldWords[`${type.name}.${field.name}`] ?? fieldWords[field.name];
  field.description ??= words ?? `For existing clients; always ${describeEmpty(field.type)}.`;
  for (const argument of field.args)
    argument.description ??=
      argumentWords[`${field.name}.${argument.name}`] ?? argumentWords[argument.name] ?? otherWords;
}

/** What is at hand is answered at once: a promise for each field of each row would cost more than all else. */
function createResolver(field: GraphQLField<unknown, Context>, resolve: Resolve | undefined): Resolve {
  const empty = toEmptyAnswer(field.type);
  const answer = resolve ?? ((parent: unknown) => (isRecord(parent) ? parent[field.name] : undefined));
  return (...args) => {
    const value = answer(...args);
    return value instanceof Promise ? value.then((later) => later ?? empty) : (value ?? empty);
  };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** An empty list for a list; else null for a type that allows it, and the emptiest value for one that does not. */
function toEmptyAnswer(type: GraphQLOutputType): unknown {
  if (isListType(type)) return [];
  if (!isNonNullType(type)) return null;
  const inner = type.ofType;
  if (isListType(inner)) return [];
  if (isScalarType(inner)) return emptyScalars[inner.name] ?? "";
  // An enumeration that is always set has a resolver or a value of its own.
  return isEnumType(inner) ? null : {};
}

const emptyScalars: Readonly<Record<string, unknown>> = { Int: 0, Float: 0, Boolean: false };

function describeEmpty(type: GraphQLOutputType): string {
  const empty = toEmptyAnswer(type);
  if (empty === null) return "null";
  if (empty === "") return "the empty text";
  return typeof empty === "object" ? "empty" : String(empty);
}
