import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fromMillis, printInstantToMilli } from "#src/core/time.ts";
import { buildReportSpan, readReport } from "#src/intake/error-report.ts";
import { countTurns } from "../support/event-loop-turns.ts";

const least = { timestamp: 1_559_201_249, namespace: "frontend", error: { name: "TypeError" } };
const read = (body: unknown) => readReport(JSON.stringify(body));
const id = "00112233445566778899aabbccddeeff";

describe("reading a report", () => {
  test("accepts a body of time, namespace and the name of the error", async () => {
    expect(await read(least)).toMatchObject({
      namespace: "frontend",
      error: { name: "TypeError", backtrace: [] },
      tags: {},
    });
  });

  test.each([
    ["no JSON", "{"],
    ["nothing", ""],
    ["null", "null"],
    ["a list", "[]"],
    ["text", '"x"'],
    ["no time", JSON.stringify({ ...least, timestamp: undefined })],
    ["a time as text", JSON.stringify({ ...least, timestamp: "1559201249" })],
    ["half a second", JSON.stringify({ ...least, timestamp: 1.5 })],
    ["a time before 1970", JSON.stringify({ ...least, timestamp: -1 })],
    ["a time after the year 9999", JSON.stringify({ ...least, timestamp: 253_402_300_800_000 })],
    ["no namespace", JSON.stringify({ ...least, namespace: null })],
    ["a namespace that is a number", JSON.stringify({ ...least, namespace: 1 })],
    ["no error", JSON.stringify({ ...least, error: undefined })],
    ["an error as text", JSON.stringify({ ...least, error: "TypeError" })],
    ["an error without a name", JSON.stringify({ ...least, error: { message: "x" } })],
  ])("%s is none", async (_, body) => {
    expect(await readReport(body)).toBeUndefined();
  });

  test.each([
    [1_559_201_249, "2019-05-30T07:27:29.000Z"],
    [1_559_201_249_123, "2019-05-30T07:27:29.123Z"],
    [0, "1970-01-01T00:00:00.000Z"],
    [99_999_999_999, "5138-11-16T09:46:39.000Z"],
    [100_000_000_000, "1973-03-03T09:46:40.000Z"],
  ])("%i is %s", async (timestamp, time) => {
    const report = await read({ ...least, timestamp });
    expect(printInstantToMilli(report?.time ?? (0n as never))).toBe(time);
  });

  test("turns other values into text and omits what has no place", async () => {
    const params = { id: 7, deep: { a: [1] }, none: null, yes: true, text: "x" };
    const breadcrumbs = [
      { category: "Fetch", action: "GET", timestamp: 5, metadata: { code: 200 } },
      "no crumb",
      null,
    ];
    const report = await read({
      ...least,
      params,
      tags: ["no"],
      environment: "no",
      breadcrumbs,
      revision: 12,
      action: null,
    });
    expect(report).toMatchObject({
      params: { id: "7", deep: '{"a":[1]}', yes: "true", text: "x" },
      tags: {},
      environment: {},
      revision: "12",
      action: undefined,
      breadcrumbs: [{ category: "Fetch", action: "GET", timestamp: "5", metadata: { code: "200" } }],
    });
    expect(report?.params).not.toHaveProperty("none");
    expect(report?.breadcrumbs).toHaveLength(1);
  });

  test("keeps the spelling of numbers, but for the time", async () => {
    const numbers = '{"long":12345678901234567890,"zero":0.10,"inner":[1.0,-0]}';
    const body = `{"timestamp":1.5592012490e9,"namespace":"frontend","error":{"name":"E"},"tags":${numbers},"params":1.0}`;
    expect(await readReport(body)).toMatchObject({
      time: fromMillis(1_559_201_249_000),
      tags: { long: "12345678901234567890", zero: "0.10", inner: "[1.0,-0]" },
      params: {},
    });
    const depth = 60_000;
    const deep = `{"n":1.0,"deep":${"[".repeat(depth)}${"]".repeat(depth)}}`;
    expect((await readReport(body.replace(numbers, deep)))?.tags).toMatchObject({ n: "1.0" });
  });

  test("is done in turns, where it begins as a report does", async () => {
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    const body = JSON.stringify({ ...least, tags: { n: 0 } }).replace('"n":0', `"n":${deep}`);
    expect(await countTurns(() => readReport(` ${body}`))).toBeGreaterThanOrEqual(20);
    expect(await countTurns(() => readReport(deep))).toBeLessThan(3);
  });

  test("splits a backtrace of one text into lines", async () => {
    const backtrace = "TypeError: x is undefined\n    at pay (checkout.js:12:7)";
    const readLines = async (value: unknown) =>
      (await read({ ...least, error: { name: "E", backtrace: value } }))?.error.backtrace;
    expect((await readLines(backtrace))?.join("\n")).toBe(backtrace);
    for (const nothing of [null, undefined, ""]) expect(await readLines(nothing)).toEqual([]);
  });

  test("never throws, and returns texts unchanged, for any body", async () => {
    const texts = fc.dictionary(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }));
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary" }), async (body) => void (await readReport(body))),
    );
    await fc.assert(fc.asyncProperty(fc.json(), async (body) => void (await readReport(body))));
    await fc.assert(
      fc.asyncProperty(texts, texts, fc.array(fc.string()), async (tags, params, backtrace) => {
        const report = await read({ ...least, tags, params, error: { name: "E", backtrace } });
        expect(Object.entries(report?.tags ?? {})).toEqual(Object.entries(tags));
        expect(Object.entries(report?.params ?? {})).toEqual(Object.entries(params));
        expect(report?.error.backtrace).toEqual(backtrace);
      }),
    );
  });
});

describe("the span of a report", () => {
  const span = async (over: object) => {
    const report = await read({ ...least, ...over });
    if (report === undefined) throw new Error("no report");
    return buildReportSpan("shop", id, report);
  };

  test("keeps each value of the report", async () => {
    const { span_attributes, resource_attributes, events, ...rest } = await span({
      action: "CartPage",
      revision: "abc123",
      language: "javascript",
      tags: { user: "7" },
      params: { a: "1" },
      environment: { agent: "Firefox" },
      breadcrumbs: [{ category: "Fetch", action: "GET", metadata: { url: "/x" } }],
      error: { name: "TypeError", message: "x is undefined", backtrace: ["TypeError: x", "  at a.js:1"] },
    });
    expect(rest).toMatchObject({
      site_id: "shop",
      trace_id: id,
      span_id: id.slice(16),
      start: rest.end,
      service_name: "shop",
      span_name: "CartPage",
      span_kind: "internal",
      revision: "abc123",
      status_code: "ERROR",
      status_message: "x is undefined",
      entry: true,
      namespace: "frontend",
      action: "CartPage",
      tags: { user: "7" },
      report: true,
    });
    expect(rest.parent_span_id).toBeUndefined();
    expect(resource_attributes).toEqual({ "service.name": "shop", "service.version": "abc123" });
    expect(span_attributes).toEqual({
      "readout.report": true,
      "appsignal.namespace": "frontend",
      "appsignal.action_name": "CartPage",
      "appsignal.language": "javascript",
      "appsignal.function.parameters": '{"a":"1"}',
      "appsignal.environment": '{"agent":"Firefox"}',
      "appsignal.breadcrumbs": '[{"category":"Fetch","action":"GET","metadata":{"url":"/x"}}]',
      "appsignal.tag.user": "7",
    });
    expect(events).toEqual([
      {
        time: rest.start,
        name: "exception",
        attributes: {
          "exception.type": "TypeError",
          "exception.message": "x is undefined",
          "exception.stacktrace": "TypeError: x\n  at a.js:1",
        },
      },
    ]);
  });

  test.each([
    [{}, "TypeError"],
    [{ action: "" }, "TypeError"],
    [{ action: "Page", error: { name: "" } }, "Page"],
    [{ error: { name: "" } }, "unknown"],
  ])("%j is called %s", async (over, name) => {
    expect(await span(over)).toMatchObject({ action: name, span_name: name });
  });

  test("gives a report with an empty namespace the namespace frontend", async () => {
    expect((await span({ namespace: "" })).namespace).toBe("frontend");
  });
});
