// Lower-bound queries for spans: every hit is certainly a match, and can be aggregated by the index exactly as the decoder
// would read it. All other documents have to be read. Fields whose indexed value may differ from `_source` never qualify.
import { requireAt, requireLast } from "../../../src/core/collections.ts";
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
  type EventForm,
  findNamedAttribute,
  type InstantRule,
  listTimes,
  type SpanForm,
  type TimeRule,
  type ValueRule,
} from "../layout/span-layout.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { findField, type IndexGroup } from "../mapping/mapping.ts";
import {
  buildExistsQuery,
  buildMalformedQuery,
  buildUnmappedQuery,
  findKeywordField,
  isApproximateNumber,
  listAttributePlaces,
} from "./span-field-queries.ts";
import { buildTimeBetweenQuery, durationBuckets, durationUnitsPerMilli } from "./span-times.ts";
import {
  buildCertainParentReferenceQuery,
  buildPossibleParentReferenceQuery,
  zeroIds,
} from "./span-upper-bounds.ts";

type GroupContext = Pick<PlacedForm<SpanForm>, "group" | "listsIgnored">;

/** A name of a document, as an index can group by it. */
export interface GroupableField {
  readonly name: string;
  /** The field to group by; undefined where no `certain` document has a value at the name. */
  readonly field: string | undefined;
  /** Whether its values are integers and not texts. A server fails where the groups of one search are of both. */
  readonly isInteger: boolean;
  /** Documents whose value at the name, if any, is the one in the field. */
  readonly certain: Query;
}

const integerTypes: ReadonlySet<string> = new Set(["byte", "short", "integer", "long"]);

/** Several values of one document are not excluded here: they put the document into several groups. */
export function deriveGroupableField({ group, listsIgnored }: GroupContext, name: string): GroupableField {
  const own = findField(group, name);
  const none = { name, field: undefined, isInteger: false };
  if (own === undefined) return { ...none, certain: not(buildUnmappedQuery(group, name)) };
  // The name of an object or an alias never holds a value that a reader would take.
  if (own.type === "object" && own.indexed) return { ...none, certain: matchAll };
  if (own.aliasOf !== undefined) return { ...none, certain: matchAll };
  if (!own.indexed || own.hasExtraValues || own.flattenedRoot !== undefined || own.nested !== undefined) {
    return { ...none, certain: matchNone };
  }
  const column = findGroupableColumn(group, own);
  const lossy = [own, ...(column === undefined ? [] : [column])].filter(isLossy);
  const dropped = listsIgnored ? anyOf(lossy.map((field) => buildIgnoredQuery(field.name))) : matchNone;
  const absent = isLossy(own) && !listsIgnored ? matchNone : not({ exists: { field: own.name } });
  if (column === undefined) return { ...none, certain: allOf([absent, not(dropped)]) };
  const isComplete = column === own && (lossy.length === 0 || listsIgnored);
  const hasValue = isComplete ? matchAll : anyOf([{ exists: { field: column.name } }, absent]);
  const isInteger = integerTypes.has(column.type);
  return { name, field: column.name, isInteger, certain: allOf([hasValue, not(dropped)]) };
}

/** Whether the index may lack values of the field. */
function isLossy({ ignoreMalformed, ignoreAbove, type }: IndexedField): boolean {
  return ignoreMalformed || (type === "keyword" && ignoreAbove !== Number.POSITIVE_INFINITY);
}

function findGroupableColumn(group: IndexGroup, own: IndexedField): IndexedField | undefined {
  if (integerTypes.has(own.type)) return own.docValues ? own : undefined;
  const exact = findKeywordField(group, own.name);
  return exact?.docValues ? exact : undefined;
}

/** The groupable fields behind names of a layout, including those that stand for attributes. */
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

/** The groupable fields in which an attribute may lie. */
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
      isInteger: false,
      certain: buildPairMissingQuery(placed.group, place.pairs, key),
    };
  });
}

/** Documents that certainly lack a key in a list of pairs, which cannot be grouped by. */
function buildPairMissingQuery(group: IndexGroup, list: string, key: string): Query {
  const field = findField(group, list);
  if (field === undefined) return not(buildUnmappedQuery(group, list));
  const keys = findKeywordField(group, `${list}.key`);
  if (field.type !== "nested" || keys === undefined || key.length > keys.ignoreAbove) return matchNone;
  return not({ nested: { path: list, query: { term: { [keys.name]: key } } } });
}

/** The fields that these rules read. */
export function listRuleFields(rules: readonly ValueRule[]): readonly string[] {
  return rules.flatMap(({ field }) => field ?? []);
}

/** Documents that certainly are of a form, by the fields that the layout calls present. */
export function buildCertainFormQuery({ group, form }: PlacedForm<SpanForm | EventForm>): Query {
  return allOf(
    form.present.map((name) => {
      const field = findField(group, name);
      const isPlain = field?.indexed && !field.hasExtraValues && field.aliasOf === undefined && !field.nested;
      return isPlain && field.flattenedRoot === undefined ? { exists: { field: name } } : matchNone;
    }),
  );
}

/**
 * Documents whose time at the field certainly lies from `from` to `to`, both inclusive; rounded inwards to whole milliseconds,
 * since an index may hold no more.
 */
function buildCertainTimeQuery(
  { group, listsIgnored }: GroupContext,
  time: TimeRule,
  from: Instant,
  to: Instant,
): Query {
  const field = findField(group, time.field);
  if (
    field === undefined ||
    field.hasExtraValues ||
    field.aliasOf !== undefined ||
    field.flattenedRoot !== undefined ||
    isApproximateNumber(field)
  )
    return matchNone;
  const malformed = buildMalformedQuery(field, listsIgnored);
  if (malformed === undefined) return matchNone;
  const first = (endOfMilli((from - 1n) as Instant) + 1n) as Instant;
  const last = (floorToMilli((to + 1n) as Instant) - 1n) as Instant;
  return allOf([buildTimeBetweenQuery(group, time, first, last) ?? matchNone, not(malformed)]);
}

/** Documents that certainly match by the first of a rule's times that they certainly have. */
function combineCertainTimes(
  placed: GroupContext,
  rule: InstantRule,
  build: (time: TimeRule) => Query,
): Query {
  return anyOf(
    listTimes(rule).map((time, at, times) =>
      allOf([
        build(time),
        ...times.slice(0, at).map(({ field }) => buildCertainlyMissingQuery(placed, field)),
      ]),
    ),
  );
}

/** Documents that certainly have no value at a name. */
export function buildCertainlyMissingQuery(placed: GroupContext, name: string): Query {
  const field = findField(placed.group, name);
  const isUnknown = field !== undefined && isLossy(field) && !placed.listsIgnored;
  return isUnknown ? matchNone : not(buildExistsQuery(placed, name));
}

/** A field of durations that an index can sum exactly as the reader would. */
interface DurationColumn {
  readonly field: string;
  /** Nanoseconds. */
  readonly unit: bigint;
  /** Documents whose duration is in the field. */
  readonly certain: Query;
}

/** The durations of a form, where they are whole micro- or nanoseconds in a column. */
export function findDurationColumn({
  group,
  form,
  listsIgnored,
}: PlacedForm<SpanForm>): DurationColumn | undefined {
  const { duration } = form;
  const field = duration && findField(group, duration.field);
  if (duration === undefined || field === undefined) return undefined;
  const isInteger = field.type === "long" && field.indexed && field.docValues;
  const isPlain = !field.hasExtraValues && field.nested === undefined;
  const malformed = buildMalformedQuery(field, listsIgnored);
  const unit = { ns: 1n, us: 1_000n, ms: undefined }[duration.unit];
  if (!isInteger || !isPlain || malformed === undefined || unit === undefined) return undefined;
  return { field: field.name, unit, certain: not(malformed) };
}

/** Documents whose span certainly ends in the range, with a duration that the index can sum. */
export function buildCertainEndTimeQuery(placed: PlacedForm<SpanForm>, range: TimeRange): Query {
  const { start, end, duration } = placed.form;
  const length = findDurationColumn(placed);
  if (length === undefined || duration === undefined) return matchNone;
  const perMilli = durationUnitsPerMilli[duration.unit];
  const buildLengthQuery: BuildLengthQuery = (least, most) => ({
    range: { [length.field]: { gte: least * perMilli, lt: most * perMilli } },
  });
  if (end !== undefined) {
    const { from, to } = range;
    const ends = combineCertainTimes(placed, end, (time) => buildCertainTimeQuery(placed, time, from, to));
    return allOf([ends, length.certain, buildLengthQuery(0, requireLast(durationBuckets))]);
  }
  const ends = combineCertainTimes(placed, start, (time) =>
    buildEndsByStartAndDuration(placed, time, range, buildLengthQuery),
  );
  return allOf([length.certain, ends]);
}

/** Documents whose duration is from `least` to below `most`, milliseconds. */
type BuildLengthQuery = (least: number, most: number) => Query;

/** By the start, for each bucket of durations one range in which all spans of that bucket end in the range. */
function buildEndsByStartAndDuration(
  placed: PlacedForm<SpanForm>,
  start: TimeRule,
  { from, to }: TimeRange,
  buildLengthQuery: BuildLengthQuery,
): Query {
  const shift = (instant: bigint, millis: number) => (instant - BigInt(millis) * nanosPerMilli) as Instant;
  const buildStartQuery = (since: Instant, until: Instant) =>
    buildCertainTimeQuery(placed, start, since, until);
  const shortBound = findShortDuration({ from, to });
  const byBucket = durationBuckets.map((most, at) => {
    const least = at === 0 ? 0 : requireAt(durationBuckets, at - 1);
    const [since, until] = [shift(from, least), shift(to, most + 1)];
    if (most > shortBound) return allOf([buildLengthQuery(least, most), buildStartQuery(since, until)]);
    // `middle` has the other starts. Its bounds and these overlap, because all are rounded inwards.
    const nearBounds = anyOf([
      buildStartQuery(since, shift(from, -1)),
      buildStartQuery(shift(to, shortBound + 2), until),
    ]);
    return allOf([buildLengthQuery(least, most), nearBounds]);
  });
  if (shortBound === 0) return anyOf(byBucket);
  const middle = allOf([buildLengthQuery(0, shortBound), buildStartQuery(from, shift(to, shortBound + 1))]);
  return anyOf([middle, ...byBucket]);
}

/** A duration is short against a range that is so many times as long. */
const rangeOverShort = 16n;

/**
 * The longest bound of a bucket, milliseconds, that is short against a range; 0 without one. Most spans are shorter and start in
 * the middle of the range. One clause for these costs a server less than the clauses of their buckets.
 */
function findShortDuration({ from, to }: TimeRange): number {
  const longest = (to - from) / (rangeOverShort * nanosPerMilli);
  return durationBuckets.findLast((bound) => bound <= longest) ?? 0;
}

/** Documents that certainly have no parent. Several values at a parent's name have to be excluded by counting them. */
export function buildCertainRootQuery({ group, form, listsIgnored }: PlacedForm<SpanForm>): Query {
  const withoutParent = form.parent.map((name): Query => {
    const field = findField(group, name);
    if (field === undefined) return not(buildUnmappedQuery(group, name));
    const exact = findKeywordField(group, name);
    if (exact?.name !== name) return matchNone;
    const absent =
      isLossy(exact) && !listsIgnored ? matchNone : not(buildExistsQuery({ group, listsIgnored }, name));
    return anyOf([absent, { term: { [name]: "" } }]);
  });
  return allOf([...withoutParent, not(buildPossibleParentReferenceQuery(group, form.parent_reference))]);
}

/** Documents that certainly have a parent. */
export function buildCertainChildQuery({ group, form }: PlacedForm<SpanForm>): Query {
  const [name, ...others] = form.parent;
  // Of several names the first that a document has counts, whatever its value.
  const exact = name === undefined ? undefined : findKeywordField(group, name);
  const named =
    name === undefined || others.length > 0 || exact?.name !== name
      ? matchNone
      : allOf([{ exists: { field: name } }, not({ terms: { [name]: ["", ...zeroIds] } })]);
  return anyOf([named, buildCertainParentReferenceQuery(group, form.parent_reference)]);
}

/** Documents that certainly stand for one span each. */
export function buildCertainCountOneQuery({ group, form, listsIgnored }: PlacedForm<SpanForm>): Query {
  if (form.count === undefined) return matchAll;
  const field = findField(group, form.count);
  if (field === undefined) return not(buildUnmappedQuery(group, form.count));
  const malformed = buildMalformedQuery(field, listsIgnored);
  if (!field.indexed || malformed === undefined || !integerTypes.has(field.type)) return matchNone;
  return not(anyOf([malformed, { range: { [form.count]: { gt: 1 } } }]));
}
