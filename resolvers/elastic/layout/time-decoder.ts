// Reads times and durations of spans and events with all their digits. A number, or a number as text, counts units since 1970; a
// date is an ISO text, milliseconds, or the collector's `<milliseconds>.<nanoseconds, unpadded>`.
import type { AttributeValue } from "../../../src/core/rows.ts";
import { type Instant, nanosPerMilli, parseInstant } from "../../../src/core/time.ts";
import { type FieldRef, type FieldTable, type FieldValues, readFieldValue } from "../document/field-table.ts";
import { type InstantRule, nanosPerTimeUnit, type TimeRule, type TimeUnit } from "./span-layout.ts";
import { toText } from "./value-rules.ts";

/** A time of a layout in the field table of a form. */
export interface TimeRef {
  readonly field: FieldRef;
  readonly unit: TimeUnit;
  readonly otherwise: TimeRef | undefined;
}

export function compileTime(table: FieldTable, { otherwise, ...time }: InstantRule): TimeRef {
  const toRef = ({ field, unit }: TimeRule) => ({ field: table.addField(field), unit, otherwise: undefined });
  return { ...toRef(time), otherwise: otherwise && toRef(otherwise) };
}

/** The instant of a document; undefined if none of the fields has a time. */
export function readTimeAt(fields: FieldValues, { field, unit, otherwise }: TimeRef): Instant | undefined {
  const time = readTime(readFieldValue(fields, field), unit);
  return time === undefined && otherwise !== undefined ? readTimeAt(fields, otherwise) : time;
}

export function readDurationAt(fields: FieldValues, { field, unit }: TimeRef): bigint | undefined {
  return readDuration(readFieldValue(fields, field), unit);
}

const epochPattern = /^-?\d+(?:\.\d{1,6})?$/;

/** Undefined if the value is no time. */
function readTime(value: AttributeValue | undefined, unit: TimeUnit): Instant | undefined {
  if (unit !== "date" || typeof value === "number" || typeof value === "bigint")
    return readNanos(value, nanosPerTimeUnit[unit]) as Instant | undefined;
  const text = toText(value);
  if (text === undefined) return undefined;
  if (!epochPattern.test(text)) return parseInstant(text);
  const point = text.indexOf(".");
  const millis = BigInt(point < 0 ? text : text.slice(0, point)) * nanosPerMilli;
  // The part after the point is a number of nanoseconds, not a fraction: `.5` is 5 ns.
  return (point < 0 ? millis : millis + BigInt(text.slice(point + 1))) as Instant;
}

/** A number of units, also as text, as nanoseconds. Micro- and nanoseconds are integers, as an index keeps them. */
function readNanos(value: AttributeValue | undefined, unit: bigint): bigint | undefined {
  if (typeof value === "bigint") return value * unit;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) return undefined;
    if (Number.isSafeInteger(value)) return BigInt(value) * unit;
    return unit === nanosPerMilli
      ? BigInt(Math.round(value * Number(unit)))
      : BigInt(Math.trunc(value)) * unit;
  }
  const text = toText(value);
  if (text === undefined || !/^-?\d+(\.\d+)?$/.test(text)) return undefined;
  return text.includes(".") ? readNanos(Number(text), unit) : BigInt(text) * unit;
}

/** Nanoseconds; a negative duration counts as 0. Undefined if the value is no duration. */
function readDuration(value: AttributeValue | undefined, unit: TimeUnit): bigint | undefined {
  const duration = readTime(value, unit);
  return duration === undefined || duration >= 0n ? duration : 0n;
}
