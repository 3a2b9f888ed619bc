// A response parsed in chunks has the hits of a scanned response, with exact integers.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { buildNameTree, scanSearchResponse } from "#resolvers/elastic/document/hit-scanner.ts";
import { parseResponse } from "#resolvers/elastic/search/search-response.ts";
import { runSteps } from "#src/core/async/turns.ts";
import { parseExactIntegers } from "#src/core/json/lossless-json.ts";

describe("parseResponse agrees with scanSearchResponse, with exact integers", () => {
  /** Values with the beginning of a hit, or larger than a chunk. */
  const nested = fc.constantFrom<unknown>(
    [{ a: 1 }, { _index: "i", _id: "0", _source: {} }],
    [{ a: [] }, { _index: "other" }],
    '},{"_index":"i"',
    "]}",
    "ü".repeat(60_000),
  );
  const value = fc.oneof(
    fc.string(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.bigInt(),
    fc.boolean(),
  );
  const print = (one: unknown) => (typeof one === "bigint" ? String(one) : JSON.stringify(one));
  const hits = (one: fc.Arbitrary<unknown>) =>
    fc.array(fc.tuple(fc.constantFrom("i", "i2", "ï"), fc.array(one, { maxLength: 3 })), { maxLength: 6 });
  function check(rows: readonly (readonly [string, readonly unknown[]])[], head: string, size: number): void {
    const texts = rows.map(
      ([index, values], at) =>
        `{"_index":"${index}","_id":"${at}","_source":{"v":[${values.map(print)}]},"sort":[${at}]}`,
    );
    const bytes = Buffer.from(
      `{"took":1,"timed_out":false,"_shards":{"total":3,"failed":1},"hits":{${head}"hits":[${texts}]}}`,
    );
    const { hits: cut, ...rest } = runSteps(scanSearchResponse(bytes, buildNameTree([])));
    const { count, bytes: length, chunks: parts, ...own } = runSteps(parseResponse(bytes, size));
    expect(own).toEqual(rest);
    expect(length).toBe(bytes.length);
    expect(count).toBe(rows.length);
    expect([...parts()].flat()).toEqual(
      cut.map(({ index, id, source }) => ({ index, id, document: parseExactIntegers(source) })),
    );
  }
  const total = (value: number, relation: string) =>
    `"total":{"value":${value},"relation":"${relation}"},"max_score":null,`;

  test("for every total and requested size", () => {
    fc.assert(
      fc.property(
        hits(value),
        fc.constantFrom("eq", "gte"),
        fc.nat(8),
        fc.nat(8),
        (rows, relation, of, size) => {
          check(rows, total(of, relation), size);
          check(rows, total(rows.length, relation), size);
          check(rows, total(rows.length + of, relation), rows.length);
          check(rows, "", size);
        },
      ),
    );
  });

  test("for documents that contain the beginning of a hit", () => {
    fc.assert(
      fc.property(hits(fc.oneof(value, nested)), (rows) => {
        check(rows, total(rows.length, "eq"), 5_000);
      }),
    );
  });
});

test.each([
  "{}",
  "[]",
  "null",
  '{"hits":{"hits":[]}}',
  '{"_shards":{"total":1,"failed":0},"hits":{"hits":[{}]}}',
])("parseResponse rejects %s", (text) => {
  expect(() => runSteps(parseResponse(Buffer.from(text), 5_000))).toThrow(SyntaxError);
});
