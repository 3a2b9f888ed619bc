// Rollups: figures of spans that Readout keeps at a source, so that all instances share them and none is lost with a process.
// A store holds texts under ids and does not know what they mean. `src/tracing/rollup-store/` does.
import type { Millis } from "../core/time.ts";

/**
 * The promises of every store (`backend.ts`) hold here, but for rows. Reading, creating and replacing see what was written
 * last. `list` may be some seconds behind.
 */
export interface RollupStore {
  /** Returns the documents with these ids, in any order. Those that are not there are left out. @throws {BackendError} */
  read(ids: readonly string[], signal: AbortSignal): Promise<readonly StoredDocument[]>;
  /** Writes documents whose ids are new. A document with a known id stays as it is. @throws {BackendError} */
  create(documents: readonly NewDocument[], signal: AbortSignal): Promise<void>;
  /**
   * Writes a document if it is as it was read: with this revision, or not there where that is undefined. Returns false where
   * it is not, and changes nothing then. @throws {BackendError}
   */
  replace(document: NewDocument, revision: string | undefined, signal: AbortSignal): Promise<boolean>;
  /** Returns what there is, without bodies, in batches in any order. @throws {BackendError} */
  list(signal: AbortSignal): AsyncIterable<readonly ListedDocument[]>;
  /** Deletes documents; those that are not there are no error. @throws {BackendError} */
  remove(ids: readonly string[], signal: AbortSignal): Promise<void>;
}

export interface NewDocument extends ListedDocument {
  readonly body: string;
}

export interface StoredDocument {
  readonly id: string;
  readonly body: string;
  /** Changes with each `replace`. */
  readonly revision: string;
}

export interface ListedDocument {
  /** At most 200 letters, digits, `-`, `_` and `.`. */
  readonly id: string;
  /** The site whose figures it holds; empty for what belongs to none. */
  readonly site: string;
  /** When it was made, since 1970. */
  readonly made: Millis;
}
