// The listing of traces: requests and errors, as filters choose them.
import { printAddress, resolveRange } from "./address.js";
import { buildPost, requestJson } from "./api.js";
import { createQueryBox, createRangePicker, createSearchForm, createShareBar } from "./controls.js";
import {
  createButton,
  createElement,
  createField,
  createHiddenText,
  createSelect,
  renderUntrusted,
  replaceChildren,
} from "./dom.js";
import { startFeed } from "./feed.js";
import { formatDuration, formatLoaded, formatLongTime, formatRange, formatShortTime } from "./format.js";
import { listEntries, toScalarText } from "./json.js";
import { addTerm, printTagTerm } from "./query.js";
import { createEmptyState } from "./states.js";

/** @typedef {import("./address.js").StateOf<"traces">} State */
/**
 * @typedef {{
 *   readonly trace_id: string, readonly span_id: string, readonly site_id: string, readonly namespace: string,
 *   readonly action_name: string, readonly revision: string, readonly time: string, readonly duration: number,
 *   readonly tags: Readonly<Record<string, unknown>>, readonly has_npo: boolean,
 * }} Summary
 */
/**
 * The controls and the elements of the view, and what it shows; `change` shows another state.
 * @typedef {{
 *   readonly change: (part: Partial<State>) => void,
 *   readonly kind: HTMLSelectElement, readonly query: ReturnType<typeof createQueryBox>,
 *   readonly namespace: HTMLInputElement, readonly action: HTMLInputElement, readonly least: HTMLInputElement,
 *   readonly range: ReturnType<typeof createRangePicker>, readonly order: HTMLSelectElement,
 *   readonly share: ReturnType<typeof createShareBar>, readonly told: HTMLElement,
 *   readonly table: HTMLElement, readonly body: HTMLElement, readonly foot: HTMLElement, state: State | undefined,
 * }} TracesView
 */

const perPage = 50;
const selection = `time
duration
namespace
action_name
has_npo
tags
trace_id
span_id`;

/** @param {import("./app.js").Shell<"traces">} shell */
export function createTracesView({ go }) {
  const change = (/** @type {Partial<State>} */ part) => {
    if (view.state !== undefined) go({ ...view.state, ...readTyped(view), ...part });
  };
  const kind = createSelect(
    [
      ["performance", "Requests"],
      ["errors", "Errors"],
    ],
    (value) => change({ kind: value === "errors" ? "errors" : "performance" }),
  );
  const query = createQueryBox({
    label: "Query",
    placeholder: "tag.plan=pro revision:6a1a action_name:Checkout",
    submit: () => change({}),
  });
  const namespace = createElement("input", { type: "text", autocomplete: "off", placeholder: "any" });
  const action = createElement("input", { type: "text", autocomplete: "off", placeholder: "any" });
  const least = createElement("input", {
    type: "number",
    min: 0,
    max: 999_999_999,
    step: "any",
    placeholder: "0",
  });
  const range = createRangePicker((value) => change({ range: value }));
  const order = createSelect(
    [
      ["newest", "Newest first"],
      ["slowest", "Slowest first"],
    ],
    (value) => change({ order: value === "slowest" ? "slowest" : "newest" }),
  );
  const share = createShareBar();
  const told = createElement("p", { class: "told", role: "status" });
  const body = createElement("tbody");
  const table = createTracesTable(body);
  const foot = createElement("div");
  const form = createSearchForm(
    () => change({}),
    query.root,
    createField("Kind", kind),
    createField("Namespace", namespace, "short"),
    createField("Action", action, "medium"),
    createField("At least, ms", least, "short"),
    range.root,
    createField("Order", order),
  );
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, told, share.root),
    table,
    foot,
  );

  /** @type {TracesView} */
  const view = {
    ...{ change, kind, query, namespace, action, least, range, order },
    ...{ share, told, table, body, foot, state: undefined },
  };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal */
    show: (now, signal) => showTraces(view, now, signal),
    focus: query.focus,
  };
}

/** @param {HTMLElement} body */
function createTracesTable(body) {
  return createElement(
    "table",
    { class: "grid traces" },
    createElement("caption", { class: "unseen" }, "Traces"),
    createElement(
      "thead",
      {},
      createElement(
        "tr",
        {},
        ["Ended", "Duration", "Action", "Tags"].map((name) => createElement("th", { scope: "col" }, name)),
      ),
    ),
    body,
  );
}

/** What stands in the boxes, searched for or not. @param {TracesView} view */
function readTyped({ query, namespace, action, least }) {
  const min = Math.max(0, Number(least.value));
  return { query: query.read(), namespace: namespace.value, action: action.value, min };
}

/** @param {TracesView} view @param {State} now */
function writeControls({ kind, query, namespace, action, least, range, order }, now) {
  kind.value = now.kind;
  query.write(now.query);
  namespace.value = now.namespace;
  action.value = now.action;
  least.value = now.min === 0 ? "" : String(now.min);
  range.write(now.range);
  order.value = now.order;
}

/** @param {TracesView} view @param {State} now @param {AbortSignal} signal */
function showTraces(view, now, signal) {
  const { change, query, share, told, table, body, foot } = view;
  view.state = now;
  writeControls(view, now);
  replaceChildren(body);
  replaceChildren(told);
  table.hidden = true;
  const bounds = resolveRange(now.range, Date.now());
  const pageOf = (/** @type {Summary | undefined} */ last) => ({
    site_ids: [now.site],
    query: now.query,
    ...(now.namespace === "" ? {} : { namespace: now.namespace }),
    ...(now.action === "" ? {} : { action_name: now.action }),
    ...(now.min === 0 ? {} : { duration: now.min }),
    ...bounds,
    pagination: {
      per_page: perPage,
      order: "DESC",
      cursor: now.order === "newest" ? { time: last?.time ?? null } : { duration: last?.duration ?? null },
    },
  });
  const path = `tracing/traces/${now.kind}`;
  share.write(buildPost(path, pageOf(undefined)), {
    field: `tracing_traces_${now.kind}`,
    arguments: pageOf(undefined),
    selection,
  });
  let longest = 0;
  replaceChildren(
    foot,
    startFeed({
      what: "traces",
      perPage,
      signal,
      ask: (/** @type {Summary | undefined} */ last) => requestJson(buildPost(path, pageOf(last)), signal),
      show: (/** @type {readonly Summary[]} */ rows, isOver) => {
        table.hidden = false;
        longest = Math.max(longest, ...rows.map((row) => row.duration));
        body.append(...rows.map((row) => createTraceRow(view, row, now)));
        body.style.setProperty("--longest", String(Math.max(longest, 0.001)));
        const way = now.order === "newest" ? "newest first" : "slowest first";
        const what = now.kind === "errors" ? "trace with errors" : "trace";
        const many = now.kind === "errors" ? "traces with errors" : "traces";
        replaceChildren(
          told,
          `${formatLoaded(body.childElementCount, isOver, what, many)}, ${way}, ${formatRange(bounds.from, bounds.to)}`,
        );
      },
      nothing: () =>
        createEmptyState(
          now.kind === "errors" ? "No errors" : "No traces",
          "Nothing in this range passes the filters.",
          createButton("Clear the filters", () => change({ query: "", namespace: "", action: "", min: 0 })),
        ),
      failed: query.explain,
    }),
  );
}

/** @param {TracesView} view @param {Summary} row @param {State} now */
function createTraceRow(view, row, now) {
  const href = printAddress("trace", { site: row.site_id, id: row.trace_id, span: row.span_id });
  const bar = createElement("span", { class: "share-of" });
  bar.style.setProperty("--length", String(row.duration));
  return createElement(
    "tr",
    { "data-failed": now.kind === "errors" },
    createElement(
      "td",
      {},
      createElement(
        "time",
        { datetime: row.time, title: formatLongTime(row.time) },
        formatShortTime(row.time),
      ),
    ),
    createElement("td", { class: "duration" }, createElement("span", {}, formatDuration(row.duration)), bar),
    createElement(
      "td",
      { class: "action" },
      createElement(
        "div",
        {},
        createElement("a", { href }, renderUntrusted(row.action_name)),
        createElement("span", { class: "muted" }, renderUntrusted(row.namespace)),
        row.has_npo &&
          createElement("span", { class: "badge warn", title: "Equal queries, one by one" }, "N+1"),
      ),
    ),
    createElement(
      "td",
      { class: "tags" },
      (listEntries(row.tags) ?? []).map(([name, value]) => createTag(view, name, value, now)),
    ),
  );
}

/** @param {TracesView} view @param {string} name @param {unknown} value @param {State} now */
function createTag({ change }, name, value, now) {
  const text = toScalarText(value);
  const term = text === undefined ? undefined : printTagTerm(name, "=", text);
  const shown = renderUntrusted(`${name}: ${text ?? JSON.stringify(value)}`);
  if (term === undefined) return createElement("span", { class: "tag" }, shown);
  const only = createElement("button", { type: "button", class: "tag" }, createHiddenText("Only "), shown);
  only.addEventListener("click", () => change({ query: addTerm(now.query, term) }));
  return only;
}
