// A value as a tree that opens. What is closed is not there yet: a line's body may be large, or deep by intent.
import { button, element, foreign } from "./dom.js";
import { entriesOf, isSpelt, scalarText } from "./json.js";

/**
 * What a click on a value does; undefined for a value that no query can name.
 * @typedef {(path: readonly string[], text: string) => { readonly only: () => void, readonly without: () => void } | undefined} Choices
 */

/** So many entries are shown open. */
const mostOpen = 30;

/**
 * @param {unknown} value an object or an array
 * @param {Choices} choices
 * @param {readonly string[]} [path]
 */
export function tree(value, choices, path = []) {
  const entries = entriesOf(value) ?? [];
  if (entries.length === 0) return element("p", { class: "muted" }, Array.isArray(value) ? "[ ]" : "{ }");
  return element(
    "ul",
    { class: "tree" },
    entries.map(([key, child]) => branch(key, child, choices, [...path, key])),
  );
}

/** @param {string} key @param {unknown} value @param {Choices} choices @param {readonly string[]} path */
function branch(key, value, choices, path) {
  const below = entriesOf(value);
  if (below === undefined) return leaf(key, value, choices, path);
  const size = Array.isArray(value) ? `[${below.length}]` : `{${below.length}}`;
  if (below.length === 0) {
    return element("li", { class: "leaf" }, keyOf(key), element("span", { class: "muted" }, size));
  }
  const details = element(
    "details",
    {},
    element("summary", {}, keyOf(key), element("span", { class: "muted" }, size)),
  );
  const build = () => {
    if (details.open && details.childElementCount === 1) details.append(tree(value, choices, path));
  };
  details.addEventListener("toggle", build);
  details.open = path.length <= 2 && below.length <= mostOpen;
  build();
  return element("li", {}, details);
}

/** @param {string} key @param {unknown} value @param {Choices} choices @param {readonly string[]} path */
export function leaf(key, value, choices, path) {
  const text = scalarText(value);
  const kind = value === null ? "null" : isSpelt(value) ? "number" : typeof value;
  const shown = foreign(text ?? "null", { breaks: true });
  const choice = text === undefined ? undefined : choices(path, text);
  const brief = text !== undefined && text.length > 60 ? `${text.slice(0, 60)}…` : text;
  return element(
    "li",
    { class: "leaf" },
    keyOf(key),
    element("span", { class: "value", "data-kind": kind }, text === "" ? '""' : shown),
    choice !== undefined &&
      element(
        "span",
        { class: "choices" },
        button(`Only where ${path.join(".")} is ${brief}`, choice.only, {}, "="),
        button(`Without those where ${path.join(".")} is ${brief}`, choice.without, {}, "≠"),
      ),
  );
}

/** @param {string} key */
function keyOf(key) {
  return element("span", { class: "key" }, foreign(key === "" ? '""' : key));
}
