// What node would answer by itself, or not at all, on the connections of an HTTP server, whatever it serves.
import { randomUUID } from "node:crypto";
import type { Server as HttpServer, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Millis } from "../core/time.ts";

/** The request's target from its path on: proxies may send the whole address (RFC 9112, section 3.2.2). */
export function stripOrigin(target: string | undefined): string {
  return target?.replace(/^https?:\/\/[^/?#]*/i, "") ?? "";
}

/** Of every answer of the API: no cache keeps it, and no browser takes it for what it is not. */
export const privateHeaders = { "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff" } as const;

/** A whole answer of JSON, where the client is still there. */
export function sendJson(response: ServerResponse, status: number, body: string): void {
  if (response.destroyed) return;
  // What was not read of a body cannot be told from a next request.
  if (!response.req.complete) response.setHeader("Connection", "close");
  response.writeHead(status, {
    "Content-Type": "application/json; charset=utf-8",
    ...privateHeaders,
    "Content-Length": Buffer.byteLength(body),
    "X-Request-Id": randomUUID(),
  });
  response.end(body);
}

export const notFoundBody = '{"error":"Not found"}';

/**
 * Refuses what node lets pass and might be read otherwise than it was meant.
 * @returns whether it was refused
 */
export function rejectAmbiguousHead(request: IncomingMessage, response: ServerResponse): boolean {
  const refused = findHeadProblem(request);
  if (refused === undefined) return false;
  response.setHeader("Connection", "close");
  sendJson(response, ...refused);
  return true;
}

/**
 * A request has one Host header; only in HTTP/1.0 it may have none (RFC 9112, section 3.2). Of several node would take the
 * first, and a proxy before it maybe another. A server with `requireHostHeader` refuses with an empty body.
 *
 * Of transfer codings node takes off the last alone, which is `chunked` (section 6.1).
 */
function findHeadProblem({
  headersDistinct,
  httpVersion,
}: IncomingMessage): [status: number, body: string] | undefined {
  const { host: hosts = [], "transfer-encoding": codings = [] } = headersDistinct;
  if (hosts.length > 1 || (hosts.length === 0 && httpVersion === "1.1"))
    return [400, '{"error":"One Host header is required"}'];
  if (codings.length > 0 && codings.join().toLowerCase() !== "chunked")
    return [501, '{"error":"No transfer coding but chunked is taken"}'];
  return undefined;
}

/** What node cannot read as a request, by its code. */
const parseErrorResponses: Readonly<Record<string, readonly [status: string, body: string]>> = {
  HPE_HEADER_OVERFLOW: ["431 Request Header Fields Too Large", '{"error":"The headers are too large"}'],
  ERR_HTTP_REQUEST_TIMEOUT: ["408 Request Timeout", '{"error":"The request did not come in time"}'],
};
const malformedResponse = ["400 Bad Request", '{"error":"The request is not HTTP"}'] as const;

/** A method that node does not know is one that no route has; what is no HTTP at all is told by the same code. */
function chooseParseErrorResponse({
  code = "",
  rawPacket,
  bytesParsed = 0,
}: ClientParseError): readonly [status: string, body: string] {
  const text = rawPacket?.toString("latin1") ?? "";
  // The line that cannot be read: whole requests may have come before it.
  const line = text.slice(text.lastIndexOf("\n", bytesParsed) + 1);
  const hasMethod = /^[\w!#$%&'*+.^`|~-]{1,100} \S{1,8192} HTTP\/1\.[01]\r\n/.test(line);
  if (code === "HPE_INVALID_METHOD" && hasMethod) return ["404 Not Found", notFoundBody];
  return parseErrorResponses[code] ?? malformedResponse;
}
interface ClientParseError extends NodeJS.ErrnoException {
  /** What came with what cannot be read. */
  readonly rawPacket?: Buffer;
  /** Up to where in that it was read. */
  readonly bytesParsed?: number;
}

function writeRawResponse(socket: Duplex, [status, body]: readonly [status: string, body: string]): void {
  const head = [
    `HTTP/1.1 ${status}`,
    "Content-Type: application/json; charset=utf-8",
    ...Object.entries(privateHeaders).map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${body.length}`,
    `X-Request-Id: ${randomUUID()}`,
    "Connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
  // A client that does not close its side would keep the connection; at once, what is unread would cut the answer.
  const destroyed = setTimeout(() => socket.destroy(), lingerTime).unref();
  socket.once("close", () => clearTimeout(destroyed));
}

/** How long a client has to read the last answer of its connection. */
const lingerTime: Millis = 1_000;

/**
 * What node answers by itself, or not at all, gets the body of an answer of ours.
 *
 * Some senders count the characters of a body instead of its bytes: what they send too much is no next request, and
 * node would break off the answer to the first with a 400. Here all that came whole is answered before the connection ends.
 */
export function installProtocolErrorResponses(
  server: HttpServer,
  failed: (code: string | undefined) => void = () => {},
): void {
  const underWay = new WeakMap<Socket, Set<ServerResponse>>();
  const owes = (socket: Socket) => [...(underWay.get(socket) ?? [])].some(({ req }) => req.complete);
  const broken = new WeakSet<Socket>();
  server.on("request", ({ socket }, response) => {
    const own = underWay.get(socket) ?? new Set();
    underWay.set(socket, own.add(response));
    response.once("close", () => {
      own.delete(response);
      if (broken.has(socket) && !owes(socket)) socket.destroySoon();
    });
  });
  server.on("clientError", (error: ClientParseError, socket: Socket) => {
    failed(error.code);
    if (error.code === "ECONNRESET" || !socket.writable) socket.destroy();
    else if (owes(socket)) broken.add(socket);
    else writeRawResponse(socket, chooseParseErrorResponse(error));
  });
  // A tunnel is no route either. Its socket is ours alone from here on.
  server.on("connect", (_, socket) => {
    socket.on("error", () => socket.destroy());
    writeRawResponse(socket, ["404 Not Found", notFoundBody]);
  });
  // No expectation but `100-continue` has a meaning, so that others may be ignored (RFC 9110, 10.1.1).
  server.on("checkExpectation", (request, response) => void server.emit("request", request, response));
}
