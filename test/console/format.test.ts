// Figures and texts for people: a figure is in the unit that it is shown to need, and a time in the zone that it is of.
import { afterEach, describe, expect, test } from "vitest";
import { formatDuration, formatRange, printVisible, setZone } from "#src/console/base/format.js";

test("a duration never reaches the next unit by being rounded", () => {
  const texts = [0.0004, 0.9994, 0.9996, 1, 9.994, 9.996, 10, 999.4, 999.6, 59_994, 59_996, 119_600];
  expect(texts.map(formatDuration)).toEqual([
    "0 µs",
    "999 µs",
    "1.00 ms",
    "1.00 ms",
    "9.99 ms",
    "10 ms",
    "10 ms",
    "999 ms",
    "1.00 s",
    "59.99 s",
    "1 min 0 s",
    "2 min 0 s",
  ]);
  for (let millis = 0.01; millis < 200_000; millis *= 1.0003)
    expect(formatDuration(millis)).not.toMatch(/^(?:1000 |10\.00 ms|60\.00 s|\d+ min 60)/);
});

describe("a range in the zone of the browser", () => {
  const zone = process.env.TZ;
  afterEach(() => {
    setZone("utc");
    if (zone === undefined) delete process.env.TZ;
    else process.env.TZ = zone;
  });

  test("tells both offsets where the clocks are changed within it", () => {
    process.env.TZ = "Europe/Berlin";
    setZone("local");
    expect(formatRange("2026-03-28T23:30:00Z", "2026-03-29T03:00:00Z")).toBe(
      "2026-03-29 00:30:00 +01:00 – 05:00:00 +02:00",
    );
    expect(formatRange("2026-03-29T02:00:00Z", "2026-03-29T03:00:00Z")).toBe(
      "2026-03-29 04:00:00 – 05:00:00 +02:00",
    );
  });
});

test("a text without elements has nothing that nobody sees", () => {
  expect(printVisible("shop\u202egnp.\ud800")).toBe("shopU+202Egnp.\ufffd");
});
