import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { listTexts } from "#resolvers/elastic/document/dotted-names.ts";
import {
  buildNameTree,
  formatHitId,
  type NameTree,
  scanSearchResponse as scanInSteps,
} from "#resolvers/elastic/document/hit-scanner.ts";
import { parseResponse as parseInSteps } from "#resolvers/elastic/search/search-response.ts";
import { runSteps } from "#src/core/async/turns.ts";
import { isJsonObject, parseLossless } from "#src/core/json/lossless-json.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const scanSearchResponse = (bytes: Buffer, names: NameTree) => runSteps(scanInSteps(bytes, names));
const parseResponse = (bytes: Buffer, size: number) => runSteps(parseInSteps(bytes, size));

const names = ["message", "log.level", "log.syslog.severity.name", "log.file.path", "größe", "__proto__"];
const nameTree = buildNameTree(names);
const key = fc.oneof(
  fc.string(),
  fc.constantFrom(
    ...names,
    ...names.flatMap((name) => name.split(".")),
    "log.syslog",
    "severity.name",
    "logs",
  ),
);
const { value } = fc.letrec<{ value: unknown; object: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 2 },
    fc.jsonValue({ maxDepth: 1 }),
    tie("object"),
    fc.array(tie("object"), { maxLength: 2 }),
  ),
  object: fc.dictionary(key, tie("value"), { maxKeys: 3 }),
}));
const json = fc
  .tuple(fc.dictionary(key, value, { maxKeys: 6 }), fc.constantFrom(0, 1))
  .map(([value, indent]) => JSON.stringify(value, null, indent));
const hit = fc.record({
  index: fc.string({ unit: "binary" }),
  id: fc.string({ unit: "binary" }),
  source: json,
  sort: fc.bigInt(),
});

test("scanSearchResponse: documents of one _id with different routings get different ids", () => {
  const rows = ["a", "b", undefined].map((_routing) => ({ _index: "logs", _id: "1", _routing, _source: {} }));
  const total = { value: 3, relation: "eq" };
  const answer = { timed_out: false, _shards: { total: 3, failed: 0 }, hits: { total, hits: rows } };
  const bytes = Buffer.from(JSON.stringify(answer));
  const ids = ["1?routing=a", "1?routing=b", "1"];
  expect(scanSearchResponse(bytes, nameTree).hits.map(({ id }) => id)).toEqual(ids);
  for (const size of [3, 4, 5_000]) {
    expect([...parseResponse(bytes, size).chunks()].flat().map(({ id }) => id)).toEqual(ids);
  }
});

describe("scanSearchResponse", () => {
  test("returns the text of each document, whatever it contains", () => {
    fc.assert(
      fc.property(fc.array(hit), fc.constantFrom("", " ", "\n  "), (hits, space) => {
        const rows = hits.map(
          ({ index, id, source, sort }) =>
            `{${space}"_index":${JSON.stringify(index)},"_type":"_doc","_id":${JSON.stringify(id)},"_score":null,${space}"_source":${source},"sort":[${sort}${space}]}`,
        );
        const text = `{"took":1,"timed_out":false,"_shards":{"total":2,"successful":2,"skipped":0,"failed":0},"hits":{"max_score":null,"hits":[${rows.join(`${space},`)}]}}`;
        const answer = scanSearchResponse(Buffer.from(text), nameTree);
        expect(answer.hits.map(({ picked: _, ...rest }) => rest)).toEqual(
          hits.map(({ index, id, source, sort }) => ({
            // Ill-formed text arrives replaced, as from a server.
            index: index.toWellFormed(),
            id: id.toWellFormed(),
            source: source.toWellFormed(),
            sort: String(sort),
          })),
        );
      }),
      { numRuns: sampleRuns(200) },
    );
  });

  const pickValues = (source: string) => {
    const text = `{"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"i","_id":"1","_source":${source}}]}}`;
    return scanSearchResponse(Buffer.from(text), nameTree).hits[0]?.picked;
  };

  test("picks the values that parsing the document finds, or none", () => {
    const runs = sampleRuns(300);
    let plain = 0;
    fc.assert(
      fc.property(json, (source) => {
        const picked = pickValues(source);
        if (picked === undefined) return;
        plain += 1;
        const document = parseLossless(source.toWellFormed());
        if (!isJsonObject(document)) throw new Error("an object expected");
        for (const name of names)
          expect([...(picked.has(name) ? [picked.get(name)] : [])], name).toEqual(listTexts(document, name));
      }),
      { numRuns: runs },
    );
    expect(plain).toBeGreaterThan(runs / 3);
  });

  test.each([
    [
      '{"message":"a","log":{"level":"warn","file":{"path":"/x"}},"x":{"message":"b"}}',
      { message: "a", "log.level": "warn", "log.file.path": "/x" },
    ],
    [
      '{"log.level":"warn","log.syslog":{"severity.name":"notice"}}',
      { "log.level": "warn", "log.syslog.severity.name": "notice" },
    ],
    [
      '{"message":200.0,"log.level":9007199254740993,"größe":true}',
      { message: "200.0", "log.level": "9007199254740993", größe: "true" },
    ],
    ['{"message":"\\u00fc\\n\\"","größe":"ü"}', { message: 'ü\n"', größe: "ü" }],
    ['{"message":null,"log":"text","log.file":7,"log.level":{"a":1}}', {}],
  ])("picks values from %s", (source, expected) => {
    expect(Object.fromEntries(pickValues(source) ?? [["nothing", ""]])).toEqual(expected);
  });

  test.each([
    ['{"m\\u0065ssage":"a"}', "an escaped key"],
    ['{"log":{"l\\u0065vel":"a"}}', "an escaped key within"],
    ['{"message":["a"]}', "a list"],
    ['{"log":[{"level":"a"}]}', "a list of objects"],
    ['{"log.level":"a","log":{"level":"b"}}', "a name in two spellings"],
    ['{"message":tru}', "invalid JSON"],
  ])("picks no values from %s: %s", (source) => {
    expect(pickValues(source)).toBeUndefined();
  });

  test("keeps the spelling of numbers", () => {
    const source = '{"a":200.0,"b":2e2,"c":9007199254740993,"d":"\\\\\\"}","e":[]}';
    const text = `{"timed_out":true,"terminated_early":true,"_scroll_id":"x==","_shards":{"total":3,"failed":1},"hits":{"hits":[{"_index":"i","_id":"1","_source":${source}}]}}`;
    expect(scanSearchResponse(Buffer.from(text), nameTree)).toEqual({
      timedOut: true,
      terminatedEarly: true,
      indices: new Set(["i"]),
      scrollId: "x==",
      total: undefined,
      shards: { total: 3, failed: 1 },
      hits: [{ index: "i", id: "1", sort: undefined, source, picked: new Map() }],
    });
  });

  test("pauses in a large response, whose documents it finds as in a small one", () => {
    const sources = Array.from({ length: 40 }, (_, n) => {
      const text = (n % 3 === 0 ? "ü" : "u").repeat((n % 7) * 20_000);
      return JSON.stringify({ text, message: `m${n}`, log: { level: n % 2 === 0 ? "wärn" : "info" } });
    });
    const rows = sources.map(
      (source, n) => `{"_index":"i${n % 2}","_id":"${n}","_source":${source},"sort":[${n}]}`,
    );
    const text = `{"timed_out":false,"_shards":{"total":1,"failed":0},"hits":{"hits":[${rows}]}}`;
    const bytes = Buffer.from(text);
    const steps = scanInSteps(bytes, nameTree);
    let pauses = 0;
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) pauses += 1;
    expect(pauses).toBeGreaterThanOrEqual(Math.floor(bytes.length / 700_000));
    expect(step.value.hits).toEqual(
      sources.map((source, n) => ({
        index: `i${n % 2}`,
        id: String(n),
        sort: String(n),
        source,
        picked: new Map([
          ["message", `m${n}`],
          ["log.level", n % 2 === 0 ? "wärn" : "info"],
        ]),
      })),
    );
  });

  test("rejects truncated and other responses", () => {
    const complete =
      '{"timed_out":false,"_shards":{"total":1,"failed":0},"hits":{"hits":[{"_index":"i","_id":"1","_source":{"a":"b"}}]}}';
    expect(scanSearchResponse(Buffer.from(complete), nameTree).hits).toHaveLength(1);
    for (let length = 0; length < complete.length; length++)
      expect(() => scanSearchResponse(Buffer.from(complete.slice(0, length)), nameTree)).toThrow(SyntaxError);
    for (const text of [
      "[]",
      "{}",
      `${complete}x`,
      '{"hits":{"hits":[]}}',
      complete.replace('"_source":{"a":"b"}', '"x":1'),
    ]) {
      expect(() => scanSearchResponse(Buffer.from(text), nameTree)).toThrow(SyntaxError);
    }
  });
});

test("a document has an id of its own, whatever its `_id` and its routing hold", () => {
  const text = fc
    .array(fc.constantFrom("a", "?routing=", "&id=1"), { maxLength: 3 })
    .map((parts) => parts.join(""));
  const document = fc.tuple(
    text,
    fc.option(
      text.filter((one) => one !== ""),
      { nil: undefined },
    ),
  );
  fc.assert(
    fc.property(document, document, (one, other) => {
      const isSame = one[0] === other[0] && one[1] === other[1];
      expect(formatHitId(...one) === formatHitId(...other)).toBe(isSame);
    }),
    { numRuns: sampleRuns(5_000) },
  );
  expect(formatHitId("a", "b")).toBe("a?routing=b");
});
