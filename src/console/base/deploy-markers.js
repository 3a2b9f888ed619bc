// The deploys of a site, as spans tell of them: a revision begins with its first request.
import { requestGraphql } from "./api.js";

/**
 * `exceptionRate` is the errors per 100 requests; `liveFor` is in seconds.
 * @typedef {{
 *   readonly revision: string, readonly createdAt: string, readonly lastOccurredAt: string | null,
 *   readonly liveFor: number, readonly exceptionCount: number, readonly exceptionRate: number,
 * }} Deploy
 */

/** As many as the API gives at once. */
export const deployLimit = 1_000;
export const deployFields = "revision createdAt lastOccurredAt liveFor exceptionCount exceptionRate";

/** @param {string} fields of each deploy */
export function printDeployQuery(fields) {
  return `query ($site: String!, $start: DateTime, $end: DateTime, $limit: Int) {
  app(id: $site) { deployMarkers(start: $start, end: $end, limit: $limit) { ${fields} } }
}`;
}

/** @param {string} site @param {{ readonly from: string, readonly to: string }} bounds */
export function buildDeployVariables(site, { from, to }) {
  return { site, start: from, end: to, limit: deployLimit };
}

/**
 * The deploys whose first request lies in the range, newest first.
 * @template {Partial<Deploy>} [T=Deploy]
 * @param {string} site @param {{ readonly from: string, readonly to: string }} bounds @param {AbortSignal} signal
 * @param {string} [fields]
 * @returns {Promise<readonly T[]>}
 * @throws {import("./api.js").Failure}
 */
export async function requestDeploys(site, bounds, signal, fields = deployFields) {
  /** @type {{ readonly app?: { readonly deployMarkers?: readonly T[] | null } }} */
  const { app } = await requestGraphql(printDeployQuery(fields), buildDeployVariables(site, bounds), signal);
  return app?.deployMarkers ?? [];
}
