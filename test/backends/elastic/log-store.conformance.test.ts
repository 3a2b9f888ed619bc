// The conformance suite of log stores on real servers, with a subject for each natural pair of server and layout. A subject
// writes lines as the layout's shipper does. Missing pairs are not in use, or are covered by another one.
import { type Excuse, logStoreSuite, type Subject } from "../../conformance/logs.ts";
import { buildTemplate, printDocument } from "../../support/elastic/filebeat.ts";
import {
  dataPrepperLogs,
  elasticApmLogs,
  fluentBitLogs,
  graylogLogs,
  type LogShipper,
  logstashEcsLogs,
  logstashLogs,
  otelLogs,
  otelNoneLogs,
  otelRawLogs,
  pinoLogs,
  rsyslogLogs,
  ss4oLogsDynamic,
  ss4oLogsFlat,
  syslogNgLogs,
  vectorLogs,
} from "../../support/elastic/log-shippers.ts";
import {
  cloudFoundryLogs,
  gelfLogs,
  gelfTextLogs,
  openshiftLogs,
  openshiftStructuredLogs,
  wazuhLogs,
} from "../../support/elastic/platform-log-shippers.ts";
import { openCluster } from "../../support/elastic/test-index.ts";
import { chosen, onServers, type ServerName } from "../selected-servers.ts";
import { createLogSubject, rooted, unindexable } from "./store-subjects.ts";

const milliseconds: Excuse = {
  reason: "a date field holds milliseconds, so lines of one are ordered by their ids",
  failure: /\[ 'a', 'b', 'c' \] to deeply equal \[ 'c', 'b', 'a' \]/,
};

const limitedLevels: Excuse = {
  reason: "no level of a rule is an alert or fatal",
  failure: /to deeply equal/,
};

const ecs = (time: "date" | "date_nanos"): LogShipper => ({
  layout: "ecs",
  index: (prefix) => `${prefix}-filebeat`,
  // One shard indexes documents in order, so that the first one decides how a name is mapped.
  definition: buildTemplate(time, 1),
  document: printDocument,
});

interface Pair {
  readonly name: string;
  readonly shipper: LogShipper;
  readonly servers: readonly ServerName[];
  /** Whether the pair runs on all of its servers also with PAIRS=once; others then run on one, by turns. */
  readonly isOnAll?: boolean;
  readonly excuses: Subject["excuses"];
}
const every: readonly ServerName[] = ["es7", "es8", "es9", "os2", "os3"];
const documentBody = { "script unindexable": unindexable };
const dated = { ...documentBody, "orders and bounds lines by nanoseconds": milliseconds };
const pairs: readonly Pair[] = [
  {
    name: "ecs with date",
    shipper: ecs("date"),
    servers: every,
    excuses: { ...dated, "script keys": rooted("hostname") },
  },
  {
    name: "ecs with date_nanos",
    shipper: ecs("date_nanos"),
    servers: every,
    isOnAll: true,
    excuses: { ...documentBody, "script keys": rooted("hostname") },
  },
  { name: "otel", shipper: otelLogs, servers: ["es8", "es9"], excuses: dated },
  { name: "ss4o without a template", shipper: ss4oLogsDynamic, servers: ["os2"], excuses: dated },
  { name: "ss4o", shipper: ss4oLogsFlat, servers: ["os3"], excuses: dated },
  { name: "data-prepper", shipper: dataPrepperLogs, servers: ["os2", "os3"], excuses: documentBody },
  {
    name: "fluent-bit",
    shipper: fluentBitLogs,
    servers: ["es7", "es9", "os3"],
    excuses: { ...dated, "script keys": rooted("hostname") },
  },
  {
    name: "logstash",
    shipper: logstashLogs,
    servers: ["es8"],
    excuses: { ...dated, "script keys": rooted("hostname"), "script fields": rooted("host") },
  },
  {
    name: "logstash with ecs",
    shipper: logstashEcsLogs,
    servers: ["es8", "es9"],
    excuses: { ...dated, "script keys": rooted("hostname") },
  },
  {
    name: "elastic-apm",
    shipper: elasticApmLogs,
    servers: ["es8"],
    excuses: { ...dated, "script keys": rooted("hostname") },
  },
  { name: "otel-none", shipper: otelNoneLogs, servers: ["es7"], excuses: dated },
  { name: "otel-raw", shipper: otelRawLogs, servers: ["es8"], excuses: dated },
  { name: "syslog-ng", shipper: syslogNgLogs, servers: ["es8", "os2"], excuses: dated },
  {
    name: "rsyslog",
    shipper: rsyslogLogs,
    servers: ["es8", "os3"],
    excuses: { ...dated, "script keys": rooted("hostname") },
  },
  { name: "graylog", shipper: graylogLogs, servers: ["os2"], excuses: dated },
  {
    name: "pino",
    shipper: pinoLogs,
    servers: ["es8"],
    excuses: { ...dated, "script keys": rooted("hostname") },
  },
  {
    name: "plain",
    shipper: vectorLogs,
    servers: ["os3"],
    excuses: {
      ...dated,
      "leaves missing fields absent and the severity unknown": {
        reason: "Vector names its kind of source in each line, which is the group of one without another",
        failure: /\[ undefined, undefined, 'file' \] to deeply equal/,
      },
      "script keys": rooted("hostname"),
      "script fields": rooted("host"),
    },
  },
  ...[
    { name: "gelf", shipper: gelfLogs, excuses: { ...dated, "script fields": rooted("host") } },
    { name: "gelf of texts", shipper: gelfTextLogs, excuses: { ...dated, "script fields": rooted("host") } },
    {
      name: "wazuh",
      shipper: wazuhLogs,
      excuses: { ...dated, "script fields": limitedLevels, "script severities": limitedLevels },
    },
    {
      name: "openshift",
      shipper: openshiftLogs,
      excuses: { ...dated, "script keys": rooted("hostname") },
    },
    {
      name: "openshift with structured lines",
      shipper: openshiftStructuredLogs,
      excuses: { ...dated, "script keys": rooted("hostname") },
    },
    { name: "cloud-foundry", shipper: cloudFoundryLogs, excuses: dated },
  ].map((pair) => ({ ...pair, servers: every })),
];

onServers((server) => {
  for (const [turn, pair] of pairs.entries()) {
    const servers = pair.isOnAll === true ? pair.servers : chosen(pair.servers, turn);
    if (servers.includes(server.name))
      logStoreSuite(createLogSubject(server.name, pair, () => openCluster(server.url)));
  }
});
