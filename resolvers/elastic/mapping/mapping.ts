// What an index can search: lookups in the mappings of the indices behind one pattern, and queries for names that were
// mapped after they were read.
import { requireFirst } from "../../../src/core/collections.ts";
import { anyOf, buildIgnoredQuery, type Query } from "../client/query-dsl.ts";
import type { DynamicTemplate } from "./dynamic-templates.ts";
import { type IndexedField, plainTypes, scalarTypes } from "./indexed-field.ts";

/** Indices with the same mapping. */
export interface IndexGroup {
  readonly indices: readonly string[];
  readonly fields: ReadonlyMap<string, IndexedField>;
  /** Whether `_ignored` can be relied on: see `Product.listsIgnored`. */
  readonly createdSince715: boolean;
  /** The `dynamic` setting of the root; objects have their own in their fields. */
  readonly dynamic: string;
  /** Fields beyond the limit of a mapping stay out of it; the document's `_ignored` lists them or the object they lie in. */
  readonly dropsBeyondLimit: boolean;
  /** Malformed values stay out of the index by default, also those of names that are not mapped yet. */
  readonly ignoresMalformed: boolean;
  /** Has a `passthrough` object, whose keys also take in what documents have at names outside of it. */
  readonly hasPassthrough: boolean;
  readonly dynamicTemplates: readonly DynamicTemplate[];
  /** Names that some index of the pattern maps as a date. */
  readonly dateNames: ReadonlySet<string>;
  /**
   * Whether `_source` is the document as it was sent. A `synthetic` source is rebuilt from the index; a `cut` one is disabled
   * or lacks fields.
   */
  readonly sourceMode: "whole" | "synthetic" | "cut";
  /** Whether some fields may have values that no `exists` query finds: `_field_names` is off, and nothing else lists them. */
  readonly hidesFields: boolean;
}

/** What is known of the indices behind one pattern. */
export interface IndexMetadata {
  /** Whether the backend does not show the mappings. Everything else is empty then. */
  readonly opaque: boolean;
  readonly groups: readonly IndexGroup[];
  readonly indices: ReadonlySet<string>;
  /** Primary shards of all indices; a search that reaches another number of shards has met an unknown index. */
  readonly shards: number;
  readonly shardsByIndex: ReadonlyMap<string, number>;
  /** By index; a later index of the same name has another one. */
  readonly uuids: ReadonlyMap<string, string>;
  /** Indices that hold the documents of another of the indices once more, with its name. */
  readonly copies: ReadonlyMap<string, string>;
  /** Closed indices, which no search reaches. Nothing above includes them. */
  readonly closed: readonly string[];
  /** The fewest shards that a complete response reaches: an alias may route searches to some of the shards only. */
  readonly minShards: number;
  /** The most hits that a search of all indices may ask for, those that it skips included; no more than by default. */
  readonly resultWindow: number;
  /** The indices that allow fewer than by default, with their number. */
  readonly resultWindows: ReadonlyMap<string, number>;
}

/** `index.max_result_window` where it is not set. */
export const defaultResultWindow = 10_000;

export const opaqueMetadata: IndexMetadata = {
  opaque: true,
  groups: [],
  indices: new Set(),
  shards: 0,
  shardsByIndex: new Map(),
  uuids: new Map(),
  copies: new Map(),
  closed: [],
  minShards: 0,
  resultWindow: defaultResultWindow,
  resultWindows: new Map(),
};

/** The indices of a group in a few words: the first name and the number of others. */
export function summariseIndices({ indices }: IndexGroup): string {
  const first = requireFirst(indices);
  return indices.length === 1 ? first : `${first} and ${indices.length - 1} more`;
}

/**
 * The field of a name, which may be a key below a flattened root; undefined if the index has none. `key` is the part of the
 * name that is one key in the document, if that is known. A field that may miss values of the name counts as unindexed.
 */
export function findField(group: IndexGroup, name: string, key?: string): IndexedField | undefined {
  const own = group.fields.get(name);
  if (own !== undefined) return own.partial && !isFlattened(own) && key !== name ? toUnindexed(own) : own;
  for (let dot = name.lastIndexOf("."); dot > 0; dot = name.lastIndexOf(".", dot - 1)) {
    const parent = group.fields.get(name.slice(0, dot));
    if (parent === undefined) continue;
    if (!isFlattened(parent)) return undefined;
    const below = { ...parent, name, flattenedRoot: parent.name, multiFields: [] };
    return parent.partial && key !== parent.name ? toUnindexed(below) : below;
  }
  return undefined;
}

function toUnindexed(field: IndexedField): IndexedField {
  return { ...field, indexed: false };
}

function isFlattened({ type }: IndexedField): boolean {
  return type === "flattened" || type === "flat_object";
}

/** Whether a server refuses to sort by the field. */
export function isUnsortable({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  return field !== undefined && !field.docValues && !field.runtime;
}

/** Whether a field has doc values only. */
export function isUnindexed({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  return field !== undefined && !field.indexed && !field.runtime;
}

/** Whether documents with an unmapped name would have been refused or got it mapped, so that no document has the name. */
export function isDynamic(group: IndexGroup, name: string): boolean {
  let dynamic = group.dynamic;
  for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
    const parent = group.fields.get(name.slice(0, dot));
    if (parent !== undefined && !parent.indexed) return false;
    dynamic = parent?.dynamic ?? dynamic;
  }
  return dynamic === "true" || dynamic === "strict";
}

/** Whether a name is unmapped only because no document has it yet, so that `buildLateFieldQuery` finds later ones. */
export function isDynamicallyIndexed(group: IndexGroup, name: string): boolean {
  if (findField(group, name) !== undefined || !isDynamic(group, name)) return false;
  // No search finds names within a nested object or, say, a geo point.
  return name.split(".").every((_, at, keys) => {
    const parent = group.fields.get(keys.slice(0, at).join("."));
    if (parent === undefined) return true;
    // With `ignore_malformed`, OpenSearch keeps an object at a number's name as a malformed value.
    const isPlain = plainTypes.has(parent.type) || (!parent.ignoreMalformed && scalarTypes.has(parent.type));
    return parent.nested === undefined && isPlain;
  });
}

/**
 * Whether the name lies in no document that was written before the mapping was read, and `buildLateFieldQuery` finds it in
 * later ones. Names such as `_id` are the server's own.
 */
export function isAbsentSoFar(group: IndexGroup, name: string): boolean {
  return !group.hasPassthrough && !/^_[a-z]/.test(name) && isDynamicallyIndexed(group, name);
}

/**
 * Finds documents with a name that was mapped after the mapping was read, as whatever type: `exists` means the same for all
 * types, and finds nothing for an unmapped name.
 */
export function buildLateFieldQuery(
  { dropsBeyondLimit }: IndexGroup,
  name: string,
  listsIgnored: boolean,
): Query {
  const exists = { exists: { field: name } };
  if (dropsBeyondLimit) {
    // Beyond the limit, `_ignored` lists the topmost object that is not in the mapping: `host` for `host.name`.
    const paths = name.split(".").map((_, at, keys) => keys.slice(0, at + 1).join("."));
    return anyOf([exists, { terms: { _ignored: paths } }]);
  }
  return listsIgnored ? anyOf([exists, buildIgnoredQuery(name)]) : exists;
}
