// What this browser keeps of the reader's choices. It may keep nothing: site data can be blocked, or the space used up.

/** @type {Pick<Storage, "getItem" | "setItem" | "removeItem">} as `localStorage`, and empty where that cannot be read */
export const browserStorage = {
  getItem(key) {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  },
  setItem: (key, text) => localStorage.setItem(key, text),
  removeItem: (key) => localStorage.removeItem(key),
};

/** Keeps a choice, or takes it away. Where it cannot be kept it holds until the page is left. @param {string} key @param {string} [text] */
export function keepChoice(key, text) {
  try {
    if (text === undefined) browserStorage.removeItem(key);
    else browserStorage.setItem(key, text);
  } catch {
    // The choice is shown already.
  }
}
