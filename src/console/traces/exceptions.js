// What went wrong in the rows of a listing of errors: the listing has the requests, and GraphQL the exceptions beside them.
import { requestGraphql } from "../base/api.js";
import { printGraphql } from "../base/share.js";

/** @typedef {{ readonly digest: string, readonly name: string, readonly message: string | null }} Exception */
/** @typedef {Readonly<Pick<import("./traces.js").Summary, "trace_id" | "span_id">>} ErrorRow */
/** @typedef {ErrorRow & { readonly exceptions: readonly Exception[] | null }} AnsweredRow */

/**
 * Asks for a page of errors once more, with the exceptions of its rows.
 * @param {Readonly<Record<string, unknown>> & { readonly digests?: readonly string[] }} page body of its request
 * @param {AbortSignal} signal
 * @returns {Promise<(row: ErrorRow) => Exception | undefined>} of the exceptions of a row the first with a digest that the page
 *   names, else the first; undefined where none was told
 * @throws {import("../base/api.js").Failure}
 */
export async function requestExceptions(page, signal) {
  const query = printGraphql({
    field: "tracing_traces_errors",
    arguments: page,
    selection: "trace_id\nspan_id\nexceptions { digest name message }",
  });
  /** @type {{ readonly tracing_traces_errors: readonly AnsweredRow[] | null }} */
  const { tracing_traces_errors: rows } = await requestGraphql(query, {}, signal);
  const { digests = [] } = page;
  const choose = (/** @type {readonly Exception[]} */ exceptions) =>
    exceptions.find(({ digest }) => digests.includes(digest)) ?? exceptions[0];
  const found = new Map((rows ?? []).map((row) => [formatRowKey(row), choose(row.exceptions ?? [])]));
  return (row) => found.get(formatRowKey(row));
}

/** @param {ErrorRow} row */
function formatRowKey({ trace_id, span_id }) {
  return JSON.stringify([trace_id, span_id]);
}
