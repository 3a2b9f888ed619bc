// Series over time. The chart is for the eye; the tables below it have the same values, for everyone.
import { placeNames } from "../base/deploy-marks.js";
import { createElement, replaceChildren } from "../base/dom.js";
import { formatMinute, formatNumber, formatZoneName } from "../base/format.js";
import { dropNonPositive, stackValues } from "./stack.js";
import uPlot from "./uplot.js";

/** @typedef {{ readonly label: string, readonly data: readonly { readonly timestamp: string, readonly value: number }[] }} Series */

// Before the page's own, which go beyond it. A plot measures its parts where these rules lay them, so none is drawn before.
const sheet = createElement("link", { rel: "stylesheet", href: "/console/metrics/uplot.css" });
await new Promise((resolve) => {
  sheet.addEventListener("load", resolve);
  sheet.addEventListener("error", resolve);
  document.querySelector("link[rel=stylesheet]")?.before(sheet);
});

export const colourCount = 8;
const height = 300;

/**
 * The series on one time axis, missing values as null. uPlot joins no points over a null.
 * @param {readonly Series[]} series
 * @param {number} step seconds between two buckets; a bucket that no series has is a gap all the same
 * @returns {{ readonly times: readonly number[], readonly values: readonly (readonly (number | null)[])[] }} times in seconds
 */
function alignSeries(series, step) {
  const byTime = series.map(
    ({ data }) => new Map(data.map(({ timestamp, value }) => [Date.parse(timestamp) / 1_000, value])),
  );
  const known = byTime.flatMap((points) => [...points.keys()]);
  const first = known.reduce((least, time) => Math.min(least, time), Number.POSITIVE_INFINITY);
  const last = known.reduce((most, time) => Math.max(most, time), Number.NEGATIVE_INFINITY);
  /** @type {number[]} */
  const times = [];
  for (let time = first; time <= last; time += step) times.push(time);
  return { times, values: byTime.map((points) => times.map((time) => points.get(time) ?? null)) };
}

/** @typedef {import("../base/deploy-marks.js").DeployMark} DeployMark */
/**
 * @typedef {{
 *   readonly canvas: HTMLElement, readonly readout: HTMLElement, readonly series: readonly Series[],
 *   readonly times: readonly number[], readonly values: readonly (readonly (number | null)[])[],
 *   readonly options: ChartOptions, hidden: ReadonlySet<number>, marks: readonly DeployMark[], plot: uPlot | undefined,
 * }} Chart
 */
/**
 * `choose` gets a stretch that was drawn with the mouse, in seconds; `point` the values under the cursor, one a series,
 * and none where there is no cursor. `unit` is written at the axis. In a stack each series stands on those before it.
 * @typedef {{
 *   readonly label: string, readonly unit: string, readonly step: number, readonly signal: AbortSignal,
 *   readonly style?: "line" | "area" | "stacked", readonly isLogarithmic?: boolean,
 *   readonly choose: (from: number, to: number) => void,
 *   readonly point: (values: readonly (number | null)[] | undefined) => void,
 * }} ChartOptions
 */

/**
 * Draws into `root`, and again when its width or the theme changes, until the signal aborts.
 * @param {HTMLElement} root
 * @param {readonly Series[]} series
 * @param {ChartOptions} options
 * @returns {{ readonly show: (hidden: ReadonlySet<number>) => void, readonly mark: import("../base/deploy-marks.js").DrawMarks }}
 *   `show` hides these series and shows all others
 */
export function drawChart(root, series, options) {
  const { label, step, signal } = options;
  const canvas = createElement("div", { class: "chart", role: "img", "aria-label": label });
  const readout = createElement("p", { class: "chart-readout", "aria-hidden": "true" });
  /** @type {Chart} */
  const chart = {
    canvas,
    readout,
    series,
    ...alignSeries(series, step),
    options,
    hidden: new Set(),
    marks: [],
    plot: undefined,
  };
  replaceChildren(root, canvas, readout);
  const draw = () => drawPlot(chart);

  draw();
  const sizes = new ResizeObserver(() => {
    if (chart.plot !== undefined && chart.plot.width !== canvas.clientWidth)
      chart.plot.setSize({ width: canvas.clientWidth, height });
  });
  sizes.observe(canvas);
  const themes = new MutationObserver(draw);
  themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw, { signal });
  signal.addEventListener(
    "abort",
    () => {
      sizes.disconnect();
      themes.disconnect();
      chart.plot?.destroy();
      chart.plot = undefined;
    },
    { once: true },
  );
  return {
    show: (hidden) => {
      chart.hidden = hidden;
      draw();
    },
    mark: (marks) => {
      chart.marks = marks;
      chart.plot?.redraw(false);
    },
  };
}

/** Draws the plot anew, in the colours and the width of now. @param {Chart} chart */
function drawPlot(chart) {
  const { canvas, times, values, options, hidden } = chart;
  const { style = "line", isLogarithmic = false } = options;
  const stacked = style === "stacked" ? stackValues(values, hidden) : values;
  const drawn = isLogarithmic ? stacked.map(dropNonPositive) : stacked;
  const lines = drawn.map((one, at) => ({
    ...buildLine(canvas, one, at, style !== "line" && !isLogarithmic),
    show: !hidden.has(at),
  }));
  chart.plot?.destroy();
  chart.plot = new uPlot(
    {
      width: canvas.clientWidth,
      height,
      tzDate: (seconds) => {
        const time = new Date(seconds * 1_000);
        return formatZoneName() === "UTC" ? uPlot.tzDate(time, "Etc/UTC") : time;
      },
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false, setScale: false } },
      // In a logarithm the scale is chosen by powers of ten.
      scales: { y: isLogarithmic ? { distr: 3 } : { range: (_, low, high) => chooseScale(low, high) } },
      axes: buildAxes(canvas, options.unit),
      series: [{}, ...lines],
      bands: style === "stacked" && !isLogarithmic ? listBands(values.length, hidden) : [],
      hooks: {
        draw: [(self) => drawMarks(self, chart)],
        setCursor: [({ cursor: { idx } }) => writeReadout(chart, idx)],
        setSelect: [(self) => chooseSelected(chart, self)],
      },
    },
    [[...times], ...drawn.map((one) => [...one])],
    canvas,
  );
}

/**
 * The colour that a custom property has in the theme of now. Only a colour that is in use is told as one: the custom
 * properties hold both tones.
 * @param {HTMLElement} canvas @param {string} name
 */
function readColour(canvas, name) {
  canvas.style.color = `var(${name})`;
  return getComputedStyle(canvas).color;
}

/** @param {HTMLElement} canvas @param {string} unit @returns {uPlot.Axis[]} */
function buildAxes(canvas, unit) {
  const axis = {
    stroke: readColour(canvas, "--muted"),
    grid: { stroke: readColour(canvas, "--line"), width: 1 },
    ticks: { stroke: readColour(canvas, "--line"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
    labelFont: "11px system-ui, sans-serif",
    labelSize: 18,
  };
  return [
    { ...axis, label: `Time (${formatZoneName()})`, values: timeLabels },
    {
      ...axis,
      label: unit,
      size: (_, labels) => measureWidth(labels ?? []),
      // Of a logarithm not every tick has a label.
      values: (_, ticks) =>
        ticks.map((/** @type {number | null} */ tick) => (tick === null ? "" : formatNumber(tick))),
    },
  ];
}

/** Between each shown series and the one below it; uPlot has the time as its first. @param {number} count @param {ReadonlySet<number>} hidden @returns {uPlot.Band[]} */
function listBands(count, hidden) {
  const shown = Array.from({ length: count }, (_, at) => at).filter((at) => !hidden.has(at));
  return shown.slice(1).map((at, before) => ({ series: [at + 1, (shown[before] ?? 0) + 1] }));
}

/** @param {uPlot} plot @param {Chart} chart */
function drawMarks({ ctx, bbox, valToPos }, { canvas, marks }) {
  if (marks.length === 0) return;
  ctx.save();
  ctx.strokeStyle = readColour(canvas, "--muted");
  const [ink, ground] = [readColour(canvas, "--ink"), readColour(canvas, "--surface")];
  ctx.setLineDash([4, 4]);
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  const [room, end] = [3 * devicePixelRatio, bbox.left + bbox.width];
  const shown = marks
    .map(({ time, label }) => ({ label, x: Math.round(valToPos(time / 1_000, "x", true)) }))
    .filter(({ x }) => x >= bbox.left && x <= end)
    .map(({ label, x }) => ({ label, x, width: ctx.measureText(label).width + 2 * room }));
  for (const { x } of shown) {
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  for (const [at, left] of placeNames(shown, end).entries()) {
    const name = shown[at];
    if (name === undefined || left === undefined) continue;
    // Neither lines of the chart nor other marks run through it.
    ctx.fillStyle = ground;
    ctx.fillRect(left, bbox.top, name.width, 14 * devicePixelRatio);
    ctx.fillStyle = ink;
    ctx.fillText(name.label, left + room, bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}

/** @param {HTMLElement} canvas @param {readonly (number | null)[]} values @param {number} at @param {boolean} isFilled @returns {uPlot.Series} */
function buildLine(canvas, values, at, isFilled) {
  const stroke = readColour(canvas, `--series-${at % colourCount}`);
  return {
    stroke,
    ...(isFilled ? { fill: stroke.replace(/^rgb\((.*)\)$/, "rgb($1 / 25%)").replaceAll(",", "") } : {}),
    width: 1.5,
    points: { show: values.every((value, index) => value === null || isIsolated(values, index)) },
    ...(at >= colourCount ? { dash: [6, 3] } : {}),
  };
}

/** Writes the time under the cursor and, of few series, their values; `point` gets those of all. @param {Chart} chart @param {number | null | undefined} idx */
function writeReadout({ readout, series, times, values, options, hidden }, idx) {
  options.point(idx == null ? undefined : values.map((one) => one[idx] ?? null));
  const time = idx == null ? undefined : times[idx];
  readout.textContent =
    time === undefined ? "" : `${formatMinute(new Date(time * 1_000).toISOString())} ${formatZoneName()}`;
  for (const [at, one] of values.entries()) {
    const value = idx == null ? null : one[idx];
    if (value != null && !hidden.has(at) && values.length - hidden.size <= 4)
      readout.textContent += `  ·  ${series[at]?.label}: ${formatNumber(value)}`;
  }
}

/**
 * Chooses after uPlot is done with the mouse: what is chosen destroys this plot, and a plot that is destroyed inside its own
 * mouse-up goes on listening to the whole page.
 * @param {Chart} chart @param {uPlot} plot
 */
function chooseSelected(chart, plot) {
  if (plot.select.width < 4) return;
  const from = plot.posToVal(plot.select.left, "x");
  const to = plot.posToVal(plot.select.left + plot.select.width, "x");
  setTimeout(() => {
    if (chart.plot === plot) chart.options.choose(from, to);
  });
}

/** @param {readonly (number | null)[]} values @param {number} at */
function isIsolated(values, at) {
  return values[at - 1] == null && values[at + 1] == null;
}

/** From zero, unless the values lie far above it and differ by more than they tremble. @param {number | null} low @param {number | null} high @returns {[number, number]} */
function chooseScale(low, high) {
  const [from, to] = [low ?? 0, high ?? 1];
  if (from === to) return from === 0 ? [0, 1] : [Math.min(0, from), Math.max(0, from) * 1.2];
  const room = (to - from) * 0.08;
  const isFar = from > 0 && to - from < from / 2 && to - from > to / 100;
  return [isFar ? from - room : Math.min(0, from - (from < 0 ? room : 0)), to + room];
}

/** What the longest label takes, in pixels, with its tick. @param {readonly string[]} labels */
function measureWidth(labels) {
  return labels.reduce((width, label) => Math.max(width, 16 + 7 * label.length), 64);
}

/** @type {uPlot.Axis.Values} */
const timeLabels = [
  [86_400, "{MM}-{DD}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
];
