// What an index says of spans for sure: lower bounds, beside the upper ones of `narrow.ts`. A document that satisfies
// these is one of those asked for, and the index groups it as the reader would; all others have to be read. A name that
// an index cannot vouch for is sure for no document.
import {
  endOfMilli,
  floorToMilli,
  type Instant,
  nanosPerMilli,
  type TimeRange,
} from "../../../src/core/time.ts";
import {
  allOf,
  anyOf,
  buildIgnoredQuery,
  matchAll,
  matchNone,
  not,
  type Query,
} from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import {
  type AttributeSources,
  findNamedAttribute,
  type SpanForm,
  type TimeUnit,
  type ValueRule,
} from "../layout/span-layout.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { findField, type IndexGroup } from "../mapping/mapping.ts";
import {
  buildExistsQuery,
  buildMalformedQuery,
  buildUnmappedQuery,
  findKeywordField,
  listAttributePlaces,
} from "./span-field-queries.ts";
import {
  buildCertainParentReferenceQuery,
  buildTimeBetweenQuery,
  durationBuckets,
  durationUnitsPerMilli,
  zeroIds,
} from "./span-upper-bounds.ts";

type GroupContext = Pick<PlacedForm<SpanForm>, "group" | "listsIgnored">;

/** A name of a document as an index can group by it. */
export interface GroupableField {
  readonly name: string;
  /** Undefined where no document that is `certain` has anything at the name. */
  readonly field: string | undefined;
  /** Documents whose value at the name is what the index has in the field, if they have any. */
  readonly certain: Query;
}

const integerTypes: ReadonlySet<string> = new Set(["byte", "short", "integer", "long"]);

/** Several values of one document are not told apart here: they make a document fall into several groups. */
export function deriveGroupableField({ group, listsIgnored }: GroupContext, name: string): GroupableField {
  const own = findField(group, name);
  if (own === undefined) return { name, field: undefined, certain: not(buildUnmappedQuery(group, name)) };
  // Nothing that a reader would take for a value stands at the name of an object or an alias.
  if (own.type === "object" && own.indexed) return { name, field: undefined, certain: matchAll };
  if (own.aliasOf !== undefined) return { name, field: undefined, certain: matchAll };
  if (!own.indexed || own.hasExtraValues || own.flattenedRoot !== undefined || own.nested !== undefined) {
    return { name, field: undefined, certain: matchNone };
  }
  const column = findGroupableColumn(group, own);
  const lossy = [own, ...(column === undefined ? [] : [column])].filter(isLossy);
  const dropped = listsIgnored ? anyOf(lossy.map((field) => buildIgnoredQuery(field.name))) : matchNone;
  const absent = isLossy(own) && !listsIgnored ? matchNone : not({ exists: { field: own.name } });
  if (column === undefined) return { name, field: undefined, certain: allOf([absent, not(dropped)]) };
  const isWhole = column === own && (lossy.length === 0 || listsIgnored);
  const told = isWhole ? matchAll : anyOf([{ exists: { field: column.name } }, absent]);
  return { name, field: column.name, certain: allOf([told, not(dropped)]) };
}

function isLossy({ ignoreMalformed, ignoreAbove, type }: IndexedField): boolean {
  return ignoreMalformed || (type === "keyword" && ignoreAbove !== Number.POSITIVE_INFINITY);
}

function findGroupableColumn(group: IndexGroup, own: IndexedField): IndexedField | undefined {
  if (integerTypes.has(own.type)) return own.docValues ? own : undefined;
  const exact = findKeywordField(group, own.name);
  return exact?.docValues ? exact : undefined;
}

/** The columns behind names of a profile, those of attributes included; undefined where one has none. */
export function deriveGroupableFields(
  placed: PlacedForm<SpanForm>,
  names: readonly string[],
): readonly GroupableField[] {
  return names.flatMap((name): readonly GroupableField[] => {
    const named = findNamedAttribute(placed.form, name);
    return named === undefined
      ? [deriveGroupableField(placed, name)]
      : deriveAttributeFields(placed, named.attributes, named.key);
  });
}

export function deriveAttributeFields(
  placed: PlacedForm<SpanForm>,
  attributes: AttributeSources,
  key: string,
): readonly GroupableField[] {
  return listAttributePlaces(attributes, key).map((place): GroupableField => {
    if ("name" in place) return deriveGroupableField(placed, place.name);
    return {
      name: `${place.pairs} ${key}`,
      field: undefined,
      certain: buildPairMissingQuery(placed.group, place.pairs, key),
    };
  });
}

/** A list of pairs is no column; a document without this key is sure of it. */
function buildPairMissingQuery(group: IndexGroup, list: string, key: string): Query {
  const field = findField(group, list);
  if (field === undefined) return not(buildUnmappedQuery(group, list));
  const keys = findKeywordField(group, `${list}.key`);
  if (field.type !== "nested" || keys === undefined || key.length > keys.ignoreAbove) return matchNone;
  return not({ nested: { path: list, query: { term: { [keys.name]: key } } } });
}

export function listRuleFields(rules: readonly ValueRule[]): readonly string[] {
  return rules.flatMap(({ field }) => field ?? []);
}

/** Every document of a form has what its profile says that it has, and so has every one of these. */
export function buildCertainFormQuery({ group, form }: PlacedForm<SpanForm>): Query {
  return allOf(
    form.present.map((name) => {
      const field = findField(group, name);
      const plain = field?.indexed && !field.hasExtraValues && field.aliasOf === undefined && !field.nested;
      return plain && field.flattenedRoot === undefined ? { exists: { field: name } } : matchNone;
    }),
  );
}

/** Bounds rounded inwards: an index may hold a time to the millisecond only. */
function buildCertainTimeQuery(
  group: IndexGroup,
  name: string,
  unit: TimeUnit,
  from: Instant,
  to: Instant,
): Query {
  const field = findField(group, name);
  if (
    field === undefined ||
    field.hasExtraValues ||
    field.aliasOf !== undefined ||
    field.flattenedRoot !== undefined
  )
    return matchNone;
  const first = (endOfMilli((from - 1n) as Instant) + 1n) as Instant;
  const last = (floorToMilli((to + 1n) as Instant) - 1n) as Instant;
  return buildTimeBetweenQuery(group, name, unit, first, last) ?? matchNone;
}

/** A length that an index can add up as the reader would, in documents that are `certain`: whole micro- or nanoseconds. */
export function findDurationColumn({
  group,
  form,
  listsIgnored,
}: PlacedForm<SpanForm>): { field: string; unit: bigint; sure: Query } | undefined {
  const { duration } = form;
  const field = duration && findField(group, duration.field);
  if (duration === undefined || field === undefined) return undefined;
  const isWhole = field.type === "long" && field.indexed && field.docValues;
  const isPlain = !field.hasExtraValues && field.nested === undefined;
  const unread = buildMalformedQuery(field, listsIgnored);
  const unit = { ns: 1n, us: 1_000n, ms: undefined, date: undefined }[duration.unit];
  if (!isWhole || !isPlain || unread === undefined || unit === undefined) return undefined;
  return { field: field.name, unit, sure: not(unread) };
}

/** Documents whose span surely ends in the range, and has a length that its index can add up. */
export function buildCertainEndTimeQuery(placed: PlacedForm<SpanForm>, { from, to }: TimeRange): Query {
  const { group, form } = placed;
  const length = findDurationColumn(placed);
  if (length === undefined || form.duration === undefined) return matchNone;
  const perMilli = durationUnitsPerMilli[form.duration.unit];
  if (perMilli === undefined) return matchNone;
  const longest = (durationBuckets.at(-1) ?? 0) * perMilli;
  if (form.end !== undefined) {
    const ends = buildCertainTimeQuery(group, form.end.field, form.end.unit, from, to);
    return allOf([ends, length.sure, { range: { [length.field]: { gte: 0, lt: longest } } }]);
  }
  const { field, unit } = form.start;
  const ends = anyOf(
    durationBuckets.flatMap((most, at): Query[] => {
      const least = durationBuckets[at - 1] ?? 0;
      const shift = (instant: bigint, millis: number) =>
        (instant - BigInt(millis) * nanosPerMilli) as Instant;
      const starts = buildCertainTimeQuery(group, field, unit, shift(from, least), shift(to, most + 1));
      if (starts === matchNone) return [];
      const lasts = { range: { [length.field]: { gte: least * perMilli, lt: most * perMilli } } };
      return [allOf([lasts, starts])];
    }),
  );
  return allOf([length.sure, ends]);
}

/** Documents that surely have no parent; several values at a parent's name are to be told by counting them. */
export function buildCertainRootQuery({ group, form, listsIgnored }: PlacedForm<SpanForm>): Query {
  const lacking = form.parent.map((name): Query => {
    const field = findField(group, name);
    if (field === undefined) return not(buildUnmappedQuery(group, name));
    const exact = findKeywordField(group, name);
    if (exact?.name !== name) return matchNone;
    const absent =
      isLossy(exact) && !listsIgnored ? matchNone : not(buildExistsQuery({ group, listsIgnored }, name));
    return anyOf([absent, { term: { [name]: "" } }]);
  });
  return allOf([...lacking, not(buildParentReferenceQuery(group, form.parent_reference))]);
}

/** Documents that may have a reference to a parent. */
export function buildParentReferenceQuery(group: IndexGroup, rule: SpanForm["parent_reference"]): Query {
  if (rule === undefined) return matchNone;
  return findField(group, rule.at)?.type === "nested"
    ? { nested: { path: rule.at, query: matchAll } }
    : buildUnmappedQuery(group, rule.at);
}

/** Documents that surely have a parent. */
export function buildCertainChildQuery({ group, form }: PlacedForm<SpanForm>): Query {
  const [name, ...others] = form.parent;
  // Of several names the first that is there counts, whatever it holds.
  const exact = name === undefined ? undefined : findKeywordField(group, name);
  const named =
    name === undefined || others.length > 0 || exact?.name !== name
      ? matchNone
      : allOf([{ exists: { field: name } }, not({ terms: { [name]: ["", ...zeroIds] } })]);
  return anyOf([named, buildCertainParentReferenceQuery(group, form.parent_reference)]);
}

/** Documents that surely stand for one span each. */
export function buildCertainCountOneQuery({ group, form, listsIgnored }: PlacedForm<SpanForm>): Query {
  if (form.count === undefined) return matchAll;
  const field = findField(group, form.count);
  if (field === undefined) return not(buildUnmappedQuery(group, form.count));
  const unread = buildMalformedQuery(field, listsIgnored);
  if (!field.indexed || unread === undefined || !integerTypes.has(field.type)) return matchNone;
  return not(anyOf([unread, { range: { [form.count]: { gt: 1 } } }]));
}
