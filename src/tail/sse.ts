// What a live tail says, as server-sent events. `id` is where to go on: opaque to clients, it is the last closed
// millisecond, up to which every line has been sent before the event.
import type { Unprocessable } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import {
  fromMillis,
  type Instant,
  lastMilli,
  nanosPerMilli,
  printInstantToMilli,
  toMillis,
} from "../core/time.ts";
import { printLine } from "../operations/logs/lines.ts";
import { createInvalidRequest } from "../operations/runtime/request-body.ts";

/** Why a tail ends. Only after `complete` and `refused` there is nothing to be had by coming back. */
export type TailEnd =
  | { readonly reason: "complete" | "slow" | "draining" | "reloaded" | "expired" }
  | { readonly reason: "refused"; readonly error: Unprocessable };

/** `point` is the first instant that is still open. */
export function encodeEventId(point: Instant): string {
  return Buffer.from(String(toMillis(point) - 1)).toString("base64url");
}

/** The first instant that was open. @throws {Unprocessable} `invalid_request` for what is no id of ours */
export function decodeEventId(id: string): Instant {
  const text = Buffer.from(id, "base64url").toString("latin1");
  // Within what has a text as a time.
  if (!/^-?\d{1,15}$/.test(text) || Math.abs(Number(text)) > lastMilli) {
    const message = "expected the id of an event of a live tail";
    throw createInvalidRequest([{ path: "Last-Event-ID", message }]);
  }
  return (fromMillis(Number(text)) + nanosPerMilli) as Instant;
}

/** Rows are printed once, however many tails they go to, while the lines are new. */
const rowTexts = new WeakMap<LogLine, string>();
function printRow(line: LogLine): string {
  const known = rowTexts.get(line);
  if (known !== undefined) return known;
  const row = printLine(line, printInstantToMilli(line.time));
  rowTexts.set(line, row);
  return row;
}

/** The last texts, by their lines: tails of one query are at one point, and share them. */
const batchTexts = new WeakMap<readonly LogLine[], { readonly id: string; readonly text: string }>();
export function printLines(lines: readonly LogLine[], id: string): string {
  const known = batchTexts.get(lines);
  if (known?.id === id) return known.text;
  const text = lines.map((line) => `event: line\nid: ${id}\ndata: ${printRow(line)}\n\n`).join("");
  batchTexts.set(lines, { id, text });
  return text;
}

/** An event without data dispatches nothing, but its id is kept: a quiet tail that comes back reads little again. */
export function printOpening(id: string): string {
  return `retry: 1000\nid: ${id}\n\n`;
}
export function printHeartbeat(id: string): string {
  return `:\nid: ${id}\n\n`;
}

export function printRetry(sentence: string, retryInMillis: number): string {
  return `event: retry\ndata: ${JSON.stringify({ error: sentence, retry_in_ms: retryInMillis })}\n\n`;
}
export const resumedEvent = "event: resumed\ndata: {}\n\n";

/** `id` is that of what the client has received, since what still waited for it is not sent. */
export function printEnd(end: TailEnd, id: string): string {
  const refusal =
    end.reason === "refused"
      ? { error: end.error.slug, message: end.error.message, details: end.error.details }
      : {};
  return `event: end\nid: ${id}\ndata: ${JSON.stringify({ reason: end.reason, ...refusal })}\n\n`;
}
