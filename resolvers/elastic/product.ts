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
}

export function describeProduct(name: Product["name"], version: string): Product {
  return { name, version, listsIgnored: name === "Elasticsearch" };
}
