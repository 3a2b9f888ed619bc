// Log lines as each shipper writes them, and the mappings that it installs, as far as the test servers have the field types.
// Those of whole platforms are in `platform-log-shippers.ts`.
import { parseSeverity } from "#src/core/severity-words.ts";
import { parseInstant, printMillis, toMillis } from "#src/core/time.ts";
import {
  insertMember,
  keyword,
  type LogShipper,
  printObject,
  type ShippableLine,
  settings,
  syslogCodes,
} from "./log-documents.ts";

export type { LogShipper, ShippableLine };

function readNanos(time: string | undefined): bigint {
  const instant = parseInstant(time ?? "");
  if (instant === undefined) throw new Error(`no time: ${time}`);
  return instant;
}

const numbers: Readonly<Record<string, number>> = {
  trace: 1,
  debug: 5,
  info: 9,
  notice: 10,
  warn: 13,
  error: 17,
  critical: 18,
  alert: 19,
  fatal: 21,
};
/** Texts that OpenTelemetry has a number for. */
const toSeverityNumber = (severity = ""): number | undefined => numbers[severity.toLowerCase()];

// ---- otel: the collector's elasticsearch exporter ---------------------------------------------------------------

const passthrough = (priority: number) => ({ type: "passthrough", dynamic: true, priority });

export const otelLogs: LogShipper = {
  layout: "otel",
  index: (prefix) => `${prefix}-logs-generic.otel-default`,
  definition: {
    settings,
    mappings: {
      dynamic: false,
      properties: {
        "@timestamp": { type: "date" },
        observed_timestamp: { type: "date_nanos" },
        data_stream: { properties: { type: keyword(), dataset: keyword(), namespace: keyword() } },
        severity_text: keyword(),
        severity_number: { type: "byte" },
        "log.level": { type: "alias", path: "severity_text" },
        message: { type: "alias", path: "body.text" },
        event_name: keyword(),
        trace_id: keyword(),
        span_id: keyword(),
        attributes: passthrough(20),
        scope: { properties: { name: keyword(1024), version: keyword(1024), attributes: passthrough(30) } },
        resource: { properties: { attributes: passthrough(40) } },
        body: {
          properties: {
            text: { type: "text" },
            structured: { type: "passthrough", dynamic: true, priority: 10 },
            flattened: { type: "flattened" },
          },
        },
      },
      dynamic_templates: [
        { texts: { match_mapping_type: "string", mapping: keyword(1024) } },
        { objects: { match_mapping_type: "object", mapping: { type: "flattened" } } },
      ],
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const nanos = readNanos(time);
    const millis = toMillis(nanos as Parameters<typeof toMillis>[0]);
    const record = printObject({
      "@timestamp": `${millis}.${nanos - BigInt(millis) * 1_000_000n}`,
      observed_timestamp: `${millis + 3}.0`,
      data_stream: { type: "logs", dataset: "generic.otel", namespace: "default" },
      severity_text: severity,
      severity_number: toSeverityNumber(severity),
      resource: { attributes: { "service.name": group, "host.name": hostname } },
      scope: {},
      ...(message === undefined ? {} : { body: { text: message } }),
    });
    return insertMember(record, "attributes", json);
  },
};

/** An APM server's record of OTLP, since version 8.11: most instrumentations send only the number of the severity. */
export const elasticApmLogs: LogShipper = {
  layout: "elastic-apm",
  index: (prefix) => `${prefix}-logs-apm.app.shop-default`,
  definition: {
    settings,
    mappings: {
      date_detection: false,
      properties: { "@timestamp": { type: "date" }, message: { type: "text" } },
      dynamic_templates: [{ texts: { match_mapping_type: "string", mapping: keyword(1024) } }],
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const number = toSeverityNumber(severity) ?? 0;
    const record = {
      "@timestamp": time,
      agent: { name: "opentelemetry/java", version: "1.30.0" },
      // The server leaves out a zero.
      event: { ...(number === 0 ? {} : { severity: number }), dataset: group },
      observer: { hostname: "apm-1", type: "apm-server", version: "9.2.0" },
      // Numbers between those of the six names are less exact than their texts.
      log: number % 4 === 1 ? {} : { level: severity },
      message,
      ...(hostname === undefined ? {} : { host: { hostname, name: hostname } }),
      service: { name: group, framework: { name: "com.acme.Logger" }, language: { name: "java" } },
    };
    return printObject(record, json);
  },
};

// ---- ss4o: the collector's opensearch exporter -----------------------------------------------------------------

function createSs4oLogs(mappings: object): LogShipper {
  return {
    layout: "ss4o",
    index: (prefix) => `${prefix}-ss4o_logs-default-namespace`,
    definition: { settings, mappings },
    document({ time, severity, message, hostname, group, json }) {
      const record = printObject({
        // The exporter writes an absent body as an empty text; tests need to distinguish the two.
        body: message,
        instrumentationScope: {},
        observedTimestamp: time,
        resource: { "service.name": group, "host.name": hostname },
        severity: { text: severity, number: toSeverityNumber(severity) },
        "@timestamp": time,
      });
      const stream = { data_stream: { dataset: "default", namespace: "namespace", type: "record" } };
      return insertMember(record, "attributes", printObject(stream, json));
    },
  };
}
/** Older versions install no template. */
export const ss4oLogsDynamic = createSs4oLogs({});
export const ss4oLogsFlat = createSs4oLogs({
  properties: {
    attributes: { type: "flat_object" },
    resource: { type: "flat_object" },
    instrumentationScope: { properties: { attributes: { type: "flat_object" } } },
  },
});

// ---- data-prepper: its log pipeline -----------------------------------------------------------------------------

const typedAttributes = (path: string) => [
  { [`long_${path}`]: { mapping: { type: "long" }, path_match: `${path}.*`, match_mapping_type: "long" } },
  {
    [`double_${path}`]: {
      mapping: { type: "double" },
      path_match: `${path}.*`,
      match_mapping_type: "double",
    },
  },
  {
    [`string_${path}`]: { mapping: keyword(256), path_match: `${path}.*`, match_mapping_type: "string" },
  },
];
const nanosField = { type: "date_nanos" };

/** The standard template, and the documents of the newer codec. */
export const dataPrepperLogs: LogShipper = {
  layout: "data-prepper",
  index: (prefix) => `${prefix}-logs-otel-v1-000001`,
  definition: {
    settings,
    mappings: {
      date_detection: false,
      dynamic_templates: [
        ...typedAttributes("resource.attributes"),
        ...typedAttributes("instrumentationScope.attributes"),
        ...typedAttributes("attributes"),
      ],
      properties: {
        droppedAttributesCount: { type: "integer" },
        instrumentationScope: { properties: { name: keyword(128), version: keyword(64) } },
        resource: { properties: { droppedAttributesCount: { type: "integer" } } },
        severity: { properties: { number: { type: "integer" }, text: keyword(32) } },
        body: { type: "text" },
        "@timestamp": nanosField,
        time: nanosField,
        observedTime: nanosField,
        traceId: keyword(32),
        spanId: keyword(16),
        flags: { type: "long" },
      },
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const record = printObject({
      traceId: "",
      spanId: "",
      time,
      "@timestamp": time,
      observedTime: time,
      severity: { number: toSeverityNumber(severity) ?? 0, text: severity ?? "" },
      body: message,
      flags: 0,
      droppedAttributesCount: 0,
      resource: { attributes: { "service.name": group, "host.name": hostname } },
      instrumentationScope: {},
    });
    return insertMember(record, "attributes", json);
  },
};

/** The older template, and the documents of the older codec, which prints lists and maps as texts. */
export const olderDataPrepperLogs: LogShipper = {
  layout: "data-prepper",
  index: (prefix) => `${prefix}-logs-otel-v1-000001`,
  definition: {
    settings,
    mappings: {
      date_detection: false,
      dynamic_templates: [
        { resource: { mapping: keyword(), path_match: "resource.attributes.*" } },
        { log: { mapping: keyword(), path_match: "log.attributes.*" } },
      ],
      properties: {
        severity: { properties: { number: { type: "long" }, text: keyword() } },
        body: { type: "text" },
        "@timestamp": nanosField,
        time: nanosField,
        observedTimestamp: nanosField,
        observedTime: { type: "alias", path: "observedTimestamp" },
        traceId: keyword(256),
        spanId: keyword(256),
        instrumentationScope: { properties: { name: keyword(), version: keyword() } },
      },
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const attributes: [string, unknown][] = Object.entries(JSON.parse(json));
    return printObject({
      traceId: "",
      spanId: "",
      severityText: severity ?? "",
      severityNumber: toSeverityNumber(severity) ?? 0,
      flags: 0,
      time,
      serviceName: group,
      body: message,
      "resource.attributes.host@name": hostname,
      "resource.attributes.service@name": group,
      ...Object.fromEntries(
        attributes.map(([key, value]) => [
          `log.attributes.${key.replaceAll(".", "@")}`,
          typeof value === "object" && value !== null ? JSON.stringify(value) : value,
        ]),
      ),
    });
  },
};

// ---- without a schema: everything is mapped dynamically -------------------------------------------------------------

export const fluentBitLogs: LogShipper = {
  layout: "fluent-bit",
  index: (prefix) => `${prefix}-fluent-bit-2026.01.15`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      "@timestamp": time,
      ...(message === undefined ? {} : { log: `${message}\n` }),
      level: severity,
      kubernetes: { pod_name: "web-1", pod_id: "p1", host: hostname, container_name: group },
    };
    return printObject(record, json);
  },
};

export const fluentdLogs: LogShipper = {
  layout: "fluentd",
  index: (prefix) => `${prefix}-fluentd-2026.01.15`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      "@timestamp": time,
      "@log_name": "app.web",
      message,
      level: severity,
      hostname,
      ident: group,
    };
    return printObject(record, json);
  },
};

/** The dynamic template of the message, as all of Logstash's templates have it. */
const buildMessageMapping = (mapping: object) => ({
  message: { path_match: "message", match_mapping_type: "string", mapping },
});

/** The record's own fields, as the collector's elasticsearch exporter writes them without a schema. */
const toCollectedRecord = ({ time, severity, message, hostname, group }: ShippableLine) => ({
  "@timestamp": time,
  TraceFlags: 0,
  SeverityText: severity,
  SeverityNumber: toSeverityNumber(severity) ?? 0,
  Body: message,
  Resource: { service: { name: group }, host: { name: hostname } },
  Scope: {},
});

/** The exporter in its `none` mode. */
export const otelNoneLogs: LogShipper = {
  layout: "otel-none",
  index: (prefix) => `${prefix}-logs-generic-default`,
  definition: { settings },
  document: (line) => insertMember(printObject(toCollectedRecord(line)), "Attributes", line.json),
};

/** The exporter in its `raw` mode: attributes lie beside the record's own fields. */
export const otelRawLogs: LogShipper = {
  ...otelNoneLogs,
  layout: "otel-raw",
  document: (line) => printObject(toCollectedRecord(line), line.json),
};

/** The collector's opensearch exporter without the schema of ss4o: keys keep their dots, and a text is below `Body`. */
function createExportedLogs(layout: string, mode: string, prefix: string): LogShipper {
  return {
    layout: layout,
    index: (name) => `${name}-otel-${mode}`,
    definition: { settings },
    document: ({ time, severity, message, hostname, group, json }) =>
      printObject(
        {
          [`${prefix}service.name`]: group,
          [`${prefix}host.name`]: hostname,
          "@timestamp": time,
          TraceFlags: 0,
          SeverityText: severity,
          SeverityNumber: toSeverityNumber(severity) ?? 0,
          "Body.value": message,
        },
        // The exporter writes maps among the attributes key by key; the shipped test lines have none.
        json.replace(/(?<=[{,]\s*")(?=\w+"\s*:)/g, prefix),
      ),
  };
}
export const exportedEcsLogs = createExportedLogs("otel-none", "ecs", "Attributes.");
export const exportedFlatLogs = createExportedLogs("otel-raw", "flat", "");

/** Lines of pino with labels as levels, sent unchanged: the time is a number, which no mapping makes a date. */
export const pinoLogs: LogShipper = {
  layout: "pino",
  index: (prefix) => `${prefix}-pino`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const millis = toMillis(readNanos(time) as Parameters<typeof toMillis>[0]);
    return printObject({ level: severity, time: millis, pid: 7, hostname, name: group, msg: message }, json);
  },
};

/** Graylog's index template, and a message of its GELF input. */
export const graylogLogs: LogShipper = {
  layout: "graylog",
  index: (prefix) => `${prefix}-graylog_0`,
  definition: {
    settings: {
      ...settings,
      analysis: { analyzer: { analyzer_keyword: { tokenizer: "keyword", filter: "lowercase" } } },
    },
    mappings: {
      dynamic_templates: [
        { internal_fields: { match: "gl2_*", match_mapping_type: "string", mapping: keyword() } },
        { store_generic: { match_mapping_type: "string", mapping: keyword() } },
      ],
      properties: {
        message: { type: "text", analyzer: "standard" },
        full_message: { type: "text", analyzer: "standard" },
        source: { type: "text", analyzer: "analyzer_keyword", fielddata: true },
        streams: keyword(),
        timestamp: { type: "date", format: "uuuu-MM-dd HH:mm:ss.SSS" },
        gl2_accounted_message_size: { type: "long" },
        gl2_receive_timestamp: { type: "date", format: "uuuu-MM-dd HH:mm:ss.SSS" },
      },
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const millis = toMillis(readNanos(time) as Parameters<typeof toMillis>[0]);
    const timestamp = printMillis(millis).replace("T", " ").slice(0, -1);
    const record = {
      gl2_message_id: "01",
      gl2_source_input: "in-1",
      streams: ["000000000000000000000001"],
      timestamp,
      message,
      source: hostname,
      facility: group,
      level: syslogCodes[parseSeverity(severity)],
    };
    return printObject(record, json);
  },
};

/** syslog-ng's elasticsearch-http with its own template, whose group is the program. */
export const syslogNgLogs: LogShipper = {
  layout: "syslog-ng",
  index: (prefix) => `${prefix}-syslog-ng`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      PROGRAM: group,
      PRIORITY: severity,
      MESSAGE: message,
      ISODATE: time,
      HOST: hostname,
      "@timestamp": time,
    };
    return printObject(record, json);
  },
};

/** rsyslog's omelasticsearch with its own template, whose group is the facility. */
export const rsyslogLogs: LogShipper = {
  layout: "rsyslog",
  index: (prefix) => `${prefix}-system`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      message,
      fromhost: hostname,
      facility: group,
      priority: severity,
      timereported: time,
      timegenerated: time,
    };
    return printObject(record, json);
  },
};

/** Vector's elasticsearch sink: a line of its file source, parsed by a transform. */
export const vectorLogs: LogShipper = {
  layout: "plain",
  index: (prefix) => `${prefix}-vector-2026.01.15`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      timestamp: time,
      source_type: "file",
      message,
      level: severity,
      host: hostname,
      file: group,
    };
    return printObject(record, json);
  },
};

/** Logstash 8 at its defaults: a line of its syslog input, whose group is the file that relayed it. */
export const logstashEcsLogs: LogShipper = {
  layout: "ecs",
  index: (prefix) => `${prefix}-logs-generic-default`,
  definition: {
    settings,
    mappings: {
      dynamic_templates: [
        buildMessageMapping({ type: "text" }),
        { texts: { match_mapping_type: "string", mapping: keyword(1024) } },
      ],
      properties: { "@timestamp": { type: "date" }, "@version": keyword() },
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const code = syslogCodes[severity?.toLowerCase() ?? ""];
    const record = {
      "@timestamp": time,
      "@version": "1",
      ...(message === undefined ? {} : { message, event: { original: message } }),
      host: { hostname },
      log: { syslog: { severity: { name: severity, code } }, file: { path: group } },
    };
    return printObject(record, json);
  },
};
export const logstashLogs: LogShipper = {
  layout: "logstash",
  index: (prefix) => `${prefix}-logstash-2026.01.15`,
  definition: {
    settings,
    mappings: {
      dynamic_templates: [
        buildMessageMapping({ type: "text", norms: false }),
        {
          texts: {
            match: "*",
            match_mapping_type: "string",
            mapping: { type: "text", norms: false, fields: { keyword: keyword(256) } },
          },
        },
      ],
      properties: { "@timestamp": { type: "date" }, "@version": keyword() },
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      "@timestamp": time,
      "@version": "1",
      message,
      level: severity,
      host: hostname,
      type: group,
    };
    return printObject(record, json);
  },
};
