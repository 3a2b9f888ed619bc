// Reads what is shown anew every while, as long as someone looks and does nothing else.
import { createSelect } from "./base/dom.js";

const choices = /** @type {const} */ ([
  ["0", "No refresh"],
  ["10", "Every 10 s"],
  ["60", "Every minute"],
  ["300", "Every 5 min"],
]);

/** @param {() => void} refresh @returns {HTMLSelectElement} how often */
export function startRefresh(refresh) {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  const made = createSelect(choices, (value) => {
    clearInterval(timer);
    timer = value === "0" ? undefined : setInterval(act, Number(value) * 1_000);
  });
  return made;

  function act() {
    const isBusy = document.activeElement?.matches("main :is(input, textarea, select)") === true;
    const hasMenu = document.querySelector("main .menu[open], dialog[open]") !== null;
    if (!document.hidden && !isBusy && !hasMenu) refresh();
  }
}
