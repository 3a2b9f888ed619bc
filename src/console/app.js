// The page: it knows the token, the sites and the address, and shows the view that the address names. Every change of
// what is shown goes through the address, so back and forward always work; what an older address asked for is aborted.
import { printAddress, readAddress } from "./address.js";
import { isAborted, readToken, requestViewer, storeToken, unauthorizedEvent } from "./api.js";
import {
  createButton,
  createElement,
  createField,
  createSelect,
  fillSelect,
  replaceChildren,
} from "./dom.js";
import { createKubernetesView } from "./kubernetes.js";
import { createLogsView } from "./logs.js";
import { createMetricsView } from "./metrics.js";
import { createEmptyPage, createFailureState, createLoadingState } from "./states.js";
import { startTheme } from "./theme.js";
import { createTraceView } from "./trace.js";
import { createTracesView } from "./traces.js";

/** @typedef {import("./address.js").ViewName} ViewName */
/** @typedef {import("./api.js").Site} Site */
/**
 * What a view may ask of the page: `openAddress` shows another state of it, as a step of the browser's history; `keep` only
 * writes into the address what is shown already.
 * @template {ViewName} V
 * @typedef {Readonly<Record<"go" | "keep", (state: import("./address.js").StateOf<V>) => void>>} Shell
 */
/**
 * `show` is called for every address; what an earlier call began is over when its signal is.
 * @typedef {{
 *   readonly root: HTMLElement, readonly focus?: () => void,
 *   readonly show: (state: any, signal: AbortSignal, site: Site) => unknown,
 * }} View
 */

const titles = {
  logs: "Logs",
  traces: "Traces",
  trace: "Trace",
  metrics: "Metrics",
  kubernetes: "Kubernetes",
};
/** @type {Readonly<{ [V in ViewName]: (shell: Shell<V>) => View }>} */
const makers = {
  logs: createLogsView,
  traces: createTracesView,
  trace: createTraceView,
  metrics: createMetricsView,
  kubernetes: createKubernetesView,
};

const main = requireElement("main");
const tabs = requireElement("tabs");
const tools = requireElement("tools");

/** @param {string} id */
function requireElement(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no #${id}`);
  return found;
}

const links = new Map(
  /** @type {const} */ (["logs", "traces", "metrics", "kubernetes"]).map((name) => [
    name,
    createElement("a", {}, titles[name]),
  ]),
);
/** Undefined until the server has told. @type {readonly Site[] | undefined} */
let sites;
/** @type {{ readonly name: ViewName, readonly view: View } | undefined} */
let current;
let running = new AbortController();

const siteChoice = createSelect([], (site) => {
  const { view } = readAddress(location.hash);
  openAddress(printAddress(view === "trace" ? "traces" : view, { site }));
});
const siteField = createField("Site", siteChoice, "site");
const forget = createButton("Sign out", () => askToken());

/** @param {string} address */
function openAddress(address) {
  // Asked again, it is done again, but is no further step.
  if (address === location.hash) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  showView();
}

/** @param {string} address of what is shown already */
function keepAddress(address) {
  history.replaceState(null, "", address);
}

function showView() {
  running.abort();
  running = new AbortController();
  if (readToken() === "") return askToken();
  if (sites === undefined) return void start();
  const { view: name, state } = readAddress(location.hash);
  const site = sites.find(({ id }) => id === state.site) ?? (state.site === "" ? sites[0] : undefined);
  showTabs(name, site?.id ?? state.site);
  siteChoice.value = site?.id ?? "";
  document.title = `${titles[name]} · ${site?.id ?? "no site"} · Readout`;
  if (site === undefined) {
    current = undefined;
    const told =
      sites.length === 0
        ? createEmptyPage("No sites", "This token may see none.")
        : createEmptyPage("No such site", "This token may see no site of that name. Choose one above.");
    replaceChildren(main, told);
    return;
  }
  if (current?.name !== name) {
    // A maker and its state have one name; the compiler cannot see that they go together.
    const make = /** @type {(shell: Shell<any>) => View} */ (makers[name]);
    current = {
      name,
      view: make({
        go: (next) => openAddress(printAddress(name, next)),
        keep: (next) => keepAddress(printAddress(name, next)),
      }),
    };
    replaceChildren(main, createElement("h1", { class: "unseen" }, titles[name]), current.view.root);
    scrollTo(0, 0);
  }
  current.view.show({ ...state, site: site.id }, running.signal, site);
  // What had the focus may be gone with what was shown.
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
}

/** @param {ViewName} shown @param {string} site */
function showTabs(shown, site) {
  for (const [name, link] of links) {
    link.href = printAddress(name, { site });
    const isShown = name === shown || (name === "traces" && shown === "trace");
    if (isShown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  tabs.hidden = false;
}

/** @param {string} [told] why it is asked for again */
function askToken(told) {
  storeToken("");
  sites = undefined;
  current = undefined;
  running.abort();
  running = new AbortController();
  document.title = "Readout";
  siteField.hidden = true;
  forget.hidden = true;
  tabs.hidden = true;
  const input = createElement("input", {
    type: "password",
    // What a header can hold.
    pattern: "\\s*[!-~]+\\s*",
    title: "letters, digits and signs, without spaces",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-told",
  });
  const submit = createElement("button", { type: "submit", class: "primary" }, "Show the data");
  const form = createElement(
    "form",
    { class: "token" },
    createElement("h1", {}, "Logs, traces and metrics"),
    createElement("p", {}, "Readout answers with what your token may see."),
    told !== undefined && createElement("p", { class: "refused", role: "alert" }, told),
    createField("Token", input),
    submit,
    createElement(
      "p",
      { class: "muted", id: "token-told" },
      "It is kept until this tab is closed, and goes to this server only. ",
      createElement("a", { href: "/docs" }, "The API without the console"),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    storeToken(input.value.trim());
    void start({ focus: true });
  });
  replaceChildren(main, form);
  input.focus();
}

/** @param {{ readonly focus?: boolean }} [options] `focus`: whoever was in the form is led to the view's first field */
async function start({ focus = false } = {}) {
  if (readToken() === "") return askToken();
  const { signal } = running;
  replaceChildren(main, createLoadingState("the sites"));
  try {
    const viewer = await requestViewer(signal);
    ({ sites } = viewer);
    forget.title = `Signed in as ${viewer.user}`;
    fillSelect(
      siteChoice,
      viewer.sites.map(({ id }) => [id, id]),
    );
    siteField.hidden = false;
    forget.hidden = false;
    showView();
    if (focus) current?.view.focus?.();
  } catch (error) {
    if (!isAborted(error) && readToken() !== "")
      replaceChildren(
        main,
        createFailureState(error, () => void start()),
      );
  }
}

tabs.append(...links.values());
tools.append(siteField, startTheme(), forget);
// The fragment is the address of what is shown, so this link cannot have one of its own.
requireElement("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("popstate", showView);
addEventListener(unauthorizedEvent, () =>
  askToken("This token is not accepted: it is unknown or has expired."),
);
void start();
