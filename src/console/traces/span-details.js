// What is known of one span.
import { printAddress } from "../base/address.js";
import { createElement, renderUntrusted } from "../base/dom.js";
import { formatDuration, formatLongTime } from "../base/format.js";
import { listEntries } from "../base/json.js";
import { createLeaf, createTree } from "../base/tree.js";
import { findStatement } from "./waterfall.js";

/** @typedef {import("./waterfall.js").Span} Span */

const noChoices = () => undefined;

/** @param {Span} span @param {HTMLElement | undefined} logs its log lines */
export function createSpanDetails(span, logs) {
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
    logs,
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
