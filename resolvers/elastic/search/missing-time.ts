// Detects patterns with documents but no readable time field (wrong layout, or hidden by field-level security), so that an
// empty page is not mistaken for "no matches".
import type { ElasticClient } from "../client/client.ts";
import { anyOf, not, type Query } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import { retryUntilShardsStarted, searchComplete } from "./search.ts";

/** The distinct time fields of the groups. */
export function listTimeFields(layoutGroups: readonly LayoutGroup[]): readonly string[] {
  return [...new Set(layoutGroups.map(({ time }) => time))];
}

/** Whether there are documents, and none of them shows a time field of its layout. @throws {BackendError} */
export async function hasOnlyUntimedDocuments(
  backend: string,
  pattern: string,
  layoutGroups: readonly LayoutGroup[],
  client: ElasticClient,
  signal: AbortSignal,
): Promise<boolean> {
  const isMapped = ({ time, groups }: LayoutGroup) => groups.some(({ fields }) => fields.has(time));
  if (layoutGroups.some(isMapped)) return false;
  const timedQuery = anyOf(listTimeFields(layoutGroups).map((field) => ({ exists: { field } })));
  const hasHits = async (query: Query) => {
    const body = { size: 1, track_total_hits: false, sort: ["_doc"], query };
    const { hits } = await retryUntilShardsStarted(
      () => searchComplete(backend, client, pattern, body, signal),
      signal,
    );
    return hits.length > 0;
  };
  return !(await hasHits(timedQuery)) && (await hasHits(not(timedQuery)));
}
