// Compiles comparisons with the body of a line: a path into the document, or into the several sources from which a layout puts
// the body together.
import { type NonEmpty, readOwn, requireFirst } from "../../../src/core/collections.ts";
import type { Operator } from "../../../src/log-query/ast.ts";
import { allOf, anyOf, matchAll, matchNone, type Query } from "../client/query-dsl.ts";
import type { BodySource } from "../layout/log-layout.ts";
import { buildLateFieldQuery, isAbsentSoFar, isDynamicallyIndexed } from "../mapping/mapping.ts";
import {
  type Bounds,
  buildMissingQuery,
  buildUpperQuery,
  type CompileScope,
  compileFieldComparison,
  findLongestRun,
  hasFieldsBelow,
  toUpperBounds,
  unknownBounds,
} from "./comparison-compiler.ts";

/** Documents in which a source of the body may have a matching value at the path. */
export function buildBodySourceQuery(
  source: BodySource,
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Query {
  const [key, rest] = [requireFirst(path), path.slice(1)];
  if ("prefix" in source) {
    const { prefix, dot, except } = source;
    if (except.some((other) => `${prefix}${key}.`.startsWith(other))) return matchNone;
    const root = prefix.slice(0, -1);
    // Nothing is mapped below the root so far: one clause covers all of it, unless `_ignored` may list values below it by their
    // own names.
    const isNew = !hasFieldsBelow(scope.group, root) && isDynamicallyIndexed(scope.group, root);
    const { dropsBeyondLimit, ignoresMalformed, dynamicTemplates } = scope.group;
    if (isNew && !dropsBeyondLimit && !ignoresMalformed && dynamicTemplates.length === 0)
      return buildLateFieldQuery(scope.group, root, scope.product.listsIgnored);
    const spellings = dot === undefined ? [key] : listKeySpellings(key, dot);
    if (spellings === undefined) return matchAll;
    return anyOf(
      spellings.map((spelling) => {
        const known = { ...scope, key: prefix + spelling };
        return buildDocumentPathQuery([root, spelling, ...rest], operator, value, known);
      }),
    );
  }
  if ("pairs" in source) {
    const named = buildUpperQuery(`${source.pairs}.key`, "=", key, scope);
    return rest.length > 0
      ? named
      : allOf([named, buildUpperQuery(`${source.pairs}.value`, operator, value, scope)]);
  }
  if ("structured" in source) {
    const missing = scope.layout.message.map((name) => buildMissingQuery(name, scope));
    const own = source.structured.map((name) =>
      buildDocumentPathQuery([name, ...path], operator, value, scope),
    );
    return allOf([...missing, anyOf(own)]);
  }
  if ("text" in source) return buildJsonTextQuery(source.text, path, operator, value, scope);
  const names = readOwn(source.named, key) ?? [];
  return anyOf(names.map((name) => buildDocumentPathQuery([name, ...rest], operator, value, scope)));
}

/** Compares a path whose first segment is a field name, possibly with dots. */
function buildDocumentPathQuery(
  [name, ...rest]: NonEmpty<string>,
  operator: Operator,
  value: string,
  scope: CompileScope,
): Query {
  const names = listPathNames([...name.split("."), ...rest], rest.length);
  return names === undefined
    ? matchAll
    : anyOf(names.map((full) => buildUpperQuery(full, operator, value, scope)));
}

/** The ways in which a document may spell a key whose dots may be another character; undefined where there are too many. */
export function listKeySpellings(key: string, dot: string): readonly string[] | undefined {
  const segments = key.split(".");
  if (segments.length > 4) return undefined;
  if (key.includes(dot)) return [];
  return segments
    .slice(1)
    .reduce(
      (heads, segment) => heads.flatMap((head) => [`${head}.${segment}`, `${head}${dot}${segment}`]),
      [requireFirst(segments)],
    );
}

/** A text that is JSON contains each key of the path and the value, at least their longest words. */
function buildJsonTextQuery(
  names: readonly string[],
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Query {
  const keys = path.filter((segment) => !arrayIndex.test(segment));
  const texts = operator === "=" || operator === ":" ? [...keys, value] : keys;
  const words = texts.flatMap((text) => findLongestRun(text.match(/[A-Za-z0-9]+/g)) ?? []);
  const buildContainsQuery = (name: string, word: string) =>
    // JSON may also escape a letter by its number.
    anyOf([buildUpperQuery(name, ":", word, scope), buildUpperQuery(name, ":", "u00", scope)]);
  return anyOf(names.map((name) => allOf(words.map((word) => buildContainsQuery(name, word)))));
}

// ---- Paths -----------------------------------------------------------------------------------------

/** A segment of a path that may be the position in an array, which no name in the index has. */
export const arrayIndex = /^(?:0|[1-9]\d*)$/;

/** Compiles a path into a document that is the body as a whole. */
export function compilePath(
  path: readonly string[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Bounds {
  const names = listPathNames(path, path.length - 1);
  if (names === undefined) return unknownBounds;
  const { group, product } = scope;
  const bounds = names.map((name) =>
    isAbsentSoFar(group, name)
      ? toUpperBounds(buildLateFieldQuery(group, name, product.listsIgnored))
      : compileFieldComparison(name, operator, value, scope),
  );
  const [only] = bounds;
  // In the index `a.b` is also the key "a.b" of the document, which the language distinguishes (rule 6).
  if (only !== undefined && path.length === 1 && !requireFirst(path).includes(".")) return only;
  return toUpperBounds(anyOf(bounds.map(({ upper }) => upper)));
}

/**
 * The names that a path may have in the index. Numbers among the `last` segments may be array positions, which the index does
 * not have. Undefined where the path has no name there, or too many.
 */
function listPathNames(path: readonly string[], last: number): readonly string[] | undefined {
  if (path.some((segment) => segment === "" || /^[.\s]|[.\s]$|[*]|\.\./.test(segment))) return undefined;
  const positions = path.flatMap((segment, at) =>
    at >= path.length - last && arrayIndex.test(segment) ? [at] : [],
  );
  if (positions.length > 2) return undefined;
  return Array.from({ length: 1 << positions.length }, (_, mask) =>
    path
      .filter((_, at) => {
        const position = positions.indexOf(at);
        return position < 0 || (mask & (1 << position)) !== 0;
      })
      .join("."),
  );
}
