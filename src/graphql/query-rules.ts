// Which queries are taken: documents by their hash, none but these, and questions about the schema or none. An empty name of an
// operation is none, and null is no value where none may stand.
import {
  BREAK,
  type DocumentNode,
  type ExecutionArgs,
  GraphQLError,
  getOperationAST,
  isNonNullType,
  Kind,
  separateOperations,
  TypeInfo,
  visit,
  visitWithTypeInfo,
} from "graphql";
import type { Plugin } from "graphql-yoga";
import type { Context } from "../operations/runtime/session.ts";
import { isLeftOut, type SelectedNode } from "./lists/left-out.ts";
import { badRequest } from "./query-bounds.ts";

/** Clients in languages whose texts are never absent send an empty name for none, and in the address it is one anyhow. */
export const dropEmptyOperationName: Plugin = {
  onParams({ params: { operationName, ...params }, setParams }) {
    if (operationName === "") setParams(params);
  },
};

/**
 * Puts a document in the place of its hash, as clients of persisted queries send it. Documents are never learned from clients: where
 * none are kept, the answer has a client send its queries, now and from then on.
 */
export const takeDocuments: Plugin<object, Partial<Context>> = {
  onParams({ params, setParams, context: { readout } }) {
    if (readout === undefined) return;
    const { findDocument, onlyDocuments } = readout.rules;
    const { query, extensions } = params;
    const hash = readHash(extensions?.persistedQuery);
    const document = hash === undefined ? undefined : findDocument?.(hash);
    if (document !== undefined) {
      if (query && query !== document) throw createRefusal("The query is not the document of its hash");
      readout.noteDocument(document);
      setParams({ ...params, query: document });
      return;
    }
    if (!query && extensions?.persistedQuery !== undefined) {
      const isKept = findDocument !== undefined;
      throw createRefusal(isKept ? "PersistedQueryNotFound" : "PersistedQueryNotSupported");
    }
    if (onlyDocuments) throw createRefusal("Only documents of this server are answered, by their hash");
  },
};

function readHash(persisted: unknown): string | undefined {
  if (typeof persisted !== "object" || persisted === null || !("sha256Hash" in persisted)) return undefined;
  return typeof persisted.sha256Hash === "string" ? persisted.sha256Hash.toLowerCase() : undefined;
}

function createRefusal(message: string): GraphQLError {
  return new GraphQLError(message, { extensions: badRequest });
}

/** Refuses what asks for the schema where that is switched off. */
export const guardSchema: Plugin<Partial<Context>> = {
  onExecute({ args: { document, contextValue }, setResultAndStopExecution }) {
    if (contextValue.readout?.rules.introspection !== false || !asksForSchema(document)) return;
    setResultAndStopExecution({ errors: [createRefusal("Introspection is switched off on this server")] });
  },
};

const schemaFields: ReadonlySet<string> = new Set(["__schema", "__type", "_service"]);
const known = new WeakMap<DocumentNode, boolean>();

function asksForSchema(document: DocumentNode): boolean {
  const before = known.get(document);
  if (before !== undefined) return before;
  let asks = false;
  visit(document, {
    Field: ({ name }) => {
      asks ||= schemaFields.has(name.value);
    },
  });
  known.set(document, asks);
  return asks;
}

/**
 * Refuses variables that are null where null may not stand. A default, of the variable or of the place, makes such a query
 * valid, and each executor would fail at another point of it.
 */
export const refuseNulls: Plugin = {
  onExecute({ args, setResultAndStopExecution }) {
    const error = findWrongNull(args);
    if (error !== undefined) setResultAndStopExecution({ errors: [error] });
  },
  onSubscribe({ args, setResultAndStopExecution }) {
    const error = findWrongNull(args);
    if (error !== undefined) setResultAndStopExecution({ errors: [error] });
  },
};

function findWrongNull({
  schema,
  document,
  operationName,
  variableValues,
}: ExecutionArgs): GraphQLError | undefined {
  const { name, variableDefinitions = [] } = getOperationAST(document, operationName) ?? {};
  const nulls = new Set<string>();
  const conditions: Record<string, unknown> = {};
  for (const { variable, type, defaultValue } of variableDefinitions) {
    const given = variableValues?.[variable.name.value];
    const isNull = given === undefined ? defaultValue?.kind === Kind.NULL : given === null;
    // The executors tell it of a type that has no null.
    if (isNull && type.kind !== Kind.NON_NULL_TYPE) nulls.add(variable.name.value);
    const byDefault = defaultValue?.kind === Kind.BOOLEAN ? defaultValue.value : undefined;
    conditions[variable.name.value] = given === undefined ? byDefault : given;
  }
  if (nulls.size === 0) return undefined;
  const executed = dropLeftOut(document, conditions);
  const types = new TypeInfo(schema);
  let found: GraphQLError | undefined;
  const visitor = visitWithTypeInfo(types, {
    VariableDefinition: () => false,
    Variable(node) {
      const type = types.getInputType();
      if (!isNonNullType(type) || !nulls.has(node.name.value)) return undefined;
      const message = `Variable "$${node.name.value}" must not be null where "${type}" is expected.`;
      found = new GraphQLError(message, { nodes: node });
      return BREAK;
    },
  });
  visit(separateOperations(executed)[name?.value ?? ""] ?? executed, visitor);
  return found;
}

/** The document without what its directives leave out. */
function dropLeftOut(document: DocumentNode, variables: Readonly<Record<string, unknown>>): DocumentNode {
  const drop = (node: SelectedNode) => (isLeftOut(node, variables) ? null : undefined);
  return visit(document, { Field: drop, FragmentSpread: drop, InlineFragment: drop });
}

const suggestion = " Did you mean ";

/** The message of an error without the other names of the schema that it suggests. It may hold long texts of the client. */
export function withoutSuggestion(message: string): string {
  const at = message.endsWith("?") ? message.lastIndexOf(suggestion) : -1;
  return at < 0 ? message : message.slice(0, at);
}
