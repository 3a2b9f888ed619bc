// One pattern may hold several layouts. Its indices are parted by the profile and the time field that each is read with;
// every part is read by itself, and their lines merged.
import { type IndexGroup, isDate, type Knowledge } from "../mapping/mapping.ts";
import type { LogProfile, TimeField } from "./log-layout.ts";

/** Indices of a pattern that are read alike. Of an opaque pattern there is one part without groups. */
export interface Part {
  readonly profile: LogProfile;
  readonly time: string;
  /** Of a time that is a whole number: the nanoseconds of one. */
  readonly unit: bigint | undefined;
  readonly groups: readonly IndexGroup[];
}

export const keyOf = ({ profile, time, unit }: Part): string => `${profile.name} ${time} ${unit ?? "date"}`;

/** Whether the same profiles and times are there, so that what reads one part of `before` can go on. */
export function isPartedAlike(before: readonly Part[], after: readonly Part[]): boolean {
  const keys = new Set(before.map(keyOf));
  return keys.size === after.length && after.every((part) => keys.has(keyOf(part)));
}

/** Whether indices of other parts have the time of this one in the other form, date or number. */
export function isNumberedElsewhere({ time, unit }: Part, parts: readonly Part[]): boolean {
  const isNumber = unit !== undefined;
  return parts.some((other) => other.time === time && (other.unit !== undefined) !== isNumber);
}

export function partBy(
  profileOf: (group: IndexGroup) => LogProfile,
  { groups }: Knowledge,
  opaque: LogProfile,
): readonly Part[] {
  const parts = new Map<string, Part & { readonly groups: IndexGroup[] }>();
  for (const group of groups) {
    const profile = profileOf(group);
    const { field: time, unit } = timeIn(group, profile) ?? firstTime(profile);
    const part = { profile, time, unit, groups: [group] };
    const known = parts.get(keyOf(part));
    if (known === undefined) parts.set(keyOf(part), part);
    else known.groups.push(group);
  }
  if (parts.size > 0) return [...parts.values()];
  return [{ profile: opaque, time: firstTime(opaque).field, unit: undefined, groups: [] }];
}

/**
 * The first of the profile's time fields that the index maps as a time, by its own name, with a unit where it is a number;
 * undefined where it maps none.
 */
export function timeIn({ fields }: IndexGroup, { time }: LogProfile): TimeField | undefined {
  for (const { field: name, unit } of time) {
    const field = fields.get(name)?.aliasOf ?? name;
    const type = fields.get(field)?.type;
    if (isDate(type)) return { field, unit: undefined };
    if (type === "long" && unit !== undefined) return { field, unit };
  }
  return undefined;
}

function firstTime({ time: [first] }: LogProfile): TimeField {
  return { field: first?.field ?? "@timestamp", unit: undefined };
}
