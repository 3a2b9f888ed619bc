// What happens below a store while a request is being explained: each request to a source, and the documents that came.
// The recorder is ambient: it follows all asynchronous work that begins within `record`, so that the contract of the
// stores stays as it is, and where nobody records, the one look-up for each request to a source is all that it costs.
import { AsyncLocalStorage } from "node:async_hooks";
import type { Failure } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";

/** A request as it is sent, but for its headers: these hold credentials, and nothing else does. */
export interface BackendRequest {
  readonly method: string;
  /** Below the address of the source. */
  readonly path: string;
  readonly parameters?: Readonly<Record<string, string>> | undefined;
  /** JSON text. */
  readonly body?: string | undefined;
}

export interface RecordedRequest extends BackendRequest {
  readonly backend: string;
  /** As `performance.now()` tells it. */
  readonly started: Millis;
  readonly took: Millis;
  /** `abandoned` when nobody wanted its answer any more, as that of a page read ahead. */
  readonly outcome: "ok" | "abandoned" | Failure;
}

export interface Recorder {
  /** A request to a source is over. One that was tried twice comes twice. */
  readonly sent: (request: RecordedRequest) => void;
  /** So many documents were read, each counted once, and so many of them are rows where the store tells. */
  readonly read: (part: { source?: string; documents: number; kept?: number }) => void;
  /** The same of a source of metrics: so many series came with so many samples in all. */
  readonly sampled: (part: { backend: string; series: number; samples: number }) => void;
}

const recorders = new AsyncLocalStorage<Recorder>();

/**
 * The recorder of the work that the caller is part of. Whoever hands work to a queue asks before: what runs there may
 * be begun by another request.
 */
export function findCurrentRecorder(): Recorder | undefined {
  return recorders.getStore();
}

/** Runs the work, and whatever it begins, under the recorder. */
export function runWithRecorder<T>(recorder: Recorder, work: () => T): T {
  return recorders.run(recorder, work);
}
