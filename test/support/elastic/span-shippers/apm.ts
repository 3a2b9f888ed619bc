// Spans as an Elastic APM server writes them, with data that came as OTLP.
import type { Attributes, AttributeValue } from "#src/core/rows.ts";
import { printInstantToMilli } from "#src/core/time.ts";
import {
  isException,
  micros,
  printJson,
  type ShippedSpan,
  type SpanShipper,
  settings,
  shortKeyword,
} from "./shipper.ts";

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
      // One type for integers and fractions, as in the server's template; the test servers lack `scaled_float`.
      { numbers: { path_match: "numeric_labels.*", mapping: { type: "double" } } },
      { texts: { match_mapping_type: "string", mapping: shortKeyword(1024) } },
    ],
  },
};

/** Where an attribute is stored that is no label, and the kind of work that it shows. */
interface ApmField {
  readonly at: readonly (readonly string[])[];
  readonly tells?: "http" | "rpc" | "messaging" | "db";
  /** Whether it is stored as a label too. */
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

/** The kind of a span is kept only as far as its type and action show it. */
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

/** Existing values stay. */
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

function buildApmErrors(span: ShippedSpan, common: object): readonly object[] {
  return span.events.filter(isException).map((event, at) => ({
    ...common,
    "@timestamp": printInstantToMilli(event.time),
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
        },
      ],
      stack_trace: event.attributes["exception.stacktrace"],
    },
    labels:
      event.attributes["appsignal.incident_digest"] === undefined
        ? undefined
        : { appsignal_incident_digest: event.attributes["appsignal.incident_digest"] },
  }));
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
  // A span without a status counts as a success.
  const outcome = span.status_code === "ERROR" ? "failure" : "success";
  const document: Record<string, unknown> = {
    ...common,
    "@timestamp": printInstantToMilli(span.start),
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
  // Only Elastic's own agents compress spans; nothing else here is theirs.
  if (span.count > 1) mergeInto(document, { span: { composite: { count: span.count, sum: duration } } });
  if (span.scope_name !== undefined) {
    mergeInto(document, { service: { framework: { name: span.scope_name, version: span.scope_version } } });
  }
  for (const { value, field } of own)
    for (const path of field.at) mergeInto(document, nestValue(path, value));
  mergeInto(document, buildApmFields(span, new Set(own.map(({ field }) => field.tells))));
  return [
    { event: span.entry ? "transaction" : "span", document: printJson(document) },
    ...buildApmErrors(span, common).map((error) => ({ event: "error", document: printJson(error) })),
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
