// One pattern may hold several layouts. Its indices are parted by the profile and the time field that each is read with;
// every part is read by itself, and their lines merged.

import { isDateType } from "../mapping/indexed-field.ts";
import type { IndexGroup, IndexMetadata } from "../mapping/mapping.ts";
import type { LogLayout, TimeField } from "./log-layout.ts";

/** Indices of a pattern that are read alike. Of an opaque pattern there is one part without groups. */
export interface LayoutGroup {
  readonly layout: LogLayout;
  readonly time: string;
  /** Of a time that is a whole number: the nanoseconds of one. */
  readonly unit: bigint | undefined;
  readonly groups: readonly IndexGroup[];
}

export const formatGroupKey = ({ layout, time, unit }: LayoutGroup): string =>
  `${layout.name} ${time} ${unit ?? "date"}`;

/** Whether the same profiles and times are there, so that what reads one part of `shiftBack` can go on. */
export function haveSameLayouts(before: readonly LayoutGroup[], after: readonly LayoutGroup[]): boolean {
  const keys = new Set(before.map(formatGroupKey));
  return keys.size === after.length && after.every((part) => keys.has(formatGroupKey(part)));
}

/** Whether indices of other parts have the time of this one in the other form, date or number. */
export function hasConflictingTimeType({ time, unit }: LayoutGroup, parts: readonly LayoutGroup[]): boolean {
  const isNumber = unit !== undefined;
  return parts.some((other) => other.time === time && (other.unit !== undefined) !== isNumber);
}

export function partitionByLayout(
  findLayout: (group: IndexGroup) => LogLayout,
  { groups }: IndexMetadata,
  opaque: LogLayout,
): readonly LayoutGroup[] {
  const parts = new Map<string, LayoutGroup & { readonly groups: IndexGroup[] }>();
  for (const group of groups) {
    const layout = findLayout(group);
    const { field: time, unit } = findTimeField(group, layout) ?? deriveDefaultTime(layout);
    const part = { layout, time, unit, groups: [group] };
    const known = parts.get(formatGroupKey(part));
    if (known === undefined) parts.set(formatGroupKey(part), part);
    else known.groups.push(group);
  }
  if (parts.size > 0) return [...parts.values()];
  return [{ layout: opaque, time: deriveDefaultTime(opaque).field, unit: undefined, groups: [] }];
}

/**
 * The first of the profile's time fields that the index maps as a time, by its own name, with a unit where it is a number;
 * undefined where it maps none.
 */
export function findTimeField({ fields }: IndexGroup, { time }: LogLayout): TimeField | undefined {
  for (const { field: name, unit } of time) {
    const field = fields.get(name)?.aliasOf ?? name;
    const type = fields.get(field)?.type;
    if (isDateType(type)) return { field, unit: undefined };
    if (type === "long" && unit !== undefined) return { field, unit };
  }
  return undefined;
}

function deriveDefaultTime({ time: [first] }: LogLayout): TimeField {
  return { field: first?.field ?? "@timestamp", unit: undefined };
}
