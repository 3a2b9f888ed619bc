// Elements, made by hand. Text becomes text nodes and nothing else: log lines are written by whoever can reach the
// applications, so nothing here ever parses markup, and attributes are set by name from this code alone.
import { splitUntrusted } from "./format.js";

/** @typedef {Node | string | undefined | false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Readonly<Record<string, string | number | boolean | undefined>>} attributes `true` is an empty attribute; `false` and undefined are none
 * @param {...(Child | readonly Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function createElement(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  appendChildren(made, children);
  return made;
}

/** @param {Element} parent @param {readonly (Child | readonly Child[])[]} children */
function appendChildren(parent, children) {
  for (const child of children.flat()) if (child !== undefined && child !== false) parent.append(child);
}

/** @param {Element} parent @param {...(Child | readonly Child[])} children */
export function replaceChildren(parent, ...children) {
  parent.replaceChildren();
  appendChildren(parent, children);
}

/**
 * @param {string} label
 * @param {() => void} act
 * @param {Readonly<Record<string, string | boolean | undefined>>} [attributes]
 * @param {...(Child | readonly Child[])} children instead of the label as text; the label is then the accessible name
 */
export function createButton(label, act, attributes = {}, ...children) {
  const named = children.length > 0 ? { "aria-label": label, title: label } : {};
  const made = createElement(
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
 * @param {{ readonly breaks?: boolean, readonly sought?: readonly string[], readonly most?: number }} [options] `breaks`: it is
 *   shown whole, in lines; else in one, which has at most so many characters. `sought` is marked where it stands
 */
export function renderUntrusted(text, options = {}) {
  const parts = splitUntrusted(text, options).map(({ isHit, pieces }) => {
    const shown = pieces.map((piece) =>
      piece.spelt ? createElement("span", { class: "spelt" }, piece.text) : piece.text,
    );
    return isHit ? createElement("mark", {}, shown) : shown;
  });
  return createElement("bdi", {}, parts.flat());
}

/** Words for those who do not see. @param {string} text */
export function createHiddenText(text) {
  return createElement("span", { class: "unseen" }, text);
}

let drawn = 0;
/** An id that no other element has. @param {string} name */
export function generateId(name) {
  drawn += 1;
  return `${name}-${drawn}`;
}

/**
 * A control with its label.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [shape] a class of the field
 */
export function createField(label, control, shape = "") {
  control.id ||= generateId("field");
  return createElement(
    "div",
    { class: `field ${shape}` },
    createElement("label", { for: control.id }, label),
    control,
  );
}

/**
 * @param {readonly (readonly [value: string, label: string])[]} options
 * @param {(value: string) => void} changed
 */
export function createSelect(options, changed) {
  const made = createElement("select");
  fillSelect(made, options);
  made.addEventListener("change", () => changed(made.value));
  return made;
}

/** @param {HTMLSelectElement} made @param {readonly (readonly [value: string, label: string])[]} options */
export function fillSelect(made, options) {
  replaceChildren(
    made,
    options.map(([value, label]) => createElement("option", { value }, label)),
  );
}

/**
 * A table in a place of its own that scrolls.
 * @param {string} caption
 * @param {readonly Element[]} heads of the columns
 * @param {readonly (readonly Element[])[]} rows their cells
 * @param {{ readonly label?: string, readonly shape?: string }} [options] the place's name; a class of the table
 */
export function createTable(caption, heads, rows, { label = caption, shape = "" } = {}) {
  return createElement(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    createElement(
      "table",
      { class: `grid ${shape}` },
      createElement("caption", { class: "unseen" }, caption),
      createElement("thead", {}, createElement("tr", {}, heads)),
      createElement(
        "tbody",
        {},
        rows.map((cells) => createElement("tr", {}, cells)),
      ),
    ),
  );
}
