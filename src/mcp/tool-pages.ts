// Cuts an answer into pages for a reader with a small memory: whole rows up to a number of characters, long texts within a
// row cut at a mark that tells where to go on, and an opaque cursor for the rows that are left.
import { createHash } from "node:crypto";
import * as z from "zod";
import { createPause } from "../core/async/turns.ts";
import { isJsonObject } from "../core/json/lossless-json.ts";
import { tryParseJson } from "../core/json/parse-json.ts";
import { createInvalidRequest } from "../operations/runtime/request-body.ts";

/** Text of the rows of a page. */
export const maxPageChars = 32_000;
/** Of a row that is longer than a page as a whole, this much is shown at once. */
const maxRowChars = 15_000;

interface CellBounds {
  /** Longer texts are cut. */
  readonly maxChars: number;
  /** Where what is shown of them begins. */
  readonly offset: number;
}

/** Rows of a page, and how many of those at hand they are. */
export interface FittedRows {
  readonly rows: readonly unknown[];
  readonly shown: number;
}

/** As many of the rows as fit, at least one; in turns of the event loop, since a text may have a million characters. */
export async function fitRows(
  rows: readonly unknown[],
  most: number,
  bounds: CellBounds,
): Promise<FittedRows> {
  const pauseIfLong = createPause();
  const fitted: unknown[] = [];
  let chars = 0;
  for (const row of rows) {
    if (fitted.length === most) break;
    await pauseIfLong();
    const { cut, length } = cutRow(row, bounds);
    if (fitted.length > 0 && chars + length > maxPageChars) break;
    fitted.push(cut);
    chars += length;
  }
  return { rows: fitted, shown: fitted.length };
}

interface CutRow {
  readonly cut: unknown;
  /** Of its JSON. */
  readonly length: number;
}

/** A row whose texts are cut. One that is still longer than a page is shown as its text, piece by piece. */
function cutRow(row: unknown, bounds: CellBounds): CutRow {
  const { text, charsOfLong } = printShortTexts(row, bounds.maxChars);
  if (charsOfLong === 0 && text.length <= bounds.maxChars) return { cut: row, length: text.length };
  const cut =
    text.length + charsOfLong <= maxPageChars
      ? cutCells(row, bounds)
      : { row_as_text: cutText(JSON.stringify(row), { ...bounds, maxChars: maxRowChars }) };
  return { cut, length: JSON.stringify(cut).length };
}

/**
 * The JSON of a row without its long texts, and what these take at most, wherever the shown parts of them begin: so all parts
 * are shown in one form.
 */
function printShortTexts(
  row: unknown,
  maxChars: number,
): { readonly text: string; readonly charsOfLong: number } {
  const maxShown = maxEscape * maxChars;
  let charsOfLong = 0;
  const text = JSON.stringify(row, (_key, value: unknown) => {
    if (typeof value !== "string" || value.length <= maxChars) return value;
    // Most long texts are so long that their own escapes make no difference.
    const chars = value.length < maxShown ? Math.min(JSON.stringify(value).length, maxShown) : maxShown;
    charsOfLong += chars + maxMarkChars;
    return "";
  });
  return { text, charsOfLong };
}

/** The longest spelling of a character in JSON, and more than a mark takes. */
const maxEscape = 6;
const maxMarkChars = 100;

function cutCells(value: unknown, bounds: CellBounds): unknown {
  if (typeof value === "string") return cutText(value, bounds);
  if (Array.isArray(value)) return value.map((one) => cutCells(one, bounds));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, cutCells(one, bounds)]));
}

/** A text that is not longer than the bound is always whole. No surrogate pair is split. */
function cutText(text: string, { maxChars, offset }: CellBounds): string {
  if (text.length <= maxChars) return text;
  const from = isWithinPair(text, offset) ? offset - 1 : offset;
  if (from >= text.length) return `[nothing at offset ${offset}: this text has ${text.length} characters]`;
  let end = Math.min(text.length, from + maxChars);
  if (isWithinPair(text, end)) end -= 1;
  const rest = end < text.length ? `; go on with offset ${end}` : "; this is its end";
  return `${text.slice(from, end)}[characters ${from} to ${end} of ${text.length}${rest}]`;
}

function isWithinPair(text: string, at: number): boolean {
  return /^[\uD800-\uDBFF][\uDC00-\uDFFF]$/.test(text.slice(at - 1, at + 1));
}

// ---- Cursors ------------------------------------------------------------------------------------------------

const positionSchema = z.object({
  /** Of the tool and its arguments: a cursor of others would lead astray. */
  of: z.string(),
  /** What "now" was on the first page, so that all pages have one range. */
  now: z.string(),
  /** Rows of the listing behind `after` that were shown already. */
  skip: z.int().min(0),
  /** The operation's own cursor, where it pages by itself. */
  after: z.union([z.object({ time: z.string() }), z.object({ duration: z.number() }), z.null()]),
});
/** Where a page begins. */
export type Position = z.output<typeof positionSchema>;

/** What a cursor holds of a tool's arguments. */
export function hashArguments(tool: string, args: Readonly<Record<string, unknown>>): string {
  const own = Object.entries(args).sort(([a], [b]) => (a < b ? -1 : 1));
  const text = JSON.stringify([tool, own]);
  return createHash("sha256").update(text).digest("base64url").slice(0, 16);
}

export function encodeCursor(position: Position): string {
  return Buffer.from(JSON.stringify(position)).toString("base64url");
}

/** @throws {Unprocessable} `invalid_request` where it is no cursor, or one of other arguments */
export function decodeCursor(cursor: string, of: string): Position {
  const position = readPosition(cursor);
  if (position === undefined) throw createCursorError("is no cursor that a tool has answered");
  if (position.of !== of)
    throw createCursorError("belongs to other arguments; repeat those of the first page");
  return position;
}

function readPosition(cursor: string): Position | undefined {
  const text = Buffer.from(cursor, "base64url").toString("utf8");
  return positionSchema.safeParse(tryParseJson(text)).data;
}

function createCursorError(message: string) {
  return createInvalidRequest([{ path: "cursor", message }]);
}
