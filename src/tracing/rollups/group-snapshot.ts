// Opens the snapshot of a request for a group of figures, and finds which figures in memory and in the index still hold in it.
import { BackendError, isTrouble } from "../../core/errors.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type { SpanSnapshot, SpanSources } from "../../store/spans.ts";
import { type KeptVersion, openCaughtUpSnapshot } from "./caught-up-snapshot.ts";
import { findChangesForRequest } from "./changes.ts";
import type { PieceChoice } from "./choice.ts";
import type { AnalysisKind, RollupQuery, RollupTask } from "./figures-kind.ts";
import {
  dropChangedSegments,
  type Group,
  isGroupMadeOf,
  listKeptRanges,
  type RollupCache,
  setCover,
  setVersion,
} from "./rollup-cache.ts";
import {
  findGaps,
  isCoverMadeOf,
  type KeptSegments,
  proveCover,
  type StoredGroup,
  selectSegments,
} from "./stored-cover.ts";

/** Opens a snapshot that has what the kept figures were made of, if any copy of the source shows it now. */
export async function openGroupSnapshot<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  { reader, sources }: RollupTask<Query, Figures, Answer>,
  { found }: StoredLookup,
  signal: AbortSignal,
): Promise<SpanSnapshot | undefined> {
  // The proof that an earlier version holds costs less than a version by itself.
  const kept: KeptVersion[] = [];
  const { version } = group;
  if (version !== undefined) kept.push({ version, needs: (origins) => isGroupMadeOf(group, origins) });
  if (found !== undefined && found.revision !== group.cover?.revision)
    kept.push({ version: found.version, needs: (origins) => isCoverMadeOf(found, origins) });
  return openCaughtUpSnapshot(reader, { sources, kept, pause: cache.behindPause }, signal);
}

function hasKept(group: Group): boolean {
  return hasSegments(group) || group.cover !== undefined;
}

interface LoadedFigures<Figures> {
  readonly figures: readonly Figures[];
  /** What is left of the range. */
  readonly gaps: readonly TimeRange[];
  /** Whether all were there that the index is said to keep. */
  readonly isComplete: boolean;
  readonly choices: PieceChoice[];
  /** Why nothing could be read in time, although there may be figures. */
  readonly failure?: BackendError;
}

/**
 * The figures that are kept outside of this process, of the segments that hold in the snapshot. None where they cannot be read: a
 * small range is then read from the source.
 */
export async function loadStored<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  task: RollupTask<Query, Figures, Answer>,
  { found, failure, snapshot }: StoredLookup & { readonly snapshot: SpanSnapshot },
  signal: AbortSignal,
): Promise<LoadedFigures<Figures>> {
  const nothing = { figures: [], gaps: [task.query.range], isComplete: false, choices: [] };
  if (failure !== undefined) return isTrouble(failure) ? { ...nothing, failure } : nothing;
  if (found === undefined) return nothing;
  const { kind, sources } = task;
  // A cover of this revision is already compared with the snapshot, by `dropChanged`; that of another one is not.
  const cover =
    group.cover?.revision === found.revision
      ? group.cover
      : await proveCover(found, { sources, isLocal: kind.isLocal, snapshot }, signal);
  setCover(cache, group, cover);
  try {
    return await loadFound(cache, cover, task, found, signal);
  } catch (error) {
    const failure = noteFailure(cache, error, signal);
    return isTrouble(failure) ? { ...nothing, failure } : nothing;
  }
}

/** What the index says of a group of figures, or why it says nothing. */
interface StoredLookup {
  readonly found?: StoredGroup | undefined;
  readonly failure?: BackendError;
}

export async function lookUpStored<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  { kind, reader, query }: RollupTask<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<StoredLookup> {
  const { parseVersion } = reader;
  if (cache.stored === undefined || parseVersion === undefined) return {};
  try {
    return { found: await cache.stored.find(kind.stored.chooseGroup(query), parseVersion, signal) };
  } catch (error) {
    return { failure: noteFailure(cache, error, signal) };
  }
}

/** @throws the error, where it is none of the store */
function noteFailure({ stored }: RollupCache, error: unknown, signal: AbortSignal): BackendError {
  signal.throwIfAborted();
  if (!(error instanceof BackendError)) throw error;
  stored?.reportFailure(error);
  return error;
}

async function loadFound<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  cover: KeptSegments,
  { kind, query }: RollupTask<Query, Figures, Answer>,
  found: StoredGroup,
  signal: AbortSignal,
): Promise<LoadedFigures<Figures>> {
  const { range } = query;
  const decode = (value: unknown) => kind.stored.decode(value, query);
  const selected = selectSegments(cover, range);
  const loaded = await found.load(selected, decode, signal);
  for (const _ of loaded) cache.recordLookup(true);
  return {
    figures: [...loaded.values()],
    gaps: findGaps(range, [...loaded.keys()]),
    isComplete: loaded.size === selected.length,
    choices: [...loaded.keys()].map((segment) => ({
      range: segment.range,
      how: "stored",
      why: "proved to be unchanged since the index kept it",
    })),
  };
}

interface Comparison<Query extends RollupQuery, Figures, Answer> {
  readonly kind: AnalysisKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly snapshot: SpanSnapshot;
}

/** Drops the figures that do not hold any more; returns their segments. Those that are left hold as of the snapshot. */
export async function dropChanged<Query extends RollupQuery, Figures, Answer>(
  cache: RollupCache,
  group: Group,
  { kind: { isLocal }, sources, snapshot }: Comparison<Query, Figures, Answer>,
  signal: AbortSignal,
): Promise<ReadonlySet<Instant>> {
  const { added, reader, version } = snapshot;
  let dropped: ReadonlySet<Instant> = new Set();
  if (hasKept(group)) {
    const [kept, isStored] = [listKeptRanges(group), group.cover !== undefined];
    const query = { sources, isLocal, added, reader, kept, isStored };
    const changes = await findChangesForRequest(query, signal);
    dropped = dropChangedSegments(cache, group, changes);
  }
  setVersion(cache, group, version);
  return dropped;
}

export function hasSegments({ segments, pending }: Group): boolean {
  return segments.size > 0 || pending.size > 0;
}
