// Kept figures of segments, by what they depend on, within a bound of memory. Whoever uses figures holds references to them, so
// that none of them has to stay in the cache for a request.
import type { Mutex } from "../../core/async/mutex.ts";
import { requireFirst } from "../../core/collections.ts";
import { compare } from "../../core/rows.ts";
import type { Instant, Millis, TimeRange } from "../../core/time.ts";
import type { SnapshotVersion } from "../../store/spans.ts";
import type { Changes } from "./changes.ts";
import { measureText } from "./duration-figures.ts";
import { findSegmentStart, segmentLengths } from "./segments.ts";
import {
  dropFromCover,
  isCoverMadeOf,
  isMadeOf,
  type ProvedCover,
  type StoredRollups,
} from "./stored-cover.ts";

/** Kept figures; the group that was used last comes last. */
export interface RollupCache extends RollupSettings {
  readonly groups: Map<string, Group>;
  bytes: number;
}

interface RollupSettings {
  /** Whose figures they are, for explanations and measurements. */
  readonly backend: string;
  /** Of all kept figures; 0 keeps none. */
  readonly maxBytes: number;
  /** Fewer spans than this are read again each time, since the proof costs as much. */
  readonly minSpans: number;
  /** Most segments have about so many spans or fewer: what the two ends of a range cut off is read each time. */
  readonly segmentSpans: number;
  /** Before a snapshot is opened again that is behind. */
  readonly behindPause: Millis;
  readonly recordLookup: (hit: boolean) => void;
  /** Figures that are kept outside of this process, where there are any. */
  readonly stored?: StoredRollups | undefined;
  /** Is told how many bytes are kept, after each request that may have changed it. */
  readonly recordBytes: (bytes: number) => void;
}

/** The figures of one kind and its key. All hold as of one version. */
export interface Group {
  readonly key: string;
  version: SnapshotVersion | undefined;
  /** Of a segment. */
  length: bigint;
  /** By the start of the segment. */
  readonly segments: Map<Instant, KeptFigures>;
  /** Segments that requests are reading, by their start. They hold as of the version too: else they are dropped here. */
  readonly pending: Map<Instant, PendingFigures>;
  /** What is kept outside of this process and holds as of the version too. */
  cover: ProvedCover | undefined;
  /** Held while the version changes. */
  readonly mutex: Mutex;
  /** Requests that use the group. */
  users: number;
  /** How many more requests read the whole range without kept figures, since one took few documents: the source counts then. */
  directReadsLeft: number;
  /** How many spans that one was for. Of longer ranges it says nothing. */
  directReadMaxSpans: number;
}

interface KeptFigures {
  readonly figures: unknown;
  readonly bytes: number;
  /** As `StoredSegment.origins`; segments that were read together have one set. */
  readonly origins: ReadonlySet<string>;
}

/** Figures that a request is reading; undefined once it has ended without them. */
export type PendingFigures = PromiseWithResolvers<{ readonly figures: unknown } | undefined>;

export function createRollupCache(
  settings: Pick<RollupSettings, "backend" | "maxBytes"> & Partial<RollupSettings>,
): RollupCache {
  return {
    minSpans: 10_000,
    segmentSpans: 8_000,
    behindPause: 250,
    recordLookup: () => undefined,
    recordBytes: () => undefined,
    ...settings,
    groups: new Map(),
    bytes: 0,
  };
}

/** Bytes of a segment besides its figures, in memory or elsewhere, or of a group besides its key. */
const overhead = 400;
const bytesPerOrigin = 16;

/** The group of a key, which is the last one now. */
export function findGroup(cache: RollupCache, key: string): Group {
  const known = cache.groups.get(key);
  const group: Group = known ?? {
    key,
    version: undefined,
    length: requireFirst(segmentLengths),
    segments: new Map(),
    pending: new Map(),
    cover: undefined,
    mutex: { last: Promise.resolve() },
    users: 0,
    directReadsLeft: 0,
    directReadMaxSpans: 0,
  };
  if (known === undefined) cache.bytes += measureGroup(group);
  cache.groups.delete(key);
  cache.groups.set(key, group);
  return group;
}

/** Clients choose the keys of groups, so these count too. */
function measureGroup({ key }: Group): number {
  return measureText(key) + overhead;
}

export function setVersion(cache: RollupCache, group: Group, version: SnapshotVersion): void {
  cache.bytes += version.bytes - (group.version?.bytes ?? 0);
  group.version = version;
}

/** Sets what is kept outside of this process, of which the list of segments takes memory here. */
export function setCover(cache: RollupCache, group: Group, cover: ProvedCover | undefined): void {
  cache.bytes += measureCover(cover) - measureCover(group.cover);
  group.cover = cover;
}

function measureCover(cover: ProvedCover | undefined): number {
  return cover === undefined ? 0 : overhead * (cover.segments.length + cover.merged.length);
}

/** Keeps figures of a range's segment if there is room, or can be made: by groups and segments that are needed least. */
export function keepSegment(
  cache: RollupCache,
  group: Group,
  segment: Instant,
  { bytes: size, ...kept }: KeptFigures,
  range: TimeRange,
): void {
  const bytes = size + overhead + bytesPerOrigin * kept.origins.size;
  dropSegment(cache, group, segment);
  makeRoom(cache, bytes);
  if (!hasRoom(cache, bytes)) {
    const first = findSegmentStart(range.from, group.length);
    const before = [...group.segments.keys()].filter((other) => other < first).sort(compare);
    for (const other of before) if (!hasRoom(cache, bytes)) dropSegment(cache, group, other);
  }
  if (!hasRoom(cache, bytes)) return;
  group.segments.set(segment, { ...kept, bytes });
  cache.bytes += bytes;
}

function hasRoom(cache: RollupCache, bytes: number): boolean {
  return cache.bytes + bytes <= cache.maxBytes;
}

/** Drops groups that nobody uses, the one that was used longest ago first, until so many bytes fit. */
function makeRoom(cache: RollupCache, bytes: number): void {
  for (const group of cache.groups.values()) {
    if (hasRoom(cache, bytes)) return;
    if (group.users === 0) dropGroup(cache, group);
  }
}

/** Drops what is kept of a segment, and does not keep what is being read of it. */
function dropSegment(cache: RollupCache, group: Group, segment: Instant): void {
  cache.bytes -= group.segments.get(segment)?.bytes ?? 0;
  group.segments.delete(segment);
  group.pending.delete(segment);
}

/** Drops what does not hold any more; all where nobody knows what has changed. Returns the segments that may have been dropped. */
export function dropChangedSegments(
  cache: RollupCache,
  group: Group,
  changes: Changes | undefined,
): ReadonlySet<Instant> {
  setCover(cache, group, changes && group.cover && dropFromCover(group.cover, changes));
  const dropped = new Set(
    changes === undefined
      ? [...group.segments.keys(), ...group.pending.keys()]
      : [...listChangedSegments(group, changes)],
  );
  for (const segment of dropped) dropSegment(cache, group, segment);
  return dropped;
}

/** Of what is kept of a group, in memory and elsewhere, and of what requests are reading. */
export function* listKeptRanges({ length, segments, pending, cover }: Group): Generator<TimeRange> {
  for (const from of [...segments.keys(), ...pending.keys()])
    yield { from, to: (from + length - 1n) as Instant };
  for (const { range } of [...(cover?.segments ?? []), ...(cover?.merged ?? [])]) yield range;
}

function* listChangedSegments(
  { length, segments, pending }: Group,
  { minutes, changedOrigins }: Changes,
): Generator<Instant> {
  for (const minute of minutes) yield findSegmentStart(minute, length);
  if (changedOrigins.size === 0) return;
  for (const [segment, kept] of segments) if (isMadeOf(kept, changedOrigins)) yield segment;
  // Nobody knows yet where these come from.
  yield* pending.keys();
}

/** Whether what is kept of a group, or being read, is made of documents of these origins, or may be. */
export function isGroupMadeOf({ segments, pending, cover }: Group, some: ReadonlySet<string>): boolean {
  if (some.size === 0) return false;
  if (pending.size > 0 || (cover !== undefined && isCoverMadeOf(cover, some))) return true;
  return [...segments.values()].some((kept) => isMadeOf(kept, some));
}

export function dropSegments(cache: RollupCache, group: Group): void {
  for (const segment of [...group.segments.keys(), ...group.pending.keys()])
    dropSegment(cache, group, segment);
}

function dropGroup(cache: RollupCache, group: Group): void {
  dropSegments(cache, group);
  setCover(cache, group, undefined);
  if (cache.groups.delete(group.key)) cache.bytes -= measureGroup(group) + (group.version?.bytes ?? 0);
}

/** To be called when a request does not use the group any more. */
export function releaseGroup(cache: RollupCache, group: Group): void {
  group.users -= 1;
  const isEmpty = group.segments.size === 0 && group.cover === undefined && group.directReadsLeft === 0;
  if (isEmpty && group.users === 0) dropGroup(cache, group);
  makeRoom(cache, 0);
  cache.recordBytes(cache.bytes);
}
