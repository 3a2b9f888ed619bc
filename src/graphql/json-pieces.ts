// Prints a value as JSON in pieces, since printing tens of megabytes at once holds the event loop up for as many
// milliseconds. The pieces joined are what `JSON.stringify` prints.

/** Characters of a piece, roughly. */
const pieceChars = 65_536;
/** A value with fewer parts than this is printed at once. A text counts as a part for each so many characters. */
const partsPrintedAtOnce = 2_000;
const charsPerPart = 32;

/** The pieces of a value that is no function, symbol or undefined. Cycles throw as in `JSON.stringify`, or a `RangeError`. */
export function* printJsonPieces(value: unknown): Generator<string> {
  let buffered = "";
  for (const text of printParts(value)) {
    buffered += text;
    if (buffered.length < pieceChars) continue;
    yield buffered;
    buffered = "";
  }
  if (buffered !== "") yield buffered;
}

function* printParts(value: unknown): Generator<string> {
  if (!isContainer(value) || countParts(value, partsPrintedAtOnce) > 0) {
    yield JSON.stringify(value);
    return;
  }
  if (Array.isArray(value)) {
    yield* printElements(value);
    return;
  }
  yield "{";
  let isFirst = true;
  for (const [key, own] of Object.entries(value)) {
    if (!isPrinted(own)) continue;
    yield `${isFirst ? "" : ","}${JSON.stringify(key)}:`;
    isFirst = false;
    yield* printParts(own);
  }
  yield "}";
}

/** Elements that are short together are printed at once. */
function* printElements(list: readonly unknown[]): Generator<string> {
  let before = "[";
  for (let start = 0; start < list.length; ) {
    let left = partsPrintedAtOnce;
    let end = start;
    while (end < list.length && left > 0) {
      left = countParts(list[end], left);
      if (left > 0) end += 1;
    }
    yield before;
    before = ",";
    if (end > start) {
      yield JSON.stringify(list.slice(start, end)).slice(1, -1);
      start = end;
    } else {
      yield* printParts(list[start]);
      start += 1;
    }
  }
  yield before === "[" ? "[]" : "]";
}

/** Whether a value may be printed part by part: objects with a `toJSON` print as that says. */
function isContainer(value: unknown): value is object {
  return (
    typeof value === "object" &&
    value !== null &&
    !("toJSON" in value && typeof value.toJSON === "function") &&
    (Array.isArray(value) || !isBoxed(value))
  );
}

function isBoxed(value: object): boolean {
  return (
    value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt
  );
}

function isPrinted(value: unknown): boolean {
  return (
    value !== undefined && typeof value !== "function" && typeof value !== "symbol" && !printsNothing(value)
  );
}

/** Whether `toJSON` leaves a value out. */
function printsNothing(value: unknown): boolean {
  if (typeof value !== "object" || value === null || isContainer(value)) return false;
  return JSON.stringify(value) === undefined;
}

/** What is left of `limit` after each part of the value is taken from it; 0 or less as soon as there are more. */
function countParts(value: unknown, limit: number): number {
  if (typeof value === "string") return limit - 1 - Math.floor(value.length / charsPerPart);
  if (!isContainer(value)) return limit - 1;
  let left = limit - 1;
  if (Array.isArray(value)) {
    for (const one of value) {
      if (left <= 0) return left;
      left = countParts(one, left);
    }
    return left;
  }
  for (const key in value) {
    if (left <= 0) return left;
    left = countParts((value as Readonly<Record<string, unknown>>)[key], left - 1);
  }
  return left;
}
