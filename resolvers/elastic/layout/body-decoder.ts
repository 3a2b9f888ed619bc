// The structured body of a line whose layout keeps it in parts: attributes, a message of keys and values, what belongs to
// the record. Keys stay as they are spelled, and numbers too.

import { formatScalar, isJsonObject, type JsonObject, parseLossless } from "../document/lossless-json.ts";
import { type BodySource, findFirstText, type LogLayout, listSplits } from "./log-layout.ts";

/** The text of the body that these sources of a profile make of a document. */
export function readBody(document: JsonObject, layout: LogLayout, sources: readonly BodySource[]): string {
  // Without a prototype: `__proto__` is a key like any other.
  const body: Record<string, unknown> = Object.create(null);
  const add = (key: string, value: unknown): void => {
    if (!(key in body)) body[key] = value;
  };
  for (const source of sources) {
    if ("prefix" in source) {
      const { prefix, dot, except } = source;
      for (const [key, value] of iterateMembers(document, prefix)) {
        if (except.some((other) => `${prefix}${key}.`.startsWith(other))) continue;
        add(dot === undefined ? key : key.replaceAll(dot, "."), value);
      }
    } else if ("pairs" in source) {
      for (const pair of listObjects(document, source.pairs)) {
        const key = formatScalar(pair.key);
        if (key !== undefined) add(key, parseTypedValue(pair.value, pair.type));
      }
    } else if ("structured" in source) {
      const value = findStructuredMessage(document, layout);
      if (isJsonObject(value)) for (const key of Object.keys(value)) add(key, value[key]);
    } else if ("text" in source) {
      const value = parseTextObject(findFirstText(document, source.text));
      if (value !== undefined) for (const key of Object.keys(value)) add(key, value[key]);
    } else {
      for (const [key, names] of Object.entries(source.named)) {
        const value = findFirstValue(document, names);
        if (value !== undefined) add(key, value);
      }
    }
  }
  return JSON.stringify(body);
}

/** The message of a record that has no text for it: keys and values, or a list of them. */
export function findStructuredMessage(document: JsonObject, layout: LogLayout): unknown {
  if (findFirstText(document, layout.message) !== undefined) return undefined;
  const { json, structured = [] } = layout;
  // An index maps the key of an object with the first one, even of an empty one; of a list, only with its first value.
  // It may be spelled in dotted keys as well.
  if (json === "source")
    return structured.map((key) => document[key] ?? findValue(document, key)).find(isJsonObject);
  for (const source of json.from) {
    if (!("structured" in source)) continue;
    const value = findFirstValue(document, source.structured);
    if (typeof value === "object") return value;
  }
  return undefined;
}

function parseTextObject(text: string | undefined): JsonObject | undefined {
  if (text === undefined || !/^\s*\{/.test(text)) return undefined;
  try {
    const value = parseLossless(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function findFirstValue(document: JsonObject, names: readonly string[]): unknown {
  for (const name of names) {
    const value = findValue(document, name);
    if (value !== undefined) return value;
  }
  return undefined;
}

/** What lies at a dotted name. An object may be spelled in dotted keys, in part or as a whole. */
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

/** The members of the object at a prefix, which ends in a dot, wherever its dots are nesting or part of a key. */
function* iterateMembers(object: JsonObject, prefix: string): Generator<readonly [string, unknown]> {
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

function listObjects(document: JsonObject, name: string): readonly JsonObject[] {
  const value = findValue(document, name);
  return Array.isArray(value) ? value.filter(isJsonObject) : isJsonObject(value) ? [value] : [];
}

/** Shippers of pairs spell every value as text and tell its type beside it. */
function parseTypedValue(value: unknown, type: unknown): unknown {
  if (typeof value !== "string" || typeof type !== "string") return value;
  const isNumber = /^(?:u?int|float|double|long|number)/i.test(type);
  const literal = isNumber ? /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/ : /^(?:true|false)$/;
  return (isNumber || /^bool/i.test(type)) && literal.test(value) ? parseScalar(value) : value;
}

function parseScalar(text: string): unknown {
  const list = parseLossless(`[${text}]`);
  return Array.isArray(list) ? list[0] : text;
}
