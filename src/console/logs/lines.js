// Log lines in a list. A line opens as what it is: its own fields, and its body as a tree whose values filter.
import { printAddress } from "../base/address.js";
import { copyText } from "../base/controls.js";
import { createButton, createElement, renderUntrusted } from "../base/dom.js";
import { formatLongTime, formatShortTime } from "../base/format.js";
import { findText } from "../base/json.js";
import { createLeaf, createTree } from "../base/tree.js";
import { printFieldTerm, printTerm } from "../search/query.js";
import { createContextButton } from "./context.js";
import { listFieldTexts, readBody } from "./field-paths.js";
import { formatLineKey } from "./log-line.js";

/** @typedef {import("./log-line.js").Line} Line */
/** @typedef {{ readonly spelling: string, readonly path: readonly string[] }} LineColumn of the body */
/**
 * @typedef {{
 *   readonly site: string, readonly signal?: AbortSignal, readonly narrow?: (term: string) => void,
 *   readonly sought?: readonly string[], readonly columns?: readonly LineColumn[],
 *   readonly isOpen?: boolean, readonly toggled?: (key: string, isOpen: boolean) => void,
 * }} LineOptions `narrow` adds a term to the query; `sought` is marked in the message; with `signal` the lines around it are
 *   offered
 */

/** A row shows some hundred of them; the opened line has all. */
const maxRowCharacters = 1_000;

/** @param {Line} line @param {LineOptions} options */
export function createLineItem(line, options) {
  const { sought = [], columns = [], isOpen = false, toggled } = options;
  // Not a <details>: of 10,000 the browser takes twice as long to lay out each for the first time.
  const head = createElement(
    "div",
    { class: "line", role: "button", tabindex: "0" },
    createElement(
      "time",
      { datetime: line.timestamp, title: formatLongTime(line.timestamp) },
      formatShortTime(line.timestamp),
    ),
    createSeverityBadge(line.severity),
    createElement("span", { class: "line-source" }, renderUntrusted(line.source_id)),
    columns.map(({ spelling, path }) => createCell(spelling, listFieldTexts(line, path))),
    createElement(
      "span",
      { class: "line-message" },
      line.message === "" ? "—" : renderUntrusted(line.message, { sought, most: maxRowCharacters }),
    ),
  );
  const item = createElement(
    "li",
    {
      class: "line-item",
      role: "listitem",
      "data-severity": line.severity,
      "data-time": line.timestamp,
      "data-key": formatLineKey(line),
    },
    head,
  );
  /** @type {HTMLElement | undefined} made when it is first seen */
  let opened;
  /** @param {boolean} isShown */
  const show = (isShown) => {
    head.setAttribute("aria-expanded", String(isShown));
    opened ??= isShown ? createLineDetails(line, options) : undefined;
    if (opened === undefined) return;
    opened.hidden = !isShown;
    item.append(opened);
  };
  show(isOpen);
  whenPressed(head, () => {
    const isShown = head.getAttribute("aria-expanded") !== "true";
    show(isShown);
    toggled?.(formatLineKey(line), isShown);
  });
  return item;
}

/** Acts by a click, Enter or Space, but not where a click ends the selection of its text. @param {HTMLElement} element @param {() => void} act */
function whenPressed(element, act) {
  element.addEventListener("click", ({ detail }) => {
    const selection = getSelection();
    // A click that no pointer makes, as those of assistive programs, selects nothing.
    const isSelecting =
      detail > 0 && selection?.isCollapsed === false && selection.containsNode(element, true);
    if (!isSelecting) act();
  });
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (!event.repeat) act();
  });
}

/** @param {string} name @param {readonly string[]} texts */
function createCell(name, texts) {
  return createElement(
    "span",
    { class: "line-cell" },
    createElement("span", { class: "line-cell-name" }, renderUntrusted(name), ": "),
    texts.length === 0 ? "–" : renderUntrusted(texts.join(", "), { most: maxRowCharacters }),
  );
}

/** @param {string} word */
function createSeverityBadge(word) {
  return createElement("span", { class: "severity", "data-severity": word }, word);
}

/** @param {Line} line @param {LineOptions} options */
function createLineDetails(line, { site, signal, narrow }) {
  const around =
    signal === undefined
      ? undefined
      : createContextButton(line, site, signal, (one) => createLineItem(one, { site }));
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
      around?.button,
      createCopyButton(line),
    ),
    around?.shown,
    createElement("ul", { class: "tree" }, own),
    body === undefined
      ? createElement("pre", {}, renderUntrusted(line.json, { breaks: true }))
      : createTree(body, (path, text) => choose((operator) => printTerm(path, operator, text))),
  );
}

/** @param {Line} line */
function createCopyButton(line) {
  const label = "Copy as JSON";
  const copy = createButton(label, async () => {
    copy.textContent = (await copyText(JSON.stringify(line))) ? "Copied" : "Copying is not allowed";
    setTimeout(() => {
      copy.textContent = label;
    }, 1_500);
  });
  return copy;
}
