// The pages of one layout group. A search sorts by time alone, so the last millisecond of a full response may be incomplete:
// it is held back, and the next search starts with it. A millisecond always comes out of one search, which needs neither a
// point in time nor a tie-breaker. A millisecond that overflows a search is read by a scroll.

import { noteSameRequest } from "../../../src/core/async/concurrency.ts";
import type { HeldBytes } from "../../../src/core/async/held-bytes.ts";
import { requireAt, requireLast } from "../../../src/core/collections.ts";
import { computeRest } from "../../../src/core/line-order.ts";
import type { LogLine } from "../../../src/core/rows.ts";
import { floorToMilli, type TimeRange } from "../../../src/core/time.ts";
import { requireSameIndices } from "../search/search.ts";
import { exportSizes } from "./export-window.ts";
import {
  batchSizes,
  countDocuments,
  createGroupReader,
  type GroupReader,
  keepLines,
  limitHits,
  listInstants,
  type ReadBudget,
} from "./group-reader.ts";
import { type PlannedResponse, searchPage, searchPlanned } from "./group-search.ts";
import { readMillisecond } from "./millisecond-overflow.ts";
import type { ReadContext } from "./search-plan.ts";

interface Page {
  /** Whole milliseconds, in the order of the query. May be empty. */
  readonly lines: readonly LogLine[];
  /** What is left of the range; undefined at its end. */
  readonly rest: TimeRange | undefined;
  /** What the lines count for, where they are more than one search returns. */
  readonly held?: HeldBytes | undefined;
}

/**
 * Reads all lines of a layout group in the order of the query. Batches hold whole milliseconds and are never empty. The
 * context is opened with a signal that also aborts what was sent ahead when the caller stops reading.
 */
export async function* streamGroup(
  openContext: (signal: AbortSignal) => ReadContext,
  budget: ReadBudget,
  signal: AbortSignal,
): AsyncGenerator<readonly LogLine[]> {
  // Not AbortSignal.any, which alone costs a tenth of a small request.
  const leaving = new AbortController();
  noteSameRequest(leaving.signal, signal);
  const leave = () => leaving.abort(signal.reason);
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  const reader = createGroupReader(openContext(leaving.signal), budget);
  const { range, expectedLines } = reader.context.query;
  let pending: Promise<Page> | undefined = readPage(reader, range);
  let holding: HeldBytes | undefined;
  try {
    while (pending !== undefined) {
      const page: Page = await pending;
      const { lines, rest, held } = page;
      holding = held;
      if (rest === undefined) await finishReading(reader);
      // The next search runs while the caller works on this batch, but only if more lines are expected of this group, and never
      // beside a large one, so that two of those that may be held alone are not held at once.
      const isExpected = reader.lineCount < reader.expectedLines && held === undefined;
      pending = rest !== undefined && isExpected ? readPage(reader, rest) : undefined;
      // A failure is reported when this page is awaited.
      pending?.catch(() => undefined);
      if (lines.length > 0) yield lines;
      held?.release();
      if (rest === undefined || pending !== undefined) continue;
      // A caller that reads further may want all expected lines from this group.
      reader.expectedLines = expectedLines;
      pending = readPage(reader, rest);
    }
  } finally {
    signal.removeEventListener("abort", leave);
    holding?.release();
    pending?.then((page) => page.held?.release()).catch(() => undefined);
    if (pending !== undefined || reader.prefetched !== undefined) {
      leaving.abort(new Error("no more lines wanted"));
    }
  }
}

/** An index that is deleted while another appears leaves the shard count as it was, so an export compares names at its end. */
async function finishReading({ context, hasContinued, lastMetadata }: GroupReader): Promise<void> {
  if (!hasContinued) return;
  const { backend, mappingCache, source, signal } = context;
  const metadata = await mappingCache.refresh(source.index, signal);
  requireSameIndices(backend, source.index, lastMetadata, metadata);
}

/** Reads the lines of the rest that one search completes. */
async function readPage(
  reader: GroupReader,
  rest: TimeRange,
  size: number = chooseSize(reader),
): Promise<Page> {
  const { window } = reader;
  const range = window?.clipRange(rest) ?? rest;
  const planned = await searchPlanned(reader, (plan) => searchPage(reader, plan, range, rest, size));
  reader.hasContinued = window !== undefined && reader.lastMetadata !== undefined;
  reader.lastMetadata = planned.plan.metadata;
  return completePage(reader, planned, range, rest, Math.min(size, planned.plan.metadata.resultWindow));
}

/** The hits to ask for: those of all expected lines where the filter is verified by reading, and may drop some. */
function chooseSize(reader: GroupReader): number {
  const { window, context, lineCount, selectivity } = reader;
  if (window !== undefined) return window.size;
  const { expectedLines } = context.query;
  // A caller that reads further wants more than was expected.
  if (lineCount >= expectedLines) return limitHits(reader, batchSizes.most);
  return limitHits(reader, computeSize(reader, selectivity === 1 ? reader.expectedLines : expectedLines));
}

/**
 * The hits to ask for to have so many lines. One line beyond them shows that the last millisecond has ended, and one hit of each
 * search is held back. What is missing is divided evenly, so that no search runs for the last two lines.
 */
function computeSize({ lineCount, selectivity }: GroupReader, wanted: number): number {
  const missing = Math.max(1, Math.ceil((wanted + 1 - lineCount) / selectivity));
  const searches = Math.ceil(missing / (batchSizes.most - 1));
  const size = Math.ceil(missing / searches) + (lineCount === 0 && searches === 1 ? 0 : 1);
  return selectivity < 1 ? Math.max(batchSizes.least, size) : size;
}

async function completePage(
  reader: GroupReader,
  { plan, response }: PlannedResponse,
  range: TimeRange,
  rest: TimeRange,
  size: number,
): Promise<Page> {
  const { context, window } = reader;
  const { order } = context.query;
  const { hits } = response;
  const instants = listInstants(plan, hits);
  const earliest = order === "asc" ? instants[0] : instants.at(-1);
  if (!reader.hasSeveralTimes && earliest !== undefined && earliest < floorToMilli(range.from)) {
    // Most sources have one time a document, and their searches need no further condition.
    reader.hasSeveralTimes = true;
    return readPage(reader, rest, size);
  }
  if (hits.length < size) {
    window?.recordExhausted();
    countDocuments(reader, plan, hits.length);
    const lines = await keepLines(reader, plan, hits, instants, range);
    reader.lineCount += lines.length;
    const end = floorToMilli(order === "asc" ? range.to : range.from);
    return { lines, rest: computeRest(end, rest, order, false) };
  }
  const last = floorToMilli(requireLast(instants));
  let cut = instants.length - 1;
  while (cut > 0 && floorToMilli(requireAt(instants, cut - 1)) === last) cut--;
  if (cut > 0) {
    countDocuments(reader, plan, cut);
    const lines = await keepLines(reader, plan, hits.slice(0, cut), instants.slice(0, cut), range);
    reader.lineCount += lines.length;
    reader.selectivity = Math.max(0.02, (lines.length + 1) / (cut + 1));
    return { lines, rest: computeRest(last, rest, order, true) };
  }
  // All hits are of one millisecond.
  const most = limitHits(reader, window === undefined ? batchSizes.most : exportSizes.most);
  const maxSize = Math.min(most, plan.metadata.resultWindow);
  const fullSize = window === undefined ? computeSize(reader, context.query.expectedLines) : maxSize;
  if (size < maxSize)
    return readPage(reader, rest, size < fullSize && fullSize < maxSize ? fullSize : maxSize);
  const held = context.query.held?.openPart();
  const lines = await readMillisecond(reader, plan, last, range, held).catch((error: unknown) => {
    held?.release();
    throw error;
  });
  if (lines === undefined) {
    held?.release();
    await context.mappingCache.refresh(context.source.index, context.signal);
    return readPage(reader, rest);
  }
  reader.lineCount += lines.length;
  return { lines, rest: computeRest(last, rest, order, false), held };
}
