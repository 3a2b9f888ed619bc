// The manifest of a group of figures: which segments are kept, in which documents, and as of which version of the source they
// hold. One document, replaced as a whole, so that whoever reads it sees a state that was true at one moment. Segments lie in
// documents of their own, which never change. All of it is input when it comes back.
import { createHash } from "node:crypto";
import { z } from "zod";
import { requireAt } from "../../core/collections.ts";
import { tryParseJson } from "../../core/json/parse-json.ts";
import { type Instant, type Millis, minute, nanosPerMilli, type TimeRange } from "../../core/time.ts";
import type { GroupName, StoredSegment } from "../rollups/stored-cover.ts";
import { figuresVersion } from "./figures-version.ts";

/**
 * The form of the documents. Those of another one are made anew. Instances of the version before may be at work meanwhile: they
 * leave segments alone as long as a document with the id of a manifest is written again within a day, whatever it holds.
 */
const format = 2;

export interface Manifest {
  /** When it was written, since 1970. */
  readonly at: Millis;
  /** What `SnapshotVersion.print` returns; undefined while there are no segments. */
  readonly version: string | undefined;
  /** In the order of time. None overlaps another. */
  readonly segments: readonly StoredSegment[];
  /** Hours and days, each with the figures of the segments that fill it, which may be hours in turn. */
  readonly merged: readonly StoredSegment[];
  /**
   * Hours and days whose segments are not added up, because their sum was too long: of each the id of the last segment. A
   * segment that is made anew with other figures has another id, so its hour is tried again.
   */
  readonly unmergeable: readonly string[];
}

export const emptyManifest: Manifest = {
  at: 0,
  version: undefined,
  segments: [],
  merged: [],
  unmergeable: [],
};

const nanosPerMinute = BigInt(minute) * nanosPerMilli;
const dayInMinutes = 1_440;
const mergedLengths: readonly number[] = [60, dayInMinutes];
/** Until the year 2262, where times end. */
const maxMinute = 153_722_867;

/**
 * A segment: its start and its length in minutes, the start since 1970; the hash at the end of its id; its bytes; the index of its
 * origins among the manifest's `origins`.
 */
const segmentSchema = z.tuple([
  z.int().min(0).max(maxMinute),
  z.int().min(1).max(dayInMinutes),
  z.string().regex(/^[\w-]{1,40}$/),
  z.int().min(0),
  z.int().min(0),
]);
type WrittenSegment = z.infer<typeof segmentSchema>;
/** Overlapping segments would count twice. */
const segmentsSchema = z.array(segmentSchema).refine((segments) => {
  let next = 0;
  return segments.every(([start, minutes]) => {
    const isFree = start >= next;
    next = start + minutes;
    return isFree;
  });
});
/** So of two either none overlaps the other, or the day has the hour. */
const mergedSchema = z.array(segmentSchema).refine((merged) => {
  const isAligned = ([start, minutes]: WrittenSegment): boolean =>
    mergedLengths.includes(minutes) && start % minutes === 0;
  const ranges = new Set(merged.map(([start, minutes]) => `${start}+${minutes}`));
  return merged.every(isAligned) && ranges.size === merged.length;
});
const manifestSchema = z.strictObject({
  format: z.literal(format),
  group: z.string(),
  at: z.number(),
  version: z.string().optional(),
  segments: segmentsSchema,
  merged: mergedSchema,
  /** The different `StoredSegment.origins`: many segments have the same. */
  origins: z.array(z.array(z.string())),
  /** `Manifest.unmergeable`, of each id what follows the group. Absent where there is none. */
  apart: z.array(z.string().regex(/^[\w-]{1,80}$/)).optional(),
});

/** Identifies a group in the ids of documents. */
export function hashGroup({ key }: GroupName): string {
  const text = JSON.stringify([format, figuresVersion, key]);
  return createHash("sha256").update(text).digest("base64url").slice(0, 24);
}

export function formatManifestId(group: string): string {
  return `manifest-${group}`;
}

/** The id of a segment's document. What is made of the segment at another time has another hash, unless it is equal. */
function formatSegmentId(group: string, start: number, minutes: number, bodyHash: string): string {
  return `${formatSegmentPrefix(group)}${start}-${minutes}-${bodyHash}`;
}

function formatSegmentPrefix(group: string): string {
  return `segment-${group}-`;
}

/** The group of a manifest's document; undefined for an id of any other form. */
export function parseManifestId(id: string): string | undefined {
  return /^manifest-([\w-]{24})$/.exec(id)?.[1];
}

/** The group of a segment's document; undefined for an id of any other form. */
export function parseSegmentId(id: string): string | undefined {
  return /^segment-([\w-]{24})-\d+-\d+-[\w-]{16}$/.exec(id)?.[1];
}

export function printManifest(
  group: string,
  { at, version, segments, merged, unmergeable }: Manifest,
): string {
  const indexByOrigins = new Map<string, number>();
  const addOrigins = ({ origins }: StoredSegment): number => {
    const text = JSON.stringify(origins);
    const index = indexByOrigins.get(text) ?? indexByOrigins.size;
    indexByOrigins.set(text, index);
    return index;
  };
  const write = (segment: StoredSegment): WrittenSegment => {
    const { start, minutes } = toMinutes(segment.range);
    const bodyHash = segment.id.slice(formatSegmentId(group, start, minutes, "").length);
    return [start, minutes, bodyHash, segment.bytes, addOrigins(segment)];
  };
  const prefixLength = formatSegmentPrefix(group).length;
  const written: z.input<typeof manifestSchema> = {
    format,
    group,
    at,
    version,
    segments: segments.map(write),
    merged: merged.map(write),
    origins: [...indexByOrigins.keys()].map((text) => JSON.parse(text)),
    ...(unmergeable.length > 0 && { apart: unmergeable.map((id) => id.slice(prefixLength)) }),
  };
  return JSON.stringify(written);
}

/** Undefined for a text that is no manifest of the group. */
export function parseManifest(group: string, text: string): Manifest | undefined {
  const { data } = manifestSchema.safeParse(tryParseJson(text));
  if (data === undefined || data.group !== group) return undefined;
  const { at, version, segments, merged, origins, apart = [] } = data;
  if ([...segments, ...merged].some(([, , , , index]) => index >= origins.length)) return undefined;
  const read = ([start, minutes, bodyHash, bytes, index]: WrittenSegment): StoredSegment => {
    const id = formatSegmentId(group, start, minutes, bodyHash);
    return { range: toRange(start, minutes), id, bytes, origins: requireAt(origins, index) };
  };
  return {
    at,
    version,
    segments: segments.map(read),
    merged: merged.map(read),
    unmergeable: apart.map((rest) => `${formatSegmentPrefix(group)}${rest}`),
  };
}

/** The start and the length of a range of whole minutes, as they are written. */
function toMinutes({ from, to }: TimeRange): { readonly start: number; readonly minutes: number } {
  return {
    start: Number(from / nanosPerMinute),
    minutes: Number((to + 1n - from) / nanosPerMinute),
  };
}

function toRange(start: number, minutes: number): TimeRange {
  const from = BigInt(start) * nanosPerMinute;
  return { from: from as Instant, to: (from + BigInt(minutes) * nanosPerMinute - 1n) as Instant };
}

// ---- Documents of segments ------------------------------------------------------------------------------------

const segmentBodySchema = z.strictObject({
  format: z.literal(format),
  group: z.string(),
  start: z.int(),
  minutes: z.int(),
  figures: z.unknown(),
});

/** The document of a segment's figures, which are a value of JSON. The range is of whole minutes. */
export function printSegment(
  group: string,
  { range, origins }: { readonly range: TimeRange; readonly origins: ReadonlySet<string> },
  figures: unknown,
): { readonly segment: StoredSegment; readonly body: string } {
  const { start, minutes } = toMinutes(range);
  const body = JSON.stringify({ format, group, start, minutes, figures });
  const id = formatSegmentId(group, start, minutes, hashBody(body));
  return { segment: { range, id, bytes: body.length, origins: [...origins].sort() }, body };
}

function hashBody(body: string): string {
  return createHash("sha256").update(body).digest("base64url").slice(0, 16);
}

/** Whether a document is as it was written: its id ends in the hash of its body. */
export function isIntact({ id }: StoredSegment, body: string): boolean {
  return id.endsWith(`-${hashBody(body)}`);
}

/** The figures of a segment's document, as a value to be decoded; undefined for a text that is no such document. */
export function parseSegment(group: string, { range }: StoredSegment, body: string): unknown {
  const { data } = segmentBodySchema.safeParse(tryParseJson(body));
  if (data === undefined || data.group !== group) return undefined;
  const { from, to } = toRange(data.start, data.minutes);
  return from === range.from && to === range.to ? data.figures : undefined;
}

// ---- Reach ----------------------------------------------------------------------------------------------------

/** How far back segments follow one another without a gap, from the newest on; undefined without segments. */
export function findReach({ segments }: Pick<Manifest, "segments">): Instant | undefined {
  let reach: Instant | undefined;
  for (const { range } of segments.toReversed()) {
    if (reach !== undefined && range.to !== reach - 1n) break;
    reach = range.from;
  }
  return reach;
}
