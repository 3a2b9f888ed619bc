// The sources of a site as switches. None chosen is the same as all.
import { createElement, renderUntrusted, replaceChildren } from "../base/dom.js";

/**
 * @param {HTMLElement} root
 * @param {readonly string[]} all @param {readonly string[]} chosen
 * @param {(chosen: readonly string[]) => void} choose
 */
export function showSourceChips(root, all, chosen, choose) {
  const focused = document.activeElement?.getAttribute("data-source");
  replaceChildren(
    root,
    all.map((source) => {
      const isOn = chosen.length === 0 || chosen.includes(source);
      const chip = createElement(
        "button",
        { type: "button", class: "chip", "data-source": source, "aria-pressed": String(isOn) },
        renderUntrusted(source),
      );
      chip.addEventListener("click", () => choose(toggleSource(all, chosen, source)));
      return chip;
    }),
  );
  for (const chip of root.querySelectorAll("button")) if (chip.dataset.source === focused) chip.focus();
}

/**
 * With all of them on, a click means this one alone; none is the same as all.
 * @param {readonly string[]} all @param {readonly string[]} asked @param {string} source
 */
function toggleSource(all, asked, source) {
  if (asked.length === 0) return all.length === 1 ? [] : [source];
  const next = asked.includes(source) ? asked.filter((one) => one !== source) : [...asked, source];
  return next.length === all.length ? [] : all.filter((one) => next.includes(one));
}
