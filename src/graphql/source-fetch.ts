// How Mesh asks the sources that a reader has added: an answer is bounded while it arrives, and given up with its request. A few
// bytes in a coding may stand for very many, and Mesh holds all of an answer.
import { Readable } from "node:stream";
import type { getMesh } from "@graphql-mesh/runtime";
import type { Context } from "../operations/runtime/session.ts";

type SourceFetch = NonNullable<Parameters<typeof getMesh>[0]["fetchFn"]>;

/** As much as a backend of the program's own answers by default. */
const maxAnswerBytes = 64 * 1_048_576;

/** What is read bit by bit for as long as its client listens, and held by nobody. */
const streamedType = /^(text\/event-stream|multipart\/mixed)/i;

/** The same `fetch`, whose answers fail when they are longer, and when the request that they are for is given up. */
export function boundSourceFetch(fetch: SourceFetch, limitBytes: number = maxAnswerBytes): SourceFetch {
  return async (url, init, context, info) => {
    const gone = (context as Partial<Context> | undefined)?.readout?.gone;
    const signals = [gone, init?.signal].filter((signal) => signal != null);
    const given = signals.length === 0 ? init : { ...init, signal: AbortSignal.any(signals) };
    const response = await fetch(url, given, context, info);
    const { body, status, statusText, headers } = response;
    if (body === null || streamedType.test(headers.get("content-type") ?? "")) return response;
    const bounded = Readable.from(boundBody(body, limitBytes), { objectMode: false });
    const OwnResponse = response.constructor as typeof Response;
    // The body of Mesh's fetch API may be a stream of Node.
    return new OwnResponse(bounded as unknown as BodyInit, { status, statusText, headers });
  };
}

/** Whoever stops reading gives the body up, and with it its decoding. */
async function* boundBody(body: AsyncIterable<Uint8Array>, limitBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.byteLength;
    if (bytes > limitBytes) throw new RangeError(`an answer of more than ${limitBytes} bytes`);
    yield chunk;
  }
}
