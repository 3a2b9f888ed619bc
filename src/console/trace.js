// One trace: its spans over time, and the log lines that carry its id.
import { lastOpened, printAddress } from "./address.js";
import { ask, isAborted, post } from "./api.js";
import { shareBar } from "./controls.js";
import { button, element, foreign, replace } from "./dom.js";
import { counted, duration, longTime } from "./format.js";
import { entriesOf } from "./json.js";
import { lineItem } from "./lines.js";
import { normaliseStatement } from "./normalise.js";
import { empty, failure, loading } from "./states.js";
import { leaf, tree } from "./tree.js";
import { layOut, statementOf } from "./waterfall.js";

/** @typedef {import("./waterfall.js").Row} Row */
/** @typedef {import("./waterfall.js").Span} Span */

/** So many spans are drawn; a page of more would be slow, and nobody reads them one by one. */
const mostDrawn = 2_000;
const mostLines = 200;
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
export function traceView({ keep }) {
  const share = shareBar();
  const told = element("p", { class: "told", role: "status" });
  const head = element("div", { class: "trace-head" });
  const spans = element("div");
  const logs = element("section", { class: "section" });
  const root = element("div", {}, head, element("div", { class: "bar" }, told, share.root), spans, logs);

  /**
   * @param {import("./address.js").StateOf<"trace">} now
   * @param {AbortSignal} signal
   * @param {import("./api.js").Site} site
   */
  async function show(now, signal, site) {
    const request = { site_ids: [now.site], trace_id: now.id };
    share.write(post("tracing/trace", request), { field: "tracing_trace", arguments: request, selection });
    replace(head, element("h2", {}, "Trace ", element("code", {}, foreign(now.id))));
    replace(told);
    replace(logs);
    replace(spans, loading("the trace"));
    try {
      /** @type {readonly Span[]} */
      const found = await ask(post("tracing/trace", request), signal);
      if (found.length === 0) {
        replace(
          spans,
          empty(
            "No such trace",
            `The site ${now.site} has no spans of it. It may not have ended yet, or be older than what is kept.`,
            button("Look again", () => void show(now, signal, site)),
          ),
        );
        return;
      }
      showSpans(found, now, signal);
      if (site.sources.length > 0) await showLogs(found, now, site, signal);
    } catch (error) {
      if (!isAborted(error))
        replace(
          spans,
          failure(error, () => void show(now, signal, site)),
        );
    }
  }

  /**
   * @param {readonly Span[]} found
   * @param {import("./address.js").StateOf<"trace">} now
   * @param {AbortSignal} signal
   */
  function showSpans(found, now, signal) {
    const toggled = lastOpened(now.open, signal, (open) => keep({ ...now, open }));
    const { rows, length } = layOut(found, normaliseStatement);
    const [first] = found;
    const failed = rows.filter((row) => row.failed).length;
    const repeated = rows.filter((row) => row.repeated !== undefined).length;
    const services = new Set(found.map(({ service_name }) => service_name));
    const badges = [
      element("span", { class: "badge" }, duration(length)),
      failed > 0 && element("span", { class: "badge bad" }, counted(failed, "failed span")),
      repeated > 0 && element("span", { class: "badge warn" }, "N+1"),
    ];
    if (first !== undefined) {
      replace(
        head,
        element("h2", {}, foreign(first.action_name || first.span_name), badges),
        element(
          "p",
          { class: "muted" },
          element("time", { datetime: first.start_time }, longTime(first.start_time)),
          " · ",
          foreign(first.namespace || first.service_name),
          " · ",
          element("code", {}, foreign(first.trace_id)),
        ),
      );
    }
    const cut = rows.length > mostDrawn ? `; the first ${mostDrawn} are drawn` : "";
    replace(
      told,
      `${counted(rows.length, "span")} of ${counted(services.size, "service")} in ${duration(length)}${cut}`,
    );
    const names = [...services];
    replace(
      spans,
      element(
        "div",
        { class: "scale", "aria-hidden": "true" },
        [0, 0.25, 0.5, 0.75, 1].map((part) =>
          element("span", {}, part === 0 ? "0" : duration(length * part)),
        ),
      ),
      element(
        "ol",
        { class: "waterfall", "aria-label": "Spans" },
        rows
          .slice(0, mostDrawn)
          .map((row) => spanItem(row, names.indexOf(row.span.service_name), { ...now, toggled })),
      ),
    );
    spans.querySelector("[data-marked]")?.scrollIntoView({ block: "nearest" });
  }

  /**
   * @param {readonly Span[]} found
   * @param {import("./address.js").StateOf<"trace">} now
   * @param {import("./api.js").Site} site
   * @param {AbortSignal} signal
   */
  async function showLogs(found, now, site, signal) {
    const times = found.flatMap(({ start_time, end_time }) => [start_time, end_time]).sort();
    const around = (/** @type {string | undefined} */ time, /** @type {number} */ by) =>
      new Date(Date.parse(time ?? "") + by).toISOString();
    const id = found[0]?.trace_id ?? now.id;
    const query = `trace_id=${id} OR trace.id=${id}`;
    const [from, to] = [around(times[0], -hour), around(times.at(-1), hour)];
    const title = element("h2", {}, "Log lines");
    replace(logs, title, loading("its log lines"));
    const request = post("logs/lines", {
      site_id: now.site,
      source_ids: site.sources,
      query,
      use_expressions: true,
      from,
      to,
      pagination: { per_page: mostLines, order: "ASC", cursor: { time: null } },
    });
    try {
      /** @type {readonly import("./lines.js").Line[]} */
      const lines = await ask(request, signal);
      const href = printAddress("logs", { site: now.site, query, range: { from, to }, order: "ASC" });
      replace(
        logs,
        title,
        lines.length === 0
          ? empty("No log lines", "None carries this trace's id, an hour before and after it.")
          : element(
              "ol",
              { class: "lines", "aria-label": "Log lines" },
              lines.map((line) => lineItem(line, { site: now.site })),
            ),
        element(
          "p",
          {},
          element("a", { href }, lines.length < mostLines ? "Open in the logs" : "All of them in the logs"),
        ),
      );
    } catch (error) {
      if (!isAborted(error)) replace(logs, title, failure(error));
    }
  }

  return { root, show };
}

/**
 * @param {Row} row
 * @param {number} service its place among the services
 * @param {{
 *   readonly span: string, readonly open: string, readonly toggled: (id: string, isOpen: boolean) => void,
 * }} options `span` is the id of the one to mark, `open` of the one to open
 */
function spanItem(
  { span, depth, offset, width, failed, repeated },
  service,
  { span: marked, open, toggled },
) {
  const bar = element("span", { class: "bar-fill", "data-service": service % 8 });
  bar.style.marginInlineStart = `${(offset * 100).toFixed(3)}%`;
  bar.style.inlineSize = `max(2px, ${(width * 100).toFixed(3)}%)`;
  const name = element(
    "span",
    { class: "span-name" },
    element("span", { class: "unseen" }, `Level ${depth + 1}: `),
    foreign(span.span_name),
    element("span", { class: "muted" }, foreign(span.service_name)),
    failed && element("span", { class: "badge bad" }, "error"),
    repeated !== undefined && element("span", { class: "badge warn" }, `N+1: ${repeated} ×`),
  );
  name.style.paddingInlineStart = `${Math.min(depth, 24) * 0.85}rem`;
  const summary = element(
    "summary",
    {},
    name,
    element("span", { class: "bar-track" }, bar),
    element("span", { class: "span-duration" }, duration(span.duration)),
  );
  const details = element("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(openedSpan(span));
    toggled(span.span_id, details.open);
  });
  const item = element(
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

const none = () => undefined;

/** @param {Span} span */
function openedSpan(span) {
  const statement = statementOf(span);
  const own = {
    kind: span.span_kind,
    status: span.status_message === "" ? span.status_code : `${span.status_code}: ${span.status_message}`,
    start: span.start_time,
    duration: duration(span.duration),
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
    element(
      "li",
      {},
      element(
        "a",
        { href: printAddress("trace", { site: span.site_id, id, span: span["links.span_id"][at] ?? "" }) },
        foreign(id),
      ),
    ),
  );
  return element(
    "div",
    { class: "opened" },
    statement !== undefined && element("pre", { class: "statement" }, foreign(statement, { breaks: true })),
    ...events.map(({ name, time, attributes }) =>
      element(
        "div",
        { class: name === "exception" ? "event event-failed" : "event" },
        element(
          "p",
          {},
          element("strong", {}, foreign(name)),
          " ",
          element("span", { class: "muted" }, longTime(time ?? "")),
        ),
        tree(attributes ?? {}, none),
      ),
    ),
    element(
      "ul",
      { class: "tree" },
      Object.entries(own)
        .filter(([, value]) => value !== "")
        .map(([key, value]) => leaf(key, value, none, [key])),
    ),
    links.length > 0 && [element("h3", {}, "Links"), element("ul", { class: "links" }, links)],
    ...section("Attributes", span.span_attributes),
    ...section("Resource", span.resource_attributes),
  );
}

/** @param {string} title @param {unknown} attributes */
function section(title, attributes) {
  return (entriesOf(attributes) ?? []).length === 0 ? [] : [element("h3", {}, title), tree(attributes, none)];
}
