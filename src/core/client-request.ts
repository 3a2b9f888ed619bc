// The client's request behind a signal. Stores are told neither whose request they read for nor how it gets on; they pass its
// signal on to whatever they ask a source.
import { findOriginalSignal } from "./concurrency.ts";
import type { ReadProgress } from "./read-progress.ts";

export interface ClientRequest {
  /** Whose it is, as in `Principal`. */
  readonly account: string;
  readonly progress: ReadProgress;
}

const requests = new WeakMap<AbortSignal, ClientRequest>();

export function noteClientRequest(signal: AbortSignal, request: ClientRequest): void {
  requests.set(signal, request);
}

/** Undefined for work of the program's own, such as what is read once for all who wait for it. */
export function findClientRequest(signal: AbortSignal): ClientRequest | undefined {
  return requests.get(findOriginalSignal(signal));
}
