// Upper-bound queries for spans: the hits include every matching document and possibly others, since the reader verifies
// each one. What the index cannot answer for narrows nothing. `span-lower-bounds.ts` has the opposite bounds.
import type { SpanKind } from "../../../src/core/rows.ts";
import type { SpanSelection } from "../../../src/store/spans.ts";
import { listIdSpellings } from "../../../src/tracing/spans/span-ids.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import {
  type AttributeSources,
  type EventForm,
  findNamedAttribute,
  type SpanForm,
  type ValueRule,
} from "../layout/span-layout.ts";
import { findField, type IndexGroup } from "../mapping/mapping.ts";
import {
  buildAttributeQuery,
  buildExistsQuery,
  buildMissingQuery,
  buildPairExistsQuery,
  buildPairQuery,
  buildTermsQuery,
  buildUnmappedQuery,
  findKeywordField,
  listAttributePlaces,
} from "./span-field-queries.ts";

/** Far below what servers accept in one terms query, and short enough to be read by people. */
export const maxIdsPerSearch = 1_000;

// ---- Ids -----------------------------------------------------------------------------------------

/** Documents that may lack a value at all of these names. */
export function buildAllMissingQuery(
  { group }: Pick<PlacedForm<unknown>, "group">,
  names: readonly string[],
): Query {
  return allOf(names.map((name) => buildMissingQuery(group, name)));
}

/** Documents that may have one of these ids at one of the names. The ids are distinct, and so are their spellings. */
export function buildIdQuery(group: IndexGroup, names: readonly string[], ids: readonly string[]): Query {
  return anyOf(names.map((name) => buildTermsQuery(group, name, listSpellings(ids))));
}

/** A search names the same thousands of ids several times: in each form, and in links. */
const spellings = new WeakMap<readonly string[], readonly string[]>();

function listSpellings(ids: readonly string[]): readonly string[] {
  const known = spellings.get(ids);
  if (known !== undefined) return known;
  const spelled = ids.flatMap(listIdSpellings);
  spellings.set(ids, spelled);
  return spelled;
}

// ---- Selections -----------------------------------------------------------------------------------------------

/** Documents that may be of a form: each has the fields that the layout calls present. */
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

/** Documents that may be spans of one of these kinds. A span without a kind is internal. */
export function buildKindQuery(placed: PlacedForm<SpanForm>, kinds: readonly SpanKind[]): Query {
  if (kinds.includes("internal")) return matchAll;
  const texts = kinds.flatMap((kind) => [kind, `span_kind_${kind}`, otlpNumbers[kind]]);
  const targets = new Set<string>(kinds);
  return anyOf(placed.form.kind.map((rule) => buildRuleQuery(placed, rule, texts, targets)));
}

/** Documents to which a rule may give one of the targets. `texts` are the targets as the field itself may spell them. */
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

/** As `buildTermsQuery`, also for names that stand for attributes. */
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

/** As `buildExistsQuery`, also for names that stand for attributes. */
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
  const { form } = placed;
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
    case "exceptions":
      return buildExceptionEventQuery(placed);
  }
}

const eventAttributePrefix = "event_attributes.";

/** Documents that may hold an exception among the events of their span. */
function buildExceptionEventQuery({ group, form }: PlacedForm<SpanForm>): Query {
  if (form.events === undefined) return matchNone;
  const { at, name, event_attributes } = form.events;
  return anyOf(
    name.map(({ field }) => {
      if (field === undefined) return matchAll;
      if (!field.startsWith(eventAttributePrefix))
        return buildTermsQuery(group, `${at}.${field}`, ["exception"]);
      const key = field.slice(eventAttributePrefix.length);
      return buildExceptionAttributeQuery(group, at, event_attributes, key);
    }),
  );
}

/** Separate events that may have this name. */
export function buildEventNameQuery({ group, form }: PlacedForm<EventForm>, name: string): Query {
  return anyOf(
    form.name.map(({ field, values, value }) => {
      if (value !== undefined) return value === name ? matchAll : matchNone;
      if (field === undefined || values !== undefined || field.startsWith(eventAttributePrefix))
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

/** The spellings of an id that means none. */
export const zeroIds = Array.from({ length: 17 }, (_, digits) => "0".repeat(digits));

/** Documents that may be spans without a parent. */
function buildRootQuery({ group, form }: PlacedForm<SpanForm>): Query {
  const withoutParent = form.parent.map((name): Query => {
    const field = findField(group, name);
    if (field !== undefined && findKeywordField(group, name) === undefined) return matchAll;
    return field === undefined
      ? buildMissingQuery(group, name)
      : anyOf([buildMissingQuery(group, name), buildTermsQuery(group, name, zeroIds)]);
  });
  return allOf([...withoutParent, not(buildCertainParentReferenceQuery(group, form.parent_reference))]);
}

/** Documents that may have a reference to a parent. */
export function buildPossibleParentReferenceQuery(
  group: IndexGroup,
  rule: SpanForm["parent_reference"],
): Query {
  if (rule === undefined) return matchNone;
  return findField(group, rule.at)?.type === "nested"
    ? { nested: { path: rule.at, query: matchAll } }
    : buildUnmappedQuery(group, rule.at);
}

/** Documents that certainly have a reference to a parent, which only a nested list of keywords can show. */
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

/** Documents that may be entries which these spans have called, or callers below these spans. */
export function buildCalleeQuery(
  placed: PlacedForm<SpanForm>,
  traceIds: readonly string[],
  spanIds: readonly string[],
): Query {
  const { group, form } = placed;
  const { links } = form;
  const isEntry = buildSelectionQuery(placed, "entries");
  const isEntryOrCaller = anyOf([isEntry, buildSelectionQuery(placed, "calls")]);
  const isBelow = allOf([isEntryOrCaller, buildChildQuery(placed, spanIds)]);
  const isOtherSide = allOf([isEntry, buildIdQuery(group, form.span_id, spanIds)]);
  const isLinked =
    links === undefined ? matchNone : buildIdQuery(group, [`${links.at}.${links.span_id}`], spanIds);
  return anyOf([
    allOf([buildIdQuery(group, form.trace_id, traceIds), anyOf([isBelow, isOtherSide])]),
    allOf([isEntry, isLinked]),
  ]);
}

/** The same for all spans of these traces. */
export function buildTraceCalleeQuery(placed: PlacedForm<SpanForm>, traceIds: readonly string[]): Query {
  const { group, form } = placed;
  const isEntry = buildSelectionQuery(placed, "entries");
  const isEntryOrCaller = anyOf([isEntry, buildSelectionQuery(placed, "calls")]);
  return anyOf([
    allOf([buildIdQuery(group, form.trace_id, traceIds), isEntryOrCaller]),
    buildLinkedTraceQuery(placed, traceIds),
  ]);
}

/** Documents that may be entries with a link into one of these traces. */
export function buildLinkedTraceQuery(placed: PlacedForm<SpanForm>, traceIds: readonly string[]): Query {
  const {
    group,
    form: { links },
  } = placed;
  if (links === undefined) return matchNone;
  const isLinked = buildIdQuery(group, [`${links.at}.${links.trace_id}`], traceIds);
  return allOf([buildSelectionQuery(placed, "entries"), isLinked]);
}

/** Documents that may be spans with one of these parents. */
export function buildChildQuery({ group, form }: PlacedForm<SpanForm>, spanIds: readonly string[]): Query {
  const rule = form.parent_reference;
  const referring =
    rule === undefined ? matchNone : buildIdQuery(group, [`${rule.at}.${rule.span_id}`], spanIds);
  return anyOf([buildIdQuery(group, form.parent, spanIds), referring]);
}
