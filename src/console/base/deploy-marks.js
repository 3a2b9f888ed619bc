// The deploys of a site as marks in a chart over time: a revision begins with its first request.
import { Failure, isAborted, requestJson } from "./api.js";
import { createElement, renderUntrusted, replaceChildren } from "./dom.js";
import { formatMinute, formatZoneName } from "./format.js";
import { showPartFailure } from "./states.js";

/** A deploy at a time in milliseconds. @typedef {{ readonly time: number, readonly label: string }} DeployMark */
/** Draws marks over a chart; they come by time. @typedef {(marks: readonly DeployMark[]) => void} DrawMarks */
/** @typedef {Pick<import("./api.js").Site, "id" | "deploys">} MarkedSite */
/** @typedef {{ readonly from: string, readonly to: string }} Bounds */

/** As many as the API gives at once, the newest. */
const limit = 1_000;

/** Those that were found last. A chart that is drawn anew has them at once. @type {WeakMap<MarkedSite, readonly DeployMark[]>} */
const lastMarks = new WeakMap();

/**
 * Marks the deploys of a range in a chart that is drawn already, and tells of them in words for those who do not see them.
 * @param {HTMLElement} markText gets the words, or why there are no marks
 * @param {DrawMarks} draw
 * @param {{ readonly findSite: () => MarkedSite | Promise<MarkedSite>, readonly bounds: Bounds, readonly signal: AbortSignal }} options
 */
export async function markDeploys(markText, draw, options) {
  const { findSite, bounds, signal } = options;
  try {
    const site = await findSite();
    if (!site.deploys) return;
    const show = (/** @type {readonly DeployMark[]} */ marks) => {
      draw(marks);
      replaceChildren(markText, marks.length > 0 && createMarkList(marks));
    };
    const known = lastMarks.get(site)?.filter(({ time }) => isWithin(time, bounds)) ?? [];
    if (known.length > 0) show(known);
    const marks = await requestMarks(site.id, bounds, signal);
    lastMarks.set(site, marks);
    if (known.length === 0 || JSON.stringify(marks) !== JSON.stringify(known)) show(marks);
  } catch (error) {
    // A site that is gone, or that the token may not see, has no marks.
    if (isAborted(error) || (error instanceof Failure && error.status === 404)) return;
    showPartFailure(
      markText,
      "Deploys are not marked.",
      error,
      () => void markDeploys(markText, draw, options),
    );
  }
}

/** @param {number} time @param {Bounds} bounds */
function isWithin(time, { from, to }) {
  return time >= Date.parse(from) && time <= Date.parse(to);
}

/** Not of GraphQL, which a server loads with its first query. @param {string} site @param {Bounds} bounds @param {AbortSignal} signal @returns {Promise<readonly DeployMark[]>} */
async function requestMarks(site, { from, to }, signal) {
  const asked = new URLSearchParams({ from, to, limit: String(limit) });
  const path = `/api/${encodeURIComponent(site)}/markers.json?${asked}`;
  /** @type {{ readonly markers: readonly { readonly short_revision: string, readonly created_at: string }[] }} */
  const { markers } = await requestJson({ method: "GET", path }, signal);
  return markers
    .map(({ short_revision, created_at }) => ({ time: Date.parse(created_at), label: short_revision }))
    .reverse();
}

/** @param {readonly DeployMark[]} marks */
function createMarkList(marks) {
  return createElement(
    "ul",
    { class: "unseen", "aria-label": "Deploys that are marked" },
    marks.map(({ time, label }) =>
      createElement(
        "li",
        {},
        renderUntrusted(label),
        ` at ${formatMinute(new Date(time).toISOString())} ${formatZoneName()}`,
      ),
    ),
  );
}

/**
 * Where the names of marks stand: to the right of their mark, at the right end of the chart on its other side, where there is
 * room. Of several at one place, the first is named.
 * @param {readonly { readonly x: number, readonly width: number }[]} names in the order of their marks @param {number} end of the chart
 * @returns {readonly (number | undefined)[]} where each begins; undefined is not named
 */
export function placeNames(names, end) {
  let taken = Number.NEGATIVE_INFINITY;
  return names.map(({ x, width }) => {
    const left = x + width > end ? x - width : x;
    if (left < taken) return undefined;
    taken = left + width;
    return left;
  });
}
