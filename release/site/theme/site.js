// The search and the choice of a version. Pages can be read without it.
const { root, version } = document.documentElement.dataset;
const input = document.querySelector("#search");
const list = document.querySelector("#found");
const most = 12;

/** Loaded with the first letter. */
let loading;
async function loadIndex() {
  await Promise.all([loadScript("assets/minisearch.js"), loadScript("assets/search-index.js")]);
  const { options, index } = globalThis.searchIndex;
  return globalThis.MiniSearch.loadJS(index, options);
}

/** As a script, because browsers fetch no data from a disk. */
function loadScript(path) {
  const script = document.createElement("script");
  script.src = root + path;
  document.head.append(script);
  return new Promise((resolve, reject) => {
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
  });
}

async function showResults() {
  const words = input.value.trim();
  if (words === "") return closeResults();
  loading ??= loadIndex();
  const index = await loading;
  // What was typed while the index came is newer.
  if (input.value.trim() !== words) return;
  const results = index.search(words).slice(0, most);
  list.replaceChildren(...(results.length === 0 ? [createNote("Nothing found")] : results.map(createResult)));
  list.hidden = false;
  input.setAttribute("aria-expanded", "true");
  input.removeAttribute("aria-activedescendant");
}

function createNote(text) {
  const item = document.createElement("li");
  item.setAttribute("role", "option");
  item.setAttribute("aria-disabled", "true");
  item.textContent = text;
  return item;
}

function createResult({ id, title, heading }, at) {
  const item = document.createElement("li");
  item.setAttribute("role", "option");
  item.id = `found-${at}`;
  item.dataset.href = root + id;
  item.textContent = heading === "" ? title : `${title} › ${heading}`;
  item.addEventListener("mousedown", () => location.assign(item.dataset.href));
  return item;
}

function closeResults() {
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

function moveSelection(step) {
  const items = [...list.querySelectorAll("[data-href]")];
  if (items.length === 0) return;
  const at = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
  // Without a selection, down is the first and up the last.
  const from = at === -1 && step < 0 ? 0 : at;
  const next = items[(from + step + items.length) % items.length];
  for (const item of items) item.setAttribute("aria-selected", String(item === next));
  input.setAttribute("aria-activedescendant", next.id);
  next.scrollIntoView({ block: "nearest" });
}

input.addEventListener("input", () => void showResults());
input.addEventListener("blur", closeResults);
input.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeResults();
  if (event.key === "ArrowDown") moveSelection(1);
  if (event.key === "ArrowUp") moveSelection(-1);
  if (event.key === "Enter") {
    const chosen = list.querySelector('[aria-selected="true"]') ?? list.querySelector("[data-href]");
    if (chosen !== null && !list.hidden) location.assign(chosen.dataset.href);
  }
  // The two others move within the text.
  if (event.key === "ArrowDown" || event.key === "ArrowUp") event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  }
});

// On a wide screen the list of pages is always open.
const menu = document.querySelector("#menu");
const wide = matchMedia("(min-width: 60rem)");
const adjustMenu = () => {
  menu.open = wide.matches;
};
wide.addEventListener("change", adjustMenu);
adjustMenu();

const versions = document.querySelector("#version");
loadScript("../versions.js").then(
  () => {
    const known = globalThis.siteVersions;
    versions.replaceChildren(...known.map((name) => new Option(name, name, false, name === version)));
    versions.addEventListener("change", () => location.assign(`${root}../${versions.value}/index.html`));
  },
  // A single version that was copied somewhere has no list.
  () => {},
);
