// The tables below a chart: its series with their figures, and every value.
import { colourCount } from "./chart.js";
import { createElement, createTable, renderUntrusted } from "./dom.js";
import { formatNumber } from "./format.js";

/**
 * @typedef {{
 *   readonly id: string, readonly tags: Readonly<Record<string, string>>, readonly min: number | null,
 *   readonly max: number | null, readonly data: readonly { readonly timestamp: string, readonly value: number }[],
 * }} Series
 */

const maxRows = 500;

/** @param {Series} series @param {string} name */
export function formatLabel({ tags }, name) {
  const pairs = Object.entries(tags).map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0 ? name : pairs.join(", ");
}

/**
 * The series with their figures. The name of each is a button that hides it in the chart and shows it again.
 * @param {readonly Series[]} series
 * @param {string} name
 * @param {(at: number, isShown: boolean) => void} show
 * @returns {{ readonly root: Element, readonly writeCursor: (values: readonly (number | null)[] | undefined) => void }}
 */
export function createSeriesTable(series, name, show) {
  const underCursor = series.map(() => createElement("td", { class: "figure" }, "–"));
  const rows = series.map((one, at) => [
    createElement("th", { scope: "row" }, createSeriesSwitch(one, at, name, show)),
    ...[one.min, one.max, one.data.at(-1)?.value].map(createFigureCell),
    underCursor[at] ?? createFigureCell(null),
  ]);
  const heads = ["Min", "Max", "Last", "At the cursor"].map((title) => createFigureHead(title));
  const root = createTable("Series", [createElement("th", { scope: "col" }, "Series"), ...heads], rows);
  return {
    root,
    writeCursor: (values) => {
      for (const [at, cell] of underCursor.entries()) cell.textContent = printFigure(values?.[at]);
    },
  };
}

/** @param {Series} one @param {number} at @param {string} name @param {(at: number, isShown: boolean) => void} show */
function createSeriesSwitch(one, at, name, show) {
  const swatch = { class: at >= colourCount ? "swatch dashed" : "swatch", "data-series": at % colourCount };
  const made = createElement(
    "button",
    { type: "button", class: "series", "aria-pressed": "true", title: "Show in the chart" },
    createElement("span", swatch),
    renderUntrusted(formatLabel(one, name)),
  );
  made.addEventListener("click", () => {
    const isShown = made.getAttribute("aria-pressed") !== "true";
    made.setAttribute("aria-pressed", String(isShown));
    show(at, isShown);
  });
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

/** Every value, built when it is asked for. @param {readonly Series[]} series @param {string} name */
export function createValueTable(series, name) {
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
    const heads = series.map((one) => createFigureHead(renderUntrusted(formatLabel(one, name))));
    const rows = times.slice(0, maxRows).map((time) => {
      const row = createElement("th", { scope: "row" }, time.slice(0, 16).replace("T", " "));
      return [row, ...byTime.map((points) => createFigureCell(points.get(time)))];
    });
    const all = [createElement("th", { scope: "col" }, "Time (UTC)"), ...heads];
    const made = createTable(`Values of ${name}`, all, rows, { label: "Values" });
    if (times.length > maxRows)
      made.append(createElement("p", { class: "muted" }, `The newest ${maxRows} of ${times.length}.`));
    details.append(made);
  });
  return details;
}
