// How an index keeps the source of its documents, and what it drops of them.
import { describe, expect, test } from "vitest";
import { isDynamicallyIndexed } from "#resolvers/elastic/mapping/mapping.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";

describe("source mode of an index", () => {
  test.each([
    [{}, {}, "whole"],
    [{ mode: "logsdb" }, {}, "synthetic"],
    [{ mode: "time_series" }, {}, "synthetic"],
    // What a server sets by itself without a licence for synthetic sources.
    [{ mode: "logsdb", mapping: { source: { mode: "STORED" } } }, {}, "whole"],
    [{ mapping: { source: { mode: "synthetic" } } }, {}, "synthetic"],
    [{}, { _source: { mode: "synthetic" } }, "synthetic"],
    [{ derived_source: { enabled: "true" } }, {}, "synthetic"],
    [{ mapping: { source: { mode: "disabled" } } }, {}, "cut"],
    [{}, { _source: { mode: "disabled" } }, "cut"],
    [{}, { _source: { enabled: false } }, "cut"],
    [{}, { _source: { excludes: ["secret"] } }, "cut"],
  ])("reads the source mode of settings %j and mappings %j: %s", (index, mappings, source) => {
    const [group] = readIndexMetadata({ "logs-1": { mappings, settings: { index } } }).groups;
    expect(group?.sourceMode).toBe(source);
  });
});

test("an index in logsdb mode keeps an object that is stored as a malformed date", () => {
  const settings = { index: { mode: "logsdb", version: { created: "9039001" } } };
  const { groups } = readIndexMetadata({
    "logs-1": { mappings: {}, settings },
    "logs-2": { mappings: { properties: { d: { type: "date" } } }, settings },
  });
  expect(groups.map((group) => isDynamicallyIndexed(group, "d.x"))).toEqual([true, false]);
});

test.each([
  [{}, false],
  [{ _field_names: { enabled: true }, properties: { m: { type: "text", norms: false } } }, false],
  // What a server makes of a text by itself: a text with norms, and a keyword with doc values.
  [{ _field_names: { enabled: false }, properties: { m: { type: "text" }, d: { type: "date" } } }, false],
  [{ _field_names: { enabled: false }, properties: { m: { type: "text", norms: false } } }, true],
  [{ _field_names: { enabled: "false" }, properties: { d: { type: "date", doc_values: "false" } } }, true],
  [
    {
      _field_names: { enabled: false },
      properties: { o: { properties: { m: { type: "match_only_text" } } } },
    },
    true,
  ],
  [
    {
      _field_names: { enabled: false },
      dynamic_templates: [{ t: { mapping: { type: "text", norms: false } } }],
    },
    true,
  ],
])("an index with mappings %j hides fields from an exists query: %s", (mappings, hides) => {
  const [group] = readIndexMetadata({ "logs-1": { mappings, settings: { index: {} } } }).groups;
  expect(group?.hidesFields).toBe(hides);
});
