// By what the lines of a part are bounded and sorted, and what a sort value says: milliseconds of a `date`, nanoseconds of a
// `date_nanos` or where the two meet, or whole numbers of a profile's unit.
import { allTime, earlier, fromMillis, type Instant, later, printNanos } from "../../../src/core/time.ts";
import { none, type Query } from "../client/query-dsl.ts";

/** What a `date_nanos` field can hold. */
export const nanosEra = allTime;

/** What a `long` field can hold. */
const longs = { from: -(2n ** 63n), to: 2n ** 63n - 1n };

export interface Clock {
  /** Wider by less than what the index rounds away. */
  range(from: Instant, to: Instant): Query;
  sort(order: "asc" | "desc"): object;
  /** A sort value is an integer's text. */
  instantOf(sort: string): Instant;
}

export function dateClock(field: string, nanos: boolean): Clock {
  return {
    range: (from, to) => timeRange(field, from, to, nanos),
    sort: (order) => ({
      [field]: { order, unmapped_type: "date", ...(nanos ? { numeric_type: "date_nanos" } : {}) },
    }),
    instantOf: (sort) => (nanos ? (BigInt(sort) as Instant) : fromMillis(Number(sort))),
  };
}

/** `unit`: the nanoseconds of one. */
export function numberClock(field: string, unit: bigint): Clock {
  return {
    range(from, to) {
      const [first, last] = [-floorDivide(-from, unit), floorDivide(to, unit)];
      const gte = first > longs.from ? first : longs.from;
      const lte = last < longs.to ? last : longs.to;
      return gte > lte ? none : { range: { [field]: { gte: bound(gte), lte: bound(lte) } } };
    },
    sort: (order) => ({ [field]: { order, unmapped_type: "long" } }),
    instantOf: (sort) => (BigInt(sort) * unit) as Instant,
  };
}

/** Documents that no `date_nanos` can hold; a bound that one refuses is not in it. */
export function outsideNanosEra(field: string): readonly Query[] {
  return [
    { range: { [field]: { lt: printNanos(nanosEra.from), format } } },
    { range: { [field]: { gt: printNanos(nanosEra.to), format } } },
  ];
}

const format = "strict_date_optional_time_nanos";

export function timeRange(field: string, from: Instant | undefined, to: Instant, nanos: boolean): Query {
  // A server refuses a bound that a `date_nanos` cannot hold.
  if (nanos && (to < nanosEra.from || (from !== undefined && from > nanosEra.to))) return none;
  const since = from === undefined ? {} : { gte: printNanos(nanos ? later(from, nanosEra.from) : from) };
  const lte = printNanos(nanos ? earlier(to, nanosEra.to) : to);
  return { range: { [field]: { ...since, lte, format } } };
}

/** A number where JSON has it: a text is read by the format of a date that another index has at the name. */
function bound(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}

function floorDivide(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor;
  return dividend % divisor < 0n ? quotient - 1n : quotient;
}
