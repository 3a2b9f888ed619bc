// The errors of a site, those with one digest together; each leads to the traces that have it.
import { printAddress } from "../base/address.js";
import { buildGraphqlRequest, requestGraphql } from "../base/api.js";
import { createElement, renderUntrusted } from "../base/dom.js";
import { formatNumber } from "../base/format.js";
import { createFigureColumn, createTableView, createTimeCell } from "./table-view.js";

/** @typedef {import("../base/address.js").StateOf<"errors">} State */
/** @typedef {import("./pieces.js").Bounds} Bounds */
/**
 * @typedef {{
 *   readonly id: string, readonly exceptionName: string | null, readonly exceptionMessage: string | null,
 *   readonly namespace: string | null, readonly actionNames: readonly string[] | null, readonly count: number,
 *   readonly createdAt: string, readonly lastOccurredAt: string,
 * }} Row
 */

/** As many as the API gives at once. */
const limit = 1_000;
const rowFields =
  "rows { id exceptionName exceptionMessage namespace actionNames count createdAt lastOccurredAt }";

/** @param {string} fields of the page */
function printQuery(fields) {
  return `query ($site: String!, $start: DateTime, $end: DateTime, $limit: Int) {
  app(id: $site) {
    paginatedExceptionIncidents(start: $start, end: $end, limit: $limit) { ${fields} }
  }
}`;
}

/** @param {import("../views.js").Shell<"errors">} shell */
export function createErrorsView({ go }) {
  /** @type {State | undefined} */
  let state;
  /**
   * @param {string} fields @param {State} now @param {Bounds} bounds @param {AbortSignal} signal @param {number} [most]
   * @returns {Promise<{ readonly rows?: readonly Row[], readonly total?: number }>} a page
   */
  async function ask(fields, now, { from, to }, signal, most = limit) {
    const variables = { site: now.site, start: from, end: to, limit: most };
    /** @type {{ readonly app?: { readonly paginatedExceptionIncidents?: Awaited<ReturnType<typeof ask>> } }} */
    const { app } = await requestGraphql(printQuery(fields), variables, signal);
    return app?.paginatedExceptionIncidents ?? {};
  }
  const link = (/** @type {Row} */ row) => {
    const { site = "", range = { last: /** @type {const} */ ("1h") } } = state ?? {};
    const href = printAddress("traces", { site, kind: "errors", digest: row.id, range });
    return createElement("a", { href }, renderUntrusted(row.exceptionName || "(no type)"));
  };
  /** @type {import("./table-view.js").TableOptions<Row>} */
  const options = {
    what: "error",
    many: "errors",
    nothing: "Nothing has failed with an exception in this range.",
    initialSort: "count",
    write: (now) => {
      state = now;
    },
    ask: async (now, bounds, signal) => (await ask(rowFields, now, bounds, signal)).rows ?? [],
    key: ({ id }) => id,
    limit,
    order: "those that happened last",
    countAll: async (now, bounds, signal) => (await ask("total", now, bounds, signal, 0)).total ?? 0,
    countPiece: async (now, piece, signal) => {
      const { rows = [] } = await ask("rows { id count }", now, piece, signal);
      return new Map(rows.map(({ id, count }) => [id, count]));
    },
    share: (now, { from, to }) => {
      const query = printQuery(rowFields);
      const variables = { site: now.site, start: from, end: to, limit };
      return [buildGraphqlRequest(query, variables), { query, values: variables }];
    },
    columns: listColumns(link),
  };
  return createTableView(go, options);
}

/** @param {(row: Row) => Node} link to the traces of a row @returns {import("./table-view.js").TableOptions<Row>["columns"]} */
function listColumns(link) {
  return [
    {
      id: "type",
      title: "Error",
      sort: ({ exceptionName }) => exceptionName ?? "",
      cell: (row) => [
        link(row),
        createElement("p", { class: "exception" }, renderUntrusted(row.exceptionMessage ?? "")),
      ],
    },
    {
      id: "actions",
      title: "Actions",
      sort: ({ actionNames }) => actionNames?.[0] ?? "",
      cell: (row) => [
        renderUntrusted((row.actionNames ?? []).join(", ")),
        " ",
        createElement("span", { class: "muted" }, renderUntrusted(row.namespace ?? "")),
      ],
    },
    createFigureColumn("count", "Traces", ({ count }) => count, formatNumber),
    {
      id: "first",
      title: "First",
      isFigure: true,
      sort: ({ createdAt }) => Date.parse(createdAt),
      cell: ({ createdAt }) => createTimeCell(createdAt),
    },
    {
      id: "last",
      title: "Last",
      isFigure: true,
      sort: ({ lastOccurredAt }) => Date.parse(lastOccurredAt),
      cell: ({ lastOccurredAt }) => createTimeCell(lastOccurredAt),
    },
  ];
}
