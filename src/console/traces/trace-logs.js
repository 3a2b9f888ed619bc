// The log lines that carry the id of a trace, or of one of its spans.
import { printAddress } from "../base/address.js";
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createButton, createElement, replaceChildren } from "../base/dom.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { createLineItem } from "../logs/lines.js";
import { printTerm } from "../search/query.js";

/** @typedef {import("./waterfall.js").Span} Span */
/** @typedef {import("../base/api.js").Site} Site */
/** @typedef {{ readonly site: Site, readonly signal: AbortSignal }} Scope */

const maxLines = 200;
const hour = 3_600_000;

/**
 * Shows the lines with a term of their own, from an hour before the spans to an hour after them.
 * @param {HTMLElement} root is replaced
 * @param {readonly Span[]} spans at least one
 * @param {string | undefined} query undefined where no query can ask for them
 * @param {Scope} scope
 */
export async function showTraceLogs(root, spans, query, { site, signal }) {
  if (query === undefined)
    return replaceChildren(root, createEmptyState("No log lines", "No query can ask for this id."));
  const times = spans.flatMap(({ start_time, end_time }) => [start_time, end_time]).sort();
  const around = (/** @type {string | undefined} */ time, /** @type {number} */ by) =>
    new Date(Date.parse(time ?? "") + by).toISOString();
  const [from, to] = [around(times[0], -hour), around(times.at(-1), hour)];
  replaceChildren(root, createLoadingState("its log lines"));
  const request = buildPost("logs/lines", {
    site_id: site.id,
    source_ids: site.sources,
    query,
    use_expressions: true,
    from,
    to,
    pagination: { per_page: maxLines, order: "ASC", cursor: { time: null } },
  });
  try {
    /** @type {readonly import("../logs/log-line.js").Line[]} */
    const lines = await requestJson(request, signal);
    const href = printAddress("logs", { site: site.id, query, range: { from, to }, order: "ASC" });
    replaceChildren(
      root,
      lines.length === 0
        ? createEmptyState("No log lines", "None carries this id, an hour before and after it.")
        : createElement(
            "ol",
            { class: "lines", "aria-label": "Log lines" },
            lines.map((line) => createLineItem(line, { site: site.id })),
          ),
      createElement(
        "p",
        {},
        createElement(
          "a",
          { href },
          lines.length < maxLines ? "Open in the logs" : "All of them in the logs",
        ),
      ),
    );
  } catch (error) {
    if (!isAborted(error)) replaceChildren(root, createFailureState(error));
  }
}

/** The lines of a trace. @param {string} id */
export function printTraceTerms(id) {
  return printIdTerms([["trace_id"], ["trace", "id"]], id);
}

/** The lines of a span. @param {string} id */
export function printSpanTerms(id) {
  return printIdTerms([["span_id"], ["span", "id"]], id);
}

/** @param {readonly (readonly string[])[]} paths @param {string} id */
function printIdTerms(paths, id) {
  const terms = listSpellings(id)
    .flatMap((spelling) => paths.map((path) => printTerm(path, "=", spelling)))
    .filter((term) => term !== undefined);
  return terms.length === 0 ? undefined : terms.join(" OR ");
}

/**
 * As whoever writes lines spells an id: in either case, without leading zeros, and a trace's in its lower half alone. A test
 * holds it to the server's list.
 * @param {string} id
 */
function listSpellings(id) {
  if (!/^[0-9a-f]+$/.test(id)) return [id];
  const half = id.length === 32 && /^0{16}/.test(id) ? [id.slice(16)] : [];
  const lower = [id, id.replace(/^0+/, ""), ...half].filter((text) => text !== "");
  return [...new Set(lower.flatMap((text) => [text, text.toUpperCase()]))];
}

/** A button that shows the lines of a span in its place. @param {Span} span @param {Scope} scope */
export function createSpanLogs(span, scope) {
  const root = createElement("div", { class: "span-logs" });
  const query = printSpanTerms(span.span_id);
  root.append(createButton("Its log lines", () => void showTraceLogs(root, [span], query, scope)));
  return root;
}
