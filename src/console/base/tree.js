// A value as a tree that opens. What is closed is not there yet: a line's body may be large, or deep by intent.
import { createButton, createElement, renderUntrusted } from "./dom.js";
import { isSpelt, listEntries, toScalarText } from "./json.js";

/**
 * What a click on a value does; undefined for a value that no query can name.
 * @typedef {(path: readonly string[], text: string) => { readonly only: () => void, readonly without: () => void } | undefined} Choices
 */

/** So many entries are shown open. */
const maxOpenEntries = 30;

/**
 * @param {unknown} value an object or an array
 * @param {Choices} choices
 * @param {readonly string[]} [path]
 */
export function createTree(value, choices, path = []) {
  const entries = listEntries(value) ?? [];
  if (entries.length === 0)
    return createElement("p", { class: "muted" }, Array.isArray(value) ? "[ ]" : "{ }");
  return createElement(
    "ul",
    { class: "tree" },
    entries.map(([key, child]) => createBranch(key, child, choices, [...path, key])),
  );
}

/** @param {string} key @param {unknown} value @param {Choices} choices @param {readonly string[]} path */
function createBranch(key, value, choices, path) {
  const below = listEntries(value);
  if (below === undefined) return createLeaf(key, value, choices, path);
  const size = Array.isArray(value) ? `[${below.length}]` : `{${below.length}}`;
  if (below.length === 0) {
    return createElement(
      "li",
      { class: "leaf" },
      createKey(key),
      createElement("span", { class: "muted" }, size),
    );
  }
  const details = createElement(
    "details",
    {},
    createElement("summary", {}, createKey(key), createElement("span", { class: "muted" }, size)),
  );
  const build = () => {
    if (details.open && details.childElementCount === 1) details.append(createTree(value, choices, path));
  };
  details.addEventListener("toggle", build);
  details.open = path.length <= 2 && below.length <= maxOpenEntries;
  build();
  return createElement("li", {}, details);
}

/** @param {string} key @param {unknown} value @param {Choices} choices @param {readonly string[]} path */
export function createLeaf(key, value, choices, path) {
  const text = toScalarText(value);
  const kind = value === null ? "null" : isSpelt(value) ? "number" : typeof value;
  const shown = renderUntrusted(text ?? "null", { breaks: true });
  const choice = text === undefined ? undefined : choices(path, text);
  const brief = text !== undefined && text.length > 60 ? `${text.slice(0, 60)}…` : text;
  return createElement(
    "li",
    { class: "leaf" },
    createKey(key),
    createElement("span", { class: "value", "data-kind": kind }, text === "" ? '""' : shown),
    choice !== undefined &&
      createElement(
        "span",
        { class: "choices" },
        createButton(`Only where ${path.join(".")} is ${brief}`, choice.only, {}, "="),
        createButton(`Without those where ${path.join(".")} is ${brief}`, choice.without, {}, "≠"),
      ),
  );
}

/** @param {string} key */
function createKey(key) {
  return createElement("span", { class: "key" }, renderUntrusted(key === "" ? '""' : key));
}
