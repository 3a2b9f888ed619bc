// Daily indices with dynamic mapping differ in fields that a filter does not name. Groups of indices that are equal in all that
// the compiler may look at for a filter have one compiled query.
import type { Compare } from "../../../src/log-query/ast.ts";
import { listTexts } from "../layout/field-filter.ts";
import type { LogLayout } from "../layout/log-layout.ts";
import type { IndexGroup } from "../mapping/mapping.ts";

/** With fewer comparisons in all groups together, to find out what is equal costs as much as compiling. */
const leastWork = 1_000;

/**
 * The groups, those together for which comparisons compile to the same. The compiler looks at names of the layout and of the
 * comparisons, at objects that hold them and at what lies below; all of these have the first key of such a name.
 */
export function joinEqualGroups(
  comparisons: readonly Compare[],
  groups: readonly IndexGroup[],
  layout: LogLayout,
): readonly (readonly IndexGroup[])[] {
  // A `passthrough` object lends its fields to other names.
  const isWorthIt = comparisons.length * groups.length >= leastWork;
  if (!isWorthIt || groups.some(({ hasPassthrough }) => hasPassthrough))
    return groups.map((group) => [group]);
  // One text that names no field only lets fewer groups be equal.
  const keys = new Set([...listTexts(layout), ...comparisons.flatMap(listPaths)].map(readFirstKey));
  const { json } = layout;
  const prefixes =
    json === "source" ? [] : json.from.flatMap((source) => ("prefix" in source ? [source.prefix] : []));
  const isNamed = (name: string) =>
    keys.has(readFirstKey(name)) || prefixes.some((prefix) => name.startsWith(prefix));
  return [...Map.groupBy(groups, (group) => describeGroup(group, isNamed)).values()];
}

/** Of the first names that a comparison may be about in the body of a line. */
function listPaths({ field }: Compare): readonly string[] {
  if (field.kind !== "json") return [];
  return [field.path, ...(field.alternatives ?? [])].flatMap(([first]) => first ?? []);
}

function readFirstKey(name: string): string {
  const dot = name.indexOf(".");
  return dot === -1 ? name : name.slice(0, dot);
}

function describeGroup(
  { indices: _, fields, dateNames, ...others }: IndexGroup,
  isNamed: (name: string) => boolean,
): string {
  const named = [...fields].filter(([name]) => isNamed(name));
  return JSON.stringify([others, named, [...dateNames].filter(isNamed)]);
}
