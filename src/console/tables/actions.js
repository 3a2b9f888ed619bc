// The actions of a site: how often, how long, how many failed; each leads to its traces.
import { printAddress } from "../base/address.js";
import { buildPost, requestJson } from "../base/api.js";
import { createElement, renderUntrusted } from "../base/dom.js";
import { formatDuration, formatNumber } from "../base/format.js";
import { createFigureColumn, createTableView } from "./table-view.js";

/** @typedef {import("../base/address.js").StateOf<"actions">} State */
/** @typedef {import("./pieces.js").Bounds} Bounds */
/**
 * @typedef {{
 *   readonly namespace: string, readonly action: string, readonly digest: string, readonly mean: number,
 *   readonly throughput: number, readonly error_rate: number, readonly has_npo: boolean,
 * }} Row
 */

const selection = `namespace
action
mean
throughput
error_rate
has_npo`;

/** @param {import("../views.js").Shell<"actions">} shell */
export function createActionsView({ go }) {
  /** @type {State | undefined} */
  let state;
  const ask = (/** @type {State} */ now, /** @type {Bounds} */ bounds, /** @type {AbortSignal} */ signal) =>
    /** @type {Promise<readonly Row[]>} */ (
      requestJson(buildPost("tracing/actions", { site_id: now.site, ...bounds }), signal)
    );
  const link = (
    /** @type {Row} */ row,
    /** @type {"performance" | "errors"} */ kind,
    /** @type {Node | string} */ text,
  ) => {
    const { site = "", range = { last: /** @type {const} */ ("1h") } } = state ?? {};
    const href = printAddress("traces", { site, kind, namespace: row.namespace, action: row.action, range });
    return createElement("a", { href }, text);
  };
  /** @type {import("./table-view.js").TableOptions<Row>} */
  const options = {
    what: "action",
    many: "actions",
    nothing: "No request has ended in this range.",
    initialSort: "requests",
    write: (now) => {
      state = now;
    },
    ask,
    key: ({ digest }) => digest,
    countPiece: async (now, piece, signal) =>
      new Map((await ask(now, piece, signal)).map(({ digest, throughput }) => [digest, throughput])),
    share: (now, bounds) => {
      const request = { site_id: now.site, ...bounds };
      const field = { field: "tracing_actions", arguments: request, selection };
      return [buildPost("tracing/actions", request), field];
    },
    columns: listColumns(link),
  };
  return createTableView(go, options);
}

/**
 * @param {(row: Row, kind: "performance" | "errors", content: Node | string) => Node} link to the requests of an action
 * @returns {import("./table-view.js").TableOptions<Row>["columns"]}
 */
function listColumns(link) {
  return [
    {
      id: "action",
      title: "Action",
      sort: ({ action }) => action,
      cell: (row) => [
        link(row, "performance", renderUntrusted(row.action)),
        " ",
        row.has_npo &&
          createElement("span", { class: "badge warn", title: "Equal queries, one by one" }, "N+1"),
      ],
    },
    {
      id: "namespace",
      title: "Namespace",
      sort: ({ namespace }) => namespace,
      cell: (row) => renderUntrusted(row.namespace),
    },
    createFigureColumn("requests", "Requests", ({ throughput }) => throughput, formatNumber),
    createFigureColumn("mean", "Mean", ({ mean }) => mean, formatDuration),
    createFigureColumn("time", "Time in all", ({ mean, throughput }) => mean * throughput, formatDuration),
    {
      id: "errors",
      title: "Failed",
      isFigure: true,
      sort: ({ error_rate }) => error_rate,
      cell: (row) => (row.error_rate === 0 ? "0 %" : link(row, "errors", `${row.error_rate.toFixed(1)} %`)),
    },
  ];
}
