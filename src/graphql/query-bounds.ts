// What a query may cost before anything of it runs: its length, depth, cost, tokens, aliases and directives, what it asks of
// the schema, and how many of its mistakes are looked for. Each bound keeps a query below 50 ms of the event loop.
import { EnvelopArmorPlugin } from "@escape.tech/graphql-armor";
import {
  type ASTNode,
  type DocumentNode,
  GraphQLError,
  type GraphQLSchema,
  Kind,
  type ValidationContext,
  validate,
} from "graphql";
import type { Plugin } from "graphql-yoga";
import { LRUCache } from "lru-cache";
import { countIntrospectedValues, countSchemaValues } from "./introspection-size.ts";

/** What is wrong with the request itself: 400, and where plain JSON is asked for, 200, as GraphQL over HTTP has it. */
export const badRequest = { http: { spec: true, status: 400 } };

/** What a bound has refused. The same error is thrown again for a document that Yoga remembers as wrong. */
const limitErrors = new WeakSet<object>();
const onReject = [(_: unknown, error: GraphQLError) => void limitErrors.add(error)];

export function isLimitError(error: object): boolean {
  return limitErrors.has(error);
}

/** In the words of the armor, which tells its own bounds so. */
function createLimitError(message: string, extensions = {}): GraphQLError {
  const error = new GraphQLError(`Syntax Error: ${message}`, { extensions });
  limitErrors.add(error);
  return error;
}

/** More than the longest chain of links with an introspection fragment beside it; the armor's own for the rest. */
const armorBounds = {
  costLimit: { maxCost: 5_000, onReject },
  // Gateways that have us as a source ask for the rows of a page by aliases in one query.
  maxAliases: { n: 100, allowList: [], onReject },
  maxDepth: { n: 12, onReject },
  // What asks for a schema by variables has a dozen (sgqlc).
  maxDirectives: { n: 50, onReject },
  maxTokens: { n: 2_000, onReject },
  // Where the schema may not be read, the gateway takes suggestions out.
  blockFieldSuggestion: { enabled: false },
};

/** Plug-ins that refuse what costs too much, each with one error. */
export function createQueryBounds(): readonly Plugin[] {
  return [boundQueryLength, boundValidation, EnvelopArmorPlugin(armorBounds)];
}

/**
 * Far more than the other bounds leave of any query. A name, a comment or blanks of a megabyte take a tenth of a second to read,
 * and parsed queries are remembered by their text.
 */
const maxQueryChars = 65_536;

const boundQueryLength: Plugin = {
  onParams({ params: { query } }) {
    // Yoga tells of what is no text.
    if (typeof query !== "string" || query.length <= maxQueryChars) return;
    const message = `Query limit of ${maxQueryChars} characters exceeded, found ${query.length}.`;
    throw createLimitError(message, badRequest);
  },
};

/** Validation compares each fragment with each other. */
const maxFragments = 100;

/**
 * Characters of the queries that are remembered as read, and of those that could not be: their trees take up to a hundred
 * times as much.
 */
const rememberedChars = 262_144;

/** Instead of Yoga's own caches, which remember a thousand queries of any length. */
export function createQueryCaches() {
  const bounds = {
    maxSize: rememberedChars,
    sizeCalculation: (_: unknown, text: string) => text.length + 1,
  };
  return {
    documentCache: new LRUCache<string, DocumentNode>(bounds),
    errorCache: new LRUCache<string, object>(bounds),
  };
}

/** More help nobody, and looking for similar names, which each mistake is told with, is what costs. */
const maxMistakes = 20;

const boundValidation: Plugin = {
  onValidate({ addValidationRule, setValidationFn }) {
    addValidationRule(limitDirectivesPerNode);
    setValidationFn((schema, document: DocumentNode, rules) => {
      if (isMutationWithoutType(schema, document)) {
        return [new GraphQLError("Readout only reads: it has no mutations.")];
      }
      const fragments = document.definitions.filter(({ kind }) => kind === Kind.FRAGMENT_DEFINITION).length;
      if (fragments > maxFragments) {
        return [createLimitError(`Fragments limit of ${maxFragments} exceeded, found ${fragments}.`)];
      }
      const mistakes = validate(schema, document, rules, { maxErrors: maxMistakes });
      return mistakes.length > 0 ? mistakes.map(explainAbortion) : limitIntrospection(schema, document);
    });
  },
};

/** Existing clients send mutations too. A source of a reader's own may have some. */
function isMutationWithoutType(schema: GraphQLSchema, { definitions }: DocumentNode): boolean {
  if (schema.getMutationType()) return false;
  return definitions.some((one) => one.kind === Kind.OPERATION_DEFINITION && one.operation === "mutation");
}

/** Tells which bound has ended a validation; GraphQL's own words do not. */
function explainAbortion(error: GraphQLError): GraphQLError {
  if (error.message === "Validation aborted.")
    return createLimitError("Limit of comparisons exceeded: too many fields have one name at one place.");
  if (/error limit reached/.test(error.message))
    return createLimitError(`Mistakes limit of ${maxMistakes} exceeded, others are not listed.`);
  return error;
}

/** More directives at one place can mean nothing, and each that is unknown would be an error of its own. */
const maxDirectivesPerNode = 9;

function limitDirectivesPerNode(_: ValidationContext) {
  return {
    enter(node: ASTNode) {
      const found = "directives" in node ? (node.directives?.length ?? 0) : 0;
      if (found <= maxDirectivesPerNode) return;
      throw createLimitError(
        `Directives limit of ${maxDirectivesPerNode} at one place exceeded, found ${found}.`,
      );
    },
  };
}

/** How often a query may ask for as much as the usual question for the whole schema, which no client asks for twice. */
const maxSchemas = 2;

function limitIntrospection(schema: GraphQLSchema, document: DocumentNode): GraphQLError[] {
  const limit = maxSchemas * countSchemaValues(schema);
  if (countIntrospectedValues(schema, document, limit) <= limit) return [];
  return [createLimitError(`Introspection limit of ${limit} values exceeded.`)];
}
