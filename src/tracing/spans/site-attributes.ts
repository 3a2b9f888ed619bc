// What a site's configuration reads out of a span's attributes.
import type { Attributes, Span, Value } from "../../core/rows.ts";
import type { SpanSource } from "../../store/span-reader.ts";

type Names = Pick<Span, "namespace" | "action" | "tags">;

/**
 * The namespace, action and tags of a span, by its own attributes alone. Texts count, and are never empty; a list
 * stands for its first, because an index does not tell a list of one from its element.
 */
export function readNames(
  attributes: Attributes,
  { namespaceAttribute, actionAttribute, tagPrefixes }: SpanSource,
): Names {
  return {
    namespace: textAt(attributes, namespaceAttribute),
    action: textAt(attributes, actionAttribute),
    tags: readTags(attributes, tagPrefixes),
  };
}

function textAt(attributes: Attributes, key: string): string | undefined {
  const own = Object.hasOwn(attributes, key) ? attributes[key] : undefined;
  const value = firstOf(own);
  return typeof value === "string" && value !== "" ? value : undefined;
}

function firstOf(value: Value | undefined): Value | undefined {
  if (!isList(value)) return value ?? undefined;
  return value.map(firstOf).find((element) => element !== undefined);
}

function isList(value: Value | undefined): value is readonly Value[] {
  return Array.isArray(value);
}

const none: Attributes = {};

/** Of two keys that name one tag the first prefix wins. */
function readTags(attributes: Attributes, prefixes: readonly string[]): Attributes {
  // Hardly any span has one.
  let tags: Map<string, Value> | undefined;
  for (const prefix of prefixes) {
    for (const key in attributes) {
      if (!key.startsWith(prefix)) continue;
      const name = key.slice(prefix.length);
      const value = attributes[key];
      if (name === "" || value === undefined || tags?.has(name)) continue;
      tags = (tags ?? new Map<string, Value>()).set(name, value);
    }
  }
  return tags === undefined ? none : Object.fromEntries(tags);
}
