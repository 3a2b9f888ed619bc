// What `auto` makes of documents and mappings, over a small search server in memory: which layout is taken, what the lines
// are then, and what `check` says of it.
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { parse } from "#src/logql/parse.ts";
import type { LogLine } from "#src/model.ts";
import type { LogSource } from "#src/store.ts";
import { fromMillis } from "#src/time.ts";
import { testIO } from "../../support/cluster.ts";
import { type Fake, openFake } from "../../support/fake.ts";
import { createSearch, type HeldIndex } from "../../support/search.ts";

type Json = { readonly [key: string]: unknown };
const at = "2026-01-15T10:00:00.000Z";
const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };

/** The mapping that a server makes of these as they come: dots in keys are nesting to it. */
function mapped(documents: readonly Json[]): object {
  const properties: Record<string, object> = {};
  for (const document of documents) {
    for (const [spelled, own] of Object.entries(document)) {
      const [key = "", ...rest] = spelled.split(".");
      const value = rest.length > 0 ? { [rest.join(".")]: own } : own;
      if (key === "@timestamp") properties[key] = { type: "date" };
      else if (typeof value === "object" && value !== null) {
        const below = mapped([value as Json]) as Mapping;
        properties[key] = merged(properties[key], below);
      } else properties[key] = { type: typeof value === "number" ? "long" : "keyword" };
    }
  }
  return { properties };
}

interface Mapping {
  readonly properties?: Readonly<Record<string, object>>;
}

function merged(before: Mapping | undefined, { properties = {}, ...own }: Mapping): object {
  const all: Record<string, object> = { ...before?.properties };
  for (const [key, value] of Object.entries(properties)) all[key] = merged(all[key], value);
  return Object.keys(all).length > 0 ? { ...own, properties: all } : own;
}

const held = (documents: readonly Json[], mappings = mapped(documents)): HeldIndex => ({
  documents: documents.map((document) => ({ "@timestamp": at, ...document })),
  mappings: {
    ...mappings,
    properties: {
      "@timestamp": { type: "date" },
      ...(mappings as { readonly properties?: object }).properties,
    },
  },
});

const propertiesOf = ({ mappings }: Pick<HeldIndex, "mappings">): object =>
  (mappings as { readonly properties: object }).properties;

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

/** A backend over these indices, which `hold` replaces. */
async function open(indices: Readonly<Record<string, HeldIndex>>) {
  let search = createSearch(indices, "Elasticsearch");
  const fake: Fake = await openFake((...asked) => search.reply(...asked));
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  const source = { id: "app", index: "logs-*", profile: "auto" };
  const signal = () => AbortSignal.timeout(10_000);
  return {
    fake,
    hold(indices: Readonly<Record<string, HeldIndex>>) {
      search = createSearch(indices, "Elasticsearch");
    },
    async read(text = "", over: Partial<LogSource> = {}): Promise<LogLine[]> {
      const limits = { wanted: 100, documentLimit: 1_000, tieLimit: 1_000 };
      const sources = [{ ...source, ...over }] as const;
      const query = { sources, range, filter: parse(text), order: "asc", ...limits } as const;
      const lines: LogLine[] = [];
      for await (const batch of backend.stores.logs?.lines(query, signal()) ?? []) lines.push(...batch);
      return lines;
    },
    async report(over: Partial<LogSource> = {}) {
      const report = await backend.inspections.logs?.({ ...source, ...over }, signal());
      if (report === undefined) throw new Error("no inspection of logs");
      return { ...report, guesses: report.limitations.filter((text) => text.includes("no known layout")) };
    },
  };
}

/** One document, alone in its index. */
const told = async (document: Json) => {
  const { read, report } = await open({ "logs-1": held([document]) });
  const [line] = await read();
  const { profile, guesses } = await report();
  const { severity, message, hostname, group } = line ?? {};
  return { profile, guesses, line: { severity, message, hostname, group } };
};

describe("Logstash", () => {
  const logstash = { "@version": "1", message: "x" };
  test.each<readonly [string, Json, object]>([
    [
      "syslog with ECS",
      { host: { hostname: "h" }, log: { syslog: { severity: { name: "Error", code: 3 } } } },
      { severity: "error", hostname: "h" },
    ],
    [
      "syslog with ECS, by number alone",
      { host: { hostname: "h" }, log: { syslog: { severity: { code: 3 } } } },
      { severity: "error", hostname: "h" },
    ],
    [
      "file with ECS",
      { event: { original: "x" }, host: { name: "h" }, log: { file: { path: "/a" } } },
      { severity: "unknown", hostname: "h", group: "/a" },
    ],
    [
      "tcp with ECS",
      { event: { original: "x" }, host: { ip: "::1", name: "h" } },
      { severity: "unknown", hostname: "h" },
    ],
  ])("%s is ecs", async (_, own, line) => {
    expect(await told({ ...logstash, ...own })).toMatchObject({
      profile: "ecs",
      guesses: [],
      line: { message: "x", ...line },
    });
  });

  test.each<readonly [string, Json, object]>([
    ["a file", { host: "h", path: "/a" }, { severity: "unknown", hostname: "h", group: "/a" }],
    [
      "syslog",
      { host: "h", logsource: "l", severity: 3, severity_label: "Error", program: "cron" },
      { severity: "error", hostname: "h", group: "cron" },
    ],
    ["nothing of its own", {}, { severity: "unknown", hostname: undefined }],
  ])("%s without ECS is logstash", async (_, own, line) => {
    expect(await told({ ...logstash, ...own })).toMatchObject({
      profile: "logstash",
      guesses: [],
      line: { message: "x", ...line },
    });
  });

  test("lines with little more than a message do not hide those with ECS beside them", async () => {
    const bare = Array.from({ length: 12 }, () => logstash);
    const own = { host: { hostname: "h" }, log: { syslog: { severity: { name: "Error" } } } };
    const rich = Array.from({ length: 3 }, () => ({ ...logstash, ...own }));
    const { read, report } = await open({ "logs-1": held([...bare, ...rich]) });
    expect((await report()).profile).toBe("ecs");
    expect(await read("severity=error")).toHaveLength(3);
    expect(await read("hostname=h message=x")).toHaveLength(3);
  });

  test("one line with ECS does not hide the severities of those without", async () => {
    const plain = Array.from({ length: 12 }, () => ({ ...logstash, level: "error" }));
    const { read, report } = await open({
      "logs-1": held([...plain, { ...logstash, log: { file: { path: "/a" } } }]),
    });
    expect((await report()).profile).toBe("ecs");
    expect(await read("severity=error")).toHaveLength(12);
  });
});

describe("Fluent Bit and Fluentd", () => {
  test("Docker's fluentd driver is fluentd", async () => {
    const document = { container_id: "c1", container_name: "/web", source: "stderr", log: "boom" };
    expect(await told(document)).toEqual({
      profile: "fluentd",
      guesses: [],
      line: { severity: "error", message: "boom", hostname: undefined, group: "/web" },
    });
  });

  test.each<readonly [string, Json, string, object]>([
    ["tail without a parser", { log: "boom\n" }, "fluent-bit", { message: "boom", severity: "unknown" }],
    ["no tag key", { message: "boom", level: "error" }, "ecs", { message: "boom", severity: "error" }],
    ["msg", { msg: "boom", level: "warn", host: "h" }, "fluent-bit", { message: "boom", severity: "warn" }],
    ["a severity of Logstash", { message: "boom", loglevel: "ERROR" }, "logstash", { severity: "error" }],
    ["a message and no more", { message: "boom" }, "ecs", { message: "boom" }],
  ])("%s shows no layout, and is read so that its lines are found", async (_, document, profile, line) => {
    const { guesses, ...rest } = await told(document);
    expect(rest).toMatchObject({ profile, line });
    const severities = "severity" in line && line.severity !== "unknown" ? 1 : 0;
    expect(guesses).toEqual([
      `logs-1: no known layout is recognised; read as ${profile}, by which 1 of 1 documents have a message and ${severities} a severity`,
    ]);
  });

  test("what holds no message by any layout is ecs, and check says so", async () => {
    expect(await told({ took: 5 })).toMatchObject({
      profile: "ecs",
      guesses: [
        "logs-1: no known layout is recognised; read as ecs, although none of 1 documents has a message by it",
      ],
    });
  });

  test("a mark of ecs does not hide messages that lie elsewhere", async () => {
    const document = { log: "boom", host: { name: "h" } };
    expect(await told(document)).toMatchObject({ profile: "fluent-bit", line: { message: "boom" } });
  });

  test("records of OpenTelemetry without a body are otel all the same", async () => {
    const document = { severity_text: "ERROR", attributes: { event: { original: "x" } } };
    expect(await told(document)).toMatchObject({ profile: "otel", line: { severity: "error" } });
  });

  test("a mapping that takes nothing up is no hindrance", async () => {
    const documents = [{ log: "boom", level: "error" }];
    const closed = held(documents, { dynamic: false });
    const { read, report } = await open({ "logs-1": closed });
    expect(await report()).toMatchObject({ profile: "fluent-bit", problems: [] });
    expect(await read("severity=error message=boom")).toHaveLength(1);
  });
});

describe("JSON of applications", () => {
  const time = { type: "date" };
  /** Without a field `@timestamp`. */
  const timed = (field: string, document: Json): HeldIndex => ({
    documents: [document],
    mappings: { properties: { ...propertiesOf({ mappings: mapped([document]) }), [field]: time } },
  });
  const first = async (index: HeldIndex) => {
    const { read, report } = await open({ "logs-1": index });
    const [line] = await read();
    const { severity, message, hostname, group } = line ?? {};
    return { profile: (await report()).profile, line: { severity, message, hostname, group } };
  };

  test.each<readonly [string, string, Json, string, object]>([
    [
      "Vector's",
      "timestamp",
      { timestamp: at, message: "m", host: "h", source_type: "file", file: "/a" },
      "plain",
      { severity: "unknown", message: "m", hostname: "h", group: "/a" },
    ],
    ["slog's", "time", { time: at, level: "WARN", msg: "m" }, "plain", { severity: "warn", message: "m" }],
    [
      "zerolog's",
      "time",
      { time: at, level: "warn", message: "m" },
      "plain",
      { severity: "warn", message: "m" },
    ],
    ["zap's", "ts", { ts: at, level: "warn", msg: "m" }, "plain", { severity: "warn", message: "m" }],
    [
      "another",
      "timestamp",
      { timestamp: at, message: "m", severity: "ERROR", service: "s", "host.name": "h" },
      "plain",
      { severity: "error", message: "m", hostname: "h", group: "s" },
    ],
    [
      "pino's",
      "time",
      { time: 1_768_471_200_000, level: 50, pid: 1, hostname: "h", msg: "m", name: "n" },
      "pino",
      { severity: "error", message: "m", hostname: "h", group: "n" },
    ],
    [
      "Graylog's",
      "timestamp",
      { timestamp: at, message: "m", source: "h", level: 4, facility: "f", gl2_message_id: "1" },
      "graylog",
      { severity: "warn", message: "m", hostname: "h", group: "f" },
    ],
  ])("%s time is found", async (_, field, document, profile, line) => {
    expect(await first(timed(field, document))).toMatchObject({ profile, line });
  });

  test("a time that is an alias of another field is that field", async () => {
    const index = timed("ts", { ts: at, message: "m", level: "error" });
    const properties = { ...propertiesOf(index), "@timestamp": { type: "alias", path: "ts" } };
    const { read, report } = await open({ "logs-1": { ...index, mappings: { properties } } });
    expect(await report()).toMatchObject({ profile: "ecs", problems: [] });
    expect(await read("severity=error")).toHaveLength(1);
  });

  test("a level beside fields of ecs is a severity", async () => {
    expect(await told({ message: "m", level: "error", host: { name: "h" } })).toEqual({
      profile: "ecs",
      guesses: [],
      line: { severity: "error", message: "m", hostname: "h", group: undefined },
    });
    expect((await told({ message: "m", level: "error", log: { level: "info" } })).line.severity).toBe("info");
  });

  test.each<readonly [string, Json, object]>([
    ["below json", { json: { level: "WARN", message: "m" } }, { severity: "warn", message: "m" }],
    ["below json, as msg", { json: { severity: "error", msg: "m" } }, { severity: "error", message: "m" }],
    [
      "of an ECS logger below json",
      { json: { "log.level": "info", level: "x", message: "m" } },
      { severity: "info", message: "m" },
    ],
    ["in the root, as msg", { level: "debug", msg: "m" }, { severity: "debug", message: "m" }],
    [
      "that no JSON is",
      { message: "{half", error: { type: "json" } },
      { severity: "unknown", message: "{half" },
    ],
  ])("Filebeat's JSON %s has a message and a severity", async (_, own, line) => {
    const { read, report } = await open({
      "logs-1": held([
        {
          agent: { type: "filebeat", version: "7.17.29" },
          ecs: { version: "1.12.0" },
          host: { name: "h" },
          input: { type: "log" },
          log: { offset: 0, file: { path: "/a" } },
          ...own,
        },
        // A line of another file in the same index, by which nothing is told.
        { ecs: { version: "1.12.0" }, host: { name: "h" }, log: { file: { path: "/b" } }, message: "plain" },
      ]),
    });
    expect((await report()).profile).toBe("ecs");
    expect(await read("group=/a")).toMatchObject([{ ...line, hostname: "h", group: "/a" }]);
  });

  test.each<readonly [string, Json, object]>([
    [
      "input",
      {
        hostname: "sender",
        syslog: { priority: 131, severity_label: "Error", facility: 16, facility_label: "local0" },
        event: { severity: 3 },
        process: { pid: 100, program: "prog" },
        log: { source: { address: "127.0.0.1:57522" } },
      },
      { severity: "error", hostname: "sender", group: "prog" },
    ],
    [
      "processor",
      {
        log: {
          syslog: {
            priority: 131,
            hostname: "sender",
            appname: "prog",
            severity: { code: 3, name: "Error" },
            facility: { code: 16, name: "local0" },
          },
        },
      },
      { severity: "error", hostname: "sender", group: "prog" },
    ],
    [
      "journald input",
      { log: { syslog: { priority: 3, identifier: "sshd" } }, host: { hostname: "own", name: "vm" } },
      { severity: "error", hostname: "own" },
    ],
  ])("Filebeat's syslog %s names the sender, not its own machine", async (_, own, line) => {
    const document = {
      agent: { type: "filebeat" },
      ecs: { version: "1.12.0" },
      host: { name: "vm" },
      message: "m",
      ...own,
    };
    expect(await told(document)).toMatchObject({ profile: "ecs", line: { message: "m", ...line } });
  });

  test("an object as the message is its compact JSON", async () => {
    const document = { message: { text: "hi", n: 1 }, log: { level: "info" }, host: { name: "h" } };
    const { read } = await open({ "logs-1": held([document]) });
    expect((await read('message:"hi"')).map(({ message }) => message)).toEqual(['{"text":"hi","n":1}']);
  });

  test("numbers as levels that no rule reads are named by check", async () => {
    const { report } = await open({ "logs-1": held([{ ecs: { version: "8" }, message: "m", level: 30 }]) });
    expect((await report()).limitations).toContain(
      "logs-1: level holds numbers, which say nothing of the severity in the layout ecs; a profile of your own can (at_least)",
    );
  });

  test("a time that cannot be sorted by is a problem", async () => {
    const index = held([{ message: "m", log: { level: "info" } }]);
    const properties = { ...propertiesOf(index), "@timestamp": { type: "date", doc_values: false } };
    const { read, report } = await open({ "logs-1": { ...index, mappings: { properties } } });
    expect((await report()).problems).toEqual([
      "logs-1: @timestamp has no doc_values, so lines cannot be sorted by it",
    ]);
    await expect(read()).rejects.toMatchObject({ slug: "not_supported_by_backend" });
  });
});

describe("shippers whose lines have no names but their own", () => {
  test.each<readonly [string, Json, string, object]>([
    [
      "Vector's of pods, into a data stream",
      {
        data_stream: { type: "logs", dataset: "generic", namespace: "default" },
        file: "/var/log/pods/web/0.log",
        kubernetes: { container_name: "web", pod_name: "web-1", pod_node_name: "node-1" },
        message: "boom",
        source_type: "kubernetes_logs",
        stream: "stderr",
      },
      "plain",
      { severity: "error", message: "boom", hostname: "node-1", group: "web" },
    ],
    [
      "Vector's of the journal",
      { PRIORITY: "4", SYSLOG_IDENTIFIER: "sshd", host: "h", message: "boom", source_type: "journald" },
      "plain",
      { severity: "warn", message: "boom", hostname: "h", group: "journald" },
    ],
    [
      "Fluent Bit's of the journal",
      { PRIORITY: "3", _HOSTNAME: "h", SYSLOG_IDENTIFIER: "kubelet", MESSAGE: "boom" },
      "fluent-bit",
      { severity: "error", message: "boom", hostname: "h", group: "kubelet" },
    ],
    [
      "Filebeat's of the journal",
      {
        ecs: { version: "8.0.0" },
        host: { name: "h" },
        log: { syslog: { priority: 3, facility: { code: 3 } } },
        message: "boom",
      },
      "ecs",
      { severity: "error", message: "boom", hostname: "h" },
    ],
    [
      "CloudWatch's",
      { "@id": "1", "@message": "boom", "@owner": "1", "@log_group": "/aws/lambda/f", "@log_stream": "s" },
      "plain",
      { severity: "unknown", message: "boom", group: "/aws/lambda/f" },
    ],
    [
      "Monolog's",
      { message: "boom", level: 400, level_name: "ERROR", channel: "app", datetime: at },
      "plain",
      { severity: "error", message: "boom", group: "app" },
    ],
    [
      "syslog-ng's",
      {
        PROGRAM: "sshd",
        PRIORITY: "err",
        PID: "7",
        MESSAGE: "boom",
        HOST: "h",
        FACILITY: "auth",
        ISODATE: at,
      },
      "syslog-ng",
      { severity: "error", message: "boom", hostname: "h", group: "sshd" },
    ],
    [
      "rsyslog's in the form of its manual",
      { host: "h", severity: "crit", facility: "auth", syslogtag: "sshd[7]:", message: "boom" },
      "rsyslog",
      { severity: "critical", message: "boom", hostname: "h", group: "sshd[7]:" },
    ],
    [
      "rsyslog's with a severity by number",
      { host: "h", severity: 4, syslogtag: "sshd[7]:", programname: "sshd", message: "boom" },
      "rsyslog",
      { severity: "warn", message: "boom", hostname: "h", group: "sshd" },
    ],
    [
      "rsyslog's with all that it knows",
      { msg: "boom", hostname: "h", syslogtag: "sshd[7]:", syslogseverity: "3", programname: "sshd" },
      "rsyslog",
      { severity: "error", message: "boom", hostname: "h", group: "sshd" },
    ],
    [
      "pino's under a key of its own",
      { level: 50, pid: 1, hostname: "h", message: "boom", name: "n" },
      "pino",
      { severity: "error", message: "boom", hostname: "h", group: "n" },
    ],
    [
      "bunyan-elasticsearch's",
      { level: "warn", pid: 1, hostname: "h", message: "boom", name: "n", v: 0 },
      "pino",
      { severity: "warn", message: "boom", hostname: "h", group: "n" },
    ],
    [
      "structlog's",
      { event: "boom", level: "warning", timestamp: at },
      "plain",
      { severity: "warn", message: "boom" },
    ],
    [
      "structlog's by Fluent Bit",
      { event: "boom", level: "error", kubernetes: { pod_name: "p", host: "n", container_name: "c" } },
      "fluent-bit",
      { severity: "error", message: "boom", hostname: "n", group: "c" },
    ],
    [
      "winston-elasticsearch's",
      { message: "boom", severity: "error", fields: { user: "u" } },
      "plain",
      { severity: "error", message: "boom" },
    ],
    [
      "Serilog's",
      { level: "Warning", messageTemplate: "{Who}", message: "boom", fields: { Who: "boom" } },
      "plain",
      { severity: "warn", message: "boom" },
    ],
  ])("%s", async (_, document, profile, line) => {
    expect(await told(document)).toMatchObject({ profile, guesses: [], line });
  });

  test("rsyslog's own template has no @timestamp", async () => {
    const document = {
      ...{ message: "boom", fromhost: "h", facility: "auth", priority: "err" },
      ...{ timereported: at, timegenerated: at },
    };
    const properties = { timereported: { type: "date" }, timegenerated: { type: "date" } };
    const { read, report } = await open({
      "logs-1": {
        documents: [document],
        mappings: { properties: { ...propertiesOf({ mappings: mapped([document]) }), ...properties } },
      },
    });
    expect(await report()).toMatchObject({ profile: "rsyslog", guesses: [], problems: [] });
    expect(await read("severity=error hostname=h group=auth message=boom")).toHaveLength(1);
  });

  test("of layouts that find as much, one that finds severities is taken", async () => {
    const document = { levelname: "ERROR", name: "shop", message: "boom" };
    expect(await told(document)).toMatchObject({ profile: "plain", line: { severity: "error" } });
  });

  test("a priority of syslog has the facility in it, and tells nothing by itself", async () => {
    const document = { ecs: { version: "8.0.0" }, log: { syslog: { priority: 30 } }, message: "m" };
    expect((await told(document)).line.severity).toBe("unknown");
  });
});

describe("OpenTelemetry's modes without a schema", () => {
  const record = {
    Body: "boom",
    SeverityNumber: 17,
    TraceFlags: 0,
    TraceId: "4bf9",
    Resource: { service: { name: "shop" }, host: { name: "h" } },
    Scope: { name: "io" },
  };
  const line = { severity: "error", message: "boom", hostname: "h", group: "shop" };

  test("none: attributes are the body", async () => {
    const document = { ...record, Attributes: { http: { method: "GET" }, n: 5 } };
    expect(await told(document)).toEqual({ profile: "otel-none", guesses: [], line });
    const { read } = await open({ "logs-1": held([document]) });
    const [found] = await read("http.method=GET n>4 resource.host.name=h trace_id=4bf9 severity=error");
    expect(JSON.parse(found?.json ?? "")).toEqual({
      ...document.Attributes,
      resource: record.Resource,
      scope: record.Scope,
      trace_id: "4bf9",
      "@timestamp": at,
    });
  });

  // As its version 0.138 writes them: keys with their dots, and a text below `Body`.
  const exported = (body: Json, prefix: string): Json => ({
    [`${prefix}service.name`]: "shop",
    [`${prefix}host.name`]: "h",
    TraceId: "4bf9",
    TraceFlags: 0,
    SeverityNumber: 17,
    ...body,
    [`${prefix}n`]: 5,
  });
  test.each([
    ["otel-none", "Attributes."],
    ["otel-raw", ""],
  ])("the opensearch exporter's modes are %s", async (profile, prefix) => {
    const text = exported({ "Body.value": "boom" }, prefix);
    expect(await told(text)).toEqual({ profile, guesses: [], line });
    const map = exported({ "Body.text": "hidden", "Body.deep.a": 7 }, prefix);
    const { read } = await open({ "logs-1": held([text, map]) });
    expect((await read("hostname=h group=shop")).map(({ message }) => message)).toEqual([
      "boom",
      '{"text":"hidden","deep.a":7}',
    ]);
    expect(await read("message=boom n=5")).toHaveLength(1);
    expect(await read("message:hidden n=5")).toHaveLength(1);
    expect(await read("message!:boom")).toHaveLength(1);
  });

  test("the opensearch exporter's texts are no part of the body, and other keys are", async () => {
    const documents = [{ "Body.value": "boom" }, { "Body.value": "x", "Body.a": 1 }, { "Body.a": 2 }];
    const { read } = await open({
      "logs-1": held(documents.map((body) => exported(body, "Attributes."))),
    });
    const body = { "service.name": "shop", "host.name": "h", n: 5, trace_id: "4bf9", "@timestamp": at };
    expect((await read()).map(({ json }) => JSON.parse(json))).toEqual([
      body,
      { ...body, a: 1 },
      { ...body, a: 2 },
    ]);
    expect(await read("a>0")).toHaveLength(2);
    expect(await read("value=boom")).toEqual([]);
  });

  test("none: a body of keys and values is the message and part of the body", async () => {
    const document = { ...record, Body: { a: 1, b: "x" }, Attributes: { n: 5 } };
    const { read } = await open({ "logs-1": held([document]) });
    expect((await read("b=x n=5 message:a")).map(({ message }) => message)).toEqual(['{"a":1,"b":"x"}']);
  });

  test("raw: attributes stand beside the record", async () => {
    const document = { ...record, SeverityNumber: 13, http: { method: "GET" } };
    const expected = { ...line, severity: "warn" };
    expect(await told(document)).toEqual({ profile: "otel-raw", guesses: [], line: expected });
    const { read } = await open({ "logs-1": held([document]) });
    expect(await read("http.method=GET Scope.name=io")).toHaveLength(1);
  });
});

test("a structured body of Fluent Bit without text has its compact JSON as the message", async () => {
  const documents = [
    { kubernetes: { pod_name: "p", host: "h" }, log: { msg: "hi there", n: 1 } },
    { kubernetes: { pod_name: "p", host: "h" }, log: { msg: "hidden" }, message: "by its text" },
    { kubernetes: { pod_name: "p", host: "h" }, log: [] },
  ];
  const { read } = await open({ "logs-1": held(documents) });
  const [structured = "", text] = ['{"msg":"hi there","n":1}', "by its text"];
  expect((await read()).map(({ message }) => message)).toEqual([structured, text, undefined]);
  expect((await read('message:"hi there"')).map(({ message }) => message)).toEqual([structured]);
  expect((await read('log.msg="hi there" message!:hidden')).map(({ message }) => message)).toEqual([
    structured,
  ]);
  expect(await read("message:hidden")).toEqual([]);
});

describe("several indices", () => {
  const tagged = { "@log_name": "app", log: "boom", level: "error" };

  test("what could be read in many ways is read as the others are", async () => {
    const { report } = await open({ "logs-1": held([tagged]), "logs-2": held([{ message: "x" }]) });
    const { profile, guesses } = await report();
    expect(profile).toBe("fluentd");
    expect(guesses).toEqual([expect.stringMatching(/^logs-2: .*read as fluentd, by which 1 of 1/)]);
  });

  test("what can be read in one way alone is not", async () => {
    const ecs = { ecs: { version: "8" }, message: "m", log: { level: "info" } };
    const { read } = await open({ "logs-1": held([ecs]), "logs-2": held([{ log: "boom" }]) });
    expect((await read()).map(({ message }) => message)).toEqual(["m", "boom"]);
  });
});

describe("a wall within an index", () => {
  const theirs = Array.from({ length: 20 }, () => ({
    tenant: "a",
    ecs: { version: "8" },
    message: "m",
    log: { level: "info" },
  }));
  const own = { tenant: "b", kubernetes: { pod_name: "p", host: "n" }, severity: "error", msg: "boom" };

  test("only the documents within it tell their layout", async () => {
    const { read, report } = await open({ "logs-1": held([...theirs, own]) });
    expect((await report()).profile).toBe("ecs");
    const within = { where: 'tenant="b"' };
    expect((await report(within)).profile).toBe("fluent-bit");
    expect((await read("severity=error hostname=n", within)).map(({ message }) => message)).toEqual(["boom"]);
    // What is remembered of one source is not taken for the other.
    expect((await report({ where: 'tenant="a"' })).profile).toBe("ecs");
    expect(await read("severity=info", { where: 'tenant="a"' })).toHaveLength(20);
  });
});

describe("an index that changes", () => {
  test("is told by the first documents that come, without a reading of its mapping", async () => {
    const mappings = mapped([{ log: "x", level: "x" }]);
    const { hold, read, report } = await open({ "logs-1": held([], mappings) });
    expect((await report()).guesses).toEqual([
      "logs-1: no known layout is recognised; read as ecs until there are documents that tell",
    ]);
    expect(await read()).toEqual([]);
    hold({ "logs-1": held([{ log: "boom", level: "error" }], mappings) });
    expect(await read("severity=error message=boom")).toHaveLength(1);
  });

  test("is told anew with its mapping, as long as it holds few documents", async () => {
    const first = { message: "starting" };
    const later = { log: "boom", level: "error" };
    const { hold, read, report } = await open({ "logs-1": held([first]) });
    expect((await report()).profile).toBe("ecs");
    hold({ "logs-1": held([first, later, later]) });
    expect((await report()).profile).toBe("fluent-bit");
    expect(await read("severity=error")).toHaveLength(2);
  });

  test("is not asked again by each request once it is told", async () => {
    const { fake, read } = await open({ "logs-1": held([{ log: "boom" }]) });
    await read();
    const before = fake.asked.length;
    await read();
    expect(fake.asked.slice(before).map(({ path }) => path.replace(/\?.*/, ""))).toEqual(["/logs-*/_search"]);
  });
});
