// Searches that a reader has named, kept in this browser. What is kept is the address, so a saved search is also a link.
import { createButton, createElement, renderUntrusted, replaceChildren } from "../base/dom.js";
import { browserStorage } from "../base/storage.js";

/** @typedef {{ readonly name: string, readonly address: string }} Saved */

const key = "readout.queries";
const maxSaved = 100;

/** @param {Pick<Storage, "getItem">} storage @returns {readonly Saved[]} by name; none where what is kept cannot be read */
export function readSaved(storage) {
  try {
    /** @type {unknown} */
    const kept = JSON.parse(storage.getItem(key) ?? "[]");
    return Array.isArray(kept) ? kept.filter(isSaved) : [];
  } catch {
    return [];
  }
}

/** @param {unknown} one @returns {one is Saved} */
function isSaved(one) {
  if (typeof one !== "object" || one === null || !("name" in one) || !("address" in one)) return false;
  // An address of this page, and of no other.
  return typeof one.name === "string" && typeof one.address === "string" && one.address.startsWith("#/");
}

/**
 * With one search more; one of the same name is replaced, and the empty address takes it away.
 * @param {Pick<Storage, "getItem" | "setItem" | "removeItem">} storage @param {Saved} saved
 * @returns {string} why it is not kept, empty where it is
 */
export function writeSaved(storage, { name, address }) {
  if (name === "" && address !== "") return "A search needs a name.";
  const others = readSaved(storage).filter((one) => one.name !== name);
  const all = address === "" ? others : [...others, { name, address }];
  if (all.length > maxSaved) return `No more than ${maxSaved} searches are kept. Forget one first.`;
  const sorted = all.sort((a, b) => (a.name < b.name ? -1 : 1));
  try {
    if (sorted.length === 0) storage.removeItem(key);
    else storage.setItem(key, JSON.stringify(sorted));
    return "";
  } catch {
    return "This browser does not keep it: site data are blocked, or their space is used up.";
  }
}

/** A menu of them, and a field to save what is shown now. @param {() => string} readAddress of what is shown */
export function createSavedMenu(readAddress) {
  const list = createElement("ul", { class: "saved" });
  const name = createElement("input", {
    type: "text",
    placeholder: "A name",
    required: true,
    maxlength: 80,
    "aria-label": "Name of this search",
  });
  const statusLine = createElement("p", { class: "muted", role: "status" });
  const form = createElement(
    "form",
    { class: "joined" },
    name,
    createElement("button", { type: "submit" }, "Save"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    statusLine.textContent = writeSaved(browserStorage, { name: name.value.trim(), address: readAddress() });
    if (statusLine.textContent === "") name.value = "";
    fillList();
  });
  const root = createElement(
    "details",
    { class: "menu" },
    createElement("summary", { class: "button" }, "Saved"),
    createElement("div", { class: "menu-body" }, list, form, statusLine),
  );
  root.addEventListener("toggle", () => root.open && fillList());
  return root;

  function fillList() {
    const all = readSaved(browserStorage);
    replaceChildren(
      list,
      all.length === 0 && createElement("li", { class: "muted" }, "Nothing is saved in this browser."),
      all.map((saved) =>
        createElement(
          "li",
          {},
          createElement("a", { href: saved.address }, renderUntrusted(saved.name)),
          createButton(
            `Forget ${saved.name}`,
            () => {
              statusLine.textContent = writeSaved(browserStorage, { name: saved.name, address: "" });
              fillList();
            },
            {},
            "✕",
          ),
        ),
      ),
    );
  }
}
