// Reads the mappings and settings of the indices behind one pattern. Indices with equal mappings, such as the backing
// indices of a data stream, form one group, so that a filter is compiled once for all of them.
import { z } from "zod";
import type { Steps } from "../../../src/core/async/turns.ts";
import { isJsonObject, type JsonObject, readObject } from "../../../src/core/json/lossless-json.ts";
import { readTemplates } from "./dynamic-templates.ts";
import { findCopies } from "./index-copies.ts";
import { isGlobMatch, isNameInPattern } from "./index-patterns.ts";
import { type FieldDefaults, isDateType, readFields } from "./indexed-field.ts";
import { defaultResultWindow, type IndexGroup, type IndexMetadata } from "./mapping.ts";

/** The defaults of an index in logsdb mode; the settings that a server returns show only what somebody has set. */
const logsdbDefaults = { ignoreAbove: 8_191, ignoreMalformed: true, dropsBeyondLimit: true } as const;

/** The first version after whose creation an index lists ignored values in `_ignored`: 7.15.0, as the setting spells it. */
const version715 = 7_150_099;

const objectSchema = z.record(z.string(), z.unknown());
const indexSchema = z.object({
  aliases: z
    .record(
      z.string(),
      z.object({ search_routing: z.string().optional(), is_hidden: z.boolean().optional() }),
    )
    .default({}),
  // As it is: a schema of a record would copy it, and equal mappings are told by being the same object.
  mappings: z.custom<JsonObject>(isJsonObject).default({}),
  settings: z.object({ index: objectSchema.default({}) }).default({ index: {} }),
});
type IndexResponse = z.infer<typeof indexSchema>;

/** What indices of one group have in common beside their mapping. */
interface IndexTraits {
  readonly defaults: FieldDefaults;
  readonly createdSince715: boolean;
  readonly dropsBeyondLimit: boolean;
  readonly sourceMode: IndexGroup["sourceMode"];
  readonly hidesFields: boolean;
  readonly dynamic: string;
}

/** What is read in one step, in fields: some milliseconds. */
const fieldsPerStep = 2_000;

/** Reads the response of `GET /<pattern>`. Mappings that are the same object are compared and read once. @throws {ZodError} */
export function* readIndexMetadata(
  response: Readonly<Record<string, unknown>>,
  pattern: string,
): Steps<IndexMetadata> {
  const identify = createIdentifier();
  let fieldsInStep = 0;
  const groups = new Map<string, IndexGroup & { readonly indices: string[] }>();
  const dateNames = new Set<string>();
  const indices = new Set<string>();
  const closed: string[] = [];
  const shardsByIndex = new Map<string, number>();
  const uuids = new Map<string, string>();
  const openSettings = new Map<string, JsonObject>();
  let minShards = 0;
  const resultWindows = new Map<string, number>();
  for (const [index, definition] of Object.entries(response)) {
    const { aliases, mappings, settings } = indexSchema.parse(definition);
    const own = settings.index;
    // Closing an index adds the setting, and opening it removes it.
    if (own.verified_before_close !== undefined) {
      closed.push(index);
      continue;
    }
    indices.add(index);
    openSettings.set(index, own);
    const shards = Number(own.number_of_shards ?? 1);
    shardsByIndex.set(index, shards);
    minShards += isOnlyRouted(pattern, index, String(own.hidden) === "true", aliases) ? 1 : shards;
    uuids.set(index, String(own.uuid));
    const window = Number(own.max_result_window ?? defaultResultWindow);
    if (window < defaultResultWindow) resultWindows.set(index, window);
    const traits = readTraits(mappings, own);
    const key = JSON.stringify([identify(mappings), traits]);
    const known = groups.get(key);
    const group = known ?? createGroup(mappings, traits, dateNames);
    groups.set(key, group);
    group.indices.push(index);
    fieldsInStep += 1 + (known === undefined ? group.fields.size : 0);
    if (fieldsInStep < fieldsPerStep) continue;
    yield;
    fieldsInStep = 0;
  }
  return {
    opaque: false,
    groups: [...groups.values()],
    indices,
    shards: [...shardsByIndex.values()].reduce((sum, shards) => sum + shards, 0),
    shardsByIndex,
    uuids,
    copies: findCopies(openSettings),
    closed,
    minShards,
    resultWindow: Math.min(defaultResultWindow, ...resultWindows.values()),
    resultWindows,
  };
}

/** Returns what gives equal mappings the same number. */
function createIdentifier(): (mappings: JsonObject) => number {
  const byObject = new Map<JsonObject, number>();
  const byText = new Map<string, number>();
  return (mappings) => {
    const known = byObject.get(mappings);
    if (known !== undefined) return known;
    const text = JSON.stringify(mappings);
    const number = byText.get(text) ?? byText.size;
    byText.set(text, number);
    byObject.set(mappings, number);
    return number;
  };
}

/** Adds the date fields of the mapping to `dateNames`, which all groups of a pattern share. */
function createGroup(
  mappings: JsonObject,
  { defaults, createdSince715, dropsBeyondLimit, sourceMode, hidesFields, dynamic }: IndexTraits,
  dateNames: Set<string>,
): IndexGroup & { readonly indices: string[] } {
  const dynamicTemplates = readTemplates(mappings.dynamic_templates);
  const templates = dynamicTemplates.map(({ mapping }) => mapping);
  const fields = readFields(mappings, templates, defaults);
  for (const { name, type, aliasOf } of fields.values()) {
    const isDateAlias = aliasOf !== undefined && isDateType(fields.get(aliasOf)?.type);
    if (isDateType(type) || isDateAlias) dateNames.add(name);
  }
  return {
    indices: [],
    fields,
    dateNames,
    createdSince715,
    dynamic,
    dropsBeyondLimit,
    ignoresMalformed: defaults.ignoreMalformed,
    hasPassthrough: [...fields.values()].some(({ type }) => type === "passthrough"),
    dynamicTemplates,
    sourceMode,
    hidesFields,
  };
}

function readTraits(mappings: JsonObject, settings: JsonObject): IndexTraits {
  const mapping = readObject(settings, "mapping");
  const unset = settings.mode === "logsdb" ? logsdbDefaults : undefined;
  const dropsBeyondLimit =
    readObject(mapping, "total_fields").ignore_dynamic_beyond_limit ?? unset?.dropsBeyondLimit;
  return {
    defaults: {
      ignoreMalformed: String(mapping.ignore_malformed ?? unset?.ignoreMalformed) === "true",
      ignoreAbove: Number(mapping.ignore_above ?? unset?.ignoreAbove ?? Number.POSITIVE_INFINITY),
      // An analyzer of one of these names replaces the default of every text field.
      standardAnalyzer: !/"(?:default|default_search|standard)":/.test(
        JSON.stringify(readObject(settings, "analysis")),
      ),
    },
    createdSince715:
      Number(readObject(settings, "version").created ?? settings["version.created"] ?? 0) >= version715,
    dropsBeyondLimit: String(dropsBeyondLimit) === "true",
    sourceMode: readSourceMode(mappings, settings),
    hidesFields: hidesFields(mappings),
    dynamic: readDynamic(mappings, settings),
  };
}

/**
 * The `dynamic` setting of the root. It is `false` where names may stay out of the mapping whatever it says: below a root that
 * is not enabled, in an archive of an older version, and where long names are dropped.
 */
function readDynamic(mappings: JsonObject, settings: JsonObject): string {
  const nameLength = readObject(settings, "mapping", "field_name_length");
  const dropsNames = String(nameLength.ignore_dynamic_beyond_limit) === "true";
  const isArchive = readObject(mappings, "_meta").legacy_mappings !== undefined;
  const isOff =
    String(mappings.enabled) === "false" || String(readObject(settings, "mapper").dynamic) === "false";
  return dropsNames || isArchive || isOff ? "false" : String(mappings.dynamic ?? "true");
}

function readSourceMode(mappings: JsonObject, settings: JsonObject): IndexGroup["sourceMode"] {
  const own = readObject(mappings, "_source");
  if (own.enabled === false || own.includes !== undefined || own.excludes !== undefined) return "cut";
  const isRebuilt = settings.mode === "logsdb" || settings.mode === "time_series";
  const { mode: configured } = readObject(settings, "mapping", "source");
  const mode = String(own.mode ?? configured ?? (isRebuilt ? "synthetic" : "stored")).toLowerCase();
  if (mode === "disabled") return "cut";
  // OpenSearch calls it a derived source.
  const isDerived = String(readObject(settings, "derived_source").enabled) === "true";
  return mode === "synthetic" || isDerived ? "synthetic" : "whole";
}

/** Without `_field_names`, doc values and the norms of texts say which documents have a field. Templates may bring others. */
function hidesFields(mappings: JsonObject): boolean {
  if (String(readObject(mappings, "_field_names").enabled) !== "false") return false;
  return unlistedPattern.test(JSON.stringify(mappings));
}

const unlistedPattern =
  /"(?:norms|doc_values)":"?false|"type":"(?:match_only_text|annotated_text|search_as_you_type|wildcard|flat_object)"/;

/** Whether a search of the pattern may reach an index only through aliases with a routing, so not all of its shards. */
function isOnlyRouted(
  pattern: string,
  index: string,
  isHidden: boolean,
  aliases: IndexResponse["aliases"],
): boolean {
  const entries = Object.entries(aliases);
  const routed = entries.filter(([, { search_routing }]) => search_routing !== undefined);
  if (routed.length === 0) return false;
  const parts = pattern.split(",").map((part) => part.trim().replace(/^_all$/, "*"));
  // Wildcards do not match hidden names.
  const isMatched = (name: string, isHidden = false): boolean =>
    isNameInPattern(
      parts.filter((part) => !isHidden || part === name || part.startsWith("-")).join(","),
      name,
    );
  const unrouted = entries.filter(([, { search_routing }]) => search_routing === undefined);
  if (isMatched(index, isHidden) || unrouted.some(([alias, { is_hidden }]) => isMatched(alias, is_hidden)))
    return false;
  // Date math (`<logs-{now/d}>`) is not evaluated here: it may match any alias.
  return routed.some(([alias]) => parts.some((part) => part.startsWith("<") || isGlobMatch(part, alias)));
}
