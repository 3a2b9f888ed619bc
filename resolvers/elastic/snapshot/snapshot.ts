// Snapshots: the documents behind some patterns at one moment, as points in time of their shards, and what has changed since an
// earlier snapshot. Changes are told apart by the shards' states, the indices' uuids, and the mappings as this user sees them.
import { createHash } from "node:crypto";
import { mapConcurrent } from "../../../src/core/async/concurrency.ts";
import { requireKey } from "../../../src/core/collections.ts";
import { BackendError, isRefusedBySource } from "../../../src/core/errors.ts";
import { compare } from "../../../src/core/rows.ts";
import type { SnapshotVersion } from "../../../src/store/spans.ts";
import type { ElasticClient } from "../client/client.ts";
import { closePointsInTime, openPointInTime, type PointInTime } from "../client/point-in-time.ts";
import type { Product } from "../client/product.ts";
import type { Query } from "../client/query-dsl.ts";
import type { IndexGroup, IndexMetadata } from "../mapping/mapping.ts";
import { buildAddedQuery, compareShards, type ShardComparison, type ShardStates } from "./shard-states.ts";
import {
  type IndexIdentities,
  parseSnapshotState,
  printVersion,
  type SnapshotState,
} from "./version-text.ts";

export interface Snapshot {
  readonly points: readonly PointInTime[];
  readonly version: SnapshotVersion;
  /** What the snapshot has beyond the earlier one; undefined where nobody knows. */
  readonly added: AddedDocuments | undefined;
  /** As `SpanSnapshot.behindOrigins`. */
  readonly behindIndices: ReadonlySet<string>;
  /** The same of some of its patterns, since an earlier version of these. @throws {BackendError} */
  readonly select: (
    of: SnapshotSources,
    since: SnapshotVersion | undefined,
    signal: AbortSignal,
  ) => Promise<Pick<Snapshot, "version" | "added" | "behindIndices">>;
  readonly close: () => void;
}

export interface AddedDocuments {
  readonly documents: number;
  /**
   * Indices that are deleted or show other fields, of which all documents are added, and indices of which documents were deleted,
   * changed, or came late.
   */
  readonly changedIndices: ReadonlySet<string>;
  readonly buildQuery: (point: PointInTime) => Query;
}

const versions = new WeakMap<SnapshotVersion, SnapshotState>();
const noStates: ShardStates = new Map();

/** What a snapshot is of. */
export interface SnapshotSources {
  /** The metadata of the indices by pattern. */
  readonly patterns: ReadonlyMap<string, IndexMetadata>;
  /** Whether a field, by its name in the index, may change what is found and read. Others may come and go. */
  readonly isRead: (field: string) => boolean;
}

/** Points in time that one snapshot may take: the server holds resources for each. */
const maxPoints = 16;
const concurrency = 4;

/**
 * Opens a snapshot of the indices behind some patterns. Undefined where the server has no points in time, where the
 * user may not open them, where an alias leaves out shards, or where they would be too many.
 * @throws {IndicesChangedError} @throws {BackendError}
 */
export async function openSnapshot(
  backend: string,
  client: ElasticClient,
  { patterns, isRead }: SnapshotSources,
  since: SnapshotVersion | undefined,
  signal: AbortSignal,
): Promise<Snapshot | undefined> {
  const product = await client.detectProduct(signal);
  const { pointInTime: paths } = product;
  if (paths === undefined || findSnapshotObstacle(product, [...patterns.values()]) !== undefined)
    return undefined;
  const wanted = [...patterns].flatMap(([pattern, metadata]) =>
    countShards(metadata).map((shards, shard) => ({ pattern, shard, shards, paths })),
  );
  const points: PointInTime[] = [];
  try {
    const open = async (point: Omit<PointInTime, "id">, own: AbortSignal): Promise<void> => {
      const opened = await openPointInTime(backend, client, point, own);
      if (own.aborted) closePointsInTime(client, [opened]);
      else points.push(opened);
    };
    await mapConcurrent(wanted, concurrency, open, signal);
    const context = { client, points, compareOnce: rememberComparisons(backend, client) };
    const select: Snapshot["select"] = (...selection) => selectPatterns(context, ...selection);
    const all = await select({ patterns, isRead }, since, signal);
    return { points, ...all, select, close: () => closePointsInTime(client, points) };
  } catch (error) {
    closePointsInTime(client, points);
    if (isRefusedBySource(error) || isAbovePointLimit(error)) return undefined;
    throw error;
  }
}

interface SelectionContext {
  readonly client: ElasticClient;
  readonly points: readonly PointInTime[];
  readonly compareOnce: ReturnType<typeof rememberComparisons>;
}

/** `Snapshot.select`. */
async function selectPatterns(
  { client, points, compareOnce }: SelectionContext,
  of: SnapshotSources,
  since: SnapshotVersion | undefined,
  signal: AbortSignal,
): ReturnType<Snapshot["select"]> {
  const before = since && versions.get(since);
  const indices = describePatterns(of);
  const divided = before && divideState(before, indices);
  const compareOne = async (point: PointInTime, own: AbortSignal) => {
    // A shard with a number that no index of the pattern had before is all new.
    const states = divided && (divided.kept.get(point.pattern)?.shards.at(point.shard) ?? noStates);
    return { point, ...(await compareOnce(point, states, own)) };
  };
  const wanted = points.filter(({ pattern }) => of.patterns.has(pattern));
  const compared = await mapConcurrent(wanted, concurrency, compareOne, signal);
  const now = describeState(indices, compared);
  return {
    version: createVersion(now, client.view),
    added: divided && describeAdded(divided, now, compared),
    behindIndices: new Set(compared.flatMap(({ behind }) => [...behind])),
  };
}

/** OpenSearch refuses points in time above `search.max_open_pit_context` with 429; any other 429 is a momentary overload. */
function isAbovePointLimit(error: unknown): boolean {
  return (
    error instanceof BackendError &&
    error.failure === "overloaded" &&
    /too many point in time contexts|max_open_pit_context/i.test(error.message)
  );
}

/** Compares the shards of points in time, those with equal earlier states once. */
function rememberComparisons(
  backend: string,
  client: ElasticClient,
): (
  point: PointInTime,
  earlier: ShardStates | undefined,
  signal: AbortSignal,
) => ReturnType<typeof compareShards> {
  const known = new Map<string, Awaited<ReturnType<typeof compareShards>>>();
  return async (point, earlier, signal) => {
    const key = JSON.stringify([point.pattern, point.shard, earlier && [...earlier]]);
    const compared = known.get(key) ?? (await compareShards(backend, client, point, earlier, signal));
    known.set(key, compared);
    return compared;
  };
}

/** The indices by pattern. */
type PatternIndices = ReadonlyMap<string, IndexIdentities>;

function describePatterns({ patterns, isRead }: SnapshotSources): PatternIndices {
  return new Map([...patterns].map(([pattern, metadata]) => [pattern, describeIndices(metadata, isRead)]));
}

function describeState(
  patterns: PatternIndices,
  compared: readonly { readonly point: PointInTime; readonly states: ShardStates }[],
): SnapshotState {
  return new Map(
    [...patterns].map(([pattern, indices]) => {
      const own = compared.filter(({ point }) => point.pattern === pattern);
      const sorted = own.toSorted((a, b) => a.point.shard - b.point.shard);
      return [pattern, { indices, shards: sorted.map(({ states }) => states) }];
    }),
  );
}

interface KeptAndGone {
  /** Without the indices that are gone. */
  readonly kept: SnapshotState;
  readonly gone: ReadonlySet<string>;
}

/** Divides what an earlier version stands for by whether the indices are there and show what they showed. */
function divideState(earlier: SnapshotState, now: PatternIndices): KeptAndGone {
  const gone = new Set<string>();
  const kept = [...earlier].map(([pattern, { indices, shards }]) => {
    const current = now.get(pattern);
    const isKept = ([index]: readonly [string, unknown]): boolean =>
      current === undefined || keepsIndex(index, indices, current);
    for (const one of indices) if (!isKept(one)) gone.add(one[0]);
    const left = {
      indices: new Map([...indices].filter(isKept)),
      shards: shards.map((shard) => new Map([...shard].filter(isKept))),
    };
    return [pattern, left] as const;
  });
  return { kept: new Map(kept), gone };
}

function createVersion(state: SnapshotState, view: string): SnapshotVersion {
  const version: SnapshotVersion = { bytes: measureState(state), print: () => printVersion(state, view) };
  versions.set(version, state);
  return version;
}

/** The version of a text; undefined where it is none, or is of another view. */
export function parseVersion(text: string, view: string): SnapshotVersion | undefined {
  const state = parseSnapshotState(text, view);
  return state && createVersion(state, view);
}

/** Why no snapshot of the indices of these patterns can be opened, for operators; undefined if nothing is known against it. */
export function findSnapshotObstacle(
  { pointInTime }: Pick<Product, "pointInTime">,
  patterns: readonly IndexMetadata[],
): string | undefined {
  if (pointInTime === undefined)
    return "the server has no points in time, or shows the version of another product";
  if (patterns.some(({ shards, minShards }) => minShards < shards)) return "an alias leaves out shards";
  const points = patterns.reduce((sum, metadata) => sum + countShards(metadata).length, 0);
  return points > maxPoints ? `its indices have more than ${maxPoints} shards each` : undefined;
}

/** By the number of a shard: how many indices have it. */
function countShards({ shardsByIndex }: IndexMetadata): readonly number[] {
  const most = Math.max(0, ...shardsByIndex.values());
  return Array.from({ length: most }, (_, number) => {
    return [...shardsByIndex.values()].filter((shards) => shards > number).length;
  });
}

function describeAdded(
  { kept: earlier, gone }: KeptAndGone,
  state: SnapshotState,
  compared: readonly (ShardComparison & { readonly point: PointInTime })[],
): Snapshot["added"] {
  let documents = 0;
  const changedIndices = new Set(gone);
  for (const one of compared) {
    if (one.added === undefined) return undefined;
    documents += one.added;
    for (const index of one.changed) changedIndices.add(index);
  }
  for (const [pattern, { shards }] of earlier) {
    const now = state.get(pattern);
    const isShardGone = shards.some(({ size }, shard) => size > 0 && now?.shards.at(shard) === undefined);
    if (now === undefined || isShardGone) return undefined;
  }
  const knownByPoint = new Map(compared.map(({ point, known }) => [point, known]));
  return {
    documents,
    changedIndices,
    buildQuery: (point) => buildAddedQuery(requireKey(knownByPoint, point)),
  };
}

/** Whether all earlier indices are there and show what they showed, so that the same documents match and read the same. */
export function keepsIndices(earlier: IndexIdentities, now: IndexIdentities): boolean {
  return [...earlier.keys()].every((index) => keepsIndex(index, earlier, now));
}

function keepsIndex(index: string, earlier: IndexIdentities, now: IndexIdentities): boolean {
  const [one, other] = [earlier.get(index), now.get(index)];
  return other !== undefined && other.uuid === one?.uuid && other.fields === one?.fields;
}

export function describeIndices(
  { indices, groups, uuids }: IndexMetadata,
  isRead: SnapshotSources["isRead"],
): IndexIdentities {
  const fields = new Map<string, string>();
  for (const group of groups) {
    const digest = digestFields(group, isRead);
    for (const index of group.indices) fields.set(index, digest);
  }
  return new Map([...indices].map((index) => [index, { uuid: uuids.get(index), fields: fields.get(index) }]));
}

/** Groups are immutable. */
const digests = new WeakMap<IndexGroup, WeakMap<SnapshotSources["isRead"], string>>();

function digestFields(group: IndexGroup, isRead: SnapshotSources["isRead"]): string {
  const byFilter = digests.get(group) ?? new WeakMap<SnapshotSources["isRead"], string>();
  digests.set(group, byFilter);
  const known = byFilter.get(isRead);
  if (known !== undefined) return known;
  const sorted = [...group.fields].filter(([name]) => isRead(name)).sort(([a], [b]) => compare(a, b));
  const hash = createHash("sha256");
  for (const field of sorted) hash.update(JSON.stringify(field));
  const digest = hash.digest("base64");
  byFilter.set(isRead, digest);
  return digest;
}

/** About how many bytes of memory it takes. */
function measureState(state: SnapshotState): number {
  let bytes = 0;
  for (const { indices, shards } of state.values()) {
    for (const [name, { uuid = "" }] of indices) bytes += 200 + 2 * (name.length + uuid.length);
    for (const shard of shards)
      for (const [name, { missing = [] }] of shard) bytes += 200 + 2 * name.length + 8 * missing.length;
  }
  return bytes;
}
