// A log line as the API answers it.

/**
 * @typedef {{
 *   readonly id: string, readonly timestamp: string, readonly source_id: string, readonly severity: string,
 *   readonly message: string, readonly hostname: string, readonly group: string, readonly json: string,
 * }} Line
 */

/**
 * What tells a line from others. An id alone may stand twice, as the API has it. Digits behind the millisecond may number its
 * parts, which another page makes differently.
 * @param {Line} line
 */
export function formatLineKey({ source_id, id, timestamp }) {
  return `${source_id} ${id} ${timestamp.slice(0, 23)}Z`;
}
