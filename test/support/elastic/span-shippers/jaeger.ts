// Spans as Jaeger writes them, with tags as lists or as fields.
import type { Attributes, AttributeValue } from "#src/core/rows.ts";
import {
  micros,
  printJson,
  replaceDots,
  type ShippedSpan,
  type SpanShipper,
  settings,
  shortKeyword,
} from "./shipper.ts";

type Pair = { readonly key: string; readonly type: string; readonly value: string };

function toPair([key, value]: readonly [string, AttributeValue]): Pair {
  if (typeof value === "boolean") return { key, type: "bool", value: String(value) };
  if (typeof value === "bigint") return { key, type: "int64", value: String(value) };
  if (typeof value === "number") {
    return { key, type: Number.isInteger(value) ? "int64" : "float64", value: String(value) };
  }
  return { key, type: "string", value: typeof value === "string" ? value : printJson(value) };
}
const toPairs = (attributes: Attributes): readonly Pair[] => Object.entries(attributes).map(toPair);

const pairMapping = {
  type: "nested",
  dynamic: false,
  properties: { key: shortKeyword(256), value: shortKeyword(256), type: shortKeyword(256) },
};
const jaegerDefinition = {
  settings,
  mappings: {
    dynamic_templates: [
      { span_tags: { path_match: "tag.*", mapping: shortKeyword(256) } },
      { process_tags: { path_match: "process.tag.*", mapping: shortKeyword(256) } },
    ],
    properties: {
      traceID: shortKeyword(256),
      parentSpanID: shortKeyword(256),
      spanID: shortKeyword(256),
      operationName: shortKeyword(256),
      startTime: { type: "long" },
      startTimeMillis: { type: "date", format: "epoch_millis" },
      duration: { type: "long" },
      flags: { type: "integer" },
      logs: {
        type: "nested",
        dynamic: false,
        properties: { timestamp: { type: "long" }, fields: pairMapping },
      },
      process: { properties: { serviceName: shortKeyword(256), tag: { type: "object" }, tags: pairMapping } },
      references: {
        type: "nested",
        dynamic: false,
        properties: {
          refType: shortKeyword(256),
          traceID: shortKeyword(256),
          spanID: shortKeyword(256),
        },
      },
      tag: { type: "object" },
      tags: pairMapping,
    },
  },
};

/** With `fields`, tags are fields with `@` for dots, which is Jaeger's other setting. */
function buildJaegerDocument(span: ShippedSpan, fields: boolean): string {
  const { "service.name": _, ...resource } = span.resource_attributes;
  const attributes: Attributes = {
    ...span.span_attributes,
    "span.kind": span.span_kind,
    ...(span.status_code === "UNSET" ? {} : { "otel.status_code": span.status_code }),
    ...(span.status_code === "ERROR" ? { error: true } : {}),
    ...(span.status_message === undefined ? {} : { "otel.status_description": span.status_message }),
    ...(span.scope_name === undefined ? {} : { "otel.scope.name": span.scope_name }),
    ...(span.scope_version === undefined ? {} : { "otel.scope.version": span.scope_version }),
    ...(span.trace_state === undefined ? {} : { "w3c.tracestate": span.trace_state }),
  };
  const parent =
    span.parent_span_id === undefined
      ? []
      : [{ refType: "CHILD_OF", traceID: span.trace_id, spanID: span.parent_span_id }];
  const start = micros(span.start);
  return printJson({
    traceID: span.trace_id,
    spanID: span.span_id,
    // Newer versions write the parent as a reference only.
    operationName: span.span_name,
    references: [
      ...parent,
      ...span.links.map((link) => ({
        refType: "FOLLOWS_FROM",
        traceID: link.trace_id,
        spanID: link.span_id,
      })),
    ],
    ...(fields ? { parentSpanID: span.parent_span_id } : {}),
    flags: 1,
    startTime: start,
    startTimeMillis: start / 1_000n,
    duration: micros(span.end) - start,
    tags: fields ? [] : toPairs(attributes),
    tag: fields ? replaceDots("", attributes) : undefined,
    process: {
      serviceName: span.service_name,
      tags: fields ? [] : toPairs(resource),
      tag: fields ? replaceDots("", resource) : undefined,
    },
    logs: span.events.map(({ time, name, attributes }) => ({
      timestamp: micros(time),
      fields: toPairs({ event: name, ...attributes }),
    })),
  });
}

function createJaegerShipper(name: string, fields: boolean): SpanShipper {
  return {
    name,
    layout: "jaeger",
    pattern: (prefix) => `${prefix}-jaeger-span-*`,
    indices: (prefix) => ({ [`${prefix}-jaeger-span-2024-01-15`]: jaegerDefinition }),
    write: (prefix, spans) =>
      spans.map((span) => ({
        index: `${prefix}-jaeger-span-2024-01-15`,
        document: buildJaegerDocument(span, fields),
      })),
  };
}
export const jaeger = createJaegerShipper("jaeger", false);
export const jaegerFields = createJaegerShipper("jaeger, tags as fields", true);
