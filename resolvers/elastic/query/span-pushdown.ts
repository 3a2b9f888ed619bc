// What the hints of a scan allow to leave out, as upper bounds like those of `narrow.ts`. A value is a text here whatever a
// document has it as, so a number is looked for in every spelling that is read as it.
import type { SpanNarrowing, SpanSource } from "../../../src/store/span-reader.ts";
import { incidentDigest, unnamed } from "../../../src/tracing/spans/requests.ts";
import { all, any, every, none, not, type Query, weigh } from "../client/query-dsl.ts";
import { lost } from "../layout/attribute-decoder.ts";
import {
  type AttributeSource,
  type AttributeSources,
  attributeNamed,
  type EventForm,
  nanosOf,
  type Placed,
  type SpanForm,
} from "../layout/span-layout.ts";
import { findField, type IndexGroup } from "../mapping/mapping.ts";
import {
  has,
  hasPair,
  holds,
  holdsAttribute,
  holdsPair,
  isNamed,
  isOfKind,
  isSelected,
  isWide,
  keyword,
  malformed,
  placesOf,
  within,
} from "./span-upper-bounds.ts";

/** Servers refuse queries of too many clauses, and what is not narrowed is only read. */
const mostClauses = 100;

export function isNarrowed(placed: Placed<SpanForm>, narrow: SpanNarrowing, source: SpanSource): Query {
  const { form } = placed;
  const { service, revision, namespaces, actions, tags = [], kind, name, minDuration, maxDuration } = narrow;
  // What is read as the empty text may not be there at all.
  const at = (names: readonly string[], text: string | undefined): Query =>
    text === undefined || text === "" ? all : any(names.map((own) => hasText(placed, own, [text])));
  return everyLight([
    // By these a scan is cut into windows.
    minDuration === undefined && maxDuration === undefined ? all : lasts(placed, minDuration, maxDuration),
    at(form.service, service),
    at(form.revision, revision),
    at(form.name, name),
    kind === undefined ? all : isOfKind(placed, [kind]),
    namespaces === undefined ? all : isOfNamespace(placed, namespaces, source),
    actions === undefined ? all : isOfAction(placed, actions, source),
    ...tags.map((tag) => hasTag(placed, tag, source)),
  ]);
}

/** As many of the queries as may be asked together, from the first on. */
function everyLight(queries: readonly Query[]): Query {
  let left = mostClauses;
  return every(
    queries.filter((query) => {
      const { clauses } = weigh(query);
      if (clauses > left) return false;
      left -= clauses;
      return true;
    }),
  );
}

// ---- Names ----------------------------------------------------------------------------------------------------

/** A namespace is the attribute's text; without one what the kind says. */
function isOfNamespace(
  placed: Placed<SpanForm>,
  namespaces: readonly string[],
  { namespaceAttribute }: SpanSource,
): Query {
  const { group, form } = placed;
  if (namespaces.includes("background") || !namespaces.every(isSearchable)) return all;
  return any([
    holdsAttribute(group, form.span_attributes, namespaceAttribute, namespaces),
    namespaces.includes("web") ? isOfKind(placed, ["server"]) : none,
  ]);
}

function isOfAction(
  placed: Placed<SpanForm>,
  actions: readonly string[],
  { actionAttribute }: SpanSource,
): Query {
  const { group, form } = placed;
  // An entry without a name has nothing to be found by.
  if (actions.includes(unnamed) || !actions.every(isSearchable)) return all;
  return any([
    ...form.name.map((own) => hasText(placed, own, actions)),
    holdsAttribute(group, form.span_attributes, actionAttribute, actions),
  ]);
}

/** A tag lies under its name behind any of the prefixes, each as the layout may spell it. */
function hasTag(
  { group, listsIgnored, form }: Placed<SpanForm>,
  { name, value }: { readonly name: string; readonly value: string },
  { tagPrefixes }: SpanSource,
): Query {
  return any(
    tagPrefixes.flatMap((prefix) => {
      const key = prefix + name;
      return form.span_attributes.from.map((source): Query => {
        if ("pairs" in source) return pairHasText(group, source.pairs, key, [value]);
        const names = namesOf(source, key, tagPrefixes);
        return names === undefined
          ? all
          : any(names.map((own) => fieldHasText({ group, listsIgnored }, own, [value])));
      });
    }),
  );
}

/** Dots that a layout may spell otherwise, each by itself. */
const mostDots = 5;

/** Every name at which a source may hold a key that begins with a tag's prefix; undefined where they are too many. */
function namesOf(
  source: Exclude<AttributeSource, { pairs: string }>,
  key: string,
  tagPrefixes: readonly string[],
): readonly string[] | undefined {
  if ("named" in source) return source.named[key] ?? [];
  const { prefix, dot, spelling, keep } = source;
  if (keep) return key.startsWith(prefix) ? [key] : [];
  if (spelling !== undefined) {
    // What stands behind a prefix is taken as the document has it.
    const spelled = tagPrefixes
      .filter((own) => key.startsWith(own))
      .map((own) => own.replace(lost, spelling) + key.slice(own.length));
    return [...new Set([key, key.replace(lost, spelling), ...spelled])].map((own) => prefix + own);
  }
  if (dot === undefined) return [prefix + key];
  const [first = "", ...rest] = key.split(".");
  if (rest.length > mostDots) return undefined;
  return rest
    .reduce((begun, part) => begun.flatMap((own) => [`${own}.${part}`, own + dot + part]), [first])
    .map((own) => prefix + own);
}

// ---- Errors ---------------------------------------------------------------------------------------------------

type Errors = SpanNarrowing["errors"];

/** Spans whose own document may tell of an exception, of any of these errors where some are named. */
export function tellsOf(placed: Placed<SpanForm>, errors: Errors): Query {
  const { group, form } = placed;
  if (form.events === undefined) return none;
  const { at, event_attributes } = form.events;
  return every([isSelected(placed, "exceptions"), isAnyOf(group, `${at}.`, event_attributes, errors)]);
}

/** The same of events in documents of their own. */
export function isError(placed: Placed<EventForm>, errors: Errors): Query {
  const { group, form } = placed;
  return every([isNamed(placed, "exception"), isAnyOf(group, "", form.event_attributes, errors)]);
}

/** A digest and a type are texts, and nothing else. */
function isAnyOf(group: IndexGroup, at: string, attributes: AttributeSources, errors: Errors): Query {
  if (errors === undefined) return all;
  const holdsText = (key: string, asked: readonly string[]): Query => {
    const texts = [...new Set(asked)];
    if (texts.length === 0) return none;
    return any(
      placesOf(attributes, key).map((place) => {
        if (!texts.every(isSearchable)) return all;
        return "pairs" in place
          ? holdsPair(group, at + place.pairs, key, texts, false)
          : holds(group, at + place.name, texts);
      }),
    );
  };
  return any([
    holdsText(
      incidentDigest,
      errors.map(({ digest }) => digest),
    ),
    holdsText(
      "exception.type",
      errors.flatMap(({ exception }) => exception ?? []),
    ),
  ]);
}

// ---- Texts ----------------------------------------------------------------------------------------------------

/** Documents in which a value at a name of a profile may be read as one of these texts. */
function hasText(placed: Placed<SpanForm>, name: string, texts: readonly string[]): Query {
  const named = attributeNamed(placed.form, name);
  if (named === undefined) return fieldHasText(placed, name, texts);
  const { attributes, key } = named;
  return any(
    placesOf(attributes, key).map((place) =>
      "pairs" in place
        ? pairHasText(placed.group, place.pairs, key, texts)
        : fieldHasText(placed, place.name, texts),
    ),
  );
}

/** What a keyword has of numbers that are printed otherwise than they were sent: `5.0`, `1e3`, `-0`. */
const otherNumbers = "-?[0-9]+[.eE].*|-0";

function fieldHasText(
  where: Pick<Placed<unknown>, "group" | "listsIgnored">,
  name: string,
  texts: readonly string[],
): Query {
  const { group } = where;
  const present = has(where, name);
  if (!texts.every(isSearchable)) return present;
  const field = findField(group, name);
  // The index has minus zero as another number, and it is read as none.
  if (field !== undefined && texts.includes("0") && keyword(group, name) === undefined) return present;
  const held = holds(group, name, texts);
  if (held === all) return present;
  const exact = keyword(group, name);
  if (exact === undefined || !texts.some(mayBeNumber)) return held;
  return any([held, within(exact, { regexp: { [exact.name]: otherNumbers } })]);
}

/** The type beside a text may make a number of it, or of a number's text a shorter one. */
function pairHasText(group: IndexGroup, list: string, key: string, texts: readonly string[]): Query {
  if (!texts.every(isSearchable) || texts.some(mayBeNumber)) return hasPair(group, list, key);
  return holdsPair(group, list, key, texts, false);
}

/** Whether a number may be printed so. */
function mayBeNumber(text: string): boolean {
  return /^-?\d/.test(text);
}

/** Servers take no other texts, and of an empty one not all indices tell whether it is there. */
function isSearchable(text: string): boolean {
  return text !== "" && text.isWellFormed();
}

// ---- Lengths --------------------------------------------------------------------------------------------------

const greatestLong = 2n ** 63n - 1n;

/** Bounds in whole units, rounded outwards. A length that is no length lasts for nothing. */
function lasts(
  { group, form: { duration }, listsIgnored }: Placed<SpanForm>,
  least = 0n,
  most = greatestLong,
): Query {
  const field = duration && findField(group, duration.field);
  if (duration === undefined || field === undefined || duration.unit === "date") return all;
  const unread = malformed(field, listsIgnored);
  if (!field.indexed || unread === undefined || !isWide(field)) return all;
  const unit = nanosOf[duration.unit];
  const asked = (length: bigint) => String(length < greatestLong ? length : greatestLong);
  const longer = { range: { [duration.field]: { gte: asked(least / unit) } } };
  const shorter = not({ range: { [duration.field]: { gt: asked((most + unit - 1n) / unit) } } });
  return any([unread, every([least > 0n ? longer : all, most < greatestLong ? shorter : all])]);
}
