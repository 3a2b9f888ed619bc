// Differences between Elasticsearch and OpenSearch and their versions, as one value. Code depends on its members, never on the
// name of a product.
export interface Product {
  readonly name: "Elasticsearch" | "OpenSearch";
  /** As the server reports it; `unknownVersion` if it refuses every request for it. */
  readonly version: string;
  /**
   * Whether `_ignored` lists values that `ignore_above` or `ignore_malformed` kept out of the index. Elasticsearch lists them
   * for keywords in indices created by 7.15 and later; OpenSearch drops them silently.
   */
  readonly listsIgnored: boolean;
  /**
   * Whether range queries work on a `date` with doc values only: from Elasticsearch 8.1 and OpenSearch 2.14 on. Earlier
   * versions find nothing and report no error (seen on 7.17).
   */
  readonly searchesDocValues: boolean;
  /** Whether the server refuses wildcards, regular expressions and nested queries: `search.allow_expensive_queries` is off. */
  readonly refusesExpensiveQueries: boolean;
  /** How points in time are opened and closed: from Elasticsearch 7.12 and OpenSearch 2.4 on. */
  readonly pointInTime: PointInTimePaths | undefined;
}

export interface PointInTimePaths {
  readonly open: string;
  readonly close: { readonly path: string; readonly isList: boolean };
}

export const unknownVersion = "unknown";

export function describeProduct(name: Product["name"], version: string): Product {
  const isElasticsearch = name === "Elasticsearch";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [since, sinceMinor] = isElasticsearch ? [8, 1] : [2, 14];
  // No OpenSearch has the version 7. `compatibility.override_main_response_version` makes it report 7, and an Elasticsearch 7
  // looks like one if a proxy drops its header.
  const isDisguised = !isElasticsearch && major === 7;
  const searchesDocValues = !isDisguised && (major > since || (major === since && minor >= sinceMinor));
  return {
    name,
    version,
    listsIgnored: isElasticsearch,
    searchesDocValues,
    refusesExpensiveQueries: false,
    pointInTime: isDisguised ? undefined : findPointInTimePaths(isElasticsearch, major, minor),
  };
}

function findPointInTimePaths(
  isElasticsearch: boolean,
  major: number,
  minor: number,
): PointInTimePaths | undefined {
  const [since, sinceMinor] = isElasticsearch ? [7, 12] : [2, 4];
  if (major < since || (major === since && minor < sinceMinor)) return undefined;
  return isElasticsearch
    ? { open: "_pit", close: { path: "_pit", isList: false } }
    : { open: "_search/point_in_time", close: { path: "_search/point_in_time", isList: true } };
}
