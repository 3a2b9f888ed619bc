// What security hides from a user without an error. Elasticsearch shows a user's own document and field restrictions.
// OpenSearch does not, and it can also mask fields: documents and columns then show digests, and a search finds nothing by
// either value. So a value that an aggregation returns and a search does not find is a digest.
import { z } from "zod";
import { awaitShared } from "../../../src/core/async/concurrency.ts";
import { requireKey } from "../../../src/core/collections.ts";
import {
  BackendError,
  createUnsupportedError,
  isRefusedBySource,
  isRejection,
} from "../../../src/core/errors.ts";
import type { LogSource } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern, listQueriedNames, matchAll, type Query, searchOptions } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { listFieldNames, parseTenantFilter } from "../query/tenant-filter.ts";
import { hasOnlyUntimedDocuments, listTimeFields } from "./missing-time.ts";
import { compileOrRefuse, formatNames, requireComplete } from "./search.ts";

/** Fields probed in one request; each takes an aggregation. */
const maxFieldsPerRequest = 200;
/** Documents of each shard that a probe looks at. */
const sampledPerShard = 200;

/**
 * What security keeps from this user, as sentences for `readout check`. `consequence` says what masked fields lead to.
 * @throws {BackendError}
 */
export async function findRestrictions(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  consequence: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  return [
    ...(await reportScrollLimits(client, signal)),
    ...(await reportHiddenData(client, signal)),
    ...(await reportMaskedFields(client, pattern, metadata, consequence, signal)),
  ];
}

/** Reports the masked fields among those that the first documents have. */
async function reportMaskedFields(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  consequence: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!(await canMaskFields(client, signal))) return [];
  const masked: string[] = [];
  const names = listVerbatimColumns(metadata);
  for (let at = 0; at < names.length; at += maxFieldsPerRequest) {
    const found = findMaskedInSample(
      client,
      pattern,
      matchAll,
      names.slice(at, at + maxFieldsPerRequest),
      signal,
    );
    masked.push(...(await found.catch(suppressReported)));
  }
  if (masked.length === 0) return [];
  return [`${formatNames(masked)}: masked for this user; ${consequence}`];
}

const privilegesForm = z.object({
  indices: z.array(
    z.object({ names: z.array(z.string()), field_security: z.unknown(), query: z.unknown() }).partial(),
  ),
});

/** Reports the restrictions that Elasticsearch shows to the user himself. */
async function reportHiddenData(client: ElasticClient, signal: AbortSignal): Promise<readonly string[]> {
  if (!client.hasCredentials || (await client.detectProduct(signal)).name !== "Elasticsearch") return [];
  const request = { method: "GET", path: "/_security/user/_privileges" } as const;
  const response = await client.sendJson(request, signal).catch(suppressUnlessTimeout);
  const { indices = [] } = privilegesForm.safeParse(response).data ?? {};
  return indices.flatMap(({ names = [], field_security, query }) => {
    const kept = [
      ...(query === undefined ? [] : ["documents"]),
      ...(field_security === undefined ? [] : ["fields"]),
    ];
    if (kept.length === 0) return [];
    return [`${formatNames(names)}: security hides ${kept.join(" and ")} from this user`];
  });
}

function suppressUnlessTimeout(error: unknown): readonly string[] {
  if (error instanceof BackendError && error.failure !== "timeout") return [];
  throw error;
}

/** Failures that other searches have too are reported for those. */
function suppressReported(error: unknown): readonly string[] {
  if (error instanceof BackendError && (error.failure === "malformed" || error.failure === "partial"))
    throw error;
  return suppressUnlessTimeout(error);
}

function suppressRejection(error: unknown): false {
  if (isRejection(error)) return false;
  throw error;
}

/** For one state of the mappings: the fields that can be probed, and by field whether it was found masked. */
interface MaskProbes {
  readonly columns: readonly string[];
  readonly results: Map<string, Promise<boolean>>;
}
const maskProbes = new WeakMap<IndexMetadata, MaskProbes>();

/** Whether each of these fields that can be probed is masked, asked once for each state of the mappings. */
function probeFields(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  named: ReadonlySet<string>,
): readonly Promise<boolean>[] {
  const known = maskProbes.get(metadata) ?? { columns: listVerbatimColumns(metadata), results: new Map() };
  maskProbes.set(metadata, known);
  return known.columns
    .filter((name) => named.has(name))
    .map((name) => {
      const probed = known.results.get(name);
      if (probed !== undefined) return probed;
      // Not the first caller's signal, since others wait for the same response. The client's own deadline bounds it.
      const probe = isMaskedField(client, pattern, name, new AbortController().signal);
      known.results.set(name, probe);
      probe.catch(() => known.results.delete(name));
      return probe;
    });
}

/**
 * On a masked field, a tenant filter with `!=` would let all lines through and one with `=` none.
 * @throws {Refused} @throws {BackendError}
 */
export async function refuseMaskedTenantFilter(
  backend: string,
  client: ElasticClient,
  { index, tenantFilter }: Pick<LogSource, "index" | "tenantFilter">,
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<void> {
  if (tenantFilter === undefined) return;
  const filter = compileOrRefuse(backend, () => parseTenantFilter(tenantFilter));
  if (!(await canMaskFields(client, signal))) return;
  const probes = probeFields(client, index, metadata, new Set(listFieldNames(filter, metadata.groups)));
  if ((await awaitShared(Promise.all(probes), signal)).includes(true))
    throw createUnsupportedError(backend, "a where on a masked field");
}

/**
 * Checks that security or a wrong layout hides neither the fields of the tenant filter nor the time of the lines.
 * @throws {Refused} @throws {BackendError}
 */
export async function requireReadableGroups(
  backend: string,
  source: LogSource,
  metadata: IndexMetadata,
  layoutGroups: readonly LayoutGroup[],
  client: ElasticClient,
  signal: AbortSignal,
): Promise<void> {
  await refuseMaskedTenantFilter(backend, client, source, metadata, signal);
  if (!(await hasOnlyUntimedDocuments(backend, source.index, layoutGroups, client, signal))) return;
  throw createUnsupportedError(backend, `documents without ${listTimeFields(layoutGroups).join(", ")}`);
}

/**
 * Whether a query filters by a masked field or one of its multi-fields, and so may miss what it should find. A server that
 * rejects the probe shows no masked field. @throws {BackendError}
 */
export async function hasMaskedField(
  query: Query,
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
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
  backend: string,
  query: Query,
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<void> {
  if (await hasMaskedField(query, client, pattern, metadata, signal))
    throw createUnsupportedError(backend, "a filter on a masked field");
}

async function canMaskFields(client: ElasticClient, signal: AbortSignal): Promise<boolean> {
  return client.hasCredentials && (await client.detectProduct(signal)).name === "OpenSearch";
}

/** Types whose aggregated values can be searched as they are. */
const verbatimTypes = new Set(["keyword", "long", "integer", "short", "byte"]);

/** The fields that have the same one of these types wherever they are mapped, with a column of their own. */
function listVerbatimColumns({ groups }: IndexMetadata): readonly string[] {
  const types = new Map<string, string | undefined>();
  for (const { fields } of groups) {
    for (const field of fields.values()) {
      const {
        name,
        type,
        indexed,
        docValues,
        hasCustomAnalysis: rewritten,
        nested,
        flattenedRoot: root,
        aliasOf,
        runtime,
      } = field;
      const isOwn = nested === undefined && root === undefined && aliasOf === undefined && !runtime;
      const isColumn = verbatimTypes.has(type) && indexed && docValues && !rewritten && isOwn;
      const isSameType = !types.has(name) || types.get(name) === type;
      types.set(name, isColumn && isSameType ? type : undefined);
    }
  }
  return [...types].flatMap(([name, type]) => (type === undefined ? [] : [name]));
}

/** Probes a field in the first documents that have it, which may be few. `exists` finds them, masked or not. */
async function isMaskedField(
  client: ElasticClient,
  pattern: string,
  field: string,
  signal: AbortSignal,
): Promise<boolean> {
  const masked = await findMaskedInSample(client, pattern, { exists: { field } }, [field], signal);
  return masked.length > 0;
}

/** What one probe needs. */
interface Probe {
  readonly client: ElasticClient;
  readonly pattern: string;
  readonly signal: AbortSignal;
}

const topValueForm = z.object({
  values: z.object({ buckets: z.array(z.object({ key: z.union([z.string(), z.number()]) })) }),
});
const countForm = z.object({ doc_count: z.number() });
const totalForm = z.object({ hits: z.object({ total: z.object({ value: z.number() }) }) });
/** Where no shard is searched, an answer has no aggregations. */
const unsearchedForm = z.object({ _shards: z.object({ total: z.literal(0) }) });
const completenessForm = z.object({
  timed_out: z.boolean(),
  _shards: z.object({ total: z.number(), failed: z.number() }),
});

/** The fields that are masked in the first documents that a query finds. */
async function findMaskedInSample(
  client: ElasticClient,
  pattern: string,
  query: Query,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const probe: Probe = { client, pattern, signal };
  // By values, not by ordinals, which the columns of a masked field do not have.
  const values = await runAggregations(
    probe,
    query,
    names.map((field) => ({
      filter: { match_all: {} },
      aggs: { values: { terms: { field, size: 1, execution_hint: "map" } } },
    })),
    topValueForm,
  );
  const terms = names.flatMap((field, at): readonly { field: string; term: Query }[] => {
    const key = values[at]?.values.buckets[0]?.key;
    return typeof key === "string" ? [{ field, term: { term: { [field]: key } } }] : [];
  });
  if (terms.length === 0) return [];
  const counts = await runAggregations(
    probe,
    query,
    terms.map(({ term }) => ({ filter: term })),
    countForm,
  );
  const masked: string[] = [];
  for (const [at, { field, term }] of terms.entries()) {
    if ((counts[at]?.doc_count ?? 0) > 0) continue;
    // Another copy of the shard may have shown other documents.
    const { hits } = await searchSample(probe, { track_total_hits: 1, query: term }, totalForm);
    if (hits.total.value === 0) masked.push(field);
  }
  return masked;
}

/** The results of several aggregations over the sample, in order; none where no shard is searched. */
async function runAggregations<T>(
  probe: Probe,
  query: Query,
  aggs: readonly object[],
  form: z.ZodType<T>,
): Promise<readonly T[]> {
  const named = new Map(aggs.map((agg, at) => [`f${at}`, agg]));
  const names = [...named.keys()];
  const body = { track_total_hits: false, query, aggs: Object.fromEntries(named) };
  const results = z.object({ aggregations: z.record(z.enum(names), form) });
  const answer = await searchSample(probe, body, z.union([unsearchedForm, results]));
  if (!("aggregations" in answer)) return [];
  const found = new Map(Object.entries(answer.aggregations));
  return names.map((name) => requireKey(found, name));
}

/** @throws {BackendError} also where the answer is of another form or not complete: it would pass for one without a mask */
async function searchSample<T>(
  { client, pattern, signal }: Probe,
  body: object,
  form: z.ZodType<T>,
): Promise<T> {
  const path = `/${encodePattern(pattern)}/_search`;
  const text = JSON.stringify({ size: 0, terminate_after: sampledPerShard, ...body });
  const answer = await client.sendJson({ method: "POST", path, query: searchOptions, body: text }, signal);
  const { data, error } = completenessForm.and(form).safeParse(answer);
  if (data === undefined) {
    const reason = "an answer that is not a _search response";
    throw new BackendError(client.backend, "malformed", reason, { cause: error });
  }
  const { timed_out: timedOut, _shards: shards } = data;
  requireComplete(client.backend, { timedOut, terminatedEarly: false, shards }, false);
  return data;
}

/** Reports missing scroll permissions. OpenSearch has separate ones, probed with a scroll that does not exist. */
async function reportScrollLimits(client: ElasticClient, signal: AbortSignal): Promise<readonly string[]> {
  if ((await client.detectProduct(signal)).name !== "OpenSearch") return [];
  const path = "/_search/scroll";
  const next = {
    method: "POST",
    path,
    body: JSON.stringify({ scroll: "1s", scroll_id: "readout" }),
  } as const;
  const clear = { method: "DELETE", path, body: JSON.stringify({ scroll_id: ["readout"] }) } as const;
  const permission = "indices:data/read/scroll";
  const limits: string[] = [];
  if (await isDenied(client, next, signal)) {
    limits.push(
      `large traces, and many lines of one millisecond, are errors without the cluster permission ${permission}`,
    );
  }
  if (await isDenied(client, clear, signal)) {
    limits.push(`scrolls hold resources for a minute without the cluster permission ${permission}/clear`);
  }
  return limits;
}

async function isDenied(
  client: ElasticClient,
  request: Parameters<ElasticClient["send"]>[0],
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await client.send(request, signal);
  } catch (error) {
    if (!isRefusedBySource(error)) throw error;
    return error.failure === "denied";
  }
  return false;
}
