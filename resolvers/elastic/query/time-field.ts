// The time field of a layout group: the range query that bounds lines by it, the sort, and the instant behind a sort value.
// A document with several times is sorted by the least of them in both orders. A range finds it by any.
// A sort value is milliseconds of a `date`, nanoseconds of a `date_nanos` or where both types meet, or a whole number of
// the layout's unit.
import {
  allTime,
  earlier,
  floorToMilli,
  fromMillis,
  type Instant,
  later,
  nanosPerMilli,
  printNanos,
} from "../../../src/core/time.ts";
import { matchNone, type Query } from "../client/query-dsl.ts";

/** The instants that a `date_nanos` field can hold. */
export const dateNanosRange = allTime;

/** The integers that a `long` field can hold. */
const longRange = { from: -(2n ** 63n), to: 2n ** 63n - 1n };

export interface TimeColumn {
  /** Whether it sorts by nanoseconds, which a server rejects where a document that is found has a `date` before 1970. */
  readonly sortsNanos: boolean;
  /** Finds all documents in the range, and those that the index rounds into it. Bounds are inclusive. */
  buildRangeQuery(from: Instant, to: Instant): Query;
  /** Finds all documents with a time in a millisecond before that of the instant. */
  buildBeforeQuery(instant: Instant): Query;
  buildSort(order: "asc" | "desc"): object;
  /** `sort` is the text of an integer. */
  toInstant(buildSort: string): Instant;
}

/** `nanos`: whether any index of the pattern maps the field as `date_nanos`. */
export function createDateColumn(field: string, nanos: boolean): TimeColumn {
  const buildQuery = nanos ? buildNanosRangeQuery : buildDateRangeQuery;
  return {
    sortsNanos: nanos,
    buildRangeQuery: (from, to) => buildQuery(field, from, to),
    buildBeforeQuery: (instant) => buildQuery(field, undefined, (floorToMilli(instant) - 1n) as Instant),
    buildSort: (order) => ({
      [field]: {
        order,
        mode: "min",
        unmapped_type: "date",
        ...(nanos ? { numeric_type: "date_nanos" } : {}),
      },
    }),
    toInstant: (sort) => (nanos ? (BigInt(sort) as Instant) : fromMillis(Number(sort))),
  };
}

/** A column of whole numbers, each of `unit` nanoseconds. `isAlsoDate`: whether an index of the pattern maps the field as a date. */
export function createNumberColumn(field: string, unit: bigint, isAlsoDate = false): TimeColumn {
  // Such an index reads whole milliseconds and seconds as dates that it can hold.
  const build = isAlsoDate && unit < nanosPerMilli ? buildTolerantRangeQuery : buildNumberRangeQuery;
  return {
    sortsNanos: false,
    buildRangeQuery(from, to) {
      const [first, last] = [-roundDownQuotient(-from, unit), roundDownQuotient(to, unit)];
      const gte = first > longRange.from ? first : longRange.from;
      const lte = last < longRange.to ? last : longRange.to;
      return gte > lte ? matchNone : build(field, gte, lte);
    },
    buildBeforeQuery(instant) {
      const last = roundDownQuotient(floorToMilli(instant) - 1n, unit);
      const lte = last < longRange.to ? last : longRange.to;
      return lte < longRange.from ? matchNone : build(field, undefined, lte);
    },
    buildSort: (order) => ({ [field]: { order, mode: "min", unmapped_type: "long" } }),
    toInstant: (sort) => (BigInt(sort) * unit) as Instant,
  };
}

function buildNumberRangeQuery(field: string, gte: bigint | undefined, lte: bigint): Query {
  const since = gte === undefined ? {} : { gte: formatBound(gte) };
  return { range: { [field]: { ...since, lte: formatBound(lte) } } };
}

/**
 * A range of numbers, for patterns where another index maps the field as a date. That index parses the bounds too, as milliseconds
 * or by its `format`, and fails a search whose `range` it cannot hold. Here it matches nothing instead. So does an index of
 * numbers that cannot hold a bound: the caller sends none of these.
 */
export function buildTolerantRangeQuery(field: string, gte: bigint | undefined, lte: bigint): Query {
  return { query_string: { default_field: field, query: `[${gte ?? "*"} TO ${lte}]`, lenient: true } };
}

/** Documents whose time no `date_nanos` can hold. The bounds themselves can, so that no index rejects them. */
export function buildOutsideNanosQueries(field: string): readonly Query[] {
  return [
    { range: { [field]: { lt: printNanos(dateNanosRange.from), format } } },
    { range: { [field]: { gt: printNanos(dateNanosRange.to), format } } },
  ];
}

const format = "strict_date_optional_time_nanos";

/** `buildDateRangeQuery` with bounds that a `date_nanos` can hold: a server rejects others. */
function buildNanosRangeQuery(field: string, from: Instant | undefined, to: Instant): Query {
  if (to < dateNanosRange.from || (from !== undefined && from > dateNanosRange.to)) return matchNone;
  const since = from === undefined ? undefined : later(from, dateNanosRange.from);
  return buildDateRangeQuery(field, since, earlier(to, dateNanosRange.to));
}

/** Both bounds are inclusive; an undefined one is open. */
export function buildDateRangeQuery(
  field: string,
  from: Instant | undefined,
  to: Instant | undefined,
): Query {
  if (from === undefined && to === undefined) return { exists: { field } };
  const since = from === undefined ? {} : { gte: printNanos(from) };
  const until = to === undefined ? {} : { lte: printNanos(to) };
  return { range: { [field]: { ...since, ...until, format } } };
}

/** A number where JSON can express it: a text would be parsed by the date format of another index with the same name. */
function formatBound(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}

function roundDownQuotient(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor;
  return dividend % divisor < 0n ? quotient - 1n : quotient;
}
