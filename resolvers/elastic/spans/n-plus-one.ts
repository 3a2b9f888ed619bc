// Which parents may have many children that ask the same of a database. The index is asked for lists of parents by the
// number of their children, which err on one side only: whoever has so many children is in them.
import { z } from "zod";
import type { NPlusOneQuery, SpanSource } from "../../../src/store/spans.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import { createNormaliser } from "../../../src/tracing/spans/statement-cache.ts";
import { allOf, anyOf, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import type { SpanForm } from "../layout/span-layout.ts";
import {
  buildCertainCountOneQuery,
  buildParentReferenceQuery,
  deriveGroupableField,
  deriveGroupableFields,
} from "../query/span-lower-bounds.ts";
import { buildSelectionQuery } from "../query/span-upper-bounds.ts";
import { idsPerBudgetUnit } from "./id-listing.ts";
import { tryHint } from "./index-hints.ts";
import type { Condition, SearchPlan, SpanDocuments } from "./span-documents.ts";

const parentPageSize = 10_000;
/** Terms that each shard sends: with fewer parents than this on a shard none is left out. */
const shardTermLimits = { least: 50_000, ofAll: 1_000_000 } as const;

const parentTermsSchema = z.object({
  doc_count_error_upper_bound: z.number(),
  buckets: z.array(z.object({ key: z.string(), doc_count: z.number() })),
});
const parentPageSchema = z.object({
  after_key: z.record(z.string(), z.unknown()).optional(),
  buckets: z.array(z.object({ key: z.object({ parent: z.string() }), doc_count: z.number() })),
});

/** `SpanReader.crowds` over one source. */
export async function findNPlusOneParents(
  documents: SpanDocuments,
  source: SpanSource,
  { least, budget }: NPlusOneQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const found = new Set<string>();
    const ask = async (
      field: string,
      forms: readonly PlacedForm<SpanForm>[],
      condition: Condition<SpanForm>,
      aggs: object,
    ) => {
      const answer = await documents.aggregate(
        source,
        plan,
        forms,
        condition,
        { track_total_hits: false, aggs },
        signal,
      );
      return answer.aggregations[field];
    };
    const add = (id: string): void => void found.add(normaliseId(id, 16));
    async function addAll(
      field: string,
      forms: readonly PlacedForm<SpanForm>[],
      condition: Condition<SpanForm>,
      atLeast: number,
    ) {
      const sources = [{ parent: { terms: { field } } }];
      for (let after: object | undefined; ; ) {
        const composite = { size: parentPageSize, sources, ...(after === undefined ? {} : { after }) };
        const page = parentPageSchema.parse(
          await ask("parents", forms, condition, { parents: { composite } }),
        );
        budget.spend(Math.ceil(page.buckets.length / idsPerBudgetUnit));
        for (const { key, doc_count } of page.buckets) if (doc_count >= atLeast) add(key.parent);
        if (page.after_key === undefined || page.buckets.length < parentPageSize) return;
        after = page.after_key;
      }
    }
    for (const [field, forms] of groupFormsByParentField(plan)) {
      if (field === undefined) return undefined;
      const unsure: Condition<SpanForm> = (placed) =>
        allOf([buildStatementQuery(placed), not(buildCertainParentQuery(placed))]);
      const options = { track_total_hits: true };
      const isSure = forms.every((placed) => unsure(placed, source) === matchNone);
      if (!isSure && (await documents.aggregate(source, plan, forms, unsure, options, signal)).total > 0)
        return undefined;
      const condition: Condition<SpanForm> = (placed) => buildStatementQuery(placed);
      const several: Condition<SpanForm> = (placed) =>
        allOf([buildStatementQuery(placed), not(buildCertainCountOneQuery(placed))]);
      if (forms.some((placed) => several(placed, source) !== matchNone))
        await addAll(field, forms, several, 1);
      const alike = await listParentsByStatement(documents, source, plan, field, forms, least, signal);
      if (alike !== undefined) {
        budget.spend(Math.ceil(alike.length / idsPerBudgetUnit));
        for (const id of alike) add(id);
        continue;
      }
      const { shards } = plan.knowledge;
      const shard_size = Math.max(
        shardTermLimits.least,
        Math.floor(shardTermLimits.ofAll / Math.max(1, shards)),
      );
      const list = async (min_doc_count: number) => {
        const parents = { terms: { field, size: parentPageSize, shard_size, min_doc_count } };
        return parentTermsSchema.parse(await ask("parents", forms, condition, { parents }));
      };
      // A count may lack what shards left out of their lists, which the bound of the error says.
      let answer = await list(least);
      const error = answer.doc_count_error_upper_bound;
      if (error > 0 && error < least - 1) answer = await list(least - error);
      const last = answer.buckets.at(-1)?.doc_count ?? 0;
      const isCut = answer.buckets.length === parentPageSize && last + error >= least;
      if (isCut || answer.doc_count_error_upper_bound > error || error >= least - 1) {
        await addAll(field, forms, condition, least);
      } else {
        budget.spend(Math.ceil(answer.buckets.length / idsPerBudgetUnit));
        for (const { key } of answer.buckets) add(key);
      }
    }
    return [...found];
  });
}

function buildStatementQuery(placed: PlacedForm<SpanForm>) {
  return buildSelectionQuery(placed, "statements");
}

/** Places by the field that names the parent; undefined where an index cannot group by it. */
function groupFormsByParentField({
  layout,
}: SearchPlan): ReadonlyMap<string | undefined, readonly PlacedForm<SpanForm>[]> {
  const holding = layout.spans.filter((placed) => buildStatementQuery(placed) !== matchNone);
  return Map.groupBy(holding, (placed) => {
    const [name, ...others] = placed.form.parent;
    return name === undefined || others.length > 0 ? undefined : deriveGroupableField(placed, name).field;
  });
}

/** Documents whose parent, if they have one, surely stands in its field. */
function buildCertainParentQuery(placed: PlacedForm<SpanForm>) {
  const { group, form } = placed;
  const [name = ""] = form.parent;
  const column = deriveGroupableField(placed, name);
  const present = { exists: { field: column.field } };
  if (form.parent_reference === undefined) return column.certain;
  return allOf([
    column.certain,
    not(allOf([not(present), buildParentReferenceQuery(group, form.parent_reference)])),
  ]);
}

// ---- By statement ---------------------------------------------------------------------------------------------

/** Distinct statements, and characters of all of them, of which more are not sent back to the index. */
const statementLimits = { count: 500, chars: 100_000 } as const;
/** Heaps of statements whose parents are counted apart: each takes the index a number for each parent. */
const maxStatementGroups = 8;
/** Servers return no more than 65,535 groups in all. */
const maxBuckets = 60_000;
const maxCountedSpans = 4_000_000;

const statementTermsSchema = z.object({
  doc_count_error_upper_bound: z.number(),
  sum_other_doc_count: z.number(),
  buckets: z.array(z.object({ key: z.union([z.string(), z.number()]), doc_count: z.number() })),
});
const statementGroupSchema = z.object({
  parents: z.object({ buckets: z.array(z.object({ key: z.string() })) }),
});

/**
 * Parents that may have so many children with one normalised statement, where it has few: of each statement, or of a few
 * together, the children of a parent are counted apart. Whoever has so many of them has its share of them on some shard,
 * so that shards send only the parents that have as many, and most send none. Undefined where that leaves too many.
 */
async function listParentsByStatement(
  documents: SpanDocuments,
  source: SpanSource,
  plan: SearchPlan,
  parentField: string,
  forms: readonly PlacedForm<SpanForm>[],
  least: number,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const indices = new Set(forms.flatMap(({ group }) => group.indices));
  const shards = [...indices].reduce((sum, index) => sum + (plan.knowledge.shardsByIndex.get(index) ?? 1), 0);
  const share = Math.ceil(least / Math.max(1, shards));
  // Everybody has one.
  if (share < 2) return undefined;
  const columns = (placed: PlacedForm<SpanForm>) => deriveGroupableFields(placed, placed.form.statement);
  const fields = [...new Set(forms.flatMap((placed) => columns(placed).flatMap(({ field }) => field ?? [])))];
  const ask = (condition: Condition<SpanForm>, body: object) =>
    documents.aggregate(source, plan, forms, condition, body, signal);
  const unsure: Condition<SpanForm> = (placed) =>
    allOf([buildStatementQuery(placed), not(allOf(columns(placed).map(({ certain: sure }) => sure)))]);
  const isSure = forms.every((placed) => unsure(placed, source) === matchNone);
  const size = statementLimits.count;
  const lists = fields.map((field, at) => [`statements${at}`, { terms: { field, size, min_doc_count: 1 } }]);
  const [doubtful, listed] = await Promise.all([
    isSure ? undefined : ask(unsure, { track_total_hits: true }),
    ask(buildStatementQuery, { track_total_hits: true, aggs: Object.fromEntries(lists) }),
  ]);
  if ((doubtful?.total ?? 0) > 0 || listed.total > maxCountedSpans) return undefined;
  const known = fields.flatMap((field, at) => {
    const list = statementTermsSchema.parse(listed.aggregations[`statements${at}`]);
    const isWhole = list.doc_count_error_upper_bound === 0 && list.sum_other_doc_count === 0;
    return [{ field, isWhole, statementBuckets: list.buckets }];
  });
  if (known.some(({ isWhole }) => !isWhole)) return undefined;
  // Each has at least one.
  const counted = known
    .flatMap(({ statementBuckets }) => statementBuckets)
    .reduce((sum, { doc_count }) => sum + doc_count, 0);
  if (counted < listed.total) return undefined;
  const texts = known.flatMap(({ statementBuckets }) => statementBuckets.map(({ key }) => key));
  // A number may be spelled otherwise in the document.
  if (texts.some((text) => typeof text !== "string" || /^-?\d|^(?:true|false)$/.test(text))) return undefined;
  if (texts.join("").length > statementLimits.chars) return undefined;
  const heaps = partitionStatements(known, least);
  if (heaps.length === 0) return [];
  const limit = Math.floor(maxBuckets / heaps.length);
  const most = { size: limit, shard_size: limit, min_doc_count: share, shard_min_doc_count: share };
  const aggs = heaps.map((heap, at) => [
    `heap${at}`,
    { filter: heap, aggs: { parents: { terms: { field: parentField, ...most } } } },
  ]);
  const { aggregations } = await ask(buildStatementQuery, {
    track_total_hits: false,
    aggs: Object.fromEntries(aggs),
  });
  const found = heaps.map((_, at) => statementGroupSchema.parse(aggregations[`heap${at}`]).parents.buckets);
  // A list that is not full lacks nobody: all that a shard sent is in it.
  if (found.some((buckets) => buckets.length >= limit)) return undefined;
  return [...new Set(found.flatMap((buckets) => buckets.map(({ key }) => key)))];
}

interface StatementBuckets {
  readonly field: string;
  readonly statementBuckets: readonly { readonly key: string | number; readonly doc_count: number }[];
}

/** Statements that are normalised alike are in one heap, and heaps are about equally large. */
function partitionStatements(lists: readonly StatementBuckets[], least: number): readonly Query[] {
  const normalise = createNormaliser();
  const all = lists.flatMap(({ field, statementBuckets: buckets }) =>
    buckets.map(({ key, doc_count }) => ({ field, text: String(key), spans: doc_count })),
  );
  const alike = [...Map.groupBy(all, ({ text }) => normalise(text)).values()]
    .map((own) => ({ own, spans: own.reduce((sum, { spans }) => sum + spans, 0) }))
    .filter(({ spans }) => spans >= least)
    .sort((a, b) => b.spans - a.spans);
  const heaps = Array.from({ length: Math.min(maxStatementGroups, alike.length) }, () => {
    return { own: [] as (typeof all)[number][], spans: 0 };
  });
  for (const { own, spans } of alike) {
    const smallest = heaps.reduce((a, b) => (b.spans < a.spans ? b : a));
    smallest.own.push(...own);
    smallest.spans += spans;
  }
  return heaps.map(({ own }) =>
    anyOf(
      [...Map.groupBy(own, ({ field }) => field)].map(([field, same]) => ({
        terms: { [field]: same.map(({ text }) => text) },
      })),
    ),
  );
}
