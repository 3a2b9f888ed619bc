// The attributes of a layout under their own keys, compiled once for a form and a site: which prefixes, lists and names of a
// document they lie at, and how their keys are spelled there.
import type { Attributes, Value } from "../../../src/core/rows.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import { add, type Fields, listAt, type Table, valueAt } from "../document/field-table.ts";
import type { AttributeSource, AttributeSources } from "./span-layout.ts";

/** What a document has of them, all but for those that `without` leaves out; where two sources have a key the first counts. */
export type AttributeReader = (fields: Fields) => Attributes;

/** `site` tells the keys that a layout whose spelling loses characters may have. */
export function compileAttributes(
  table: Table,
  { from }: AttributeSources,
  site: SpanSource | undefined,
): AttributeReader {
  const sources = from.map((source) => compileSource(table, source, site));
  const [only, ...others] = sources;
  if (only !== undefined && "below" in only && others.length === 0)
    return ({ below }) => below[only.below]?.attributes ?? {};
  return (fields) => {
    const found: Record<string, Value> = {};
    for (const source of sources) {
      if ("addTo" in source) source.addTo(found, fields);
      else addAll(found, fields.below[source.below]?.attributes ?? {});
    }
    return found;
  };
}

function compileSource(
  table: Table,
  source: AttributeSource,
  site: SpanSource | undefined,
): { readonly below: number } | { readonly addTo: (found: Record<string, Value>, fields: Fields) => void } {
  if ("prefix" in source) {
    const { prefix, dot, spelling, known, keep, except } = source;
    const respelled = (name: string) => {
      const key = keep ? name : name.slice(prefix.length);
      if (spelling !== undefined && site !== undefined) return unspell(key, { spelling, known }, site);
      return dot === undefined ? key : key.replaceAll(dot, ".");
    };
    const isPlain = !keep && dot === undefined && (spelling === undefined || site === undefined);
    return { below: table.prefix(prefix, except, isPlain ? undefined : respelled) };
  }
  if ("pairs" in source) {
    const pairs = table.list(source.pairs);
    const addTo = (found: Record<string, Value>, fields: Fields) => {
      for (const { key, type, value } of listAt(fields, pairs)) {
        if (typeof key === "string" && value !== undefined) add(found, key, typed(value, type));
      }
    };
    return { addTo };
  }
  const named = Object.entries(source.named).map(([key, names]) => {
    return { key, places: names.map((name) => table.place(name)) };
  });
  const addTo = (found: Record<string, Value>, fields: Fields) => {
    for (const { key, places } of named) {
      for (const place of places) {
        const value = valueAt(fields, place);
        if (value === undefined) continue;
        add(found, key, value);
        break;
      }
    }
  };
  return { addTo };
}

function addAll(found: Record<string, Value>, attributes: Attributes): void {
  for (const [key, value] of Object.entries(attributes)) add(found, key, value);
}

/** The value that a text stands for by the type beside it. */
function typed(value: Value, type: Value | undefined): Value {
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

export function without(attributes: Attributes, omit: readonly string[]): Attributes {
  if (!omit.some((key) => Object.hasOwn(attributes, key))) return attributes;
  return Object.fromEntries(Object.entries(attributes).filter(([key]) => !omit.includes(key)));
}

/** What label keys of APM cannot have in them. */
export const lost = /[.*"]/g;

/** A configured key as the layout may spell it: as it is, or with what its sources put for characters that they lose. */
export function spellings(key: string, { from }: AttributeSources): readonly string[] {
  const spelled = from.flatMap((source) =>
    "prefix" in source && source.spelling !== undefined ? [key.replace(lost, source.spelling)] : [],
  );
  return [...new Set([key, ...spelled])];
}

/** The key that an attribute has for the application, for one whose characters a layout does not keep. */
function unspell(
  key: string,
  source: { readonly spelling: string; readonly known: readonly string[] },
  site: SpanSource,
): string {
  const spelled = (name: string) => name.replace(lost, source.spelling);
  const own = [site.namespaceAttribute, site.actionAttribute, ...source.known].find(
    (name) => spelled(name) === key,
  );
  if (own !== undefined) return own;
  const prefix = site.tagPrefixes.find((name) => key.startsWith(spelled(name)));
  return prefix === undefined ? key : prefix + key.slice(prefix.length);
}
