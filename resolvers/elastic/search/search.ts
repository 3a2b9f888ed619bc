// What all readers of documents share: a response is complete or an error, a search was compiled with the mappings of every
// index that it reached, and the tenant filter is part of it. Both products silently leave out what is closed, missing or
// forbidden, so this is checked with strict options and by counting shards.

import { takeSteps, yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import { sleep } from "../../http/waiting.ts";
import type { ElasticClient } from "../client/client.ts";
import {
  encodePattern,
  isRemote,
  matchAll,
  matchNone,
  type Query,
  searchOptions,
  strictOptions,
} from "../client/query-dsl.ts";
import { releaseUnread } from "../client/scroll.ts";
import {
  buildNameTree,
  type NameTree,
  type SearchResponse,
  scanSearchResponse,
} from "../document/hit-scanner.ts";
import { isGlobMatch } from "../mapping/index-patterns.ts";
import type { IndexGroup, IndexMetadata } from "../mapping/mapping.ts";
import { combineGroupQueries } from "../query/filter-compiler.ts";
import { compileTenantFilter, TenantFilterError } from "../query/tenant-filter.ts";
import { describeUnsearchable, requireAllClusters } from "./remote-clusters.ts";

/**
 * Scans the response of a search. @throws {BackendError} where it is malformed or incomplete. `counted` pages of a scroll may
 * report early termination, as Elasticsearch 7 does for each page in document order; the caller compares their sum with the
 * total.
 */
export async function readCompleteResponse(
  backend: string,
  bytes: Buffer,
  { pickedNames }: { readonly pickedNames: NameTree },
  counted = false,
): Promise<SearchResponse> {
  await yieldToEventLoop();
  let response: SearchResponse;
  try {
    response = await takeSteps(scanSearchResponse(bytes, pickedNames));
  } catch (cause) {
    throw createMalformedResponseError(backend, bytes, cause);
  }
  requireComplete(backend, response, counted);
  return response;
}

export function createMalformedResponseError(backend: string, bytes: Buffer, cause: unknown): BackendError {
  const reason = `a response of ${bytes.length} bytes that is not one of _search`;
  return new BackendError(backend, "malformed", reason, { cause });
}

/** @throws {BackendError} where shards failed or the search ended early */
export function requireComplete(
  backend: string,
  { timedOut, terminatedEarly, shards }: Pick<SearchResponse, "timedOut" | "terminatedEarly" | "shards">,
  counted: boolean,
): void {
  if (!timedOut && (!terminatedEarly || counted) && shards.failed === 0) return;
  const reason = `timed out: ${timedOut}, terminated early: ${terminatedEarly}, failed shards: ${shards.failed} of ${shards.total}`;
  throw new BackendError(backend, "partial", reason);
}

/** The permission for mappings. OpenSearch shows the mappings of a pattern only if the user may see all of them. */
export const needsMapping =
  "needs view_index_metadata, on OpenSearch indices:admin/get on all that the pattern matches";

/** The pauses before a search is repeated while the shards of a new index start. */
const shardStartPauses: readonly Millis[] = [100, 200, 400, 800, 1_600, 3_200];

/**
 * Repeats a search while the shards of a new index start. That takes a part of a second, in which every search of a pattern
 * that includes the index fails. @throws {BackendError}
 */
export async function retryUntilShardsStarted<T>(search: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (const pause of shardStartPauses) {
    try {
      return await search();
    } catch (error) {
      if (!isStarting(error)) throw error;
      await sleep(pause, signal);
    }
  }
  return search();
}

function isStarting(error: unknown): boolean {
  if (!(error instanceof BackendError) || error.failure !== "overloaded") return false;
  return /no_shard_available_action_exception|due to missing shards/.test(error.message);
}

/** The part of a response that shows which indices it came from. */
export type ReachedIndices = Pick<SearchResponse, "shards" | "indices">;

export const noPickedFields = { pickedNames: buildNameTree([]) };

/** Sends one search and returns the bytes of its response, which has all clusters of the pattern. @throws {BackendError} */
export async function postSearch(
  client: ElasticClient,
  pattern: string,
  body: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Buffer> {
  const path = `/${encodePattern(pattern)}/_search`;
  const bytes = await client.send({ method: "POST", path, query, body }, signal);
  if (isRemote(pattern)) requireAllClusters(client.backend, pattern, bytes);
  return bytes;
}

/** Searches for internal use, such as detection and checks: closed indices are left out. @throws {BackendError} */
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

/** Patterns that name an index which does not exist or may not be seen, and what is left of them without it. */
const missingNames = new WeakMap<ElasticClient, Map<string, MissingName>>();
interface MissingName {
  readonly since: Millis;
  /** What is left of the pattern without it, as `listRest` says. */
  readonly rest: readonly string[];
}
const missingNamesLifetime: Millis = 30_000;

/**
 * Sends a search and returns the bytes of its response, which may be incomplete. Strict options make the server reject a
 * pattern with a closed index instead of leaving it out: an index may have been closed since its mapping was read, while a
 * new one keeps the shard count equal, and mappings may be hidden. Strict options also reject names that do not exist. Then
 * the search is sent with lenient options, beside a strict search over the rest of the pattern.
 * @throws {BackendError} @throws {Refused} where an index is closed
 */
export async function sendSearch(
  client: ElasticClient,
  pattern: string,
  body: string,
  signal: AbortSignal,
  options: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  const send = (strictness: Readonly<Record<string, string>>) =>
    postSearch(client, pattern, body, { ...strictness, ...options }, signal);
  const known = missingNames.get(client) ?? new Map<string, MissingName>();
  missingNames.set(client, known);
  let found = known.get(pattern);
  if (found === undefined || performance.now() - found.since >= missingNamesLifetime) {
    try {
      return await send(strictOptions);
    } catch (error) {
      const rest = listRest(pattern, error);
      found = { since: performance.now(), rest };
      known.set(pattern, found);
    }
  }
  const search = send(searchOptions);
  try {
    const open = found.rest.map((rest) => requireOpen(client, rest, signal));
    const [bytes] = await Promise.all([search, ...open]);
    return bytes;
  } catch (error) {
    releaseUnread(client, search);
    throw error;
  }
}

/** Checks that no index of a pattern is closed; missing names are skipped. @throws {Refused} @throws {BackendError} */
async function requireOpen(client: ElasticClient, pattern: string, signal: AbortSignal): Promise<void> {
  // Only exclusions are left: there is nothing to search.
  if (!/(?:^|,)[^-]/.test(pattern)) return;
  const body = JSON.stringify({ size: 0, query: matchNone });
  try {
    await postSearch(client, pattern, body, strictOptions, signal);
  } catch (error) {
    const rest = listRest(pattern, error).filter((one) => one !== pattern);
    await Promise.all(rest.map((one) => requireOpen(client, one, signal)));
  }
}

/**
 * Returns the pattern without the name that is missing, if that is why its search was rejected. Where it may be each of several
 * names with a date, the others of the pattern, and each of these alone.
 * @throws {Refused} where an index is closed
 * @throws {BackendError} the error, if it has another reason
 */
function listRest(pattern: string, error: unknown): readonly string[] {
  if (!(error instanceof BackendError)) throw error;
  if (isIndexClosedError(error)) throw createUnsupportedError(error.backend, closedFeature);
  if (error.status !== 404 && error.status !== 403) throw error;
  const missing = /no such index \[([^\]]+)\]/.exec(error.message)?.[1];
  const names = pattern.split(",").map((name) => name.trim());
  // The server of a remote cluster does not know how it is called here.
  const isMissing = (name: string) =>
    missing !== undefined && mayResolveTo(name.replace(/^-/, "").replace(/^[^<:]*:/, ""), missing);
  const [rest, removed] = [names.filter((name) => !isMissing(name)), names.filter(isMissing)];
  if (removed.length < 2) return [rest.join(",")];
  const exclusions = names.filter((name) => name.startsWith("-"));
  return [rest, ...removed.map((name) => [name, ...exclusions])].map((part) => part.join(","));
}

/** Date math (`<logs-{now/d}>`) is resolved by the server, which names the index that came of it. */
function mayResolveTo(name: string, index: string): boolean {
  const dateMath = /^<(.*)>$/.exec(name)?.[1];
  if (dateMath === undefined) return name === index;
  return isGlobMatch(dateMath.replace(/\{(?:[^{}]|\{[^{}]*\})*\}/g, "*"), index);
}

/** Whether a search was rejected because an index is closed. */
export function isIndexClosedError(error: unknown): boolean {
  return error instanceof BackendError && /"index_closed_exception"/.test(error.message);
}

/**
 * Whether a response came from an index that the metadata lacks, or from a different number of shards. Such a search may have
 * been compiled, sorted or filtered wrongly.
 */
export function isStale(
  metadata: IndexMetadata,
  response: ReachedIndices,
  accepted: number | undefined,
): boolean {
  if (metadata.opaque) return false;
  const { total } = response.shards;
  const hasChanged = total !== metadata.shards && total !== accepted;
  return hasChanged || hasUnknownIndex(metadata, response);
}

function hasUnknownIndex(metadata: IndexMetadata, { indices }: ReachedIndices): boolean {
  return [...indices].some((index) => !metadata.indices.has(index));
}

/**
 * Checks that no index was deleted, or recreated under its name, between two states of the mappings: the rest of a read would
 * miss its documents. @throws {BackendError}
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
  throw new BackendError(
    backend,
    "partial",
    `index ${gone} of ${pattern} was deleted or recreated during the read`,
  );
}

/**
 * Why a pattern cannot be read in full, by the number of shards that a search reached after the mappings were read again.
 * Both products silently leave out frozen indices and what the credentials may not read. Undefined when nothing is missing.
 */
export function describeShardProblem(
  pattern: string,
  metadata: IndexMetadata,
  total: number,
): string | undefined {
  const { opaque, minShards, shards } = metadata;
  if (opaque || total === shards) return undefined;
  if (total > shards) {
    return `the mapping of some indices of ${pattern} may not be read; each that can be read ${needsMapping}`;
  }
  if (total >= minShards) return undefined;
  return `a search reaches ${total} of the ${shards} shards of ${pattern}: the credentials may not read each of its indices, or one is frozen`;
}

/** The same for `readout check`, by a search that returns no hits. @throws {BackendError} */
export async function findShardProblem(
  backend: string,
  pattern: string,
  metadata: IndexMetadata,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<string | undefined> {
  const body = { size: 0, track_total_hits: false };
  try {
    // Known closed indices were reported above and are not in the shard counts.
    const { shards } =
      metadata.closed.length > 0
        ? await searchComplete(backend, client, pattern, body, signal)
        : await readCompleteResponse(
            backend,
            await sendSearch(client, pattern, JSON.stringify(body), signal),
            noPickedFields,
          );
    return describeShardProblem(pattern, metadata, shards.total);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return `an index of ${pattern} is closed, so nothing of it can be read; open it, or leave it out of the pattern`;
  }
}

/**
 * Accepts a shard count that still differs after the mappings were read again. @throws {BackendError} where shards are
 * missing
 */
export function acceptShardCount(
  backend: string,
  pattern: string,
  metadata: IndexMetadata,
  response: ReachedIndices,
  mappingCache: { acceptShardCount(pattern: string, shards: number): void },
): void {
  const { total } = response.shards;
  const problem = describeShardProblem(pattern, metadata, total);
  if (hasUnknownIndex(metadata, response) || (problem !== undefined && total < metadata.shards)) {
    throw problem === undefined
      ? createMappingChangedError(backend, pattern)
      : new BackendError(backend, "partial", problem);
  }
  mappingCache.acceptShardCount(pattern, total);
}

/** The right may be refused for a moment only, so that the request is worth a retry. `what` needs the mapping. */
export function createMappingRefusedError(backend: string, what: string): BackendError {
  return new BackendError(
    backend,
    "denied",
    `${what} needs a mapping that may not be read: it ${needsMapping}`,
  );
}

export function createMappingChangedError(backend: string, pattern: string): BackendError {
  const reason = `the indices of ${pattern} change faster than their mappings can be read`;
  return new BackendError(backend, "partial", reason);
}

/** Whether a document matches. None is fetched. @throws {BackendError} */
export async function hasMatch(
  backend: string,
  client: ElasticClient,
  index: string,
  query: Query,
  signal: AbortSignal,
): Promise<boolean> {
  if (query === matchNone) return false;
  const body = { size: 0, track_total_hits: 1, query };
  // Undefined where there are more than it counts.
  return (await searchComplete(backend, client, index, body, signal)).total !== 0;
}

const closedFeature = "a pattern with closed indices";

/** Why the documents of a group cannot be answered exactly, as a feature that is refused; undefined if they can. */
export function describeUnreadable({ sourceMode, hidesFields }: IndexGroup): string | undefined {
  if (sourceMode === "cut") return "documents whose _source is not kept whole";
  return hidesFields ? "indices with _field_names off and fields without doc values and norms" : undefined;
}

/** How `check` says `IndexGroup.hidesFields`. */
export const hiddenFieldsProblem =
  "_field_names is off and some fields have neither doc values nor norms, so that no query finds who has them; reindex with _field_names on";

/** @throws {Refused} */
export function refuseClosed(backend: string, { closed }: IndexMetadata): void {
  if (closed.length > 0) throw createUnsupportedError(backend, closedFeature);
}

const adviceOnNames = "name each data stream and each cluster alone";

/** What `refuseUnsearchable` and `refuseClosed` refuse, as problems for `readout check`. */
export function listUnreachableProblems(pattern: string, { closed }: IndexMetadata): readonly string[] {
  const feature = describeUnsearchable(pattern);
  if (feature !== undefined) return [`${pattern} has ${feature}; ${adviceOnNames}`];
  if (closed.length === 0) return [];
  return [
    `${formatNames(closed)}: closed, so nothing of it can be read; open it, or leave it out of the pattern (${pattern},-${closed[0]})`,
  ];
}

/** The first five names, and how many more there are. */
export function formatNames(names: readonly string[]): string {
  const more = names.length - 5;
  return `${names.slice(0, 5).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/**
 * The tenant filter on each known index, and all documents of unknown ones: see `combineGroupQueries`.
 * @throws {Refused} where it cannot be exact @throws {BackendError} where the mappings were refused
 */
export function buildTenantSupersetQuery(
  backend: string,
  tenantFilter: Filter | undefined,
  metadata: IndexMetadata,
): Query {
  if (tenantFilter === undefined) return matchAll;
  if (metadata.opaque) throw createMappingRefusedError(backend, "a tenant filter");
  const queries = metadata.groups.map((group) => ({
    group,
    query: compileOrRefuse(backend, () => compileTenantFilter(tenantFilter, group)),
  }));
  const combined = combineGroupQueries(queries, metadata);
  if (combined === matchAll && queries.some(({ query }) => query !== matchAll)) {
    throw createUnsupportedError(backend, "a where over this many indices");
  }
  return combined;
}

/** Runs what parses or compiles a tenant filter, and turns its error into a refusal. @throws {Refused} */
export function compileOrRefuse<T>(backend: string, compile: () => T): T {
  try {
    return compile();
  } catch (error) {
    // The reason names fields of the index. It is for the operator, and is shown by `check` and at start.
    if (error instanceof TenantFilterError) throw createUnsupportedError(backend, "the where of this source");
    throw error;
  }
}
