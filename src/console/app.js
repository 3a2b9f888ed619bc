// The page: it knows the token, the sites and the address, and shows the view that the address names. Every change of
// what is shown goes through the address, so back and forward always work; what an older address asked for is aborted.
import { printAddress, readAddress } from "./base/address.js";
import {
  changedEvent,
  Failure,
  isAborted,
  isPageServed,
  readToken,
  storeToken,
  unauthorizedEvent,
} from "./base/api.js";
import { createButton, createElement, replaceChildren } from "./base/dom.js";
import { createEmptyPage, createFailureState, createLoadingState } from "./base/states.js";
import { startKeyboard } from "./keyboard.js";
import { readPlace, restorePlace, trackPlaces } from "./places.js";
import {
  findNewFailure,
  forgetTyped,
  isInUse,
  readTyped,
  rememberField,
  replaceView,
  stageView,
  writeTyped,
  writeUnread,
} from "./refresh.js";
import { confirmSignIn, finishSignIn, forgetSignIn, renewSignIn } from "./sign-in/sign-in.js";
import { createSiteChoice } from "./site-choice.js";
import { createTabs } from "./tabs.js";
import { createRefreshField, createThemeSwitch, createZoneSwitch } from "./toolbar.js";
import { views } from "./views.js";

/** @typedef {import("./base/address.js").ViewName} ViewName */
/** @typedef {import("./base/api.js").Site} Site */
/** @typedef {import("./views.js").View} View */

const main = requireElement("main");
const tabs = requireElement("tabs");
const showTabs = createTabs(tabs);
const tools = requireElement("tools");

/** @param {string} id */
function requireElement(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no #${id}`);
  return found;
}

/** @type {{ readonly name: ViewName, readonly view: View } | undefined} */
let current;
/** The view whose modules could not be read when it was last asked for. @type {ViewName | undefined} */
let unread;
let running = new AbortController();
const enterStep = trackPlaces(() => current?.view.countRows?.() ?? 0);

const sites = createSiteChoice((site) => {
  const { view } = readAddress(location.hash);
  openAddress(printAddress(view === "trace" ? "traces" : view, { site }));
});
/** Ends the reading of a view anew that is not shown yet. @type {AbortController | undefined} */
let staging;
const refreshField = createRefreshField(() => void refreshView());
const forget = createButton("Sign out", () => askToken());

/** @param {string} address */
function openAddress(address) {
  // Asked again, it is done again, but is no further step.
  if (address === location.hash) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  void showView();
}

async function showView() {
  running.abort();
  running = new AbortController();
  if (readToken() === "") return askToken();
  if (sites.count === undefined) return void start();
  const place = enterStep();
  const { view: name, state } = readAddress(location.hash);
  const site = sites.find(state.site);
  showTabs(name, site?.id ?? state.site);
  sites.write(site?.id ?? "");
  document.title = `${views[name].title} · ${site?.id ?? "no site"} · Readout`;
  if (site === undefined) {
    current = undefined;
    const shown =
      sites.count === 0
        ? createEmptyPage("No sites", "This token may see none.")
        : createEmptyPage("No such site", "This token may see no site of that name. Choose one above.");
    replaceChildren(main, shown);
    return checkSites();
  }
  await showState(name, { ...state, site: site.id }, site, running.signal, place);
}

/** Shows the view again, as in another zone; what is typed and not sent stays. */
async function showAgain() {
  const typed = readTyped(main);
  await showView();
  writeTyped(typed);
}

/** Asks for the sites again, and shows the view again where its own is another one. */
async function checkSites() {
  if (sites.count === undefined) return;
  const { state } = readAddress(location.hash);
  if (await sites.check(state.site, running.signal)) await showAgain();
}

/** @param {ViewName} name @param {object} state @param {Site} site @param {AbortSignal} signal @param {import("./places.js").Place} [place] */
async function showState(name, state, site, signal, place) {
  if (current?.name !== name) {
    const made = await makeView(name, signal);
    if (made === undefined) return;
    current = { name, view: made };
    replaceChildren(main, createElement("h1", { class: "unseen" }, views[name].title), made.root);
    scrollTo(0, 0);
  }
  const shown = current.view.show(state, signal, site, place);
  if (place !== undefined) void restorePlace(place, shown, signal);
  forgetTyped();
  // What had the focus may be gone with what was shown. While the focus moves on, nothing has it for a moment.
  setTimeout(() => {
    if (document.activeElement === document.body) main.focus({ preventScroll: true });
  });
}

/** Undefined where something else is shown by the time its modules are there. @param {ViewName} name @param {AbortSignal} signal */
async function makeView(name, signal) {
  try {
    // A maker and its state have one name; the compiler cannot see that they go together.
    const make = /** @type {(shell: import("./views.js").Shell<any>) => View} */ (await views[name].load());
    unread = undefined;
    if (signal.aborted) return undefined;
    // A field that was edited tells of its change also when its view is taken away, and one that is staged shows nothing yet.
    const isShown = () => current?.view === made;
    /** @type {View} */
    const made = make({
      go: (next) => isShown() && openAddress(printAddress(name, next)),
      keep: (next) => isShown() && history.replaceState(history.state, "", printAddress(name, next)),
    });
    return made;
  } catch {
    if (signal.aborted) return undefined;
    // A browser may remember a module that it could not read until the page is loaded again.
    if (unread === name && (await isPageServed())) location.reload();
    else if (!signal.aborted) showUnreadPart();
    unread = name;
    return undefined;
  }
}

function showUnreadPart() {
  current = undefined;
  const failure = new Failure(0, "A part of this page could not be read from the server.");
  const shown = createFailureState(failure, () => location.reload());
  replaceChildren(main, shown);
}

/** @param {string} [reason] why it is asked for again */
function askToken(reason) {
  storeToken("");
  forgetSignIn();
  sites.forget();
  current = undefined;
  running.abort();
  running = new AbortController();
  document.title = "Readout";
  for (const element of [sites.field, refreshField, forget, tabs]) element.hidden = true;
  void showTokenForm(reason, running.signal);
}

/** @param {string | undefined} reason @param {AbortSignal} signal */
async function showTokenForm(reason, signal) {
  replaceChildren(main, createLoadingState("the form"));
  try {
    const { createTokenForm } = await import("./sign-in/token-form.js");
    if (signal.aborted) return;
    const submit = (/** @type {string} */ token) => {
      storeToken(token);
      void start({ focus: true });
    };
    const form = createTokenForm(reason, { submit, refuse: askToken });
    replaceChildren(main, form.root);
    form.focus();
  } catch {
    if (!signal.aborted) showUnreadPart();
  }
}

/** @param {string} [reason] why */
async function signInAgain(reason) {
  running.abort();
  const renewed = await renewSignIn(reason);
  if (!renewed.isLeaving) askToken(renewed.reason);
}

/** The first view, also of whoever comes back from a provider. */
async function open() {
  const outcome = await finishSignIn();
  if (outcome?.address) history.replaceState(null, "", outcome.address);
  if (readToken() === "") return outcome === undefined ? signInAgain() : askToken(outcome.reason);
  return start();
}

/** @param {{ readonly focus?: boolean }} [options] `focus`: whoever was in the form is led to the view's first field */
async function start({ focus = false } = {}) {
  if (readToken() === "") return askToken();
  replaceChildren(main, createLoadingState("the sites"));
  // Its modules come meanwhile. Whoever shows the view learns whether they could be read.
  views[readAddress(location.hash).view].load().catch(() => {});
  try {
    const user = await sites.read(running.signal);
    confirmSignIn();
    forget.title = `Signed in as ${user}`;
    for (const element of [sites.field, refreshField, forget]) element.hidden = false;
    await showView();
    if (focus) current?.view.focus?.();
  } catch (error) {
    if (isAborted(error) || readToken() === "") return;
    const shown = createFailureState(error, () => void start());
    replaceChildren(main, shown);
  }
}

/**
 * Reads anew what is shown. What stands there stays until the new is there, and longer where a reader would lose something.
 * @param {{ readonly isAsked?: boolean }} [options] `isAsked`: someone waits for it
 */
async function refreshView({ isAsked = false } = {}) {
  const [shown, address] = [current, location.hash];
  const { view: name, state } = readAddress(address);
  if (shown === undefined) return checkSites();
  if (shown.name !== name || (staging !== undefined && !isAsked)) return;
  const { root } = shown.view;
  const inUse = "something is typed, selected or open.";
  if (isInUse(root)) return isAsked ? writeUnread(root, inUse) : undefined;
  // Who asks again does not wait for what hangs.
  staging?.abort();
  const [old, next] = [running, new AbortController()];
  staging = next;
  const abort = () => next.abort();
  old.signal.addEventListener("abort", abort, { once: true });
  try {
    await sites.check(state.site, next.signal);
    const site = sites.find(state.site);
    if (site === undefined) return writeUnread(root, "this token may see no site of that name.");
    const staged = await makeView(name, next.signal);
    if (staged === undefined) return;
    const place = readPlace(shown.view.countRows);
    await stageView(main, staged.root, () =>
      staged.show({ ...state, site: site.id }, next.signal, site, place),
    );
    if (next.signal.aborted || current !== shown) return staged.root.remove();
    const isLeft = location.hash !== address || isInUse(root);
    const failure = findNewFailure(root, staged.root);
    if (isLeft || failure !== undefined) {
      staged.root.remove();
      next.abort();
      if (failure !== undefined || isAsked) writeUnread(root, failure ?? inUse);
      return;
    }
    [current, running, staging] = [{ name, view: staged }, next, undefined];
    old.signal.removeEventListener("abort", abort);
    old.abort();
    await replaceView(root, staged.root, next.signal);
  } finally {
    if (staging === next) staging = undefined;
  }
}

tools.append(
  refreshField,
  sites.field,
  createZoneSwitch(() => void showAgain()),
  createThemeSwitch(),
  forget,
);
document.body.append(
  startKeyboard({
    root: main,
    focus: () => current?.view.focus?.(),
    refresh: () => void refreshView({ isAsked: true }),
  }),
);
// The fragment is the address of what is shown, so this link cannot have one of its own.
requireElement("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
main.addEventListener("focusin", ({ target }) => rememberField(target));
addEventListener("popstate", () => void showView());
addEventListener(
  unauthorizedEvent,
  () => void signInAgain("This token is not accepted: it is unknown or has expired."),
);
addEventListener(changedEvent, () => void checkSites());
void open();
