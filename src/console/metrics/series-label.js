// How series are named: by what tells them apart.

/**
 * @typedef {{
 *   readonly id: string, readonly name: string, readonly tags: Readonly<Record<string, string>>, readonly min: number | null,
 *   readonly max: number | null, readonly data: readonly { readonly timestamp: string, readonly value: number }[],
 * }} Series
 */
/** @typedef {Series & { readonly field: string }} VisualSeries */

/**
 * The tags of a series, and its name where several are shown.
 * @param {Series} series @param {boolean} [isNamed]
 */
export function formatLabel({ name, tags }, isNamed = false) {
  const pairs = Object.entries(tags).map(([key, value]) => `${key}=${value}`);
  if (pairs.length === 0) return name;
  return isNamed ? `${name} ${pairs.join(", ")}` : pairs.join(", ");
}

/** The series with what tells them apart besides their tags: metric and field. @param {readonly VisualSeries[]} found */
export function nameSeries(found) {
  const hasFields = new Set(found.map(({ field }) => field)).size > 1;
  const isNamed = hasFields || new Set(found.map(({ name }) => name)).size > 1;
  const series = found.map((one) => (hasFields ? { ...one, name: `${one.name} ${one.field}` } : one));
  return { series, isNamed };
}
