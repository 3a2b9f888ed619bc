// The logs: a query, the lines that it finds page by page, and new ones as they come.
import { resolveRange, trackLastOpened } from "./address.js";
import { buildPost, Failure, isAborted, requestJson, streamEvents } from "./api.js";
import { createQueryBox, createRangePicker, createSearchForm, createShareBar } from "./controls.js";
import {
  createButton,
  createElement,
  createField,
  createSelect,
  renderUntrusted,
  replaceChildren,
} from "./dom.js";
import { isFailing } from "./events.js";
import { startFeed } from "./feed.js";
import { formatLoaded, formatLongTime, formatRange } from "./format.js";
import { createLineItem, formatLineKey } from "./lines.js";
import { addTerm } from "./query.js";
import { createEmptyState } from "./states.js";

/** @typedef {import("./address.js").StateOf<"logs">} State */
/** @typedef {import("./lines.js").Line} Line */
/** @typedef {import("./app.js").Shell<"logs">} Shell */

const perPage = 100;
/** Lines that are kept of a live tail: the page is to stay quick for as long as it is open. */
const maxLiveLines = 2_000;
/** How late a line may come and still be shown. */
const lateMillis = 60_000;
/** Before a broken live tail is begun again. */
const pauseMillis = 3_000;

const selection = `timestamp
severity
source_id
hostname
message
json
trace { trace_id }`;

/**
 * The controls and the elements of the view, and what it shows; `change` shows another state.
 * @typedef {{
 *   readonly change: (part: Partial<State>) => void, readonly keep: Shell["keep"],
 *   readonly query: ReturnType<typeof createQueryBox>, readonly sources: HTMLElement,
 *   readonly range: ReturnType<typeof createRangePicker>, readonly order: HTMLSelectElement,
 *   readonly live: HTMLElement, readonly share: ReturnType<typeof createShareBar>, readonly told: HTMLElement,
 *   readonly list: HTMLElement, readonly foot: HTMLElement, state: State | undefined,
 * }} LogsView
 */
/**
 * One search: what the list shows until the next. `isComplete` is whether the list has the oldest line of the range.
 * @typedef {{
 *   readonly view: LogsView, readonly now: State, readonly signal: AbortSignal, readonly isLive: boolean,
 *   readonly bounds: { readonly from: string, readonly to: string }, readonly body: object,
 *   readonly createItem: (line: Line) => HTMLElement, readonly seen: Set<string | null>, isComplete: boolean,
 * }} Search
 */

/** @param {Shell} shell */
export function createLogsView({ go, keep }) {
  const change = (/** @type {Partial<State>} */ part) => {
    if (view.state !== undefined) go({ ...view.state, query: query.read(), line: "", ...part });
  };
  const query = createQueryBox({
    label: "Query",
    placeholder: 'severity=error message:"timed out" http.response.status_code>=500',
    submit: () => change({}),
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
  const share = createShareBar();
  const told = createElement("p", { class: "told", role: "status" });
  const list = createElement("ol", { class: "lines", "aria-label": "Log lines" });
  const foot = createElement("div");
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
  const bar = createElement("div", { class: "bar" }, told, share.root);
  const root = createElement("div", {}, form, bar, list, foot);
  /** @type {LogsView} */
  const view = {
    ...{ change, keep, query, sources, range, order, live },
    ...{ share, told, list, foot, state: undefined },
  };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal @param {import("./api.js").Site} site */
    show: (now, signal, site) => showLogs(view, now, signal, site),
    focus: query.focus,
  };
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

/** @param {LogsView} view @param {State} now @param {AbortSignal} signal @param {import("./api.js").Site} site */
function showLogs(view, now, signal, site) {
  const { query, range, order, live, share, told, list, foot } = view;
  view.state = now;
  // An address may ask for what no switch here does: a tail goes on at the newest end of a range that ends now.
  const isLive = now.live && now.order === "DESC" && "last" in now.range;
  query.write(now.query);
  range.write(now.range);
  order.value = now.order;
  live.setAttribute("aria-pressed", String(isLive));
  // The number of lines is news to a reader once, not with every line that comes.
  told.setAttribute("aria-live", isLive ? "off" : "polite");
  const chosen = now.sources.filter((source) => site.sources.includes(source));
  showSources(view, site.sources, chosen);
  replaceChildren(list);
  replaceChildren(told);
  share.root.hidden = site.sources.length === 0;
  if (site.sources.length === 0) {
    const advice = "Nothing is configured for this part of the site.";
    replaceChildren(foot, createEmptyState("This site has no logs", advice));
    return;
  }
  const body = {
    site_id: now.site,
    source_ids: chosen.length === 0 ? site.sources : chosen,
    query: now.query,
    use_expressions: true,
  };
  const bounds = resolveRange(now.range, Date.now());
  const createItem = createItemMaker(view, now, signal);
  startSearch({ view, now, signal, isLive, bounds, body, createItem, seen: new Set(), isComplete: false });
}

/** @param {LogsView} view @param {State} now @param {AbortSignal} signal @returns {Search["createItem"]} */
function createItemMaker({ change, keep }, now, signal) {
  const options = {
    site: now.site,
    toggled: trackLastOpened(now.line, signal, (line) => keep({ ...now, line })),
    narrow: (/** @type {string} */ term) => change({ query: addTerm(now.query, term) }),
  };
  return (line) => createLineItem(line, { ...options, isOpen: now.line === formatLineKey(line) });
}

/** Reads the list page by page; a live tail begins after its first page. @param {Search} search */
function startSearch(search) {
  const { view, now, signal, isLive, bounds, body } = search;
  const { share, list, foot, live, query } = view;
  const pageOf = (/** @type {string | null} */ time) => ({
    ...body,
    ...bounds,
    pagination: { per_page: perPage, order: now.order, cursor: { time } },
  });
  share.write(buildPost("logs/lines", pageOf(null)), {
    field: "logs_lines",
    arguments: pageOf(null),
    selection,
  });
  const begin = () => {
    if (isLive && live.dataset.state === "waiting") void followTail(search);
  };
  live.dataset.state = "waiting";
  replaceChildren(
    foot,
    startFeed({
      what: "lines",
      perPage,
      signal,
      ask: (/** @type {Line | undefined} */ last) =>
        requestJson(buildPost("logs/lines", pageOf(last?.timestamp ?? null)), signal),
      show: (/** @type {readonly Line[]} */ lines, isOver) => {
        list.append(...takeNew(search, lines).map(search.createItem));
        search.isComplete = isOver;
        writeCount(search);
        begin();
      },
      nothing: () => {
        search.isComplete = true;
        begin();
        return createNoLines(view, now);
      },
      failed: query.explain,
    }),
  );
}

/** The lines that are not in the list yet. @param {Search} search @param {readonly Line[]} lines */
function takeNew({ seen }, lines) {
  return lines.filter((line) => {
    const key = formatLineKey(line);
    return !seen.has(key) && seen.add(key);
  });
}

/** @param {Search} search @param {string} [more] */
function writeCount({ view, now, isLive, bounds, isComplete }, more = "") {
  const way = now.order === "DESC" ? "newest first" : "oldest first";
  const between = isLive ? `since ${formatLongTime(bounds.from)}` : formatRange(bounds.from, bounds.to);
  const count = formatLoaded(view.list.childElementCount, isComplete, "line");
  replaceChildren(view.told, `${count}, ${way}, ${between}${more}`);
}

/** Shows new lines on top as they come, until something else is shown. @param {Search} search */
async function followTail(search) {
  const { view, signal, bounds, body } = search;
  const { live } = view;
  live.dataset.state = "connecting";
  // A page holds what could be found when it was read; what comes late is behind its newest line.
  const from = new Date(Date.parse(bounds.to) - lateMillis).toISOString();
  const request = buildPost("logs/lines", { ...body, from, pagination: { per_page: perPage, order: "ASC" } });
  const tail = { request, lastId: "" };
  while (!signal.aborted) {
    try {
      await readTail(search, tail);
    } catch (error) {
      if (isAborted(error)) return;
      if (isFinal(error)) {
        live.dataset.state = "off";
        writeCount(search, `. Not live: ${error.message}`);
        return;
      }
    }
    if (signal.aborted) return;
    live.dataset.state = "connecting";
    writeCount(search, ", live: connecting again");
    await new Promise((resolve) => setTimeout(resolve, pauseMillis));
  }
}

/**
 * Until the connection ends; `lastId` is where the next one goes on.
 * @param {Search} search
 * @param {{ readonly request: ReturnType<typeof buildPost>, lastId: string }} tail
 */
async function readTail(search, tail) {
  const { live } = search.view;
  let fails = false;
  for await (const { events, id } of streamEvents(tail.request, { lastId: tail.lastId }, search.signal)) {
    tail.lastId = id;
    throwIfRefused(events);
    fails = isFailing(fails, events);
    live.dataset.state = fails ? "connecting" : "on";
    insertLines(
      search,
      events.flatMap(({ event, data }) => (event === "line" ? [JSON.parse(data)] : [])),
    );
    writeCount(search, fails ? ", live: the source fails, and is tried again" : ", live");
  }
}

/** @param {Search} search @param {readonly Line[]} lines in any order; a late one goes to its place */
function insertLines(search, lines) {
  const { list, foot } = search.view;
  const oldest = list.lastElementChild?.getAttribute("data-time") ?? "";
  // What is older than the list will come with its next page.
  const fit = lines.filter(({ timestamp }) => search.isComplete || oldest === "" || timestamp >= oldest);
  const items = takeNew(search, fit).map(search.createItem);
  if (items.length === 0) return;
  if (list.childElementCount === 0) replaceChildren(foot);
  for (const item of items) {
    const time = item.dataset.time ?? "";
    let before = list.firstElementChild;
    while ((before?.getAttribute("data-time") ?? "") > time) before = before?.nextElementSibling ?? null;
    list.insertBefore(item, before);
  }
  if (list.childElementCount > maxLiveLines) removeOldest(search);
}

/** @param {Search} search */
function removeOldest(search) {
  const { list, foot } = search.view;
  for (const gone of [...list.children].slice(maxLiveLines)) {
    search.seen.delete(gone.getAttribute("data-key"));
    gone.remove();
  }
  // Further pages would follow what is gone.
  search.isComplete = false;
  const advice = "Older lines have left this page. Search again to see them.";
  replaceChildren(foot, createElement("p", { class: "end" }, advice));
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

/** @param {LogsView} view @param {readonly string[]} all @param {readonly string[]} chosen */
function showSources({ sources, change }, all, chosen) {
  const focused = document.activeElement?.getAttribute("data-source");
  replaceChildren(
    sources,
    all.map((source) => {
      const isOn = chosen.length === 0 || chosen.includes(source);
      const chip = createElement(
        "button",
        { type: "button", class: "chip", "data-source": source, "aria-pressed": String(isOn) },
        renderUntrusted(source),
      );
      chip.addEventListener("click", () => change({ sources: toggleSource(all, chosen, source) }));
      return chip;
    }),
  );
  for (const chip of sources.querySelectorAll("button")) if (chip.dataset.source === focused) chip.focus();
}

/**
 * With all of them on, a click means this one alone; none is the same as all.
 * @param {readonly string[]} all @param {readonly string[]} asked @param {string} source
 */
function toggleSource(all, asked, source) {
  if (asked.length === 0) return all.length === 1 ? [] : [source];
  const next = asked.includes(source) ? asked.filter((one) => one !== source) : [...asked, source];
  return next.length === all.length ? [] : all.filter((one) => next.includes(one));
}

/** Whether asking again would give the same. @param {unknown} error @returns {error is Failure} */
function isFinal(error) {
  return error instanceof Failure && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/**
 * A tail that its server ended for good.
 * @param {readonly import("./events.js").ServerEvent[]} events
 * @throws {Failure}
 */
function throwIfRefused(events) {
  const end = events.find(({ event }) => event === "end");
  const { reason, message } = end === undefined ? {} : JSON.parse(end.data);
  if (reason === "refused") throw new Failure(422, String(message));
}
