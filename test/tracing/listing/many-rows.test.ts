// Candidates are matched without holding the event loop up.
import { expect, test } from "vitest";
import type { TraceSummary } from "#src/core/rows.ts";
import type { TraceFilter } from "#src/store/span-analytics.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { createException, createSpan, listRows } from "../span-builder.ts";

const count = 90;
const requests = Array.from({ length: count }, (_, n) =>
  createSpan({
    trace_id: `t${n}`,
    to: 10 + n,
    namespace: "web",
    action: "A",
    events: [createException(5, "TypeError", "d")],
  }),
);
const query = parseTraceQuery("tag.a!=x tag.b!=x");

// Requests are matched twice. Of errors the entries are looked up too, and of digests the errors below each request.
test.each<[string, "requests" | "errors", TraceFilter, number]>([
  ["requests", "requests", { query }, 2],
  ["errors", "errors", { query }, 2],
  ["requests of a digest", "requests", { query, digests: ["d"] }, 6],
])("%s are matched in turns, row by row", async (_, candidates, filter, perRow) => {
  let rows: readonly TraceSummary[] = [];
  const turns = await countTurns(async () => {
    rows = await listRows(requests, { candidates, filter });
  });
  expect(rows.map(({ trace_id: id }) => id)).toEqual(requests.map(({ trace_id: id }) => id));
  expect(turns).toBeGreaterThanOrEqual(perRow * count);
});
