// A log line as the API answers it.

/**
 * @typedef {{
 *   readonly id: string, readonly timestamp: string, readonly source_id: string, readonly severity: string,
 *   readonly message: string, readonly hostname: string, readonly group: string, readonly json: string,
 * }} Line
 */

/** @param {Line} line */
export function formatLineKey({ source_id, id }) {
  return `${source_id} ${id}`;
}
