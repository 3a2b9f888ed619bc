// An operation asked for by REST, from its body to its answer: completed before the status is sent, streamed where that
// cannot be, or a tail. What is streamed keeps its place among the streamed answers until its client has all of it.

import { type Authenticate, type Principal, readToken } from "../access/auth.ts";
import type { CompressionConfig } from "../config/edge-settings.ts";
import type { Limits } from "../config/limits.ts";
import { findLargest } from "../core/collections.ts";
import {
  LimitReached,
  type LimitUse,
  NotAcceptable,
  TooMany,
  Unauthorized,
  Unprocessable,
} from "../core/errors.ts";
import { type Instant, type Millis, toMillis } from "../core/time.ts";
import type { CompleteBody } from "../http/body.ts";
import type { BodyReader, Exchange } from "../http/request.ts";
import { type Answer, jsonType, toStreamedBody } from "../http/response.ts";
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
import {
  type ChunkedBody,
  chooseRepresentation,
  type Endpoint,
  type EndpointRepresentation,
  type PreparedOperation,
  type RowBatch,
  type TailAnswer,
} from "../operations/runtime/operation.ts";
import { eventStreamHeaders, type TailRegistry } from "../tail/tail-registry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { runInSpan } from "../telemetry/tracer.ts";
import type { ProtectedResource } from "./resource-metadata.ts";

/** One configuration, and the requests that began in its time. */
export interface ConfigGeneration {
  readonly authenticate: Authenticate;
  readonly isToken: ((text: string) => boolean) | undefined;
  readonly limits: Limits;
  readonly compression: CompressionConfig | undefined;
  readonly executor: OperationExecutor;
  readonly tails: TailRegistry;
  /** Whose pages in a browser may ask as agents do. */
  readonly origins: readonly string[];
  readonly now: () => Instant;
  /** What OAuth clients are told; absent where no identity provider or no address is configured. */
  readonly resource: ProtectedResource | undefined;
}

/** What the log and the metrics tell of a request; filled in as far as it gets. */
export interface RequestLogFields {
  operation: string;
  route: string | undefined;
  user: string | undefined;
}

/** Records the end of a request; `cut` where its client has not received all of the answer. */
export type FinishRequest = (status: number, cut: boolean, error?: unknown) => void;

/** An operation with what the path of a request says. */
export interface Route {
  readonly endpoint: Endpoint;
  readonly parameters: Readonly<Record<string, string>>;
}

/** What all operations of a server share: the bound on streamed answers holds whatever the configuration was. */
export interface OperationRunner {
  readonly telemetry: Telemetry;
  readonly bodies: BodyReader;
  streams: number;
  /** Of those, how many each token has. */
  readonly streamsOf: Map<string, number>;
}

/** A request for an operation under way. */
interface RunningRequest {
  readonly runner: OperationRunner;
  readonly exchange: Exchange;
  readonly generation: ConfigGeneration;
  readonly principal: Principal;
  readonly work: RequestLifetime;
  readonly finish: FinishRequest;
}

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

export function createOperationRunner(telemetry: Telemetry, bodies: BodyReader): OperationRunner {
  return { telemetry, bodies, streams: 0, streamsOf: new Map() };
}

export function measureStreamUse({ streams, streamsOf }: OperationRunner, limits: Limits): LimitUse {
  return {
    streams: streams / limits.streams,
    token_streams: findLargest(streamsOf) / limits.tokenStreams,
  };
}

/**
 * The answer of a route, which calls `finish` as soon as it is complete or broken off.
 * @throws what the operation, the limits and the reading of the body fail with; then `finish` has not been called
 */
export async function runOperation(
  runner: OperationRunner,
  exchange: Exchange,
  route: Route,
  generation: ConfigGeneration,
  fields: RequestLogFields,
  finish: FinishRequest,
): Promise<Answer> {
  const { endpoint } = route;
  const form = chooseRepresentation(exchange.headers.get("accept"), endpoint.representations);
  fields.operation = form?.name ?? endpoint.name;
  fields.route = endpoint.path;
  refuseUncodable(exchange);
  const { executor } = generation;
  const admit = (principal: Principal) => {
    fields.user = principal.user;
    return { principal, work: executor.admit(principal, exchange.gone) };
  };
  const { principal, work } =
    endpoint.access === "public"
      ? admit(anonymousPrincipal)
      : await admitToken(generation, readToken(exchange.headers, exchange.search), admit);
  const request: RunningRequest = { runner, exchange, generation, principal, work, finish };
  let ownsWork = true;
  try {
    const { prepared, headers } = await prepareRequest(request, route, form);
    const result = executor.start(prepared, principal, work);
    if ("follow" in result) {
      ownsWork = false;
      return await openTail(request, result.follow);
    }
    if ("then" in result) {
      return completeAnswer(finish, headers ?? jsonType, JSON.stringify(await work.wait(result)));
    }
    const { answer, isStream } = await printBatches(request, result, headers);
    // A stream ends its work when its client has all of it.
    ownsWork = !isStream;
    return answer;
  } catch (error) {
    throw work.signal.aborted && !(error instanceof BodyTimeout) ? work.signal.reason : error;
  } finally {
    if (ownsWork) work.end();
  }
}

/** @throws {NotAcceptable} for a client that takes neither a coding that is offered nor the plain body */
export function refuseUncodable({ coding }: Exchange): void {
  if (coding === "none") throw new NotAcceptable();
}

/**
 * What `admit` makes of the token's principal. A reload waits for it, though the token may have to be verified first: the
 * backends of its configuration are not closed before.
 * @throws what `authenticate` and `admit` throw
 */
export async function admitToken<Admitted>(
  { authenticate, executor }: ConfigGeneration,
  token: string | undefined,
  admit: (principal: Principal) => Admitted,
): Promise<Admitted> {
  const release = executor.hold();
  try {
    return admit(await authenticate(token));
  } finally {
    release();
  }
}

/** Reads and parses what is asked for. `headers` are those of an explanation. @throws {Unprocessable} */
async function prepareRequest(
  { runner, exchange, principal, work }: RunningRequest,
  { endpoint, parameters }: Route,
  form: EndpointRepresentation | undefined,
): Promise<{
  readonly prepared: PreparedOperation<OperationResult>;
  readonly headers?: Answer["headers"];
}> {
  const raw =
    endpoint.method === "GET"
      ? endpoint.readsQuery === true
        ? { ...Object.fromEntries(new URLSearchParams(exchange.search)), ...parameters }
        : parameters
      : await receiveBody(runner.bodies.readJson(exchange, principal.account, work.signal), work);
  // An explanation is JSON, whatever form its answer would have.
  if (exchange.search.includes("explain=") && isExplanationRequested(exchange.search)) {
    return { prepared: prepareExplanation(endpoint.prepare(raw)), headers: explanationHeaders };
  }
  return { prepared: (form ?? endpoint).prepare(raw) };
}

function completeAnswer(finish: FinishRequest, headers: Answer["headers"], body: CompleteBody): Answer {
  finish(200, false);
  return { status: 200, headers, body };
}

/** An answer in batches: completed where it is small, else streamed. A stream that still reads has a place of its own. */
async function printBatches(
  request: RunningRequest,
  result: AsyncIterable<RowBatch> | ChunkedBody,
  own: Answer["headers"] | undefined,
): Promise<{ readonly answer: Answer; readonly isStream: boolean }> {
  const { work, finish } = request;
  const [framing, source] = "pieces" in result ? [noFraming, result.pieces] : [arrayFraming, result];
  const headers = own ?? ("pieces" in result ? result.headers : undefined) ?? jsonType;
  const rows = source[Symbol.asyncIterator]();
  const head = await bufferHead(rows, work);
  if (head.state === "done") {
    return { answer: completeAnswer(finish, headers, frameTexts(framing, head.texts)), isStream: false };
  }
  // What waits for nothing but its client needs no place, neither here nor among the requests.
  const close = head.state === "open" ? openStream(request, rows) : undefined;
  const body = toStreamedBody(streamRows(framing, head.texts, rows, work, finish, close), work.signal);
  return { answer: { status: 200, headers, body }, isStream: close !== undefined };
}

/** Ends the work at once: tails have places of their own, and no deadline. */
async function openTail(
  { runner, exchange, generation, principal, work, finish }: RunningRequest,
  followed: TailAnswer["follow"],
): Promise<Answer> {
  const { telemetry } = runner;
  work.end();
  const client = {
    principal,
    // Empty is none, as it is to an EventSource.
    lastEventId: exchange.headers.get("last-event-id") || undefined,
    clientGone: exchange.gone,
    onClose: (cut: boolean) => {
      telemetry.tails.closed();
      finish(200, cut);
    },
  };
  // Tails read together: what is asked for all of them is part of no client's trace.
  const body = await runInSpan(undefined, () => generation.tails.open(followed, client));
  telemetry.tails.opened();
  return { status: 200, headers: eventStreamHeaders, body };
}

/** Takes a place among the streamed answers. What ends the work gives it back. @throws {LimitReached} {TooMany} */
function openStream(
  { runner, generation: { limits, now }, principal, work }: RunningRequest,
  rows: AsyncIterator<RowBatch>,
): () => void {
  const { streamsOf, telemetry } = runner;
  const own = streamsOf.get(principal.account) ?? 0;
  if (runner.streams >= limits.streams || own >= limits.tokenStreams) {
    closeIterator(rows);
    if (own >= limits.tokenStreams) {
      throw new TooMany(1, "token_streams", { requests: limits.tokenStreams });
    }
    throw createOverloadedError("streams", `${runner.streams} streamed answers are under way`);
  }
  const clearExpiry = endWithToken(work, principal, now);
  runner.streams += 1;
  streamsOf.set(principal.account, own + 1);
  telemetry.streams.opened();
  return () => {
    clearExpiry();
    runner.streams -= 1;
    const left = (streamsOf.get(principal.account) ?? 1) - 1;
    if (left === 0) streamsOf.delete(principal.account);
    else streamsOf.set(principal.account, left);
    telemetry.streams.closed();
    work.end();
  };
}

/** The longest that a timer of node lasts, some 24 days. */
const maxTimer: Millis = 2 ** 31 - 1;

/** Cuts a streamed answer when the token of its client expires. Returns what prevents that. */
function endWithToken(work: RequestLifetime, { expires }: Principal, now: () => Instant): () => void {
  if (expires === undefined) return () => {};
  const left = toMillis(expires as Instant) - toMillis(now());
  if (left > maxTimer) return () => {};
  const timer = setTimeout(() => work.fail(new Unauthorized("Unauthorized")), Math.max(0, left));
  return () => clearTimeout(timer);
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
