// Log lines as platforms and security tools have them written: Logstash's gelf input, Wazuh, OpenShift's log forwarding, Logsearch
// for Cloud Foundry and pods. Further shippers are in `log-shippers.ts`.
import { parseSeverity } from "#src/core/severity-words.ts";
import {
  keyword,
  type LogShipper,
  printObject,
  type ShippableLine,
  settings,
  syslogCodes,
} from "./log-documents.ts";
import { logstashLogs } from "./log-shippers.ts";

/**
 * A message of a logger's GELF appender, which the input has renamed from the full one. GELF has no trace, so the logger's own
 * name of it stands beside the number.
 */
export const gelfLogs: LogShipper = {
  layout: "gelf",
  index: (prefix) => `${prefix}-logstash-2026.01.15`,
  definition: logstashLogs.definition,
  document({ time, severity, message, hostname, group, json }) {
    const parsed = parseSeverity(severity);
    const record = {
      "@timestamp": time,
      "@version": "1",
      version: "1.1",
      level: parsed === "trace" ? 7 : syslogCodes[parsed],
      ...(parsed === "trace" && { level_name: severity }),
      message,
      short_message: message?.slice(0, 3),
      // The input adds the address of the sender to each message.
      ...(hostname !== undefined && { host: hostname, source_host: "172.17.0.1" }),
      facility: group,
    };
    return printObject(record, json);
  },
};

/** Messages of a logger that sends the level as a text and the name of its own, into an index without a template. */
export const gelfTextLogs: LogShipper = {
  ...gelfLogs,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const level = syslogCodes[parseSeverity(severity)];
    const record = {
      "@timestamp": time,
      "@version": "1",
      version: "1.1",
      ...(level !== undefined && { level: String(level) }),
      ...(severity !== undefined && { Severity: severity }),
      short_message: message,
      // The input adds the address of the sender to each message.
      ...(hostname !== undefined && { host: hostname, source_host: "172.17.0.1" }),
      LoggerName: group,
    };
    return printObject(record, json);
  },
};

const ruleLevels: Readonly<Record<string, number>> = {
  debug: 0,
  info: 3,
  notice: 5,
  warn: 7,
  error: 12,
  critical: 15,
};

/** Wazuh's template as far as lines need it, and an alert. Its pipeline copies `timestamp` to `@timestamp`. */
export const wazuhLogs: LogShipper = {
  layout: "wazuh",
  index: (prefix) => `${prefix}-wazuh-alerts-4.x-2026.01.15`,
  definition: {
    settings,
    mappings: {
      date_detection: false,
      dynamic_templates: [{ texts: { match_mapping_type: "string", mapping: keyword() } }],
      properties: {
        "@timestamp": { type: "date" },
        timestamp: { type: "date", format: "date_optional_time||epoch_millis" },
        "@version": { type: "text" },
        message: { type: "text" },
        host: keyword(),
        full_log: { type: "text" },
        location: keyword(),
        agent: { properties: { id: keyword(), name: keyword() } },
        manager: { properties: { name: keyword() } },
        rule: { properties: { level: { type: "long" }, description: keyword(), groups: keyword() } },
        predecoder: { properties: { program_name: keyword(), hostname: keyword() } },
        decoder: { properties: { name: keyword() } },
      },
    },
  },
  document({ time, severity, message, hostname, group, json }) {
    // An event that is no line of a log has only what its rule says.
    const isEvent = message?.includes("\n") === true;
    const record = {
      "@timestamp": time,
      timestamp: time,
      rule: {
        level: ruleLevels[parseSeverity(severity)],
        id: "5710",
        firedtimes: 1,
        ...(isEvent && { description: message }),
      },
      agent: { id: "001", name: hostname },
      ...(!isEvent && { full_log: message }),
      predecoder: { program_name: group },
    };
    return printObject(record, json);
  },
};

/** A pod's name stands for its host where nothing else does. */
const describePod = ({ hostname, group }: ShippableLine) => ({
  ...(hostname !== undefined && { pod_name: "web-1", namespace_id: "77" }),
  container_name: group,
  labels: { app: "web" },
});

/** OpenShift's collector since it is Vector. */
export const openshiftLogs: LogShipper = {
  layout: "openshift",
  index: (prefix) => `${prefix}-app-write`,
  definition: { settings },
  document(line) {
    const { time, severity, message, hostname, json } = line;
    const record = {
      "@timestamp": time,
      hostname,
      kubernetes: describePod(line),
      level: severity ?? "default",
      log_source: "container",
      log_type: "application",
      message,
      openshift: { cluster_id: "4f1c", sequence: 17_000_001 },
    };
    return printObject(record, json);
  },
};

/** OpenShift's collector when it was Fluentd, with `parse: json`: the container's JSON below `structured`. */
export const openshiftStructuredLogs: LogShipper = {
  ...openshiftLogs,
  index: (prefix) => `${prefix}-app-000001`,
  document(line) {
    const { time, severity, message, hostname, json } = line;
    // The collector's guess of the level, which may be wrong, and the application's own.
    const parsed = {
      level: parseSeverity(severity) === "unknown" ? "unknown" : "error",
      structured: { level: severity, message },
    };
    const record = {
      "@timestamp": time,
      docker: { container_id: "a1" },
      hostname,
      kubernetes: { ...describePod(line), master_url: "https://kubernetes.default.svc" },
      ...(message === undefined || severity === undefined
        ? { level: severity ?? "unknown", message }
        : parsed),
      pipeline_metadata: { collector: { name: "fluentd", inputname: "fluent-plugin-systemd" } },
      log_type: "application",
      viaq_msg_id: "ZTc2",
    };
    return printObject(record, json);
  },
};

/** A line of an application on Cloud Foundry. Logsearch's template is of old servers, so everything is mapped as it comes. */
export const cloudFoundryLogs: LogShipper = {
  layout: "cloud-foundry",
  index: (prefix) => `${prefix}-logs-app-acme-prod-2026.01.15`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      "@timestamp": time,
      "@version": "1",
      "@input": "syslog",
      "@index_type": "app",
      "@shipper": { name: "doppler_syslog", priority: 6 },
      "@source": { host: hostname, deployment: "cf", job_index: "4abc" },
      "@type": "LogMessage",
      "@cf": { app: group, org: "acme", space: "prod", app_instance: 0 },
      "@message": message,
      "@level": severity?.toUpperCase(),
    };
    return printObject(record, json);
  },
};

/** By the name of a severity. */
const pinoLevels: Readonly<Record<string, number>> = {
  trace: 10,
  debug: 20,
  info: 30,
  warn: 40,
  error: 50,
  fatal: 60,
};

/** Lines of pino from a pod, by Fluent Bit, whose kubernetes filter merges their JSON. Levels of one's own are no severities. */
export const podPinoLogs: LogShipper = {
  layout: "fluent-bit",
  index: (prefix) => `${prefix}-pods-2026.01.15`,
  definition: { settings },
  document({ time, severity, message, hostname, group, json }) {
    const record = {
      "@timestamp": time,
      // A line of JSON may have a member of this name, which the filter puts in its place.
      ...(!json.includes('"stream":') && { stream: "stdout" }),
      _p: "F",
      level: pinoLevels[parseSeverity(severity)] ?? 5,
      pid: 1,
      msg: message,
      kubernetes: { pod_name: "web-1", host: hostname, container_name: group },
    };
    return printObject(record, json);
  },
};
