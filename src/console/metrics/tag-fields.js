// A field for each tag of a metric: a value or a pattern, or one series for each value.
import { createElement, createField, replaceChildren } from "../base/dom.js";

/** @typedef {Readonly<Record<string, string>>} Tags */
/** @typedef {{ readonly input: HTMLInputElement, readonly split: HTMLElement, readonly root: HTMLElement }} TagField */

/**
 * @param {() => Tags} read what is chosen at the moment
 * @param {(tags: Tags) => void} changed
 */
export function createTagFields(read, changed) {
  const root = createElement("div", { class: "tag-fields", role: "group", "aria-label": "Tags" });
  /** @type {ReadonlyMap<string, TagField>} */
  let fields = new Map();
  const change = (/** @type {string} */ key, /** @type {string} */ value, /** @type {TagField} */ field) => {
    // One that was edited tells of it also when another one takes its place.
    if (fields.get(key) !== field) return;
    const { [key]: _, ...others } = read();
    changed(value === "" ? others : { ...others, [key]: value });
  };
  return {
    root,
    /** Shows what is chosen of these tags; what is being typed stays. @param {readonly string[]} keys */
    write(keys) {
      const shown = [...fields.keys()];
      if (keys.length !== shown.length || keys.some((key, at) => key !== shown[at])) {
        fields = new Map(keys.map((key) => [key, createTagField(key, read, change)]));
        replaceChildren(
          root,
          [...fields.values()].map((field) => field.root),
        );
      }
      for (const [key, { input, split }] of fields) {
        const pattern = readTag(read(), key);
        split.setAttribute("aria-pressed", String(pattern === "*"));
        if (document.activeElement !== input) input.value = pattern.toWellFormed();
      }
    },
  };
}

/** A label may be named as what every object has. @param {Tags} tags @param {string} key */
function readTag(tags, key) {
  return Object.hasOwn(tags, key) ? (tags[key] ?? "") : "";
}

/** @param {string} key @param {() => Tags} read @param {(key: string, value: string, field: TagField) => void} change @returns {TagField} */
function createTagField(key, read, change) {
  const input = createElement("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "all together",
  });
  const split = createElement(
    "button",
    { type: "button", class: "chip", title: "One series for each value" },
    "each",
    createElement("span", { class: "unseen" }, ` ${key}`),
  );
  const root = createField(key, input);
  root.append(createElement("div", { class: "joined" }, input, split));
  const field = { input, split, root };
  input.addEventListener("change", () => change(key, input.value, field));
  split.addEventListener("click", () => change(key, readTag(read(), key) === "*" ? "" : "*", field));
  return field;
}
