// The tables below a chart: its series with their figures, and every value.

import { createButton, createElement, createTable, renderUntrusted } from "../base/dom.js";
import { formatMinute, formatNumber, formatZoneName } from "../base/format.js";
import { colourCount } from "./chart.js";
import { formatLabel } from "./series-label.js";

/** @typedef {import("./series-label.js").Series} Series */

const maxRows = 500;

/**
 * The series with their figures. The name of each is a button that hides it in the chart and shows it again; another one
 * hides all others.
 * @param {readonly Series[]} series
 * @param {{ readonly show: (hidden: ReadonlySet<number>) => void, readonly isNamed?: boolean }} options
 * @returns {{ readonly root: Element, readonly writeCursor: (values: readonly (number | null)[] | undefined) => void }}
 */
export function createSeriesTable(series, { show, isNamed = false }) {
  /** @type {Element[]} */
  const underCursor = [];
  /** @type {Set<number>} */
  const hidden = new Set();
  const switches = series.map((one, at) =>
    createSeriesSwitch(formatLabel(one, isNamed), at, () => {
      if (!hidden.delete(at)) hidden.add(at);
      write();
    }),
  );
  const isolate = (/** @type {number} */ at) => {
    const isAlone = !hidden.has(at) && hidden.size === series.length - 1;
    hidden.clear();
    if (!isAlone) for (const other of series.keys()) if (other !== at) hidden.add(other);
    write();
  };
  function write() {
    for (const [at, one] of switches.entries()) one.setAttribute("aria-pressed", String(!hidden.has(at)));
    show(new Set(hidden));
  }
  const rows = series.map((one, at) => {
    const label = `Only ${formatLabel(one, isNamed)}, or all again`;
    const only = series.length > 1 && createButton(label, () => isolate(at), { class: "only" }, "only");
    const name = createElement("div", { class: "series-name" }, switches[at], only);
    const cell = createFigureCell(null);
    underCursor.push(cell);
    return [
      createElement("th", { scope: "row" }, name),
      ...[one.min, one.max, one.data.at(-1)?.value].map(createFigureCell),
      cell,
    ];
  });
  const heads = ["Min", "Max", "Last", "At the cursor"].map((title) => createFigureHead(title));
  const root = createTable("Series", [createElement("th", { scope: "col" }, "Series"), ...heads], rows);
  return {
    root,
    writeCursor: (values) => {
      for (const [at, cell] of underCursor.entries()) cell.textContent = printFigure(values?.[at]);
    },
  };
}

/** @param {string} label @param {number} at @param {() => void} toggle */
function createSeriesSwitch(label, at, toggle) {
  const swatch = { class: at >= colourCount ? "swatch dashed" : "swatch", "data-series": at % colourCount };
  const made = createElement(
    "button",
    { type: "button", class: "series", "aria-pressed": "true", title: "Show or hide in the chart" },
    createElement("span", swatch),
    renderUntrusted(label),
  );
  made.addEventListener("click", toggle);
  return made;
}

/** @param {string | Element} title */
function createFigureHead(title) {
  return createElement("th", { scope: "col", class: "figure" }, title);
}

/** @param {number | null | undefined} value */
function createFigureCell(value) {
  return createElement("td", { class: "figure" }, printFigure(value));
}

/** @param {number | null | undefined} value */
function printFigure(value) {
  return value == null ? "–" : formatNumber(value);
}

/** Every value, built when it is asked for. @param {readonly Series[]} series @param {string} name @param {boolean} [isNamed] */
export function createValueTable(series, name, isNamed = false) {
  const details = createElement(
    "details",
    { class: "values" },
    createElement("summary", {}, "Values as a table"),
  );
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const times = [...new Set(series.flatMap(({ data }) => data.map(({ timestamp }) => timestamp)))]
      .sort()
      .reverse();
    const byTime = series.map(({ data }) => new Map(data.map(({ timestamp, value }) => [timestamp, value])));
    const heads = series.map((one) => createFigureHead(renderUntrusted(formatLabel(one, isNamed))));
    const rows = times.slice(0, maxRows).map((time) => {
      const row = createElement("th", { scope: "row" }, formatMinute(time));
      return [row, ...byTime.map((points) => createFigureCell(points.get(time)))];
    });
    const all = [createElement("th", { scope: "col" }, `Time (${formatZoneName()})`), ...heads];
    const made = createTable(`Values of ${name}`, all, rows, { label: "Values" });
    if (times.length > maxRows)
      made.append(createElement("p", { class: "muted" }, `The newest ${maxRows} of ${times.length}.`));
    details.append(made);
  });
  return details;
}
