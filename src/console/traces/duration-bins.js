// How long requests took, as columns of equal factors: requests of 1 ms and of 10 s fit into one drawing.

/** Half-open, in milliseconds. @typedef {{ readonly from: number, readonly to: number, readonly count: number }} Bin */
/** Half-open, in milliseconds. @typedef {{ readonly min: number, readonly below: number }} Durations */

const binsPerDecade = 8;
/** Shorter ones stand in the first column. */
const leastMillis = 0.01;

/** @param {readonly number[]} durations milliseconds @returns {readonly Bin[]} from the shortest on, empty ones between */
export function binDurations(durations) {
  if (durations.length === 0) return [];
  const places = durations.map(locateBin);
  const first = places.reduce((least, place) => Math.min(least, place));
  const last = places.reduce((most, place) => Math.max(most, place));
  const counts = Array.from({ length: last - first + 1 }, () => 0);
  for (const place of places) counts[place - first] = (counts[place - first] ?? 0) + 1;
  return counts.map((count, at) => ({ from: startOf(first + at), to: startOf(first + at + 1), count }));
}

/** @param {number} duration */
function locateBin(duration) {
  let place = Math.floor(Math.log10(Math.max(duration, leastMillis) / leastMillis) * binsPerDecade);
  // The logarithm may err in its last digit.
  while (startOf(place + 1) <= duration) place += 1;
  while (place > 0 && startOf(place) > duration) place -= 1;
  return place;
}

/** With so few digits that an address can hold it. @param {number} place */
function startOf(place) {
  return place <= 0 ? 0 : Number((leastMillis * 10 ** (place / binsPerDecade)).toPrecision(4));
}

/**
 * The marks of the axis below the columns: each is where a column begins, and the last where the last one ends.
 * @param {readonly Bin[]} bins at least one
 * @returns {readonly { readonly place: number, readonly duration: number }[]} `place` is a part of the width, from 0 to 1
 */
export function listDurationMarks(bins) {
  const places = new Set([0, 0.25, 0.5, 0.75, 1].map((part) => Math.floor(part * bins.length)));
  return [...places].map((at) => ({
    place: at / bins.length,
    duration: bins[at]?.from ?? bins.at(-1)?.to ?? 0,
  }));
}

/**
 * The durations that a stretch of the drawing means: whole columns.
 * @param {readonly Bin[]} bins at least one
 * @param {number} from part of the width, from 0 to 1
 * @param {number} to
 * @returns {Durations}
 */
export function chooseDurations(bins, from, to) {
  const place = (/** @type {number} */ part) => Math.min(bins.length - 1, Math.floor(part * bins.length));
  return { min: bins[place(from)]?.from ?? 0, below: bins[place(to)]?.to ?? 0 };
}
