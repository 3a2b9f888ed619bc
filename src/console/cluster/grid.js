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

/**
 * The first column names the row; figures stand in the middle.
 * @param {string} caption @param {readonly string[]} columns
 * @param {readonly (readonly (Node | string)[])[]} rows
 */
export function createGrid(caption, columns, rows) {
  const figures = (/** @type {string} */ column) => ({
    class: /^(Pod|Node|State)$/.test(column) ? "" : "figure",
  });
  return createTable(
    caption,
    columns.map((name) => createElement("th", { scope: "col", ...figures(name) }, name)),
    rows.map((cells) =>
      cells.map((cell, at) =>
        at === 0
          ? createElement("th", { scope: "row" }, cell)
          : createElement("td", figures(columns[at] ?? ""), cell),
      ),
    ),
    { shape: "cluster" },
  );
}
