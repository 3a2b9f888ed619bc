// Derives from the filter of a listing what a store may leave out, and which trace or span all rows belong to. Each row is
// still checked against the filter.
import type { Compare, Filter } from "../../log-query/ast.ts";
import type { TraceField, TraceFilter } from "../../store/span-analytics.ts";
import type { SpanPushdown } from "../../store/spans.ts";
import { type Digest, decodeDigest } from "../spans/digest.ts";
import { unknownException } from "../spans/exceptions.ts";
import type { ActionNames } from "../spans/requests.ts";
import { normaliseId } from "../spans/span-ids.ts";

/** The comparisons that every row of the query satisfies and a store can search for. */
export function listRequiredLeaves(filter: Filter<TraceField>): readonly Compare<TraceField>[] {
  if (filter.kind === "and") return filter.operands.flatMap(listRequiredLeaves);
  return filter.kind === "compare" && filter.operator === "=" && isPushable(filter.field) ? [filter] : [];
}

function isPushable(field: TraceField): boolean {
  return field.kind === "tag" || (field.kind === "row" && field.name !== "site_id");
}

/** The names of rows with these digests. Undefined without digests, or where one of them has no names. */
export function decodeDigestNames(digests: TraceFilter["digests"]): readonly ActionNames[] | undefined {
  const names = digests?.map(decodeDigest).flatMap((key) => (hasNames(key) ? [key] : []));
  return names?.length === digests?.length ? names : undefined;
}

function hasNames(key: Digest | undefined): key is Exclude<Digest, { of: "event" }> {
  return key?.of === "action" || key?.of === "error";
}

/** What every entry of a row has, or the span itself where a row has no entry. */
export function derivePushdown({
  namespace,
  action,
  minDuration,
  digests,
  query,
}: TraceFilter): SpanPushdown {
  const leaves = listRequiredLeaves(query);
  const names = decodeDigestNames(digests);
  const [namespaces, actions] = [
    namespace ?? findLeafText(leaves, "namespace"),
    action ?? findLeafText(leaves, "action_name"),
  ].map((text) => (text === undefined ? undefined : [text]));
  return {
    namespaces: namespaces ?? deduplicateTexts(names?.map((own) => own.namespace)),
    actions: actions ?? deduplicateTexts(names?.map((own) => own.action)),
    revision: findLeafText(leaves, "revision"),
    tags: leaves.flatMap(({ field, value }) => (field.kind === "tag" ? [{ name: field.name, value }] : [])),
    minDuration,
    errors: deriveErrors(digests),
  };
}

/** The only exceptions that rows of errors can have. Undefined where they may have any. */
function deriveErrors(digests: TraceFilter["digests"]): SpanPushdown["errors"] {
  const errors = digests?.flatMap((digest) => {
    const key = decodeDigest(digest);
    // An exception without a type cannot be searched by its name.
    if (key?.of === "action" || (key?.of === "error" && key.exception === unknownException)) return [];
    return [{ digest, exception: key?.of === "error" ? key.exception : undefined }];
  });
  return errors?.length === digests?.length ? errors : undefined;
}

/** The trace that all rows belong to. */
export function findNamedTraceId({ traceId, query }: TraceFilter): string | undefined {
  const id = findLeafText(listRequiredLeaves(query), "trace_id");
  return traceId ?? (id === undefined ? undefined : normaliseId(id, 32));
}

/** The span of all rows. */
export function findNamedSpanId({ query }: TraceFilter): string | undefined {
  const id = findLeafText(listRequiredLeaves(query), "span_id");
  return id === undefined ? undefined : normaliseId(id, 16);
}

function findLeafText(leaves: readonly Compare<TraceField>[], name: string): string | undefined {
  return leaves.find(({ field }) => field.kind === "row" && field.name === name)?.value;
}

function deduplicateTexts(texts: readonly string[] | undefined): readonly string[] | undefined {
  return texts && [...new Set(texts)];
}
