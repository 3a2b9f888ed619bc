// Reads how the fields of a mapping are indexed.
import { expect, test } from "vitest";
import { findField } from "#resolvers/elastic/mapping/mapping.ts";
import { findKeywordField } from "#resolvers/elastic/query/span-field-queries.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";

const keyword = { type: "keyword" };
const text = { type: "text", fields: { keyword } };

test.each<[string, object]>([
  ["a field", { properties: { all: text, other: text, origin: { ...keyword, copy_to: "all" } } }],
  [
    "a dynamic template",
    {
      properties: { all: text, other: text },
      dynamic_templates: [{ labels: { path_match: "labels.*", mapping: { ...keyword, copy_to: "all" } } }],
    },
  ],
])("the multi-fields of what %s copies to have extra values too", (_, mappings) => {
  const [group] = readIndexMetadata({ "logs-1": { mappings } }).groups;
  if (group === undefined) throw new Error("no group");
  const names = ["all", "all.keyword", "other", "other.keyword"];
  expect(names.map((name) => findField(group, name)?.hasExtraValues)).toEqual([true, true, false, false]);
  expect(findKeywordField(group, "all")).toBeUndefined();
  expect(findKeywordField(group, "other")?.name).toBe("other.keyword");
});
