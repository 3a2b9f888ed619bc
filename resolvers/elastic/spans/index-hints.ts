// What an index tells about spans beside the spans themselves: where a scan can be cut, which traces failed, how much there
// is to read. All is asked of the index alone, and errs on one side only.
import { BackendError } from "../../../src/core/errors.ts";
import type {
  Budget,
  FailedTracesQuery,
  MilestoneQuery,
  SpanId,
  SpanScan,
  SpanSource,
} from "../../../src/store/span-reader.ts";
import { canonicalId } from "../../../src/tracing/spans/id.ts";
import { spanKey } from "../../../src/tracing/spans/requests.ts";
import { every } from "../client/query-dsl.ts";
import { type EventForm, nanosOf, type Placed, type SpanForm, tracesOfEvent } from "../layout/span-layout.ts";
import { findField } from "../mapping/mapping.ts";
import { isError, tellsOf } from "../query/span-pushdown.ts";
import { isUnnamed } from "../query/span-upper-bounds.ts";
import { listIds } from "./id-listing.ts";
import { candidates } from "./span-aggregation.ts";
import { type Condition, type Documents, Outdated } from "./span-documents.ts";
import { type Placement, placementOf } from "./span-lookups.ts";

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
    const telling: Condition<SpanForm> = (placed) => tellsOf(placed, errors);
    const isListed: Condition<EventForm> = (placed) => isError(placed, errors);
    // By themselves: a trace has few, and without one each has its own.
    const isUntraced: Condition<EventForm> = (placed) =>
      every([isUnnamed(placed, placed.form.trace_id), isError(placed, errors)]);
    const list = <Form extends SpanForm | EventForm>(
      forms: readonly Placed<Form>[],
      condition: Condition<Form>,
      namesOf: (form: Form) => readonly string[],
    ) => listIds(documents, source, plan, forms, condition, namesOf, budget, signal);
    const alone = events.filter(({ form }) => form.alone !== undefined);
    const lists = await Promise.all([
      list(spans, telling, ({ trace_id }) => trace_id),
      list(events, isListed, ({ trace_id }) => trace_id),
      list(alone, isUntraced, (form) => tracesOfEvent(form).filter((name) => !form.trace_id.includes(name))),
    ]);
    if (lists.includes(undefined)) return undefined;
    const ids = lists.flatMap((list) => list?.flat() ?? []).filter((id) => id !== undefined);
    return [...new Set(ids.map((id) => canonicalId(id, 32)))];
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
            const id = { trace_id: canonicalId(trace, 32), span_id: canonicalId(span, 16) };
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

/** Where events belong that may be spans of their own; undefined where the index cannot list their ids. */
export async function findPlacements(
  documents: Documents,
  source: SpanSource,
  condition: Condition<EventForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly Placement[] | undefined> {
  return asked(async () => {
    const plan = await documents.plan(source, signal);
    const found: Placement[] = [];
    for (const placed of plan.layout.events) {
      const { form } = placed;
      const own = form.alone?.span_id ?? [];
      const names = [...new Set([...tracesOfEvent(form), ...form.span, ...own])];
      const list = await listIds(documents, source, plan, [placed], condition, () => names, budget, signal);
      if (list === undefined) return undefined;
      for (const values of list) {
        const idsAt = (asked: readonly string[], digits: 16 | 32) =>
          asked.flatMap((name) => values[names.indexOf(name)] ?? []).map((id) => canonicalId(id, digits));
        const [trace_id] = idsAt(tracesOfEvent(form), 32);
        const spans = idsAt(form.trace_id, 32).length === 0 ? [] : idsAt(form.span, 16);
        if (trace_id !== undefined) found.push(placementOf({ trace_id, spans, alone: idsAt(own, 16)[0] }));
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
export async function asked<T>(ask: () => Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof Outdated) return undefined;
    if (error instanceof BackendError && error.failure === "rejected") return undefined;
    throw error;
  }
}
