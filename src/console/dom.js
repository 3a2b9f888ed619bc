// Elements, made by hand. Text becomes text nodes and nothing else: log lines are written by whoever can reach the
// applications, so nothing here ever parses markup, and attributes are set by name from this code alone.
import { piecesOf } from "./format.js";

/** @typedef {Node | string | undefined | false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Readonly<Record<string, string | number | boolean | undefined>>} attributes `true` is an empty attribute; `false` and undefined are none
 * @param {...(Child | readonly Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  fill(made, children);
  return made;
}

/** @param {Element} parent @param {readonly (Child | readonly Child[])[]} children */
function fill(parent, children) {
  for (const child of children.flat()) if (child !== undefined && child !== false) parent.append(child);
}

/** @param {Element} parent @param {...(Child | readonly Child[])} children */
export function replace(parent, ...children) {
  parent.replaceChildren();
  fill(parent, children);
}

/**
 * @param {string} label
 * @param {() => void} act
 * @param {Readonly<Record<string, string | boolean | undefined>>} [attributes]
 * @param {...(Child | readonly Child[])} children instead of the label as text; the label is then the accessible name
 */
export function button(label, act, attributes = {}, ...children) {
  const named = children.length > 0 ? { "aria-label": label, title: label } : {};
  const made = element(
    "button",
    { type: "button", ...named, ...attributes },
    ...(children.length > 0 ? children : [label]),
  );
  made.addEventListener("click", act);
  return made;
}

/**
 * Text from outside, set apart from what stands around it in direction, what is invisible in it spelt out.
 * @param {string} text
 * @param {{ readonly breaks?: boolean }} [options]
 */
export function foreign(text, { breaks = false } = {}) {
  const pieces = piecesOf(text.toWellFormed(), { breaks }).map((piece) =>
    piece.spelt ? element("span", { class: "spelt" }, piece.text) : piece.text,
  );
  return element("bdi", {}, pieces);
}

/** Words for those who do not see. @param {string} text */
export function unseen(text) {
  return element("span", { class: "unseen" }, text);
}

let drawn = 0;
/** An id that no other element has. @param {string} name */
export function uniqueId(name) {
  drawn += 1;
  return `${name}-${drawn}`;
}

/**
 * A control with its label.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [shape] a class of the field
 */
export function field(label, control, shape = "") {
  control.id ||= uniqueId("field");
  return element("div", { class: `field ${shape}` }, element("label", { for: control.id }, label), control);
}

/**
 * @param {readonly (readonly [value: string, label: string])[]} options
 * @param {(value: string) => void} changed
 */
export function select(options, changed) {
  const made = element("select");
  fillSelect(made, options);
  made.addEventListener("change", () => changed(made.value));
  return made;
}

/** @param {HTMLSelectElement} made @param {readonly (readonly [value: string, label: string])[]} options */
export function fillSelect(made, options) {
  replace(
    made,
    options.map(([value, label]) => element("option", { value }, label)),
  );
}

/**
 * A table in a place of its own that scrolls.
 * @param {string} caption
 * @param {readonly Element[]} heads of the columns
 * @param {readonly (readonly Element[])[]} rows their cells
 * @param {{ readonly label?: string, readonly shape?: string }} [options] the place's name; a class of the table
 */
export function table(caption, heads, rows, { label = caption, shape = "" } = {}) {
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    element(
      "table",
      { class: `grid ${shape}` },
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, element("tr", {}, heads)),
      element(
        "tbody",
        {},
        rows.map((cells) => element("tr", {}, cells)),
      ),
    ),
  );
}
