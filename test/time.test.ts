// A time that is taken from a client is told back to it, so what cannot be printed is not taken.
import { describe, expect, test } from "vitest";
import { parseInstant, printInstant } from "#src/time.ts";

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
