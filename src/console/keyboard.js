// Keys for those who do not reach for the mouse. They mean nothing while something is typed.
import { createElement } from "./base/dom.js";

const keys = [
  ["/", "to the query"],
  ["j, k", "to the next row, to the one before"],
  ["Enter", "opens the row"],
  ["r", "reads anew"],
  ["Escape", "leaves the query, closes a menu"],
  ["?", "shows these keys"],
];
/** What opens a row; one of each. */
const rows = [
  ".line-item > .line:not([hidden] *)",
  ".span-item:not([hidden]) > details > summary",
  ".names button",
  ".traces .action a",
  ".grid tbody th :is(a, summary, .expander):not(.event-actions a)",
].join();

/**
 * @param {{ readonly root: HTMLElement, readonly focus: () => void, readonly refresh: () => void }} page
 * @returns {HTMLElement} the list of the keys, which is a dialog
 */
export function startKeyboard({ root, focus, refresh }) {
  const dialog = createElement(
    "dialog",
    { class: "keys", "aria-label": "Keys" },
    createElement(
      "dl",
      {},
      keys.flatMap(([key = "", description = ""]) => [
        createElement("dt", {}, createElement("kbd", {}, key)),
        createElement("dd", {}, description),
      ]),
    ),
    createElement("form", { method: "dialog" }, createElement("button", {}, "Close")),
  );
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || dialog.open) return;
    if (event.key === "Escape" && !event.defaultPrevented && closeMenu(root)) return;
    const isTyping = event.target instanceof Element && event.target.matches("input, textarea, select");
    if (isTyping) {
      if (event.key === "Escape" && !event.defaultPrevented) root.focus({ preventScroll: true });
      return;
    }
    const acts = {
      "/": focus,
      "?": () => dialog.showModal(),
      r: refresh,
      j: () => step(root, 1),
      k: () => step(root, -1),
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[/** @type {keyof typeof acts} */ (event.key)]();
  });
  return dialog;
}

/** Whether one was open. @param {HTMLElement} root */
function closeMenu(root) {
  const menu = root.querySelector("details.menu[open]");
  menu?.removeAttribute("open");
  menu?.querySelector("summary")?.focus();
  return menu !== null;
}

/** @param {HTMLElement} root @param {1 | -1} by */
function step(root, by) {
  const all = [...root.querySelectorAll(rows)];
  const at = document.activeElement === null ? -1 : all.indexOf(document.activeElement);
  const next = all[at === -1 ? (by === 1 ? 0 : all.length - 1) : at + by];
  if (!(next instanceof HTMLElement)) return;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
