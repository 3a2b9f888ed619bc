// What security hides from a user without a word. Elasticsearch tells of documents and fields that it keeps back. OpenSearch
// does not; and it can mask fields: documents and columns then show digests, and the index finds nothing by either value. A
// value that a column shows and no search finds is a digest.
import { z } from "zod";
import { BackendError, createUnsupportedError } from "../../../src/core/errors.ts";
import type { LogSource } from "../../../src/store/store.ts";
import { raceAbort } from "../../http/guard.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern, matchAll, type Query, searchOptions } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { listFieldNames, parseTenantFilter } from "../query/tenant-filter.ts";
import { hasOnlyUntimedDocuments, listTimeFields } from "./missing-time.ts";
import { formatNames, rejectInexactTenantFilter } from "./search.ts";

/** Fields of one request: each is an aggregation. */
const maxFieldsPerRequest = 200;
/** Documents of each shard that are looked at. */
const sampledPerShard = 200;

const topValueForm = z.object({ values: z.object({ buckets: z.array(z.object({ key: z.unknown() })) }) });
const countForm = z.object({ doc_count: z.number() });

/**
 * What the source keeps from this user, for `readout check`; of masked fields also the `consequence`.
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

/** The names of masked fields, of those that the first documents have. */
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
    // What keeps a search from being answered is told elsewhere.
    masked.push(...(await found.catch(suppressUnlessTimeout)));
  }
  if (masked.length === 0) return [];
  return [`${formatNames(masked)}: masked for this user; ${consequence}`];
}

const privilegesForm = z.object({
  indices: z.array(
    z.object({ names: z.array(z.string()), field_security: z.unknown(), query: z.unknown() }).partial(),
  ),
});

/** What Elasticsearch tells a user of his own rights. */
async function reportHiddenData(client: ElasticClient, signal: AbortSignal): Promise<readonly string[]> {
  if (!client.hasCredentials || (await client.detectProduct(signal)).name !== "Elasticsearch") return [];
  const request = { method: "GET", path: "/_security/user/_privileges" } as const;
  const answer = await client.sendJson(request, signal).catch(suppressUnlessTimeout);
  const { indices = [] } = privilegesForm.safeParse(answer).data ?? {};
  return indices.flatMap(({ names = [], field_security, query }) => {
    const kept = [
      ...(query === undefined ? [] : ["documents"]),
      ...(field_security === undefined ? [] : ["fields"]),
    ];
    if (kept.length === 0) return [];
    return [
      `${formatNames(names)}: security keeps ${kept.join(" and ")} back from this user, which are as if they were not there`,
    ];
  });
}

function suppressUnlessTimeout(error: unknown): readonly string[] {
  if (error instanceof BackendError && error.failure !== "timeout") return [];
  throw error;
}

/** Of one state of the mappings: the fields that can be looked for, and what was found, by those that were. */
interface MaskSearches {
  readonly columns: readonly string[];
  readonly found: Map<string, Promise<readonly string[]>>;
}
const maskSearches = new WeakMap<IndexMetadata, MaskSearches>();

/** Which of these names are masked; looked for once for each state of the mappings. @throws {BackendError} */
async function listMaskedFields(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  named: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!(await canMaskFields(client, signal))) return [];
  const known = maskSearches.get(metadata) ?? { columns: listVerbatimColumns(metadata), found: new Map() };
  maskSearches.set(metadata, known);
  const names = known.columns.filter((name) => named.has(name));
  if (names.length === 0) return [];
  const key = names.join();
  let finding = known.found.get(key);
  if (finding === undefined) {
    // Not the first caller's signal: others wait for the same answer. The door's own deadline bounds it.
    finding = findMaskedByField(client, pattern, names, new AbortController().signal);
    known.found.set(key, finding);
    finding.catch(() => known.found.delete(key));
  }
  return raceAbort(finding, signal);
}

/**
 * A wall of `!=` would let all lines through where the field is masked, one of `=` none.
 * @throws {Refused}
 */
export async function refuseMaskedTenantFilter(
  backend: string,
  client: ElasticClient,
  { index, where }: { readonly index: string; readonly where?: string | undefined },
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<void> {
  if (where === undefined) return;
  const names = listFieldNames(
    rejectInexactTenantFilter(backend, () => parseTenantFilter(where)),
    metadata.groups,
  );
  const masked = await listMaskedFields(client, index, metadata, new Set(names), signal);
  if (masked.length > 0) throw createUnsupportedError(backend, "a where on a masked field");
}

/** These parts. @throws {Refused} where security or another layout hides what lines are bounded by */
export async function requireReadableGroups(
  backend: string,
  source: LogSource,
  metadata: IndexMetadata,
  parts: readonly LayoutGroup[],
  client: ElasticClient,
  signal: AbortSignal,
): Promise<readonly LayoutGroup[]> {
  await refuseMaskedTenantFilter(backend, client, source, metadata, signal);
  if (!(await hasOnlyUntimedDocuments(backend, source.index, parts, client, signal))) return parts;
  throw createUnsupportedError(backend, `documents without ${listTimeFields(parts).join(", ")}`);
}

/** Whether a query narrows by a masked field, in any of its forms, so that it may leave out what is meant. */
export async function hasMaskedField(
  query: Query,
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  signal: AbortSignal,
): Promise<boolean> {
  if (!(await canMaskFields(client, signal))) return false;
  const used = collectWords(query);
  const forms = metadata.groups.flatMap(({ fields }) =>
    used.flatMap((name) => [name, ...(fields.get(name)?.multiFields ?? [])]),
  );
  return (
    (await listMaskedFields(client, pattern, metadata, new Set(forms), signal).catch(suppressUnlessTimeout))
      .length > 0
  );
}

/** For what cannot be read without its filters. @throws {Refused} where one is on a masked field */
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

/** The names of fields among them. */
function collectWords(query: unknown): readonly string[] {
  if (typeof query === "string") return [query];
  if (typeof query !== "object" || query === null) return [];
  return Object.entries(query).flatMap(([key, value]) => [key, ...collectWords(value)]);
}

const canMaskFields = async (client: ElasticClient, signal: AbortSignal): Promise<boolean> =>
  client.hasCredentials && (await client.detectProduct(signal)).name === "OpenSearch";

/** Types whose values come back as they are searched. */
const verbatimTypes = new Set(["keyword", "long", "integer", "short", "byte"]);

/** Fields that have one of these types wherever they are mapped. */
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
      const isAlike = !types.has(name) || types.get(name) === type;
      types.set(name, isColumn && isAlike ? type : undefined);
    }
  }
  return [...types].flatMap(([name, type]) => (type === undefined ? [] : [name]));
}

/** In the first documents that have each, of which there may be few. `exists` finds them, masked or not. */
async function findMaskedByField(
  client: ElasticClient,
  pattern: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const found = names.map((field) =>
    findMaskedInSample(client, pattern, { exists: { field } }, [field], signal),
  );
  return (await Promise.all(found)).flat();
}

/** Those that are masked in the first documents that a query finds. */
async function findMaskedInSample(
  client: ElasticClient,
  pattern: string,
  query: Query,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const ask = async (body: object): Promise<unknown> => {
    const path = `/${encodePattern(pattern)}/_search`;
    const text = JSON.stringify({ size: 0, terminate_after: sampledPerShard, ...body });
    return client.sendJson({ method: "POST", path, query: searchOptions, body: text }, signal);
  };
  /** What one aggregation for each tells. */
  const askEach = async <T>(
    aggs: readonly object[],
    form: z.ZodType<T>,
  ): Promise<readonly (T | undefined)[]> => {
    const numbered = Object.fromEntries(aggs.map((agg, at) => [`f${at}`, agg]));
    const { aggregations } = Object(await ask({ track_total_hits: false, query, aggs: numbered }));
    return aggs.map((_, at) => form.safeParse(Object(aggregations)[`f${at}`]).data);
  };
  // By values, not by ordinals, which the columns of a masked field do not have.
  const values = await askEach(
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
  const counts = await askEach(
    terms.map(({ term }) => ({ filter: term })),
    countForm,
  );
  const masked: string[] = [];
  for (const [at, { field, term }] of terms.entries()) {
    if (counts[at]?.doc_count !== 0) continue;
    // Another copy of the shard may have shown other documents.
    const { hits } = Object(await ask({ track_total_hits: 1, query: term }));
    if (Object(Object(hits).total).value === 0) masked.push(field);
  }
  return masked;
}

/** What larger readings lack: scrolls are rights of their own on OpenSearch, asked for by one that does not exist. */
async function reportScrollLimits(client: ElasticClient, signal: AbortSignal): Promise<readonly string[]> {
  if ((await client.detectProduct(signal)).name !== "OpenSearch") return [];
  const path = "/_search/scroll";
  const goOn = {
    method: "POST",
    path,
    body: JSON.stringify({ scroll: "1s", scroll_id: "readout" }),
  } as const;
  const end = { method: "DELETE", path, body: JSON.stringify({ scroll_id: ["readout"] }) } as const;
  const denied = async (request: typeof goOn | typeof end) => {
    try {
      await client.send(request, signal);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      if (error.failure === "denied") return true;
      if (error.failure !== "rejected") throw error;
    }
    return false;
  };
  const right = "indices:data/read/scroll";
  return [
    ...((await denied(goOn))
      ? [
          `large traces, and many lines of one millisecond, are errors without the cluster permission ${right}`,
        ]
      : []),
    ...((await denied(end))
      ? [`scrolls take up their place for a minute without the cluster permission ${right}/clear`]
      : []),
  ];
}
