// One trace: its spans over time, and the log lines that carry its id.
import { trackLastOpened } from "../base/address.js";
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createShareBar } from "../base/controls.js";
import { createButton, createElement, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatCount, formatDuration, formatLongTime, formatNumber } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { normaliseStatement } from "./normalise.js";
import { createShape, maxDrawnSpans, showSpanList } from "./span-list.js";
import { createComparisonForm, showComparison } from "./trace-comparison.js";
import { printTraceTerms, showTraceLogs } from "./trace-logs.js";
import { buildWaterfall } from "./waterfall.js";

/** @typedef {import("./waterfall.js").Span} Span */
/** @typedef {import("../base/api.js").Site} Site */
/** @typedef {import("../base/address.js").StateOf<"trace">} State */
/**
 * The elements that the view fills, what it asks of the page, and what it shows.
 * @typedef {{
 *   readonly keep: import("../views.js").Shell<"trace">["keep"], readonly share: ReturnType<typeof createShareBar>,
 *   readonly statusLine: HTMLElement, readonly head: HTMLElement, readonly spans: HTMLElement, readonly logs: HTMLElement,
 *   readonly comparison: HTMLElement, readonly other: ReturnType<typeof createComparisonForm>, state: State | undefined,
 *   shape: import("./span-list.js").Shape,
 * }} TraceView
 */

const selection = `service_name
span_name
span_kind
start_time
duration
status_code
parent_span_id
span_id
span_attributes
events_name
events_attributes`;

/** @param {import("../views.js").Shell<"trace">} shell */
export function createTraceView({ go, keep }) {
  const share = createShareBar();
  const statusLine = createElement("p", { class: "status-line", role: "status" });
  const head = createElement("div", { class: "trace-head" });
  const spans = createElement("div");
  const logs = createElement("section", { class: "section" });
  const comparison = createElement("section", { class: "section" });
  const other = createComparisonForm((id) => view.state !== undefined && go({ ...view.state, other: id }));
  const root = createElement(
    "div",
    {},
    head,
    createElement("div", { class: "bar" }, statusLine, share.root),
    spans,
    logs,
    comparison,
  );

  /** @type {TraceView} */
  const view = {
    keep,
    share,
    statusLine,
    head,
    spans,
    logs,
    comparison,
    other,
    state: undefined,
    shape: createShape(),
  };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal @param {Site} site */
    show: (now, signal, site) => showTrace(view, now, signal, site),
  };
}

/**
 * @param {TraceView} view
 * @param {State} now
 * @param {AbortSignal} signal
 * @param {Site} site
 */
async function showTrace(view, now, signal, site) {
  const { share, statusLine, head, spans, logs, comparison } = view;
  if (view.state?.id !== now.id || view.state.site !== now.site) view.shape = createShape();
  view.state = now;
  view.other.write(now.other);
  const request = { site_ids: [now.site], trace_id: now.id };
  share.write(buildPost("tracing/trace", request), {
    field: "tracing_trace",
    arguments: request,
    selection,
  });
  replaceChildren(
    head,
    createElement("h2", {}, "Trace ", createElement("code", {}, renderUntrusted(now.id))),
  );
  replaceChildren(statusLine);
  replaceChildren(logs);
  replaceChildren(comparison);
  replaceChildren(spans, createLoadingState("the trace"));
  try {
    /** @type {readonly Span[]} */
    const found = await requestJson(buildPost("tracing/trace", request), signal);
    const [first] = found;
    if (first === undefined) {
      replaceChildren(
        spans,
        createEmptyState(
          "No such trace",
          `The site ${now.site} has no spans of it. It may not have ended yet, or be older than what is kept.`,
          createButton("Look again", () => void showTrace(view, now, signal, site)),
        ),
      );
      return;
    }
    showSpans(view, first, found, now, site, signal);
    if (site.sources.length === 0) return;
    const lines = createElement("div");
    replaceChildren(logs, createElement("h2", {}, "Log lines"), lines);
    await showTraceLogs(lines, found, printTraceTerms(first.trace_id), { site, signal });
  } catch (error) {
    if (!isAborted(error))
      replaceChildren(
        spans,
        createFailureState(error, () => void showTrace(view, now, signal, site)),
      );
  }
}

/**
 * @param {TraceView} view
 * @param {Span} first
 * @param {readonly Span[]} found with the first
 * @param {State} now
 * @param {Site} site
 * @param {AbortSignal} signal
 */
function showSpans(view, first, found, now, site, signal) {
  const { keep, statusLine, head, spans, comparison, other } = view;
  const compared = createElement("div");
  const toggled = trackLastOpened(now.open, signal, (open) => {
    view.state = { ...now, open };
    keep(view.state);
  });
  const { rows, length } = buildWaterfall(found, normaliseStatement);
  const failed = rows.filter((row) => row.failed).length;
  const repeated = rows.filter((row) => row.repeated !== undefined).length;
  const services = new Set(found.map(({ service_name }) => service_name));
  const badges = [
    createElement("span", { class: "badge" }, formatDuration(length)),
    failed > 0 && createElement("span", { class: "badge bad" }, formatCount(failed, "failed span")),
    repeated > 0 && createElement("span", { class: "badge warn" }, "N+1"),
  ];
  replaceChildren(
    head,
    createElement("h2", {}, renderUntrusted(first.action_name || first.span_name), badges),
    createElement(
      "p",
      { class: "muted" },
      createElement("time", { datetime: first.start_time }, formatLongTime(first.start_time)),
      " · ",
      renderUntrusted(first.namespace || first.service_name),
      " · ",
      createElement("code", {}, renderUntrusted(first.trace_id)),
    ),
  );
  const cut = rows.length > maxDrawnSpans ? `; the first ${formatNumber(maxDrawnSpans)} are drawn` : "";
  replaceChildren(
    statusLine,
    `${formatCount(rows.length, "span")} of ${formatCount(services.size, "service")} in ${formatDuration(length)}${cut}`,
  );
  showSpanList(spans, { rows, length }, { ...now, toggled, scope: { site, signal }, shape: view.shape });
  replaceChildren(comparison, other.root, compared);
  if (now.other !== "") void showComparison(compared, found, now.site, now.other, signal);
}
