// The lines before and after one line, of the same source, whatever the query is.
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createButton, createElement, replaceChildren } from "../base/dom.js";
import { createFailureState, createLoadingState } from "../base/states.js";
import { formatLineKey } from "./log-line.js";

/** @typedef {import("./log-line.js").Line} Line */

const firstCount = 5;
const maxCount = 80;

/**
 * A button that shows them below it, and more of them with each click.
 * @param {Line} line @param {string} site @param {AbortSignal} signal
 * @param {(line: Line) => HTMLElement} createItem of a list of lines
 */
export function createContextButton(line, site, signal, createItem) {
  const shown = createElement("div");
  let count = firstCount;
  const button = createButton("Lines around it", async () => {
    button.disabled = true;
    if (shown.childElementCount === 0) replaceChildren(shown, createLoadingState("the lines around it"));
    try {
      const lines = await requestContext(line, site, count, signal);
      replaceChildren(shown, createContextList(line, lines, createItem));
      count = Math.min(maxCount, count * 2);
      button.textContent = "More lines around it";
    } catch (error) {
      if (!isAborted(error)) replaceChildren(shown, createFailureState(error));
    }
    button.disabled = false;
  });
  return { button, shown };
}

/**
 * @param {Line} line @param {string} site @param {number} count before and after it
 * @param {AbortSignal} signal @returns {Promise<readonly Line[]>} in the order of time, the line among them
 */
async function requestContext(line, site, count, signal) {
  const { timestamp, source_id: source } = line;
  const ask = (/** @type {"ASC" | "DESC"} */ order, /** @type {object} */ bound) =>
    requestJson(
      buildPost("logs/lines", {
        site_id: site,
        source_ids: [source],
        query: "",
        use_expressions: true,
        ...bound,
        pagination: { per_page: count, order, cursor: { time: null } },
      }),
      signal,
    );
  const shift = (/** @type {number} */ millis) => new Date(Date.parse(timestamp) + millis).toISOString();
  // A page has all lines of its last millisecond, or the first of very many: then the line alone stands for its own. Its further
  // digits may tell a part of the millisecond and no time.
  /** @type {readonly (readonly Line[])[]} */
  const [before = [], beside = [], after = []] = await Promise.all([
    ask("DESC", { to: shift(-1) }),
    ask("ASC", { from: shift(0), to: shift(0) }),
    ask("ASC", { from: shift(1) }),
  ]);
  const isLine = (/** @type {Line} */ one) => formatLineKey(one) === formatLineKey(line);
  const all = [...before.toReversed(), ...(beside.some(isLine) ? beside : [line]), ...after];
  const at = all.findIndex(isLine);
  return all.slice(Math.max(0, at - count), at + count + 1);
}

/** @param {Line} line @param {readonly Line[]} lines @param {(line: Line) => HTMLElement} createItem */
function createContextList(line, lines, createItem) {
  return createElement(
    "ol",
    { class: "lines context", "aria-label": "Lines around it" },
    lines.map((one) => {
      const item = createItem(one);
      if (formatLineKey(one) === formatLineKey(line)) item.setAttribute("aria-current", "true");
      return item;
    }),
  );
}
