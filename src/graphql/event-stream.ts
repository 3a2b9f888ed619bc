// The answer of a subscription: server-sent events as clients of GraphQL over SSE read them, a result in each. Written here
// and not by Yoga, which cannot give events the ids by which a client goes on, and whose timer outlives a client that leaves
// without reading. Nothing is asked of the source before its client has taken the event before.
import { Readable } from "node:stream";
import { type ExecutionResult, GraphQLError } from "graphql";
import type { FetchAPI, Plugin } from "graphql-yoga";
import { type MaybePromise, yieldToEventLoop } from "../core/async/turns.ts";
import { isMediaTypeAccepted } from "../core/negotiation.ts";

const heartbeatInterval = 15_000;

/** Refuses a subscription whose client does not take events, before anything of it is opened. */
export const requireEventStream: Plugin<{ readonly request: Request }> = {
  onSubscribe({ args: { contextValue }, setResultAndStopExecution }) {
    const { request } = contextValue;
    if (isMediaTypeAccepted(request.headers.get("accept"), "text/event-stream")) return;
    const message = "A subscription is answered as text/event-stream";
    const error = new GraphQLError(message, { extensions: { http: { status: 406 } } });
    setResultAndStopExecution({ errors: [error] });
  },
};

/** How results are printed, and where the client of a tail goes on. */
interface EventStreamOptions {
  readonly print: (result: ExecutionResult) => MaybePromise<Iterable<string>>;
  readonly readPosition: () => string | undefined;
}

/** A failure of `results` breaks the answer off. */
export function respondWithEvents(
  results: AsyncIterable<ExecutionResult>,
  options: EventStreamOptions,
  { Response }: FetchAPI,
): Response {
  const headers = { "Content-Type": "text/event-stream; charset=utf-8" };
  // The body of the fetch API of Yoga may be a stream of Node.
  return new Response(streamResults(results, options) as unknown as BodyInit, { headers });
}

/** `results` is given up when the client leaves. */
function streamResults(
  results: AsyncIterable<ExecutionResult>,
  { print, readPosition }: EventStreamOptions,
): Readable {
  const iterator = results[Symbol.asyncIterator]();
  let heartbeat: NodeJS.Timeout | undefined;
  let isReading = false;
  const printId = () => {
    const id = readPosition();
    return id === undefined ? "" : `id: ${id}\n`;
  };
  const stream = new Readable({
    read() {
      if (isReading) return;
      isReading = true;
      readNext().then(
        () => {
          isReading = false;
        },
        (error: unknown) => void stream.destroy(error instanceof Error ? error : new Error(String(error))),
      );
    },
    destroy(error, done) {
      clearInterval(heartbeat);
      // What is under way is not waited for, and fails for nobody.
      iterator.return?.().catch(() => {});
      done(error);
    },
  });
  // A client is told at once that the stream has begun: some wait for its first bytes.
  stream.push(`:\n${printId()}\n`);
  return stream;

  async function readNext(): Promise<void> {
    heartbeat = setInterval(() => stream.push(`:\n${printId()}\n`), heartbeatInterval);
    const next = await iterator.next().finally(() => clearInterval(heartbeat));
    if (next.done === true) {
      stream.push("event: complete\ndata:\n\n");
      stream.push(null);
      return;
    }
    stream.push(`event: next\n${printId()}data: `);
    for (const piece of await print(next.value)) {
      if (stream.destroyed) return;
      stream.push(piece);
      await yieldToEventLoop();
    }
    // The first one of the event to be taken asks for the next.
    stream.push("\n\n");
  }
}
