// Finds values at dotted names of a parsed document. The dots of a name are nesting or part of a key, in any combination. For
// texts an array counts as its elements, and the values that the scanner picked serve as well as the document.
import { requireFirst } from "../../../src/core/collections.ts";
import { formatScalar, isJsonObject, type JsonObject } from "../../../src/core/json/lossless-json.ts";
import type { PickedValues } from "./hit-scanner.ts";

/** All ways to read a dotted name as keys, the longest first key first: `a.b` is ["a.b"], then ["a", "b"]. */
function listSplits(name: string): readonly (readonly string[])[] {
  const known = knownSplits.get(name);
  if (known !== undefined) return known;
  const ways: string[][] = [];
  const segments = name.split(".");
  for (let mask = 0; mask < 1 << (segments.length - 1); mask++) {
    const keys = [requireFirst(segments)];
    for (const [at, segment] of segments.slice(1).entries()) {
      // The lowest bit separates the last two segments, so that a rising mask shortens the first key last.
      if ((mask & (1 << (segments.length - 2 - at))) === 0) keys.push(`${keys.pop()}.${segment}`);
      else keys.push(segment);
    }
    ways.push(keys);
  }
  knownSplits.set(name, ways);
  return ways;
}
const knownSplits = new Map<string, readonly (readonly string[])[]>();

/** The text of the first scalar at a dotted name; undefined if there is none. */
function findText(document: JsonObject, name: string): string | undefined {
  let first: string | undefined;
  const take = (text: string): boolean => {
    first = text;
    return true;
  };
  listSplits(name).some((keys) => visitScalars(document, keys, 0, take));
  return first;
}

/** The text of the first scalar at the first name that has one; undefined if none has. */
export function findFirstText(
  document: JsonObject | PickedValues,
  names: readonly string[],
): string | undefined {
  for (const name of names) {
    const text = document instanceof Map ? document.get(name) : findText(document, name);
    if (text !== undefined) return text;
  }
  return undefined;
}

/** The texts of all scalars at a dotted name, in the order of the document. */
export function listTexts(document: JsonObject | PickedValues, name: string): readonly string[] {
  const texts: string[] = [];
  if (document instanceof Map) {
    const text = document.get(name);
    return text === undefined ? texts : [text];
  }
  for (const keys of listSplits(name)) visitScalars(document, keys, 0, (text) => texts.push(text) === 0);
  return texts;
}

/** Calls `take` with each scalar, an array's elements included, until it returns true. Returns whether it did. */
function visitScalars(
  value: unknown,
  keys: readonly string[],
  from: number,
  take: (text: string) => boolean,
): boolean {
  if (Array.isArray(value)) return value.some((element) => visitScalars(element, keys, from, take));
  const key = keys[from];
  if (key === undefined) {
    const text = formatScalar(value);
    return text !== undefined && take(text);
  }
  return (
    typeof value === "object" &&
    value !== null &&
    Object.hasOwn(value, key) &&
    visitScalars((value as JsonObject)[key], keys, from + 1, take)
  );
}

/** The value of the first name that has one; undefined if none has. */
export function findFirstValue(document: JsonObject, names: readonly string[]): unknown {
  for (const name of names) {
    const value = findValue(document, name);
    if (value !== undefined) return value;
  }
  return undefined;
}

/**
 * The value at a dotted name; undefined if absent, null or an empty object. An object may be spelled in dotted keys, partly or
 * entirely.
 */
export function findValue(document: JsonObject, name: string): unknown {
  for (const keys of listSplits(name)) {
    let value: unknown = document;
    for (const key of keys) value = isJsonObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
    if (value !== undefined && value !== null && !isJsonObject(value)) return value;
  }
  const members = [...iterateMembers(document, `${name}.`)];
  if (members.length === 0) return undefined;
  const object: Record<string, unknown> = Object.create(null);
  for (const [key, value] of members) if (!(key in object)) object[key] = value;
  return object;
}

/** The members of the object at a prefix that ends in a dot; its dots are nesting or part of a key. */
export function* iterateMembers(object: JsonObject, prefix: string): Generator<readonly [string, unknown]> {
  for (const key of Object.keys(object)) {
    const value = object[key];
    if (key.length > prefix.length && key.startsWith(prefix)) yield [key.slice(prefix.length), value];
    else if (prefix.startsWith(`${key}.`) && isJsonObject(value)) {
      const rest = prefix.slice(key.length + 1);
      if (rest === "") yield* Object.entries(value);
      else yield* iterateMembers(value, rest);
    }
  }
}
