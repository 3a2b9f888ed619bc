// What every request to a source passes through: a place in the bulkhead, the breaker, a deadline, and for reads a
// second try within a budget. Each way of failing comes out as one `BackendError`.
import {
  BrokenCircuitError,
  BulkheadRejectedError,
  bulkhead,
  ConsecutiveBreaker,
  circuitBreaker,
  handleWhen,
} from "cockatiel";
import { BackendError, type Failure, Refused } from "../src/errors.ts";
import { type Asked, type Recorder, recording, type SentRequest } from "../src/explain.ts";
import type { IO } from "../src/store.ts";
import type { Millis } from "../src/time.ts";

export interface GuardSettings {
  readonly timeout: Millis;
  /** Requests under way at once, and how many may wait for a place. */
  readonly concurrent: number;
  readonly queued: number;
}

export const guardDefaults: GuardSettings = { timeout: 10_000, concurrent: 32, queued: 256 };

export interface Guard {
  /**
   * Runs one request under its own deadline. `idempotent` requests are tried once more after a failure that a second
   * try can mend, while retries stay below a tenth of the traffic. `describe` tells what is sent, where it is recorded.
   * @throws {BackendError} or the signal's reason when the caller has left
   */
  run<T>(
    idempotent: boolean,
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    describe: () => Asked,
  ): Promise<T>;
}

/** Failures that say something of the source's health, so that a breaker may open on them. */
const opening: readonly Failure[] = ["unreachable", "timeout"];
const retried: readonly Failure[] = ["unreachable", "overloaded"];

export function createGuard(backend: string, settings: GuardSettings, io: IO): Guard {
  const places = bulkhead(settings.concurrent, settings.queued);
  const breaker = circuitBreaker(
    handleWhen((error) => error instanceof BackendError && opening.includes(error.failure)),
    { halfOpenAfter: 5_000, breaker: new ConsecutiveBreaker(10) },
  );
  // A token for each request, ten for a retry, so that retries never double the load on a source in trouble.
  let budget = 30;

  async function attempt<T>(
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    sent: ((outcome: SentRequest["outcome"], started: Millis) => void) | undefined,
  ): Promise<T> {
    const started = performance.now();
    const deadline = AbortSignal.timeout(settings.timeout);
    try {
      const result = await request(AbortSignal.any([signal, deadline]));
      io.requested(backend, "ok", performance.now() - started);
      sent?.("ok", started);
      return result;
    } catch (cause) {
      if (signal.aborted) sent?.("abandoned", started);
      signal.throwIfAborted();
      // The answer was good, and too large for whoever reads it: no failure of the source.
      if (cause instanceof Refused) {
        io.requested(backend, "ok", performance.now() - started);
        sent?.("ok", started);
        throw cause;
      }
      const error = deadline.aborted
        ? new BackendError(backend, "timeout", `no answer within ${settings.timeout} ms`, cause)
        : toBackendError(backend, cause);
      io.requested(backend, error.failure, performance.now() - started);
      sent?.(error.failure, started);
      throw error;
    }
  }

  async function run<T>(
    idempotent: boolean,
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<T>,
    describe: () => Asked,
  ): Promise<T> {
    signal.throwIfAborted();
    budget = Math.min(30, budget + 1);
    // Now: what waits for a place is begun by whoever leaves one.
    const sent = reporting(backend, describe, recording());
    try {
      return await places.execute(() => breaker.execute(() => attempt(signal, request, sent)), signal);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof BulkheadRejectedError) {
        throw new BackendError(
          backend,
          "overloaded",
          `more than ${settings.queued} requests wait for it`,
          error,
        );
      }
      if (error instanceof BrokenCircuitError) {
        throw new BackendError(
          backend,
          "unreachable",
          "it failed repeatedly and is given a moment's rest",
          error,
        );
      }
      if (idempotent && error instanceof BackendError && retried.includes(error.failure) && budget >= 10) {
        budget -= 11;
        return run(false, signal, request, describe);
      }
      throw error;
    }
  }

  return { run };
}

function reporting(backend: string, describe: () => Asked, recorder: Recorder | undefined) {
  if (recorder === undefined) return undefined;
  return (outcome: SentRequest["outcome"], started: Millis) =>
    recorder.sent({ ...describe(), backend, started, took: performance.now() - started, outcome });
}

const unreachable =
  /ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EPROTO|CERT_|_CERT|LEAF_SIGNATURE|ERR_(?:SSL|TLS)_|UND_ERR_(?:SOCKET|CONNECT)|socket hang up|other side closed/i;

/** A failure of the transport; anything that cannot be told apart is an answer that cannot be read. */
export function toBackendError(backend: string, cause: unknown): BackendError {
  if (cause instanceof BackendError) return cause;
  const texts: string[] = [];
  for (let error: unknown = cause; error instanceof Error && texts.length < 8; error = error.cause) {
    texts.push(`${error.name}: ${error.message}`, String((error as { code?: unknown }).code ?? ""));
  }
  const text = texts.filter((part) => part !== "").join("; ");
  if (/ConnectionError|NoLivingConnections/.test(text) || unreachable.test(text)) {
    return new BackendError(backend, "unreachable", text, cause);
  }
  if (/TimeoutError/.test(text)) return new BackendError(backend, "timeout", text, cause);
  return new BackendError(backend, "malformed", text === "" ? String(cause) : text, cause);
}

/** Settles with `shared`, or rejects as soon as this caller leaves. */
export async function orAborted<T>(shared: Promise<T>, signal: AbortSignal): Promise<T> {
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
