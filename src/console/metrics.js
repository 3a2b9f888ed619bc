// A metric over time: which one, of which tags, which of its fields; a chart, and its tables.
import { aggregations, boundsOf, resolutions } from "./address.js";
import { ask, Failure, isAborted, post } from "./api.js";
import { colours, drawChart } from "./chart.js";
import { rangePicker, shareBar } from "./controls.js";
import { element, field, fillSelect, foreign, replace, select, table, uniqueId } from "./dom.js";
import { counted, number, stretch } from "./format.js";
import { empty, failure, loading } from "./states.js";

/** @typedef {import("./address.js").StateOf<"metrics">} State */
/** @typedef {{ readonly metric_type: "gauge" | "counter" | "measurement", readonly available_tags: readonly (readonly string[])[] }} Metric */
/**
 * @typedef {{
 *   readonly id: string, readonly tags: Readonly<Record<string, string>>, readonly min: number | null,
 *   readonly max: number | null, readonly data: readonly { readonly timestamp: string, readonly value: number }[],
 * }} Series
 */

/** Which fields a type has (README, "Metrics"); the first is what is shown unasked. */
const fieldsOf = {
  gauge: ["gauge", "mean", "min", "max", "count", "p_90", "p_95"],
  counter: ["counter"],
  measurement: ["mean", "p_90", "p_95", "min", "max", "count"],
};
const aggregated = ["gauge", "counter"];
const mostSeries = 24;
const mostRows = 500;
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
export function metricsView({ go }) {
  /** @type {State | undefined} */
  let state;
  const change = (/** @type {Partial<State>} */ part) => {
    if (state !== undefined) go({ ...state, ...part });
  };
  const known = element("datalist", { id: uniqueId("names") });
  const name = element("input", {
    type: "text",
    list: known.id,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Choose a metric",
  });
  name.addEventListener("change", () => {
    if (name.value !== state?.name) change({ name: name.value, tags: {}, field: "", aggregation: "default" });
  });
  const fields = select([], (value) => change({ field: value }));
  const aggregation = select(
    aggregations.map((word) => [word, word === "default" ? "Default" : word]),
    (value) => change({ aggregation: aggregations.find((word) => word === value) ?? "default" }),
  );
  const resolution = select(
    resolutions.map((word) => [word, resolutionNames[word] ?? word]),
    (value) => change({ resolution: resolutions.find((word) => word === value) ?? "AUTO" }),
  );
  const range = rangePicker((value) => change({ range: value }));
  const tags = element("div", { class: "tag-fields", role: "group", "aria-label": "Tags" });
  const fieldsField = field("Field", fields, "short");
  const aggregationField = field("Aggregation", aggregation, "short");
  const resolutionField = field("Resolution", resolution);
  const share = shareBar();
  const told = element("p", { class: "told", role: "status" });
  const chart = element("div");
  const form = element(
    "form",
    { class: "toolbar" },
    field("Metric", name, "wide"),
    known,
    fieldsField,
    aggregationField,
    resolutionField,
    range.root,
    tags,
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  const root = element("div", {}, form, element("div", { class: "bar" }, told, share.root), chart);
  /** What is known of a site: asked once for as long as the site is shown. @type {{ site: string, names: readonly string[] } | undefined} */
  let asked;

  /** @param {State} now @param {AbortSignal} signal */
  async function show(now, signal) {
    state = now;
    range.write(now.range);
    resolution.value = now.resolution;
    name.value = now.name;
    for (const one of [fieldsField, resolutionField, range.root, tags]) one.hidden = now.name === "";
    if (now.name === "") aggregationField.hidden = true;
    share.root.hidden = true;
    replace(told);
    replace(chart, loading("metrics"));
    try {
      if (asked?.site !== now.site) {
        const path = `/api/v2/metrics/names/${encodeURIComponent(now.site)}`;
        const names = /** @type {readonly string[]} */ (await ask({ method: "GET", path }, signal));
        asked = { site: now.site, names };
        replace(
          known,
          names.map((one) => element("option", { value: one.toWellFormed() })),
        );
      }
      if (asked.names.length === 0) {
        replace(chart, empty("No metrics", "This site has none."));
        return;
      }
      if (now.name === "") {
        replace(chart, choice(asked.names));
        return;
      }
      await showMetric(now, signal);
    } catch (error) {
      if (isAborted(error)) return;
      const isUnknown = error instanceof Failure && error.status === 404 && asked !== undefined;
      const told = isUnknown
        ? [empty("No such metric", `This site has none of the name ${now.name}.`), choice(asked?.names ?? [])]
        : [failure(error, () => void show(now, signal))];
      replace(chart, told);
    }
  }

  /** The names to choose from, where none is chosen. @param {readonly string[]} names */
  function choice(names) {
    return element(
      "nav",
      { class: "names", "aria-label": "Metrics" },
      element("h2", {}, counted(names.length, "metric")),
      element(
        "ul",
        {},
        names.map((one) => {
          const link = element("button", { type: "button", class: "link" }, foreign(one));
          link.addEventListener("click", () => change({ name: one }));
          return element("li", {}, link);
        }),
      ),
    );
  }

  /** @param {State} now @param {AbortSignal} signal */
  async function showMetric(now, signal) {
    const path = `/api/v2/metrics/type_and_tags/${encodeURIComponent(now.site)}/${encodeURIComponent(now.name)}`;
    /** @type {Metric} */
    const metric = await ask({ method: "GET", path }, signal);
    const offered = fieldsOf[metric.metric_type];
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
    showTags(keys, now.tags);

    const bounds = boundsOf(now.range, Date.now());
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
      limit: mostSeries,
    };
    const request = post("metrics/timeseries", { ...common, select });
    share.write(request, {
      field: "metrics_timeseries",
      arguments: common,
      variables: { select: { type: "[TimeseriesSelectorInput!]!", value: select } },
      selection,
    });
    share.root.hidden = false;
    /** @type {{ readonly resolution: string, readonly series: readonly Series[] }} */
    const answer = await ask(request, signal);
    const { series } = answer;
    const every = resolutionNames[answer.resolution] ?? answer.resolution;
    replace(
      told,
      `${metric.metric_type}, ${counted(series.length, "series", "series")}${series.length === mostSeries ? " (no more are drawn; narrow the tags for others)" : ""}, every ${every}, ${stretch(bounds.from, bounds.to)}`,
    );
    if (series.length === 0) {
      const hint =
        keys.length > 0
          ? "No series has these tags, or none has a value in this range."
          : "None has a value in this range.";
      replace(chart, empty("No values", hint));
      return;
    }
    const drawn = element("div");
    replace(chart, drawn, legend(series, now.name), values(series, now.name));
    drawChart(
      drawn,
      series.map((one) => ({ label: labelOf(one, now.name), data: one.data })),
      {
        label: `Chart of ${now.name}, ${chosen}; the same values stand in the tables below`,
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

  /** @param {readonly string[]} keys @param {Readonly<Record<string, string>>} given */
  function showTags(keys, given) {
    const focused = document.activeElement?.getAttribute("data-tag");
    replace(
      tags,
      keys.map((key) => {
        // A label may be named as what every object has.
        const pattern = Object.hasOwn(given, key) ? (given[key] ?? "") : "";
        const input = element("input", {
          type: "text",
          autocomplete: "off",
          spellcheck: "false",
          placeholder: "all together",
          "data-tag": key,
          value: pattern.toWellFormed(),
        });
        const write = (/** @type {string} */ value) => {
          const { [key]: _, ...others } = state?.tags ?? {};
          change({ tags: value === "" ? others : { ...others, [key]: value } });
        };
        input.addEventListener("change", () => write(input.value));
        const isSplit = pattern === "*";
        const split = element(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-pressed": String(isSplit),
            title: "One series for each value",
          },
          "each",
          element("span", { class: "unseen" }, ` ${key}`),
        );
        split.addEventListener("click", () => write(isSplit ? "" : "*"));
        const made = field(key, input);
        made.append(element("div", { class: "joined" }, input, split));
        if (focused === key) queueMicrotask(() => input.focus());
        return made;
      }),
    );
  }

  return { root, show, focus: () => name.focus() };
}

/** @param {Series} series @param {string} name */
function labelOf({ tags }, name) {
  const pairs = Object.entries(tags).map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0 ? name : pairs.join(", ");
}

/** @param {readonly Series[]} series @param {string} name */
function legend(series, name) {
  const rows = series.map((one, at) => {
    const swatch = { class: at >= colours ? "swatch dashed" : "swatch", "data-series": at % colours };
    const named = element("div", { class: "series" }, element("span", swatch), foreign(labelOf(one, name)));
    const row = element("th", { scope: "row" }, named);
    return [row, figure(one.min), figure(one.max), figure(one.data.at(-1)?.value)];
  });
  const heads = ["Min", "Max", "Last"].map((title) => figureHead(title));
  return table("Series", [element("th", { scope: "col" }, "Series"), ...heads], rows);
}

/** @param {string | Element} title */
function figureHead(title) {
  return element("th", { scope: "col", class: "figure" }, title);
}

/** @param {number | null | undefined} value */
function figure(value) {
  return element("td", { class: "figure" }, value == null ? "–" : number(value));
}

/** Every value, built when it is asked for. @param {readonly Series[]} series @param {string} name */
function values(series, name) {
  const details = element("details", { class: "values" }, element("summary", {}, "Values as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const times = [...new Set(series.flatMap(({ data }) => data.map(({ timestamp }) => timestamp)))]
      .sort()
      .reverse();
    const byTime = series.map(({ data }) => new Map(data.map(({ timestamp, value }) => [timestamp, value])));
    const heads = series.map((one) => figureHead(foreign(labelOf(one, name))));
    const rows = times.slice(0, mostRows).map((time) => {
      const row = element("th", { scope: "row" }, time.slice(0, 16).replace("T", " "));
      return [row, ...byTime.map((points) => figure(points.get(time)))];
    });
    const all = [element("th", { scope: "col" }, "Time (UTC)"), ...heads];
    const made = table(`Values of ${name}`, all, rows, { label: "Values" });
    if (times.length > mostRows)
      made.append(element("p", { class: "muted" }, `The newest ${mostRows} of ${times.length}.`));
    details.append(made);
  });
  return details;
}
