// An operation asked for by REST, from its body to its answer: completed before the status is sent, streamed where that
// cannot be, or a tail. What is streamed keeps its place among the streamed answers until its client has all of it.

import { type Authenticate, type Principal, readToken } from "../access/auth.ts";
import type { Limits } from "../config/limits.ts";
import { LimitReached, TooMany, Unprocessable } from "../core/errors.ts";
import type { BodyReader, Exchange } from "../http/request.ts";
import { type Answer, type CompleteBody, jsonType, toStreamedBody } from "../http/response.ts";
import { chooseRepresentation } from "../operations/runtime/content-negotiation.ts";
import {
  anonymousPrincipal,
  createOverloadedError,
  type OperationExecutor,
} from "../operations/runtime/executor.ts";
import {
  explanationType,
  isExplanationRequested,
  prepareExplanation,
} from "../operations/runtime/explain.ts";
import { bufferHead, closeIterator, type RequestLifetime } from "../operations/runtime/lifetime.ts";
import type {
  ChunkedBody,
  PreparedOperation,
  RowBatch,
  TailAnswer,
} from "../operations/runtime/operation.ts";
import type { Route } from "../operations/runtime/router.ts";
import { eventStreamHeaders, type TailRegistry } from "../tail/tail-registry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { runInSpan } from "../telemetry/tracer.ts";

/** One configuration, and the requests that began in its time. */
export interface ConfigGeneration {
  readonly authenticate: Authenticate;
  readonly limits: Limits;
  readonly executor: OperationExecutor;
  readonly tails: TailRegistry;
}

/** What the log and the metrics tell of a request; filled in as far as it gets. */
export interface RequestLogFields {
  operation: string;
  route: string | undefined;
  user: string | undefined;
}

/** Tells of a request's end; `cut` where its client has not got all of the answer. */
export type FinishRequest = (status: number, cut: boolean, error?: unknown) => void;

/**
 * The answer of a route, which calls `finish` as soon as it is complete or broken off.
 * @throws what the operation, the limits and the reading of the body fail with; then `finish` has not been called
 */
type RunOperation = (
  exchange: Exchange,
  route: Route,
  epoch: ConfigGeneration,
  trail: RequestLogFields,
  finish: FinishRequest,
) => Promise<Answer>;

/** What an operation, or a representation of it, may answer. */
type OperationResult = Promise<unknown> | AsyncIterable<RowBatch> | ChunkedBody | TailAnswer;

/** What stands around and between the batches of an answer. */
interface BodyFraming {
  readonly opening: string;
  readonly separator: string;
  readonly closing: string;
}
const arrayFraming: BodyFraming = { opening: "[", separator: ",", closing: "]" };
const noFraming: BodyFraming = { opening: "", separator: "", closing: "" };

const explanationHeaders = { "Content-Type": `${explanationType}; charset=utf-8` };

/** One for a server: the bound on streamed answers is on all of them, whatever the configuration was when they began. */
export function createOperationRunner(telemetry: Telemetry, bodies: BodyReader): RunOperation {
  let streams = 0;
  /** Of those, how many each token has. */
  const streamsOf = new Map<Principal, number>();

  const runOperation: RunOperation = async (exchange, { endpoint, parameters }, epoch, trail, finish) => {
    const chosen = chooseRepresentation(exchange.headers.get("accept"), endpoint.representations);
    trail.operation = chosen?.name ?? endpoint.name;
    trail.route = endpoint.path;
    const { authenticate, executor: conductor, limits, tails } = epoch;
    const principal =
      endpoint.access === "public"
        ? anonymousPrincipal
        : authenticate(readToken(exchange.headers, exchange.search));
    trail.user = principal.user;
    const work = conductor.admit(principal, exchange.gone);
    let streaming = false;
    try {
      const raw =
        endpoint.method === "GET"
          ? parameters
          : await receiveBody(bodies.readJson(exchange, principal, work.signal), work);
      // An explanation is JSON, whatever form its answer would have.
      const explaining = isExplanationRequested(exchange.search);
      const prepared: PreparedOperation<OperationResult> = explaining
        ? prepareExplanation(endpoint.prepare(raw))
        : (chosen ?? endpoint).prepare(raw);
      const result = conductor.start(prepared, principal, work);
      if ("follow" in result) {
        // Tails have places of their own.
        streaming = true;
        work.end();
        return await openTail(result.follow, exchange, principal, tails, finish);
      }
      const headers = explaining
        ? explanationHeaders
        : (("pieces" in result ? result.headers : undefined) ?? jsonType);
      const complete = (body: CompleteBody): Answer => {
        finish(200, false);
        return { status: 200, headers, body };
      };
      if ("then" in result) return complete(JSON.stringify(await work.wait(result)));
      const [form, source] = "pieces" in result ? [noFraming, result.pieces] : [arrayFraming, result];
      const rows = source[Symbol.asyncIterator]();
      const head = await bufferHead(rows, work);
      if (head.state === "done") return complete(frameTexts(form, head.texts));
      // What waits for nothing but its client needs no place, neither here nor among the requests.
      const close = head.state === "open" ? openStream(principal, limits, rows, work) : undefined;
      streaming = close !== undefined;
      const body = toStreamedBody(streamRows(form, head.texts, rows, work, finish, close), work.signal);
      return { status: 200, headers, body };
    } catch (error) {
      throw work.signal.aborted && !(error instanceof BodyTimeout) ? work.signal.reason : error;
    } finally {
      if (!streaming) work.end();
    }
  };

  async function openTail(
    followed: TailAnswer["follow"],
    { headers, gone }: Exchange,
    principal: Principal,
    tails: TailRegistry,
    finish: FinishRequest,
  ): Promise<Answer> {
    const asked = {
      principal,
      // Empty is none, as it is to an EventSource.
      lastEventId: headers.get("last-event-id") || undefined,
      clientGone: gone,
      onClose: (cut: boolean) => {
        telemetry.tails.closed();
        finish(200, cut);
      },
    };
    // Tails read together: what is asked for all of them is part of no client's trace.
    const body = await runInSpan(undefined, () => tails.open(followed, asked));
    telemetry.tails.opened();
    return { status: 200, headers: eventStreamHeaders, body };
  }

  /** Takes a place among the streamed answers. What ends the work gives it back. @throws {LimitReached} {TooMany} */
  function openStream(
    principal: Principal,
    limits: Limits,
    rows: AsyncIterator<RowBatch>,
    work: RequestLifetime,
  ): () => void {
    const own = streamsOf.get(principal) ?? 0;
    if (streams >= limits.streams || own >= limits.tokenStreams) {
      closeIterator(rows);
      if (own >= limits.tokenStreams) throw new TooMany(1, "token_streams");
      throw createOverloadedError("streams", `${streams} streamed answers are under way`);
    }
    streams += 1;
    streamsOf.set(principal, own + 1);
    telemetry.streams.opened();
    return () => {
      streams -= 1;
      const left = (streamsOf.get(principal) ?? 1) - 1;
      if (left === 0) streamsOf.delete(principal);
      else streamsOf.set(principal, left);
      telemetry.streams.closed();
      work.end();
    };
  }

  return runOperation;
}

/** A body that is being read. @throws what its reading fails with, and `BodyTimeout` where the deadline passes before it is there */
export async function receiveBody<T>(body: Promise<T>, work: RequestLifetime): Promise<T> {
  try {
    return await work.wait(body);
  } catch (error) {
    throw error instanceof LimitReached ? new BodyTimeout() : error;
  }
}

/** No source is to blame for the time that a client takes: it is told as where node itself gives a body up. */
class BodyTimeout extends Unprocessable<"invalid_request"> {
  constructor() {
    const message = "The body did not arrive in time";
    super("invalid_request", message, { issues: [{ path: "", message }] }, "reading_time");
  }
}

function frameTexts(
  { opening, separator, closing }: BodyFraming,
  texts: readonly string[],
): readonly string[] {
  const last = texts.length - 1;
  if (last < 0) return [opening + closing];
  return texts.map((text, at) => (at === 0 ? opening : separator) + text + (at === last ? closing : ""));
}

async function* streamRows(
  { opening, separator, closing }: BodyFraming,
  head: readonly string[],
  rows: AsyncIterator<RowBatch>,
  work: RequestLifetime,
  finish: FinishRequest,
  close: (() => void) | undefined,
): AsyncGenerator<string, void, void> {
  let complete = false;
  let failure: unknown;
  try {
    let before = opening;
    for (const text of head) {
      yield before + text;
      before = separator;
      work.reportProgress();
    }
    for (;;) {
      work.reportProgress();
      const next = await work.wait(rows.next());
      if (next.done === true) break;
      // By itself: put together with the text, it would make another of all of it.
      if (separator !== "") yield separator;
      yield next.value.text;
    }
    yield closing;
    complete = true;
  } catch (error) {
    failure = work.signal.aborted ? work.signal.reason : error;
    throw failure;
  } finally {
    if (!complete) closeIterator(rows);
    close?.();
    finish(200, !complete, failure);
  }
}
