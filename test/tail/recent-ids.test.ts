import { expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import type { Instant } from "#src/core/time.ts";
import { createRecentIds } from "#src/tail/recent-ids.ts";

const createLine = (time: bigint): LogLine => ({
  id: "i/1",
  time: time as Instant,
  source_id: "app",
  severity: "info",
  message: "",
  json: "{}",
});

test("a line is known by its id within its millisecond, as copies in two clusters are", () => {
  const seen = createRecentIds(10);
  seen.remember(createLine(1_000_000_400n), 1);
  expect(seen.find(createLine(1_000_000_900n))).toBe(1);
  expect(seen.find(createLine(1_005_000_400n))).toBeUndefined();
  seen.forget(2_000_000_000n as Instant);
  expect(seen.find(createLine(1_000_000_400n))).toBeUndefined();
});

test("more lines than the limit are refused, but not one that is known", () => {
  const seen = createRecentIds(1);
  seen.remember(createLine(0n), 1);
  expect(seen.remember(createLine(0n), 2)).toBe(1);
  expect(seen.isFull()).toBe(true);
  expect(() => seen.remember(createLine(5_000_000n), 3)).toThrow("More than 1 lines match");
});
