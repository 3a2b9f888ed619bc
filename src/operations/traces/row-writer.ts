// Rows of the tracing routes as JSON text, their keys in the specification's order. What a source does not have is the
// empty text.
import type { Attributes, AttributeValue, SlowEvent, Span, TraceSummary } from "../../core/rows.ts";
import { printInstant, printInstantToMilli } from "../../core/time.ts";
import { calculateDuration, toFloatMillis } from "../../tracing/spans/requests.ts";
import type { TraceDetailSpan } from "../../tracing/trace-detail.ts";
import { charsPerChunk, type RowBatch, rowsPerChunk } from "../runtime/operation.ts";

export function* printRows<T>(rows: readonly T[], toRow: (row: T) => RowMembers): Generator<RowBatch> {
  for (let start = 0; start < rows.length; start += rowsPerChunk) {
    const part = rows.slice(start, start + rowsPerChunk);
    yield { count: part.length, text: joinRows(part.map(toRow)) };
  }
}

type JsonValue = AttributeValue | readonly Attributes[];
export type RowMembers = Readonly<Record<string, JsonValue>>;

/** The rows as JSON, joined by commas. JSON.stringify is many times faster, and knows no bigint: it is only tried. */
export function joinRows(rows: readonly RowMembers[]): string {
  return tryJson(rows)?.slice(1, -1) ?? rows.map((row) => tryJson(row) ?? printJson(row)).join(",");
}

function tryJson(value: Attributes | RowMembers | readonly RowMembers[]): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** Integers past 2^53 keep their digits. */
function printJson(value: JsonValue | RowMembers): string {
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (isList(value)) return `[${value.map(printJson).join(",")}]`;
  return `{${Object.entries(value)
    .map(([key, inner]) => `${JSON.stringify(key)}:${printJson(inner)}`)
    .join(",")}}`;
}

function isList(value: object): value is readonly AttributeValue[] {
  return Array.isArray(value);
}

export function toSummaryRow(row: TraceSummary): RowMembers {
  return {
    trace_id: row.trace_id,
    span_id: row.span_id,
    site_id: row.site_id,
    namespace: row.namespace,
    action_name: row.action_name,
    revision: row.revision ?? "",
    time: printInstantToMilli(row.time),
    duration: toFloatMillis(row.duration),
    tags: row.tags,
    has_npo: row.has_npo,
  };
}

const emptyColumn: readonly never[] = [];

function toColumn<T, V extends AttributeValue | Attributes>(
  list: readonly T[],
  of: (one: T) => V,
): readonly V[] {
  return list.length === 0 ? emptyColumn : list.map(of);
}

/** Clients read the keys of events and links literally, dots included, and their arrays in step with each other. */
export function toSpanRow(arranged: TraceDetailSpan): RowMembers {
  const { span } = arranged;
  const { span_attributes } = span;
  return { ...pickOwn(span), ...pickShared(arranged), span_attributes, ...pickRest(arranged) };
}

/**
 * As `printRows` with `toSpanRow`, in parts: of what many spans share the text is made once, and what most do not have at
 * all is a constant. A trace has thousands of rows of thirty members.
 */
export function* printSpans(spans: readonly TraceDetailSpan[]): Generator<RowBatch> {
  const known: SharedTexts = new Map();
  let trace = "";
  let textBeforeSpanId = "";
  let parts: string[] = [];
  let count = 0;
  let chars = 0;
  let printed = 0;
  for (const arranged of spans) {
    const { span, subtraceRoot } = arranged;
    const isBare = span.events.length === 0 && span.links.length === 0;
    const rest = isBare ? emptyRest[`${subtraceRoot}`] : printRest(arranged);
    const attributes = tryJson(span.span_attributes) ?? printJson(span.span_attributes);
    const common = printShared(known, arranged);
    const { start_time, end_time, duration, trace_id, span_id, parent_span_id } = pickOwn(span);
    // Most spans are of the same trace as the one before.
    if (textBeforeSpanId === "" || trace_id !== trace) {
      trace = trace_id;
      textBeforeSpanId = `,"trace_id":"${escapeText(trace_id)}","span_id":"`;
    }
    // No two spans have these in common, so that putting them together is all their cost.
    parts.push(count === 0 ? '{"start_time":"' : ',{"start_time":"', start_time, '","end_time":"', end_time);
    parts.push('","duration":', String(duration), textBeforeSpanId, escapeText(span_id));
    parts.push('","parent_span_id":"', escapeText(parent_span_id), common, attributes, rest);
    count += 1;
    chars += common.length + attributes.length + rest.length;
    if (chars < charsPerChunk) continue;
    const text = parts.join("");
    printed += count;
    yield { count, text, unprinted: (spans.length - printed) * Math.round(text.length / count) };
    parts = [];
    count = 0;
    chars = 0;
  }
  if (count > 0) yield { count, text: parts.join("") };
}

/** Without the braces. */
function printMembers(members: RowMembers): string {
  return (tryJson(members) ?? printJson(members)).slice(1, -1);
}

/** By name of a span: spans of one name are hardly ever different in any of the rest. */
type SharedTexts = Map<
  string,
  {
    readonly of: TraceDetailSpan;
    /** Of its resource. */
    readonly keys: readonly string[];
    readonly text: string;
  }
>;

/** The text of `pickShared`, with what stands before and behind it. */
function printShared(texts: SharedTexts, arranged: TraceDetailSpan): string {
  const { span } = arranged;
  const known = texts.get(span.span_name);
  if (
    known !== undefined &&
    isSharedBy(known.of, arranged) &&
    hasSameAttributes(known.of.span.resource_attributes, known.keys, span.resource_attributes)
  )
    return known.text;
  const text = `",${printMembers(pickShared(arranged))},"span_attributes":`;
  texts.set(span.span_name, { of: arranged, keys: Object.keys(span.resource_attributes), text });
  return text;
}

/** All of `pickShared` but the resource. Names are one object for all spans of a request. */
function isSharedBy(
  { span: a, names }: TraceDetailSpan,
  { span: b, names: others }: TraceDetailSpan,
): boolean {
  return (
    names === others &&
    a.site_id === b.site_id &&
    a.trace_state === b.trace_state &&
    a.service_name === b.service_name &&
    a.revision === b.revision &&
    a.span_name === b.span_name &&
    a.span_kind === b.span_kind &&
    a.scope_name === b.scope_name &&
    a.scope_version === b.scope_version &&
    a.status_code === b.status_code &&
    a.status_message === b.status_message
  );
}

/** Of values that are lists or objects only the same ones are alike: looking into them may cost more than printing. */
function hasSameAttributes(a: Attributes, keys: readonly string[], b: Attributes): boolean {
  if (a === b) return true;
  let at = 0;
  for (const key in b) {
    if (key !== keys[at] || a[key] !== b[key]) return false;
    at += 1;
  }
  return at === keys.length;
}

function pickOwn(span: Span) {
  return {
    start_time: printInstant(span.start),
    end_time: printInstant(span.end),
    duration: toFloatMillis(calculateDuration(span)),
    trace_id: span.trace_id,
    span_id: span.span_id,
    parent_span_id: span.parent_span_id ?? "",
  };
}

/** What stands in JSON as it is. */
const plainText = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

/** Without the quotes. */
function escapeText(text: string): string {
  return plainText.test(text) ? text : JSON.stringify(text).slice(1, -1);
}

/** Of nothing but what `isSharedBy` compares, and the resource. */
function pickShared({ span, names }: TraceDetailSpan) {
  return {
    digest: names?.digest ?? "",
    site_id: span.site_id,
    trace_state: span.trace_state ?? "",
    service_name: span.service_name,
    namespace: names?.namespace ?? "",
    revision: span.revision ?? "",
    action_name: names?.action ?? "",
    span_name: span.span_name,
    span_kind: span.span_kind,
    scope_name: span.scope_name ?? "",
    scope_version: span.scope_version ?? "",
    status_code: span.status_code,
    status_message: span.status_message ?? "",
    resource_attributes: span.resource_attributes,
  };
}

function pickRest({
  span: { events, links },
  subtraceRoot,
}: Pick<TraceDetailSpan, "subtraceRoot"> & { readonly span: Pick<Span, "events" | "links"> }) {
  return {
    "events.timestamp": toColumn(events, ({ time }) => printInstant(time)),
    "events.name": toColumn(events, ({ name }) => name),
    "events.attributes": toColumn(events, ({ attributes }) => attributes),
    "links.trace_id": toColumn(links, ({ trace_id }) => trace_id),
    "links.span_id": toColumn(links, ({ span_id }) => span_id),
    "links.trace_state": toColumn(links, ({ trace_state }) => trace_state),
    "links.attributes": toColumn(links, ({ attributes }) => attributes),
    subtrace_root: subtraceRoot,
  };
}

/** What stands behind the attributes of a span. */
function printRest(arranged: Parameters<typeof pickRest>[0]): string {
  return `,${printMembers(pickRest(arranged))}}`;
}

const printEmptyRest = (subtraceRoot: boolean) =>
  printRest({ span: { events: [], links: [] }, subtraceRoot });
const emptyRest = { true: printEmptyRest(true), false: printEmptyRest(false) } as const;

export function toSlowEventRow(event: SlowEvent & { readonly digest: string }): RowMembers {
  const { digest, count, mean, impact, attributes, service, kind, name, statement } = event;
  return {
    digest,
    count,
    mean,
    impact,
    attributes,
    // Ours: a digest tells a reader nothing.
    service,
    span_kind: kind,
    span_name: name,
    statement: statement ?? "",
  };
}
