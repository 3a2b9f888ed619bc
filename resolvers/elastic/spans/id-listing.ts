// Lists ids by aggregations of the index, page by page. They are far shorter than the documents that have them. Where the
// index may hold other values than the decoder reads, it lists nothing.

import { z } from "zod";
import { requireFirst } from "../../../src/core/collections.ts";
import type { Budget } from "../../../src/store/spans.ts";
import { idsPerBudgetUnit } from "../../../src/tracing/spans/read-budget.ts";
import { allOf, matchNone, not } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { deriveGroupableField, type GroupableField } from "../query/span-lower-bounds.ts";
import { hasDocuments, type SpanDocuments } from "./span-documents.ts";
import type { AggregationQuery, Condition } from "./span-search.ts";

const pageSize = 10_000;
/** More documents than this would take too long to list. */
const maxListedDocuments = 1_000_000;

const compositePageSchema = z.object({
  after_key: z.record(z.string(), z.unknown()).optional(),
  buckets: z.array(z.object({ key: z.record(z.string(), z.union([z.string(), z.number(), z.null()])) })),
});

/** The ids of one document, in the order of the fields; undefined where it has none. */
export type IdTuple = readonly (string | undefined)[];

/** Takes listed ids from the budget. @throws {Refused} `result_too_large` */
export function spendIds(budget: Budget, count: number): void {
  budget.spend(Math.ceil(count / idsPerBudgetUnit));
}

/**
 * The distinct combinations of values that documents have in several fields, in the order of `listNames`. A list counts as
 * each of its elements. Forms that have the values in different fields are listed apart, so one combination may come more than once.
 * Undefined where the index cannot list them exactly, or there are too many documents.
 * @throws {Refused} `result_too_large` by the budget
 * @throws {PlanOutdatedError}
 * @throws {BackendError} `rejected` where the server refuses the aggregation
 */
export async function listIds<Form extends SpanForm | EventForm>(
  documents: SpanDocuments,
  query: AggregationQuery<Form>,
  listNames: (form: Form) => readonly string[],
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly IdTuple[] | undefined> {
  const { source, condition } = query;
  const deriveFields = (placed: PlacedForm<Form>): readonly GroupableField[] =>
    listNames(placed.form).map((name) => deriveGroupableField(placed, name));
  const forms = query.forms.filter((placed) => condition(placed, source) !== matchNone);
  const formsByFields = Map.groupBy(forms, (placed) =>
    JSON.stringify(deriveFields(placed).map(({ field, isInteger }) => [field, isInteger])),
  );
  const found: IdTuple[] = [];
  for (const own of formsByFields.values()) {
    const uncertain: Condition<Form> = (placed) =>
      allOf([condition(placed, source), not(allOf(deriveFields(placed).map(({ certain }) => certain)))]);
    if (await hasDocuments(documents, { ...query, forms: own, condition: uncertain }, signal))
      return undefined;
    const fields = deriveFields(requireFirst(own)).map(({ field }) => field);
    const isComplete = await addPages(documents, { ...query, forms: own }, fields, found, budget, signal);
    if (!isComplete) return undefined;
  }
  return found;
}

/** Adds the combinations of fields that all forms have in common; false where there are too many documents. */
async function addPages<Form extends SpanForm | EventForm>(
  documents: SpanDocuments,
  query: AggregationQuery<Form>,
  fields: readonly (string | undefined)[],
  found: IdTuple[],
  budget: Budget,
  signal: AbortSignal,
): Promise<boolean> {
  const sources = fields.flatMap((field, index) =>
    field === undefined ? [] : [{ [`c${index}`]: { terms: { field, missing_bucket: true } } }],
  );
  if (sources.length === 0) return true;
  for (let after: unknown; ; ) {
    const composite = { size: pageSize, sources, ...(after === undefined ? {} : { after }) };
    const body = { track_total_hits: true, aggs: { ids: { composite } } };
    const { total, readAggregation } = await documents.aggregate(query, body, signal);
    if (total > maxListedDocuments) return false;
    const page = readAggregation("ids", compositePageSchema.optional());
    if (page === undefined) return true;
    const { buckets, after_key } = page;
    spendIds(budget, buckets.length);
    for (const { key } of buckets) found.push(fields.map((_, index) => toText(key[`c${index}`])));
    if (after_key === undefined || buckets.length < pageSize) return true;
    after = after_key;
  }
}

function toText(value: string | number | null | undefined): string | undefined {
  return value === null || value === undefined || value === "" ? undefined : String(value);
}
