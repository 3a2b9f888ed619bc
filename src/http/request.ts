// A request as the server sees it, from a connection or from `fetch`, and its body.
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { PeerCertificate } from "../access/auth.ts";
import { holdsToken, readToken } from "../access/auth.ts";
import type { CodingName, CompressionConfig } from "../config/edge-settings.ts";
import { addToLedger, createHeldLedger, type HeldLedger, measureHeldUse } from "../core/async/held-bytes.ts";
import { type LimitUse, Unprocessable } from "../core/errors.ts";
import { JsonSyntaxError } from "../core/json/json-in-turns.ts";
import { createJsonQueue, type JsonQueue } from "../core/json/json-queue.ts";
import { chooseCoding } from "../core/negotiation.ts";
import { ClientGone } from "../operations/runtime/lifetime.ts";
import { readPeerCertificate } from "./tls.ts";

/** A request, wherever it came from. */
export interface Exchange {
  readonly id: string;
  readonly method: string;
  /** As sent: routes are matched before anything is decoded. */
  readonly path: string;
  readonly search: string;
  readonly headers: Pick<Headers, "get">;
  readonly body: AsyncIterable<Uint8Array> | undefined;
  /** Aborted when the client leaves. */
  readonly gone: AbortSignal;
  /** How the body of its answer is coded, unless it is short; `none` where its client takes nothing that is offered. */
  readonly coding?: BodyCoding | "none" | undefined;
  /** Whether codings are offered to this client at all. */
  readonly isCodable?: boolean;
  /** The certificate of its client, where these authorities have verified it. */
  readonly readCertificate?: (clientCa: string) => PeerCertificate | undefined;
}

export interface BodyCoding {
  readonly name: CodingName;
  readonly level: number;
  /** Shorter complete bodies are sent as they are. */
  readonly minBytes: number;
}

/** What of a configuration a request is read by. */
interface RequestSettings {
  /** Knows the tokens, which do not become the id of a request. */
  readonly isToken?: IsToken | undefined;
  /** No answer is coded where it is absent. */
  readonly compression?: CompressionConfig | undefined;
}

/** The read API's; the front-end error intake has its own. */
const bodyLimitBytes = 1_048_576;

export interface Connection {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}

export function toExchange(
  source: Request | Connection,
  { isToken = () => false, compression }: RequestSettings = {},
): Exchange {
  if (!("req" in source)) {
    const { headers, method, body, signal } = source;
    const url = source.url.replace(/^[a-z]+:\/\/[^/?#]*/i, "");
    // Without a connection nothing is sent that would be the shorter for it.
    const uncoded = { coding: undefined, isCodable: false };
    return {
      ...readTarget(url, headers, isToken),
      method,
      body: body ?? undefined,
      gone: signal,
      ...uncoded,
    };
  }
  const { req, res } = source;
  const get = (name: string) => {
    const value = req.headers[name];
    return typeof value === "string" ? value : null;
  };
  // A request is not destroyed for what was left unread of it: that would take the connection with it.
  const body = req.iterator({ destroyOnReturn: false });
  return {
    ...readTarget(req.url ?? "/", { get }, isToken),
    method: req.method ?? "GET",
    body,
    gone: createDisconnectSignal(res),
    ...negotiateCoding(req, compression),
    readCertificate: (clientCa) => readPeerCertificate(req, clientCa),
  };
}

/** On loopback only where the configuration says so, or where the client takes nothing else (RFC 9110, section 12.5.3). */
function negotiateCoding(
  { headers, socket }: IncomingMessage,
  compression: CompressionConfig | undefined,
): Pick<Exchange, "coding" | "isCodable"> {
  const accept = headers["accept-encoding"];
  if (compression === undefined) return {};
  const { codings, level, minBytes, loopback } = compression;
  const isCodable = codings.length > 0 && (loopback || !isLoopback(socket.remoteAddress ?? ""));
  if (typeof accept !== "string" || !(isCodable || /=\.?0/.test(accept))) {
    return { isCodable };
  }
  const { name, isPlainRefused } = chooseCoding(accept, codings);
  if (name === undefined) return isPlainRefused ? { coding: "none", isCodable } : { isCodable };
  if (!isCodable && !isPlainRefused) return { isCodable };
  return { coding: { name, level, minBytes: isPlainRefused ? 0 : minBytes }, isCodable: true };
}

function isLoopback(address: string): boolean {
  return /^(?:::ffff:)?127\./.test(address) || address === "::1";
}

type IsToken = (text: string) => boolean;

function readTarget(url: string, headers: Exchange["headers"], isToken: IsToken) {
  const [target = ""] = url.split("#", 1);
  const query = target.indexOf("?");
  const search = query === -1 ? "" : target.slice(query);
  return {
    id: chooseRequestId(headers, search, isToken),
    path: query === -1 ? target : target.slice(0, query),
    search,
    headers,
  };
}

/** Ours and not Yoga's, which cannot be told from its own failures. */
function createDisconnectSignal(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  const leave = () => {
    if (!response.writableFinished) gone.abort(new ClientGone());
  };
  if (response.closed) leave();
  else response.once("close", leave);
  return gone.signal;
}

/** The client's own where it can stand in a log as it is, which no token can, nor a text that holds one. */
function chooseRequestId(headers: Exchange["headers"], search: string, isToken: IsToken): string {
  const sent = headers.get("x-request-id");
  if (sent === null || !/^[\w.:-]{1,128}$/.test(sent)) return randomUUID();
  const presented = readToken(headers, search) ?? "";
  const hasPresented = presented !== "" && sent.includes(presented);
  return hasPresented || holdsToken(sent, isToken) ? randomUUID() : sent;
}

/**
 * Reads the bodies of a server's requests. Errors of each: {Unprocessable} `invalid_request` past the limit of one body,
 * {TooMany} where the owner holds half of all bytes, {LimitReached} where all are held.
 */
export interface BodyReader {
  /**
   * The body as text. Its bytes count for `owner` until `release` is called or `signal` aborts.
   * @throws {Unprocessable} also `invalid_json` for what is no UTF-8
   */
  readonly readText: (exchange: Exchange, owner: string, signal: AbortSignal) => Promise<HeldText>;
  /**
   * The body as a value.
   * @throws {Unprocessable} also `invalid_json`, with the position in UTF-16 units of what is no JSON
   */
  readonly readJson: (exchange: Exchange, owner: string, signal: AbortSignal) => Promise<unknown>;
  /** A text as a value, as `readJson`: large ones with turns of the event loop between, one of each owner at a time. */
  readonly parseJson: (text: string, owner: string) => Promise<unknown>;
  readonly measureUse: () => LimitUse;
}
interface HeldText {
  readonly text: string;
  readonly release: () => void;
}

/** The bytes of the bodies of a server, and how many of them one owner may hold. */
interface BodiesState {
  readonly held: HeldLedger;
  readonly ownerLimitBytes: number;
}

/** Of all bodies that are being read and parsed; one owner has half of them. */
const defaultBodiesLimitBytes = 64 * 1_048_576;

export function createBodyReader(limitBytes: number = defaultBodiesLimitBytes): BodyReader {
  const state: BodiesState = { held: createHeldLedger("bodies"), ownerLimitBytes: limitBytes / 2 };
  const json = createJsonQueue();
  const readText: BodyReader["readText"] = (...body) => readHeldText(state, ...body);
  const parse = (text: string, owner: string) => parseBody(json, text, owner);
  return {
    readText,
    parseJson: parse,
    measureUse: () => measureHeldUse(state.held, state.ownerLimitBytes),
    readJson: async (exchange, owner, signal) => {
      const { text, release } = await readText(exchange, owner, signal);
      try {
        return await parse(text, owner);
      } finally {
        release();
      }
    },
  };
}

const firstCapacityBytes = 4_096;

/**
 * Copies what arrives into one buffer that grows with it, so that what a client announces takes no memory, and a body in
 * pieces of a byte not a hundred times its size.
 */
async function readHeldText(
  state: BodiesState,
  { body, headers }: Exchange,
  owner: string,
  signal: AbortSignal,
): Promise<HeldText> {
  let buffer: Buffer<ArrayBuffer> = Buffer.alloc(0);
  let bytes = 0;
  const release = () => {
    signal.removeEventListener("abort", release);
    addToLedger(state.held, owner, -buffer.length, state.ownerLimitBytes);
    buffer = Buffer.alloc(0);
  };
  signal.addEventListener("abort", release, { once: true });
  try {
    for await (const chunk of body ?? []) {
      signal.throwIfAborted();
      const needed = bytes + chunk.byteLength;
      if (needed > bodyLimitBytes) throw createBodyTooLargeError();
      if (needed > buffer.length) buffer = growBuffer(state, owner, buffer, needed);
      buffer.set(chunk, bytes);
      bytes = needed;
    }
    return { text: decodeUtf8(buffer.subarray(0, bytes), headers), release };
  } catch (error) {
    release();
    throw error;
  }
}

function growBuffer(
  { held, ownerLimitBytes }: BodiesState,
  owner: string,
  buffer: Buffer,
  neededBytes: number,
): Buffer<ArrayBuffer> {
  const capacity = Math.min(bodyLimitBytes, Math.max(firstCapacityBytes, neededBytes, 2 * buffer.length));
  addToLedger(held, owner, capacity - buffer.length, ownerLimitBytes);
  const grown = Buffer.allocUnsafeSlow(capacity);
  buffer.copy(grown);
  return grown;
}

function createBodyTooLargeError(): Unprocessable {
  const message = `The body is larger than ${bodyLimitBytes} bytes`;
  return new Unprocessable("invalid_request", message, { issues: [{ path: "", message }] }, "body");
}

function decodeUtf8(bytes: Uint8Array, headers: Exchange["headers"]): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    // Asked only here: there are clients that call UTF-8 a coding.
    const coding = headers.get("content-encoding");
    const message = coding === null ? "The body is not UTF-8" : "The body is compressed, which is not taken";
    throw new Unprocessable("invalid_json", message, {});
  }
}

async function parseBody(json: JsonQueue, text: string, owner: string): Promise<unknown> {
  try {
    return await json.parse(text, owner);
  } catch (error) {
    throw error instanceof JsonSyntaxError ? createInvalidJsonError(text, error) : error;
  }
}

function createInvalidJsonError(text: string, { position }: JsonSyntaxError): Unprocessable {
  const message =
    text.trim() === "" ? "A JSON body is required" : `The body is not JSON at position ${position}`;
  return new Unprocessable("invalid_json", message, { position });
}
