// The controls of the toolbar, on every view: how often it is refreshed, the time zone, and the theme.
import { createElement, createField, createHiddenText, createSelect } from "./base/dom.js";
import { setZone } from "./base/format.js";
import { browserStorage, keepChoice } from "./base/storage.js";

const intervals = /** @type {const} */ ([
  ["0", "No refresh"],
  ["10", "Every 10 s"],
  ["60", "Every minute"],
  ["300", "Every 5 min"],
]);

/**
 * Refreshes the view at the chosen interval, unless the tab is hidden.
 * @param {() => void} refresh @returns {HTMLElement} the choice how often
 */
export function createRefreshField(refresh) {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  const made = createSelect(intervals, (value) => {
    clearInterval(timer);
    timer = value === "0" ? undefined : setInterval(act, Number(value) * 1_000);
  });
  return createField("Refresh", made, "site");

  function act() {
    if (!document.hidden) refresh();
  }
}

const zoneKey = "readout.zone";

/** The time zone: UTC until someone chooses. Applies what was chosen before, and returns the switch. @param {() => void} changed */
export function createZoneSwitch(changed) {
  let isLocal = browserStorage.getItem(zoneKey) === "local";
  const word = createElement("span");
  const made = createElement(
    "button",
    { type: "button", class: "zone" },
    createHiddenText("Time zone: "),
    word,
  );
  made.addEventListener("click", () => {
    isLocal = !isLocal;
    keepChoice(zoneKey, isLocal ? "local" : undefined);
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

const themeKey = "readout.theme";
const themes = /** @type {const} */ (["system", "light", "dark"]);
/** @typedef {typeof themes[number]} Theme */

/** Light or dark: as the system is, until someone chooses. Applies what was chosen before, and returns the switch. */
export function createThemeSwitch() {
  let theme = themes.find((one) => one === browserStorage.getItem(themeKey)) ?? "system";
  const word = createElement("span");
  const made = createElement("button", { type: "button", class: "theme" }, createHiddenText("Theme: "), word);
  made.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "system";
    keepChoice(themeKey, theme === "system" ? undefined : theme);
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
