// Light or dark: as the system is, until someone chooses.
import { button, element } from "./dom.js";

const key = "readout.theme";
const themes = /** @type {const} */ (["system", "light", "dark"]);
/** @typedef {typeof themes[number]} Theme */

/** Applies what was chosen before, and returns the switch. */
export function startTheme() {
  let theme = themes.find((one) => one === localStorage.getItem(key)) ?? "system";
  const word = element("span");
  const made = button(
    "",
    () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "system";
      if (theme === "system") localStorage.removeItem(key);
      else localStorage.setItem(key, theme);
      apply();
    },
    { class: "theme" },
    word,
  );
  function apply() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    word.textContent = { system: "Auto", light: "Light", dark: "Dark" }[theme];
    const label = `Theme: ${{ system: "as the system", light: "light", dark: "dark" }[theme]}`;
    made.setAttribute("aria-label", label);
    made.title = label;
  }
  apply();
  return made;
}
