// HTTP. Yoga is the host, and the REST operations are a plug-in in front of it that answers without executing
// GraphQL. Yoga and GraphQL are a third of the program's memory, so they are loaded when GraphQL is first asked for;
// until then the plug-in stands alone. On a real connection it writes to node's response itself, because only there
// can an answer that breaks off after its first byte be made visible: the socket is destroyed, the array never closed.
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Plugin } from "graphql-yoga";
import { type Authenticate, type Principal, readToken } from "../access/auth.ts";
import type { Sites } from "../access/sites.ts";
import type { Limits } from "../config/limits.ts";
import type { Address } from "../config/schema.ts";
import { NotFound, Unprocessable } from "../core/errors.ts";
import type { Instant, Millis } from "../core/time.ts";
import type { UnifiedSchema } from "../graphql/mesh.ts";
import type { Session } from "../graphql/session.ts";
import {
  createIdleCloser,
  deriveUnreadTimeout,
  installProtocolErrorResponses,
  rejectAmbiguousHead,
  resetStalledConnections,
  stripOrigin,
} from "../http/node-http.ts";
import { type Connection, createBodyReader, type Exchange, toExchange } from "../http/request.ts";
import { type Answer, jsonType, toErrorAnswer, toResponse, writeAnswer } from "../http/response.ts";
import type { Intake } from "../intake/intake.ts";
import { findLimit, isClientFault } from "../operations/runtime/error-response.ts";
import { createExecutor } from "../operations/runtime/executor.ts";
import { ClientGone, type RequestLifetime } from "../operations/runtime/lifetime.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import { createRouter } from "../operations/runtime/router.ts";
import { createTailRegistry } from "../tail/tail-registry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { findCurrentSpan, type OwnSpan, runInSpan } from "../telemetry/tracer.ts";
import type { PublishedVisuals } from "../visuals/visual.ts";
import type { FindPage } from "./pages.ts";
import {
  type ConfigGeneration,
  createOperationRunner,
  type FinishRequest,
  type RequestLogFields,
  receiveBody,
} from "./rest.ts";

/** What another configuration replaces while the server runs. */
export interface ServedConfig {
  readonly authenticate: Authenticate;
  readonly sites: Sites;
  readonly limits: Limits;
}

export interface ServerOptions extends ServedConfig {
  readonly operations: readonly Endpoint[];
  readonly telemetry: Telemetry;
  readonly now: () => Instant;
  /** The step of a request with these headers, where the program's own traces are configured. */
  readonly startSpan?: (traceparent: string | null, tracestate: string | null) => OwnSpan | undefined;
  /** One line of text for each backend, for `/readyz`. */
  readonly describeBackends?: () => readonly string[];
  readonly visuals?: PublishedVisuals | undefined;
  /** Connections open at once, instead of the program's own. */
  readonly maxConnections?: number | undefined;
  /** Instead of the program's own, in milliseconds. */
  readonly readTimeouts?: {
    readonly headersTimeout: Millis;
    readonly requestTimeout: Millis;
    readonly connectionsCheckingInterval: Millis;
  };
  /** How long a client may take nothing of its answer, instead of the program's own. */
  readonly unreadTimeout?: Millis | undefined;
  /** The front-end error intake where it shares this server's address. */
  readonly intake?: Intake | undefined;
  /** Asked for at the first GraphQL request, so that REST does not wait for it. */
  readonly loadGraphql: () => Promise<UnifiedSchema>;
}

export interface Server {
  /** Answers without a connection: the same routes, statuses, headers and bodies. */
  readonly fetch: (url: string, init?: RequestInit) => Promise<Response>;
  /** Resolves when connections are taken. @throws {Error} the system's, with its `code`, such as EADDRINUSE */
  readonly listen: (address: Address) => Promise<Address>;
  /** Serves this from the next request on. Resolves when the requests that began before are over. */
  readonly reload: (served: ServedConfig) => Promise<void>;
  /** Takes no new connections, lets what is under way finish for `grace`, then breaks it off. */
  readonly close: (grace: Millis) => Promise<void>;
}

/** Path and query. Of all headers together node takes 16 KiB. */
const urlLimit = 8_192;
/** More than all places and tails together; each that is idle costs a few kilobytes. */
const defaultMaxConnections = 5_000;
/** How long a client has for its headers, and for the whole of its request: less than the deadline, where that is the usual one. */
const defaultReadTimeouts = {
  headersTimeout: 10_000,
  requestTimeout: 20_000,
  connectionsCheckingInterval: 5_000,
};
const textType = { "Content-Type": "text/plain; charset=utf-8" };

export function createServer(options: ServerOptions): Server {
  const {
    operations,
    telemetry,
    now,
    startSpan: begin,
    describeBackends: backends,
    intake,
    visuals,
  } = options;
  const findRoute = createRouter(operations);
  const bodies = createBodyReader();
  const runOperation = createOperationRunner(telemetry, bodies);
  const places = { taken: 0 };
  const tailPlaces = { taken: 0 };
  const beginEpoch = ({ authenticate, ...served }: ServedConfig): ConfigGeneration => ({
    authenticate,
    limits: served.limits,
    executor: createExecutor({
      ...served,
      visuals,
      slots: places,
      now,
      onLimitReached: telemetry.recordLimit,
    }),
    tails: createTailRegistry({
      limits: served.limits,
      slots: tailPlaces,
      now,
      pause,
      log: telemetry.log,
    }),
  });
  let epoch = beginEpoch(options);
  let draining = false;
  let findPage: FindPage | undefined;

  /** Never throws. Of what is only admitted nothing has been told: its caller finishes it. */
  async function answerRequest(exchange: Exchange): Promise<Answer | Admission> {
    const started = performance.now();
    const trail: RequestLogFields = { operation: "none", route: undefined, user: undefined };
    const { id, method } = exchange;
    const step = findCurrentSpan();
    const finish: FinishRequest = (status, cut, error) => {
      const duration = performance.now() - started;
      const limit = findLimit(error);
      if (limit !== undefined) telemetry.recordLimit(limit);
      if (isClientFault(error)) error = undefined;
      telemetry.recordFinishedRequest({ id, method, ...trail, status, cut, duration, error, span: step });
    };
    try {
      if (exchange.path.length + exchange.search.length > urlLimit) throw createUrlTooLongError();
      const route = findRoute(exchange.method, exchange.path);
      // A request keeps to what was served when it came.
      if (route !== undefined) return await runOperation(exchange, route, epoch, trail, finish);
      const page = await openPage(exchange);
      if (page !== undefined) return page;
      if (exchange.path === "/graphql" && (exchange.method === "GET" || exchange.method === "POST")) {
        trail.operation = "graphql";
        trail.route = "/graphql";
        const principal = epoch.authenticate(readToken(exchange.headers, exchange.search));
        trail.user = principal.user;
        // From here on a reload waits for it, though the schema may still have to be loaded.
        return { exchange, principal, epoch, work: epoch.executor.join(exchange.gone), finish };
      }
      const own =
        exchange.method === "GET" || exchange.method === "HEAD" ? await ownPage(exchange.path) : undefined;
      if (own !== undefined) return own;
      throw new NotFound();
    } catch (error) {
      const answered = toErrorAnswer(error);
      finish(answered.status, error instanceof ClientGone, error);
      return answered;
    }
  }

  /** Health and metrics: neither counted nor logged, and open to whoever can reach the port. */
  async function ownPage(path: string): Promise<Answer | undefined> {
    switch (path) {
      case "/livez":
        return { status: 200, headers: textType, body: "ok\n" };
      case "/readyz": {
        const lines = [draining ? "draining" : "ready", ...(backends?.() ?? [])];
        return { status: draining ? 503 : 200, headers: textType, body: `${lines.join("\n")}\n` };
      }
      case "/metrics": {
        const { contentType, text } = await telemetry.metrics();
        return { status: 200, headers: { "Content-Type": contentType }, body: text };
      }
      default:
        return undefined;
    }
  }

  /** Pages for people: neither counted nor logged. Loaded when one is first opened. */
  async function openPage({ method, path, headers }: Exchange): Promise<Answer | undefined> {
    if (
      (method !== "GET" && method !== "HEAD") ||
      !/^\/$|^\/(console|docs|graphql|openapi\.json)(\/|$)/.test(path)
    )
      return undefined;
    const { createPages, isGraphiqlRequest: wantsGraphiql } = await import("./pages.ts");
    if (path === "/graphql" && !wantsGraphiql(headers)) return undefined;
    findPage ??= createPages(operations);
    return findPage(path, headers);
  }

  /** A GraphQL request under way, by the context that Yoga hands around with it. */
  interface Asked extends Admission {
    /** Why nothing of it was run. */
    readonly failure?: unknown;
    /** Lets go of its body. */
    readonly release?: () => void;
  }
  const asked = new WeakMap<object, Asked>();

  const rest: Plugin<object, NodeContext> = {
    async onRequest({ request, serverContext, fetchAPI, endResponse, setRequest }) {
      const { req, res, admitted } = serverContext;
      const exchange =
        admitted?.exchange ?? toExchange(req !== undefined && res !== undefined ? { req, res } : request);
      const answered = admitted ?? (await answerRequest(exchange));
      if ("principal" in answered) {
        const { work, principal } = answered;
        asked.set(serverContext, answered);
        serverContext.readout = openSession?.(answered);
        if (exchange.method !== "POST") return;
        try {
          const { method, headers, signal } = request;
          const returnSlot = answered.epoch.executor.takeSlot(principal);
          const reading = bodies.readText(exchange, principal, work.signal);
          const { text, release } = await receiveBody(reading, work).finally(returnSlot);
          asked.set(serverContext, { ...answered, release });
          const read = new fetchAPI.Request(request.url, { method, headers, signal, body: text });
          setRequest(Object.defineProperty(read, "json", { value: () => bodies.parseJson(text, principal) }));
        } catch (failure) {
          asked.set(serverContext, { ...answered, failure });
          // What was not read of the request would hold the connection up.
          req?.resume();
          endResponse(toResponse(toErrorAnswer(failure), exchange, fetchAPI));
        }
        return;
      }
      if (res === undefined) {
        endResponse(toResponse(answered, exchange, fetchAPI));
        return;
      }
      await writeAnswer(answered, exchange, res, draining);
      // Yoga sends no response where one has ended already.
      endResponse(new fetchAPI.Response(null));
    },
    onResponse({ response, serverContext }) {
      const known = asked.get(serverContext);
      if (known === undefined) return;
      const { exchange, work, finish, failure, release } = known;
      const cut = exchange.gone.aborted;
      release?.();
      work.end();
      // What was not run has it already.
      if (failure === undefined) response.headers.set("X-Request-Id", exchange.id);
      if (draining) response.headers.set("Connection", "close");
      finish(response.status, cut, failure);
    },
  };

  let openSession: ((asked: Asked) => Session) | undefined;

  async function loadGateway() {
    const unified = await options.loadGraphql();
    const { createGateway, createSession } = await import("../graphql/gateway.ts");
    openSession = ({ exchange: { id }, principal, epoch, work }) =>
      createSession({
        executor: epoch.executor,
        operations,
        limits: epoch.limits,
        principal,
        gone: work.signal,
        onFailure: (operation, err) =>
          telemetry.log({ level: "error", message: "request failed", request: id, operation, err }),
      });
    return createGateway<NodeContext>({
      unified,
      plugins: [rest],
      onLimited: () => telemetry.recordLimit("graphql"),
      warn: (told, err) => telemetry.log({ level: "warn", message: told, err }),
    });
  }
  type Gateway = Awaited<ReturnType<typeof loadGateway>>;
  let gateway: Gateway | undefined;
  let loading: Promise<Gateway> | undefined;

  /** Undefined when the schema cannot be loaded; the next request tries again, since a source may be back by then. */
  async function findGateway(): Promise<Gateway | undefined> {
    loading ??= loadGateway();
    try {
      gateway = await loading;
    } catch (error) {
      telemetry.log({ level: "error", message: "GraphQL cannot be served", err: error });
    } finally {
      loading = undefined;
    }
    return gateway;
  }

  /** While there is no gateway: the answer, or a gateway to finish the request, which is admitted only once. */
  async function answerWithoutGateway(
    exchange: Exchange,
  ): Promise<Answer | { host: Gateway; admitted: Admission }> {
    const admitted = await answerRequest(exchange);
    if ("status" in admitted) return admitted;
    const { work, finish } = admitted;
    let answered = graphqlUnavailable;
    let failure: unknown;
    try {
      const host = await work.wait(findGateway());
      if (host !== undefined) return { host, admitted };
    } catch (error) {
      failure = error;
      answered = toErrorAnswer(error);
    }
    work.end();
    finish(answered.status, exchange.gone.aborted, failure);
    return answered;
  }

  async function listen(req: IncomingMessage, res: ServerResponse): Promise<void> {
    // What becomes of a report goes on long after its request.
    if (intake !== undefined && runInSpan(undefined, () => intake.tryAnswer(req, res))) return;
    // Yoga builds a URL of these two before any of our code runs, and would answer a bad one with a stack trace.
    if (!URL.canParse(`http://${req.headers.host}`)) req.headers.host = "localhost";
    const target = stripOrigin(req.url);
    req.url = target.startsWith("/") ? target : `/${target}`;
    if (gateway !== undefined) return gateway(req, res);
    const exchange = toExchange({ req, res });
    const answered = await answerWithoutGateway(exchange);
    if ("status" in answered) return writeAnswer(answered, exchange, res, draining);
    await answered.host(req, res, { admitted: answered.admitted });
  }

  function fetch(url: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    const step = begin?.(headers.get("traceparent"), headers.get("tracestate"));
    return runInSpan(step, () => fetchWithin(url, init));
  }

  async function fetchWithin(url: string, init: RequestInit): Promise<Response> {
    if (gateway !== undefined) return gateway.fetch(url, init);
    const exchange = toExchange(new Request(url, init));
    const answered = await answerWithoutGateway(exchange);
    if ("status" in answered) return toResponse(answered, exchange, globalThis);
    return answered.host.fetch(url, init, { admitted: answered.admitted });
  }

  const http = createHttpServer(
    // Refused by ourselves, with a body.
    { keepAliveTimeout: 65_000, requireHostHeader: false, ...(options.readTimeouts ?? defaultReadTimeouts) },
    (request, response) => {
      if (rejectAmbiguousHead(request, response)) return;
      const { traceparent, tracestate } = request.headers;
      const step = begin?.(readSingleHeader(traceparent), readSingleHeader(tracestate));
      runInSpan(step, () => listen(request, response)).catch((error: unknown) => {
        telemetry.log({ level: "error", message: "request handler", err: error });
        response.destroy();
      });
    },
  );
  const closeIdle = createIdleCloser(http);
  http.maxConnections = options.maxConnections ?? defaultMaxConnections;
  http.on("drop", () => telemetry.recordLimit("connections"));
  const limitUnread = ({ limits }: ServedConfig) => {
    http.timeout = options.unreadTimeout ?? deriveUnreadTimeout(limits.deadline);
  };
  limitUnread(options);
  resetStalledConnections(http, () => telemetry.recordLimit("unread"));
  installProtocolErrorResponses(http, (code) => {
    if (code === "HPE_HEADER_OVERFLOW") telemetry.recordLimit("head");
    if (code === "ERR_HTTP_REQUEST_TIMEOUT") telemetry.recordLimit("reading_time");
  });

  return {
    fetch,
    listen: ({ host, port }) =>
      new Promise((resolve, reject) => {
        http.once("error", reject);
        http.listen(port, host, () => {
          http.off("error", reject);
          const bound = http.address();
          resolve({ host, port: typeof bound === "object" && bound !== null ? bound.port : port });
        });
      }),
    reload(served) {
      const { executor: conductor, tails } = epoch;
      epoch = beginEpoch(served);
      limitUnread(served);
      return Promise.all([conductor.drain(), tails.close("reloaded")]).then(() => {});
    },
    close: (grace) =>
      new Promise((resolve) => {
        draining = true;
        void epoch.tails.close("draining");
        const timer = setTimeout(() => http.closeAllConnections(), grace);
        // Answers whose head was sent before have not told their clients to go.
        const idle = setInterval(closeIdle, idleCheckInterval);
        http.close(() => {
          clearTimeout(timer);
          clearInterval(idle);
          resolve();
        });
      }),
  };
}

/** How often a drain looks for connections that have become idle. */
const idleCheckInterval: Millis = 100;

/** Also over when `signal` aborts. */
function pause(length: Millis, signal: AbortSignal): Promise<void> {
  return delay(length, undefined, { signal }).catch(() => {});
}

function readSingleHeader(header: string | readonly string[] | undefined): string | null {
  return typeof header === "string" ? header : null;
}

function createUrlTooLongError(): Unprocessable {
  const message = `The URL is longer than ${urlLimit} characters`;
  return new Unprocessable("invalid_request", message, { issues: [{ path: "", message }] }, "url");
}

const graphqlUnavailable: Answer = {
  status: 500,
  headers: jsonType,
  body: JSON.stringify({
    errors: [
      {
        message: "GraphQL is not available: its schema could not be loaded. /readyz and the log say why",
        extensions: { status: 500 },
      },
    ],
  }),
};

/** A GraphQL request that may be answered, and with what. */
interface Admission {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly epoch: ConfigGeneration;
  readonly work: RequestLifetime;
  readonly finish: FinishRequest;
}

interface NodeContext extends Partial<Connection> {
  readout?: Session | undefined;
  /** Told before this request came to Yoga. */
  readonly admitted?: Admission;
}
