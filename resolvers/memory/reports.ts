// Front-end error reports in memory: they are spans like others, held where the traces of the same index are.
import type { ReportStore } from "../../src/store.ts";
import type { MemorySpans } from "./spans.ts";

export function createMemoryReports(spans: MemorySpans): ReportStore {
  // Of the indices that were written to, so that a second delivery changes nothing.
  const written = new Map<string, Set<string>>();
  return {
    async deliver({ index }, reports) {
      const known = written.get(index) ?? new Set();
      written.set(index, known);
      const fresh = reports.filter(({ trace_id }) => !known.has(trace_id));
      for (const { trace_id } of fresh) known.add(trace_id);
      spans.add(index, fresh);
      return new Map();
    },
  };
}
