// The histogram above the lines: a drawing to choose a stretch of time in, and below it how many lines each severity has,
// as buttons that narrow the query.
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createElement, createHiddenText, replaceChildren } from "../base/dom.js";
import { formatCount, formatNumber, formatRange } from "../base/format.js";
import { showPartFailure } from "../base/states.js";
import { attachBrush, createSvg } from "../base/svg.js";
import { printFieldTerm } from "../search/query.js";
import { buildColumns, convertToTimes, sortGroups } from "./histogram.js";

/** @typedef {import("./histogram.js").Counts} Counts */
/** @typedef {import("./histogram.js").Column} Column */
/** @typedef {{ readonly from: string, readonly to: string }} Bounds */

const height = 64;

/**
 * Counts the lines of a search and draws them.
 * @param {HTMLElement} root is replaced
 * @param {{
 *   readonly body: object, readonly bounds: Bounds, readonly signal: AbortSignal,
 *   readonly choose: (bounds: Bounds) => void, readonly narrow: (term: string) => void,
 *   readonly counted: (total: number | undefined) => void,
 * }} options `counted` is told how many lines there are; undefined where they are too many to count
 */
export async function showHistogram(root, options) {
  const { body, bounds, signal, choose, narrow, counted } = options;
  root.classList.add("loading");
  const request = buildPost("logs/counts", { ...body, ...bounds, group_by: "severity", group_buckets: true });
  try {
    /** @type {Counts} */
    const counts = await requestJson(request, signal);
    root.classList.remove("loading");
    counted(counts.total);
    root.hidden = counts.total === 0;
    if (counts.total === 0) return replaceChildren(root);
    replaceChildren(root, ...drawHistogram(counts, bounds, choose), createLegend(counts, narrow));
  } catch (error) {
    if (isAborted(error)) return;
    counted(undefined);
    showPartFailure(root, "These lines are not counted.", error, () => void showHistogram(root, options));
  }
}

/** @param {Counts} counts @param {Bounds} bounds @param {(bounds: Bounds) => void} choose */
function drawHistogram(counts, bounds, choose) {
  const columns = buildColumns(counts, bounds);
  const [from, to] = [Date.parse(bounds.from), Date.parse(bounds.to)];
  const most = Math.max(...columns.map(({ count }) => count));
  const drawing = createSvg("svg", {
    class: "histogram",
    role: "img",
    height,
    "aria-label": `${formatCount(counts.total, "line")} over time, at most ${formatNumber(most)} in a column`,
  });
  const locate = (/** @type {number} */ time) => ((time - from) / Math.max(1, to - from)) * 100;
  for (const column of columns) {
    const [x, width] = [locate(column.start), locate(column.end) - locate(column.start)];
    let below = 0;
    for (const { severity, count } of column.parts) {
      const part = (count / most) * (height - 2);
      below += part;
      drawing.append(
        createSvg("rect", {
          "data-severity": severity,
          x: `${x.toFixed(3)}%`,
          width: `${Math.max(0.05, width * 0.86).toFixed(3)}%`,
          y: (height - below).toFixed(2),
          height: Math.max(part, 0.5).toFixed(2),
        }),
      );
    }
  }
  const readout = createElement("p", { class: "histogram-readout muted", "aria-hidden": "true" });
  drawing.addEventListener("pointermove", (event) => {
    const { left, width } = drawing.getBoundingClientRect();
    const at = from + ((event.clientX - left) / width) * (to - from);
    readout.textContent = describeColumn(columns.find(({ start, end }) => start <= at && at < end));
  });
  drawing.addEventListener("pointerleave", () => {
    readout.textContent = "";
  });
  attachBrush(drawing, (start, end) => choose(convertToTimes(bounds, start, end)));
  return [drawing, readout];
}

/** @param {Column | undefined} column */
function describeColumn(column) {
  if (column === undefined) return "";
  const print = (/** @type {number} */ time) => new Date(time).toISOString().replace(".000Z", "Z");
  const parts = column.parts.map(({ severity, count }) => `${severity} ${formatNumber(count)}`);
  return `${formatRange(print(column.start), print(column.end))}: ${formatCount(column.count, "line")} (${parts.join(", ")})`;
}

/** @param {Counts} counts @param {(term: string) => void} narrow */
function createLegend({ groups }, narrow) {
  return createElement(
    "ul",
    { class: "legend", "aria-label": "Lines by severity" },
    sortGroups(groups ?? []).map(({ value, count }) => {
      const term = printFieldTerm("severity", "=", value);
      const name = createElement(
        "button",
        { type: "button", class: "legend-part" },
        createElement("span", { class: "legend-mark", "data-severity": value }),
        createHiddenText("Only "),
        `${value} `,
        createElement("span", { class: "legend-count" }, formatNumber(count)),
      );
      name.addEventListener("click", () => term !== undefined && narrow(term));
      return createElement("li", {}, name);
    }),
  );
}
