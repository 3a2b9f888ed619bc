// Predicts how many documents a page has to read, by counting searches that return at most one hit.
import { earlier, endOfMilli, floorToMilli, later } from "../../../src/core/time.ts";
import type { GroupReader } from "./group-reader.ts";
import { search, searchPlanned } from "./group-search.ts";
import { buildSearchBody, readInstant } from "./search-plan.ts";

/**
 * The number of documents that the filter finds in the range. Where every document is a line and they are more than `room`,
 * the number up to the millisecond in which the page ends. Infinity where that is more than `room` too, or unknown.
 */
export async function countCandidates(reader: GroupReader, room: number): Promise<number> {
  const { order, expectedLines, range, filter } = reader.context.query;
  const counted = { track_total_hits: Math.max(1, room) };
  const { plan, response } = await searchPlanned(reader, (plan) => {
    // The line at which the page ends is searched only where a search can skip so many.
    const isWithin = expectedLines <= plan.metadata.resultWindow;
    const pageEnd = isWithin ? { from: expectedLines - 1, size: 1 } : { size: 0 };
    return search(reader, plan, { ...buildSearchBody(plan, range, true), ...counted, ...pageEnd });
  });
  if (response.total !== undefined) return response.total;
  const [last] = response.hits;
  if (filter.kind !== "all" || last === undefined) return Number.POSITIVE_INFINITY;
  const milli = floorToMilli(readInstant(plan, last));
  const page =
    order === "asc"
      ? { from: range.from, to: earlier(range.to, endOfMilli(milli)) }
      : { from: later(range.from, milli), to: range.to };
  const { total } = await search(reader, plan, { ...buildSearchBody(plan, page, true), ...counted, size: 0 });
  return total ?? Number.POSITIVE_INFINITY;
}
