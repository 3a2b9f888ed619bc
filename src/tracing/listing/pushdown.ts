// What the filters of a listing say for sure of its rows, before any is read: the traces and the spans that they name,
// and what a source may leave out. Rows are held to the filters all the same.
import type { Compare, Filter } from "../../log-query/ast.ts";
import type { SpanNarrowing } from "../../store/span-reader.ts";
import type { TraceField, TraceFilter } from "../../store/store.ts";
import { type Digest, decodeDigest } from "../spans/digest.ts";
import { unknownException } from "../spans/exceptions.ts";
import { canonicalId } from "../spans/id.ts";
import type { Names } from "../spans/requests.ts";

/** Leaves without which no row satisfies the query, that a source can look for: all others say nothing by themselves. */
export function requiredLeaves(filter: Filter<TraceField>): readonly Compare<TraceField>[] {
  if (filter.kind === "and") return filter.operands.flatMap(requiredLeaves);
  return filter.kind === "compare" && filter.operator === "=" && isSought(filter.field) ? [filter] : [];
}

function isSought(field: TraceField): boolean {
  return field.kind === "tag" || (field.kind === "row" && field.name !== "site_id");
}

/** The names that rows of these digests have; undefined where a digest does not tell, or none is asked for. */
export function namesOfDigests(digests: TraceFilter["digests"]): readonly Names[] | undefined {
  const names = digests?.map(decodeDigest).flatMap((key) => (hasNames(key) ? [key] : []));
  return names?.length === digests?.length ? names : undefined;
}

function hasNames(key: Digest | undefined): key is Exclude<Digest, { of: "event" }> {
  return key?.of === "action" || key?.of === "error";
}

/** What the entries of rows have, or the span itself where a row has none. */
export function narrowingOf({ namespace, action, minDuration, digests, query }: TraceFilter): SpanNarrowing {
  const leaves = requiredLeaves(query);
  const names = namesOfDigests(digests);
  const [namespaces, actions] = [
    namespace ?? textOf(leaves, "namespace"),
    action ?? textOf(leaves, "action_name"),
  ].map((text) => (text === undefined ? undefined : [text]));
  return {
    namespaces: namespaces ?? distinct(names?.map((own) => own.namespace)),
    actions: actions ?? distinct(names?.map((own) => own.action)),
    revision: textOf(leaves, "revision"),
    tags: leaves.flatMap(({ field, value }) => (field.kind === "tag" ? [{ name: field.name, value }] : [])),
    minDuration,
    errors: errorsOf(digests),
  };
}

/** The exceptions that rows of errors tell of; undefined where any may be. */
function errorsOf(digests: TraceFilter["digests"]): SpanNarrowing["errors"] {
  const errors = digests?.flatMap((digest) => {
    const key = decodeDigest(digest);
    // An exception without a type has the name of none.
    if (key?.of === "action" || (key?.of === "error" && key.exception === unknownException)) return [];
    return [{ digest, exception: key?.of === "error" ? key.exception : undefined }];
  });
  return errors?.length === digests?.length ? errors : undefined;
}

/** The trace that all rows are of. */
export function traceNamed({ traceId, query }: TraceFilter): string | undefined {
  const id = textOf(requiredLeaves(query), "trace_id");
  return traceId ?? (id === undefined ? undefined : canonicalId(id, 32));
}

/** The span that all rows tell of. */
export function spanNamed({ query }: TraceFilter): string | undefined {
  const id = textOf(requiredLeaves(query), "span_id");
  return id === undefined ? undefined : canonicalId(id, 16);
}

function textOf(leaves: readonly Compare<TraceField>[], name: string): string | undefined {
  return leaves.find(({ field }) => field.kind === "row" && field.name === name)?.value;
}

function distinct(texts: readonly string[] | undefined): readonly string[] | undefined {
  return texts && [...new Set(texts)];
}
