// Reads the fields of a mapping: for each name, how it is indexed and where the index may differ from the documents.
import { isJsonObject, type JsonObject, readObject } from "../../../src/core/json/lossless-json.ts";
import { isGlobMatch } from "./index-patterns.ts";

/** How one name is indexed. Names are joined by dots, as in the index. */
export interface IndexedField {
  readonly name: string;
  readonly type: string;
  /**
   * Whether the index can find values by this name: neither `index: false` nor below an object with `enabled: false`. False for
   * runtime fields, which a search computes.
   */
  readonly indexed: boolean;
  /** Whether the mapping leaves doc values on, by which an index sorts and groups. Some types, as `text`, have none all the same. */
  readonly docValues: boolean;
  /** A runtime field, whose values each search computes. */
  readonly runtime: boolean;
  /** The deepest `nested` object that holds the field. */
  readonly nested: string | undefined;
  /** UTF-16 code units; longer values are in the document but not in the index. */
  readonly ignoreAbove: number;
  readonly ignoreMalformed: boolean;
  /** A normalizer, or an analyzer other than the product's `standard`. */
  readonly hasCustomAnalysis: boolean;
  /** The index may hold values for this name that the document does not have there. */
  readonly hasExtraValues: boolean;
  readonly aliasOf: string | undefined;
  /** Set on the sub-fields of a `flattened` or `flat_object` root. */
  readonly flattenedRoot: string | undefined;
  /**
   * The index may find only a part of the values at this name. In an object without subobjects, a key "a.b" of a document is
   * indexed as the field `a.b` if the mapping has it and not at all otherwise, never as a part of a flattened field `a`; a
   * field `a.b` in turn misses what is inside `a`. The same holds for a geo point `a` and a field `a.lat`.
   */
  readonly partial: boolean;
  /** The `dynamic` setting of an object: what happens to unmapped names below it. */
  readonly dynamic: string | undefined;
  /** Names of multi-fields: `message.keyword`. */
  readonly multiFields: readonly string[];
}

/** What a field has if its mapping does not say otherwise. */
export interface FieldDefaults {
  readonly ignoreMalformed: boolean;
  readonly ignoreAbove: number;
  /** Whether text fields without an analyzer use the product's `standard`. */
  readonly standardAnalyzer: boolean;
}

interface FieldReader {
  readonly fields: Map<string, IndexedField>;
  /** Names that other fields are copied to. */
  readonly copyTargets: Set<string>;
  readonly defaults: FieldDefaults;
}

/** The object in which properties lie. */
interface ParentObject {
  /** Empty, or the object's name and a dot. */
  readonly prefix: string;
  readonly nested: string | undefined;
  readonly enabled: boolean;
  /** Whether the object has no subobjects: dots in keys are not nesting. */
  readonly flat: boolean;
}

/**
 * All fields of a mapping by name, multi-fields and runtime fields included, in the order of the mapping. `templates` are the
 * mappings of its dynamic templates: a document may bring a field that is copied before the mapping is read again.
 */
export function readFields(
  mappings: JsonObject,
  templates: readonly JsonObject[],
  defaults: FieldDefaults,
): ReadonlyMap<string, IndexedField> {
  const reader: FieldReader = { fields: new Map(), copyTargets: new Set(), defaults };
  readProperties(reader, mappings.properties, {
    prefix: "",
    nested: undefined,
    enabled: mappings.enabled !== false,
    flat: String(mappings.subobjects) === "false",
  });
  addRuntimeFields(reader, mappings);
  markCopyTargets(reader, listTemplateTargets(templates));
  hideShadowedFields(reader.fields);
  return reader.fields;
}

/** Whether a type of field is a time. */
export function isDateType(type: string | undefined): boolean {
  return type === "date" || type === "date_nanos";
}

/** Objects, and types for which a server refuses a document with an object. */
export const plainTypes: ReadonlySet<string> = new Set([
  "object",
  "passthrough",
  "text",
  "match_only_text",
  "keyword",
  "wildcard",
  "constant_keyword",
]);
/** Types of one value, for which OpenSearch keeps an object as a malformed value. */
export const scalarTypes: ReadonlySet<string> = new Set([
  "byte",
  "short",
  "integer",
  "long",
  "unsigned_long",
  "half_float",
  "float",
  "double",
  "scaled_float",
  "boolean",
  "date",
  "date_nanos",
  "ip",
]);

function readProperties(reader: FieldReader, properties: unknown, parent: ParentObject): void {
  if (!isJsonObject(properties)) return;
  const objectKeys = parent.flat
    ? Object.keys(properties).filter((key) => isObjectValued(properties[key]))
    : [];
  for (const [key, value] of Object.entries(properties)) {
    if (!isJsonObject(value)) continue;
    const partial = objectKeys.some((other) => key === other || key.startsWith(`${other}.`));
    readProperty(reader, parent.prefix + key, value, parent, partial);
  }
}

/** Adds the field of a property, the properties below it and its multi-fields. */
function readProperty(
  reader: FieldReader,
  name: string,
  value: JsonObject,
  parent: ParentObject,
  partial: boolean,
): void {
  const { fields, copyTargets, defaults } = reader;
  const type = typeof value.type === "string" ? value.type : "object";
  for (const target of listTargets(value)) copyTargets.add(target);
  fields.set(name, { ...readField(name, type, value, parent, defaults), partial });
  readProperties(reader, value.properties, {
    prefix: `${name}.`,
    nested: type === "nested" ? name : parent.nested,
    enabled: parent.enabled && value.enabled !== false,
    flat: parent.flat || type === "passthrough" || String(value.subobjects) === "false",
  });
  for (const [sub, subValue] of Object.entries(readObject(value, "fields"))) {
    if (!isJsonObject(subValue)) continue;
    const subName = `${name}.${sub}`;
    fields.set(subName, {
      ...readField(subName, String(subValue.type), subValue, parent, defaults),
      partial,
    });
  }
}

/** Marks what fields are copied to. Its multi-fields have the copied values too. */
function markCopyTargets({ fields, copyTargets }: FieldReader, templateTargets: readonly string[]): void {
  const targets = [...fields.values()].filter(
    ({ name }) => copyTargets.has(name) || templateTargets.some((target) => isGlobMatch(target, name)),
  );
  for (const name of targets.flatMap((target) => [target.name, ...target.multiFields])) {
    const field = fields.get(name);
    if (field !== undefined) fields.set(name, { ...field, hasExtraValues: true });
  }
}

/** Where templates copy to, also from fields within their objects, with a star for each placeholder. */
function listTemplateTargets(templates: readonly JsonObject[]): readonly string[] {
  return templates.flatMap((template): readonly string[] => [
    ...listTargets(template).map((target) => target.replace(/\{(?:name|dynamic_type)\}/g, "*")),
    ...listTemplateTargets(Object.values(readObject(template, "properties")).filter(isJsonObject)),
  ]);
}

function listTargets({ copy_to: targets }: JsonObject): readonly string[] {
  return [targets].flat().filter((target) => typeof target === "string");
}

function readField(
  name: string,
  type: string,
  value: JsonObject,
  { nested, enabled }: Pick<ParentObject, "nested" | "enabled">,
  defaults: FieldDefaults,
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
    multiFields: Object.keys(readObject(value, "fields")).map((sub) => `${name}.${sub}`),
  };
}

/**
 * A runtime field shadows the indexed field of its name for every search. Each search computes its values, by a script or as
 * another type, so a document may have a value at the name that no search finds.
 */
function addRuntimeFields({ fields, defaults }: FieldReader, mappings: JsonObject): void {
  for (const [name, value] of Object.entries(readObject(mappings, "runtime"))) {
    for (const key of [...fields.keys()]) if (key === name || key.startsWith(`${name}.`)) fields.delete(key);
    if (!isJsonObject(value)) continue;
    const field = readField(name, String(value.type), value, { nested: undefined, enabled: false }, defaults);
    fields.set(name, { ...field, docValues: false, runtime: true });
  }
}

/**
 * A key `attributes` within a passthrough object `attributes` is also known as `attributes`, and from then on takes in what is
 * written below that name (seen on 8.19 and 9.2). Nothing there can be found under its own name, so it counts as unindexed.
 */
function hideShadowedFields(fields: Map<string, IndexedField>): void {
  for (const { name: parent, type } of [...fields.values()]) {
    if (type !== "passthrough") continue;
    for (const field of [...fields.values()]) {
      if (field.type === "object" || !field.name.startsWith(`${parent}.`)) continue;
      hideShadowedObject(fields, field.name.slice(parent.length + 1));
    }
  }
}

function hideShadowedObject(fields: Map<string, IndexedField>, shadowed: string): void {
  const type = fields.get(shadowed)?.type;
  if (type !== "object" && type !== "passthrough") return;
  for (const [name, field] of fields) {
    if (name === shadowed || name.startsWith(`${shadowed}.`)) fields.set(name, { ...field, indexed: false });
  }
}

/** Whether a field holds an object as one value, as flattened fields and geo points do. */
function isObjectValued(value: unknown): boolean {
  const type = isJsonObject(value) ? String(value.type ?? "object") : "object";
  return !plainTypes.has(type) && !scalarTypes.has(type) && type !== "alias";
}
