// Where a reader was in each step of the browser's history, to be there again by Back: how many rows were loaded, and how far
// they were scrolled. A step is told from others by a number in its state.

/** @typedef {{ readonly rows: number, readonly top: number }} Place */

/**
 * @param {() => number} countRows of what is shown
 * @returns {() => Place | undefined} to be called before another step is shown: where that step was left, if it was
 */
export function trackPlaces(countRows) {
  // The browser's own place is that of a page which has its rows already.
  history.scrollRestoration = "manual";
  /** @type {Map<number, Place>} */
  const places = new Map();
  // A page that is loaded again finds the numbers of the one before.
  let newest = Date.now();
  /** @type {number | undefined} */
  let shown;
  return () => {
    if (shown !== undefined) places.set(shown, { rows: countRows(), top: scrollY });
    if (typeof history.state !== "number") {
      newest += 1;
      history.replaceState(newest, "");
    }
    shown = Number(history.state);
    return places.get(shown);
  };
}

/** What scrolls, or is about to. */
const moves = ["wheel", "touchmove", "pointerdown", "keydown"];

/**
 * Scrolls to where someone was as soon as the rows are there, unless they have gone elsewhere meanwhile.
 * @param {number} top @param {unknown} ready @param {AbortSignal} signal of what is shown
 */
export async function restoreScroll(top, ready, signal) {
  const moved = new AbortController();
  const listening = { signal: AbortSignal.any([signal, moved.signal]), passive: true };
  for (const move of moves) addEventListener(move, () => moved.abort(), listening);
  await ready;
  if (!listening.signal.aborted) scrollTo(0, top);
  moved.abort();
}
