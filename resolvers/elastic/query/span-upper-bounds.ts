// What an index can be asked of spans, as upper bounds: each query's hits include every document that the condition holds
// for, and often others, since the reader looks at each document again. A name that an index cannot answer for narrows
// nothing.
import type { SpanKind } from "../../../src/core/rows.ts";
import {
  earlier,
  endOfMilli,
  floorToMilli,
  fromMillis,
  type Instant,
  later,
  nanosPerMilli,
  type TimeRange,
} from "../../../src/core/time.ts";
import type { SpanSelection } from "../../../src/store/span-reader.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import {
  type AttributeSources,
  type EventForm,
  findNamedAttribute,
  nanosPerTimeUnit,
  type SpanForm,
  type TimeUnit,
  type ValueRule,
} from "../layout/span-layout.ts";
import { isDateType } from "../mapping/indexed-field.ts";
import { findField, type IndexGroup } from "../mapping/mapping.ts";
import {
  buildAttributeQuery,
  buildExistsQuery,
  buildMalformedQuery,
  buildMissingQuery,
  buildPairExistsQuery,
  buildPairQuery,
  buildTermsQuery,
  findKeywordField,
  isWideNumber,
  listAttributePlaces,
} from "./span-field-queries.ts";
import { buildDateRangeQuery, dateNanosRange } from "./time-field.ts";

/** Below what the servers take in one list of terms, and small enough to be read by people. */
export const maxIdsPerSearch = 1_000;

// ---- names and values -----------------------------------------------------------------------------------------

/** Documents that may lack all of these names. */
export function buildAllMissingQuery(
  { group }: Pick<PlacedForm<unknown>, "group">,
  names: readonly string[],
): Query {
  return allOf(names.map((name) => buildMissingQuery(group, name)));
}

/** An id as sources spell it: with all its zeros, with none, and as the lower half of a trace id, in either case. */
export function listIdSpellings(id: string): readonly string[] {
  if (!/^[0-9a-f]+$/.test(id)) return [id];
  const bare = id.replace(/^0+/, "");
  const half = id.length === 32 && /^0{16}/.test(id) ? [id.slice(16)] : [];
  const lower = [id, bare, ...half].filter((text) => text !== "");
  return [...new Set(lower.flatMap((text) => [text, text.toUpperCase()]))];
}

/** Of ids that are each there once; no two of them have a spelling in common. */
export function buildIdQuery(group: IndexGroup, names: readonly string[], ids: readonly string[]): Query {
  const spelled = ids.flatMap(listIdSpellings);
  return anyOf(names.map((name) => buildTermsQuery(group, name, spelled)));
}

// ---- times ----------------------------------------------------------------------------------------------------

/** The years 1 to 9999, which are all that servers read in one spelling. */
const calendar = { from: fromMillis(-62_135_596_800_000), to: fromMillis(253_402_300_799_999) };

/** Documents with a time at the name within the bounds, as an index holds it; undefined where that cannot be asked. */
export function buildTimeBetweenQuery(
  group: IndexGroup,
  name: string,
  unit: TimeUnit,
  from: Instant | undefined,
  to: Instant,
): Query | undefined {
  const field = findField(group, name);
  if (field === undefined || !field.indexed || field.ignoreMalformed || field.nested !== undefined)
    return undefined;
  const dates = isDateType(field.type);
  if (!dates && (!isWideNumber(field) || unit === "date")) return undefined;
  const era = field.type === "date_nanos" || unit === "ns" ? dateNanosRange : calendar;
  const bounds = { from: later(from ?? era.from, era.from), to: earlier(to, era.to) };
  if (bounds.from > bounds.to) return matchNone;
  // No bound is none: each is read by all indices of the pattern, and one may be `date_nanos`, which refuses the year 1, or
  // `unsigned_long`, which refuses what is below 0.
  const since = from === undefined ? undefined : bounds.from;
  if (dates) return buildDateRangeQuery(name, since, bounds.to, field.type === "date_nanos");
  const scale = nanosPerTimeUnit[unit];
  const first = since === undefined ? undefined : (since + scale - 1n) / scale;
  // As texts: a number of nanoseconds is beyond 2^53.
  const gte = first === undefined ? {} : { gte: String(first) };
  return { range: { [name]: { ...gte, lte: String(bounds.to / scale) } } };
}

/** Bounds rounded outwards to whole milliseconds: what an index holds of a time is not finer. Undefined: no bound. */
export function buildTimeBoundsQuery(
  group: IndexGroup,
  name: string,
  unit: TimeUnit,
  from: Instant | undefined,
  to: Instant,
): Query {
  const since = from === undefined ? undefined : floorToMilli(from);
  return buildTimeBetweenQuery(group, name, unit, since, endOfMilli(to)) ?? matchAll;
}

/** How many units of a length are a millisecond. */
export const durationUnitsPerMilli: Readonly<Record<TimeUnit, number | undefined>> = {
  ms: 1,
  us: 1_000,
  ns: 1_000_000,
  date: undefined,
};

/** Lengths that part spans into classes, in milliseconds: the longest is 99 days. */
export const durationBuckets = Array.from({ length: 12 }, (_, power) => 8 ** power);

/**
 * Documents whose span ends in the range. Where only starts are indexed, a span of a class `[d, 8 d)` that ends in the
 * range starts at most `8 d` before it: each class has its own strip, and one long span makes no other's wider.
 */
export function buildEndTimeQuery(
  { group, form, listsIgnored }: PlacedForm<SpanForm>,
  { from, to }: TimeRange,
): Query {
  const started = (since: Instant | undefined) =>
    buildTimeBoundsQuery(group, form.start.field, form.start.unit, since, to);
  if (form.end !== undefined) return buildTimeBoundsQuery(group, form.end.field, form.end.unit, from, to);
  const { duration } = form;
  const field = duration && findField(group, duration.field);
  const asked = field?.indexed && isWideNumber(field) && field.nested === undefined;
  const unread = field && buildMalformedQuery(field, listsIgnored);
  if (duration === undefined || !asked || duration.unit === "date" || unread === undefined) {
    return started(undefined);
  }
  const perMilli = durationUnitsPerMilli[duration.unit] ?? 1;
  const before = (millis: number) => (from - BigInt(millis) * nanosPerMilli) as Instant;
  const strips = durationBuckets.map((least, at) =>
    allOf([
      { range: { [duration.field]: { gte: least * perMilli } } },
      started(at + 1 < durationBuckets.length ? before(least * 8) : undefined),
    ]),
  );
  return allOf([started(undefined), anyOf([started(before(1)), unread, ...strips])]);
}

/** Whether a form's times can be asked of an index at all; the reason where not, for an operator. */
export function describeTimeProblem({ group, form }: PlacedForm<SpanForm>): string | undefined {
  const { field: name, unit } = form.end ?? form.start;
  const field = findField(group, name);
  if (field === undefined) return `${name} is not mapped`;
  const dates = isDateType(field.type);
  if (!field.indexed) return `${name} is not searchable`;
  if (!dates && (unit === "date" || !isWideNumber(field))) return `${name} is of type ${field.type}`;
  return undefined;
}

// ---- selections -----------------------------------------------------------------------------------------------

/** Every document of a form has what its profile says that it has. */
export function buildFormQuery(placed: PlacedForm<SpanForm | EventForm>): Query {
  return allOf(placed.form.present.map((name) => buildExistsQuery(placed, name)));
}

const otlpNumbers: Readonly<Record<SpanKind, string>> = {
  internal: "1",
  server: "2",
  client: "3",
  producer: "4",
  consumer: "5",
};

export function buildKindQuery(placed: PlacedForm<SpanForm>, kinds: readonly SpanKind[]): Query {
  if (kinds.includes("internal")) return matchAll;
  const texts = kinds.flatMap((kind) => [kind, `span_kind_${kind}`, otlpNumbers[kind]]);
  const targets = new Set<string>(kinds);
  return anyOf(placed.form.kind.map((rule) => buildRuleQuery(placed, rule, texts, targets)));
}

/** Documents that a rule may give one of the targets: `texts` are the targets as the field itself may spell them. */
function buildRuleQuery(
  placed: PlacedForm<SpanForm>,
  { field, values, value }: ValueRule,
  texts: readonly string[],
  targets: ReadonlySet<string>,
): Query {
  if (value !== undefined)
    return !targets.has(value)
      ? matchNone
      : field === undefined
        ? matchAll
        : buildNamedExistsQuery(placed, field);
  if (field === undefined) return matchAll;
  const spelled =
    values === undefined
      ? texts
      : Object.entries(values).flatMap(([text, target]) => (targets.has(target) ? [text] : []));
  return buildNamedTermsQuery(placed, field, spelled, values === undefined);
}

/** As `holds`, also for names that lead to attributes. */
function buildNamedTermsQuery(
  { group, form }: PlacedForm<SpanForm>,
  name: string,
  values: readonly string[],
  caseless = false,
): Query {
  const named = findNamedAttribute(form, name);
  if (named === undefined) return buildTermsQuery(group, name, values, caseless);
  return buildAttributeQuery(group, named.attributes, named.key, values, caseless);
}

/** As `has`, also for names that lead to attributes. */
function buildNamedExistsQuery(placed: PlacedForm<SpanForm>, name: string): Query {
  const named = findNamedAttribute(placed.form, name);
  if (named === undefined) return buildExistsQuery(placed, name);
  const { attributes, key } = named;
  return anyOf(
    listAttributePlaces(attributes, key).map((place) =>
      "pairs" in place
        ? buildPairExistsQuery(placed.group, place.pairs, key)
        : buildExistsQuery(placed, place.name),
    ),
  );
}

/** Documents that may be spans of a selection. */
export function buildSelectionQuery(placed: PlacedForm<SpanForm>, select: SpanSelection): Query {
  const { group, form } = placed;
  switch (select) {
    case "all":
      return matchAll;
    case "entries":
      if (form.entry !== undefined) return form.entry === "always" ? matchAll : matchNone;
      return anyOf([buildRootQuery(placed), buildKindQuery(placed, ["server", "consumer"])]);
    case "children":
      return form.entry === "always" ? matchNone : matchAll;
    case "calls":
      return buildKindQuery(placed, ["client", "producer"]);
    case "statements":
      return allOf([
        buildKindQuery(placed, ["client"]),
        anyOf(form.statement.map((name) => buildNamedExistsQuery(placed, name))),
      ]);
    case "exceptions": {
      if (form.events === undefined) return matchNone;
      const { at, name, event_attributes } = form.events;
      return anyOf(
        name.map((rule) =>
          rule.field?.startsWith("event_attributes.")
            ? buildExceptionAttributeQuery(
                group,
                at,
                event_attributes,
                rule.field.slice("event_attributes.".length),
              )
            : rule.field === undefined
              ? matchAll
              : buildTermsQuery(group, `${at}.${rule.field}`, ["exception"]),
        ),
      );
    }
  }
}

/** Events of this name that lie in documents of their own. */
export function buildEventNameQuery({ group, form }: PlacedForm<EventForm>, name: string): Query {
  return anyOf(
    form.name.map(({ field, values, value }) => {
      if (value !== undefined) return value === name ? matchAll : matchNone;
      if (field === undefined || values !== undefined || field.startsWith("event_attributes."))
        return matchAll;
      return buildTermsQuery(group, field, [name]);
    }),
  );
}

function buildExceptionAttributeQuery(
  group: IndexGroup,
  at: string,
  { from }: AttributeSources,
  key: string,
): Query {
  return anyOf(
    from.map((source) =>
      "pairs" in source
        ? buildPairQuery(group, `${at}.${source.pairs}`, key, ["exception"], false)
        : matchAll,
    ),
  );
}

export const zeroIds = Array.from({ length: 17 }, (_, digits) => "0".repeat(digits));

function buildRootQuery({ group, form }: PlacedForm<SpanForm>): Query {
  const unnamed = form.parent.map((name): Query => {
    const field = findField(group, name);
    if (field !== undefined && findKeywordField(group, name) === undefined) return matchAll;
    return field === undefined
      ? buildMissingQuery(group, name)
      : anyOf([buildMissingQuery(group, name), buildTermsQuery(group, name, zeroIds)]);
  });
  return allOf([...unnamed, not(buildCertainParentReferenceQuery(group, form.parent_reference))]);
}

/** Documents that surely have a reference to a parent, which takes a nested list of keywords. */
export function buildCertainParentReferenceQuery(
  group: IndexGroup,
  rule: SpanForm["parent_reference"],
): Query {
  if (rule === undefined || findField(group, rule.at)?.type !== "nested") return matchNone;
  const conditions = Object.entries(rule.where).map(
    ([name, value]) => [`${rule.at}.${name}`, value] as const,
  );
  const id = `${rule.at}.${rule.span_id}`;
  if (
    ![id, ...conditions.map(([name]) => name)].every((name) => findKeywordField(group, name)?.name === name)
  ) {
    return matchNone;
  }
  const query = allOf([
    ...conditions.map(([name, value]) => ({ term: { [name]: value } })),
    { exists: { field: id } },
    not({ terms: { [id]: zeroIds } }),
  ]);
  return { nested: { path: rule.at, query } };
}

/** Entries that these spans may have called. */
export function buildCalleeQuery(
  placed: PlacedForm<SpanForm>,
  traceIds: readonly string[],
  spanIds: readonly string[],
): Query {
  const { group, form } = placed;
  const isCalled = anyOf([buildChildQuery(placed, spanIds), buildIdQuery(group, form.span_id, spanIds)]);
  const called = allOf([buildIdQuery(group, form.trace_id, traceIds), isCalled]);
  const { links } = form;
  if (links === undefined) return called;
  return anyOf([called, buildIdQuery(group, [`${links.at}.${links.span_id}`], spanIds)]);
}

/** Spans that may name one of these as their parent. */
export function buildChildQuery({ group, form }: PlacedForm<SpanForm>, spanIds: readonly string[]): Query {
  const rule = form.parent_reference;
  const referring =
    rule === undefined ? matchNone : buildIdQuery(group, [`${rule.at}.${rule.span_id}`], spanIds);
  return anyOf([buildIdQuery(group, form.parent, spanIds), referring]);
}
