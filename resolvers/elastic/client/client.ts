// The one narrow door to Elasticsearch and OpenSearch: a request in, the raw bytes of a whole answer out. Behind it
// stand the two official clients; which one is decided by asking the server.
import { promisify } from "node:util";
import zlib from "node:zlib";
import type { ClientOptions as ElasticOptions } from "@elastic/elasticsearch";
import type { ClientOptions as OpenSearchOptions } from "@opensearch-project/opensearch";
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/store.ts";
import { readTraceContextHeaders } from "../../../src/telemetry/tracer.ts";
import { omitUndefined, type Tls } from "../../http/connection.ts";
import { createGuard, type GuardSettings, raceAbort, readRetryAfter } from "../../http/guard.ts";
import { createNodePool, type Transport } from "./node-pool.ts";
import { describeProduct, type Product } from "./product.ts";

interface ElasticRequest {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** JSON text. */
  readonly body?: string;
}

export interface ElasticClient {
  /** The bytes of the whole answer. @throws {BackendError} on any status but 2xx */
  send(request: ElasticRequest, signal: AbortSignal): Promise<Buffer>;
  /** The same, parsed. */
  sendJson(request: ElasticRequest, signal: AbortSignal): Promise<unknown>;
  /** Who the server is, asked once and remembered until it fails; and whether it lately refused what is expensive. */
  detectProduct(signal: AbortSignal): Promise<Product>;
  probe(signal: AbortSignal): Promise<Product>;
  /** Whether it logs in, so that it may be shown less than there is. */
  readonly hasCredentials: boolean;
  close(): Promise<void>;
}

export interface ClientSettings extends GuardSettings {
  readonly nodes: readonly string[];
  readonly auth?:
    | { username: string; password: string }
    | { apiKey: string }
    | { bearer: string }
    | undefined;
  readonly tls?: Tls | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** An answer over this is refused instead of being held in memory. */
  readonly maxResponseBytes: number;
}

interface RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

/** How long a cluster that refused an expensive query is not asked another one: its setting may be changed at any time. */
const expensiveRefusalLifetime: Millis = 300_000;

export function createElasticClient(backend: string, settings: ClientSettings, io: IO): ElasticClient {
  const guard = createGuard(backend, settings, io);
  const openTransports = new Map<Product["name"], Promise<Transport<ElasticRequest, RawResponse>>>();

  /** Each client costs some 10 MB and a tenth of a second of loading, so only the one that is needed is loaded. */
  function openTransport(name: Product["name"]): Promise<Transport<ElasticRequest, RawResponse>> {
    const knownProduct = openTransports.get(name);
    if (knownProduct !== undefined) return knownProduct;
    const open = name === "Elasticsearch" ? createElasticsearchTransport : createOpenSearchTransport;
    const loading = Promise.all(settings.nodes.map((node) => open(node, settings))).then((transports) =>
      createNodePool(backend, transports, settings.timeout, { method: "GET", path: "/" }, isNodeUnavailable),
    );
    openTransports.set(name, loading);
    return loading;
  }
  let knownProduct: Promise<Product> | undefined;
  let refusedUntil = Number.NEGATIVE_INFINITY;

  async function probe(signal: AbortSignal): Promise<Product> {
    const ask = async (limited: AbortSignal) => {
      const root = await (await openTransport("Elasticsearch")).send({ method: "GET", path: "/" }, limited);
      if (root.status === 401) throw toResponseError(backend, root);
      const elastic = root.headers["x-elastic-product"] === "Elasticsearch";
      const version = rootSchema.safeParse(root.status === 200 ? readJson(root) : undefined).data?.version;
      const name = elastic && version?.distribution !== "opensearch" ? "Elasticsearch" : "OpenSearch";
      if (version !== undefined) return describeProduct(name, version.number);
      if (root.status >= 500 || root.status === 429) throw toResponseError(backend, root);
      // `GET /` may be refused to a restricted user, and some distributions lack it: the node tells as well.
      const nodes = await (await openTransport(name)).send(
        { method: "GET", path: "/_nodes/_local", query: { filter_path: "nodes.*.version" } },
        limited,
      );
      const parsed = nodesSchema.safeParse(nodes.status === 200 ? readJson(nodes) : undefined).data;
      return describeProduct(name, Object.values(parsed?.nodes ?? {})[0]?.version ?? "unknown");
    };
    return guard.run(true, signal, ask, () => ({ method: "GET", path: "/" }));
  }

  async function product(signal: AbortSignal): Promise<Product> {
    // Not the first caller's signal: others may wait for the same answer. The guard's own deadline bounds it.
    knownProduct ??= probe(new AbortController().signal).catch((error) => {
      knownProduct = undefined;
      throw error;
    });
    const product = await raceAbort(knownProduct, signal);
    return performance.now() < refusedUntil ? { ...product, refusesExpensiveQueries: true } : product;
  }

  async function send(request: ElasticRequest, signal: AbortSignal): Promise<Buffer> {
    const { name } = await product(signal);
    const ask = async (limited: AbortSignal) => {
      const raw = await (await openTransport(name)).send(request, limited);
      if (raw.status >= 300) {
        if (raw.body.includes("search.allow_expensive_queries"))
          refusedUntil = performance.now() + expensiveRefusalLifetime;
        throw toResponseError(backend, raw);
      }
      return raw.body;
    };
    const { method, path, query: parameters, body } = request;
    return guard.run(isRepeatable(request), signal, ask, () => ({ method, path, parameters, body }));
  }

  return {
    send,
    async sendJson(request, signal) {
      const body = await send(request, signal);
      try {
        return readJson({ body });
      } catch (cause) {
        throw new BackendError(backend, "malformed", `${request.method} ${request.path}: not JSON`, {
          cause,
        });
      }
    },
    detectProduct: product,
    probe,
    hasCredentials:
      settings.auth !== undefined ||
      settings.tls?.cert !== undefined ||
      Object.hasOwn(normaliseHeaderNames(settings.headers), "authorization"),
    async close() {
      await Promise.all([...openTransports.values()].map(async (transport) => (await transport).close()));
    },
  };
}

const rootSchema = z.object({
  version: z.object({ number: z.string(), distribution: z.string().optional() }),
});
const nodesSchema = z.object({ nodes: z.record(z.string(), z.object({ version: z.string() })) });

function readJson({ body }: Pick<RawResponse, "body">): unknown {
  return JSON.parse(body.toString("utf8"));
}

/** What every node says of shards that have no copy: left alone for it, the healthy ones would be asked after those that hang. */
const shardErrorPattern = /search_phase_execution_exception|no_shard_available_action_exception/;

function isNodeUnavailable({ status, body }: RawResponse): boolean {
  return status === 502 || (status === 503 && !shardErrorPattern.test(body.toString("latin1", 0, 2_000)));
}

/** An answer with an error status. The server's own text goes no further than the log. */
function toResponseError(backend: string, { status, headers, body }: RawResponse): BackendError {
  // OpenSearch has the status of an overload for what it will refuse at any time.
  const isTooMuch = body.includes("too_many_buckets_exception");
  const failure =
    status === 401 || status === 403
      ? "denied"
      : status === 429 || (status === 503 && !isTooMuch)
        ? "overloaded"
        : status === 408 || status === 504
          ? "timeout"
          : status === 502
            ? "unreachable"
            : "rejected";
  const told = `status ${status}: ${body.toString("utf8", 0, 2_000)}`;
  return new BackendError(backend, failure, told, {
    status,
    retryAfterSeconds: readRetryAfter(headers["retry-after"]),
  });
}

/** Reads that do not move anything at the source. A scroll goes on with each request, whoever gets the answer. */
function isRepeatable({ method, path }: ElasticRequest): boolean {
  return method === "GET" || (method === "POST" && path.endsWith("/_search"));
}

/** A client for each node: which of them is asked is decided in `nodes.ts`. */
async function createElasticsearchTransport(
  node: string,
  settings: ClientSettings,
): Promise<Transport<ElasticRequest, RawResponse>> {
  const { Client, Transport } = await import("@elastic/elasticsearch");
  // The client drops good answers of others unread, and what then goes wrong with one ends the process: we look at each
  // answer ourselves, and at the first for whose it is.
  class Unchecked extends Transport {
    constructor({ productCheck: _, ...options }: ConstructorParameters<typeof Transport>[0]) {
      super(options);
    }
  }
  const { auth, tls } = settings;
  const options: ElasticOptions = {
    nodes: [node],
    headers: normaliseHeaderNames(settings.headers),
    Transport: Unchecked,
    maxRetries: 0,
    // The door's guard keeps the deadline.
    requestTimeout: settings.timeout + 1_000,
  };
  if (auth !== undefined) {
    options.auth =
      "apiKey" in auth ? { apiKey: auth.apiKey } : "bearer" in auth ? { bearer: auth.bearer } : { ...auth };
  }
  if (tls !== undefined) options.tls = omitUndefined(tls);
  const client = new Client(options);
  return {
    async send(request, signal) {
      const result = await client.transport.request(toTransportParams(request), {
        asStream: true,
        meta: true,
        signal,
        maxRetries: 0,
        headers: { ...jsonHeaders, ...readTraceContextHeaders() },
      });
      return drainBody(
        result.statusCode ?? 0,
        result.headers ?? {},
        result.body,
        settings.maxResponseBytes,
        signal,
      );
    },
    close: () => client.close(),
  };
}

async function createOpenSearchTransport(
  node: string,
  settings: ClientSettings,
): Promise<Transport<ElasticRequest, RawResponse>> {
  const { Client, Connection } = await import("@opensearch-project/opensearch");
  // The client prints what goes wrong with an answer after its head to our standard output; its body tells us anyway.
  type Ask = InstanceType<typeof Connection>["request"];
  class Quiet extends Connection {
    override request(...asked: Parameters<Ask>): ReturnType<Ask> {
      const request = super.request(...asked);
      request.once("response", () => request.removeAllListeners("error").on("error", () => {}));
      return request;
    }
  }
  const { auth, tls } = settings;
  const headers = normaliseHeaderNames(settings.headers);
  if (auth !== undefined && "apiKey" in auth) headers.authorization = `ApiKey ${auth.apiKey}`;
  if (auth !== undefined && "bearer" in auth) headers.authorization = `Bearer ${auth.bearer}`;
  const options: OpenSearchOptions = {
    nodes: [node],
    headers,
    Connection: Quiet,
    maxRetries: 0,
    requestTimeout: settings.timeout + 1_000,
  };
  if (auth !== undefined && "username" in auth) options.auth = { ...auth };
  if (tls !== undefined) options.ssl = omitUndefined(tls);
  const client = new Client(options);
  return {
    async send(request, signal) {
      signal.throwIfAborted();
      const pending = client.transport.request(toTransportParams(request), {
        asStream: true,
        maxRetries: 0,
        headers: readTraceContextHeaders(),
        requestTimeout: settings.timeout + 1_000,
      });
      // Returns nothing: what a listener returns, node takes for a promise of its own, whose failure ends the process.
      const abort = (): void => void pending.abort?.();
      signal.addEventListener("abort", abort, { once: true });
      try {
        const result = await pending;
        return await drainBody(
          result.statusCode ?? 0,
          result.headers ?? {},
          result.body,
          settings.maxResponseBytes,
          signal,
        );
      } finally {
        signal.removeEventListener("abort", abort);
      }
    },
    close: () => client.close(),
  };
}

function toTransportParams({ method, path, query, body }: ElasticRequest) {
  return { method, path, querystring: { ...query }, ...(body === undefined ? {} : { body }) };
}

/** Every version takes plain JSON; the client's own media type only its neighbours do. */
const jsonHeaders = { accept: "application/json", "content-type": "application/json" };

/** A name in two spellings is sent twice by the client, and arrives as `acme, acme`. */
function normaliseHeaderNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

async function drainBody(
  status: number,
  headers: Readonly<Record<string, unknown>>,
  body: unknown,
  limitBytes: number,
  signal: AbortSignal,
): Promise<RawResponse> {
  const stream = body as AsyncIterable<Buffer> & { destroy(error?: Error): void };
  const abort = () => stream.destroy(new Error("aborted"));
  signal.addEventListener("abort", abort, { once: true });
  try {
    signal.throwIfAborted();
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of stream) {
      bytes += chunk.length;
      if (bytes > limitBytes) throw new RangeError(`an answer of more than ${limitBytes} bytes`);
      chunks.push(chunk);
    }
    signal.throwIfAborted();
    const unpacked = await decompressBody(Buffer.concat(chunks), headers, limitBytes);
    signal.throwIfAborted();
    return { status, headers, body: unpacked };
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

const gunzip = promisify<Buffer, zlib.ZlibOptions, Buffer>(zlib.gunzip);
const inflate = promisify<Buffer, zlib.ZlibOptions, Buffer>(zlib.inflate);

/** Some proxies compress unasked. Beside the event loop, since a few bytes may become very many. */
async function decompressBody(
  bytes: Buffer,
  headers: Readonly<Record<string, unknown>>,
  limitBytes: number,
): Promise<Buffer> {
  const encoding = String(headers["content-encoding"] ?? "").toLowerCase();
  if (encoding.includes("gzip")) return gunzip(bytes, { maxOutputLength: limitBytes });
  if (encoding.includes("deflate")) return inflate(bytes, { maxOutputLength: limitBytes });
  return bytes;
}
