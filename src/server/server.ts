// The HTTP server of the read API: listens, reloads, drains. What answers a request stands in `dispatch.ts`.

import type { ServerResponse } from "node:http";
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from "node:http";
import type { Server as HttpsServer } from "node:https";
import { BlockList, isIPv6 } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { Authenticate } from "../access/auth.ts";
import { createRequestSlots, type RequestSlots } from "../access/request-slots.ts";
import type { Sites } from "../access/sites.ts";
import type { AuditLog } from "../audit/audit-log.ts";
import type { CompressionConfig, TlsConfig } from "../config/edge-settings.ts";
import type { Limits } from "../config/limits.ts";
import type { Address } from "../config/schema.ts";
import { runInUnownedTurns } from "../core/async/turns.ts";
import type { LimitUse } from "../core/errors.ts";
import type { Instant, Millis } from "../core/time.ts";
import type { UnifiedSchema } from "../graphql/mesh.ts";
import {
  awaitTurn,
  type ConnectionGuard,
  type ConnectionLimits,
  deriveUnreadTimeout,
  guardConnections,
  resetStalledConnections,
} from "../http/connections.ts";
import { installProtocolErrorResponses, rejectAmbiguousHead, stripOrigin } from "../http/node-http.ts";
import { createBodyReader, toExchange } from "../http/request.ts";
import { toResponse, writeAnswer } from "../http/response.ts";
import { createTlsServer, type TlsServer } from "../http/tls.ts";
import type { Intake } from "../intake/intake.ts";
import { createExecutor } from "../operations/runtime/executor.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import type { QueryRules } from "../operations/runtime/session.ts";
import { createTailRegistry, createTailSlots, type TailSlots } from "../tail/tail-registry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { type OwnSpan, runInSpan } from "../telemetry/tracer.ts";
import type { VisualSource } from "../visuals/visual.ts";
import type { ConsoleSignIn } from "./console-sign-in.ts";
import { answerRequest, createRouter, type Dispatcher } from "./dispatch.ts";
import { answerWithoutGateway, type GraphqlHost } from "./graphql-host.ts";
import { createProbeServer, listenAt, type ProbeServer, type ProbeSource } from "./probes.ts";
import type { ProtectedResource } from "./resource-metadata.ts";
import { type ConfigGeneration, createOperationRunner, isStreamPermitted } from "./rest.ts";

/** What another configuration replaces while the server runs. */
export interface ServedConfig {
  /** Who asked what; nobody keeps it where it is absent. */
  readonly audit?: AuditLog | undefined;
  readonly authenticate: Authenticate;
  /** Whether a text is a token, also of one that has expired; it then stands in no log. */
  readonly isToken?: ((text: string) => boolean) | undefined;
  readonly sites: Sites;
  readonly limits: Limits;
  /** How answers are compressed; none is where it is absent. */
  readonly compression?: CompressionConfig | undefined;
  /** Addresses and networks (`10.0.0.0/8`) whose connections are bounded together with all others only. */
  readonly proxies?: readonly string[] | undefined;
  /** What OAuth clients are told; absent where no identity provider or no address is configured. */
  readonly resource?: ProtectedResource | undefined;
  readonly publicUrl?: string | undefined;
  /** How people sign in to the console, where they do not need a token of the file. */
  readonly signIn?: ConsoleSignIn | undefined;
  /** Which GraphQL queries are taken: without it, all and no documents by their hash. */
  readonly queryRules?: QueryRules | undefined;
  /** What TLS needs; one with it is never replaced by one without. */
  readonly tls?: TlsConfig | undefined;
  /** Origins whose pages in a browser may ask as agents do, in lower case; none where it is absent. */
  readonly origins?: readonly string[] | undefined;
}

export interface ServerOptions extends ServedConfig {
  readonly operations: readonly Endpoint[];
  readonly telemetry: Telemetry;
  readonly now: () => Instant;
  /** The span of a request with these headers, where the program's own traces are configured. */
  readonly startSpan?: (traceparent: string | null, tracestate: string | null) => OwnSpan | undefined;
  /** Whether all tenant filters have been inspected, as far as backends answer; true where it is absent. */
  readonly isReady?: () => boolean;
  /** One line of text for each backend, for `/readyz`. */
  readonly describeBackends?: () => readonly string[];
  /** Whether probes and metrics are answered by `listenForProbes` alone. */
  readonly hasProbeAddress?: boolean | undefined;
  readonly visuals?: VisualSource | undefined;
  /** Instead of the program's own, in milliseconds. */
  readonly readTimeouts?: {
    readonly headersTimeout: Millis;
    readonly requestTimeout: Millis;
    readonly connectionsCheckingInterval: Millis;
  };
  /** How long a request waits for a slot, instead of the program's own. */
  readonly slotWait?: Millis | undefined;
  /** How long a client may take nothing of its answer, instead of the program's own. */
  readonly unreadTimeout?: Millis | undefined;
  /** How long a connection may be open before anything comes on it, instead of the program's own. */
  readonly silenceLimit?: Millis | undefined;
  /** The front-end error intake where it shares this server's address. */
  readonly intake?: Intake | undefined;
  /** RequestContent for at the first GraphQL request, so that REST does not wait for it. */
  readonly loadGraphql: () => Promise<UnifiedSchema>;
}

export interface Server {
  /** Answers without a connection: the same routes, statuses, headers and bodies. */
  readonly fetch: (url: string, init?: RequestInit) => Promise<Response>;
  /** Resolves when connections are taken. @throws {Error} the system's, with its `code`, such as EADDRINUSE */
  readonly listen: (address: Address) => Promise<Address>;
  /** The same for `/livez`, `/readyz` and `/metrics` on an address of their own. Errors as `listen`. */
  readonly listenForProbes: (address: Address) => Promise<Address>;
  /** Serves this from the next request on. Resolves when the requests that began before are over. */
  readonly reload: (served: ServedConfig) => Promise<void>;
  /**
   * Takes no new connections, lets what is under way finish for `grace`, then breaks it off. Probes are answered until then.
   */
  readonly close: (grace: Millis) => Promise<void>;
}

/** A server with all that its requests share. */
interface ServerState {
  readonly options: ServerOptions;
  readonly dispatcher: Dispatcher;
  readonly graphql: GraphqlHost;
  readonly http: HttpServer | HttpsServer;
  readonly tls: TlsServer | undefined;
  readonly guard: ConnectionGuard;
  readonly probes: ProbeServer;
  /** Taken by requests and tails of every configuration. */
  readonly slots: Slots;
}
interface Slots {
  readonly requests: RequestSlots;
  readonly tails: TailSlots;
}

/** How long a client has for its headers, and for the whole of its request: less than the deadline, where that is the usual one. */
const defaultReadTimeouts = {
  headersTimeout: 10_000,
  requestTimeout: 20_000,
  connectionsCheckingInterval: 1_000,
};

export function createServer(options: ServerOptions): Server {
  const state = createState(options);
  const { http, probes } = state;
  return {
    fetch: (url, init = {}) => fetchAnswer(state, url, init),
    listen: (address) => listenAt(http, address),
    listenForProbes: (address) => listenAt(probes.http, address),
    reload: (served) => reloadServer(state, served),
    close: (grace) => closeServer(state, grace),
  };
}

function createState(options: ServerOptions): ServerState {
  const { operations, telemetry, isReady = () => true, describeBackends = () => [] } = options;
  const slots: Slots = { requests: createRequestSlots(), tails: createTailSlots() };
  const bodies = createBodyReader();
  const probeSource: ProbeSource = {
    telemetry,
    isReady,
    describeBackends,
    isDraining: () => dispatcher.isDraining,
  };
  const dispatcher: Dispatcher = {
    operations,
    telemetry,
    bodies,
    probes: probeSource,
    findRoute: createRouter(operations),
    runner: createOperationRunner(telemetry, bodies),
    hasProbes: options.hasProbeAddress !== true,
    generation: beginGeneration(options, slots, options),
    isDraining: false,
    findPage: undefined,
  };
  const loadSchema = options.loadGraphql;
  const unloaded = { gateway: undefined, loading: undefined, openSession: undefined };
  const graphql: GraphqlHost = { dispatcher, loadSchema, ...unloaded };
  // Refused by ourselves, with a body.
  const readOptions = { requireHostHeader: false, ...(options.readTimeouts ?? defaultReadTimeouts) };
  const serverOptions = { keepAliveTimeout: 65_000, ...readOptions };
  const receive = (request: IncomingMessage, response: ServerResponse) =>
    receiveRequest(state, request, response);
  const tls = options.tls && createTlsServer(serverOptions, options.tls, receive);
  const http = tls?.http ?? createHttpServer(serverOptions, receive);
  const guard = guardServer(http, options);
  const state: ServerState = {
    options,
    dispatcher,
    graphql,
    http,
    tls,
    guard,
    slots,
    probes: createProbeServer(probeSource),
  };
  limitUnread(state, options);
  telemetry.addLimitReader(() => measureUse(state));
  return state;
}

function measureUse({ dispatcher, guard }: ServerState): LimitUse {
  const { generation, runner, bodies } = dispatcher;
  const { executor, tails, limits } = generation;
  return {
    ...executor.measureUse(),
    ...runner.streams.measureUse(limits),
    ...tails.measureUse(),
    ...bodies.measureUse(),
    ...guard.measureUse(),
  };
}

const anyQuery: QueryRules = { findDocument: undefined, onlyDocuments: false, introspection: true };

function beginGeneration(
  { telemetry, now, visuals: source, slotWait }: ServerOptions,
  slots: Slots,
  {
    audit,
    authenticate,
    isToken,
    sites,
    limits,
    compression,
    origins = [],
    queryRules = anyQuery,
    resource,
    ...others
  }: ServedConfig,
): ConfigGeneration {
  const { recordLimit: onLimitReached, log } = telemetry;
  const visuals = source && { find: source.find, shareAnswer: source.createAnswerCache() };
  return {
    audit,
    authenticate,
    isToken,
    limits,
    compression,
    origins,
    now,
    resource,
    visuals,
    queryRules,
    publicUrl: others.publicUrl,
    signIn: others.signIn,
    clientCa: others.tls?.clientCa,
    executor: createExecutor({
      sites,
      limits,
      visuals,
      slots: slots.requests,
      slotWait,
      now,
      onLimitReached,
    }),
    tails: createTailRegistry({ limits, slots: slots.tails, held: slots.requests.held, now, pause, log }),
  };
}

/** Also over when `signal` aborts. */
function pause(length: Millis, signal: AbortSignal): Promise<void> {
  return delay(length, undefined, { signal }).catch(() => {});
}

function guardServer(http: HttpServer, options: ServerOptions): ConnectionGuard {
  const { telemetry, silenceLimit } = options;
  const guard = guardConnections(http, toConnectionLimits(options), telemetry.recordLimit, silenceLimit);
  resetStalledConnections(http, () => telemetry.recordLimit("unread"));
  installProtocolErrorResponses(http, (code) => {
    if (code === "HPE_HEADER_OVERFLOW") telemetry.recordLimit("head");
    if (code === "ERR_HTTP_REQUEST_TIMEOUT") telemetry.recordLimit("reading_time");
  });
  return guard;
}

function toConnectionLimits({ limits, proxies = [] }: ServedConfig): ConnectionLimits {
  const list = new BlockList();
  for (const entry of proxies) {
    const [address = "", prefix] = entry.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return { connections: limits.connections, perAddress: limits.addressConnections, proxies: list };
}

function limitUnread({ http, options }: ServerState, { limits }: ServedConfig): void {
  http.timeout = options.unreadTimeout ?? deriveUnreadTimeout(limits.deadline);
}

function receiveRequest(state: ServerState, request: IncomingMessage, response: ServerResponse): void {
  if (rejectAmbiguousHead(request, response)) return;
  awaitTurn(request.socket, response, () => {
    const { traceparent, tracestate } = request.headers;
    const { startSpan, telemetry } = state.options;
    const span = startSpan?.(readSingleHeader(traceparent), readSingleHeader(tracestate));
    runInUnownedTurns(() => runInSpan(span, () => respond(state, request, response))).catch(
      (error: unknown) => {
        telemetry.log({ level: "error", message: "request handler", err: error });
        response.destroy();
      },
    );
  });
}

function readSingleHeader(header: string | readonly string[] | undefined): string | null {
  return typeof header === "string" ? header : null;
}

async function respond(state: ServerState, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { options, dispatcher, graphql } = state;
  const { intake } = options;
  // What becomes of a report goes on long after its request.
  if (intake !== undefined && runInSpan(undefined, () => intake.tryAnswer(req, res))) return;
  // Yoga builds a URL of these two before any of our code runs, and would answer a bad one with a stack trace.
  if (!URL.canParse(`http://${req.headers.host}`)) req.headers.host = "localhost";
  const target = stripOrigin(req.url);
  req.url = target.startsWith("/") ? target : `/${target}`;
  if (graphql.gateway !== undefined) return graphql.gateway(req, res);
  const exchange = toExchange({ req, res }, dispatcher.generation);
  const admitted = await answerRequest(dispatcher, exchange);
  if ("status" in admitted) return writeAnswer(admitted, exchange, res, dispatcher.isDraining);
  const answer = await answerWithoutGateway(graphql, admitted);
  if ("status" in answer) return writeAnswer(answer, exchange, res, dispatcher.isDraining);
  await answer(req, res, { admitted });
}

function fetchAnswer(state: ServerState, url: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  const span = state.options.startSpan?.(headers.get("traceparent"), headers.get("tracestate"));
  return runInUnownedTurns(() => runInSpan(span, () => fetchInSpan(state, url, init)));
}

async function fetchInSpan(
  { dispatcher, graphql }: ServerState,
  url: string,
  init: RequestInit,
): Promise<Response> {
  if (graphql.gateway !== undefined) return graphql.gateway.fetch(url, init);
  const exchange = toExchange(new Request(url, init), dispatcher.generation);
  const admitted = await answerRequest(dispatcher, exchange);
  if ("status" in admitted) return toResponse(admitted, exchange, globalThis);
  const answer = await answerWithoutGateway(graphql, admitted);
  if ("status" in answer) return toResponse(answer, exchange, globalThis);
  return answer.fetch(url, init, { admitted });
}

async function reloadServer(state: ServerState, served: ServedConfig): Promise<void> {
  const { options, dispatcher, guard, slots } = state;
  const { executor, tails } = dispatcher.generation;
  dispatcher.generation = beginGeneration(options, slots, served);
  dispatcher.findPage = undefined;
  limitUnread(state, served);
  if (served.tls !== undefined) state.tls?.replace(served.tls);
  guard.setLimits(toConnectionLimits(served));
  const { generation, runner } = dispatcher;
  const cutting = runner.streams.cutUnpermitted((request) => isStreamPermitted(generation, request));
  await Promise.all([executor.drain(), tails.close("reloaded"), cutting]);
}

/** How often a drain looks for connections that have become idle. */
const idleCheckInterval: Millis = 100;

function closeServer({ dispatcher, http, guard, probes }: ServerState, grace: Millis): Promise<void> {
  dispatcher.isDraining = true;
  void dispatcher.generation.tails.close("draining");
  return new Promise((resolve) => {
    const timer = setTimeout(guard.destroyAll, grace);
    // Answers whose head was sent before have not told their clients to go.
    const idle = setInterval(guard.closeIdle, idleCheckInterval);
    http.close(() => {
      clearTimeout(timer);
      clearInterval(idle);
      probes.guard.destroyAll();
      probes.http.close(() => resolve());
    });
    guard.closeIdle();
  });
}
