// Filters of requests for callers that name them otherwise than the routes do.
import { narrowQuery, printAnyOf } from "../log-query/print.ts";
import { parseTraceQuery } from "../tracing/listing/trace-query.ts";
import { decodeDigest } from "../tracing/spans/digest.ts";

/** A query of requests that are of one of these namespaces too; where it cannot be parsed it stays as it is, to be refused. */
export function narrowToNamespaces(query: string, namespaces: readonly string[]): string {
  return narrowQuery(query, printAnyOf("namespace", namespaces), parseTraceQuery);
}

/** Whether a digest is that of an action, and not of an error. */
export function isActionDigest(digest: unknown): boolean {
  return typeof digest === "string" && decodeDigest(digest)?.of === "action";
}
