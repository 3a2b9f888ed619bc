// What every reader of documents shares: an answer of a search is whole or an error, the mappings that a search was
// compiled with fit the indices that it reached, and the wall stands in it.
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import { sleep, yieldToEventLoop } from "../../http/guard.ts";
import type { ElasticClient } from "../client/client.ts";
import {
  encodePattern,
  hasSelector,
  isRemote,
  matchAll,
  matchNone,
  type Query,
  searchOptions,
  strictOptions,
} from "../client/query-dsl.ts";
import {
  buildNameTree,
  type NameTree,
  type SearchResponse,
  scanSearchResponse,
} from "../document/hit-scanner.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { combineGroupQueries } from "../query/filter-compiler.ts";
import { compileTenantFilter, TenantFilterError } from "../query/tenant-filter.ts";

/**
 * The answer of a search when it is complete. `counted` parts of a scroll may stop early: Elasticsearch 7 says so of each
 * further part in document order, once it is full, and the caller compares their sum with the total.
 * @throws {BackendError}
 */
export async function readCompleteResponse(
  backend: string,
  bytes: Buffer,
  { pickedNames }: { readonly pickedNames: NameTree },
  counted = false,
): Promise<SearchResponse> {
  await yieldToEventLoop();
  let answer: SearchResponse;
  try {
    answer = scanSearchResponse(bytes, pickedNames);
  } catch (cause) {
    throw malformedResponseError(backend, bytes, cause);
  }
  requireComplete(backend, answer, counted);
  return answer;
}

export function malformedResponseError(backend: string, bytes: Buffer, cause: unknown): BackendError {
  const reason = `an answer of ${bytes.length} bytes that is none of _search`;
  return new BackendError(backend, "malformed", reason, { cause });
}

/** @throws {BackendError} */
export function requireComplete(
  backend: string,
  { timedOut, terminatedEarly, shards }: Pick<SearchResponse, "timedOut" | "terminatedEarly" | "shards">,
  counted: boolean,
): void {
  if (!timedOut && (!terminatedEarly || counted) && shards.failed === 0) return;
  const reason = `timed out: ${timedOut}, terminated early: ${terminatedEarly}, failed shards: ${shards.failed} of ${shards.total}`;
  throw new BackendError(backend, "partial", reason);
}

/** What a user lacks who may read documents and not mappings. OpenSearch shows those of a pattern all or not at all. */
export const needsMapping =
  "needs view_index_metadata, on OpenSearch indices:admin/get on all that the pattern matches";

/** When a search is tried again that met an index whose shards do not answer yet. */
const shardStartPauses: readonly Millis[] = [100, 200, 400, 800, 1_600, 3_200];

/**
 * The answer of a search, also where an index has just appeared under its pattern: until the shards of that have started,
 * which takes a part of a second, every search of the pattern is refused. @throws {BackendError}
 */
export async function retryUntilShardsStarted<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (const pause of shardStartPauses) {
    try {
      return await ask();
    } catch (error) {
      if (!isStarting(error)) throw error;
      await sleep(pause, signal);
    }
  }
  return ask();
}

function isStarting(error: unknown): boolean {
  if (!(error instanceof BackendError) || error.failure !== "overloaded") return false;
  return /no_shard_available_action_exception|due to missing shards/.test(error.message);
}

/** What of an answer tells which indices it reached. */
type ReachedIndices = Pick<SearchResponse, "shards" | "indices">;

export const noPickedFields = { pickedNames: buildNameTree([]) };

/** The bytes of one search of a pattern, as these parameters have it. @throws {BackendError} */
export function postSearch(
  client: ElasticClient,
  pattern: string,
  body: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Buffer> {
  return client.send({ method: "POST", path: `/${encodePattern(pattern)}/_search`, query, body }, signal);
}

/** The complete answer of a search that is no answer to a client: what is closed is left out of it. @throws {BackendError} */
export async function searchComplete(
  backend: string,
  client: ElasticClient,
  pattern: string,
  body: object,
  signal: AbortSignal,
): Promise<SearchResponse> {
  const bytes = await postSearch(client, pattern, JSON.stringify(body), searchOptions, signal);
  return readCompleteResponse(backend, bytes, noPickedFields);
}

/** Patterns that name what is not there, or may not be seen: for so long they are known by what is left of them. */
const missingNames = new WeakMap<ElasticClient, Map<string, MissingName>>();
interface MissingName {
  readonly since: Millis;
  readonly left: string;
}
const missingNamesLifetime: Millis = 30_000;

/**
 * The bytes that a search is answered with, whole or not. The source itself is made to refuse what it would leave out without
 * a word because it is closed: an index may have been closed since its mapping was read, as another came so that shards are
 * as many, and where mappings may not be read nothing else tells. It refuses names that are not there as well: then it is
 * asked as ever, and for what is left of the pattern whether that is open. @throws {BackendError} @throws {Refused}
 */
export async function sendSearch(
  client: ElasticClient,
  pattern: string,
  body: string,
  signal: AbortSignal,
  options: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  const send = (about: Readonly<Record<string, string>>) =>
    postSearch(client, pattern, body, { ...about, ...options }, signal);
  const known = missingNames.get(client) ?? new Map<string, MissingName>();
  missingNames.set(client, known);
  let found = known.get(pattern);
  if (found === undefined || performance.now() - found.since >= missingNamesLifetime) {
    try {
      return await send(strictOptions);
    } catch (error) {
      const left = removeMissingName(pattern, error);
      found = { since: performance.now(), left };
      known.set(pattern, found);
    }
  }
  const [bytes] = await Promise.all([send(searchOptions), requireOpen(client, found.left, signal)]);
  return bytes;
}

/** @throws {Refused} where some index of a pattern is closed @throws {BackendError} */
async function requireOpen(client: ElasticClient, pattern: string, signal: AbortSignal): Promise<void> {
  if (!/(?:^|,)[^-]/.test(pattern)) return;
  const body = JSON.stringify({ size: 0, query: matchNone });
  try {
    await postSearch(client, pattern, body, strictOptions, signal);
  } catch (error) {
    const left = removeMissingName(pattern, error);
    if (left !== pattern) await requireOpen(client, left, signal);
  }
}

/** What a pattern has beside the name for which a search of it was refused. @throws {BackendError} @throws {Refused} */
function removeMissingName(pattern: string, error: unknown): string {
  if (!(error instanceof BackendError)) throw error;
  if (isIndexClosedError(error)) throw createUnsupportedError(error.backend, closedFeature);
  if (error.status !== 404 && error.status !== 403) throw error;
  const missing = /no such index \[([^\]]+)\]/.exec(error.message)?.[1];
  const parts = pattern.split(",").map((part) => part.trim());
  return parts.filter((part) => part !== missing && part !== `-${missing}`).join(",");
}

/** Whether the source refuses to search because an index is closed. */
export function isIndexClosedError(error: unknown): boolean {
  return error instanceof BackendError && /"index_closed_exception"/.test(error.message);
}

/** The same, parsed. @throws {BackendError} @throws {Refused} */
export async function searchJson(
  backend: string,
  client: ElasticClient,
  pattern: string,
  body: object,
  signal: AbortSignal,
): Promise<unknown> {
  const bytes = await sendSearch(client, pattern, JSON.stringify(body), signal);
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (cause) {
    throw malformedResponseError(backend, bytes, cause);
  }
}

/** A search that reached an index we do not know may have been compiled, sorted or walled wrongly for it. */
export function isStale(
  knowledge: IndexMetadata,
  answer: ReachedIndices,
  accepted: number | undefined,
): boolean {
  if (knowledge.opaque) return false;
  const { total } = answer.shards;
  const grown = total !== knowledge.shards && total !== accepted;
  return grown || hasUnknownIndex(knowledge, answer);
}

function hasUnknownIndex(knowledge: IndexMetadata, { indices }: ReachedIndices): boolean {
  return [...indices].some((index) => !knowledge.indices.has(index));
}

/**
 * Lines of an index that is gone in the middle of a reading would be missed in what is left of it, also where another has
 * been made under its name. @throws {BackendError}
 */
export function requireSameIndices(
  backend: string,
  pattern: string,
  before: IndexMetadata | undefined,
  after: IndexMetadata,
): void {
  if (before === undefined || before === after) return;
  const gone = [...before.indices].find(
    (index) => !after.indices.has(index) || after.uuids.get(index) !== before.uuids.get(index),
  );
  if (gone === undefined) return;
  throw new BackendError(backend, "partial", `index ${gone} of ${pattern} went away while it was read`);
}

/**
 * What keeps a whole pattern from being read, told by the shards that a search of it reached after the mappings were
 * read again. Both products leave out without a word what the credentials may not read, and frozen indices.
 */
export function describeShardProblem(
  pattern: string,
  knowledge: IndexMetadata,
  total: number,
): string | undefined {
  const { opaque, minShards: least, shards } = knowledge;
  if (opaque || total === shards) return undefined;
  if (total > shards) {
    return `the mapping of some indices of ${pattern} may not be read; each that can be read ${needsMapping}`;
  }
  if (total >= least) return undefined;
  return `a search reaches ${total} of the ${shards} shards of ${pattern}: the credentials may not read each of its indices, or one is frozen`;
}

/** The same for `readout check`, asked of the source by a search that returns nothing. @throws {BackendError} */
export async function findShardProblem(
  backend: string,
  pattern: string,
  knowledge: IndexMetadata,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<string | undefined> {
  const body = { size: 0, track_total_hits: false };
  try {
    // Closed ones that are known have been told of by now, and are in none of the counts.
    const { shards } =
      knowledge.closed.length > 0
        ? await searchComplete(backend, client, pattern, body, signal)
        : await readCompleteResponse(
            backend,
            await sendSearch(client, pattern, JSON.stringify(body), signal),
            noPickedFields,
          );
    return describeShardProblem(pattern, knowledge, shards.total);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return `an index of ${pattern} is closed, so nothing of it can be read; open it, or leave it out of the pattern`;
  }
}

/** Takes an answer that the mappings do not fit although they were read again and again. @throws {BackendError} */
export function acceptShardCount(
  backend: string,
  pattern: string,
  knowledge: IndexMetadata,
  answer: ReachedIndices,
  catalog: { acceptShardCount(pattern: string, shards: number): void },
): void {
  const { total } = answer.shards;
  const problem = describeShardProblem(pattern, knowledge, total);
  if (hasUnknownIndex(knowledge, answer) || (problem !== undefined && total < knowledge.shards)) {
    throw problem === undefined
      ? mappingChangedError(backend, pattern)
      : new BackendError(backend, "partial", problem);
  }
  catalog.acceptShardCount(pattern, total);
}

export function mappingChangedError(backend: string, pattern: string): BackendError {
  const reason = `the indices of ${pattern} change faster than their mappings can be read`;
  return new BackendError(backend, "partial", reason);
}

/** Indices that a search leaves out without a word. @throws {Refused} */
export function refuseRemote(backend: string, pattern: string): void {
  if (!isRemote(pattern)) return;
  throw createUnsupportedError(
    backend,
    hasSelector(pattern) ? "a part of a data stream" : "indices of a remote cluster",
  );
}
const closedFeature = "a pattern with closed indices";
export function refuseClosed(backend: string, { closed }: IndexMetadata): void {
  if (closed.length > 0) throw createUnsupportedError(backend, closedFeature);
}
/** Both for `readout check`. */
export function listUnreachableProblems(pattern: string, { closed }: IndexMetadata): readonly string[] {
  if (hasSelector(pattern)) {
    return [`${pattern} names a part of data streams (::failures); name the data streams alone`];
  }
  if (isRemote(pattern)) {
    return [
      `${pattern} names a remote cluster, whose answers may lack a cluster silently; make it a backend of its own`,
    ];
  }
  if (closed.length === 0) return [];
  return [
    `${formatNames(closed)}: closed, so nothing of it can be read; open it, or leave it out of the pattern (${pattern},-${closed[0]})`,
  ];
}

export function formatNames(names: readonly string[]): string {
  const more = names.length - 5;
  return `${names.slice(0, 5).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** The wall on each index that is known, and everything of others: see `combineGroupQueries`. @throws {Refused} */
export function buildTenantFilterQuery(
  backend: string,
  tenantFilter: Filter | undefined,
  knowledge: IndexMetadata,
): Query {
  if (tenantFilter === undefined) return matchAll;
  if (knowledge.opaque)
    throw createUnsupportedError(backend, "a where on an index whose mapping may not be read");
  const queries = knowledge.groups.map((group) => ({
    group,
    query: rejectInexactTenantFilter(backend, () => compileTenantFilter(tenantFilter, group)),
  }));
  const guarded = combineGroupQueries(queries, knowledge);
  if (guarded === matchAll && queries.some(({ query }) => query !== matchAll)) {
    throw createUnsupportedError(backend, "a where over this many indices");
  }
  return guarded;
}

export function rejectInexactTenantFilter<T>(backend: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    // The reason names the index's fields: for the operator, who meets it in `check` and at start.
    if (error instanceof TenantFilterError) throw createUnsupportedError(backend, "the where of this source");
    throw error;
  }
}
