// Aggregates spans in the index. The index groups the documents whose values it certainly has as the decoder reads them, and
// returns the groups page by page. The others, such as those near the ends of a range whose ends are not indexed, are read
// one by one. A group is decoded like a document that has what its members share, so that one place decides what a kind or
// a name is.

import { z } from "zod";
import { requireAt, requireKey, requireLast } from "../../../src/core/collections.ts";
import { isRejection } from "../../../src/core/errors.ts";
import { type AttributeValue, errorReportAttribute, type Span } from "../../../src/core/rows.ts";
import type { Instant, TimeRange } from "../../../src/core/time.ts";
import type { SpanSource, SpanTally, TallyQuery } from "../../../src/store/spans.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { toTally } from "../../../src/tracing/spans/span-tally.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import { decodeSpan } from "../layout/span-decoder.ts";
import { listTimes, nanosPerTimeUnit, type SpanForm } from "../layout/span-layout.ts";
import {
  buildCertainChildQuery,
  buildCertainCountOneQuery,
  buildCertainEndTimeQuery,
  buildCertainFormQuery,
  buildCertainRootQuery,
  deriveAttributeFields,
  deriveGroupableFields,
  findDurationColumn,
  type GroupableField,
  listRuleFields,
} from "../query/span-lower-bounds.ts";
import { buildPushdownQuery } from "../query/span-pushdown.ts";
import { buildEndTimeQuery, durationBuckets } from "../query/span-times.ts";
import { buildKindQuery, buildSelectionQuery } from "../query/span-upper-bounds.ts";
import { PlanOutdatedError, type SearchPlan } from "./search-plan.ts";
import type { SpanDocuments } from "./span-documents.ts";
import type { AggregationBody, AggregationQuery, AggregationResult, Condition } from "./span-search.ts";

/** Groups per page; fewer with durations, because servers return at most 65,535 buckets in all. */
const pageSizes = { plain: 10_000, durations: 50 } as const;
/** Groups of fewer spans on average are not shorter to read than the spans themselves. */
const minSpansPerGroup = 2;
/** How far a server's estimate of distinct values may exceed them, by its documentation some hundredths. */
const cardinalityError = 0.1;
const maxAttempts = 3;
/**
 * Each page of groups costs the source a visit of all documents. More visits than this take a source about as long as a request
 * may; more pages than these cost it more than reading the documents.
 */
const [maxVisits, maxPages] = [20_000_000, 20];

/**
 * `SpanReader.tally` over one source. `read` returns the spans of the source whose documents match a condition.
 * @throws {PlanOutdatedError} when indices come and go faster than their mappings can be read
 */
export async function* tallySpans(
  documents: SpanDocuments,
  source: SpanSource,
  query: TallyQuery,
  read: (condition: Condition<SpanForm>, plan: SearchPlan) => AsyncIterable<readonly Span[]>,
  signal: AbortSignal,
): AsyncGenerator<readonly SpanTally[]> {
  for (let attempt = 1; ; attempt++) {
    const plan = await documents.planSearch(source, signal);
    let hasYielded = false;
    try {
      const blocks = buildBlocks(plan, query, source);
      const counts = await Promise.all(
        blocks.map((block) => countBlock(documents, plan, query, block, source, signal)),
      );
      const counted = counts.filter((block) => block !== undefined);
      const uncounted: Condition<SpanForm> = (placed) =>
        allOf([
          buildCandidateQuery(placed, query, source),
          not(anyOf(counted.map((block) => buildCountedQuery(block, placed)))),
        ]);
      for await (const batch of read(uncounted, plan)) {
        hasYielded = true;
        yield batch.map(toTally);
      }
      for (const { tallies } of counted) if (tallies.length > 0) yield tallies;
      return;
    } catch (error) {
      if (!(error instanceof PlanOutdatedError) || hasYielded || attempt === maxAttempts) throw error;
      await documents.refreshMappings(source, signal);
    }
  }
}

/** The documents that the tallies of a block stand for. */
function buildCountedQuery({ block, ambiguous }: CountedBlock, placed: PlacedForm<SpanForm>): Query {
  const certain = block.certain.get(placed);
  return certain === undefined ? matchNone : allOf([certain, not(anyOf(ambiguous))]);
}

/** All documents that may be of the scan. */
export function buildCandidateQuery(
  placed: PlacedForm<SpanForm>,
  { range, pushdown, select }: Pick<TallyQuery, "range" | "pushdown" | "select">,
  source: SpanSource,
): Query {
  return allOf([
    buildEndTimeQuery(placed, range),
    pushdown === undefined ? matchAll : buildPushdownQuery(placed, pushdown, source),
    buildSelectionQuery(placed, select),
  ]);
}

// ---- Blocks ---------------------------------------------------------------------------------------------------

/** Documents that one aggregation counts: of one form, with equal columns of equal types, all with or all without a parent. */
interface AggregationBlock {
  readonly form: SpanForm;
  readonly side: "root" | "child" | "any";
  /** What the index groups by, in order. */
  readonly columns: readonly GroupColumn[];
  readonly duration: { readonly field: string; readonly unit: bigint };
  /** By form: the candidates that the index certainly groups as the decoder would. */
  readonly certain: Map<PlacedForm<SpanForm>, Query>;
}
interface GroupColumn {
  readonly name: string;
  readonly field: string;
  /** Only strings count at this name, which an index does not distinguish from numbers. */
  readonly isTextOnly: boolean;
}
type NamedField = GroupableField & Pick<GroupColumn, "isTextOnly">;

function buildBlocks(
  { forms: { spans } }: SearchPlan,
  query: TallyQuery,
  source: SpanSource,
): readonly AggregationBlock[] {
  const blocks = new Map<string, AggregationBlock>();
  for (const placed of spans) {
    const { form } = placed;
    const duration = findDurationColumn(placed);
    const fields = listGroupingFields(placed, query, source);
    const columns = toColumns(fields);
    if (duration === undefined || columns.length === 0) continue;
    for (const side of listSides(form, query)) {
      const certain = allOf([
        buildCertainFormQuery(placed),
        buildCertainEndTimeQuery(placed, query.range),
        buildCertainCountOneQuery(placed),
        buildSideQuery(placed, side, query),
        ...fields.map((field) => field.certain),
      ]);
      if (certain === matchNone) continue;
      const key = JSON.stringify([
        form,
        side,
        duration.field,
        fields.map(({ name, field, isInteger }) => [name, field, isInteger]),
      ]);
      const block = blocks.get(key) ?? { form, side, columns, duration, certain: new Map() };
      block.certain.set(placed, certain);
      blocks.set(key, block);
    }
  }
  return [...blocks.values()];
}

function toColumns(fields: readonly NamedField[]): readonly GroupColumn[] {
  return fields.flatMap(({ name, field, isTextOnly }) =>
    field === undefined ? [] : [{ name, field, isTextOnly }],
  );
}

/** The fields that spans of one group have in common, as `TallyQuery.by` says. */
function listGroupingFields(
  placed: PlacedForm<SpanForm>,
  { by, pushdown }: TallyQuery,
  { namespaceAttribute, actionAttribute }: SpanSource,
): readonly NamedField[] {
  const { form } = placed;
  const { name, revision, service, statement } = form;
  const names = {
    request: [...name, ...listRuleFields(form.status), ...(pushdown?.revision === undefined ? [] : revision)],
    deploy: [...listRuleFields(form.status), ...revision],
    event: [...service, ...name, ...statement],
  }[by];
  const texts = {
    request: [namespaceAttribute, actionAttribute],
    deploy: [namespaceAttribute],
    event: [],
  }[by];
  const ofForm = [
    ...deriveGroupableFields(placed, [...listRuleFields(form.kind), ...names]),
    ...(by === "event" ? [] : deriveAttributeFields(placed, form.span_attributes, errorReportAttribute)),
  ].map((field) => ({ ...field, isTextOnly: false }));
  const ofSite = texts
    .flatMap((key) => deriveAttributeFields(placed, form.span_attributes, key))
    .map((field) => ({ ...field, isTextOnly: true }));
  return [...new Map([...ofForm, ...ofSite].map((field) => [field.name, field])).values()];
}

function listSides({ entry }: SpanForm, { select }: TallyQuery): readonly AggregationBlock["side"][] {
  if (entry !== undefined) return (select === "entries") === (entry === "always") ? ["any"] : [];
  return select === "entries" ? ["root", "child"] : ["child"];
}

function buildSideQuery(
  placed: PlacedForm<SpanForm>,
  side: AggregationBlock["side"],
  { select }: TallyQuery,
): Query {
  if (side === "any") return matchAll;
  if (side === "root") return buildCertainRootQuery(placed);
  const kinds = select === "entries" ? buildKindQuery(placed, ["server", "consumer"]) : matchAll;
  return allOf([buildCertainChildQuery(placed), kinds]);
}

// ---- Counting -------------------------------------------------------------------------------------------------

interface CountedBlock {
  readonly block: AggregationBlock;
  readonly tallies: SpanTally[];
  /** Documents of the block that no tally counts, so that they have to be read. */
  readonly ambiguous: Query[];
}

const numberSchema = z.number();
const groupPageSchema = z.object({
  after_key: z.record(z.string(), z.unknown()).optional(),
  buckets: z.array(
    z.object({
      key: z.record(z.string(), z.union([z.string(), z.number(), z.null()])),
      doc_count: numberSchema,
      length: z.object({ count: numberSchema, sum: numberSchema }),
      lengths: z.object({ buckets: z.array(z.object({ doc_count: numberSchema })) }).optional(),
    }),
  ),
});
type GroupPage = z.output<typeof groupPageSchema>;
type GroupBucket = GroupPage["buckets"][number];
const singleValueSchema = z.object({ doc_count: numberSchema, values: z.object({ value: numberSchema }) });

/** Counts a block page by page. Undefined where the index turns out not to group as the decoder would. */
async function countBlock(
  documents: SpanDocuments,
  plan: SearchPlan,
  query: TallyQuery,
  block: AggregationBlock,
  source: SpanSource,
  signal: AbortSignal,
): Promise<CountedBlock | undefined> {
  const condition: Condition<SpanForm> = (placed) =>
    allOf([buildCandidateQuery(placed, query, source), requireKey(block.certain, placed)]);
  const search = { source, plan, forms: [...block.certain.keys()], condition };
  const counted: CountedBlock = { block, tallies: [], ambiguous: [] };
  const size = query.by === "deploy" ? pageSizes.durations : pageSizes.plain;
  if (query.by === "event" && (await hasTooManyGroups(documents, search, query, block, size, signal)))
    return undefined;
  let total: number | undefined;
  let spans = 0;
  let groups = 0;
  for (let after: unknown; ; ) {
    const body = buildPageBody(query, block, size, after);
    const answer = await aggregateUnlessRejected(documents, search, body, signal);
    const page = answer?.readAggregation("groups", groupPageSchema.optional());
    if (answer === undefined || page === undefined) return undefined;
    const isFirstPage = total === undefined;
    total ??= answer.total;
    const { buckets, after_key } = page;
    if (isFirstPage && !hasSingleValues(answer, block)) return undefined;
    groups += buckets.length;
    if (groups > countMaxGroups(query, total, size) || !buckets.every(hasDurations)) return undefined;
    query.budget.reportRead?.(buckets.length);
    spans += buckets.reduce((sum, { doc_count }) => sum + doc_count, 0);
    addBuckets(counted, buckets, query, source);
    // A page shorter than `size` is the last.
    if (after_key === undefined || buckets.length < size) break;
    if (isFirstPage && spans < buckets.length * minSpansPerGroup && spans < total) return undefined;
    after = after_key;
  }
  // A document with several values in a column is in several groups.
  if (spans !== total) return undefined;
  query.budget.spend(groups);
  return counted;
}

const cardinalitySchema = z.object({ value: numberSchema }).catch({ value: 0 });

/**
 * Whether the block surely has so many groups that its documents have to be read: statements may hold literal values. Asked
 * by an estimate of the distinct values, because each page of groups costs the source as much as all of them.
 */
async function hasTooManyGroups(
  documents: SpanDocuments,
  search: AggregationQuery<SpanForm>,
  query: TallyQuery,
  block: AggregationBlock,
  size: number,
  signal: AbortSignal,
): Promise<boolean> {
  const { total } = await documents.aggregate(search, { track_total_hits: true }, signal);
  if (total > manyDocuments) {
    // What a part of the range has is the least that all of it has.
    const part = cutRange(query.range);
    const condition: Condition<SpanForm> = (placed, source) =>
      allOf([search.condition(placed, source), buildEndTimeQuery(placed, part)]);
    const ofPart = await estimateGroups(documents, { ...search, condition }, block, signal);
    if (ofPart !== undefined && ofPart.least > countMaxGroups(query, total, size)) return true;
  }
  const all = await estimateGroups(documents, search, block, signal);
  if (all === undefined) return false;
  return all.least > countMaxGroups(query, all.total, size) || all.least * minSpansPerGroup > all.total;
}

/** About so many take a source half a second to look at. */
const manyDocuments = 1_000_000;
const rangeParts = 32n;

/** The newest part of a range. */
function cutRange({ from, to }: TimeRange): TimeRange {
  return { from: (to - (to - from) / rangeParts) as Instant, to };
}

/** The least number of groups, and how many documents there are; undefined where the server cannot tell. */
async function estimateGroups(
  documents: SpanDocuments,
  search: AggregationQuery<SpanForm>,
  { columns }: AggregationBlock,
  signal: AbortSignal,
): Promise<{ readonly least: number; readonly total: number } | undefined> {
  const entries = columns.map(({ field }, index) => [`c${index}`, { cardinality: { field } }] as const);
  const body = { track_total_hits: true, aggs: Object.fromEntries(entries) };
  const answer = await aggregateUnlessRejected(documents, search, body, signal);
  if (answer === undefined) return undefined;
  const estimates = entries.map(([name]) => answer.readAggregation(name, cardinalitySchema).value);
  return { least: Math.max(...estimates) * (1 - cardinalityError), total: answer.total };
}

/** The groups, in pages of `size`, one at least, that so many documents may have; those with more are read, or too many for that. */
function countMaxGroups({ budget: { limit } }: TallyQuery, documents: number, size: number): number {
  const pages = Math.max(Math.floor(maxVisits / documents), 1);
  return Math.min(limit, size * (documents <= limit ? Math.min(pages, maxPages) : pages));
}

function addBuckets(
  { block, tallies, ambiguous }: CountedBlock,
  buckets: GroupPage["buckets"],
  query: TallyQuery,
  source: SpanSource,
): void {
  for (const bucket of buckets) {
    const queries = listAmbiguousQueries(block, bucket);
    if (queries.length > 0) ambiguous.push(...queries);
    else tallies.push(...tallyBucket(block, bucket, query, source));
  }
}

/** Undefined where the server rejects it: there are too many buckets, or it cannot group by a field. */
async function aggregateUnlessRejected(
  documents: SpanDocuments,
  query: AggregationQuery<SpanForm>,
  body: AggregationBody,
  signal: AbortSignal,
): Promise<AggregationResult | undefined> {
  try {
    return await documents.aggregate(query, body, signal);
  } catch (error) {
    if (isRejection(error)) return undefined;
    throw error;
  }
}

function buildPageBody(
  { by }: TallyQuery,
  { form, duration, side, columns }: AggregationBlock,
  size: number,
  after: unknown,
): AggregationBody {
  const sources = columns.map(({ field }, index) => ({
    [`c${index}`]: { terms: { field, missing_bucket: true } },
  }));
  const lengths = {
    lengths: { range: { field: duration.field, ranges: buildDurationRanges(duration.unit) } },
  };
  const singles = listFilteredFields(form, side).map((field, index) => [
    `single${index}`,
    { filter: { exists: { field } }, aggs: { values: { value_count: { field } } } },
  ]);
  return {
    track_total_hits: true,
    aggs: {
      groups: {
        composite: { size, sources, ...(after === undefined ? {} : { after }) },
        aggs: { length: { stats: { field: duration.field } }, ...(by === "deploy" ? lengths : {}) },
      },
      ...(after === undefined ? Object.fromEntries(singles) : {}),
    },
  };
}

/** The fields that are filtered by, but not grouped by. */
function listFilteredFields(form: SpanForm, side: AggregationBlock["side"]): readonly string[] {
  const times = listTimes(form.end ?? form.start).map(({ field }) => field);
  return [...times, ...(side === "root" ? form.parent : [])];
}

/** Whether these fields have one value in each document. */
function hasSingleValues({ readAggregation }: AggregationResult, { form, side }: AggregationBlock): boolean {
  return listFilteredFields(form, side).every((_, index) => {
    const { doc_count, values } = readAggregation(`single${index}`, singleValueSchema);
    return doc_count === values.value;
  });
}

/** Whether each span of the group has one duration. */
function hasDurations({ doc_count, length }: GroupBucket): boolean {
  return length.count === doc_count;
}

/** Queries for strings that may stand for a number or boolean that the decoder prints differently from the index. */
function listAmbiguousQueries({ columns }: AggregationBlock, { key }: GroupBucket): readonly Query[] {
  return columns.flatMap(({ field, isTextOnly }, index) => {
    const value = key[`c${index}`];
    if (typeof value !== "string") return [];
    const isScalar = /^(-?\d+(\.\d+)?([eE][+-]?\d+)?|true|false)$/.test(value);
    const isPlain =
      !isTextOnly && (/^(0|-?[1-9]\d*|true|false)$/.test(value) || String(Number(value)) === value);
    return isScalar && !isPlain ? [{ term: { [field]: value } }] : [];
  });
}

/** The tally of a group; none where its spans are not of the selection. */
function tallyBucket(
  { form, side, columns, duration }: AggregationBlock,
  bucket: GroupBucket,
  { select }: TallyQuery,
  source: SpanSource,
): readonly SpanTally[] {
  const document: Record<string, AttributeValue> = {};
  const times = [form.start.field, ...(form.end === undefined ? [] : [form.end.field]), duration.field];
  for (const name of [...form.present, ...times]) document[name] = 0;
  for (const names of [form.trace_id, form.span_id, ...(side === "child" ? [form.parent] : [])]) {
    for (const name of names) document[name] = "1";
  }
  columns.forEach(({ name }, index) => {
    const value = bucket.key[`c${index}`];
    if (value === undefined || value === null) delete document[name];
    else document[name] = value;
  });
  const span = decodeSpan(document, form, source);
  if (span === undefined) throw new Error(`a group of ${form.name} is no span`);
  if (!isInSelection(select, span)) return [];
  const { unit } = duration;
  const lengths = bucket.lengths?.buckets.flatMap(({ doc_count: spans }, index) =>
    spans === 0 ? [] : [{ length: calculateMiddle(unit, index) * Number(unit), spans }],
  );
  const total = BigInt(Math.round(bucket.length.sum)) * unit;
  return [{ span, isSingle: false, spans: bucket.doc_count, total, lengths }];
}

// ---- Duration ranges ------------------------------------------------------------------------------------------

/** The factor between the bounds of a range: the middle is within 2 % of all durations in it. */
const rangeGrowth = 1.035;
const boundsByUnit = new Map<bigint, readonly number[]>();

/** The bounds of the ranges from 0 to the longest duration, in a unit of so many nanoseconds. */
function listBounds(unit: bigint): readonly number[] {
  const known = boundsByUnit.get(unit);
  if (known !== undefined) return known;
  const longest = requireLast(durationBuckets) * Number(nanosPerTimeUnit.ms / unit);
  const bounds = [0];
  for (let bound = 1; bound < longest; bound = Math.max(bound + 1, Math.floor(bound * rangeGrowth)))
    bounds.push(bound);
  bounds.push(longest);
  boundsByUnit.set(unit, bounds);
  return bounds;
}

function buildDurationRanges(unit: bigint): readonly object[] {
  const bounds = listBounds(unit);
  return bounds.slice(1).map((to, index) => ({ from: requireAt(bounds, index), to }));
}

/** The geometric middle of a range. Durations are whole numbers: the last in a range is one unit below the next bound. */
function calculateMiddle(unit: bigint, index: number): number {
  const bounds = listBounds(unit);
  return Math.sqrt(requireAt(bounds, index) * (requireAt(bounds, index + 1) - 1));
}
