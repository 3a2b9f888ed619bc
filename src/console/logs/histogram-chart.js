// The histogram above the lines: a drawing to choose a stretch of time in, and below it how many lines each severity has,
// as buttons that narrow the query.
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { placeNames } from "../base/deploy-marks.js";
import { createElement, createHiddenText, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatCount, formatLongTime, formatNumber, formatRange } from "../base/format.js";
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
 *   readonly body: object, readonly bounds: Bounds, readonly signal: AbortSignal, readonly isLive: boolean,
 *   readonly choose: (bounds: Bounds) => void, readonly narrow: (term: string) => void,
 *   readonly counted: (total: number | undefined) => void,
 *   readonly drawn: (markText: HTMLElement, mark: import("../base/deploy-marks.js").DrawMarks) => void,
 * }} options `counted` is told how many lines there are; undefined where they are too many to count. `drawn` is called when
 *   there are columns, with what marks deploys in them and what is to tell of these marks
 */
export async function showHistogram(root, options) {
  const { body, bounds, signal, isLive, choose, narrow, counted, drawn } = options;
  root.classList.add("loading");
  const request = buildPost("logs/counts", { ...body, ...bounds, group_by: "severity", group_buckets: true });
  try {
    /** @type {Counts} */
    const counts = await requestJson(request, signal);
    root.classList.remove("loading");
    counted(counts.total);
    root.hidden = counts.total === 0;
    if (counts.total === 0) return replaceChildren(root);
    const [marks, markText] = [
      createElement("div", { class: "histogram-marks", "aria-hidden": "true" }),
      createElement("div"),
    ];
    const [drawing, readout] = drawHistogram(counts, bounds, choose);
    replaceChildren(
      root,
      createElement("div", { class: "histogram-drawing" }, drawing, marks),
      readout,
      createElement(
        "div",
        { class: "histogram-foot" },
        createLegend(counts, narrow),
        // What comes is in the list alone.
        isLive && createElement("p", { class: "muted" }, `Counted up to ${formatLongTime(bounds.to)}`),
        markText,
      ),
    );
    drawn(markText, (deploys) => drawMarks(marks, deploys, bounds, signal));
  } catch (error) {
    if (isAborted(error)) return;
    counted(undefined);
    showPartFailure(root, "These lines are not counted.", error, () => void showHistogram(root, options));
  }
}

/** @param {Counts} counts @param {Bounds} bounds @param {(bounds: Bounds) => void} choose @returns {readonly [Element, Element]} */
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

/** @param {HTMLElement} root lies over the columns @param {readonly import("../base/deploy-marks.js").DeployMark[]} deploys @param {Bounds} bounds @param {AbortSignal} signal */
function drawMarks(root, deploys, bounds, signal) {
  const [from, to] = [Date.parse(bounds.from), Date.parse(bounds.to)];
  const marks = deploys.map(({ time, label }) => {
    const place = (time - from) / Math.max(1, to - from);
    const name = createElement("span", {}, renderUntrusted(label));
    const line = createElement("span", { class: "histogram-mark" }, name);
    line.style.setProperty("--place", String(place));
    return { place, name, line };
  });
  replaceChildren(
    root,
    marks.map(({ line }) => line),
  );
  const writeNames = () => {
    const width = root.clientWidth;
    const names = marks.map(({ place, name }) => ({ x: place * width, width: name.offsetWidth }));
    for (const [at, left] of placeNames(names, width).entries()) {
      const name = marks[at]?.name;
      name?.classList.toggle("unnamed", left === undefined);
      name?.classList.toggle("before", left !== undefined && left < (names[at]?.x ?? 0));
    }
  };
  const sizes = new ResizeObserver(writeNames);
  sizes.observe(root);
  signal.addEventListener("abort", () => sizes.disconnect(), { once: true });
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
