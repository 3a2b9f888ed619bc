// Differences between Elasticsearch and OpenSearch and their versions, as one value. Code depends on its members, never on the
// name of a product.
export interface Product {
  /** For texts, and for the choice of the official client. */
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
  /** Whether security may show a user fields whose values it has masked, without saying so. Only OpenSearch does. */
  readonly masksFields: boolean;
  /** Whether users may read which documents and fields security hides from them. Only Elasticsearch shows it. */
  readonly showsRestrictions: boolean;
  /** Whether scrolling needs permissions apart from that to search. Only OpenSearch has them. */
  readonly hasScrollPermissions: boolean;
  /** Whether a search over an alias may silently skip indices that the user may not read (`do_not_fail_on_forbidden`). */
  readonly narrowsAliases: boolean;
  /** The parameters without which a search may answer other documents than the index holds. */
  readonly searchParameters: Readonly<Record<string, string>>;
  /** Those without which documents lack fields. They take the place of `_source` in the body. */
  readonly sourceParameters: Readonly<Record<string, string>>;
}

export interface PointInTimePaths {
  readonly open: string;
  readonly close: { readonly path: string; readonly isList: boolean };
}

export const unknownVersion = "unknown";

export function describeProduct(name: Product["name"], version: string): Product {
  const isElasticsearch = name === "Elasticsearch";
  // No OpenSearch has the version 7. `compatibility.override_main_response_version` makes it report 7, and an Elasticsearch 7
  // looks like one if a proxy drops its header.
  const isDisguised = !isElasticsearch && version.startsWith("7.");
  return {
    name,
    version,
    listsIgnored: isElasticsearch,
    searchesDocValues: !isDisguised && isAtLeast(version, isElasticsearch ? [8, 1] : [2, 14]),
    refusesExpensiveQueries: false,
    pointInTime: isDisguised ? undefined : findPointInTimePaths(isElasticsearch, version),
    masksFields: !isElasticsearch,
    showsRestrictions: isElasticsearch,
    hasScrollPermissions: !isElasticsearch,
    narrowsAliases: !isElasticsearch,
    searchParameters: isElasticsearch ? {} : skipPipelines(isDisguised, version),
    sourceParameters: isElasticsearch ? keepVectors(version) : {},
  };
}

/** From 9.2 on Elasticsearch leaves vectors out of `_source`; any array of 128 floats or more may be mapped as one. */
function keepVectors(version: string): Product["sourceParameters"] {
  return isAtLeast(version, [9, 2]) ? { _source_exclude_vectors: "false" } : {};
}

/** The default search pipeline of an index may drop hits and change them. OpenSearch has them from 2.9 on. */
function skipPipelines(isDisguised: boolean, version: string): Product["searchParameters"] {
  return !isDisguised && isAtLeast(version, [2, 9]) ? { search_pipeline: "_none" } : {};
}

function findPointInTimePaths(isElasticsearch: boolean, version: string): PointInTimePaths | undefined {
  // A server that does not show its version is taken for one that has them.
  if (version !== unknownVersion && !isAtLeast(version, isElasticsearch ? [7, 12] : [2, 4])) return undefined;
  return isElasticsearch
    ? { open: "_pit", close: { path: "_pit", isList: false } }
    : { open: "_search/point_in_time", close: { path: "_search/point_in_time", isList: true } };
}

function isAtLeast(version: string, [leastMajor, leastMinor]: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > leastMajor || (major === leastMajor && minor >= leastMinor);
}
