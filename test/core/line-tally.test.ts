// Sums of counts of log lines.
import { expect, test } from "vitest";
import { addGroup, addLineCounts, createLineCounts } from "#src/core/line-tally.ts";

test("groups without their buckets are not added to those that have them", () => {
  const counts = createLineCounts(true);
  const more = createLineCounts(false);
  // Without groups there is nothing that buckets could lack.
  addLineCounts(counts, { ...more, total: 2 });
  expect(counts.total).toBe(2);
  addGroup(more, "a", new Map([[0, 3]]));
  expect(() => addLineCounts(counts, more)).toThrow("without their buckets");
  expect(counts.total).toBe(2);
});
