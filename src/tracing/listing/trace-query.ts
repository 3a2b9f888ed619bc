// The filters of the trace routes: the trace query language, and whether a row passes. The language has the syntax of the log
// query language, with its own fields and four operators.
import { readOwn } from "../../core/collections.ts";
import type { AttributeValue, TraceSummary } from "../../core/rows.ts";
import type { Compare, Filter, Operator } from "../../log-query/ast.ts";
import { parseAs, type Term } from "../../log-query/parse.ts";
import { printAs, printValue, quoteValue } from "../../log-query/print.ts";
import { createSyntaxError, escapeKey, unescapeKey } from "../../log-query/scan.ts";
import { type TraceField, type TraceFilter, traceFields } from "../../store/span-analytics.ts";
import { decodeDigest, encodeActionDigest } from "../spans/digest.ts";
import { normaliseId } from "../spans/span-ids.ts";

export type TraceRow = Omit<TraceSummary, "has_npo">;

const operators: ReadonlySet<Operator> = new Set(["=", "!=", ":", "!:"]);
const fieldNames = `tag.<name>, ${traceFields.join(", ")}`;

/** Parses a trace query. @throws {Unprocessable} `invalid_log_query`, `log_query_too_complex` */
export function parseTraceQuery(query: string): Filter<TraceField> {
  return parseAs(query, { bareTermField: { kind: "any" }, resolveField: readField, hasLists: false });
}

/** Text that `parseTraceQuery` parses to this filter, except for source positions. */
export function printTraceQuery(filter: Filter<TraceField>): string {
  return printAs(filter, "", ({ field, operator, value }) => {
    // Without quotes, a word could be parsed as a term with an operator.
    if (field.kind === "any") return quoteValue(value);
    const name = field.kind === "tag" ? `tag.${escapeKey(field.name)}` : field.name;
    return `${name}${operator}${printValue(value)}`;
  });
}

function readField({ query, keys, operator, field }: Term): TraceField {
  const [first, ...rest] = keys;
  const name = traceFields.find((known) => known === first);
  const tag = rest.map(unescapeKey).join(".");
  if ((name === undefined || rest.length > 0) && (first !== "tag" || tag === "")) {
    throw createSyntaxError(
      query,
      field,
      `one of ${fieldNames}`,
      "Text with an operator in it goes in double quotes.",
    );
  }
  if (!operators.has(operator)) {
    throw createSyntaxError(
      query,
      { start: field.end, end: field.end + operator.length },
      "one of = != : !:",
    );
  }
  return name === undefined ? { kind: "tag", name: tag } : { kind: "row", name };
}

/** Whether a row satisfies the filter. `digests` are those of the exceptions that count for the row. */
export function isRowAccepted(filter: TraceFilter, row: TraceRow, digests: readonly string[]): boolean {
  const { traceId, namespace, action, minDuration } = filter;
  if (traceId !== undefined && row.trace_id !== traceId) return false;
  if (namespace !== undefined && row.namespace !== namespace) return false;
  if (action !== undefined && row.action_name !== action) return false;
  if (minDuration !== undefined && row.duration < minDuration) return false;
  if (filter.digests !== undefined) {
    const own = encodeActionDigest({ namespace: row.namespace, action: row.action_name });
    const isOfRow = (digest: string): boolean =>
      digest === own || (digests.includes(digest) && canBeDigestOfRow(digest, row));
    if (!filter.digests.some(isOfRow)) return false;
  }
  return matchesTrace(filter.query, row);
}

/**
 * Whether a digest may belong to an error of the row. An exception may carry any text as its digest, even the derived digest of
 * another error or of an action. Such digests find only what they stand for, so that a store can narrow by that.
 */
function canBeDigestOfRow(digest: string, { namespace, action_name }: TraceRow): boolean {
  const key = decodeDigest(digest);
  if (key?.of !== "error") return key?.of !== "action";
  return key.namespace === namespace && key.action === action_name;
}

/** Whether a row satisfies the query. An absent field satisfies only `!=` and `!:`. */
function matchesTrace(filter: Filter<TraceField>, row: TraceRow): boolean {
  switch (filter.kind) {
    case "all":
      return true;
    case "and":
      return filter.operands.every((operand) => matchesTrace(operand, row));
    case "or":
      return filter.operands.some((operand) => matchesTrace(operand, row));
    case "compare":
      return isComparisonTrue(filter, row);
    default:
      return filter satisfies never;
  }
}

function isComparisonTrue({ field, operator, value }: Compare<TraceField>, row: TraceRow): boolean {
  const isNegative = operator === "!=" || operator === "!:";
  const isWhole = operator === "=" || operator === "!=";
  const spellings = field.kind === "row" ? listSpellings(field.name, isWhole, value) : [value];
  const isMatch = (text: string): boolean =>
    spellings.some((spelling) => (isWhole ? text === spelling : text.includes(spelling)));
  return listFieldTexts(field, row).some(isMatch) !== isNegative;
}

/** The spellings of a value that a row may have: ids are normalised. */
function listSpellings(name: string, isWhole: boolean, value: string): readonly string[] {
  if (name !== "trace_id" && name !== "span_id") return [value];
  return isWhole ? [normaliseId(value, name === "trace_id" ? 32 : 16)] : [value, value.toLowerCase()];
}

function listFieldTexts(field: TraceField, row: TraceRow): readonly string[] {
  switch (field.kind) {
    case "tag":
      return listTexts(readOwn(row.tags, field.name));
    case "row": {
      const text = row[field.name];
      return text === undefined ? [] : [text];
    }
    case "any":
      return [row.action_name, ...Object.values(row.tags).flatMap(listTexts)];
    default:
      return field satisfies never;
  }
}

/** The texts that operators compare: those of the elements of an array; none for `null` and objects. */
function listTexts(value: AttributeValue | undefined): readonly string[] {
  if (value === undefined || value === null) return [];
  if (isList(value)) return value.flatMap(listTexts);
  return typeof value === "object" ? [] : [String(value)];
}

function isList(value: AttributeValue): value is readonly AttributeValue[] {
  return Array.isArray(value);
}
