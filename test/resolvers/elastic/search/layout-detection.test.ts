// How `auto` reads documents and mappings, over a small search server in memory: the layout that it takes, the resulting
// lines, and what `check` reports.
import { describe, expect, test } from "vitest";
import type { FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import {
  at,
  buildMapping,
  createFakeIndex,
  type JsonObject,
  openIndices,
  readProperties,
  readSingleDocument,
} from "../../../support/elastic/layout-harness.ts";

describe("layout detection, Logstash", () => {
  const logstash = { "@version": "1", message: "x" };
  test.each<readonly [string, JsonObject, object]>([
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
  ])("reads %s as ecs", async (_, own, line) => {
    expect(await readSingleDocument({ ...logstash, ...own })).toMatchObject({
      layout: "ecs",
      guesses: [],
      line: { message: "x", ...line },
    });
  });

  test.each<readonly [string, JsonObject, object]>([
    ["a file", { host: "h", path: "/a" }, { severity: "unknown", hostname: "h", group: "/a" }],
    [
      "syslog",
      { host: "h", logsource: "l", severity: 3, severity_label: "Error", program: "cron" },
      { severity: "error", hostname: "h", group: "cron" },
    ],
    ["nothing of its own", {}, { severity: "unknown", hostname: undefined }],
  ])("reads %s without ECS as logstash", async (_, own, line) => {
    expect(await readSingleDocument({ ...logstash, ...own })).toMatchObject({
      layout: "logstash",
      guesses: [],
      line: { message: "x", ...line },
    });
  });

  test("keeps ECS fields when other lines have little more than a message", async () => {
    const bare = Array.from({ length: 12 }, () => logstash);
    const own = { host: { hostname: "h" }, log: { syslog: { severity: { name: "Error" } } } };
    const rich = Array.from({ length: 3 }, () => ({ ...logstash, ...own }));
    const { read, report } = await openIndices({ "logs-1": createFakeIndex([...bare, ...rich]) });
    expect((await report()).layout).toBe("ecs");
    expect(await read("severity=error")).toHaveLength(3);
    expect(await read("hostname=h message=x")).toHaveLength(3);
  });

  test("keeps the severities of plain lines beside one ECS line", async () => {
    const plain = Array.from({ length: 12 }, () => ({ ...logstash, level: "error" }));
    const { read, report } = await openIndices({
      "logs-1": createFakeIndex([...plain, { ...logstash, log: { file: { path: "/a" } } }]),
    });
    expect((await report()).layout).toBe("ecs");
    expect(await read("severity=error")).toHaveLength(12);
  });
});

describe("layout detection, Fluent Bit and Fluentd", () => {
  test("detects Docker's fluentd driver as fluentd", async () => {
    const document = { container_id: "c1", container_name: "/web", source: "stderr", log: "boom" };
    expect(await readSingleDocument(document)).toEqual({
      layout: "fluentd",
      guesses: [],
      line: { severity: "error", message: "boom", hostname: undefined, group: "/web" },
    });
  });

  test.each<readonly [string, JsonObject, string, object]>([
    ["tail without a parser", { log: "boom\n" }, "fluent-bit", { message: "boom", severity: "unknown" }],
    ["no tag key", { message: "boom", level: "error" }, "ecs", { message: "boom", severity: "error" }],
    ["msg", { msg: "boom", level: "warn", host: "h" }, "fluent-bit", { message: "boom", severity: "warn" }],
    ["a severity of Logstash", { message: "boom", loglevel: "ERROR" }, "logstash", { severity: "error" }],
    ["a message and no more", { message: "boom" }, "ecs", { message: "boom" }],
  ])("guesses a layout that reads %s", async (_, document, layout, line) => {
    const { guesses, ...rest } = await readSingleDocument(document);
    expect(rest).toMatchObject({ layout, line });
    const severities = "severity" in line && line.severity !== "unknown" ? 1 : 0;
    expect(guesses).toEqual([
      `logs-1: no known layout is recognised; read as ${layout}, by which 1 of 1 documents have a message and ${severities} a severity`,
    ]);
  });

  test("falls back to ecs without any message, and check reports it", async () => {
    expect(await readSingleDocument({ took: 5 })).toMatchObject({
      layout: "ecs",
      guesses: [
        "logs-1: no known layout is recognised; read as ecs, although none of 1 documents has a message by it",
      ],
    });
  });

  test("prefers a layout that finds messages over a mark of ecs", async () => {
    const document = { log: "boom", host: { name: "h" } };
    expect(await readSingleDocument(document)).toMatchObject({
      layout: "fluent-bit",
      line: { message: "boom" },
    });
  });

  test("detects OpenTelemetry records without a body as otel", async () => {
    const document = { severity_text: "ERROR", attributes: { event: { original: "x" } } };
    expect(await readSingleDocument(document)).toMatchObject({ layout: "otel", line: { severity: "error" } });
  });

  test("detects the layout from documents when the mapping is not dynamic", async () => {
    const documents = [{ log: "boom", level: "error" }];
    const closed = createFakeIndex(documents, { dynamic: false });
    const { read, report } = await openIndices({ "logs-1": closed });
    expect(await report()).toMatchObject({ layout: "fluent-bit", problems: [] });
    expect(await read("severity=error message=boom")).toHaveLength(1);
  });
});

describe("layout detection, JSON of applications", () => {
  const time = { type: "date" };
  /** The document with its time at another field than `@timestamp`. */
  const timed = (field: string, document: JsonObject): FakeIndex => ({
    documents: [document],
    mappings: { properties: { ...readProperties({ mappings: buildMapping([document]) }), [field]: time } },
  });
  const first = async (index: FakeIndex) => {
    const { read, report } = await openIndices({ "logs-1": index });
    const [line] = await read();
    const { severity, message, hostname, group } = line ?? {};
    return { layout: (await report()).layout, line: { severity, message, hostname, group } };
  };

  test.each<readonly [string, string, JsonObject, string, object]>([
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
  ])("finds the time field: %s", async (_, field, document, layout, line) => {
    expect(await first(timed(field, document))).toMatchObject({ layout, line });
  });

  test("reads the time behind an alias field", async () => {
    const index = timed("ts", { ts: at, message: "m", level: "error" });
    const properties = { ...readProperties(index), "@timestamp": { type: "alias", path: "ts" } };
    const { read, report } = await openIndices({ "logs-1": { ...index, mappings: { properties } } });
    expect(await report()).toMatchObject({ layout: "ecs", problems: [] });
    expect(await read("severity=error")).toHaveLength(1);
  });

  test("reads a level beside ECS fields as the severity", async () => {
    expect(await readSingleDocument({ message: "m", level: "error", host: { name: "h" } })).toEqual({
      layout: "ecs",
      guesses: [],
      line: { severity: "error", message: "m", hostname: "h", group: undefined },
    });
    expect(
      (await readSingleDocument({ message: "m", level: "error", log: { level: "info" } })).line.severity,
    ).toBe("info");
  });

  test("prints an object message as compact JSON", async () => {
    const document = { message: { text: "hi", n: 1 }, log: { level: "info" }, host: { name: "h" } };
    const { read } = await openIndices({ "logs-1": createFakeIndex([document]) });
    expect((await read('message:"hi"')).map(({ message }) => message)).toEqual(['{"text":"hi","n":1}']);
  });

  test("check reports numeric levels that no rule reads", async () => {
    const { report } = await openIndices({
      "logs-1": createFakeIndex([{ ecs: { version: "8" }, message: "m", level: 30 }]),
    });
    expect((await report()).limitations).toContain(
      "logs-1: level holds numbers, which the layout ecs does not read as severities; a custom layout can (at_least)",
    );
  });

  test("check reports them beside other severities, unless a name beside the number is read", async () => {
    const levels = { log: { level: "info", syslog: { severity: { code: 3 } } }, json: { level: 50 } };
    const beats = createFakeIndex([{ ecs: { version: "8" }, message: "m", ...levels }]);
    const syslog = createFakeIndex([{ "@version": "1", message: "m", severity: 3, severity_label: "Error" }]);
    const limitations = async (index: FakeIndex) =>
      (await (await openIndices({ "logs-1": index })).report()).limitations.filter((text) =>
        text.includes("holds numbers"),
      );
    expect(await limitations(beats)).toEqual([
      "logs-1: json.level holds numbers, which the layout ecs does not read as severities; a custom layout can (at_least)",
    ]);
    expect(await limitations(syslog)).toEqual([]);
  });

  test("check tells objects that map some of their names from those of which nothing is searched", async () => {
    const keyword = { type: "keyword" };
    const dyn = {
      dynamic: false,
      properties: { a: keyword, off: { ...keyword, index: false }, in: { dynamic: false } },
    };
    const properties = {
      ...readProperties(createFakeIndex([{ message: "m" }])),
      dyn,
      bare: { dynamic: false },
    };
    const index = {
      documents: [{ "@timestamp": at, message: "m", level: "info" }],
      mappings: { properties },
    };
    const { report } = await openIndices({ "logs-1": index });
    const { limitations } = await report({ layout: "ecs" });
    expect(limitations.filter((text) => text.includes("dyn"))).toEqual([
      "logs-1: dyn.off, dyn.in, bare cannot be searched; filters on them read every line of the range",
      "logs-1: names below dyn that are not mapped are not indexed (dynamic: false); filters on them read every line of the range",
    ]);
  });

  test("check reports a time field that cannot be sorted", async () => {
    const index = createFakeIndex([{ message: "m", log: { level: "info" } }]);
    const properties = { ...readProperties(index), "@timestamp": { type: "date", doc_values: false } };
    const { read, report } = await openIndices({ "logs-1": { ...index, mappings: { properties } } });
    expect((await report()).problems).toEqual([
      "logs-1: @timestamp has no doc_values, so lines cannot be sorted by it",
    ]);
    await expect(read()).rejects.toMatchObject({ slug: "not_supported_by_backend" });
  });
});

describe("layout detection, shippers with their own field names", () => {
  test.each<readonly [string, JsonObject, string, object]>([
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
      "rsyslog's in a form with a tag, as Fluentd's may have",
      { host: "h", severity: "crit", facility: "auth", tag: "sshd[7]", message: "boom" },
      "rsyslog",
      { severity: "critical", message: "boom", hostname: "h", group: "sshd[7]" },
    ],
    [
      "Fluentd's of syslog with all of these names",
      { host: "h", severity: "crit", facility: "auth", tag: "syslog.auth", ident: "sshd", message: "boom" },
      "rsyslog",
      { severity: "critical", message: "boom", hostname: "h", group: "sshd" },
    ],
    [
      "Fluentd's with a tag",
      { host: "h", severity: "crit", tag: "app.web", message: "boom" },
      "fluentd",
      { severity: "critical", message: "boom", hostname: "h", group: "app.web" },
    ],
    [
      "rsyslog's in a form with the application as the source",
      {
        host: "h",
        severity: "ERR",
        facility: "auth",
        "syslog-tag": "sshd[7]",
        source: "sshd",
        message: "boom",
      },
      "rsyslog",
      { severity: "error", message: "boom", hostname: "h", group: "sshd" },
    ],
    [
      "rsyslog's in a form with the input as the source",
      {
        sysloghost: "h",
        severity: "err",
        facility: "auth",
        program: "sshd",
        source: "imtcp",
        message: "boom",
      },
      "rsyslog",
      { severity: "error", message: "boom", hostname: "h", group: "sshd" },
    ],
    [
      "syslog-ng's in lower case",
      { timestamp: at, level: "err", priority: "err", program: "sshd", pid: 7, host: "h", message: "boom" },
      "plain",
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
      { message: "boom", severity: "error", fields: { user: "u" }, source: "shop" },
      "plain",
      { severity: "error", message: "boom", group: "shop" },
    ],
    [
      "tracing's of Rust",
      { level: "WARN", target: "shop::cart", fields: { message: "boom", id: 7 }, span: { name: "request" } },
      "plain",
      { severity: "warn", message: "boom", group: "shop::cart" },
    ],
    [
      "tracing's by Fluent Bit",
      {
        level: "ERROR",
        target: "shop",
        fields: { message: "boom" },
        stream: "stdout",
        kubernetes: { pod_name: "p", host: "n", container_name: "c" },
      },
      "fluent-bit",
      { severity: "error", message: "boom", hostname: "n", group: "c" },
    ],
    [
      "loguru's",
      {
        text: "12:00 | ERROR | boom",
        record: { level: { name: "ERROR", no: 40 }, message: "boom", name: "app" },
      },
      "plain",
      { severity: "error", message: "boom", group: "app" },
    ],
    [
      "loguru's of a level with a name of its own",
      { text: "12:00 | SUCCESS | done", record: { level: { name: "SUCCESS", no: 25 }, message: "done" } },
      "plain",
      { severity: "info", message: "done" },
    ],
    [
      "Serilog's",
      { level: "Warning", messageTemplate: "{Who}", message: "boom", fields: { Who: "boom" } },
      "plain",
      { severity: "warn", message: "boom" },
    ],
  ])("detects the layout of %s", async (_, document, layout, line) => {
    expect(await readSingleDocument(document)).toMatchObject({ layout, guesses: [], line });
  });

  test("reads the time of rsyslog's own template", async () => {
    const document = {
      message: "boom",
      fromhost: "h",
      facility: "auth",
      priority: "err",
      timereported: at,
      timegenerated: at,
    };
    const properties = { timereported: { type: "date" }, timegenerated: { type: "date" } };
    const { read, report } = await openIndices({
      "logs-1": {
        documents: [document],
        mappings: {
          properties: { ...readProperties({ mappings: buildMapping([document]) }), ...properties },
        },
      },
    });
    expect(await report()).toMatchObject({ layout: "rsyslog", guesses: [], problems: [] });
    expect(await read("severity=error hostname=h group=auth message=boom")).toHaveLength(1);
  });

  test("reads the time of rsyslog's omelasticsearch example", async () => {
    const document = { message: "boom", host: "h", severity: "err", facility: "auth", syslogtag: "sshd[7]:" };
    const { properties } = buildMapping([document]) as { readonly properties: object };
    const { read, report } = await openIndices({
      "logs-1": {
        documents: [{ timestamp: at, ...document }],
        mappings: { properties: { ...properties, timestamp: { type: "date" } } },
      },
    });
    expect(await report()).toMatchObject({ layout: "rsyslog", guesses: [], problems: [] });
    expect(await read('severity=error hostname=h group="sshd[7]:"')).toHaveLength(1);
  });

  test("prefers the layout that finds severities among equal ones", async () => {
    const document = { levelname: "ERROR", name: "shop", message: "boom" };
    expect(await readSingleDocument(document)).toMatchObject({
      layout: "plain",
      line: { severity: "error" },
    });
  });

  test("ignores a syslog priority, which includes the facility", async () => {
    const document = { ecs: { version: "8.0.0" }, log: { syslog: { priority: 30 } }, message: "m" };
    expect((await readSingleDocument(document)).line.severity).toBe("unknown");
  });
});

describe("layout detection, Fluent Bit bodies", () => {
  test("prints a structured Fluent Bit body as compact JSON", async () => {
    const documents = [
      { kubernetes: { pod_name: "p", host: "h" }, log: { msg: "hi there", n: 1 } },
      { kubernetes: { pod_name: "p", host: "h" }, log: { msg: "hidden" }, message: "by its text" },
      { kubernetes: { pod_name: "p", host: "h" }, log: [] },
    ];
    const { read } = await openIndices({ "logs-1": createFakeIndex(documents) });
    const [structured = "", text] = ['{"msg":"hi there","n":1}', "by its text"];
    expect((await read()).map(({ message }) => message)).toEqual([structured, text, undefined]);
    expect((await read('message:"hi there"')).map(({ message }) => message)).toEqual([structured]);
    expect((await read('log.msg="hi there" message!:hidden')).map(({ message }) => message)).toEqual([
      structured,
    ]);
    expect(await read("message:hidden")).toEqual([]);
  });
});

describe("layout detection, several indices", () => {
  const tagged = { "@log_name": "app", log: "boom", level: "error" };

  test("reads an ambiguous index like the other indices", async () => {
    const { report } = await openIndices({
      "logs-1": createFakeIndex([tagged]),
      "logs-2": createFakeIndex([{ message: "x" }]),
    });
    const { layout, guesses } = await report();
    expect(layout).toBe("fluentd");
    expect(guesses).toEqual([expect.stringMatching(/^logs-2: .*read as fluentd, by which 1 of 1/)]);
  });

  test("reads an unambiguous index by its own layout", async () => {
    const ecs = { ecs: { version: "8" }, message: "m", log: { level: "info" } };
    const { read } = await openIndices({
      "logs-1": createFakeIndex([ecs]),
      "logs-2": createFakeIndex([{ log: "boom" }]),
    });
    expect((await read()).map(({ message }) => message)).toEqual(["m", "boom"]);
  });
});

describe("layout detection, with a tenant filter", () => {
  const theirs = Array.from({ length: 20 }, () => ({
    tenant: "a",
    ecs: { version: "8" },
    message: "m",
    log: { level: "info" },
  }));
  const own = { tenant: "b", kubernetes: { pod_name: "p", host: "n" }, severity: "error", msg: "boom" };

  test("samples only documents of the tenant", async () => {
    const { read, report } = await openIndices({ "logs-1": createFakeIndex([...theirs, own]) });
    expect((await report()).layout).toBe("ecs");
    const within = { tenantFilter: 'tenant="b"' };
    expect((await report(within)).layout).toBe("fluent-bit");
    expect((await read("severity=error hostname=n", within)).map(({ message }) => message)).toEqual(["boom"]);
    // A verdict on one source is not reused for the other.
    expect((await report({ tenantFilter: 'tenant="a"' })).layout).toBe("ecs");
    expect(await read("severity=info", { tenantFilter: 'tenant="a"' })).toHaveLength(20);
  });
});

describe("layout detection, an index that changes", () => {
  test("detects the layout from the first documents without reading the mapping again", async () => {
    const mappings = buildMapping([{ log: "x", level: "x" }]);
    const { hold, read, report } = await openIndices({ "logs-1": createFakeIndex([], mappings) });
    expect((await report()).guesses).toEqual([
      "logs-1: no known layout is recognised; read as ecs until documents show more",
    ]);
    expect(await read()).toEqual([]);
    hold({ "logs-1": createFakeIndex([{ log: "boom", level: "error" }], mappings) });
    expect(await read("severity=error message=boom")).toHaveLength(1);
  });

  test("samples again with each mapping while the index has few documents", async () => {
    const first = { message: "starting" };
    const later = { log: "boom", level: "error" };
    const { hold, read, report } = await openIndices({ "logs-1": createFakeIndex([first]) });
    expect((await report()).layout).toBe("ecs");
    hold({ "logs-1": createFakeIndex([first, later, later]) });
    expect((await report()).layout).toBe("fluent-bit");
    expect(await read("severity=error")).toHaveLength(2);
  });

  test("samples only once for many requests", async () => {
    const { fake, read } = await openIndices({ "logs-1": createFakeIndex([{ log: "boom" }]) });
    await read();
    const before = fake.requests.length;
    await read();
    expect(fake.requests.slice(before).map(({ path }) => path.replace(/\?.*/, ""))).toEqual([
      "/logs-*/_search",
    ]);
  });
});
