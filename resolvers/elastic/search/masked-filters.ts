// Looks before a read at the fields that it filters by. Security may hide or mask them without an error, and the filter would
// then miss what it should find, or let through what it should not.
import { awaitShared } from "../../../src/core/async/concurrency.ts";
import { createUnsupportedError, isRejection } from "../../../src/core/errors.ts";
import type { LogSource } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import { listQueriedNames, type Query } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { listFieldNames, parseTenantFilter } from "../query/tenant-filter.ts";
import { probeFields } from "./masked-fields.ts";
import { hasOnlyUntimedDocuments, listTimeFields } from "./missing-time.ts";
import { compileOrRefuse } from "./search.ts";

/** Whether the server may mask fields for this user, so that they have to be probed. @throws {BackendError} */
export async function canMaskFields(client: ElasticClient, signal: AbortSignal): Promise<boolean> {
  return client.hasCredentials && (await client.detectProduct(signal)).masksFields;
}

/**
 * On a masked field, a tenant filter with `!=` would let all lines through and one with `=` none.
 * @throws {Refused} @throws {BackendError}
 */
export async function refuseMaskedTenantFilter(
  client: ElasticClient,
  { index, tenantFilter }: Pick<LogSource, "index" | "tenantFilter">,
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<void> {
  if (tenantFilter === undefined) return;
  const filter = compileOrRefuse(client.backend, () => parseTenantFilter(tenantFilter));
  if (!(await canMaskFields(client, signal))) return;
  const probes = probeFields(client, index, metadata, new Set(listFieldNames(filter, metadata.groups)));
  if ((await awaitShared(Promise.all(probes), signal)).includes(true))
    throw createUnsupportedError(client.backend, "a where on a masked field");
}

/**
 * Checks that security or a wrong layout hides neither the fields of the tenant filter nor the time of the lines.
 * @throws {Refused} @throws {BackendError}
 */
export async function requireReadableGroups(
  client: ElasticClient,
  source: LogSource,
  metadata: IndexMetadata,
  layoutGroups: readonly LayoutGroup[],
  signal: AbortSignal,
): Promise<void> {
  await refuseMaskedTenantFilter(client, source, metadata, signal);
  if (!(await hasOnlyUntimedDocuments(client, source, layoutGroups, signal))) return;
  throw createUnsupportedError(
    client.backend,
    `documents without ${listTimeFields(layoutGroups).join(", ")}`,
  );
}

/**
 * Whether a query filters by a masked field or one of its multi-fields, and so may miss what it should find. A server that
 * rejects the probe shows no masked field. @throws {BackendError}
 */
export async function hasMaskedField(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  query: Query,
  signal: AbortSignal,
): Promise<boolean> {
  if (!(await canMaskFields(client, signal))) return false;
  const used = listQueriedNames(query);
  const forms = metadata.groups.flatMap(({ fields }) =>
    used.flatMap((name) => [name, ...(fields.get(name)?.multiFields ?? [])]),
  );
  const probes = probeFields(client, pattern, metadata, new Set(forms));
  const results = probes.map((probe) => probe.catch(suppressRejection));
  return (await awaitShared(Promise.all(results), signal)).includes(true);
}

/** For reads that cannot do without the query. @throws {Refused} where it filters by a masked field */
export async function refuseMaskedFilter(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  query: Query,
  signal: AbortSignal,
): Promise<void> {
  if (await hasMaskedField(client, pattern, metadata, query, signal))
    throw createUnsupportedError(client.backend, "a filter on a masked field");
}

function suppressRejection(error: unknown): false {
  if (isRejection(error)) return false;
  throw error;
}
