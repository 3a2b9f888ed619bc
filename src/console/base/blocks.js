// Long lists in blocks that are boxes of their own: what changes in one, the browser does not lay out all the others for, and
// those out of sight it does not lay out at all. To a screen reader the blocks are not there.
import { createElement } from "./dom.js";

/** Rows of a block. Fewer make more boxes to watch; more take longer to lay out when a block comes into sight. */
export const blockRows = 20;

/** Blocks of a list whose role is `list`. @param {readonly Element[]} items whose role is `listitem` */
export function createBlocks(items) {
  const blocks = [];
  for (let at = 0; at < items.length; at += blockRows)
    blocks.push(createBlock(items.slice(at, at + blockRows)));
  return blocks;
}

/** @param {readonly Element[]} items */
export function createBlock(items) {
  const block = createElement("ol", { class: "row-block", role: "none" }, items);
  writeHeight(block);
  return block;
}

/** Writes what the height of a block is taken for while it is not laid out, by its rows that are not hidden. @param {HTMLElement} block */
export function writeHeight(block) {
  const shown = [...block.children].filter((item) => !item.hasAttribute("hidden")).length;
  block.style.setProperty("--rows", String(shown));
  // What it was as a whole is of no use then.
  block.toggleAttribute("data-part", shown < block.childElementCount);
}
