// What keeps a source in trouble to itself: a bound on the requests that it has under way, with a queue before it, and
// a breaker. Written here and not taken from a library, because of three things that the ones we tried do otherwise:
// a caller who leaves the queue gives up his place in it at once, a probe that its caller breaks off has proved
// nothing, and nobody waits for somebody else's probe.
import type { Millis } from "../../src/core/time.ts";

// ---- Places -------------------------------------------------------------------------------------------------

interface Bulkhead {
  /**
   * Takes a place, at once or when it is one's turn. The result gives it back and is called once.
   * Rejects with the signal's reason when the caller leaves the queue.
   * @throws {QueueFullError}
   */
  acquire(signal: AbortSignal): Promise<() => void>;
  /** Sends away all who wait. */
  rejectWaiting(reason: unknown): void;
}

/** All places are taken, and as many wait as may. */
export class QueueFullError extends Error {
  override readonly name = "QueueFull";
}

interface Waiting {
  readonly enter: () => void;
  readonly refuse: (reason: unknown) => void;
}

export function createBulkhead(concurrent: number, queued: number): Bulkhead {
  let taken = 0;
  // In the order of arrival.
  const waiting = new Set<Waiting>();

  function release(): void {
    const [next] = waiting;
    if (next === undefined) taken -= 1;
    else next.enter();
  }

  return {
    acquire: async (signal) => {
      signal.throwIfAborted();
      if (taken < concurrent) {
        taken += 1;
        return release;
      }
      if (waiting.size >= queued) throw new QueueFullError(`more than ${queued} requests wait for it`);
      const turn = Promise.withResolvers<void>();
      const leave = () => entry.refuse(signal.reason);
      const over = () => {
        waiting.delete(entry);
        signal.removeEventListener("abort", leave);
      };
      const entry: Waiting = {
        enter: () => {
          over();
          turn.resolve();
        },
        refuse: (reason) => {
          over();
          turn.reject(reason);
        },
      };
      waiting.add(entry);
      signal.addEventListener("abort", leave, { once: true });
      await turn.promise;
      return release;
    },
    rejectWaiting: (reason) => {
      for (const entry of [...waiting]) entry.refuse(reason);
    },
  };
}

// ---- Breaker ------------------------------------------------------------------------------------------------

/** What a request showed of its source: it answered, it did not, or its caller left before it could tell. */
export type BreakerOutcome = "alive" | "dead" | "unknown";

interface Breaker {
  /** Whether `enter` would let nobody in. */
  isOpen(): boolean;
  /** Undefined while the source is given a rest. Otherwise the result is called once, with what came of the request. */
  enter(): ((sign: BreakerOutcome) => void) | undefined;
}

interface BreakerSettings {
  /** So many requests in a row without an answer open it. */
  readonly failures: number;
  /** For so long nothing is asked. Then one request is let through, and what comes of it decides. */
  readonly openFor: Millis;
  readonly onOpen: () => void;
  /** Never goes back, in milliseconds. */
  readonly clock: () => Millis;
}

export function createBreaker({ failures, openFor: rest, onOpen: opened, clock }: BreakerSettings): Breaker {
  let inARow = 0;
  let restsUntil: Millis | undefined;
  let probing = false;

  const rests = () => restsUntil !== undefined && (probing || clock() < restsUntil);

  return {
    isOpen: rests,
    enter() {
      if (rests()) return undefined;
      const probe = restsUntil !== undefined;
      probing = probe;
      return (sign) => {
        if (probe) probing = false;
        if (sign === "alive") {
          // Also the late answer to a request from before the rest: it answers.
          inARow = 0;
          restsUntil = undefined;
        } else if (sign === "dead") {
          inARow += 1;
          // What still fails of the requests from before the rest does not make it longer.
          if (!probe && (inARow < failures || restsUntil !== undefined)) return;
          restsUntil = clock() + rest;
          opened();
        }
      };
    },
  };
}

// ---- Refused credentials ------------------------------------------------------------------------------------

interface AuthBackoff {
  /** Whether nothing should be asked. False lets one caller try, and nobody else until that is answered or due again. */
  isBlocked(): boolean;
  /** What a request that began at `started` was answered: refused, or not. */
  record(refused: boolean, started: number): void;
}

/** Rests after `inRow` refusals without another answer, each time for twice as long. */
export function createAuthBackoff({
  inRow,
  first,
  longest,
  clock,
}: {
  readonly inRow: number;
  readonly first: Millis;
  readonly longest: Millis;
  readonly clock: () => number;
}): AuthBackoff {
  let seen = 0;
  let rest: Millis = 0;
  let until = Number.NEGATIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  return {
    isBlocked() {
      if (rest === 0) return false;
      if (clock() < until) return true;
      until = clock() + rest;
      return false;
    },
    record(refused, started) {
      if (!refused) {
        seen = 0;
        rest = 0;
        return;
      }
      seen += 1;
      // What was under way together is one refusal.
      if (seen < inRow || (rest > 0 && started < last)) return;
      rest = rest === 0 ? first : Math.min(longest, rest * 2);
      last = clock();
      until = last + rest;
    },
  };
}
