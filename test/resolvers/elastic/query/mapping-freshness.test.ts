// How recent a mapping has to be for a query whose names a template of the index may hide.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import { chooseFreshness, compileBounds } from "#resolvers/elastic/query/filter-compiler.ts";
import { requireFirst, requireKey } from "#src/core/collections.ts";
import { listComparisons } from "#src/log-query/ast.ts";
import { parse } from "#src/log-query/parse.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const product = describeProduct("Elasticsearch", "8.19.8");
const mapping = { type: "keyword", index: false, doc_values: false };

/** An index that maps nothing, and has a template of fields that are not indexed. */
function readGroups(template: object) {
  const dynamic_templates = [{ blind: { ...template, mapping } }];
  const settings = { index: { version: { created: "8190899" } } };
  return readIndexMetadata({ i: { mappings: { dynamic_templates, properties: {} }, settings } }).groups;
}

function chooseFor(name: string, query: string, template: object): string {
  const fields = listComparisons(parse(query)).map(({ field }) => field);
  return chooseFreshness(
    fields,
    { layout: requireKey(logLayouts, name), groups: readGroups(template) },
    product,
  );
}

describe("a mapping is read for the request where a template may hide", () => {
  test.each([
    // The index has no positions of arrays.
    ["ecs", "l.0.k=x", { path_match: "l.k" }, "now"],
    ["ecs", "l.0.k.1.m=x", { path_match: "l.k.m" }, "now"],
    ["ecs", "l.k=x", { path_match: "l.m" }, "recent"],
    ["otel", "l=x", { path_match: "resource.attributes.l" }, "recent"],
    ["otel", "l.0=x", { path_match: "attributes.l" }, "now"],
    // A message may be an object, of whatever keys.
    ["ecs", "message:x", { path_match: "message.k" }, "now"],
    ["ecs", "message:x", { path_match: "*.k" }, "now"],
    ["ecs", "message:x", { match: "k" }, "now"],
  ] as const)("%s, %s, a name of %o: %s", (name, query, template, freshness) => {
    expect(chooseFor(name, query, template)).toBe(freshness);
  });

  test("any name that its query asks for", () => {
    let judged = 0;
    const key = fc.constantFrom("k", "0", "12", "a.b", "a.b.c.d.e", "resource", "scope", "trace");
    const path = fc.array(key, { minLength: 1, maxLength: 4 });
    const field = fc.oneof(
      path.map((keys) => keys.map((own) => own.replaceAll(".", "\\.")).join(".")),
      fc.constantFrom("severity", "hostname", "group", "message"),
    );
    const layouts = fc.constantFrom(...logLayouts.keys());
    const law = fc.property(layouts, field, (name, field) => {
      const query = `${field}=error`;
      const layout = requireKey(logLayouts, name);
      const { upper } = compileBounds(
        parse(query),
        requireFirst(readGroups({ match: "other" })),
        layout,
        product,
      );
      for (const asked of listExists(upper)) {
        expect({ asked, is: chooseFor(name, query, { path_match: asked }) }).toEqual({ asked, is: "now" });
        judged += 1;
      }
    });
    fc.assert(law, { numRuns: sampleRuns(500) });
    expect(judged).toBeGreaterThan(0);
  });
});

/** The names for whose values a query asks. */
function listExists(query: unknown): readonly string[] {
  const fields: string[] = [];
  JSON.stringify(query, (key, value) => {
    if (key === "exists") fields.push(value.field);
    return value;
  });
  return fields;
}
