// A document as a span or as an event of one, as its form says. Numbers are exact, ids are in one spelling, times keep all
// their digits. What a form says is compiled once for each site: thousands of documents are read by it at a time.
import {
  type Attributes,
  type AttributeValue,
  compare,
  errorReportAttribute,
  type Span,
  type SpanEvent,
  type SpanKind,
  type SpanLink,
  type StatusCode,
  spanKinds,
} from "../../../src/core/rows.ts";
import { type Instant, nanosPerMilli, parseInstant } from "../../../src/core/time.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import { readConfiguredNames } from "../../../src/tracing/spans/site-attributes.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import {
  createFieldTable,
  type FieldRef,
  type FieldTable,
  type FieldValues,
  readFieldList,
  readFieldValue,
} from "../document/field-table.ts";
import { isValueObject, type ValueObject } from "../document/flatten.ts";
import { type AttributeReader, compileAttributes, omitAttributes } from "./attribute-decoder.ts";
import {
  type EventForm,
  listEventTraceNames,
  nanosPerTimeUnit,
  type SpanForm,
  type TimeUnit,
  type ValueRule,
} from "./span-layout.ts";

/**
 * The span that a document holds; undefined where it lacks what every span has: ids, a start, an end.
 * Events that lie in documents of their own are not in it.
 */
export function decodeSpan(document: AttributeValue, form: SpanForm, source: SpanSource): Span | undefined {
  return isValueObject(document) ? prepareSpanDecoder(form, source)(document) : undefined;
}

/** By the site, whose settings tell the keys of attributes, and the form. */
const spanDecoders = new WeakMap<SpanSource, Map<SpanForm, (document: ValueObject) => Span | undefined>>();

function prepareSpanDecoder(form: SpanForm, source: SpanSource): (document: ValueObject) => Span | undefined {
  const known = spanDecoders.get(source)?.get(form);
  if (known !== undefined) return known;
  const made = compileSpanDecoder(form, source);
  spanDecoders.set(source, (spanDecoders.get(source) ?? new Map()).set(form, made));
  return made;
}

/** Most spans have several empty lists, which are this one. */
const emptyList: readonly never[] = [];

function compileSpanDecoder(form: SpanForm, source: SpanSource): (document: ValueObject) => Span | undefined {
  const table = createFieldTable();
  const names = (asked: readonly string[] | undefined) =>
    (asked ?? []).map((name) => resolveName(table, name, spanParts));
  const time = (at: SpanForm["end"]) => at && { place: table.addField(at.field), unit: at.unit };
  const present = form.present.map((name) => table.addField(name));
  const readSpanAttributes = compileAttributes(table, form.span_attributes, source);
  const readResourceAttributes = compileAttributes(table, form.resource_attributes, source);
  const [traceIds, spanIds, parents] = [names(form.trace_id), names(form.span_id), names(form.parent)];
  const [starts, ends, lengths] = [time(form.start), time(form.end), time(form.duration)];
  const counts = form.count === undefined ? undefined : table.addField(form.count);
  const sums = time(form.sum);
  const [kinds, statuses] = [
    compileRules(table, form.kind, spanParts),
    compileRules(table, form.status, spanParts),
  ];
  const omittingRules = statuses.filter(({ omit }) => omit);
  const { omit: omitted } = form.span_attributes;
  const [services, titles, revisions] = [names(form.service), names(form.name), names(form.revision)];
  const [scopeNames, scopeVersions] = [names(form.scope_name), names(form.scope_version)];
  const [states, messages] = [names(form.trace_state), names(form.status_message)];
  const [statements, peers] = [names(form.statement), names(form.peer)];
  const referredParent = compileParentReference(table, form);
  const readEvents = compileEvents(table, form);
  const readLinks = compileLinks(table, form);
  /** That of most spans is the one before's, and is kept once for all of them. */
  let lastTrace = { text: "", id: "" };
  const traceOf = (text: string): string => {
    if (text !== lastTrace.text) lastTrace = { text, id: normaliseId(text, 32) };
    return lastTrace.id;
  };

  return (document) => {
    const fields = table.read(document);
    for (const place of present) if (readFieldValue(fields, place) === undefined) return undefined;
    const spanAttributes = readSpanAttributes(fields);
    const resourceAttributes = readResourceAttributes(fields);
    const scope: Scope = {
      fields,
      span_attributes: spanAttributes,
      resource_attributes: resourceAttributes,
      event_attributes: undefined,
    };
    const traceId = findFirstText(scope, traceIds);
    const spanId = findFirstText(scope, spanIds);
    const begun = starts && readTime(readFieldValue(fields, starts.place), starts.unit);
    if (traceId === undefined || spanId === undefined || begun === undefined) return undefined;
    const length = lengths && readLength(readFieldValue(fields, lengths.place), lengths.unit);
    // A span without a duration, or with a negative one, ends when it starts.
    const end = ends
      ? readTime(readFieldValue(fields, ends.place), ends.unit)
      : ((begun + (length ?? 0n)) as Instant);
    if (end === undefined) return undefined;
    // Where a clock ran backwards the length is none, and the start is the document's all the same.
    const isBackwards = length === 0n && begun > end;
    const start = ends === undefined || isBackwards ? begun : ((end - (length ?? end - begun)) as Instant);
    const count = counts === undefined ? 1 : readCount(readFieldValue(fields, counts));
    const sum = count > 1 && sums ? readTime(readFieldValue(fields, sums.place), sums.unit) : undefined;

    const trace_id = traceOf(traceId);
    const parent = findFirstText(scope, parents) ?? referredParent?.(fields, trace_id);
    const parentId = parent === undefined || /^0*$/.test(parent) ? undefined : normaliseId(parent, 16);
    const kind = parseKind(applyRules(scope, kinds));
    const calls = kind === "client" || kind === "producer";
    const { namespace, action, tags } = readConfiguredNames(spanAttributes, source);
    const status = parseStatus(applyRules(scope, statuses));
    const told =
      omittingRules.length === 0
        ? emptyList
        : omittingRules.filter((rule) => {
            const said = applyRule(scope, rule);
            return said !== undefined && parseStatus(said) === status;
          });
    return {
      site_id: source.site,
      trace_id,
      span_id: normaliseId(spanId, 16),
      parent_span_id: parentId,
      trace_state: findFirstText(scope, states),
      start,
      end,
      service_name: findFirstText(scope, services) ?? "",
      span_name: findFirstText(scope, titles) ?? "",
      span_kind: kind,
      scope_name: findFirstText(scope, scopeNames),
      scope_version: findFirstText(scope, scopeVersions),
      revision: findFirstText(scope, revisions),
      status_code: status,
      status_message: findFirstText(scope, messages),
      resource_attributes: omitAttributes(resourceAttributes, form.resource_attributes.omit),
      span_attributes: omitAttributes(
        spanAttributes,
        told.length === 0 ? omitted : [...omitted, ...listAttributeKeys(told)],
      ),
      events: readEvents?.(fields) ?? emptyList,
      links: readLinks?.(fields, trace_id, parentId) ?? emptyList,
      entry:
        form.entry === "always" ||
        (form.entry === undefined && (parentId === undefined || kind === "server" || kind === "consumer")),
      namespace,
      action,
      tags,
      count,
      sum: sum === undefined || sum < 0n || sum === end - start ? undefined : sum,
      statement: findFirstText(scope, statements),
      peer: calls ? findFirstText(scope, peers) : undefined,
      report: isReport(spanAttributes),
    };
  };
}

export interface SeparateEvent {
  readonly trace_id: string;
  /** Ids of the spans that it may belong to, the nearest first; none outside of any trace. */
  readonly spanIds: readonly string[];
  /** Its id as a span of its own, where its layout has such. */
  readonly standaloneId?: string | undefined;
  readonly event: SpanEvent;
}

/** The event that a document of its own holds; undefined where it lacks ids or a time. */
export function decodeSeparateEvent(document: AttributeValue, form: EventForm): SeparateEvent | undefined {
  if (!isValueObject(document)) return undefined;
  const read = eventDecoders.get(form) ?? compileEventDecoder(form);
  eventDecoders.set(form, read);
  return read(document);
}

const eventDecoders = new WeakMap<EventForm, (document: ValueObject) => SeparateEvent | undefined>();

function compileEventDecoder(form: EventForm): (document: ValueObject) => SeparateEvent | undefined {
  const table = createFieldTable();
  const present = form.present.map((name) => table.addField(name));
  const names = (asked: readonly string[]) => asked.map((name) => resolveName(table, name));
  const [traceIds, ownTraceIds, spanIds] = [
    names(form.trace_id),
    names(listEventTraceNames(form)),
    names(form.span),
  ];
  const aloneIds = names(form.alone?.span_id ?? []);
  const readOne = compileOneEvent(table, form);
  return (document) => {
    const fields = table.read(document);
    if (!present.every((place) => readFieldValue(fields, place) !== undefined)) return undefined;
    const scope: Scope = { ...noAttributes, fields };
    const traceId = findFirstText(scope, ownTraceIds);
    const isTraced = findFirstText(scope, traceIds) !== undefined;
    const ids = isTraced ? spanIds.flatMap((name) => findFirstText(scope, [name]) ?? []) : [];
    const event = readOne(fields);
    if (traceId === undefined || event === undefined) return undefined;
    if (ids.length === 0 && form.alone === undefined) return undefined;
    const spans = [...new Set(ids.map((id) => normaliseId(id, 16)))];
    const alone = findFirstText(scope, aloneIds);
    return {
      trace_id: normaliseId(traceId, 32),
      spanIds: spans,
      standaloneId: alone === undefined ? undefined : normaliseId(alone, 16),
      event,
    };
  };
}

/** The span that the document of an event is by itself; undefined where its layout has no such, or it lacks something. */
export function decodeStandaloneSpan(
  document: AttributeValue,
  form: EventForm,
  source: SpanSource,
): Span | undefined {
  if (form.alone === undefined) return undefined;
  const event = decodeSeparateEvent(document, form)?.event;
  const span = decodeSpan(document, form.alone, source);
  return event && span && { ...span, events: [event], report: true };
}

// ---- values -------------------------------------------------------------------------------------------------

/** What a name can lead to: the document, or its attributes once they are read. */
interface Scope {
  readonly fields: FieldValues;
  readonly span_attributes: Attributes | undefined;
  readonly resource_attributes: Attributes | undefined;
  readonly event_attributes: Attributes | undefined;
}
const noAttributes = {
  span_attributes: undefined,
  resource_attributes: undefined,
  event_attributes: undefined,
};
const spanParts: readonly AttributePart[] = ["span_attributes", "resource_attributes"];

/** A profile's name: a place in the document, or a key of attributes that were read. */
type ResolvedName = { readonly place: FieldRef } | { readonly part: AttributePart; readonly key: string };
type AttributePart = "span_attributes" | "resource_attributes" | "event_attributes";

/** `read` are the attributes that a scope will have. */
function resolveName(table: FieldTable, name: string, read: readonly AttributePart[] = []): ResolvedName {
  const part = read.find((candidate) => name.startsWith(`${candidate}.`));
  return part === undefined ? { place: table.addField(name) } : { part, key: name.slice(part.length + 1) };
}

function readNamedValue(scope: Scope, name: ResolvedName): AttributeValue | undefined {
  if ("place" in name) return readFieldValue(scope.fields, name.place);
  const attributes = scope[name.part];
  if (attributes === undefined || !Object.hasOwn(attributes, name.key)) return undefined;
  return attributes[name.key] ?? undefined;
}

/** A scalar as text; of an array the first that is something, as an index has it. Empty text is nothing. */
function toText(value: AttributeValue | undefined): string | undefined {
  if (typeof value === "string") return value === "" ? undefined : value;
  if (Array.isArray(value)) {
    for (const element of value) {
      const text = toText(element);
      if (text !== undefined) return text;
    }
    return undefined;
  }
  return value === undefined || value === null || isValueObject(value) ? undefined : String(value);
}

function findFirstText(scope: Scope, names: readonly ResolvedName[]): string | undefined {
  for (const name of names) {
    const text = toText(readNamedValue(scope, name));
    if (text !== undefined) return text;
  }
  return undefined;
}

interface CompiledRule extends Pick<ValueRule, "values" | "value" | "omit"> {
  readonly name: ResolvedName | undefined;
}

function compileRules(
  table: FieldTable,
  rules: readonly ValueRule[],
  read: readonly AttributePart[],
): readonly CompiledRule[] {
  return rules.map(({ field, values, value, omit }) => {
    return { name: field === undefined ? undefined : resolveName(table, field, read), values, value, omit };
  });
}

/** The attributes that rules look at. */
function listAttributeKeys(rules: readonly CompiledRule[]): readonly string[] {
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
  const found = name === undefined ? "" : toText(readNamedValue(scope, name));
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

function parseKind(text: string | undefined): SpanKind {
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

function parseStatus(text: string | undefined): StatusCode {
  return statusSpellings.get(text?.toLowerCase() ?? "") ?? "UNSET";
}

function readCount(value: AttributeValue | undefined): number {
  const count = Number(toText(value) ?? Number.NaN);
  return Number.isSafeInteger(count) && count > 1 ? count : 1;
}

function isReport(attributes: Attributes): boolean {
  const mark = Object.hasOwn(attributes, errorReportAttribute) ? attributes[errorReportAttribute] : undefined;
  return mark === true || mark === "true";
}

// ---- times --------------------------------------------------------------------------------------------------

const epochPattern = /^-?\d+(?:\.\d{1,6})?$/;

function readTime(value: AttributeValue | undefined, unit: TimeUnit): Instant | undefined {
  if (unit !== "date") return readNanos(value, nanosPerTimeUnit[unit]) as Instant | undefined;
  if (typeof value === "number" || typeof value === "bigint")
    return readNanos(value, nanosPerMilli) as Instant;
  const text = toText(value);
  if (text === undefined) return undefined;
  if (!epochPattern.test(text)) return parseInstant(text);
  const point = text.indexOf(".");
  const millis = BigInt(point < 0 ? text : text.slice(0, point)) * nanosPerMilli;
  // The part after the point is a number of nanoseconds, not a fraction: `.5` is 5 ns.
  return (point < 0 ? millis : millis + BigInt(text.slice(point + 1))) as Instant;
}

/** A number of units, also as text, as nanoseconds. Micro- and nanoseconds are whole, as an index keeps them. */
function readNanos(value: AttributeValue | undefined, unit: bigint): bigint | undefined {
  if (typeof value === "bigint") return value * unit;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) return undefined;
    if (Number.isSafeInteger(value)) return BigInt(value) * unit;
    return unit === nanosPerMilli
      ? BigInt(Math.round(value * Number(unit)))
      : BigInt(Math.trunc(value)) * unit;
  }
  const text = toText(value);
  if (text === undefined || !/^-?\d+(\.\d+)?$/.test(text)) return undefined;
  return text.includes(".") ? readNanos(Number(text), unit) : BigInt(text) * unit;
}

function readLength(value: AttributeValue | undefined, unit: TimeUnit): bigint | undefined {
  const length = readTime(value, unit);
  return length === undefined || length >= 0n ? length : 0n;
}

// ---- events, links, references --------------------------------------------------------------------------------

function compileEvents(
  table: FieldTable,
  { events }: SpanForm,
): ((fields: FieldValues) => readonly SpanEvent[]) | undefined {
  if (events === undefined) return undefined;
  const list = table.addList(events.at);
  const own = createFieldTable();
  const readOne = compileOneEvent(own, events);
  return (fields) => {
    const objects = readFieldList(fields, list);
    return objects.length === 0
      ? emptyList
      : sortEvents(objects.flatMap((object) => readOne(own.read(object)) ?? []));
  };
}

function compileOneEvent(
  table: FieldTable,
  form: Pick<EventForm, "time" | "name" | "event_attributes">,
): (fields: FieldValues) => SpanEvent | undefined {
  const place = table.addField(form.time.field);
  const rules = compileRules(table, form.name, ["event_attributes"]);
  const attributesOf = compileAttributes(table, form.event_attributes, undefined);
  return (fields) => {
    const time = readTime(readFieldValue(fields, place), form.time.unit);
    if (time === undefined) return undefined;
    const attributes = attributesOf(fields);
    const name = applyRules({ ...noAttributes, fields, event_attributes: attributes }, rules) ?? "";
    return { time, name, attributes: omitAttributes(attributes, form.event_attributes.omit) };
  };
}

/** By time; the document's order where that is equal. */
export function sortEvents(events: readonly SpanEvent[]): readonly SpanEvent[] {
  return events.toSorted((a, b) => compare(a.time, b.time));
}

function compileLinks(
  table: FieldTable,
  form: SpanForm,
): ((fields: FieldValues, trace: string, parent: string | undefined) => readonly SpanLink[]) | undefined {
  const { links } = form;
  if (links === undefined) return undefined;
  const list = table.addList(links.at);
  const own = createFieldTable();
  const [traceIds, spanIds] = [[resolveName(own, links.trace_id)], [resolveName(own, links.span_id)]];
  const states = links.trace_state === undefined ? [] : [resolveName(own, links.trace_state)];
  const attributesOf: AttributeReader =
    links.attributes === undefined ? () => ({}) : compileAttributes(own, links.attributes, undefined);
  const isParent = links.at === form.parent_reference?.at ? compileParentRule(own, form) : () => false;
  return (fields, trace, parent) => {
    const objects = readFieldList(fields, list);
    if (objects.length === 0) return emptyList;
    return objects.flatMap((object): readonly SpanLink[] => {
      const scope: Scope = { ...noAttributes, fields: own.read(object) };
      const traceId = findFirstText(scope, traceIds);
      const spanId = findFirstText(scope, spanIds);
      if (traceId === undefined || spanId === undefined) return [];
      const [trace_id, span_id] = [normaliseId(traceId, 32), normaliseId(spanId, 16)];
      if (span_id === parent && trace_id === trace && isParent(scope)) return [];
      return [
        {
          trace_id,
          span_id,
          trace_state: findFirstText(scope, states) ?? "",
          attributes: attributesOf(scope.fields),
        },
      ];
    });
  };
}

/** Whether a reference is one to a parent. */
function compileParentRule(
  table: FieldTable,
  { parent_reference: rule }: SpanForm,
): (scope: Scope) => boolean {
  return rule === undefined ? () => false : compileReferenceRule(table, rule.where);
}

function compileReferenceRule(
  table: FieldTable,
  texts: Readonly<Record<string, string>>,
): (scope: Scope) => boolean {
  const wanted = Object.entries(texts).map(([name, text]) => ({ place: table.addField(name), text }));
  return ({ fields }) => wanted.every(({ place, text }) => toText(readFieldValue(fields, place)) === text);
}

function compileParentReference(
  table: FieldTable,
  form: SpanForm,
): ((fields: FieldValues, trace: string) => string | undefined) | undefined {
  const rule = form.parent_reference;
  if (rule === undefined) return undefined;
  const list = table.addList(rule.at);
  const own = createFieldTable();
  const isParent = compileReferenceRule(own, rule.where);
  const isOther = rule.otherwise === undefined ? () => false : compileReferenceRule(own, rule.otherwise);
  const [spanIds, traceIds] = [own.addField(rule.span_id), own.addField(rule.trace_id)];
  return (fields, trace) => {
    let other: string | undefined;
    let elsewhere: string | undefined;
    for (const object of readFieldList(fields, list)) {
      const reference = own.read(object);
      const scope = { ...noAttributes, fields: reference };
      const id = toText(readFieldValue(reference, spanIds));
      if (id === undefined || /^0*$/.test(id)) continue;
      const referred = toText(readFieldValue(reference, traceIds));
      const isHere = referred === undefined || normaliseId(referred, 32) === trace;
      if (isParent(scope)) {
        if (isHere) return id;
        elsewhere ??= id;
      } else if (isHere && isOther(scope)) other ??= id;
    }
    return other ?? elsewhere;
  };
}
