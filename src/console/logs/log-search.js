// One search for log lines: its pages as they are scrolled to, how many there are, and the fields that they have.
import { buildPost, readServerTime, requestJson } from "../base/api.js";
import { createElement, replaceChildren } from "../base/dom.js";
import { startFeed } from "../base/feed.js";
import { formatCount, formatLoaded, formatLongTime, formatNumber, formatRange } from "../base/format.js";
import { createFieldList } from "./field-list.js";
import { formatLineKey } from "./log-line.js";

/** @typedef {import("./logs.js").LogsView} LogsView */
/** @typedef {import("./logs.js").State} State */
/** @typedef {import("./log-line.js").Line} Line */
/** What is said behind the count. @typedef {string | readonly import("../base/dom.js").Child[]} Note */
/**
 * What the list shows until the next search. `lines` are those in it, in its order, `isComplete` is whether the list
 * has the oldest line of the range, `total` how many lines there are, as far as that is known.
 * @typedef {{
 *   readonly view: LogsView, readonly now: State, readonly signal: AbortSignal, readonly isLive: boolean,
 *   readonly bounds: { readonly from: string, readonly to: string }, readonly body: object,
 *   readonly createItem: (line: Line) => HTMLElement, readonly seen: Set<string | null>, readonly lines: Line[],
 *   readonly count: import("./field-list.js").ValueCounter, readonly follow: () => void,
 *   isComplete: boolean, total: number | undefined, note: Note,
 * }} Search
 */

export const perPage = 100;
const selection = `timestamp
severity
source_id
hostname
message
json
trace { trace_id }`;

/** @param {Search} search @param {string | null} time of the last line before the page */
function buildPageRequest({ body, bounds, now }, time) {
  const pagination = { per_page: perPage, order: now.order, cursor: { time } };
  return { ...body, ...bounds, pagination };
}

/** The request for all lines, of a live list also for those that have come since. @param {Search} search */
export function buildExportRequest(search) {
  const request = buildPageRequest(search, null);
  if (!search.isLive) return request;
  const [now, newest] = [new Date(readServerTime()).toISOString(), search.lines[0]?.timestamp ?? ""];
  return { ...request, to: Date.parse(newest) >= Date.parse(now) ? newest : now };
}

/**
 * Reads the list page by page; a live tail begins after its first page.
 * @param {Search} search
 * @param {() => HTMLElement} createNothing what stands in the place of no lines
 * @param {import("../places.js").Place} [place] that is read before the lines are shown as read
 * @returns {Promise<void>} when the first lines are shown, or why not
 */
export function startSearch(search, createNothing, place) {
  const { view, now, signal } = search;
  const first = buildPageRequest(search, null);
  view.share.write(buildPost("logs/lines", first), { field: "logs_lines", arguments: first, selection });
  const feed = startFeed({
    what: "lines",
    perPage,
    place,
    keyOf: formatLineKey,
    signal,
    ask: (/** @type {Line | undefined} */ last) =>
      requestJson(buildPost("logs/lines", buildPageRequest(search, last?.timestamp ?? null)), signal),
    show: (/** @type {readonly Line[]} */ lines, isOver) => {
      const fresh = takeNew(search, lines);
      view.list.append(fresh.map(search.createItem));
      search.lines.push(...fresh);
      search.isComplete = isOver;
      writeCount(search);
      // The fields of the first page; later ones add to them when the list is opened again.
      if (search.lines.length === fresh.length) writeFields(search);
      search.follow();
    },
    nothing: () => {
      search.isComplete = true;
      replaceChildren(view.fields);
      search.follow();
      return createNothing();
    },
    failed: (error) => {
      // Those of an older search are not those of this one.
      replaceChildren(view.fields);
      return view.query.explain(error, now.query);
    },
  });
  replaceChildren(view.foot, feed.root);
  return feed.shown;
}

/** The lines that are not in the list yet. @param {Search} search @param {readonly Line[]} lines */
export function takeNew({ seen }, lines) {
  return lines.filter((line) => {
    const key = formatLineKey(line);
    return !seen.has(key) && seen.add(key);
  });
}

/** @param {Search} search @param {Note} [more] that is said behind it until something else is */
export function writeCount(search, more = search.note) {
  const { view, now, isLive, bounds, isComplete, total } = search;
  search.note = more;
  const way = now.order === "DESC" ? "newest first" : "oldest first";
  const between = isLive ? `since ${formatLongTime(bounds.from)}` : formatRange(bounds.from, bounds.to);
  const loaded = view.list.size;
  const isPart = !isLive && !isComplete && total !== undefined && total > loaded;
  const count = isPart
    ? `${formatNumber(loaded)} of ${formatCount(total, "line")} loaded`
    : formatLoaded(loaded, isComplete, "line");
  replaceChildren(view.statusLine, `${count}, ${way}, ${between}`, more);
}

/** @param {Search} search */
function writeFields({ view, now, lines, count }) {
  const toggleColumn = (/** @type {string} */ spelling) => {
    const others = now.columns.filter((one) => one !== spelling);
    view.change({ columns: others.length === now.columns.length ? [...others, spelling] : others });
  };
  replaceChildren(
    view.fields,
    createElement("h2", { class: "unseen" }, "Fields"),
    ...createFieldList({
      lines,
      columns: now.columns,
      count,
      toggleColumn,
      narrow: view.narrow,
      chooseSource: (source) => view.change({ sources: [source] }),
    }),
  );
}
