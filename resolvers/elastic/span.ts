// A document as a span or as an event of one, as its form says. Numbers are exact, ids are in one spelling, times keep all
// their digits.
import {
  type Attributes,
  reportMark,
  type Span,
  type SpanEvent,
  type SpanKind,
  type SpanLink,
  type StatusCode,
  spanKinds,
  type Value,
} from "../../src/model.ts";
import type { SpanSource } from "../../src/reader.ts";
import { type Instant, nanosPerMilli, parseInstant } from "../../src/time.ts";
import { readNames } from "../../src/tracing/source.ts";
import { type Flat, flatten, isJson, listAt, lookUp } from "./flat.ts";
import {
  type AttributeSource,
  type AttributeSources,
  type EventForm,
  nanosOf,
  type Rule,
  type SpanForm,
  type Unit,
} from "./layout.ts";

/** 32 or 16 lower-case hex digits, with the zeros on the left that a source may leave out. */
export function normaliseId(text: string, digits: 16 | 32): string {
  const lower = text.toLowerCase();
  return /^[0-9a-f]*$/.test(lower) ? lower.padStart(digits, "0") : lower;
}

/**
 * The span that a document holds; undefined where it lacks what every span has: ids, a start, an end.
 * Events that lie in documents of their own are not in it.
 */
export function readSpan(document: Value, form: SpanForm, source: SpanSource): Span | undefined {
  if (!isJson(document)) return undefined;
  const flat = flatten(document);
  if (!form.present.every((name) => lookUp(flat, name) !== undefined)) return undefined;
  const spanAttributes = readAttributes(flat, form.span_attributes, source);
  const resourceAttributes = readAttributes(flat, form.resource_attributes, source);
  const scope: Scope = { flat, span_attributes: spanAttributes, resource_attributes: resourceAttributes };
  const text = (names: readonly string[] | undefined) => firstText(scope, names);

  const traceId = text(form.trace_id);
  const spanId = text(form.span_id);
  const begun = readTime(lookUp(flat, form.start.field), form.start.unit);
  if (traceId === undefined || spanId === undefined || begun === undefined) return undefined;
  const end = readEnd(flat, form, begun);
  if (end === undefined) return undefined;
  const start = form.end === undefined ? begun : ((end - (readLength(flat, form) ?? end - begun)) as Instant);
  const count = readCount(flat, form.count);
  const sum = count > 1 && form.sum ? readTime(lookUp(flat, form.sum.field), form.sum.unit) : undefined;

  const parent = text(form.parent) ?? referredParent(flat, form, normaliseId(traceId, 32));
  const parentId = parent === undefined ? undefined : normaliseId(parent, 16);
  const hasParent = parentId !== undefined && !/^0*$/.test(parentId);
  const kind = readKind(scope, form.kind);
  const calls = kind === "client" || kind === "producer";
  return {
    site_id: source.site,
    trace_id: normaliseId(traceId, 32),
    span_id: normaliseId(spanId, 16),
    parent_span_id: hasParent ? parentId : undefined,
    trace_state: text(form.trace_state),
    start,
    end,
    service_name: text(form.service) ?? "",
    span_name: text(form.name) ?? "",
    span_kind: kind,
    scope_name: text(form.scope_name),
    scope_version: text(form.scope_version),
    revision: text(form.revision),
    status_code: readStatus(scope, form.status),
    status_message: text(form.status_message),
    resource_attributes: without(resourceAttributes, form.resource_attributes.omit),
    span_attributes: without(spanAttributes, form.span_attributes.omit),
    events: readEvents(flat, form),
    links: readLinks(flat, form, normaliseId(traceId, 32), hasParent ? parentId : undefined),
    entry:
      form.entry === "always" ||
      (form.entry === undefined && (!hasParent || kind === "server" || kind === "consumer")),
    ...readNames(spanAttributes, source),
    count,
    ...(sum === undefined || sum < 0n || sum === end - start ? {} : { sum }),
    statement: text(form.statement),
    peer: calls ? text(form.peer) : undefined,
    report: isReport(spanAttributes),
  };
}

export interface LooseEvent {
  readonly trace_id: string;
  /** Ids of the spans that it may belong to, the nearest first. */
  readonly spans: readonly string[];
  readonly event: SpanEvent;
}

/** The event that a document of its own holds; undefined where it lacks ids or a time. */
export function readEvent(document: Value, form: EventForm): LooseEvent | undefined {
  if (!isJson(document)) return undefined;
  const flat = flatten(document);
  if (!form.present.every((name) => lookUp(flat, name) !== undefined)) return undefined;
  const traceId = firstText({ flat }, form.trace_id);
  const time = readTime(lookUp(flat, form.time.field), form.time.unit);
  const spans = form.span
    .flatMap((name) => firstText({ flat }, [name]) ?? [])
    .map((id) => normaliseId(id, 16));
  if (traceId === undefined || time === undefined || spans.length === 0) return undefined;
  const found = readAttributes(flat, form.event_attributes);
  const name = applyRules({ flat, event_attributes: found }, form.name) ?? "";
  const event = { time, name, attributes: without(found, form.event_attributes.omit) };
  return { trace_id: normaliseId(traceId, 32), spans, event };
}

// ---- values -------------------------------------------------------------------------------------------------

/** What a name can lead to: the document, or its attributes once they are read. */
interface Scope {
  readonly flat: Flat;
  readonly span_attributes?: Attributes;
  readonly resource_attributes?: Attributes;
  readonly event_attributes?: Attributes;
}
const attributeParts = ["span_attributes", "resource_attributes", "event_attributes"] as const;

/** A profile's names, cut once: where they lead, and the key there. */
const routes = new Map<
  string,
  { readonly part: (typeof attributeParts)[number]; readonly key: string } | null
>();

function routeOf(name: string) {
  const known = routes.get(name);
  if (known !== undefined) return known;
  const part = attributeParts.find((candidate) => name.startsWith(`${candidate}.`));
  const route = part === undefined ? null : { part, key: name.slice(part.length + 1) };
  routes.set(name, route);
  return route;
}

function valueAt(scope: Scope, name: string): Value | undefined {
  const route = routeOf(name);
  const attributes = route === null ? undefined : scope[route.part];
  if (route === null || attributes === undefined) return lookUp(scope.flat, name);
  return Object.hasOwn(attributes, route.key) ? (attributes[route.key] ?? undefined) : undefined;
}

/** A scalar as text; of an array the first that is something, as an index has it. Empty text is nothing. */
function textOf(value: Value | undefined): string | undefined {
  if (Array.isArray(value)) {
    for (const element of value) {
      const text = textOf(element);
      if (text !== undefined) return text;
    }
    return undefined;
  }
  if (value === undefined || value === null || value === "" || isJson(value)) return undefined;
  return String(value);
}

function firstText(scope: Scope, names: readonly string[] | undefined): string | undefined {
  for (const name of names ?? []) {
    const text = textOf(valueAt(scope, name));
    if (text !== undefined) return text;
  }
  return undefined;
}

function applyRules(scope: Scope, rules: readonly Rule[]): string | undefined {
  for (const { field, values, value } of rules) {
    const found = field === undefined ? "" : textOf(valueAt(scope, field));
    if (found === undefined) continue;
    if (value !== undefined) return value;
    if (values === undefined) return found;
    if (Object.hasOwn(values, found)) return values[found];
  }
  return undefined;
}

/** OpenTelemetry's numbers for kinds; 0 is unspecified. */
const kindNumbers = ["internal", ...spanKinds] as const;

/** `Server`, `SPAN_KIND_SERVER`, `server` and 2 are one kind. Unknown and absent is internal. */
function readKind(scope: Scope, rules: readonly Rule[]): SpanKind {
  const text =
    applyRules(scope, rules)
      ?.toLowerCase()
      .replace(/^span_kind_/, "") ?? "";
  return (
    spanKinds.find((kind) => kind === text) ?? kindNumbers[/^\d$/.test(text) ? Number(text) : 0] ?? "internal"
  );
}

const statuses: Readonly<Record<string, StatusCode>> = { ok: "OK", "1": "OK", error: "ERROR", "2": "ERROR" };

/** `Error`, `STATUS_CODE_ERROR`, `ERROR` and 2 are one status. */
function readStatus(scope: Scope, rules: readonly Rule[]): StatusCode {
  const text =
    applyRules(scope, rules)
      ?.toLowerCase()
      .replace(/^status_code_/, "") ?? "";
  return (Object.hasOwn(statuses, text) && statuses[text]) || "UNSET";
}

function readCount(flat: Flat, name: string | undefined): number {
  const count = name === undefined ? undefined : Number(textOf(lookUp(flat, name)) ?? Number.NaN);
  return count !== undefined && Number.isSafeInteger(count) && count > 1 ? count : 1;
}

function isReport(attributes: Attributes): boolean {
  const mark = Object.hasOwn(attributes, reportMark) ? attributes[reportMark] : undefined;
  return mark === true || mark === "true";
}

// ---- times --------------------------------------------------------------------------------------------------

function readTime(value: Value | undefined, unit: Unit): Instant | undefined {
  if (unit !== "date") return readNanos(value, nanosOf[unit]) as Instant | undefined;
  if (typeof value === "number" || typeof value === "bigint")
    return readNanos(value, nanosPerMilli) as Instant;
  const text = textOf(value);
  if (text === undefined) return undefined;
  // The part after the point is a number of nanoseconds, not a fraction: `.5` is 5 ns.
  const epoch = /^(-?\d+)(?:\.(\d{1,6}))?$/.exec(text);
  if (epoch !== null) return (BigInt(epoch[1] ?? 0) * nanosPerMilli + BigInt(epoch[2] ?? 0)) as Instant;
  return parseInstant(text);
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

/** A span without a duration, or with a negative one, ends when it starts. */
function readEnd(flat: Flat, form: SpanForm, start: Instant): Instant | undefined {
  if (form.end !== undefined) return readTime(lookUp(flat, form.end.field), form.end.unit);
  return (start + (readLength(flat, form) ?? 0n)) as Instant;
}

function readLength(flat: Flat, { duration }: SpanForm): bigint | undefined {
  const length = duration && readTime(lookUp(flat, duration.field), duration.unit);
  return length === undefined || length >= 0n ? length : 0n;
}

// ---- attributes ---------------------------------------------------------------------------------------------

function readAttributes(flat: Flat, { from }: AttributeSources, site?: SpanSource): Attributes {
  const found = new Map<string, Value>();
  for (const source of from) addAttributes(found, flat, source, site);
  return Object.fromEntries(found);
}

function addAttributes(
  found: Map<string, Value>,
  flat: Flat,
  source: AttributeSource,
  site: SpanSource | undefined,
): void {
  const add = (key: string, value: Value) => {
    if (!found.has(key)) found.set(key, value);
  };
  if ("prefix" in source) {
    const { prefix, dot, spelling, known, keep, except } = source;
    for (const [name, value] of flat) {
      if (!name.startsWith(prefix) || except.some((other) => name.startsWith(other))) continue;
      const key = keep ? name : name.slice(prefix.length);
      if (spelling !== undefined && site !== undefined) add(unspell(key, { spelling, known }, site), value);
      else add(dot === undefined ? key : key.replaceAll(dot, "."), value);
    }
  } else if ("pairs" in source) {
    for (const { key, type, value } of listAt(flat, source.pairs)) {
      if (typeof key === "string" && value !== undefined) add(key, typed(value, type));
    }
  } else {
    for (const [key, names] of Object.entries(source.named)) {
      for (const name of names) {
        const value = lookUp(flat, name);
        if (value === undefined) continue;
        add(key, value);
        break;
      }
    }
  }
}

/** The value that a text stands for by the type beside it. */
function typed(value: Value, type: Value | undefined): Value {
  if (typeof value !== "string" || typeof type !== "string") return value;
  switch (type.toLowerCase()) {
    case "bool":
      return value === "true" ? true : value === "false" ? false : value;
    case "int64": {
      if (!/^-?\d{1,19}$/.test(value)) return value;
      return Number.isSafeInteger(Number(value)) ? Number(value) : BigInt(value);
    }
    case "float64":
      return value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value;
    default:
      return value;
  }
}

function without(attributes: Attributes, omit: readonly string[]): Attributes {
  if (!omit.some((key) => Object.hasOwn(attributes, key))) return attributes;
  return Object.fromEntries(Object.entries(attributes).filter(([key]) => !omit.includes(key)));
}

/** What label keys of APM cannot have in them. */
const lost = /[.*"]/g;

/** A configured key as the layout may spell it: as it is, or with what its sources put for characters that they lose. */
export function spellings(key: string, { from }: AttributeSources): readonly string[] {
  const spelled = from.flatMap((source) =>
    "prefix" in source && source.spelling !== undefined ? [key.replace(lost, source.spelling)] : [],
  );
  return [...new Set([key, ...spelled])];
}

/** The key that an attribute has for the application, for one whose characters a layout does not keep. */
function unspell(
  key: string,
  source: { readonly spelling: string; readonly known: readonly string[] },
  site: SpanSource,
): string {
  const spelled = (name: string) => name.replace(lost, source.spelling);
  const own = [site.namespaceAttribute, site.actionAttribute, ...source.known].find(
    (name) => spelled(name) === key,
  );
  if (own !== undefined) return own;
  const prefix = site.tagPrefixes.find((name) => key.startsWith(spelled(name)));
  return prefix === undefined ? key : prefix + key.slice(prefix.length);
}

// ---- events, links, references --------------------------------------------------------------------------------

function readEvents(flat: Flat, { events }: SpanForm): readonly SpanEvent[] {
  if (events === undefined) return [];
  const found = listAt(flat, events.at).flatMap((object): SpanEvent[] => {
    const own = flatten(object);
    const time = readTime(lookUp(own, events.time.field), events.time.unit);
    if (time === undefined) return [];
    const attributes = readAttributes(own, events.event_attributes);
    const name = applyRules({ flat: own, event_attributes: attributes }, events.name) ?? "";
    return [{ time, name, attributes: without(attributes, events.event_attributes.omit) }];
  });
  return sortEvents(found);
}

/** By time; the document's order where that is equal. */
export function sortEvents(events: readonly SpanEvent[]): readonly SpanEvent[] {
  return events.toSorted((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
}

function readLinks(
  flat: Flat,
  form: SpanForm,
  trace: string,
  parent: string | undefined,
): readonly SpanLink[] {
  const { links } = form;
  if (links === undefined) return [];
  return listAt(flat, links.at).flatMap((object): SpanLink[] => {
    const own = flatten(object);
    const traceId = firstText({ flat: own }, [links.trace_id]);
    const spanId = firstText({ flat: own }, [links.span_id]);
    if (traceId === undefined || spanId === undefined) return [];
    const id = normaliseId(spanId, 16);
    const linked = normaliseId(traceId, 32);
    const isOwn = id === parent && linked === trace;
    if (isOwn && links.at === form.parent_reference?.at && isParent(own, form)) return [];
    return [
      {
        trace_id: linked,
        span_id: id,
        trace_state:
          firstText({ flat: own }, links.trace_state === undefined ? [] : [links.trace_state]) ?? "",
        attributes: links.attributes === undefined ? {} : readAttributes(own, links.attributes),
      },
    ];
  });
}

function isParent(reference: Flat, { parent_reference: rule }: SpanForm): boolean {
  return (
    rule !== undefined &&
    Object.entries(rule.where).every(([name, value]) => textOf(lookUp(reference, name)) === value)
  );
}

/** The first reference of the kind that names a span: of the same trace, else of any. */
function referredParent(flat: Flat, form: SpanForm, trace: string): string | undefined {
  const rule = form.parent_reference;
  if (rule === undefined) return undefined;
  let elsewhere: string | undefined;
  for (const reference of listAt(flat, rule.at).map(flatten)) {
    const id = isParent(reference, form) ? textOf(lookUp(reference, rule.span_id)) : undefined;
    if (id === undefined || /^0*$/.test(id)) continue;
    const referred = textOf(lookUp(reference, rule.trace_id));
    if (referred === undefined || normaliseId(referred, 32) === trace) return id;
    elsewhere ??= id;
  }
  return elsewhere;
}
