// What every request to a backend passes through: the bulkhead, the circuit breaker, a deadline of its own within the
// caller's, and for reads one retry within a budget. Every kind of failure becomes one `BackendError`.

import { type ClientRequest, findClientRequest, raceAbort } from "../../src/core/async/concurrency.ts";
import { reportAnswer, reportSent, reportWaiting } from "../../src/core/async/read-progress.ts";
import {
  BackendError,
  type Failure,
  isPassedDeadline,
  LimitReached,
  Refused,
  TooMany,
} from "../../src/core/errors.ts";
import type { Millis } from "../../src/core/time.ts";
import type { IO } from "../../src/store/backend.ts";
import {
  type BackendRequest,
  findCurrentRecorder,
  type RecordedRequest,
  type Recorder,
} from "../../src/telemetry/request-recorder.ts";
import { findCurrentSpan, type OwnSpan, runInSpan } from "../../src/telemetry/tracer.ts";
import { type AuthBackoff, createAuthBackoff } from "./auth-backoff.ts";
import { type Bulkhead, createBulkhead, QueueFullError } from "./bulkhead.ts";
import { type BreakerOutcome, type CircuitBreaker, createCircuitBreaker } from "./circuit-breaker.ts";
import { findLateError, sleep, wasSent } from "./waiting.ts";

export interface GuardSettings {
  readonly timeout: Millis;
  /** The most requests under way at once. */
  readonly concurrent: number;
  /** The most requests that wait for one of them to end. */
  readonly queued: number;
}

export const guardDefaults: GuardSettings = { timeout: 10_000, concurrent: 32, queued: 256 };

export interface Guard {
  /**
   * Runs one request under its own deadline, which ends with the caller's at the latest. A `repeatable` request is retried
   * once after a failure that a second try can repair. Retries stay below a tenth of the traffic. `describe` returns what is
   * sent, and is called only where it is recorded.
   * @throws {BackendError} or the signal's reason when the caller has left
   */
  run<T>(
    repeatable: boolean,
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    describe: () => BackendRequest,
  ): Promise<T>;
}

/** Failures that show the backend is in trouble, and so count for the circuit breaker. */
const breakerFailures: readonly Failure[] = ["unreachable", "timeout"];
const failuresToOpen = 10;
const openFor: Millis = 5_000;

/** A caller's own deadline counts as a failure of the backend only after a wait of this length, or of half the timeout. */
const minCallerWait: Millis = 5_000;

/**
 * Repeated wrong passwords may lock an account, and keep it locked. Some proxies refuse single paths with 401; the answers
 * in between then show that the credentials are good.
 */
const authBackoffSettings = { threshold: 3, initialDelay: 1_000, maxDelay: 300_000 } as const;

/** Tokens of the retry budget: each request adds one and a retry takes ten, so that three retries may come at once. */
const retryBudgetLimit = 30;
const retryCost = 10;
/** The pause before an overloaded backend is tried again is random, so that not all callers return at the same moment. */
const maxRetryPause: Millis = 200;

/** What the requests to one backend share. */
interface GuardState {
  readonly backend: string;
  readonly timeout: Millis;
  readonly io: Pick<IO, "recordRequest">;
  readonly bulkhead: Bulkhead;
  readonly breaker: CircuitBreaker;
  readonly authBackoff: AuthBackoff;
  retryBudget: number;
  /** On the clock of `performance.now`. */
  lastAnsweredAt: Millis;
}

export function createGuard(
  backend: string,
  { timeout, concurrent, queued }: GuardSettings,
  io: Pick<IO, "recordRequest">,
): Guard {
  const clock = () => performance.now();
  const bulkhead = createBulkhead(concurrent, queued);
  const onOpen = () => bulkhead.rejectWaiting(createBreakerOpenError(backend), breaker.isOpen);
  const breaker = createCircuitBreaker({ failures: failuresToOpen, openFor, onOpen, clock });
  const authBackoff = createAuthBackoff({ ...authBackoffSettings, clock });
  const state: GuardState = {
    backend,
    timeout,
    io,
    bulkhead,
    breaker,
    authBackoff,
    retryBudget: retryBudgetLimit,
    lastAnsweredAt: Number.NEGATIVE_INFINITY,
  };
  return {
    run: (repeatable, signal, request, describe) => runGuarded(state, repeatable, signal, request, describe),
  };
}

async function runGuarded<T>(
  state: GuardState,
  repeatable: boolean,
  signal: AbortSignal,
  request: (signal: AbortSignal) => Promise<T>,
  describe: () => BackendRequest,
): Promise<T> {
  signal.throwIfAborted();
  state.retryBudget = Math.min(retryBudgetLimit, state.retryBudget + 1);
  // Captured here: a request that waits in the queue is started by the one that leaves its slot.
  const observe = createAttemptObserver(state.backend, describe, findCurrentRecorder(), findCurrentSpan());
  // Only failures before the deadline of requests that were sent: what takes long, a full queue and an open breaker do not get
  // better by a second try.
  let sentFailure: unknown;
  try {
    return await runOnce(state, signal, request, observe, (error) => {
      sentFailure = error;
    });
  } catch (error) {
    signal.throwIfAborted();
    const pause = repeatable && sentFailure === error ? chooseRetryPause(state, error) : undefined;
    if (pause === undefined) throw error;
    state.retryBudget -= retryCost;
    if (pause > 0) await sleep(pause, signal);
    return await runOnce(state, signal, request, observe, () => {});
  }
}

/** How long to wait before the retry; undefined where there is none. */
function chooseRetryPause({ retryBudget }: GuardState, error: unknown): Millis | undefined {
  if (!(error instanceof BackendError) || isOwnLimit(error) || retryBudget < retryCost) return undefined;
  if (error.failure === "unreachable") return 0;
  // Where the backend says when to come back, that is passed on to the client.
  if (error.failure !== "overloaded" || error.retryAfterSeconds !== undefined) return undefined;
  return Math.random() * maxRetryPause;
}

/** Waits for a slot and makes one attempt. `onFailure` is called with the failure of a request that was sent, if not its deadline. */
async function runOnce<T>(
  state: GuardState,
  signal: AbortSignal,
  request: (signal: AbortSignal) => Promise<T>,
  observe: AttemptObserver | undefined,
  onFailure: (error: unknown) => void,
): Promise<T> {
  const { backend, breaker, authBackoff } = state;
  const client = findClientRequest(signal);
  if (breaker.isOpen(client?.account)) throw createBreakerOpenError(backend);
  const release = await waitForSlot(state, client, signal);
  try {
    signal.throwIfAborted();
    const reportOutcome = breaker.enter(client?.account);
    if (reportOutcome === undefined) throw createBreakerOpenError(backend);
    if (!authBackoff.tryEnter()) {
      reportOutcome("unknown");
      throw createCredentialsRefusedError(backend);
    }
    return await runAttempt(state, { signal, client, reportOutcome, observe, onFailure }, request);
  } finally {
    release();
  }
}

async function waitForSlot(
  state: GuardState,
  client: ClientRequest | undefined,
  signal: AbortSignal,
): Promise<() => void> {
  const isAnswering = () => performance.now() - state.lastAnsweredAt <= state.timeout;
  const endWait = reportWaiting(client?.progress, isAnswering);
  try {
    return await state.bulkhead.acquire(client?.account, signal);
  } catch (error) {
    if (!(error instanceof QueueFullError)) throw error;
    throw new BackendError(state.backend, "overloaded", error.message, { cause: error });
  } finally {
    endWait();
  }
}

function createBreakerOpenError(backend: string): BackendError {
  return new BackendError(backend, "unreachable", "circuit breaker open after repeated failures");
}

function createCredentialsRefusedError(backend: string): BackendError {
  const reason = "credentials refused repeatedly (status 401): requests are paused";
  return new BackendError(backend, "denied", reason, { status: 401 });
}

// ---- One attempt --------------------------------------------------------------------------------------------

/** On whose behalf one attempt is made, and who is told of it. */
interface AttemptContext {
  readonly signal: AbortSignal;
  readonly client: ClientRequest | undefined;
  readonly reportOutcome: (outcome: BreakerOutcome) => void;
  readonly observe: AttemptObserver | undefined;
  readonly onFailure: (error: unknown) => void;
}

interface Attempt extends Pick<AttemptContext, "client" | "reportOutcome"> {
  readonly started: Millis;
  readonly observation: Observation | undefined;
}

/** Settles when the deadline passes or the caller leaves, also where the request ignores its signal. */
async function runAttempt<T>(
  state: GuardState,
  { signal, client, reportOutcome, observe, onFailure }: AttemptContext,
  request: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { backend, timeout, authBackoff } = state;
  const started = performance.now();
  const endWait = reportSent(client?.progress);
  const current: Attempt = { started, client, reportOutcome, observation: observe?.() };
  const limit = new AbortController();
  const giveUp = () =>
    limit.abort(
      findLateError(limit.signal) ?? new BackendError(backend, "timeout", `no answer within ${timeout} ms`),
    );
  const timer = setTimeout(giveUp, timeout);
  const leave = () => limit.abort(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  try {
    const result = await raceAbort(
      runInSpan(current.observation?.span, () => request(limit.signal)),
      limit.signal,
    );
    finishAttempt(state, current, "alive", "ok");
    authBackoff.record(false, current.started);
    return result;
  } catch (cause) {
    const error: unknown = limit.signal.aborted ? limit.signal.reason : cause;
    if (signal.aborted) {
      finishAbandoned(state, current, error);
      throw error;
    }
    const failed = finishFailed(state, current, error);
    if (!limit.signal.aborted && wasSent(limit.signal)) onFailure(failed);
    throw failed;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
    endWait();
  }
}

function finishAttempt(
  state: GuardState,
  { started, client, reportOutcome, observation }: Attempt,
  outcome: BreakerOutcome,
  result: "ok" | Failure,
): void {
  const now = performance.now();
  reportOutcome(outcome);
  if (outcome === "alive") {
    state.lastAnsweredAt = now;
    reportAnswer(client?.progress);
  }
  state.io.recordRequest(state.backend, result, now - started);
  observation?.end(result);
}

/**
 * The caller has left. His deadline counts as a failure of the backend if he waited long enough to tell. That another source was
 * late, for which he gives up this request too, says nothing of this one.
 */
function finishAbandoned(state: GuardState, current: Attempt, reason: unknown): void {
  if (
    isPassedDeadline(reason) &&
    performance.now() - current.started >= Math.min(minCallerWait, state.timeout / 2)
  ) {
    finishAttempt(state, current, "dead", "timeout");
    return;
  }
  current.reportOutcome("unknown");
  current.observation?.end("abandoned");
}

/** Returns what the caller receives. */
function finishFailed(state: GuardState, current: Attempt, error: unknown): BackendError | Refused | TooMany {
  if (isOwnLimit(error)) {
    finishAttempt(state, current, "alive", "ok");
    state.authBackoff.record(false, current.started);
    return error;
  }
  const failed = toBackendError(state.backend, error);
  const { failure, status } = failed;
  finishAttempt(state, current, breakerFailures.includes(failure) ? "dead" : "alive", failure);
  if (status !== undefined && status < 500) state.authBackoff.record(status === 401, current.started);
  return failed;
}

/** The response was good, and too large for its reader: no failure of the backend. */
function isOwnLimit(error: unknown): error is Refused | TooMany | LimitReached {
  return error instanceof Refused || error instanceof TooMany || error instanceof LimitReached;
}

// ---- Observation --------------------------------------------------------------------------------------------

/** Starts the observation of one attempt, for a recorder (`explain`) and the program's own trace. */
type AttemptObserver = () => Observation;

interface Observation {
  readonly span: OwnSpan | undefined;
  readonly end: (outcome: RecordedRequest["outcome"]) => void;
}

function createAttemptObserver(
  backend: string,
  describe: () => BackendRequest,
  recorder: Recorder | undefined,
  parent: OwnSpan | undefined,
): AttemptObserver | undefined {
  if (recorder === undefined && parent === undefined) return undefined;
  return () => {
    const started = performance.now();
    const span = parent?.startChild();
    return {
      span,
      end(outcome) {
        recorder?.recordRequest({
          ...describe(),
          backend,
          started,
          took: performance.now() - started,
          outcome,
        });
        if (span?.sampled !== true) return;
        // Neither parameters nor the body: they hold what users search for.
        const { method, path } = describe();
        const http = { "http.request.method": method, "url.path": path.slice(0, maxPathChars) };
        const failure = outcome === "ok" || outcome === "abandoned" ? undefined : outcome;
        span.end(method, { ...http, "readout.backend": backend, "readout.outcome": outcome }, failure);
      },
    };
  };
}

/** A path may list many indices; a trace holds its beginning. */
const maxPathChars = 256;

// ---- Failures -----------------------------------------------------------------------------------------------

/** The seconds of a `Retry-After` header; undefined for any other form. */
export function readRetryAfter(header: unknown): number | undefined {
  return typeof header === "string" && /^\d{1,4}$/.test(header) ? Number(header) : undefined;
}

const unreachablePattern =
  /ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EPROTO|CERT_|_CERT|LEAF_SIGNATURE|ERR_(?:SSL|TLS)_|UND_ERR_(?:SOCKET|CONNECT)|socket hang up|other side closed/i;
/** Of a chain of causes, how many are looked at. */
const maxCauses = 4;

/** Classifies a failure of the transport. Anything that is not recognised counts as a malformed response. */
export function toBackendError(backend: string, cause: unknown): BackendError {
  if (cause instanceof BackendError) return cause;
  const texts: string[] = [];
  for (
    let error: unknown = cause;
    error instanceof Error && texts.length < 2 * maxCauses;
    error = error.cause
  ) {
    const { code } = error as { readonly code?: unknown };
    texts.push(`${error.name}: ${error.message}`, code === undefined || code === null ? "" : String(code));
  }
  const text = texts.filter((part) => part !== "").join("; ");
  if (/ConnectionError|NoLivingConnections/.test(text) || unreachablePattern.test(text)) {
    return new BackendError(backend, "unreachable", text, { cause });
  }
  if (/TimeoutError/.test(text)) return new BackendError(backend, "timeout", text, { cause });
  return new BackendError(backend, "malformed", text === "" ? String(cause) : text, { cause });
}
