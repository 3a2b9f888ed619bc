// The list of log lines.
import { blockRows, createBlock, createBlocks } from "../base/blocks.js";
import { createElement } from "../base/dom.js";

/** @typedef {ReturnType<typeof createLineList>} LineList */

/** @param {string} label */
export function createLineList(label) {
  const root = createElement("div", { class: "lines", role: "list", "aria-label": label });
  let size = 0;
  return {
    root,
    get size() {
      return size;
    },
    /** The line at the end, undefined in an empty list. */
    get last() {
      return root.lastElementChild?.lastElementChild ?? undefined;
    },
    clear: () => {
      root.replaceChildren();
      size = 0;
    },
    /** Adds lines at the end. @param {readonly HTMLElement[]} items */
    append: (items) => {
      root.append(...createBlocks(items));
      size += items.length;
    },
    /** Puts a line before all that are not newer; the list has the newest first. @param {HTMLElement} item */
    insert: (item) => {
      insertByTime(root, item);
      size += 1;
    },
    /** Takes lines away from the end. @param {number} kept how many stay @returns {readonly Element[]} what is gone */
    cut: (kept) => {
      const gone = [...root.children].flatMap((block) => [...block.children]).slice(kept);
      for (const item of gone) item.remove();
      for (const block of [...root.children]) if (block.childElementCount === 0) block.remove();
      size -= gone.length;
      return gone;
    },
  };
}

/** @param {HTMLElement} root @param {HTMLElement} item */
function insertByTime(root, item) {
  const time = item.dataset.time ?? "";
  const block =
    [...root.children].find(({ lastElementChild }) => readTime(lastElementChild) <= time) ??
    root.lastElementChild;
  if (block === null) return root.append(createBlock([item]));
  let before = block.firstElementChild;
  while (before !== null && readTime(before) > time) before = before.nextElementSibling;
  block.insertBefore(item, before);
  if (block.childElementCount === 2 * blockRows)
    block.before(createBlock([...block.children].slice(0, blockRows)));
}

/** @param {Element | null} item */
function readTime(item) {
  return item?.getAttribute("data-time") ?? "";
}
