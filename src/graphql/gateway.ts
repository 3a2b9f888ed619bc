// GraphQL over HTTP: Yoga, hardened. What a request may cost is bounded before it runs (depth, cost, tokens, aliases,
// directives), what it runs is bounded by the session, and its errors are bounded and masked before they leave.
import { useCSRFPrevention } from "@graphql-yoga/plugin-csrf-prevention";
import {
  type ASTVisitor,
  BREAK,
  type DocumentNode,
  type ExecutionArgs,
  GraphQLError,
  getNamedType,
  getOperationAST,
  getVariableValues,
  isScalarType,
  isSpecifiedScalarType,
  type ListValueNode,
  type ObjectValueNode,
  TypeInfo,
  visit,
  visitWithTypeInfo,
} from "graphql";
import { compileQuery, isCompiledQuery } from "graphql-jit";
import { createYoga, type FetchAPI, type Plugin, processRegularResult } from "graphql-yoga";
import type { Principal } from "../access/auth.ts";
import type { Limits } from "../config/limits.ts";
import type { HeldBytes } from "../core/async/held-bytes.ts";
import { yieldToEventLoop } from "../core/async/turns.ts";
import { LimitReached, Refused, TooMany } from "../core/errors.ts";
import { parseJson } from "../core/json/parse-json.ts";
import { chooseGraphqlType, isMediaTypeAccepted } from "../core/negotiation.ts";
import { describeFailure, isClientFault, toGraphqlError } from "../operations/runtime/error-response.ts";
import {
  anonymousPrincipal,
  type OperationExecutor,
  type SlotAdmission,
} from "../operations/runtime/executor.ts";
import type { Endpoint, PreparedOperation } from "../operations/runtime/operation.ts";
import type { MissingAtPlace, QueryRules, Session, TailEvent } from "../operations/runtime/session.ts";
import { createErrorMaskPlugin, reportMissing, toFieldError } from "./answer-errors.ts";
import { requireEventStream } from "./event-stream.ts";
import type { UnifiedSchema } from "./mesh.ts";
import { badRequest, createQueryBounds, createQueryCaches } from "./query-bounds.ts";
import { dropEmptyOperationName, guardSchema, refuseNulls, takeDocuments } from "./query-rules.ts";

/** A browser sends none of these to another origin without asking first, so a request with one is no forgery. */
const csrfHeaders = ["authorization", "x-requested-with", "x-graphql-yoga-csrf", "apollo-require-preflight"];

export interface GatewayOptions<ServerContext extends object> {
  readonly unified: UnifiedSchema;
  /** Come first, before anything of GraphQL. */
  readonly plugins: readonly Plugin<object, ServerContext>[];
  /** Come last: they see an answer as it is sent. */
  readonly lastPlugins?: readonly Plugin<object, ServerContext>[];
  /** Told of each query that one of the bounds has refused. */
  readonly onLimited: () => void;
  readonly warn: (message: string, error?: unknown) => void;
}

export function createGateway<ServerContext extends object>({
  unified,
  plugins,
  lastPlugins = [],
  onLimited,
  warn,
}: GatewayOptions<ServerContext>) {
  const printWarning = (...parts: readonly unknown[]) => warn(parts.map(String).join(" "));
  return createYoga<ServerContext>({
    plugins: [
      ...plugins,
      requireJson,
      requireEventStream,
      negotiateType,
      takeDocuments,
      dropEmptyOperationName,
      useCSRFPrevention({ requestHeaders: csrfHeaders }),
      ...unified.plugins,
      ...createQueryBounds(),
      takeTurns,
      unified.stitched ? {} : createCompilerPlugin(warn),
      guardSchema,
      refuseNulls,
      reportMissing,
      createErrorMaskPlugin(warn, onLimited),
      ...lastPlugins,
    ],
    schema: unified.schema,
    maskedErrors: false,
    graphiql: false,
    landingPage: false,
    cors: false,
    batching: false,
    multipart: false,
    parserAndValidationCache: createQueryCaches(),
    // The server has read the body within bounds of its own, and parses it in turns; Yoga's bound would read it again.
    maxRequestBodySize: false,
    // Yoga would answer every URL that ends in `/health` before our routes are asked; none ends in this.
    healthCheckEndpoint: "\n",
    logging: { debug: () => {}, info: () => {}, warn: printWarning, error: printWarning },
  });
}

/** Forms and plain text can be sent by any page without asking; nothing that we serve needs them. */
const requireJson: Plugin = {
  onRequestParse({ request, url, requestParser, setRequestParser, endResponse, fetchAPI }) {
    if (request.method !== "POST") {
      const own = parseParameters(url.searchParams);
      // Yoga's parser has the fault of V8 that ours is without.
      if (requestParser !== undefined)
        setRequestParser(async (sent) => ({ ...(await requestParser(sent)), ...own }));
      return;
    }
    const type = request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
    if (type === "application/json" || type === "application/graphql+json") {
      if (requestParser !== undefined) setRequestParser(refuseMalformed(requestParser));
      return;
    }
    endResponse(respondWithError(415, "Send the query as application/json", fetchAPI));
  },
};

/** What is no request at all is a 400 also where plain JSON is asked for, which Yoga would tell of it with a 200. */
function refuseMalformed(parse: RequestParser): RequestParser {
  return async (request) => {
    try {
      return await parse(request);
    } catch (error) {
      if (!(error instanceof GraphQLError)) throw error;
      throw new GraphQLError(error.message, { extensions: { http: { status: 400 } } });
    }
  };
}
type RequestParser = Parameters<Parameters<NonNullable<Plugin["onRequestParse"]>>[0]["setRequestParser"]>[0];

/** Yoga takes a type for asked for also where its weight is 0, and would send the status alone to a client that takes none. */
const negotiateType: Plugin = {
  onResultProcess({ request, resultProcessor, setResultProcessor }) {
    const accept = request.headers.get("accept");
    const type = resultProcessor && chooseGraphqlType(accept);
    if (type !== undefined) return setResultProcessor(processRegularResult, type);
    const isFramed = framedTypes.some((framed) => isMediaTypeAccepted(accept, framed));
    if (isFramed && resultProcessor !== undefined && resultProcessor !== processRegularResult) return;
    const message = "The answer is application/json or application/graphql-response+json";
    setResultProcessor((_, fetchAPI) => respondWithError(406, message, fetchAPI), "application/json");
  },
};

const framedTypes = ["text/event-stream", "multipart/mixed"] as const;

function respondWithError(status: 406 | 415, message: string, { Response }: FetchAPI): Response {
  const headers = { "Content-Type": "application/json; charset=utf-8", Accept: "application/json" };
  return new Response(JSON.stringify({ errors: [{ message }] }), { status, headers });
}

/** The parameters of an address that are JSON. Of one that is none Yoga would tell as of a failure of ours. */
function parseParameters(parameters: URLSearchParams): Readonly<Record<string, unknown>> {
  const parsed = ["variables", "extensions"].flatMap((name) => {
    const text = parameters.get(name);
    return text === null || text === "" ? [] : [[name, parseParameter(name, text)] as const];
  });
  return Object.fromEntries(parsed);
}

function parseParameter(name: string, text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    throw new GraphQLError(`The parameter ${name} is not JSON`, { extensions: badRequest });
  }
}

/**
 * Reading a query, compiling it and printing its answer take some ten milliseconds each: for many queries that come at
 * once, each of these has a turn of the event loop of its own.
 */
const takeTurns: Plugin = {
  onParams: async () => void (await yieldToEventLoop()),
  onExecute: async () => void (await yieldToEventLoop()),
  onResultProcess: async () => void (await yieldToEventLoop()),
};

type RunCompiled = (root: unknown, context: unknown, variables: Readonly<Record<string, unknown>>) => unknown;

/**
 * Compiles a query once for each operation in its document. One that the compiler refuses, or would not answer as it is
 * meant, is executed as usual: it is an optimisation, and has no say in what can be asked.
 */
function createCompilerPlugin(warn: GatewayOptions<object>["warn"]): Plugin {
  const compiled = new WeakMap<DocumentNode, Map<string, RunCompiled | undefined>>();
  return {
    onExecute({ args, setExecuteFn }) {
      // What a client names beside its document is not remembered.
      if (!getOperationAST(args.document, args.operationName)) return;
      const known = compiled.get(args.document) ?? new Map<string, RunCompiled | undefined>();
      compiled.set(args.document, known);
      const operation = args.operationName ?? "";
      if (!known.has(operation)) known.set(operation, compileOne());
      const run = known.get(operation);
      if (run !== undefined) {
        setExecuteFn((given: ExecutionArgs) => {
          // The compiler's own reading refuses a variable that is left out where null may not stand, default or not.
          const { errors, coerced = {} } = readVariables(given);
          return errors === undefined ? run(given.rootValue, given.contextValue, coerced) : { errors };
        });
      }

      function compileOne(): RunCompiled | undefined {
        if (!isCompilable(args)) return undefined;
        try {
          const query = compileQuery(args.schema, args.document, args.operationName ?? undefined, {
            // Leaves are what operations answer and tests hold to the schema; to look at each again costs a quarter.
            disableLeafSerialization: true,
          });
          return isCompiledQuery(query) ? query.query : undefined;
        } catch (error) {
          warn("a query could not be compiled, and is executed as usual", error);
          return undefined;
        }
      }
    },
  };
}

/**
 * Whether the compiler reads a document as it is meant. It mistakes fields that `@skip` or `@include` leave out in one place
 * and another has; forgets variables within a literal of a scalar, such as one of a map of tags; and takes twice as long
 * for each fragment that is spread twice within another such.
 */
function isCompilable({ schema, document }: ExecutionArgs): boolean {
  const types = new TypeInfo(schema);
  const spread = new Set<string>();
  let isPlain = true;
  const leave = () => {
    isPlain = false;
    return BREAK;
  };
  const checkLiteral = (literal: ObjectValueNode | ListValueNode) => {
    const type = getNamedType(types.getInputType());
    if (isScalarType(type) && !isSpecifiedScalarType(type)) visit(literal, { Variable: leave });
  };
  const visitor: ASTVisitor = {
    Directive: leave,
    ObjectValue: checkLiteral,
    ListValue: checkLiteral,
    FragmentSpread({ name }) {
      if (spread.has(name.value)) return leave();
      spread.add(name.value);
      return undefined;
    },
  };
  visit(document, visitWithTypeInfo(types, visitor));
  return isPlain;
}

/** Checked, and with their defaults. */
function readVariables({ schema, document, operationName, variableValues }: ExecutionArgs) {
  const definitions = getOperationAST(document, operationName)?.variableDefinitions ?? [];
  return getVariableValues(schema, definitions, variableValues ?? {}, { maxErrors: 50 });
}

interface SessionOptions {
  readonly executor: OperationExecutor;
  readonly operations: readonly Endpoint[];
  readonly limits: Limits;
  readonly principal: Principal;
  readonly rules: QueryRules;
  readonly noteDocument: (document: string) => void;
  readonly held: HeldBytes;
  readonly gone: AbortSignal;
  /** Told once where the answer holds too many values. */
  readonly onTooLarge: () => void;
  /** Told of what is not the client's affair. */
  readonly onFailure: (operation: string, error: unknown) => void;
  /** Opens a live tail. @throws as its route */
  readonly followTail: (operation: string, input: unknown) => Promise<AsyncIterable<TailEvent>>;
  readonly readTailPosition: Session["readTailPosition"];
  readonly createNext: Session["createNext"];
}

/**
 * An answer may have so many values for each row that a request may hold: aliases repeat the fields of a row, and a row's
 * own lists are no rows of the request.
 */
const valuesPerRow = 10;

function createValueBudget(limit: number, onTooLarge: () => void): Session["spendValues"] {
  let left = limit;
  return (values) => {
    const isFirst = left >= 0;
    left -= values;
    if (left >= 0) return;
    if (isFirst) onTooLarge();
    const message = `The answer holds more than ${limit} values; ask for fewer rows, or for fewer fields and aliases of each`;
    throw toFieldError(toGraphqlError(describeFailure(new Refused("result_too_large", message, { limit }))));
  };
}

/** Operations and links of one request under way at once: each takes one of the places of the token, and of the server. */
const maxConcurrentOperations = 8;

export function createSession(options: SessionOptions): Session {
  const { executor, operations, limits, principal, gone, onFailure } = options;
  const budget = { limit: limits.rows, left: limits.rows, held: options.held };
  const width = Math.min(maxConcurrentOperations, limits.tokenRequests);
  let underWay = 0;
  /** Whether the first operation has its slot. False: it failed before, for another reason than want of one. */
  let firstSlot: Promise<boolean> | undefined;
  const waiting: (() => void)[] = [];
  const missing: MissingAtPlace[] = [];
  return {
    user: principal.user,
    rules: options.rules,
    noteDocument: options.noteDocument,
    gone,
    releaseRows: options.held.release,
    sites: [...executor.selectVisibleSites(principal).values()],
    missing,
    spendValues: createValueBudget(valuesPerRow * limits.rows, options.onTooLarge),
    runOperation: async (name, input, place) => {
      const endpoint = operations.find((one) => one.name === name);
      if (endpoint === undefined) throw new Error(`no operation ${name}`);
      const asker = endpoint.access === "public" ? anonymousPrincipal : principal;
      const note = place && ((labels: readonly string[]) => void missing.push({ place, labels }));
      return complete(name, () => endpoint.prepare(input), asker, note);
    },
    // The executor hands back what the link's own run has answered.
    runLink: async <Answer>(link: string, prepare: () => PreparedOperation) =>
      (await complete(link, prepare, principal)) as Answer,
    ...createTailAccess(options),
  };

  /** Others wait for its slot, and are refused with it. */
  async function completeFirst<Answer>(run: (onAdmitted: () => void) => Promise<Answer>): Promise<Answer> {
    const slot = Promise.withResolvers<boolean>();
    slot.promise.catch(() => undefined);
    firstSlot = slot.promise;
    let isAdmitted = false;
    const onAdmitted = () => {
      isAdmitted = true;
      slot.resolve(true);
    };
    try {
      return await run(onAdmitted);
    } catch (error) {
      if (error instanceof TooMany || error instanceof LimitReached) slot.reject(error);
      else if (!isAdmitted) {
        // The next one is the first.
        firstSlot = undefined;
        slot.resolve(false);
      }
      throw error;
    }
  }

  async function complete(
    name: string,
    prepare: () => PreparedOperation,
    asker: Principal,
    onMissing?: (labels: readonly string[]) => void,
  ): Promise<unknown> {
    const run = (admission: SlotAdmission) =>
      executor.complete(prepare, asker, budget, admission, gone, onMissing);
    if (underWay < width) underWay += 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      // The first is refused as a request of REST is, for want of a slot. Those of a query that has begun wait for theirs.
      while (firstSlot !== undefined) {
        if (await firstSlot) return await run(afterFirst);
      }
      return await completeFirst((onAdmitted) => run({ waits: "briefly", onAdmitted }));
    } catch (error) {
      throw toReportedError(name, error, onFailure);
    } finally {
      const next = waiting.shift();
      if (next === undefined) underWay -= 1;
      else next();
    }
  }
}

/** What a session has for the live tail of its request. */
function createTailAccess(
  options: SessionOptions,
): Pick<Session, "followTail" | "toTailError" | "readTailPosition" | "createNext"> {
  const { followTail, onFailure, readTailPosition, createNext } = options;
  return {
    followTail: (name, input) =>
      followTail(name, input).catch((error: unknown) => {
        throw toReportedError(name, error, onFailure);
      }),
    toTailError: toFieldError,
    readTailPosition,
    createNext,
  };
}

const afterFirst = { waits: "until the end" } as const;

function toReportedError(name: string, error: unknown, onFailure: SessionOptions["onFailure"]): GraphQLError {
  if (!isClientFault(error)) onFailure(name, error);
  return toFieldError(toGraphqlError(describeFailure(error)));
}
