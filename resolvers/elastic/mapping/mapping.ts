// What an index can and cannot be asked, read from its mapping and settings. Indices with the same mapping, such
// as the backing indices of a data stream, form one group, so that a filter is compiled once for all of them.
import { z } from "zod";
import { anyOf, buildIgnoredQuery, type Query } from "../client/query-dsl.ts";
import { isJsonObject, type JsonObject } from "../document/lossless-json.ts";
import { isGlobMatch, isNameInPattern } from "./index-patterns.ts";

/** How one name is indexed. Names are joined by dots, as the index spells them. */
export interface IndexedField {
  readonly name: string;
  readonly type: string;
  /** Searchable at all: neither `index: false` nor below an object with `enabled: false`. */
  readonly indexed: boolean;
  /** Kept by column as well, so that the index can group by it. */
  readonly docValues: boolean;
  /** Made by the search itself. */
  readonly runtime: boolean;
  /** The deepest `nested` object that holds the field. */
  readonly nested: string | undefined;
  /** UTF-16 code units; longer values are in the document but not in the index. */
  readonly ignoreAbove: number;
  readonly ignoreMalformed: boolean;
  /** A normalizer, or an analyzer other than the product's `standard`. */
  readonly hasCustomAnalysis: boolean;
  /** The index may hold values for this name that the document does not have at it. */
  readonly hasExtraValues: boolean;
  readonly aliasOf: string | undefined;
  /** Set on the sub-fields of a `flattened` or `flat_object` root. */
  readonly flattenedRoot: string | undefined;
  /**
   * Of names in an object without subobjects, which has a flattened field `a`: of a document's key "a.b" the index keeps
   * nothing unless `a.b` is a field, and then nothing there of what is in `a`. So this is a part of what lies at the name.
   * The same of a point on a map `a` and a field `a.lat`.
   */
  readonly partial: boolean;
  /** Of an object: what becomes of names below it that the mapping lacks. */
  readonly dynamic: string | undefined;
  /** Names of multi-fields: `message.keyword`. */
  readonly multiFields: readonly string[];
}

export interface IndexGroup {
  readonly indices: readonly string[];
  readonly fields: ReadonlyMap<string, IndexedField>;
  /** `_ignored` can be relied on: see `Product.listsIgnored`. */
  readonly createdSince715: boolean;
  /** The `dynamic` setting of the root; those of objects stand in their fields. */
  readonly dynamic: string;
  /** Fields beyond the limit of a mapping stay out of it; the document's `_ignored` lists them, or what they lie in. */
  readonly dropsBeyondLimit: boolean;
  /** What the dynamic templates make of names that come. */
  readonly dynamicTemplates: readonly JsonObject[];
  /** Names that some index of the pattern maps as a date. */
  readonly dateNames: ReadonlySet<string>;
  /** Whether documents come back as they were sent; `synthetic` ones are rebuilt from the index. */
  readonly sourceMode: "whole" | "synthetic" | "cut";
}

/** Everything known of the indices behind one pattern. `opaque` where the source does not let us look. */
export interface IndexMetadata {
  readonly opaque: boolean;
  readonly groups: readonly IndexGroup[];
  readonly indices: ReadonlySet<string>;
  /** Primary shards of all indices: a search that reaches another number has met an index we do not know. */
  readonly shards: number;
  /** The same of each index. */
  readonly shardsByIndex: ReadonlyMap<string, number>;
  /** What tells an index from another that was made later under its name. */
  readonly uuids: ReadonlyMap<string, string>;
  /** Closed indices, which no search reaches. They are in none of the above. */
  readonly closed: readonly string[];
  /** The fewest shards that a whole answer reaches: an alias may send searches to some of the shards only. */
  readonly minShards: number;
}

export const opaqueMetadata: IndexMetadata = {
  opaque: true,
  groups: [],
  indices: new Set(),
  shards: 0,
  shardsByIndex: new Map(),
  uuids: new Map(),
  closed: [],
  minShards: 0,
};

/** What an index in logsdb mode does without being told; the settings that are read show only what somebody has set. */
const logsdbDefaults = { ignoreAbove: 8_191, ignoreMalformed: true, dropsBeyondLimit: true } as const;

const object = z.record(z.string(), z.unknown());
const mappingResponseSchema = z.record(
  z.string(),
  z.object({
    aliases: z
      .record(
        z.string(),
        z.object({ search_routing: z.string().optional(), is_hidden: z.boolean().optional() }),
      )
      .default({}),
    mappings: object.default({}),
    settings: z.object({ index: object.default({}) }).default({ index: {} }),
  }),
);

/** Reads the answer of `GET /<pattern>`. @throws {ZodError} */
export function readIndexMetadata(answer: unknown, pattern = "*"): IndexMetadata {
  const parsed = mappingResponseSchema.parse(answer);
  const groups = new Map<string, IndexGroup & { readonly indices: string[] }>();
  const indices = new Set<string>();
  const dated = new Set<string>();
  const closed: string[] = [];
  const shardsOf = new Map<string, number>();
  const uuids = new Map<string, string>();
  let least = 0;
  for (const [index, { aliases, mappings, settings }] of Object.entries(parsed)) {
    const own = settings.index;
    // Set by closing, removed by opening.
    if (own.verified_before_close !== undefined) {
      closed.push(index);
      continue;
    }
    indices.add(index);
    const shards = Number(own.number_of_shards ?? 1);
    shardsOf.set(index, shards);
    least += isOnlyRouted(pattern, index, String(own.hidden) === "true", aliases) ? 1 : shards;
    uuids.set(index, String(own.uuid));
    const mapping = isJsonObject(own.mapping) ? own.mapping : {};
    const created = Number(
      (isJsonObject(own.version) ? own.version.created : undefined) ?? own["version.created"] ?? 0,
    );
    const analysis = isJsonObject(own.analysis) ? own.analysis : {};
    const unset = own.mode === "logsdb" ? logsdbDefaults : undefined;
    const defaults: Defaults = {
      ignoreMalformed: String(mapping.ignore_malformed ?? unset?.ignoreMalformed) === "true",
      ignoreAbove: Number(mapping.ignore_above ?? unset?.ignoreAbove ?? Number.POSITIVE_INFINITY),
      // An analyzer of one of these names changes what every text field without one means.
      standardAnalyzer: !/"(?:default|default_search|standard)":/.test(JSON.stringify(analysis)),
    };
    const createdSince715 = created >= 7_150_099;
    const source = readSourceMode(mappings, own);
    const limits = isJsonObject(mapping.total_fields) ? mapping.total_fields : {};
    const dropsBeyondLimit = String(limits.ignore_dynamic_beyond_limit ?? unset?.dropsBeyondLimit) === "true";
    const dynamic = String(mappings.dynamic ?? "true");
    const key = JSON.stringify([mappings, defaults, createdSince715, dropsBeyondLimit, source]);
    const group = groups.get(key);
    if (group !== undefined) group.indices.push(index);
    else {
      const fields = readFields(mappings, defaults);
      for (const { name, type, aliasOf } of fields.values()) {
        if (isDateType(type) || isDateType(fields.get(aliasOf ?? "")?.type)) dated.add(name);
      }
      groups.set(key, {
        indices: [index],
        fields,
        dateNames: dated,
        createdSince715,
        dynamic,
        dropsBeyondLimit,
        dynamicTemplates: readTemplates(mappings.dynamic_templates),
        sourceMode: source,
      });
    }
  }
  return {
    opaque: false,
    groups: [...groups.values()],
    indices,
    shards: [...shardsOf.values()].reduce((sum, shards) => sum + shards, 0),
    shardsByIndex: shardsOf,
    uuids,
    closed,
    minShards: least,
  };
}

/** Whether a search of the pattern may meet an index through nothing but aliases that have a routing. */
function isOnlyRouted(
  pattern: string,
  index: string,
  isHidden: boolean,
  aliases: z.infer<typeof mappingResponseSchema>[string]["aliases"],
): boolean {
  const told = Object.entries(aliases);
  const routed = told.filter(([, { search_routing }]) => search_routing !== undefined);
  if (routed.length === 0) return false;
  const parts = pattern.split(",").map((part) => part.trim().replace(/^_all$/, "*"));
  // No star stands for what is hidden.
  const isMet = (name: string, isHidden = false): boolean =>
    isNameInPattern(
      parts.filter((part) => !isHidden || part === name || part.startsWith("-")).join(","),
      name,
    );
  const whole = told.filter(([, { search_routing }]) => search_routing === undefined);
  if (isMet(index, isHidden) || whole.some(([alias, { is_hidden }]) => isMet(alias, is_hidden))) return false;
  // What date math stands for is not worked out here.
  return routed.some(([alias]) => parts.some((part) => part.startsWith("<") || isGlobMatch(part, alias)));
}

/** What each template maps to; what it matches does not matter here. */
function readTemplates(templates: unknown): readonly JsonObject[] {
  if (!Array.isArray(templates)) return [];
  return templates
    .filter(isJsonObject)
    .flatMap((named) => Object.values(named).filter(isJsonObject))
    .flatMap(({ mapping }) => (isJsonObject(mapping) ? [mapping] : []));
}

/** Whether a type of field is a time. */
export function isDateType(type: string | undefined): boolean {
  return type === "date" || type === "date_nanos";
}

function readSourceMode(mappings: JsonObject, settings: JsonObject): IndexGroup["sourceMode"] {
  const own = isJsonObject(mappings._source) ? mappings._source : {};
  const { source } = isJsonObject(settings.mapping) ? settings.mapping : {};
  const rebuilt = settings.mode === "logsdb" || settings.mode === "time_series";
  const told =
    own.mode ?? (isJsonObject(source) ? source.mode : undefined) ?? (rebuilt ? "synthetic" : "stored");
  const mode = String(told).toLowerCase();
  // OpenSearch's name for it.
  const derived = isJsonObject(settings.derived_source) && String(settings.derived_source.enabled) === "true";
  if (own.enabled === false || own.includes !== undefined || own.excludes !== undefined) return "cut";
  if (mode === "disabled") return "cut";
  return mode === "synthetic" || derived ? "synthetic" : "whole";
}

interface Defaults {
  readonly ignoreMalformed: boolean;
  readonly ignoreAbove: number;
  readonly standardAnalyzer: boolean;
}

function readFields(mappings: JsonObject, defaults: Defaults): ReadonlyMap<string, IndexedField> {
  const fields = new Map<string, IndexedField>();
  const invented = new Set<string>();

  function visit(
    properties: unknown,
    prefix: string,
    nested: string | undefined,
    enabled: boolean,
    flat: boolean,
  ): void {
    if (!isJsonObject(properties)) return;
    const maps = flat ? Object.keys(properties).filter((key) => mayHoldObject(properties[key])) : [];
    for (const [key, value] of Object.entries(properties)) {
      if (!isJsonObject(value)) continue;
      const name = prefix + key;
      const type = typeof value.type === "string" ? value.type : "object";
      const copyTo = value.copy_to;
      for (const target of Array.isArray(copyTo) ? copyTo : [copyTo])
        if (typeof target === "string") invented.add(target);
      const beside = maps.some((map) => key === map || key.startsWith(`${map}.`));
      const field = { ...readField(name, type, value, nested, enabled, defaults), partial: beside };
      fields.set(name, field);
      const inner = type === "nested" ? name : nested;
      const open = enabled && value.enabled !== false;
      const isFlat = flat || type === "passthrough" || String(value.subobjects) === "false";
      visit(value.properties, `${name}.`, inner, open, isFlat);
      if (isJsonObject(value.fields)) {
        for (const [sub, subValue] of Object.entries(value.fields)) {
          if (!isJsonObject(subValue)) continue;
          const subName = `${name}.${sub}`;
          const multi = readField(subName, String(subValue.type), subValue, nested, enabled, defaults);
          fields.set(subName, { ...multi, partial: beside });
        }
      }
    }
  }

  const isFlat = String(mappings.subobjects) === "false";
  visit(mappings.properties, "", undefined, mappings.enabled !== false, isFlat);
  // A runtime field of the mapping shadows the indexed field of its name for every search. What it holds is made when it is
  // asked for, by a script or in another type, so that a document may have a value here that no search of it finds.
  for (const [name, value] of Object.entries(isJsonObject(mappings.runtime) ? mappings.runtime : {})) {
    for (const key of [...fields.keys()]) if (key === name || key.startsWith(`${name}.`)) fields.delete(key);
    if (!isJsonObject(value)) continue;
    const field = readField(name, String(value.type), value, undefined, false, defaults);
    fields.set(name, { ...field, docValues: false, runtime: true });
  }
  for (const name of invented) {
    const field = fields.get(name);
    if (field !== undefined) fields.set(name, { ...field, hasExtraValues: true });
  }
  // A key `attributesSchema` within passthrough `attributesSchema` is also known as `attributesSchema`, and from then on takes in what is
  // written below that name (seen on 8.19 and 9.2): nothing there can be found under its own name.
  for (const { name: through, type } of [...fields.values()]) {
    if (type !== "passthrough") continue;
    for (const field of [...fields.values()]) {
      if (field.type === "object" || !field.name.startsWith(`${through}.`)) continue;
      const hidden = field.name.slice(through.length + 1);
      if (!/^(?:object|passthrough)$/.test(fields.get(hidden)?.type ?? "")) continue;
      for (const [name, other] of fields) {
        if (name === hidden || name.startsWith(`${hidden}.`)) fields.set(name, { ...other, indexed: false });
      }
    }
  }
  return fields;
}

function readField(
  name: string,
  type: string,
  value: JsonObject,
  nested: string | undefined,
  enabled: boolean,
  defaults: Defaults,
): IndexedField {
  const analyzer = value.analyzer;
  return {
    name,
    type,
    indexed: enabled && value.enabled !== false && value.index !== false,
    docValues: value.doc_values !== false,
    runtime: false,
    nested: type === "nested" ? name : nested,
    ignoreAbove: Number(value.ignore_above ?? defaults.ignoreAbove),
    ignoreMalformed: String(value.ignore_malformed ?? defaults.ignoreMalformed) === "true",
    hasCustomAnalysis:
      value.normalizer !== undefined ||
      (analyzer === undefined || analyzer === "standard" ? !defaults.standardAnalyzer : true) ||
      value.search_analyzer !== undefined,
    hasExtraValues:
      value.null_value !== undefined || value.script !== undefined || type === "constant_keyword",
    aliasOf: type === "alias" && typeof value.path === "string" ? value.path : undefined,
    flattenedRoot: undefined,
    partial: false,
    dynamic: value.dynamic === undefined ? undefined : String(value.dynamic),
    multiFields: isJsonObject(value.fields) ? Object.keys(value.fields).map((sub) => `${name}.${sub}`) : [],
  };
}

/** The indices of a group, for a sentence. */
export function summariseIndices({ indices: [first = "", ...others] }: IndexGroup): string {
  return others.length === 0 ? first : `${first} and ${others.length} more`;
}

/**
 * The field behind a name, a key below a flattened root included; undefined where the index has none. `formatKey` is how much of
 * the name is one key of the document, if that is known.
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

/** Whether a field holds an object by itself. */
function mayHoldObject(value: unknown): boolean {
  const type = isJsonObject(value) ? String(value.type ?? "object") : "object";
  return !plainTypes.has(type) && !scalarTypes.has(type) && type !== "alias";
}

function isFlattened(value: unknown): boolean {
  return isJsonObject(value) && (value.type === "flattened" || value.type === "flat_object");
}

/** Whether a server refuses to sort by the field. */
export function isUnsortable({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  return field !== undefined && !field.docValues && !field.runtime;
}

/** Whether a field is kept by column alone. */
export function isUnindexed({ fields }: IndexGroup, name: string): boolean {
  const field = fields.get(name);
  return field !== undefined && !field.indexed && !field.runtime;
}

/** Whether a name that the mapping lacks is in no document: it would have been mapped when the first one came. */
export function isDynamic(group: IndexGroup, name: string): boolean {
  let dynamic = group.dynamic;
  for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
    const parent = group.fields.get(name.slice(0, dot));
    if (parent !== undefined && !parent.indexed) return false;
    dynamic = parent?.dynamic ?? dynamic;
  }
  return dynamic === "true" || dynamic === "strict";
}

/** Whether the mapping lacks a name only because no document has it, so that `buildLateFieldQuery` tells when one has come. */
export function isDynamicallyIndexed(group: IndexGroup, name: string): boolean {
  if (findField(group, name) !== undefined || !isDynamic(group, name)) return false;
  // What lies within a nested object or, say, a point on a map, no search finds by its name.
  return name.split(".").every((_, at, keys) => {
    const parent = group.fields.get(keys.slice(0, at).join("."));
    if (parent === undefined) return true;
    // OpenSearch keeps an object as a malformed number.
    const isPlain = plainTypes.has(parent.type) || (!parent.ignoreMalformed && scalarTypes.has(parent.type));
    return parent.nested === undefined && isPlain;
  });
}

/**
 * Documents that have something at a name which came after the mapping was read, and nobody knows as what: `exists` means
 * the same whatever it becomes, and finds nothing until then.
 */
export function buildLateFieldQuery(
  { dropsBeyondLimit }: IndexGroup,
  name: string,
  listsIgnored: boolean,
): Query {
  const exists = { exists: { field: name } };
  if (dropsBeyondLimit) {
    // Of what finds no room in the mapping the topmost object without a place there is listed: `pickHost` for `host.name`.
    const paths = name.split(".").map((_, at, keys) => keys.slice(0, at + 1).join("."));
    return anyOf([exists, { terms: { _ignored: paths } }]);
  }
  return listsIgnored ? anyOf([exists, buildIgnoredQuery(name)]) : exists;
}

/** Whether a name may come whose values `buildLateFieldQuery` does not find, so that only a mapping read since then tells of it. */
export function hasUnindexedTemplates(
  { dynamicTemplates: templates }: IndexGroup,
  listsIgnored: boolean,
): boolean {
  return templates.some(
    ({ type, index, enabled, ignore_above, ignore_malformed }) =>
      [index, enabled].some((setting) => String(setting) === "false") ||
      type === "nested" ||
      (!listsIgnored && (ignore_above !== undefined || String(ignore_malformed) === "true")),
  );
}

/** Objects, and what a server refuses an object for. */
const plainTypes: ReadonlySet<string> = new Set([
  "object",
  "passthrough",
  "text",
  "match_only_text",
  "keyword",
  "wildcard",
  "constant_keyword",
]);
const scalarTypes: ReadonlySet<string> = new Set([
  ...["byte", "short", "integer", "long", "unsigned_long", "half_float", "float", "double", "scaled_float"],
  ...["boolean", "date", "date_nanos", "ip"],
]);
