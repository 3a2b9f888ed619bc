// Bounds of times that a `date` can hold and a `date_nanos` cannot. A pattern may have both types, and each index parses all
// bounds, whichever indices the clause is for.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Query } from "#resolvers/elastic/client/query-dsl.ts";
import { buildCertainEndTimeQuery } from "#resolvers/elastic/query/span-lower-bounds.ts";
import { buildEndTimeQuery, buildTimeBoundsQuery } from "#resolvers/elastic/query/span-times.ts";
import { allTime, floorToMilli, type Instant, parseInstant, type TimeRange } from "#src/core/time.ts";
import { hits, placed } from "../../../support/elastic/span-queries.ts";
import { dataPrepper } from "../../../support/elastic/span-shippers/data-prepper.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const spans = {
  "a start of type date": placed(otel),
  "a start of type date_nanos": placed(otel, { "@timestamp": { type: "date_nanos" } }),
  "an end of type date": placed(dataPrepper, { startTime: { type: "date" }, endTime: { type: "date" } }),
};
const cases = Object.entries(spans);

const parse = (text: string): Instant => {
  const instant = parseInstant(text);
  if (instant === undefined) throw new Error(`no instant: ${text}`);
  return instant;
};
const [first, last] = [parse("0001-01-01T00:00:00Z"), parse("9999-12-31T23:59:59.999Z")];
const day = 86_400_000_000_000n;

function listBounds(query: Query): readonly Instant[] {
  return [...JSON.stringify(query).matchAll(/"[gl]te?":"(\d{4}-[^"]+)"/g)].map(([, text]) =>
    parse(text ?? ""),
  );
}

/** Near the ends of what nanoseconds can hold, or anywhere. */
const instant = fc
  .oneof(
    fc.bigInt({ min: first, max: last }),
    fc.bigInt({ min: -120n * day, max: 120n * day }),
    fc.bigInt({ min: allTime.to - 120n * day, max: allTime.to + 120n * day }),
    fc.constantFrom(allTime.from, allTime.to, first, last),
  )
  .map((nanos) => nanos as Instant);
const range = fc
  .tuple(instant, instant)
  .map(([a, b]): TimeRange => (a < b ? { from: a, to: b } : { from: b, to: a }));

describe("times beyond what nanoseconds can hold", () => {
  test.each(cases)("are in no bound that is sent: %s", (_, form) => {
    fc.assert(
      fc.property(range, (range) => {
        const bounds = [
          buildEndTimeQuery(form, range),
          buildTimeBoundsQuery(form, form.form.start, undefined, range.to),
          buildCertainEndTimeQuery(form, range),
        ].flatMap(listBounds);
        expect(bounds.filter((bound) => bound < allTime.from || bound > allTime.to)).toEqual([]);
      }),
      { numRuns: sampleRuns(500) },
    );
  });

  test.each(cases)("are found, and are not certain where they may lie outside: %s", (_, form) => {
    const length = fc.oneof(fc.constant(0n), fc.bigInt({ min: 0n, max: 130n * day }));
    fc.assert(
      fc.property(range, instant, length, (range, end, duration) => {
        const start = end - duration;
        const isNanos = form === spans["a start of type date_nanos"];
        fc.pre(!isNanos || (start >= allTime.from && end <= allTime.to));
        const toColumn = (time: bigint) => (isNanos ? time : floorToMilli(time as Instant));
        const fields = {
          "@timestamp": toColumn(start),
          startTime: toColumn(start),
          endTime: toColumn(end),
          duration,
          durationInNanos: duration,
        };
        const isInside = end >= range.from && end <= range.to;
        if (isInside) expect(hits(buildEndTimeQuery(form, range), fields)).toBe(true);
        else expect(hits(buildCertainEndTimeQuery(form, range), fields)).toBe(false);
      }),
      { numRuns: sampleRuns(2_000) },
    );
  });

  test.each(cases)("leave all other bounds as narrow as they are: %s", (_, form) => {
    const within = { from: parse("2026-01-15T00:00:00Z"), to: parse("2026-01-15T01:00:00Z") };
    const isHit = (text: string) => {
      const time = parse(text);
      const times = { "@timestamp": time, startTime: time, endTime: time };
      return hits(buildEndTimeQuery(form, within), { ...times, duration: 0n, durationInNanos: 0n });
    };
    expect(["2026-01-14T23:59:59Z", "2026-01-15T00:30:00Z", "2026-01-15T01:00:01Z"].map(isHit)).toEqual([
      false,
      true,
      false,
    ]);
  });
});
