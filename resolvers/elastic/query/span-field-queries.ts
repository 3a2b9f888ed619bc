// Upper-bound queries for single fields and attributes of spans: the hits include every document that has the value, and
// possibly others. A field that the index cannot answer for narrows nothing.
import { readOwn } from "../../../src/core/collections.ts";
import {
  allOf,
  anyOf,
  buildIgnoredQuery,
  matchAll,
  matchNone,
  not,
  type Query,
} from "../client/query-dsl.ts";
import { listSpellings } from "../layout/attribute-decoder.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import type { AttributeSources } from "../layout/span-layout.ts";
import { hasUnindexedTemplates } from "../mapping/dynamic-templates.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { buildLateFieldQuery, findField, type IndexGroup, isDynamic } from "../mapping/mapping.ts";

/** The keyword that holds the values of a name unchanged: the field itself or one of its multi-fields. */
export function findKeywordField(group: IndexGroup, name: string): IndexedField | undefined {
  const own = findField(group, name);
  if (own === undefined) return undefined;
  const target = own.aliasOf === undefined ? own : findField(group, own.aliasOf);
  const isExact = (field: IndexedField | undefined) =>
    field?.type === "keyword" &&
    field.indexed &&
    !field.hasCustomAnalysis &&
    !field.hasExtraValues &&
    field.flattenedRoot === undefined;
  if (target !== undefined && isExact(target)) return target;
  return target?.multiFields.map((sub) => findField(group, sub)).find(isExact);
}

/** By type, the digits of a whole number that always fits. Servers reject a query for a number that does not. */
const maxDigits: ReadonlyMap<string, number> = new Map([
  ["byte", 2],
  ["short", 4],
  ["integer", 9],
  ["long", 15],
  ["unsigned_long", 15],
  ["double", 15],
]);

/** Whether a field holds any time or duration of this century, in any unit. */
export function isWideNumber({ type }: IndexedField): boolean {
  return maxDigits.get(type) === 15;
}

/** Whether a field holds any time or duration of this century, but not with all its digits. */
export function isApproximateNumber({ type }: IndexedField): boolean {
  return type === "float";
}

/** A bound that holds for the value of a field as its index keeps it: a `float` keeps 24 binary digits. */
export function roundOutwards<T extends number | bigint>(
  field: IndexedField,
  bound: T,
  towards: "down" | "up",
): T {
  if (!isApproximateNumber(field)) return bound;
  const value = Number(bound);
  const slack = Math.ceil(Math.abs(value) * 2 ** -22);
  const rounded = towards === "down" ? value - slack : value + slack;
  return (typeof bound === "bigint" ? BigInt(rounded) : rounded) as T;
}

/** The query, within the nested object of the field if it has one. */
export function wrapNestedQuery(field: IndexedField, query: Query): Query {
  return field.nested === undefined ? query : { nested: { path: field.nested, query } };
}

/** The longest keyword of an index. Servers reject documents with a longer one, and terms queries that name one. */
const maxKeywordBytes = 32_766;

/** Documents that may have one of these texts at a name; in any case where `caseless`. */
export function buildTermsQuery(
  group: IndexGroup,
  name: string,
  values: readonly string[],
  caseless = false,
): Query {
  if (values.length === 0) return matchNone;
  const field = findField(group, name);
  if (field === undefined) return buildUnmappedQuery(group, name);
  const digits = maxDigits.get(field.type);
  if (digits !== undefined && field.indexed) {
    // Malformed values are in the document alone. Of other texts, the index has those that spell a number, such as `1.50`.
    if (field.ignoreMalformed) return matchAll;
    const numbers = values.filter((value) => /\d/.test(value));
    if (!numbers.every((value) => /^-?\d+$/.test(value) && value.length <= digits)) return matchAll;
    return numbers.length === 0 ? matchNone : wrapNestedQuery(field, { terms: { [name]: numbers } });
  }
  const exact = findKeywordField(group, name);
  if (exact === undefined || values.some((value) => value.length > exact.ignoreAbove)) return matchAll;
  if (!caseless) {
    const terms = values.filter((value) => Buffer.byteLength(value) <= maxKeywordBytes);
    return terms.length === 0 ? matchNone : wrapNestedQuery(exact, { terms: { [exact.name]: terms } });
  }
  return wrapNestedQuery(
    exact,
    anyOf(values.map((value) => ({ term: { [exact.name]: { value, case_insensitive: true } } }))),
  );
}

/**
 * Documents that may have a value at an unmapped name: the next document may have mapped it since the mapping was read. Where
 * a template may hide it from this query too, the plan is made of mappings that are read for the request.
 */
export function buildUnmappedQuery(group: IndexGroup, name: string): Query {
  if (!isDynamic(group, name)) return matchAll;
  // Judged as where `_ignored` lists nothing: it is asked wherever a template may leave values out of the index.
  const asksIgnored = hasUnindexedTemplates(group, false);
  return buildLateFieldQuery(group, name, asksIgnored);
}

/** Documents whose value at a field is malformed, and so not indexed; undefined where it is unknown which these are. */
export function buildMalformedQuery(field: IndexedField, listsIgnored: boolean): Query | undefined {
  return field.ignoreMalformed ? buildUnindexedValueQuery(field, listsIgnored) : matchNone;
}

/** Documents with a value at the field that is not indexed; undefined where they are not listed. */
function buildUnindexedValueQuery({ name, nested }: IndexedField, listsIgnored: boolean): Query | undefined {
  return listsIgnored && nested === undefined ? buildIgnoredQuery(name) : undefined;
}

/** Documents that may have a value at a name. */
export function buildExistsQuery(
  { group, listsIgnored }: Pick<PlacedForm<unknown>, "group" | "listsIgnored">,
  name: string,
): Query {
  const field = findField(group, name);
  if (field === undefined) return buildUnmappedQuery(group, name);
  if (
    !field.indexed ||
    field.hasExtraValues ||
    field.flattenedRoot !== undefined ||
    field.aliasOf !== undefined
  )
    return matchAll;
  const present = wrapNestedQuery(field, { exists: { field: name } });
  // Malformed values and keywords over their limit are not indexed.
  const isLossy = field.ignoreMalformed || field.ignoreAbove !== Number.POSITIVE_INFINITY;
  if (!isLossy) return present;
  return anyOf([present, buildUnindexedValueQuery(field, listsIgnored) ?? matchAll]);
}

/** Documents that may lack a value at a name. */
export function buildMissingQuery(group: IndexGroup, name: string): Query {
  const field = findField(group, name);
  if (
    field === undefined ||
    !field.indexed ||
    field.hasExtraValues ||
    field.aliasOf !== undefined ||
    field.flattenedRoot !== undefined
  )
    return matchAll;
  return not(wrapNestedQuery(field, { exists: { field: name } }));
}

// ---- Attributes ----------------------------------------------------------------------------------------------

/** Where a document may hold a key of its attributes: at a field name, or in a list of `{ key, value }`. */
type AttributePlace = { readonly name: string } | { readonly pairs: string };

export function listAttributePlaces(attributes: AttributeSources, key: string): readonly AttributePlace[] {
  return attributes.from.flatMap((source): readonly AttributePlace[] => {
    if ("pairs" in source) return [{ pairs: source.pairs }];
    if ("named" in source) return (readOwn(source.named, key) ?? []).map((name) => ({ name }));
    return listSpellings(key, { from: [source], omit: [] }).flatMap((spelling) => {
      if (source.keep) return spelling.startsWith(source.prefix) ? [{ name: spelling }] : [];
      const spelled =
        source.dot === undefined ? [spelling] : [spelling, spelling.replaceAll(".", source.dot)];
      return [...new Set(spelled)].map((own) => ({ name: source.prefix + own }));
    });
  });
}

/** Documents that may have one of these texts under a key of their attributes. */
export function buildAttributeQuery(
  group: IndexGroup,
  attributes: AttributeSources,
  key: string,
  values: readonly string[],
  caseless = false,
): Query {
  return anyOf(
    listAttributePlaces(attributes, key).map((place) =>
      "pairs" in place
        ? buildPairQuery(group, place.pairs, key, values, caseless)
        : buildTermsQuery(group, place.name, values, caseless),
    ),
  );
}

/** Documents that may have a key in a list of `{ key, value }`. */
export function buildPairExistsQuery(group: IndexGroup, list: string, key: string): Query {
  if (findField(group, list) === undefined) return buildUnmappedQuery(group, list);
  return buildTermsQuery(group, `${list}.key`, [key]);
}

/** Documents that may have a `{ key, value }` in a list. Only a nested list keeps the two together. */
export function buildPairQuery(
  group: IndexGroup,
  list: string,
  key: string,
  values: readonly string[],
  caseless: boolean,
): Query {
  const field = findField(group, list);
  if (field === undefined) return buildUnmappedQuery(group, list);
  const [keys, texts] = [
    buildTermsQuery(group, `${list}.key`, [key]),
    buildTermsQuery(group, `${list}.value`, values, caseless),
  ];
  if (field.type !== "nested") return allOf([keys, texts]);
  const inner = (query: Query): Query =>
    (query.nested as { readonly query: Query } | undefined)?.query ?? query;
  if (keys === matchNone || texts === matchNone) return matchNone;
  return { nested: { path: list, query: allOf([inner(keys), inner(texts)]) } };
}
