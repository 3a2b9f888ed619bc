// An answer on its way out: in one write, or in pieces that a client can see the end of.
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { waitForTurn, yieldToEventLoop } from "../core/async/turns.ts";
import { chooseGraphqlType } from "../core/negotiation.ts";
import { describeFailure, toGraphqlError } from "../operations/runtime/error-response.ts";
import type { CompleteBody, StreamedBody } from "./body.ts";
import { privateHeaders } from "./node-http.ts";
import type { BodyCoding, Exchange } from "./request.ts";

export const jsonType = { "Content-Type": "application/json; charset=utf-8" };

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: CompleteBody | StreamedBody;
}

export function toErrorAnswer(error: unknown): Answer {
  const { status, headers, body } = describeFailure(error);
  return { status, headers: { ...jsonType, ...headers }, body: JSON.stringify(body) };
}

/** The same for GraphQL clients, which read nothing but lists of errors, in the media type that they accept. */
export function toGraphqlErrorAnswer(error: unknown, accept: string | null): Answer {
  const failure = describeFailure(error);
  const type = `${chooseGraphqlType(accept) ?? "application/json"}; charset=utf-8`;
  const body = JSON.stringify({ errors: [toGraphqlError(failure)] });
  return { status: failure.status, headers: { "Content-Type": type, ...failure.headers }, body };
}

/** What may wait to be sent of a stream: its next piece is printed while the client takes the one before. */
const bufferedLimitBytes = 256 * 1_024;
/** What of a stream is printed in one turn of the event loop. */
const turnLimitBytes = 128 * 1_024;

/** Resolves when the answer is handed over or broken off. */
export async function writeAnswer(
  answer: Answer,
  exchange: Exchange,
  response: ServerResponse,
  closing: boolean,
): Promise<void> {
  const { coding } = exchange;
  const headers = {
    ...privateHeaders,
    ...answer.headers,
    ...formatVary(answer, exchange),
    "X-Request-Id": exchange.id,
    ...(closing ? { Connection: "close" } : {}),
  };
  const { body } = answer;
  if (typeof coding === "object" && isCodedHere(answer, coding)) {
    const { encodeBody } = await import("./content-coding.ts");
    const coded = encodeBody(body, coding, exchange.gone);
    await writeStream(response, answer.status, { ...headers, "Content-Encoding": coding.name }, coded);
    // What was not read of the request would hold the connection up.
    response.req.resume();
  } else if (typeof body === "string" || !("next" in body)) {
    await writeComplete(response, answer.status, headers, body);
  } else await writeStream(response, answer.status, headers, body);
}

/** Answers differ by it, also those that are too short to be coded. */
export const varyHeader = { Vary: "Accept-Encoding" } as const;

function formatVary({ headers: { Vary: own } }: Answer, { isCodable }: Exchange): SentHeaders {
  if (!isCodable || own?.includes(varyHeader.Vary) === true) return {};
  return { Vary: own === undefined ? varyHeader.Vary : `${own}, ${varyHeader.Vary}` };
}

/** Not those that have been coded before: pages are, once for all. */
function isCodedHere({ headers, body }: Answer, { minBytes }: BodyCoding): boolean {
  if (headers.Vary?.includes(varyHeader.Vary) === true) return false;
  return typeof body === "string" || !("next" in body) ? measureBody(body) >= minBytes : true;
}

/** In bytes of UTF-8, before it is coded. */
export function measureBody(body: CompleteBody): number {
  const pieces = typeof body === "string" || body instanceof Uint8Array ? [body] : body;
  return pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0);
}

type SentHeaders = Readonly<Record<string, string>>;

async function writeComplete(
  response: ServerResponse,
  status: number,
  headers: SentHeaders,
  body: CompleteBody,
): Promise<void> {
  const pieces = typeof body === "string" || body instanceof Uint8Array ? [body] : body;
  const length = measureBody(body);
  if (response.destroyed) return;
  // A 304 has no length of its own.
  response.writeHead(status, { ...headers, ...(status === 304 ? {} : { "Content-Length": length }) });
  for (const piece of pieces.slice(0, -1)) {
    response.write(piece, chooseEncoding(piece));
    await yieldToEventLoop();
  }
  const last = pieces.at(-1) ?? "";
  response.end(last, chooseEncoding(last));
  // What was not read of the request would hold the connection up.
  response.req.resume();
}

async function writeStream(
  response: ServerResponse,
  status: number,
  headers: SentHeaders,
  { next, cancel, signal }: StreamedBody,
): Promise<void> {
  let unturned = 0;
  try {
    for (let chunk = await next(); chunk.done !== true; chunk = await next()) {
      if (response.destroyed) return await cancel();
      if (!response.headersSent) response.writeHead(status, headers);
      response.write(chunk.value, chooseEncoding(chunk.value));
      unturned += chunk.value.length;
      // At once: whoever leaves during a turn closes the response before anybody waits for it.
      if (response.writableLength >= bufferedLimitBytes) await waitForDrain(response, signal);
      else if (unturned < turnLimitBytes) continue;
      unturned = 0;
      // Even a client that keeps up must not keep the event loop: others are waiting for it. What was written since the
      // last turn goes out together, which costs less than piece by piece.
      await waitForTurn();
    }
    response.end();
  } catch {
    // Already logged by who made the answer. A reset shows also in HTTP/1.0, where a mere end would look complete.
    resetConnection(response.socket);
    response.destroy();
  }
}

/** Under TLS an end that nobody announced shows as a reset does, and only sockets without it can be reset. */
export function resetConnection(socket: Socket | null): void {
  if (socket !== null && "encrypted" in socket) socket.destroy();
  else socket?.resetAndDestroy();
}

/** A text that is all ASCII is the same in both, and in latin1 costs a copy: for UTF-8 node takes room of three times its size. */
function chooseEncoding(piece: string | Uint8Array): BufferEncoding {
  return typeof piece === "string" && Buffer.byteLength(piece) === piece.length ? "latin1" : "utf8";
}

/** Resolves when more can be written, when nobody reads any more, or when the work has been given up. */
function waitForDrain(response: ServerResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      response.off("drain", over);
      response.off("close", over);
      signal.removeEventListener("abort", over);
      resolve();
    };
    response.once("drain", over);
    response.once("close", over);
    signal.addEventListener("abort", over, { once: true });
  });
}

export function toStreamedBody(
  chunks: AsyncGenerator<string, void, void>,
  signal: AbortSignal,
): StreamedBody {
  const leave = async () => {
    await chunks.return();
  };
  return { next: () => chunks.next(), cancel: leave, signal };
}

export function toResponse(
  answer: Answer,
  exchange: Exchange,
  { Response, ReadableStream }: FetchApi,
): Response {
  const { status, body } = answer;
  const headers = { ...privateHeaders, ...answer.headers, "X-Request-Id": exchange.id };
  if (typeof body === "string") return new Response(body, { status, headers });
  if (status === 304) return new Response(null, { status, headers });
  if (body instanceof Uint8Array) return new Response(Uint8Array.from(body), { status, headers });
  if (!("next" in body)) return new Response(body.join(""), { status, headers });
  const encoder = new TextEncoder();
  const source = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      const next = await body.next();
      if (next.done === true) controller.close();
      else controller.enqueue(typeof next.value === "string" ? encoder.encode(next.value) : next.value);
    },
    cancel: () => body.cancel(),
  });
  return new Response(source, { status, headers });
}

interface FetchApi {
  readonly Response: typeof globalThis.Response;
  readonly ReadableStream: typeof globalThis.ReadableStream;
}

// ---- Framing -------------------------------------------------------------------------------------------------

/** What stands around and between the batches of an answer. */
export interface BodyFraming {
  readonly opening: string;
  readonly separator: string;
  readonly closing: string;
}
export const arrayFraming: BodyFraming = { opening: "[", separator: ",", closing: "]" };
export const noFraming: BodyFraming = { opening: "", separator: "", closing: "" };

/** The texts of the rows, framed. */
export function frameTexts(
  { opening, separator, closing }: BodyFraming,
  texts: readonly string[],
): readonly string[] {
  const last = texts.length - 1;
  if (last < 0) return [opening + closing];
  return texts.map((text, at) => (at === 0 ? opening : separator) + text + (at === last ? closing : ""));
}
