// One pattern may hold several layouts. Its indices are parted by the profile and the time field that each is read with;
// every part is read by itself, and their lines merged. `auto` takes the layout that a mapping shows, and where that is
// none or several, the one that most of a few documents show.
import { BackendError } from "../../src/errors.ts";
import { valueAt } from "./body.ts";
import type { Door } from "./door.ts";
import { parseDocument } from "./line.ts";
import { findField, type IndexGroup, type Knowledge } from "./mapping.ts";
import type { LogProfile } from "./profile.ts";
import { all, inIndices } from "./query.ts";
import { searchWhole } from "./search.ts";
import type { Json } from "./spelled.ts";

/** Indices of a pattern that are read alike. Of an opaque pattern there is one part without groups. */
export interface Part {
  readonly profile: LogProfile;
  readonly time: string;
  readonly groups: readonly IndexGroup[];
}

const sampled = 20;

export const keyOf = ({ profile, time }: Part): string => `${profile.name} ${time}`;

/** Whether the same profiles and times are there, so that what reads one part of `before` can go on. */
export function isPartedAlike(before: readonly Part[], after: readonly Part[]): boolean {
  const keys = new Set(before.map(keyOf));
  return keys.size === after.length && after.every((part) => keys.has(keyOf(part)));
}

export function partBy(
  profileOf: (group: IndexGroup) => LogProfile,
  { groups }: Knowledge,
  opaque: LogProfile,
): readonly Part[] {
  const parts = new Map<string, Part & { readonly groups: IndexGroup[] }>();
  for (const group of groups) {
    const profile = profileOf(group);
    const part = { profile, time: timeIn(group, profile), groups: [group] };
    const known = parts.get(keyOf(part));
    if (known === undefined) parts.set(keyOf(part), part);
    else known.groups.push(group);
  }
  return parts.size > 0 ? [...parts.values()] : [{ profile: opaque, time: firstTime(opaque), groups: [] }];
}

/** The first of the profile's time fields that the index maps as a time; the first one where it maps none. */
function timeIn({ fields }: IndexGroup, profile: LogProfile): string {
  const isTime = (name: string): boolean => /^date(?:_nanos)?$/.test(fields.get(name)?.type ?? "");
  return profile.time.find(isTime) ?? firstTime(profile);
}

function firstTime({ time: [first = "@timestamp"] }: LogProfile): string {
  return first;
}

/** The profiles that a mapping shows. An alias is in no document, so it shows nothing. */
export function shownBy(group: IndexGroup, candidates: readonly LogProfile[]): readonly LogProfile[] {
  const has = (name: string): boolean => {
    const field = findField(group, name);
    return field !== undefined && field.aliasOf === undefined;
  };
  return candidates.filter(({ detect }) => detect.some((names) => names.every(has)));
}

/** The profile that most of a few documents show, `unknown` where they show none; undefined where there are no documents. */
export async function sampleLayout(
  backend: string,
  door: Door,
  pattern: string,
  group: IndexGroup | undefined,
  candidates: readonly LogProfile[],
  signal: AbortSignal,
): Promise<LogProfile | "unknown" | undefined> {
  const documents = await sample(backend, door, pattern, group, signal);
  if (documents.length === 0) return undefined;
  let best: { readonly profile: LogProfile; readonly shown: number } | undefined;
  for (const profile of candidates) {
    const shown = documents.filter((document) => shows(document, profile)).length;
    if (shown > (best?.shown ?? 0)) best = { profile, shown };
  }
  return best?.profile ?? "unknown";
}

function shows(document: Json, { detect }: LogProfile): boolean {
  return detect.some((names) => names.every((name) => valueAt(document, name) !== undefined));
}

/** Of one group, or of the whole pattern. Only the names in these documents are looked at. */
async function sample(
  backend: string,
  door: Door,
  pattern: string,
  group: IndexGroup | undefined,
  signal: AbortSignal,
): Promise<readonly Json[]> {
  const query = group === undefined ? all : inIndices(group.indices);
  const body = { size: sampled, track_total_hits: false, query, sort: ["_doc"] };
  const { hits } = await searchWhole(backend, door, pattern, body, signal);
  return hits.flatMap((hit) => {
    try {
      return [parseDocument(backend, hit, hit.source)];
    } catch (error) {
      if (error instanceof BackendError) return [];
      throw error;
    }
  });
}
