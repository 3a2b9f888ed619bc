// What a request holds is counted over its parts, and a part may be released before the rest.
import { expect, test } from "vitest";
import { createHeldBytes, measureHeld } from "#src/core/held-bytes.ts";

test("parts count for one request until they are released", () => {
  const held = createHeldBytes(100);
  const first = held.openPart();
  const second = held.openPart();
  first.hold(60);
  expect(() => second.hold(41)).toThrowError("more than 100 bytes of documents");
  second.hold(40);
  first.release();
  first.release();
  held.hold(60);
  expect(() => held.hold(1)).toThrowError("more than 100 bytes");
});

test("a part is released with what it is a part of, and counts nothing after that", () => {
  const held = createHeldBytes(100);
  const operation = held.openPart();
  const lines = operation.openPart();
  lines.hold(50);
  operation.hold(50);
  operation.release();
  lines.hold(50);
  lines.release();
  held.hold(100);
  expect(() => held.hold(1)).toThrowError("more than 100 bytes");
});

test("measures the text of a value however deep it lies, and each value beside it", () => {
  expect(measureHeld("é".repeat(100))).toBe(224);
  expect(measureHeld({ a: ["x", "y"], b: undefined, c: null })).toBe(24 * 5 + 2);
  let deep: unknown = "x".repeat(1_000);
  for (let at = 0; at < 100_000; at += 1) deep = [deep];
  expect(measureHeld(deep)).toBe(24 * 100_001 + 1_000);
});
