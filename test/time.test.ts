// A time that is taken from a client is told back to it, so what cannot be printed is not taken.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Instant, parseInstant, printInstant, printMillis, printNanos, toMillis } from "#src/time.ts";

describe("a time that is read can be printed", () => {
  test.each([
    ["0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"],
    ["9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"],
    ["0000-01-01T23:59:00+23:59", "0000-01-01T00:00:00.000Z"],
  ])("%s", (text, printed) => {
    const instant = parseInstant(text);
    expect(instant === undefined ? undefined : printInstant(instant)).toBe(printed);
  });

  test.each(["0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59.5-00:01"])("%s has no text in UTC", (text) => {
    expect(parseInstant(text)).toBeUndefined();
  });
});

const year = 366n * 86_400_000_000_000n;
/** Whole seconds, milliseconds and microseconds among them, before 1970 as well. */
const instants = fc
  .tuple(fc.bigInt(-1_900n * year, 8_000n * year), fc.constantFrom(1n, 1_000n, 1_000_000n, 1_000_000_000n))
  .map(([nanos, unit]) => (nanos - (nanos % unit)) as Instant);

test("a time is printed with the digits that it has, at least three", () => {
  fc.assert(
    fc.property(instants, (instant) => {
      const text = printInstant(instant);
      expect(text).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:\d{0,5}[1-9])?Z$/);
      expect(parseInstant(text)).toBe(instant);
      expect(printNanos(instant)).toBe(`${text.slice(0, -1).padEnd(29, "0")}Z`);
      expect(printMillis(toMillis(instant))).toBe(new Date(toMillis(instant)).toISOString());
    }),
  );
});
