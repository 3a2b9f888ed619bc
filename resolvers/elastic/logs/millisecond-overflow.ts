// One millisecond that holds more documents than a search returns. It is read in full, by a scroll of its own.

import { type HeldBytes, measureHeld } from "../../../src/core/async/held-bytes.ts";
import { createTooManyTiesError, sortLines } from "../../../src/core/line-order.ts";
import type { LogLine } from "../../../src/core/rows.ts";
import { earlier, endOfMilli, type Instant, later, type TimeRange } from "../../../src/core/time.ts";
import { fetchNextPage, releaseScroll, requireCompleteScroll, scrollOptions } from "../client/scroll.ts";
import { isStale, readCompleteResponse } from "../search/search.ts";
import {
  batchSizes,
  countDocuments,
  type GroupReader,
  keepLines,
  limitHits,
  listInstants,
} from "./group-reader.ts";
import { hasUnseenIndex, search } from "./group-search.ts";
import { buildScrollBody, type SearchPlan } from "./search-plan.ts";

/**
 * All lines of a millisecond within the range. Undefined when the scroll met an index that the plan did not know, or knew without
 * documents.
 * @throws {Refused} above the limit of documents, of bytes that are `held`, or of lines in one millisecond
 * @throws {BackendError}
 */
export async function readMillisecond(
  reader: GroupReader,
  plan: SearchPlan,
  milli: Instant,
  range: TimeRange,
  held: HeldBytes | undefined,
): Promise<LogLine[] | undefined> {
  const { backend, client, mappingCache, source, query, signal } = reader.context;
  const own = { from: later(range.from, milli), to: earlier(range.to, endOfMilli(milli)) };
  const size = Math.min(limitHits(reader, batchSizes.scroll), plan.metadata.resultWindow);
  const body = { ...buildScrollBody(plan, own), size };
  const lines: LogLine[] = [];
  let response = await search(reader, plan, body, scrollOptions);
  const { total } = response;
  let acceptedShards = mappingCache.findAcceptedShardCount(source.index);
  let documents = 0;
  try {
    while (response.hits.length > 0) {
      const { hits } = response;
      if (hasUnseenIndex(plan, response) || isStale(plan.metadata, response, acceptedShards))
        return undefined;
      countDocuments(reader, plan, hits.length);
      documents += hits.length;
      const found = await keepLines(reader, plan, hits, listInstants(plan, hits), range);
      held?.hold(measureHeld(found));
      for (const line of found) lines.push(line);
      if (lines.length > query.tieLimit) throw createTooManyTiesError(query.tieLimit);
      const bytes = await fetchNextPage(backend, client, response, signal);
      response = await readCompleteResponse(backend, bytes, plan.layout);
      // Elasticsearch continues only on the shards that may hold something of the millisecond.
      acceptedShards = response.shards.total;
    }
    if (total !== undefined) requireCompleteScroll(backend, documents, total);
  } finally {
    releaseScroll(client, response.scrollId);
  }
  return sortLines(lines, query.order);
}
