// Reads the namespace, action and tags that a site's configuration finds in the attributes of a span.
import { readOwn } from "../../core/collections.ts";
import type { Attributes, AttributeValue, Span } from "../../core/rows.ts";
import type { SpanSource } from "../../store/spans.ts";

type ConfiguredNames = Pick<Span, "namespace" | "action" | "tags">;

/**
 * Only non-empty strings count as namespace and action. A list counts as its first value, because an index does not
 * distinguish a list of one value from the value.
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
  const own = readOwn(attributes, key);
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

/** The attributes below the prefixes, without the prefix. Where two keys name one tag, the first prefix wins. */
function readTags(attributes: Attributes, prefixes: readonly string[]): Attributes {
  // Most spans have no tags.
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
