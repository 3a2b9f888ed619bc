// A circuit breaker. Not from a library, because those that were tried differ in two ways: here a probe whose caller leaves
// proves nothing, and nobody waits for the probe of another caller.
import type { Millis } from "../../src/core/time.ts";
import type { Account } from "./bulkhead.ts";

/** What a request showed of its backend: it answered, it did not, or the caller left before either. */
export type BreakerOutcome = "alive" | "dead" | "unknown";

export interface CircuitBreaker {
  /** Whether `enter` would let nothing of the account through. */
  isOpen(account: Account): boolean;
  /** Undefined while the breaker is open. Otherwise the returned function is called once, with the outcome of the request. */
  enter(account: Account): ((outcome: BreakerOutcome) => void) | undefined;
}

interface BreakerSettings {
  /**
   * The number of failures that opens it when nothing is answered in between. What fails although another request was
   * answered since it was sent does not count: the backend lives, and one client's slow requests that end together would
   * else close it to all. Where only one account has asked meanwhile, it opens for that one alone: its requests may be slow
   * because of what they ask for. Once those of a second account have failed, it is open for all.
   */
  readonly failures: number;
  /**
   * How long no request is let through. Then one probe of each account is, and their outcomes decide: where the one that comes
   * first is slow because of what it asks for, an answer to another opens the way for all.
   */
  readonly openFor: Millis;
  readonly onOpen: () => void;
  /** A monotonic clock. */
  readonly clock: () => Millis;
}

export function createCircuitBreaker({ failures, openFor, onOpen, clock }: BreakerSettings): CircuitBreaker {
  let consecutive = 0;
  let answers = 0;
  let openUntil: Millis | undefined;
  const probing = new Set<Account>();
  /** Whose requests have failed since the last answer. */
  const failed = new Set<Account>();

  const isConcerned = (account: Account) => failed.size > 1 || failed.has(account);
  const isOpen = (account: Account) =>
    openUntil !== undefined && isConcerned(account) && (probing.has(account) || clock() < openUntil);

  return {
    isOpen,
    enter(account) {
      if (isOpen(account)) return undefined;
      const isProbe = openUntil !== undefined && isConcerned(account);
      if (isProbe) probing.add(account);
      const answersBefore = answers;
      return (outcome) => {
        if (isProbe) probing.delete(account);
        if (outcome === "alive") {
          // Also a late answer to a request that was sent before the breaker opened.
          consecutive = 0;
          answers += 1;
          openUntil = undefined;
          failed.clear();
        } else if (outcome === "dead" && answers === answersBefore) {
          consecutive += 1;
          failed.add(account);
          // Requests that were sent before the breaker opened do not keep it open for longer.
          if (!isProbe && (consecutive < failures || openUntil !== undefined)) return;
          openUntil = clock() + openFor;
          onOpen();
        }
      };
    },
  };
}
