// The controls that several views share: the range, and the two ways to take a request elsewhere.
import { isInstant, resolveRange } from "./address.js";
import { readServerTime, requestJson } from "./api.js";
import { createButton, createElement, createField, createSelect, replaceChildren } from "./dom.js";
import { printCurl, printGraphiqlAddress } from "./share.js";
import { createFailureState, createLoadingState } from "./states.js";
import { createTree } from "./tree.js";

/** @typedef {import("./address.js").Range} Range */

/**
 * What a view is searched by: what is sought first, a button, and whatever else narrows it.
 * @param {() => void} submit
 * @param {Element} sought
 * @param {...Element} others
 */
export function createSearchForm(submit, sought, ...others) {
  const form = createElement(
    "form",
    { class: "toolbar", role: "search" },
    sought,
    createElement("button", { type: "submit", class: "primary" }, "Search"),
    ...others,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  return form;
}

/** @type {readonly (readonly [string, string])[]} */
const rangeChoices = [
  ["15m", "Last 15 minutes"],
  ["1h", "Last hour"],
  ["6h", "Last 6 hours"],
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
  ["custom", "From … to …"],
];

/** @param {(range: Range) => void} changed */
export function createRangePicker(changed) {
  /** @type {Range} */
  let shown = { last: "1h" };
  const choice = createSelect(rangeChoices, (value) => {
    if (value === "custom") changed(resolveRange(shown, readServerTime()));
    else changed({ last: /** @type {import("./address.js").Span} */ (value) });
  });
  const input = () => createElement("input", { type: "datetime-local", step: "1", required: true });
  const [from, to] = [input(), input()];
  /** An end that nobody has changed keeps its fraction, for which the inputs have no room. */
  const read = () => {
    const ends = "from" in shown ? shown : { from: "", to: "" };
    const range = { from: readTime(from, ends.from), to: readTime(to, ends.to) };
    const isOrdered = !(Date.parse(range.from) > Date.parse(range.to));
    to.setCustomValidity(isOrdered ? "" : "This is before the beginning.");
    const isRead = isInstant(range.from) && isInstant(range.to) && isOrdered;
    return isRead && (range.from !== ends.from || range.to !== ends.to) ? range : undefined;
  };
  for (const one of [from, to]) {
    // What is typed changes with each digit, and means something only when it is there in full.
    one.addEventListener("blur", () => {
      const range = read();
      if (range !== undefined) changed(range);
    });
    one.addEventListener("keydown", (event) => {
      const range = event.key === "Enter" ? read() : undefined;
      if (range === undefined) return;
      event.preventDefault();
      changed(range);
    });
  }
  const fields = [createField("From (UTC)", from), createField("To (UTC)", to)];
  const root = createElement("div", { class: "range" }, createField("Range", choice), fields);
  return {
    root,
    /** @param {Range} range */
    write(range) {
      shown = range;
      const isCustom = "from" in range;
      choice.value = isCustom ? "custom" : range.last;
      for (const one of fields) one.hidden = !isCustom;
      // What is out of sight must not keep the form from being sent.
      for (const one of [from, to]) one.disabled = !isCustom;
      if (!isCustom) return;
      to.setCustomValidity("");
      writeTime(from, range.from);
      writeTime(to, range.to);
    },
  };
}

/**
 * What an input of a local time holds, read as UTC.
 * @param {HTMLInputElement} input @param {string} shown the time that was written into it
 */
function readTime({ value }, shown) {
  const time = value.length === 16 ? `${value}:00` : value;
  return time !== "" && time === shown.slice(0, 19) ? shown : `${time}Z`;
}

/** An equal value, written again, would end what is being typed. @param {HTMLInputElement} input @param {string} time */
function writeTime(input, time) {
  if (readTime(input, time) !== time) input.value = time.slice(0, 19);
}

/** "Explain", "Copy as curl" and "Open in GraphiQL", of the request that a view has last made. */
export function createShareBar() {
  /** @type {import("./share.js").Request | undefined} */
  let request;
  const copied = createElement("span", { class: "unseen", role: "status" });
  const copy = createButton("Copy as curl", async () => {
    if (request === undefined) return;
    const text = printCurl(location.origin, request);
    const isDone = await copyText(text);
    copy.textContent = isDone ? "Copied" : "Copying is not allowed";
    copied.textContent = isDone ? "Copied. The token is $TOKEN." : "";
    setTimeout(() => {
      copy.textContent = "Copy as curl";
      copied.textContent = "";
    }, 1_500);
  });
  copy.title = "The request as a line for a shell; the token is $TOKEN";
  // An opener hands its session on, so GraphiQL knows a token that was typed. That of an identity provider is kept nowhere.
  const open = createElement("a", { class: "button", target: "_blank", rel: "opener" }, "Open in GraphiQL");
  const explain = createButton("Explain", () => request !== undefined && void showExplanation(request));
  explain.title = "What the request means, and what it asks of the sources";
  const root = createElement("div", { class: "share" }, explain, copy, open, copied);
  return {
    root,
    /** @param {import("./share.js").Request} made @param {import("./share.js").Field | import("./share.js").Query} asked */
    write(made, asked) {
      request = made;
      // GraphQL has no explanations.
      explain.hidden = made.method !== "POST" || !made.path.startsWith("/api/");
      open.href = printGraphiqlAddress(asked);
    },
  };
}

/** Whether the text is on the clipboard now. @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // `navigator.clipboard` exists over TLS only; this is the older way.
    const area = createElement("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

/** Opens a dialog with what a request means and asks of the sources, as the API explains it. @param {import("./share.js").Request} request */
async function showExplanation(request) {
  const shown = createElement("div", {}, createLoadingState("the explanation"));
  const dialog = createElement(
    "dialog",
    { class: "explanation", "aria-label": "Explanation" },
    createElement(
      "form",
      { method: "dialog" },
      createElement("h2", {}, "Explanation"),
      createElement("button", {}, "Close"),
    ),
    shown,
  );
  const closed = new AbortController();
  dialog.addEventListener("close", () => {
    closed.abort();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  try {
    const answer = await requestJson({ ...request, path: `${request.path}?explain=true` }, closed.signal);
    replaceChildren(
      shown,
      createTree(answer, () => undefined),
    );
  } catch (error) {
    if (!closed.signal.aborted) replaceChildren(shown, createFailureState(error));
  }
}
