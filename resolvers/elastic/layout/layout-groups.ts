// Partitions the indices of a pattern, which may hold several layouts, by the layout and the time field that they are read with.
// Each layout group is read on its own, and the lines are merged.
import { requireFirst } from "../../../src/core/collections.ts";
import { isDateType } from "../mapping/indexed-field.ts";
import type { IndexGroup, IndexMetadata } from "../mapping/mapping.ts";
import type { LogLayout, TimeField } from "./log-layout.ts";

/** Indices of a pattern with one layout and one time field. An opaque pattern has one layout group without index groups. */
export interface LayoutGroup {
  readonly layout: LogLayout;
  /** The name of the time field. */
  readonly time: string;
  /** For a time of type `long`: the nanoseconds in one unit. Undefined for a date. */
  readonly unit: bigint | undefined;
  readonly groups: readonly IndexGroup[];
  /** Whether an index had no document that counts, so that its first one may show another layout. */
  readonly isUnseen: (index: string) => boolean;
}

export function formatGroupKey({ layout, time, unit }: LayoutGroup): string {
  return `${layout.name} ${time} ${unit ?? "date"}`;
}

/** Whether both have the same layouts and time fields, so that a reader of one group of `before` can continue. */
export function haveSameLayouts(before: readonly LayoutGroup[], after: readonly LayoutGroup[]): boolean {
  const keys = new Set(before.map(formatGroupKey));
  return keys.size === after.length && after.every((group) => keys.has(formatGroupKey(group)));
}

/** Whether another group has the time field of this one as the other type, date or number. */
export function hasConflictingTimeType({ time, unit }: LayoutGroup, groups: readonly LayoutGroup[]): boolean {
  const isNumber = unit !== undefined;
  return groups.some((other) => other.time === time && (other.unit !== undefined) !== isNumber);
}

/** At least one layout group; `opaque` is the layout of a pattern whose mappings are not shown. */
export function partitionByLayout(
  findLayout: (group: IndexGroup) => LogLayout,
  { groups }: IndexMetadata,
  opaque: LogLayout,
  isUnseen: (index: string) => boolean = () => false,
): readonly LayoutGroup[] {
  const layoutGroups = new Map<string, LayoutGroup & { readonly groups: IndexGroup[] }>();
  for (const group of groups) {
    const layout = findLayout(group);
    const { field: time, unit } = findTimeField(group, layout) ?? deriveDefaultTime(layout);
    const layoutGroup = { layout, time, unit, groups: [group], isUnseen };
    const key = formatGroupKey(layoutGroup);
    const known = layoutGroups.get(key);
    if (known === undefined) layoutGroups.set(key, layoutGroup);
    else known.groups.push(group);
  }
  if (layoutGroups.size > 0) return [...layoutGroups.values()];
  return [{ layout: opaque, time: deriveDefaultTime(opaque).field, unit: undefined, groups: [], isUnseen }];
}

/**
 * The first time field of the layout that the index maps as a time, an alias resolved, with a unit if it is a number. Undefined
 * if the index maps none.
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

function deriveDefaultTime({ time }: LogLayout): TimeField {
  return { field: requireFirst(time).field, unit: undefined };
}
