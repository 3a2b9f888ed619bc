// What differs between the products and their versions, as one value. Code asks this value, never a name.
export interface Product {
  readonly name: "Elasticsearch" | "OpenSearch";
  /** As the server spells it; `unknown` where every way of asking is refused. */
  readonly version: string;
  /**
   * Values that a mapping's `ignore_above` or `ignore_malformed` kept out of the index are listed in `_ignored`.
   * Elasticsearch does so for keywords in indices created by 7.15 and later; OpenSearch drops them silently.
   */
  readonly listsIgnored: boolean;
  /**
   * A `date` that is kept by column alone can be bounded: from Elasticsearch 8.1 and OpenSearch 2.14 on. Before, a range
   * finds nothing without a word (seen on 7.17).
   */
  readonly searchesDocValues: boolean;
  /** Wildcards and questions within nested objects are refused: `search.allow_expensive_queries` is off. */
  readonly refusesExpensiveQueries: boolean;
}

export function describeProduct(name: Product["name"], version: string): Product {
  const isElasticsearch = name === "Elasticsearch";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [since, sinceMinor] = isElasticsearch ? [8, 1] : [2, 14];
  // No OpenSearch is a 7: `compatibility.override_main_response_version` has any of them say so, and an Elasticsearch 7
  // whose header is lost on the way looks like one.
  const isDisguised = !isElasticsearch && major === 7;
  const searchesColumns = !isDisguised && (major > since || (major === since && minor >= sinceMinor));
  return {
    name,
    version,
    listsIgnored: isElasticsearch,
    searchesDocValues: searchesColumns,
    refusesExpensiveQueries: false,
  };
}
