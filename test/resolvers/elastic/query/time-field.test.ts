// Ranges of times as the columns of an index take them: dates, and numbers of a unit.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { matchNone } from "#resolvers/elastic/client/query-dsl.ts";
import { createDateColumn, createNumberColumn } from "#resolvers/elastic/query/time-field.ts";
import { fromMillis, type Instant, parseInstant } from "#src/core/time.ts";

describe("time range query", () => {
  test("matches nothing for a range outside of date_nanos", () => {
    const before = [parseInstant("1960-01-01T00:00:00Z"), parseInstant("1965-01-01T00:00:00Z")] as const;
    const after = [parseInstant("2300-01-01T00:00:00Z"), parseInstant("2301-01-01T00:00:00Z")] as const;
    for (const [from, to] of [before, after]) {
      if (from === undefined || to === undefined) throw new Error("no instant");
      expect(createDateColumn("at", true).buildRangeQuery(from, to)).toBe(matchNone);
      expect(createDateColumn("at", false).buildRangeQuery(from, to)).not.toBe(matchNone);
    }
  });

  test("matches numbers of a unit whose instant lies in the range, within the bounds of long", () => {
    const instant = fc.bigInt({ min: -(10n ** 20n), max: 10n ** 21n }).map((at) => at as Instant);
    const unit = fc.constantFrom(1n, 1_000n, 1_000_000n, 1_000_000_000n);
    const long = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
    fc.assert(
      fc.property(
        instant,
        fc.bigInt({ min: 0n, max: 10n ** 10n }),
        unit,
        long,
        fc.boolean(),
        (from, length, unit, any, near) => {
          const to = (from + length) as Instant;
          const value = near ? from / unit + (any % 3n) : any;
          if (BigInt.asIntN(64, value) !== value) return;
          const clock = createNumberColumn("at", unit);
          const { range } = clock.buildRangeQuery(from, to) as {
            range?: { at: { gte: number | string; lte: number | string } };
          };
          const [gte, lte] = range === undefined ? [1n, 0n] : [BigInt(range.at.gte), BigInt(range.at.lte)];
          expect(BigInt.asIntN(64, gte) === gte && BigInt.asIntN(64, lte) === lte).toBe(true);
          const at = clock.toInstant(String(value));
          expect(value >= gte && value <= lte).toBe(at >= from && at <= to);
        },
      ),
    );
  });

  test("sends numbers that no date can hold in no range, where another index has a date", () => {
    const [from, to] = [fromMillis(1_000), fromMillis(2_000)];
    const bounds = { default_field: "at", query: "[1000000 TO 2000000]", lenient: true };
    expect(createNumberColumn("at", 1_000n, true).buildRangeQuery(from, to)).toEqual({
      query_string: bounds,
    });
    const { range } = createNumberColumn("at", 1_000_000n, true).buildRangeQuery(from, to);
    expect(range).toEqual({ at: { gte: 1_000, lte: 2_000 } });
    expect(createNumberColumn("at", 1_000n, true).buildBeforeQuery(from)).toEqual({
      query_string: { ...bounds, query: "[* TO 999999]" },
    });
  });
});
