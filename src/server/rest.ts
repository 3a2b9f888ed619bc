// An operation asked for by REST, from its body to its answer: completed before the status is sent, streamed where that
// cannot be, or a tail. What is streamed keeps its place among the streamed answers until its client has all of it.

import { type Authenticate, type Principal, readToken, type TokenUse } from "../access/auth.ts";
import { isCertificateEnough } from "../access/certificates.ts";
import type { AuditLog } from "../audit/audit-log.ts";
import type { CompressionConfig } from "../config/edge-settings.ts";
import type { Limits } from "../config/limits.ts";
import type { ReadProgress } from "../core/async/read-progress.ts";
import { nameTurnOwner } from "../core/async/turns.ts";
import { LimitReached, NotAcceptable, Unauthorized, Unprocessable } from "../core/errors.ts";
import { chooseRepresentation, isPartialAccepted } from "../core/negotiation.ts";
import type { Instant } from "../core/time.ts";
import type { CompleteBody, StreamedBody } from "../http/body.ts";
import type { BodyReader, Exchange } from "../http/request.ts";
import {
  type Answer,
  arrayFraming,
  type BodyFraming,
  frameTexts,
  jsonType,
  measureBody,
  noFraming,
  toStreamedBody,
} from "../http/response.ts";
import { anonymousPrincipal, type OperationExecutor } from "../operations/runtime/executor.ts";
import {
  explanationType,
  isExplanationRequested,
  prepareExplanation,
} from "../operations/runtime/explain.ts";
import { bufferHead, closeIterator, type RequestLifetime } from "../operations/runtime/lifetime.ts";
import type {
  ChunkedBody,
  Endpoint,
  EndpointRepresentation,
  PreparedOperation,
  RequestContent,
  RowBatch,
  TailAnswer,
} from "../operations/runtime/operation.ts";
import {
  answerWithoutFailed,
  type MissingParts,
  nothingMissing,
} from "../operations/runtime/partial-answer.ts";
import type { QueryRules } from "../operations/runtime/session.ts";
import { eventStreamHeaders, type TailRegistry } from "../tail/tail-registry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { runInSpan } from "../telemetry/tracer.ts";
import type { PublishedVisuals } from "../visuals/visual.ts";
import type { ConsoleSignIn } from "./console-sign-in.ts";
import type { ProtectedResource } from "./resource-metadata.ts";
import { createStreamPlaces, type StreamedRequest, type StreamPlaces } from "./stream-places.ts";

/** One configuration, and the requests that began in its time. */
export interface ConfigGeneration {
  /** Who asked what; nobody keeps it where it is absent. */
  readonly audit: AuditLog | undefined;
  readonly authenticate: Authenticate;
  readonly isToken: ((text: string) => boolean) | undefined;
  readonly limits: Limits;
  readonly compression: CompressionConfig | undefined;
  readonly executor: OperationExecutor;
  readonly tails: TailRegistry;
  readonly visuals: PublishedVisuals | undefined;
  readonly queryRules: QueryRules;
  /** Whose pages in a browser may ask as agents do. */
  readonly origins: readonly string[];
  readonly now: () => Instant;
  /** The address by which clients know this server. */
  readonly publicUrl: string | undefined;
  /** The authorities of client certificates, as PEM text. */
  readonly clientCa: string | undefined;
  /** What OAuth clients are told; absent where no identity provider or no address is configured. */
  readonly resource: ProtectedResource | undefined;
  /** How people sign in to the console; absent: with tokens alone. */
  readonly signIn: ConsoleSignIn | undefined;
}

/** What the log, the metrics and the audit log tell of a request; filled in as far as it gets. */
export interface RequestLogFields {
  operation: string;
  route: string | undefined;
  user: string | undefined;
  /** What the token is called. */
  token?: string;
  /** As asked for, also those that the token may not see. */
  sites?: readonly string[];
  /** For the audit log alone. */
  content?: RequestContent;
  /** What has been read for it. */
  progress?: ReadProgress;
  rows?: number;
  bytes?: number;
  /** What the answer lacks, as clients are told it. */
  missing?: readonly string[];
  isTail?: boolean;
  /** Whether an answer has begun that is streamed. */
  hasBegun?: boolean;
}

/** Follows one request to its end. */
export interface RequestLog {
  readonly fields: RequestLogFields;
  /** Whether what is asked and answered has to be noted in the fields. */
  readonly isAudited: boolean;
  /** To be awaited before the first byte of what is streamed. @throws {LimitReached} The audit log cannot be written. */
  readonly begin: () => Promise<void>;
  readonly finish: FinishRequest;
}

/**
 * Records the end of a request, before its last byte is sent; `isCut` where its client has not received all of the answer.
 * @throws {LimitReached} The answer is good, but the audit log cannot be written. Nothing is recorded then, and the request
 * has to fail with it.
 */
export type FinishRequest = (status: number, isCut: boolean, error?: unknown) => Promise<void>;

/** An operation with what the path of a request says. */
export interface Route {
  readonly endpoint: Endpoint;
  readonly parameters: Readonly<Record<string, string>>;
}

/** What all operations of a server share, whatever the configuration was. */
export interface OperationRunner {
  readonly telemetry: Telemetry;
  readonly bodies: BodyReader;
  readonly streams: StreamPlaces;
}

/** A request for an operation under way. */
interface RunningRequest {
  readonly runner: OperationRunner;
  readonly exchange: Exchange;
  readonly generation: ConfigGeneration;
  readonly principal: Principal;
  readonly work: RequestLifetime;
  readonly log: RequestLog;
}

/** What an operation, or a representation of it, may answer. */
type OperationResult = Promise<unknown> | AsyncIterable<RowBatch> | ChunkedBody | TailAnswer;

const explanationHeaders = { "Content-Type": `${explanationType}; charset=utf-8` };

export function createOperationRunner(telemetry: Telemetry, bodies: BodyReader): OperationRunner {
  return { telemetry, bodies, streams: createStreamPlaces(telemetry) };
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
  log: RequestLog,
): Promise<Answer> {
  const { endpoint } = route;
  const { fields } = log;
  const form = chooseRepresentation(exchange.headers.get("accept"), endpoint.representations);
  fields.operation = form?.name ?? endpoint.name;
  fields.route = endpoint.path;
  refuseUncodable(exchange);
  const { executor } = generation;
  const admit = async (principal: Principal) => {
    return { principal, work: await executor.admit(principal, exchange.gone) };
  };
  const admitUser = (principal: Principal) => {
    noteUser(fields, principal);
    return admit(principal);
  };
  const { principal, work } =
    endpoint.access === "public"
      ? await admit(anonymousPrincipal)
      : await admitToken(generation, exchange, readToken(exchange.headers, exchange.search), admitUser);
  const request: RunningRequest = { runner, exchange, generation, principal, work, log };
  let ownsWork = true;
  try {
    const { prepared, headers } = await prepareRequest(request, route, form);
    noteAsked(log, prepared, generation, work);
    const finishAnswer = async (result: OperationResult, missing: MissingParts): Promise<Answer> => {
      if ("follow" in result) {
        ownsWork = false;
        return answerTail(request, result.follow);
      }
      if (missing.labels.length > 0) fields.missing = missing.labels;
      // The deadline of a page counts for all of it, that of an export for each step.
      const mayFinish = endpoint.access === "public" || form === undefined;
      const takePlace = () => takeStreamPlace(request, prepared, mayFinish);
      const { answer, isStream } = await buildAnswer(request, result, { headers, missing, takePlace });
      // A stream ends its work when its client has all of it.
      ownsWork = !isStream;
      return answer;
    };
    // What is refused throws at once, and gives its slot back before the next request is looked at.
    const answerWithout = (missing: MissingParts): Promise<Answer> => {
      const held = work.held.openPart();
      const result = executor.start(prepared, principal, work, missing.backends, held);
      return finishAnswer(result, missing).catch((error: unknown) => {
        // Another attempt may follow, which holds the same again.
        held.release();
        throw error;
      });
    };
    if (!isPartialAccepted(exchange.headers.get("accept"))) return await answerWithout(nothingMissing);
    return await answerWithoutFailed(answerWithout, (missing) =>
      executor.labelMissing(prepared, principal, missing),
    );
  } catch (error) {
    const reason = work.fail(error);
    throw error instanceof BodyTimeout ? error : reason;
  } finally {
    if (ownsWork) work.end();
  }
}

/** Whose request it is, also where it is refused. */
export function noteUser(fields: RequestLogFields, { user, token }: Principal): void {
  fields.user = user;
  fields.token = token;
}

/** What is asked for, also where it is refused. */
function noteAsked(
  { fields, isAudited }: RequestLog,
  { sites, readContent }: PreparedOperation<OperationResult>,
  { visuals }: ConfigGeneration,
  { progress }: RequestLifetime,
): void {
  fields.sites = sites(visuals);
  if (isAudited && readContent !== undefined) fields.content = readContent();
  fields.progress = progress;
}

/** @throws {NotAcceptable} for a client that takes neither a coding that is offered nor the plain body */
export function refuseUncodable({ coding }: Exchange): void {
  if (coding === "none") throw new NotAcceptable();
}

/**
 * Verifies the token and returns what `admit` makes of its principal. A reload waits for both: until then the backends
 * of the configuration stay open.
 * @throws what `authenticate` and `admit` throw
 */
export async function admitToken<Admitted>(
  { authenticate, executor, publicUrl, clientCa }: ConfigGeneration,
  { headers, readCertificate }: Pick<Exchange, "headers" | "readCertificate">,
  token: string | undefined,
  admit: (principal: Principal) => Admitted | Promise<Admitted>,
  use: TokenUse = "counted",
): Promise<Admitted> {
  const release = executor.hold();
  try {
    const certificate = clientCa === undefined ? undefined : readCertificate?.(clientCa);
    const isEnough = certificate !== undefined && isCertificateEnough(headers, publicUrl);
    const principal = await authenticate(token, isEnough ? certificate : undefined, use);
    if (use === "counted") nameTurnOwner(principal.account);
    return await admit(principal);
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

/** What tells a client over HTTP that parts are missing. */
function formatMissingHeaders({ labels }: MissingParts): Readonly<Record<string, string>> {
  return labels.length === 0 ? {} : { "X-Readout-Missing": labels.join(", "), Vary: "Accept" };
}

async function completeAnswer(
  { fields, isAudited, finish }: RequestLog,
  headers: Answer["headers"],
  body: CompleteBody,
): Promise<Answer> {
  if (isAudited) fields.bytes = measureBody(body);
  await finish(200, false);
  return { status: 200, headers, body };
}

interface AnswerOptions {
  readonly headers: Answer["headers"] | undefined;
  readonly missing: MissingParts;
  /** Takes a place among the streamed answers. What it returns ends the work. @throws {LimitReached} {TooMany} */
  readonly takePlace: () => () => void;
}

/** Completed where it is small or one value, else streamed. A stream that still reads has a place of its own. */
async function buildAnswer(
  request: RunningRequest,
  result: Exclude<OperationResult, TailAnswer>,
  { headers: own, missing, takePlace }: AnswerOptions,
): Promise<{ readonly answer: Answer; readonly isStream: boolean }> {
  const { work, log } = request;
  const headers = {
    ...(own ?? ("pieces" in result ? result.headers : undefined) ?? jsonType),
    ...formatMissingHeaders(missing),
  };
  if ("then" in result) {
    const value = await work.wait(result);
    log.fields.rows = Array.isArray(value) ? value.length : 1;
    return { answer: await completeAnswer(log, headers, JSON.stringify(value)), isStream: false };
  }
  const [framing, source] = "pieces" in result ? [noFraming, result.pieces] : [arrayFraming, result];
  const rows = source[Symbol.asyncIterator]();
  const head = await bufferHead(rows, work);
  log.fields.rows = head.rows;
  if (head.state === "done") {
    return { answer: await completeAnswer(log, headers, frameTexts(framing, head.texts)), isStream: false };
  }
  try {
    await log.begin();
    // What waits for nothing but its client needs no place, neither here nor among the requests.
    const close = head.state === "open" ? takePlace() : undefined;
    const body = toStreamedBody(streamRows(framing, head.texts, rows, work, log, close), work.signal);
    return { answer: { status: 200, headers, body }, isStream: close !== undefined };
  } catch (error) {
    closeIterator(rows);
    throw error;
  }
}

async function answerTail(request: RunningRequest, followed: TailAnswer["follow"]): Promise<Answer> {
  const body = await openTail(request, followed);
  const { fields, isAudited } = request.log;
  const next = async () => {
    const chunk = await body.next();
    if (chunk.done !== true && isAudited) {
      fields.bytes = (fields.bytes ?? 0) + Buffer.byteLength(chunk.value);
    }
    return chunk;
  };
  return { status: 200, headers: eventStreamHeaders, body: { ...body, next } };
}

/**
 * Ends the work at once: tails have places of their own, and no deadline. One that begins far behind has a place of the
 * exports as well, until it is near to now. The log of the request is finished when the tail is over; `onClose` is then told
 * whether its client has not had all of it.
 */
export async function openTail(
  { runner, exchange, generation, principal, work, log }: RunningRequest,
  followed: TailAnswer["follow"],
  onClose: (isCut: boolean) => void = () => {},
): Promise<StreamedBody> {
  const { telemetry } = runner;
  work.end();
  log.fields.isTail = true;
  await log.begin();
  const end: { recorded?: Promise<void> } = {};
  const client = {
    principal,
    // Empty is none, as it is to an EventSource.
    lastEventId: exchange.headers.get("last-event-id") || undefined,
    clientGone: exchange.gone,
    takePlace: () => runner.streams.takePlace(principal, generation.limits),
    onClose: (isCut: boolean) => {
      telemetry.tails.closed();
      end.recorded = finishStream(log, isCut);
      // Whoever waits for it reads the failure; of a client that has left nobody does.
      end.recorded.catch(() => {});
      onClose(isCut);
    },
  };
  // Tails read together: what is asked for all of them is part of no client's trace.
  const body = await runInSpan(undefined, () => generation.tails.open(followed, client));
  telemetry.tails.opened();
  const next = async () => {
    const chunk = await body.next();
    if (chunk.done === true) await end.recorded;
    return chunk;
  };
  return { ...body, next };
}

/** Finishes a stream, as cut where its audit line cannot be written. @throws {LimitReached} */
async function finishStream({ finish }: RequestLog, isCut: boolean, failure?: unknown): Promise<void> {
  try {
    await finish(200, isCut, failure);
  } catch (error) {
    await finish(200, true, error);
    throw error;
  }
}

function takeStreamPlace(
  { runner, exchange, generation, principal, work }: RunningRequest,
  { scopes, sites }: PreparedOperation<OperationResult>,
  mayFinish: boolean,
): () => void {
  const { limits, now, visuals } = generation;
  const streamed = { exchange, principal, work, mayFinish, scopes, sites: sites(visuals) };
  return runner.streams.take(streamed, limits, now);
}

/** Whether a configuration permits what is being streamed under another one. A provider that is down withdraws nothing. */
export async function isStreamPermitted(
  generation: ConfigGeneration,
  { exchange, scopes, sites }: StreamedRequest,
): Promise<boolean> {
  const token = readToken(exchange.headers, exchange.search);
  const isAllowed = (principal: Principal) => {
    const visible = generation.executor.selectVisibleSites(principal);
    return scopes.every((scope) => principal.hasScope(scope)) && sites.every((site) => visible.has(site));
  };
  const permitted = admitToken(generation, exchange, token, isAllowed, "checked again");
  return permitted.catch((error: unknown) => !(error instanceof Unauthorized));
}

/** Waits for a body. @throws what its reading fails with, and `BodyTimeout` where the deadline passes first */
export async function receiveBody<T>(body: Promise<T>, work: RequestLifetime): Promise<T> {
  try {
    return await work.wait(body);
  } catch (error) {
    throw error instanceof LimitReached ? new BodyTimeout() : error;
  }
}

/** The client was too slow, not a source. It gets the same answer as where node itself gives a body up. */
class BodyTimeout extends Unprocessable<"invalid_request"> {
  constructor() {
    const message = "The body did not arrive in time";
    super("invalid_request", message, { issues: [{ path: "", message }] }, "reading_time");
  }
}

async function* streamRows(
  { opening, separator, closing }: BodyFraming,
  head: readonly string[],
  rows: AsyncIterator<RowBatch>,
  work: RequestLifetime,
  log: RequestLog,
  close: (() => void) | undefined,
): AsyncGenerator<string, void, void> {
  const { fields, isAudited } = log;
  const count = (text: string) => {
    if (isAudited) fields.bytes = (fields.bytes ?? 0) + Buffer.byteLength(text);
  };
  let isComplete = false;
  let failure: unknown;
  try {
    let before = opening;
    for (const text of head) {
      const piece = before + text;
      count(piece);
      yield piece;
      before = separator;
      work.reportProgress();
    }
    for (;;) {
      work.reportProgress();
      const next = await work.wait(rows.next());
      if (next.done === true) break;
      fields.rows = (fields.rows ?? 0) + next.value.count;
      count(separator);
      count(next.value.text);
      // By itself: put together with the text, it would make another of all of it.
      if (separator !== "") yield separator;
      yield next.value.text;
    }
    count(closing);
    yield closing;
    isComplete = true;
  } catch (error) {
    failure = work.fail(error);
    throw failure;
  } finally {
    if (!isComplete) closeIterator(rows);
    close?.();
    await finishStream(log, !isComplete, failure);
  }
}
