// Reads the attributes of a document under the keys that the application gave them. The sources of a layout (prefixes, lists of
// pairs, names) and the spelling of keys are compiled once for each form and site.
import type { Attributes, AttributeValue } from "../../../src/core/rows.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import {
  addAttribute,
  type FieldTable,
  type FieldValues,
  readFieldList,
  readFieldValue,
} from "../document/field-table.ts";
import { flattenDocument, isValueObject, type ValueObject } from "../document/flatten.ts";
import type { AttributeSource, AttributeSources } from "./span-layout.ts";
import { toText } from "./value-rules.ts";

/** Returns all attributes of a document, those under `omit` included. Where two sources have a key, the first counts. */
export type AttributeReader = (fields: FieldValues) => Attributes;

/** The attributes of one source: those below a prefix of the table, or what `addTo` adds. */
type CompiledSource =
  | { readonly prefix: number }
  | { readonly addTo: (found: Record<string, AttributeValue>, fields: FieldValues) => void };

/** With `site`, restores the keys that its settings name, in layouts whose spelling of keys loses characters. */
export function compileAttributes(
  table: FieldTable,
  { from, frames = [] }: AttributeSources,
  site: SpanSource | undefined,
): AttributeReader {
  const sources = from.map((source) => compileSource(table, source, frames, site));
  const [only, ...others] = sources;
  if (only !== undefined && "prefix" in only && others.length === 0)
    return ({ byPrefix }) => byPrefix[only.prefix]?.attributes ?? {};
  return (fields) => {
    const found: Record<string, AttributeValue> = {};
    for (const source of sources) {
      if ("addTo" in source) source.addTo(found, fields);
      else addAttributes(found, fields.byPrefix[source.prefix]?.attributes);
    }
    return found;
  };
}

function compileSource(
  table: FieldTable,
  source: AttributeSource,
  frames: readonly string[],
  site: SpanSource | undefined,
): CompiledSource {
  if ("prefix" in source) return compilePrefix(table, source, site);
  if ("pairs" in source) {
    const pairs = table.addList(source.pairs);
    const addTo = (found: Record<string, AttributeValue>, fields: FieldValues) => {
      for (const { key, type, value } of readFieldList(fields, pairs)) {
        if (typeof key === "string" && value !== undefined)
          addAttribute(found, key, parseTypedValue(value, type));
      }
    };
    return { addTo };
  }
  const named = Object.entries(source.named).map(([key, names]) => {
    const format = frames.includes(key) ? formatFrames : undefined;
    return { key, format, fields: names.map((name) => table.addField(name)) };
  });
  const addTo = (found: Record<string, AttributeValue>, values: FieldValues) => {
    for (const { key, format, fields } of named) {
      for (const field of fields) {
        const own = readFieldValue(values, field);
        const value = own === undefined || format === undefined ? own : format(own);
        if (value === undefined) continue;
        addAttribute(found, key, value);
        break;
      }
    }
  };
  return { addTo };
}

function compilePrefix(
  table: FieldTable,
  { prefix, dot, spelling, known, keep, except }: Extract<AttributeSource, { prefix: string }>,
  site: SpanSource | undefined,
): CompiledSource {
  const formatKey = (name: string) => {
    const key = keep ? name : name.slice(prefix.length);
    if (spelling !== undefined && site !== undefined) return restoreKey(key, { spelling, known }, site);
    return dot === undefined ? key : key.replaceAll(dot, ".");
  };
  const isPlain = !keep && dot === undefined && (spelling === undefined || site === undefined);
  return { prefix: table.addPrefix(prefix, except, isPlain ? undefined : formatKey) };
}

/** The frames of a stack as a text with a line for each, the form of a stack in other layouts. What is no list stays. */
function formatFrames(value: AttributeValue): AttributeValue | undefined {
  if (!Array.isArray(value)) return value;
  const lines = value.filter(isValueObject).flatMap((frame) => formatFrame(frame) ?? []);
  return lines.length === 0 ? undefined : lines.join("\n");
}

/** A frame by the names of Elastic APM, such as `at shop.Cart.pay (cart.js:12:3)`. A line 0 is unknown. */
function formatFrame(frame: ValueObject): string | undefined {
  const flat = flattenDocument(frame);
  const read = (name: string) => toText(flat.get(name));
  const file = read("filename") ?? read("abs_path");
  const line = read("line.number");
  const numbers = line === undefined || line === "0" ? [] : [line, read("line.column")];
  const library = read("library_frame") === "true" ? "library" : undefined;
  const place =
    file === undefined ? library : [file, ...numbers].filter((part) => part !== undefined).join(":");
  const names = [read("classname") ?? read("module"), read("function")].filter((part) => part !== undefined);
  if (names.length === 0) return file && `at ${place}`;
  return place === undefined ? `at ${names.join(".")}` : `at ${names.join(".")} (${place})`;
}

function addAttributes(found: Record<string, AttributeValue>, attributes: Attributes | undefined): void {
  if (attributes === undefined) return;
  for (const [key, value] of Object.entries(attributes)) addAttribute(found, key, value);
}

/** The value that a text means by the type beside it. A text that does not fit its type stays a text. */
function parseTypedValue(value: AttributeValue, type: AttributeValue | undefined): AttributeValue {
  if (typeof value !== "string" || typeof type !== "string") return value;
  switch (type.toLowerCase()) {
    case "bool":
      return value === "true" ? true : value === "false" ? false : value;
    case "int64": {
      if (!/^-?\d{1,19}$/.test(value)) return value;
      return Number.isSafeInteger(Number(value)) ? Number(value) : BigInt(value);
    }
    case "float64":
      return value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value;
    default:
      return value;
  }
}

/** All attributes but those with a key of `omit`; the same object if there are none. */
export function omitAttributes(attributes: Attributes, omit: readonly string[]): Attributes {
  if (!omit.some((key) => Object.hasOwn(attributes, key))) return attributes;
  return Object.fromEntries(Object.entries(attributes).filter(([key]) => !omit.includes(key)));
}

/** Characters that APM replaces in the keys of labels. */
export const lossyCharacters = /[.*"]/g;

/** The spellings that a configured key may have in the documents: its own, and those with lossy characters replaced. */
export function listSpellings(key: string, { from }: AttributeSources): readonly string[] {
  const spelled = from.flatMap((source) =>
    "prefix" in source && source.spelling !== undefined
      ? [key.replace(lossyCharacters, source.spelling)]
      : [],
  );
  return [...new Set([key, ...spelled])];
}

/** The application's own key for a key with replaced characters, if the layout or the site's settings name it. */
function restoreKey(
  key: string,
  source: { readonly spelling: string; readonly known: readonly string[] },
  site: SpanSource,
): string {
  const spelled = (name: string) => name.replace(lossyCharacters, source.spelling);
  const own = [site.namespaceAttribute, site.actionAttribute, ...source.known].find(
    (name) => spelled(name) === key,
  );
  if (own !== undefined) return own;
  const prefix = site.tagPrefixes.find((name) => key.startsWith(spelled(name)));
  return prefix === undefined ? key : prefix + key.slice(prefix.length);
}
