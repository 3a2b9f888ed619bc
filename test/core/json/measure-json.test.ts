import fc from "fast-check";
import { describe, expect, test } from "vitest";
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

describe("reads no more values than the limit has characters", () => {
  test.each([
    ["list", Array<number>(10_000).fill(1)],
    ["object", Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`k${at}`, 1]))],
  ])("of a long %s", (_, long) => {
    let read = 0;
    const counted = new Proxy(long, {
      get(target, key) {
        if (key !== "length") read += 1;
        return Reflect.get(target, key);
      },
    });
    expect(isLongerThan([counted, counted], 100)).toBe(true);
    expect(read).toBeLessThanOrEqual(100);
  });
});
