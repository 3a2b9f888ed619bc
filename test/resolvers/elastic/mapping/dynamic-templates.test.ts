// Which names a dynamic template may map so that a search for the name does not find its values.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hasUnindexedTemplates, readTemplates } from "#resolvers/elastic/mapping/dynamic-templates.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const blind = { type: "keyword", index: false };

function mayHide(template: object, name: string, mapping: object = blind): boolean {
  const dynamicTemplates = readTemplates([{ own: { ...template, mapping } }]);
  return hasUnindexedTemplates({ dynamicTemplates, ignoresMalformed: false, createdSince715: true }, true, [
    name,
  ]);
}

test.each<[object, string, boolean]>([
  [{ match_mapping_type: "string" }, "a.b", true],
  [{ path_match: "*event.original" }, "event.original", true],
  [{ path_match: "*event.original" }, "attributes.event.original", true],
  [{ path_match: "*event.original" }, "log.level", false],
  [{ path_match: ["x.*", "*.original"] }, "event.original", true],
  // An object above the name.
  [{ path_match: "labels" }, "labels.k", true],
  [{ path_match: "labels.*" }, "labels", false],
  [{ match: "k" }, "labels.k", true],
  [{ match: "labels" }, "labels.k", true],
  // Without objects, the whole name is the last part.
  [{ match: "labels.k" }, "labels.k", true],
  [{ match: "labels.k" }, "other.k", false],
  [{ match: "long_*" }, "labels.long_k", true],
  [{ match: "long_*", path_match: "labels.*" }, "other.long_k", false],
  [{ match: "K" }, "labels.k", true],
  [{ match: "^other$", match_pattern: "regex" }, "labels.k", true],
  // What it leaves out is not looked at.
  [{ match: "*", unmatch: "k" }, "labels.k", true],
])("%o, the name %s: %s", (template, name, hides) => {
  expect(mayHide(template, name)).toBe(hides);
});

test.each<[string, object, boolean]>([
  ["a keyword", { type: "keyword" }, false],
  ["the type that was detected", { type: "{dynamic_type}" }, false],
  ["a field without an index", { type: "long", index: false }, true],
  ["an object with such a field", { properties: { k: { properties: { l: blind } } } }, true],
  ["an object with others", { properties: { k: { type: "long" } } }, false],
  ["a range", { type: "date_range" }, true],
  ["a flattened object with a limit", { type: "flattened", ignore_above: 3 }, true],
  ["a keyword with a limit, whose long values are listed", { type: "keyword", ignore_above: 3 }, false],
])("a template of %s hides values: %s", (_, mapping, hides) => {
  expect(mayHide({}, "k", mapping)).toBe(hides);
});

describe("a pattern", () => {
  const part = fc.constantFrom("a", "b", "ab", "event", "original");
  const name = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("."));
  const pattern = fc
    .array(fc.constantFrom("a", "b", "event", "original", ".", "*"), { minLength: 1, maxLength: 5 })
    .map((parts) => parts.join(""));
  const toRegex = (text: string) => new RegExp(`^${text.replaceAll(".", "\\.").replaceAll("*", ".*")}$`, "i");

  test("of a path that matches a name, or an object above it, may hide it", () => {
    const law = fc.property(name, pattern, (name, pattern) => {
      const parts = name.split(".");
      const above = parts.map((_, at) => parts.slice(0, at + 1).join("."));
      expect(mayHide({ path_match: pattern }, name)).toBe(above.some((path) => toRegex(pattern).test(path)));
    });
    fc.assert(law, { numRuns: sampleRuns(5_000) });
  });

  test("of last parts that matches one of a name's may hide it", () => {
    const law = fc.property(name, pattern, (name, pattern) => {
      const isMatch = name.split(".").some((last) => toRegex(pattern).test(last));
      if (isMatch) expect(mayHide({ match: pattern }, name)).toBe(true);
    });
    fc.assert(law, { numRuns: sampleRuns(5_000) });
  });
});
