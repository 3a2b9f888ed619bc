// Decodes the events of spans: those within the document of their span, and those in documents of their own.
import { type AttributeValue, compare, type SpanEvent } from "../../../src/core/rows.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import {
  createFieldTable,
  type FieldTable,
  type FieldValues,
  readFieldList,
  readFieldValue,
} from "../document/field-table.ts";
import { isValueObject, type ValueObject } from "../document/flatten.ts";
import { compileAttributes, omitAttributes } from "./attribute-decoder.ts";
import { type EventForm, listEventTraceNames, type SpanForm } from "./span-layout.ts";
import { compileTime, readTimeAt } from "./time-decoder.ts";
import {
  applyRules,
  compileRules,
  findFirstText,
  noAttributes,
  resolveName,
  type Scope,
} from "./value-rules.ts";

/** An event that is a document of its own. */
export interface SeparateEvent {
  readonly trace_id: string;
  /** Ids of the spans that it may belong to, the nearest first; empty for an event outside of any trace. */
  readonly spanIds: readonly string[];
  /** Its id as a standalone span, if its layout has such spans. */
  readonly standaloneId?: string | undefined;
  readonly event: SpanEvent;
}

/** Most spans have several empty lists; they share this one. */
export const emptyList: readonly never[] = [];

type EventDecoder = (document: ValueObject) => SeparateEvent | undefined;

const eventDecoders = new WeakMap<EventForm, EventDecoder>();

/** The event that a document holds; undefined if it lacks ids or a time. */
export function decodeSeparateEvent(document: AttributeValue, form: EventForm): SeparateEvent | undefined {
  if (!isValueObject(document)) return undefined;
  const decode = eventDecoders.get(form) ?? compileEventDecoder(form);
  eventDecoders.set(form, decode);
  return decode(document);
}

function compileEventDecoder(form: EventForm): EventDecoder {
  const table = createFieldTable();
  const present = form.present.map((name) => table.addField(name));
  const resolve = (names: readonly string[]) => names.map((name) => resolveName(table, name));
  const traceNames = resolve(form.trace_id);
  const anyTraceNames = resolve(listEventTraceNames(form));
  const spanNames = resolve(form.span);
  const standaloneNames = form.alone === undefined ? [] : resolve(form.alone.span_id);
  const readEvent = compileEvent(table, form);
  return (document) => {
    const fields = table.read(document);
    if (!present.every((field) => readFieldValue(fields, field) !== undefined)) return undefined;
    const scope: Scope = { ...noAttributes, fields };
    const traceId = findFirstText(scope, anyTraceNames);
    const event = readEvent(fields);
    if (traceId === undefined || event === undefined) return undefined;
    const isTraced = findFirstText(scope, traceNames) !== undefined;
    const ids = isTraced ? spanNames.flatMap((name) => findFirstText(scope, [name]) ?? []) : [];
    if (ids.length === 0 && form.alone === undefined) return undefined;
    const standaloneId = findFirstText(scope, standaloneNames);
    return {
      trace_id: normaliseId(traceId, 32),
      spanIds: [...new Set(ids.map((id) => normaliseId(id, 16)))],
      standaloneId: standaloneId === undefined ? undefined : normaliseId(standaloneId, 16),
      event,
    };
  };
}

/** Reads the events within the document of a span, sorted by time; undefined if the form has none. */
export function compileEvents(
  table: FieldTable,
  { events }: SpanForm,
): ((fields: FieldValues) => readonly SpanEvent[]) | undefined {
  if (events === undefined) return undefined;
  const list = table.addList(events.at);
  const eventTable = createFieldTable();
  const readEvent = compileEvent(eventTable, events);
  return (fields) => {
    const objects = readFieldList(fields, list);
    if (objects.length === 0) return emptyList;
    return sortEvents(objects.flatMap((object) => readEvent(eventTable.read(object)) ?? []));
  };
}

function compileEvent(
  table: FieldTable,
  form: Pick<EventForm, "time" | "name" | "event_attributes">,
): (fields: FieldValues) => SpanEvent | undefined {
  const timeRef = compileTime(table, form.time);
  const rules = compileRules(table, form.name, ["event_attributes"]);
  const readAttributes = compileAttributes(table, form.event_attributes, undefined);
  return (fields) => {
    const time = readTimeAt(fields, timeRef);
    if (time === undefined) return undefined;
    const attributes = readAttributes(fields);
    const name = applyRules({ ...noAttributes, fields, event_attributes: attributes }, rules) ?? "";
    return { time, name, attributes: omitAttributes(attributes, form.event_attributes.omit) };
  };
}

/** By time; events of one time keep their order. */
export function sortEvents(events: readonly SpanEvent[]): readonly SpanEvent[] {
  return events.toSorted((a, b) => compare(a.time, b.time));
}
