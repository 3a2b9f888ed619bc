// What the body of an answer is before it is sent.

/** A completed body, at once or in pieces: a text of megabytes costs more to put together than to write. */
export type CompleteBody = string | Uint8Array | readonly string[];
/** A streamed body. Reading throws when the answer breaks off. Whoever is handed one must begin to read it. */
export interface StreamedBody {
  readonly next: () => Promise<IteratorResult<string | Uint8Array, void>>;
  readonly cancel: () => Promise<void>;
  /** Aborted when there is no more point in writing, also while nothing is being read. */
  readonly signal: AbortSignal;
}
