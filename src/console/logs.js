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

/** @param {Shell} shell */
// Long: a view is one closure over its elements and its state; the live tail in it shares the list with the pages.
export function createLogsView({ go, keep }) {
  /** @type {State | undefined} */
  let state;
  const change = (/** @type {Partial<State>} */ part) => {
    if (state !== undefined) go({ ...state, query: query.read(), line: "", ...part });
  };
  const query = createQueryBox({
    label: "Query",
    placeholder: 'severity=error message:"timed out" http.response.status_code>=500',
    submit: () => change({}),
  });
  const sources = createElement("div", { class: "chips", role: "group", "aria-label": "Sources" });
  const range = createRangePicker((value) =>
    change({ range: value, live: state?.live === true && "last" in value }),
  );
  const order = createSelect(
    [
      ["DESC", "Newest first"],
      ["ASC", "Oldest first"],
    ],
    (value) => change({ order: value === "ASC" ? "ASC" : "DESC", live: false }),
  );
  const live = createButton("Live", () => {
    const isLive = state?.live !== true;
    const isFixed = state !== undefined && "from" in state.range;
    change({
      live: isLive,
      ...(isLive ? { order: "DESC" } : {}),
      ...(isLive && isFixed ? { range: { last: "15m" } } : {}),
    });
  });
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
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, told, share.root),
    list,
    foot,
  );

  /** @param {State} now @param {AbortSignal} signal @param {import("./api.js").Site} site */
  function show(now, signal, site) {
    state = now;
    // An address may ask for what no switch here does: a tail goes on at the newest end of a range that ends now.
    const isLive = now.live && now.order === "DESC" && "last" in now.range;
    query.write(now.query);
    range.write(now.range);
    order.value = now.order;
    live.setAttribute("aria-pressed", String(isLive));
    // The number of lines is news to a reader once, not with every line that comes.
    told.setAttribute("aria-live", isLive ? "off" : "polite");
    const asked = now.sources.filter((source) => site.sources.includes(source));
    showSources(site.sources, asked);
    replaceChildren(list);
    replaceChildren(told);
    if (site.sources.length === 0) {
      replaceChildren(
        foot,
        createEmptyState("This site has no logs", "Nothing is configured for this part of the site."),
      );
      share.root.hidden = true;
      return;
    }
    share.root.hidden = false;
    const bounds = resolveRange(now.range, Date.now());
    const body = {
      site_id: now.site,
      source_ids: asked.length === 0 ? site.sources : asked,
      query: now.query,
      use_expressions: true,
    };
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

    const options = {
      site: now.site,
      toggled: trackLastOpened(now.line, signal, (line) => keep({ ...now, line })),
      narrow: (/** @type {string} */ term) => change({ query: addTerm(now.query, term) }),
    };
    const itemOf = (/** @type {Line} */ line) =>
      createLineItem(line, { ...options, isOpen: now.line === formatLineKey(line) });
    const seen = new Set();
    /** Lines that are not in the list yet. @param {readonly Line[]} lines */
    const fresh = (lines) =>
      lines.filter((line) => {
        const key = formatLineKey(line);
        return !seen.has(key) && seen.add(key);
      });
    let isComplete = false;
    const tell = (/** @type {string} */ more = "") => {
      const way = now.order === "DESC" ? "newest first" : "oldest first";
      const between = isLive ? `since ${formatLongTime(bounds.from)}` : formatRange(bounds.from, bounds.to);
      replaceChildren(
        told,
        `${formatLoaded(list.childElementCount, isComplete, "line")}, ${way}, ${between}${more}`,
      );
    };
    const begin = () => {
      if (isLive && live.dataset.state === "waiting") void follow();
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
          list.append(...fresh(lines).map(itemOf));
          isComplete = isOver;
          tell();
          begin();
        },
        nothing: () => {
          isComplete = true;
          begin();
          return nothing(now);
        },
        failed: query.explain,
      }),
    );

    /** Shows new lines on top as they come, until something else is shown. */
    async function follow() {
      live.dataset.state = "connecting";
      // A page tells of what could be found when it was asked; what comes late is behind its newest line.
      const from = new Date(Date.parse(bounds.to) - lateMillis).toISOString();
      const request = buildPost("logs/lines", {
        ...body,
        from,
        pagination: { per_page: perPage, order: "ASC" },
      });
      let lastId = "";
      while (!signal.aborted) {
        let fails = false;
        try {
          for await (const { events, id } of streamEvents(request, { lastId }, signal)) {
            lastId = id;
            throwIfRefused(events);
            fails = isFailing(fails, events);
            live.dataset.state = fails ? "connecting" : "on";
            insert(events.flatMap(({ event, data }) => (event === "line" ? [JSON.parse(data)] : [])));
            tell(fails ? ", live: the source fails, and is tried again" : ", live");
          }
        } catch (error) {
          if (isAborted(error)) return;
          if (isFinal(error)) {
            live.dataset.state = "off";
            tell(`. Not live: ${error.message}`);
            return;
          }
        }
        if (signal.aborted) return;
        live.dataset.state = "connecting";
        tell(", live: connecting again");
        await new Promise((resolve) => setTimeout(resolve, pauseMillis));
      }
    }

    /** @param {readonly Line[]} lines in any order; a late one goes to its place */
    function insert(lines) {
      const oldest = list.lastElementChild?.getAttribute("data-time") ?? "";
      // What is older than the list will come with its next page.
      const fit = lines.filter(({ timestamp }) => isComplete || oldest === "" || timestamp >= oldest);
      const items = fresh(fit).map(itemOf);
      if (items.length === 0) return;
      if (list.childElementCount === 0) replaceChildren(foot);
      for (const item of items) {
        const time = item.dataset.time ?? "";
        let before = list.firstElementChild;
        while ((before?.getAttribute("data-time") ?? "") > time) before = before?.nextElementSibling ?? null;
        list.insertBefore(item, before);
      }
      if (list.childElementCount <= maxLiveLines) return;
      for (const gone of [...list.children].slice(maxLiveLines)) {
        seen.delete(gone.getAttribute("data-key"));
        gone.remove();
      }
      // Further pages would follow what is gone.
      isComplete = false;
      replaceChildren(
        foot,
        createElement("p", { class: "end" }, "Older lines have left this page. Search again to see them."),
      );
    }
  }

  /** @param {State} now */
  function nothing(now) {
    return createEmptyState(
      "No lines",
      now.query === "" ? "There are none in this range." : "Nothing in this range matches the query.",
      ...(now.query === "" ? [] : [createButton("Clear the query", () => change({ query: "" }))]),
      ...("last" in now.range && now.range.last !== "7d"
        ? [createButton("Look at the last 7 days", () => change({ range: { last: "7d" } }))]
        : []),
    );
  }

  /** @param {readonly string[]} all @param {readonly string[]} asked */
  function showSources(all, asked) {
    const focused = document.activeElement?.getAttribute("data-source");
    replaceChildren(
      sources,
      all.map((source) => {
        const isOn = asked.length === 0 || asked.includes(source);
        const chip = createElement(
          "button",
          { type: "button", class: "chip", "data-source": source, "aria-pressed": String(isOn) },
          renderUntrusted(source),
        );
        chip.addEventListener("click", () => change({ sources: toggleSource(all, asked, source) }));
        return chip;
      }),
    );
    for (const chip of sources.querySelectorAll("button")) if (chip.dataset.source === focused) chip.focus();
  }

  return { root, show, focus: query.focus };
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
