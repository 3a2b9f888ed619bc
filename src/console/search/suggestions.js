// A list under a text area of how its text may go on. The arrows choose, Enter takes, Escape closes; nothing is chosen until
// then, so that Enter means what it means without the list.
import { createElement, generateId, renderUntrusted, replaceChildren } from "../base/dom.js";
import { applySuggestion, locateCompletion } from "./completion.js";

/** @typedef {import("./completion.js").Suggestion} Suggestion */
/** @typedef {import("./completion.js").Place} Place */
/** @typedef {(place: Place) => Promise<readonly Suggestion[]>} Suggest */

/**
 * A list and what it offers at the moment; `asked` counts what was asked, so that a late answer is told from the last one.
 * @typedef {{
 *   readonly area: HTMLTextAreaElement, readonly root: HTMLElement, readonly suggest: Suggest,
 *   offered: readonly Suggestion[], place: Place | undefined, active: number, asked: number,
 * }} SuggestionList
 */

/** @param {HTMLTextAreaElement} area @param {Suggest} suggest @returns {{ readonly root: HTMLElement, readonly close: () => void }} */
export function attachSuggestions(area, suggest) {
  const root = createElement("ul", {
    class: "suggestions",
    role: "listbox",
    hidden: true,
    id: generateId("suggestions"),
    "aria-label": "How the query may go on",
  });
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", root.id);
  /** @type {SuggestionList} */
  const list = { area, root, suggest, offered: [], place: undefined, active: -1, asked: 0 };
  area.addEventListener("input", () => void openList(list));
  area.addEventListener("blur", () => closeList(list));
  area.addEventListener("keydown", (event) => pressKey(list, event));
  return { root, close: () => closeList(list) };
}

/** @param {SuggestionList} list @param {KeyboardEvent} event */
function pressKey(list, event) {
  const { root, active } = list;
  if (event.isComposing) return;
  if (event.key === " " && event.ctrlKey) {
    event.preventDefault();
    void openList(list);
  } else if (!root.hidden && event.key === "Escape") {
    event.preventDefault();
    closeList(list);
  } else if (!root.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    activate(list, event.key === "ArrowDown" ? active + 1 : Math.max(active, 0) - 1);
  } else if (active !== -1 && event.key === "Enter") {
    event.preventDefault();
    takeSuggestion(list, active);
  }
}

/** @param {SuggestionList} list */
function closeList(list) {
  list.asked += 1;
  list.active = -1;
  list.offered = [];
  list.root.hidden = true;
  list.area.removeAttribute("aria-activedescendant");
}

/** @param {SuggestionList} list */
async function openList(list) {
  const { area, root, suggest } = list;
  closeList(list);
  const mine = list.asked;
  const place = locateCompletion(area.value, area.selectionStart);
  // What could not be asked is not offered; the search itself tells why.
  const found = await suggest(place).catch(() => []);
  // Typed on, sent or left meanwhile.
  if (mine !== list.asked || document.activeElement !== area || found.length === 0) return;
  list.place = place;
  list.offered = found;
  replaceChildren(
    root,
    found.map(({ label, hint }, at) => {
      const option = createElement(
        "li",
        { role: "option", id: `${root.id}-${at}`, "aria-selected": "false" },
        renderUntrusted(label),
        " ",
        hint !== undefined && createElement("span", { class: "muted" }, hint),
      );
      // The text area keeps the focus.
      option.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        takeSuggestion(list, at);
      });
      return option;
    }),
  );
  root.hidden = false;
}

/** @param {SuggestionList} list @param {number} next */
function activate(list, next) {
  const { area, root, offered } = list;
  list.active = (next + offered.length) % offered.length;
  for (const [at, option] of [...root.children].entries())
    option.setAttribute("aria-selected", String(at === list.active));
  root.children[list.active]?.scrollIntoView({ block: "nearest" });
  area.setAttribute("aria-activedescendant", `${root.id}-${list.active}`);
}

/** @param {SuggestionList} list @param {number} at */
function takeSuggestion({ area, offered, place }, at) {
  const chosen = offered[at];
  if (chosen === undefined || place === undefined) return;
  const { query, cursor } = applySuggestion(area.value, place, chosen);
  area.value = query;
  area.setSelectionRange(cursor, cursor);
  area.dispatchEvent(new Event("input"));
}
