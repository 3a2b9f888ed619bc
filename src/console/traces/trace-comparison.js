// Two traces beside each other: where one spends more time than the other.
import { printAddress } from "../base/address.js";
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createElement, createField, createTable, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatDuration, formatNumber } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { compareTraces } from "./span-rows.js";

/** @typedef {import("./waterfall.js").Span} Span */

/** A field for the id of another trace. @param {(other: string) => void} choose */
export function createComparisonForm(choose) {
  const input = createElement("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "id of another trace",
  });
  const root = createElement(
    "form",
    { class: "toolbar" },
    createField("Compare with", input, "wide"),
    createElement("button", { type: "submit" }, "Compare"),
  );
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    choose(input.value.trim());
  });
  const write = (/** @type {string} */ other) => {
    input.value = other;
  };
  return { root, write };
}

/**
 * @param {HTMLElement} root is replaced
 * @param {readonly Span[]} spans of the trace that is shown
 * @param {string} site @param {string} other @param {AbortSignal} signal
 */
export async function showComparison(root, spans, site, other, signal) {
  replaceChildren(root, createLoadingState("the other trace"));
  try {
    /** @type {readonly Span[]} */
    const found = await requestJson(
      buildPost("tracing/trace", { site_ids: [site], trace_id: other }),
      signal,
    );
    if (found.length === 0)
      return replaceChildren(
        root,
        createEmptyState("No such trace", "The site has no spans of the other trace."),
      );
    const head = (/** @type {string} */ title, shape = "figure") =>
      createElement("th", { scope: "col", class: shape }, title);
    const figure = (/** @type {string} */ text) => createElement("td", { class: "figure" }, text);
    const rows = compareTraces(spans, found).map(({ service, name, counts, times }) => [
      createElement(
        "th",
        { scope: "row" },
        renderUntrusted(name),
        " ",
        createElement("span", { class: "muted" }, renderUntrusted(service)),
      ),
      figure(formatNumber(counts[0])),
      figure(formatNumber(counts[1])),
      figure(formatDuration(times[0])),
      figure(formatDuration(times[1])),
      figure(`${times[1] < times[0] ? "−" : "+"}${formatDuration(Math.abs(times[1] - times[0]))}`),
    ]);
    const titles = ["Spans here", "Spans there", "Time here", "Time there", "Difference"];
    replaceChildren(
      root,
      createElement(
        "p",
        { class: "muted" },
        "There is ",
        createElement(
          "a",
          { href: printAddress("trace", { site, id: other }) },
          createElement("code", {}, renderUntrusted(other)),
        ),
        ".",
      ),
      createTable("Comparison", [head("Span", ""), ...titles.map((title) => head(title))], rows, {
        shape: "figures",
      }),
    );
  } catch (error) {
    if (!isAborted(error)) replaceChildren(root, createFailureState(error));
  }
}
