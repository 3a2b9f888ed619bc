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
 *   readonly signal: AbortSignal,
 *   readonly ask: (last: R | undefined) => Promise<readonly R[]>,
 *   readonly show: (rows: readonly R[], isOver: boolean) => void,
 *   readonly nothing: () => HTMLElement,
 *   readonly failed: (error: unknown) => boolean,
 * }} options `failed` says whether the error is shown elsewhere; a page shorter than `perPage` is the last. `show` gets an
 *   empty page where it ends a list that has rows
 * @returns {{ readonly root: HTMLElement, readonly shown: Promise<void> }} the foot, and when the first page is there or is not
 */
export function startFeed({ what, perPage, signal, ask, show, nothing, failed }) {
  const foot = createElement("div", { class: "foot" });
  /** @type {R | undefined} */
  let last;
  let isBusy = false;
  let isOver = false;
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
    sight.unobserve(foot);
    replaceChildren(foot, createLoadingState(what));
    try {
      const rows = await ask(last);
      if (signal.aborted) return;
      isOver = rows.length < perPage;
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

  function createPageEnd() {
    if (!isOver) return createButton(`More ${what}`, next);
    return createElement("p", { class: "end" }, "That is all of this range.");
  }

  /** @param {unknown} error */
  function showFailure(error) {
    const isShownElsewhere = last === undefined && failed(error);
    replaceChildren(
      foot,
      isShownElsewhere
        ? createEmptyState("The query has an error", "It is underlined above.")
        : createFailureState(error, () => void next()),
    );
  }

  return { root: foot, shown: next() };
}
