// Decodes a document into a span by its form. Numbers are exact, ids have one spelling, and times keep all their digits. A form is
// compiled once for each site, since one request may read many thousand documents with it.
import { readOwn } from "../../../src/core/collections.ts";
import {
  type Attributes,
  type AttributeValue,
  errorReportAttribute,
  type Span,
  type SpanEvent,
  type SpanKind,
  type SpanLink,
  type StatusCode,
  spanKinds,
} from "../../../src/core/rows.ts";
import type { Instant } from "../../../src/core/time.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import { readConfiguredNames } from "../../../src/tracing/spans/site-attributes.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import {
  createFieldTable,
  type FieldRef,
  type FieldTable,
  type FieldValues,
  readFieldValue,
} from "../document/field-table.ts";
import { isValueObject, type ValueObject } from "../document/flatten.ts";
import { type AttributeReader, compileAttributes, omitAttributes } from "./attribute-decoder.ts";
import { compileEvents, decodeSeparateEvent, emptyList } from "./event-decoder.ts";
import { compileLinks, compileParentReference } from "./reference-decoder.ts";
import type { EventForm, SpanForm } from "./span-layout.ts";
import { compileTime, readDurationAt, readTimeAt, type TimeRef } from "./time-decoder.ts";
import {
  type AttributePart,
  applyRule,
  applyRules,
  type CompiledRule,
  compileRules,
  findFirstText,
  listAttributeKeys,
  type ResolvedName,
  resolveName,
  type Scope,
  toText,
} from "./value-rules.ts";

/** A form, compiled for one site. */
interface SpanDecoder {
  readonly form: SpanForm;
  readonly source: SpanSource;
  readonly table: FieldTable;
  readonly present: readonly FieldRef[];
  readonly names: ReturnType<typeof resolveNames>;
  readonly start: TimeRef;
  readonly end: TimeRef | undefined;
  readonly duration: TimeRef | undefined;
  readonly count: FieldRef | undefined;
  readonly sum: TimeRef | undefined;
  readonly kind: readonly CompiledRule[];
  readonly status: readonly CompiledRule[];
  /** Status rules whose attribute is left out where it repeats the status. */
  readonly omittingRules: readonly CompiledRule[];
  readonly readSpanAttributes: AttributeReader;
  readonly readResourceAttributes: AttributeReader;
  readonly readParentReference: ((fields: FieldValues, trace: string) => string | undefined) | undefined;
  readonly readEvents: ((fields: FieldValues) => readonly SpanEvent[]) | undefined;
  readonly readLinks:
    | ((fields: FieldValues, trace: string, parent: string | undefined) => readonly SpanLink[])
    | undefined;
  /** The trace of the previous span: most spans repeat it, and then share one string for its id. */
  lastTrace: { readonly text: string; readonly id: string };
}

/** By the site, whose settings name keys of attributes, and the form. */
const spanDecoders = new WeakMap<SpanSource, Map<SpanForm, SpanDecoder>>();

const spanParts: readonly AttributePart[] = ["span_attributes", "resource_attributes"];

/**
 * The span that a document holds; undefined if it lacks ids, a start or an end. Separate events are not among its events.
 */
export function decodeSpan(document: AttributeValue, form: SpanForm, source: SpanSource): Span | undefined {
  return isValueObject(document) ? decodeDocument(prepareSpanDecoder(form, source), document) : undefined;
}

/** The standalone span of a separate event's document; undefined if its layout has no such spans, or it lacks something. */
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

function prepareSpanDecoder(form: SpanForm, source: SpanSource): SpanDecoder {
  const known = spanDecoders.get(source)?.get(form);
  if (known !== undefined) return known;
  const decoder = compileSpanDecoder(form, source);
  spanDecoders.set(source, (spanDecoders.get(source) ?? new Map()).set(form, decoder));
  return decoder;
}

function compileSpanDecoder(form: SpanForm, source: SpanSource): SpanDecoder {
  const table = createFieldTable();
  const status = compileRules(table, form.status, spanParts);
  return {
    form,
    source,
    table,
    present: form.present.map((name) => table.addField(name)),
    names: resolveNames(table, form),
    start: compileTime(table, form.start),
    end: form.end && compileTime(table, form.end),
    duration: form.duration && compileTime(table, form.duration),
    count: form.count === undefined ? undefined : table.addField(form.count),
    sum: form.sum && compileTime(table, form.sum),
    kind: compileRules(table, form.kind, spanParts),
    status,
    omittingRules: status.filter(({ omit }) => omit),
    readSpanAttributes: compileAttributes(table, form.span_attributes, source),
    readResourceAttributes: compileAttributes(table, form.resource_attributes, source),
    readParentReference: compileParentReference(table, form),
    readEvents: compileEvents(table, form),
    readLinks: compileLinks(table, form),
    lastTrace: { text: "", id: "" },
  };
}

function resolveNames(table: FieldTable, form: SpanForm) {
  const resolve = (names: readonly string[] = []): readonly ResolvedName[] =>
    names.map((name) => resolveName(table, name, spanParts));
  return {
    traceId: resolve(form.trace_id),
    spanId: resolve(form.span_id),
    parent: resolve(form.parent),
    traceState: resolve(form.trace_state),
    service: resolve(form.service),
    name: resolve(form.name),
    scopeName: resolve(form.scope_name),
    scopeVersion: resolve(form.scope_version),
    revision: resolve(form.revision),
    statusMessage: resolve(form.status_message),
    statement: resolve(form.statement),
    peer: resolve(form.peer),
  };
}

function decodeDocument(decoder: SpanDecoder, document: ValueObject): Span | undefined {
  const { form, source, names } = decoder;
  const fields = decoder.table.read(document);
  for (const field of decoder.present) if (readFieldValue(fields, field) === undefined) return undefined;
  const spanAttributes = decoder.readSpanAttributes(fields);
  const resourceAttributes = decoder.readResourceAttributes(fields);
  const scope: Scope = {
    fields,
    span_attributes: spanAttributes,
    resource_attributes: resourceAttributes,
    event_attributes: undefined,
  };
  const traceId = findFirstText(scope, names.traceId);
  const spanId = findFirstText(scope, names.spanId);
  const began = readTimeAt(fields, decoder.start);
  if (traceId === undefined || spanId === undefined || began === undefined) return undefined;
  const duration = decoder.duration && readDurationAt(fields, decoder.duration);
  const end = decoder.end ? readTimeAt(fields, decoder.end) : addDuration(began, duration);
  if (end === undefined) return undefined;
  const start = decoder.end ? deriveStart(began, end, duration) : began;
  const count = decoder.count === undefined ? 1 : readCount(readFieldValue(fields, decoder.count));
  const sum = count > 1 && decoder.sum ? readTimeAt(fields, decoder.sum) : undefined;
  const trace_id = toTraceId(decoder, traceId);
  const parentId = readParentId(decoder, scope, trace_id);
  const kind = parseKind(applyRules(scope, decoder.kind));
  const status = parseStatus(applyRules(scope, decoder.status));
  const { namespace, action, tags } = readConfiguredNames(spanAttributes, source);
  return {
    site_id: source.site,
    trace_id,
    span_id: normaliseId(spanId, 16),
    parent_span_id: parentId,
    trace_state: findFirstText(scope, names.traceState),
    start,
    end,
    service_name: findFirstText(scope, names.service) ?? "",
    span_name: findFirstText(scope, names.name) ?? "",
    span_kind: kind,
    scope_name: findFirstText(scope, names.scopeName),
    scope_version: findFirstText(scope, names.scopeVersion),
    revision: findFirstText(scope, names.revision),
    status_code: status,
    status_message: findFirstText(scope, names.statusMessage),
    resource_attributes: omitAttributes(resourceAttributes, form.resource_attributes.omit),
    span_attributes: omitAttributes(spanAttributes, listOmittedKeys(decoder, scope, status)),
    events: decoder.readEvents?.(fields) ?? emptyList,
    links: decoder.readLinks?.(fields, trace_id, parentId) ?? emptyList,
    entry: isEntry(form, parentId, kind),
    namespace,
    action,
    tags,
    count,
    sum: sum === undefined || sum < 0n || sum === end - start ? undefined : sum,
    statement: findFirstText(scope, names.statement),
    peer: kind === "client" || kind === "producer" ? findFirstText(scope, names.peer) : undefined,
    report: isReport(spanAttributes),
  };
}

/** A span without a duration ends when it starts. */
function addDuration(start: Instant, duration: bigint | undefined): Instant {
  return duration === undefined ? start : ((start + duration) as Instant);
}

/**
 * A span with an end and a duration starts that long before its end. If the clock ran backwards, its duration is 0 and the start
 * of the document stays.
 */
function deriveStart(began: Instant, end: Instant, duration: bigint | undefined): Instant {
  if (duration === undefined || (duration === 0n && began > end)) return began;
  return (end - duration) as Instant;
}

function toTraceId(decoder: SpanDecoder, text: string): string {
  if (text !== decoder.lastTrace.text) decoder.lastTrace = { text, id: normaliseId(text, 32) };
  return decoder.lastTrace.id;
}

function readParentId(decoder: SpanDecoder, scope: Scope, traceId: string): string | undefined {
  const parent =
    findFirstText(scope, decoder.names.parent) ?? decoder.readParentReference?.(scope.fields, traceId);
  return parent === undefined || /^0*$/.test(parent) ? undefined : normaliseId(parent, 16);
}

/** The span attributes that other fields of the span repeat. */
function listOmittedKeys(decoder: SpanDecoder, scope: Scope, status: StatusCode): readonly string[] {
  const { omit } = decoder.form.span_attributes;
  if (decoder.omittingRules.length === 0) return omit;
  const repeating = decoder.omittingRules.filter((rule) => {
    const text = applyRule(scope, rule);
    return text !== undefined && parseStatus(text) === status;
  });
  return repeating.length === 0 ? omit : [...omit, ...listAttributeKeys(repeating)];
}

function isEntry({ entry }: SpanForm, parentId: string | undefined, kind: SpanKind): boolean {
  if (entry !== undefined) return entry === "always";
  return parentId === undefined || kind === "server" || kind === "consumer";
}

/** `Server`, `SPAN_KIND_SERVER`, `server` and OpenTelemetry's number 2 are one kind. */
const kindSpellings: ReadonlyMap<string, SpanKind> = new Map(
  spanKinds.flatMap((kind, at) =>
    [kind, String(at + 1)].flatMap((text) =>
      [text, `span_kind_${text}`].map((word) => [word, kind] as const),
    ),
  ),
);

/** An absent or unknown kind is internal. */
function parseKind(text: string | undefined): SpanKind {
  return (text === undefined ? undefined : kindSpellings.get(text.toLowerCase())) ?? "internal";
}

/** `Error`, `STATUS_CODE_ERROR`, `ERROR` and 2 are one status. */
const statusSpellings: ReadonlyMap<string, StatusCode> = new Map(
  (["OK", "ERROR"] as const).flatMap((status, at) =>
    [status.toLowerCase(), String(at + 1)].flatMap((text) =>
      [text, `status_code_${text}`].map((word) => [word, status] as const),
    ),
  ),
);

/** An absent or unknown status is unset. */
function parseStatus(text: string | undefined): StatusCode {
  return (text === undefined ? undefined : statusSpellings.get(text.toLowerCase())) ?? "UNSET";
}

function readCount(value: AttributeValue | undefined): number {
  const count = Number(toText(value));
  return Number.isSafeInteger(count) && count > 1 ? count : 1;
}

function isReport(attributes: Attributes): boolean {
  const mark = readOwn(attributes, errorReportAttribute);
  return mark === true || mark === "true";
}
