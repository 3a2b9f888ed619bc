import fc from "fast-check";
import { expect, test } from "vitest";
import { isLongerThan } from "#src/core/json/measure-json.ts";

/** Values whose text has no escapes. */
const plain = fc.letrec((tie) => ({
  value: fc.oneof(
    fc.stringMatching(/^[a-z]*$/),
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie("value")),
    fc.dictionary(fc.stringMatching(/^[a-z]+$/), tie("value")),
  ),
})).value;

test("is the length of the text, to a comma after each list", () => {
  fc.assert(
    fc.property(plain, (value) => {
      const text = JSON.stringify(value);
      const lists = text.match(/[[{]/g)?.length ?? 0;
      expect(isLongerThan(value, text.length - 1)).toBe(true);
      expect(isLongerThan(value, text.length + lists)).toBe(false);
    }),
  );
});
