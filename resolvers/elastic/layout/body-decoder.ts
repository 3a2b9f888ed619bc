// Decodes the structured body of a log line whose layout keeps it in several places of the document: attributes, a message of
// keys and values, fields of the record. Keys and numbers keep their spelling.

import {
  formatScalar,
  isJsonObject,
  type JsonObject,
  parseLossless,
} from "../../../src/core/json/lossless-json.ts";
import { findFirstText, findFirstValue, findValue, iterateMembers } from "../document/dotted-names.ts";
import type { BodySource, LogLayout } from "./log-layout.ts";

type Body = Record<string, unknown>;

/** The JSON text of the body that the sources of a layout yield for a document. Where two have a key, the first counts. */
export function readBody(document: JsonObject, layout: LogLayout, sources: readonly BodySource[]): string {
  // Without a prototype, so that `__proto__` is a key like any other.
  const body: Body = Object.create(null);
  for (const source of sources) {
    if ("prefix" in source) addPrefixMembers(body, document, source);
    else if ("pairs" in source) addPairs(body, document, source.pairs);
    else if ("structured" in source) addMembers(body, findStructuredMessage(document, layout));
    else if ("text" in source) addMembers(body, parseTextObject(findFirstText(document, source.text)));
    else addNamedValues(body, document, source.named);
  }
  return JSON.stringify(body);
}

function addMember(body: Body, key: string, value: unknown): void {
  if (!(key in body)) body[key] = value;
}

function addMembers(body: Body, value: unknown): void {
  if (isJsonObject(value)) for (const key of Object.keys(value)) addMember(body, key, value[key]);
}

function addPrefixMembers(
  body: Body,
  document: JsonObject,
  { prefix, dot, except }: Extract<BodySource, { prefix: string }>,
): void {
  for (const [key, value] of iterateMembers(document, prefix)) {
    if (except.some((other) => `${prefix}${key}.`.startsWith(other))) continue;
    addMember(body, dot === undefined ? key : key.replaceAll(dot, "."), value);
  }
}

function addPairs(body: Body, document: JsonObject, name: string): void {
  for (const pair of listObjects(document, name)) {
    const key = formatScalar(pair.key);
    if (key !== undefined) addMember(body, key, parseTypedValue(pair.value, pair.type));
  }
}

function addNamedValues(
  body: Body,
  document: JsonObject,
  named: Readonly<Record<string, readonly string[]>>,
): void {
  for (const [key, names] of Object.entries(named)) {
    const value = findFirstValue(document, names);
    if (value !== undefined) addMember(body, key, value);
  }
}

/** The message of a document without a text for it: an object, or a list of them; undefined if it has neither. */
export function findStructuredMessage(document: JsonObject, layout: LogLayout): unknown {
  if (findFirstText(document, layout.message) !== undefined) return undefined;
  const { json, structured = [] } = layout;
  // Objects only: an index maps the key of an object with the first one, even an empty one, but that of a list only with its
  // first value. The object may also be spelled in dotted keys.
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

function listObjects(document: JsonObject, name: string): readonly JsonObject[] {
  const value = findValue(document, name);
  return Array.isArray(value) ? value.filter(isJsonObject) : isJsonObject(value) ? [value] : [];
}

/** Shippers of pairs write every value as text, with its type beside it. A text that does not fit its type stays a text. */
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
