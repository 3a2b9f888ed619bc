// Records what happens below a store while a request is explained: each backend request, and how many documents it read.
// The recorder is ambient (`AsyncLocalStorage`), so that no method of a store has to pass it on. Without a recorder it
// costs one look-up for each backend request.
import { AsyncLocalStorage } from "node:async_hooks";
import type { Failure } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";

/** A request as it is sent, without its headers, which hold the credentials. */
export interface BackendRequest {
  readonly method: string;
  /** Relative to the address of the source. */
  readonly path: string;
  readonly parameters?: Readonly<Record<string, string>> | undefined;
  /** JSON text. */
  readonly body?: string | undefined;
}

export interface RecordedRequest extends BackendRequest {
  readonly backend: string;
  /** By `performance.now()`. */
  readonly started: Millis;
  readonly took: Millis;
  /** `abandoned` where the response was no longer needed, such as a page that was read ahead. */
  readonly outcome: "ok" | "abandoned" | Failure;
}

/** Which of several ways to the same answer a store has taken. */
export interface Choice {
  readonly backend: string;
  /** What was asked for, such as the name of a metric, or of an analysis of spans. */
  readonly of: string;
  readonly how: string;
  readonly why: string;
  /** Where the ways differ over the range. */
  readonly ranges?: readonly ChosenRange[];
}

export interface ChosenRange {
  readonly from: string;
  readonly to: string;
  readonly how: string;
  readonly why: string;
}

export interface Recorder {
  /** A backend request has ended. A retry is recorded as a second request. */
  readonly recordRequest: (request: RecordedRequest) => void;
  /** Documents were read, each counted once; `kept` of them are rows, where the store knows. */
  readonly recordDocuments: (part: { source?: string; documents: number; kept?: number }) => void;
  /** A source of metrics sent this many series, with this many samples in all. */
  readonly recordSamples: (part: { backend: string; series: number; samples: number }) => void;
  readonly recordChoice?: (choice: Choice) => void;
}

const recorders = new AsyncLocalStorage<Recorder>();

/**
 * Returns the recorder of the current work. Code that puts work into a queue must call it before: the queue may run on
 * behalf of another request.
 */
export function findCurrentRecorder(): Recorder | undefined {
  return recorders.getStore();
}

/** Runs the work, and all asynchronous work that it begins, with the recorder. */
export function runWithRecorder<T>(recorder: Recorder, work: () => T): T {
  return recorders.run(recorder, work);
}
