// Which rows of a waterfall are shown, and which are sought.

/** @typedef {import("./waterfall.js").Row} Row */

/**
 * @param {readonly Pick<Row, "depth">[]} rows parents before their children
 * @param {ReadonlySet<number>} folded rows whose children, and all below them, are hidden
 * @returns {readonly boolean[]} whether each row is shown
 */
export function listShown(rows, folded) {
  let limit = Number.POSITIVE_INFINITY;
  return rows.map(({ depth }, at) => {
    if (depth > limit) return false;
    limit = folded.has(at) ? depth : Number.POSITIVE_INFINITY;
    return true;
  });
}

/** Whether something stands below a row. @param {readonly Pick<Row, "depth">[]} rows @param {number} at */
export function hasChildren(rows, at) {
  return (rows[at + 1]?.depth ?? -1) > (rows[at]?.depth ?? 0);
}

/** Whether a span's names or attributes hold a text, in any case. @param {Row["span"]} span @param {string} text */
export function isSought(span, text) {
  const all = [span.span_name, span.service_name, span.span_id, JSON.stringify(span.span_attributes)];
  return all.some((one) => one.toLowerCase().includes(text.toLowerCase()));
}

/**
 * Two traces by their services and the names of their spans. Times are in milliseconds and add up over all spans of a name.
 * @typedef {{
 *   readonly service: string, readonly name: string,
 *   readonly counts: readonly [number, number], readonly times: readonly [number, number],
 * }} Comparison
 */

/**
 * @param {readonly Row["span"][]} one @param {readonly Row["span"][]} other
 * @returns {readonly Comparison[]} those that differ most first
 */
export function compareTraces(one, other) {
  /** @type {Map<string, { service: string, name: string, counts: [number, number], times: [number, number] }>} */
  const found = new Map();
  for (const [side, spans] of [one, other].entries()) {
    for (const { service_name: service, span_name: name, duration } of spans) {
      const key = JSON.stringify([service, name]);
      const row = found.get(key) ?? { service, name, counts: [0, 0], times: [0, 0] };
      row.counts[side === 0 ? 0 : 1] += 1;
      row.times[side === 0 ? 0 : 1] += duration;
      found.set(key, row);
    }
  }
  const differ = (/** @type {Comparison} */ { times }) => Math.abs(times[1] - times[0]);
  return [...found.values()].sort((a, b) => differ(b) - differ(a));
}
