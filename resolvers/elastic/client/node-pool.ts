// Which node of a cluster is asked: each in its turn. One that does not answer is left alone until it does, since the pools
// of the official clients forget nodes for good that have failed, where answers are read as streams, and do not take notice
// of one that hangs.
import { BackendError } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import { toBackendError } from "../../http/guard.ts";

/** One node, or a whole cluster. */
export interface Transport<Request, Raw> {
  readonly send: (request: Request, signal: AbortSignal) => Promise<Raw>;
  readonly close: () => Promise<void>;
}

interface Node<Request, Raw> {
  readonly transport: Transport<Request, Raw>;
  /** In a row. */
  failures: number;
  /** When it is looked at again. */
  suspendedUntil: Millis;
}

/** The first rest, which doubles with each failure that follows. */
const suspensions = { first: 5_000, longest: 60_000 } as const;
/** How long a node is waited for that is looked at again; nobody waits for the answer. */
const probeTimeout: Millis = 3_000;

/** Nothing of such a request has reached the node, so another one can be asked whatever it does. */
const notSentPattern = /ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT/;

/**
 * The nodes of a cluster as one. `timeout` is that of a request, `knock` one that any node answers at once; `isNodeUnavailable` tells of
 * an answer that its node is no part of the cluster, or that what stands before it does not reach it.
 */
export function createNodePool<Request, Raw>(
  backend: string,
  transports: readonly Transport<Request, Raw>[],
  timeout: Millis,
  knock: Request,
  isAway: (answer: Raw) => boolean,
): Transport<Request, Raw> {
  const [only, ...others] = transports;
  if (only !== undefined && others.length === 0) return only;
  const clock = () => performance.now();
  const nodes = transports.map(
    (transport): Node<Request, Raw> => ({ transport, failures: 0, suspendedUntil: 0 }),
  );
  const leaving = new AbortController();
  let turn = 0;

  function pick(tried: ReadonlySet<Node<Request, Raw>>): Node<Request, Raw> | undefined {
    const inTurn = nodes
      .map((_, at) => nodes[(turn + at) % nodes.length])
      .filter((node) => node !== undefined);
    turn = (turn + 1) % nodes.length;
    for (const node of inTurn) if (node.failures > 0 && node.suspendedUntil <= clock()) void lookAt(node);
    const left = inTurn.filter((node) => !tried.has(node));
    return (
      left.find(({ failures }) => failures === 0) ??
      left.toSorted((a, b) => a.suspendedUntil - b.suspendedUntil)[0]
    );
  }

  function leaveAlone(node: Node<Request, Raw>): void {
    node.suspendedUntil = clock() + Math.min(suspensions.longest, suspensions.first * 2 ** node.failures);
    node.failures++;
  }

  function judge(node: Node<Request, Raw>, answer: Raw): void {
    if (isAway(answer)) leaveAlone(node);
    else node.failures = 0;
  }

  async function lookAt(node: Node<Request, Raw>): Promise<void> {
    leaveAlone(node);
    const signal = AbortSignal.any([leaving.signal, AbortSignal.timeout(probeTimeout)]);
    const answer = await node.transport.send(knock, signal).catch(() => undefined);
    if (answer !== undefined) judge(node, answer);
  }

  async function send(request: Request, signal: AbortSignal): Promise<Raw> {
    const tried = new Set<Node<Request, Raw>>();
    for (;;) {
      const started = clock();
      const node = pick(tried);
      if (node === undefined) throw new BackendError(backend, "unreachable", "none of its nodes");
      try {
        const answer = await node.transport.send(request, signal);
        judge(node, answer);
        return answer;
      } catch (error) {
        if (signal.aborted) {
          const { reason } = signal;
          const isLate = reason instanceof BackendError && reason.failure === "timeout";
          if (isLate && clock() - started >= timeout / 2) leaveAlone(node);
          throw error;
        }
        const { failure, message } = toBackendError(backend, error);
        if (failure === "unreachable" || failure === "timeout") leaveAlone(node);
        tried.add(node);
        if (!notSentPattern.test(message) || tried.size === nodes.length) throw error;
      }
    }
  }

  return {
    send,
    async close() {
      leaving.abort(new Error("closed"));
      await Promise.all(transports.map((transport) => transport.close()));
    },
  };
}
