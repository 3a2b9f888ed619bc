// The client of Elasticsearch and OpenSearch: takes a request and returns the bytes of the response. It detects the product of
// the server, loads the official client of that product, and sends each request through the guard and the node pool.
import { z } from "zod";
import { awaitShared } from "../../../src/core/async/concurrency.ts";
import { BackendError } from "../../../src/core/errors.ts";
import { parseJson, parseLargeJson } from "../../../src/core/json/parse-json.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/backend.ts";
import { createGuard, type Guard, type GuardSettings, readRetryAfter } from "../../http/guard.ts";
import { createNodePool, type Transport } from "./node-pool.ts";
import { describeProduct, type Product, unknownVersion } from "./product.ts";
import {
  createElasticsearchTransport,
  createOpenSearchTransport,
  type ElasticRequest,
  normaliseHeaderNames,
  type RawResponse,
  type TransportSettings,
} from "./transports.ts";

export interface ElasticClient {
  /** Its name in the configuration. */
  readonly backend: string;
  /** The bytes of the response. @throws {BackendError} The status is not 2xx, or there is no response. */
  send(request: ElasticRequest, signal: AbortSignal): Promise<Buffer>;
  /** The response as parsed JSON. @throws {BackendError} As `send`, and `malformed` if it is no JSON. */
  sendJson(request: ElasticRequest, signal: AbortSignal): Promise<unknown>;
  /**
   * The product of the server, and whether it refused an expensive query in the last minutes. Asks the server until it tells
   * its version; a failure is not remembered. @throws {BackendError}
   */
  detectProduct(signal: AbortSignal): Promise<Product>;
  /** The product of the server; asks it each time. @throws {BackendError} */
  probe(signal: AbortSignal): Promise<Product>;
  /** Whether it sends credentials. The server may then show it less than there is. */
  readonly hasCredentials: boolean;
  /** Tells apart what may see other documents, or read the same ones otherwise. */
  readonly view: string;
  close(): Promise<void>;
}

export interface ClientSettings extends GuardSettings, TransportSettings {
  readonly nodes: readonly string[];
  /** As `ElasticClient.view`. */
  readonly view: string;
}

interface ClientState {
  readonly backend: string;
  readonly settings: ClientSettings;
  readonly guard: Guard;
  readonly transports: Map<Product["name"], Promise<Transport<ElasticRequest, RawResponse>>>;
  product: Promise<Product> | undefined;
  /** When the server is asked again; never once it has told its version. On the clock of `performance.now`. */
  productExpires: Millis;
  /** On the clock of `performance.now`. */
  expensiveRefusedUntil: Millis;
}

/** How long expensive queries are avoided after the cluster refused one. Its setting may change at any time. */
const expensiveRefusalLifetime: Millis = 300_000;
/** How long a product without a version is used. The right to read it may be refused for a moment only. */
const unknownProductLifetime: Millis = 5_000;

const rootRequest: ElasticRequest = { method: "GET", path: "/" };

export function createElasticClient(backend: string, settings: ClientSettings, io: IO): ElasticClient {
  const state: ClientState = {
    backend,
    settings,
    guard: createGuard(backend, settings, io),
    transports: new Map(),
    product: undefined,
    productExpires: Number.POSITIVE_INFINITY,
    expensiveRefusedUntil: Number.NEGATIVE_INFINITY,
  };
  return {
    backend,
    send: (request, signal) => send(state, request, signal),
    sendJson: (request, signal) => sendJson(state, request, signal),
    detectProduct: (signal) => detectProduct(state, signal),
    probe: (signal) => probe(state, signal),
    hasCredentials:
      settings.auth !== undefined ||
      settings.tls?.cert !== undefined ||
      Object.hasOwn(normaliseHeaderNames(settings.headers), "authorization"),
    view: settings.view,
    async close() {
      await Promise.all([...state.transports.values()].map(async (transport) => (await transport).close()));
    },
  };
}

async function send(state: ClientState, request: ElasticRequest, signal: AbortSignal): Promise<Buffer> {
  const product = await detectProduct(state, signal);
  const { name } = product;
  const sent = isSearch(request) ? addSearchParameters(request, product) : request;
  const attempt = async (limited: AbortSignal) => {
    const response = await (await openTransport(state, name)).send(sent, limited);
    if (response.status < 300) return response.body;
    if (response.body.includes("search.allow_expensive_queries"))
      state.expensiveRefusedUntil = performance.now() + expensiveRefusalLifetime;
    throw toResponseError(state.backend, response);
  };
  const { method, path, query: parameters, body } = sent;
  return state.guard.run(isRepeatable(request), signal, attempt, () => ({ method, path, parameters, body }));
}

async function sendJson(state: ClientState, request: ElasticRequest, signal: AbortSignal): Promise<unknown> {
  const body = await send(state, request, signal);
  try {
    return await parseLargeJson(body.toString("utf8"));
  } catch (cause) {
    const message = `${request.method} ${request.path}: not JSON`;
    throw new BackendError(state.backend, "malformed", message, { cause });
  }
}

async function detectProduct(state: ClientState, signal: AbortSignal): Promise<Product> {
  if (performance.now() >= state.productExpires) state.product = undefined;
  // Not the first caller's signal: others may wait for the same response. The guard's own deadline bounds it.
  state.product ??= rememberProduct(state, new AbortController().signal);
  const product = await awaitShared(state.product, signal);
  return performance.now() < state.expensiveRefusedUntil
    ? { ...product, refusesExpensiveQueries: true }
    : product;
}

async function rememberProduct(state: ClientState, signal: AbortSignal): Promise<Product> {
  state.productExpires = Number.POSITIVE_INFINITY;
  try {
    const product = await probe(state, signal);
    if (product.version === unknownVersion) state.productExpires = performance.now() + unknownProductLifetime;
    return product;
  } catch (error) {
    state.product = undefined;
    throw error;
  }
}

function probe(state: ClientState, signal: AbortSignal): Promise<Product> {
  return state.guard.run(
    true,
    signal,
    (limited) => readProduct(state, limited),
    () => ({ method: "GET", path: "/" }),
  );
}

async function readProduct(state: ClientState, signal: AbortSignal): Promise<Product> {
  const { backend } = state;
  const root = await (await openTransport(state, "Elasticsearch")).send(rootRequest, signal);
  if (root.status === 401) throw toResponseError(backend, root);
  const version = root.status === 200 ? rootSchema.safeParse(tryReadJson(root)).data?.version : undefined;
  const isElasticsearch =
    root.headers["x-elastic-product"] === "Elasticsearch" && version?.distribution !== "opensearch";
  const name = isElasticsearch ? "Elasticsearch" : "OpenSearch";
  if (version !== undefined) {
    refuseOldElasticsearch(backend, version.number);
    return describeProduct(name, version.number);
  }
  if (root.status >= 500 || root.status === 429) throw toResponseError(backend, root);
  // A restricted user may not read `GET /`, and some distributions lack it: the node has its version as well.
  const nodes = await (await openTransport(state, name)).send(
    { method: "GET", path: "/_nodes/_local", query: { filter_path: "nodes.*.version" } },
    signal,
  );
  const parsed = nodes.status === 200 ? nodesSchema.safeParse(tryReadJson(nodes)).data : undefined;
  const [node] = parsed === undefined ? [] : Object.values(parsed.nodes);
  if (node === undefined && !isElasticsearch) {
    await refusePrometheus(state, signal);
    refuseOtherServer(backend, root);
  }
  return describeProduct(name, node?.version ?? unknownVersion);
}

/** No OpenSearch has these versions. @throws {BackendError} */
function refuseOldElasticsearch(backend: string, version: string): void {
  if (!/^[56]\./.test(version)) return;
  throw new BackendError(
    backend,
    "rejected",
    `Elasticsearch ${version} is older than 7.17, the oldest that is supported`,
  );
}

/** Who may not read `GET /` of a cluster is told so; a page or a redirection to another one comes from something else. */
function refuseOtherServer(backend: string, { status }: RawResponse): void {
  if (status >= 400) return;
  const message = `GET / was answered with status ${status} by something else than Elasticsearch or OpenSearch; check url`;
  throw new BackendError(backend, "malformed", message);
}

const prometheusAnswer = z.object({
  status: z.literal("success"),
  data: z.object({ resultType: z.string() }),
});

/** Throws if the server evaluates PromQL. @throws {BackendError} */
async function refusePrometheus(state: ClientState, signal: AbortSignal): Promise<void> {
  const answer = await (await openTransport(state, "OpenSearch")).send(
    { method: "GET", path: "/api/v1/query", query: { query: "1" } },
    signal,
  );
  if (answer.status !== 200 || !prometheusAnswer.safeParse(tryReadJson(answer)).success) return;
  const message =
    "the server is Prometheus or has its API, not Elasticsearch: its backend has the key `prometheus` instead of `elastic`";
  throw new BackendError(state.backend, "rejected", message);
}

/** Loading an official client takes some 10 MB and a tenth of a second, so only the one that is needed is loaded. */
function openTransport(
  { backend, settings, transports }: ClientState,
  name: Product["name"],
): Promise<Transport<ElasticRequest, RawResponse>> {
  const known = transports.get(name);
  if (known !== undefined) return known;
  const open = name === "Elasticsearch" ? createElasticsearchTransport : createOpenSearchTransport;
  const loading = Promise.all(settings.nodes.map((node) => open(node, settings))).then((nodes) =>
    createNodePool({
      backend,
      transports: nodes,
      timeout: settings.timeout,
      probeRequest: rootRequest,
      isNodeUnavailable,
    }),
  );
  transports.set(name, loading);
  return loading;
}

const rootSchema = z.object({
  version: z.object({ number: z.string(), distribution: z.string().optional() }),
});
const nodesSchema = z.object({ nodes: z.record(z.string(), z.object({ version: z.string() })) });

/** `undefined` if the body is not JSON, such as the page of another server. */
function tryReadJson(response: Pick<RawResponse, "body">): unknown {
  try {
    return readJson(response);
  } catch {
    return undefined;
  }
}

function readJson({ body }: Pick<RawResponse, "body">): unknown {
  return parseJson(body.toString("utf8"));
}

/**
 * Any node answers so for shards without a copy. Such a node must not count as unavailable, or requests would go to nodes
 * that hang.
 */
const shardErrorPattern = /search_phase_execution_exception|no_shard_available_action_exception/;

function isNodeUnavailable({ status, body }: RawResponse): boolean {
  return status === 502 || (status === 503 && !shardErrorPattern.test(body.toString("latin1", 0, 2_000)));
}

/** The error of a response whose status is not 2xx. The server's own text reaches the log only. */
function toResponseError(backend: string, { status, headers, body }: RawResponse): BackendError {
  const message = `status ${status}: ${body.toString("utf8", 0, 2_000)}`;
  return new BackendError(backend, classifyFailure(status, body), message, {
    status,
    retryAfterSeconds: readRetryAfter(headers["retry-after"]),
  });
}

function classifyFailure(status: number, body: Buffer): BackendError["failure"] {
  if (status === 401 || status === 403) return "denied";
  if (status === 429) return "overloaded";
  // OpenSearch answers 503 as well for a search with too many buckets, which it refuses at any time.
  if (status === 503) return body.includes("too_many_buckets_exception") ? "rejected" : "overloaded";
  if (status === 408 || status === 504) return "timeout";
  return status === 502 ? "unreachable" : "rejected";
}

/** Sends a DELETE whose answer nobody waits for. A failure is ignored. */
export function deleteUnawaited(client: Pick<ElasticClient, "send">, path: string, body: object): void {
  const request = { method: "DELETE", path, body: JSON.stringify(body) } as const;
  client.send(request, new AbortController().signal).catch(() => undefined);
}

/** Whether a request changes nothing at the server. A scroll advances with each request, even if its response is lost. */
function isRepeatable(request: ElasticRequest): boolean {
  return request.method === "GET" || isSearch(request);
}

function addSearchParameters(
  request: ElasticRequest,
  { searchParameters, sourceParameters }: Product,
): ElasticRequest {
  // No other key of a body is called so.
  const namesSource = request.body?.includes('"_source":') === true;
  const query = { ...request.query, ...searchParameters, ...(namesSource ? {} : sourceParameters) };
  return { ...request, query };
}

function isSearch({ method, path }: Pick<ElasticRequest, "method" | "path">): boolean {
  return method === "POST" && path.endsWith("/_search");
}
