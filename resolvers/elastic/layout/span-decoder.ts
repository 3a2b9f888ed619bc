// A document as a span or as an event of one, as its form says. Numbers are exact, ids are in one spelling, times keep all
// their digits. What a form says is compiled once for each site: thousands of documents are read by it at a time.
import {
  type Attributes,
  compare,
  reportMark,
  type Span,
  type SpanEvent,
  type SpanKind,
  type SpanLink,
  type StatusCode,
  spanKinds,
  type Value,
} from "../../../src/core/rows.ts";
import { type Instant, nanosPerMilli, parseInstant } from "../../../src/core/time.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import { canonicalId } from "../../../src/tracing/spans/id.ts";
import { readNames } from "../../../src/tracing/spans/site-attributes.ts";
import {
  createTable,
  type Fields,
  listAt,
  type Place,
  type Table,
  valueAt,
} from "../document/field-table.ts";
import { isJson, type Json } from "../document/flatten.ts";
import { type AttributeReader, compileAttributes, without } from "./attribute-decoder.ts";
import {
  type EventForm,
  nanosOf,
  type Rule,
  type SpanForm,
  tracesOfEvent,
  type Unit,
} from "./span-layout.ts";

/**
 * The span that a document holds; undefined where it lacks what every span has: ids, a start, an end.
 * Events that lie in documents of their own are not in it.
 */
export function readSpan(document: Value, form: SpanForm, source: SpanSource): Span | undefined {
  return isJson(document) ? spanReaderOf(form, source)(document) : undefined;
}

/** By the site, whose settings tell the keys of attributes, and the form. */
const spanReaders = new WeakMap<SpanSource, Map<SpanForm, (document: Json) => Span | undefined>>();

function spanReaderOf(form: SpanForm, source: SpanSource): (document: Json) => Span | undefined {
  const known = spanReaders.get(source)?.get(form);
  if (known !== undefined) return known;
  const made = compileSpan(form, source);
  spanReaders.set(source, (spanReaders.get(source) ?? new Map()).set(form, made));
  return made;
}

/** Most spans have several empty lists, which are this one. */
const none: readonly never[] = [];

function compileSpan(form: SpanForm, source: SpanSource): (document: Json) => Span | undefined {
  const table = createTable();
  const names = (asked: readonly string[] | undefined) =>
    (asked ?? []).map((name) => nameIn(table, name, spanParts));
  const time = (at: SpanForm["end"]) => at && { place: table.place(at.field), unit: at.unit };
  const present = form.present.map((name) => table.place(name));
  const readSpanAttributes = compileAttributes(table, form.span_attributes, source);
  const readResourceAttributes = compileAttributes(table, form.resource_attributes, source);
  const [traceIds, spanIds, parents] = [names(form.trace_id), names(form.span_id), names(form.parent)];
  const [starts, ends, lengths] = [time(form.start), time(form.end), time(form.duration)];
  const counts = form.count === undefined ? undefined : table.place(form.count);
  const sums = time(form.sum);
  const [kinds, statuses] = [rulesIn(table, form.kind, spanParts), rulesIn(table, form.status, spanParts)];
  const omittingRules = statuses.filter(({ omit }) => omit);
  const { omit: omitted } = form.span_attributes;
  const [services, titles, revisions] = [names(form.service), names(form.name), names(form.revision)];
  const [scopeNames, scopeVersions] = [names(form.scope_name), names(form.scope_version)];
  const [states, messages] = [names(form.trace_state), names(form.status_message)];
  const [statements, peers] = [names(form.statement), names(form.peer)];
  const referredParent = compileReference(table, form);
  const readEvents = compileEvents(table, form);
  const readLinks = compileLinks(table, form);
  /** That of most spans is the one before's, and is kept once for all of them. */
  let lastTrace = { text: "", id: "" };
  const traceOf = (text: string): string => {
    if (text !== lastTrace.text) lastTrace = { text, id: canonicalId(text, 32) };
    return lastTrace.id;
  };

  return (document) => {
    const fields = table.read(document);
    for (const place of present) if (valueAt(fields, place) === undefined) return undefined;
    const spanAttributes = readSpanAttributes(fields);
    const resourceAttributes = readResourceAttributes(fields);
    const scope: Scope = {
      fields,
      span_attributes: spanAttributes,
      resource_attributes: resourceAttributes,
      event_attributes: undefined,
    };
    const traceId = firstText(scope, traceIds);
    const spanId = firstText(scope, spanIds);
    const begun = starts && readTime(valueAt(fields, starts.place), starts.unit);
    if (traceId === undefined || spanId === undefined || begun === undefined) return undefined;
    const length = lengths && readLength(valueAt(fields, lengths.place), lengths.unit);
    // A span without a duration, or with a negative one, ends when it starts.
    const end = ends
      ? readTime(valueAt(fields, ends.place), ends.unit)
      : ((begun + (length ?? 0n)) as Instant);
    if (end === undefined) return undefined;
    // Where a clock ran backwards the length is none, and the start is the document's all the same.
    const isBackwards = length === 0n && begun > end;
    const start = ends === undefined || isBackwards ? begun : ((end - (length ?? end - begun)) as Instant);
    const count = counts === undefined ? 1 : readCount(valueAt(fields, counts));
    const sum = count > 1 && sums ? readTime(valueAt(fields, sums.place), sums.unit) : undefined;

    const trace_id = traceOf(traceId);
    const parent = firstText(scope, parents) ?? referredParent?.(fields, trace_id);
    const parentId = parent === undefined || /^0*$/.test(parent) ? undefined : canonicalId(parent, 16);
    const kind = kindOf(applyRules(scope, kinds));
    const calls = kind === "client" || kind === "producer";
    const { namespace, action, tags } = readNames(spanAttributes, source);
    const status = statusOf(applyRules(scope, statuses));
    const told =
      omittingRules.length === 0
        ? none
        : omittingRules.filter((rule) => {
            const said = applyRule(scope, rule);
            return said !== undefined && statusOf(said) === status;
          });
    return {
      site_id: source.site,
      trace_id,
      span_id: canonicalId(spanId, 16),
      parent_span_id: parentId,
      trace_state: firstText(scope, states),
      start,
      end,
      service_name: firstText(scope, services) ?? "",
      span_name: firstText(scope, titles) ?? "",
      span_kind: kind,
      scope_name: firstText(scope, scopeNames),
      scope_version: firstText(scope, scopeVersions),
      revision: firstText(scope, revisions),
      status_code: status,
      status_message: firstText(scope, messages),
      resource_attributes: without(resourceAttributes, form.resource_attributes.omit),
      span_attributes: without(spanAttributes, told.length === 0 ? omitted : [...omitted, ...keysOf(told)]),
      events: readEvents?.(fields) ?? none,
      links: readLinks?.(fields, trace_id, parentId) ?? none,
      entry:
        form.entry === "always" ||
        (form.entry === undefined && (parentId === undefined || kind === "server" || kind === "consumer")),
      namespace,
      action,
      tags,
      count,
      sum: sum === undefined || sum < 0n || sum === end - start ? undefined : sum,
      statement: firstText(scope, statements),
      peer: calls ? firstText(scope, peers) : undefined,
      report: isReport(spanAttributes),
    };
  };
}

export interface LooseEvent {
  readonly trace_id: string;
  /** Ids of the spans that it may belong to, the nearest first; none outside of any trace. */
  readonly spans: readonly string[];
  /** Its id as a span of its own, where its layout has such. */
  readonly alone?: string | undefined;
  readonly event: SpanEvent;
}

/** The event that a document of its own holds; undefined where it lacks ids or a time. */
export function readEvent(document: Value, form: EventForm): LooseEvent | undefined {
  if (!isJson(document)) return undefined;
  const read = eventReaders.get(form) ?? compileEvent(form);
  eventReaders.set(form, read);
  return read(document);
}

const eventReaders = new WeakMap<EventForm, (document: Json) => LooseEvent | undefined>();

function compileEvent(form: EventForm): (document: Json) => LooseEvent | undefined {
  const table = createTable();
  const present = form.present.map((name) => table.place(name));
  const names = (asked: readonly string[]) => asked.map((name) => nameIn(table, name));
  const [traceIds, ownTraceIds, spanIds] = [
    names(form.trace_id),
    names(tracesOfEvent(form)),
    names(form.span),
  ];
  const aloneIds = names(form.alone?.span_id ?? []);
  const readOne = compileOneEvent(table, form);
  return (document) => {
    const fields = table.read(document);
    if (!present.every((place) => valueAt(fields, place) !== undefined)) return undefined;
    const scope: Scope = { ...noAttributes, fields };
    const traceId = firstText(scope, ownTraceIds);
    const isTraced = firstText(scope, traceIds) !== undefined;
    const ids = isTraced ? spanIds.flatMap((name) => firstText(scope, [name]) ?? []) : [];
    const event = readOne(fields);
    if (traceId === undefined || event === undefined) return undefined;
    if (ids.length === 0 && form.alone === undefined) return undefined;
    const spans = [...new Set(ids.map((id) => canonicalId(id, 16)))];
    const alone = firstText(scope, aloneIds);
    return {
      trace_id: canonicalId(traceId, 32),
      spans,
      alone: alone === undefined ? undefined : canonicalId(alone, 16),
      event,
    };
  };
}

/** The span that the document of an event is by itself; undefined where its layout has no such, or it lacks something. */
export function readAlone(document: Value, form: EventForm, source: SpanSource): Span | undefined {
  if (form.alone === undefined) return undefined;
  const event = readEvent(document, form)?.event;
  const span = readSpan(document, form.alone, source);
  return event && span && { ...span, events: [event], report: true };
}

// ---- values -------------------------------------------------------------------------------------------------

/** What a name can lead to: the document, or its attributes once they are read. */
interface Scope {
  readonly fields: Fields;
  readonly span_attributes: Attributes | undefined;
  readonly resource_attributes: Attributes | undefined;
  readonly event_attributes: Attributes | undefined;
}
const noAttributes = {
  span_attributes: undefined,
  resource_attributes: undefined,
  event_attributes: undefined,
};
const spanParts: readonly Part[] = ["span_attributes", "resource_attributes"];

/** A profile's name: a place in the document, or a key of attributes that were read. */
type Name = { readonly place: Place } | { readonly part: Part; readonly key: string };
type Part = "span_attributes" | "resource_attributes" | "event_attributes";

/** `read` are the attributes that a scope will have. */
function nameIn(table: Table, name: string, read: readonly Part[] = []): Name {
  const part = read.find((candidate) => name.startsWith(`${candidate}.`));
  return part === undefined ? { place: table.place(name) } : { part, key: name.slice(part.length + 1) };
}

function valueIn(scope: Scope, name: Name): Value | undefined {
  if ("place" in name) return valueAt(scope.fields, name.place);
  const attributes = scope[name.part];
  if (attributes === undefined || !Object.hasOwn(attributes, name.key)) return undefined;
  return attributes[name.key] ?? undefined;
}

/** A scalar as text; of an array the first that is something, as an index has it. Empty text is nothing. */
function textOf(value: Value | undefined): string | undefined {
  if (typeof value === "string") return value === "" ? undefined : value;
  if (Array.isArray(value)) {
    for (const element of value) {
      const text = textOf(element);
      if (text !== undefined) return text;
    }
    return undefined;
  }
  return value === undefined || value === null || isJson(value) ? undefined : String(value);
}

function firstText(scope: Scope, names: readonly Name[]): string | undefined {
  for (const name of names) {
    const text = textOf(valueIn(scope, name));
    if (text !== undefined) return text;
  }
  return undefined;
}

interface CompiledRule extends Pick<Rule, "values" | "value" | "omit"> {
  readonly name: Name | undefined;
}

function rulesIn(table: Table, rules: readonly Rule[], read: readonly Part[]): readonly CompiledRule[] {
  return rules.map(({ field, values, value, omit }) => {
    return { name: field === undefined ? undefined : nameIn(table, field, read), values, value, omit };
  });
}

/** The attributes that rules look at. */
function keysOf(rules: readonly CompiledRule[]): readonly string[] {
  return rules.flatMap(({ name }) => (name !== undefined && "key" in name ? [name.key] : []));
}

function applyRules(scope: Scope, rules: readonly CompiledRule[]): string | undefined {
  for (const rule of rules) {
    const found = applyRule(scope, rule);
    if (found !== undefined) return found;
  }
  return undefined;
}

function applyRule(scope: Scope, { name, values, value }: CompiledRule): string | undefined {
  const found = name === undefined ? "" : textOf(valueIn(scope, name));
  if (found === undefined) return undefined;
  if (value !== undefined) return value;
  if (values === undefined) return found;
  return Object.hasOwn(values, found) ? values[found] : undefined;
}

/** `Server`, `SPAN_KIND_SERVER`, `server` and OpenTelemetry's number 2 are one kind. Unknown and absent is internal. */
const kindSpellings: ReadonlyMap<string, SpanKind> = new Map(
  spanKinds.flatMap((kind, at) =>
    [kind, String(at + 1)].flatMap((text) =>
      [text, `span_kind_${text}`].map((word) => [word, kind] as const),
    ),
  ),
);

function kindOf(text: string | undefined): SpanKind {
  return kindSpellings.get(text?.toLowerCase() ?? "") ?? "internal";
}

/** `Error`, `STATUS_CODE_ERROR`, `ERROR` and 2 are one status. */
const statusSpellings: ReadonlyMap<string, StatusCode> = new Map(
  (["OK", "ERROR"] as const).flatMap((status, at) =>
    [status.toLowerCase(), String(at + 1)].flatMap((text) =>
      [text, `status_code_${text}`].map((word) => [word, status] as const),
    ),
  ),
);

function statusOf(text: string | undefined): StatusCode {
  return statusSpellings.get(text?.toLowerCase() ?? "") ?? "UNSET";
}

function readCount(value: Value | undefined): number {
  const count = Number(textOf(value) ?? Number.NaN);
  return Number.isSafeInteger(count) && count > 1 ? count : 1;
}

function isReport(attributes: Attributes): boolean {
  const mark = Object.hasOwn(attributes, reportMark) ? attributes[reportMark] : undefined;
  return mark === true || mark === "true";
}

// ---- times --------------------------------------------------------------------------------------------------

const epoch = /^-?\d+(?:\.\d{1,6})?$/;

function readTime(value: Value | undefined, unit: Unit): Instant | undefined {
  if (unit !== "date") return readNanos(value, nanosOf[unit]) as Instant | undefined;
  if (typeof value === "number" || typeof value === "bigint")
    return readNanos(value, nanosPerMilli) as Instant;
  const text = textOf(value);
  if (text === undefined) return undefined;
  if (!epoch.test(text)) return parseInstant(text);
  const point = text.indexOf(".");
  const millis = BigInt(point < 0 ? text : text.slice(0, point)) * nanosPerMilli;
  // The part after the point is a number of nanoseconds, not a fraction: `.5` is 5 ns.
  return (point < 0 ? millis : millis + BigInt(text.slice(point + 1))) as Instant;
}

/** A number of units, also as text, as nanoseconds. Micro- and nanoseconds are whole, as an index keeps them. */
function readNanos(value: Value | undefined, unit: bigint): bigint | undefined {
  if (typeof value === "bigint") return value * unit;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) return undefined;
    if (Number.isSafeInteger(value)) return BigInt(value) * unit;
    return unit === nanosPerMilli
      ? BigInt(Math.round(value * Number(unit)))
      : BigInt(Math.trunc(value)) * unit;
  }
  const text = textOf(value);
  if (text === undefined || !/^-?\d+(\.\d+)?$/.test(text)) return undefined;
  return text.includes(".") ? readNanos(Number(text), unit) : BigInt(text) * unit;
}

function readLength(value: Value | undefined, unit: Unit): bigint | undefined {
  const length = readTime(value, unit);
  return length === undefined || length >= 0n ? length : 0n;
}

// ---- events, links, references --------------------------------------------------------------------------------

function compileEvents(
  table: Table,
  { events }: SpanForm,
): ((fields: Fields) => readonly SpanEvent[]) | undefined {
  if (events === undefined) return undefined;
  const list = table.list(events.at);
  const own = createTable();
  const readOne = compileOneEvent(own, events);
  return (fields) => {
    const objects = listAt(fields, list);
    return objects.length === 0
      ? none
      : sortEvents(objects.flatMap((object) => readOne(own.read(object)) ?? []));
  };
}

function compileOneEvent(
  table: Table,
  form: Pick<EventForm, "time" | "name" | "event_attributes">,
): (fields: Fields) => SpanEvent | undefined {
  const place = table.place(form.time.field);
  const rules = rulesIn(table, form.name, ["event_attributes"]);
  const attributesOf = compileAttributes(table, form.event_attributes, undefined);
  return (fields) => {
    const time = readTime(valueAt(fields, place), form.time.unit);
    if (time === undefined) return undefined;
    const attributes = attributesOf(fields);
    const name = applyRules({ ...noAttributes, fields, event_attributes: attributes }, rules) ?? "";
    return { time, name, attributes: without(attributes, form.event_attributes.omit) };
  };
}

/** By time; the document's order where that is equal. */
export function sortEvents(events: readonly SpanEvent[]): readonly SpanEvent[] {
  return events.toSorted((a, b) => compare(a.time, b.time));
}

function compileLinks(
  table: Table,
  form: SpanForm,
): ((fields: Fields, trace: string, parent: string | undefined) => readonly SpanLink[]) | undefined {
  const { links } = form;
  if (links === undefined) return undefined;
  const list = table.list(links.at);
  const own = createTable();
  const [traceIds, spanIds] = [[nameIn(own, links.trace_id)], [nameIn(own, links.span_id)]];
  const states = links.trace_state === undefined ? [] : [nameIn(own, links.trace_state)];
  const attributesOf: AttributeReader =
    links.attributes === undefined ? () => ({}) : compileAttributes(own, links.attributes, undefined);
  const isParent = links.at === form.parent_reference?.at ? compileParentRule(own, form) : () => false;
  return (fields, trace, parent) => {
    const objects = listAt(fields, list);
    if (objects.length === 0) return none;
    return objects.flatMap((object): readonly SpanLink[] => {
      const scope: Scope = { ...noAttributes, fields: own.read(object) };
      const traceId = firstText(scope, traceIds);
      const spanId = firstText(scope, spanIds);
      if (traceId === undefined || spanId === undefined) return [];
      const [trace_id, span_id] = [canonicalId(traceId, 32), canonicalId(spanId, 16)];
      if (span_id === parent && trace_id === trace && isParent(scope)) return [];
      return [
        {
          trace_id,
          span_id,
          trace_state: firstText(scope, states) ?? "",
          attributes: attributesOf(scope.fields),
        },
      ];
    });
  };
}

/** Whether a reference is one to a parent. */
function compileParentRule(table: Table, { parent_reference: rule }: SpanForm): (scope: Scope) => boolean {
  return rule === undefined ? () => false : compileReferenceRule(table, rule.where);
}

function compileReferenceRule(
  table: Table,
  texts: Readonly<Record<string, string>>,
): (scope: Scope) => boolean {
  const wanted = Object.entries(texts).map(([name, text]) => ({ place: table.place(name), text }));
  return ({ fields }) => wanted.every(({ place, text }) => textOf(valueAt(fields, place)) === text);
}

function compileReference(
  table: Table,
  form: SpanForm,
): ((fields: Fields, trace: string) => string | undefined) | undefined {
  const rule = form.parent_reference;
  if (rule === undefined) return undefined;
  const list = table.list(rule.at);
  const own = createTable();
  const isParent = compileReferenceRule(own, rule.where);
  const isOther = rule.otherwise === undefined ? () => false : compileReferenceRule(own, rule.otherwise);
  const [spanIds, traceIds] = [own.place(rule.span_id), own.place(rule.trace_id)];
  return (fields, trace) => {
    let other: string | undefined;
    let elsewhere: string | undefined;
    for (const object of listAt(fields, list)) {
      const reference = own.read(object);
      const scope = { ...noAttributes, fields: reference };
      const id = textOf(valueAt(reference, spanIds));
      if (id === undefined || /^0*$/.test(id)) continue;
      const referred = textOf(valueAt(reference, traceIds));
      const isHere = referred === undefined || canonicalId(referred, 32) === trace;
      if (isParent(scope)) {
        if (isHere) return id;
        elsewhere ??= id;
      } else if (isHere && isOther(scope)) other ??= id;
    }
    return other ?? elsewhere;
  };
}
