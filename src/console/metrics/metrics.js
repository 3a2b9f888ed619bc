// A metric over time: which one, of which tags, which of its fields; a chart, and its tables.
import { aggregations, chartStyles, resolutions } from "../base/address.js";
import { Failure, isAborted, requestJson } from "../base/api.js";
import { createRangePicker, createShareBar } from "../base/controls.js";
import {
  createButton,
  createElement,
  createField,
  createSelect,
  generateId,
  renderUntrusted,
  replaceChildren,
} from "../base/dom.js";
import { formatCount } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { showMetric } from "./metric-chart.js";
import { createPublishMenu } from "./publish-menu.js";
import { resolutionNames } from "./resolution.js";
import { createTagFields } from "./tag-fields.js";

/** @typedef {import("../base/address.js").StateOf<"metrics">} State */
/**
 * The controls and the elements of the view, and what it shows; `change` shows another state.
 * @typedef {{
 *   readonly change: (part: Partial<State>) => void,
 *   readonly known: HTMLElement, readonly name: HTMLInputElement, readonly fields: HTMLSelectElement,
 *   readonly aggregation: HTMLSelectElement, readonly resolution: HTMLSelectElement,
 *   readonly range: ReturnType<typeof createRangePicker>, readonly tags: ReturnType<typeof createTagFields>,
 *   readonly fieldsField: HTMLElement, readonly aggregationField: HTMLElement, readonly resolutionField: HTMLElement,
 *   readonly style: HTMLSelectElement, readonly scale: HTMLSelectElement, readonly more: HTMLInputElement,
 *   readonly others: HTMLElement, readonly drawn: HTMLElement, readonly publish: ReturnType<typeof createPublishMenu>,
 *   readonly share: ReturnType<typeof createShareBar>, readonly statusLine: HTMLElement, readonly chart: HTMLElement,
 *   state: State | undefined, asked: { readonly site: string, readonly names: readonly string[] } | undefined,
 * }} MetricsView
 */

/** @type {Readonly<Record<string, string>>} */
const styleNames = { line: "Lines", area: "Areas", stacked: "Stacked" };
/** @param {import("../views.js").Shell<"metrics">} shell */
export function createMetricsView({ go }) {
  const change = (/** @type {Partial<State>} */ part) => {
    if (view.state !== undefined) go({ ...view.state, ...part });
  };
  const known = createElement("datalist", { id: generateId("names") });
  const name = createElement("input", {
    type: "text",
    list: known.id,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Choose a metric",
  });
  name.addEventListener("change", () => {
    if (name.value !== view.state?.name)
      change({ name: name.value, tags: {}, field: "", aggregation: "default", also: [] });
  });
  const measure = createMeasureControls(change);
  const range = createRangePicker((value) => change({ range: value }));
  const tags = createTagFields(
    () => view.state?.tags ?? {},
    (next) => change({ tags: next }),
  );
  const drawing = createDrawingControls(known.id, change, () => view.state?.also ?? []);
  const share = createShareBar();
  const publish = createPublishMenu();
  const statusLine = createElement("p", { class: "status-line", role: "status" });
  const chart = createElement("div");
  const form = createElement(
    "form",
    { class: "toolbar" },
    createField("Metric", name, "wide"),
    known,
    measure.fieldsField,
    measure.aggregationField,
    measure.resolutionField,
    range.root,
    tags.root,
    drawing.drawn,
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  const root = createElement(
    "div",
    {},
    form,
    createElement(
      "div",
      { class: "bar" },
      statusLine,
      createElement("div", { class: "tools" }, publish.root, share.root),
    ),
    chart,
  );
  /** @type {MetricsView} */
  const view = {
    change,
    known,
    name,
    ...measure,
    range,
    tags,
    ...drawing,
    share,
    publish,
    statusLine,
    chart,
    state: undefined,
    asked: undefined,
  };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal */
    show: (
      /** @type {State} */ now,
      /** @type {AbortSignal} */ signal,
      /** @type {import("../base/api.js").Site} */ site,
    ) => showMetrics(view, now, signal, site),
    focus: () => name.focus(),
  };
}

/** Which measure of the metric is drawn, and of how much time each value is. @param {(part: Partial<State>) => void} change */
function createMeasureControls(change) {
  const fields = createSelect([], (value) => change({ field: value }));
  const aggregation = createSelect(
    aggregations.map((word) => [word, word === "default" ? "Default" : word]),
    (value) => change({ aggregation: aggregations.find((word) => word === value) ?? "default" }),
  );
  const resolution = createSelect(
    resolutions.map((word) => [word, resolutionNames[word] ?? word]),
    (value) => change({ resolution: resolutions.find((word) => word === value) ?? "AUTO" }),
  );
  return {
    fields,
    aggregation,
    resolution,
    fieldsField: createField("Field", fields, "short"),
    aggregationField: createField("Aggregation", aggregation, "short"),
    resolutionField: createField("Resolution", resolution),
  };
}

/**
 * How the chart is drawn, and with which other metrics.
 * @param {string} names id of the list of metrics
 * @param {(part: Partial<State>) => void} change
 * @param {() => readonly string[]} readAlso
 */
function createDrawingControls(names, change, readAlso) {
  const style = createSelect(
    chartStyles.map((word) => [word, styleNames[word] ?? word]),
    (value) => change({ style: chartStyles.find((word) => word === value) ?? "line" }),
  );
  const scale = createSelect(
    [
      ["linear", "Linear"],
      ["log", "Logarithmic"],
    ],
    (value) => change({ scale: value === "log" ? "log" : "linear" }),
  );
  const more = createElement("input", {
    type: "text",
    list: names,
    autocomplete: "off",
    placeholder: "Add a metric",
  });
  more.addEventListener("change", () => {
    const also = [...readAlso(), more.value];
    if (more.value !== "") change({ also: [...new Set(also)] });
  });
  const others = createElement("div", { class: "chips", role: "group", "aria-label": "Further metrics" });
  const drawn = createElement(
    "div",
    { class: "tag-fields" },
    createField("Drawn as", style, "short"),
    createField("Scale", scale, "short"),
    createField("With", more, "medium"),
    others,
  );
  return { style, scale, more, others, drawn };
}

/** @param {MetricsView} view @param {State} now @param {AbortSignal} signal @param {import("../base/api.js").Site} site */
async function showMetrics(view, now, signal, site) {
  const { name, resolution, range, tags, fieldsField, aggregationField, resolutionField } = view;
  const { share, statusLine, chart } = view;
  view.state = now;
  range.write(now.range);
  resolution.value = now.resolution;
  name.value = now.name;
  writeDrawing(view, now);
  for (const one of [fieldsField, resolutionField, range.root, tags.root, view.drawn])
    one.hidden = now.name === "";
  if (now.name === "") aggregationField.hidden = true;
  share.root.hidden = true;
  view.publish.root.hidden = true;
  replaceChildren(statusLine);
  replaceChildren(chart, createLoadingState("metrics"));
  try {
    const names = await readNames(view, now.site, signal);
    if (names.length === 0) {
      replaceChildren(chart, createEmptyState("No metrics", "This site has none."));
      return;
    }
    if (now.name === "") {
      replaceChildren(chart, createChoice(view, names));
      return;
    }
    await showMetric(view, now, signal, site);
  } catch (error) {
    if (isAborted(error)) return;
    // A 404 before the names are known says that there is no such site.
    const names = view.asked?.names;
    const isUnknown = error instanceof Failure && error.status === 404 && names !== undefined;
    const shown = isUnknown
      ? [
          createEmptyState("No such metric", `This site has none of the name ${now.name}.`),
          createChoice(view, names),
        ]
      : [createFailureState(error, () => void showMetrics(view, now, signal, site))];
    replaceChildren(chart, shown);
  }
}

/** How the chart is drawn, and what stands in it beside the metric. @param {MetricsView} view @param {State} now */
function writeDrawing({ style, scale, more, others, change }, now) {
  style.value = now.style;
  scale.value = now.scale;
  more.value = "";
  replaceChildren(
    others,
    now.also.map((name) =>
      createButton(
        `Without ${name}`,
        () => change({ also: now.also.filter((one) => one !== name) }),
        { class: "chip" },
        renderUntrusted(name),
        " ✕",
      ),
    ),
  );
}

/**
 * The metrics of a site, asked once for as long as the site is shown.
 * @param {MetricsView} view @param {string} site @param {AbortSignal} signal
 */
async function readNames(view, site, signal) {
  if (view.asked?.site === site) return view.asked.names;
  // Names of another site are none of this one's, also if these cannot be read.
  view.asked = undefined;
  replaceChildren(view.known);
  const path = `/api/v2/metrics/names/${encodeURIComponent(site)}`;
  const names = /** @type {readonly string[]} */ (await requestJson({ method: "GET", path }, signal));
  view.asked = { site, names };
  replaceChildren(
    view.known,
    names.map((one) => createElement("option", { value: one.toWellFormed() })),
  );
  return names;
}

/** The names to choose from, where none is chosen. @param {MetricsView} view @param {readonly string[]} names */
function createChoice({ change }, names) {
  return createElement(
    "nav",
    { class: "names", "aria-label": "Metrics" },
    createElement("h2", {}, formatCount(names.length, "metric")),
    createElement(
      "ul",
      {},
      names.map((one) => {
        const link = createElement("button", { type: "button", class: "link" }, renderUntrusted(one));
        link.addEventListener("click", () => change({ name: one }));
        return createElement("li", {}, link);
      }),
    ),
  );
}
