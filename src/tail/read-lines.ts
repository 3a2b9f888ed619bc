// Reads lines for a tail or for all tails of a poller, a batch at a time.
import { combineSignals } from "../core/async/concurrency.ts";
import type { LogLine } from "../core/rows.ts";
import type { Millis, TimeRange } from "../core/time.ts";
import type { Filter } from "../log-query/ast.ts";
import { type ExportQuery, limitExport } from "../operations/logs/lines.ts";
import { type RequestLifetime, startRequest } from "../operations/runtime/lifetime.ts";
import type { LogQuery, LogSource, LogStore } from "../store/logs.ts";

/** What is read, and within which bounds. */
export interface LineSource {
  readonly store: LogStore;
  readonly sources: readonly [LogSource, ...LogSource[]];
  /** Of each batch. */
  readonly deadline: Millis;
  readonly tieLimit: number;
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
 * @throws {Unprocessable} {BackendError}
 */
export async function* readLines(
  { store, sources, deadline, tieLimit }: LineSource,
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
  const all: ExportQuery = { sources, range, filter, order: "asc", tieLimit, progressed };
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
  }
}
