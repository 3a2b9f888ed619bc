// Decodes documents of each span layout as its shipper writes them: one document in full, then the difficult parts.

import { describe, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import { decodeSeparateEvent, type SeparateEvent } from "#resolvers/elastic/layout/event-decoder.ts";
import { type PlacedForm, placeForms } from "#resolvers/elastic/layout/form-placement.ts";
import { decodeSpan } from "#resolvers/elastic/layout/span-decoder.ts";
import {
  type EventForm,
  parseSpanLayout,
  type SpanForm,
  spanLayouts,
} from "#resolvers/elastic/layout/span-layout.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { parseExactIntegers } from "#src/core/json/lossless-json.ts";
import type { Span, SpanKind } from "#src/core/rows.ts";
import { type Instant, parseInstant } from "#src/core/time.ts";
import { listExceptions } from "#src/tracing/spans/exceptions.ts";
import { calculateDuration, deriveNames } from "#src/tracing/spans/requests.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";
import { otel, otelOlder } from "../../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../../support/elastic/span-shippers/shipper.ts";
import { createSpan } from "../../../tracing/span-builder.ts";

const source = buildSpanSource("shop", { index: "spans", layout: "auto" });

function findLayout(name: string) {
  const layout = spanLayouts.get(name);
  if (layout === undefined) throw new Error(`no layout ${name}`);
  return layout;
}
/** Decodes by the first form that fits. */
function read(layout: string, text: string): Span | undefined {
  const document = parseExactIntegers(text);
  return findLayout(layout)
    .spans.map((form) => decodeSpan(document, form, source))
    .find((span) => span !== undefined);
}
function readSeparateEvent(layout: string, text: string): SeparateEvent | undefined {
  const document = parseExactIntegers(text);
  return findLayout(layout)
    .events.map((form) => decodeSeparateEvent(document, form))
    .find((event) => event !== undefined);
}
function instant(text: string): Instant {
  const parsed = parseInstant(text);
  if (parsed === undefined) throw new Error(text);
  return parsed;
}

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const spanId = "00f067aa0ba902b7";
const parentId = "00000000000000a1";

describe("otel", () => {
  const document = `{ "@timestamp":"1705314600000.123456","data_stream":{"type":"traces","dataset":"generic.otel","namespace":"default"},
    "trace_id":"${traceId}","span_id":"${spanId}","parent_span_id":"${parentId}","trace_state":"k=v","name":"GET /a","kind":"Server","duration":12000001,
    "attributes":{"http.request.method":"GET","http":{"response":{"status_code":500}},"big":9007199254740993,"appsignal.namespace":"admin",
      "appsignal.action_name":"A#b","appsignal.tag.region":"eu","list":["a","b"],"empty":{}},
    "links":[{"trace_id":"${traceId.toUpperCase()}","span_id":"A1","trace_state":"x=y","attributes":{"why":"retry"}}],
    "status":{"code":"Error","message":"boom"},"resource":{"attributes":{"service.name":"shop-web","service.version":"3f9c"}},"scope":{"name":"lib","version":"1"} }`;

  test("decodes a span", () => {
    expect(read("otel", document)).toEqual({
      site_id: "shop",
      trace_id: traceId,
      span_id: spanId,
      parent_span_id: parentId,
      trace_state: "k=v",
      start: instant("2024-01-15T10:30:00.000123456Z"),
      end: instant("2024-01-15T10:30:00.012123457Z"),
      service_name: "shop-web",
      span_name: "GET /a",
      span_kind: "server",
      scope_name: "lib",
      scope_version: "1",
      revision: "3f9c",
      status_code: "ERROR",
      status_message: "boom",
      resource_attributes: { "service.name": "shop-web", "service.version": "3f9c" },
      span_attributes: {
        "http.request.method": "GET",
        "http.response.status_code": 500,
        big: 9007199254740993n,
        "appsignal.namespace": "admin",
        "appsignal.action_name": "A#b",
        "appsignal.tag.region": "eu",
        list: ["a", "b"],
        empty: {},
      },
      events: [],
      links: [{ trace_id: traceId, span_id: parentId, trace_state: "x=y", attributes: { why: "retry" } }],
      entry: true,
      namespace: "admin",
      action: "A#b",
      tags: { region: "eu" },
      count: 1,
      statement: undefined,
      peer: undefined,
      report: false,
    });
  });

  test.each([
    ...(["Error", "ERROR", "STATUS_CODE_ERROR", "2", 2] as const).map((code) => [code, "ERROR"] as const),
    ...(["Ok", "STATUS_CODE_OK", "1", 1] as const).map((code) => [code, "OK"] as const),
    ...(["Unset", "STATUS_CODE_UNSET", "0", 0, "", null] as const).map((code) => [code, "UNSET"] as const),
  ])("decodes the status code %j as %s", (code, status) => {
    const text = document.replace('"code":"Error"', `"code":${JSON.stringify(code)}`);
    expect(read("otel", text)).toMatchObject({ status_code: status, status_message: "boom" });
  });

  test.each([
    ["12000001", 12_000_001n],
    ['"12000001"', 12_000_001n],
    ['"12000001.9"', 12_000_001n],
    ["12000001.9", 12_000_001n],
    ["9007199254740993", 9_007_199_254_740_993n],
    ['"9007199254740993"', 9_007_199_254_740_993n],
    ["-5", 0n],
    ['"-5"', 0n],
  ])("decodes the duration %s as integer nanoseconds, at least 0", (length, nanos) => {
    const one = read("otel", document.replace('"duration":12000001', `"duration":${length}`));
    expect(one && one.end - one.start).toBe(nanos);
  });

  test("reads the digits after the point as a number of nanoseconds, not as a fraction", () => {
    expect(read("otel", document.replace(".123456", ".5"))?.start).toBe(
      instant("2024-01-15T10:30:00.000000005Z"),
    );
  });

  test("decodes an event from a log document", () => {
    const event = `{"@timestamp":"1705314600000.7","event_name":"exception","trace_id":"${traceId}","span_id":"${spanId}",
      "attributes":{"event.name":"exception","exception.type":"IOError"},"body":{}}`;
    expect(readSeparateEvent("otel", event)).toEqual({
      trace_id: traceId,
      spanIds: [spanId],
      event: {
        time: instant("2024-01-15T10:30:00.000000007Z"),
        name: "exception",
        attributes: { "exception.type": "IOError" },
      },
    });
    // Older collectors write only the attribute.
    const older = event.replace('"event_name":"exception",', "");
    expect(readSeparateEvent("otel", older)).toEqual(readSeparateEvent("otel", event));
    expect(readSeparateEvent("otel", older.replace('"event.name":"exception",', ""))).toBeUndefined();
  });

  test("places events that only an attribute marks in indices without spans, since spans may have it", () => {
    const names = (shipper: SpanShipper, over: object = {}) => {
      const indices = Object.entries(shipper.indices("p")).map(([index, definition]) => {
        const { mappings } = definition as { mappings: { properties: object } };
        return [index, { mappings: { ...mappings, properties: { ...mappings.properties, ...over } } }];
      });
      const metadata = readIndexMetadata(Object.fromEntries(indices));
      const product = describeProduct("Elasticsearch", "8.19.8");
      const { events, possibleForms } = placeForms(metadata, [findLayout("otel")], product);
      const describeForms = (placed: readonly PlacedForm<EventForm | SpanForm>[]) =>
        placed.map(({ group, form }) => `${group.indices.join()}: ${form.present[0]}`);
      return { events: describeForms(events), possible: describeForms(possibleForms) };
    };
    const logs = "p-logs-generic.otel-default";
    const eventName = { "attributes.event.name": { type: "keyword" } };
    expect(names(otel, eventName)).toEqual({
      events: [`${logs}: event_name`, `${logs}: attributes.event.name`],
      possible: [],
    });
    expect(names(otelOlder, eventName)).toEqual({ events: [`${logs}: attributes.event.name`], possible: [] });
    // Before the first event.
    expect(names(otelOlder)).toEqual({ events: [], possible: [`${logs}: attributes.event.name`] });
  });

  test("marks the error report of a browser", () => {
    const report = document.replace('"list"', '"readout.report":true,"list"');
    expect(read("otel", report)?.report).toBe(true);
  });
});

describe("apm", () => {
  const common = `"timestamp":{"us":1705314600123456},"trace":{"id":"${traceId}"},"service":{"name":"shop","version":"1","framework":{"name":"rails","version":"7"}},"host":{"name":"h1"}`;

  test("decodes a transaction as a request", () => {
    const text = (type: string) =>
      `{${common},"processor":{"event":"transaction"},"parent":{"id":"${parentId}"},"event":{"outcome":"failure"},
      "transaction":{"id":"${spanId}","name":"GET /a","type":"${type}","duration":{"us":12000},"result":"HTTP 5xx"},
      "labels":{"appsignal_tag_region":"eu","appsignal_action_name":"A#b","http_route":"/a","own_key":"x"},"numeric_labels":{"appsignal_tag_size":3},
      "http":{"request":{"method":"GET"}},"url":{"full":"http://shop/a"}}`;
    expect(read("apm", text("request"))).toMatchObject({
      span_id: spanId,
      parent_span_id: parentId,
      span_kind: "server",
      span_name: "GET /a",
      start: instant("2024-01-15T10:30:00.123456Z"),
      end: instant("2024-01-15T10:30:00.135456Z"),
      status_code: "ERROR",
      revision: "1",
      scope_name: "rails",
      scope_version: "7",
      entry: true,
      action: "A#b",
      tags: { region: "eu", size: 3 },
      span_attributes: {
        "http.request.method": "GET",
        "http.route": "/a",
        "url.full": "http://shop/a",
        own_key: "x",
        "transaction.type": "request",
      },
      resource_attributes: { "service.name": "shop", "service.version": "1", "host.name": "h1" },
    });
  });

  test.each<[SpanKind, object, object, object?]>([
    // Received as OTLP: the server of a request or a message, and everything else.
    ["server", { type: "request" }, {}],
    ["consumer", { type: "messaging" }, {}],
    ["consumer", { type: "messaging" }, { messaging_operation_type: "process" }],
    ["producer", { type: "messaging" }, { messaging_operation: "publish" }],
    ["internal", { type: "unknown" }, {}],
    // From Elastic's agents: pages, jobs of any name, and OpenTelemetry's kind if they bridge it.
    ["server", { type: "page-load" }, {}],
    ["server", { type: "user-interaction" }, {}],
    ["internal", { type: "Sidekiq" }, {}],
    ["internal", { type: "celery" }, {}],
    ["internal", { type: "scheduled" }, {}],
    ["consumer", { type: "job" }, { messaging_system: "rabbitmq" }],
    ["internal", {}, {}],
    ["client", { type: "unknown" }, {}, { kind: "CLIENT" }],
    ["server", { type: "custom" }, {}, { kind: "SERVER" }],
  ])("decodes a transaction of kind %s: %j, labels %j", (kind, type, labels, span = {}) => {
    const transaction = { id: spanId, name: "it", duration: { us: 1 }, ...type };
    const found = read(
      "apm",
      `{${common},"transaction":${JSON.stringify(transaction)},"labels":${JSON.stringify(labels)},"span":${JSON.stringify(span)}}`,
    );
    expect(found).toMatchObject({ span_kind: kind, entry: true });
    const namespace = kind === "server" ? "web" : "background";
    expect(found && deriveNames(found).namespace).toBe(namespace);
  });

  test.each([
    [{ span: { type: "db" }, labels: { db_query_text: "SELECT 1" } }, "client", "SELECT 1"],
    [
      { span: { type: "unknown" }, labels: { db_system_name: "mysql", db_statement: "SELECT 2" } },
      "client",
      "SELECT 2",
    ],
    [{ span: { type: "db", db: { statement: "SELECT 3" } } }, "client", "SELECT 3"],
    [{ span: { type: "external" }, service: { target: { type: "http" } } }, "client", undefined],
    [{ span: { type: "unknown" }, destination: { address: "pay.example" } }, "client", undefined],
    [
      { span: { type: "app", subtype: "internal" }, destination: { address: "pay.example" } },
      "internal",
      undefined,
    ],
    [
      { span: { type: "messaging", action: "send" }, service: { target: { name: "mails" } } },
      "producer",
      undefined,
    ],
    [{ span: { type: "app" }, labels: { db_collection_name: "users" } }, "internal", undefined],
  ])("derives the kind and the statement of a span: %j", (parts, kind, statement) => {
    const span = { id: spanId, name: "it", duration: { us: 1 }, ...parts.span };
    const document = {
      timestamp: { us: 1 },
      trace: { id: traceId },
      parent: { id: parentId },
      ...parts,
      span,
    };
    expect(read("apm", JSON.stringify(document))).toMatchObject({ span_kind: kind, statement, entry: false });
  });

  test("reads the peer of a call from a label of the newer convention", () => {
    const text = `{${common},"parent":{"id":"${parentId}"},"labels":{"service_peer_name":"pay"},
      "span":{"id":"${spanId}","name":"POST","type":"external","duration":{"us":800},
        "destination":{"service":{"resource":"pay.internal:443"}}}}`;
    expect(read("apm", text)).toMatchObject({
      peer: "pay",
      span_attributes: { "service.peer.name": "pay", "peer.service": "pay.internal:443" },
    });
  });

  test("decodes a compressed span with its destination as peer", () => {
    const text = `{${common},"processor":{"event":"span"},"parent":{"id":"${parentId}"},"event":{"outcome":"success"},
      "span":{"id":"${spanId}","name":"SELECT FROM users","type":"db","subtype":"postgresql","duration":{"us":800},
        "db":{"statement":"SELECT 1","type":"sql"},"destination":{"service":{"resource":"postgresql/orders"}},
        "composite":{"count":10,"sum":{"us":700},"compression_strategy":"exact_match"},"links":[{"trace":{"id":"${traceId}"},"span":{"id":"${parentId}"}}]}}`;
    expect(read("apm", text)).toMatchObject({
      span_kind: "client",
      entry: false,
      status_code: "OK",
      count: 10,
      sum: 700_000n,
      statement: "SELECT 1",
      peer: "postgresql/orders",
      links: [{ trace_id: traceId, span_id: parentId, trace_state: "", attributes: {} }],
    });
  });

  test("decodes an exception from an error document", () => {
    const text = `{${common},"processor":{"event":"error"},"parent":{"id":"${parentId}"},"transaction":{"id":"${spanId}"},
      "error":{"id":"e1","grouping_key":"g","exception":[{"type":"IOError","message":"boom","stacktrace":[{"filename":"a.js"}]}]}}`;
    expect(readSeparateEvent("apm", text)).toMatchObject({
      trace_id: traceId,
      spanIds: [parentId, spanId],
      event: {
        name: "exception",
        attributes: {
          "exception.type": "IOError",
          "exception.message": "boom",
          "exception.stacktrace": "at a.js",
          "error.grouping_key": "g",
        },
      },
    });
  });

  const nodeFrames = [
    { abs_path: "/srv/app.js", filename: "app.js", function: "show", line: { number: 12, column: 3 } },
    { function: "Promise", library_frame: true, line: { number: 0 } },
    { line: { number: 4 } },
    { abs_path: "/srv/run.js", "line.number": 7 },
  ];
  const nodeText = "at show (app.js:12:3)\nat Promise (library)\nat /srv/run.js:7";
  test.each<readonly [string, object, string | undefined]>([
    ["of an exception", { exception: [{ type: "E", stacktrace: nodeFrames }] }, nodeText],
    [
      "of its exception, not of what caused it",
      {
        exception: [
          { type: "E", stacktrace: nodeFrames },
          { type: "Cause", stacktrace: [{ filename: "b.js" }] },
        ],
      },
      nodeText,
    ],
    ["of a text that an application reports", { log: { message: "m", stacktrace: nodeFrames } }, nodeText],
    [
      "of the text where the exception has none",
      {
        exception: [{ type: "E", stacktrace: [] }],
        log: { message: "m", stacktrace: nodeFrames },
      },
      nodeText,
    ],
    [
      "in classes",
      {
        exception: [
          {
            stacktrace: [
              {
                classname: "com.acme.Shop",
                module: "java.base",
                function: "pay",
                filename: "Shop.java",
                line: { number: 9 },
              },
            ],
          },
        ],
      },
      "at com.acme.Shop.pay (Shop.java:9)",
    ],
    [
      "in modules",
      {
        exception: [
          {
            stacktrace: [
              { module: "shop.views", function: "pay", abs_path: "/srv/views.py" },
              { function: "main" },
            ],
          },
        ],
      },
      "at shop.views.pay (/srv/views.py)\nat main",
    ],
    [
      "beside the text of OTLP, which counts",
      {
        stack_trace: "E: m\n at a",
        exception: [{ stacktrace: nodeFrames }],
      },
      "E: m\n at a",
    ],
    ["without any place", { exception: [{ stacktrace: [{ line: { number: 0 } }] }] }, undefined],
  ])("decodes frames %s as the text of a stack", (_, own, stack) => {
    const error = JSON.stringify({ id: "e1", grouping_key: "g", ...own });
    const text = `{${common},"transaction":{"id":"${spanId}"},"error":${error}}`;
    const events = [readSeparateEvent("apm", text)?.event].filter((event) => event !== undefined);
    expect(events[0]?.attributes["exception.stacktrace"]).toBe(stack);
    const names = { namespace: "web", action: "GET /a" };
    expect(listExceptions(createSpan({ events }), names)).toMatchObject([{ stacktrace: stack }]);
  });

  test("ignores metric documents", () => {
    expect(
      read("apm", `{${common},"transaction":{"id":"${spanId}","duration":{"histogram":{}}}}`),
    ).toBeUndefined();
  });
});

test("data-prepper: decodes the older template, with @ for dots and flat keys", () => {
  const text = `{"traceId":"${traceId}","spanId":"${spanId}","parentSpanId":"","name":"GET /a","kind":"SPAN_KIND_CLIENT","startTime":"2024-01-15T10:30:00.123456789Z",
    "endTime":"2024-01-15T10:30:00.133456789Z","durationInNanos":10000000,"serviceName":"shop","traceGroup":null,"status.code":2,"status.message":"boom",
    "span.attributes.http@method":"GET","span.attributes.peer@service":"pay","resource.attributes.service@version":"3f9c","resource.attributes.service@name":"shop",
    "events":[{"name":"exception","time":"2024-01-15T10:30:00.130000001Z","attributes":{"exception@type":"IOError"}}],
    "links":[{"traceId":"${traceId}","spanId":"${parentId}","traceState":"a=b","attributes":{"x@y":1}}]}`;
  expect(read("data-prepper", text)).toMatchObject({
    parent_span_id: undefined,
    entry: true,
    span_kind: "client",
    start: instant("2024-01-15T10:30:00.123456789Z"),
    end: instant("2024-01-15T10:30:00.133456789Z"),
    service_name: "shop",
    revision: "3f9c",
    status_code: "ERROR",
    status_message: "boom",
    peer: "pay",
    span_attributes: { "http.method": "GET", "peer.service": "pay" },
    events: [
      {
        time: instant("2024-01-15T10:30:00.130000001Z"),
        name: "exception",
        attributes: { "exception.type": "IOError" },
      },
    ],
    links: [{ trace_id: traceId, span_id: parentId, trace_state: "a=b", attributes: { "x.y": 1 } }],
  });
});

test.each([
  [{ "net.peer.name": "db.internal", "db.system": "mysql" }, "db.internal"],
  [{ "net.peer.name": "old.internal", "server.address": "new.internal" }, "new.internal"],
  [{ "messaging.destination": "mails", "messaging.system": "rabbitmq" }, "mails"],
  [{ "messaging.destination": "old", "messaging.destination.name": "new" }, "new"],
  [{ "messaging.destination": "mails", "net.peer.name": "broker", "peer.service": "queue" }, "queue"],
  [{ "peer.service": "old", "service.peer.name": "new" }, "new"],
  [{ "server.address": "pay.internal", "service.peer.name": "pay" }, "pay"],
  [{ "http.route": "/a" }, undefined],
])("otel: reads the peer by newer and older conventions: %j", (attributes, peer) => {
  const ids = { trace_id: traceId, span_id: spanId, parent_span_id: parentId };
  const call = { ...ids, "@timestamp": "1705314600000.0", duration: 1, kind: "Client", attributes };
  expect(read("otel", JSON.stringify(call))?.peer).toBe(peer);
});

test("data-prepper: a span whose clock ran backwards keeps its times and has no duration", () => {
  const text = `{"traceId":"${traceId}","spanId":"${spanId}","parentSpanId":"","name":"GET /a","kind":"SPAN_KIND_SERVER","startTime":"2024-01-15T10:30:00.000000009Z",
    "endTime":"2024-01-15T10:30:00.000000004Z","durationInNanos":-5,"serviceName":"shop"}`;
  const span = read("data-prepper", text);
  expect(span).toMatchObject({
    start: instant("2024-01-15T10:30:00.000000009Z"),
    end: instant("2024-01-15T10:30:00.000000004Z"),
  });
  expect(span && calculateDuration(span)).toBe(0n);
});

describe("jaeger", () => {
  test.each([
    // Written by the exporter, which repeats the status.
    ["ERROR", undefined, { error: true }, undefined],
    ["ERROR", undefined, { error: "true" }, undefined],
    ["ERROR", "ERROR", { error: true }, undefined],
    // Written by the application.
    ["OK", "OK", { error: true }, true],
    ["ERROR", "ERROR", { error: "timeout" }, "timeout"],
    ["UNSET", undefined, { error: "timeout" }, "timeout"],
    ["UNSET", undefined, { error: false }, false],
    ["UNSET", undefined, {}, undefined],
  ])("status %s, from %s and %j, leaves the tag %s", (status, code, tag, left) => {
    const ids = { traceID: traceId, spanID: spanId, startTime: 1, duration: 1 };
    const document = { ...ids, tag: { ...tag, "otel@status_code": code } };
    const found = read("jaeger", JSON.stringify(document));
    expect(found?.status_code).toBe(status);
    expect(found?.span_attributes).toEqual(left === undefined ? {} : { error: left });
  });

  const text = `{"traceID":"${traceId.slice(2)}","spanID":"f067aa0ba902b7","references":[{"refType":"CHILD_OF","traceID":"${traceId.slice(2)}","spanID":"a1"},
      {"refType":"FOLLOWS_FROM","traceID":"${traceId}","spanID":"b2"}],"operationName":"GET /a","startTime":1705314600123456,"startTimeMillis":1705314600123,"duration":12000,
    "tags":[{"key":"http.status_code","type":"int64","value":"500"},{"key":"big","type":"int64","value":"9007199254740993"},{"key":"ratio","type":"float64","value":"0.5"},
      {"key":"sampled","type":"bool","value":"true"},{"key":"code","type":"string","value":"007"},{"key":"error","type":"bool","value":"true"}],
    "tag":{"span@kind":"consumer"},"process":{"serviceName":"shop","tags":[{"key":"service.version","type":"string","value":"3f9c"}]},
    "logs":[{"timestamp":1705314600123999,"fields":[{"key":"event","type":"string","value":"exception"},{"key":"exception.type","type":"string","value":"IOError"}]}]}`;

  test("decodes a span with padded ids, typed tags, and parent and links by reference", () => {
    expect(read("jaeger", text)).toMatchObject({
      trace_id: `00${traceId.slice(2)}`,
      span_id: spanId,
      parent_span_id: parentId,
      span_kind: "consumer",
      entry: true,
      status_code: "ERROR",
      revision: "3f9c",
      end: instant("2024-01-15T10:30:00.135456Z"),
      span_attributes: {
        "http.status_code": 500,
        big: 9007199254740993n,
        ratio: 0.5,
        sampled: true,
        code: "007",
      },
      resource_attributes: { "service.name": "shop", "service.version": "3f9c" },
      events: [
        {
          time: instant("2024-01-15T10:30:00.123999Z"),
          name: "exception",
          attributes: { "exception.type": "IOError" },
        },
      ],
      links: [{ trace_id: traceId, span_id: "00000000000000b2", trace_state: "", attributes: {} }],
    });
    expect(Object.keys(read("jaeger", text)?.span_attributes ?? {})).not.toContain("span.kind");
    expect(Object.keys(read("jaeger", text)?.span_attributes ?? {})).not.toContain("error");
  });

  test("a parent in another trace is a link as well, and a parent in the own trace takes precedence", () => {
    const other = "f".repeat(32);
    const elsewhere = text.replace(
      `"CHILD_OF","traceID":"${traceId.slice(2)}"`,
      `"CHILD_OF","traceID":"${other}"`,
    );
    const link = { trace_id: other, span_id: parentId, trace_state: "", attributes: {} };
    expect(read("jaeger", elsewhere)?.parent_span_id).toBe(parentId);
    expect(read("jaeger", elsewhere)?.links).toContainEqual(link);
    const both = elsewhere.replace(
      '{"refType":"FOLLOWS_FROM"',
      `{"refType":"CHILD_OF","traceID":"${traceId.slice(2)}","spanID":"c3"},{"refType":"FOLLOWS_FROM"`,
    );
    expect(read("jaeger", both)?.parent_span_id).toBe("00000000000000c3");
    expect(read("jaeger", both)?.links).toHaveLength(2);
    expect(read("jaeger", both)?.links).toContainEqual(link);
  });

  test("a FOLLOWS_FROM in the own trace is the parent of a span without CHILD_OF, and a link", () => {
    const own = traceId.slice(2);
    const reference = (refType: string, traceID: string, spanID: string) => ({ refType, traceID, spanID });
    const referring = (...references: object[]) =>
      read("jaeger", JSON.stringify({ traceID: own, spanID: "1", startTime: 1, duration: 1, references }));
    const follows = reference("FOLLOWS_FROM", own, "b2");
    const foreign = reference("CHILD_OF", "f".repeat(32), "c3");
    expect(referring(follows)).toMatchObject({ parent_span_id: "00000000000000b2", entry: false });
    expect(referring(follows)?.links).toMatchObject([{ span_id: "00000000000000b2" }]);
    expect(referring(foreign, follows)?.parent_span_id).toBe("00000000000000b2");
    expect(referring(follows, reference("CHILD_OF", own, "d4"))?.parent_span_id).toBe("00000000000000d4");
    expect(referring(reference("FOLLOWS_FROM", "f".repeat(32), "b2"))).toMatchObject({
      parent_span_id: undefined,
      entry: true,
    });
  });

  test("reads the parent from its own field", () => {
    const own = text.replace(/"references":\[.*?\],\s*\{[^\]]*\]/s, '"parentSpanID":"a1"');
    expect(
      read("jaeger", own.replace(/"references":\[[\s\S]*?\],"oper/, '"parentSpanID":"a1","oper')),
    ).toMatchObject({
      parent_span_id: parentId,
      links: [],
    });
  });
});

test("ss4o: ignores the year 1 and data_stream, and keeps all digits of a time", () => {
  const text = `{"@timestamp":"0001-01-01T00:00:00Z","traceId":"${traceId}","spanId":"${spanId}","parentSpanId":"","name":"send","kind":"Producer",
    "startTime":"2024-01-15T10:30:00.000000001Z","endTime":"2024-01-15T10:30:00.000000003Z","status":{"code":"Unset","message":""},
    "attributes":{"messaging.destination.name":"mails","data_stream":{"dataset":"default","type":"span"}},"resource":{"service.name":"shop"},
    "instrumentationScope":{"name":"lib"},"events":[{"@timestamp":"2024-01-15T10:30:00.000000002Z","name":"queued","attributes":{}}]}`;
  expect(read("ss4o", text)).toMatchObject({
    start: instant("2024-01-15T10:30:00.000000001Z"),
    end: instant("2024-01-15T10:30:00.000000003Z"),
    span_kind: "producer",
    peer: "mails",
    status_code: "UNSET",
    status_message: undefined,
    span_attributes: { "messaging.destination.name": "mails" },
    events: [{ time: instant("2024-01-15T10:30:00.000000002Z"), name: "queued", attributes: {} }],
  });
  expect(Object.keys(read("ss4o", text)?.span_attributes ?? {})).toEqual(["messaging.destination.name"]);
});

test("parseSpanLayout: rejects a layout with a mistake", () => {
  const form = `{ holds: span, present: a, trace_id: t, span_id: s, parent: p, start: { field: x, unit: date }, end: { field: y, unit: date },
    name: n, kind: [{ field: k }], status: [{ field: c }], service: v, span_attributes: { from: [{ prefix: a. }] }, resource_attributes: { from: [{ prefix: r. }] } }`;
  expect(parseSpanLayout(`name: mine\ntraces: { documents: [${form}] }`).spans).toHaveLength(1);
  expect(() =>
    parseSpanLayout(`name: mine\ntraces: { documents: [${form.replace("unit: date", "unit: day")}] }`),
  ).toThrow();
  expect(() =>
    parseSpanLayout(
      `name: mine\ntraces: { documents: [${form.replace("end: { field: y, unit: date },", "")}] }`,
    ),
  ).toThrow();
});

test.each([
  ["kind: [{ field: k }]", "kind: [{}]"],
  ["kind: [{ field: k }]", "kind: [{ values: { a: client } }]"],
  ["status: [{ field: c }]", "status: [{ omit: true }]"],
  ["name: [{ field: e }]", "name: [{ field: e }, {}]"],
])("parseSpanLayout: takes %s, and no rule that reads nothing: %s", (right, wrong) => {
  const form = `{ holds: span, present: a, trace_id: t, span_id: s, parent: p, start: { field: x, unit: date }, end: { field: y, unit: date },
    name: n, kind: [{ field: k }], status: [{ field: c }], service: v, span_attributes: { from: [{ prefix: a. }] }, resource_attributes: { from: [{ prefix: r. }] },
    events: { at: e, time: { field: x, unit: date }, name: [{ field: e }], event_attributes: { from: [{ prefix: b. }] } } }`;
  const parse = (text: string) => parseSpanLayout(`name: mine\ntraces: { documents: [${text}] }`);
  expect(parse(form).spans).toHaveLength(1);
  expect(() => parse(form.replace(right, wrong))).toThrow("expected field or value");
});

test.each(["duration", "sum"])("parseSpanLayout: takes a %s in units, and none as a date", (name) => {
  const parse = (unit: string) =>
    parseSpanLayout(`name: mine
traces: { documents: [{ holds: span, present: a, trace_id: t, span_id: s, parent: p, start: { field: x, unit: date }, end: { field: y, unit: date },
    name: n, kind: [{ field: k }], status: [{ field: c }], service: v, span_attributes: { from: [{ prefix: a. }] }, resource_attributes: { from: [{ prefix: r. }] },
    ${name}: { field: d, unit: ${unit} } }] }`);
  for (const unit of ["ms", "us", "ns"]) expect(parse(unit).spans).toMatchObject([{ [name]: { unit } }]);
  expect(() => parse("date")).toThrow(/unit/);
});
