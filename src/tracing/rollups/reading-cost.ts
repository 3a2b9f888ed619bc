// What reading spans costs, against an answer that the source adds up.
import { Refused } from "../../core/errors.ts";
import { allTime } from "../../core/time.ts";
import type { Budget, SpanReader, SpanSelection, SpanSources } from "../../store/spans.ts";
import { createBudgetShare, suppressShareSpent, trackBudget } from "../spans/read-budget.ts";

/** Reading a span costs about so many times as much as adding it up at the source. */
const readingOverAddingUp = 20;
/** Reading a span with what belongs to it costs about so many times as much as the source's search through one span. */
const readingOverSearching = 200;
/** What is read for a span of the scan takes about so many documents. */
export const documentsPerSpan = 8;

interface Comparison {
  /** About how many spans are in the range, and how many of them would be read. */
  readonly spans: number;
  readonly toRead: number;
  /** The spans of any time that the source searches besides. */
  readonly extraSearch: SpanSelection | undefined;
  readonly sources: SpanSources;
  readonly budget: Budget;
}

/** Whether spans are read at less cost than the source adds up, and searches, what the definition asks for. A guess. */
export async function isReadingCheaper(
  reader: SpanReader,
  { spans, toRead, extraSearch, sources, budget }: Comparison,
  signal: AbortSignal,
): Promise<boolean> {
  if (toRead > budget.limit / documentsPerSpan) return false;
  if (toRead <= spans / readingOverAddingUp) return true;
  if (extraSearch === undefined) return false;
  const all = await reader.count?.({ sources, range: allTime, select: extraSearch, budget }, signal);
  return all !== undefined && toRead * readingOverSearching <= all;
}

/** Undefined where it takes more than the limit: the definition then has the whole budget. */
export async function readWithinLimit<Figures>(
  budget: Budget,
  read: (budget: Budget) => Promise<readonly Figures[]>,
): Promise<readonly Figures[] | undefined> {
  const apart = { limit: budget.limit, spend: () => undefined, held: budget.held };
  const { budget: tracked, spent } = trackBudget(createBudgetShare(apart, budget.limit));
  const figures = await suppressShareSpent(read(tracked));
  if (figures !== undefined) budget.spend(spent());
  return figures;
}

/** The refusal where only the ends of a range, which cut kept segments, would have to be read. */
export function createEndsError(limit: number, wanted: number): Refused {
  const of = `The ends of the range have about ${wanted} spans to be read, of at most ${limit}`;
  return new Refused("result_too_large", `${of}; begin and end it at full hours`, { limit, wanted });
}
