import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cutAnswer } from "#resolvers/elastic/hits.ts";

const latin1 = (text: string): string => Buffer.from(text, "utf8").toString("latin1");
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
        const answer = cutAnswer(latin1(text), wanted);
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
        const names = Object.keys(whole).filter(
          (key) => wanted.has(key.split(".")[0] ?? "") || JSON.stringify(key).includes("\\"),
        );
        expect(JSON.parse(cutAnswer(latin1(text), wanted).hits[0]?.picked ?? "")).toEqual(
          Object.fromEntries(
            names.map((name) => [name, JSON.parse(JSON.stringify(whole[name]).toWellFormed())]),
          ),
        );
      }),
    );
  });

  test("keeps numbers as they are spelled", () => {
    const source = '{"a":200.0,"b":2e2,"c":9007199254740993,"d":"\\\\\\"}","e":[]}';
    const text = `{"timed_out":true,"terminated_early":true,"_scroll_id":"x==","_shards":{"total":3,"failed":1},"hits":{"hits":[{"_index":"i","_id":"1","_source":${source}}]}}`;
    expect(cutAnswer(text, wanted)).toEqual({
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
    expect(cutAnswer(whole, wanted).hits).toHaveLength(1);
    for (let length = 0; length < whole.length; length++)
      expect(() => cutAnswer(whole.slice(0, length), wanted)).toThrow(SyntaxError);
    for (const text of [
      "[]",
      "{}",
      `${whole}x`,
      '{"hits":{"hits":[]}}',
      whole.replace('"_source":{"a":"b"}', '"x":1'),
    ]) {
      expect(() => cutAnswer(text, wanted)).toThrow(SyntaxError);
    }
  });
});
