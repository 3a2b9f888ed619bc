// Reads lines for a tail or for all tails of a poller, a batch at a time.
import { combineSignals, findClientRequest } from "../core/async/concurrency.ts";
import type { HeldBytes } from "../core/async/held-bytes.ts";
import { BackendError, TooMany } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import type { Millis, TimeRange } from "../core/time.ts";
import type { Filter } from "../log-query/ast.ts";
import { type ExportQuery, limitExport } from "../operations/logs/lines.ts";
import { type RequestLifetime, startRequest } from "../operations/runtime/lifetime.ts";
import type { LogEvent } from "../store/backend.ts";
import type { LogQuery, LogSource, LogStore } from "../store/logs.ts";

/**
 * Whose the work is that is done for several tails at once. Were it of one of their clients, that one would be refused for what
 * others follow, and were it of nobody, it would wait for all that is.
 */
export const sharedAccount = "tails";

/** What is read, and within which bounds. */
export interface LineSource {
  readonly store: LogStore;
  readonly sources: readonly [LogSource, ...LogSource[]];
  /** Of each batch. */
  readonly deadline: Millis;
  readonly tieLimit: number;
  /** Counts what one reading holds of documents for this account. */
  readonly openHeld: (account: string) => HeldBytes;
}

/** A hint to the store: one search answers a usual poll. */
const expectedLinesHint = 10_000;

interface ReadOptions {
  /** Called whenever the store makes progress. */
  readonly heard?: () => void;
  /** How many documents may be read, as for an export. Absent: a tail reads for ever, and one poll runs at a time. */
  readonly exportLimit?: number | undefined;
}

/**
 * Yields batches of lines by time. The deadline counts for each batch.
 * @throws {Unprocessable} {BackendError} {TooMany}
 */
export async function* readLines(
  { store, sources, deadline, tieLimit, openHeld }: LineSource,
  filter: Filter,
  range: TimeRange,
  signal: AbortSignal,
  { heard, exportLimit }: ReadOptions = {},
): AsyncGenerator<readonly LogLine[]> {
  const leaving = new AbortController();
  const limited = combineSignals(signal, leaving.signal);
  let step: RequestLifetime | undefined;
  const progressed = () => {
    step?.reportProgress();
    heard?.();
  };
  const waitForStep = <T>(promise: Promise<T>): Promise<T> => {
    step = startRequest(limited, deadline);
    return step.wait(promise).finally(step.end);
  };
  const held = openHeld(findClientRequest(signal)?.account ?? sharedAccount);
  const all: ExportQuery = { sources, range, filter, order: "asc", tieLimit, held, progressed };
  let rows: AsyncIterator<readonly LogLine[]> | undefined;
  try {
    const query: LogQuery =
      exportLimit === undefined
        ? { ...all, expectedLines: expectedLinesHint, documentLimit: Number.MAX_SAFE_INTEGER }
        : await waitForStep(limitExport(store, all, exportLimit, limited));
    rows = store.lines(query, limited)[Symbol.asyncIterator]();
    for (;;) {
      const next = await waitForStep(rows.next());
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    leaving.abort(new Error("the reader has stopped"));
    rows?.return?.()?.catch(() => {});
    held.release();
  }
}

/** Tells operators why a reading has failed, which is repeated after `rest`. */
export function logFailure(log: (event: LogEvent) => void, error: unknown, rest: Millis): void {
  const level = error instanceof BackendError || error instanceof TooMany ? "warn" : "error";
  log({ level, message: "tail: reading failed", err: error, rest });
}
