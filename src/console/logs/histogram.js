// Log lines over time, as columns of severities. The counts are those of the API, and nothing is added to them or left out.

/** @typedef {{ readonly timestamp: string, readonly count: number }} Bucket */
/**
 * What `logs/counts` answers, grouped by severity, with the buckets of each.
 * @typedef {{
 *   readonly total: number, readonly resolution: string, readonly buckets: readonly Bucket[],
 *   readonly groups: readonly { readonly value: string, readonly count: number, readonly buckets?: readonly Bucket[] }[] | null,
 * }} Counts
 */
/**
 * `start` and `end` are milliseconds; the first and the last column are cut at the ends of the range.
 * @typedef {{
 *   readonly start: number, readonly end: number, readonly count: number,
 *   readonly parts: readonly { readonly severity: string, readonly count: number }[],
 * }} Column
 */

/** From the gravest on, which is also from the bottom of a column on. */
export const severityOrder = [
  "fatal",
  "alert",
  "critical",
  "error",
  "warn",
  "notice",
  "info",
  "debug",
  "trace",
  "unknown",
];
/** @type {Readonly<Record<string, number>>} */
const steps = {
  MINUTELY: 60_000,
  FIVE_MINUTELY: 300_000,
  TEN_MINUTELY: 600_000,
  FIFTEEN_MINUTELY: 900_000,
  HOURLY: 3_600_000,
  DAILY: 86_400_000,
};

/**
 * @param {Counts} counts
 * @param {{ readonly from: string, readonly to: string }} bounds of the request
 * @returns {readonly Column[]} by time, without empty ones
 */
export function buildColumns({ resolution, buckets, groups }, bounds) {
  const step = steps[resolution] ?? 60_000;
  const [from, to] = [Date.parse(bounds.from), Date.parse(bounds.to)];
  const bySeverity = sortGroups(groups ?? []).map(({ value, buckets: own = [] }) => ({
    severity: value,
    counts: new Map(own.map(({ timestamp, count }) => [timestamp, count])),
  }));
  return buckets.map(({ timestamp, count }) => {
    const start = Date.parse(timestamp);
    const parts = bySeverity
      .map(({ severity, counts }) => ({ severity, count: counts.get(timestamp) ?? 0 }))
      .filter((part) => part.count > 0);
    return { start: Math.max(start, from), end: Math.min(start + step, to), count, parts };
  });
}

/** @template {{ readonly value: string }} G @param {readonly G[]} groups */
export function sortGroups(groups) {
  return groups.toSorted((a, b) => severityOrder.indexOf(a.value) - severityOrder.indexOf(b.value));
}

/**
 * The times between two points of the chart, to the millisecond.
 * @param {{ readonly from: string, readonly to: string }} bounds of the chart
 * @param {number} from part of the width, from 0 to 1
 * @param {number} to
 */
export function convertToTimes(bounds, from, to) {
  const [start, end] = [Date.parse(bounds.from), Date.parse(bounds.to)];
  const print = (/** @type {number} */ part) =>
    new Date(Math.round(start + (end - start) * part)).toISOString();
  return { from: print(from), to: print(to) };
}
