// Filters of requests for callers that name them otherwise than the routes do.
import { narrowQuery, printAnyOf } from "../log-query/print.ts";
import { parseTraceQuery } from "../tracing/listing/trace-query.ts";

/** A query of requests that are of one of these namespaces too; where it cannot be parsed it stays as it is, to be refused. */
export function narrowToNamespaces(query: string, namespaces: readonly string[]): string {
  return narrowQuery(query, printAnyOf("namespace", namespaces), parseTraceQuery);
}
