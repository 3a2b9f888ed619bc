// The schema as a subgraph of Federation 2: what operations and links answer, with keys, and without the fields for existing
// clients, whose names would meet those of other subgraphs.
import {
  type DefinitionNode,
  type GraphQLSchema,
  Kind,
  lexicographicSortSchema,
  type ObjectTypeDefinitionNode,
  parse,
  print,
  printSchema,
} from "graphql";
import { yieldToEventLoop } from "../core/async/turns.ts";
import { clientTypes } from "./existing-clients/client-schema.ts";

const link = `extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key"])`;

/** What every subgraph has, and gateways add by themselves. */
const ownOfSubgraphs = ["_Any", "_Entity", "_Service", "Query._entities", "Query._service"];

const printed = new WeakMap<GraphQLSchema, Promise<string>>();

/** By type, the fields of its key. */
export const entityKeys = {
  Site: ["id"],
  Trace: ["site_id", "trace_id"],
  Pod: ["site_id", "namespace", "name"],
  LogLine: ["site_id", "source_id", "timestamp", "id"],
  Deploy: ["site_id", "revision"],
} as const;
const keys = new Map<string, readonly string[]>(Object.entries(entityKeys));

/** The text that `_service` answers. Printed once for each schema, in turns: it takes some 50 ms. */
export function printSubgraph(schema: GraphQLSchema): Promise<string> {
  const known = printed.get(schema) ?? printInTurns(schema);
  printed.set(schema, known);
  return known;
}

async function printInTurns(schema: GraphQLSchema): Promise<string> {
  const hidden = new Set([...ownOfSubgraphs, ...listDefined(clientTypes)]);
  const sorted = lexicographicSortSchema(schema);
  await yieldToEventLoop();
  const whole = printSchema(sorted);
  await yieldToEventLoop();
  const { definitions } = parse(whole);
  await yieldToEventLoop();
  const texts = definitions
    .filter((node) => !hidden.has(readName(node)))
    .map((node) => (node.kind === Kind.OBJECT_TYPE_DEFINITION ? printType(node, hidden) : print(node)));
  return `${[link, ...texts].join("\n\n")}\n`;
}

/** The types that a document defines, and the fields by which it extends others. */
function listDefined(text: string): readonly string[] {
  return parse(text).definitions.flatMap((node) =>
    node.kind === Kind.OBJECT_TYPE_EXTENSION
      ? (node.fields ?? []).map((field) => `${node.name.value}.${field.name.value}`)
      : [readName(node)],
  );
}

function readName(node: DefinitionNode): string {
  return "name" in node && node.name !== undefined ? node.name.value : "";
}

function printType(node: ObjectTypeDefinitionNode, hidden: ReadonlySet<string>): string {
  const { name, fields = [] } = node;
  const kept = fields.filter((field) => !hidden.has(`${name.value}.${field.name.value}`));
  const text = print({ ...node, fields: kept });
  const key = keys.get(name.value);
  // A type's description stands before, and no line of it begins so.
  return key === undefined ? text : text.replace(/^type \w+/m, `$& @key(fields: "${key.join(" ")}")`);
}
