// What the view of metrics shows of the metrics that are chosen: a chart, its series and their values.
import { resolveRange } from "../base/address.js";
import { buildPost, Failure, readServerTime, requestJson } from "../base/api.js";
import { markDeploys } from "../base/deploy-marks.js";
import { createElement, fillSelect, renderUntrusted, replaceChildren } from "../base/dom.js";
import { findUnit, formatCount, formatRange } from "../base/format.js";
import { createEmptyState } from "../base/states.js";
import { drawChart } from "./chart.js";
import { createSeriesTable, createValueTable } from "./figures.js";
import { resolutionNames, resolutionSeconds } from "./resolution.js";
import { formatLabel } from "./series-label.js";

/** @typedef {import("./metrics.js").MetricsView} MetricsView */
/** @typedef {import("../base/address.js").StateOf<"metrics">} State */
/** @typedef {import("./figures.js").Series} Series */
/** @typedef {{ readonly metric_type: "gauge" | "counter" | "measurement", readonly available_tags: readonly (readonly string[])[] }} Metric */
/** @typedef {{ readonly resolution: string, readonly series: readonly (Series & { readonly field: string })[] }} Timeseries */

/** Which fields a type has (docs/reference/api/metrics.md); the first is what is shown unasked. */
const fieldsByType = {
  gauge: ["gauge", "mean", "min", "max", "count", "p_90", "p_95"],
  counter: ["counter"],
  measurement: ["mean", "p_90", "p_95", "min", "max", "count"],
};
const aggregated = ["gauge", "counter"];
const maxSeries = 200;
const selection = `resolution
series {
  id
  name
  tags
  field
  min
  max
  data { timestamp value }
}`;

/** @param {string} site @param {string} name @param {AbortSignal} signal @returns {Promise<Metric>} */
function requestMetric(site, name, signal) {
  const path = `/api/v2/metrics/type_and_tags/${encodeURIComponent(site)}/${encodeURIComponent(name)}`;
  return requestJson({ method: "GET", path }, signal);
}

/** Undefined where the site has none of the name. @param {string} site @param {string} name @param {AbortSignal} signal */
async function findMetric(site, name, signal) {
  try {
    return await requestMetric(site, name, signal);
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return undefined;
    throw error;
  }
}

/** @param {MetricsView} view @param {State} now @param {AbortSignal} signal @param {import("../base/api.js").Site} site */
export async function showMetric(view, now, signal, site) {
  const { tags, share, statusLine, chart } = view;
  const [metric, ...others] = await Promise.all([
    requestMetric(now.site, now.name, signal),
    ...now.also.map((name) => findMetric(now.site, name, signal)),
  ]);
  const unknown = now.also.filter((_, at) => others[at] === undefined);
  const chosen = writeFields(view, now, metric);
  const keys = [...new Set(metric.available_tags.flat())].sort();
  tags.write(keys);
  const isAggregated = aggregated.includes(chosen) && now.aggregation !== "default";
  const select = [
    {
      name: now.name,
      tags: now.tags,
      field: chosen,
      ...(isAggregated ? { aggregation: now.aggregation } : {}),
    },
    ...others.flatMap((other, at) =>
      other === undefined
        ? []
        : [{ name: now.also[at], tags: {}, field: fieldsByType[other.metric_type][0] }],
    ),
  ];
  const bounds = resolveRange(now.range, readServerTime());
  const resolution = now.resolution === "AUTO" ? undefined : now.resolution;
  const common = {
    site_id: now.site,
    ...bounds,
    ...(resolution === undefined ? {} : { resolution }),
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
  view.publish.write({
    title: now.name,
    type: now.style === "line" ? "line" : "area",
    site: now.site,
    range: now.range,
    resolution,
    limit: maxSeries,
    select,
  });
  view.publish.root.hidden = false;
  /** @type {Timeseries} */
  const answer = await requestJson(request, signal);
  const { series } = answer;
  const every = resolutionNames[answer.resolution] ?? answer.resolution;
  const rest = series.length === maxSeries ? " (no more are drawn; narrow the tags for others)" : "";
  replaceChildren(
    statusLine,
    `${metric.metric_type}, ${formatCount(series.length, "series", "series")}${rest}, every ${every}, ${formatRange(bounds.from, bounds.to)}`,
    unknown.length > 0 && ". This site has no metric ",
    unknown.length > 0 && renderUntrusted(unknown.join(", ")),
  );
  if (series.length > 0) {
    const drawn = drawSeries(view, now, answer, signal);
    void markDeploys(drawn.markText, drawn.mark, { findSite: () => site, bounds, signal });
    return;
  }
  const hint =
    keys.length > 0
      ? "No series has these tags, or none has a value in this range."
      : "None has a value in this range.";
  replaceChildren(chart, createEmptyState("No values", hint));
}

/** The field that is shown, of those that the metric has. @param {MetricsView} view @param {State} now @param {Metric} metric */
function writeFields({ fields, aggregation, aggregationField }, now, { metric_type }) {
  const offered = fieldsByType[metric_type];
  const chosen = offered.includes(now.field) ? now.field : (offered[0] ?? "gauge");
  fillSelect(
    fields,
    offered.map((word) => [word, word]),
  );
  fields.value = chosen;
  aggregationField.hidden = !aggregated.includes(chosen);
  aggregation.value = now.aggregation;
  return chosen;
}

/** @param {MetricsView} view @param {State} now @param {Timeseries} answer @param {AbortSignal} signal */
function drawSeries({ change, chart }, now, { resolution, series }, signal) {
  const isNamed = now.also.length > 0;
  const drawn = createElement("div");
  const table = createSeriesTable(series, { isNamed, show: (hidden) => made.show(hidden) });
  const markText = createElement("div");
  replaceChildren(chart, drawn, markText, table.root, createValueTable(series, now.name, isNamed));
  const unit = [...new Set(series.map(({ name, field }) => findUnit(name, field)))].join(", ");
  const made = drawChart(
    drawn,
    series.map((one) => ({ label: formatLabel(one, isNamed), data: one.data })),
    {
      label: `Chart of ${[now.name, ...now.also].join(", ")}, in ${unit}; the same values stand in the tables below`,
      unit,
      signal,
      style: now.style,
      isLogarithmic: now.scale === "log",
      point: table.writeCursor,
      step: resolutionSeconds[resolution] ?? 60,
      choose: (from, to) => {
        const print = (/** @type {number} */ at) =>
          new Date(Math.round(at) * 1_000).toISOString().replace(".000Z", "Z");
        change({ range: { from: print(from), to: print(to) } });
      },
    },
  );
  return { markText, mark: made.mark };
}
