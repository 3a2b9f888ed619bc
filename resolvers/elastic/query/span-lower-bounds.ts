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
import { all, any, every, ignored, none, not, type Query } from "../client/query-dsl.ts";
import {
  type AttributeSources,
  attributeNamed,
  type Placed,
  type Rule,
  type SpanForm,
  type Unit,
} from "../layout/span-layout.ts";
import { findField, type IndexedField, type IndexGroup } from "../mapping/mapping.ts";
import {
  classes,
  has,
  keyword,
  lengthUnits,
  malformed,
  placesOf,
  refersToParent,
  timeBetween,
  unmapped,
  zeros,
} from "./span-upper-bounds.ts";

type Group = Pick<Placed<SpanForm>, "group" | "listsIgnored">;

/** A name of a document as an index can group by it. */
export interface Column {
  readonly name: string;
  /** Undefined where no document that is `sure` has anything at the name. */
  readonly field: string | undefined;
  /** Documents whose value at the name is what the index has in the field, if they have any. */
  readonly sure: Query;
}

const wholeTypes: ReadonlySet<string> = new Set(["byte", "short", "integer", "long"]);

/** Several values of one document are not told apart here: they make a document fall into several groups. */
export function columnOf({ group, listsIgnored }: Group, name: string): Column {
  const own = findField(group, name);
  if (own === undefined) return { name, field: undefined, sure: not(unmapped(group, name)) };
  // Nothing that a reader would take for a value stands at the name of an object or an alias.
  if (own.type === "object" && own.indexed) return { name, field: undefined, sure: all };
  if (own.aliasOf !== undefined) return { name, field: undefined, sure: all };
  if (!own.indexed || own.invented || own.root !== undefined || own.nested !== undefined) {
    return { name, field: undefined, sure: none };
  }
  const column = groupable(group, own);
  const lossy = [own, ...(column === undefined ? [] : [column])].filter(drops);
  const dropped = listsIgnored ? any(lossy.map((field) => ignored(field.name))) : none;
  const absent = drops(own) && !listsIgnored ? none : not({ exists: { field: own.name } });
  if (column === undefined) return { name, field: undefined, sure: every([absent, not(dropped)]) };
  const isWhole = column === own && (lossy.length === 0 || listsIgnored);
  const told = isWhole ? all : any([{ exists: { field: column.name } }, absent]);
  return { name, field: column.name, sure: every([told, not(dropped)]) };
}

function drops({ ignoreMalformed, ignoreAbove, type }: IndexedField): boolean {
  return ignoreMalformed || (type === "keyword" && ignoreAbove !== Number.POSITIVE_INFINITY);
}

function groupable(group: IndexGroup, own: IndexedField): IndexedField | undefined {
  if (wholeTypes.has(own.type)) return own.docValues ? own : undefined;
  const exact = keyword(group, own.name);
  return exact?.docValues ? exact : undefined;
}

/** The columns behind names of a profile, those of attributes included; undefined where one has none. */
export function columnsOf(placed: Placed<SpanForm>, names: readonly string[]): readonly Column[] {
  return names.flatMap((name): readonly Column[] => {
    const named = attributeNamed(placed.form, name);
    return named === undefined
      ? [columnOf(placed, name)]
      : attributeColumns(placed, named.attributes, named.key);
  });
}

export function attributeColumns(
  placed: Placed<SpanForm>,
  attributes: AttributeSources,
  key: string,
): readonly Column[] {
  return placesOf(attributes, key).map((place): Column => {
    if ("name" in place) return columnOf(placed, place.name);
    return {
      name: `${place.pairs} ${key}`,
      field: undefined,
      sure: lacksPair(placed.group, place.pairs, key),
    };
  });
}

/** A list of pairs is no column; a document without this key is sure of it. */
function lacksPair(group: IndexGroup, list: string, key: string): Query {
  const field = findField(group, list);
  if (field === undefined) return not(unmapped(group, list));
  const keys = keyword(group, `${list}.key`);
  if (field.type !== "nested" || keys === undefined || key.length > keys.ignoreAbove) return none;
  return not({ nested: { path: list, query: { term: { [keys.name]: key } } } });
}

export function ruleNames(rules: readonly Rule[]): readonly string[] {
  return rules.flatMap(({ field }) => field ?? []);
}

/** Every document of a form has what its profile says that it has, and so has every one of these. */
export function isSurelyOfForm({ group, form }: Placed<SpanForm>): Query {
  return every(
    form.present.map((name) => {
      const field = findField(group, name);
      const plain = field?.indexed && !field.invented && field.aliasOf === undefined && !field.nested;
      return plain && field.root === undefined ? { exists: { field: name } } : none;
    }),
  );
}

/** Bounds rounded inwards: an index may hold a time to the millisecond only. */
function timeWithin(group: IndexGroup, name: string, unit: Unit, from: Instant, to: Instant): Query {
  const field = findField(group, name);
  if (field === undefined || field.invented || field.aliasOf !== undefined || field.root !== undefined)
    return none;
  const first = (endOfMilli((from - 1n) as Instant) + 1n) as Instant;
  const last = (floorToMilli((to + 1n) as Instant) - 1n) as Instant;
  return timeBetween(group, name, unit, first, last) ?? none;
}

/** A length that an index can add up as the reader would, in documents that are `sure`: whole micro- or nanoseconds. */
export function lengthColumn({
  group,
  form,
  listsIgnored,
}: Placed<SpanForm>): { field: string; unit: bigint; sure: Query } | undefined {
  const { duration } = form;
  const field = duration && findField(group, duration.field);
  if (duration === undefined || field === undefined) return undefined;
  const isWhole = field.type === "long" && field.indexed && field.docValues;
  const isPlain = !field.invented && field.nested === undefined;
  const unread = malformed(field, listsIgnored);
  const unit = { ns: 1n, us: 1_000n, ms: undefined, date: undefined }[duration.unit];
  if (!isWhole || !isPlain || unread === undefined || unit === undefined) return undefined;
  return { field: field.name, unit, sure: not(unread) };
}

/** Documents whose span surely ends in the range, and has a length that its index can add up. */
export function surelyEndsWithin(placed: Placed<SpanForm>, { from, to }: TimeRange): Query {
  const { group, form } = placed;
  const length = lengthColumn(placed);
  if (length === undefined || form.duration === undefined) return none;
  const perMilli = lengthUnits[form.duration.unit];
  if (perMilli === undefined) return none;
  const longest = (classes.at(-1) ?? 0) * perMilli;
  if (form.end !== undefined) {
    const ends = timeWithin(group, form.end.field, form.end.unit, from, to);
    return every([ends, length.sure, { range: { [length.field]: { gte: 0, lt: longest } } }]);
  }
  const { field, unit } = form.start;
  const ends = any(
    classes.flatMap((most, at): Query[] => {
      const least = classes[at - 1] ?? 0;
      const shift = (instant: bigint, millis: number) =>
        (instant - BigInt(millis) * nanosPerMilli) as Instant;
      const starts = timeWithin(group, field, unit, shift(from, least), shift(to, most + 1));
      if (starts === none) return [];
      const lasts = { range: { [length.field]: { gte: least * perMilli, lt: most * perMilli } } };
      return [every([lasts, starts])];
    }),
  );
  return every([length.sure, ends]);
}

/** Documents that surely have no parent; several values at a parent's name are to be told by counting them. */
export function isSurelyRoot({ group, form, listsIgnored }: Placed<SpanForm>): Query {
  const lacking = form.parent.map((name): Query => {
    const field = findField(group, name);
    if (field === undefined) return not(unmapped(group, name));
    const exact = keyword(group, name);
    if (exact?.name !== name) return none;
    const absent = drops(exact) && !listsIgnored ? none : not(has({ group, listsIgnored }, name));
    return any([absent, { term: { [name]: "" } }]);
  });
  return every([...lacking, not(mayRefer(group, form.parent_reference))]);
}

/** Documents that may have a reference to a parent. */
export function mayRefer(group: IndexGroup, rule: SpanForm["parent_reference"]): Query {
  if (rule === undefined) return none;
  return findField(group, rule.at)?.type === "nested"
    ? { nested: { path: rule.at, query: all } }
    : unmapped(group, rule.at);
}

/** Documents that surely have a parent. */
export function isSurelyChild({ group, form }: Placed<SpanForm>): Query {
  const [name, ...others] = form.parent;
  // Of several names the first that is there counts, whatever it holds.
  const exact = name === undefined ? undefined : keyword(group, name);
  const named =
    name === undefined || others.length > 0 || exact?.name !== name
      ? none
      : every([{ exists: { field: name } }, not({ terms: { [name]: ["", ...zeros] } })]);
  return any([named, refersToParent(group, form.parent_reference)]);
}

/** Documents that surely stand for one span each. */
export function surelyCountsOne({ group, form, listsIgnored }: Placed<SpanForm>): Query {
  if (form.count === undefined) return all;
  const field = findField(group, form.count);
  if (field === undefined) return not(unmapped(group, form.count));
  const unread = malformed(field, listsIgnored);
  if (!field.indexed || unread === undefined || !wholeTypes.has(field.type)) return none;
  return not(any([unread, { range: { [form.count]: { gt: 1 } } }]));
}
