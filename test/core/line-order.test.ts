import { expect, test } from "vitest";
import { mergeStreams } from "#src/core/line-order.ts";
import type { LogLine } from "#src/core/rows.ts";
import type { Instant } from "#src/core/time.ts";

const lineAt = (milli: number): LogLine => ({
  id: `line ${milli}`,
  time: (BigInt(milli) * 1_000_000n) as Instant,
  source_id: "app",
  severity: "info",
  json: "{}",
});

async function* stream(...batches: readonly (readonly number[])[]): AsyncGenerator<readonly LogLine[]> {
  for (const millis of batches) yield millis.map(lineAt);
}

test.each([
  ["before other lines", [stream([], [1], [5]), stream([2], [3], [4])]],
  ["between lines", [stream([1], [], [], [3], [5]), stream([2, 4])]],
  ["in every stream", [stream([], [1, 3]), stream([], [2], [], [4, 5], [])]],
])("merges streams with empty batches %s", async (_, streams) => {
  const merged: LogLine[] = [];
  for await (const lines of mergeStreams(streams, "asc")) merged.push(...lines);
  expect(merged).toEqual([1, 2, 3, 4, 5].map(lineAt));
});
