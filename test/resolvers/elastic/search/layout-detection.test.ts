// What `auto` makes of documents and mappings, over a small search server in memory: which layout is taken, what the lines
// are then, and what `check` says of it.
import { describe, expect, test } from "vitest";
import type { HeldIndex } from "../../../support/elastic/fake-cluster.ts";
import {
  at,
  held,
  type Json,
  mapped,
  open,
  propertiesOf,
  told,
} from "../../../support/elastic/layout-harness.ts";

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
      "tracing's of Rust",
      { level: "WARN", target: "shop::cart", fields: { message: "boom", id: 7 }, span: { name: "request" } },
      "plain",
      { severity: "warn", message: "boom", group: "shop::cart" },
    ],
    [
      "tracing's by Fluent Bit",
      {
        ...{ level: "ERROR", target: "shop", fields: { message: "boom" }, stream: "stdout" },
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

  test("rsyslog's in the form of omelasticsearch's own page has its time at timestamp", async () => {
    const document = { message: "boom", host: "h", severity: "err", facility: "auth", syslogtag: "sshd[7]:" };
    const { properties } = mapped([document]) as { readonly properties: object };
    const { read, report } = await open({
      "logs-1": {
        documents: [{ timestamp: at, ...document }],
        mappings: { properties: { ...properties, timestamp: { type: "date" } } },
      },
    });
    expect(await report()).toMatchObject({ profile: "rsyslog", guesses: [], problems: [] });
    expect(await read('severity=error hostname=h group="sshd[7]:"')).toHaveLength(1);
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
