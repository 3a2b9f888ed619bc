// The field table reads from a document what its flat form has.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createFieldTable, readFieldList, readFieldValue } from "#resolvers/elastic/document/field-table.ts";
import {
  findFlatValue,
  flattenDocument,
  isValueObject,
  type ValueObject,
} from "#resolvers/elastic/document/flatten.ts";
import { parseExactIntegers } from "#src/core/json/lossless-json.ts";
import type { AttributeValue } from "#src/core/rows.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const segment = fc.constantFrom("a", "b", "c", "__proto__", "1");
const name = fc.array(segment, { minLength: 1, maxLength: 3 }).map((path) => path.join("."));
const key = fc.oneof({ weight: 4, arbitrary: segment }, name);
const { document } = fc.letrec<{ document: ValueObject; value: AttributeValue }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom("", "x", 1, null, true),
    fc.array(tie("value"), { maxLength: 2 }),
    tie("document"),
  ),
  document: fc
    .uniqueArray(fc.tuple(key, tie("value")), { selector: ([key]) => key, maxLength: 4 })
    .map((members): ValueObject => Object.fromEntries(members)),
}));
const documents = fc.array(document, { minLength: 1, maxLength: 5 });

describe("field table", () => {
  test("reads the same values and prefixes as the flat document", () => {
    fc.assert(
      fc.property(
        documents,
        fc.array(name, { maxLength: 3 }),
        fc.uniqueArray(name, { maxLength: 3 }),
        (read, names, prefixes) => {
          const table = createFieldTable();
          const refs = names.map((name) => table.addField(name));
          const indices = prefixes.map((prefix) => table.addPrefix(`${prefix}.`));
          const excepted = table.addPrefix("a.", ["a.b"], (name) => name.toUpperCase());
          for (const document of read) {
            const flat = flattenDocument(document);
            const fields = table.read(document);
            expect(refs.map((ref) => readFieldValue(fields, ref))).toEqual(
              names.map((name) => findFlatValue(flat, name)),
            );
            for (const [at, prefix] of prefixes.entries()) {
              const expected = [...flat].flatMap(([name, value]) =>
                name.startsWith(`${prefix}.`) ? [[name.slice(prefix.length + 1), value] as const] : [],
              );
              expect(Object.entries(fields.byPrefix[indices[at] ?? -1]?.attributes ?? {}).sort()).toEqual(
                expected.sort(),
              );
            }
            const kept = [...flat.keys()].filter((name) => name.startsWith("a.") && !name.startsWith("a.b"));
            expect(Object.keys(fields.byPrefix[excepted]?.attributes ?? {}).sort()).toEqual(
              kept.map((name) => name.toUpperCase()).sort(),
            );
          }
        },
      ),
      { numRuns: sampleRuns(2_000) },
    );
  });

  test("reads a single object as a list, with nested or dotted names", () => {
    const table = createFieldTable();
    const place = table.addList("of.links");
    const listed = (text: string) => {
      const document = parseExactIntegers(text);
      return isValueObject(document) ? readFieldList(table.read(document), place) : undefined;
    };
    const one = [{ id: "1", "at.time": 2 }];
    expect(listed('{"of":{"links":[{"id":"1","at.time":2},"no object"]}}')).toEqual(one);
    expect(listed('{"of":{"links":{"id":"1","at":{"time":2}}}}')).toEqual(one);
    expect(listed('{"of.links.id":"1","of":{"links.at":{"time":2}}}')).toEqual(one);
    expect(listed('{"of":{"links":{}}}')).toEqual([]);
  });

  test("reads names beyond the limit of remembered names", () => {
    const table = createFieldTable();
    const place = table.addField("many.5");
    const prefix = table.addPrefix("many.");
    for (const step of [1, 5]) {
      const many = Object.fromEntries(Array.from({ length: 12_000 }, (_, at) => [String(at * step), at]));
      const fields = table.read({ many: { ...many, inner: { x: 1 } } });
      expect(readFieldValue(fields, place)).toBe(5 / step);
      expect(Object.keys(fields.byPrefix[prefix]?.attributes ?? {})).toHaveLength(12_001);
    }
  });
});
