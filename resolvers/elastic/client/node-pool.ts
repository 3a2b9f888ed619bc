// Sends each request of a cluster to one of its nodes, round robin. A node that does not answer is suspended, for longer each
// time, and probed before it is used again. The pools of the official clients do not fit: they drop failed nodes for good when
// responses are streams, and do not notice a node that hangs.
import { requireAt, requireFirst } from "../../../src/core/collections.ts";
import { BackendError, isPassedDeadline } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import { toBackendError } from "../../http/guard.ts";
import { wasSent } from "../../http/waiting.ts";

/** One node, or a pool of them. */
export interface Transport<Request, Response> {
  readonly send: (request: Request, signal: AbortSignal) => Promise<Response>;
  readonly close: () => Promise<void>;
}

interface NodePoolOptions<Request, Response> {
  readonly backend: string;
  readonly transports: readonly Transport<Request, Response>[];
  /** The deadline of a request. */
  readonly timeout: Millis;
  /** A request that any healthy node answers at once. */
  readonly probeRequest: Request;
  /** Whether a response shows that the node has left the cluster, or that a proxy does not reach it. */
  readonly isNodeUnavailable: (response: Response) => boolean;
}

interface Node<Request, Response> {
  readonly transport: Transport<Request, Response>;
  /** Consecutive failures; 0 for a node in use. */
  failures: number;
  /** When it is probed again, on the clock of `performance.now`. */
  suspendedUntil: Millis;
}

interface NodePool<Request, Response> extends NodePoolOptions<Request, Response> {
  readonly nodes: readonly Node<Request, Response>[];
  readonly closing: AbortController;
  /** The index of the node for the next request. */
  next: number;
}

/** The first suspension doubles with each further failure. */
const suspensions = { first: 5_000, longest: 60_000 } as const;
const probeTimeout: Millis = 3_000;

/** With these errors no part of the request has reached the node, so another node can take it, whatever it does. */
const notSentPattern = /ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT/;

/** All nodes of a cluster as one transport. */
export function createNodePool<Request, Response>(
  options: NodePoolOptions<Request, Response>,
): Transport<Request, Response> {
  const { transports } = options;
  const [only, ...others] = transports;
  if (only !== undefined && others.length === 0) return only;
  const pool: NodePool<Request, Response> = {
    ...options,
    nodes: transports.map((transport) => ({ transport, failures: 0, suspendedUntil: 0 })),
    closing: new AbortController(),
    next: 0,
  };
  return {
    send: (request, signal) => send(pool, request, signal),
    async close() {
      pool.closing.abort(new Error("closed"));
      await Promise.all(transports.map((transport) => transport.close()));
    },
  };
}

/** Tries further nodes as long as nothing of the request was sent. */
async function send<Request, Response>(
  pool: NodePool<Request, Response>,
  request: Request,
  signal: AbortSignal,
): Promise<Response> {
  const tried = new Set<Node<Request, Response>>();
  for (;;) {
    const started = performance.now();
    const node = pickNode(pool, tried);
    try {
      const response = await node.transport.send(request, signal);
      recordResponse(pool, node, response);
      return response;
    } catch (error) {
      tried.add(node);
      const isSent = recordFailure(pool, node, error, performance.now() - started, signal);
      if (isSent || tried.size === pool.nodes.length) throw error;
    }
  }
}

/** Suspends the node if it did not answer. Returns whether a part of the request may have reached it. */
function recordFailure<Request, Response>(
  { backend, timeout }: NodePool<Request, Response>,
  node: Node<Request, Response>,
  error: unknown,
  elapsed: Millis,
  signal: AbortSignal,
): boolean {
  if (signal.aborted) {
    if (isLate(backend, signal) && elapsed >= timeout / 2) suspendFailedNode(node);
    return true;
  }
  const { failure, message } = toBackendError(backend, error);
  if (failure === "unreachable" || failure === "timeout") suspendFailedNode(node);
  return !notSentPattern.test(message);
}

/** Whether the node was asked and has not answered in time. Who gives a request up since another source is late does not tell. */
function isLate(backend: string, signal: AbortSignal): boolean {
  const { reason } = signal;
  if (!wasSent(signal)) return false;
  if (isPassedDeadline(reason)) return true;
  return reason instanceof BackendError && reason.failure === "timeout" && reason.backend === backend;
}

/**
 * The next healthy node that was not tried; without one, that of them whose suspension ends first. Probes nodes that are due.
 * At least one node must be left to try.
 */
function pickNode<Request, Response>(
  pool: NodePool<Request, Response>,
  tried: ReadonlySet<Node<Request, Response>>,
): Node<Request, Response> {
  const { nodes, next } = pool;
  const inOrder = nodes.map((_, at) => requireAt(nodes, (next + at) % nodes.length));
  pool.next = (next + 1) % nodes.length;
  for (const node of inOrder) {
    if (node.failures > 0 && node.suspendedUntil <= performance.now()) void probeNode(pool, node);
  }
  const left = inOrder.filter((node) => !tried.has(node));
  const soonest = requireFirst(left.toSorted((a, b) => a.suspendedUntil - b.suspendedUntil));
  return left.find(({ failures }) => failures === 0) ?? soonest;
}

function suspendNode<Request, Response>(node: Node<Request, Response>): void {
  const duration = Math.min(suspensions.longest, suspensions.first * 2 ** node.failures);
  node.suspendedUntil = performance.now() + duration;
  node.failures++;
}

/** The requests that are in flight when a node fails are one failure of it. */
function suspendFailedNode<Request, Response>(node: Node<Request, Response>): void {
  if (node.failures === 0 || node.suspendedUntil <= performance.now()) suspendNode(node);
}

function recordResponse<Request, Response>(
  { isNodeUnavailable }: NodePool<Request, Response>,
  node: Node<Request, Response>,
  response: Response,
): void {
  if (isNodeUnavailable(response)) suspendFailedNode(node);
  else node.failures = 0;
}

async function probeNode<Request, Response>(
  pool: NodePool<Request, Response>,
  node: Node<Request, Response>,
): Promise<void> {
  suspendNode(node);
  const signal = AbortSignal.any([pool.closing.signal, AbortSignal.timeout(probeTimeout)]);
  const response = await node.transport.send(pool.probeRequest, signal).catch(() => undefined);
  // A node that is still unavailable was counted above.
  if (response !== undefined && !pool.isNodeUnavailable(response)) node.failures = 0;
}
