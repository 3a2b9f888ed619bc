// Spans in the form in which each shipper writes them, and the mappings that it installs, as far as the test servers
// have the field types. What a layout cannot carry is left out here as the shipper leaves it out.
import type { Attributes, AttributeValue, Span, SpanEvent } from "#src/core/rows.ts";
import { type Instant, printMillis, printNanos, toMillis } from "#src/core/time.ts";

type ShippedSpan = Omit<Span, "site_id" | "namespace" | "action" | "tags" | "peer" | "statement" | "report">;

interface ShippedDocuments {
  readonly index: string;
  /** The document's JSON text. */
  readonly document: string;
}
export interface SpanShipper {
  readonly name: string;
  /** The layout that must be detected. */
  readonly layout: string;
  /** The patterns that a site's `traces.index` names, for indices that begin with `prefix`. */
  readonly pattern: (prefix: string) => string;
  /** Index names and their definitions. */
  readonly indices: (prefix: string) => Readonly<Record<string, object>>;
  readonly write: (prefix: string, spans: readonly ShippedSpan[]) => readonly ShippedDocuments[];
}

/** JSON with bigints as numbers. */
function printJson(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map((element) => printJson(element ?? null)).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${printJson(member)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

const settings = { number_of_shards: 2, number_of_replicas: 0 };
const keyword = { type: "keyword" };
const shortKeyword = (ignore_above: number) => ({ type: "keyword", ignore_above });
const capitalise = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
const micros = (instant: bigint): bigint => instant / 1_000n;
const isException = ({ name }: SpanEvent): boolean => name === "exception";

// ---- otel: the collector's elasticsearch exporter ---------------------------------------------------------------

/** Milliseconds, a point, and the nanoseconds within, not padded. */
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

/** As the templates of Elasticsearch 8.17 and later set it: documents are rebuilt from the index, and sorted by host. */
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

/** Before there was a field for the names of events: an attribute has them. */
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

// ---- apm: Elastic APM server, with data that came as OTLP ---------------------------------------------------

const apmProperties = {
  "@timestamp": { type: "date" },
  timestamp: { properties: { us: { type: "long" } } },
  processor: { properties: { event: shortKeyword(1024), name: shortKeyword(1024) } },
  trace: { properties: { id: shortKeyword(1024) } },
  parent: { properties: { id: shortKeyword(1024) } },
  event: { properties: { outcome: shortKeyword(1024) } },
  destination: { properties: { address: shortKeyword(1024) } },
  service: {
    properties: {
      name: shortKeyword(1024),
      version: shortKeyword(1024),
      target: { properties: { name: shortKeyword(1024), type: shortKeyword(1024) } },
    },
  },
  transaction: {
    properties: {
      id: shortKeyword(1024),
      name: shortKeyword(1024),
      type: shortKeyword(1024),
      sampled: { type: "boolean" },
      duration: { properties: { us: { type: "long" } } },
    },
  },
  span: {
    properties: {
      id: shortKeyword(1024),
      name: shortKeyword(1024),
      kind: shortKeyword(1024),
      type: shortKeyword(1024),
      subtype: shortKeyword(1024),
      action: shortKeyword(1024),
      destination: { properties: { service: { properties: { resource: shortKeyword(1024) } } } },
      duration: { properties: { us: { type: "long" } } },
      composite: {
        properties: { count: { type: "long" }, sum: { properties: { us: { type: "long" } } } },
      },
      db: { properties: { statement: { type: "text" } } },
      links: {
        properties: {
          trace: { properties: { id: shortKeyword(1024) } },
          span: { properties: { id: shortKeyword(1024) } },
        },
      },
    },
  },
  error: {
    properties: {
      id: shortKeyword(1024),
      grouping_key: shortKeyword(1024),
      exception: {
        properties: {
          type: shortKeyword(1024),
          message: { type: "text" },
          stacktrace: { type: "object", dynamic: false },
        },
      },
    },
  },
  labels: { type: "object", dynamic: true },
  numeric_labels: { type: "object", dynamic: true },
};
const apmDefinition = {
  settings,
  mappings: {
    properties: apmProperties,
    dynamic_templates: [
      // One type for whole and broken numbers, as the server's template has it; `scaled_float` is not on the tests' servers.
      { numbers: { path_match: "numeric_labels.*", mapping: { type: "double" } } },
      { texts: { match_mapping_type: "string", mapping: shortKeyword(1024) } },
    ],
  },
};

/** Where an attribute is kept that is no label, and the kind of work that it tells. */
interface ApmField {
  readonly at: readonly (readonly string[])[];
  readonly tells?: "http" | "rpc" | "messaging" | "db";
  /** It is a label as well. */
  readonly label?: boolean;
}
const apmHttp: Readonly<Record<string, ApmField>> = {
  "http.request.method": { at: [["http", "request", "method"]], tells: "http" },
  "http.response.status_code": { at: [["http", "response", "status_code"]], tells: "http" },
  "url.full": { at: [["url", "full"]], tells: "http" },
  "rpc.system": { at: [], tells: "rpc" },
  "rpc.service": { at: [] },
  "rpc.method": { at: [] },
};
const apmTransactionFields: Readonly<Record<string, ApmField>> = {
  ...apmHttp,
  "messaging.destination.name": { at: [["transaction", "message", "queue", "name"]], tells: "messaging" },
  "messaging.system": { at: [], tells: "messaging", label: true },
  "messaging.operation.type": { at: [], tells: "messaging", label: true },
  "server.address": { at: [] },
  "net.peer.name": { at: [["client", "domain"]] },
};
const apmSpanFields: Readonly<Record<string, ApmField>> = {
  ...apmHttp,
  "db.query.text": { at: [["span", "db", "statement"]], tells: "db" },
  "db.namespace": {
    at: [
      ["span", "db", "instance"],
      ["service", "target", "name"],
    ],
    tells: "db",
  },
  "db.system": {
    at: [
      ["span", "subtype"],
      ["span", "db", "type"],
      ["span", "destination", "service", "resource"],
      ["service", "target", "type"],
    ],
    tells: "db",
  },
  "messaging.destination.name": {
    at: [
      ["span", "message", "queue", "name"],
      ["service", "target", "name"],
    ],
    tells: "messaging",
  },
  "messaging.system": { at: [["span", "subtype"]], tells: "messaging" },
  "messaging.operation.type": { at: [["span", "action"]], tells: "messaging" },
  "server.address": { at: [["destination", "address"]] },
  "net.peer.name": { at: [["destination", "address"]] },
  "peer.service": {
    at: [
      ["span", "destination", "service", "resource"],
      ["service", "target", "name"],
    ],
  },
};

/** A kind is kept only as far as the type and the action of what is done tell it. */
function buildApmFields(span: ShippedSpan, tells: ReadonlySet<ApmField["tells"]>): object {
  if (span.entry) {
    const asks = tells.has("http") || tells.has("rpc");
    return {
      transaction: { type: tells.has("messaging") ? "messaging" : asks ? "request" : "unknown" },
    };
  }
  const target = (type: string) => ({ service: { target: { type } } });
  if (tells.has("db")) return { span: { type: "db" }, ...target("db") };
  if (tells.has("messaging")) {
    const action = span.span_kind === "producer" ? "send" : undefined;
    return { span: { type: "messaging", action }, ...target("messaging") };
  }
  if (tells.has("rpc")) return { span: { type: "external" }, ...target("external") };
  if (tells.has("http")) return { span: { type: "external", subtype: "http" }, ...target("http") };
  return {
    span: span.span_kind === "internal" ? { type: "app", subtype: "internal" } : { type: "unknown" },
  };
}

function splitApmLabels(attributes: Attributes): { labels: Attributes; numeric_labels: Attributes } {
  const labels: Record<string, AttributeValue> = {};
  const numbers: Record<string, AttributeValue> = {};
  for (const [key, value] of Object.entries(attributes)) {
    const label = key.replace(/[.*"]/g, "_");
    if (typeof value === "number" || typeof value === "bigint") numbers[label] = value;
    else labels[label] = typeof value === "string" ? value.slice(0, 1024) : printJson(value);
  }
  return { labels, numeric_labels: numbers };
}

/** What is there already stays. */
function mergeInto(target: Record<string, unknown>, from: object): void {
  for (const [key, value] of Object.entries(from)) {
    const own = target[key];
    if (typeof own === "object" && own !== null && typeof value === "object" && value !== null) {
      const inner = { ...own };
      mergeInto(inner, value);
      target[key] = inner;
    } else target[key] ??= value;
  }
}

function nestValue(path: readonly string[], value: unknown): object {
  return path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value) as object;
}

function buildApmDocuments(
  span: ShippedSpan,
): readonly { readonly event: string; readonly document: string }[] {
  const {
    "service.name": _,
    "service.version": version,
    "deployment.environment.name": environment,
    "host.name": host,
    ...others
  } = span.resource_attributes;
  const common = {
    trace: { id: span.trace_id },
    service: { name: span.service_name, version, environment },
    host: host === undefined ? undefined : { name: host, hostname: host },
    agent: { name: "otlp" },
  };
  const fields = span.entry ? apmTransactionFields : apmSpanFields;
  const own = Object.entries(span.span_attributes).flatMap(([key, value]) => {
    const field = Object.hasOwn(fields, key) ? fields[key] : undefined;
    return field === undefined ? [] : [{ key, value, field }];
  });
  const kept = new Set(own.filter(({ field }) => !field.label).map(({ key }) => key));
  const labels = Object.entries({ ...others, ...span.span_attributes }).filter(([key]) => !kept.has(key));
  const links = span.links.map(({ trace_id, span_id }) => ({
    trace: { id: trace_id },
    span: { id: span_id },
  }));
  const duration = { us: micros(span.end) - micros(span.start) };
  // What has no status is taken for a success.
  const outcome = span.status_code === "ERROR" ? "failure" : "success";
  const document: Record<string, unknown> = {
    ...common,
    "@timestamp": printMillis(toMillis(span.start)),
    timestamp: { us: micros(span.start) },
    processor: { event: span.entry ? "transaction" : "span", name: "transaction" },
    parent: span.parent_span_id === undefined ? undefined : { id: span.parent_span_id },
    event: { outcome },
    ...splitApmLabels(Object.fromEntries(labels)),
    ...(span.entry
      ? {
          transaction: { id: span.span_id, name: span.span_name, sampled: true, duration },
          span: { id: span.span_id },
        }
      : { span: { id: span.span_id, name: span.span_name, duration } }),
  };
  if (links.length > 0) mergeInto(document, { span: { links } });
  // Elastic's own agents compress; nothing else here is theirs.
  if (span.count > 1) mergeInto(document, { span: { composite: { count: span.count, sum: duration } } });
  if (span.scope_name !== undefined) {
    mergeInto(document, { service: { framework: { name: span.scope_name, version: span.scope_version } } });
  }
  for (const { value, field } of own)
    for (const path of field.at) mergeInto(document, nestValue(path, value));
  mergeInto(document, buildApmFields(span, new Set(own.map(({ field }) => field.tells))));
  const errors = span.events.filter(isException).map((event, at) => ({
    ...common,
    "@timestamp": printMillis(toMillis(event.time)),
    timestamp: { us: micros(event.time) },
    processor: { event: "error", name: "error" },
    parent: { id: span.span_id },
    ...(span.entry ? { transaction: { id: span.span_id, sampled: true }, span: { id: span.span_id } } : {}),
    error: {
      id: `${span.span_id}${at}`.padStart(32, "0"),
      grouping_key: String(event.attributes["exception.type"]),
      exception: [
        {
          type: event.attributes["exception.type"],
          message: event.attributes["exception.message"],
          handled: false,
          stacktrace: [{ filename: "a.js", line: { number: 3 } }],
        },
      ],
      stack_trace: event.attributes["exception.stacktrace"],
    },
    labels:
      event.attributes["appsignal.incident_digest"] === undefined
        ? undefined
        : { appsignal_incident_digest: event.attributes["appsignal.incident_digest"] },
  }));
  return [
    { event: span.entry ? "transaction" : "span", document: printJson(document) },
    ...errors.map((error) => ({ event: "error", document: printJson(error) })),
  ];
}

export const apm: SpanShipper = {
  name: "apm",
  layout: "apm",
  pattern: (prefix) => `${prefix}-traces-apm*,${prefix}-logs-apm.error-*`,
  indices: (prefix) => ({
    [`${prefix}-traces-apm-default`]: apmDefinition,
    [`${prefix}-logs-apm.error-default`]: apmDefinition,
  }),
  write: (prefix, spans) =>
    spans.flatMap(buildApmDocuments).map(({ event, document }) => ({
      index: `${prefix}-${event === "error" ? "logs-apm.error-default" : "traces-apm-default"}`,
      document,
    })),
};

/** One index for everything, as APM server 7 wrote it. */
export const apm7: SpanShipper = {
  name: "apm 7",
  layout: "apm",
  pattern: (prefix) => `${prefix}-apm-*`,
  indices: (prefix) => ({ [`${prefix}-apm-7.17.29`]: apmDefinition }),
  write: (prefix, spans) =>
    spans.flatMap(buildApmDocuments).map(({ document }) => ({ index: `${prefix}-apm-7.17.29`, document })),
};

// ---- data-prepper -------------------------------------------------------------------------------------------------

function replaceDots(prefix: string, attributes: Attributes): Attributes {
  return Object.fromEntries(
    Object.entries(attributes).map(([key, value]) => [prefix + key.replaceAll(".", "@"), value]),
  );
}

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

// ---- jaeger -------------------------------------------------------------------------------------------------------

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

/** `fields` writes tags as fields with `@` for dots, the other way that Jaeger can be set to. */
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

// ---- ss4o: the collector's opensearch exporter ----------------------------------------------------------------------

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

/** Older versions install no template: everything is mapped as it comes. */
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
