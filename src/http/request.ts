// A request as the server sees it, from a connection or from `fetch`, and its body.
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { readToken } from "../access/auth.ts";
import { Unprocessable } from "../core/errors.ts";
import { ClientGone } from "../operations/runtime/lifetime.ts";

/** A request, wherever it came from. */
export interface Exchange {
  readonly id: string;
  readonly method: string;
  /** As sent: routes are matched before anything is decoded (contract, "Everywhere"). */
  readonly path: string;
  readonly search: string;
  readonly headers: Pick<Headers, "get">;
  readonly body: AsyncIterable<Uint8Array> | undefined;
  /** Aborted when the client leaves. */
  readonly gone: AbortSignal;
}

/** The read API's; the front-end error intake has its own. */
const bodyLimitBytes = 1_048_576;

export interface Connection {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}
export function toExchange(source: Request | Connection): Exchange {
  if (!("req" in source)) {
    const { headers, method, body, signal } = source;
    const url = source.url.replace(/^[a-z]+:\/\/[^/?#]*/i, "");
    return { ...readTarget(url, headers), method, body: body ?? undefined, gone: signal };
  }
  const { req, res } = source;
  const get = (name: string) => {
    const value = req.headers[name];
    return typeof value === "string" ? value : null;
  };
  // A request is not destroyed for what was left unread of it: that would take the connection with it.
  const body = req.iterator({ destroyOnReturn: false });
  return {
    ...readTarget(req.url ?? "/", { get }),
    method: req.method ?? "GET",
    body,
    gone: createDisconnectSignal(res),
  };
}

function readTarget(url: string, headers: Exchange["headers"]) {
  const [target = ""] = url.split("#", 1);
  const query = target.indexOf("?");
  const search = query === -1 ? "" : target.slice(query);
  return {
    id: chooseRequestId(headers, search),
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

/** The client's own where it can stand in a log as it is, which its token cannot. */
function chooseRequestId(headers: Exchange["headers"], search: string): string {
  const sent = headers.get("x-request-id");
  if (sent === null || !/^[\w.:-]{1,128}$/.test(sent)) return randomUUID();
  return sent === readToken(headers, search) ? randomUUID() : sent;
}

/** @throws {Unprocessable} `invalid_request` past the limit, `invalid_json` for what is no UTF-8 */
export async function readText({ body, headers }: Exchange): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > bodyLimitBytes) {
      const message = `The body is larger than ${bodyLimitBytes} bytes`;
      throw new Unprocessable("invalid_request", message, { issues: [{ path: "", message }] }, "body");
    }
    chunks.push(chunk);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    // Asked only here: there are clients that call UTF-8 a coding.
    const coding = headers.get("content-encoding");
    const message = coding === null ? "The body is not UTF-8" : "The body is compressed, which is not taken";
    throw new Unprocessable("invalid_json", message, {});
  }
}

/** @throws {Unprocessable} as `readText`, and `invalid_json` with the position in UTF-16 units where it is known */
export async function readJson(exchange: Exchange): Promise<unknown> {
  const text = await readText(exchange);
  try {
    return JSON.parse(text);
  } catch (error) {
    const told = error instanceof SyntaxError ? error.message : "";
    // V8 quotes the body, but only before this.
    const position = /^Unexpected end of JSON input$/.test(told)
      ? text.length
      : / at position (\d+)(?: \(line \d+ column \d+\))?$/.exec(told)?.[1];
    const where = position === undefined ? "" : ` at position ${position}`;
    const message = text.trim() === "" ? "A JSON body is required" : `The body is not JSON${where}`;
    throw new Unprocessable(
      "invalid_json",
      message,
      position === undefined ? {} : { position: Number(position) },
    );
  }
}
