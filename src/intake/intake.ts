// The front-end error intake. It answers 200 to whatever is posted, as its contract wants, so what becomes of a report
// shows in the metrics alone: each one that is not kept is counted by its reason. It works on node's own request and
// response, beside Yoga, because browsers need its answers on every origin and it has to bear any of them.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { BlockList, isIPv6 } from "node:net";
import { createReloadableRateLimit, type RateLimiter } from "../access/rate-limit.ts";
import type { Site, Sites } from "../access/sites.ts";
import type { IntakeConfig } from "../config/config.ts";
import { lockMutex, type Mutex } from "../core/async/mutex.ts";
import { runInTurnsOf, yieldToEventLoop } from "../core/async/turns.ts";
import type { LimitName } from "../core/errors.ts";
import { type Instant, type Millis, printInstantToMilli, toMillis } from "../core/time.ts";
import {
  awaitTurn,
  type ConnectionGuard,
  type ConnectionLimits,
  deriveUnreadTimeout,
  guardConnections,
  resetStalledConnections,
} from "../http/connections.ts";
import {
  installProtocolErrorResponses,
  notFoundBody,
  rejectAmbiguousHead,
  sendJson,
  stripOrigin,
} from "../http/node-http.ts";
import type { DropReason } from "../telemetry/intake-telemetry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { readReport, reportAccount } from "./error-report.ts";
import type { SpoolClient } from "./spool-client.ts";

export interface Intake {
  /** Whether the request is for the intake, which then answers it. */
  readonly tryAnswer: (request: IncomingMessage, response: ServerResponse) => boolean;
  /** Takes reports for these sites, by these rates, from the next request on. */
  readonly reload: (config: IntakeConfig, sites: Sites) => void;
  /** Tells clients to go, and resolves when no report is between its request and the spool. */
  readonly close: () => Promise<void>;
}

export interface IntakeOptions {
  readonly config: IntakeConfig;
  readonly sites: Sites;
  readonly spool: SpoolClient;
  /** Called after a report of the site was committed. */
  readonly onSpooled: (site: string) => void;
  readonly telemetry: Telemetry;
  readonly now: () => Instant;
  /** How long a body may take to arrive. */
  readonly bodyTimeout?: Millis;
  /** Bytes of all bodies that are being read or wait for their commit. */
  readonly bufferLimitBytes?: number;
}

/** Spec, "Limits": 200k. */
export const bodyLimitBytes = 204_800;
/** What is still read of a body that is too large, so that its sender gets to read the answer. */
const drainLimitBytes = 8 * 1_048_576;
const defaultBodyTimeout: Millis = 15_000;
const defaultBufferLimitBytes = 64 * 1_048_576;

/** Whose reports are taken, and how many. */
interface IntakeRules {
  readonly siteOfKey: ReadonlyMap<string, Site>;
  readonly keyRate: RateLimiter;
  readonly addressRate: RateLimiter;
  readonly proxies: number;
}
interface IntakeState {
  readonly options: IntakeOptions;
  readonly underWay: Set<Promise<void>>;
  rules: IntakeRules;
  /** Bytes of all bodies that are being read or wait for their commit. */
  heldBytes: number;
  /** Of those who check a body. */
  readonly checking: Mutex;
  isClosing: boolean;
}

export function createIntake(options: IntakeOptions): Intake {
  const clock = () => performance.now();
  const [keyRateOf, addressRateOf] = [createReloadableRateLimit(clock), createReloadableRateLimit(clock)];
  const readRules = ({ keyRate, addressRate, proxies }: IntakeConfig, sites: Sites): IntakeRules => ({
    siteOfKey: mapSitesByKey(sites),
    keyRate: keyRateOf(keyRate),
    addressRate: addressRateOf(addressRate),
    proxies,
  });
  const rules = readRules(options.config, options.sites);
  const state: IntakeState = {
    options,
    underWay: new Set(),
    rules,
    heldBytes: 0,
    checking: { last: Promise.resolve() },
    isClosing: false,
  };
  return {
    tryAnswer: (request, response) => tryAnswer(state, request, response),
    reload: (config, sites) => {
      state.rules = readRules(config, sites);
    },
    close: async () => {
      state.isClosing = true;
      while (state.underWay.size > 0) await Promise.allSettled(state.underWay);
    },
  };
}

function mapSitesByKey(sites: Sites): ReadonlyMap<string, Site> {
  return new Map(
    [...sites.values()].flatMap((site) => (site.frontend?.keys ?? []).map((key) => [key, site] as const)),
  );
}

function tryAnswer(state: IntakeState, request: IncomingMessage, response: ServerResponse): boolean {
  const [path, ...queries] = stripOrigin(request.url).split("?");
  if (path !== "/errors" && path !== "/collect") return false;
  setCorsHeaders(request, response);
  if (state.isClosing) response.setHeader("Connection", "close");
  if (request.method === "OPTIONS") respondToPreflight(request, response);
  else if (request.method === "POST") {
    const take = () => takeReport(state, request, response, readApiKey(queries));
    trackRequest(state, runInTurnsOf(reportAccount, take));
  } else sendJson(response, 404, notFoundBody);
  return true;
}

function trackRequest({ underWay, options: { telemetry } }: IntakeState, work: Promise<void>): void {
  underWay.add(work);
  work
    .catch((error: unknown) => telemetry.log({ level: "error", message: "front-end intake", err: error }))
    .finally(() => underWay.delete(work));
}

async function takeReport(
  state: IntakeState,
  request: IncomingMessage,
  response: ServerResponse,
  key: string,
): Promise<void> {
  const { telemetry } = state.options;
  const body = await readBody(state, request);
  if (body === "incomplete") response.destroy();
  if (body === "too_large") sendJson(response, 413, '{"error":"Payload too large"}');
  const drop = typeof body === "string" ? body : await keepReport(state, request, key, body);
  if (drop === undefined) telemetry.intake.kept();
  else telemetry.intake.dropped(drop);
  if (!response.writableEnded) sendJson(response, 200, "{}");
}

/** The body, counted in `heldBytes`, or why there is none. Never rejects. */
function readBody(
  state: IntakeState,
  request: IncomingMessage,
): Promise<Buffer | "too_large" | "incomplete" | "overloaded"> {
  const { bodyTimeout = defaultBodyTimeout, bufferLimitBytes = defaultBufferLimitBytes } = state.options;
  const chunks: Buffer[] = [];
  let bytes = 0;
  let held = 0;
  let keeping = true;
  return new Promise((resolve) => {
    // What cannot be kept is read all the same: a sender that is cut short takes the answer for a failure.
    const letGo = () => {
      state.heldBytes -= held;
      held = 0;
      chunks.length = 0;
      keeping = false;
    };
    const finish = (complete: boolean) => {
      clearTimeout(timer);
      request.off("data", read).off("end", ended).off("close", cut);
      const body = keeping && complete ? Buffer.concat(chunks) : undefined;
      if (body === undefined) letGo();
      resolve(body ?? (bytes > bodyLimitBytes ? "too_large" : complete ? "overloaded" : "incomplete"));
    };
    const read = (chunk: Buffer) => {
      bytes += chunk.length;
      if (keeping && (bytes > bodyLimitBytes || state.heldBytes + chunk.length > bufferLimitBytes)) letGo();
      if (bytes > drainLimitBytes) finish(false);
      if (!keeping) return;
      held += chunk.length;
      state.heldBytes += chunk.length;
      chunks.push(chunk);
    };
    const ended = () => finish(true);
    const cut = () => finish(false);
    const timer = setTimeout(cut, bodyTimeout);
    request
      .on("data", read)
      .on("end", ended)
      .on("close", cut)
      .on("error", () => {});
  });
}

/** Undefined once the report is on the disk, else why it is not. Takes over what `readBody` holds. */
async function keepReport(
  state: IntakeState,
  request: IncomingMessage,
  key: string,
  bytes: Buffer,
): Promise<DropReason | undefined> {
  const { spool, onSpooled, telemetry, now } = state.options;
  try {
    const { siteOfKey, keyRate, addressRate, proxies } = state.rules;
    if (!addressRate.take(readSenderAddress(request, proxies))) return "address_rate";
    const site = siteOfKey.get(key);
    if (site === undefined) return "unknown_key";
    if (!keyRate.take(key)) return "key_rate";
    const body = decodeUtf8(bytes);
    if (body === undefined || !(await isReport(state, body))) return "invalid";
    if (site.frontend?.store === undefined) return "no_target";
    const received = now();
    const index = formatIndexName(site.frontend.index, received);
    if (!(await spool.append({ site: site.id, index, received: toMillis(received), body }))) {
      return "spool_full";
    }
    onSpooled(site.id);
    return undefined;
  } catch (error) {
    telemetry.log({ level: "error", message: "front-end report not spooled", err: error });
    return "spool_failed";
  } finally {
    state.heldBytes -= bytes.length;
  }
}

/** One body at a time, whose values may be a hundred times as large as its text. */
async function isReport({ checking }: IntakeState, body: string): Promise<boolean> {
  const release = await lockMutex(checking);
  try {
    await yieldToEventLoop();
    return (await readReport(body)) !== undefined;
  } finally {
    release();
  }
}

// ---- Answers ------------------------------------------------------------------------------------------------

/**
 * Contract, "Front-end error intake": the origin is echoed, because browsers refuse `sendBeacon` and requests with
 * credentials against `*`. There are no cookies that it could give away.
 */
function setCorsHeaders({ headers }: IncomingMessage, response: ServerResponse): void {
  response.setHeader("Vary", "Origin");
  if (headers.origin === undefined) return;
  response.setHeader("Access-Control-Allow-Origin", headers.origin);
  response.setHeader("Access-Control-Allow-Credentials", "true");
}

function respondToPreflight({ headers }: IncomingMessage, response: ServerResponse): void {
  // Browsers that ask before a public page may reach an address of a private network.
  if (headers["access-control-request-private-network"] === "true")
    response.setHeader("Access-Control-Allow-Private-Network", "true");
  response.writeHead(204, {
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": headers["access-control-request-headers"] ?? "content-type",
    "Access-Control-Max-Age": "86400",
  });
  response.end();
}

// ---- Requests -----------------------------------------------------------------------------------------------

/** The first `api_key`. Senders that add theirs to an address which has a query already write a second `?`. */
function readApiKey(queries: readonly string[]): string {
  return new URLSearchParams(queries.join("&")).get("api_key") ?? "";
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function decodeUtf8(bytes: Buffer): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Who sends: of an IPv6 address its network, because a host has as many of those as it likes. */
function readSenderAddress({ socket, headers }: IncomingMessage, proxies: number): string {
  const forwarded = String(headers["x-forwarded-for"] ?? "").split(",");
  const told = proxies === 0 ? undefined : forwarded.at(-proxies)?.trim();
  const address = (told || socket.remoteAddress || "").replace(/^::ffff:(?=\d+\.)/, "");
  return isIPv6(address) ? deriveNetwork(address) : address;
}

function deriveNetwork(address: string): string {
  const [head = "", tail] = address.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = Array.from({ length: tail === undefined ? 0 : 8 - left.length - right.length }, () => "0");
  return [...left, ...zeros, ...right].slice(0, 4).join(":");
}

/** `{date}` and `{month}` of an index's name, in UTC: drawn once, so that no second delivery goes elsewhere. */
export function formatIndexName(pattern: string, at: Instant): string {
  const date = printInstantToMilli(at).slice(0, 10).replaceAll("-", ".");
  return pattern.replaceAll("{date}", date).replaceAll("{month}", date.slice(0, 7));
}

// ---- Listening ----------------------------------------------------------------------------------------------

const maxConnections = 2_000;

/** A server of the intake alone, which does not listen yet. */
interface IntakeServer {
  readonly http: Server;
  readonly guard: ConnectionGuard;
}

interface IntakeServerOptions {
  /** How many proxies stand in front, as in the configuration. */
  readonly proxies: number;
  readonly onLimitReached: (limit: LimitName) => void;
  /** How long a connection may be open before anything comes on it, instead of the program's own. */
  readonly silenceLimit?: Millis;
}

/** As long as a body may take, and a little more for its head. */
const readTimeouts = { headersTimeout: 10_000, requestTimeout: 20_000, connectionsCheckingInterval: 1_000 };

/** Anything else than the intake's own routes is 404. */
export function createIntakeServer(
  intake: Intake,
  { proxies, onLimitReached, silenceLimit }: IntakeServerOptions,
): IntakeServer {
  const options = { keepAliveTimeout: 65_000, requireHostHeader: false, ...readTimeouts };
  const http = createServer(options, (request, response) => {
    if (rejectAmbiguousHead(request, response)) return;
    awaitTurn(request.socket, response, () => {
      if (!intake.tryAnswer(request, response)) sendJson(response, 404, notFoundBody);
    });
  });
  const guard = guardConnections(http, deriveConnectionLimits(proxies), onLimitReached, silenceLimit);
  http.timeout = deriveUnreadTimeout(0);
  resetStalledConnections(http, () => onLimitReached("unread"));
  installProtocolErrorResponses(http, (code) => {
    if (code === "HPE_HEADER_OVERFLOW") onLimitReached("head");
    if (code === "ERR_HTTP_REQUEST_TIMEOUT") onLimitReached("reading_time");
  });
  return { http, guard };
}

/** Behind a proxy all connections come from its address. */
export function deriveConnectionLimits(proxies: number): ConnectionLimits {
  const perAddress = proxies === 0 ? maxConnections / 2 : maxConnections;
  return { connections: maxConnections, perAddress, proxies: new BlockList() };
}
