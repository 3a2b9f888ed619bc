// The state of reading one layout group, and what becomes of the documents that its searches return. What runs for each
// line is a function of the module: functions that are created for each request lose their compiled code.

import { createPause, type Steps, takeSteps } from "../../../src/core/async/turns.ts";
import { requireAt } from "../../../src/core/collections.ts";
import { BackendError, Refused } from "../../../src/core/errors.ts";
import { sortLines } from "../../../src/core/line-order.ts";
import type { LogLine } from "../../../src/core/rows.ts";
import { floorToMilli, type Instant, type TimeRange } from "../../../src/core/time.ts";
import { compileSteppedMatcher } from "../../../src/log-query/matches.ts";
import type { LineGrouping, LogQuery } from "../../../src/store/logs.ts";
import { findCurrentRecorder, type Recorder } from "../../../src/telemetry/request-recorder.ts";
import { copyLine } from "../document/copied-text.ts";
import type { Hit } from "../document/hit-scanner.ts";
import { decodeLine } from "../layout/line-decoder.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { describeTooWide } from "../query/filter-compiler.ts";
import { findHitSize, fitHits, pageBytes } from "../search/hit-size.ts";
import { createExportWindow, type ExportWindow } from "./export-window.ts";
import { type ReadContext, readInstant, type SearchPlan } from "./search-plan.ts";

/**
 * Hits of one search: many enough to be cheap, few enough not to delay other requests while they are decoded. Twice as many
 * cost the same, and many large pages at once then hold a third more memory. An export has an `ExportWindow` instead.
 */
export const batchSizes = { least: 100, most: 256, scroll: 1_000 } as const;

/** Of what is in the way of a query, how much a refusal says. */
const maxObstacles = 3;

/** The documents that a query has read so far, over all its sources. */
export interface ReadBudget {
  documents: number;
}

export interface GroupReader {
  readonly context: ReadContext;
  readonly budget: ReadBudget;
  /** Set for exports. */
  readonly window: ExportWindow | undefined;
  readonly matches: LineTest;
  readonly recorder: Recorder | undefined;
  /** By what the lines are counted. */
  readonly grouping: LineGrouping | undefined;
  /** How many lines this group will probably give; all that the query expects, once more than these have been asked for. */
  expectedLines: number;
  /** What a hit takes in a response; undefined before the first of its pattern. */
  bytesPerHit: number | undefined;
  /** Lines read so far. */
  lineCount: number;
  /** The share of documents that were lines, on the last page. */
  selectivity: number;
  plan: SearchPlan | undefined;
  /** Whether the first search has decided if it needs fresh mappings. */
  hasChosenFreshness: boolean;
  /** Whether a search has found a document with several times, one of them before its range, or was rejected as if it had. */
  hasSeveralTimes: boolean;
  /** False once the backend has rejected the filter's query: then the documents alone decide. */
  isFilterPushedDown: boolean;
  /** A search that was sent before its page was asked for. */
  prefetched: { readonly body: string; readonly bytes: Promise<Buffer> } | undefined;
  /** Whether a search has been answered. */
  hasResponse: boolean;
  /** The metadata by which the last response was read. */
  lastMetadata: IndexMetadata | undefined;
  /** Whether an export has read a second page, so that an index could have been deleted in between. */
  hasContinued: boolean;
}

/** Whoever expects more than one page reads on and on. */
const largestPage = 10_000;

export function createGroupReader(
  context: ReadContext,
  budget: ReadBudget,
  grouping?: LineGrouping,
): GroupReader {
  const { client, source, query } = context;
  const bytesPerHit = findHitSize(client, source.index);
  return {
    context,
    budget,
    window: query.expectedLines > largestPage ? createExportWindow(query, bytesPerHit) : undefined,
    bytesPerHit,
    matches: compileLineTest(query),
    recorder: findCurrentRecorder(),
    grouping,
    expectedLines: estimateLines(query),
    lineCount: 0,
    selectivity: 1,
    plan: undefined,
    hasChosenFreshness: false,
    hasSeveralTimes: false,
    isFilterPushedDown: true,
    prefetched: undefined,
    hasResponse: false,
    lastMetadata: undefined,
    hasContinued: false,
  };
}

/** To read so many lines for nothing costs more than the second request of those groups that turn out to have more. */
const linesWorthRequest = 500;
/** A search for fewer hits costs no less, and often finds only a part of a second. */
const leastProbableLines = 20;

/**
 * How many lines this group will probably give: of lines that fall to the sources at random, few sources have more. All that are
 * expected where there are so few sources that to ask each of them for all costs little.
 */
function estimateLines({ expectedLines, expectedShare = 1 }: LogQuery): number {
  const mean = expectedLines * expectedShare;
  const unneeded = (expectedLines - mean) / expectedShare;
  if (unneeded < linesWorthRequest) return expectedLines;
  const most = Math.ceil(mean + 3 * Math.sqrt(mean));
  return Math.min(expectedLines, Math.max(leastProbableLines, most));
}

/** The hits to ask for at once, of those that would do. */
export function limitHits({ bytesPerHit }: GroupReader, hits: number): number {
  return bytesPerHit === undefined ? hits : fitHits(pageBytes, bytesPerHit, hits);
}

type LineTest = (line: LogLine) => boolean | Steps<boolean>;

/** Whether a line is one of those that a query asks for, but for its range. */
function compileLineTest({ moments, filter }: LogQuery): LineTest {
  const matches = compileSteppedMatcher(filter);
  if (moments === undefined) return matches;
  // The index finds a document by any of its times, and it is a line of the least.
  const named = new Set(moments);
  return (line) => named.has(floorToMilli(line.time)) && matches(line);
}

/**
 * Counts documents against the limit of the query: each once, also where a millisecond that was held back is read again,
 * since `isWithinLimits` predicts this count. @throws {Refused}
 */
export function countDocuments({ context, budget }: GroupReader, plan: SearchPlan, count: number): void {
  const { query } = context;
  query.progressed?.(count);
  budget.documents += count;
  if (budget.documents <= query.documentLimit) return;
  const obstacles = plan.listObstacles().slice(0, maxObstacles).join("; ");
  const advice = `${describeTooWide(plan.listUnnarrowed())}, or narrow the time range`;
  const message = obstacles === "" ? advice : `${advice}. In the way: ${obstacles}`;
  throw new Refused("result_too_large", message, { limit: query.documentLimit });
}

export function listInstants(plan: SearchPlan, hits: readonly Hit[]): readonly Instant[] {
  const instants: Instant[] = [];
  for (const hit of hits) instants.push(readInstant(plan, hit));
  return instants;
}

/** The lines among these hits that lie in the range and satisfy the filter, sorted. */
export async function keepLines(
  { context, recorder, matches }: GroupReader,
  plan: SearchPlan,
  hits: readonly Hit[],
  instants: readonly Instant[],
  range: TimeRange,
): Promise<LogLine[]> {
  const lines = await decodeLines(context, plan, hits, instants, range, matches);
  recorder?.recordDocuments({ source: context.source.id, documents: hits.length, kept: lines.length });
  return sortLines(lines, context.query.order);
}

/** Where the lines are less than this share of what was read, they are copied, since each slice holds all of its response. */
const leastKeptShare = 0.5;

/** In turns of the event loop: of a long filter each line takes a part of a millisecond. */
async function decodeLines(
  { backend, source, signal }: ReadContext,
  { layout }: SearchPlan,
  hits: readonly Hit[],
  instants: readonly Instant[],
  { from, to }: TimeRange,
  matches: LineTest,
): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  let [readChars, keptChars] = [0, 0];
  const pause = createPause(signal);
  for (let at = 0; at < hits.length; at += 1) {
    const time = requireAt(instants, at);
    const hit = requireAt(hits, at);
    readChars += hit.source.length;
    if (time < from || time > to) {
      // A `date` field rounds a bound to its millisecond, so the exact bound is checked here.
      if (floorToMilli(time) < floorToMilli(from) || floorToMilli(time) > to)
        throw new BackendError(backend, "malformed", "a hit that was sorted by a time outside the range");
      continue;
    }
    const line = decodeLine(backend, hit, time, source.id, layout);
    // Always, also where the index seems exact by its mapping: a mapping can be newer than its documents.
    const found = matches(line);
    if (typeof found === "boolean" ? found : await takeSteps(found, signal)) {
      lines.push(line);
      keptChars += hit.source.length;
    }
    const paused = pause();
    if (paused !== undefined) await paused;
  }
  return keptChars < leastKeptShare * readChars ? lines.map(copyLine) : lines;
}
