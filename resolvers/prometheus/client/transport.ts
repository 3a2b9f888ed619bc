// HTTP requests to a server of the Prometheus API. Each runs under the guard, and its response is complete or an error:
// bodies over the size limit, `warnings` and `isPartial` are errors, and so is whatever has an unknown form.
import type { Agent, Dispatcher } from "undici";
import { z } from "zod";
import { createUtf8Check, joinChunks } from "../../../src/core/async/chunks.ts";
import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { BackendError, type Failure } from "../../../src/core/errors.ts";
import { parseJson, parseLargeJson } from "../../../src/core/json/parse-json.ts";
import type { IO } from "../../../src/store/backend.ts";
import { readTraceContextHeaders } from "../../../src/telemetry/tracer.ts";
import { type AwsLogin, encodeForSignature, sendSigned } from "../../http/aws.ts";
import {
  type AccessTokenLogin,
  buildAuthorization,
  type FixedLogin,
  omitUndefined,
  type Tls,
} from "../../http/connection.ts";
import { createGuard, type Guard, type GuardSettings, readRetryAfter } from "../../http/guard.ts";
import { sendWithToken } from "../../http/oauth2.ts";
import { createListScanner } from "./list-scanner.ts";
import { envelope, UnexpectedFormat } from "./response-scanner.ts";

export interface ClientSettings extends GuardSettings {
  /** Of the server, with the path under which its API lies. */
  readonly url: string;
  readonly auth?: FixedLogin | AccessTokenLogin | AwsLogin | undefined;
  readonly tls?: Tls | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** A response over this many bytes is refused while it arrives. */
  readonly answerBytes: number;
}

export interface ApiRequest {
  readonly method: "GET" | "POST";
  /** Below the path of the API's URL, with its query. */
  readonly path: string;
  readonly form?: URLSearchParams;
}

/** The connections to one server. */
export interface Transport {
  readonly backend: string;
  readonly settings: ClientSettings;
  readonly guard: Guard;
  readonly origin: string;
  readonly pathPrefix: string;
  /** Created by the first request: undici takes 10 MB, which a program without such a backend need not spend. */
  agent: Promise<Agent> | undefined;
  /** How many connections were opened so far. */
  connections: number;
}

/** A response is read in pieces of this size, each in a turn of the event loop of its own: some milliseconds. */
const bytesPerTurn = 256 * 1024;

/** How much of an error's text is logged. */
const maxErrorChars = 4_096;

export function createTransport(backend: string, settings: ClientSettings, io: IO): Transport {
  const url = new URL(settings.url);
  return {
    backend,
    settings,
    guard: createGuard(backend, settings, io),
    origin: url.origin,
    pathPrefix: url.pathname.replace(/\/+$/, ""),
    agent: undefined,
    connections: 0,
  };
}

export async function closeTransport({ agent }: Transport): Promise<void> {
  await (await agent)?.destroy();
}

async function createAgent(transport: Transport): Promise<Agent> {
  const { settings } = transport;
  const { Agent } = await import("undici");
  const agent = new Agent({
    connections: settings.concurrent,
    keepAliveTimeout: 60_000,
    // The guard keeps the deadline.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { ...omitUndefined(settings.tls ?? {}) },
  });
  agent.on("connect", () => {
    transport.connections++;
  });
  return agent;
}

async function openRequest(
  transport: Transport,
  { method, path, form }: ApiRequest,
  signal: AbortSignal,
): Promise<Dispatcher.ResponseData> {
  const { settings } = transport;
  transport.agent ??= createAgent(transport);
  const agent = await transport.agent;
  const { auth } = settings;
  const isSigned = auth !== undefined && "aws" in auth;
  const wholePath = transport.pathPrefix + (isSigned ? encodeForSignature(path) : path);
  const send = (authorization: Readonly<Record<string, string>>) =>
    agent.request({
      origin: transport.origin,
      path: wholePath,
      method,
      signal,
      headers: {
        accept: "application/json",
        // The frontends of Mimir, Cortex and Thanos cache answers, which late samples would make wrong.
        "cache-control": "no-store",
        ...settings.headers,
        ...readTraceContextHeaders(),
        ...authorization,
        ...(form && { "content-type": "application/x-www-form-urlencoded" }),
      },
      ...(form && { body: form.toString() }),
    });
  if (auth === undefined) return send({});
  if ("aws" in auth) {
    const { host } = new URL(transport.origin);
    const unsigned = { method, host, path: wholePath, body: form?.toString() };
    const response = await sendSigned(auth, unsigned, signal, send, readRefusal);
    if (!("text" in response)) return response;
    throw toResponseError(transport.backend, response.status, response.text, undefined);
  }
  if (!("tokens" in auth)) return send(buildAuthorization(auth));
  // An unread body reports its end as an error event, which would end the process.
  const drop = ({ body }: Dispatcher.ResponseData) => void body.on("error", () => {}).destroy();
  return sendWithToken(auth.tokens, signal, send, ({ statusCode }) => statusCode === 401, drop);
}

/** What Amazon says of a request that it refuses. */
function readRefusal({ statusCode, headers, body }: Dispatcher.ResponseData) {
  if (statusCode !== 401 && statusCode !== 403) return undefined;
  const date = typeof headers.date === "string" ? headers.date : undefined;
  return readErrorText(body).then((text) => ({ status: statusCode, date, text }));
}

/** Sends a request and passes the bytes of a successful response on as they arrive. @throws {BackendError} */
export async function streamBody(
  transport: Transport,
  request: ApiRequest,
  signal: AbortSignal,
  take: (chunk: Buffer) => void,
): Promise<void> {
  const { backend, settings } = transport;
  const { statusCode, headers, body } = await openRequest(transport, request, signal);
  // The request asks for no encoding. A proxy that encodes nevertheless sends what nothing here decodes.
  if (headers["content-encoding"] !== undefined && headers["content-encoding"] !== "identity") {
    // An unread body reports its end as an error event, which would end the process.
    body.on("error", () => {}).destroy();
    throw new BackendError(
      backend,
      "malformed",
      `unexpected content-encoding ${headers["content-encoding"]}`,
    );
  }
  if (statusCode !== 200) {
    const text = await readErrorText(body);
    throw toResponseError(backend, statusCode, text, readRetryAfter(headers["retry-after"]));
  }
  const utf8 = createUtf8Check();
  let bytes = 0;
  let sinceTurn = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    sinceTurn += chunk.length;
    if (sinceTurn > bytesPerTurn) {
      // While this response waits, its connection is not read either.
      await yieldToEventLoop();
      sinceTurn = chunk.length;
    }
    if (bytes > settings.answerBytes) {
      throw new BackendError(backend, "rejected", `response larger than ${settings.answerBytes} bytes`);
    }
    if (!utf8.push(chunk)) throw createNotUtf8Error(backend);
    take(chunk);
  }
  if (!utf8.end()) throw createNotUtf8Error(backend);
}

function createNotUtf8Error(backend: string): BackendError {
  return new BackendError(backend, "malformed", "a response that is not UTF-8");
}

/** Sends a request without the guard and parses the `data` of its response. */
export async function readJson<T>(
  transport: Transport,
  schema: z.ZodType<T>,
  request: ApiRequest,
  signal: AbortSignal,
): Promise<T> {
  const chunks: Buffer[] = [];
  await streamBody(transport, request, signal, (chunk) => chunks.push(chunk));
  const text = (await joinChunks(chunks, signal)).toString("utf8");
  return schema.parse(unwrapEnvelope(transport.backend, await parseLargeJson(text)));
}

/** The same for `data` that are a list, which may be long. */
async function readList<T>(
  transport: Transport,
  schema: z.ZodType<readonly T[] | null | undefined>,
  request: ApiRequest,
  signal: AbortSignal,
): Promise<readonly T[]> {
  const found: T[] = [];
  const scanner = createListScanner((elements) => {
    for (const element of schema.parse(elements) ?? []) found.push(element);
  });
  await streamBody(transport, request, signal, scanner.push);
  const rest = schema.parse(unwrapEnvelope(transport.backend, parseJson(scanner.end())));
  return found.length === 0 ? (rest ?? []) : found;
}

/** Returns the `data` of a response. @throws {BackendError} if the response says that it is incomplete */
export function unwrapEnvelope(backend: string, response: unknown): unknown {
  const { warnings, isPartial, data } = envelope.parse(response);
  if (isPartial === true) throw new BackendError(backend, "partial", "the response is marked isPartial");
  // Versions 2.48 to 2.53 put hints on the style of a query here as well; since 2.54 these are `infos`.
  const relevant = (warnings ?? []).filter((text) => !text.startsWith("PromQL info"));
  if (relevant.length > 0) {
    throw new BackendError(backend, "partial", `warnings: ${relevant.join("; ").slice(0, 2_000)}`);
  }
  return data;
}

/** Runs `read` under the guard. A response of an unknown form becomes a `BackendError`. @throws {BackendError} */
export function runGuarded<T>(
  { backend, guard }: Transport,
  { method, path, form }: ApiRequest,
  signal: AbortSignal,
  read: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const attempt = async (limited: AbortSignal) => {
    try {
      return await read(limited);
    } catch (cause) {
      if (!isFormatError(cause)) throw cause;
      throw new BackendError(backend, "malformed", `${path}: ${cause.message.slice(0, 2_000)}`, { cause });
    }
  };
  const describe = () => {
    const [pathname = "", search] = path.split("?");
    return { method, path: pathname, parameters: Object.fromEntries(form ?? new URLSearchParams(search)) };
  };
  return guard.run(true, signal, attempt, describe);
}

function isFormatError(cause: unknown): cause is Error {
  return cause instanceof z.ZodError || cause instanceof SyntaxError || cause instanceof UnexpectedFormat;
}

/** Sends a request under the guard and parses the `data` of its response. @throws {BackendError} */
export function requestJson<T>(
  transport: Transport,
  schema: z.ZodType<T>,
  request: ApiRequest,
  signal: AbortSignal,
): Promise<T> {
  return runGuarded(transport, request, signal, (limited) => readJson(transport, schema, request, limited));
}

/** The same for `data` that are a list, which may be long. @throws {BackendError} */
export function requestList<T>(
  transport: Transport,
  schema: z.ZodType<readonly T[] | null | undefined>,
  request: ApiRequest,
  signal: AbortSignal,
): Promise<readonly T[]> {
  return runGuarded(transport, request, signal, (limited) => readList(transport, schema, request, limited));
}

/** Returns `undefined` if the server refuses the request: a proxy does not route it, or the product does not have it. */
export async function readIfSupported<T>(response: Promise<T>): Promise<T | undefined> {
  try {
    return await response;
  } catch (error) {
    if (error instanceof BackendError && isRefusal(error)) return undefined;
    throw error;
  }
}

function isRefusal({ failure, status = 500 }: BackendError): boolean {
  return status < 500 && (failure === "rejected" || failure === "denied");
}

// ---- Other servers ---------------------------------------------------------------------------------------------------

/** Pages of the servers, and parts of their APIs, that users copy from the address bar of a browser. */
const pagePath =
  /\/(?:graph|query|classic\/graph|targets|alerts|status|tsdb-status|vmui|select|api\/v1(?:\/.*)?)\/?$/;

/** The error of a failed probe, which names what the server is instead and what is wrong with its address, if that shows. */
export async function explainWrongServer(
  transport: Transport,
  error: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  if (!(error instanceof BackendError) || !wrongServerFailures.has(error.failure)) return error;
  const { backend, pathPrefix } = transport;
  const { failure, status } = error;
  const server = await identifySearchServer(transport, signal);
  if (server !== undefined) {
    const message = `the server is ${server}, not Prometheus: its backend has the key \`elastic\` instead of \`prometheus\``;
    return new BackendError(backend, "rejected", message, { cause: error, status });
  }
  if (!pagePath.test(pathPrefix)) return error;
  const message = `${error.message} (url ends with ${pathPrefix}, which is a page or a part of the API: leave it out)`;
  return new BackendError(backend, failure, message, { cause: error, status });
}

const wrongServerFailures: ReadonlySet<Failure> = new Set(["rejected", "malformed", "denied"]);

const searchRoot = z.object({
  version: z.object({ number: z.string(), distribution: z.string().optional() }),
});

/** `Elasticsearch 8.19.8` or `OpenSearch 3.8.0`, where the root of the server shows either; else `undefined`. */
async function identifySearchServer(transport: Transport, signal: AbortSignal): Promise<string | undefined> {
  try {
    const root = { ...transport, pathPrefix: "" };
    const { headers, body } = await openRequest(root, { method: "GET", path: "/" }, signal);
    const parsed = searchRoot.safeParse(parseJson(await readErrorText(body)));
    const version = parsed.data?.version;
    if (version?.distribution === "opensearch") return `OpenSearch ${version.number}`;
    const isElasticsearch = headers["x-elastic-product"] === "Elasticsearch" || version !== undefined;
    return isElasticsearch ? `Elasticsearch ${version?.number ?? ""}`.trim() : undefined;
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}

async function readErrorText(body: AsyncIterable<Buffer>): Promise<string> {
  let text = "";
  for await (const chunk of body) {
    text += chunk.toString("utf8");
    if (text.length > maxErrorChars) break;
  }
  return text;
}

/** The error of a response with an error status. The server's own text reaches the log and no client. */
function toResponseError(
  backend: string,
  status: number,
  text: string,
  retryAfterSeconds: number | undefined,
): BackendError {
  const isRedirect = status >= 300 && status < 400;
  const words = isRedirect ? "it redirects; is the path of url right, or does it want a login?" : text;
  const detail = `status ${status}: ${words.slice(0, 2_000)}`;
  return new BackendError(backend, classifyFailure(status, text), detail, { status, retryAfterSeconds });
}

const failureByStatus: Readonly<Record<number, Failure>> = {
  401: "denied",
  403: "denied",
  408: "timeout",
  429: "overloaded",
  502: "unreachable",
  503: "overloaded",
  504: "timeout",
};

/** A deadline that passes in the queue or while series are loaded has status 422, and one in evaluation 503. */
function classifyFailure(status: number, text: string): Failure {
  const timedOut = /deadline exceeded|timed out|cancell?ed/i.test(text);
  if (timedOut && [422, 499, 500, 503].includes(status)) return "timeout";
  // A store of Thanos has gone away since its last check.
  if (text.includes("code = Unavailable")) return "partial";
  return failureByStatus[status] ?? "rejected";
}
