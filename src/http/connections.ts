// The connections of an HTTP server: how many there may be, in which order their requests are answered, and when the server
// closes them itself. Node would hold a connection on which nothing comes, and would run pipelined requests at once.
import type { Server as HttpServer, ServerResponse } from "node:http";
import { type BlockList, isIPv6, type Socket } from "node:net";
import { yieldToEventLoop } from "../core/async/turns.ts";
import { findLargest } from "../core/collections.ts";
import type { LimitUse } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";
import { resetConnection } from "./response.ts";

export interface ConnectionLimits {
  /** Connections open at once; one more is closed unanswered. */
  readonly connections: number;
  /** The same for each address; of IPv6 its /64 counts. */
  readonly perAddress: number;
  /** Addresses without a bound of their own: many clients come from a proxy. */
  readonly proxies: BlockList;
}

export interface ConnectionGuard {
  readonly setLimits: (limits: ConnectionLimits) => void;
  readonly measureUse: () => LimitUse;
  /** Closes the connections on which nothing is under way, and those on which nothing has come for half a second. */
  readonly closeIdle: () => void;
  /** Destroys all connections, also those that node no longer knows. */
  readonly destroyAll: () => void;
}

interface GuardState {
  readonly http: HttpServer;
  limits: ConnectionLimits;
  /** When each was opened. */
  readonly sockets: Map<Socket, Millis>;
  readonly byNetwork: Map<string, number>;
}

/** How long a connection may be open before anything comes on it. */
const silenceLimit: Millis = 10_000;
/** The same while the server drains: the request of a connection that was just opened is on its way. */
const drainingSilenceLimit: Millis = 500;

/**
 * Bounds the connections of a server that does not listen yet. `onRefused` is called for each that is closed unanswered.
 * A connection on which nothing comes within ten seconds is closed.
 */
export function guardConnections(
  http: HttpServer,
  limits: ConnectionLimits,
  onRefused: (limit: "connections" | "address_connections") => void,
  silence: Millis = silenceLimit,
): ConnectionGuard {
  const state: GuardState = { http, limits, sockets: new Map(), byNetwork: new Map() };
  http.maxConnections = limits.connections;
  http.on("drop", () => onRefused("connections"));
  http.on("connection", (socket) => {
    if (!admitConnection(state, socket)) {
      onRefused("address_connections");
      socket.destroy();
      return;
    }
    const silent = setTimeout(destroySilent, silence, socket).unref();
    socket.once("close", () => clearTimeout(silent));
  });
  // Node closes idle connections by itself when it stops listening: so it has to take the same care.
  const closeIdle = replaceIdleCloser(state);
  return {
    closeIdle: () => {
      const newest = performance.now() - drainingSilenceLimit;
      for (const [socket, opened] of state.sockets) if (opened <= newest) destroySilent(socket);
      closeIdle();
    },
    destroyAll: () => {
      for (const socket of state.sockets.keys()) socket.destroy();
    },
    measureUse: () => ({
      connections: state.sockets.size / state.limits.connections,
      address_connections: findLargest(state.byNetwork) / state.limits.perAddress,
    }),
    setLimits: (next) => {
      state.limits = next;
      http.maxConnections = next.connections;
    },
  };
}

/** Counts a connection for its address until it closes, unless that has as many as it may. Those of proxies are not counted. */
function admitConnection(state: GuardState, socket: Socket): boolean {
  const { limits, sockets, byNetwork } = state;
  const network = deriveNetwork(socket.remoteAddress ?? "");
  const own = byNetwork.get(network) ?? 0;
  const isCounted = !isProxy(limits.proxies, socket.remoteAddress ?? "");
  if (isCounted && own >= limits.perAddress) return false;
  sockets.set(socket, performance.now());
  if (isCounted) byNetwork.set(network, own + 1);
  socket.once("close", () => {
    sockets.delete(socket);
    if (!isCounted) return;
    const left = (byNetwork.get(network) ?? 1) - 1;
    if (left === 0) byNetwork.delete(network);
    else byNetwork.set(network, left);
  });
  return true;
}

function destroySilent(socket: Socket): void {
  // What began in time is node's affair, which answers 408.
  if (socket.bytesRead === 0) socket.destroy();
}

function isProxy(proxies: BlockList, address: string): boolean {
  const plain = stripMappedPrefix(address);
  return plain !== "" && proxies.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
}

function stripMappedPrefix(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/, "");
}

/** An address of IPv4, or the network of one of IPv6: a host has as many of those as it likes. */
function deriveNetwork(address: string): string {
  const plain = stripMappedPrefix(address);
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = plain.split("%", 1).join().split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = Array.from({ length: tail === undefined ? 0 : 8 - left.length - right.length }, () => "0");
  return [...left, ...zeros, ...right].slice(0, 4).join(":");
}

/**
 * Node takes a connection for idle as soon as its answer is complete, and would cut what has not left yet: so none is
 * closed while any answer is leaving.
 */
function replaceIdleCloser({ http, sockets }: GuardState): () => void {
  const close = http.closeIdleConnections.bind(http);
  const closeIdle = () => {
    for (const { writableLength } of sockets.keys()) if (writableLength > 0) return;
    close();
  };
  http.closeIdleConnections = closeIdle;
  return closeIdle;
}

// ---- Pipelined requests -------------------------------------------------------------------------------------

/** The requests of a connection behind the one that is being answered, in their order. */
interface Pipeline {
  isBusy: boolean;
  readonly waiting: (readonly [response: ServerResponse, begin: () => void])[];
}
const pipelines = new WeakMap<Socket, Pipeline>();

/** With so many waiting requests, no more are read of a connection. */
const maxReadAhead = 16;

/**
 * Calls `begin` once all earlier requests of the connection have been answered, and never where it closes before. Answers
 * have to leave in order anyhow: begun at once, the requests of one client would take the places of all.
 */
export function awaitTurn(socket: Socket, response: ServerResponse, begin: () => void): void {
  const pipeline = findPipeline(socket);
  if (pipeline.isBusy) {
    pipeline.waiting.push([response, begin]);
    if (pipeline.waiting.length >= maxReadAhead) socket.pause();
    return;
  }
  beginTurn(socket, pipeline, response, begin);
}

function findPipeline(socket: Socket): Pipeline {
  const known = pipelines.get(socket);
  if (known !== undefined) return known;
  const pipeline: Pipeline = { isBusy: false, waiting: [] };
  pipelines.set(socket, pipeline);
  socket.once("close", () => {
    pipeline.waiting.length = 0;
  });
  return pipeline;
}

function beginTurn(socket: Socket, pipeline: Pipeline, response: ServerResponse, begin: () => void): void {
  pipeline.isBusy = true;
  response.once("close", () => void beginNext(socket, pipeline));
  begin();
}

/** In a turn of the event loop of its own: answers that wait for nothing would follow each other in one, for seconds. */
async function beginNext(socket: Socket, pipeline: Pipeline): Promise<void> {
  if (pipeline.waiting.length > 0) await yieldToEventLoop();
  const next = pipeline.waiting.shift();
  if (next === undefined) {
    pipeline.isBusy = false;
    return;
  }
  if (pipeline.waiting.length === maxReadAhead - 1) socket.resume();
  beginTurn(socket, pipeline, ...next);
}

// ---- Clients that do not read -------------------------------------------------------------------------------

/**
 * How long a client may take nothing of its answer, which is held until it does: a laptop that was closed never says that
 * it is gone. Node counts all time in which nothing passes, so it is longer than any step of an answer may take.
 */
export const deriveUnreadTimeout = (deadline: Millis): Millis => Math.max(60_000, 2 * deadline);

/** Resets connections of such clients, and reports each; closes those that have waited too long for their next request. */
export function resetStalledConnections(server: HttpServer, onReset: () => void): void {
  server.on("timeout", (socket) => {
    if (socket.writableLength === 0) return void socket.destroy();
    onReset();
    resetConnection(socket);
  });
  // Yoga takes the timeout from a connection on which it streams, just before it does.
  server.on("request", ({ socket }, response) => {
    response.once("pipe", () => socket.setTimeout(server.timeout));
  });
}
