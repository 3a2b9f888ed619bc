// The rows of the listing of traces.
import { printAddress } from "../base/address.js";
import { isAborted } from "../base/api.js";
import { createElement, createHiddenText, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatDuration, formatLongTime, formatShortTime } from "../base/format.js";
import { listEntries, toScalarText } from "../base/json.js";
import { addTerm, printTagTerm } from "../search/query.js";
import { requestExceptions } from "./exceptions.js";

/** @typedef {import("./traces.js").TracesView} TracesView */
/** @typedef {import("./traces.js").State} State */
/** @typedef {import("./traces.js").Summary} Summary */

/** @param {HTMLElement} body */
export function createTracesTable(body) {
  return createElement(
    "table",
    { class: "grid traces" },
    createElement("caption", { class: "unseen" }, "Traces"),
    createElement(
      "thead",
      {},
      createElement(
        "tr",
        {},
        ["Ended", "Duration", "Action", "Tags"].map((name) => createElement("th", { scope: "col" }, name)),
      ),
    ),
    body,
  );
}

/**
 * Writes type and message of each error into its row. The rows stand without them, too.
 * @param {readonly HTMLElement[]} items of the rows, in their order
 * @param {readonly Summary[]} rows
 * @param {Parameters<typeof requestExceptions>[0]} page
 * @param {AbortSignal} signal
 */
export async function describeErrors(items, rows, page, signal) {
  if (rows.length === 0) return;
  /** @type {(text: (row: Summary) => Node | string) => void} */
  const write = (text) => {
    for (const [at, item] of items.entries()) {
      const [cell, row] = [item.querySelector(".exception"), rows[at]];
      if (cell !== null && row !== undefined) replaceChildren(cell, text(row));
    }
  };
  try {
    const find = await requestExceptions(page, signal);
    write((row) => {
      const { name, message } = find(row) ?? {};
      const known = [name, message].filter((text) => text != null && text !== "");
      return known.length === 0 ? "Type and message are not told" : renderUntrusted(known.join(": "));
    });
  } catch (error) {
    if (!isAborted(error)) write(() => "Type and message could not be read");
  }
}

/** @param {Summary} row */
export function formatTraceKey({ trace_id, span_id }) {
  return `${trace_id} ${span_id}`;
}

/** @param {TracesView} view @param {Summary} row @param {State} now */
export function createTraceRow(view, row, now) {
  const href = printAddress("trace", { site: row.site_id, id: row.trace_id, span: row.span_id });
  const bar = createElement("span", { class: "share-of" });
  bar.style.setProperty("--length", String(row.duration));
  return createElement(
    "tr",
    { "data-failed": now.kind === "errors", "data-key": formatTraceKey(row) },
    createElement(
      "td",
      {},
      createElement(
        "time",
        { datetime: row.time, title: formatLongTime(row.time) },
        formatShortTime(row.time),
      ),
    ),
    createElement("td", { class: "duration" }, createElement("span", {}, formatDuration(row.duration)), bar),
    createElement(
      "td",
      { class: "action" },
      createElement(
        "div",
        {},
        createElement("a", { href }, renderUntrusted(row.action_name)),
        createElement("span", { class: "muted" }, renderUntrusted(row.namespace)),
        row.has_npo &&
          createElement("span", { class: "badge warn", title: "Equal queries, one by one" }, "N+1"),
      ),
      now.kind === "errors" && createElement("p", { class: "exception" }, "…"),
    ),
    createElement(
      "td",
      { class: "tags" },
      (listEntries(row.tags) ?? []).map(([name, value]) => createTag(view, name, value)),
    ),
  );
}

/** @param {TracesView} view @param {string} name @param {unknown} value */
function createTag({ change, query }, name, value) {
  const text = toScalarText(value);
  const term = text === undefined ? undefined : printTagTerm(name, "=", text);
  const shown = renderUntrusted(`${name}: ${text ?? JSON.stringify(value)}`);
  if (term === undefined) return createElement("span", { class: "tag" }, shown);
  const only = createElement("button", { type: "button", class: "tag" }, createHiddenText("Only "), shown);
  only.addEventListener("click", () => change({ query: addTerm(query.read(), term) }));
  return only;
}
