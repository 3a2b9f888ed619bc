// Bounds of spans by time: documents that may start or end in a range, and those that certainly do. What the index cannot
// answer for narrows nothing.
import {
  earlier,
  endOfMilli,
  floorToMilli,
  fromMillis,
  type Instant,
  lastMilli,
  later,
  nanosPerMilli,
  type TimeRange,
} from "../../../src/core/time.ts";
import { allOf, anyOf, matchAll, matchNone, type Query } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import {
  type EventForm,
  type InstantRule,
  listTimes,
  nanosPerTimeUnit,
  type SpanForm,
  type TimeRule,
  type TimeUnit,
} from "../layout/span-layout.ts";
import { type IndexedField, isDateType } from "../mapping/indexed-field.ts";
import { findField, type IndexGroup, isDynamic } from "../mapping/mapping.ts";
import {
  buildMalformedQuery,
  buildMissingQuery,
  buildUnmappedQuery,
  isApproximateNumber,
  isWideNumber,
  roundOutwards,
} from "./span-field-queries.ts";
import { buildDateRangeQuery, buildTolerantRangeQuery, dateNanosRange } from "./time-field.ts";

// ---- Times ----------------------------------------------------------------------------------------------------

/** The years 1 to 9999, which all servers read in the same spelling. */
const calendar = { from: fromMillis(-62_135_596_800_000), to: fromMillis(lastMilli) };

/** The start of the last millisecond of which a `date_nanos` field can hold a part. */
const lastNanosMilli = floorToMilli(dateNanosRange.to);

/**
 * Documents whose indexed time lies within the bounds (inclusive) and, of a date, is one that nanoseconds can hold; undefined
 * where the field cannot be searched so.
 */
export function buildTimeBetweenQuery(
  group: IndexGroup,
  { field: name, unit }: TimeRule,
  from: Instant | undefined,
  to: Instant | undefined,
): Query | undefined {
  const field = findField(group, name);
  if (field === undefined || describeFieldProblem(field, unit) !== undefined) return undefined;
  const isDate = isDateType(field.type);
  // All indices of the pattern parse each bound, and another one may map the field as `date_nanos`.
  const era = isDate || unit === "ns" ? dateNanosRange : calendar;
  const bounds = { from: later(from ?? era.from, era.from), to: earlier(to ?? era.to, era.to) };
  if (bounds.from > bounds.to) return matchNone;
  // An open bound stays open: a `date` may hold a time before it, and `unsigned_long` rejects a negative number.
  const isNegative = field.type === "unsigned_long" && bounds.from < 0n;
  const since = from === undefined || isNegative ? undefined : bounds.from;
  if (isDate) return buildDateRangeQuery(name, since, to === undefined ? undefined : bounds.to);
  const scale = nanosPerTimeUnit[unit];
  const first = since === undefined ? undefined : (since + scale - 1n) / scale;
  const gte = first === undefined ? undefined : roundOutwards(field, first, "down");
  const lte = roundOutwards(field, bounds.to / scale, "up");
  if (group.dateNames.has(name)) return buildTolerantRangeQuery(name, gte, lte);
  // As texts, since a number of nanoseconds exceeds 2^53.
  return { range: { [name]: { ...(gte !== undefined && { gte: String(gte) }), lte: String(lte) } } };
}

type GroupContext = Pick<PlacedForm<unknown>, "group" | "listsIgnored">;

/**
 * Documents whose time may lie in the range. Bounds are rounded outwards, since an index may hold whole milliseconds only. A
 * document without a time at the first field is bounded by the one that stands in for it.
 */
export function buildTimeBoundsQuery(
  placed: GroupContext,
  rule: InstantRule,
  from: Instant | undefined,
  to: Instant,
): Query {
  return combineTimes(placed, rule, (time) => buildFieldBoundsQuery(placed, time, from, to));
}

/** Documents that may match by the first of a rule's times that they have. */
function combineTimes({ group }: GroupContext, rule: InstantRule, build: (time: TimeRule) => Query): Query {
  return anyOf(
    listTimes(rule).map((time, at, times) =>
      allOf([build(time), ...times.slice(0, at).map(({ field }) => buildMissingQuery(group, field))]),
    ),
  );
}

/** Documents whose time at this field may lie in the range. */
function buildFieldBoundsQuery(
  { group, listsIgnored }: GroupContext,
  time: TimeRule,
  from: Instant | undefined,
  to: Instant,
): Query {
  const field = findField(group, time.field);
  if (field === undefined) return buildUnmappedQuery(group, time.field);
  const rounded = { from: from === undefined ? undefined : floorToMilli(from), to: endOfMilli(to) };
  const bounds = isDateType(field.type) ? widenToNanos(rounded) : rounded;
  const malformed = buildMalformedQuery(field, listsIgnored);
  const between = buildTimeBetweenQuery(group, time, bounds.from, bounds.to);
  return between === undefined || malformed === undefined ? matchAll : anyOf([between, malformed]);
}

interface TimeBounds {
  readonly from: Instant | undefined;
  readonly to: Instant | undefined;
}

/** Bounds that no `date_nanos` rejects, around everything within these. One that it cannot hold is open: a `date` may reach it. */
function widenToNanos({ from, to }: TimeBounds): TimeBounds {
  return {
    from: from === undefined || from < dateNanosRange.from ? undefined : earlier(from, lastNanosMilli),
    to: to === undefined || to > dateNanosRange.to ? undefined : later(to, dateNanosRange.from),
  };
}

/** Why an index cannot be searched by a time at a field, for operators; undefined if it can. */
function describeFieldProblem(field: IndexedField, unit: TimeUnit): string | undefined {
  if (!field.indexed || field.nested !== undefined) return "is not searchable";
  if (isDateType(field.type)) return undefined;
  const isNumber = isWideNumber(field) || isApproximateNumber(field);
  return unit !== "date" && isNumber ? undefined : `is of type ${field.type}`;
}

/** The number of units of a duration in a millisecond. */
export const durationUnitsPerMilli = { ms: 1, us: 1_000, ns: 1_000_000 } as const;

/** Lower bounds of the buckets into which durations fall, in milliseconds. The last one is 99 days. */
export const durationBuckets = Array.from({ length: 12 }, (_, power) => 8 ** power);

/**
 * Documents whose span may end in the range. Where only starts are indexed, a span with a duration in the bucket `[d, 8 d)`
 * starts at most `8 d` before the range. Each bucket has its own range of starts, so that long spans do not widen those of
 * short ones.
 */
export function buildEndTimeQuery(placed: PlacedForm<SpanForm>, range: TimeRange): Query {
  const { form } = placed;
  if (form.end !== undefined) return buildTimeBoundsQuery(placed, form.end, range.from, range.to);
  return combineTimes(placed, form.start, (start) => buildEndQueryByStart(placed, start, range));
}

function buildEndQueryByStart(placed: PlacedForm<SpanForm>, start: TimeRule, { from, to }: TimeRange): Query {
  const { group, form, listsIgnored } = placed;
  const startsBefore = buildFieldBoundsQuery(placed, start, undefined, to);
  const { duration } = form;
  const field = duration && findField(group, duration.field);
  if (duration === undefined || field === undefined) return startsBefore;
  const malformed = buildMalformedQuery(field, listsIgnored);
  const isSearchable = field.indexed && field.nested === undefined && malformed !== undefined;
  if (!isSearchable || !(isWideNumber(field) || isApproximateNumber(field))) return startsBefore;
  const perMilli = durationUnitsPerMilli[duration.unit];
  const before = (millis: number) => (from - BigInt(millis) * nanosPerMilli) as Instant;
  // Each clause leaves out the starts that the clause before it has, so that few clauses match the same document.
  const byBucket = durationBuckets.map((least, at) => {
    const since = at + 1 < durationBuckets.length ? before(least * 8) : undefined;
    return allOf([
      { range: { [duration.field]: { gte: roundOutwards(field, least * perMilli, "down") } } },
      buildFieldBoundsQuery(placed, start, since, before(least)),
    ]);
  });
  const lasting = buildFieldBoundsQuery(placed, start, before(1), to);
  return allOf([startsBefore, anyOf([lasting, malformed, ...byBucket])]);
}

/** Why a range has to read every span of a form in these indices, for operators; undefined if the index bounds them. */
export function describeTimeProblem({ group, form }: PlacedForm<SpanForm>): string | undefined {
  for (const { field: name, unit } of listTimes(form.end ?? form.start)) {
    const field = findField(group, name);
    const isAbsent = field === undefined && isDynamic(group, name);
    const problem = field === undefined ? "is not mapped" : describeFieldProblem(field, unit);
    if (problem !== undefined && !isAbsent) return `${name} ${problem}`;
  }
  return undefined;
}

/**
 * The field whose times a rebuilt `_source` cannot give back, because the index holds them with fewer digits; undefined
 * without one.
 */
export function findLossyTime({ group, form }: PlacedForm<SpanForm | EventForm>): string | undefined {
  if (group.sourceMode !== "synthetic") return undefined;
  const rules = form.holds === "span" ? [form.start, form.end, form.duration] : [form.time];
  const names = rules.flatMap((rule) =>
    rule === undefined ? [] : listTimes(rule).map(({ field }) => field),
  );
  return names.find((name) => {
    const field = findField(group, name);
    return field !== undefined && isApproximateNumber(field);
  });
}

/** How to sort by a time of several forms. Types of numbers that differ between indices are compared as whole numbers. */
export function buildTimeSort(
  forms: readonly PlacedForm<SpanForm>[],
  { field, unit }: TimeRule,
  order: "asc" | "desc",
): readonly object[] {
  if (unit === "date") return [{ [field]: { order, numeric_type: "date", unmapped_type: "date" } }];
  const types = new Set(forms.flatMap(({ group }) => findField(group, field)?.type ?? []));
  const common = types.size > 1 ? { numeric_type: "long" } : {};
  return [{ [field]: { order, unmapped_type: "long", ...common } }];
}
