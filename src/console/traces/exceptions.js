// What went wrong in the rows of a listing of errors: the listing has the requests, and GraphQL the exceptions in them.
import { isAborted, requestGraphql } from "../base/api.js";

/** @typedef {{ readonly name: string | null, readonly message: string | null }} Exception */
/** @typedef {Readonly<Pick<import("./traces.js").Summary, "trace_id" | "span_id" | "time">>} ErrorRow */
/**
 * @typedef {{
 *   readonly rows?: readonly { readonly samples?: readonly { readonly id: string, readonly exception: Exception }[] | null }[],
 * }} Page
 */
/** @typedef {{ readonly first: string, readonly last: string }} Stretch */

/** Errors, and samples of each, that are looked through for the rows of one millisecond. */
const limitOfMillisecond = 100;
/** A query has a limit of tokens. */
const maxStretches = 20;

/** The server prints the id of a sample so: a dash within that of the span is none between the two. @param {ErrorRow} row */
function formatSampleId({ trace_id, span_id }) {
  return `${trace_id}-${span_id.replaceAll("~", "~0").replaceAll("-", "~1")}`;
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
  const whole = { first: times[0] ?? "", last: times.at(-1) ?? "" };
  const found = await readSamples(site, [whole], rows.length, signal);
  // Between rows of a filter, or by duration, lie others, and only the newest of all these are given. So what is missing is
  // looked for where it is.
  const missing = rows.filter((row) => !found.has(formatSampleId(row)));
  const alone = [...new Set(missing.map(({ time }) => time))].map((time) => ({ first: time, last: time }));
  const all = new Map(found);
  for (let at = 0; at < alone.length; at += maxStretches) {
    const stretches = alone.slice(at, at + maxStretches);
    try {
      for (const [id, exception] of await readSamples(site, stretches, limitOfMillisecond, signal))
        all.set(id, exception);
    } catch (error) {
      // What is known is told all the same.
      if (isAborted(error) || all.size === 0) throw error;
      break;
    }
  }
  return (row) => all.get(formatSampleId(row));
}

/**
 * The newest exceptions of the newest errors of each stretch, by the ids of their samples. A time of a row is cut to its
 * millisecond, and the server takes such an end as the end of the millisecond: so rows at `last` are among them.
 * @param {string} site @param {readonly Stretch[]} stretches @param {number} limit @param {AbortSignal} signal
 * @returns {Promise<ReadonlyMap<string, Exception>>}
 */
async function readSamples(site, stretches, limit, signal) {
  const pages = stretches.map(({ first, last }, at) => {
    const range = `start: ${JSON.stringify(first)}, end: ${JSON.stringify(last)}, limit: $limit`;
    return `page${at}: paginatedExceptionIncidents(${range}) {
      rows { samples(${range}) { id exception { name message } } }
    }`;
  });
  const query = `query ($site: String!, $limit: Int) { app(id: $site) { ${pages.join("\n")} } }`;
  /** @type {{ readonly app?: Readonly<Record<string, Page | null>> | null }} */
  const { app } = await requestGraphql(query, { site, limit }, signal);
  const samples = Object.values(app ?? {}).flatMap((page) =>
    (page?.rows ?? []).flatMap((error) => error.samples ?? []),
  );
  return new Map(samples.map(({ id, exception }) => [id, exception]));
}
