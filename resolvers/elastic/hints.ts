// What an index tells about spans beside the spans themselves: which parents may have many children, and where a scan
// can be cut. Both are asked of the index alone, and both err on one side only.
import { z } from "zod";
import { BackendError } from "../../src/errors.ts";
import type {
  Budget,
  CrowdQuery,
  FailedTracesQuery,
  MilestoneQuery,
  SpanId,
  SpanScan,
  SpanSource,
} from "../../src/reader.ts";
import { spanKey } from "../../src/tracing/request.ts";
import { type Condition, type Documents, Outdated, type Plan } from "./documents.ts";
import { idsOfOne, listIds } from "./ids.ts";
import { type EventForm, nanosOf, type Placed, type SpanForm } from "./layout.ts";
import { findField } from "./mapping.ts";
import { isSelected, refersToParent } from "./narrow.ts";
import { isError, tellsOf } from "./narrowing.ts";
import { every, none, not } from "./query.ts";
import { normaliseId } from "./span.ts";
import { columnOf, surelyCountsOne } from "./sure.ts";
import { candidates } from "./tallies.ts";

// ---- Crowds ---------------------------------------------------------------------------------------------------

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
    const add = (id: string): void => void found.add(normaliseId(id, 16));
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
  return every([column.sure, not(every([not(present), refersToParent(group, form.parent_reference)]))]);
}

// ---- Milestones -----------------------------------------------------------------------------------------------

/** `SpanReader.milestone` over one source: of several fields the first in the order. */
export async function findMilestone(
  documents: Documents,
  source: SpanSource,
  query: MilestoneQuery,
  signal: AbortSignal,
): Promise<bigint | undefined> {
  const { by, order, nth } = query;
  return asked(async () => {
    const plan = await documents.plan(source, signal);
    const condition: Condition<SpanForm> = (placed) => candidates(placed, query, source);
    const sorted = Map.groupBy(plan.layout.spans, ({ form }) => {
      const { field, unit } = (by === "duration" ? form.duration : (form.end ?? form.start)) ?? {};
      return field === undefined ? undefined : `${unit} ${field}`;
    });
    const found: bigint[] = [];
    for (const [key, forms] of sorted) {
      const { form, group } = forms[0] ?? {};
      const time = by === "duration" ? form?.duration : (form?.end ?? form?.start);
      const field = group && time && findField(group, time.field);
      if (key === undefined || time === undefined || !field?.indexed || !field.docValues) return undefined;
      const typed =
        time.unit === "date" ? { numeric_type: "date", unmapped_type: "date" } : { unmapped_type: "long" };
      const sort = [{ [time.field]: { order, ...typed } }];
      const body = { from: nth - 1, size: 1, track_total_hits: false, _source: false, sort };
      const { hits } = await documents.aggregate(source, plan, forms, condition, body, signal);
      const value = hits[0]?.sort[0];
      if (typeof value === "number" && Number.isFinite(value))
        found.push(BigInt(Math.trunc(value)) * nanosOf[time.unit]);
    }
    return found.reduce<bigint | undefined>(
      (first, value) =>
        first === undefined || (order === "asc" ? value < first : value > first) ? value : first,
      undefined,
    );
  });
}

// ---- Exceptions -----------------------------------------------------------------------------------------------

/** `SpanReader.failedTraces` over one source. */
export async function findFailedTraces(
  documents: Documents,
  source: SpanSource,
  { errors, budget }: FailedTracesQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return asked(async () => {
    const plan = await documents.plan(source, signal);
    const { spans, events } = plan.layout;
    const namesOf = ({ trace_id }: SpanForm | EventForm) => trace_id;
    const telling: Condition<SpanForm> = (placed) => tellsOf(placed, errors);
    const lists = [
      await listIds(documents, source, plan, spans, telling, namesOf, budget, signal),
      await listIds(
        documents,
        source,
        plan,
        events,
        (placed) => isError(placed, errors),
        namesOf,
        budget,
        signal,
      ),
    ];
    if (lists.includes(undefined)) return undefined;
    const ids = lists.flatMap((list) => list?.flat() ?? []).filter((id) => id !== undefined);
    return [...new Set(ids.map((id) => normaliseId(id, 32)))];
  });
}

/** The spans that documents of events may belong to; undefined where the index cannot list them. */
export async function findSpansOfEvents(
  documents: Documents,
  source: SpanSource,
  condition: Condition<EventForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly SpanId[] | undefined> {
  return asked(async () => {
    const plan = await documents.plan(source, signal);
    const found: SpanId[] = [];
    const ids = new Set<string>();
    for (const placed of plan.layout.events) {
      const { trace_id: traces, span: spans } = placed.form;
      const namesOf = () => [...traces, ...spans];
      const list = await listIds(documents, source, plan, [placed], condition, namesOf, budget, signal);
      if (list === undefined) return undefined;
      for (const values of list) {
        for (const trace of values.slice(0, traces.length)) {
          for (const span of values.slice(traces.length)) {
            if (trace === undefined || span === undefined) continue;
            const id = { trace_id: normaliseId(trace, 32), span_id: normaliseId(span, 16) };
            const key = spanKey(id);
            if (!ids.has(key)) found.push(id);
            ids.add(key);
          }
        }
      }
    }
    return found;
  });
}

// ---- Counts ---------------------------------------------------------------------------------------------------

/** `SpanReader.count` over one source. */
export function countCandidates(
  documents: Documents,
  source: SpanSource,
  query: SpanScan,
  signal: AbortSignal,
): Promise<number | undefined> {
  return asked(() => documents.countSpans(source, (placed) => candidates(placed, query, source), signal));
}

/** What a server refuses, or what changes while it is asked, is not known. */
async function asked<T>(ask: () => Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof Outdated) return undefined;
    if (error instanceof BackendError && error.failure === "rejected") return undefined;
    throw error;
  }
}
