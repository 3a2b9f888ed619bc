// Pushes the hints of a span scan down to the index, as upper bounds like those of `span-upper-bounds.ts`. A value is
// compared as a text whatever type the document gives it, so a number is searched in every spelling that is read as it.
import { readOwn } from "../../../src/core/collections.ts";
import type { SpanPushdown, SpanSource } from "../../../src/store/spans.ts";
import { incidentDigestAttribute, unnamedAction } from "../../../src/tracing/spans/requests.ts";
import { allOf, anyOf, matchAll, matchNone, measureQuery, not, type Query } from "../client/query-dsl.ts";
import { lossyCharacters } from "../layout/attribute-decoder.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import {
  type AttributeSource,
  type AttributeSources,
  type EventForm,
  findNamedAttribute,
  nanosPerTimeUnit,
  type SpanForm,
} from "../layout/span-layout.ts";
import { findField, type IndexGroup } from "../mapping/mapping.ts";
import {
  buildAttributeQuery,
  buildExistsQuery,
  buildMalformedQuery,
  buildPairExistsQuery,
  buildPairQuery,
  buildTermsQuery,
  findKeywordField,
  isApproximateNumber,
  isWideNumber,
  listAttributePlaces,
  roundOutwards,
  wrapNestedQuery,
} from "./span-field-queries.ts";
import { buildEventNameQuery, buildKindQuery, buildSelectionQuery } from "./span-upper-bounds.ts";

/** Servers reject queries with too many clauses. What is not pushed down is only read. */
const maxClauses = 100;

/** Documents that may satisfy the hints, as far as they fit into the clause limit. */
export function buildPushdownQuery(
  placed: PlacedForm<SpanForm>,
  narrow: SpanPushdown,
  source: SpanSource,
): Query {
  const { form } = placed;
  const { service, revision, namespaces, actions, tags = [], kind, name, minDuration, maxDuration } = narrow;
  // A document without the field is read as having the empty text.
  const at = (names: readonly string[], text: string | undefined): Query =>
    text === undefined || text === ""
      ? matchAll
      : anyOf(names.map((own) => buildTextQuery(placed, own, [text])));
  return combineWithinClauseLimit([
    // First, because a scan is cut into windows by these.
    minDuration === undefined && maxDuration === undefined
      ? matchAll
      : buildDurationQuery(placed, minDuration, maxDuration),
    at(form.service, service),
    at(form.revision, revision),
    at(form.name, name),
    kind === undefined ? matchAll : buildKindQuery(placed, [kind]),
    namespaces === undefined ? matchAll : buildNamespaceQuery(placed, namespaces, source),
    actions === undefined ? matchAll : buildActionQuery(placed, actions, source),
    ...tags.map((tag) => buildTagQuery(placed, tag, source)),
  ]);
}

/** Combines the queries in order, without those that exceed the clause limit. */
function combineWithinClauseLimit(queries: readonly Query[]): Query {
  let left = maxClauses;
  return allOf(
    queries.filter((query) => {
      const { clauses } = measureQuery(query);
      if (clauses > left) return false;
      left -= clauses;
      return true;
    }),
  );
}

// ---- Names ----------------------------------------------------------------------------------------------------

/** A namespace is the text of the attribute, or without one follows from the kind. */
function buildNamespaceQuery(
  placed: PlacedForm<SpanForm>,
  namespaces: readonly string[],
  { namespaceAttribute }: SpanSource,
): Query {
  const { group, form } = placed;
  if (namespaces.includes("background") || !namespaces.every(isSearchable)) return matchAll;
  return anyOf([
    buildAttributeQuery(group, form.span_attributes, namespaceAttribute, namespaces),
    namespaces.includes("web") ? buildKindQuery(placed, ["server"]) : matchNone,
  ]);
}

function buildActionQuery(
  placed: PlacedForm<SpanForm>,
  actions: readonly string[],
  { actionAttribute }: SpanSource,
): Query {
  const { group, form } = placed;
  // An unnamed entry has no value to search for.
  if (actions.includes(unnamedAction) || !actions.every(isSearchable)) return matchAll;
  return anyOf([
    ...form.name.map((own) => buildTextQuery(placed, own, actions)),
    buildAttributeQuery(group, form.span_attributes, actionAttribute, actions),
  ]);
}

/** A tag is an attribute with any of the prefixes before its name, each spelled as the layout does. */
function buildTagQuery(
  { group, listsIgnored, form }: PlacedForm<SpanForm>,
  { name, value }: { readonly name: string; readonly value: string },
  { tagPrefixes }: SpanSource,
): Query {
  return anyOf(
    tagPrefixes.flatMap((prefix) => {
      const key = prefix + name;
      return form.span_attributes.from.map((source): Query => {
        if ("pairs" in source) return buildPairTextQuery(group, source.pairs, key, [value]);
        const names = listTagFields(source, key, tagPrefixes);
        return names === undefined
          ? matchAll
          : anyOf(names.map((own) => buildFieldTextQuery({ group, listsIgnored }, own, [value])));
      });
    }),
  );
}

/** The most dots that a layout may replace, each by itself. */
const maxDots = 5;

/** The names at which a source may hold a key that begins with a tag prefix; undefined where there are too many. */
function listTagFields(
  source: Exclude<AttributeSource, { pairs: string }>,
  key: string,
  tagPrefixes: readonly string[],
): readonly string[] | undefined {
  if ("named" in source) return readOwn(source.named, key) ?? [];
  const { prefix, dot, spelling, keep } = source;
  if (keep) return key.startsWith(prefix) ? [key] : [];
  if (spelling !== undefined) {
    // Only the prefix is spelled anew; the name of a tag stays as the document has it.
    const spelled = tagPrefixes
      .filter((own) => key.startsWith(own))
      .map((own) => own.replace(lossyCharacters, spelling) + key.slice(own.length));
    return [...new Set([key, key.replace(lossyCharacters, spelling), ...spelled])].map((own) => prefix + own);
  }
  if (dot === undefined) return [prefix + key];
  const [first = "", ...rest] = key.split(".");
  if (rest.length > maxDots) return undefined;
  return rest
    .reduce((begun, part) => begun.flatMap((own) => [`${own}.${part}`, own + dot + part]), [first])
    .map((own) => prefix + own);
}

// ---- Errors ---------------------------------------------------------------------------------------------------

type ErrorHints = SpanPushdown["errors"];

/** Spans whose own document may hold an exception; where errors are named, one of those. */
export function buildExceptionQuery(placed: PlacedForm<SpanForm>, errors: ErrorHints): Query {
  const { group, form } = placed;
  if (form.events === undefined) return matchNone;
  const { at, event_attributes } = form.events;
  return allOf([
    buildSelectionQuery(placed, "exceptions"),
    buildErrorMatchQuery(group, `${at}.`, event_attributes, errors),
  ]);
}

/** The same for separate events. */
export function buildErrorEventQuery(placed: PlacedForm<EventForm>, errors: ErrorHints): Query {
  const { group, form } = placed;
  return allOf([
    buildEventNameQuery(placed, "exception"),
    buildErrorMatchQuery(group, "", form.event_attributes, errors),
  ]);
}

/** Events that may be one of these errors, by digest or type, which are always texts. */
function buildErrorMatchQuery(
  group: IndexGroup,
  at: string,
  attributes: AttributeSources,
  errors: ErrorHints,
): Query {
  if (errors === undefined) return matchAll;
  const buildKeyQuery = (key: string, values: readonly string[]): Query => {
    const texts = [...new Set(values)];
    if (texts.length === 0) return matchNone;
    return anyOf(
      listAttributePlaces(attributes, key).map((place) => {
        if (!texts.every(isSearchable)) return matchAll;
        return "pairs" in place
          ? buildPairQuery(group, at + place.pairs, key, texts, false)
          : buildTermsQuery(group, at + place.name, texts);
      }),
    );
  };
  return anyOf([
    buildKeyQuery(
      incidentDigestAttribute,
      errors.map(({ digest }) => digest),
    ),
    buildKeyQuery(
      "exception.type",
      errors.flatMap(({ exception }) => exception ?? []),
    ),
  ]);
}

// ---- Texts ----------------------------------------------------------------------------------------------------

/** Documents in which a value at a name of a layout may be read as one of these texts. */
function buildTextQuery(placed: PlacedForm<SpanForm>, name: string, texts: readonly string[]): Query {
  const named = findNamedAttribute(placed.form, name);
  if (named === undefined) return buildFieldTextQuery(placed, name, texts);
  const { attributes, key } = named;
  return anyOf(
    listAttributePlaces(attributes, key).map((place) =>
      "pairs" in place
        ? buildPairTextQuery(placed.group, place.pairs, key, texts)
        : buildFieldTextQuery(placed, place.name, texts),
    ),
  );
}

/** Numbers in a keyword that are printed differently from how they were sent: `5.0`, `1e3`, `-0`. */
const reprintedNumbers = "-?[0-9]+[.eE].*|-0";

function buildFieldTextQuery(
  where: Pick<PlacedForm<unknown>, "group" | "listsIgnored">,
  name: string,
  texts: readonly string[],
): Query {
  const { group } = where;
  const present = buildExistsQuery(where, name);
  if (!texts.every(isSearchable)) return present;
  const field = findField(group, name);
  // The index distinguishes minus zero, which is read as zero.
  if (field !== undefined && texts.includes("0") && findKeywordField(group, name) === undefined)
    return present;
  const held = buildTermsQuery(group, name, texts);
  if (held === matchAll) return present;
  const exact = findKeywordField(group, name);
  if (exact === undefined || !texts.some(mayBeNumber)) return held;
  return anyOf([held, wrapNestedQuery(exact, { regexp: { [exact.name]: reprintedNumbers } })]);
}

/** The type of a pair may turn its text into a number, or the text of a number into a shorter one. */
function buildPairTextQuery(group: IndexGroup, list: string, key: string, texts: readonly string[]): Query {
  if (!texts.every(isSearchable) || texts.some(mayBeNumber)) return buildPairExistsQuery(group, list, key);
  return buildPairQuery(group, list, key, texts, false);
}

/** Whether the text may be a printed number. */
function mayBeNumber(text: string): boolean {
  return /^-?\d/.test(text);
}

/** Servers accept no other texts, and not all indices can tell whether an empty one is there. */
function isSearchable(text: string): boolean {
  return text !== "" && text.isWellFormed();
}

// ---- Lengths --------------------------------------------------------------------------------------------------

const maxLong = 2n ** 63n - 1n;

/**
 * Documents whose duration may lie in the bounds (nanoseconds). Bounds are rounded outwards; an invalid duration counts as
 * 0.
 */
function buildDurationQuery(
  { group, form: { duration }, listsIgnored }: PlacedForm<SpanForm>,
  least = 0n,
  most = maxLong,
): Query {
  const field = duration && findField(group, duration.field);
  if (duration === undefined || field === undefined) return matchAll;
  const malformed = buildMalformedQuery(field, listsIgnored);
  const isNumber = isWideNumber(field) || isApproximateNumber(field);
  if (!field.indexed || malformed === undefined || !isNumber) return matchAll;
  const unit = nanosPerTimeUnit[duration.unit];
  const formatLength = (length: bigint) => String(length < maxLong ? length : maxLong);
  const longer = {
    range: { [duration.field]: { gte: formatLength(roundOutwards(field, least / unit, "down")) } },
  };
  const shorter = not({
    range: { [duration.field]: { gt: formatLength(roundOutwards(field, (most + unit - 1n) / unit, "up")) } },
  });
  return anyOf([malformed, allOf([least > 0n ? longer : matchAll, most < maxLong ? shorter : matchAll])]);
}
