// Spans counted by the index. The documents of a scan fall into two parts: those of which the index surely knows all that
// is asked, which it groups and adds up page by page, and the others, such as those near the ends of a range whose ends
// are not indexed, which are read one by one. A group comes back as a document that has what its members share, and is
// read as any other, so that what a kind or a name is stands in one place.
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import { type AttributeValue, errorReportAttribute, type Span } from "../../../src/core/rows.ts";
import type { SpanSource, SpanTally, TallyQuery } from "../../../src/store/spans.ts";
import { isInSelection } from "../../../src/tracing/spans/selection.ts";
import { toTally } from "../../../src/tracing/spans/span-tally.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import { decodeSpan } from "../layout/span-decoder.ts";
import type { SpanForm } from "../layout/span-layout.ts";
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
import {
  buildEndTimeQuery,
  buildKindQuery,
  buildSelectionQuery,
  durationBuckets,
  durationUnitsPerMilli,
} from "../query/span-upper-bounds.ts";
import {
  type AggregationResult,
  type Condition,
  PlanOutdatedError,
  type SearchPlan,
  type SpanDocuments,
} from "./span-documents.ts";

/** Groups of one answer, and of one whose groups have lengths: servers count no more than 65,535 buckets in all. */
const groupPageSizes = { plain: 10_000, lengths: 50 } as const;
/** Groups of fewer spans than this on average are no shorter to read than the spans themselves. */
const minSpansPerGroup = 2;
const maxAttempts = 3;

/**
 * `SpanReader.tally` over one source. `read` gives the spans of the source that satisfy a condition, by documents.
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
    let given = false;
    try {
      const counts = await Promise.all(
        buildBlocks(plan, query, source).map((block) =>
          countBlock(documents, plan, query, block, source, signal),
        ),
      );
      const counted = counts.filter((found) => found !== undefined);
      const unsure: Condition<SpanForm> = (placed) => {
        const sure = counted.map(({ block, ambiguous: doubtful }) =>
          allOf([block.certain.get(placed) ?? matchNone, not(anyOf(doubtful))]),
        );
        return allOf([buildCandidateQuery(placed, query, source), not(anyOf(sure))]);
      };
      for await (const batch of read(unsure, plan)) {
        given = true;
        yield batch.map(toTally);
      }
      for (const { tallies } of counted) if (tallies.length > 0) yield tallies;
      return;
    } catch (error) {
      if (!(error instanceof PlanOutdatedError) || given || attempt === maxAttempts) throw error;
      await documents.refreshMappings(source, signal);
    }
  }
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

/** Documents that one aggregation counts: of one form and with the same columns, all with or all without a parent. */
interface AggregationBlock {
  readonly form: SpanForm;
  readonly side: "root" | "child" | "any";
  readonly columns: readonly NamedColumn[];
  readonly length: { readonly field: string; readonly unit: bigint };
  /** Which of the candidates of each place are sure. */
  readonly certain: Map<PlacedForm<SpanForm>, Query>;
}
type NamedColumn = GroupableField & {
  /** Only texts count at this name, which an index does not tell from numbers. */
  readonly textOnly: boolean;
};

function buildBlocks(
  { layout }: SearchPlan,
  query: TallyQuery,
  source: SpanSource,
): readonly AggregationBlock[] {
  const blocks = new Map<string, AggregationBlock>();
  for (const placed of layout.spans) {
    const { form } = placed;
    const length = findDurationColumn(placed);
    const columns = listGroupingColumns(placed, query, source);
    if (length === undefined || columns.every(({ field }) => field === undefined)) continue;
    for (const side of listSides(form, query)) {
      const sure = allOf([
        buildCertainFormQuery(placed),
        buildCertainEndTimeQuery(placed, query.range),
        buildCertainCountOneQuery(placed),
        buildSideQuery(placed, side, query),
        ...columns.map((column) => column.certain),
      ]);
      if (sure === matchNone) continue;
      const key = JSON.stringify([form, side, length.field, columns.map(({ name, field }) => [name, field])]);
      const block = blocks.get(key) ?? { form, side, columns, length, certain: new Map() };
      block.certain.set(placed, sure);
      blocks.set(key, block);
    }
  }
  return [...blocks.values()];
}

/** What makes spans alike, as `TallyQuery` says. */
function listGroupingColumns(
  placed: PlacedForm<SpanForm>,
  { by, pushdown }: TallyQuery,
  { namespaceAttribute, actionAttribute }: SpanSource,
): readonly NamedColumn[] {
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
  const found = [
    ...deriveGroupableFields(placed, [...listRuleFields(form.kind), ...names]),
    ...(by === "event" ? [] : deriveAttributeFields(placed, form.span_attributes, errorReportAttribute)),
  ].map((column) => ({ ...column, textOnly: false }));
  const own = texts
    .flatMap((key) => deriveAttributeFields(placed, form.span_attributes, key))
    .map((column) => ({ ...column, textOnly: true }));
  return [...new Map([...found, ...own].map((column) => [column.name, column])).values()];
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
  readonly tallies: readonly SpanTally[];
  /** What the groups could not tell, so that these of their documents have to be read. */
  readonly ambiguous: readonly Query[];
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
type GroupBucket = z.output<typeof groupPageSchema>["buckets"][number];
const singleValueSchema = z.object({ doc_count: numberSchema, values: z.object({ value: numberSchema }) });

/** Undefined where the index turns out not to group as the reader would. */
async function countBlock(
  documents: SpanDocuments,
  plan: SearchPlan,
  query: TallyQuery,
  block: AggregationBlock,
  source: SpanSource,
  signal: AbortSignal,
): Promise<CountedBlock | undefined> {
  const fields = block.columns.flatMap(({ field }) => field ?? []);
  const condition: Condition<SpanForm> = (placed) =>
    allOf([buildCandidateQuery(placed, query, source), block.certain.get(placed) ?? matchNone]);
  const tallies: SpanTally[] = [];
  const doubtful: Query[] = [];
  const size = query.by === "deploy" ? groupPageSizes.lengths : groupPageSizes.plain;
  let total: number | undefined;
  let grouped = 0;
  let groups = 0;
  for (let after: unknown; ; ) {
    const body = buildGroupPageBody(query, block, fields, size, after);
    let answer: AggregationResult;
    try {
      answer = await documents.aggregate(source, plan, [...block.certain.keys()], condition, body, signal);
    } catch (error) {
      // Too many buckets, or a field that a server cannot group by: its documents can be read.
      if (error instanceof BackendError && error.failure === "rejected") return undefined;
      throw error;
    }
    total ??= answer.total;
    if (answer.aggregations.groups === undefined) return undefined;
    const { buckets, after_key } = groupPageSchema.parse(answer.aggregations.groups);
    if (after === undefined && !hasSingleValues(answer, block)) return undefined;
    groups += buckets.length;
    if (groups > query.budget.limit) return undefined;
    for (const bucket of buckets) {
      if (bucket.length.count !== bucket.doc_count) return undefined;
      grouped += bucket.doc_count;
      const doubt = listAmbiguousQueries(block, bucket);
      if (doubt.length > 0) doubtful.push(...doubt);
      else tallies.push(...tallyBucket(block, bucket, query, source));
    }
    // A page that is not full is the last.
    if (after_key === undefined || buckets.length < size) break;
    if (after === undefined && grouped < buckets.length * minSpansPerGroup && grouped < total)
      return undefined;
    after = after_key;
  }
  // A document with several values in a column is in several groups.
  if (grouped !== total) return undefined;
  query.budget.spend(groups);
  return { block, tallies, ambiguous: doubtful };
}

function buildGroupPageBody(
  query: TallyQuery,
  block: AggregationBlock,
  fields: readonly string[],
  size: number,
  after: unknown,
): object {
  const { form, length, side } = block;
  const sources = fields.map((field, at) => ({ [`c${at}`]: { terms: { field, missing_bucket: true } } }));
  const withLengths = query.by === "deploy";
  const lengths = { lengths: { range: { field: length.field, ranges: buildLengthRanges(form) } } };
  const once = [(form.end ?? form.start).field, ...(side === "root" ? form.parent : [])].map((field, at) => [
    `single${at}`,
    { filter: { exists: { field } }, aggs: { values: { value_count: { field } } } },
  ]);
  return {
    track_total_hits: true,
    aggs: {
      groups: {
        composite: { size, sources, ...(after === undefined ? {} : { after }) },
        aggs: { length: { stats: { field: length.field } }, ...(withLengths ? lengths : {}) },
      },
      ...(after === undefined ? Object.fromEntries(once) : {}),
    },
  };
}

/** Whether what is filtered by, but not grouped by, has one value in each document. */
function hasSingleValues({ aggregations }: AggregationResult, { form, side }: AggregationBlock): boolean {
  return Array.from({ length: side === "root" ? form.parent.length + 1 : 1 }).every((_, at) => {
    const { doc_count, values } = singleValueSchema.parse(aggregations[`single${at}`]);
    return doc_count === values.value;
  });
}

/** Texts that may stand for a number, where the reader would take it otherwise than the index does. */
function listAmbiguousQueries({ columns }: AggregationBlock, { key }: GroupBucket): readonly Query[] {
  return columns
    .filter(({ field }) => field !== undefined)
    .flatMap(({ field = "", textOnly }, at) => {
      const value = key[`c${at}`];
      if (typeof value !== "string") return [];
      const isScalar = /^(-?\d+(\.\d+)?([eE][+-]?\d+)?|true|false)$/.test(value);
      const isPlain =
        !textOnly && (/^(0|-?[1-9]\d*|true|false)$/.test(value) || String(Number(value)) === value);
      return isScalar && !isPlain ? [{ term: { [field]: value } }] : [];
    });
}

/** The group as a span, if it is of the selection. */
function tallyBucket(
  { form, side, columns, length }: AggregationBlock,
  bucket: GroupBucket,
  { select }: TallyQuery,
  source: SpanSource,
): readonly SpanTally[] {
  const document: Record<string, AttributeValue> = {};
  const time = [form.start.field, ...(form.end === undefined ? [] : [form.end.field]), length.field];
  for (const name of [...form.present, ...time]) document[name] = 0;
  for (const names of [form.trace_id, form.span_id, ...(side === "child" ? [form.parent] : [])]) {
    for (const name of names) document[name] = "1";
  }
  columns
    .filter(({ field }) => field !== undefined)
    .forEach(({ name }, at) => {
      const value = bucket.key[`c${at}`];
      if (value === undefined || value === null) delete document[name];
      else document[name] = value;
    });
  const span = decodeSpan(document, form, source);
  if (span === undefined) throw new Error(`a group of ${form.name} is no span`);
  if (!isInSelection(select, span)) return [];
  const unit = Number(length.unit);
  const lengths = bucket.lengths?.buckets.flatMap(({ doc_count: spans }, at) =>
    spans === 0 ? [] : [{ length: calculateMiddleLength(form, at) * unit, spans }],
  );
  const total = BigInt(Math.round(bucket.length.sum)) * length.unit;
  return [{ span, isSingle: false, spans: bucket.doc_count, total, lengths }];
}

// ---- Lengths --------------------------------------------------------------------------------------------------

/** Each so much longer than the one before that its middle is within 2 % of all that it holds. */
const lengthGrowth = 1.035;
const boundsByForm = new Map<SpanForm, readonly number[]>();

/** Where classes of lengths begin, in the form's units, from 0 on. */
function listLengthBounds(form: SpanForm): readonly number[] {
  const known = boundsByForm.get(form);
  if (known !== undefined) return known;
  const perMilli = (form.duration && durationUnitsPerMilli[form.duration.unit]) ?? 1;
  const longest = (durationBuckets.at(-1) ?? 1) * perMilli;
  const found = [0];
  for (let bound = 1; bound < longest; bound = Math.max(bound + 1, Math.floor(bound * lengthGrowth)))
    found.push(bound);
  found.push(longest);
  boundsByForm.set(form, found);
  return found;
}

function buildLengthRanges(form: SpanForm): readonly object[] {
  const found = listLengthBounds(form);
  return found.slice(0, -1).map((from, at) => ({ from, to: found[at + 1] }));
}

function calculateMiddleLength(form: SpanForm, at: number): number {
  const [from = 0, to = from] = listLengthBounds(form).slice(at, at + 2);
  // Lengths are whole: the last in a class is one unit before the next.
  return Math.sqrt(from * (to - 1));
}
