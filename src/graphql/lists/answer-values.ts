// How many values an answer gets from the rows of a list, counted before the executor is handed them: it calls a resolver for
// each field that has one, for each row and each alias.
import {
  type FieldNode,
  type FragmentDefinitionNode,
  type GraphQLObjectType,
  type GraphQLResolveInfo,
  type GraphQLSchema,
  getNamedType,
  getNullableType,
  isAbstractType,
  isCompositeType,
  isListType,
  isObjectType,
  Kind,
  type SelectionSetNode,
} from "graphql";
import { type MaybePromise, runSteps, type Steps, takeSteps } from "../../core/async/turns.ts";
import { requireFirst } from "../../core/collections.ts";
import { isLeftOut } from "./left-out.ts";

/** What a query asks of each row of a list. */
interface Selection {
  /** Values of a row, without those of the lists that it holds itself. */
  readonly values: number;
  readonly lists: readonly InnerList[];
}

/** A list that a row holds, which no resolver makes. */
interface InnerList {
  /** Names of the fields that lead to it. */
  readonly path: readonly string[];
  /** How many aliases ask for the same of it. */
  readonly times: number;
  readonly selection: Selection;
}

/** Fields that a row has as they are answered: so many of them cost as much as one that a resolver answers. */
const plainFieldsPerValue = 10;

/** By the nodes of a field, which are the same for all rows of an answer. */
const known = new WeakMap<readonly FieldNode[], Selection>();

export function readSelection(info: GraphQLResolveInfo): Selection {
  const { fieldNodes, returnType } = info;
  const before = known.get(fieldNodes);
  if (before !== undefined) return before;
  const type = getNamedType(returnType);
  const selection = isCompositeType(type) ? measure(info, type.name, fieldNodes) : { values: 1, lists: [] };
  known.set(fieldNodes, selection);
  return selection;
}

type Query = Pick<GraphQLResolveInfo, "schema" | "fragments" | "variableValues">;

/** Of a type with several possible ones that which has the most values. */
function measure(query: Query, typeName: string, nodes: readonly FieldNode[]): Selection {
  const type = query.schema.getType(typeName);
  const possible = isAbstractType(type)
    ? query.schema.getPossibleTypes(type)
    : isObjectType(type)
      ? [type]
      : [];
  return possible
    .map((one) => measureObject(query, one, nodes))
    .reduce((most, one) => (one.values > most.values ? one : most), { values: 0, lists: [] });
}

function measureObject(query: Query, type: GraphQLObjectType, nodes: readonly FieldNode[]): Selection {
  const fields = new Map<string, FieldNode[]>();
  const visited = new Set<string>();
  for (const { selectionSet } of nodes) collectFields(query, type, selectionSet, fields, visited);
  let values = 1;
  let plain = 0;
  const lists = new Map<string, InnerList>();
  for (const sameName of fields.values()) {
    const name = requireFirst(sameName).name.value;
    const field = type.getFields()[name];
    if (field === undefined) continue;
    if (field.resolve === undefined) plain += 1;
    else values += 1;
    const inner = getNamedType(field.type);
    if (!isCompositeType(inner)) continue;
    const isList = isListType(getNullableType(field.type));
    // A list that a resolver makes is counted when it is there.
    if (isList && field.resolve !== undefined) continue;
    const selection = measure(query, inner.name, sameName);
    if (isList) addList(lists, { path: [name], times: 1, selection });
    else {
      values += selection.values - 1;
      if (field.resolve !== undefined) continue;
      for (const list of selection.lists) addList(lists, { ...list, path: [name, ...list.path] });
    }
  }
  return { values: values + Math.floor(plain / plainFieldsPerValue), lists: [...lists.values()] };
}

/** Aliases of one list are counted together. */
function addList(lists: Map<string, InnerList>, list: InnerList): void {
  const { path, times, selection } = list;
  const isFlat = selection.lists.length === 0;
  const key = [...path, isFlat ? selection.values : `#${lists.size}`].join(".");
  lists.set(key, { path, times: times + (lists.get(key)?.times ?? 0), selection });
}

/** Adds the fields that the type has by the names that they have in the answer. */
function collectFields(
  query: Query,
  type: GraphQLObjectType,
  selectionSet: SelectionSetNode | undefined,
  fields: Map<string, FieldNode[]>,
  visited: Set<string>,
): void {
  for (const node of selectionSet?.selections ?? []) {
    if (isLeftOut(node, query.variableValues)) continue;
    if (node.kind === Kind.FIELD) {
      const name = node.alias?.value ?? node.name.value;
      const same = fields.get(name);
      if (same === undefined) fields.set(name, [node]);
      else same.push(node);
      continue;
    }
    const fragment =
      node.kind === Kind.INLINE_FRAGMENT ? node : takeFragment(query, node.name.value, visited);
    if (fragment === undefined || !isFragmentOf(query.schema, type, fragment.typeCondition?.name.value))
      continue;
    collectFields(query, type, fragment.selectionSet, fields, visited);
  }
}

/** Each fragment once at one place. */
function takeFragment(
  { fragments }: Query,
  name: string,
  visited: Set<string>,
): FragmentDefinitionNode | undefined {
  if (visited.has(name)) return undefined;
  visited.add(name);
  return fragments[name];
}

function isFragmentOf(
  schema: GraphQLSchema,
  type: GraphQLObjectType,
  condition: string | undefined,
): boolean {
  if (condition === undefined || condition === type.name) return true;
  const other = schema.getType(condition);
  return isAbstractType(other) && schema.isSubType(other, type);
}

const rowsPerStep = 10;

/** How many values the rows have in the answer. Those of a few rows are counted at once. */
export function countValues(rows: readonly unknown[], selection: Selection): MaybePromise<number> {
  if (selection.lists.length === 0) return rows.length * selection.values;
  const steps = countInSteps(rows, selection);
  return rows.length <= rowsPerStep ? runSteps(steps) : takeSteps(steps);
}

function* countInSteps(rows: readonly unknown[], { values, lists }: Selection): Steps<number> {
  let sum = rows.length * values;
  if (lists.length === 0) return sum;
  for (const [at, row] of rows.entries()) {
    for (const { path, times, selection } of lists) {
      const inner = readPath(row, path);
      if (Array.isArray(inner)) sum += times * (yield* countInSteps(inner, selection));
    }
    if (at % rowsPerStep === rowsPerStep - 1) yield;
  }
  return sum;
}

function readPath(row: unknown, path: readonly string[]): unknown {
  return path.reduce(
    (value, name) =>
      typeof value === "object" && value !== null
        ? (value as Readonly<Record<string, unknown>>)[name]
        : undefined,
    row,
  );
}
