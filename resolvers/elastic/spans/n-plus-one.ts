// Which parents may have many children that ask the same of a database. The index is asked for lists of parents by the
// number of their children, which err on one side only: whoever has so many children is in them.
import { z } from "zod";
import type { CrowdQuery, SpanSource } from "../../../src/store/span-reader.ts";
import { canonicalId } from "../../../src/tracing/spans/id.ts";
import { createNormaliser } from "../../../src/tracing/spans/statement-cache.ts";
import { any, every, none, not, type Query } from "../client/query-dsl.ts";
import type { Placed, SpanForm } from "../layout/span-layout.ts";
import { columnOf, columnsOf, mayRefer, surelyCountsOne } from "../query/span-lower-bounds.ts";
import { isSelected } from "../query/span-upper-bounds.ts";
import { idsOfOne } from "./id-listing.ts";
import { asked } from "./index-hints.ts";
import type { Condition, Documents, Plan } from "./span-documents.ts";

const listed = 10_000;
/** Terms that each shard sends: with fewer parents than this on a shard none is left out. */
const listedByShard = { least: 50_000, ofAll: 1_000_000 } as const;

const terms = z.object({
  doc_count_error_upper_bound: z.number(),
  buckets: z.array(z.object({ key: z.string(), doc_count: z.number() })),
});
const pages = z.object({
  after_key: z.record(z.string(), z.unknown()).optional(),
  buckets: z.array(z.object({ key: z.object({ parent: z.string() }), doc_count: z.number() })),
});

/** `SpanReader.crowds` over one source. */
export async function findCrowds(
  documents: Documents,
  source: SpanSource,
  { least, budget }: CrowdQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return asked(async () => {
    const plan = await documents.plan(source, signal);
    const found = new Set<string>();
    const ask = async (
      field: string,
      forms: readonly Placed<SpanForm>[],
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
    const add = (id: string): void => void found.add(canonicalId(id, 16));
    async function addAll(
      field: string,
      forms: readonly Placed<SpanForm>[],
      condition: Condition<SpanForm>,
      atLeast: number,
    ) {
      const sources = [{ parent: { terms: { field } } }];
      for (let after: object | undefined; ; ) {
        const composite = { size: listed, sources, ...(after === undefined ? {} : { after }) };
        const page = pages.parse(await ask("parents", forms, condition, { parents: { composite } }));
        budget.spend(Math.ceil(page.buckets.length / idsOfOne));
        for (const { key, doc_count } of page.buckets) if (doc_count >= atLeast) add(key.parent);
        if (page.after_key === undefined || page.buckets.length < listed) return;
        after = page.after_key;
      }
    }
    for (const [field, forms] of byParent(plan)) {
      if (field === undefined) return undefined;
      const unsure: Condition<SpanForm> = (placed) => every([isStatement(placed), not(namesParent(placed))]);
      const options = { track_total_hits: true };
      const isSure = forms.every((placed) => unsure(placed, source) === none);
      if (!isSure && (await documents.aggregate(source, plan, forms, unsure, options, signal)).total > 0)
        return undefined;
      const condition: Condition<SpanForm> = (placed) => isStatement(placed);
      const several: Condition<SpanForm> = (placed) =>
        every([isStatement(placed), not(surelyCountsOne(placed))]);
      if (forms.some((placed) => several(placed, source) !== none)) await addAll(field, forms, several, 1);
      const alike = await listAlike(documents, source, plan, field, forms, least, signal);
      if (alike !== undefined) {
        budget.spend(Math.ceil(alike.length / idsOfOne));
        for (const id of alike) add(id);
        continue;
      }
      const { shards } = plan.knowledge;
      const shard_size = Math.max(listedByShard.least, Math.floor(listedByShard.ofAll / Math.max(1, shards)));
      const list = async (min_doc_count: number) => {
        const parents = { terms: { field, size: listed, shard_size, min_doc_count } };
        return terms.parse(await ask("parents", forms, condition, { parents }));
      };
      // A count may lack what shards left out of their lists, which the bound of the error says.
      let answer = await list(least);
      const error = answer.doc_count_error_upper_bound;
      if (error > 0 && error < least - 1) answer = await list(least - error);
      const last = answer.buckets.at(-1)?.doc_count ?? 0;
      const isCut = answer.buckets.length === listed && last + error >= least;
      if (isCut || answer.doc_count_error_upper_bound > error || error >= least - 1) {
        await addAll(field, forms, condition, least);
      } else {
        budget.spend(Math.ceil(answer.buckets.length / idsOfOne));
        for (const { key } of answer.buckets) add(key);
      }
    }
    return [...found];
  });
}

function isStatement(placed: Placed<SpanForm>) {
  return isSelected(placed, "statements");
}

/** Places by the field that names the parent; undefined where an index cannot group by it. */
function byParent({ layout }: Plan): ReadonlyMap<string | undefined, readonly Placed<SpanForm>[]> {
  const holding = layout.spans.filter((placed) => isStatement(placed) !== none);
  return Map.groupBy(holding, (placed) => {
    const [name, ...others] = placed.form.parent;
    return name === undefined || others.length > 0 ? undefined : columnOf(placed, name).field;
  });
}

/** Documents whose parent, if they have one, surely stands in its field. */
function namesParent(placed: Placed<SpanForm>) {
  const { group, form } = placed;
  const [name = ""] = form.parent;
  const column = columnOf(placed, name);
  const present = { exists: { field: column.field } };
  if (form.parent_reference === undefined) return column.sure;
  return every([column.sure, not(every([not(present), mayRefer(group, form.parent_reference)]))]);
}

// ---- By statement ---------------------------------------------------------------------------------------------

/** Distinct statements, and characters of all of them, of which more are not sent back to the index. */
const mostStatements = { count: 500, chars: 100_000 } as const;
/** Heaps of statements whose parents are counted apart: each takes the index a number for each parent. */
const mostHeaps = 8;
/** Servers return no more than 65,535 groups in all. */
const mostGroups = 60_000;
const mostCounted = 4_000_000;

const statements = z.object({
  doc_count_error_upper_bound: z.number(),
  sum_other_doc_count: z.number(),
  buckets: z.array(z.object({ key: z.union([z.string(), z.number()]), doc_count: z.number() })),
});
const heaped = z.object({ parents: z.object({ buckets: z.array(z.object({ key: z.string() })) }) });

/**
 * Parents that may have so many children with one normalised statement, where it has few: of each statement, or of a few
 * together, the children of a parent are counted apart. Whoever has so many of them has its share of them on some shard,
 * so that shards send only the parents that have as many, and most send none. Undefined where that leaves too many.
 */
async function listAlike(
  documents: Documents,
  source: SpanSource,
  plan: Plan,
  parentField: string,
  forms: readonly Placed<SpanForm>[],
  least: number,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const indices = new Set(forms.flatMap(({ group }) => group.indices));
  const shards = [...indices].reduce((sum, index) => sum + (plan.knowledge.shardsOf.get(index) ?? 1), 0);
  const share = Math.ceil(least / Math.max(1, shards));
  // Everybody has one.
  if (share < 2) return undefined;
  const columns = (placed: Placed<SpanForm>) => columnsOf(placed, placed.form.statement);
  const fields = [...new Set(forms.flatMap((placed) => columns(placed).flatMap(({ field }) => field ?? [])))];
  const ask = (condition: Condition<SpanForm>, body: object) =>
    documents.aggregate(source, plan, forms, condition, body, signal);
  const unsure: Condition<SpanForm> = (placed) =>
    every([isStatement(placed), not(every(columns(placed).map(({ sure }) => sure)))]);
  const isSure = forms.every((placed) => unsure(placed, source) === none);
  const size = mostStatements.count;
  const lists = fields.map((field, at) => [`statements${at}`, { terms: { field, size, min_doc_count: 1 } }]);
  const [doubtful, listed] = await Promise.all([
    isSure ? undefined : ask(unsure, { track_total_hits: true }),
    ask(isStatement, { track_total_hits: true, aggs: Object.fromEntries(lists) }),
  ]);
  if ((doubtful?.total ?? 0) > 0 || listed.total > mostCounted) return undefined;
  const known = fields.flatMap((field, at) => {
    const list = statements.parse(listed.aggregations[`statements${at}`]);
    const isWhole = list.doc_count_error_upper_bound === 0 && list.sum_other_doc_count === 0;
    return [{ field, isWhole, buckets: list.buckets }];
  });
  if (known.some(({ isWhole }) => !isWhole)) return undefined;
  // Each has at least one.
  const counted = known.flatMap(({ buckets }) => buckets).reduce((sum, { doc_count }) => sum + doc_count, 0);
  if (counted < listed.total) return undefined;
  const texts = known.flatMap(({ buckets }) => buckets.map(({ key }) => key));
  // A number may be spelled otherwise in the document.
  if (texts.some((text) => typeof text !== "string" || /^-?\d|^(?:true|false)$/.test(text))) return undefined;
  if (texts.join("").length > mostStatements.chars) return undefined;
  const heaps = heapsOf(known, least);
  if (heaps.length === 0) return [];
  const limit = Math.floor(mostGroups / heaps.length);
  const most = { size: limit, shard_size: limit, min_doc_count: share, shard_min_doc_count: share };
  const aggs = heaps.map((heap, at) => [
    `heap${at}`,
    { filter: heap, aggs: { parents: { terms: { field: parentField, ...most } } } },
  ]);
  const { aggregations } = await ask(isStatement, {
    track_total_hits: false,
    aggs: Object.fromEntries(aggs),
  });
  const found = heaps.map((_, at) => heaped.parse(aggregations[`heap${at}`]).parents.buckets);
  // A list that is not full lacks nobody: all that a shard sent is in it.
  if (found.some((buckets) => buckets.length >= limit)) return undefined;
  return [...new Set(found.flatMap((buckets) => buckets.map(({ key }) => key)))];
}

interface Statements {
  readonly field: string;
  readonly buckets: readonly { readonly key: string | number; readonly doc_count: number }[];
}

/** Statements that are normalised alike are in one heap, and heaps are about equally large. */
function heapsOf(lists: readonly Statements[], least: number): readonly Query[] {
  const normalise = createNormaliser();
  const all = lists.flatMap(({ field, buckets }) =>
    buckets.map(({ key, doc_count }) => ({ field, text: String(key), spans: doc_count })),
  );
  const alike = [...Map.groupBy(all, ({ text }) => normalise(text)).values()]
    .map((own) => ({ own, spans: own.reduce((sum, { spans }) => sum + spans, 0) }))
    .filter(({ spans }) => spans >= least)
    .sort((a, b) => b.spans - a.spans);
  const heaps = Array.from({ length: Math.min(mostHeaps, alike.length) }, () => {
    return { own: [] as (typeof all)[number][], spans: 0 };
  });
  for (const { own, spans } of alike) {
    const smallest = heaps.reduce((a, b) => (b.spans < a.spans ? b : a));
    smallest.own.push(...own);
    smallest.spans += spans;
  }
  return heaps.map(({ own }) =>
    any(
      [...Map.groupBy(own, ({ field }) => field)].map(([field, same]) => ({
        terms: { [field]: same.map(({ text }) => text) },
      })),
    ),
  );
}
