// The attributes of a layout under their own keys, compiled once for a form and a site: which prefixes, lists and names of a
// document they lie at, and how their keys are spelled there.
import type { Attributes, AttributeValue } from "../../../src/core/rows.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import {
  addAttribute,
  type FieldTable,
  type FieldValues,
  readFieldList,
  readFieldValue,
} from "../document/field-table.ts";
import type { AttributeSource, AttributeSources } from "./span-layout.ts";

/** What a document has of them, all but for those that `omitAttributes` leaves out; where two sources have a key the first counts. */
export type AttributeReader = (fields: FieldValues) => Attributes;

/** `buildDemoSite` tells the keys that a layout whose spelling loses characters may have. */
export function compileAttributes(
  table: FieldTable,
  { from }: AttributeSources,
  site: SpanSource | undefined,
): AttributeReader {
  const sources = from.map((source) => compileSource(table, source, site));
  const [only, ...others] = sources;
  if (only !== undefined && "below" in only && others.length === 0)
    return ({ byPrefix: below }) => below[only.below]?.attributes ?? {};
  return (fields) => {
    const found: Record<string, AttributeValue> = {};
    for (const source of sources) {
      if ("addTo" in source) source.addTo(found, fields);
      else addAttributes(found, fields.byPrefix[source.below]?.attributes ?? {});
    }
    return found;
  };
}

function compileSource(
  table: FieldTable,
  source: AttributeSource,
  site: SpanSource | undefined,
):
  | { readonly below: number }
  | { readonly addTo: (found: Record<string, AttributeValue>, fields: FieldValues) => void } {
  if ("prefix" in source) {
    const { prefix, dot, spelling, known, keep, except } = source;
    const respelled = (name: string) => {
      const key = keep ? name : name.slice(prefix.length);
      if (spelling !== undefined && site !== undefined) return restoreKey(key, { spelling, known }, site);
      return dot === undefined ? key : key.replaceAll(dot, ".");
    };
    const isPlain = !keep && dot === undefined && (spelling === undefined || site === undefined);
    return { below: table.addPrefix(prefix, except, isPlain ? undefined : respelled) };
  }
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
    return { key, places: names.map((name) => table.addField(name)) };
  });
  const addTo = (found: Record<string, AttributeValue>, fields: FieldValues) => {
    for (const { key, places } of named) {
      for (const place of places) {
        const value = readFieldValue(fields, place);
        if (value === undefined) continue;
        addAttribute(found, key, value);
        break;
      }
    }
  };
  return { addTo };
}

function addAttributes(found: Record<string, AttributeValue>, attributes: Attributes): void {
  for (const [key, value] of Object.entries(attributes)) addAttribute(found, key, value);
}

/** The value that a text stands for by the type beside it. */
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

export function omitAttributes(attributes: Attributes, omit: readonly string[]): Attributes {
  if (!omit.some((key) => Object.hasOwn(attributes, key))) return attributes;
  return Object.fromEntries(Object.entries(attributes).filter(([key]) => !omit.includes(key)));
}

/** What label keys of APM cannot have in them. */
export const lossyCharacters = /[.*"]/g;

/** A configured key as the layout may spell it: as it is, or with what its sources put for characters that they lose. */
export function listSpellings(key: string, { from }: AttributeSources): readonly string[] {
  const spelled = from.flatMap((source) =>
    "prefix" in source && source.spelling !== undefined
      ? [key.replace(lossyCharacters, source.spelling)]
      : [],
  );
  return [...new Set([key, ...spelled])];
}

/** The key that an attribute has for the application, for one whose characters a layout does not keep. */
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
