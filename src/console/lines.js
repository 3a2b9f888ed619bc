// Log lines in a list. A line opens as what it is: its own fields, and its body as a tree whose values filter.
import { printAddress } from "./address.js";
import { createElement, renderUntrusted } from "./dom.js";
import { formatLongTime, formatShortTime } from "./format.js";
import { findText, readJson } from "./json.js";
import { printFieldTerm, printTerm } from "./query.js";
import { createLeaf, createTree } from "./tree.js";

/**
 * @typedef {{
 *   readonly id: string, readonly timestamp: string, readonly source_id: string, readonly severity: string,
 *   readonly message: string, readonly hostname: string, readonly group: string, readonly json: string,
 * }} Line
 */

/** @param {Line} line */
export function formatLineKey({ source_id, id }) {
  return `${source_id} ${id}`;
}

/**
 * @param {Line} line
 * @param {{
 *   readonly site: string,
 *   readonly narrow?: (term: string) => void,
 *   readonly isOpen?: boolean,
 *   readonly toggled?: (key: string, isOpen: boolean) => void,
 * }} options `narrow` adds a term to the query
 */
export function createLineItem(line, { site, narrow, isOpen = false, toggled }) {
  const summary = createElement(
    "summary",
    { class: "line" },
    createElement(
      "time",
      { datetime: line.timestamp, title: formatLongTime(line.timestamp) },
      formatShortTime(line.timestamp),
    ),
    createSeverityBadge(line.severity),
    createElement("span", { class: "line-source" }, renderUntrusted(line.source_id)),
    createElement(
      "span",
      { class: "line-message" },
      line.message === "" ? "—" : renderUntrusted(line.message),
    ),
  );
  const details = createElement("details", { open: isOpen }, summary);
  const build = () => {
    if (details.open && details.childElementCount === 1)
      details.append(createLineDetails(line, site, narrow));
  };
  build();
  details.addEventListener("toggle", () => {
    build();
    toggled?.(formatLineKey(line), details.open);
  });
  return createElement(
    "li",
    { "data-severity": line.severity, "data-time": line.timestamp, "data-key": formatLineKey(line) },
    details,
  );
}

/** @param {string} word */
function createSeverityBadge(word) {
  return createElement("span", { class: "severity", "data-severity": word }, word);
}

/** @param {Line} line @param {string} site @param {((term: string) => void) | undefined} narrow */
function createLineDetails(line, site, narrow) {
  const body = readBody(line.json);
  const trace = findText(body, "trace_id") ?? findText(body, "trace", "id");
  /** @param {(operator: "=" | "!=") => string | undefined} print */
  const choose = (print) => {
    const [only, without] = [print("="), print("!=")];
    return narrow === undefined || only === undefined || without === undefined
      ? undefined
      : { only: () => narrow(only), without: () => narrow(without) };
  };
  const own = /** @type {const} */ (["message", "severity", "hostname", "group"]).map((name) =>
    createLeaf(name, line[name], (_, text) => choose((operator) => printFieldTerm(name, operator, text)), [
      name,
    ]),
  );
  return createElement(
    "div",
    { class: "opened" },
    createElement(
      "p",
      { class: "opened-head" },
      createElement("time", { datetime: line.timestamp }, formatLongTime(line.timestamp)),
      createElement("span", { class: "muted" }, renderUntrusted(`${line.source_id} · ${line.id}`)),
      trace !== undefined &&
        createElement(
          "a",
          { class: "button", href: printAddress("trace", { site, id: trace }) },
          "Open its trace",
        ),
    ),
    createElement("ul", { class: "tree" }, own),
    body === undefined
      ? createElement("pre", {}, renderUntrusted(line.json, { breaks: true }))
      : createTree(body, (path, text) => choose((operator) => printTerm(path, operator, text))),
  );
}

/** @param {string} json */
function readBody(json) {
  try {
    return readJson(json);
  } catch {
    // Deeper than the browser reads.
    return undefined;
  }
}
