// What an index tells about spans beside the spans themselves: where a scan can be cut, which traces failed, how much there
// is to read. All is asked of the index alone, and errs on one side only.
import { BackendError } from "../../../src/core/errors.ts";
import type {
  Budget,
  ExceptionTracesQuery,
  SpanId,
  SpanScan,
  SpanSource,
  SplitPointQuery,
} from "../../../src/store/spans.ts";
import { formatSpanKey } from "../../../src/tracing/spans/requests.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import { allOf } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import {
  type EventForm,
  listEventTraceNames,
  nanosPerTimeUnit,
  type SpanForm,
} from "../layout/span-layout.ts";
import { findField } from "../mapping/mapping.ts";
import { buildErrorEventQuery, buildExceptionQuery } from "../query/span-pushdown.ts";
import { buildAllMissingQuery } from "../query/span-upper-bounds.ts";
import { listIds } from "./id-listing.ts";
import { buildCandidateQuery } from "./span-aggregation.ts";
import { type Condition, PlanOutdatedError, type SpanDocuments } from "./span-documents.ts";
import { type EventOwners, toEventOwners } from "./span-matchers.ts";

// ---- Milestones -----------------------------------------------------------------------------------------------

/** `SpanReader.milestone` over one source: of several fields the first in the order. */
export async function findSplitPoint(
  documents: SpanDocuments,
  source: SpanSource,
  query: SplitPointQuery,
  signal: AbortSignal,
): Promise<bigint | undefined> {
  const { by, order, nth } = query;
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const condition: Condition<SpanForm> = (placed) => buildCandidateQuery(placed, query, source);
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
        found.push(BigInt(Math.trunc(value)) * nanosPerTimeUnit[time.unit]);
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
export async function listTraceIdsWithExceptions(
  documents: SpanDocuments,
  source: SpanSource,
  { errors, budget }: ExceptionTracesQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const { spans, events } = plan.layout;
    const telling: Condition<SpanForm> = (placed) => buildExceptionQuery(placed, errors);
    const isListed: Condition<EventForm> = (placed) => buildErrorEventQuery(placed, errors);
    // By themselves: a trace has few, and without one each has its own.
    const isUntraced: Condition<EventForm> = (placed) =>
      allOf([buildAllMissingQuery(placed, placed.form.trace_id), buildErrorEventQuery(placed, errors)]);
    const list = <Form extends SpanForm | EventForm>(
      forms: readonly PlacedForm<Form>[],
      condition: Condition<Form>,
      namesOf: (form: Form) => readonly string[],
    ) => listIds(documents, source, plan, forms, condition, namesOf, budget, signal);
    const alone = events.filter(({ form }) => form.alone !== undefined);
    const lists = await Promise.all([
      list(spans, telling, ({ trace_id }) => trace_id),
      list(events, isListed, ({ trace_id }) => trace_id),
      list(alone, isUntraced, (form) =>
        listEventTraceNames(form).filter((name) => !form.trace_id.includes(name)),
      ),
    ]);
    if (lists.includes(undefined)) return undefined;
    const ids = lists.flatMap((list) => list?.flat() ?? []).filter((id) => id !== undefined);
    return [...new Set(ids.map((id) => normaliseId(id, 32)))];
  });
}

/** The spans that documents of events may belong to; undefined where the index cannot list them. */
export async function listSpanIdsOfEvents(
  documents: SpanDocuments,
  source: SpanSource,
  condition: Condition<EventForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly SpanId[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
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
            const key = formatSpanKey(id);
            if (!ids.has(key)) found.push(id);
            ids.add(key);
          }
        }
      }
    }
    return found;
  });
}

/** Where events belong that may be spans of their own; undefined where the index cannot list their ids. */
export async function listEventOwners(
  documents: SpanDocuments,
  source: SpanSource,
  condition: Condition<EventForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly EventOwners[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const found: EventOwners[] = [];
    for (const placed of plan.layout.events) {
      const { form } = placed;
      const own = form.alone?.span_id ?? [];
      const names = [...new Set([...listEventTraceNames(form), ...form.span, ...own])];
      const list = await listIds(documents, source, plan, [placed], condition, () => names, budget, signal);
      if (list === undefined) return undefined;
      for (const values of list) {
        const idsAt = (asked: readonly string[], digits: 16 | 32) =>
          asked.flatMap((name) => values[names.indexOf(name)] ?? []).map((id) => normaliseId(id, digits));
        const [trace_id] = idsAt(listEventTraceNames(form), 32);
        const spans = idsAt(form.trace_id, 32).length === 0 ? [] : idsAt(form.span, 16);
        if (trace_id !== undefined)
          found.push(toEventOwners({ trace_id, spanIds: spans, standaloneId: idsAt(own, 16)[0] }));
      }
    }
    return found;
  });
}

// ---- Counts ---------------------------------------------------------------------------------------------------

/** `SpanReader.count` over one source. */
export function countCandidates(
  documents: SpanDocuments,
  source: SpanSource,
  query: SpanScan,
  signal: AbortSignal,
): Promise<number | undefined> {
  return tryHint(() =>
    documents.countSpans(source, (placed) => buildCandidateQuery(placed, query, source), signal),
  );
}

/** What a server refuses, or what changes while it is asked, is not known. */
export async function tryHint<T>(ask: () => Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof PlanOutdatedError) return undefined;
    if (error instanceof BackendError && error.failure === "rejected") return undefined;
    throw error;
  }
}
