// Who calls a site and whom it calls: a drawing for the eye, and beside it a table with all figures.
import { resolveRange } from "../base/address.js";
import { buildPost, isAborted, readServerTime, requestJson } from "../base/api.js";
import { createRangePicker, createSearchForm, createShareBar } from "../base/controls.js";
import { createElement, createTable, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatCount, formatDuration, formatNumber, formatRange, printVisible } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { createSvg } from "../base/svg.js";
import { Graph, layout } from "./dagre.js";
import { layOutMap, listEdges, nodeSize } from "./map-layout.js";

/** @typedef {import("../base/address.js").StateOf<"map">} State */
/** @typedef {import("./map-layout.js").SiteEdges} SiteEdges */
/** @typedef {import("./map-layout.js").Edge} Edge */

const sides = { upstream: "calls the site", downstream: "is called", internal: "within the site" };
const maxNameLength = 24;
const selection = `upstream { service count error_count mean p_90 p_95 }
downstream { service count error_count mean p_90 p_95 }
internal { service count error_count mean p_90 p_95 }`;

/** @param {import("../views.js").Shell<"map">} shell */
export function createServiceMapView({ go }) {
  /** @type {State | undefined} */
  let state;
  const range = createRangePicker((value) => state !== undefined && go({ ...state, range: value }));
  const share = createShareBar();
  const statusLine = createElement("p", { class: "status-line", role: "status" });
  const shown = createElement("div", { class: "map" });
  const form = createSearchForm(() => state !== undefined && go(state), range.root);
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, statusLine, share.root),
    shown,
  );
  return { root, show };

  /** @param {State} now @param {AbortSignal} signal */
  async function show(now, signal) {
    state = now;
    range.write(now.range);
    const bounds = resolveRange(now.range, readServerTime());
    const request = { site_id: now.site, ...bounds };
    share.write(buildPost("tracing/site_edges", request), {
      field: "tracing_site_edges",
      arguments: request,
      selection,
    });
    replaceChildren(statusLine);
    replaceChildren(shown, createLoadingState("the map"));
    try {
      /** @type {SiteEdges} */
      const edges = await requestJson(buildPost("tracing/site_edges", request), signal);
      const all = listEdges(edges);
      replaceChildren(
        statusLine,
        `${formatCount(all.length, "edge")}, ${formatRange(bounds.from, bounds.to)}`,
      );
      if (all.length === 0)
        return replaceChildren(
          shown,
          createEmptyState("No calls", "The site has called nobody, and nobody it, in this range."),
        );
      const drawing = drawMap(now.site, edges);
      replaceChildren(shown, drawing, createEdgeTable(edges));
      // The site stands in the middle, with those around it on both sides.
      drawing.scrollLeft = (drawing.scrollWidth - drawing.clientWidth) / 2;
    } catch (error) {
      if (!isAborted(error))
        replaceChildren(
          shown,
          createFailureState(error, () => void show(now, signal)),
        );
    }
  }
}

/** @param {string} site @param {SiteEdges} edges */
function drawMap(site, edges) {
  const { width, height, nodes, edges: placed } = layOutMap({ Graph, layout }, site, edges);
  const most = Math.max(...placed.map(({ edge }) => edge.count));
  const drawing = createSvg(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": "Service map; the table has the same figures",
    },
    createSvg("defs", {}, createArrow()),
    ...placed.map((one) => createMapEdge(one, most)),
    ...nodes.map(createMapNode),
  );
  return createElement(
    "div",
    { class: "scroll map-drawing", tabindex: 0, role: "region", "aria-label": "Map" },
    drawing,
  );
}

/** @param {import("./map-layout.js").PlacedEdge} placed @param {number} most calls of any edge */
function createMapEdge({ side, edge, from, to }, most) {
  const middle = (from.x + to.x) / 2;
  return createSvg(
    "path",
    {
      class: edge.error_count > 0 ? "map-edge failed" : "map-edge",
      d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`,
      "stroke-width": (1 + 4 * (Math.log1p(edge.count) / Math.log1p(most))).toFixed(1),
      "marker-end": "url(#arrow)",
    },
    createSvg("title", {}, `${printVisible(edge.service)} ${sides[side]}: ${describeEdge(edge)}`),
  );
}

/** @param {import("./map-layout.js").PlacedNode} node */
function createMapNode({ name, side, edge, x, y }) {
  const full = printVisible(name);
  const short = full.length > maxNameLength ? `${full.slice(0, maxNameLength - 1)}…` : full;
  const middle = nodeSize.width / 2;
  const group = createSvg(
    "g",
    {
      class: "map-node",
      "data-side": side,
      transform: `translate(${x - middle} ${y - nodeSize.height / 2})`,
    },
    createSvg("title", {}, full),
    createSvg("rect", { ...nodeSize, rx: 5 }),
    createSvg("text", { x: middle, y: edge === undefined ? 22 : 15 }, short.toWellFormed()),
  );
  if (edge !== undefined) {
    const label = `${formatNumber(edge.count)} · ${formatDuration(edge.mean)}`;
    group.append(createSvg("text", { class: "map-label", x: middle, y: 29 }, label));
  }
  return group;
}

/** The head of each edge. */
function createArrow() {
  return createSvg(
    "marker",
    {
      id: "arrow",
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 9,
      markerHeight: 9,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    },
    createSvg("path", { class: "map-arrow", d: "M0 0L8 4L0 8z" }),
  );
}

/** @param {Edge} edge */
function describeEdge({ count, error_count, mean, p_95 }) {
  const failed = error_count === 0 ? "" : `, ${formatNumber(error_count)} failed`;
  return `${formatCount(count, "call")}${failed}, mean ${formatDuration(mean)}, 95 % within ${formatDuration(p_95)}`;
}

/** @param {SiteEdges} edges */
function createEdgeTable(edges) {
  const head = (/** @type {string} */ title, shape = "figure") =>
    createElement("th", { scope: "col", class: shape }, title);
  const figure = (/** @type {string} */ text) => createElement("td", { class: "figure" }, text);
  return createTable(
    "Edges",
    [
      head("Service", ""),
      head("Side", ""),
      ...["Calls", "Failed", "Mean", "90 %", "95 %"].map((title) => head(title)),
    ],
    listEdges(edges).map(({ side, edge }) => [
      createElement("th", { scope: "row" }, renderUntrusted(edge.service)),
      createElement("td", {}, sides[side]),
      figure(formatNumber(edge.count)),
      figure(formatNumber(edge.error_count)),
      figure(formatDuration(edge.mean)),
      figure(formatDuration(edge.p_90)),
      figure(formatDuration(edge.p_95)),
    ]),
    { shape: "figures" },
  );
}
