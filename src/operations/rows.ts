// Rows of the tracing routes as JSON text, their keys in the specification's order. What a source does not have is the
// empty text.
import type { Attributes, SlowEvent, TraceSummary, Value } from "../model.ts";
import { printInstant, printMillis, toMillis } from "../time.ts";
import type { ArrangedSpan } from "../tracing/arrange.ts";
import { durationOf, toFloatMillis } from "../tracing/request.ts";
import type { Rows } from "./operation.ts";

/** Rows of one `Rows`: small enough that writing one never holds the event loop up. */
const chunk = 500;

export function* printRows<T>(rows: readonly T[], rowOf: (row: T) => Members): Generator<Rows> {
  for (let start = 0; start < rows.length; start += chunk) {
    const part = rows.slice(start, start + chunk);
    yield { count: part.length, text: joinRows(part.map(rowOf)) };
  }
}

type Json = Value | readonly Attributes[];
export type Members = Readonly<Record<string, Json>>;

/** The rows as JSON, joined by commas. JSON.stringify is many times faster, and knows no bigint: it is only tried. */
export function joinRows(rows: readonly Members[]): string {
  return tryJson(rows)?.slice(1, -1) ?? rows.map((row) => tryJson(row) ?? printJson(row)).join(",");
}

function tryJson(value: Members | readonly Members[]): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** Integers past 2^53 keep their digits. */
function printJson(value: Json | Members): string {
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (isList(value)) return `[${value.map(printJson).join(",")}]`;
  return `{${Object.entries(value)
    .map(([key, inner]) => `${JSON.stringify(key)}:${printJson(inner)}`)
    .join(",")}}`;
}

function isList(value: object): value is readonly Value[] {
  return Array.isArray(value);
}

export function summaryRow(row: TraceSummary): Members {
  return {
    trace_id: row.trace_id,
    span_id: row.span_id,
    site_id: row.site_id,
    namespace: row.namespace,
    action_name: row.action_name,
    revision: row.revision ?? "",
    time: printMillis(toMillis(row.time)),
    duration: toFloatMillis(row.duration),
    tags: row.tags,
    has_npo: row.has_npo,
  };
}

const none: readonly never[] = [];

function column<T, V extends Value | Attributes>(list: readonly T[], of: (one: T) => V): readonly V[] {
  return list.length === 0 ? none : list.map(of);
}

/** Clients read the keys of events and links literally, dots included, and their arrays in step with each other. */
export function spanRow({ span, names, subtraceRoot }: ArrangedSpan): Members {
  const { events, links } = span;
  return {
    start_time: printInstant(span.start),
    end_time: printInstant(span.end),
    duration: toFloatMillis(durationOf(span)),
    trace_id: span.trace_id,
    span_id: span.span_id,
    parent_span_id: span.parent_span_id ?? "",
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
    span_attributes: span.span_attributes,
    "events.timestamp": column(events, ({ time }) => printInstant(time)),
    "events.name": column(events, ({ name }) => name),
    "events.attributes": column(events, ({ attributes }) => attributes),
    "links.trace_id": column(links, ({ trace_id }) => trace_id),
    "links.span_id": column(links, ({ span_id }) => span_id),
    "links.trace_state": column(links, ({ trace_state }) => trace_state),
    "links.attributes": column(links, ({ attributes }) => attributes),
    subtrace_root: subtraceRoot,
  };
}

export function slowEventRow(event: SlowEvent & { readonly digest: string }): Members {
  const { digest, count, mean, impact, attributes, service, kind, name, statement } = event;
  return {
    ...{ digest, count, mean, impact, attributes },
    // Ours: a digest tells a reader nothing.
    ...{ service, span_kind: kind, span_name: name, statement: statement ?? "" },
  };
}
