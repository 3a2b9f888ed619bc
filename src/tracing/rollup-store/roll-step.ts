// One step of a roller for the groups of some sources: drops the segments that do not hold any more, makes the newest ones that are
// missing, of one reading of their spans, and merges. The documents of segments come first and the manifest last, under the
// condition that nobody else has replaced it: so a roller may end at any point, and another may do the same at the same time.
import {
  isNonEmpty,
  type NonEmpty,
  requireAt,
  requireFirst,
  requireKey,
  requireLast,
} from "../../core/collections.ts";
import { Refused } from "../../core/errors.ts";
import { isLongerThan } from "../../core/json/measure-json.ts";
import {
  fromMillis,
  type Instant,
  later,
  type Millis,
  minute,
  nanosPerMilli,
  type TimeRange,
  toMillis,
} from "../../core/time.ts";
import type { NewDocument, RollupStore } from "../../store/rollups.ts";
import type { SnapshotVersion, SpanReader, SpanSnapshot, SpanSources } from "../../store/spans.ts";
import { type KeptVersion, openCaughtUpSnapshot } from "../rollups/caught-up-snapshot.ts";
import { type Changes, findChanges } from "../rollups/changes.ts";
import { dropFromCover, type StoredSegment } from "../rollups/stored-cover.ts";
import { createBudget, createBudgetShare, trackBudget, unlimitedBudget } from "../spans/read-budget.ts";
import { findDamagedSegments } from "./catalogue.ts";
import {
  type FoundManifest,
  type GroupToRoll,
  readManifestsToReplace,
  toManifestDocument,
} from "./group-manifests.ts";
import { emptyManifest, type Manifest, printSegment } from "./manifest.ts";
import { findMissing, type MissingOfGroup } from "./missing-documents.ts";
import {
  choosePiece,
  findDayToMerge,
  findEndOfClosed,
  findHourToMerge,
  findNewestHole,
  type Hole,
  insertSegment,
  replaceOldSegments,
} from "./pieces.ts";
import type { RollTarget } from "./roll-target.ts";
import { readSegment } from "./segment-reader.ts";
import { startSharing } from "./shared-work.ts";

export interface RollContext {
  readonly store: RollupStore;
  readonly now: () => Instant;
  /** Most segments have at most so many spans. */
  readonly segmentSpans: number;
  /** What one step may read for a group. */
  readonly maxDocuments: number;
  /** Of more spans, each group reads by itself, so that they need not be held in memory. */
  readonly maxHeldSpans: number;
  /** Segments whose sum has more bytes stay apart: a request parses each document in one turn. */
  readonly maxMergedBytes: number;
  /** Before a snapshot is opened again that is behind. */
  readonly behindPause: Millis;
}

export interface RollStep {
  /**
   * `unsupported`: the source cannot tell what has changed. `lost`: another instance was faster. `refused`: a piece takes more
   * documents than a step may read. `idle`: nothing is missing. `behind`: the source lacks documents of an origin that figures were
   * made of, or its copy does not show them yet.
   */
  readonly did: "made" | "merged" | "idle" | "refused" | "lost" | "unsupported" | "behind";
  /** Documents that were read; those that were read for several groups are shared among them. */
  readonly documents: number;
  /** What is kept now. */
  readonly manifest: Manifest;
  /** The piece that takes too much. */
  readonly refused?: TimeRange | undefined;
  /** Undefined where nobody knows. */
  readonly missing?: MissingOfGroup;
}

/** Spans that come so long after their end are late. */
const lateness: Millis = minute;
/** Documents that may have been added since the last step; else all figures of the group are made anew. */
const maxAdded = 2_000_000;
/** A manifest without changes is written again so often, so that it is seen that somebody cares for it. */
const rewriteAfter: Millis = 10 * minute;

/** The state of one group during a step. */
interface Work {
  readonly context: RollContext;
  readonly groupToRoll: GroupToRoll;
  readonly before: ChangedManifest;
  /** Documents to be written before the manifest. */
  readonly documents: NewDocument[];
  segments: readonly StoredSegment[];
  merged: readonly StoredSegment[];
  /** As `Manifest.unmergeable`. */
  readonly unmergeable: Set<string>;
  /** Pieces that were made. */
  made: number;
  /** Documents that were read for it. */
  read: number;
  /** The piece that takes too much, with which the step ends. */
  refused: TimeRange | undefined;
}

/**
 * A step for each of the groups. The first one has all of the sources that the others have. Errors as `SpanReader.scan` and
 * `RollupStore`, but for refusals.
 */
export async function rollGroups(
  context: RollContext,
  groupsToRoll: NonEmpty<GroupToRoll>,
  signal: AbortSignal,
): Promise<readonly RollStep[]> {
  const { reader, sources } = groupsToRoll[0].target;
  const found = await readManifestsToReplace(context.store, groupsToRoll, signal);
  const version = parseSince(reader, requireFirst(found).manifest);
  const needs: KeptVersion["needs"] = (origins) => found.some((one) => findMissing(one, origins).isWaiting);
  const kept = version === undefined ? [] : [{ version, needs }];
  const snapshot = await openCaughtUpSnapshot(reader, { sources, kept, pause: context.behindPause }, signal);
  if (snapshot?.version.print === undefined) {
    snapshot?.close();
    return found.map(({ manifest }) => ({ did: "unsupported", documents: 0, manifest }));
  }
  try {
    const changed = await findAllChanges(found, snapshot, signal);
    const ready = changed.filter(({ missing }) => !missing.isWaiting);
    const works = await startWorks(context, ready, signal);
    if (works.length > 0) await makePieces(context, works, { snapshot, sources }, signal);
    const taken = await finishWorks(context, works, signal);
    const steps = new Map(ready.map((one, at) => [one, requireAt(taken, at)] as const));
    return changed.map((one) => {
      const { manifest, missing } = one;
      return { ...(steps.get(one) ?? { did: "behind", documents: 0, manifest }), missing };
    });
  } finally {
    snapshot.close();
  }
}

function parseSince(reader: SpanReader, manifest: Manifest): SnapshotVersion | undefined {
  return manifest.version === undefined ? undefined : reader.parseVersion?.(manifest.version);
}

interface ChangedManifest extends FoundManifest {
  /** Since the manifest was written. */
  readonly changes: SourceChanges;
  readonly missing: MissingOfGroup;
}

async function findAllChanges(
  found: readonly FoundManifest[],
  snapshot: SpanSnapshot,
  signal: AbortSignal,
): Promise<readonly ChangedManifest[]> {
  const known = new Map<string, SourceChanges>();
  const formatChanges = ({ groupToRoll, manifest }: FoundManifest): string =>
    JSON.stringify([groupToRoll.target.sources, manifest.version]);
  for (const [key, own] of Map.groupBy(found, formatChanges)) {
    known.set(key, await findSourceChanges(own, snapshot, signal));
  }
  return found.map((one) => {
    const changes = requireKey(known, formatChanges(one));
    return { ...one, changes, missing: findMissing(one, changes.behindOrigins) };
  });
}

/** Each group with the segments that hold in the snapshot. */
async function startWorks(
  context: RollContext,
  changed: readonly ChangedManifest[],
  signal: AbortSignal,
): Promise<readonly Work[]> {
  const works: Work[] = [];
  for (const before of changed) {
    const { segments, merged, unmergeable } = before.manifest;
    const { changes, missing } = before;
    const skipped = [...before.groupToRoll.skipped, ...missing.setAside];
    const work: Work = {
      context,
      groupToRoll: { ...before.groupToRoll, skipped },
      before,
      documents: [],
      unmergeable: new Set(unmergeable),
      made: 0,
      read: 0,
      refused: undefined,
      ...(changes.found === undefined
        ? { segments: [], merged: [] }
        : dropFromCover({ segments, merged }, changes.found)),
    };
    dropOld(work);
    if (before.groupToRoll.isUnverified) await dropMissing(work, signal);
    works.push(work);
  }
  return works;
}

/** What some sources have had since a version. */
interface SourceChanges {
  /** As of the snapshot. */
  readonly version: string;
  /** As `SpanSnapshot.behindOrigins`. */
  readonly behindOrigins: ReadonlySet<string>;
  readonly isUnchanged: boolean;
  /** Among the groups' segments. Undefined where nobody knows. */
  readonly found: Changes | undefined;
}

/** Of groups with the same sources and the same version. */
async function findSourceChanges(
  groups: readonly FoundManifest[],
  snapshot: SpanSnapshot,
  signal: AbortSignal,
): Promise<SourceChanges> {
  const { groupToRoll, manifest } = requireFirst(groups);
  const { reader, sources } = groupToRoll.target;
  const selected = await snapshot.select(sources, parseSince(reader, manifest), signal);
  const { version, added, behindOrigins } = selected;
  const isUnchanged = added?.documents === 0 && added.changedOrigins.size === 0;
  const ranges = groups.flatMap(({ manifest: { segments } }) => segments.map(({ range }) => range));
  const changes = { version: version.print?.() ?? "", isUnchanged, behindOrigins };
  if (added === undefined || !isNonEmpty(ranges)) return { ...changes, found: undefined };
  // Where one group is not local, all are treated so. Local ones then drop a few segments too many, made again with the others'.
  const isLocal = groups.every(({ groupToRoll: { target } }) => target.isLocal);
  const all = { sources, isLocal, added, reader: snapshot.reader, maxAdded, kept: ranges };
  return { ...changes, found: await findChanges(all, signal) };
}

/** Merges, and writes what is new: the documents of all groups, then the manifest of each. */
async function finishWorks(
  context: RollContext,
  works: readonly Work[],
  signal: AbortSignal,
): Promise<readonly RollStep[]> {
  const finished: FinishedWork[] = [];
  for (const work of works) finished.push(await mergeWork(work, signal));
  const written = finished.filter(({ isWorthWriting }) => isWorthWriting).map(({ work }) => work.documents);
  if (written.length > 0) await context.store.create(written.flat(), signal);
  const steps: RollStep[] = [];
  for (const work of finished) steps.push(await writeManifest(work, signal));
  return steps;
}

interface FinishedWork {
  readonly work: Work;
  readonly did: "made" | "refused" | "merged" | "idle";
  readonly next: Manifest;
  readonly isWorthWriting: boolean;
}

async function mergeWork(work: Work, signal: AbortSignal): Promise<FinishedWork> {
  const { context, before, made, refused } = work;
  const isMerged = await mergeNext(work, signal);
  const next: Manifest = {
    at: toMillis(context.now()),
    version: before.changes.version,
    segments: work.segments,
    merged: work.merged,
    unmergeable: [...work.segments, ...work.merged]
      .map(({ id }) => id)
      .filter((id) => work.unmergeable.has(id)),
  };
  const did = refused !== undefined ? "refused" : made > 0 ? "made" : isMerged ? "merged" : "idle";
  return { work, did, next, isWorthWriting: isMerged || isWorthWriting(next, work) };
}

async function writeManifest(
  { work, did, next, isWorthWriting }: FinishedWork,
  signal: AbortSignal,
): Promise<RollStep> {
  const { context, groupToRoll, before, read: documents, refused } = work;
  const { manifest, revision } = before;
  if (!isWorthWriting) return { did, documents, manifest, refused };
  const isWritten = await context.store.replace(
    toManifestDocument(groupToRoll.target, next),
    revision,
    signal,
  );
  return isWritten ? { did, documents, manifest: next, refused } : { did: "lost", documents, manifest };
}

/** Writes a manifest without segments where there is none, so that requests know that figures will be made. */
export async function announceGroup(
  { store, now }: Pick<RollContext, "store" | "now">,
  target: RollTarget,
  signal: AbortSignal,
): Promise<void> {
  const groupToRoll = {
    target,
    skipped: [],
    isUnverified: false,
    mayTakeAsDeleted: () => false,
    isUnstable: () => false,
  };
  const [found] = await readManifestsToReplace(store, [groupToRoll], signal);
  if (found?.revision !== undefined) return;
  await store.replace(
    toManifestDocument(target, { ...emptyManifest, at: toMillis(now()) }),
    undefined,
    signal,
  );
}

/** Drops what the retention has passed. */
function dropOld(work: Work): void {
  const oldest = findOldest(work);
  const isKept = ({ range }: StoredSegment): boolean => range.to >= oldest;
  work.segments = work.segments.filter(isKept);
  work.merged = work.merged.filter(isKept);
}

/** Drops segments whose documents are gone, or are not those that were written. */
async function dropMissing(work: Work, signal: AbortSignal): Promise<void> {
  const { context, segments, merged } = work;
  await dropSegments(
    work,
    await findDamagedSegments(context.store, [...segments, ...merged], signal),
    signal,
  );
}

/**
 * Deletes their documents too: those that are made anew may have the same ids, and would not be written. Sums over them are dropped
 * as well: beside a sum, an hour that is made anew in one segment would be there twice.
 */
async function dropSegments(
  work: Work,
  segments: readonly StoredSegment[],
  signal: AbortSignal,
): Promise<void> {
  if (segments.length === 0) return;
  await work.context.store.remove(
    segments.map(({ id }) => id),
    signal,
  );
  const dropped = new Set(segments);
  work.segments = work.segments.filter((segment) => !dropped.has(segment));
  const gone = segments.map(({ range }) => range);
  const isOverGone = ({ range }: StoredSegment): boolean =>
    gone.some(({ from, to }) => range.from <= from && to <= range.to);
  work.merged = work.merged.filter((segment) => !isOverGone(segment));
}

const minuteLength = BigInt(minute) * nanosPerMilli;

/** A manifest counts minutes since 1970: what ended before is read. */
function findOldest({ context, groupToRoll }: Work): Instant {
  const oldest = context.now() - fromMillis(groupToRoll.target.retention);
  if (oldest < 0n) return fromMillis(0);
  return (oldest - (oldest % minuteLength) + minuteLength) as Instant;
}

/**
 * Makes pieces that are missing, the newest first, until the step has read enough. So what a step itself costs the source is spread
 * over many small pieces.
 */
async function makePieces(
  context: RollContext,
  works: readonly Work[],
  source: Pick<PieceSource, "snapshot" | "sources">,
  signal: AbortSignal,
): Promise<void> {
  const { segmentSpans } = context;
  const { snapshot, sources } = source;
  const count = async (range: TimeRange): Promise<number> =>
    (await snapshot.reader.count?.({ sources, range, select: "all", budget: unlimitedBudget }, signal)) ?? 0;
  const closed = (context.now() - fromMillis(lateness)) as Instant;
  const end = await findEndOfClosed(closed, segmentSpans, count);
  for (let pieces = 0, read = 0; pieces < piecesPerStep && read < 2 * segmentSpans; pieces += 1) {
    const hole = findHoleOfAll(works, end);
    if (hole === undefined) return;
    const range = await choosePiece(hole, segmentSpans, count);
    read += await makePiece(context, works, { ...source, range }, signal);
    if (works.some(({ refused }) => refused !== undefined)) return;
  }
}

const piecesPerStep = 24;

interface PieceSource {
  readonly snapshot: SpanSnapshot;
  readonly sources: SpanSources;
  readonly range: TimeRange;
}

/** Makes a piece for all groups that miss it. Returns how many documents were read. */
async function makePiece(
  { maxHeldSpans }: RollContext,
  works: readonly Work[],
  { snapshot, sources, range }: PieceSource,
  signal: AbortSignal,
): Promise<number> {
  const origins = new Set<string>();
  const reader = snapshot.trackOrigins((origin) => origins.add(origin));
  const missing = works.filter((work) => isMissing(work, range));
  const share = trackBudget(createBudgetShare(unlimitedBudget, maxHeldSpans));
  const segment = { sources, range, budget: share.budget };
  const held = missing.length > 1 ? await readSegment(reader, segment, signal) : undefined;
  const shared = Math.round(share.spent() / Math.max(missing.length, 1));
  let read = 0;
  const source = held ?? reader;
  startSharing(source);
  for (const work of missing) {
    const own = shared + (await makeSegment(work, source, { range, origins }, signal));
    work.read += own;
    read += own;
  }
  return read;
}

/** The newest piece that is missing in any group, as far as it is missing in all groups that miss its end. */
function findHoleOfAll(works: readonly Work[], end: Instant): Hole | undefined {
  const holes = works.flatMap((work) => {
    const bounds: Hole = { start: findOldest(work), end };
    return findNewestHole(work.segments, work.groupToRoll.skipped, bounds) ?? [];
  });
  if (!isNonEmpty(holes)) return undefined;
  const newest = holes.reduce((most, hole) => later(most, hole.end), holes[0].end);
  const ending = holes.filter((hole) => hole.end === newest);
  return { start: ending.map(({ start }) => start).reduce(later), end: newest };
}

function isMissing(work: Work, { from, to }: TimeRange): boolean {
  const taken = [...work.segments.map(({ range }) => range), ...work.groupToRoll.skipped];
  return from >= findOldest(work) && taken.every((one) => one.to < from || one.from > to);
}

/** Returns how many documents it has read by itself. */
async function makeSegment(
  work: Work,
  reader: SpanReader,
  piece: MadePiece,
  signal: AbortSignal,
): Promise<number> {
  const { range } = piece;
  const { budget, spent } = trackBudget(createBudget(work.context.maxDocuments));
  try {
    addSegment(work, "segments", piece, await work.groupToRoll.target.make(reader, range, budget, signal));
    work.made += 1;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    work.refused = range;
  }
  return spent();
}

interface MadePiece {
  readonly range: TimeRange;
  /** As `StoredSegment.origins`; once its figures are made, all are there. */
  readonly origins: ReadonlySet<string>;
}

function addSegment(work: Work, list: "segments" | "merged", piece: MadePiece, figures: unknown): void {
  const { group, name } = work.groupToRoll.target;
  const { segment, body } = printSegment(group, piece, figures);
  work.documents.push({ id: segment.id, site: name.site, made: toMillis(work.context.now()), body });
  work[list] = insertSegment(work[list], segment);
}

/** Merges one hour or one day, or drops segments of it that are missing. Returns whether there was one to merge. */
async function mergeNext(work: Work, signal: AbortSignal): Promise<boolean> {
  const { unmergeable } = work;
  const { now: readClock, maxMergedBytes } = work.context;
  const now = readClock();
  // The length of a sum is known only after merging. Segments repeat one another, so one that is too long is enough.
  const isApart = (segments: readonly StoredSegment[]): boolean =>
    unmergeable.has(requireLast(segments).id) || segments.some(({ bytes }) => bytes > maxMergedBytes);
  const kept = replaceOldSegments(work, now);
  work.segments = kept.segments;
  work.merged = kept.merged;
  const merge = findHourToMerge(work, now, isApart) ?? findDayToMerge(work, now, isApart);
  if (merge === undefined) return false;
  const written = new Set(work.documents.map(({ id }) => id));
  // One that this step has made is not to be read yet.
  if (merge.segments.some(({ id }) => written.has(id))) return false;
  const { context, groupToRoll } = work;
  const { figures, missing } = await groupToRoll.target.merge(context.store, merge.segments, signal);
  if (missing.length > 0) await dropSegments(work, missing, signal);
  else if (isLongerThan(figures, maxMergedBytes)) unmergeable.add(requireLast(merge.segments).id);
  else {
    const origins = new Set(merge.segments.flatMap((segment) => segment.origins));
    addSegment(work, "merged", { range: merge.range, origins }, figures);
  }
  return true;
}

function isWorthWriting(next: Manifest, { before: { manifest: before, changes }, made }: Work): boolean {
  const isSame =
    before.segments.length === next.segments.length && before.merged.length === next.merged.length;
  const isUnchanged = changes.isUnchanged && isSame && made === 0;
  return !isUnchanged || next.at - before.at > rewriteAfter;
}
