// A live tail within a subscription of GraphQL. It is opened as that of REST is, by the same form of the same operation, and
// lives on when the head of its answer has been sent: the request ends, for the log and for a reload, when the tail is over.
import type { StreamedBody } from "../http/body.ts";
import { describeFailure, findLimit } from "../operations/runtime/error-response.ts";
import type {
  EndpointRepresentation,
  PreparedOperation,
  TailAnswer,
} from "../operations/runtime/operation.ts";
import type { TailEvent } from "../operations/runtime/session.ts";
import { readTailEvents } from "../tail/tail-events.ts";
import { eventStreamHeaders } from "../tail/tail-registry.ts";
import type { Dispatcher, GraphqlAdmission } from "./dispatch.ts";
import { createOperationRecorder } from "./operation-audit.ts";
import { openTail } from "./rest.ts";

/** The tail of one request, once it has one. */
export interface OpenTail {
  body?: StreamedBody;
  /** Where its client goes on. */
  position?: string;
}

/** @throws as the route; a subscription has one field, so that a request has one tail */
export async function followOperation(
  { operations, runner, telemetry }: Dispatcher,
  { exchange, principal, generation, log }: GraphqlAdmission,
  tail: OpenTail,
  cutConnection: () => void,
  name: string,
  input: unknown,
): Promise<AsyncIterable<TailEvent>> {
  const { executor } = generation;
  const form = operations.find((one) => one.name === name)?.representations.find(isEventStream);
  if (form === undefined) throw new Error(`no live tail of ${name}`);
  const record = createOperationRecorder(generation, exchange.id, log);
  const started = performance.now();
  // The links of its lines are requests of their own, which a reload has to wait for.
  const release = executor.hold();
  let prepared: PreparedOperation<unknown> | undefined;
  try {
    const work = await executor.admit(principal, exchange.gone);
    let followed: TailAnswer["follow"];
    try {
      const asked = form.prepare(input);
      prepared = { ...asked, name: form.name };
      const answer = executor.start(asked, principal, work);
      if (!("follow" in answer)) throw new Error(`${form.name} is no live tail`);
      followed = answer.follow;
    } catch (error) {
      work.end();
      throw error;
    }
    tail.body = await openTail({ runner, exchange, generation, principal, work, log }, followed, (isCut) => {
      release();
      // Only so does a client see that it has not had all.
      if (isCut) cutConnection();
    });
  } catch (error) {
    release();
    const limit = findLimit(error);
    if (limit !== undefined) telemetry.recordLimit(limit);
    await record?.(prepared, { status: describeFailure(error).status, started }).catch(() => {});
    throw error;
  }
  const opened = tail.body;
  await record?.(prepared, { status: 200, started }).catch(async (error: unknown) => {
    await opened.cancel();
    throw error;
  });
  return readTailEvents(endWithClient(opened, exchange.gone, cutConnection), (id) => {
    tail.position = id;
  });
}

/** The body, which ends without a failure when its client leaves; any other failure cuts the connection. */
function endWithClient(body: StreamedBody, gone: AbortSignal, cutConnection: () => void): StreamedBody {
  let isCancelled = false;
  return {
    ...body,
    next: () =>
      body.next().catch((error: unknown) => {
        if (gone.aborted || isCancelled) return { done: true, value: undefined };
        cutConnection();
        throw error;
      }),
    cancel: () => {
      isCancelled = true;
      return body.cancel();
    },
  };
}

function isEventStream({ mediaType }: EndpointRepresentation): boolean {
  return mediaType === "text/event-stream";
}

/** Sets the headers of a tail; cancels one whose answer is no event stream. */
export async function finishTailHead({ body }: OpenTail, headers: Headers): Promise<void> {
  if (headers.get("content-type")?.startsWith("text/event-stream") !== true) {
    await body?.cancel();
    return;
  }
  for (const [name, value] of Object.entries(eventStreamHeaders)) headers.set(name, value);
  // No coding of HTTP: Yoga says so of its own streams of events.
  headers.delete("Content-Encoding");
}
