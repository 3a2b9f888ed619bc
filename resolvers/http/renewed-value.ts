// A credential of limited life, such as an access token: asked for once, whoever waits for it, and renewed before it expires,
// while requests still go with the old one.
import type { BackendError } from "../../src/core/errors.ts";
import type { Millis } from "../../src/core/time.ts";
import { awaitNeeded } from "./waiting.ts";

/** By the clock of whoever made it. */
export interface LimitedValue<Value> {
  readonly value: Value;
  readonly renewAt: Millis;
  readonly expiresAt: Millis;
}

interface RenewedValue<Value> {
  /** One that is good now. @throws what its renewal throws, or the signal's reason */
  readonly read: (signal: AbortSignal) => Promise<Value>;
  /** Forgets one that has been refused. */
  readonly discard: (value: Value) => void;
}

interface RenewalOptions<Value> {
  /** Takes at most as long as `longestRenewal`. */
  readonly renew: () => Promise<LimitedValue<Value>>;
  /** The failure of a request whose deadline passes before the value is there. */
  readonly createLateError: () => BackendError;
  readonly clock: () => Millis;
}

interface RenewalState<Value> extends RenewalOptions<Value> {
  current: LimitedValue<Value> | undefined;
  pending: Promise<LimitedValue<Value>> | undefined;
  /** The last try, where that failed: it is not repeated at once. */
  failure: { readonly error: unknown; readonly until: Millis } | undefined;
}

/** Less than `check` waits for a source by default, so that it can say what failed. */
export const longestRenewal: Millis = 5_000;
/** How long after a failure no other is asked for. */
const failurePause: Millis = 1_000;

export function createRenewedValue<Value>(options: RenewalOptions<Value>): RenewedValue<Value> {
  const state: RenewalState<Value> = {
    ...options,
    current: undefined,
    pending: undefined,
    failure: undefined,
  };
  return {
    read: (signal) => readValue(state, signal),
    discard: (value) => {
      if (state.current?.value === value) state.current = undefined;
    },
  };
}

async function readValue<Value>(state: RenewalState<Value>, signal: AbortSignal): Promise<Value> {
  const now = state.clock();
  const { current, failure } = state;
  if (current !== undefined && now < current.renewAt) return current.value;
  const isGood = current !== undefined && now < current.expiresAt;
  if (failure !== undefined && now < failure.until) {
    if (isGood) return current.value;
    throw failure.error;
  }
  state.pending ??= renewValue(state);
  if (!isGood) return (await awaitNeeded(state.pending, signal, state.createLateError)).value;
  // The next one is told of a failure when this value is over.
  state.pending.catch(() => {});
  return current.value;
}

async function renewValue<Value>(state: RenewalState<Value>): Promise<LimitedValue<Value>> {
  try {
    const next = await state.renew();
    state.current = next;
    state.failure = undefined;
    return next;
  } catch (error) {
    state.failure = { error, until: state.clock() + failurePause };
    throw error;
  } finally {
    state.pending = undefined;
  }
}
