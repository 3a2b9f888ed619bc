// Requests to the API. The token lies in the session's storage, which ends with the tab, and goes out as a header only.
import { createEventReader } from "./events.js";
import { readJson } from "./json.js";

/** @typedef {import("./share.js").Request} Request */

const tokenKey = "readout.token";
/** What the window is told when the server does not take the token. */
export const unauthorizedEvent = "readout-refused";

export function readToken() {
  return sessionStorage.getItem(tokenKey) ?? "";
}
/** @param {string} token */
export function storeToken(token) {
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
  }
}

/** A signal's reason when a newer request has taken this one's place. @param {unknown} error */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/**
 * @param {Request} request
 * @param {AbortSignal} signal
 * @param {Readonly<Record<string, string>>} [headers]
 */
async function sendRequest({ method, path, body }, signal, headers = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: {
        Authorization: `Bearer ${readToken()}`,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      credentials: "omit",
      cache: "no-store",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new Failure(0, "The server cannot be reached.");
  }
  if (response.status === 401) dispatchEvent(new Event(unauthorizedEvent));
  if (!response.ok) throw await readFailure(response);
  return response;
}

/** @param {Response} response */
async function readFailure(response) {
  const { status } = response;
  try {
    const { error, message, details, errors } = await response.json();
    if (typeof message === "string") return new Failure(status, message, String(error), details ?? {});
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
  const response = await sendRequest(request, signal);
  let text;
  try {
    text = await response.text();
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new Failure(0, "The answer broke off. Try again, or ask for less.");
  }
  // What nobody waits for any more must not be shown over what has taken its place.
  signal.throwIfAborted();
  return /** @type {T} */ (readJson(text));
}

/** @param {string} path @param {Readonly<Record<string, unknown>>} body @returns {Request} */
export function buildPost(path, body) {
  return { method: "POST", path: `/api/v2/${path}`, body };
}

/**
 * The sites that the token may see, and their log sources.
 * @typedef {{ readonly id: string, readonly sources: readonly string[] }} Site
 */
/**
 * @param {AbortSignal} signal
 * @returns {Promise<{ readonly user: string, readonly sites: readonly Site[] }>}
 * @throws {Failure}
 */
export async function requestViewer(signal) {
  const query = "{ viewer { name apps { id logs { sources { id } } } } }";
  /** @type {{ data?: { viewer?: { name: string, apps?: { id: string, logs?: { sources?: { id: string }[] } }[] } } }} */
  const { data } = await requestJson({ method: "POST", path: "/graphql", body: { query } }, signal);
  if (data?.viewer === undefined) throw new Failure(500, "The server did not tell which sites there are.");
  const sites = (data.viewer.apps ?? []).map(({ id, logs }) => ({
    id,
    sources: (logs?.sources ?? []).map((source) => source.id),
  }));
  return { user: data.viewer.name, sites };
}

/**
 * Reads a stream of events until it ends, breaks or is aborted.
 * @param {Request} request
 * @param {{ readonly lastId: string }} resume
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<ReturnType<ReturnType<typeof createEventReader>>>}
 * @throws {Failure} status 406 where the server answers, but not with a stream
 */
export async function* streamEvents(request, { lastId }, signal) {
  const response = await sendRequest(request, signal, {
    Accept: "text/event-stream",
    ...(lastId === "" ? {} : { "Last-Event-ID": lastId }),
  });
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream") || response.body === null) {
    await response.body?.cancel();
    throw new Failure(406, "Live tail is not available on this server.");
  }
  const read = createEventReader();
  const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) return;
      yield read(value);
    }
  } finally {
    pieces.cancel().catch(() => {});
  }
}
