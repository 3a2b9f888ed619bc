// The listing of traces: requests and errors, as filters choose them.
import { readMillisBound, resolveRange } from "../base/address.js";
import { buildPost, readServerTime, requestJson } from "../base/api.js";
import { createRangePicker, createSearchForm, createShareBar } from "../base/controls.js";
import { createButton, createElement, createField, createSelect, replaceChildren } from "../base/dom.js";
import { startFeed } from "../base/feed.js";
import { formatLoaded, formatRange } from "../base/format.js";
import { createEmptyState } from "../base/states.js";
import { createQueryBox } from "../search/query-box.js";
import { showDurations } from "./duration-chart.js";
import { createTraceRow, createTracesTable, describeErrors, formatTraceKey } from "./trace-rows.js";

/** @typedef {import("../base/address.js").StateOf<"traces">} State */
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
 *   readonly below: HTMLInputElement, readonly durations: HTMLElement, readonly digest: HTMLElement,
 *   readonly range: ReturnType<typeof createRangePicker>, readonly order: HTMLSelectElement,
 *   readonly share: ReturnType<typeof createShareBar>, readonly statusLine: HTMLElement,
 *   readonly table: HTMLElement, readonly body: HTMLElement, readonly foot: HTMLElement, state: State | undefined,
 * }} TracesView
 */

const perPage = 50;
const orders = /** @type {const} */ ([
  ["newest", "Newest first"],
  ["slowest", "Slowest first"],
]);
const selection = `time
duration
namespace
action_name
has_npo
tags
trace_id
span_id`;

/** @param {import("../views.js").Shell<"traces">} shell */
export function createTracesView({ go }) {
  const change = (/** @type {Partial<State>} */ part) => {
    if (view.state !== undefined) go({ ...view.state, ...readTyped(view), ...part });
  };
  const query = createQueryBox({
    label: "Query",
    placeholder: "tag.plan=pro revision:6a1a action_name:Checkout",
    submit: () => change({}),
  });
  const controls = createTraceControls(change);
  const range = createRangePicker((value) => change({ range: value }));
  const digest = createDigestChip(change);
  const share = createShareBar();
  const statusLine = createElement("p", { class: "status-line", role: "status" });
  const body = createElement("tbody");
  const table = createTracesTable(body);
  const foot = createElement("div");
  const durations = createElement("section", {
    class: "duration-box",
    "aria-label": "Durations",
    hidden: true,
  });
  const form = createSearchForm(
    () => change({}),
    query.root,
    createField("Kind", controls.kind),
    createField("Namespace", controls.namespace, "short"),
    createField("Action", controls.action, "medium"),
    createField("At least, ms", controls.least, "short"),
    createField("Below, ms", controls.below, "short"),
    range.root,
    createField("Order", controls.order),
    digest,
  );
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, statusLine, share.root),
    durations,
    table,
    foot,
  );

  /** @type {TracesView} */
  const view = {
    change,
    ...controls,
    query,
    durations,
    digest,
    range,
    share,
    statusLine,
    table,
    body,
    foot,
    state: undefined,
  };
  return {
    root,
    show: (
      /** @type {State} */ now,
      /** @type {AbortSignal} */ signal,
      /** @type {unknown} */ _site,
      /** @type {import("../places.js").Place | undefined} */ place,
    ) => showTraces(view, now, signal, place),
    countRows: () => body.childElementCount,
    focus: query.focus,
  };
}

/** What narrows and orders the list. @param {(part: Partial<State>) => void} change */
function createTraceControls(change) {
  const kind = createSelect(
    [
      ["performance", "Requests"],
      ["errors", "Errors"],
    ],
    (value) => change({ kind: value === "errors" ? "errors" : "performance" }),
  );
  const namespace = createElement("input", { type: "text", autocomplete: "off", placeholder: "any" });
  const action = createElement("input", { type: "text", autocomplete: "off", placeholder: "any" });
  const bound = (/** @type {string} */ placeholder) =>
    createElement("input", { type: "number", min: 0, max: 999_999_999, step: "any", placeholder });
  const [least, below] = [bound("0"), bound("any")];
  const order = createSelect(
    orders,
    // An upper bound is where a listing by duration begins.
    (value) => change(value === "slowest" ? { order: "slowest" } : { order: "newest", below: 0 }),
  );
  return { kind, namespace, action, least, below, order };
}

/** That only the traces of one error are listed, and a way out of it. @param {TracesView["change"]} change */
function createDigestChip(change) {
  const chip = createButton(
    "All errors again",
    () => change({ digest: "" }),
    { class: "chip" },
    "Only one error ✕",
  );
  return createElement("div", { class: "chips", role: "group", "aria-label": "Further filters" }, chip);
}

/** What stands in the boxes, searched for or not. @param {TracesView} view */
function readTyped({ query, namespace, action, least, below }) {
  const [min, max] = [readMillisBound(least.value), readMillisBound(below.value)];
  const typed = { query: query.read(), namespace: namespace.value, action: action.value, min, below: max };
  return max === 0 ? typed : { ...typed, order: /** @type {const} */ ("slowest") };
}

/** @param {TracesView} view @param {State} now */
function writeControls({ kind, query, namespace, action, least, below, digest, range, order }, now) {
  digest.hidden = now.digest === "";
  kind.value = now.kind;
  query.write(now.query);
  namespace.value = now.namespace;
  action.value = now.action;
  least.value = now.min === 0 ? "" : String(now.min);
  below.value = now.below === 0 ? "" : String(now.below);
  range.write(now.range);
  order.value = now.order;
}

/** The request for the rows after the last one. @param {State} now @param {ReturnType<typeof resolveRange>} bounds @param {Summary | undefined} last */
function buildPage(now, bounds, last) {
  return {
    site_ids: [now.site],
    query: now.query,
    ...(now.namespace === "" ? {} : { namespace: now.namespace }),
    ...(now.action === "" ? {} : { action_name: now.action }),
    ...(now.min === 0 ? {} : { duration: now.min }),
    ...(now.digest === "" ? {} : { digests: [now.digest] }),
    ...bounds,
    pagination: {
      per_page: perPage,
      order: "DESC",
      cursor:
        now.order === "newest"
          ? { time: last?.time ?? null }
          : { duration: last?.duration ?? (now.below === 0 ? null : now.below) },
    },
  };
}

/** @param {TracesView} view @param {State} asked @param {AbortSignal} signal @param {import("../places.js").Place} [place] */
async function showTraces(view, asked, signal, place) {
  const { change, query, share, statusLine, table, body, foot } = view;
  // Only a listing by duration has an upper bound.
  const now = asked.below === 0 ? asked : { ...asked, order: /** @type {const} */ ("slowest") };
  view.state = now;
  writeControls(view, now);
  replaceChildren(body);
  replaceChildren(statusLine);
  table.hidden = true;
  const bounds = resolveRange(now.range, readServerTime());
  const pageOf = (/** @type {Summary | undefined} */ last) => buildPage(now, bounds, last);
  const path = `tracing/traces/${now.kind}`;
  share.write(buildPost(path, pageOf(undefined)), {
    field: `tracing_traces_${now.kind}`,
    arguments: pageOf(undefined),
    selection,
  });
  const drawn = showDurations(view.durations, {
    path,
    body: pageOf(undefined),
    signal,
    choose: (durations) => change({ ...durations, order: "slowest" }),
  });
  let longest = 0;
  let page = pageOf(undefined);
  const feed = startFeed({
    what: "traces",
    perPage,
    place,
    keyOf: formatTraceKey,
    signal,
    ask: (/** @type {Summary | undefined} */ last) => {
      page = pageOf(last);
      return requestJson(buildPost(path, page), signal);
    },
    show: (/** @type {readonly Summary[]} */ rows, isOver) => {
      table.hidden = false;
      longest = Math.max(longest, ...rows.map((row) => row.duration));
      const items = rows.map((row) => createTraceRow(view, row, now));
      body.append(...items);
      if (now.kind === "errors") void describeErrors(items, rows, page, signal);
      body.style.setProperty("--longest", String(Math.max(longest, 0.001)));
      const way = now.order === "newest" ? "newest first" : "slowest first";
      const what = now.kind === "errors" ? "trace with errors" : "trace";
      const many = now.kind === "errors" ? "traces with errors" : "traces";
      replaceChildren(
        statusLine,
        `${formatLoaded(body.childElementCount, isOver, what, many)}, ${way}, ${formatRange(bounds.from, bounds.to)}`,
      );
    },
    nothing: () =>
      createEmptyState(
        now.kind === "errors" ? "No errors" : "No traces",
        "Nothing in this range passes the filters.",
        createButton("Clear the filters", () =>
          change({ query: "", namespace: "", action: "", min: 0, digest: "", below: 0 }),
        ),
      ),
    failed: (/** @type {unknown} */ error) => query.explain(error, now.query),
  });
  replaceChildren(foot, feed.root);
  await feed.shown;
  // What is read anew replaces the old when all of it is there, lest the rows below the durations jump.
  await drawn;
}
