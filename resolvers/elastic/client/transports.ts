// One transport for each official client, used for one node only: `node-pool.ts` selects the node. Both clients return the
// response as a stream, which is read here up to a limit, and neither of them retries.
import { pipeline, type Readable } from "node:stream";
import { createGunzip, createInflate } from "node:zlib";
import type { ClientOptions as ElasticOptions } from "@elastic/elasticsearch";
import type { ClientOptions as OpenSearchOptions } from "@opensearch-project/opensearch";
import { createUtf8Check, joinChunks } from "../../../src/core/async/chunks.ts";
import type { Millis } from "../../../src/core/time.ts";
import { readTraceContextHeaders } from "../../../src/telemetry/tracer.ts";
import { type AwsLogin, encodeForSignature, sendSigned } from "../../http/aws.ts";
import {
  type AccessTokenLogin,
  buildAuthorization,
  type FixedLogin,
  omitUndefined,
  type Tls,
} from "../../http/connection.ts";
import { sendWithToken } from "../../http/oauth2.ts";
import type { Transport } from "./node-pool.ts";

export interface ElasticRequest {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** JSON text. */
  readonly body?: string;
}

export interface RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

export interface TransportSettings {
  readonly auth?: FixedLogin | AccessTokenLogin | AwsLogin | undefined;
  readonly tls?: Tls | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeout: Millis;
  /** A larger response is refused, since it is held in memory. */
  readonly maxResponseBytes: number;
}

/** What both official clients return. */
interface ClientResult {
  readonly statusCode?: number | null;
  readonly headers?: Readonly<Record<string, unknown>> | null;
  readonly body: unknown;
}

/** The guard keeps the deadline; the client's own is a little later. */
const extraTimeout: Millis = 1_000;

export async function createElasticsearchTransport(
  node: string,
  settings: TransportSettings,
): Promise<Transport<ElasticRequest, RawResponse>> {
  const { Client, Transport } = await import("@elastic/elasticsearch");
  // The client's product check drops responses of other products unread, and an error of such a response ends the process.
  // `readProduct` checks the product instead.
  class UncheckedTransport extends Transport {
    constructor({ productCheck: _, ...options }: ConstructorParameters<typeof Transport>[0]) {
      super(options);
    }
  }
  const { tls } = settings;
  const options: ElasticOptions = {
    nodes: [node],
    headers: normaliseHeaderNames(settings.headers),
    Transport: UncheckedTransport,
    maxRetries: 0,
    requestTimeout: settings.timeout + extraTimeout,
  };
  if (tls !== undefined) options.tls = omitUndefined(tls);
  const client = new Client(options);
  return {
    send: (request, signal) =>
      sendAuthorised({ auth: settings.auth, node, request, signal }, async (authorization) => {
        const result = await client.transport.request(toTransportParams(request), {
          asStream: true,
          meta: true,
          signal,
          headers: { ...jsonHeaders, ...readTraceContextHeaders(), ...authorization },
        });
        return readResponse(result, settings.maxResponseBytes, signal);
      }),
    close: () => client.close(),
  };
}

export async function createOpenSearchTransport(
  node: string,
  settings: TransportSettings,
): Promise<Transport<ElasticRequest, RawResponse>> {
  const { Client, Connection } = await import("@opensearch-project/opensearch");
  // The client prints errors that follow the head of a response to standard output. Reading the body reports them anyway.
  type Send = InstanceType<typeof Connection>["request"];
  class QuietConnection extends Connection {
    override request(...parameters: Parameters<Send>): ReturnType<Send> {
      const request = super.request(...parameters);
      request.once("response", () => request.removeAllListeners("error").on("error", () => {}));
      return request;
    }
  }
  const { tls } = settings;
  const options: OpenSearchOptions = {
    nodes: [node],
    headers: normaliseHeaderNames(settings.headers),
    Connection: QuietConnection,
    maxRetries: 0,
    requestTimeout: settings.timeout + extraTimeout,
  };
  if (tls !== undefined) options.ssl = omitUndefined(tls);
  const client = new Client(options);
  return {
    send: (request, signal) =>
      sendAuthorised({ auth: settings.auth, node, request, signal }, async (authorization) => {
        signal.throwIfAborted();
        const pending = client.transport.request(toTransportParams(request), {
          asStream: true,
          headers: { ...readTraceContextHeaders(), ...authorization },
        });
        // Returns nothing: Node treats what a listener returns as a promise, whose failure would end the process.
        const abort = (): void => void pending.abort?.();
        signal.addEventListener("abort", abort, { once: true });
        try {
          return await readResponse(await pending, settings.maxResponseBytes, signal);
        } finally {
          signal.removeEventListener("abort", abort);
        }
      }),
    close: () => client.close(),
  };
}

interface SentRequest {
  readonly auth: TransportSettings["auth"];
  /** The address of the node. */
  readonly node: string;
  readonly request: ElasticRequest;
  readonly signal: AbortSignal;
}

/**
 * Sends the configured login as it is, as a current token, or as a signature. The clients' own settings are not used: OpenSearch's
 * client sends no credentials where a part of them is empty.
 */
async function sendAuthorised(
  { auth, node, request, signal }: SentRequest,
  send: (authorization: Readonly<Record<string, string>>) => Promise<RawResponse>,
): Promise<RawResponse> {
  if (auth === undefined) return send({});
  if ("aws" in auth) {
    const response = await sendSigned(auth, toUnsigned(node, request), signal, send, readRefusal);
    if ("text" in response) return response.response;
    return response;
  }
  if (!("tokens" in auth)) return send(buildAuthorization(auth));
  // A response has been read to its end.
  return sendWithToken(
    auth.tokens,
    signal,
    send,
    ({ status }) => status === 401,
    () => {},
  );
}

function toUnsigned(node: string, { method, path, query, body }: ElasticRequest) {
  const { host, pathname } = new URL(node);
  const search = printQuery(query);
  const prefix = pathname.replace(/\/+$/, "");
  return { method, host, path: `${prefix}${path}${search === "" ? "" : `?${search}`}`, body };
}

function readRefusal(response: RawResponse) {
  const { status, headers, body } = response;
  if (status !== 401 && status !== 403) return undefined;
  const date = typeof headers.date === "string" ? headers.date : undefined;
  return Promise.resolve({ response, status, date, text: body.toString("utf8") });
}

/** Header names in lower case: the clients send a name in two spellings twice, and it arrives as `acme, acme`. */
export function normaliseHeaderNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

function toTransportParams({ method, path, query, body }: ElasticRequest) {
  return { method, path, querystring: printQuery(query), ...(body === undefined ? {} : { body }) };
}

/** Not left to the clients: what is signed has to be what is sent. */
function printQuery(query: ElasticRequest["query"]): string {
  return encodeForSignature(new URLSearchParams(query).toString());
}

/** Every version accepts plain JSON; only neighbouring versions accept the client's own media type. */
const jsonHeaders = { accept: "application/json", "content-type": "application/json" };

async function readResponse(
  { statusCode, headers, body }: ClientResult,
  limitBytes: number,
  signal: AbortSignal,
): Promise<RawResponse> {
  if (statusCode == null || headers == null) throw new TypeError("a response without a status or headers");
  const stream = decodeBody(body as Readable, headers);
  const abort = () => void stream.destroy(new Error("aborted"));
  signal.addEventListener("abort", abort, { once: true });
  try {
    signal.throwIfAborted();
    // The text of an error is for the log only.
    const chunks = await drainBody(stream, limitBytes, statusCode < 300);
    signal.throwIfAborted();
    return { status: statusCode, headers, body: await joinChunks(chunks, signal) };
  } finally {
    signal.removeEventListener("abort", abort);
    // An aborted response is given up here, where nobody has begun to read it.
    if (!stream.destroyed) stream.on("error", () => {}).destroy();
  }
}

const decoders = { gzip: createGunzip, "x-gzip": createGunzip, deflate: createInflate } as const;

/**
 * The body without its coding. No coding is asked for, but some proxies compress all the same. It is decoded while it is
 * read: a few bytes may stand for very many, and a body that is destroyed is decoded no further.
 * @throws {TypeError} for any other coding; the body is not read then
 */
function decodeBody(body: Readable, headers: Readonly<Record<string, unknown>>): Readable {
  const coding = String(headers["content-encoding"] ?? "identity")
    .trim()
    .toLowerCase();
  if (coding === "identity" || coding === "") return body;
  if (!Object.hasOwn(decoders, coding)) {
    // An unread body reports its end as an error event, which would end the process.
    body.on("error", () => {}).destroy();
    throw new TypeError(`unexpected content-encoding ${coding.slice(0, 100)}`);
  }
  const decoder = decoders[coding as keyof typeof decoders]();
  // Destroying either destroys the other. A failure is reported to whoever reads the decoder.
  return pipeline(body, decoder, () => {});
}

/** @throws {RangeError} The body is larger than `limitBytes`. @throws {TypeError} It has to be UTF-8 and is not. */
async function drainBody(
  stream: AsyncIterable<Buffer>,
  limitBytes: number,
  isText: boolean,
): Promise<readonly Buffer[]> {
  const chunks: Buffer[] = [];
  const utf8 = createUtf8Check();
  let bytes = 0;
  for await (const chunk of stream) {
    bytes += chunk.length;
    if (bytes > limitBytes) throw new RangeError(`a response of more than ${limitBytes} bytes`);
    if (isText && !utf8.push(chunk)) throw createNotUtf8Error();
    chunks.push(chunk);
  }
  if (isText && !utf8.end()) throw createNotUtf8Error();
  return chunks;
}

function createNotUtf8Error(): TypeError {
  return new TypeError("a response that is not UTF-8");
}
