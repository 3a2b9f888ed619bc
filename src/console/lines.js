// Log lines in a list. A line opens as what it is: its own fields, and its body as a tree whose values filter.
import { printAddress } from "./address.js";
import { element, foreign } from "./dom.js";
import { longTime, shortTime } from "./format.js";
import { readJson, textAt } from "./json.js";
import { printFieldTerm, printTerm } from "./query.js";
import { leaf, tree } from "./tree.js";

/**
 * @typedef {{
 *   readonly id: string, readonly timestamp: string, readonly source_id: string, readonly severity: string,
 *   readonly message: string, readonly hostname: string, readonly group: string, readonly json: string,
 * }} Line
 */

/** @param {Line} line */
export function keyOfLine({ source_id, id }) {
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
export function lineItem(line, { site, narrow, isOpen = false, toggled }) {
  const summary = element(
    "summary",
    { class: "line" },
    element("time", { datetime: line.timestamp, title: longTime(line.timestamp) }, shortTime(line.timestamp)),
    severity(line.severity),
    element("span", { class: "line-source" }, foreign(line.source_id)),
    element("span", { class: "line-message" }, line.message === "" ? "—" : foreign(line.message)),
  );
  const details = element("details", { open: isOpen }, summary);
  const build = () => {
    if (details.open && details.childElementCount === 1) details.append(opened(line, site, narrow));
  };
  build();
  details.addEventListener("toggle", () => {
    build();
    toggled?.(keyOfLine(line), details.open);
  });
  return element(
    "li",
    { "data-severity": line.severity, "data-time": line.timestamp, "data-key": keyOfLine(line) },
    details,
  );
}

/** @param {string} word */
function severity(word) {
  return element("span", { class: "severity", "data-severity": word }, word);
}

/** @param {Line} line @param {string} site @param {((term: string) => void) | undefined} narrow */
function opened(line, site, narrow) {
  const body = readBody(line.json);
  const trace = textAt(body, "trace_id") ?? textAt(body, "trace", "id");
  /** @param {(operator: "=" | "!=") => string | undefined} print */
  const choose = (print) => {
    const [only, without] = [print("="), print("!=")];
    return narrow === undefined || only === undefined || without === undefined
      ? undefined
      : { only: () => narrow(only), without: () => narrow(without) };
  };
  const own = /** @type {const} */ (["message", "severity", "hostname", "group"]).map((name) =>
    leaf(name, line[name], (_, text) => choose((operator) => printFieldTerm(name, operator, text)), [name]),
  );
  return element(
    "div",
    { class: "opened" },
    element(
      "p",
      { class: "opened-head" },
      element("time", { datetime: line.timestamp }, longTime(line.timestamp)),
      element("span", { class: "muted" }, foreign(`${line.source_id} · ${line.id}`)),
      trace !== undefined &&
        element("a", { class: "button", href: printAddress("trace", { site, id: trace }) }, "Open its trace"),
    ),
    element("ul", { class: "tree" }, own),
    body === undefined
      ? element("pre", {}, foreign(line.json, { breaks: true }))
      : tree(body, (path, text) => choose((operator) => printTerm(path, operator, text))),
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
