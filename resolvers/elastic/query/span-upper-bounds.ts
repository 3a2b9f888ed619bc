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
import { all, any, every, ignored, none, not, type Query } from "../client/query-dsl.ts";
import { spellings } from "../layout/attribute-decoder.ts";
import {
  type AttributeSources,
  attributeNamed,
  type EventForm,
  nanosOf,
  type Placed,
  type Rule,
  type SpanForm,
  type Unit,
} from "../layout/span-layout.ts";
import {
  comes,
  findField,
  type IndexedField,
  type IndexGroup,
  isDate,
  mapsWhatComes,
} from "../mapping/mapping.ts";
import { nanosEra, timeRange } from "./time-field.ts";

/** Below what the servers take in one list of terms, and small enough to be read by people. */
export const idsOfOneSearch = 1_000;

// ---- names and values -----------------------------------------------------------------------------------------

/** The keyword behind a name, itself or among its multi-fields; undefined where none holds values as they are. */
export function keyword(group: IndexGroup, name: string): IndexedField | undefined {
  const own = findField(group, name);
  if (own === undefined) return undefined;
  const target = own.aliasOf === undefined ? own : findField(group, own.aliasOf);
  const exact = (field: IndexedField | undefined) =>
    field?.type === "keyword" &&
    field.indexed &&
    !field.rewritten &&
    !field.invented &&
    field.root === undefined;
  if (target !== undefined && exact(target)) return target;
  return target?.multi.map((sub) => findField(group, sub)).find(exact);
}

/** How many digits a whole number may have that surely fits: servers refuse a query for one that does not. */
const digits: ReadonlyMap<string, number> = new Map([
  ["byte", 2],
  ["short", 4],
  ["integer", 9],
  ["long", 15],
  ["unsigned_long", 15],
  ["double", 15],
]);
/** Takes any time or length of this century in any unit. */
export function isWide({ type }: IndexedField): boolean {
  return digits.get(type) === 15;
}

export function within(field: IndexedField, query: Query): Query {
  return field.nested === undefined ? query : { nested: { path: field.nested, query } };
}

/** What an index can hold of one keyword: servers refuse documents with more, and lists of terms that have it. */
const mostBytes = 32_766;

/** Documents that have any of these texts at a name, in any case where `caseless`. */
export function holds(group: IndexGroup, name: string, values: readonly string[], caseless = false): Query {
  if (values.length === 0) return none;
  const field = findField(group, name);
  if (field === undefined) return unmapped(group, name);
  const most = digits.get(field.type);
  if (most !== undefined && field.indexed) {
    // What is malformed is in the document alone. Of other texts those are there that spell a number, as it may: `1.50`.
    if (field.ignoreMalformed) return all;
    const numbers = values.filter((value) => /\d/.test(value));
    if (!numbers.every((value) => /^-?\d+$/.test(value) && value.length <= most)) return all;
    return numbers.length === 0 ? none : within(field, { terms: { [name]: numbers } });
  }
  const exact = keyword(group, name);
  if (exact === undefined || values.some((value) => value.length > exact.ignoreAbove)) return all;
  if (!caseless) {
    const terms = values.filter((value) => Buffer.byteLength(value) <= mostBytes);
    return terms.length === 0 ? none : within(exact, { terms: { [exact.name]: terms } });
  }
  return within(
    exact,
    any(values.map((value) => ({ term: { [exact.name]: { value, case_insensitive: true } } }))),
  );
}

/** A name may be mapped by the next document, after the mapping was read. */
export function unmapped(group: IndexGroup, name: string): Query {
  return mapsWhatComes(group, name) ? comes(group, name, false) : all;
}

/**
 * Documents whose value at a field is malformed, and so in the document alone; undefined where nothing tells which these are.
 */
export function malformed(field: IndexedField, listsIgnored: boolean): Query | undefined {
  return field.ignoreMalformed ? listedAt(field, listsIgnored) : none;
}

/** Documents of which the index lacks a value; undefined where they are not listed. */
function listedAt({ name, nested }: IndexedField, listsIgnored: boolean): Query | undefined {
  return listsIgnored && nested === undefined ? ignored(name) : undefined;
}

/** Documents that may have something at a name. */
export function has(
  { group, listsIgnored }: Pick<Placed<unknown>, "group" | "listsIgnored">,
  name: string,
): Query {
  const field = findField(group, name);
  if (field === undefined) return unmapped(group, name);
  if (!field.indexed || field.invented || field.root !== undefined || field.aliasOf !== undefined) return all;
  const present = within(field, { exists: { field: name } });
  // What is malformed, or a keyword over its limit, is not in the index.
  const drops = field.ignoreMalformed || field.ignoreAbove !== Number.POSITIVE_INFINITY;
  if (!drops) return present;
  return any([present, listedAt(field, listsIgnored) ?? all]);
}

/** Documents that surely are none of the others: an index may be asked for what lacks a name only if that is certain. */
function lacks(group: IndexGroup, name: string): Query {
  const field = findField(group, name);
  if (field === undefined || !field.indexed || field.aliasOf !== undefined || field.root !== undefined)
    return all;
  return not(within(field, { exists: { field: name } }));
}

/** Documents that may lack all of these names. */
export function isUnnamed({ group }: Pick<Placed<unknown>, "group">, names: readonly string[]): Query {
  return every(names.map((name) => lacks(group, name)));
}

/** An id as sources spell it: with all its zeros, with none, and as the lower half of a trace id, in either case. */
export function idSpellings(id: string): readonly string[] {
  if (!/^[0-9a-f]+$/.test(id)) return [id];
  const bare = id.replace(/^0+/, "");
  const half = id.length === 32 && /^0{16}/.test(id) ? [id.slice(16)] : [];
  const lower = [id, bare, ...half].filter((text) => text !== "");
  return [...new Set(lower.flatMap((text) => [text, text.toUpperCase()]))];
}

/** Of ids that are each there once; no two of them have a spelling in common. */
export function holdsId(group: IndexGroup, names: readonly string[], ids: readonly string[]): Query {
  const spelled = ids.flatMap(idSpellings);
  return any(names.map((name) => holds(group, name, spelled)));
}

// ---- times ----------------------------------------------------------------------------------------------------

/** The years 1 to 9999, which are all that servers read in one spelling. */
const calendar = { from: fromMillis(-62_135_596_800_000), to: fromMillis(253_402_300_799_999) };

/** Documents with a time at the name within the bounds, as an index holds it; undefined where that cannot be asked. */
export function timeBetween(
  group: IndexGroup,
  name: string,
  unit: Unit,
  from: Instant | undefined,
  to: Instant,
): Query | undefined {
  const field = findField(group, name);
  if (field === undefined || !field.indexed || field.ignoreMalformed || field.nested !== undefined)
    return undefined;
  const dates = isDate(field.type);
  if (!dates && (!isWide(field) || unit === "date")) return undefined;
  const era = field.type === "date_nanos" || unit === "ns" ? nanosEra : calendar;
  const bounds = { from: later(from ?? era.from, era.from), to: earlier(to, era.to) };
  if (bounds.from > bounds.to) return none;
  // No bound is none: each is read by all indices of the pattern, and one may be `date_nanos`, which refuses the year 1, or
  // `unsigned_long`, which refuses what is below 0.
  const since = from === undefined ? undefined : bounds.from;
  if (dates) return timeRange(name, since, bounds.to, field.type === "date_nanos");
  const scale = nanosOf[unit];
  const first = since === undefined ? undefined : (since + scale - 1n) / scale;
  // As texts: a number of nanoseconds is beyond 2^53.
  const gte = first === undefined ? {} : { gte: String(first) };
  return { range: { [name]: { ...gte, lte: String(bounds.to / scale) } } };
}

/** Bounds rounded outwards to whole milliseconds: what an index holds of a time is not finer. Undefined: no bound. */
export function timeBounds(
  group: IndexGroup,
  name: string,
  unit: Unit,
  from: Instant | undefined,
  to: Instant,
): Query {
  const since = from === undefined ? undefined : floorToMilli(from);
  return timeBetween(group, name, unit, since, endOfMilli(to)) ?? all;
}

/** How many units of a length are a millisecond. */
export const lengthUnits: Readonly<Record<Unit, number | undefined>> = {
  ms: 1,
  us: 1_000,
  ns: 1_000_000,
  date: undefined,
};

/** Lengths that part spans into classes, in milliseconds: the longest is 99 days. */
export const classes = Array.from({ length: 12 }, (_, power) => 8 ** power);

/**
 * Documents whose span ends in the range. Where only starts are indexed, a span of a class `[d, 8 d)` that ends in the
 * range starts at most `8 d` before it: each class has its own strip, and one long span makes no other's wider.
 */
export function endsWithin({ group, form, listsIgnored }: Placed<SpanForm>, { from, to }: TimeRange): Query {
  const started = (since: Instant | undefined) =>
    timeBounds(group, form.start.field, form.start.unit, since, to);
  if (form.end !== undefined) return timeBounds(group, form.end.field, form.end.unit, from, to);
  const { duration } = form;
  const field = duration && findField(group, duration.field);
  const asked = field?.indexed && isWide(field) && field.nested === undefined;
  const unread = field && malformed(field, listsIgnored);
  if (duration === undefined || !asked || duration.unit === "date" || unread === undefined) {
    return started(undefined);
  }
  const perMilli = lengthUnits[duration.unit] ?? 1;
  const before = (millis: number) => (from - BigInt(millis) * nanosPerMilli) as Instant;
  const strips = classes.map((least, at) =>
    every([
      { range: { [duration.field]: { gte: least * perMilli } } },
      started(at + 1 < classes.length ? before(least * 8) : undefined),
    ]),
  );
  return every([started(undefined), any([started(before(1)), unread, ...strips])]);
}

/** Whether a form's times can be asked of an index at all; the reason where not, for an operator. */
export function timelessness({ group, form }: Placed<SpanForm>): string | undefined {
  const { field: name, unit } = form.end ?? form.start;
  const field = findField(group, name);
  if (field === undefined) return `${name} is not mapped`;
  const dates = isDate(field.type);
  if (!field.indexed) return `${name} is not searchable`;
  if (!dates && (unit === "date" || !isWide(field))) return `${name} is of type ${field.type}`;
  return undefined;
}

// ---- selections -----------------------------------------------------------------------------------------------

/** Every document of a form has what its profile says that it has. */
export function isOfForm(placed: Placed<SpanForm | EventForm>): Query {
  return every(placed.form.present.map((name) => has(placed, name)));
}

const otlpNumbers: Readonly<Record<SpanKind, string>> = {
  internal: "1",
  server: "2",
  client: "3",
  producer: "4",
  consumer: "5",
};

export function isOfKind(placed: Placed<SpanForm>, kinds: readonly SpanKind[]): Query {
  if (kinds.includes("internal")) return all;
  const texts = kinds.flatMap((kind) => [kind, `span_kind_${kind}`, otlpNumbers[kind]]);
  const targets = new Set<string>(kinds);
  return any(placed.form.kind.map((rule) => follows(placed, rule, texts, targets)));
}

/** Documents that a rule may give one of the targets: `texts` are the targets as the field itself may spell them. */
function follows(
  placed: Placed<SpanForm>,
  { field, values, value }: Rule,
  texts: readonly string[],
  targets: ReadonlySet<string>,
): Query {
  if (value !== undefined)
    return !targets.has(value) ? none : field === undefined ? all : hasAt(placed, field);
  if (field === undefined) return all;
  const spelled =
    values === undefined
      ? texts
      : Object.entries(values).flatMap(([text, target]) => (targets.has(target) ? [text] : []));
  return holdsAt(placed, field, spelled, values === undefined);
}

/** As `holds`, also for names that lead to attributes. */
function holdsAt(
  { group, form }: Placed<SpanForm>,
  name: string,
  values: readonly string[],
  caseless = false,
): Query {
  const named = attributeNamed(form, name);
  if (named === undefined) return holds(group, name, values, caseless);
  return holdsAttribute(group, named.attributes, named.key, values, caseless);
}

/** Where a document may have a key of its attributes: at names, or in lists of `{ key, value }`. */
export function placesOf(
  attributes: AttributeSources,
  key: string,
): readonly ({ readonly name: string } | { readonly pairs: string })[] {
  type Place = { readonly name: string } | { readonly pairs: string };
  return attributes.from.flatMap((source): readonly Place[] => {
    if ("pairs" in source) return [{ pairs: source.pairs }];
    if ("named" in source) return (source.named[key] ?? []).map((name) => ({ name }));
    return spellings(key, { from: [source], omit: [] }).flatMap((spelling) => {
      if (source.keep) return spelling.startsWith(source.prefix) ? [{ name: spelling }] : [];
      const spelled =
        source.dot === undefined ? [spelling] : [spelling, spelling.replaceAll(".", source.dot)];
      return [...new Set(spelled)].map((own) => ({ name: source.prefix + own }));
    });
  });
}

/** Documents that may have any of these texts under a key of their attributes. */
export function holdsAttribute(
  group: IndexGroup,
  attributes: AttributeSources,
  key: string,
  values: readonly string[],
  caseless = false,
): Query {
  return any(
    placesOf(attributes, key).map((place) =>
      "pairs" in place
        ? holdsPair(group, place.pairs, key, values, caseless)
        : holds(group, place.name, values, caseless),
    ),
  );
}

/** As `has`, also for names that lead to attributes. */
function hasAt(placed: Placed<SpanForm>, name: string): Query {
  const named = attributeNamed(placed.form, name);
  if (named === undefined) return has(placed, name);
  const { attributes, key } = named;
  return any(
    placesOf(attributes, key).map((place) =>
      "pairs" in place ? hasPair(placed.group, place.pairs, key) : has(placed, place.name),
    ),
  );
}

export function hasPair(group: IndexGroup, list: string, key: string): Query {
  if (findField(group, list) === undefined) return unmapped(group, list);
  return holds(group, `${list}.key`, [key]);
}

/** A `{ key, value }` of a list, which only a nested list keeps together. */
export function holdsPair(
  group: IndexGroup,
  list: string,
  key: string,
  values: readonly string[],
  caseless: boolean,
): Query {
  const field = findField(group, list);
  if (field === undefined) return unmapped(group, list);
  const [keys, texts] = [holds(group, `${list}.key`, [key]), holds(group, `${list}.value`, values, caseless)];
  if (field.type !== "nested") return every([keys, texts]);
  const inner = (query: Query): Query =>
    (query.nested as { readonly query: Query } | undefined)?.query ?? query;
  if (keys === none || texts === none) return none;
  return { nested: { path: list, query: every([inner(keys), inner(texts)]) } };
}

/** Documents that may be spans of a selection. */
export function isSelected(placed: Placed<SpanForm>, select: SpanSelection): Query {
  const { group, form } = placed;
  switch (select) {
    case "all":
      return all;
    case "entries":
      if (form.entry !== undefined) return form.entry === "always" ? all : none;
      return any([isRoot(placed), isOfKind(placed, ["server", "consumer"])]);
    case "children":
      return form.entry === "always" ? none : all;
    case "calls":
      return isOfKind(placed, ["client", "producer"]);
    case "statements":
      return every([isOfKind(placed, ["client"]), any(form.statement.map((name) => hasAt(placed, name)))]);
    case "exceptions": {
      if (form.events === undefined) return none;
      const { at, name, event_attributes } = form.events;
      return any(
        name.map((rule) =>
          rule.field?.startsWith("event_attributes.")
            ? holdsEventAttribute(group, at, event_attributes, rule.field.slice("event_attributes.".length))
            : rule.field === undefined
              ? all
              : holds(group, `${at}.${rule.field}`, ["exception"]),
        ),
      );
    }
  }
}

/** Events of this name that lie in documents of their own. */
export function isNamed({ group, form }: Placed<EventForm>, name: string): Query {
  return any(
    form.name.map(({ field, values, value }) => {
      if (value !== undefined) return value === name ? all : none;
      if (field === undefined || values !== undefined || field.startsWith("event_attributes.")) return all;
      return holds(group, field, [name]);
    }),
  );
}

function holdsEventAttribute(group: IndexGroup, at: string, { from }: AttributeSources, key: string): Query {
  return any(
    from.map((source) =>
      "pairs" in source ? holdsPair(group, `${at}.${source.pairs}`, key, ["exception"], false) : all,
    ),
  );
}

export const zeros = Array.from({ length: 17 }, (_, digits) => "0".repeat(digits));

function isRoot({ group, form }: Placed<SpanForm>): Query {
  const unnamed = form.parent.map((name): Query => {
    const field = findField(group, name);
    if (field !== undefined && keyword(group, name) === undefined) return all;
    return field === undefined ? lacks(group, name) : any([lacks(group, name), holds(group, name, zeros)]);
  });
  return every([...unnamed, not(refersToParent(group, form.parent_reference))]);
}

/** Documents that surely have a reference to a parent, which takes a nested list of keywords. */
export function refersToParent(group: IndexGroup, rule: SpanForm["parent_reference"]): Query {
  if (rule === undefined || findField(group, rule.at)?.type !== "nested") return none;
  const conditions = Object.entries(rule.where).map(
    ([name, value]) => [`${rule.at}.${name}`, value] as const,
  );
  const id = `${rule.at}.${rule.span_id}`;
  if (![id, ...conditions.map(([name]) => name)].every((name) => keyword(group, name)?.name === name)) {
    return none;
  }
  const query = every([
    ...conditions.map(([name, value]) => ({ term: { [name]: value } })),
    { exists: { field: id } },
    not({ terms: { [id]: zeros } }),
  ]);
  return { nested: { path: rule.at, query } };
}

/** Entries that these spans may have called. */
export function isCalledBy(
  placed: Placed<SpanForm>,
  traceIds: readonly string[],
  spanIds: readonly string[],
): Query {
  const { group, form } = placed;
  const isCalled = any([isChildOf(placed, spanIds), holdsId(group, form.span_id, spanIds)]);
  const called = every([holdsId(group, form.trace_id, traceIds), isCalled]);
  const { links } = form;
  if (links === undefined) return called;
  return any([called, holdsId(group, [`${links.at}.${links.span_id}`], spanIds)]);
}

/** Spans that may name one of these as their parent. */
export function isChildOf({ group, form }: Placed<SpanForm>, spanIds: readonly string[]): Query {
  const rule = form.parent_reference;
  const referring = rule === undefined ? none : holdsId(group, [`${rule.at}.${rule.span_id}`], spanIds);
  return any([holdsId(group, form.parent, spanIds), referring]);
}
