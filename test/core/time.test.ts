// A time that is taken from a client is told back to it, so what cannot be printed is not taken.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  endOfMilli,
  floorToMilli,
  fromMillis,
  type Instant,
  parseInstant,
  printInstant,
  printMillis,
  printNanos,
  toInclusiveEnd,
  toMillis,
} from "#src/core/time.ts";
import { sampleRuns } from "../support/law-runs.ts";

describe("a time that parseInstant accepts can be printed", () => {
  test.each([
    ["0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"],
    ["9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"],
    ["0000-01-01T23:59:00+23:59", "0000-01-01T00:00:00.000Z"],
  ])("%s", (text, printed) => {
    const instant = parseInstant(text);
    expect(instant === undefined ? undefined : printInstant(instant)).toBe(printed);
  });

  test.each(["0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59.5-00:01"])(
    "parseInstant refuses %s, which has no text in UTC",
    (text) => {
      expect(parseInstant(text)).toBeUndefined();
    },
  );
});

test("an instant is its milliseconds and a rest, also before 1970", () => {
  const rest = fc.oneof(fc.constantFrom(0, 1, 100, 120_000, 999_999), fc.integer({ min: 0, max: 999_999 }));
  const law = fc.property(fc.integer({ min: -1e13, max: 1e13 }), rest, (millis, nanos) => {
    const instant = (fromMillis(millis) + BigInt(nanos)) as Instant;
    expect(toMillis(instant)).toBe(millis);
    expect(floorToMilli(instant)).toBe(fromMillis(millis));
    expect(endOfMilli(instant)).toBe(fromMillis(millis) + 999_999n);
    const digits = String(nanos).padStart(6, "0");
    const text = new Date(millis).toISOString().slice(0, -1);
    expect(printMillis(millis)).toBe(`${text}Z`);
    expect(printNanos(instant)).toBe(`${text}${digits}Z`);
    expect(printInstant(instant)).toBe(`${text}${digits.replace(/0+$/, "")}Z`);
    expect(parseInstant(printInstant(instant))).toBe(instant);
  });
  fc.assert(law);
});

test.each([
  ["10:00:00Z", "10:00:00.000999999Z"],
  ["10:00:00.120Z", "10:00:00.120999999Z"],
  ["10:00:00.120000Z", "10:00:00.120999999Z"],
  ["10:00:00.1200001Z", "10:00:00.1200001Z"],
])("%s as the end of a range is %s", (written, end) => {
  const instant = parseInstant(`1969-07-20T${written}`);
  expect(instant && printInstant(toInclusiveEnd(instant))).toBe(`1969-07-20T${end}`);
});

test("an instant is printed correctly whatever was printed before it", () => {
  const distance = fc.oneof(
    fc.bigInt({ min: -(10n ** 16n), max: 10n ** 16n }),
    fc
      .tuple(fc.bigInt({ min: 0n, max: 9n * 10n ** 9n }), fc.constantFrom(-1n, 0n, 1n))
      .map(([millis, nanos]) => millis * 1_000_000n + nanos),
  );
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 1e13 }),
      fc.array(distance, { maxLength: 5 }),
      (millis, distances) => {
        for (const distance of [0n, ...distances]) {
          const instant = (fromMillis(millis) + distance) as Instant;
          expect(parseInstant(printNanos(instant))).toBe(instant);
        }
      },
    ),
    { numRuns: sampleRuns(1_000) },
  );
});

test.each([
  "2026-01-15T24:00:00Z",
  "2026-01-15T10:60:00Z",
  "2026-01-15T10:00:60Z",
  "2026-02-29T10:00:00Z",
  "2026-13-01T10:00:00Z",
  "2026-01-15T10:00:00+24:00",
  "2026-01-15T10:00:00+01:60",
  "2026-01-15T10:00:00",
  "2026-01-15",
  "2026-01-15T10:00:00.1234567891Z",
  "2026-01-15T10:00:00.Z",
  " 2026-01-15T10:00:00Z",
  "2026-01-15T10:00:00Z ",
  "1768471200",
])("parseInstant refuses %j", (text) => {
  expect(parseInstant(text)).toBeUndefined();
});
