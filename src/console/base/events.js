// A stream of server-sent events, read from `fetch`: the browser's own EventSource can send neither a body nor a token
// outside the address.
import { createWatch, Failure, sendRequest } from "./api.js";

/** @typedef {{ readonly event: string, readonly data: string }} ServerEvent */

/** How long a stream may be silent: three heartbeats of the server. */
const silenceMillis = 45_000;

/**
 * Reads a stream of events until it ends, breaks, falls silent or is aborted.
 * @param {import("./share.js").Request} request
 * @param {{ readonly lastId: string }} resume
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<ReturnType<ReturnType<typeof createEventReader>>>}
 * @throws {Failure} status 406 where the server answers, but not with a stream
 */
export async function* streamEvents(request, { lastId }, signal) {
  const watch = createWatch(signal);
  try {
    const response = await sendRequest(request, watch.signal, {
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
        watch.wait(silenceMillis);
        const { done, value } = await pieces.read();
        if (done) return;
        yield read(value);
      }
    } finally {
      pieces.cancel().catch(() => {});
    }
  } finally {
    watch.stop();
  }
}

/**
 * Takes a stream's text in pieces, cut anywhere, and gives the events that each completes, and the last id so far, which
 * also comes alone: it says where to go on.
 * @returns {(piece: string) => { readonly events: readonly ServerEvent[], readonly id: string }}
 */
export function createEventReader() {
  let rest = "";
  let id = "";
  let event = "";
  /** @type {string[]} */
  let data = [];
  return (piece) => {
    /** @type {ServerEvent[]} */
    const events = [];
    // A carriage return may be half of a line's end, so the last one waits.
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) events.push({ event: event || "message", data: data.join("\n") });
        event = "";
        data = [];
        continue;
      }
      const { name, value } = splitField(line);
      if (name === "data") data.push(value);
      else if (name === "event") event = value;
      else if (name === "id") id = value;
    }
    return { events, id };
  };
}

/** @param {string} line a field's name, and after a colon its value */
function splitField(line) {
  const colon = line.indexOf(":");
  if (colon === -1) return { name: line, value: "" };
  return { name: line.slice(0, colon), value: line.slice(colon + 1).replace(/^ /, "") };
}

/**
 * Whether the source of a live tail fails, by the last that was said of it: a heartbeat says nothing.
 * @param {boolean} wasFailing @param {readonly ServerEvent[]} events
 */
export function isTailSourceFailing(wasFailing, events) {
  const last = events.at(-1);
  return last === undefined ? wasFailing : last.event === "retry";
}
