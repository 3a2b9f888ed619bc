// Detects the layout of documents as shippers write them, and decodes their lines. The documents are those of Filebeat 7.10 and
// 7.17, Fluent Bit 5.1, an APM server (apm-data of 2026) and the collector's opensearch exporter 0.138.
import { describe, expect, test } from "vitest";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import { requireKey } from "#src/core/collections.ts";
import {
  at,
  buildMapping,
  createFakeIndex,
  type JsonObject,
  openIndices,
  readSingleDocument,
} from "../../../support/elastic/layout-harness.ts";

describe("Filebeat", () => {
  test.each<readonly [string, JsonObject, object]>([
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
  ])("decodes a message and a severity from JSON %s", async (_, own, line) => {
    const { read, report } = await openIndices({
      "logs-1": createFakeIndex([
        {
          agent: { type: "filebeat", version: "7.17.29" },
          ecs: { version: "1.12.0" },
          host: { name: "h" },
          input: { type: "log" },
          log: { offset: 0, file: { path: "/a" } },
          ...own,
        },
        // A line of another file in the same index, which shows no layout.
        { ecs: { version: "1.12.0" }, host: { name: "h" }, log: { file: { path: "/b" } }, message: "plain" },
      ]),
    });
    expect((await report()).layout).toBe("ecs");
    expect(await read("group=/a")).toMatchObject([{ ...line, hostname: "h", group: "/a" }]);
  });

  test.each<readonly [string, JsonObject, object]>([
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
      "input of RFC 5424",
      {
        hostname: "sender",
        syslog: { priority: 35, severity_label: "Error", facility: 4, msgid: "ID0", version: 1 },
        event: { severity: 3 },
        process: { entity_id: "77", name: "prog" },
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
  ])("syslog %s: the host name is the sender's, not that of Filebeat's machine", async (_, own, line) => {
    const document = {
      agent: { type: "filebeat" },
      ecs: { version: "1.12.0" },
      host: { name: "vm" },
      message: "m",
      ...own,
    };
    expect(await readSingleDocument(document)).toMatchObject({
      layout: "ecs",
      line: { message: "m", ...line },
    });
  });
});

describe("Fluent Bit", () => {
  // As version 5.1 writes lines of syslog with its own parsers: the number is a text.
  const sent = { host: "sender", ident: "sshd", pid: "7", message: "m", time: "Jan 15 10:00:00" };
  test.each<readonly [unknown, string]>([
    ["0", "fatal"],
    ["13", "notice"],
    ["34", "critical"],
    [131, "error"],
    ["191", "debug"],
    ["192", "unknown"],
  ])("decodes the syslog priority %j as %s", async (pri, severity) => {
    const line = { severity, message: "m", hostname: "sender", group: "sshd" };
    expect(await readSingleDocument({ pri, ...sent })).toEqual({ layout: "fluent-bit", guesses: [], line });
  });

  // With and without `Strip_Underscores` of its input.
  const entry = { SYSLOG_IDENTIFIER: "sshd", PRIORITY: "3", MESSAGE: "m", _TRANSPORT: "journal" };
  test.each<readonly [string, JsonObject]>([
    ["as it is", { ...entry, _HOSTNAME: "sender" }],
    ["without underscores", { ...entry, HOSTNAME: "sender" }],
  ])("decodes entries of the journal %s", async (_, document) => {
    const line = { severity: "error", message: "m", hostname: "sender", group: "sshd" };
    expect(await readSingleDocument(document)).toEqual({ layout: "fluent-bit", guesses: [], line });
  });

  test("finds exactly the lines of a severity by syslog priorities", async () => {
    const documents = Array.from({ length: 24 }, (_, pri) => ({ pri: String(pri), ...sent, n: pri }));
    const { read } = await openIndices({ "logs-1": createFakeIndex(documents) });
    const numbers = async (query: string) =>
      (await read(query)).map(({ json }): number => JSON.parse(json).n).sort((a, b) => a - b);
    expect(await numbers("severity=error")).toEqual([3, 11, 19]);
    expect(await numbers("severity!=error n<8")).toEqual([0, 1, 2, 4, 5, 6, 7]);
  });

  test("does not report a priority field as numbers without a severity", async () => {
    const { report } = await openIndices({ "logs-1": createFakeIndex([{ pri: 131, ...sent }]) });
    expect((await report()).limitations.filter((text) => text.includes("holds numbers"))).toEqual([]);
  });

  test.each<readonly [string, JsonObject, object]>([
    ["with its text", { log: '{"level":"warn"}' }, { message: '{"level":"warn"}', severity: "warn" }],
    ["without its text", {}, { message: "m", severity: "warn" }],
  ])(
    "prefers the severity of a container's JSON below log_processed, %s, to that of its stream",
    async (_, own, line) => {
      const pod = { pod_name: "p", host: "node", container_name: "web" };
      const document = { stream: "stderr", log_processed: { level: "warn", message: "m" }, kubernetes: pod };
      expect(await readSingleDocument({ ...document, ...own })).toEqual({
        layout: "fluent-bit",
        guesses: [],
        line: { ...line, hostname: "node", group: "web" },
      });
    },
  );
});

describe("an APM server's records of OTLP", () => {
  // As versions 9 and 8.8 write them.
  const record = {
    agent: { name: "opentelemetry/java", version: "1.30.0" },
    data_stream: { type: "logs", dataset: "apm.app.shop", namespace: "default" },
    host: { hostname: "h", name: "h" },
    message: "m",
    observer: { hostname: "apm-1", type: "apm-server" },
    service: { name: "shop", framework: { name: "com.acme.Logger" }, language: { name: "unknown" } },
  };
  const { language: _, ...unnamed } = record.service;
  const text = { ...record, event: { severity: 9 }, log: { level: "WARN" } };
  test.each<readonly [string, JsonObject, string]>([
    ["a number alone", { event: { severity: 17 }, log: {} }, "error"],
    ["a number beside a text that is none", { event: { severity: 24 }, log: { level: "X" } }, "fatal"],
    ["a text alone", { event: { dataset: "shop" }, log: { level: "error" } }, "error"],
    [
      "a number of an older server",
      { event: { severity: 13 }, processor: { event: "log" }, service: unnamed },
      "warn",
    ],
  ])("decodes %s as the severity", async (_, own, severity) => {
    const line = { severity, message: "m", hostname: "h", group: "shop" };
    expect(await readSingleDocument({ ...record, ...own })).toEqual({
      layout: "elastic-apm",
      guesses: [],
      line,
    });
    const { read } = await openIndices({ "logs-1": createFakeIndex([text, { ...record, ...own }]) });
    expect((await read("message=m")).map((found) => found.severity).sort()).toEqual(
      ["warn", severity].sort(),
    );
    expect(await read(`severity=${severity} group=shop`)).toHaveLength(severity === "warn" ? 2 : 1);
  });

  test("decodes numbers that come after many texts", async () => {
    const texts = Array.from({ length: 25 }, () => text);
    const number = { ...record, event: { severity: 17 }, log: {} };
    const { read } = await openIndices({ "logs-1": createFakeIndex([...texts, number]) });
    expect(await read("severity=error")).toHaveLength(1);
    expect(await read("severity=warn")).toHaveLength(25);
  });

  test("recognises records with a text severity or none", async () => {
    expect(await readSingleDocument(text)).toMatchObject({
      layout: "elastic-apm",
      line: { severity: "warn" },
    });
    const nothing = { ...record, event: {}, log: {} };
    expect(await readSingleDocument(nothing)).toMatchObject({
      layout: "elastic-apm",
      line: { severity: "unknown" },
    });
  });

  test("reads all that ecs reads, in its order, and the number last", () => {
    const { severity, ...ecs } = requireKey(logLayouts, "ecs");
    const own = requireKey(logLayouts, "elastic-apm");
    const { message, structured, hostname, group, json, time } = ecs;
    expect(own).toMatchObject({ message, structured, hostname, group, json, time });
    expect(own.severity.slice(0, -1)).toEqual(severity);
    expect(own.severity.at(-1)?.field).toBe("event.severity");
  });

  test("decodes documents of Filebeat that come after many records", async () => {
    const records = Array.from({ length: 20 }, () => text);
    const syslog = {
      message: "late",
      log: { syslog: { severity: { code: 3, name: "err" }, hostname: "fw1" } },
      host: { name: "h" },
    };
    const { read, report } = await openIndices({ "logs-1": createFakeIndex([...records, syslog]) });
    expect((await report()).layout).toBe("elastic-apm");
    expect(await read("message=late")).toMatchObject([{ severity: "error", hostname: "fw1" }]);
    expect(await read("severity=error hostname=fw1")).toHaveLength(1);
  });

  test("does not decode severity numbers of other sources as OpenTelemetry's", async () => {
    const document = { ecs: { version: "8" }, message: "m", host: { name: "h" }, event: { severity: 8 } };
    expect(await readSingleDocument(document)).toMatchObject({
      layout: "ecs",
      line: { severity: "unknown" },
    });
  });

  test("of other sources, check counts severity numbers without a text beside them", async () => {
    const own = { ecs: { version: "8" }, message: "m", host: { name: "h" } };
    const documents = [
      { ...own, event: { severity: 8 } },
      { ...own, event: { severity: 8 }, log: { level: "info" } },
      { ...own, log: { level: "info" } },
    ];
    const countNumbers = async (...held: readonly JsonObject[]) => {
      const mappings = buildMapping(documents);
      const { report } = await openIndices({ "logs-1": createFakeIndex(held, mappings) });
      return (await report()).limitations.filter((text) => text.includes("event.severity"));
    };
    expect(await countNumbers(...documents)).toEqual([
      "1 documents have no severity but a number at event.severity, which the layout ecs does not read; a custom layout can (at_least)",
    ]);
    expect(await countNumbers(...documents.slice(1))).toEqual([]);
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

  test("mode none: the body has the attributes", async () => {
    const document = { ...record, Attributes: { http: { method: "GET" }, n: 5 } };
    expect(await readSingleDocument(document)).toEqual({ layout: "otel-none", guesses: [], line });
    const { read } = await openIndices({ "logs-1": createFakeIndex([document]) });
    const [found] = await read("http.method=GET n>4 resource.host.name=h trace_id=4bf9 severity=error");
    expect(JSON.parse(found?.json ?? "")).toEqual({
      ...document.Attributes,
      resource: record.Resource,
      scope: record.Scope,
      trace_id: "4bf9",
      "@timestamp": at,
    });
  });

  // As version 0.138 writes them: keys keep their dots, and a text is below `Body`.
  const exported = (body: JsonObject, prefix: string): JsonObject => ({
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
  ])("decodes the modes of the opensearch exporter as %s", async (layout, prefix) => {
    const text = exported({ "Body.value": "boom" }, prefix);
    expect(await readSingleDocument(text)).toEqual({ layout, guesses: [], line });
    const map = exported({ "Body.text": "hidden", "Body.deep.a": 7 }, prefix);
    const { read } = await openIndices({ "logs-1": createFakeIndex([text, map]) });
    expect((await read("hostname=h group=shop")).map(({ message }) => message)).toEqual([
      "boom",
      '{"text":"hidden","deep.a":7}',
    ]);
    expect(await read("message=boom n=5")).toHaveLength(1);
    expect(await read("message:hidden n=5")).toHaveLength(1);
    expect(await read("message!:boom")).toHaveLength(1);
  });

  test("opensearch exporter: the body has the other keys but no texts of the record", async () => {
    const documents = [{ "Body.value": "boom" }, { "Body.value": "x", "Body.a": 1 }, { "Body.a": 2 }];
    const { read } = await openIndices({
      "logs-1": createFakeIndex(documents.map((body) => exported(body, "Attributes."))),
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

  test("mode none: an object as body is the message and part of the body", async () => {
    const document = { ...record, Body: { a: 1, b: "x" }, Attributes: { n: 5 } };
    const { read } = await openIndices({ "logs-1": createFakeIndex([document]) });
    expect((await read("b=x n=5 message:a")).map(({ message }) => message)).toEqual(['{"a":1,"b":"x"}']);
  });

  test("mode raw: the attributes lie beside the fields of the record", async () => {
    const document = { ...record, SeverityNumber: 13, http: { method: "GET" } };
    const expected = { ...line, severity: "warn" };
    expect(await readSingleDocument(document)).toEqual({ layout: "otel-raw", guesses: [], line: expected });
    const { read } = await openIndices({ "logs-1": createFakeIndex([document]) });
    expect(await read("http.method=GET Scope.name=io")).toHaveLength(1);
  });
});
