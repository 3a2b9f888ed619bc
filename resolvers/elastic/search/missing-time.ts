// Lines whose time nobody sees are in no range. Where that is all of a pattern, an empty answer would be a short one: the
// layout may be another, or security may hide the field from this user, in the mapping, the index and the documents alike.
import type { ElasticClient } from "../client/client.ts";
import { anyOf, not, type Query } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import { retryUntilShardsStarted, searchComplete } from "./search.ts";

export const listTimeFields = (parts: readonly LayoutGroup[]): readonly string[] => [
  ...new Set(parts.map(({ time }) => time)),
];

/** Whether there are documents and none of them shows a time that lines are read by. @throws {BackendError} */
export async function hasOnlyUntimedDocuments(
  backend: string,
  pattern: string,
  parts: readonly LayoutGroup[],
  client: ElasticClient,
  signal: AbortSignal,
): Promise<boolean> {
  const isMapped = ({ time, groups }: LayoutGroup) => groups.some(({ fields }) => fields.has(time));
  if (parts.some(isMapped)) return false;
  const timed = anyOf(listTimeFields(parts).map((field) => ({ exists: { field } })));
  const holds = async (query: Query) => {
    const body = { size: 1, track_total_hits: false, sort: ["_doc"], query };
    const { hits } = await retryUntilShardsStarted(
      () => searchComplete(backend, client, pattern, body, signal),
      signal,
    );
    return hits.length > 0;
  };
  return !(await holds(timed)) && (await holds(not(timed)));
}
