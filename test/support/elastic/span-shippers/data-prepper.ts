// Spans as Data Prepper writes them, in its two templates.
import { printNanos } from "#src/core/time.ts";
import {
  keyword,
  printJson,
  replaceDots,
  type ShippedSpan,
  type SpanShipper,
  settings,
  shortKeyword,
} from "./shipper.ts";

const prepperStatus = { UNSET: 0, OK: 1, ERROR: 2 } as const;

function buildPrepperDocument(span: ShippedSpan): Record<string, unknown> {
  return {
    traceId: span.trace_id,
    spanId: span.span_id,
    parentSpanId: span.parent_span_id ?? "",
    traceState: span.trace_state ?? "",
    name: span.span_name,
    kind: `SPAN_KIND_${span.span_kind.toUpperCase()}`,
    startTime: printNanos(span.start),
    endTime: printNanos(span.end),
    durationInNanos: span.end - span.start,
    serviceName: span.service_name,
    traceGroup: null,
    droppedAttributesCount: 0,
  };
}

const prepperProperties = {
  traceId: shortKeyword(256),
  spanId: shortKeyword(256),
  parentSpanId: shortKeyword(256),
  name: shortKeyword(1024),
  kind: shortKeyword(128),
  startTime: { type: "date_nanos" },
  endTime: { type: "date_nanos" },
  durationInNanos: { type: "long" },
  serviceName: keyword,
};

export const dataPrepperLegacy: SpanShipper = {
  name: "data-prepper, older template",
  layout: "data-prepper",
  pattern: (prefix) => `${prefix}-otel-v1-apm-span-*`,
  indices: (prefix) => ({
    [`${prefix}-otel-v1-apm-span-000001`]: {
      settings,
      mappings: {
        date_detection: false,
        dynamic_templates: [
          { resources: { path_match: "resource.attributes.*", mapping: keyword } },
          { spans: { path_match: "span.attributes.*", mapping: keyword } },
        ],
        properties: {
          ...prepperProperties,
          status: { properties: { code: { type: "integer" }, message: keyword } },
          events: {
            type: "nested",
            properties: { name: shortKeyword(1024), time: { type: "date_nanos" } },
          },
          links: { type: "nested" },
        },
      },
    },
  }),
  write: (prefix, spans) =>
    spans.map((span) => ({
      index: `${prefix}-otel-v1-apm-span-000001`,
      document: printJson({
        ...buildPrepperDocument(span),
        "status.code": prepperStatus[span.status_code],
        "status.message": span.status_message,
        ...replaceDots("span.attributes.", {
          ...span.span_attributes,
          ...(span.scope_name === undefined ? {} : { "otel.scope.name": span.scope_name }),
        }),
        ...(span.scope_version === undefined ? {} : { "instrumentationLibrary.version": span.scope_version }),
        ...replaceDots("resource.attributes.", span.resource_attributes),
        events: span.events.map(({ time, name, attributes }) => ({
          name,
          time: printNanos(time),
          attributes: replaceDots("", attributes),
          droppedAttributesCount: 0,
        })),
        links: span.links.map((link) => ({
          traceId: link.trace_id,
          spanId: link.span_id,
          traceState: link.trace_state,
          attributes: replaceDots("", link.attributes),
        })),
      }),
    })),
};

export const dataPrepper: SpanShipper = {
  name: "data-prepper",
  layout: "data-prepper",
  pattern: (prefix) => `${prefix}-otel-v1-apm-span-*`,
  indices: (prefix) => ({
    [`${prefix}-otel-v1-apm-span-000001`]: {
      settings,
      mappings: {
        date_detection: false,
        dynamic_templates: [
          { longs: { path_match: "*attributes.*", match_mapping_type: "long", mapping: { type: "long" } } },
          {
            texts: { path_match: "*attributes.*", match_mapping_type: "string", mapping: shortKeyword(256) },
          },
        ],
        properties: {
          ...prepperProperties,
          traceId: shortKeyword(32),
          spanId: shortKeyword(16),
          parentSpanId: shortKeyword(16),
          status: { properties: { code: { type: "integer" }, message: shortKeyword(2048) } },
          events: {
            type: "nested",
            properties: { name: shortKeyword(1024), time: { type: "date_nanos" } },
          },
          links: {
            type: "nested",
            properties: { traceId: shortKeyword(32), spanId: shortKeyword(16) },
          },
        },
      },
    },
  }),
  write: (prefix, spans) =>
    spans.map((span) => ({
      index: `${prefix}-otel-v1-apm-span-000001`,
      document: printJson({
        ...buildPrepperDocument(span),
        status: { code: prepperStatus[span.status_code], message: span.status_message ?? "" },
        attributes: span.span_attributes,
        resource: { attributes: span.resource_attributes, schemaUrl: "" },
        instrumentationScope: { name: span.scope_name ?? "", version: span.scope_version ?? "" },
        events: span.events.map(({ time, name, attributes }) => ({
          name,
          time: printNanos(time),
          attributes,
        })),
        links: span.links.map((link) => ({
          traceId: link.trace_id,
          spanId: link.span_id,
          traceState: link.trace_state,
          attributes: link.attributes,
        })),
      }),
    })),
};
