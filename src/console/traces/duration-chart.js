// The durations above the list of traces, to choose some of them.
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createElement, replaceChildren } from "../base/dom.js";
import { formatCount, formatDuration, formatNumber } from "../base/format.js";
import { showPartFailure } from "../base/states.js";
import { attachBrush, createSvg } from "../base/svg.js";
import { binDurations, chooseDurations, listDurationMarks } from "./duration-bins.js";

/** @typedef {import("./duration-bins.js").Durations} Durations */

const height = 56;
/** Of so many rows: a page that the API answers at once. */
const sampleSize = 1_000;

/**
 * @param {HTMLElement} root is replaced
 * @param {{
 *   readonly path: string, readonly body: Readonly<Record<string, unknown>>, readonly signal: AbortSignal,
 *   readonly choose: (durations: Durations) => void,
 * }} options `body` is that of the listing's first page
 */
export async function showDurations(root, options) {
  const { path, body, signal, choose } = options;
  root.classList.add("loading");
  const pagination = { ...(body.pagination ?? {}), per_page: sampleSize };
  try {
    /** @type {readonly { readonly duration: number }[]} */
    const rows = await requestJson(buildPost(path, { ...body, pagination }), signal);
    root.hidden = rows.length === 0;
    root.classList.remove("loading");
    if (rows.length > 0) drawDurations(root, rows, choose);
  } catch (error) {
    if (isAborted(error)) return;
    showPartFailure(root, "These durations are not drawn.", error, () => void showDurations(root, options));
  }
}

/** @param {HTMLElement} root @param {readonly { readonly duration: number }[]} rows @param {(durations: Durations) => void} choose */
function drawDurations(root, rows, choose) {
  const bins = binDurations(rows.map(({ duration }) => duration));
  const most = Math.max(...bins.map(({ count }) => count));
  const of =
    rows.length < sampleSize
      ? `all ${formatCount(rows.length, "trace")}`
      : `the first ${formatNumber(rows.length)} traces`;
  const width = 100 / bins.length;
  const bars = bins.map(({ from, to, count }, at) => {
    const size = (count / most) * (height - 2);
    const bar = createSvg("rect", {
      class: "duration-bar",
      x: `${(at * width).toFixed(3)}%`,
      width: `${(width * 0.9).toFixed(3)}%`,
      y: (height - size).toFixed(2),
      height: size.toFixed(2),
      "data-count": count,
    });
    bar.append(
      createSvg("title", {}, `${formatDuration(from)} to ${formatDuration(to)}: ${formatNumber(count)}`),
    );
    return bar;
  });
  const label = `Durations of ${of}, from ${formatDuration(bins[0]?.from ?? 0)} to ${formatDuration(bins.at(-1)?.to ?? 0)}`;
  const drawing = createSvg("svg", { class: "durations", role: "img", height, "aria-label": label }, ...bars);
  attachBrush(drawing, (from, to) => choose(chooseDurations(bins, from, to)));
  const marks = listDurationMarks(bins).map(({ place, duration }) => {
    const mark = createElement("span", {}, formatDuration(duration));
    mark.style.setProperty("--place", String(place));
    return mark;
  });
  replaceChildren(
    root,
    drawing,
    createElement("div", { class: "duration-scale muted", "aria-hidden": "true" }, marks),
  );
}
