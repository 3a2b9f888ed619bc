// New lines on top of the list, as they come.
import { buildPost, changedEvent, Failure, isAborted } from "../base/api.js";
import { createButton, createElement, replaceChildren } from "../base/dom.js";
import { isTailSourceFailing, streamEvents } from "../base/events.js";
import { perPage, takeNew, writeCount } from "./log-search.js";

/** @typedef {import("./log-search.js").Search} Search */
/** @typedef {import("./log-line.js").Line} Line */

/** Lines that are kept of a live tail: the page is to stay quick for as long as it is open. */
const maxLiveLines = 2_000;
/** Of a failure that ended a tail which had begun. */
const endedSlug = "refused";
const connecting = ", live: connecting again";
/** How late a line may come and still be shown. */
const lateMillis = 60_000;
/** Before a broken live tail is begun again. Each time that it does not come about doubles it. */
const pauseMillis = 3_000;
const maxPauseMillis = 60_000;
/** A timer takes no more than some weeks. */
const maxRetryMillis = 3_600_000;

/**
 * How long to wait before the next try. No two pages of a server that has failed come back at one moment.
 * @param {number} failures in a row @param {number} retryMillis that the server asks for
 */
export function computePause(failures, retryMillis) {
  const own = Math.min(maxPauseMillis, pauseMillis * 2 ** failures);
  return Math.max(own, Math.min(retryMillis, maxRetryMillis)) * (1 + Math.random() / 4);
}

/**
 * Shows new lines on top as they come, until something else is shown.
 * @param {Search} search @param {string} [lastId] where it goes on
 */
export async function followTail(search, lastId = "") {
  const { view, signal, bounds, body } = search;
  const { live } = view;
  live.dataset.state = "connecting";
  // A page holds what could be found when it was read; what comes late is behind its newest line.
  const from = new Date(Date.parse(bounds.to) - lateMillis).toISOString();
  const request = buildPost("logs/lines", { ...body, from, pagination: { per_page: perPage, order: "ASC" } });
  const tail = { request, lastId, failures: 0 };
  while (!signal.aborted) {
    let [pause, why] = [computePause(0, 0), ""];
    try {
      await readTail(search, tail);
    } catch (error) {
      if (isAborted(error)) return;
      if (isFinal(error)) return stopTail(search, tail.lastId, error);
      if (error instanceof Failure)
        [pause, why] = [computePause(tail.failures, error.retryMillis), `. ${error.message}`];
      tail.failures += 1;
    }
    if (signal.aborted) return;
    live.dataset.state = "connecting";
    writeCount(search, `${connecting}${why}`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/**
 * Says why new lines do not come any more. What had begun may be gone on with: a source may have been away for a moment.
 * @param {Search} search @param {string} lastId @param {Failure} error
 */
function stopTail(search, lastId, error) {
  search.view.live.dataset.state = "off";
  const goOn = () => {
    writeCount(search, connecting);
    void followTail(search, lastId);
  };
  const mayGoOn = lastId !== "" || error.slug === endedSlug;
  writeCount(search, [`. Not live: ${error.message} `, mayGoOn && createButton("Go on", goOn)]);
}

/**
 * Until the connection ends; `lastId` is where the next one goes on.
 * @param {Search} search
 * @param {{ readonly request: ReturnType<typeof buildPost>, lastId: string, failures: number }} tail
 */
async function readTail(search, tail) {
  const { live } = search.view;
  let fails = false;
  for await (const { events, id } of streamEvents(tail.request, { lastId: tail.lastId }, search.signal)) {
    tail.lastId = id;
    tail.failures = 0;
    readEnd(events);
    fails = isTailSourceFailing(fails, events);
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
  const oldest = list.last?.getAttribute("data-time") ?? "";
  // What is older than the list will come with its next page.
  const fit = lines.filter(({ timestamp }) => search.isComplete || oldest === "" || timestamp >= oldest);
  const fresh = takeNew(search, fit);
  if (fresh.length === 0) return;
  if (list.size === 0) replaceChildren(foot);
  for (const line of fresh) {
    list.insert(search.createItem(line));
    search.lines.unshift(line);
  }
  // In the order of the list, where a line stands before those of its time that came earlier.
  search.lines.sort((a, b) => Number(a.timestamp < b.timestamp) - Number(a.timestamp > b.timestamp));
  if (list.size > maxLiveLines) removeOldest(search);
}

/** @param {Search} search */
function removeOldest(search) {
  const { list, foot } = search.view;
  for (const gone of list.cut(maxLiveLines)) search.seen.delete(gone.getAttribute("data-key"));
  search.lines.length = list.size;
  // Further pages would follow what is gone.
  search.isComplete = false;
  const advice = "Older lines have left this page. Search again to see them.";
  replaceChildren(foot, createElement("p", { class: "end" }, advice));
}

/** Whether asking again would give the same. @param {unknown} error @returns {error is Failure} */
function isFinal(error) {
  return error instanceof Failure && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/**
 * A tail that its server ended, maybe for good.
 * @param {readonly import("../base/events.js").ServerEvent[]} events
 * @throws {Failure}
 */
function readEnd(events) {
  const end = events.find(({ event }) => event === "end");
  const { reason, message } = end === undefined ? {} : JSON.parse(end.data);
  if (reason === "reloaded") dispatchEvent(new Event(changedEvent));
  if (reason === "refused") throw new Failure(422, String(message), endedSlug);
}
