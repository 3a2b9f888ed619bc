// From a request to what answers it: an operation, a page for people, GraphQL, or a probe.

import type { Principal } from "../access/auth.ts";
import { OverRate, readToken } from "../access/auth.ts";
import { zip } from "../core/collections.ts";
import { NotFound, Unprocessable } from "../core/errors.ts";
import type { BodyReader, Exchange } from "../http/request.ts";
import { type Answer, toErrorAnswer, toGraphqlErrorAnswer } from "../http/response.ts";
import { buildDeprecationHeaders, type Deprecation } from "../operations/runtime/deprecation.ts";
import { findLimit, isClientFault } from "../operations/runtime/error-response.ts";
import { ClientGone, type RequestLifetime } from "../operations/runtime/lifetime.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { findCurrentSpan } from "../telemetry/tracer.ts";
import { addOriginHeaders } from "./cross-origin.ts";
import type { AgentHost } from "./mcp-host.ts";
import type { FindPage } from "./pages.ts";
import { answerProbe, type ProbeSource } from "./probes.ts";
import { findResourceMetadata, printChallenge } from "./resource-metadata.ts";
import {
  admitToken,
  type ConfigGeneration,
  noteUser,
  type OperationRunner,
  type RequestLog,
  type RequestLogFields,
  type Route,
  refuseUncodable,
  runOperation,
} from "./rest.ts";

/** What every request of a server is dispatched by. */
export interface Dispatcher {
  readonly operations: readonly Endpoint[];
  readonly findRoute: FindRoute;
  readonly runner: OperationRunner;
  readonly bodies: BodyReader;
  readonly telemetry: Telemetry;
  readonly probes: ProbeSource;
  /** Whether probes are answered here, and not at an address of their own. */
  readonly hasProbes: boolean;
  /** The configuration that a new request is answered by. */
  generation: ConfigGeneration;
  isDraining: boolean;
  /** The pages of that configuration, once one is opened. */
  findPage: FindPage | undefined;
}

/** A GraphQL request that may be answered, and with what. */
export interface GraphqlAdmission {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly generation: ConfigGeneration;
  readonly work: RequestLifetime;
  readonly log: RequestLog;
}

/** Path and query. Of all headers together node takes 16 KiB. */
const urlLimit = 8_192;

/** Never throws. A `GraphqlAdmission` is not logged yet: the caller finishes its log. */
export async function answerRequest(
  dispatcher: Dispatcher,
  exchange: Exchange,
): Promise<Answer | GraphqlAdmission> {
  // A request keeps to what was served when it came, also where it waits on its way.
  const { generation } = dispatcher;
  const log = startRequestLog(dispatcher.telemetry, generation, exchange);
  let deprecation: Deprecation | undefined;
  try {
    if (exchange.path.length + exchange.search.length > urlLimit) throw createUrlTooLongError();
    const route = dispatcher.findRoute(exchange.method, exchange.path);
    if (route !== undefined) {
      deprecation = route.endpoint.deprecation;
      const answer = await runOperation(dispatcher.runner, exchange, route, generation, log);
      return addDeprecation(answer, deprecation);
    }
    return (
      findMetadata(generation, exchange) ??
      (await openPage(dispatcher, exchange)) ??
      (await openAgentRoute({ ...dispatcher, generation }, exchange, log)) ??
      (await admitGraphql(generation, exchange, log)) ??
      (await answerOwnProbe(dispatcher, exchange))
    );
  } catch (error) {
    const answer = toFailureAnswer(generation, exchange, error);
    if (error instanceof OverRate) noteUser(log.fields, error.principal);
    if (log.isAudited && typeof answer.body === "string") log.fields.bytes = Buffer.byteLength(answer.body);
    await log.finish(answer.status, error instanceof ClientGone, error);
    return addDeprecation(answer, deprecation);
  }
}

function addDeprecation(answer: Answer, deprecation: Deprecation | undefined): Answer {
  if (deprecation === undefined) return answer;
  return { ...answer, headers: { ...answer.headers, ...buildDeprecationHeaders(deprecation) } };
}

function toFailureAnswer(
  { resource, origins }: ConfigGeneration,
  exchange: Exchange,
  error: unknown,
): Answer {
  const plain = isGraphqlRequest(exchange)
    ? toGraphqlErrorAnswer(error, exchange.headers.get("accept"))
    : toErrorAnswer(error);
  const answer = agentPath.test(exchange.path) ? addOriginHeaders(plain, exchange, origins) : plain;
  if (answer.status !== 401 || resource === undefined) return answer;
  const challenge = printChallenge(exchange.path, resource);
  return { ...answer, headers: { ...answer.headers, "WWW-Authenticate": challenge } };
}

/** Neither counted nor logged, and without a token: a client reads it to find out where it gets one. */
function findMetadata({ resource }: ConfigGeneration, { method, path }: Exchange): Answer | undefined {
  if (resource === undefined || (method !== "GET" && method !== "HEAD")) return undefined;
  return findResourceMetadata(path, resource);
}

function isGraphqlRequest({ method, path }: Exchange): boolean {
  return path === "/graphql" && (method === "GET" || method === "POST");
}

/** What logs, counts and audits the request as it goes on. */
/** A request may name one site thousands of times. */
const maxLoggedSites = 50;

function listLoggedSites(sites: readonly string[] | undefined): readonly string[] | undefined {
  return sites && [...new Set(sites)].slice(0, maxLoggedSites);
}

function startRequestLog(
  telemetry: Telemetry,
  { audit, isToken = () => false }: ConfigGeneration,
  { id, method, gone }: Exchange,
): RequestLog {
  const started = performance.now();
  const span = findCurrentSpan();
  const fields: RequestLogFields = { operation: "none", route: undefined, user: undefined };
  return {
    fields,
    isAudited: audit !== undefined,
    begin: async () => {
      if (audit === undefined) return;
      await audit.record({ event: "begin", request: id, ...describeRequest(fields) }, isToken);
      fields.hasBegun = true;
    },
    finish: async (status, isCut, failure) => {
      const duration = performance.now() - started;
      // Now: an answer that is broken off ends the connection as well.
      const hasLeft = isCut && gone.aborted;
      if (audit !== undefined) {
        const entry = { ...describeOutcome(fields, status), request: id, ms: Math.round(duration) };
        const recorded = audit.record({ ...entry, cut: isCut || undefined }, isToken);
        // What is refused anyhow need not be refused for its line.
        await (status < 400 && !isCut ? recorded : recorded.catch(() => {}));
      }
      const error = failure === undefined ? undefined : countFailure(telemetry, failure);
      const { operation, route, user, isTail = false } = fields;
      const isAllowed = status < 400 || error !== undefined;
      telemetry.recordFinishedRequest({
        id,
        method,
        operation,
        route,
        user,
        status,
        isCut,
        hasLeft,
        isTail,
        duration,
        error,
        span,
        ...describeAnswered(fields, status),
        sites: isAllowed ? listLoggedSites(fields.sites) : undefined,
      });
    },
  };
}

function describeRequest({ operation, user, token, sites, content }: RequestLogFields) {
  return { operation, user, token, sites, ...content };
}

function describeOutcome(fields: RequestLogFields, status: number) {
  const event = fields.hasBegun === true ? ("end" as const) : ("request" as const);
  const { bytes } = fields;
  return { event, ...describeRequest(fields), status, bytes, ...describeAnswered(fields, status) };
}

/**
 * What was read, and the rows of the answer and what it lacks; a refusal has neither, though it may come after both are known.
 * What a tail reads is not its own: tails that ask the same are read for together.
 */
function describeAnswered({ rows, missing, progress, isTail }: RequestLogFields, status: number) {
  const documents = isTail === true ? undefined : progress?.read;
  return { documents, ...(status < 400 && { rows, missing }) };
}

/** Counts the limit that a failure comes from. Returns the failure to log; undefined where the client caused it. */
function countFailure(telemetry: Telemetry, failure: unknown): unknown {
  const limit = findLimit(failure);
  if (limit !== undefined) telemetry.recordLimit(limit);
  return isClientFault(failure) ? undefined : failure;
}

function createUrlTooLongError(): Unprocessable {
  const message = `The URL is longer than ${urlLimit} characters`;
  return new Unprocessable("invalid_request", message, { issues: [{ path: "", message }] }, "url");
}

const pagePath = /^\/$|^\/(console|docs|graphql|openapi\.json)(\/|$)/;

/** Pages for people: neither counted nor logged. Loaded when one is first opened. */
async function openPage(
  dispatcher: Dispatcher,
  { method, path, headers }: Exchange,
): Promise<Answer | undefined> {
  if ((method !== "GET" && method !== "HEAD") || !pagePath.test(path)) return undefined;
  const { createPages, isGraphiqlRequest } = await import("./pages.ts");
  if (path === "/graphql" && !isGraphiqlRequest(headers)) return undefined;
  dispatcher.findPage ??= createPages(dispatcher.operations, dispatcher.generation.signIn);
  return dispatcher.findPage(path, headers);
}

const agentPath = /^(?:\/api)?\/mcp(?:\/|$)/;

/** Loaded with the first request of an agent. Errors as those of the route. */
async function openAgentRoute(
  host: AgentHost,
  exchange: Exchange,
  log: RequestLog,
): Promise<Answer | undefined> {
  if (!agentPath.test(exchange.path)) return undefined;
  const { answerAgent } = await import("./mcp-host.ts");
  return addOriginHeaders(await answerAgent(host, exchange, log), exchange, host.generation.origins);
}

/** @throws {Unauthorized} {TooMany} {NotAcceptable} {NotFound} of a token without the scope `graphql` */
async function admitGraphql(
  generation: ConfigGeneration,
  exchange: Exchange,
  log: RequestLog,
): Promise<GraphqlAdmission | undefined> {
  if (!isGraphqlRequest(exchange)) return undefined;
  const { headers, search, gone } = exchange;
  const { fields } = log;
  fields.operation = "graphql";
  fields.route = "/graphql";
  refuseUncodable(exchange);
  return admitToken(generation, exchange, readToken(headers, search), (principal) => {
    noteUser(fields, principal);
    if (!principal.hasScope("graphql")) throw new NotFound();
    // From here on a reload waits for it, though the schema may still have to be loaded.
    return { exchange, principal, generation, work: generation.executor.join(principal, gone), log };
  });
}

/** Neither counted nor logged, and open to whoever can reach the port. @throws {NotFound} */
async function answerOwnProbe(
  { probes, hasProbes }: Dispatcher,
  { method, path }: Exchange,
): Promise<Answer> {
  const isRead = method === "GET" || method === "HEAD";
  const answer = hasProbes && isRead ? await answerProbe(probes, path) : undefined;
  if (answer === undefined) throw new NotFound();
  return answer;
}

// ---- Routes -------------------------------------------------------------------------------------------------

const ownPrefix = "/api/v2/";

type FindRoute = (method: string, path: string) => Route | undefined;

/** Matches raw segments and decodes afterwards, so that a parameter may hold `%2F`. */
export function createRouter(operations: readonly Endpoint[]): FindRoute {
  const routes = operations.map((endpoint) => ({ endpoint, pattern: endpoint.path.split("/") }));
  return (method, path) => {
    const segments = path.split("/");
    const isOwn = path.startsWith(ownPrefix);
    for (const { endpoint, pattern } of routes) {
      // `v2` is no app: what the specification does not have is not found there, with a token or without.
      if (endpoint.path.startsWith(ownPrefix) !== isOwn) continue;
      if (endpoint.method !== method || pattern.length !== segments.length) continue;
      const parameters = bindParameters(pattern, segments);
      if (parameters !== undefined) return { endpoint, parameters };
    }
    return undefined;
  };
}

function bindParameters(
  pattern: readonly string[],
  segments: readonly string[],
): Readonly<Record<string, string>> | undefined {
  const parameters: Record<string, string> = {};
  for (const [part, segment] of zip(pattern, segments)) {
    const name = /^\{(.+)\}$/.exec(part)?.[1];
    if (name === undefined) {
      if (part !== segment) return undefined;
      continue;
    }
    if (segment === "") return undefined;
    try {
      parameters[name] = decodeURIComponent(segment);
    } catch {
      return undefined;
    }
  }
  return parameters;
}
