// The deploys of a site, each with its errors and its traces.
import { printAddress } from "../base/address.js";
import { buildGraphqlRequest, requestGraphql } from "../base/api.js";
import { createElement, renderUntrusted } from "../base/dom.js";
import { formatAge, formatNumber } from "../base/format.js";
import { printFieldTerm } from "../search/query.js";
import { createFigureColumn, createTableView, createTimeCell } from "./table-view.js";

/** @typedef {import("../base/address.js").StateOf<"deploys">} State */
/** @typedef {import("./table-view.js").Bounds} Bounds */
/**
 * `exceptionRate` is the errors per 100 requests; `liveFor` is in seconds.
 * @typedef {{
 *   readonly revision: string, readonly createdAt: string, readonly lastOccurredAt: string,
 *   readonly liveFor: number, readonly exceptionCount: number, readonly exceptionRate: number,
 * }} Deploy
 */

/** As many as the API gives at once. */
const limit = 1_000;
const query = `query ($site: String!, $start: DateTime, $end: DateTime, $limit: Int) {
  app(id: $site) {
    deployMarkers(start: $start, end: $end, limit: $limit) {
      revision createdAt lastOccurredAt liveFor exceptionCount exceptionRate
    }
  }
}`;

/** @param {string} site @param {Bounds} bounds */
function buildVariables(site, { from, to }) {
  return { site, start: from, end: to, limit };
}

/**
 * The deploys whose first request lies in the range, newest first.
 * @param {string} site @param {Bounds} bounds @param {AbortSignal} signal
 * @returns {Promise<readonly Deploy[]>}
 * @throws {import("../base/api.js").Failure}
 */
async function requestDeploys(site, bounds, signal) {
  /** @type {{ readonly app?: { readonly deployMarkers?: readonly Deploy[] | null } }} */
  const { app } = await requestGraphql(query, buildVariables(site, bounds), signal);
  return app?.deployMarkers ?? [];
}

/** @param {import("../views.js").Shell<"deploys">} shell */
export function createDeploysView({ go }) {
  /** @type {State | undefined} */
  let state;
  const link = (
    /** @type {Deploy} */ row,
    /** @type {"performance" | "errors"} */ kind,
    /** @type {Node | string} */ text,
  ) => {
    const term = printFieldTerm("revision", "=", row.revision);
    const range = { from: row.createdAt, to: row.lastOccurredAt };
    if (term === undefined) return text;
    return createElement(
      "a",
      { href: printAddress("traces", { site: state?.site ?? "", kind, query: term, range }) },
      text,
    );
  };
  /** @type {import("./table-view.js").TableOptions<Deploy>} */
  const options = {
    what: "deploy",
    many: "deploys",
    nothing: "No revision has had its first request in this range.",
    initialSort: "first",
    write: (now) => {
      state = now;
    },
    ask: (now, bounds, signal) => requestDeploys(now.site, bounds, signal),
    key: ({ revision }) => revision,
    limit,
    order: "the newest",
    share: (now, bounds) => {
      const variables = buildVariables(now.site, bounds);
      return [buildGraphqlRequest(query, variables), { query, values: variables }];
    },
    columns: listColumns(link),
  };
  return createTableView(go, options);
}

/** @param {(row: Deploy, kind: "performance" | "errors", text: Node | string) => Node | string} link to the traces of a row @returns {import("./table-view.js").TableOptions<Deploy>["columns"]} */
function listColumns(link) {
  return [
    {
      id: "revision",
      title: "Revision",
      sort: ({ revision }) => revision,
      cell: (row) => link(row, "performance", createElement("code", {}, renderUntrusted(row.revision))),
    },
    {
      id: "first",
      title: "First request",
      isFigure: true,
      sort: ({ createdAt }) => Date.parse(createdAt),
      cell: ({ createdAt }) => createTimeCell(createdAt),
    },
    {
      id: "last",
      title: "Last request",
      isFigure: true,
      sort: ({ lastOccurredAt }) => Date.parse(lastOccurredAt),
      cell: ({ lastOccurredAt }) => createTimeCell(lastOccurredAt),
    },
    createFigureColumn("live", "Live for", ({ liveFor }) => liveFor, formatAge),
    {
      id: "errors",
      title: "Traces with errors",
      isFigure: true,
      sort: ({ exceptionCount }) => exceptionCount,
      cell: (row) => (row.exceptionCount === 0 ? "0" : link(row, "errors", formatNumber(row.exceptionCount))),
    },
    createFigureColumn(
      "rate",
      "Per 100 requests",
      ({ exceptionRate }) => exceptionRate,
      (rate) => rate.toFixed(1),
    ),
  ];
}
