// One step of a roller for one group: drops the segments that do not hold any more, makes the newest one that is missing, and
// merges. The documents of segments come first and the manifest last, under the condition that nobody else has replaced it: so
// a roller may end at any point, and another may do the same at the same time.
import { Refused } from "../../core/errors.ts";
import {
  fromMillis,
  type Instant,
  type Millis,
  minute,
  nanosPerMilli,
  type TimeRange,
  toMillis,
} from "../../core/time.ts";
import type { NewDocument, RollupStore } from "../../store/rollups.ts";
import type { SpanSnapshot } from "../../store/spans.ts";
import { findChangedMinutes } from "../rollups/changes.ts";
import { dropFromCover, type StoredSegment } from "../rollups/stored-cover.ts";
import { createBudget, trackBudget } from "../spans/read-budget.ts";
import {
  emptyManifest,
  formatManifestId,
  type Manifest,
  parseManifest,
  printManifest,
  printSegment,
} from "./manifest.ts";
import {
  choosePiece,
  findDayToMerge,
  findEndOfClosed,
  findHourToMerge,
  findNewestHole,
  type Hole,
  insertSegment,
  type Merge,
} from "./pieces.ts";
import type { RollTarget } from "./roll-target.ts";

export interface RollContext {
  readonly store: RollupStore;
  readonly now: () => Instant;
  /** Most segments have at most so many spans. */
  readonly segmentSpans: number;
  /** What one step may read. */
  readonly maxDocuments: number;
}

export interface RollStep {
  /**
   * `unsupported`: the source cannot tell what has changed. `lost`: another instance was faster. `refused`: a piece takes more
   * documents than a step may read. `idle`: nothing is missing.
   */
  readonly did: "made" | "merged" | "idle" | "refused" | "lost" | "unsupported";
  /** Documents that were read. */
  readonly documents: number;
  /** What is kept now. */
  readonly manifest: Manifest;
  /** The piece that takes too much. */
  readonly refused?: TimeRange | undefined;
}

/** Spans that come so long after their end are late. */
const lateness: Millis = minute;
/** Documents that may have been added since the last step; else all figures of the group are made anew. */
const maxAdded = 2_000_000;
/** A manifest without changes is written again so often, so that it is seen that somebody cares for it. */
const rewriteAfter: Millis = 10 * minute;

/** What is in work of one group. */
interface Work {
  readonly context: RollContext;
  readonly target: RollTarget;
  readonly snapshot: SpanSnapshot;
  /** Documents to be written before the manifest. */
  readonly documents: NewDocument[];
  segments: readonly StoredSegment[];
  merged: readonly StoredSegment[];
}

interface RollOptions {
  /** Pieces that take too much. */
  readonly skipped: readonly TimeRange[];
  /** Whether documents to which the manifest refers may be gone, or may not be readable. */
  readonly isUnverified: boolean;
}

/** Errors as `SpanReader.scan` and `RollupStore`, but for refusals. */
export async function rollGroup(
  context: RollContext,
  target: RollTarget,
  { skipped, isUnverified }: RollOptions,
  signal: AbortSignal,
): Promise<RollStep> {
  const { store, now } = context;
  const { reader, group, sources } = target;
  const { manifest, revision } = await readManifest(store, group, signal);
  const since = manifest.version === undefined ? undefined : reader.parseVersion?.(manifest.version);
  const snapshot = await reader.openSnapshot?.(sources, since, signal);
  const version = snapshot?.version.print?.();
  if (snapshot === undefined || version === undefined) {
    snapshot?.close();
    return { did: "unsupported", documents: 0, manifest };
  }
  const { budget, spent } = trackBudget(createBudget(context.maxDocuments));
  try {
    const work: Work = {
      context,
      target,
      snapshot,
      documents: [],
      ...(await keepUnchanged(manifest, target, snapshot, signal)),
    };
    dropOld(work);
    if (isUnverified) await dropMissing(work, signal);
    const made = await makeNewest(work, skipped, budget, signal);
    const isMerged = await mergeNext(work, signal);
    const next: Manifest = { at: toMillis(now()), version, segments: work.segments, merged: work.merged };
    const did =
      made.range === undefined ? (isMerged ? "merged" : "idle") : made.isRefused ? "refused" : "made";
    const refused = made.isRefused ? made.range : undefined;
    if (!isWorthWriting(manifest, next, snapshot, did)) return { did, documents: spent(), manifest, refused };
    await store.create(work.documents, signal);
    const document = toManifestDocument(target, next);
    const isWritten = await store.replace(document, revision, signal);
    if (!isWritten) return { did: "lost", documents: spent(), manifest };
    return { did, documents: spent(), manifest: next, refused };
  } finally {
    snapshot.close();
  }
}

/** Writes a manifest without segments where there is none, so that requests know that figures will be made. */
export async function announceGroup(
  { store, now }: Pick<RollContext, "store" | "now">,
  target: RollTarget,
  signal: AbortSignal,
): Promise<void> {
  const { revision } = await readManifest(store, target.group, signal);
  if (revision !== undefined) return;
  await store.replace(
    toManifestDocument(target, { ...emptyManifest, at: toMillis(now()) }),
    undefined,
    signal,
  );
}

function toManifestDocument({ group, name: { site } }: RollTarget, manifest: Manifest): NewDocument {
  return { id: formatManifestId(group), site, made: manifest.at, body: printManifest(group, manifest) };
}

/** One that cannot be read is as good as an empty one, and is replaced. */
async function readManifest(
  store: RollupStore,
  group: string,
  signal: AbortSignal,
): Promise<{ readonly manifest: Manifest; readonly revision: string | undefined }> {
  const [found] = await store.read([formatManifestId(group)], signal);
  const manifest = found && parseManifest(group, found.body);
  return { manifest: manifest ?? emptyManifest, revision: found?.revision };
}

/** The segments that hold in the snapshot. */
async function keepUnchanged(
  { segments, merged }: Manifest,
  { sources, isLocal }: RollTarget,
  { added, reader }: SpanSnapshot,
  signal: AbortSignal,
): Promise<Pick<Work, "segments" | "merged">> {
  const [first, last] = [segments.at(0), segments.at(-1)];
  if (added === undefined || first === undefined || last === undefined) return { segments: [], merged: [] };
  const within = { from: first.range.from, to: last.range.to };
  const changed = await findChangedMinutes({ sources, isLocal, added, reader, maxAdded, within }, signal);
  return changed === undefined ? { segments: [], merged: [] } : dropFromCover({ segments, merged }, changed);
}

/** Drops what the retention has passed. */
function dropOld(work: Work): void {
  const oldest = findOldest(work);
  const isKept = ({ range }: StoredSegment): boolean => range.to >= oldest;
  work.segments = work.segments.filter(isKept);
  work.merged = work.merged.filter(isKept);
}

/** Drops segments whose documents are gone or cannot be read. */
async function dropMissing(work: Work, signal: AbortSignal): Promise<void> {
  const { context, target, segments, merged } = work;
  const missing = new Set(await target.findMissing(context.store, [...segments, ...merged], signal));
  work.segments = segments.filter((segment) => !missing.has(segment));
  work.merged = merged.filter((segment) => !missing.has(segment));
}

const minuteLength = BigInt(minute) * nanosPerMilli;

function findOldest({ context, target }: Work): Instant {
  const oldest = context.now() - fromMillis(target.retention);
  return (oldest - (oldest % minuteLength) + minuteLength) as Instant;
}

interface MadePiece {
  readonly range: TimeRange | undefined;
  readonly isRefused: boolean;
}

/** Makes the newest segment that is missing. */
async function makeNewest(
  work: Work,
  skipped: readonly TimeRange[],
  budget: ReturnType<typeof createBudget>,
  signal: AbortSignal,
): Promise<MadePiece> {
  const { context, target, snapshot } = work;
  const { sources, select } = target;
  const count = async (range: TimeRange): Promise<number> =>
    (await snapshot.reader.count?.({ sources, range, select, budget }, signal)) ?? 0;
  const { segmentSpans } = context;
  const closed = (context.now() - fromMillis(lateness)) as Instant;
  const bounds: Hole = { start: findOldest(work), end: await findEndOfClosed(closed, segmentSpans, count) };
  const hole = findNewestHole(work.segments, skipped, bounds);
  if (hole === undefined) return { range: undefined, isRefused: false };
  const range = await choosePiece(hole, segmentSpans, count);
  try {
    addSegment(work, "segments", range, await target.make(snapshot.reader, range, budget, signal));
    return { range, isRefused: false };
  } catch (error) {
    if (error instanceof Refused) return { range, isRefused: true };
    throw error;
  }
}

function addSegment(work: Work, list: "segments" | "merged", range: TimeRange, figures: unknown): void {
  const { group, name } = work.target;
  const { segment, body } = printSegment(group, range, figures);
  work.documents.push({ id: segment.id, site: name.site, made: toMillis(work.context.now()), body });
  work[list] = insertSegment(work[list], segment);
}

/** Merges one hour or one day, if there is any. Segments that are missing are given up, and made anew later. */
async function mergeNext(work: Work, signal: AbortSignal): Promise<boolean> {
  const now = work.context.now();
  const ofHour = findHourToMerge(work.segments, now);
  const merge = ofHour ?? findDayToMerge(work, now);
  if (merge === undefined) return false;
  const written = new Set(work.documents.map(({ id }) => id));
  // One that this step has made is not to be read yet.
  if (merge.segments.some(({ id }) => written.has(id))) return false;
  const { figures, missing } = await work.target.merge(work.context.store, merge.segments, signal);
  if (missing.length > 0) dropSegments(work, missing);
  else {
    if (ofHour !== undefined) dropSegments(work, merge.segments);
    addSegment(work, ofHour === undefined ? "merged" : "segments", merge.range, figures);
  }
  return true;
}

function dropSegments(work: Work, dropped: Merge["segments"]): void {
  work.segments = work.segments.filter((segment) => !dropped.includes(segment));
}

function isWorthWriting(
  before: Manifest,
  next: Manifest,
  { added }: SpanSnapshot,
  did: RollStep["did"],
): boolean {
  const isSame =
    before.segments.length === next.segments.length && before.merged.length === next.merged.length;
  const isUnchanged = added?.documents === 0 && isSame && did !== "made" && did !== "merged";
  return !isUnchanged || next.at - before.at > rewriteAfter;
}
