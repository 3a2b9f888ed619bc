// The controls that several views share: the range, and the two ways to take a request elsewhere.
import { isInstant, resolveRange } from "./address.js";
import { createButton, createElement, createField, createSelect } from "./dom.js";
import { showExplanation } from "./explanation.js";
import { printCurl, printGraphiqlAddress } from "./share.js";

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
    if (value === "custom") changed(resolveRange(shown, Date.now()));
    else changed({ last: /** @type {import("./address.js").Span} */ (value) });
  });
  const input = () => createElement("input", { type: "datetime-local", step: "1", required: true });
  const [from, to] = [input(), input()];
  for (const one of [from, to]) {
    one.addEventListener("change", () => {
      const range = { from: readTime(from.value), to: readTime(to.value) };
      const isOrdered = range.from <= range.to;
      to.setCustomValidity(isOrdered ? "" : "This is before the beginning.");
      if (isInstant(range.from) && isInstant(range.to) && isOrdered) changed(range);
      else to.reportValidity();
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
      if (!isCustom) return;
      to.setCustomValidity("");
      from.value = range.from.slice(0, 19);
      to.value = range.to.slice(0, 19);
    },
  };
}

/** What an input of a local time holds, read as UTC. @param {string} value */
function readTime(value) {
  return `${value.length === 16 ? `${value}:00` : value}Z`;
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
  // An opener hands its session on, so GraphiQL knows the token.
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
    // Without TLS there is no clipboard but the one of old.
    const area = createElement("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
