// Spans as the collector's elasticsearch exporter writes them.
import { type Instant, toMillis } from "#src/core/time.ts";
import { capitalise, keyword, printJson, type SpanShipper, settings, shortKeyword } from "./shipper.ts";

/** Milliseconds, a point, and the remaining nanoseconds without padding. */
function printCollectorTime(instant: Instant): string {
  const millis = toMillis(instant);
  return `${millis}.${instant - BigInt(millis) * 1_000_000n}`;
}

function buildOtelMappings(properties: object): object {
  return {
    settings,
    mappings: {
      dynamic: false,
      properties: {
        "@timestamp": { type: "date" },
        data_stream: { properties: { type: keyword, dataset: keyword, namespace: keyword } },
        attributes: { type: "passthrough", dynamic: true, priority: 20 },
        resource: { properties: { attributes: { type: "passthrough", dynamic: true, priority: 40 } } },
        scope: {
          properties: {
            name: shortKeyword(1024),
            version: shortKeyword(1024),
            attributes: { type: "passthrough", dynamic: true, priority: 30 },
          },
        },
        trace_id: keyword,
        span_id: keyword,
        ...properties,
      },
      dynamic_templates: [
        { texts: { match_mapping_type: "string", mapping: shortKeyword(1024) } },
        { objects: { match_mapping_type: "object", mapping: { type: "flattened" } } },
      ],
    },
  };
}

export const otel: SpanShipper = {
  name: "otel",
  layout: "otel",
  pattern: (prefix) => `${prefix}-traces-*.otel-*,${prefix}-logs-*.otel-*`,
  indices: (prefix) => ({
    [`${prefix}-traces-generic.otel-default`]: buildOtelMappings({
      parent_span_id: keyword,
      trace_state: keyword,
      name: keyword,
      kind: keyword,
      duration: { type: "long", meta: { unit: "nanos" } },
      status: { properties: { code: keyword, message: keyword } },
      links: {
        properties: {
          trace_id: keyword,
          span_id: keyword,
          trace_state: keyword,
          attributes: { type: "object", dynamic: true },
        },
      },
    }),
    [`${prefix}-logs-generic.otel-default`]: buildOtelMappings({
      event_name: keyword,
      severity_text: keyword,
      severity_number: { type: "byte" },
      body: { properties: { text: { type: "text" } } },
    }),
  }),
  write: (prefix, spans) =>
    spans.flatMap((span) => {
      const resource = { attributes: span.resource_attributes };
      const scope =
        span.scope_name === undefined ? {} : { name: span.scope_name, version: span.scope_version };
      const document = {
        "@timestamp": printCollectorTime(span.start),
        data_stream: { type: "traces", dataset: "generic.otel", namespace: "default" },
        trace_id: span.trace_id,
        span_id: span.span_id,
        parent_span_id: span.parent_span_id,
        trace_state: span.trace_state,
        name: span.span_name,
        kind: capitalise(span.span_kind),
        duration: span.end - span.start,
        attributes: span.span_attributes,
        links: span.links.length === 0 ? undefined : span.links,
        status: {
          code: span.status_code === "UNSET" ? "Unset" : capitalise(span.status_code.toLowerCase()),
          message: span.status_message,
        },
        resource,
        scope,
      };
      const events = span.events.map((event) => ({
        "@timestamp": printCollectorTime(event.time),
        data_stream: { type: "logs", dataset: "generic.otel", namespace: "default" },
        trace_id: span.trace_id,
        span_id: span.span_id,
        event_name: event.name,
        attributes: { "event.name": event.name, ...event.attributes },
        resource,
        scope,
      }));
      return [
        { index: `${prefix}-traces-generic.otel-default`, document: printJson(document) },
        ...events.map((event) => ({
          index: `${prefix}-logs-generic.otel-default`,
          document: printJson(event),
        })),
      ];
    }),
};

/** The settings of templates since Elasticsearch 8.17: documents are rebuilt from the index, and sorted by host. */
const logsdb = {
  ...settings,
  mode: "logsdb",
  sort: { field: ["resource.attributes.host.name", "@timestamp"] },
  mapping: { ignore_malformed: true, total_fields: { ignore_dynamic_beyond_limit: true } },
};
const hosted = {
  type: "passthrough",
  dynamic: true,
  priority: 40,
  properties: { "host.name": shortKeyword(1024) },
};

export const otelLogsdb: SpanShipper = {
  name: "otel, logsdb",
  layout: "otel",
  pattern: otel.pattern,
  indices: (prefix) =>
    Object.fromEntries(
      Object.entries(otel.indices(prefix)).map(([index, definition]) => {
        const { mappings } = definition as { readonly mappings: { readonly properties: object } };
        const properties = { ...mappings.properties, resource: { properties: { attributes: hosted } } };
        return [index, { settings: { index: logsdb }, mappings: { ...mappings, properties } }];
      }),
    ),
  write: otel.write,
};

/** Older documents, which have the names of events in an attribute instead of a field. */
export const otelOlder: SpanShipper = {
  name: "otel, older template",
  layout: "otel",
  pattern: otel.pattern,
  indices: (prefix) => ({
    ...otel.indices(prefix),
    [`${prefix}-logs-generic.otel-default`]: buildOtelMappings({
      severity_text: keyword,
      severity_number: { type: "byte" },
      body: { properties: { text: { type: "text" } } },
    }),
  }),
  write: (prefix, spans) =>
    otel.write(prefix, spans).map(({ index, document }, at) => ({
      index,
      // Newer collectors write to older templates as well.
      document: at % 2 === 0 ? document : document.replace(/"event_name":"[^"]*",/, ""),
    })),
};
