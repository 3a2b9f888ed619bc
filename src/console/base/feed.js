// A list that is read page by page as one scrolls. The foot of the list tells how it stands, and asks for the next page
// when it comes into sight; its button does the same for those who do not scroll.
import { isAborted } from "./api.js";
import { createButton, createElement, replaceChildren } from "./dom.js";
import { createEmptyState, createFailureState, createLoadingState } from "./states.js";

/**
 * @template R
 * @param {{
 *   readonly what: string,
 *   readonly perPage: number,
 *   readonly place?: Pick<import("../places.js").Place, "rows" | "key" | "before"> | undefined,
 *   readonly keyOf: (row: R) => string,
 *   readonly signal: AbortSignal,
 *   readonly ask: (last: R | undefined) => Promise<readonly R[]>,
 *   readonly show: (rows: readonly R[], isOver: boolean) => void,
 *   readonly nothing: () => HTMLElement,
 *   readonly failed: (error: unknown) => boolean,
 * }} options `failed` says whether the error is shown elsewhere; a page shorter than `perPage` is the last. `show` gets an
 *   empty page where it ends a list that has rows; pages are asked for until the row of the
 *   `place` is there, and as many rows behind it as there were
 * @returns {{ readonly root: HTMLElement, readonly shown: Promise<void> }} the foot, and when the first rows are there or are not
 */
export function startFeed({ what, perPage, place, keyOf, signal, ask, show, nothing, failed }) {
  const foot = createElement("div", { class: "foot" });
  /** @type {R | undefined} */
  let last;
  let isBusy = false;
  let isOver = false;
  let hasFailed = false;
  let loaded = 0;
  // Before the row of the place, at most as many may have come.
  let wanted = place === undefined ? 0 : place.rows * (place.key === "" ? 1 : 2);
  const sight = new IntersectionObserver(
    (entries) => {
      if (entries.some(({ isIntersecting }) => isIntersecting)) void next();
    },
    { rootMargin: "400px" },
  );
  signal.addEventListener("abort", () => sight.disconnect(), { once: true });

  async function next() {
    if (isBusy || isOver || signal.aborted) return;
    isBusy = true;
    hasFailed = false;
    sight.unobserve(foot);
    replaceChildren(foot, createLoadingState(what));
    try {
      const rows = await ask(last);
      if (signal.aborted) return;
      isOver = rows.length < perPage;
      count(rows);
      const isEmpty = last === undefined && rows.length === 0;
      last = rows.at(-1) ?? last;
      if (!isEmpty) show(rows, isOver);
      replaceChildren(foot, isEmpty ? nothing() : createPageEnd());
      // Observed anew, it tells at once if it is in sight still.
      if (!isOver) sight.observe(foot);
    } catch (error) {
      if (!isAborted(error)) showFailure(error);
    } finally {
      isBusy = false;
    }
  }

  /** @param {readonly R[]} rows that have come */
  function count(rows) {
    const found = rows.findIndex((row) => keyOf(row) === place?.key);
    if (place !== undefined && found !== -1) wanted = loaded + found + place.rows - place.before;
    loaded += rows.length;
  }

  function createPageEnd() {
    if (!isOver) return createButton(`More ${what}`, next);
    return createElement("p", { class: "end" }, "That is all of this range.");
  }

  /** The first page, and those after it until the place is among them. */
  async function loadFirst() {
    do await next();
    while (loaded < wanted && !isOver && !hasFailed && !signal.aborted);
  }

  /** @param {unknown} error */
  function showFailure(error) {
    hasFailed = true;
    const isShownElsewhere = last === undefined && failed(error);
    replaceChildren(
      foot,
      isShownElsewhere
        ? createEmptyState("The query has an error", "It is underlined above.")
        : createFailureState(error, () => void next()),
    );
  }

  return { root: foot, shown: loadFirst() };
}
