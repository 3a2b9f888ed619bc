// What every reader of documents shares: an answer of a search is whole or an error, the mappings that a search was
// compiled with fit the indices that it reached, and the wall stands in it.
import { BackendError, Refused, unsupported } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import { sleep, turn } from "../../http/guard.ts";
import type { Door } from "../client/client.ts";
import {
  all,
  encodePattern,
  hasSelector,
  isRemote,
  none,
  type Query,
  searchOptions,
  strictOptions,
} from "../client/query-dsl.ts";
import { type Answer, cutAnswer, type Names, namesOf } from "../document/hit-scanner.ts";
import type { Knowledge } from "../mapping/mapping.ts";
import { guard } from "../query/filter-compiler.ts";
import { compileWhere, WhereError } from "../query/tenant-filter.ts";

/**
 * The answer of a search when it is complete. `counted` parts of a scroll may stop early: Elasticsearch 7 says so of each
 * further part in document order, once it is full, and the caller compares their sum with the total.
 * @throws {BackendError}
 */
export async function wholeAnswer(
  backend: string,
  bytes: Buffer,
  { picked }: { readonly picked: Names },
  counted = false,
): Promise<Answer> {
  await turn();
  let answer: Answer;
  try {
    answer = cutAnswer(bytes, picked);
  } catch (cause) {
    throw unreadable(backend, bytes, cause);
  }
  requireWhole(backend, answer, counted);
  return answer;
}

export function unreadable(backend: string, bytes: Buffer, cause: unknown): BackendError {
  const reason = `an answer of ${bytes.length} bytes that is none of _search`;
  return new BackendError(backend, "malformed", reason, { cause });
}

/** @throws {BackendError} */
export function requireWhole(
  backend: string,
  { timedOut, terminatedEarly, shards }: Pick<Answer, "timedOut" | "terminatedEarly" | "shards">,
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
const starts: readonly Millis[] = [100, 200, 400, 800, 1_600, 3_200];

/**
 * The answer of a search, also where an index has just appeared under its pattern: until the shards of that have started,
 * which takes a part of a second, every search of the pattern is refused. @throws {BackendError}
 */
export async function untilStarted<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (const pause of starts) {
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
type Reached = Pick<Answer, "shards" | "indices">;

export const nothingPicked = { picked: namesOf([]) };

/** The bytes of one search of a pattern, as these parameters have it. @throws {BackendError} */
export function postSearch(
  door: Door,
  pattern: string,
  body: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Buffer> {
  return door.send({ method: "POST", path: `/${encodePattern(pattern)}/_search`, query, body }, signal);
}

/** The complete answer of a search that is no answer to a client: what is closed is left out of it. @throws {BackendError} */
export async function searchWhole(
  backend: string,
  door: Door,
  pattern: string,
  body: object,
  signal: AbortSignal,
): Promise<Answer> {
  const bytes = await postSearch(door, pattern, JSON.stringify(body), searchOptions, signal);
  return wholeAnswer(backend, bytes, nothingPicked);
}

/** Patterns that name what is not there, or may not be seen: for so long they are known by what is left of them. */
const lacking = new WeakMap<Door, Map<string, Lack>>();
interface Lack {
  readonly since: Millis;
  readonly left: string;
}
const remembered: Millis = 30_000;

/**
 * The bytes that a search is answered with, whole or not. The source itself is made to refuse what it would leave out without
 * a word because it is closed: an index may have been closed since its mapping was read, as another came so that shards are
 * as many, and where mappings may not be read nothing else tells. It refuses names that are not there as well: then it is
 * asked as ever, and for what is left of the pattern whether that is open. @throws {BackendError} @throws {Refused}
 */
export async function sendSearch(
  door: Door,
  pattern: string,
  body: string,
  signal: AbortSignal,
  options: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  const send = (about: Readonly<Record<string, string>>) =>
    postSearch(door, pattern, body, { ...about, ...options }, signal);
  const known = lacking.get(door) ?? new Map<string, Lack>();
  lacking.set(door, known);
  let found = known.get(pattern);
  if (found === undefined || performance.now() - found.since >= remembered) {
    try {
      return await send(strictOptions);
    } catch (error) {
      const left = leftOf(pattern, error);
      found = { since: performance.now(), left };
      known.set(pattern, found);
    }
  }
  const [bytes] = await Promise.all([send(searchOptions), requireOpen(door, found.left, signal)]);
  return bytes;
}

/** @throws {Refused} where some index of a pattern is closed @throws {BackendError} */
async function requireOpen(door: Door, pattern: string, signal: AbortSignal): Promise<void> {
  if (!/(?:^|,)[^-]/.test(pattern)) return;
  const body = JSON.stringify({ size: 0, query: none });
  try {
    await postSearch(door, pattern, body, strictOptions, signal);
  } catch (error) {
    const left = leftOf(pattern, error);
    if (left !== pattern) await requireOpen(door, left, signal);
  }
}

/** What a pattern has beside the name for which a search of it was refused. @throws {BackendError} @throws {Refused} */
function leftOf(pattern: string, error: unknown): string {
  if (!(error instanceof BackendError)) throw error;
  if (isClosed(error)) throw unsupported(error.backend, closedFeature);
  if (error.status !== 404 && error.status !== 403) throw error;
  const missing = /no such index \[([^\]]+)\]/.exec(error.message)?.[1];
  const parts = pattern.split(",").map((part) => part.trim());
  return parts.filter((part) => part !== missing && part !== `-${missing}`).join(",");
}

/** Whether the source refuses to search because an index is closed. */
export function isClosed(error: unknown): boolean {
  return error instanceof BackendError && /"index_closed_exception"/.test(error.message);
}

/** The same, parsed. @throws {BackendError} @throws {Refused} */
export async function searchJson(
  backend: string,
  door: Door,
  pattern: string,
  body: object,
  signal: AbortSignal,
): Promise<unknown> {
  const bytes = await sendSearch(door, pattern, JSON.stringify(body), signal);
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (cause) {
    throw unreadable(backend, bytes, cause);
  }
}

/** A search that reached an index we do not know may have been compiled, sorted or walled wrongly for it. */
export function isStale(knowledge: Knowledge, answer: Reached, accepted: number | undefined): boolean {
  if (knowledge.opaque) return false;
  const { total } = answer.shards;
  const grown = total !== knowledge.shards && total !== accepted;
  return grown || reachesOthers(knowledge, answer);
}

function reachesOthers(knowledge: Knowledge, { indices }: Reached): boolean {
  return [...indices].some((index) => !knowledge.indices.has(index));
}

/**
 * Lines of an index that is gone in the middle of a reading would be missed in what is left of it, also where another has
 * been made under its name. @throws {BackendError}
 */
export function requireIndices(
  backend: string,
  pattern: string,
  before: Knowledge | undefined,
  after: Knowledge,
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
export function shardProblem(pattern: string, knowledge: Knowledge, total: number): string | undefined {
  const { opaque, least, shards } = knowledge;
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
  knowledge: Knowledge,
  door: Door,
  signal: AbortSignal,
): Promise<string | undefined> {
  const body = { size: 0, track_total_hits: false };
  try {
    // Closed ones that are known have been told of by now, and are in none of the counts.
    const { shards } =
      knowledge.closed.length > 0
        ? await searchWhole(backend, door, pattern, body, signal)
        : await wholeAnswer(
            backend,
            await sendSearch(door, pattern, JSON.stringify(body), signal),
            nothingPicked,
          );
    return shardProblem(pattern, knowledge, shards.total);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return `an index of ${pattern} is closed, so nothing of it can be read; open it, or leave it out of the pattern`;
  }
}

/** Takes an answer that the mappings do not fit although they were read again and again. @throws {BackendError} */
export function settle(
  backend: string,
  pattern: string,
  knowledge: Knowledge,
  answer: Reached,
  catalog: { accept(pattern: string, shards: number): void },
): void {
  const { total } = answer.shards;
  const problem = shardProblem(pattern, knowledge, total);
  if (reachesOthers(knowledge, answer) || (problem !== undefined && total < knowledge.shards)) {
    throw problem === undefined ? changing(backend, pattern) : new BackendError(backend, "partial", problem);
  }
  catalog.accept(pattern, total);
}

export function changing(backend: string, pattern: string): BackendError {
  const reason = `the indices of ${pattern} change faster than their mappings can be read`;
  return new BackendError(backend, "partial", reason);
}

/** Indices that a search leaves out without a word. @throws {Refused} */
export function refuseRemote(backend: string, pattern: string): void {
  if (!isRemote(pattern)) return;
  throw unsupported(
    backend,
    hasSelector(pattern) ? "a part of a data stream" : "indices of a remote cluster",
  );
}
const closedFeature = "a pattern with closed indices";
export function refuseClosed(backend: string, { closed }: Knowledge): void {
  if (closed.length > 0) throw unsupported(backend, closedFeature);
}
/** Both for `readout check`. */
export function unreachableProblems(pattern: string, { closed }: Knowledge): readonly string[] {
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
    `${listed(closed)}: closed, so nothing of it can be read; open it, or leave it out of the pattern (${pattern},-${closed[0]})`,
  ];
}

export function listed(names: readonly string[]): string {
  const more = names.length - 5;
  return `${names.slice(0, 5).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** The wall on each index that is known, and everything of others: see `guard`. @throws {Refused} */
export function compileWall(backend: string, wall: Filter | undefined, knowledge: Knowledge): Query {
  if (wall === undefined) return all;
  if (knowledge.opaque) throw unsupported(backend, "a where on an index whose mapping may not be read");
  const queries = knowledge.groups.map((group) => ({
    group,
    query: refuseWall(backend, () => compileWhere(wall, group)),
  }));
  const guarded = guard(queries, knowledge);
  if (guarded === all && queries.some(({ query }) => query !== all)) {
    throw unsupported(backend, "a where over this many indices");
  }
  return guarded;
}

export function refuseWall<T>(backend: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    // The reason names the index's fields: for the operator, who meets it in `check` and at start.
    if (error instanceof WhereError) throw unsupported(backend, "the where of this source");
    throw error;
  }
}
