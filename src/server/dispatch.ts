// From a request to what answers it: an operation, a page for people, GraphQL, or a probe.

import type { Principal } from "../access/auth.ts";
import { readToken } from "../access/auth.ts";
import { NotFound, Unprocessable } from "../core/errors.ts";
import type { BodyReader, Exchange } from "../http/request.ts";
import { type Answer, toErrorAnswer, toGraphqlErrorAnswer } from "../http/response.ts";
import { findLimit, isClientFault } from "../operations/runtime/error-response.ts";
import { ClientGone, type RequestLifetime } from "../operations/runtime/lifetime.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { findCurrentSpan } from "../telemetry/tracer.ts";
import type { FindPage } from "./pages.ts";
import { answerProbe, type ProbeSource } from "./probes.ts";
import { findResourceMetadata, printChallenge } from "./resource-metadata.ts";
import {
  admitToken,
  type ConfigGeneration,
  type FinishRequest,
  type OperationRunner,
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
  findPage: FindPage | undefined;
}

/** A GraphQL request that may be answered, and with what. */
export interface Admission {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly generation: ConfigGeneration;
  readonly work: RequestLifetime;
  readonly finish: FinishRequest;
}

/** Path and query. Of all headers together node takes 16 KiB. */
const urlLimit = 8_192;

/** Never throws. Of what is only admitted nothing has been logged: its caller finishes it. */
export async function answerRequest(dispatcher: Dispatcher, exchange: Exchange): Promise<Answer | Admission> {
  const fields: RequestLogFields = { operation: "none", route: undefined, user: undefined };
  const finish = startRequestLog(dispatcher.telemetry, exchange, fields);
  try {
    if (exchange.path.length + exchange.search.length > urlLimit) throw createUrlTooLongError();
    const route = dispatcher.findRoute(exchange.method, exchange.path);
    // A request keeps to what was served when it came.
    if (route !== undefined) {
      return await runOperation(dispatcher.runner, exchange, route, dispatcher.generation, fields, finish);
    }
    return (
      findMetadata(dispatcher, exchange) ??
      (await openPage(dispatcher, exchange)) ??
      (await openAgentRoute(dispatcher, exchange, fields, finish)) ??
      (await admitGraphql(dispatcher, exchange, fields, finish)) ??
      (await answerOwnProbe(dispatcher, exchange))
    );
  } catch (error) {
    const answer = toFailureAnswer(dispatcher, exchange, error);
    finish(answer.status, error instanceof ClientGone, error);
    return answer;
  }
}

function toFailureAnswer({ generation }: Dispatcher, exchange: Exchange, error: unknown): Answer {
  const answer = isGraphqlRequest(exchange)
    ? toGraphqlErrorAnswer(error, exchange.headers.get("accept"))
    : toErrorAnswer(error);
  if (answer.status !== 401 || generation.resource === undefined) return answer;
  const challenge = printChallenge(exchange.path, generation.resource);
  return { ...answer, headers: { ...answer.headers, "WWW-Authenticate": challenge } };
}

/** Neither counted nor logged, and without a token: a client reads it to find out where it gets one. */
function findMetadata({ generation }: Dispatcher, { method, path }: Exchange): Answer | undefined {
  const { resource } = generation;
  if (resource === undefined || (method !== "GET" && method !== "HEAD")) return undefined;
  return findResourceMetadata(path, resource);
}

function isGraphqlRequest({ method, path }: Exchange): boolean {
  return path === "/graphql" && (method === "GET" || method === "POST");
}

/** Returns what logs and counts the request at its end. */
function startRequestLog(
  telemetry: Telemetry,
  { id, method }: Exchange,
  fields: RequestLogFields,
): FinishRequest {
  const started = performance.now();
  const span = findCurrentSpan();
  return (status, cut, failure) => {
    const duration = performance.now() - started;
    const error = failure === undefined ? undefined : countFailure(telemetry, failure);
    telemetry.recordFinishedRequest({ id, method, ...fields, status, cut, duration, error, span });
  };
}

/** Counts the limit that a failure comes from. Returns what of it belongs into the log: nothing that is the client's affair. */
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
  dispatcher.findPage ??= createPages(dispatcher.operations);
  return dispatcher.findPage(path, headers);
}

const agentPath = /^(?:\/api)?\/mcp(?:\/|$)/;

/** Loaded with the first request of an agent. Errors as those of the route. */
async function openAgentRoute(
  dispatcher: Dispatcher,
  exchange: Exchange,
  fields: RequestLogFields,
  finish: FinishRequest,
): Promise<Answer | undefined> {
  if (!agentPath.test(exchange.path)) return undefined;
  const { answerAgent } = await import("./mcp-host.ts");
  return answerAgent(dispatcher, exchange, fields, finish);
}

/** @throws {Unauthorized} {TooMany} {NotAcceptable} {NotFound} of a token without the scope `graphql` */
async function admitGraphql(
  { generation }: Dispatcher,
  exchange: Exchange,
  fields: RequestLogFields,
  finish: FinishRequest,
): Promise<Admission | undefined> {
  if (!isGraphqlRequest(exchange)) return undefined;
  const { headers, search, gone } = exchange;
  fields.operation = "graphql";
  fields.route = "/graphql";
  refuseUncodable(exchange);
  return admitToken(generation, readToken(headers, search), (principal) => {
    fields.user = principal.user;
    if (!principal.hasScope("graphql")) throw new NotFound();
    // From here on a reload waits for it, though the schema may still have to be loaded.
    return { exchange, principal, generation, work: generation.executor.join(gone), finish };
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
  for (const [index, part] of pattern.entries()) {
    const segment = segments[index] ?? "";
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
