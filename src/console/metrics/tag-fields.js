// A field for each tag of a metric: a value or a pattern, or one series for each value.
import { createElement, createField, replaceChildren } from "../base/dom.js";

/**
 * @param {HTMLElement} root
 * @param {readonly string[]} keys
 * @param {Readonly<Record<string, string>>} given
 * @param {(tags: Readonly<Record<string, string>>) => void} changed
 */
export function showTagFields(root, keys, given, changed) {
  const focused = document.activeElement?.getAttribute("data-tag");
  replaceChildren(
    root,
    keys.map((key) => {
      // A label may be named as what every object has.
      const pattern = Object.hasOwn(given, key) ? (given[key] ?? "") : "";
      const input = createElement("input", {
        type: "text",
        autocomplete: "off",
        spellcheck: "false",
        placeholder: "all together",
        "data-tag": key,
        value: pattern.toWellFormed(),
      });
      const write = (/** @type {string} */ value) => {
        const { [key]: _, ...others } = given;
        changed(value === "" ? others : { ...others, [key]: value });
      };
      input.addEventListener("change", () => write(input.value));
      const isSplit = pattern === "*";
      const split = createElement(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(isSplit),
          title: "One series for each value",
        },
        "each",
        createElement("span", { class: "unseen" }, ` ${key}`),
      );
      split.addEventListener("click", () => write(isSplit ? "" : "*"));
      const made = createField(key, input);
      made.append(createElement("div", { class: "joined" }, input, split));
      if (focused === key) queueMicrotask(() => input.focus());
      return made;
    }),
  );
}
