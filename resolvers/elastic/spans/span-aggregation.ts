// Spans counted by the index. The documents of a scan fall into two parts: those of which the index surely knows all that
// is asked, which it groups and adds up page by page, and the others, such as those near the ends of a range whose ends
// are not indexed, which are read one by one. A group comes back as a document that has what its members share, and is
// read as any other, so that what a kind or a name is stands in one place.
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import { reportMark, type Span, type Value } from "../../../src/core/rows.ts";
import type { SpanSource, SpanTally, TallyQuery } from "../../../src/store/span-reader.ts";
import { selects } from "../../../src/tracing/spans/selection.ts";
import { tallyOf } from "../../../src/tracing/spans/span-tally.ts";
import { all, any, every, none, not, type Query } from "../client/query-dsl.ts";
import { readSpan } from "../layout/span-decoder.ts";
import type { Placed, SpanForm } from "../layout/span-layout.ts";
import {
  attributeColumns,
  type Column,
  columnsOf,
  isSurelyChild,
  isSurelyOfForm,
  isSurelyRoot,
  lengthColumn,
  ruleNames,
  surelyCountsOne,
  surelyEndsWithin,
} from "../query/span-lower-bounds.ts";
import { isNarrowed } from "../query/span-pushdown.ts";
import { classes, endsWithin, isOfKind, isSelected, lengthUnits } from "../query/span-upper-bounds.ts";
import { type Aggregated, type Condition, type Documents, Outdated, type Plan } from "./span-documents.ts";

/** Groups of one answer, and of one whose groups have lengths: servers count no more than 65,535 buckets in all. */
const pageSizes = { plain: 10_000, lengths: 50 } as const;
/** Groups of fewer spans than this on average are no shorter to read than the spans themselves. */
const leastGathered = 2;
const attempts = 3;

/**
 * `SpanReader.tally` over one source. `read` gives the spans of the source that satisfy a condition, by documents.
 * @throws {Outdated} when indices come and go faster than their mappings can be read
 */
export async function* tallySpans(
  documents: Documents,
  source: SpanSource,
  query: TallyQuery,
  read: (condition: Condition<SpanForm>, plan: Plan) => AsyncIterable<readonly Span[]>,
  signal: AbortSignal,
): AsyncGenerator<readonly SpanTally[]> {
  for (let attempt = 1; ; attempt++) {
    const plan = await documents.plan(source, signal);
    let given = false;
    try {
      const counts = await Promise.all(
        blocksOf(plan, query, source).map((block) => count(documents, plan, query, block, source, signal)),
      );
      const counted = counts.filter((found) => found !== undefined);
      const unsure: Condition<SpanForm> = (placed) => {
        const sure = counted.map(({ block, doubtful }) =>
          every([block.sure.get(placed) ?? none, not(any(doubtful))]),
        );
        return every([candidates(placed, query, source), not(any(sure))]);
      };
      for await (const batch of read(unsure, plan)) {
        given = true;
        yield batch.map(tallyOf);
      }
      for (const { tallies } of counted) if (tallies.length > 0) yield tallies;
      return;
    } catch (error) {
      if (!(error instanceof Outdated) || given || attempt === attempts) throw error;
      await documents.renew(source, signal);
    }
  }
}

/** All documents that may be of the scan. */
export function candidates(
  placed: Placed<SpanForm>,
  { range, narrow, select }: Pick<TallyQuery, "range" | "narrow" | "select">,
  source: SpanSource,
): Query {
  return every([
    endsWithin(placed, range),
    narrow === undefined ? all : isNarrowed(placed, narrow, source),
    isSelected(placed, select),
  ]);
}

// ---- Blocks ---------------------------------------------------------------------------------------------------

/** Documents that one aggregation counts: of one form and with the same columns, all with or all without a parent. */
interface Block {
  readonly form: SpanForm;
  readonly side: "root" | "child" | "any";
  readonly columns: readonly NamedColumn[];
  readonly length: { readonly field: string; readonly unit: bigint };
  /** Which of the candidates of each place are sure. */
  readonly sure: Map<Placed<SpanForm>, Query>;
}
type NamedColumn = Column & {
  /** Only texts count at this name, which an index does not tell from numbers. */
  readonly textOnly: boolean;
};

function blocksOf({ layout }: Plan, query: TallyQuery, source: SpanSource): readonly Block[] {
  const blocks = new Map<string, Block>();
  for (const placed of layout.spans) {
    const { form } = placed;
    const length = lengthColumn(placed);
    const columns = columnsFor(placed, query, source);
    if (length === undefined || columns.every(({ field }) => field === undefined)) continue;
    for (const side of sidesOf(form, query)) {
      const sure = every([
        isSurelyOfForm(placed),
        surelyEndsWithin(placed, query.range),
        surelyCountsOne(placed),
        isOfSide(placed, side, query),
        ...columns.map((column) => column.sure),
      ]);
      if (sure === none) continue;
      const key = JSON.stringify([form, side, length.field, columns.map(({ name, field }) => [name, field])]);
      const block = blocks.get(key) ?? { form, side, columns, length, sure: new Map() };
      block.sure.set(placed, sure);
      blocks.set(key, block);
    }
  }
  return [...blocks.values()];
}

/** What makes spans alike, as `TallyQuery` says. */
function columnsFor(
  placed: Placed<SpanForm>,
  { by, narrow }: TallyQuery,
  { namespaceAttribute, actionAttribute }: SpanSource,
): readonly NamedColumn[] {
  const { form } = placed;
  const { name, revision, service, statement } = form;
  const names = {
    request: [...name, ...ruleNames(form.status), ...(narrow?.revision === undefined ? [] : revision)],
    deploy: [...ruleNames(form.status), ...revision],
    event: [...service, ...name, ...statement],
  }[by];
  const texts = {
    request: [namespaceAttribute, actionAttribute],
    deploy: [namespaceAttribute],
    event: [],
  }[by];
  const found = [
    ...columnsOf(placed, [...ruleNames(form.kind), ...names]),
    ...(by === "event" ? [] : attributeColumns(placed, form.span_attributes, reportMark)),
  ].map((column) => ({ ...column, textOnly: false }));
  const own = texts
    .flatMap((key) => attributeColumns(placed, form.span_attributes, key))
    .map((column) => ({ ...column, textOnly: true }));
  return [...new Map([...found, ...own].map((column) => [column.name, column])).values()];
}

function sidesOf({ entry }: SpanForm, { select }: TallyQuery): readonly Block["side"][] {
  if (entry !== undefined) return (select === "entries") === (entry === "always") ? ["any"] : [];
  return select === "entries" ? ["root", "child"] : ["child"];
}

function isOfSide(placed: Placed<SpanForm>, side: Block["side"], { select }: TallyQuery): Query {
  if (side === "any") return all;
  if (side === "root") return isSurelyRoot(placed);
  const kinds = select === "entries" ? isOfKind(placed, ["server", "consumer"]) : all;
  return every([isSurelyChild(placed), kinds]);
}

// ---- Counting -------------------------------------------------------------------------------------------------

interface Counted {
  readonly block: Block;
  readonly tallies: readonly SpanTally[];
  /** What the groups could not tell, so that these of their documents have to be read. */
  readonly doubtful: readonly Query[];
}

const number = z.number();
const page = z.object({
  after_key: z.record(z.string(), z.unknown()).optional(),
  buckets: z.array(
    z.object({
      key: z.record(z.string(), z.union([z.string(), z.number(), z.null()])),
      doc_count: number,
      length: z.object({ count: number, sum: number }),
      lengths: z.object({ buckets: z.array(z.object({ doc_count: number })) }).optional(),
    }),
  ),
});
type Bucket = z.output<typeof page>["buckets"][number];
const singles = z.object({ doc_count: number, values: z.object({ value: number }) });

/** Undefined where the index turns out not to group as the reader would. */
async function count(
  documents: Documents,
  plan: Plan,
  query: TallyQuery,
  block: Block,
  source: SpanSource,
  signal: AbortSignal,
): Promise<Counted | undefined> {
  const fields = block.columns.flatMap(({ field }) => field ?? []);
  const condition: Condition<SpanForm> = (placed) =>
    every([candidates(placed, query, source), block.sure.get(placed) ?? none]);
  const tallies: SpanTally[] = [];
  const doubtful: Query[] = [];
  const size = query.by === "deploy" ? pageSizes.lengths : pageSizes.plain;
  let total: number | undefined;
  let grouped = 0;
  let groups = 0;
  for (let after: unknown; ; ) {
    const body = pageOf(query, block, fields, size, after);
    let answer: Aggregated;
    try {
      answer = await documents.aggregate(source, plan, [...block.sure.keys()], condition, body, signal);
    } catch (error) {
      // Too many buckets, or a field that a server cannot group by: its documents can be read.
      if (error instanceof BackendError && error.failure === "rejected") return undefined;
      throw error;
    }
    total ??= answer.total;
    if (answer.aggregations.groups === undefined) return undefined;
    const { buckets, after_key } = page.parse(answer.aggregations.groups);
    if (after === undefined && !areSingle(answer, block)) return undefined;
    groups += buckets.length;
    if (groups > query.budget.limit) return undefined;
    for (const bucket of buckets) {
      if (bucket.length.count !== bucket.doc_count) return undefined;
      grouped += bucket.doc_count;
      const doubt = doubtsOf(block, bucket);
      if (doubt.length > 0) doubtful.push(...doubt);
      else tallies.push(...tallyBucket(block, bucket, query, source));
    }
    // A page that is not full is the last.
    if (after_key === undefined || buckets.length < size) break;
    if (after === undefined && grouped < buckets.length * leastGathered && grouped < total) return undefined;
    after = after_key;
  }
  // A document with several values in a column is in several groups.
  if (grouped !== total) return undefined;
  query.budget.spend(groups);
  return { block, tallies, doubtful };
}

function pageOf(
  query: TallyQuery,
  block: Block,
  fields: readonly string[],
  size: number,
  after: unknown,
): object {
  const { form, length, side } = block;
  const sources = fields.map((field, at) => ({ [`c${at}`]: { terms: { field, missing_bucket: true } } }));
  const withLengths = query.by === "deploy";
  const lengths = { lengths: { range: { field: length.field, ranges: rangesOf(form) } } };
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
function areSingle({ aggregations }: Aggregated, { form, side }: Block): boolean {
  return Array.from({ length: side === "root" ? form.parent.length + 1 : 1 }).every((_, at) => {
    const { doc_count, values } = singles.parse(aggregations[`single${at}`]);
    return doc_count === values.value;
  });
}

/** Texts that may stand for a number, where the reader would take it otherwise than the index does. */
function doubtsOf({ columns }: Block, { key }: Bucket): readonly Query[] {
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
  { form, side, columns, length }: Block,
  bucket: Bucket,
  { select }: TallyQuery,
  source: SpanSource,
): readonly SpanTally[] {
  const document: Record<string, Value> = {};
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
  const span = readSpan(document, form, source);
  if (span === undefined) throw new Error(`a group of ${form.name} is no span`);
  if (!selects(select, span)) return [];
  const unit = Number(length.unit);
  const lengths = bucket.lengths?.buckets.flatMap(({ doc_count: spans }, at) =>
    spans === 0 ? [] : [{ length: middleOf(form, at) * unit, spans }],
  );
  const total = BigInt(Math.round(bucket.length.sum)) * length.unit;
  return [{ span, whole: false, spans: bucket.doc_count, total, lengths }];
}

// ---- Lengths --------------------------------------------------------------------------------------------------

/** Each so much longer than the one before that its middle is within 2 % of all that it holds. */
const growth = 1.035;
const bounds = new Map<SpanForm, readonly number[]>();

/** Where classes of lengths begin, in the form's units, from 0 on. */
function boundsOf(form: SpanForm): readonly number[] {
  const known = bounds.get(form);
  if (known !== undefined) return known;
  const perMilli = (form.duration && lengthUnits[form.duration.unit]) ?? 1;
  const longest = (classes.at(-1) ?? 1) * perMilli;
  const found = [0];
  for (let bound = 1; bound < longest; bound = Math.max(bound + 1, Math.floor(bound * growth)))
    found.push(bound);
  found.push(longest);
  bounds.set(form, found);
  return found;
}

function rangesOf(form: SpanForm): readonly object[] {
  const found = boundsOf(form);
  return found.slice(0, -1).map((from, at) => ({ from, to: found[at + 1] }));
}

function middleOf(form: SpanForm, at: number): number {
  const [from = 0, to = from] = boundsOf(form).slice(at, at + 2);
  // Lengths are whole: the last in a class is one unit before the next.
  return Math.sqrt(from * (to - 1));
}
