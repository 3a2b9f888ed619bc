// One pattern may hold several layouts. Its indices are parted by the profile and the time field that each is read with;
// every part is read by itself, and their lines merged.
import type { IndexGroup, Knowledge } from "./mapping.ts";
import type { LogProfile } from "./profile.ts";

/** Indices of a pattern that are read alike. Of an opaque pattern there is one part without groups. */
export interface Part {
  readonly profile: LogProfile;
  readonly time: string;
  readonly groups: readonly IndexGroup[];
}

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
    const part = { profile, time: timeIn(group, profile) ?? firstTime(profile), groups: [group] };
    const known = parts.get(keyOf(part));
    if (known === undefined) parts.set(keyOf(part), part);
    else known.groups.push(group);
  }
  return parts.size > 0 ? [...parts.values()] : [{ profile: opaque, time: firstTime(opaque), groups: [] }];
}

/** The first of the profile's time fields that the index maps as a time, by its own name; undefined where it maps none. */
export function timeIn({ fields }: IndexGroup, { time }: LogProfile): string | undefined {
  for (const name of time) {
    const own = fields.get(name)?.aliasOf ?? name;
    if (/^date(?:_nanos)?$/.test(fields.get(own)?.type ?? "")) return own;
  }
  return undefined;
}

function firstTime({ time: [first = "@timestamp"] }: LogProfile): string {
  return first;
}
