// What servers do otherwise without saying so: ranges over dates with doc values only, and documents that a search changes.
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

test.each<[Product["name"], version: string, Readonly<Record<string, string>>]>([
  ["Elasticsearch", "9.1.0", {}],
  ["Elasticsearch", "9.2.0", { _source_exclude_vectors: "false" }],
  ["OpenSearch", "2.8.0", {}],
  ["OpenSearch", "2.9.0", { search_pipeline: "_none" }],
  ["OpenSearch", "3.0.0", { search_pipeline: "_none" }],
  // They would refuse a parameter that they do not know.
  ["OpenSearch", "7.10.2", {}],
  ["OpenSearch", "unknown", {}],
])("describeProduct: %s %s searches with %j", (name, version, parameters) => {
  const { searchParameters, sourceParameters } = describeProduct(name, version);
  expect({ ...searchParameters, ...sourceParameters }).toEqual(parameters);
});
