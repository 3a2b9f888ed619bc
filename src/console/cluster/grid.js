// The tables of the cluster and the badges in them.
import { createElement, createTable } from "../base/dom.js";

/** @param {string} state */
export function createBadge(state) {
  const kind = {
    Failed: "bad",
    "Not ready": "bad",
    Pending: "warn",
    Unknown: "warn",
    Running: "good",
    Ready: "good",
  };
  const known = Object.hasOwn(kind, state) ? kind[/** @type {keyof typeof kind} */ (state)] : "";
  return createElement("span", { class: `badge ${known}` }, state);
}

/** @typedef {{ readonly title: string, readonly isFigure?: boolean }} Column */

/**
 * The first column names the row.
 * @param {string} caption @param {readonly Column[]} columns
 * @param {readonly (readonly (Node | string)[])[]} rows
 */
export function createGrid(caption, columns, rows) {
  const styleOf = (/** @type {Column | undefined} */ column) => ({ class: column?.isFigure ? "figure" : "" });
  return createTable(
    caption,
    columns.map((column) => createElement("th", { scope: "col", ...styleOf(column) }, column.title)),
    rows.map((cells) =>
      cells.map((cell, at) =>
        at === 0
          ? createElement("th", { scope: "row" }, cell)
          : createElement("td", styleOf(columns[at]), cell),
      ),
    ),
    { shape: "cluster" },
  );
}
