// Which spans a trace waited for: going back from its end, at each moment the span that ended last before it.

/** @typedef {import("./waterfall.js").Row} Row */
/** A piece of the path, in parts of the trace from 0 to 1. @typedef {{ readonly row: Row, readonly from: number, readonly to: number }} Stretch */

/**
 * @param {readonly Row[]} rows parents before their children, as the waterfall has them
 * @returns {readonly Stretch[]} that cover the first row from its end to its start, without gap or overlap
 */
export function findCriticalPath(rows) {
  const [root] = rows;
  if (root === undefined) return [];
  const children = listChildren(rows);
  /** @type {Stretch[]} */
  const path = [];
  // What is left to be covered of each span, the innermost last. No recursion: a trace may be a chain of 50,000.
  const open = [
    { row: root, from: root.offset, at: root.offset + root.width, rest: sortByEnd(children.get(root)) },
  ];
  for (let top = open.at(-1); top !== undefined; top = open.at(-1)) {
    const { row, from, rest } = top;
    const child = rest.pop();
    if (child === undefined) {
      if (top.at > from) path.push({ row, from, to: top.at });
      open.pop();
      continue;
    }
    const end = Math.min(child.offset + child.width, top.at);
    const start = Math.max(child.offset, from);
    // Of two that run at once, the one that ended first was not waited for.
    if (end <= start || child.offset + child.width > top.at) continue;
    if (top.at > end) path.push({ row, from: end, to: top.at });
    top.at = start;
    open.push({ row: child, from: start, at: end, rest: sortByEnd(children.get(child)) });
  }
  return path;
}

/** @param {readonly Row[] | undefined} rows @returns {Row[]} the one that ended last at the end */
function sortByEnd(rows = []) {
  return rows.toSorted((a, b) => a.offset + a.width - (b.offset + b.width));
}

/** @param {readonly Row[]} rows */
function listChildren(rows) {
  /** @type {Map<Row, Row[]>} */
  const children = new Map();
  /** @type {Row[]} */
  const above = [];
  for (const row of rows) {
    above.length = row.depth;
    const parent = above.at(-1);
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), row]);
    above.push(row);
  }
  return children;
}
