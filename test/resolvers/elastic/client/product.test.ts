// Which servers search dates with doc values only. On others, such a range finds nothing and reports no error.
import { expect, test } from "vitest";
import { describeProduct, type Product } from "#resolvers/elastic/client/product.ts";

test.each<[Product["name"], version: string, boolean]>([
  ["Elasticsearch", "7.17.29", false],
  ["Elasticsearch", "8.0.1", false],
  ["Elasticsearch", "8.1.0", true],
  ["Elasticsearch", "9.2.0", true],
  ["OpenSearch", "2.13.0", false],
  ["OpenSearch", "2.14.0", true],
  ["OpenSearch", "3.0.0", true],
  // As OpenSearch reports itself to old clients, if configured to.
  ["OpenSearch", "7.10.2", false],
  ["OpenSearch", "unknown", false],
])("describeProduct: %s %s searches doc values: %s", (name, version, searches) => {
  expect(describeProduct(name, version).searchesDocValues).toBe(searches);
});
