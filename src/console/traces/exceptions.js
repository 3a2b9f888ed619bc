// What went wrong in the rows of a listing of errors: the listing has the requests, and GraphQL the exceptions in them.
import { requestGraphql } from "../base/api.js";

/** @typedef {{ readonly name: string | null, readonly message: string | null }} Exception */
/** @typedef {Readonly<Pick<import("./traces.js").Summary, "trace_id" | "span_id" | "time">>} ErrorRow */
/**
 * @typedef {{
 *   readonly app?: {
 *     readonly paginatedExceptionIncidents?: {
 *       readonly rows?: readonly { readonly samples?: readonly { readonly id: string, readonly exception: Exception }[] | null }[],
 *     },
 *   },
 * }} Answer
 */

const query = `query ($site: String!, $start: DateTime, $end: DateTime, $limit: Int) {
  app(id: $site) {
    paginatedExceptionIncidents(start: $start, end: $end, limit: $limit) {
      rows { samples(start: $start, end: $end, limit: $limit) { id exception { name message } } }
    }
  }
}`;

/** @param {ErrorRow} row */
function formatRowKey({ trace_id, span_id }) {
  return `${trace_id}-${span_id}`;
}

/**
 * @param {string} site
 * @param {readonly ErrorRow[]} rows of one page, at least one
 * @param {AbortSignal} signal
 * @returns {Promise<(row: ErrorRow) => Exception | undefined>} the exception of a row; undefined where none was told
 * @throws {import("../base/api.js").Failure}
 */
export async function requestExceptions(site, rows, signal) {
  const times = rows.map(({ time }) => time).sort();
  const bounds = { start: times[0], end: times.at(-1), limit: rows.length };
  /** @type {Answer} */
  const answer = await requestGraphql(query, { site, ...bounds }, signal);
  const samples = (answer.app?.paginatedExceptionIncidents?.rows ?? []).flatMap(
    (incident) => incident.samples ?? [],
  );
  const found = new Map(samples.map(({ id, exception }) => [id, exception]));
  return (row) => found.get(formatRowKey(row));
}
