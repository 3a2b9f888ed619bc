// Finds N+1 candidates: parents with at least `least` child spans that run the same normalised statement. Uses terms
// aggregations on the parent id. The result is a superset (no false negatives).

import { z } from "zod";
import { requireFirst, zip } from "../../../src/core/collections.ts";
import type { NPlusOneQuery, SpanSource } from "../../../src/store/spans.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import { createNormaliser } from "../../../src/tracing/spans/statement-cache.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import type { SpanForm } from "../layout/span-layout.ts";
import {
  buildCertainCountOneQuery,
  deriveGroupableField,
  deriveGroupableFields,
} from "../query/span-lower-bounds.ts";
import {
  buildIdQuery,
  buildPossibleParentReferenceQuery,
  buildSelectionQuery,
} from "../query/span-upper-bounds.ts";
import { spendIds } from "./id-listing.ts";
import { tryHint } from "./index-hints.ts";
import type { SearchPlan } from "./search-plan.ts";
import { hasDocuments, type SpanDocuments } from "./span-documents.ts";
import { chunkIds } from "./span-matchers.ts";
import type { AggregationQuery, AggregationResult, Condition } from "./span-search.ts";

/** Children of one form, or of several that name the parent in the same field. */
interface ParentSearch extends NPlusOneQuery {
  readonly documents: SpanDocuments;
  readonly source: SpanSource;
  readonly plan: SearchPlan;
  /** The statements that are searched: of some traces, or all. */
  readonly statements: Condition<SpanForm>;
  /** The field that the index groups by. */
  readonly field: string;
  readonly forms: readonly PlacedForm<SpanForm>[];
  /** The parents found so far. */
  readonly found: Set<string>;
  /** The fields whose spans have too many statements to be told apart. */
  readonly manyStatements: Set<string>;
}

/** More than `maxTracesPerSearch`, because counts are short answers; four spellings of each are still few enough terms. */
const maxTracesPerList = 10_000;

/** `SpanReader.findNPlusOneParents` over one source. */
export async function findNPlusOneParents(
  documents: SpanDocuments,
  source: SpanSource,
  query: NPlusOneQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const [found, manyStatements] = [new Set<string>(), new Set<string>()];
    const parts = query.traceIds === undefined ? [undefined] : chunkIds(query.traceIds, maxTracesPerList);
    for (const traceIds of parts) {
      const statements: Condition<SpanForm> = (placed) =>
        allOf([buildStatementQuery(placed), buildTracesQuery(placed, traceIds)]);
      const formsByField = groupFormsByParentField(plan);
      // Of the calls of one parent at least this share lies in one of the fields.
      const least = Math.ceil(query.least / formsByField.size);
      for (const [field, forms] of formsByField) {
        if (field === undefined) return undefined;
        const target = { documents, source, plan, statements, field, forms, least };
        const isCertain = await addParents({ ...query, ...target, found, manyStatements }, signal);
        if (!isCertain) return undefined;
      }
    }
    return [...found];
  });
}

/** Forms by the field that names the parent; undefined is the key of those that no index can group by it. */
function groupFormsByParentField({
  forms: { spans },
}: SearchPlan): ReadonlyMap<string | undefined, readonly PlacedForm<SpanForm>[]> {
  const forms = spans.filter((placed) => buildStatementQuery(placed) !== matchNone);
  return Map.groupBy(forms, (placed) => {
    const [name, ...others] = placed.form.parent;
    if (name === undefined || others.length > 0) return undefined;
    const { field, isInteger } = deriveGroupableField(placed, name);
    return isInteger ? undefined : field;
  });
}

/** Adds all candidates of one parent field; false where the field may lack the parent of a span, or there are too many. */
async function addParents(search: ParentSearch, signal: AbortSignal): Promise<boolean> {
  const { documents, source, statements, forms } = search;
  const uncertain: Condition<SpanForm> = (placed) =>
    allOf([statements(placed, source), not(buildCertainParentQuery(placed))]);
  if (await hasDocuments(documents, toQuery(search, uncertain), signal)) return false;
  // A span that stands for several, which the index counts as one, makes its parent a candidate.
  const several: Condition<SpanForm> = (placed) =>
    allOf([statements(placed, source), not(buildCertainCountOneQuery(placed))]);
  const hasSeveral = forms.some((placed) => several(placed, source) !== matchNone);
  if (hasSeveral && !(await addParentsByCount(search, several, 1, signal))) return false;
  const byStatement = await listParentsByStatement(search, signal);
  if (byStatement === undefined) return addParentsByCount(search, statements, search.least, signal);
  addIds(search, byStatement);
  return true;
}

function addIds({ budget, found }: ParentSearch, ids: readonly string[]): void {
  spendIds(budget, ids.length);
  for (const id of ids) found.add(normaliseId(id, 16));
}

function toQuery(
  { source, plan, forms }: ParentSearch,
  condition: Condition<SpanForm>,
): AggregationQuery<SpanForm> {
  return { source, plan, forms, condition };
}

function buildStatementQuery(placed: PlacedForm<SpanForm>): Query {
  return buildSelectionQuery(placed, "statements");
}

function buildTracesQuery(
  { group, form }: PlacedForm<SpanForm>,
  traceIds: readonly string[] | undefined,
): Query {
  return traceIds === undefined ? matchAll : buildIdQuery(group, form.trace_id, traceIds);
}

/** Documents whose field certainly has the parent, if they name one. */
function buildCertainParentQuery(placed: PlacedForm<SpanForm>): Query {
  const { group, form } = placed;
  const { field, certain } = deriveGroupableField(placed, requireFirst(form.parent));
  if (form.parent_reference === undefined) return certain;
  const isMissing = not({ exists: { field } });
  const hasReference = buildPossibleParentReferenceQuery(group, form.parent_reference);
  return allOf([certain, not(allOf([isMissing, hasReference]))]);
}

// ---- By the number of all children ----------------------------------------------------------------------------

/** Servers return at most 65,535 buckets in all. */
const maxBuckets = 60_000;
/** Terms per shard: a shard with fewer parents leaves none out. */
const shardTermLimits = { min: 50_000, allShards: 1_000_000 } as const;
/** Where a list may lack parents, these are divided among so many times as many lists. */
const listsFactor = 4;
const maxLists = 4_096;

const parentTermsSchema = z.object({
  doc_count_error_upper_bound: z.number(),
  buckets: z.array(z.object({ key: z.string(), doc_count: z.number() })),
});

/**
 * Adds the parents with at least `least` documents of a condition. The parents are divided by a hash of their ids among so many
 * lists that none is cut; each takes the source one scan. False where there are too many.
 */
async function addParentsByCount(
  search: ParentSearch,
  condition: Condition<SpanForm>,
  least: number,
  signal: AbortSignal,
): Promise<boolean> {
  for (let lists = 1; lists <= maxLists; lists *= listsFactor) {
    if (await addListedParents(search, condition, { least, lists }, signal)) return true;
  }
  return false;
}

/** False as soon as a list may lack a parent. */
async function addListedParents(
  search: ParentSearch,
  condition: Condition<SpanForm>,
  { least, lists }: { readonly least: number; readonly lists: number },
  signal: AbortSignal,
): Promise<boolean> {
  const shards = countShards(search);
  const terms = {
    field: search.field,
    size: maxBuckets,
    min_doc_count: least,
    // What one shard has of a parent is all of it; several have to send every parent that they have.
    ...(shards === 1
      ? { shard_size: maxBuckets, shard_min_doc_count: least }
      : { shard_size: Math.max(shardTermLimits.min, Math.floor(shardTermLimits.allShards / shards)) }),
  };
  for (let list = 0; list < lists; list += 1) {
    const parents = {
      terms: { ...terms, ...(lists === 1 ? {} : { include: { partition: list, num_partitions: lists } }) },
    };
    const { readAggregation } = await aggregateParents(search, condition, { parents }, signal);
    const { buckets, doc_count_error_upper_bound: error } = readAggregation("parents", parentTermsSchema);
    if (buckets.length >= maxBuckets || error > 0) return false;
    addIds(
      search,
      buckets.map(({ key }) => key),
    );
  }
  return true;
}

/** At least one. */
function countShards({ forms, plan }: ParentSearch): number {
  const indices = new Set(forms.flatMap(({ group }) => group.indices));
  return [...indices].reduce((sum, index) => sum + (plan.metadata.shardsByIndex.get(index) ?? 1), 0);
}

function aggregateParents(
  search: ParentSearch,
  condition: Condition<SpanForm>,
  aggs: object,
  signal: AbortSignal,
): Promise<AggregationResult> {
  const body = { track_total_hits: false, aggs };
  return search.documents.aggregate(toQuery(search, condition), body, signal);
}

// ---- By statement ---------------------------------------------------------------------------------------------

/** Beyond so many distinct statements, or characters of all, they are not sent back to the index. */
const statementLimits = { count: 500, chars: 100_000 } as const;
/** Groups of statements: for each, the index keeps a number per parent. */
const maxStatementGroups = 8;
const maxCountedSpans = 4_000_000;

const statementTermsSchema = z.object({
  doc_count_error_upper_bound: z.number(),
  sum_other_doc_count: z.number(),
  buckets: z.array(z.object({ key: z.union([z.string(), z.number()]), doc_count: z.number() })),
});
const statementGroupSchema = z.object({
  parents: z.object({ buckets: z.array(z.object({ key: z.string() })) }),
});

/** A statement as the documents have it. */
interface Statement {
  readonly field: string;
  readonly text: string;
  readonly spans: number;
}

/**
 * Parents with at least `least` children of one group of statements; statements that are normalised alike are in the same
 * group. A parent with so many children has its share of them on some shard, so that each shard sends only parents with
 * that share, and most shards send none. Undefined where the statements are too many or uncertain, or the share is 1.
 */
async function listParentsByStatement(
  search: ParentSearch,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const { field, manyStatements } = search;
  const minPerShard = Math.ceil(search.least / countShards(search));
  if (minPerShard < 2 || manyStatements.has(field)) return undefined;
  const statements = await listStatements(search, signal);
  if (statements === undefined) {
    manyStatements.add(field);
    return undefined;
  }
  const groups = partitionStatements(statements, search.least);
  if (groups.length === 0) return [];
  const size = Math.floor(maxBuckets / groups.length);
  const terms = {
    field,
    size,
    shard_size: size,
    min_doc_count: minPerShard,
    shard_min_doc_count: minPerShard,
  };
  const aggs = groups.map((filter, index) => [`heap${index}`, { filter, aggs: { parents: { terms } } }]);
  const body = Object.fromEntries(aggs);
  const { readAggregation } = await aggregateParents(search, search.statements, body, signal);
  const ids = new Set<string>();
  for (const index of groups.keys()) {
    const { buckets } = readAggregation(`heap${index}`, statementGroupSchema).parents;
    // A bucket list shorter than `size` is complete.
    if (buckets.length >= size) return undefined;
    for (const { key } of buckets) ids.add(key);
  }
  return [...ids];
}

/** All statements of the documents; undefined where these are too many, or the index may hold others. */
async function listStatements(
  search: ParentSearch,
  signal: AbortSignal,
): Promise<readonly Statement[] | undefined> {
  const { documents, source, forms } = search;
  const deriveFields = (placed: PlacedForm<SpanForm>) => deriveGroupableFields(placed, placed.form.statement);
  const uncertain: Condition<SpanForm> = (placed) =>
    allOf([
      search.statements(placed, source),
      not(allOf(deriveFields(placed).map(({ certain }) => certain))),
    ]);
  const derived = forms.flatMap(deriveFields);
  // Integers may be spelled differently in the documents, and a server does not list them together with texts.
  if (derived.some(({ isInteger }) => isInteger)) return undefined;
  const fields = [...new Set(derived.flatMap(({ field }) => (field === undefined ? [] : [field])))];
  const { count: size } = statementLimits;
  const aggs = fields.map((field, index) => [
    `statements${index}`,
    { terms: { field, size, min_doc_count: 1 } },
  ]);
  const body = { track_total_hits: true, aggs: Object.fromEntries(aggs) };
  const [isUncertain, { total, readAggregation }] = await Promise.all([
    hasDocuments(documents, toQuery(search, uncertain), signal),
    documents.aggregate(toQuery(search, search.statements), body, signal),
  ]);
  if (isUncertain || total > maxCountedSpans) return undefined;
  const lists = fields.map((_, index) => readAggregation(`statements${index}`, statementTermsSchema));
  return readStatements(fields, lists, total);
}

/** The statements of complete lists that cover `total` documents; undefined of other lists. */
function readStatements(
  fields: readonly string[],
  lists: readonly z.output<typeof statementTermsSchema>[],
  total: number,
): readonly Statement[] | undefined {
  const isComplete = lists.every(
    (list) => list.doc_count_error_upper_bound === 0 && list.sum_other_doc_count === 0,
  );
  if (!isComplete) return undefined;
  const statements: Statement[] = [];
  for (const [field, { buckets }] of zip(fields, lists)) {
    for (const { key, doc_count } of buckets) {
      // A number or a boolean may be spelled differently in the document.
      if (typeof key !== "string" || /^-?\d|^(?:true|false)$/.test(key)) return undefined;
      statements.push({ field, text: key, spans: doc_count });
    }
  }
  // Each document has at least one.
  if (statements.reduce((sum, { spans }) => sum + spans, 0) < total) return undefined;
  const chars = statements.reduce((sum, { text }) => sum + text.length, 0);
  return chars > statementLimits.chars ? undefined : statements;
}

/**
 * Queries for groups of about equal numbers of spans. Statements that are normalised alike are in one group; those that all
 * documents run fewer than `least` times are in none.
 */
function partitionStatements(statements: readonly Statement[], least: number): readonly Query[] {
  const normalise = createNormaliser();
  const classes = [...Map.groupBy(statements, ({ text }) => normalise(text)).values()]
    .map((own) => ({ own, spans: own.reduce((sum, { spans }) => sum + spans, 0) }))
    .filter(({ spans }) => spans >= least)
    .sort((a, b) => b.spans - a.spans);
  const groups = Array.from({ length: Math.min(maxStatementGroups, classes.length) }, () => {
    return { own: [] as Statement[], spans: 0 };
  });
  for (const { own, spans } of classes) {
    const smallest = groups.reduce((a, b) => (b.spans < a.spans ? b : a));
    smallest.own.push(...own);
    smallest.spans += spans;
  }
  return groups.map(({ own }) => buildStatementsQuery(own));
}

function buildStatementsQuery(statements: readonly Statement[]): Query {
  const byField = Map.groupBy(statements, ({ field }) => field);
  return anyOf([...byField].map(([field, own]) => ({ terms: { [field]: own.map(({ text }) => text) } })));
}
