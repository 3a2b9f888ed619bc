// What a site's configuration reads out of a span's attributes.
import type { Attributes, AttributeValue, Span } from "../../core/rows.ts";
import type { SpanSource } from "../../store/spans.ts";

type ConfiguredNames = Pick<Span, "namespace" | "action" | "tags">;

/**
 * The namespace, action and tags of a span, by its own attributes alone. Texts count, and are never empty; a list
 * stands for its first, because an index does not tell a list of one from its element.
 */
export function readConfiguredNames(
  attributes: Attributes,
  { namespaceAttribute, actionAttribute, tagPrefixes }: SpanSource,
): ConfiguredNames {
  return {
    namespace: readText(attributes, namespaceAttribute),
    action: readText(attributes, actionAttribute),
    tags: readTags(attributes, tagPrefixes),
  };
}

function readText(attributes: Attributes, key: string): string | undefined {
  const own = Object.hasOwn(attributes, key) ? attributes[key] : undefined;
  const value = findFirstValue(own);
  return typeof value === "string" && value !== "" ? value : undefined;
}

function findFirstValue(value: AttributeValue | undefined): AttributeValue | undefined {
  if (!isList(value)) return value ?? undefined;
  return value.map(findFirstValue).find((element) => element !== undefined);
}

function isList(value: AttributeValue | undefined): value is readonly AttributeValue[] {
  return Array.isArray(value);
}

const noTags: Attributes = {};

/** Of two keys that name one tag the first prefix wins. */
function readTags(attributes: Attributes, prefixes: readonly string[]): Attributes {
  // Hardly any span has one.
  let tags: Map<string, AttributeValue> | undefined;
  for (const prefix of prefixes) {
    for (const key in attributes) {
      if (!key.startsWith(prefix)) continue;
      const name = key.slice(prefix.length);
      const value = attributes[key];
      if (name === "" || value === undefined || tags?.has(name)) continue;
      tags = (tags ?? new Map<string, AttributeValue>()).set(name, value);
    }
  }
  return tags === undefined ? noTags : Object.fromEntries(tags);
}
