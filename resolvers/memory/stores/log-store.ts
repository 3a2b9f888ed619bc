// Log lines in arrays sorted by time, and `matches` for every one of them. It is the oracle that other stores are
// compared with, so it prefers being plainly right over being fast.

import { createPause, takeSteps } from "../../../src/core/async/turns.ts";
import { findLowerBound } from "../../../src/core/collections.ts";
import { Refused } from "../../../src/core/errors.ts";
import { compare, compareLines, type LogLine } from "../../../src/core/rows.ts";
import { floorToMilli, type Instant, type TimeRange } from "../../../src/core/time.ts";
import { listComparisons } from "../../../src/log-query/ast.ts";
import { compileSteppedMatcher } from "../../../src/log-query/matches.ts";
import type { LogQuery, LogStore } from "../../../src/store/logs.ts";
import { findCurrentRecorder, type Recorder } from "../../../src/telemetry/request-recorder.ts";

/** A line before a source has claimed it: which `source_id` it gets depends on who asks. */
export type StoredLine = Omit<LogLine, "source_id">;

export interface MemoryLogs extends LogStore {
  /** Adds lines to an index, in any order and also late. They must not change afterwards. */
  readonly add: (index: string, lines: readonly StoredLine[]) => void;
  /** Forgets the index's lines before this instant. */
  readonly forget: (index: string, before: Instant) => void;
  /** The names of the indices that hold or held lines. */
  readonly indices: () => readonly string[];
  readonly newest: (index: string) => Instant | undefined;
}

/** Lines of a batch, but for the rest of its last millisecond. */
const batchSize = 500;

export function createMemoryLogs(): MemoryLogs {
  /** By `compareStoredLines`. Arrays are replaced or grown at their end only, so a reader's slice stays what it was. */
  const indices = new Map<string, StoredLine[]>();

  function add(index: string, lines: readonly StoredLine[]): void {
    const added = [...lines].sort(compareStoredLines);
    const held = indices.get(index) ?? [];
    const [first] = added;
    // Nearly all lines come in order; late ones are merged with those that are not older than the first of them.
    const from =
      first === undefined ? held.length : findLowerBound(held, (line) => compareStoredLines(line, first) > 0);
    if (from === held.length) {
      for (const line of added) held.push(line);
      indices.set(index, held);
    } else {
      const merged = [...held.slice(from), ...added].sort(compareStoredLines);
      indices.set(index, [...held.slice(0, from), ...merged]);
    }
  }

  return {
    add,
    lines: (query, signal) => readLines(indices, query, signal),
    isWithinLimits: async ({ sources, range, documentLimit, tieLimit, budget = { documents: 0 } }) => {
      for (const { index } of sources) budget.documents += sliceRange(indices.get(index) ?? [], range).length;
      return budget.documents <= Math.min(documentLimit, tieLimit);
    },
    explain: async ({ sources, filter }) =>
      sources.map((source) => ({
        source,
        layout: "memory",
        indices: indices.has(source.index) ? [source.index] : [],
        leaves: listComparisons(filter).map((leaf) => ({
          leaf,
          by: "documents",
          why: "there is no index",
          indices: [],
        })),
        notes: ["lines are kept in memory, and each of the range is looked at"],
      })),
    forget: (index, before) => {
      const held = indices.get(index) ?? [];
      const from = findLowerBound(held, (line) => line.time >= before);
      if (from > 0) indices.set(index, held.slice(from));
    },
    indices: () => [...indices.keys()],
    newest: (index) => indices.get(index)?.at(-1)?.time,
  };
}

async function* readLines(
  indices: ReadonlyMap<string, readonly StoredLine[]>,
  query: LogQuery,
  signal: AbortSignal,
): AsyncGenerator<readonly LogLine[]> {
  signal.throwIfAborted();
  const matches = compileSteppedMatcher(query.filter);
  const recorder = findCurrentRecorder();
  const pause = createPause(signal);
  let batch: LogLine[] = [];
  // The open millisecond, and how many lines of it are in the batch.
  let start: Instant | undefined;
  let tied = 0;
  const { documentLimit, budget = { documents: 0 } } = query;
  const moments = query.moments && new Set(query.moments);
  for (const line of mergeSources(indices, query)) {
    const paused = pause();
    if (paused !== undefined) await paused;
    if (moments?.has(floorToMilli(line.time)) === false) continue;
    budget.documents += 1;
    if (budget.documents > documentLimit)
      throw createTooLargeError("documents would have to be read", documentLimit);
    const found = matches(line);
    const isKept = typeof found === "boolean" ? found : await takeSteps(found, signal);
    recordLine(recorder, line, isKept);
    if (!isKept) continue;
    if (floorToMilli(line.time) !== start) {
      if (batch.length >= batchSize) {
        yield batch;
        signal.throwIfAborted();
        batch = [];
      }
      start = floorToMilli(line.time);
      tied = 0;
    }
    tied += 1;
    if (tied > query.tieLimit) throw createTooLargeError("lines of one millisecond match", query.tieLimit);
    batch.push(line);
  }
  if (batch.length > 0) yield batch;
}

function recordLine(recorder: Recorder | undefined, { source_id }: LogLine, isKept: boolean): void {
  recorder?.recordDocuments({ source: source_id, documents: 1, kept: isKept ? 1 : 0 });
}

/**
 * The lines of all sources in the query's order. What is there now: lines that come while the answer is read are
 * not part of it.
 */
function* mergeSources(
  indices: ReadonlyMap<string, readonly StoredLine[]>,
  { sources, range, order }: LogQuery,
): Generator<LogLine> {
  const heads = sources.flatMap(({ id, index }) => {
    const held = sliceRange(indices.get(index) ?? [], range);
    const lines = (order === "asc" ? held : held.toReversed()).values();
    const next = (): LogLine | undefined => {
      const entry = lines.next();
      return entry.done === true ? undefined : { ...entry.value, source_id: id };
    };
    const line = next();
    return line === undefined ? [] : [{ line, next }];
  });
  const sign = order === "asc" ? 1 : -1;
  while (heads.length > 0) {
    const head = heads.reduce((best, other) =>
      sign * compareLines(other.line, best.line) < 0 ? other : best,
    );
    yield head.line;
    const line = head.next();
    if (line === undefined) heads.splice(heads.indexOf(head), 1);
    else head.line = line;
  }
}

function sliceRange(lines: readonly StoredLine[], { from, to }: TimeRange): readonly StoredLine[] {
  return lines.slice(
    findLowerBound(lines, (line) => line.time >= from),
    findLowerBound(lines, (line) => line.time > to),
  );
}

function createTooLargeError(what: string, limit: number): Refused {
  const message = `More than ${limit} ${what}; narrow the range, the query or the sources`;
  return new Refused("result_too_large", message, { limit });
}

/** As `compareLines`, within one index. */
function compareStoredLines(a: StoredLine, b: StoredLine): number {
  return compare(a.time, b.time) || compare(a.id, b.id);
}
