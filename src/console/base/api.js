// Requests to the API. A token that was typed lies in the session's storage, which ends with the tab; one of an identity provider
// in memory, which ends with the page. Either goes out as a header only.
import { readJson } from "./json.js";

/** @typedef {import("./share.js").Request} Request */

const tokenKey = "readout.token";
/** What the window is told when the server does not take the token. */
export const unauthorizedEvent = "readout-refused";
/** What the window is told when the sites or their sources may have changed. */
export const changedEvent = "readout-changed";

let heldToken = "";

export function readToken() {
  return heldToken || (sessionStorage.getItem(tokenKey) ?? "");
}
/** In memory alone. @param {string} token */
export function holdToken(token) {
  heldToken = token;
}
/** @param {string} token instead of any other */
export function storeToken(token) {
  heldToken = "";
  if (token === "") sessionStorage.removeItem(tokenKey);
  else sessionStorage.setItem(tokenKey, token);
}

/** What the API said instead of an answer; status 0 where there was none. */
export class Failure extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string} [slug]
   * @param {Readonly<Record<string, unknown>>} [details]
   */
  constructor(status, message, slug = "", details = {}) {
    super(message);
    this.name = "Failure";
    this.status = status;
    this.slug = slug;
    this.details = details;
    /** Before which the server wants no other try, in milliseconds. */
    this.retryMillis = 0;
  }
}

/** Whether the error says that the request was aborted, as by a newer one. @param {unknown} error */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Between the server's own deadline and the moment from which on its answer is not waited for any more. */
const marginMillis = 30_000;
/** How long an answer is waited for; the server tells its deadline with the sites. */
let answerMillis = 30_000 + marginMillis;

/**
 * Ends a request whose answer does not come: a connection that a proxy or a sleep has lost tells nothing. `wait` has it
 * wait for something else.
 * @param {AbortSignal} signal ends it, too
 */
export function createWatch(signal) {
  const silent = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @param {number} millis */
  const wait = (millis) => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(new Failure(0, "The server does not answer.")), millis);
  };
  wait(answerMillis);
  return { signal: AbortSignal.any([signal, silent.signal]), wait, stop: () => clearTimeout(timer) };
}

/** By how much the server's clock is ahead of the browser's, in milliseconds; zero where they go together. */
let clockLead = 0;

/** The server's time, in milliseconds since 1970: lines are dated by clocks like its own, and not by the browser's. */
export function readServerTime() {
  return Date.now() + clockLead;
}

/** @param {string | null} date of an answer, which is cut to the second */
function noteServerTime(date) {
  const lead = Date.parse(date ?? "") + 1_000 - Date.now();
  // Less is the way of the answer.
  if (!Number.isNaN(lead)) clockLead = Math.abs(lead) < 5_000 ? 0 : lead;
}

/** What to throw where a connection ends. @param {AbortSignal} signal @param {string} message where nobody has ended it */
function describeBreak(signal, message) {
  return signal.aborted ? signal.reason : new Failure(0, message);
}

/**
 * @param {Request} request
 * @param {AbortSignal} signal
 * @param {Readonly<Record<string, string>>} [headers]
 * @throws {Failure}
 */
export async function sendRequest({ method, path, body }, signal, headers = {}) {
  const token = readToken();
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: {
        Authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      credentials: "omit",
      cache: "no-store",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw describeBreak(signal, "The server cannot be reached.");
  }
  noteServerTime(response.headers.get("Date"));
  // Meanwhile someone may have signed in anew.
  if (response.status === 401 && token === readToken()) dispatchEvent(new Event(unauthorizedEvent));
  if (!response.ok) {
    const failure = await readFailure(response);
    failure.retryMillis = 1_000 * (Number(response.headers.get("Retry-After")) || 0);
    // It would be shown over what has taken the place of the request.
    signal.throwIfAborted();
    noteMissing(failure);
    throw failure;
  }
  return response;
}

/** A site or a source that the server does not have. @param {Failure} failure */
function noteMissing({ status, details }) {
  const issues = Array.isArray(details.issues) ? details.issues : [];
  if (status === 404 || issues.some(({ path }) => /^source_ids\b/.test(path)))
    dispatchEvent(new Event(changedEvent));
}

/** @param {Response} response */
async function readFailure(response) {
  const { status } = response;
  try {
    const { error, message, details, errors } = await response.json();
    if (typeof message === "string") return new Failure(status, message, String(error ?? ""), details ?? {});
    // GraphQL has its own form for what is wrong with a request.
    return new Failure(status, String(error ?? errors[0].message));
  } catch {
    return new Failure(status, `The server answered with status ${status}.`);
  }
}

/**
 * The answer, its numbers in their own spelling where they have one.
 * @template T
 * @param {Request} request
 * @param {AbortSignal} signal
 * @returns {Promise<T>} of the type that the API's document promises
 * @throws {Failure}
 */
export async function requestJson(request, signal) {
  const { text, status } = await requestText(request, signal);
  // What nobody waits for any more must not be shown over what has taken its place.
  signal.throwIfAborted();
  try {
    return /** @type {T} */ (readJson(text));
  } catch {
    const advice = "Load this page anew: a proxy may ask you to sign in.";
    throw new Failure(status, `Something else than the server answered. ${advice}`);
  }
}

/** @param {Request} request @param {AbortSignal} signal */
async function requestText(request, signal) {
  const watch = createWatch(signal);
  try {
    const response = await sendRequest(request, watch.signal);
    try {
      return { text: await response.text(), status: response.status };
    } catch {
      throw describeBreak(watch.signal, "The answer broke off. Try again, or ask for less.");
    }
  } finally {
    watch.stop();
  }
}

/**
 * The answer as a file of a type that is asked for. It may take any time: the server has its deadline for each step, and a step
 * may find nothing to send.
 * @param {Request} request @param {string} type @param {AbortSignal} signal
 * @throws {Failure}
 */
export async function requestBlob(request, type, signal) {
  const response = await sendRequest(request, signal, { Accept: type });
  try {
    return await response.blob();
  } catch {
    throw describeBreak(signal, "The file broke off. Try again, or ask for less.");
  }
}

/** Whether the page can be loaded again. */
export async function isPageServed() {
  const answer = await fetch(location.pathname, { method: "HEAD", cache: "no-store" }).catch(() => undefined);
  return answer?.ok === true;
}

/** @param {string} path @param {Readonly<Record<string, unknown>>} body @returns {Request} */
export function buildPost(path, body) {
  return { method: "POST", path: `/api/v2/${path}`, body };
}

/**
 * The request that asks a query of GraphQL.
 * @param {string} query
 * @param {Readonly<Record<string, unknown>>} variables
 */
export function buildGraphqlRequest(query, variables) {
  return { method: /** @type {const} */ ("POST"), path: "/graphql", body: { query, variables } };
}

/**
 * The data of a query of GraphQL.
 * @template T
 * @param {string} query
 * @param {Readonly<Record<string, unknown>>} variables
 * @param {AbortSignal} signal
 * @returns {Promise<T>} of the type that the schema promises for the query
 * @throws {Failure} also where a part of the answer is missing
 */
export async function requestGraphql(query, variables, signal) {
  const request = buildGraphqlRequest(query, variables);
  /** @type {{ readonly data?: T | null, readonly errors?: readonly { readonly message: string, readonly extensions?: { readonly status?: number, readonly slug?: string, readonly details?: any } }[] }} */
  const { data, errors = [] } = await requestJson(request, signal);
  const [error] = errors;
  if (error !== undefined) {
    const { status = 422, slug, details } = error.extensions ?? {};
    const failure = new Failure(status, error.message, slug, details);
    noteMissing(failure);
    throw failure;
  }
  if (data == null) throw new Failure(500, "The server answered without data.");
  return data;
}

/**
 * A site that the token may see, with its log sources; `deploys` is whether it has some that the token may read.
 * @typedef {{ readonly id: string, readonly sources: readonly string[], readonly deploys: boolean }} Site
 */
/**
 * @param {AbortSignal} signal
 * @returns {Promise<{ readonly user: string, readonly sites: readonly Site[] }>}
 * @throws {Failure}
 */
export async function requestViewer(signal) {
  /** @type {{ readonly user: string, readonly sites: readonly Site[], readonly deadline_ms?: number }} */
  const viewer = await requestJson({ method: "GET", path: "/console/viewer" }, signal);
  answerMillis = (viewer.deadline_ms ?? 30_000) + marginMillis;
  return viewer;
}
