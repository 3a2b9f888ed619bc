// Where a reader was in each step of the browser's history, to be there again by Back: how many rows were loaded, and which of
// them was in sight. A step is told from others by a number in its state.

/**
 * `rows` is how many were loaded. `key` is that of the first row in sight, which stood `offset` below the window's top; empty
 * where there is none. `before` is how many rows of the list stood above it: a list that is read again (base/feed.js) has its
 * rows behind this one, too, and others may have come above it meanwhile. `top` is how far the page was scrolled.
 * @typedef {{
 *   readonly rows: number, readonly top: number, readonly key: string, readonly before: number, readonly offset: number,
 * }} Place
 */

/** The rows of the list, without those that stand in an opened one. */
const rowsOfList = "main [data-key]:not([data-key] [data-key])";
/** In pixels; no row is lower. */
const rowStep = 16;
/**
 * The part of the window's width where rows are looked for: on a wide screen the fields stand to the left of the lines, and
 * on a narrow one rows take all of the width.
 */
const rowPlace = 0.6;

/** @param {() => number} [countRows] that are loaded @returns {Place} */
export function readPlace(countRows = () => 0) {
  const row = scrollY === 0 ? undefined : findFirstInSight();
  return {
    rows: countRows(),
    top: scrollY,
    key: row?.dataset.key ?? "",
    before: row === undefined ? 0 : [...document.querySelectorAll(rowsOfList)].indexOf(row),
    offset: row?.getBoundingClientRect().top ?? 0,
  };
}

/** To ask each row where it stands would lay out those that are out of sight. */
function findFirstInSight() {
  for (let y = 1; y < innerHeight; y += rowStep) {
    const row = document.elementFromPoint(innerWidth * rowPlace, y)?.closest(rowsOfList);
    if (row instanceof HTMLElement) return row;
  }
  return undefined;
}

/**
 * Scrolls until the row stands where it stood: other rows may have come before it. What comes into sight is laid out in the
 * frame after, and may be higher than it was taken for.
 * @param {Place} place @param {AbortSignal} [signal]
 */
export async function scrollToPlace(place, signal) {
  for (let frame = 0; frame < 3 && signal?.aborted !== true; frame += 1) {
    scrollOnce(place);
    await new Promise(requestAnimationFrame);
  }
}

/** @param {Place} place */
function scrollOnce({ key, top, offset }) {
  const row = key === "" ? null : document.querySelector(`main [data-key="${CSS.escape(key)}"]`);
  if (row === null) scrollTo(0, top);
  // The browser scrolls by whole pixels.
  else scrollBy(0, Math.trunc(row.getBoundingClientRect().top - offset));
}

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
    if (shown !== undefined) places.set(shown, readPlace(countRows));
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
 * Goes to where someone was as soon as the rows are there, unless they have gone elsewhere meanwhile.
 * @param {Place} place @param {unknown} ready @param {AbortSignal} signal of what is shown
 */
export async function restorePlace(place, ready, signal) {
  const moved = new AbortController();
  const listening = { signal: AbortSignal.any([signal, moved.signal]), passive: true };
  for (const move of moves) addEventListener(move, () => moved.abort(), listening);
  await ready;
  await scrollToPlace(place, listening.signal);
  moved.abort();
}
