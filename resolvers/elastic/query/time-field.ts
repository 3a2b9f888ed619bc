// By what the lines of a part are bounded and sorted, and what a sort value says: milliseconds of a `date`, nanoseconds of a
// `date_nanos` or where the two meet, or whole numbers of a profile's unit.
import { allTime, earlier, fromMillis, type Instant, later, printNanos } from "../../../src/core/time.ts";
import { matchNone, type Query } from "../client/query-dsl.ts";

/** What a `date_nanos` field can hold. */
export const dateNanosRange = allTime;

/** What a `long` field can hold. */
const longRange = { from: -(2n ** 63n), to: 2n ** 63n - 1n };

export interface TimeColumn {
  /** Wider by less than what the index rounds away. */
  buildRangeQuery(from: Instant, to: Instant): Query;
  buildSort(order: "asc" | "desc"): object;
  /** A sort value is an integer's text. */
  toInstant(buildSort: string): Instant;
}

export function createDateColumn(field: string, nanos: boolean): TimeColumn {
  return {
    buildRangeQuery: (from, to) => buildDateRangeQuery(field, from, to, nanos),
    buildSort: (order) => ({
      [field]: { order, unmapped_type: "date", ...(nanos ? { numeric_type: "date_nanos" } : {}) },
    }),
    toInstant: (sort) => (nanos ? (BigInt(sort) as Instant) : fromMillis(Number(sort))),
  };
}

/** `unit`: the nanoseconds of one. */
export function createNumberColumn(field: string, unit: bigint): TimeColumn {
  return {
    buildRangeQuery(from, to) {
      const [first, last] = [-floorDivide(-from, unit), floorDivide(to, unit)];
      const gte = first > longRange.from ? first : longRange.from;
      const lte = last < longRange.to ? last : longRange.to;
      return gte > lte ? matchNone : { range: { [field]: { gte: formatBound(gte), lte: formatBound(lte) } } };
    },
    buildSort: (order) => ({ [field]: { order, unmapped_type: "long" } }),
    toInstant: (sort) => (BigInt(sort) * unit) as Instant,
  };
}

/** Documents that no `date_nanos` can hold; a bound that one refuses is not in it. */
export function buildOutsideNanosQueries(field: string): readonly Query[] {
  return [
    { range: { [field]: { lt: printNanos(dateNanosRange.from), format } } },
    { range: { [field]: { gt: printNanos(dateNanosRange.to), format } } },
  ];
}

const format = "strict_date_optional_time_nanos";

export function buildDateRangeQuery(
  field: string,
  from: Instant | undefined,
  to: Instant,
  nanos: boolean,
): Query {
  // A server refuses a bound that a `date_nanos` cannot hold.
  if (nanos && (to < dateNanosRange.from || (from !== undefined && from > dateNanosRange.to)))
    return matchNone;
  const since =
    from === undefined ? {} : { gte: printNanos(nanos ? later(from, dateNanosRange.from) : from) };
  const lte = printNanos(nanos ? earlier(to, dateNanosRange.to) : to);
  return { range: { [field]: { ...since, lte, format } } };
}

/** A number where JSON has it: a text is read by the format of a date that another index has at the name. */
function formatBound(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}

function floorDivide(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor;
  return dividend % divisor < 0n ? quotient - 1n : quotient;
}
