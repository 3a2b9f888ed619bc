// The waterfall as a list: it folds, it is searched, it shows a stretch of the trace, and it marks the critical path.
import { createBlocks, writeHeight } from "../base/blocks.js";
import { createButton, createElement, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatCount, formatDuration } from "../base/format.js";
import { attachBrush, createSvg } from "../base/svg.js";
import { findCriticalPath } from "./critical-path.js";
import { createSpanDetails } from "./span-details.js";
import { hasChildren, isSought, listShown } from "./span-rows.js";
import { createSpanLogs } from "./trace-logs.js";

/** @typedef {import("./waterfall.js").Row} Row */
/**
 * @typedef {{
 *   readonly span: string, readonly open: string, readonly toggled: (id: string, isOpen: boolean) => void,
 *   readonly scope: import("./trace-logs.js").Scope, readonly shape: Shape,
 * }} ListOptions `span` is the id of the one to mark, `open` of the one to open
 */
/**
 * What a reader has made of the list: the keys of the spans that are folded, and the stretch of the trace, in parts of it. A list
 * that is drawn anew has it too.
 * @typedef {{ readonly folded: Set<string>, from: number, to: number }} Shape
 */

/** The two sides of a call may have one id. @param {Row} row */
const formatSpanKey = ({ span }) => `${span.service_name} ${span.span_kind} ${span.span_id}`;

/** A list as it is at first. @returns {Shape} */
export const createShape = () => ({ folded: new Set(), from: 0, to: 1 });

/** So many spans are drawn; a page of more would be slow, and nobody reads them one by one. */
export const maxDrawnSpans = 5_000;

/**
 * @param {HTMLElement} root is replaced
 * @param {import("./waterfall.js").Waterfall} waterfall
 * @param {ListOptions} options
 */
export function showSpanList(root, { rows, length }, options) {
  const drawn = rows.slice(0, maxDrawnSpans);
  const critical = Map.groupBy(findCriticalPath(rows), ({ row }) => row);
  const services = [...new Set(rows.map(({ span }) => span.service_name))];
  const { shape } = options;
  const items = drawn.map((row, at) => {
    const item = createSpanItem(
      row,
      services.indexOf(row.span.service_name),
      options,
      critical.get(row) ?? [],
    );
    if (hasChildren(rows, at)) item.prepend(createFold(row));
    return item;
  });
  const blocks = createBlocks(items);
  const list = createElement("div", { class: "waterfall", role: "list", "aria-label": "Spans" }, blocks);
  const scale = createElement("div", { class: "scale" });
  showStretch(list, scale, length, shape);
  foldRows();
  replaceChildren(root, createSpanTools(list, items, drawn), scale, list);
  root.querySelector("[data-marked]")?.scrollIntoView({ block: "nearest" });

  /** Beside the row, which is a switch itself. @param {Row} row */
  function createFold(row) {
    const key = formatSpanKey(row);
    const fold = createElement("button", {
      type: "button",
      class: "fold",
      "aria-expanded": String(!shape.folded.has(key)),
      "aria-label": "Spans below it",
    });
    fold.style.insetInlineStart = `${indent(row.depth)}rem`;
    fold.addEventListener("click", () => {
      if (!shape.folded.delete(key)) shape.folded.add(key);
      fold.setAttribute("aria-expanded", String(!shape.folded.has(key)));
      foldRows();
    });
    return fold;
  }

  function foldRows() {
    const folded = new Set(drawn.flatMap((row, at) => (shape.folded.has(formatSpanKey(row)) ? [at] : [])));
    for (const [place, isShown] of listShown(drawn, folded).entries())
      items[place]?.toggleAttribute("hidden", !isShown);
    for (const block of blocks) writeHeight(block);
  }
}

/**
 * Shows a stretch of the trace, and above it a scale to choose a smaller one in.
 * @param {HTMLElement} list @param {HTMLElement} scale @param {number} length of the trace in milliseconds
 * @param {Shape} shape
 */
function showStretch(list, scale, length, shape) {
  const { from, to } = shape;
  const choose = (/** @type {number} */ start, /** @type {number} */ end) => {
    [shape.from, shape.to] = [start, end];
    showStretch(list, scale, length, shape);
  };
  const part = (/** @type {number} */ at) => from + (to - from) * at;
  list.style.setProperty("--zoom-from", String(from));
  list.style.setProperty("--zoom", String(1 / (to - from)));
  const brush = createSvg("svg", { class: "scale-brush", height: 18, "aria-hidden": "true" });
  attachBrush(brush, (start, end) => choose(part(start), part(end)));
  const marks = [0, 0.25, 0.5, 0.75, 1].map((at) => part(at) * length);
  replaceChildren(
    scale,
    brush,
    marks.map((mark) =>
      createElement("span", { "aria-hidden": "true" }, mark === 0 ? "0" : formatDuration(mark)),
    ),
    to - from < 1 && createButton("Whole trace", () => choose(0, 1), { class: "unzoom" }),
  );
}

/**
 * A field that marks the spans with a text; Enter goes from one to the next.
 * @param {HTMLElement} list @param {readonly HTMLElement[]} items @param {readonly Row[]} rows of the items
 */
function createSpanTools(list, items, rows) {
  const input = createElement("input", {
    type: "search",
    placeholder: "Find in spans",
    "aria-label": "Find in spans",
  });
  const statusLine = createElement("span", { class: "muted", role: "status" });
  /** @type {readonly number[]} */
  let found = [];
  let last = -1;
  input.addEventListener("input", () => {
    const text = input.value;
    found = rows.flatMap(({ span }, at) => (text !== "" && isSought(span, text) ? [at] : []));
    last = -1;
    list.classList.toggle("searched", text !== "");
    const sought = new Set(found);
    for (const [at, item] of items.entries()) item.toggleAttribute("data-sought", sought.has(at));
    statusLine.textContent = text === "" ? "" : formatCount(found.length, "span");
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    last = found.find((at) => at > last) ?? found[0] ?? -1;
    items[last]?.scrollIntoView({ block: "center" });
  });
  const path = createElement("span", { class: "muted critical-legend" }, "Critical path");
  return createElement("div", { class: "span-tools" }, input, statusLine, path);
}

/** @param {Row} row @param {number} service its place among the services @param {ListOptions} options @param {readonly import("./critical-path.js").Stretch[]} critical */
function createSpanItem(row, service, { span: marked, open, toggled, scope }, critical) {
  const { span, depth, offset, width, failed, repeated } = row;
  const bar = createElement("span", { class: "bar-fill", "data-service": service % 8 });
  placeBar(bar, offset, width);
  const name = createElement(
    "span",
    { class: "span-name" },
    createElement("span", { class: "unseen" }, `Level ${depth + 1}: `),
    renderUntrusted(span.span_name),
    createElement("span", { class: "muted" }, renderUntrusted(span.service_name)),
    failed && createElement("span", { class: "badge bad" }, "error"),
    repeated !== undefined && createElement("span", { class: "badge warn" }, `N+1: ${repeated} ×`),
    critical.length > 0 && createElement("span", { class: "unseen" }, " on the critical path"),
  );
  name.style.paddingInlineStart = `${indent(depth) + 0.7}rem`;
  const summary = createElement(
    "summary",
    {},
    name,
    createElement("span", { class: "bar-track" }, bar, critical.map(createCriticalMark)),
    createElement("span", { class: "span-duration" }, formatDuration(span.duration)),
  );
  const details = createElement("details", {}, summary);
  details.addEventListener("toggle", () => {
    const logs = scope.site.sources.length === 0 ? undefined : createSpanLogs(span, scope);
    if (details.open && details.childElementCount === 1) details.append(createSpanDetails(span, logs));
    toggled(span.span_id, details.open);
  });
  const item = createElement(
    "li",
    {
      class: "span-item",
      role: "listitem",
      "data-failed": failed,
      "data-repeated": repeated !== undefined,
      "data-marked": span.span_id === marked && marked !== "",
    },
    details,
  );
  if (span.span_id === open ? open !== "" : failed && open === "" && span.span_id === marked)
    details.open = true;
  return item;
}

/** @param {import("./critical-path.js").Stretch} stretch */
function createCriticalMark({ from, to }) {
  const mark = createElement("span", { class: "critical" });
  placeBar(mark, from, to - from);
  return mark;
}

/** @param {HTMLElement} bar @param {number} offset part of the trace @param {number} width */
function placeBar(bar, offset, width) {
  bar.style.setProperty("--offset", offset.toFixed(6));
  bar.style.setProperty("--width", width.toFixed(6));
}

/** In rem; what is very deep stands below each other. @param {number} depth */
function indent(depth) {
  return Math.min(depth, 24) * 0.85 + 0.3;
}
