// Light or dark: as the system is, until someone chooses.
import { createElement, createHiddenText } from "./base/dom.js";

const key = "readout.theme";
const themes = /** @type {const} */ (["system", "light", "dark"]);
/** @typedef {typeof themes[number]} Theme */

/** Applies what was chosen before, and returns the switch. */
export function startTheme() {
  let theme = themes.find((one) => one === localStorage.getItem(key)) ?? "system";
  const word = createElement("span");
  const made = createElement("button", { type: "button", class: "theme" }, createHiddenText("Theme: "), word);
  made.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "system";
    if (theme === "system") localStorage.removeItem(key);
    else localStorage.setItem(key, theme);
    apply();
  });
  function apply() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    word.textContent = { system: "Auto", light: "Light", dark: "Dark" }[theme];
    made.title = {
      system: "The theme is the system's",
      light: "The theme is light",
      dark: "The theme is dark",
    }[theme];
  }
  apply();
  return made;
}
