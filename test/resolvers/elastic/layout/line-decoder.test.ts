// Decodes the documents of each log layout as its shipper writes them. The conformance suite on real servers covers whole stores;
// this file covers the decoder only.
import { describe, expect, test } from "vitest";
import { decodeLine } from "#resolvers/elastic/layout/line-decoder.ts";
import { logLayouts, parseLogLayout } from "#resolvers/elastic/layout/log-layout.ts";
import { fromMillis } from "#src/core/time.ts";
import type { LogShipper, ShippableLine } from "../../../support/elastic/log-documents.ts";
import * as shippers from "../../../support/elastic/log-shippers.ts";
import * as platformShippers from "../../../support/elastic/platform-log-shippers.ts";

const expected = {
  time: "2026-01-15T10:00:00.123Z",
  hostname: "web-1",
  group: "shop",
  severity: "error",
  message: "it broke",
  json: '{"n":200,"price":1.50,"big":9007199254740993,"on":true,"text":"x"}',
};
const allShippers = Object.entries({ ...shippers, ...platformShippers });

function read({ layout: name, document }: LogShipper, over: Partial<ShippableLine> = {}) {
  const layout = logLayouts.get(name);
  if (layout === undefined) throw new Error(`no layout ${name}`);
  const source = document({ ...expected, ...over });
  const hit = { index: "i", id: "1", source, sort: undefined, picked: undefined };
  return { source, layout, line: decodeLine("elk", hit, fromMillis(0), "app", layout) };
}

describe.each(allShippers)("line decoder of %s", (name, shipper) => {
  test("decodes a line and keeps the spelling of numbers in its body", () => {
    const { line, layout, source } = read(shipper);
    const { time: _, json: __, ...plain } = expected;
    expect(line).toMatchObject({ id: "i/1", source_id: "app", ...plain });
    if (layout.json === "source") expect(line.json).toBe(source);
    expect(JSON.parse(line.json)).toMatchObject({ n: 200, price: 1.5, on: true, text: "x" });
    // Older versions of Data Prepper lose the digits themselves.
    if (name !== "olderDataPrepperLogs") expect(line.json).toContain('"price":1.50,"big":9007199254740993');
  });

  test("decodes severities in its own words or numbers", () => {
    for (const severity of ["debug", "info", "warn", "error"])
      expect(read(shipper, { severity }).line.severity).toBe(severity);
    expect(read(shipper, { severity: undefined }).line.severity).toBe("unknown");
  });

  test("keeps all lines of a message", () => {
    for (const message of ["two\nlines", "two\r\n\nlines and a space ", "\nx"])
      expect(read(shipper, { message }).line.message).toBe(message);
    // Layouts of Fluent Bit and fluentd remove one line end, since Fluent Bit adds one to lines that are not JSON.
    const ended = /^(?:fluentd|podPino)Logs$/.test(name) ? "x" : "x\n";
    expect(read(shipper, { message: "x\n" }).line.message).toBe(ended);
  });

  test("leaves out absent fields", () => {
    const { line } = read(shipper, { message: undefined, hostname: undefined, json: "{}" });
    expect(line).toMatchObject({ message: undefined, hostname: undefined });
  });
});

test("an event of a span beside lines of otel has no message, its name is in the body, and the layout says so", () => {
  const attributes = { "event.name": "exception", "exception.message": "nothing left" };
  const { layout, line } = read({
    ...shippers.otelLogs,
    document: () => JSON.stringify({ trace_id: "a", span_id: "b", event_name: "exception", attributes }),
  });
  expect(line).toMatchObject({ message: undefined, severity: "unknown" });
  expect(JSON.parse(line.json)).toMatchObject(attributes);
  expect(layout.lacks).toContainEqual(expect.stringMatching(/^events of spans .* event\.name/));
});

describe("line decoder of a layout with several body sources", () => {
  const layout = parseLogLayout(`
name: parts
logs:
  time: when
  message: text
  severity: [lvl, { field: code, values: { E: error }, at_least: { 1: debug, 5: warn } }]
  hostname: node
  group: app
  json:
    from:
      - { prefix: attrs., dot: "@", except: [attrs.internal.] }
      - { structured: payload }
      - { text: text }
      - { pairs: tags }
      - { prefix: deep.er. }
      - named: { trace_id: ctx.trace, ctx: ctx }
  detect: [lvl]
`);
  const lineOf = (source: string) =>
    decodeLine(
      "elk",
      { index: "i", id: "1", source, sort: undefined, picked: undefined },
      fromMillis(0),
      "app",
      layout,
    );

  test.each([
    ["nothing", "{}", "{}"],
    [
      "a prefix, nested or dotted",
      '{"attrs":{"a@b":1.50,"c":{"d":1}},"attrs.e":2}',
      '{"a.b":1.50,"c":{"d":1},"e":2}',
    ],
    [
      "without what is left out",
      '{"attrs":{"internal":{"x":1},"internals":2},"attrs.internal.y":1}',
      '{"internals":2}',
    ],
    [
      "a prefix of two names",
      '{"deep":{"er":{"a":1},"er.b":2,"erx":3},"deep.er":{"c":4},"deep.er.d":5}',
      '{"a":1,"b":2,"c":4,"d":5}',
    ],
    ["a name that is the prefix alone", '{"attrs.":1,"attrs":5,"other":{"attrs":{"a":1}}}', "{}"],
    ["the first of two", '{"attrs":{"k":1},"tags":[{"key":"k","value":"2"}]}', '{"k":1}'],
    [
      "a list of pairs by their types",
      `{"tags":[{"key":"i","type":"int64","value":"007"},{"key":"n","type":"int64","value":"7"},
        {"key":"f","type":"float64","value":"1.50"},{"key":"b","type":"bool","value":"true"},{"key":"c","type":"bool","value":"yes"},
        {"key":"s","type":"string","value":"7"},{"key":"t","type":"string","value":"true"},{"key":"u","type":"UINT8","value":"1"},
        {"key":"v","type":"Boolean","value":"false"},{"key":"w","type":"bool","value":"true enough"},{"value":"lost"},"odd",{"key":"o","type":"int64","value":8}]}`,
      '{"i":"007","n":7,"f":1.50,"b":true,"c":"yes","s":"7","t":"true","u":1,"v":false,"w":"true enough","o":8}',
    ],
    ["a single pair", '{"tags":{"key":"n","type":"int64","value":"7"}}', '{"n":7}'],
    ["a text that is an object", '{"text":" {\\"a\\":1.0}"}', '{"a":1.0}'],
    ["a text that is a list, or broken", '{"text":"[1]"}', "{}"],
    ["a text that only begins as one", '{"text":"{a"}', "{}"],
    ["an object in place of a text", '{"payload":{"a":{"b":1}}}', '{"a":{"b":1}}'],
    ["none beside a text", '{"payload":{"a":1},"text":"t"}', "{}"],
    ["names", '{"ctx":{"trace":"t","x":1}}', '{"trace_id":"t","ctx":{"trace":"t","x":1}}'],
    ["names in dotted keys", '{"ctx.trace":"t","ctx.x":1}', '{"trace_id":"t","ctx":{"trace":"t","x":1}}'],
    ["no prototype", '{"attrs":{"__proto__":{"x":1}}}', '{"__proto__":{"x":1}}'],
  ])("decodes a body with %s", (_, source, body) => {
    expect(lineOf(source).json).toBe(body);
  });

  test.each([
    ['{"text":"t","payload":{"a":1}}', "t"],
    ['{"payload":{"a":1.50}}', '{"a":1.50}'],
    ['{"payload":[1,{"a":2}]}', '[1,{"a":2}]'],
    ['{"payload":"p"}', undefined],
    ["{}", undefined],
  ])("decodes the message of %s", (source, message) => {
    expect(lineOf(source).message).toBe(message);
  });

  test.each([
    ['{"lvl":"ERR"}', "error"],
    ['{"lvl":"?","code":"E"}', "error"],
    ['{"code":"0"}', "unknown"],
    ['{"code":"4"}', "debug"],
    ['{"code":5}', "warn"],
    ['{"code":"5.5"}', "warn"],
    ['{"code":"toString"}', "unknown"],
    ['{"code":"0x9"}', "unknown"],
    ['{"code":""}', "unknown"],
    ['{"code":["x","E"]}', "error"],
  ])("decodes the severity of %s as %s", (source, severity) => {
    expect(lineOf(source).severity).toBe(severity);
  });

  test("rejects a document that is no object", () => {
    for (const source of ["[]", "7", "{"]) expect(() => lineOf(source)).toThrow("not a JSON object");
  });
});
