// Prints a value as JSON in pieces, since printing tens of megabytes at once holds the event loop up for as many
// milliseconds. The pieces joined are what `JSON.stringify` prints. It prints small values itself; large ones are opened.

import { yieldToEventLoop } from "../core/async/turns.ts";

/** Characters of a piece, roughly: a longer text finds no room among V8's young objects. */
const charsPerPiece = 65_536;

/** What is printed at once, roughly in characters. A value that is no text counts as some. */
const charsAtOnce = 16_384;
const charsPerNode = 16;

/** Below this depth every value is opened, so that a deep one is not measured again and again. */
const maxMeasuredDepth = 64;

/** An object or array whose values are being printed. */
interface OpenedValue {
  readonly opening: "[" | "{";
  readonly values: Readonly<Record<string, unknown>>;
  /** Absent for an array. */
  readonly keys: readonly string[] | undefined;
  readonly length: number;
  at: number;
  isEmpty: boolean;
}
/** A long text of which slices are being printed. */
interface OpenedText {
  readonly opening: '"';
  readonly text: string;
  at: number;
}
type Opened = OpenedValue | OpenedText;

/**
 * The text of `JSON.stringify(root)` in pieces of some 65,536 characters, at least one. A piece is printed when it is
 * asked for, and takes a millisecond or so whatever the value holds. Values may be nested without bound.
 */
export function* printJsonPieces(root: object): Generator<string, void, void> {
  const top = openValue(root);
  const opened: Opened[] = [top];
  let text: string = top.opening;
  for (let inner = opened.at(-1); inner !== undefined; inner = opened.at(-1)) {
    text += "text" in inner ? printNextSlice(inner, opened) : printNextValue(inner, opened);
    if (text.length < charsPerPiece) continue;
    yield text;
    text = "";
  }
  if (text !== "") yield text;
}

/** Opens what is too large to be printed at once, and closes what is complete. */
function printNextValue(inner: OpenedValue, opened: Opened[]): string {
  if (inner.at === inner.length) {
    opened.pop();
    return inner.keys === undefined ? "]" : "}";
  }
  const key = inner.keys?.[inner.at];
  const value = inner.values[key ?? inner.at];
  inner.at += 1;
  const next = openIfLarge(value, opened.length);
  // Undefined for what JSON does not have, in spite of its declared type.
  const printed: string | undefined = next === undefined ? JSON.stringify(value) : next.opening;
  // An object leaves out what JSON does not have.
  if (printed === undefined && key !== undefined) return "";
  if (next !== undefined) opened.push(next);
  const before = (inner.isEmpty ? "" : ",") + (key === undefined ? "" : `${JSON.stringify(key)}:`);
  inner.isEmpty = false;
  return before + (printed ?? "null");
}

/** Surrogates of a pair stay together, since one alone is printed as an escape. */
function printNextSlice(inner: OpenedText, opened: Opened[]): string {
  const { text, at } = inner;
  if (at >= text.length) {
    opened.pop();
    return '"';
  }
  const code = text.charCodeAt(at + charsAtOnce - 1);
  inner.at += code >= 0xd800 && code < 0xdc00 ? charsAtOnce - 1 : charsAtOnce;
  return JSON.stringify(text.slice(at, inner.at)).slice(1, -1);
}

function openIfLarge(value: unknown, depth: number): Opened | undefined {
  if (typeof value === "string") {
    return value.length > charsAtOnce ? { opening: '"', text: value, at: 0 } : undefined;
  }
  if (!isContainer(value)) return undefined;
  return depth > maxMeasuredDepth || takeFrom(charsAtOnce, value) < 0 ? openValue(value) : undefined;
}

function openValue(value: object): OpenedValue {
  const keys = Array.isArray(value) ? undefined : Object.keys(value);
  const length = keys === undefined ? (value as readonly unknown[]).length : keys.length;
  const values = value as Readonly<Record<string, unknown>>;
  return { opening: keys === undefined ? "[" : "{", values, keys, length, at: 0, isEmpty: true };
}

// Part of ECMAScript, but not yet of TypeScript's library.
const { isRawJSON } = JSON as unknown as { readonly isRawJSON: (value: unknown) => boolean };

/** What can be printed value by value: no number that keeps its spelling, and nothing that prints itself. */
function isContainer(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  if ("toJSON" in value && typeof value.toJSON === "function") return false;
  if (Array.isArray(value)) return true;
  const prototype: unknown = Object.getPrototypeOf(value);
  return (prototype === Object.prototype || prototype === null) && !isRawJSON(value);
}

/** What is left of a number of characters after a value; below zero as soon as it is too large for them. */
function takeFrom(left: number, value: unknown): number {
  if (typeof value === "string") return left - charsPerNode - value.length;
  let rest = left - charsPerNode;
  if (typeof value !== "object" || value === null) return rest;
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length && rest >= 0; at++) rest = takeFrom(rest, value[at]);
    return rest;
  }
  const values = value as Readonly<Record<string, unknown>>;
  for (const key in values) {
    rest = takeFrom(rest - key.length, values[key]);
    if (rest < 0) return rest;
  }
  return rest;
}

// ---- A long text as an answer of Yoga ----------------------------------------------------------------------------

/**
 * What Yoga writes instead of a long text: alone for JSON, within an event or a part of several for the other two media
 * types. No JSON text holds such a character.
 */
export const placeOfText = "\u0000";

/** A text of which the rest is still to be printed. */
export interface LongText {
  readonly head: string;
  readonly rest: Iterator<string> | undefined;
}

/**
 * An answer up to this length is printed at once and has a length; a longer one is printed while it is sent. That takes no place
 * in `limits.streams`, which keep streams of REST from holding sources: nothing is read any more by now, and to refuse an
 * answer that has been read would waste all of it. What is held is bounded by `limits.rows`, and its client by the time in
 * which it may leave an answer unread.
 */
const maxCharsAtOnce = 131_072;

export function printLongText(value: object): LongText {
  const rest = printJsonPieces(value);
  let head = "";
  while (head.length < maxCharsAtOnce) {
    const { done, value: piece } = rest.next();
    if (done) return { head, rest: undefined };
    head += piece;
  }
  return { head, rest };
}

/** The frame with the text in its place, each piece in a turn of its own, when the client takes it. */
export async function* printInTurns({ head, rest }: LongText, frame: string): AsyncGenerator<string> {
  const [before = "", after = ""] = frame.split(placeOfText);
  // The length of a part is that of the place, and may be left out.
  yield before.replace(/Content-Length: \d+\r\n/, "") + head;
  for (let next = rest?.next(); next !== undefined && next.done !== true; next = rest?.next()) {
    await yieldToEventLoop();
    yield next.value;
  }
  if (after !== "") yield after;
}
