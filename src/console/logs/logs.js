// The logs: a query, a histogram, the fields, the lines that it finds page by page, and new ones as they come.
import { printAddress, resolveRange, trackLastOpened } from "../base/address.js";
import { buildPost, readServerTime } from "../base/api.js";
import { createRangePicker, createSearchForm, createShareBar } from "../base/controls.js";
import { markDeploys } from "../base/deploy-marks.js";
import {
  createButton,
  createElement,
  createField,
  createSelect,
  renderUntrusted,
  replaceChildren,
} from "../base/dom.js";
import { createEmptyState } from "../base/states.js";
import { suggestFields, suggestValues } from "../search/completion.js";
import { addTerm, readPath } from "../search/query.js";
import { createQueryBox } from "../search/query-box.js";
import { listSoughtTexts } from "../search/tokens.js";
import { createExportMenu } from "./export-menu.js";
import { createValueCounter } from "./field-list.js";
import { bodySource, collectBodyFields, lineFields } from "./field-paths.js";
import { severityOrder } from "./histogram.js";
import { showHistogram } from "./histogram-chart.js";
import { createLineList } from "./line-list.js";
import { createLineItem } from "./lines.js";
import { followTail } from "./live-tail.js";
import { formatLineKey } from "./log-line.js";
import { buildExportRequest, startSearch, writeCount } from "./log-search.js";
import { createSavedMenu } from "./saved-queries.js";
import { showSourceChips } from "./source-chips.js";

/** @typedef {import("../base/address.js").StateOf<"logs">} State */
/** @typedef {import("./log-line.js").Line} Line */
/** @typedef {import("./log-search.js").Search} Search */
/** @typedef {import("../views.js").Shell<"logs">} Shell */
/**
 * The controls and the elements of the view, and what it shows; `change` shows another state, `narrow` adds a term to the
 * query.
 * @typedef {{
 *   readonly change: (part: Partial<State>) => void, readonly narrow: (term: string) => void, readonly keep: Shell["keep"],
 *   readonly query: ReturnType<typeof createQueryBox>, readonly sources: HTMLElement,
 *   readonly range: ReturnType<typeof createRangePicker>, readonly order: HTMLSelectElement, readonly live: HTMLElement,
 *   readonly share: ReturnType<typeof createShareBar>, readonly exportMenu: ReturnType<typeof createExportMenu>,
 *   readonly statusLine: HTMLElement, readonly histogram: HTMLElement, readonly fields: HTMLElement, readonly head: HTMLElement,
 *   readonly list: import("./line-list.js").LineList, readonly foot: HTMLElement, state: State | undefined, search: Search | undefined,
 * }} LogsView
 */

/** Lines whose fields are suggested: to look through all that are loaded would delay each key that is typed. */
const maxCompletionLines = 200;

/** @param {Shell} shell */
export function createLogsView({ go, keep }) {
  const change = (/** @type {Partial<State>} */ part) => {
    if (view.state !== undefined) go({ ...view.state, query: query.read(), line: "", ...part });
  };
  const query = createQueryBox({
    label: "Query",
    placeholder: 'severity=error message:"timed out" http.response.status_code>=500',
    submit: () => change({}),
    suggest: (place) => suggestTerms(view, place),
  });
  const sources = createElement("div", { class: "chips", role: "group", "aria-label": "Sources" });
  const range = createRangePicker((value) =>
    change({ range: value, live: view.state?.live === true && "last" in value }),
  );
  const order = createSelect(
    [
      ["DESC", "Newest first"],
      ["ASC", "Oldest first"],
    ],
    (value) => change({ order: value === "ASC" ? "ASC" : "DESC", live: false }),
  );
  const live = createButton("Live", () => toggleLive(view));
  live.classList.add("live");
  const form = createSearchForm(
    () => change({}),
    query.root,
    createElement(
      "div",
      { class: "field" },
      createElement("span", { class: "label", "aria-hidden": "true" }, "Sources"),
      sources,
    ),
    range.root,
    createField("Order", order),
    live,
  );
  /** @type {LogsView} */
  const view = {
    change,
    keep,
    query,
    sources,
    range,
    order,
    live,
    share: createShareBar(),
    exportMenu: createExportMenu(),
    narrow: (term) => change({ query: addTerm(query.read(), term) }),
    statusLine: createElement("p", { class: "status-line", role: "status" }),
    histogram: createElement("section", {
      class: "histogram-box",
      "aria-label": "Lines over time",
      hidden: true,
    }),
    fields: createElement("div"),
    head: createElement("div", { class: "line line-head", "aria-hidden": "true" }),
    list: createLineList("Log lines"),
    foot: createElement("div"),
    state: undefined,
    search: undefined,
  };
  return {
    root: createElement("div", {}, form, ...createParts(view)),
    show: (
      /** @type {State} */ now,
      /** @type {AbortSignal} */ signal,
      /** @type {import("../base/api.js").Site} */ site,
      /** @type {import("../places.js").Place | undefined} */ place,
    ) => showLogs(view, now, signal, site, place),
    countRows: () => view.list.size,
    focus: query.focus,
  };
}

/** What stands below the form. @param {LogsView} view */
function createParts(view) {
  const { share, exportMenu, statusLine, histogram, fields, head, list, foot } = view;
  const isWide = matchMedia("(min-width: 900px)").matches;
  const panel = createElement(
    "details",
    { class: "field-panel", open: isWide },
    createElement("summary", {}, "Fields"),
    fields,
  );
  const saved = createSavedMenu(() => printAddress("logs", view.state));
  const tools = createElement("div", { class: "tools" }, saved, exportMenu.root, share.root);
  return [
    createElement("div", { class: "bar" }, statusLine, tools),
    histogram,
    createElement(
      "div",
      { class: "log-body" },
      panel,
      createElement("div", { class: "log-lines" }, head, list.root, foot),
    ),
  ];
}

/** A live list is the newest of a range that ends now. @param {LogsView} view */
function toggleLive({ state, change }) {
  const isLive = state?.live !== true;
  const isFixed = state !== undefined && "from" in state.range;
  change({
    live: isLive,
    ...(isLive ? { order: "DESC" } : {}),
    ...(isLive && isFixed ? { range: { last: "15m" } } : {}),
  });
}

/** @param {LogsView} view @param {State} now @param {AbortSignal} signal @param {import("../base/api.js").Site} site @param {import("../places.js").Place} [place] */
async function showLogs(view, now, signal, site, place) {
  const { sources, share, statusLine, list, foot } = view;
  view.state = now;
  view.search = undefined;
  // An address may ask for what no switch here does: a tail goes on at the newest end of a range that ends now.
  const isLive = now.live && now.order === "DESC" && "last" in now.range;
  const chosen = now.sources.filter((source) => site.sources.includes(source));
  showSourceChips(sources, site.sources, chosen, (next) => view.change({ sources: next }));
  writeControls(view, now, isLive);
  list.clear();
  replaceChildren(statusLine);
  const hasSources = site.sources.length > 0;
  for (const one of [share.root, view.exportMenu.root]) one.hidden = !hasSources;
  if (!hasSources) {
    view.histogram.hidden = true;
    view.head.hidden = true;
    replaceChildren(view.fields);
    const advice = "Nothing is configured for this part of the site.";
    replaceChildren(foot, createEmptyState("This site has no logs", advice));
    return;
  }
  const search = createSearch(view, now, signal, isLive, chosen.length === 0 ? site.sources : chosen);
  view.search = search;
  view.exportMenu.write({
    lines: () => search.lines,
    request: () => buildPost("logs/lines", buildExportRequest(search)),
  });
  const linesShown = startSearch(search, () => createNoLines(view, now), place);
  const histogramShown = showHistogram(view.histogram, {
    ...search,
    choose: (range) => view.change({ range, live: false }),
    narrow: view.narrow,
    counted: (total) => {
      search.total = total;
      if (search.lines.length > 0) writeCount(search);
    },
    // After the lines, which nobody is to wait longer for.
    drawn: async (markText, mark) => {
      await linesShown;
      void markDeploys(markText, mark, { findSite: () => site, bounds: search.bounds, signal });
    },
  });
  await linesShown;
  // What is read anew replaces the old when all of it is there, lest the lines below the histogram jump.
  await histogramShown;
}

/** @param {LogsView} view @param {State} now @param {boolean} isLive */
function writeControls({ query, range, order, live, statusLine, head, list }, now, isLive) {
  query.write(now.query);
  range.write(now.range);
  order.value = now.order;
  live.setAttribute("aria-pressed", String(isLive));
  live.dataset.state = "waiting";
  // The number of lines is news to a reader once, not with every line that comes.
  statusLine.setAttribute("aria-live", isLive ? "off" : "polite");
  head.hidden = now.columns.length === 0;
  for (const one of [head, list.root]) {
    one.classList.toggle("has-columns", now.columns.length > 0);
    one.style.setProperty("--columns", String(now.columns.length));
  }
  const names = ["Time", "Severity", "Source", ...now.columns, "Message"];
  replaceChildren(
    head,
    names.map((name) => createElement("span", {}, renderUntrusted(name))),
  );
}

/** @param {LogsView} view @param {State} now @param {AbortSignal} signal @param {boolean} isLive @param {readonly string[]} sources @returns {Search} */
function createSearch(view, now, signal, isLive, sources) {
  const body = { site_id: now.site, source_ids: sources, query: now.query, use_expressions: true };
  const bounds = resolveRange(now.range, readServerTime());
  const options = {
    site: now.site,
    signal,
    narrow: view.narrow,
    sought: listSoughtTexts(now.query),
    columns: now.columns.map((spelling) => ({ spelling, path: readPath(spelling) })),
    toggled: trackLastOpened(now.line, signal, (line) => view.keep({ ...now, line })),
  };
  /** @type {Search} */
  const search = {
    view,
    now,
    signal,
    isLive,
    bounds,
    body,
    seen: new Set(),
    lines: [],
    isComplete: false,
    total: undefined,
    note: "",
    createItem: (line) => createLineItem(line, { ...options, isOpen: now.line === formatLineKey(line) }),
    count: createValueCounter({ ...body, ...bounds }, signal),
    follow: () => {
      if (isLive && view.live.dataset.state === "waiting") void followTail(search);
    },
  };
  return search;
}

/**
 * How the query may go on: by the fields of the lines that are loaded, and by the largest values of a field.
 * @param {LogsView} view @param {import("../search/completion.js").Place} place
 */
async function suggestTerms({ search }, place) {
  const own = [...lineFields.filter((name) => name !== "source"), "message"];
  if (place.kind !== "value") {
    const found = collectBodyFields(search?.lines.slice(0, maxCompletionLines) ?? []);
    const spellings = found.map(({ spelling }) => (spelling === bodySource ? "source" : spelling));
    return suggestFields(place, [...own, ...spellings]);
  }
  if (place.field === "severity")
    return suggestValues(
      place,
      severityOrder.map((value) => ({ value })),
    );
  if (search === undefined || place.field === "message") return [];
  const { groups } = await search.count(place.field === "source" ? bodySource : place.field);
  return suggestValues(place, groups ?? []);
}

/** @param {LogsView} view @param {State} now */
function createNoLines({ change }, now) {
  return createEmptyState(
    "No lines",
    now.query === "" ? "There are none in this range." : "Nothing in this range matches the query.",
    ...(now.query === "" ? [] : [createButton("Clear the query", () => change({ query: "" }))]),
    ...("last" in now.range && now.range.last !== "7d"
      ? [createButton("Look at the last 7 days", () => change({ range: { last: "7d" } }))]
      : []),
  );
}
