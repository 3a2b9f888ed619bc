// The switch of the time zone: UTC until someone chooses.
import { createElement, createHiddenText } from "./base/dom.js";
import { setZone } from "./base/format.js";

const key = "readout.zone";

/** Applies what was chosen before, and returns the switch. @param {() => void} changed */
export function startZone(changed) {
  let isLocal = localStorage.getItem(key) === "local";
  const word = createElement("span");
  const made = createElement(
    "button",
    { type: "button", class: "zone" },
    createHiddenText("Time zone: "),
    word,
  );
  made.addEventListener("click", () => {
    isLocal = !isLocal;
    if (isLocal) localStorage.setItem(key, "local");
    else localStorage.removeItem(key);
    apply();
    changed();
  });
  function apply() {
    setZone(isLocal ? "local" : "utc");
    word.textContent = isLocal ? "Local" : "UTC";
    made.title = isLocal ? "Times are those of this browser" : "Times are UTC";
  }
  apply();
  return made;
}
