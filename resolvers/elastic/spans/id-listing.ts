// Ids alone, listed by the index page by page: far shorter than the documents that have them. What the index does not have
// as the reader would see it, it cannot list, and then it lists nothing.
import { z } from "zod";
import type { Budget, SpanSource } from "../../../src/store/spans.ts";
import { allOf, matchNone, not } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import type { EventForm, SpanForm } from "../layout/span-layout.ts";
import { deriveGroupableField } from "../query/span-lower-bounds.ts";
import type { Condition, SearchPlan, SpanDocuments } from "./span-documents.ts";

/** So many ids count as one document: see `Budget`. */
export const idsPerBudgetUnit = 100;
const pageSize = 10_000;
/** Documents of which more would take longer to list than anybody waits. */
const maxListedDocuments = 1_000_000;

const compositePageSchema = z.object({
  after_key: z.record(z.string(), z.unknown()).optional(),
  buckets: z.array(z.object({ key: z.record(z.string(), z.union([z.string(), z.number(), z.null()])) })),
});

/**
 * The values that documents have at several names together, each combination once, in the order of the names; of a list
 * each element. Undefined where the index cannot tell.
 */
export async function listIds<Form extends SpanForm | EventForm>(
  documents: SpanDocuments,
  source: SpanSource,
  plan: SearchPlan,
  forms: readonly PlacedForm<Form>[],
  condition: Condition<Form>,
  namesOf: (form: Form) => readonly string[],
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly (readonly (string | undefined)[])[] | undefined> {
  const found: (readonly (string | undefined)[])[] = [];
  const holding = forms.filter((placed) => condition(placed, source) !== matchNone);
  const columnsOf = (placed: PlacedForm<Form>) =>
    namesOf(placed.form).map((name) => deriveGroupableField(placed, name));
  const alike = Map.groupBy(holding, (placed) => JSON.stringify(columnsOf(placed).map(({ field }) => field)));
  for (const same of alike.values()) {
    const [first] = same;
    const fields = first === undefined ? [] : columnsOf(first).map(({ field }) => field);
    const unsure: Condition<Form> = (placed) =>
      allOf([condition(placed, source), not(allOf(columnsOf(placed).map(({ certain: sure }) => sure)))]);
    const ask = (asked: Condition<Form>, body: object) =>
      documents.aggregate(source, plan, same, asked, { track_total_hits: true, ...body }, signal);
    if (same.some((placed) => unsure(placed, source) !== matchNone) && (await ask(unsure, {})).total > 0)
      return undefined;
    const sources = fields.flatMap((field, at) =>
      field === undefined ? [] : [{ [`c${at}`]: { terms: { field, missing_bucket: true } } }],
    );
    if (sources.length === 0) continue;
    for (let after: unknown; ; ) {
      const composite = { size: pageSize, sources, ...(after === undefined ? {} : { after }) };
      const { total, aggregations } = await ask(condition, { aggs: { ids: { composite } } });
      if (total > maxListedDocuments) return undefined;
      if (aggregations.ids === undefined) break;
      const { buckets, after_key } = compositePageSchema.parse(aggregations.ids);
      budget.spend(Math.ceil(buckets.length / idsPerBudgetUnit));
      for (const { key } of buckets) found.push(fields.map((_, at) => toText(key[`c${at}`])));
      if (after_key === undefined || buckets.length < pageSize) break;
      after = after_key;
    }
  }
  return found;
}

function toText(value: string | number | null | undefined): string | undefined {
  return value === null || value === undefined || value === "" ? undefined : String(value);
}
