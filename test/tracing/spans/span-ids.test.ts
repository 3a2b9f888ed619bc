import fc from "fast-check";
import { expect, test } from "vitest";
import { normaliseId } from "#src/tracing/spans/span-ids.ts";

test.each([
  ["AB", `${"0".repeat(30)}ab`],
  ["0af7651916cd43dd", `${"0".repeat(16)}0af7651916cd43dd`],
  ["4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4736"],
  ["12", `${"0".repeat(30)}12`],
  ["4BF92F3577B34DA6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4736"],
  ["aB3dE12f", "aB3dE12f"],
  ["V1StGXR8_Z5jdHi6B-myT", "V1StGXR8_Z5jdHi6B-myT"],
  ["", ""],
])("normaliseId maps trace id %s to %s", (text, id) => {
  expect(normaliseId(text, 32)).toBe(id);
});

test("normaliseId maps every spelling of a number to one id", () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      fc.nat(16),
      fc.boolean(),
      (number, zeros, upper) => {
        const padded = number.toString(16).padStart(zeros, "0");
        const id = normaliseId(upper ? padded.toUpperCase() : padded, 16);
        expect(id).toBe(number.toString(16).padStart(16, "0"));
        expect(normaliseId(id, 16)).toBe(id);
      },
    ),
  );
});

test("normaliseId keeps other texts and short mixed-case ids apart", () => {
  const digits = fc.stringMatching(/^[0-9a-fA-F]{0,29}$/).map((rest) => `aB${rest}`);
  const text = fc.stringMatching(/^[0-9a-zA-Z_-]*$/).map((rest) => `${rest}-g`);
  fc.assert(
    fc.property(fc.oneof(digits, text), (id) => {
      expect(normaliseId(id, 32)).toBe(id);
    }),
  );
});
