// Dynamic templates of a mapping: how names are mapped that documents bring later, and whether a search for a name then finds its
// values.
import { isJsonObject, type JsonObject, readObject } from "../../../src/core/json/lossless-json.ts";
import { isGlobMatch } from "./index-patterns.ts";

export interface DynamicTemplate {
  /** What a name is mapped as. */
  readonly mapping: JsonObject;
  /** Patterns of the last part of a name, and of all of it; undefined where any will do. */
  readonly match: readonly string[] | undefined;
  readonly pathMatch: readonly string[] | undefined;
}

export function readTemplates(templates: unknown): readonly DynamicTemplate[] {
  if (!Array.isArray(templates)) return [];
  return templates
    .filter(isJsonObject)
    .flatMap((named) => Object.values(named).filter(isJsonObject))
    .flatMap((template) => {
      const { mapping, runtime, match, path_match, match_pattern } = template;
      if (!isJsonObject(mapping) && runtime === undefined) return [];
      // A regular expression of Java's may match any name.
      const isSimple = match_pattern === undefined || match_pattern === "simple";
      return [
        {
          mapping: isJsonObject(mapping) ? mapping : { index: false },
          match: isSimple ? readPatterns(match) : undefined,
          pathMatch: isSimple ? readPatterns(path_match) : undefined,
        },
      ];
    });
}

function readPatterns(patterns: unknown): readonly string[] | undefined {
  if (patterns === undefined) return undefined;
  return (Array.isArray(patterns) ? patterns : [patterns]).map(String);
}

interface TemplatedIndex {
  readonly dynamicTemplates: readonly DynamicTemplate[];
  /** As of `IndexGroup`. */
  readonly ignoresMalformed: boolean;
  readonly createdSince715: boolean;
}

/**
 * Whether dynamic templates may map a new name so that `buildLateFieldQuery` does not find its values: one of `names`, or any where
 * these are not known.
 */
export function hasUnindexedTemplates(
  { dynamicTemplates, ignoresMalformed, createdSince715 }: TemplatedIndex,
  listsIgnored: boolean,
  names?: readonly string[],
): boolean {
  const isListed = listsIgnored && createdSince715;
  if (ignoresMalformed && !isListed) return true;
  return dynamicTemplates.some(
    (template) =>
      hidesValues(template.mapping, isListed) &&
      (names === undefined || names.some((name) => mayMap(template, name))),
  );
}

/** Whether `exists` may not find all values of a field that is mapped so, or of one in it. `isListed` is whether `_ignored` lists what is left out. */
function hidesValues(mapping: JsonObject, isListed: boolean): boolean {
  const { type, index, enabled, dynamic = "true", ignore_above, ignore_malformed } = mapping;
  const below = Object.values(readObject(mapping, "properties")).filter(isJsonObject);
  return (
    [index, enabled].some((setting) => String(setting) === "false") ||
    (type !== undefined && !foundTypes.has(String(type))) ||
    !/^(?:true|strict)$/.test(String(dynamic)) ||
    // `_ignored` lists no key of a flattened object.
    (ignore_above !== undefined && !(isListed && type !== "flattened")) ||
    (!isListed && String(ignore_malformed) === "true") ||
    below.some((field) => hidesValues(field, isListed))
  );
}

/** Whether the template may map the name, or an object that it lies in. The last part of a name may have dots of its own. */
function mayMap({ match, pathMatch }: DynamicTemplate, name: string): boolean {
  const parts = name.split(".");
  return parts.some((_, at) => {
    const path = parts.slice(0, at + 1);
    const lastParts = path.map((_, first) => path.slice(first).join("."));
    return (
      (pathMatch === undefined || pathMatch.some((pattern) => matchesPattern(pattern, path.join(".")))) &&
      (match === undefined ||
        match.some((pattern) => lastParts.some((last) => matchesPattern(pattern, last))))
    );
  });
}

/** A star is any text, also with dots. In any case: products and versions may differ. */
function matchesPattern(pattern: string, text: string): boolean {
  return isGlobMatch(pattern.toLowerCase(), text.toLowerCase());
}

/** Types of fields of which `exists` finds every value, at the field or below it. Of others, known or not, it may find none. */
const foundTypes: ReadonlySet<string> = new Set([
  // What a template calls the type that was detected.
  "{dynamic_type}",
  "object",
  "passthrough",
  "flattened",
  "text",
  "match_only_text",
  "search_as_you_type",
  "keyword",
  "constant_keyword",
  "wildcard",
  "counted_keyword",
  "version",
  "boolean",
  "ip",
  "date",
  "date_nanos",
  "byte",
  "short",
  "integer",
  "long",
  "unsigned_long",
  "half_float",
  "float",
  "double",
  "scaled_float",
]);
