// Front-end error reports in memory: they are spans like others, held where the traces of the same index are.

import type { Instant } from "../../../src/core/time.ts";
import type { ErrorReportStore } from "../../../src/store/error-reports.ts";
import type { MemorySpans } from "./span-store.ts";

interface MemoryReports extends ErrorReportStore {
  /** Forgets reports of errors before this instant. */
  readonly forget: (before: Instant) => void;
}

export function createMemoryReports(spans: MemorySpans): MemoryReports {
  // Of each index, the ids of what was delivered, with their times: a second delivery changes nothing.
  const written = new Map<string, Map<string, Instant>>();
  return {
    async deliver({ index }, reports) {
      const known = written.get(index) ?? new Map<string, Instant>();
      written.set(index, known);
      const fresh = reports.filter(({ trace_id }) => !known.has(trace_id));
      for (const { trace_id, end } of fresh) known.set(trace_id, end);
      spans.add(index, fresh);
      return new Map();
    },
    forget(before) {
      for (const [index, known] of written) {
        for (const [id, end] of known) if (end < before) known.delete(id);
        spans.forget(index, before);
      }
    },
  };
}
