// A metric over time: which one, of which tags, which of its fields; a chart, and its tables.
import { aggregations, resolutions, resolveRange } from "./address.js";
import { buildPost, Failure, isAborted, requestJson } from "./api.js";
import { drawChart } from "./chart.js";
import { createRangePicker, createShareBar } from "./controls.js";
import {
  createElement,
  createField,
  createSelect,
  fillSelect,
  generateId,
  renderUntrusted,
  replaceChildren,
} from "./dom.js";
import { createSeriesTable, createValueTable, formatLabel } from "./figures.js";
import { findUnit, formatCount, formatRange } from "./format.js";
import { createEmptyState, createFailureState, createLoadingState } from "./states.js";

/** @typedef {import("./address.js").StateOf<"metrics">} State */
/** @typedef {{ readonly metric_type: "gauge" | "counter" | "measurement", readonly available_tags: readonly (readonly string[])[] }} Metric */
/** @typedef {import("./figures.js").Series} Series */
/**
 * The controls and the elements of the view, and what it shows; `change` shows another state.
 * @typedef {{
 *   readonly change: (part: Partial<State>) => void,
 *   readonly known: HTMLElement, readonly name: HTMLInputElement, readonly fields: HTMLSelectElement,
 *   readonly aggregation: HTMLSelectElement, readonly resolution: HTMLSelectElement,
 *   readonly range: ReturnType<typeof createRangePicker>, readonly tags: HTMLElement,
 *   readonly fieldsField: HTMLElement, readonly aggregationField: HTMLElement, readonly resolutionField: HTMLElement,
 *   readonly share: ReturnType<typeof createShareBar>, readonly told: HTMLElement, readonly chart: HTMLElement,
 *   state: State | undefined, asked: { readonly site: string, readonly names: readonly string[] } | undefined,
 * }} MetricsView
 */

/** Which fields a type has (docs/reference/api/metrics.md); the first is what is shown unasked. */
const fieldsByType = {
  gauge: ["gauge", "mean", "min", "max", "count", "p_90", "p_95"],
  counter: ["counter"],
  measurement: ["mean", "p_90", "p_95", "min", "max", "count"],
};
const aggregated = ["gauge", "counter"];
const maxSeries = 24;
/** @type {Readonly<Record<string, number>>} */
const seconds = {
  MINUTELY: 60,
  FIVE_MINUTELY: 300,
  TEN_MINUTELY: 600,
  FIFTEEN_MINUTELY: 900,
  HOURLY: 3_600,
  DAILY: 86_400,
};
/** @type {Readonly<Record<string, string>>} */
const resolutionNames = {
  AUTO: "Automatic",
  MINUTELY: "1 minute",
  FIVE_MINUTELY: "5 minutes",
  TEN_MINUTELY: "10 minutes",
  FIFTEEN_MINUTELY: "15 minutes",
  HOURLY: "1 hour",
  DAILY: "1 day",
};
const selection = `resolution
series {
  id
  tags
  min
  max
  data { timestamp value }
}`;

/** @param {import("./app.js").Shell<"metrics">} shell */
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
      change({ name: name.value, tags: {}, field: "", aggregation: "default" });
  });
  const fields = createSelect([], (value) => change({ field: value }));
  const aggregation = createSelect(
    aggregations.map((word) => [word, word === "default" ? "Default" : word]),
    (value) => change({ aggregation: aggregations.find((word) => word === value) ?? "default" }),
  );
  const resolution = createSelect(
    resolutions.map((word) => [word, resolutionNames[word] ?? word]),
    (value) => change({ resolution: resolutions.find((word) => word === value) ?? "AUTO" }),
  );
  const range = createRangePicker((value) => change({ range: value }));
  const tags = createElement("div", { class: "tag-fields", role: "group", "aria-label": "Tags" });
  const fieldsField = createField("Field", fields, "short");
  const aggregationField = createField("Aggregation", aggregation, "short");
  const resolutionField = createField("Resolution", resolution);
  const share = createShareBar();
  const told = createElement("p", { class: "told", role: "status" });
  const chart = createElement("div");
  const form = createElement(
    "form",
    { class: "toolbar" },
    createField("Metric", name, "wide"),
    known,
    fieldsField,
    aggregationField,
    resolutionField,
    range.root,
    tags,
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, told, share.root),
    chart,
  );
  /** @type {MetricsView} */
  const view = {
    ...{ change, known, name, fields, aggregation, resolution, range, tags },
    ...{ fieldsField, aggregationField, resolutionField, share, told, chart },
    ...{ state: undefined, asked: undefined },
  };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal */
    show: (now, signal) => showMetrics(view, now, signal),
    focus: () => name.focus(),
  };
}

/** @param {MetricsView} view @param {State} now @param {AbortSignal} signal */
async function showMetrics(view, now, signal) {
  const { name, resolution, range, tags, fieldsField, aggregationField, resolutionField } = view;
  const { share, told, chart } = view;
  view.state = now;
  range.write(now.range);
  resolution.value = now.resolution;
  name.value = now.name;
  for (const one of [fieldsField, resolutionField, range.root, tags]) one.hidden = now.name === "";
  if (now.name === "") aggregationField.hidden = true;
  share.root.hidden = true;
  replaceChildren(told);
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
    await showMetric(view, now, signal);
  } catch (error) {
    if (isAborted(error)) return;
    const isUnknown = error instanceof Failure && error.status === 404 && view.asked !== undefined;
    const told = isUnknown
      ? [
          createEmptyState("No such metric", `This site has none of the name ${now.name}.`),
          createChoice(view, view.asked?.names ?? []),
        ]
      : [createFailureState(error, () => void showMetrics(view, now, signal))];
    replaceChildren(chart, told);
  }
}

/**
 * The metrics of a site, asked once for as long as the site is shown.
 * @param {MetricsView} view @param {string} site @param {AbortSignal} signal
 */
async function readNames(view, site, signal) {
  if (view.asked?.site === site) return view.asked.names;
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

/** @param {MetricsView} view @param {State} now @param {AbortSignal} signal */
async function showMetric(view, now, signal) {
  const { change, fields, aggregation, aggregationField, share, told, chart } = view;
  const path = `/api/v2/metrics/type_and_tags/${encodeURIComponent(now.site)}/${encodeURIComponent(now.name)}`;
  /** @type {Metric} */
  const metric = await requestJson({ method: "GET", path }, signal);
  const offered = fieldsByType[metric.metric_type];
  const chosen = offered.includes(now.field) ? now.field : (offered[0] ?? "gauge");
  fillSelect(
    fields,
    offered.map((word) => [word, word]),
  );
  fields.value = chosen;
  const isAggregated = aggregated.includes(chosen);
  aggregationField.hidden = !isAggregated;
  aggregation.value = now.aggregation;
  const keys = [...new Set(metric.available_tags.flat())].sort();
  showTags(view, keys, now.tags);

  const bounds = resolveRange(now.range, Date.now());
  const select = [
    {
      name: now.name,
      tags: now.tags,
      field: chosen,
      ...(isAggregated && now.aggregation !== "default" ? { aggregation: now.aggregation } : {}),
    },
  ];
  const common = {
    site_id: now.site,
    ...bounds,
    ...(now.resolution === "AUTO" ? {} : { resolution: now.resolution }),
    limit: maxSeries,
  };
  const request = buildPost("metrics/timeseries", { ...common, select });
  share.write(request, {
    field: "metrics_timeseries",
    arguments: common,
    variables: { select: { type: "[TimeseriesSelectorInput!]!", value: select } },
    selection,
  });
  share.root.hidden = false;
  /** @type {{ readonly resolution: string, readonly series: readonly Series[] }} */
  const answer = await requestJson(request, signal);
  const { series } = answer;
  const every = resolutionNames[answer.resolution] ?? answer.resolution;
  replaceChildren(
    told,
    `${metric.metric_type}, ${formatCount(series.length, "series", "series")}${series.length === maxSeries ? " (no more are drawn; narrow the tags for others)" : ""}, every ${every}, ${formatRange(bounds.from, bounds.to)}`,
  );
  if (series.length === 0) {
    const hint =
      keys.length > 0
        ? "No series has these tags, or none has a value in this range."
        : "None has a value in this range.";
    replaceChildren(chart, createEmptyState("No values", hint));
    return;
  }
  const drawn = createElement("div");
  const table = createSeriesTable(series, now.name, (at, isShown) => show(at, isShown));
  replaceChildren(chart, drawn, table.root, createValueTable(series, now.name));
  const unit = findUnit(now.name, chosen);
  const show = drawChart(
    drawn,
    series.map((one) => ({ label: formatLabel(one, now.name), data: one.data })),
    {
      label: `Chart of ${now.name}, ${chosen}, in ${unit}; the same values stand in the tables below`,
      unit,
      point: table.writeCursor,
      step: seconds[answer.resolution] ?? 60,
      signal,
      choose: (from, to) => {
        const print = (/** @type {number} */ at) =>
          new Date(Math.round(at) * 1_000).toISOString().replace(".000Z", "Z");
        change({ range: { from: print(from), to: print(to) } });
      },
    },
  );
}

/** @param {MetricsView} view @param {readonly string[]} keys @param {Readonly<Record<string, string>>} given */
function showTags(view, keys, given) {
  const { change, tags } = view;
  const focused = document.activeElement?.getAttribute("data-tag");
  replaceChildren(
    tags,
    keys.map((key) => {
      // A label may be named as what every object has.
      const pattern = Object.hasOwn(given, key) ? (given[key] ?? "") : "";
      const input = createElement("input", {
        type: "text",
        autocomplete: "off",
        spellcheck: "false",
        placeholder: "all together",
        "data-tag": key,
        value: pattern.toWellFormed(),
      });
      const write = (/** @type {string} */ value) => {
        const { [key]: _, ...others } = view.state?.tags ?? {};
        change({ tags: value === "" ? others : { ...others, [key]: value } });
      };
      input.addEventListener("change", () => write(input.value));
      const isSplit = pattern === "*";
      const split = createElement(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(isSplit),
          title: "One series for each value",
        },
        "each",
        createElement("span", { class: "unseen" }, ` ${key}`),
      );
      split.addEventListener("click", () => write(isSplit ? "" : "*"));
      const made = createField(key, input);
      made.append(createElement("div", { class: "joined" }, input, split));
      if (focused === key) queueMicrotask(() => input.focus());
      return made;
    }),
  );
}
