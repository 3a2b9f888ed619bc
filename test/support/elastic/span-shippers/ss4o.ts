// Spans as the collector's opensearch exporter writes them.
import { printNanos } from "#src/core/time.ts";
import { capitalise, keyword, printJson, type SpanShipper, settings, shortKeyword } from "./shipper.ts";

function createSs4oShipper(name: string, definition: object): SpanShipper {
  return {
    name,
    layout: "ss4o",
    pattern: (prefix) => `${prefix}-ss4o_traces-*`,
    indices: (prefix) => ({ [`${prefix}-ss4o_traces-default-namespace`]: definition }),
    write: (prefix, spans) =>
      spans.map((span) => ({
        index: `${prefix}-ss4o_traces-default-namespace`,
        document: printJson({
          "@timestamp": "0001-01-01T00:00:00Z",
          traceId: span.trace_id,
          spanId: span.span_id,
          parentSpanId: span.parent_span_id ?? "",
          traceState: span.trace_state,
          name: span.span_name,
          kind: capitalise(span.span_kind),
          startTime: printNanos(span.start),
          endTime: printNanos(span.end),
          status: { code: capitalise(span.status_code.toLowerCase()), message: span.status_message ?? "" },
          attributes: {
            ...span.span_attributes,
            data_stream: { dataset: "default", namespace: "namespace", type: "span" },
          },
          resource: Object.fromEntries(
            Object.entries(span.resource_attributes).map(([key, value]) => [
              key,
              typeof value === "string" ? value : printJson(value),
            ]),
          ),
          instrumentationScope: { name: span.scope_name ?? "", version: span.scope_version ?? "" },
          events: span.events.map(({ time, name, attributes }) => ({
            "@timestamp": printNanos(time),
            name,
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
}

/** Older versions install no template: everything is mapped dynamically. */
export const ss4oBare = createSs4oShipper("ss4o, no template", { settings });
export const ss4o = createSs4oShipper("ss4o", {
  settings,
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      traceId: shortKeyword(256),
      spanId: shortKeyword(256),
      parentSpanId: shortKeyword(256),
      name: shortKeyword(1024),
      kind: shortKeyword(128),
      startTime: { type: "date_nanos" },
      endTime: { type: "date_nanos" },
      status: { properties: { code: keyword, message: keyword } },
      attributes: { type: "flat_object" },
      resource: { type: "flat_object" },
      events: {
        type: "nested",
        properties: {
          name: shortKeyword(256),
          "@timestamp": { type: "date_nanos" },
          attributes: { type: "object", dynamic: false },
        },
      },
      links: {
        type: "nested",
        properties: {
          traceId: shortKeyword(256),
          spanId: shortKeyword(256),
          attributes: { type: "object", dynamic: false },
        },
      },
    },
  },
});
