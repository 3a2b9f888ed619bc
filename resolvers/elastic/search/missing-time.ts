// Detects patterns with documents but no readable time field (wrong layout, or hidden by field-level security), so that an
// empty page is not mistaken for "no matches". Only the tenant's own documents count where that can be said, and none is fetched.
import type { LogSource } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import { buildTenantQuery } from "../query/tenant-filter.ts";
import { compileOrRefuse, hasMatch, retryUntilShardsStarted } from "./search.ts";

/** The distinct time fields of the groups. */
export function listTimeFields(layoutGroups: readonly LayoutGroup[]): readonly string[] {
  return [...new Set(layoutGroups.map(({ time }) => time))];
}

/**
 * Whether there are documents, and none of them shows a time field of its layout. False where a tenant filter has no mapping
 * that it can be compiled for: such a source is refused by whoever reads. @throws {Refused} @throws {BackendError}
 */
export async function hasOnlyUntimedDocuments(
  client: ElasticClient,
  { index, tenantFilter }: Pick<LogSource, "index" | "tenantFilter">,
  layoutGroups: readonly LayoutGroup[],
  signal: AbortSignal,
): Promise<boolean> {
  const isMapped = ({ time, groups }: LayoutGroup) => groups.some(({ fields }) => fields.has(time));
  if (layoutGroups.some(isMapped)) return false;
  const timedQuery = anyOf(listTimeFields(layoutGroups).map((field) => ({ exists: { field } })));
  const groups = layoutGroups.flatMap((layoutGroup) => layoutGroup.groups);
  const tenantQuery = compileOrRefuse(client.backend, () => buildTenantQuery(tenantFilter, groups));
  // Where no index shows the tenant's field either, nobody can say whose a document is: then all of them count.
  const ownQuery = tenantQuery === matchNone && groups.length > 0 ? matchAll : tenantQuery;
  const hasHits = (condition: Query) => {
    const query = allOf([ownQuery, condition]);
    return retryUntilShardsStarted(() => hasMatch(client.backend, client, index, query, signal), signal);
  };
  return !(await hasHits(timedQuery)) && (await hasHits(not(timedQuery)));
}
