// How large the answer to an introspection is, before it is executed: a few aliases make it a hundred times the schema, and
// it is executed in one turn of the event loop. Its values are counted over the schema itself.
import {
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type GraphQLField,
  type GraphQLObjectType,
  type GraphQLResolveInfo,
  type GraphQLSchema,
  getIntrospectionQuery,
  getNamedType,
  isObjectType,
  Kind,
  parse,
  SchemaMetaFieldDef,
  type SelectionSetNode,
  TypeMetaFieldDef,
} from "graphql";

interface CountState {
  readonly schema: GraphQLSchema;
  readonly fragments: ReadonlyMap<string, FragmentDefinitionNode>;
  readonly limit: number;
  count: number;
}

const schemaCounts = new WeakMap<GraphQLSchema, number>();

/** The values of the answer to the usual question for the whole schema, with its descriptions. */
export function countSchemaValues(schema: GraphQLSchema): number {
  const known = schemaCounts.get(schema);
  if (known !== undefined) return known;
  const question = parse(getIntrospectionQuery({ inputValueDeprecation: true, specifiedByUrl: true }));
  const count = countIntrospectedValues(schema, question, Number.POSITIVE_INFINITY);
  schemaCounts.set(schema, count);
  return count;
}

/**
 * The values that a document asks of its schema: leaves, objects and elements, over all of its operations. Counts no
 * further than beyond the limit. The document has to be valid. What `@skip` and `@include` leave out is counted, and a type
 * that a variable names counts as the type of all queries, which is among the largest.
 */
export function countIntrospectedValues(
  schema: GraphQLSchema,
  document: DocumentNode,
  limit: number,
): number {
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const definition of document.definitions) {
    if (definition.kind === Kind.FRAGMENT_DEFINITION) fragments.set(definition.name.value, definition);
  }
  const state: CountState = { schema, fragments, limit, count: 0 };
  for (const definition of document.definitions) {
    if (definition.kind === Kind.OPERATION_DEFINITION) countRoots(state, definition.selectionSet);
  }
  return state.count;
}

/** Only the type of all queries has fields of introspection. */
function countRoots(state: CountState, selectionSet: SelectionSetNode): void {
  for (const field of collectFields(state, [selectionSet])) {
    if (field.name === "__schema") countField(state, SchemaMetaFieldDef, field, undefined);
    if (field.name === "__type") countField(state, TypeMetaFieldDef, field, undefined);
  }
}

/** What stands at one place of the answer. */
interface AskedField {
  readonly name: string;
  /** The type that `__type` names. */
  readonly typeName: string | undefined;
  readonly selectionSets: SelectionSetNode[];
  /** Collected when the first object is met there. */
  children: readonly AskedField[] | undefined;
}

/** The fields of an object, those of fragments with them. What several places ask for under one name is answered once. */
function collectFields(
  { fragments }: CountState,
  selectionSets: readonly SelectionSetNode[],
): readonly AskedField[] {
  const found = new Map<string, AskedField>();
  const spread = new Set<string>();
  const collect = ({ selections }: SelectionSetNode): void => {
    for (const selection of selections) {
      if (selection.kind === Kind.FIELD) addField(found, selection);
      else if (selection.kind === Kind.INLINE_FRAGMENT) collect(selection.selectionSet);
      else if (!spread.has(selection.name.value)) {
        spread.add(selection.name.value);
        const fragment = fragments.get(selection.name.value);
        if (fragment !== undefined) collect(fragment.selectionSet);
      }
    }
  };
  for (const selectionSet of selectionSets) collect(selectionSet);
  return [...found.values()];
}

function addField(found: Map<string, AskedField>, node: FieldNode): void {
  const key = (node.alias ?? node.name).value;
  const value = node.arguments?.find(({ name }) => name.value === "name")?.value;
  const typeName = value?.kind === Kind.STRING ? value.value : undefined;
  const field = found.get(key) ?? { name: node.name.value, typeName, selectionSets: [], children: undefined };
  if (node.selectionSet !== undefined) field.selectionSets.push(node.selectionSet);
  found.set(key, field);
}

function countField(
  state: CountState,
  definition: GraphQLField<unknown, unknown>,
  field: AskedField,
  source: unknown,
): void {
  const { schema, limit } = state;
  const type = getNamedType(definition.type);
  const given = { name: field.typeName ?? schema.getQueryType()?.name, includeDeprecated: true };
  // The fields of introspection read nothing else of what they are given.
  const value: unknown = definition.resolve?.(source, given, undefined, { schema } as GraphQLResolveInfo);
  for (const one of Array.isArray(value) ? value : [value]) {
    state.count += 1;
    if (one == null || !isObjectType(type)) continue;
    field.children ??= collectFields(state, field.selectionSets);
    countObject(state, type, field.children, one);
    if (state.count > limit) return;
  }
}

function countObject(
  state: CountState,
  type: GraphQLObjectType,
  fields: readonly AskedField[],
  source: unknown,
): void {
  for (const field of fields) {
    const definition = type.getFields()[field.name];
    if (definition === undefined) state.count += 1;
    else countField(state, definition, field, source);
    if (state.count > state.limit) return;
  }
}
