// Hints about spans that the index gives without their documents: where a scan can be cut, which traces have exceptions, how
// much there is to read. Lists are supersets. `undefined` means that the index does not know.
import { isRejection } from "../../../src/core/errors.ts";
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
import { allOf, not } from "../client/query-dsl.ts";
import type { PlacedForm } from "../layout/form-placement.ts";
import {
  type EventForm,
  listEventTraceNames,
  listTimes,
  nanosPerTimeUnit,
  type SpanForm,
  type TimeRule,
} from "../layout/span-layout.ts";
import { findField } from "../mapping/mapping.ts";
import { buildErrorEventQuery, buildExceptionQuery } from "../query/span-pushdown.ts";
import { buildTimeSort } from "../query/span-times.ts";
import { buildAllMissingQuery } from "../query/span-upper-bounds.ts";
import { type IdTuple, listIds } from "./id-listing.ts";
import { PlanOutdatedError, type SearchPlan } from "./search-plan.ts";
import { buildCandidateQuery } from "./span-aggregation.ts";
import type { SpanDocuments } from "./span-documents.ts";
import { type EventOwners, toEventOwners } from "./span-matchers.ts";
import type { Condition } from "./span-search.ts";

/** The result of `search`. Undefined if the server rejects the query or the mapping changes while it runs. */
export async function tryHint<T>(search: () => Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await search();
  } catch (error) {
    if (error instanceof PlanOutdatedError || isRejection(error)) return undefined;
    throw error;
  }
}

/** The hints of several sources; undefined if one of them is. */
export function combineHints<T>(hints: readonly (T | undefined)[]): readonly T[] | undefined {
  const known = hints.filter((hint) => hint !== undefined);
  return known.length === hints.length ? known : undefined;
}

// ---- Split points ---------------------------------------------------------------------------------------------

/** `SpanReader.findSplitPoint` over one source. Where forms have different fields, the first value in the order. */
export async function findSplitPoint(
  documents: SpanDocuments,
  source: SpanSource,
  query: SplitPointQuery,
  signal: AbortSignal,
): Promise<bigint | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const formsByField = groupFormsBySortField(plan, query);
    if (formsByField === undefined) return undefined;
    const found: bigint[] = [];
    for (const sorted of formsByField) {
      const value = await findNthValue(documents, { source, plan }, sorted, query, signal);
      if (value !== undefined) found.push(value);
    }
    const isFirst = (value: bigint): boolean =>
      found.every((other) => (query.order === "asc" ? value <= other : value >= other));
    return found.find(isFirst);
  });
}

interface SortedForms {
  readonly time: TimeRule;
  /** Names that documents must lack, because their values count before this one. */
  readonly unless: readonly string[];
  readonly forms: readonly PlacedForm<SpanForm>[];
}

/** Undefined where an index cannot sort by the field of one of its forms. */
function groupFormsBySortField(
  { forms: { spans } }: SearchPlan,
  { by }: SplitPointQuery,
): readonly SortedForms[] | undefined {
  const groups = new Map<string, SortedForms & { readonly forms: PlacedForm<SpanForm>[] }>();
  for (const placed of spans) {
    const { form, group } = placed;
    const rule = by === "duration" ? form.duration : (form.end ?? form.start);
    if (rule === undefined) return undefined;
    for (const [at, time] of listTimes(rule).entries()) {
      const field = findField(group, time.field);
      // No document has a time where the name is not mapped, but its place may be taken.
      if (field === undefined && listTimes(rule).length > 1) continue;
      if (!field?.indexed || !field.docValues) return undefined;
      const unless = listTimes(rule)
        .slice(0, at)
        .map((earlier) => earlier.field);
      const key = JSON.stringify([time.unit, time.field, unless]);
      const known = groups.get(key);
      if (known === undefined) groups.set(key, { time, unless, forms: [placed] });
      else known.forms.push(placed);
    }
  }
  return [...groups.values()];
}

/** Nanoseconds; undefined where there are fewer than `nth` spans. */
async function findNthValue(
  documents: SpanDocuments,
  target: { readonly source: SpanSource; readonly plan: SearchPlan },
  { time, unless, forms }: SortedForms,
  query: SplitPointQuery,
  signal: AbortSignal,
): Promise<bigint | undefined> {
  const condition: Condition<SpanForm> = (placed, source) =>
    allOf([
      buildCandidateQuery(placed, query, source),
      { exists: { field: time.field } },
      ...unless.map((field) => not({ exists: { field } })),
    ]);
  const sort = buildTimeSort(forms, time, query.order);
  const body = { from: query.nth - 1, size: 1, track_total_hits: false, _source: false, sort };
  const { hits } = await documents.aggregate({ ...target, forms, condition }, body, signal);
  const value = hits[0]?.sort[0];
  if (typeof value !== "number" || !Number.isFinite(value)) return undefined;
  return BigInt(Math.trunc(value)) * nanosPerTimeUnit[time.unit];
}

// ---- Exceptions -----------------------------------------------------------------------------------------------

/** `SpanReader.findTraceIdsWithExceptions` over one source. */
export async function listTraceIdsWithExceptions(
  documents: SpanDocuments,
  source: SpanSource,
  { errors, budget }: ExceptionTracesQuery,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const { spans, events } = plan.forms;
    const hasException: Condition<SpanForm> = (placed) => buildExceptionQuery(placed, errors);
    const isError: Condition<EventForm> = (placed) => buildErrorEventQuery(placed, errors);
    const isErrorWithoutTrace: Condition<EventForm> = (placed) =>
      allOf([buildAllMissingQuery(placed, placed.form.trace_id), buildErrorEventQuery(placed, errors)]);
    const list = <Form extends SpanForm | EventForm>(
      forms: readonly PlacedForm<Form>[],
      condition: Condition<Form>,
      listNames: (form: Form) => readonly string[],
    ) => listIds(documents, { source, plan, forms, condition }, listNames, budget, signal);
    const standalone = events.filter(({ form }) => form.alone !== undefined);
    const lists = await Promise.all([
      list(spans, hasException, ({ trace_id }) => trace_id),
      list(events, isError, ({ trace_id }) => trace_id),
      // A list of its own: errors within traces share few ids, and each error outside of one has another.
      list(standalone, isErrorWithoutTrace, (form) =>
        listEventTraceNames(form).filter((name) => !form.trace_id.includes(name)),
      ),
    ]);
    const tuples = combineHints(lists)?.flat();
    return tuples && toTraceIds(tuples);
  });
}

/** The ids of traces that tuples have, each once. */
function toTraceIds(tuples: readonly IdTuple[]): readonly string[] {
  const ids = tuples.flat().filter((id) => id !== undefined);
  return [...new Set(ids.map((id) => normaliseId(id, 32)))];
}

/** The traces of the spans of a condition. Undefined where the index cannot list them. */
export async function listTraceIds(
  documents: SpanDocuments,
  source: SpanSource,
  condition: Condition<SpanForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const query = { source, plan, forms: plan.forms.spans, condition };
    const tuples = await listIds(documents, query, ({ trace_id }) => trace_id, budget, signal);
    return tuples && toTraceIds(tuples);
  });
}

/** `SpanReader.findTraceIds` over one source. */
export function listCandidateTraceIds(
  documents: SpanDocuments,
  source: SpanSource,
  query: SpanScan,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  const condition: Condition<SpanForm> = (placed, own) => buildCandidateQuery(placed, query, own);
  return listTraceIds(documents, source, condition, query.budget, signal);
}

/** Ids of the spans that separate events may belong to, each once. Undefined where the index cannot list them. */
export async function listSpanIdsOfEvents(
  documents: SpanDocuments,
  source: SpanSource,
  condition: Condition<EventForm>,
  budget: Budget,
  signal: AbortSignal,
): Promise<readonly SpanId[] | undefined> {
  return tryHint(async () => {
    const plan = await documents.planSearch(source, signal);
    const found = new Map<string, SpanId>();
    for (const placed of plan.forms.events) {
      const query = { source, plan, forms: [placed], condition };
      const listNames = ({ trace_id, span }: EventForm) => [...trace_id, ...span];
      const list = await listIds(documents, query, listNames, budget, signal);
      if (list === undefined) return undefined;
      for (const tuple of list) addSpanIds(found, tuple, placed.form.trace_id.length);
    }
    return [...found.values()];
  });
}

/** Adds each pair of a trace id, of which a tuple begins with `traces`, and a span id. */
function addSpanIds(found: Map<string, SpanId>, tuple: IdTuple, traces: number): void {
  for (const trace of tuple.slice(0, traces)) {
    for (const span of tuple.slice(traces)) {
      if (trace === undefined || span === undefined) continue;
      const id = { trace_id: normaliseId(trace, 32), span_id: normaliseId(span, 16) };
      const key = formatSpanKey(id);
      if (!found.has(key)) found.set(key, id);
    }
  }
}

/** The possible owners of events that may be standalone spans. Undefined where the index cannot list their ids. */
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
    for (const placed of plan.forms.events) {
      const { form } = placed;
      const names = listOwnerNames(form);
      const query = { source, plan, forms: [placed], condition };
      const list = await listIds(documents, query, () => names, budget, signal);
      if (list === undefined) return undefined;
      for (const tuple of list) found.push(...readOwners(form, names, tuple));
    }
    return found;
  });
}

function listOwnerNames(form: EventForm): readonly string[] {
  const standalone = form.alone === undefined ? [] : form.alone.span_id;
  return [...new Set([...listEventTraceNames(form), ...form.span, ...standalone])];
}

/** The owners that a tuple of `names` tells of; none without a trace id. */
function readOwners(form: EventForm, names: readonly string[], tuple: IdTuple): readonly EventOwners[] {
  const readIds = (fields: readonly string[], digits: 16 | 32): readonly string[] =>
    fields.flatMap((name) => {
      const id = tuple[names.indexOf(name)];
      return id === undefined ? [] : [normaliseId(id, digits)];
    });
  const [trace_id] = readIds(listEventTraceNames(form), 32);
  if (trace_id === undefined) return [];
  const spanIds = readIds(form.trace_id, 32).length === 0 ? [] : readIds(form.span, 16);
  const [standaloneId] = form.alone === undefined ? [] : readIds(form.alone.span_id, 16);
  return [toEventOwners({ trace_id, spanIds, standaloneId })];
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
