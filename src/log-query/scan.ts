// The characters of the language, below any grammar. There is no token array: what a character means depends on where
// the parser stands (a backslash escapes in a field and inside quotes, and stands for itself in a plain value), so
// parse.ts pulls what it expects at a position. Every function reads each character at most a fixed number of times.
import { Unprocessable } from "../core/errors.ts";
import { type Operator, queryLimits, type SourceSpan } from "./ast.ts";

/** A piece of the query that was read, and where the next one starts (UTF-16 units). */
export interface ScannedText {
  readonly value: string;
  readonly end: number;
}

/** What a field scan met: dot-separated keys as written, and the operator that ended them, if one did. */
interface ScannedField {
  readonly keys: readonly [string, ...string[]];
  readonly operator: Operator | undefined;
  /** Where the operator starts; without one, where the scan stopped. */
  readonly end: number;
}

/** A syntax error at a place. `expected` completes "Expected …"; `hint` is a sentence of advice. */
export function createSyntaxError(
  query: string,
  span: SourceSpan,
  expected: string,
  hint?: string,
): Unprocessable<"invalid_log_query"> {
  const what = describeFound(query, span);
  const message = `Invalid query: expected ${expected}, found ${what}.${hint === undefined ? "" : ` ${hint}`}`;
  return new Unprocessable("invalid_log_query", message, { start: span.start, end: span.end, expected });
}

/** What stands at a place, for people; a missing thing is described by what stands in its stead. */
function describeFound(query: string, { start, end }: SourceSpan): string {
  if (start === query.length) return "the end of the query";
  const found = query.slice(start, Math.min(Math.max(end, start + 1), start + 24)).toWellFormed();
  return isSpace(query, start) ? "a space" : `${found}${end > start + 24 ? "…" : ""}`;
}

// What a UTF-16 unit can mean, by its code: the loops below read every character of a query, so they look it up.
const space = 1;
const parenthesis = 2;
const operatorStart = 4;
const dot = 8;
const backslash = 16;
const quote = 32;
const meanings = new Uint8Array(0x10000);
for (const [characters, meaning] of [
  [" \t\n\r", space],
  ["()", parenthesis],
  ["=:!<>", operatorStart],
  [".", dot],
  ["\\", backslash],
  ['"', quote],
] as const) {
  for (const character of characters) meanings[character.charCodeAt(0)] = meaning;
}

/** Zero for an ordinary character. Past the end of the query a term ends as at a space. */
function classifyAt(query: string, position: number): number {
  return position < query.length ? (meanings[query.charCodeAt(position)] ?? 0) : space;
}

export function isSpace(query: string, position: number): boolean {
  return position < query.length && classifyAt(query, position) === space;
}

/** Whether a term that reaches this position ends here: a space, a parenthesis or the end of the query. */
export function isTermEnd(query: string, position: number): boolean {
  return (classifyAt(query, position) & (space | parenthesis)) !== 0;
}

export function skipSpaces(query: string, start: number): number {
  let position = start;
  while (isSpace(query, position)) position++;
  return position;
}

/** Contract: a value "runs to a space or parenthesis"; backslashes and quotes inside it stand for themselves. */
export function scanWord(query: string, start: number): ScannedText {
  let end = start;
  while (!isTermEnd(query, end)) end++;
  return { value: query.slice(start, end), end };
}

/**
 * Rule 10: from the opening quote past the closing one. A backslash before anything but `"` and `\` stands for itself.
 * @throws {Unprocessable} `invalid_log_query` over the whole rest when no quote closes it
 */
export function scanQuoted(query: string, start: number): ScannedText {
  let value = "";
  let from = start + 1;
  for (let position = from; position < query.length; position++) {
    const character = query[position];
    if (character === '"') return { value: value + query.slice(from, position), end: position + 1 };
    if (character !== "\\") continue;
    const next = query[position + 1];
    if (next !== '"' && next !== "\\") continue;
    value += query.slice(from, position);
    from = position + 1;
    position++;
  }
  throw createSyntaxError(query, { start, end: query.length }, "a closing double quote");
}

/** The operator that starts here; a `!` alone is none. */
function scanOperator(query: string, position: number): Operator | undefined {
  const next = query[position + 1];
  switch (query[position]) {
    case "=":
      return "=";
    case ":":
      return ":";
    case "!":
      return next === "=" ? "!=" : next === ":" ? "!:" : undefined;
    case ">":
      return next === "=" ? ">=" : ">";
    case "<":
      return next === "=" ? "<=" : "<";
    default:
      return undefined;
  }
}

/** Whether a backslash takes the meaning from the character here: rule 6 says so of the dot, and a key may hold what would end it. */
function isEscapable(text: string, position: number): boolean {
  return position < text.length && classifyAt(text, position) !== 0;
}

/** Before anything else a backslash stands for itself, as it does inside quotes. */
export function unescapeKey(written: string): string {
  if (!written.includes("\\")) return written;
  return written.replace(/\\(.)/gs, (pair, escaped: string) => (isEscapable(escaped, 0) ? escaped : pair));
}

export function escapeKey(key: string): string {
  // No letter, digit or underscore has a meaning.
  return key.replace(/\W/g, (character, position: number) =>
    isEscapable(key, position) && !isPlainBang(key, position) ? `\\${character}` : character,
  );
}

/** A `!` that neither begins an operator nor ends the key: so `!_string` is printed plainly, and keeps its suffix. */
function isPlainBang(key: string, position: number): boolean {
  return key[position] === "!" && /[^=:]/.test(key.charAt(position + 1));
}

/** Whether a key as written begins with a backslash that escapes nothing: see field.ts. */
export function isGuarded(written: string): boolean {
  return written.startsWith("\\") && written.length > 1 && !isEscapable(written, 1);
}

/** Contract: "the first operator of a term ends the field". Of more keys than a path may have, one is kept beyond the bound. */
export function scanField(query: string, start: number): ScannedField {
  const keys: string[] = [];
  let from = start;
  let position = start;
  let operator: Operator | undefined;
  for (; ; position++) {
    const meaning = classifyAt(query, position);
    if (meaning === 0) continue;
    if (meaning === backslash && isEscapable(query, position + 1)) position++;
    else if (meaning === dot) {
      if (keys.length < queryLimits.segments) keys.push(query.slice(from, position));
      from = position + 1;
    } else if (meaning === operatorStart) {
      operator = scanOperator(query, position);
      if (operator !== undefined) break;
    } else if (meaning === space || meaning === parenthesis) break;
  }
  const last = query.slice(from, position);
  const [first, ...others] = keys;
  return { keys: first === undefined ? [last] : [first, ...others, last], operator, end: position };
}
