// Where the time of requests goes. An event opens as the actions that it happens in, each with a trace that has it.
import { eventKinds, printAddress } from "../base/address.js";
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createElement, createField, createSelect, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatCount, formatDuration, formatNumber } from "../base/format.js";
import { createFailureState, createLoadingState } from "../base/states.js";
import { createFigureColumn, createTableView } from "./table-view.js";

/** @typedef {import("../base/address.js").StateOf<"slow">} State */
/** @typedef {import("./pieces.js").Bounds} Bounds */
/**
 * @typedef {{
 *   readonly digest: string, readonly count: number, readonly mean: number, readonly impact: number, readonly service: string,
 *   readonly span_kind: string, readonly span_name: string, readonly statement: string,
 * }} Row
 */
/** @typedef {{ readonly action_name: string, readonly namespace: string, readonly count: number, readonly trace_id: string }} EventAction */

const limit = 1_000;
const selection = `digest
service
span_kind
span_name
statement
count
mean
impact`;

/** @param {import("../views.js").Shell<"slow">} shell */
export function createSlowEventsView({ go }) {
  /** @type {State | undefined} */
  let state;
  const body = (/** @type {State} */ now, /** @type {Bounds} */ bounds) => ({
    site_id: now.site,
    ...bounds,
    ...(now.kind === "any" ? {} : { span_kind: now.kind }),
    limit,
  });
  const ask = (/** @type {object} */ request, /** @type {AbortSignal} */ signal) =>
    /** @type {Promise<readonly Row[]>} */ (
      requestJson(buildPost("tracing/slow_events", { ...request }), signal)
    );
  const kind = createSelect(
    ["any", ...eventKinds].map((word) => [word, word === "any" ? "All" : word]),
    (value) => view.change({ kind: value }),
  );
  /** @type {import("./table-view.js").TableOptions<Row>} */
  const options = {
    what: "slow event",
    many: "slow events",
    nothing: "No request of this range has spans within it.",
    initialSort: "impact",
    controls: [createField("Kind", kind)],
    write: (now) => {
      state = now;
      kind.value = now.kind;
    },
    ask: (now, bounds, signal) => ask(body(now, bounds), signal),
    key: ({ digest }) => digest,
    limit,
    order: "those of greatest impact",
    countPiece: async (now, piece, signal) =>
      new Map((await ask(body(now, piece), signal)).map(({ digest, count }) => [digest, count])),
    share: (now, bounds) => {
      const request = body(now, bounds);
      return [
        buildPost("tracing/slow_events", request),
        { field: "tracing_slow_events", arguments: request, selection },
      ];
    },
    columns: listColumns(() => state?.site ?? ""),
  };
  const view = createTableView(go, options);
  return view;
}

/** @param {() => string} site @returns {import("./table-view.js").TableOptions<Row>["columns"]} */
function listColumns(site) {
  return [
    {
      id: "event",
      title: "Event",
      sort: ({ span_name }) => span_name,
      cell: (row, bounds, signal) => createEvent(row, site, bounds, signal),
    },
    {
      id: "service",
      title: "Service",
      sort: ({ service }) => service,
      cell: (row) => renderUntrusted(row.service),
    },
    { id: "kind", title: "Kind", sort: ({ span_kind }) => span_kind, cell: (row) => row.span_kind },
    createFigureColumn("count", "Spans", ({ count }) => count, formatNumber),
    createFigureColumn("mean", "Mean", ({ mean }) => mean, formatDuration),
    createFigureColumn(
      "impact",
      "Impact",
      ({ impact }) => impact,
      (impact) => `${impact.toFixed(1)} %`,
    ),
  ];
}

/** @param {Row} row @param {() => string} site @param {Bounds} bounds @param {AbortSignal} signal */
function createEvent({ digest, span_name, statement }, site, bounds, signal) {
  const actions = createElement("div", { class: "event-actions" });
  const details = createElement(
    "details",
    {},
    createElement(
      "summary",
      {},
      renderUntrusted(span_name),
      statement !== "" && createElement("code", { class: "statement-line" }, renderUntrusted(statement)),
    ),
    actions,
  );
  details.addEventListener("toggle", () => {
    if (details.open && actions.childElementCount === 0)
      void showActions(actions, digest, site(), bounds, signal);
  });
  return details;
}

/** @param {HTMLElement} root @param {string} digest @param {string} site @param {Bounds} bounds @param {AbortSignal} signal */
async function showActions(root, digest, site, bounds, signal) {
  replaceChildren(root, createLoadingState("its actions"));
  try {
    const request = buildPost("tracing/slow_events/actions", { site_id: site, ...bounds, digest });
    /** @type {readonly EventAction[]} */
    const rows = await requestJson(request, signal);
    replaceChildren(
      root,
      createElement(
        "ul",
        { class: "plain" },
        rows.map(({ action_name, namespace, count, trace_id }) =>
          createElement(
            "li",
            {},
            createElement(
              "a",
              { href: printAddress("trace", { site, id: trace_id }) },
              renderUntrusted(action_name),
            ),
            " ",
            createElement(
              "span",
              { class: "muted" },
              renderUntrusted(namespace),
              ` · ${formatCount(count, "span")}`,
            ),
          ),
        ),
      ),
    );
  } catch (error) {
    if (!isAborted(error)) replaceChildren(root, createFailureState(error));
  }
}
