// What every request to a source passes through: a place among those under way, the breaker, a deadline of its own
// within the caller's, and for reads a second try within a budget. Each way of failing comes out as one `BackendError`.
import { BackendError, type Failure, Refused } from "../../src/core/errors.ts";
import type { Millis } from "../../src/core/time.ts";
import type { IO } from "../../src/store/store.ts";
import {
  type BackendRequest,
  findCurrentRecorder,
  type RecordedRequest,
  type Recorder,
} from "../../src/telemetry/request-recorder.ts";
import { findCurrentSpan, type OwnSpan, runInSpan } from "../../src/telemetry/tracer.ts";
import {
  type BreakerOutcome,
  createAuthBackoff,
  createBreaker,
  createBulkhead,
  QueueFullError,
} from "./bulkhead.ts";

export interface GuardSettings {
  readonly timeout: Millis;
  /** Requests under way at once, and how many may wait for a place. */
  readonly concurrent: number;
  readonly queued: number;
}

export const guardDefaults: GuardSettings = { timeout: 10_000, concurrent: 32, queued: 256 };

export interface Guard {
  /**
   * Runs one request under its own deadline, which ends with the caller's at the latest. One that is `repeatable` is
   * tried once more after a failure that a second try can mend, while retries stay below a tenth of the traffic:
   * nothing of a request that failed has reached the caller. `describe` tells what is sent, where it is recorded.
   * @throws {BackendError} or the signal's reason when the caller has left
   */
  run<T>(
    repeatable: boolean,
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    describe: () => BackendRequest,
  ): Promise<T>;
}

/** Failures that say something of the source's health, so that a breaker may open on them. */
const breakerFailures: readonly Failure[] = ["unreachable", "timeout"];
const failuresToOpen = 10;
const openFor: Millis = 5_000;

/** A caller's own deadline says something of the source only when it has been waited for that long, or half its time-out. */
const minCallerWait: Millis = 5_000;

/**
 * Where accounts are locked after wrong passwords, asking with the same one again and again would lock this one, and hold
 * it locked. Some proxies refuse single paths so, of which no answer in between tells the difference.
 */
const authBackoff = { inRow: 3, first: 1_000, longest: 300_000 } as const;

/** Tokens of the budget: each request brings one, and a retry costs ten, so that three may come at once. */
const budgetLimit = 30;
const retryCost = 10;
/** An overloaded source is asked again a little later, and not by all at the same moment. */
const longestPause: Millis = 200;

export function createGuard(
  backend: string,
  { timeout, concurrent, queued }: GuardSettings,
  io: Pick<IO, "requested">,
): Guard {
  const clock = () => performance.now();
  const resting = () =>
    new BackendError(backend, "unreachable", "it failed repeatedly and is given a moment's rest");
  const places = createBulkhead(concurrent, queued);
  const opened = () => places.rejectWaiting(resting());
  const breaker = createBreaker({ failures: failuresToOpen, openFor, onOpen: opened, clock });
  const refusals = createAuthBackoff({ ...authBackoff, clock });
  const stillRefused = () =>
    new BackendError(
      backend,
      "denied",
      "status 401 to all lately: it is not asked with these credentials for now",
      {
        status: 401,
      },
    );
  let budget = budgetLimit;

  /** Settles when the deadline passes or the caller leaves, also where the request does not heed its signal. */
  async function attempt<T>(
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    saw: (sign: BreakerOutcome) => void,
    witness: AttemptObserver | undefined,
  ): Promise<T> {
    const started = clock();
    const seen = witness?.();
    const limit = new AbortController();
    const timer = setTimeout(
      () => limit.abort(new BackendError(backend, "timeout", `no answer within ${timeout} ms`)),
      timeout,
    );
    const leave = () => limit.abort(signal.reason);
    signal.addEventListener("abort", leave, { once: true });
    const over = (sign: BreakerOutcome, outcome: "ok" | Failure) => {
      saw(sign);
      io.requested(backend, outcome, clock() - started);
      seen?.over(outcome);
    };
    try {
      const result = await raceAbort(
        runInSpan(seen?.step, () => request(limit.signal)),
        limit.signal,
      );
      over("alive", "ok");
      refusals.record(false, started);
      return result;
    } catch (cause) {
      const error = limit.signal.aborted ? limit.signal.reason : cause;
      if (signal.aborted) {
        const late = error instanceof BackendError && error.failure === "timeout";
        if (late && clock() - started >= Math.min(minCallerWait, timeout / 2)) over("dead", "timeout");
        else {
          saw("unknown");
          seen?.over("abandoned");
        }
        throw error;
      }
      // The answer was good, and too large for whoever reads it: no failure of the source.
      if (error instanceof Refused) {
        over("alive", "ok");
        throw error;
      }
      const failed = toBackendError(backend, error);
      over(breakerFailures.includes(failed.failure) ? "dead" : "alive", failed.failure);
      if (failed.status !== undefined && failed.status < 500) refusals.record(failed.status === 401, started);
      throw failed;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
    }
  }

  async function once<T>(
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    witness: AttemptObserver | undefined,
    failed: (error: unknown) => void,
  ): Promise<T> {
    if (breaker.isOpen()) throw resting();
    const release = await places.acquire(signal).catch((error: unknown) => {
      if (error instanceof QueueFullError)
        throw new BackendError(backend, "overloaded", error.message, error);
      throw error;
    });
    try {
      signal.throwIfAborted();
      const saw = breaker.enter();
      if (saw === undefined) throw resting();
      if (refusals.isBlocked()) {
        saw("unknown");
        throw stillRefused();
      }
      return await attempt(signal, request, saw, witness).catch((error: unknown) => {
        failed(error);
        throw error;
      });
    } finally {
      release();
    }
  }

  /** How long to wait before the second try; undefined where there is none. */
  function pauseAfter(error: unknown): Millis | undefined {
    if (!(error instanceof BackendError) || budget < retryCost) return undefined;
    if (error.failure === "unreachable") return 0;
    // A source that says when to come back is taken at its word, by the client.
    if (error.failure !== "overloaded" || error.retryAfterSeconds !== undefined) return undefined;
    return Math.random() * longestPause;
  }

  return {
    async run(repeatable, signal, request, describe) {
      signal.throwIfAborted();
      budget = Math.min(budgetLimit, budget + 1);
      // Now: what waits for a place is begun by whoever leaves one.
      const witness = createAttemptObserver(backend, describe, findCurrentRecorder(), findCurrentSpan());
      // Only what came of asking: a queue that is full, or a rest, is not mended by another try.
      let failure: unknown;
      try {
        return await once(signal, request, witness, (error) => {
          failure = error;
        });
      } catch (error) {
        signal.throwIfAborted();
        const pause = repeatable && failure === error ? pauseAfter(error) : undefined;
        if (pause === undefined) throw error;
        budget -= retryCost;
        if (pause > 0) await sleep(pause, signal);
        return await once(signal, request, witness, () => {});
      }
    },
  };
}

/** Begins one try of a request, for whoever wants to know of it: who explains, and the program's own trace. */
type AttemptObserver = () => {
  readonly step: OwnSpan | undefined;
  readonly over: (outcome: RecordedRequest["outcome"]) => void;
};

function createAttemptObserver(
  backend: string,
  describe: () => BackendRequest,
  recorder: Recorder | undefined,
  parent: OwnSpan | undefined,
): AttemptObserver | undefined {
  if (recorder === undefined && parent === undefined) return undefined;
  return () => {
    const started = performance.now();
    const step = parent?.startChild();
    return {
      step,
      over(outcome) {
        recorder?.sent({ ...describe(), backend, started, took: performance.now() - started, outcome });
        if (step?.sampled !== true) return;
        // Neither parameters nor the body: these hold what users look for.
        const { method, path } = describe();
        const http = { "http.request.method": method, "url.path": path.slice(0, maxPathChars) };
        const failed = outcome === "ok" || outcome === "abandoned" ? undefined : outcome;
        step.end(method, { ...http, "readout.backend": backend, "readout.outcome": outcome }, failed);
      },
    };
  };
}

/** What a trace tells of a path, which may list many indices. */
const maxPathChars = 256;

export async function sleep(duration: Millis, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, duration);
  try {
    await raceAbort(promise, signal);
  } finally {
    clearTimeout(timer);
  }
}

/** What a source says in `Retry-After`, where it says it in seconds. */
export function readRetryAfter(header: unknown): number | undefined {
  return typeof header === "string" && /^\d{1,4}$/.test(header) ? Number(header) : undefined;
}

const unreachablePattern =
  /ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EPROTO|CERT_|_CERT|LEAF_SIGNATURE|ERR_(?:SSL|TLS)_|UND_ERR_(?:SOCKET|CONNECT)|socket hang up|other side closed/i;

/** A failure of the transport; anything that cannot be told apart is an answer that cannot be read. */
export function toBackendError(backend: string, cause: unknown): BackendError {
  if (cause instanceof BackendError) return cause;
  const texts: string[] = [];
  for (let error: unknown = cause; error instanceof Error && texts.length < 8; error = error.cause) {
    texts.push(`${error.name}: ${error.message}`, String((error as { code?: unknown }).code ?? ""));
  }
  const text = texts.filter((part) => part !== "").join("; ");
  if (/ConnectionError|NoLivingConnections/.test(text) || unreachablePattern.test(text)) {
    return new BackendError(backend, "unreachable", text, { cause });
  }
  if (/TimeoutError/.test(text)) return new BackendError(backend, "timeout", text, { cause });
  return new BackendError(backend, "malformed", text === "" ? String(cause) : text, { cause });
}

/** Settles with `sharedOptions`, or rejects as soon as this caller leaves. */
export async function raceAbort<T>(shared: Promise<T>, signal: AbortSignal): Promise<T> {
  // Of a caller who had left before, the failure is nobody's.
  if (signal.aborted) shared.catch(() => {});
  signal.throwIfAborted();
  const left = Promise.withResolvers<never>();
  const leave = () => left.reject(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  try {
    return await Promise.race([shared, left.promise]);
  } finally {
    signal.removeEventListener("abort", leave);
  }
}

let lastTurn: Promise<unknown> = Promise.resolve();
/**
 * Reading an answer is work without a wait. Of all that have arrived, from whatever source, one piece is read in each
 * turn of the event loop, so that many large ones together hold up no small request.
 */
export function yieldToEventLoop(): Promise<unknown> {
  lastTurn = lastTurn.then(() => new Promise((resolve) => setImmediate(resolve)));
  return lastTurn;
}
