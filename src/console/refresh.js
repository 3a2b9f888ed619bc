// A view that is read anew takes the place of the one that is shown, with what a reader has done in it. What cannot be taken
// over keeps the old one.
import { createElement } from "./base/dom.js";
import { readPlace, scrollToPlace } from "./places.js";

/** @typedef {HTMLInputElement | HTMLTextAreaElement} TextField */

/** What is only in the elements: a menu, a stretch of a trace, spans that are folded. */
const kept = ".menu[open], .unzoom, .fold[aria-expanded='false']";
/** What a click has opened or hidden, and a click on the new one does again. */
const pressed = [":is(.line, .expander)[aria-expanded='true']", ".series[aria-pressed='false']"];
/** What stood in fields before they were edited. @type {WeakMap<Element, string>} */
let before = new WeakMap();

/** From now on all that stands in fields is taken for sent. */
export function forgetTyped() {
  before = new WeakMap();
  rememberField(document.activeElement);
}

/** @param {EventTarget | null} field */
export function rememberField(field) {
  const isField = field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement;
  if (isField && !before.has(field)) before.set(field, field.value);
}

/** What is typed into fields and not sent. @param {HTMLElement} root @returns {ReadonlyMap<TextField, string>} */
export function readTyped(root) {
  const fields = /** @type {NodeListOf<TextField>} */ (root.querySelectorAll("input, textarea"));
  const typed = [...fields].filter((field) => (before.get(field) ?? field.value) !== field.value);
  return new Map(typed.map((field) => [field, field.value]));
}

/** Types it again over what has been written into the fields meanwhile. @param {ReadonlyMap<TextField, string>} typed */
export function writeTyped(typed) {
  for (const [field, text] of typed) {
    rememberField(field);
    field.value = text;
    field.dispatchEvent(new Event("input"));
  }
}

/** Whether something is typed, selected or open that a new view would not have. @param {HTMLElement} root of the view */
export function isInUse(root) {
  const focused = document.activeElement;
  const isInField = root.contains(focused) && focused?.matches("input, textarea, select") === true;
  const selection = getSelection();
  const isSelected = selection !== null && !selection.isCollapsed && root.contains(selection.anchorNode);
  const isOpen = root.querySelector(kept) !== null || document.querySelector("dialog[open]") !== null;
  return isInField || readTyped(root).size > 0 || isSelected || isOpen;
}

/** Why a view could not be read where the old one could. @param {HTMLElement} old @param {HTMLElement} next */
export function findNewFailure(old, next) {
  return findFailure(old) === undefined ? findFailure(next) : undefined;
}

/** Why a view could not be read, undefined where it could. @param {HTMLElement} root */
function findFailure(root) {
  return root.querySelector(".state-failed > p:not(.state-title)")?.textContent ?? undefined;
}

/** Says in a view that it is as it was, and why. @param {HTMLElement} root @param {string} why */
export function writeUnread(root, why) {
  root.querySelector(".unread")?.remove();
  const notice = createElement("span", { class: "unread" }, `Not read anew: ${why}`);
  const status = root.querySelector(".status-line");
  if (status === null) root.prepend(createElement("p", { class: "unread", role: "status" }, notice));
  else status.append(" ", notice);
}

/** Has a view read out of sight. @param {HTMLElement} main @param {HTMLElement} root @param {() => unknown} show */
export async function stageView(main, root, show) {
  root.classList.add("staged");
  main.append(root);
  await show();
  root.classList.remove("staged");
}

/**
 * Puts a view in the place of another one: what is open there, the series that are hidden, the focus and the place.
 * @param {HTMLElement} old @param {HTMLElement} next @param {AbortSignal} signal of the next one
 */
export async function replaceView(old, next, signal) {
  const place = readPlace();
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(next);
  void scrollToPlace(place, signal);
  for (const chosen of pressed) {
    const inNext = new Set([...next.querySelectorAll(chosen)].map(printKey));
    const missing = [...old.querySelectorAll(chosen)].filter((one) => !inNext.has(printKey(one)));
    // One row may stand twice, also among the lines around another: a second click would undo the first.
    for (const one of new Set(missing.map((one) => findSame(next, one)))) one?.click();
  }
  const opened = Map.groupBy(old.querySelectorAll("details"), printKey);
  // Of several that nothing tells apart, each has its turn.
  for (const details of next.querySelectorAll("details"))
    details.open = opened.get(printKey(details))?.shift()?.open ?? details.open;
  if (focused !== null) findSame(next, focused)?.focus({ preventScroll: true });
  // What has opened fills itself after this, and may move the rest.
  await new Promise((resolve) => setTimeout(resolve));
  void scrollToPlace(place, signal);
}

/** What tells an element from others of its view. @param {Element} element */
function printKey(element) {
  const key = element.closest("[data-key]")?.getAttribute("data-key");
  const named = element instanceof HTMLDetailsElement ? element.querySelector("summary") : element;
  return [element.tagName, key, element.getAttribute("href"), named?.textContent].join("\n");
}

/** @param {HTMLElement} root @param {Element} element of another view */
function findSame(root, element) {
  const key = printKey(element);
  const row = element.closest("[data-key]")?.getAttribute("data-key");
  const inRow = `[data-key="${CSS.escape(row ?? "")}"]`;
  const sought = row == null ? element.tagName : `${element.tagName}:is(${inRow}, ${inRow} *)`;
  const all = /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(sought));
  return [...all].find((one) => printKey(one) === key);
}
