import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cutAnswer } from "#resolvers/elastic/hits.ts";

const json = fc
  .dictionary(fc.oneof(fc.string(), fc.constantFrom("log", "log.level", "logs", "message")), fc.jsonValue())
  .map((value) => JSON.stringify(value));
const wanted = new Set(["log", "message"]);
const hit = fc.record({
  index: fc.string({ unit: "binary" }),
  id: fc.string({ unit: "binary" }),
  source: json,
  sort: fc.bigInt(),
});

describe("cutAnswer", () => {
  test("gives each document's own text, whatever it holds", () => {
    fc.assert(
      fc.property(fc.array(hit), fc.constantFrom("", " ", "\n  "), (hits, space) => {
        const rows = hits.map(
          ({ index, id, source, sort }) =>
            `{${space}"_index":${JSON.stringify(index)},"_type":"_doc","_id":${JSON.stringify(id)},"_score":null,${space}"_source":${source},"sort":[${sort}${space}]}`,
        );
        const text = `{"took":1,"timed_out":false,"_shards":{"total":2,"successful":2,"skipped":0,"failed":0},"hits":{"max_score":null,"hits":[${rows.join(`${space},`)}]}}`;
        const answer = cutAnswer(Buffer.from(text), wanted);
        expect(answer.hits.map(({ picked: _, ...rest }) => rest)).toEqual(
          hits.map(({ index, id, source, sort }) => ({
            // What cannot be encoded arrives replaced, as it would from a server.
            index: index.toWellFormed(),
            id: id.toWellFormed(),
            source: source.toWellFormed(),
            sort: String(sort),
          })),
        );
      }),
      { numRuns: 200 },
    );
  });

  test("picks the members that are asked for", () => {
    fc.assert(
      fc.property(json, (source) => {
        const text = `{"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"i","_id":"1","_source":${source}}]}}`;
        const whole = JSON.parse(source) as Record<string, unknown>;
        const picked = JSON.parse(cutAnswer(Buffer.from(text), wanted).hits[0]?.picked ?? "") as typeof whole;
        const isWanted = (key: string) => wanted.has(key.split(".")[0] ?? "");
        const names = Object.keys(whole).filter(isWanted);
        expect(Object.fromEntries(Object.entries(picked).filter(([key]) => isWanted(key)))).toEqual(
          Object.fromEntries(
            names.map((name) => [name, JSON.parse(JSON.stringify(whole[name]).toWellFormed())]),
          ),
        );
        // What is picked beside them are keys that are escaped, whose names only parsing tells.
        const others = Object.keys(picked).filter((key) => !isWanted(key));
        expect(others.filter((key) => !JSON.stringify(key).includes("\\"))).toEqual([]);
      }),
    );
  });

  test("picks a member whose key is escaped", () => {
    const source = '{"l\\u006fg":{"level":"warn"},"\\u006dessage":"m","\\u0078":1}';
    const text = `{"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"i","_id":"1","_source":${source}}]}}`;
    expect(JSON.parse(cutAnswer(Buffer.from(text), wanted).hits[0]?.picked ?? "")).toMatchObject({
      log: { level: "warn" },
      message: "m",
    });
  });

  test("picks a member whose key is not ASCII", () => {
    const text =
      '{"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"i","_id":"1","_source":{"größe":"ü"}}]}}';
    const picked = cutAnswer(Buffer.from(text), new Set(["größe"])).hits[0]?.picked;
    expect(JSON.parse(picked ?? "")).toEqual({ größe: "ü" });
  });

  test("keeps numbers as they are spelled", () => {
    const source = '{"a":200.0,"b":2e2,"c":9007199254740993,"d":"\\\\\\"}","e":[]}';
    const text = `{"timed_out":true,"terminated_early":true,"_scroll_id":"x==","_shards":{"total":3,"failed":1},"hits":{"hits":[{"_index":"i","_id":"1","_source":${source}}]}}`;
    expect(cutAnswer(Buffer.from(text), wanted)).toEqual({
      timedOut: true,
      terminatedEarly: true,
      scrollId: "x==",
      total: undefined,
      shards: { total: 3, failed: 1 },
      hits: [{ index: "i", id: "1", sort: undefined, source, picked: "{}" }],
    });
  });

  test("refuses what is cut short or is another answer", () => {
    const whole =
      '{"timed_out":false,"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"i","_id":"1","_source":{"a":"b"}}]}}';
    expect(cutAnswer(Buffer.from(whole), wanted).hits).toHaveLength(1);
    for (let length = 0; length < whole.length; length++)
      expect(() => cutAnswer(Buffer.from(whole.slice(0, length)), wanted)).toThrow(SyntaxError);
    for (const text of [
      "[]",
      "{}",
      `${whole}x`,
      '{"hits":{"hits":[]}}',
      whole.replace('"_source":{"a":"b"}', '"x":1'),
    ]) {
      expect(() => cutAnswer(Buffer.from(text), wanted)).toThrow(SyntaxError);
    }
  });
});
