// Counts the lines of one layout group in the index. A count stands only where the index proves it: as many documents
// certainly match as may match, and no document is in two buckets or groups. Everything else is left to reading.
import { z } from "zod";
import { readOwn, requireKey } from "../../../src/core/collections.ts";
import { BackendError, isRejection } from "../../../src/core/errors.ts";
import { parseJson } from "../../../src/core/json/parse-json.ts";
import { addCount, addGroup, type LineCounts } from "../../../src/core/line-tally.ts";
import { fromMillis, type Millis, nanosPerMilli, type TimeRange, toMillis } from "../../../src/core/time.ts";
import type { LineGrouping } from "../../../src/store/logs.ts";
import {
  aggregationOptions,
  allOf,
  buildIndicesAggregation,
  matchAll,
  not,
  type Query,
} from "../client/query-dsl.ts";
import { findFirstText } from "../document/dotted-names.ts";
import { readSeverity } from "../layout/line-decoder.ts";
import { type LogLayout, listLineNames } from "../layout/log-layout.ts";
import { findField } from "../mapping/mapping.ts";
import { combineCertainQueries, compileByGroup } from "../query/filter-compiler.ts";
import { deriveGroupableField } from "../query/span-lower-bounds.ts";
import type { TimeColumn } from "../query/time-field.ts";
import { hasMaskedField } from "../search/masked-filters.ts";
import { createMalformedResponseError, sendSearch } from "../search/search.ts";
import type { GroupReader } from "./group-reader.ts";
import { searchPlanned } from "./group-search.ts";
import { buildLinesQuery, type ReadContext, type SearchPlan } from "./search-plan.ts";

/** Servers return at most 65,535 buckets in all. */
const maxBuckets = 10_000;
const maxGroups = 10_000;

/** Adds the counts of a layout group to `counts`. False where only reading can count them. @throws as `LogStore.lines` */
export async function addGroupCounts(
  reader: GroupReader,
  step: Millis,
  counts: LineCounts,
): Promise<boolean> {
  const { grouping } = reader;
  const { range } = reader.context.query;
  // A `date` holds milliseconds, and a bound between two of them would be rounded. Numbers are no times to a server.
  const hasMillis = range.from % nanosPerMilli === 0n && (range.to + 1n) % nanosPerMilli <= 1n;
  if (!hasMillis || reader.context.layoutGroup.unit !== undefined) return false;
  for (const part of splitRange(range, step)) {
    if (!(await addPartCounts(reader, { step, grouping, part, counts }))) return false;
  }
  return true;
}

/** Parts of a range with a bounded number of buckets; they end between two buckets. */
function* splitRange({ from, to }: TimeRange, step: Millis): Generator<TimeRange> {
  for (let start = from; start <= to; ) {
    const next = fromMillis((Math.floor(toMillis(start) / step) + maxBuckets) * step);
    yield { from: start, to: next > to ? to : ((next - 1n) as typeof to) };
    start = next;
  }
}

/** The lines of a part of the range are to be added to `counts`. */
interface CountTask {
  readonly step: Millis;
  readonly grouping: LineGrouping | undefined;
  readonly part: TimeRange;
  readonly counts: LineCounts;
}

/** A request for the counts of a part, and how its answer is read. */
interface CountPlan {
  readonly body: object;
  /** Whether each document that matches has to match `certain` too. */
  readonly provesFilter: boolean;
  readonly columns: readonly GroupColumn[];
}

async function addPartCounts(reader: GroupReader, task: CountTask): Promise<boolean> {
  const { plan, response } = await searchPlanned(reader, async (plan) => {
    const counting = await planCounting(reader, plan, task);
    const bytes = counting && (await searchCounts(reader.context, counting));
    if (counting === undefined || bytes === undefined)
      return { ...describePlan(plan), answer: undefined, counting };
    const answer = parseAnswer(reader.context.backend, bytes);
    const indices = new Set(answer.aggregations.indices.buckets.map(({ key }) => key));
    return { shards: answer._shards, indices, answer, counting };
  });
  const { answer, counting } = response;
  return answer !== undefined && addCounted(answer, counting, plan, task);
}

/** Undefined of a server that cannot group by a field, or has too many buckets: it leaves the lines to reading. */
async function searchCounts(
  { client, source, signal }: ReadContext,
  { body }: CountPlan,
): Promise<Buffer | undefined> {
  try {
    return await sendSearch(client, source.index, JSON.stringify(body), signal, aggregationOptions);
  } catch (error) {
    if (isRejection(error)) return undefined;
    throw error;
  }
}

/** As if a response had come from all shards that the plan knows, and from no document: nothing was searched. */
function describePlan({ metadata }: SearchPlan) {
  return { shards: { total: metadata.shards, failed: 0 }, indices: new Set<string>() };
}

/** Undefined where the index certainly cannot count. */
async function planCounting(
  { context }: GroupReader,
  plan: SearchPlan,
  { step, grouping, part, counts }: CountTask,
): Promise<CountPlan | undefined> {
  const { client, source, query, layoutGroup, signal } = context;
  const { metadata, groups, layout, product } = plan;
  if (metadata.opaque) return undefined;
  const columns = grouping === undefined ? [] : listColumns(plan, grouping);
  if (columns === undefined) return undefined;
  const bounds = await compileByGroup(query.filter, groups, layout, product, signal);
  const certain = combineCertainQueries(
    groups.map((group) => ({
      group,
      query: allOf([
        requireKey(bounds, group).lower,
        ...columns.map(({ certain }) => certain.get(group) ?? matchAll),
      ]),
    })),
  );
  if (certain === undefined) return undefined;
  const named = columns.flatMap(({ field }) => (field === undefined ? [] : [{ exists: { field } }]));
  if (named.length > 0 && (await hasMaskedField(client, source.index, metadata, allOf(named), signal)))
    return undefined;
  const provesFilter = query.filter.kind !== "all" || grouping !== undefined;
  const times = { field: layoutGroup.time, fixed_interval: `${step}ms` };
  const body = {
    size: 0,
    track_total_hits: true,
    query: allOf([buildLinesQuery(plan, part, false), not(buildEarlierQuery(plan.timeColumn, part, step))]),
    aggs: {
      times: {
        date_histogram: { ...times, format: "epoch_millis", min_doc_count: 1 },
      },
      ...buildIndicesAggregation(),
      ...(provesFilter ? { certain: { filter: certain } } : {}),
      ...buildGroupAggregations(columns, counts.groupBuckets === undefined ? undefined : times),
    },
  };
  return { body, provesFilter, columns };
}

/**
 * Documents with another time in the first bucket, but before the range: they are lines of that time. One in an earlier
 * bucket shows in the counts, because a document is in the bucket of each of its times.
 */
function buildEarlierQuery(timeColumn: TimeColumn, { from }: TimeRange, step: Millis): Query {
  const start = fromMillis(Math.floor(toMillis(from) / step) * step);
  return timeColumn.buildRangeQuery(start, (from - 1n) as typeof from);
}

// ---- Groups -------------------------------------------------------------------------------------------------

/** A name of the documents by which the index groups. */
interface GroupColumn {
  readonly name: string;
  /** Undefined where no document certainly has the name. */
  readonly field: string | undefined;
  /** By group of indices: the documents whose value is certainly the one in the field. */
  readonly certain: ReadonlyMap<object, Query>;
}

/** Undefined where the index's values may differ from those that lines are answered with. */
function listColumns(
  { groups, layout, product }: SearchPlan,
  grouping: LineGrouping,
): readonly GroupColumn[] | undefined {
  const names = listNames(layout, grouping);
  const columns = names?.map((name): GroupColumn | undefined => {
    const certain = new Map<object, Query>();
    const fields = new Set<string>();
    for (const group of groups) {
      const listsIgnored = product.listsIgnored && group.createdSince715;
      const groupable = deriveGroupableField({ group, listsIgnored }, name);
      certain.set(group, groupable.certain);
      if (groupable.field === undefined) continue;
      const field = findField(group, groupable.field);
      // An array may have a value that is left out beside one that is not.
      const isWhole = listsIgnored || field?.ignoreAbove === Number.POSITIVE_INFINITY;
      if (field?.type !== "keyword" || !isWhole) return undefined;
      fields.add(groupable.field);
    }
    const [field] = fields;
    // An index that maps the name as text would reject the search of all.
    const isPlain = groups.every((group) => (findField(group, field ?? "")?.type ?? "keyword") === "keyword");
    return fields.size > 1 || !isPlain ? undefined : { name, field, certain };
  });
  return columns?.every((column) => column !== undefined) ? columns : undefined;
}

/** The names of the documents that decide the value; undefined where they do not do so alone. */
function listNames(layout: LogLayout, grouping: LineGrouping): readonly string[] | undefined {
  if (grouping.kind === "json") {
    const [key, ...rest] = grouping.path;
    // In the index `a.b` is also the key "a.b" of the document.
    return layout.json === "source" && rest.length === 0 && !key.includes(".") ? [key] : undefined;
  }
  return listLineNames(layout, grouping.name);
}

/** `times` makes a combination of each bucket of time. */
function buildGroupAggregations(columns: readonly GroupColumn[], times: object | undefined): object {
  const named = columns.flatMap(({ field }) => field ?? []);
  const [only] = named;
  if (only === undefined) return {};
  if (named.length === 1 && times === undefined)
    return { values: { terms: { field: only, size: maxGroups } }, none: { missing: { field: only } } };
  const sources = named.map((field, at) => ({ [`c${at}`]: { terms: { field, missing_bucket: true } } }));
  const all = times === undefined ? sources : [{ time: { date_histogram: times } }, ...sources];
  return { combinations: { composite: { size: maxGroups, sources: all } } };
}

/** The values of a line with these values of the document. */
function readValue(
  document: Readonly<Record<string, string>>,
  layout: LogLayout,
  grouping: LineGrouping,
): string | undefined {
  if (grouping.kind === "json") return readOwn(document, grouping.path[0]);
  if (grouping.name === "severity") return readSeverity(document, layout.severity);
  return findFirstText(document, layout[grouping.name]);
}

// ---- Answers ------------------------------------------------------------------------------------------------

const bucket = z.object({ doc_count: z.number() });
const answerSchema = z.object({
  timed_out: z.boolean(),
  _shards: z.object({ total: z.number(), failed: z.number() }),
  hits: z.object({ total: z.object({ value: z.number(), relation: z.string() }) }),
  aggregations: z.object({
    times: z.object({ buckets: z.array(bucket.extend({ key: z.number() })) }),
    indices: z.object({ buckets: z.array(z.object({ key: z.string() })) }),
    certain: bucket.optional(),
    none: bucket.optional(),
    values: z
      .object({
        doc_count_error_upper_bound: z.number(),
        sum_other_doc_count: z.number(),
        buckets: z.array(bucket.extend({ key: z.string() })),
      })
      .optional(),
    combinations: z
      .object({
        buckets: z.array(
          bucket.extend({ key: z.record(z.string(), z.union([z.string(), z.number(), z.null()])) }),
        ),
      })
      .optional(),
  }),
});
type CountAnswer = z.output<typeof answerSchema>;

const noAggregations: CountAnswer["aggregations"] = {
  times: { buckets: [] },
  indices: { buckets: [] },
  certain: { doc_count: 0 },
};
/** Where no shard is searched, an answer has no aggregations. */
const unsearchedSchema = answerSchema
  .omit({ aggregations: true })
  .extend({ _shards: z.object({ total: z.literal(0), failed: z.literal(0) }) })
  .transform((answer): CountAnswer => ({ ...answer, aggregations: noAggregations }));

/** @throws {BackendError} where it is malformed or incomplete */
function parseAnswer(backend: string, bytes: Buffer): CountAnswer {
  let answer: CountAnswer;
  try {
    answer = z.union([answerSchema, unsearchedSchema]).parse(parseJson(bytes.toString()));
  } catch (cause) {
    throw createMalformedResponseError(backend, bytes, cause);
  }
  const { timed_out, _shards, hits } = answer;
  if (timed_out || _shards.failed > 0 || hits.total.relation !== "eq")
    throw new BackendError(backend, "partial", "incomplete aggregations");
  return answer;
}

/** False, and nothing is added, where the answer proves nothing. */
function addCounted(
  { hits, aggregations }: CountAnswer,
  { provesFilter, columns }: CountPlan,
  { layout }: SearchPlan,
  { grouping, counts }: CountTask,
): boolean {
  const { times, certain } = aggregations;
  const total = hits.total.value;
  if (provesFilter && certain?.doc_count !== total) return false;
  if (sumCounts(times.buckets) !== total) return false;
  const rows = grouping && readRows(aggregations, total, columns);
  const groups = rows && readGroups(rows, total, layout, grouping);
  if (grouping !== undefined && groups === undefined) return false;
  counts.total += total;
  for (const { key, doc_count: count } of times.buckets) addCount(counts.buckets, key, count);
  for (const { value, start, count } of groups ?? []) {
    if (value === undefined) counts.lacking += count;
    else if (start !== undefined) addGroup(counts, value, new Map([[start, count]]));
    else if (counts.groupBuckets === undefined) addCount(counts.groups, value, count);
    // No document has a value of its own, so all have this one.
    else addGroup(counts, value, new Map(times.buckets.map(({ key, doc_count }) => [key, doc_count])));
  }
  return true;
}

/** Documents with the same values of the columns, by name; `start` where they are of one bucket of time. */
interface CountedRow {
  readonly document: Readonly<Record<string, string>>;
  readonly start: Millis | undefined;
  readonly count: number;
}

/** Undefined where some are left out. */
function readRows(
  { values, none, combinations }: CountAnswer["aggregations"],
  total: number,
  columns: readonly GroupColumn[],
): readonly CountedRow[] | undefined {
  const named = columns.filter(({ field }) => field !== undefined);
  const toDocument = (texts: readonly unknown[]) =>
    Object.fromEntries(
      named.flatMap(({ name }, at) => (typeof texts[at] === "string" ? [[name, texts[at]]] : [])),
    );
  if (values !== undefined) {
    if (values.doc_count_error_upper_bound !== 0 || values.sum_other_doc_count !== 0) return undefined;
    const present = values.buckets.map(({ key, doc_count: count }) => ({
      document: toDocument([key]),
      count,
    }));
    const all = [...present, { document: {}, count: none?.doc_count ?? 0 }];
    return all.map((row) => ({ ...row, start: undefined }));
  }
  if (combinations === undefined) return [{ document: {}, start: undefined, count: total }];
  if (combinations.buckets.length >= maxGroups) return undefined;
  return combinations.buckets.map(({ key, doc_count: count }) => ({
    document: toDocument(named.map((_, at) => key[`c${at}`])),
    start: typeof key.time === "number" ? key.time : undefined,
    count,
  }));
}

interface CountedGroup {
  /** Undefined for lines that lack one. */
  readonly value: string | undefined;
  readonly start: Millis | undefined;
  readonly count: number;
}

/** What the rows mean for lines; undefined where that is not certain. */
function readGroups(
  rows: readonly CountedRow[],
  total: number,
  layout: LogLayout,
  grouping: LineGrouping,
): readonly CountedGroup[] | undefined {
  // A document with several values is in several rows.
  if (rows.reduce((sum, { count }) => sum + count, 0) !== total) return undefined;
  if (rows.some(({ document }) => Object.values(document).some(mayDiffer))) return undefined;
  return rows
    .filter(({ count }) => count > 0)
    .map(({ document, start, count }) => ({ value: readValue(document, layout, grouping), start, count }));
}

/** Whether a document may spell the value in another way than the index: an empty text, a number, or a lone surrogate. */
function mayDiffer(text: string): boolean {
  return (
    text === "" ||
    /[?\uFFFD]/.test(text) ||
    (/^-?\d/.test(text) && !/^(?:0|-?[1-9]\d*)$/.test(text) && !Number.isNaN(Number(text)))
  );
}

function sumCounts(buckets: readonly { readonly doc_count: number }[]): number {
  return buckets.reduce((sum, { doc_count }) => sum + doc_count, 0);
}
