// One trace: its spans over time, and the log lines that carry its id.
import { printAddress, trackLastOpened } from "./address.js";
import { buildPost, isAborted, requestJson } from "./api.js";
import { createShareBar } from "./controls.js";
import { createButton, createElement, renderUntrusted, replaceChildren } from "./dom.js";
import { formatCount, formatDuration, formatLongTime } from "./format.js";
import { listEntries } from "./json.js";
import { createLineItem } from "./lines.js";
import { normaliseStatement } from "./normalise.js";
import { createEmptyState, createFailureState, createLoadingState } from "./states.js";
import { createLeaf, createTree } from "./tree.js";
import { buildWaterfall, findStatement } from "./waterfall.js";

/** @typedef {import("./waterfall.js").Row} Row */
/** @typedef {import("./waterfall.js").Span} Span */
/** @typedef {import("./api.js").Site} Site */
/** @typedef {import("./address.js").StateOf<"trace">} State */
/**
 * The elements that the view fills, and what it asks of the page.
 * @typedef {{
 *   readonly keep: import("./app.js").Shell<"trace">["keep"], readonly share: ReturnType<typeof createShareBar>,
 *   readonly told: HTMLElement, readonly head: HTMLElement, readonly spans: HTMLElement, readonly logs: HTMLElement,
 * }} TraceView
 */

/** So many spans are drawn; a page of more would be slow, and nobody reads them one by one. */
const maxDrawnSpans = 2_000;
const maxLines = 200;
const hour = 3_600_000;
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

/** @param {import("./app.js").Shell<"trace">} shell */
export function createTraceView({ keep }) {
  const share = createShareBar();
  const told = createElement("p", { class: "told", role: "status" });
  const head = createElement("div", { class: "trace-head" });
  const spans = createElement("div");
  const logs = createElement("section", { class: "section" });
  const root = createElement(
    "div",
    {},
    head,
    createElement("div", { class: "bar" }, told, share.root),
    spans,
    logs,
  );

  /** @type {TraceView} */
  const view = { keep, share, told, head, spans, logs };
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
  const { share, told, head, spans, logs } = view;
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
  replaceChildren(told);
  replaceChildren(logs);
  replaceChildren(spans, createLoadingState("the trace"));
  try {
    /** @type {readonly Span[]} */
    const found = await requestJson(buildPost("tracing/trace", request), signal);
    if (found.length === 0) {
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
    showSpans(view, found, now, signal);
    if (site.sources.length > 0) await showLogs(view, found, now, site, signal);
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
 * @param {readonly Span[]} found
 * @param {State} now
 * @param {AbortSignal} signal
 */
function showSpans({ keep, told, head, spans }, found, now, signal) {
  const toggled = trackLastOpened(now.open, signal, (open) => keep({ ...now, open }));
  const { rows, length } = buildWaterfall(found, normaliseStatement);
  const [first] = found;
  const failed = rows.filter((row) => row.failed).length;
  const repeated = rows.filter((row) => row.repeated !== undefined).length;
  const services = new Set(found.map(({ service_name }) => service_name));
  const badges = [
    createElement("span", { class: "badge" }, formatDuration(length)),
    failed > 0 && createElement("span", { class: "badge bad" }, formatCount(failed, "failed span")),
    repeated > 0 && createElement("span", { class: "badge warn" }, "N+1"),
  ];
  if (first !== undefined) {
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
  }
  const cut = rows.length > maxDrawnSpans ? `; the first ${maxDrawnSpans} are drawn` : "";
  replaceChildren(
    told,
    `${formatCount(rows.length, "span")} of ${formatCount(services.size, "service")} in ${formatDuration(length)}${cut}`,
  );
  const names = [...services];
  replaceChildren(
    spans,
    createElement(
      "div",
      { class: "scale", "aria-hidden": "true" },
      [0, 0.25, 0.5, 0.75, 1].map((part) =>
        createElement("span", {}, part === 0 ? "0" : formatDuration(length * part)),
      ),
    ),
    createElement(
      "ol",
      { class: "waterfall", "aria-label": "Spans" },
      rows
        .slice(0, maxDrawnSpans)
        .map((row) => createSpanItem(row, names.indexOf(row.span.service_name), { ...now, toggled })),
    ),
  );
  spans.querySelector("[data-marked]")?.scrollIntoView({ block: "nearest" });
}

/**
 * @param {TraceView} view
 * @param {readonly Span[]} found
 * @param {State} now
 * @param {Site} site
 * @param {AbortSignal} signal
 */
async function showLogs({ logs }, found, now, site, signal) {
  const times = found.flatMap(({ start_time, end_time }) => [start_time, end_time]).sort();
  const around = (/** @type {string | undefined} */ time, /** @type {number} */ by) =>
    new Date(Date.parse(time ?? "") + by).toISOString();
  const id = found[0]?.trace_id ?? now.id;
  const query = `trace_id=${id} OR trace.id=${id}`;
  const [from, to] = [around(times[0], -hour), around(times.at(-1), hour)];
  const title = createElement("h2", {}, "Log lines");
  replaceChildren(logs, title, createLoadingState("its log lines"));
  const request = buildPost("logs/lines", {
    site_id: now.site,
    source_ids: site.sources,
    query,
    use_expressions: true,
    from,
    to,
    pagination: { per_page: maxLines, order: "ASC", cursor: { time: null } },
  });
  try {
    /** @type {readonly import("./lines.js").Line[]} */
    const lines = await requestJson(request, signal);
    const href = printAddress("logs", { site: now.site, query, range: { from, to }, order: "ASC" });
    replaceChildren(
      logs,
      title,
      lines.length === 0
        ? createEmptyState("No log lines", "None carries this trace's id, an hour before and after it.")
        : createElement(
            "ol",
            { class: "lines", "aria-label": "Log lines" },
            lines.map((line) => createLineItem(line, { site: now.site })),
          ),
      createElement(
        "p",
        {},
        createElement(
          "a",
          { href },
          lines.length < maxLines ? "Open in the logs" : "All of them in the logs",
        ),
      ),
    );
  } catch (error) {
    if (!isAborted(error)) replaceChildren(logs, title, createFailureState(error));
  }
}

/**
 * @param {Row} row
 * @param {number} service its place among the services
 * @param {{
 *   readonly span: string, readonly open: string, readonly toggled: (id: string, isOpen: boolean) => void,
 * }} options `span` is the id of the one to mark, `open` of the one to open
 */
function createSpanItem(
  { span, depth, offset, width, failed, repeated },
  service,
  { span: marked, open, toggled },
) {
  const bar = createElement("span", { class: "bar-fill", "data-service": service % 8 });
  bar.style.marginInlineStart = `${(offset * 100).toFixed(3)}%`;
  bar.style.inlineSize = `max(2px, ${(width * 100).toFixed(3)}%)`;
  const name = createElement(
    "span",
    { class: "span-name" },
    createElement("span", { class: "unseen" }, `Level ${depth + 1}: `),
    renderUntrusted(span.span_name),
    createElement("span", { class: "muted" }, renderUntrusted(span.service_name)),
    failed && createElement("span", { class: "badge bad" }, "error"),
    repeated !== undefined && createElement("span", { class: "badge warn" }, `N+1: ${repeated} ×`),
  );
  name.style.paddingInlineStart = `${Math.min(depth, 24) * 0.85}rem`;
  const summary = createElement(
    "summary",
    {},
    name,
    createElement("span", { class: "bar-track" }, bar),
    createElement("span", { class: "span-duration" }, formatDuration(span.duration)),
  );
  const details = createElement("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(createSpanDetails(span));
    toggled(span.span_id, details.open);
  });
  const item = createElement(
    "li",
    {
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

const noChoices = () => undefined;

/** @param {Span} span */
function createSpanDetails(span) {
  const statement = findStatement(span);
  const own = {
    kind: span.span_kind,
    status: span.status_message === "" ? span.status_code : `${span.status_code}: ${span.status_message}`,
    start: span.start_time,
    duration: formatDuration(span.duration),
    action: [span.namespace, span.action_name].filter((text) => text !== "").join(" / "),
    revision: span.revision,
    scope: [span.scope_name, span.scope_version].filter((text) => text !== "").join(" "),
    span_id: span.span_id,
  };
  const events = span["events.name"].map((name, at) => ({
    name,
    time: span["events.timestamp"][at],
    attributes: span["events.attributes"][at],
  }));
  const links = span["links.trace_id"].map((id, at) =>
    createElement(
      "li",
      {},
      createElement(
        "a",
        { href: printAddress("trace", { site: span.site_id, id, span: span["links.span_id"][at] ?? "" }) },
        renderUntrusted(id),
      ),
    ),
  );
  return createElement(
    "div",
    { class: "opened" },
    statement !== undefined &&
      createElement("pre", { class: "statement" }, renderUntrusted(statement, { breaks: true })),
    ...events.map(({ name, time, attributes }) =>
      createElement(
        "div",
        { class: name === "exception" ? "event event-failed" : "event" },
        createElement(
          "p",
          {},
          createElement("strong", {}, renderUntrusted(name)),
          " ",
          createElement("span", { class: "muted" }, formatLongTime(time ?? "")),
        ),
        createTree(attributes ?? {}, noChoices),
      ),
    ),
    createElement(
      "ul",
      { class: "tree" },
      Object.entries(own)
        .filter(([, value]) => value !== "")
        .map(([key, value]) => createLeaf(key, value, noChoices, [key])),
    ),
    links.length > 0 && [createElement("h3", {}, "Links"), createElement("ul", { class: "links" }, links)],
    ...createSection("Attributes", span.span_attributes),
    ...createSection("Resource", span.resource_attributes),
  );
}

/** @param {string} title @param {unknown} attributes */
function createSection(title, attributes) {
  return (listEntries(attributes) ?? []).length === 0
    ? []
    : [createElement("h3", {}, title), createTree(attributes, noChoices)];
}
