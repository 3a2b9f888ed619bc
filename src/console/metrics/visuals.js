// A published visual, as whoever knows its id sees it.
import { isAborted, requestJson } from "../base/api.js";
import { createSearchForm } from "../base/controls.js";
import { markDeploys } from "../base/deploy-marks.js";
import { createElement, createField, createTable, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatNumber, formatRange } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { drawChart } from "./chart.js";
import { createSeriesTable, createValueTable } from "./figures.js";
import { resolutionSeconds } from "./resolution.js";
import { formatLabel, nameSeries } from "./series-label.js";

/** @typedef {import("../base/address.js").StateOf<"visuals">} State */
/** @typedef {import("./series-label.js").VisualSeries} VisualSeries */
/**
 * @typedef {{
 *   readonly id: string, readonly title: string, readonly description: string | null, readonly type: string,
 *   readonly resolution: string | null, readonly from: string, readonly to: string,
 *   readonly series?: readonly VisualSeries[],
 *   readonly rows?: readonly { readonly group: Readonly<Record<string, string>>, readonly data: Readonly<Record<string, number>> }[],
 * }} Visual
 */

/** @param {import("../views.js").Shell<"visuals">} shell */
export function createVisualsView({ go }) {
  /** @type {State | undefined} */
  let state;
  const id = createElement("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "9Ubquyg0qqEEfpH6Xefmrg",
  });
  const shown = createElement("div", { class: "section" });
  const form = createSearchForm(
    () => state !== undefined && go({ ...state, id: id.value.trim() }),
    createField("Id of a published visual", id, "wide"),
  );
  return { root: createElement("div", {}, form, shown), show, focus: () => id.focus() };

  /** @param {State} now @param {AbortSignal} signal */
  async function show(now, signal) {
    state = now;
    id.value = now.id;
    if (now.id === "") {
      const advice =
        "A visual is published as a file on the server. Metrics write such a file: see “Publish”.";
      return replaceChildren(shown, createEmptyState("No visual is chosen", advice));
    }
    const path = `/api/v2/saved_visuals/${encodeURIComponent(now.id)}`;
    replaceChildren(shown, createLoadingState("the visual"));
    try {
      /** @type {Visual} */
      const visual = await requestJson({ method: "GET", path }, signal);
      replaceChildren(
        shown,
        createElement("h2", {}, renderUntrusted(visual.title)),
        visual.description !== null &&
          visual.description !== "" &&
          createElement("p", {}, renderUntrusted(visual.description)),
        createElement(
          "p",
          { class: "muted" },
          `${formatRange(visual.from, visual.to)} · `,
          createElement("a", { href: path }, "JSON"),
          " · ",
          createElement("a", { href: `${path}/csv` }, "CSV"),
        ),
      );
      if (visual.series !== undefined) showSeries(shown, visual, visual.series, signal);
      if (visual.rows !== undefined) shown.append(createRowTable(visual.title, visual.rows));
    } catch (error) {
      if (!isAborted(error))
        replaceChildren(
          shown,
          createFailureState(error, () => void show(now, signal)),
        );
    }
  }
}

/** @param {HTMLElement} root @param {Visual} visual @param {readonly VisualSeries[]} found @param {AbortSignal} signal */
function showSeries(root, visual, found, signal) {
  if (found.length === 0)
    return root.append(createEmptyState("No values", "None has a value in this range."));
  const { series, isNamed } = nameSeries(found);
  const drawn = createElement("div");
  const markText = createElement("div");
  const table = createSeriesTable(series, { isNamed, show: (shown) => chart.show(shown) });
  root.append(drawn, markText, table.root, createValueTable(series, visual.title, isNamed));
  const chart = drawChart(
    drawn,
    series.map((one) => ({ label: formatLabel(one, isNamed), data: one.data })),
    {
      label: `Chart of ${visual.title}`,
      unit: "",
      signal,
      point: table.writeCursor,
      choose: () => {},
      step: resolutionSeconds[visual.resolution ?? ""] ?? 60,
      style: visual.type === "area" ? "area" : "line",
    },
  );
  const findSite = () => requestVisualSite(visual.id, signal);
  void markDeploys(markText, chart.mark, { findSite, bounds: visual, signal });
}

/** What is published does not tell whose it is. @param {string} id @param {AbortSignal} signal @returns {Promise<import("../base/api.js").Site>} */
function requestVisualSite(id, signal) {
  return requestJson({ method: "GET", path: `/console/visuals/${encodeURIComponent(id)}/site` }, signal);
}

/** @param {string} title @param {NonNullable<Visual["rows"]>} rows */
function createRowTable(title, rows) {
  const groups = [...new Set(rows.flatMap(({ group }) => Object.keys(group)))];
  const values = [...new Set(rows.flatMap(({ data }) => Object.keys(data)))];
  const head = (/** @type {string} */ name, /** @type {string} */ shape) =>
    createElement("th", { scope: "col", class: shape }, renderUntrusted(name));
  return createTable(
    title,
    [...groups.map((name) => head(name, "")), ...values.map((name) => head(name, "figure"))],
    rows.map(({ group, data }) => [
      ...groups.map((name) => createElement("td", {}, renderUntrusted(group[name] ?? ""))),
      ...values.map((name) => {
        const value = data[name];
        return createElement("td", { class: "figure" }, value === undefined ? "–" : formatNumber(value));
      }),
    ]),
  );
}
