// HTTP. Yoga is the host, and the REST operations are a plug-in in front of it that answers without executing
// GraphQL. Yoga and GraphQL are a third of the program's memory, so they are loaded when GraphQL is first asked for;
// until then the plug-in stands alone. On a real connection it writes to node's response itself, because only there
// can an answer that breaks off after its first byte be made visible: the socket is destroyed, the array never closed.
import { randomUUID } from "node:crypto";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Plugin } from "graphql-yoga";
import { type Authenticate, type Principal, readToken } from "./auth.ts";
import type { Address, Limits } from "./config.ts";
import { NotFound, Unprocessable } from "./errors.ts";
import { type Intake, keepAnswers } from "./intake.ts";
import type { Unified } from "./mesh.ts";
import { createConductor, overloaded } from "./operations/conduct.ts";
import { describeFailure, isClients } from "./operations/failure.ts";
import type { Endpoint, Rows } from "./operations/operation.ts";
import { createRouter, type Route } from "./operations/router.ts";
import { abandon, ClientGone, readHead, startWork, type Work } from "./operations/work.ts";
import type { FindPage } from "./pages.ts";
import type { Session } from "./session.ts";
import type { Sites } from "./sites.ts";
import type { Telemetry } from "./telemetry.ts";
import type { Instant, Millis } from "./time.ts";

export interface ServerOptions {
  readonly operations: readonly Endpoint[];
  readonly authenticate: Authenticate;
  readonly sites: Sites;
  readonly limits: Limits;
  readonly telemetry: Telemetry;
  readonly now: () => Instant;
  /** One line of text for each backend, for `/readyz`. */
  readonly backends?: () => readonly string[];
  /** The front-end error intake where it shares this server's address. */
  readonly intake?: Intake | undefined;
  /** Asked for at the first GraphQL request, so that REST does not wait for it. */
  readonly graphql: () => Promise<Unified>;
}

export interface Server {
  /** Answers without a connection: the same routes, statuses, headers and bodies. */
  readonly fetch: (url: string, init?: RequestInit) => Promise<Response>;
  /** Resolves when connections are taken. @throws {Error} the system's, with its `code`, such as EADDRINUSE */
  readonly listen: (address: Address) => Promise<Address>;
  /** Takes no new connections, lets what is under way finish for `grace`, then breaks it off. */
  readonly close: (grace: Millis) => Promise<void>;
}

/** A request, wherever it came from. */
interface Exchange {
  readonly id: string;
  readonly method: string;
  /** As sent: routes are matched before anything is decoded (contract, "Everywhere"). */
  readonly path: string;
  readonly search: string;
  readonly headers: Pick<Headers, "get">;
  readonly body: AsyncIterable<Uint8Array> | undefined;
  /** Aborted when the client leaves. */
  readonly gone: AbortSignal;
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | Chunks;
}
/** A streamed body. Reading throws when the answer breaks off. Whoever is handed one must begin to read it. */
interface Chunks {
  readonly next: () => Promise<IteratorResult<string, void>>;
  readonly leave: () => Promise<void>;
  /** Aborted when there is no more point in writing, also while nothing is being read. */
  readonly signal: AbortSignal;
}

/** What the log and the metrics tell of a request; filled in as far as it gets. */
interface Trail {
  operation: string;
  user: string | undefined;
}

const jsonType = { "Content-Type": "application/json; charset=utf-8" };
const textType = { "Content-Type": "text/plain; charset=utf-8" };

/** The read API's; the front-end error intake has its own. */
const bodyLimitBytes = 1_048_576;

export function createServer(options: ServerOptions): Server {
  const { operations, authenticate, sites, limits, telemetry, now, backends, intake } = options;
  const findRoute = createRouter(operations);
  const conductor = createConductor({ sites, limits, now });
  let draining = false;
  let streams = 0;
  let findPage: FindPage | undefined;

  /** Never throws. */
  async function answer(exchange: Exchange): Promise<Answer | { readonly principal: Principal }> {
    const started = performance.now();
    const trail: Trail = { operation: "none", user: undefined };
    const finish = (status: number, cut: boolean, error?: unknown) => {
      const duration = performance.now() - started;
      telemetry.finished({ id: exchange.id, ...trail, status, cut, duration, error });
    };
    try {
      const route = findRoute(exchange.method, exchange.path);
      if (route !== undefined) return await operate(exchange, route, trail, finish);
      const page = await openPage(exchange);
      if (page !== undefined) return page;
      if (exchange.path === "/graphql" && (exchange.method === "GET" || exchange.method === "POST")) {
        trail.operation = "graphql";
        return { principal: authenticate(readToken(exchange.headers, exchange.search)) };
      }
      const own =
        exchange.method === "GET" || exchange.method === "HEAD" ? await ownPage(exchange.path) : undefined;
      if (own !== undefined) return own;
      throw new NotFound();
    } catch (error) {
      const answered = respond(error);
      finish(answered.status, error instanceof ClientGone, isClients(error) ? undefined : error);
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

  /** Pages of documentation: neither counted nor logged. Loaded when one is first opened. */
  async function openPage({ method, path, headers, search }: Exchange): Promise<Answer | undefined> {
    if (method !== "GET" || !/^\/(docs|graphql|openapi\.json)(\/|$)/.test(path)) return undefined;
    const { createPages, wantsGraphiql } = await import("./pages.ts");
    if (path === "/graphql" && !wantsGraphiql(headers, search)) return undefined;
    findPage ??= createPages(operations);
    const page = await findPage(path, headers);
    return page && { status: 200, ...page };
  }

  async function operate(
    exchange: Exchange,
    { endpoint, parameters }: Route,
    trail: Trail,
    finish: (status: number, cut: boolean, error?: unknown) => void,
  ): Promise<Answer> {
    trail.operation = endpoint.name;
    const principal =
      endpoint.access === "public" ? nobody : authenticate(readToken(exchange.headers, exchange.search));
    trail.user = principal.user;
    const work = conductor.admit(exchange.gone);
    let streaming = false;
    try {
      const raw = endpoint.method === "GET" ? parameters : await work.wait(readJson(exchange));
      const result = conductor.start(endpoint.prepare(raw), principal, work);
      const complete = (body: string): Answer => {
        finish(200, false);
        return { status: 200, headers: jsonType, body };
      };
      if (!(Symbol.asyncIterator in result)) return complete(JSON.stringify(await work.wait(result)));
      const rows = result[Symbol.asyncIterator]();
      const head = await readHead(rows, work);
      if (head.done) return complete(`[${head.texts.join(",")}]`);
      if (streams >= limits.streams) {
        abandon(rows);
        throw overloaded(`${streams} streamed answers are under way`);
      }
      streaming = true;
      streams += 1;
      telemetry.streams.opened();
      return {
        status: 200,
        headers: jsonType,
        body: chunksOf(stream(head.texts, rows, work, finish), work.signal),
      };
    } catch (error) {
      throw work.signal.aborted ? work.signal.reason : error;
    } finally {
      if (!streaming) work.end();
    }
  }

  async function* stream(
    head: readonly string[],
    rows: AsyncIterator<Rows>,
    work: Work,
    finish: (status: number, cut: boolean, error?: unknown) => void,
  ): AsyncGenerator<string, void, void> {
    let complete = false;
    let failure: unknown;
    try {
      let opening = "[";
      for (const text of head) {
        yield opening + text;
        opening = ",";
        work.progressed();
      }
      for (;;) {
        work.progressed();
        const next = await work.wait(rows.next());
        if (next.done === true) break;
        yield `,${next.value.text}`;
      }
      yield "]";
      complete = true;
    } catch (error) {
      failure = work.signal.aborted ? work.signal.reason : error;
      throw failure;
    } finally {
      streams -= 1;
      telemetry.streams.closed();
      if (!complete) abandon(rows);
      work.end();
      finish(200, !complete, isClients(failure) ? undefined : failure);
    }
  }

  /** A GraphQL request under way, by the context that Yoga hands around with it. */
  interface Asked {
    readonly exchange: Exchange;
    readonly principal: Principal;
    readonly work: Work;
    readonly started: number;
  }
  const asked = new WeakMap<object, Asked>();

  const rest: Plugin<object, NodeContext> = {
    async onRequest({ request, serverContext, fetchAPI, endResponse, setRequest }) {
      const { req, res } = serverContext;
      const exchange = exchangeOf(req !== undefined && res !== undefined ? { req, res } : request);
      const answered = await answer(exchange);
      if ("principal" in answered) {
        const { principal } = answered;
        const work = startWork(exchange.gone, limits.deadline);
        asked.set(serverContext, { exchange, principal, work, started: performance.now() });
        serverContext.readout = openSession?.(exchange, principal, work.signal);
        if (exchange.method !== "POST") return;
        try {
          const { method, headers, signal } = request;
          const body = await work.wait(readText(exchange));
          setRequest(new fetchAPI.Request(request.url, { method, headers, signal, body }));
        } catch (error) {
          endResponse(toResponse(respond(error), exchange, fetchAPI));
        }
        return;
      }
      if (res === undefined) {
        endResponse(toResponse(answered, exchange, fetchAPI));
        return;
      }
      await write(answered, exchange, res, draining);
      // Yoga sends no response where one has ended already.
      endResponse(new fetchAPI.Response(null));
    },
    onResponse({ response, serverContext }) {
      const known = asked.get(serverContext);
      if (known === undefined) return;
      const { exchange, principal, work, started } = known;
      const cut = exchange.gone.aborted;
      work.end();
      response.headers.set("X-Request-Id", exchange.id);
      const duration = performance.now() - started;
      const { id } = exchange;
      const { status } = response;
      telemetry.finished({ id, operation: "graphql", status, cut, duration, user: principal.user });
    },
  };

  let openSession: ((exchange: Exchange, principal: Principal, gone: AbortSignal) => Session) | undefined;

  async function loadGateway() {
    const [{ createGateway, createSession }, unified] = await Promise.all([
      import("./gateway.ts"),
      options.graphql(),
    ]);
    openSession = ({ id }, principal, gone) =>
      createSession({
        conductor,
        operations,
        limits,
        principal,
        gone,
        failed: (operation, err) =>
          telemetry.log({ level: "error", message: "request failed", request: id, operation, err }),
      });
    return createGateway<NodeContext>({
      unified,
      plugins: [rest],
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

  async function listen(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (intake?.takes(req, res)) return;
    // Yoga builds a URL of these two before any of our code runs, and would answer a bad one with a stack trace.
    if (!URL.canParse(`http://${req.headers.host}`)) req.headers.host = "localhost";
    const target = req.url?.replace(/^https?:\/\/[^/?#]*/i, "") ?? "";
    req.url = target.startsWith("/") ? target : `/${target}`;
    let host = gateway;
    if (host === undefined) {
      const exchange = exchangeOf({ req, res });
      const answered = await answer(exchange);
      if (!("principal" in answered)) return write(answered, exchange, res, draining);
      host = await findGateway();
      if (host === undefined) return write(unavailable, exchange, res, draining);
    }
    await host(req, res);
  }

  async function fetch(url: string, init: RequestInit = {}): Promise<Response> {
    let host = gateway;
    if (host === undefined) {
      const exchange = exchangeOf(new Request(url, init));
      const answered = await answer(exchange);
      if (!("principal" in answered)) return toResponse(answered, exchange, globalThis);
      host = await findGateway();
      if (host === undefined) return toResponse(unavailable, exchange, globalThis);
    }
    return host.fetch(url, init);
  }

  const http = createHttpServer({ keepAliveTimeout: 65_000, requestTimeout: 60_000 }, (request, response) => {
    listen(request, response).catch((error: unknown) => {
      telemetry.log({ level: "error", message: "request handler", err: error });
      response.destroy();
    });
  });
  if (intake !== undefined) keepAnswers(http, intake);

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
    close: (grace) =>
      new Promise((resolve) => {
        draining = true;
        const timer = setTimeout(() => http.closeAllConnections(), grace);
        http.close(() => {
          clearTimeout(timer);
          resolve();
        });
      }),
  };
}

const unavailable: Answer = {
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

const nobody: Principal = { user: "", maySee: () => false };

// ---- Requests -----------------------------------------------------------------------------------------------

interface Connection {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}
interface NodeContext extends Partial<Connection> {
  readout?: Session | undefined;
}

function exchangeOf(source: Request | Connection): Exchange {
  if (!("req" in source)) {
    const { headers, method, body, signal } = source;
    const url = source.url.replace(/^[a-z]+:\/\/[^/?#]*/i, "");
    return { ...address(url, headers), method, body: body ?? undefined, gone: signal };
  }
  const { req, res } = source;
  const get = (name: string) => {
    const value = req.headers[name];
    return typeof value === "string" ? value : null;
  };
  // A request is not destroyed for what was left unread of it: that would take the connection with it.
  const body = req.iterator({ destroyOnReturn: false });
  return { ...address(req.url ?? "/", { get }), method: req.method ?? "GET", body, gone: goneSignal(res) };
}

function address(url: string, headers: Exchange["headers"]) {
  const [target = ""] = url.split("#", 1);
  const query = target.indexOf("?");
  return {
    id: requestId(headers.get("x-request-id")),
    path: query === -1 ? target : target.slice(0, query),
    search: query === -1 ? "" : target.slice(query),
    headers,
  };
}

/** Ours and not Yoga's, which cannot be told from its own failures. */
function goneSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) gone.abort(new ClientGone());
  });
  return gone.signal;
}

/** The client's own where it can stand in a log as it is. */
function requestId(sent: string | null): string {
  return sent !== null && /^[\w.:-]{1,128}$/.test(sent) ? sent : randomUUID();
}

/** @throws {Unprocessable} `invalid_request` past the limit, `invalid_json` for what is no UTF-8 */
async function readText({ body }: Exchange): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > bodyLimitBytes) {
      const message = `The body is larger than ${bodyLimitBytes} bytes`;
      throw new Unprocessable("invalid_request", message, { issues: [{ path: "", message }] });
    }
    chunks.push(chunk);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new Unprocessable("invalid_json", "The body is not UTF-8", {});
  }
}

/** @throws {Unprocessable} as `readText`, and `invalid_json` with the position in UTF-16 units where it is known */
async function readJson(exchange: Exchange): Promise<unknown> {
  const text = await readText(exchange);
  try {
    return JSON.parse(text);
  } catch (error) {
    const told = error instanceof SyntaxError ? error.message : "";
    const position = /Unexpected end/.test(told) ? text.length : /at position (\d+)/.exec(told)?.[1];
    const where = position === undefined ? "" : ` at position ${position}`;
    const message = text.trim() === "" ? "A JSON body is required" : `The body is not JSON${where}`;
    throw new Unprocessable(
      "invalid_json",
      message,
      position === undefined ? {} : { position: Number(position) },
    );
  }
}

// ---- Answers ------------------------------------------------------------------------------------------------

function respond(error: unknown): Answer {
  const { status, headers, body } = describeFailure(error);
  return { status, headers: { ...jsonType, ...headers }, body: JSON.stringify(body) };
}

/** Completed answers go out in one write. Resolves when the answer is handed over or broken off. */
async function write(
  answer: Answer,
  exchange: Exchange,
  response: ServerResponse,
  closing: boolean,
): Promise<void> {
  const headers = {
    ...answer.headers,
    "X-Request-Id": exchange.id,
    ...(closing ? { Connection: "close" } : {}),
  };
  if (typeof answer.body === "string" || answer.body instanceof Uint8Array) {
    const body = Buffer.from(answer.body);
    if (response.destroyed) return;
    response.writeHead(answer.status, { ...headers, "Content-Length": body.length });
    response.end(body);
    // What was not read of the request would hold the connection up.
    response.req.resume();
    return;
  }
  const { next, leave, signal } = answer.body;
  try {
    for (let chunk = await next(); chunk.done !== true; chunk = await next()) {
      if (response.destroyed) return await leave();
      if (!response.headersSent) response.writeHead(answer.status, headers);
      // Even a client that keeps up must not keep the event loop: others are waiting for it.
      await (response.write(chunk.value) ? nextTurn() : drained(response, signal));
    }
    response.end();
  } catch {
    // Already logged by who made the answer. A reset shows also in HTTP/1.0, where a mere end would look complete.
    response.socket?.resetAndDestroy();
    response.destroy();
  }
}

/** Resolves when more can be written, when nobody reads any more, or when the work has been given up. */
function drained(response: ServerResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      response.off("drain", over);
      response.off("close", over);
      signal.removeEventListener("abort", over);
      resolve();
    };
    response.once("drain", over);
    response.once("close", over);
    signal.addEventListener("abort", over, { once: true });
  });
}

function chunksOf(chunks: AsyncGenerator<string, void, void>, signal: AbortSignal): Chunks {
  const leave = async () => {
    await chunks.return();
  };
  return { next: () => chunks.next(), leave, signal };
}

function toResponse(answer: Answer, exchange: Exchange, { Response, ReadableStream }: FetchApi): Response {
  const { status, body } = answer;
  const headers = { ...answer.headers, "X-Request-Id": exchange.id };
  if (typeof body === "string") return new Response(body, { status, headers });
  if (body instanceof Uint8Array) return new Response(Uint8Array.from(body), { status, headers });
  const encoder = new TextEncoder();
  const source = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      const next = await body.next();
      if (next.done === true) controller.close();
      else controller.enqueue(encoder.encode(next.value));
    },
    cancel: () => body.leave(),
  });
  return new Response(source, { status, headers });
}

interface FetchApi {
  readonly Response: typeof globalThis.Response;
  readonly ReadableStream: typeof globalThis.ReadableStream;
}
