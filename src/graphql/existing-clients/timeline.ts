// The timeline of a sample: the spans below its request, in the order in which they began.
import type { TraceSummary } from "../../core/rows.ts";
import { parseInstant } from "../../core/time.ts";
import type { Row } from "../../operations/link-operations.ts";
import type { Session } from "../../operations/runtime/session.ts";
import { prepareLinkedSpans } from "../../operations/trace-links.ts";
import { loadTogether } from "./batches.ts";

/** One event for each span, with its depth below the request. Times are milliseconds after the request began. */
export async function buildTimeline(session: Session, site: string, { trace_id, span_id }: TraceSummary) {
  const spans: readonly Row[] = await loadTogether(
    session,
    "PerformanceSample.timeline",
    site,
    trace_id,
    (traceIds) => {
      const prepared = prepareLinkedSpans(site, traceIds);
      return { ...prepared, run: async (context) => toLists(await prepared.run(context)) };
    },
  );
  const children = Map.groupBy(spans, (span) => String(span.parent_span_id));
  const request = spans.find((span) => span.span_id === span_id);
  if (request === undefined) return [];
  const begin = readNanos(request.start_time);
  const events: unknown[] = [];
  const seen = new Set<Row>();
  const waiting: { readonly span: Row; readonly level: number }[] = [{ span: request, level: 0 }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { span, level } = next;
    // Spans may name each other as parents.
    if (seen.has(span)) continue;
    seen.add(span);
    const below = children.get(String(span.span_id)) ?? [];
    events.push(toEvent(span, level, below, begin));
    for (const child of below.toReversed()) waiting.push({ span: child, level: level + 1 });
  }
  return events;
}

function toEvent(span: Row, level: number, below: readonly Row[], begin: bigint) {
  const duration = Number(span.duration);
  const time = Number(readNanos(span.start_time) - begin) / 1e6;
  const { "db.query.text": text, "db.statement": statement } = (span.span_attributes ?? {}) as Row;
  const body = text ?? statement;
  return {
    action: String(span.span_name),
    name: String(span.span_name),
    digest: String(span.digest),
    group: String(span.service_name),
    level,
    duration,
    time,
    end: time + duration,
    count: 1,
    wrapping: below.length > 0,
    childDuration: below.reduce((sum, child) => sum + Number(child.duration), 0),
    payload: typeof body === "string" ? { name: String(span.span_name), body } : null,
  };
}

function readNanos(time: unknown): bigint {
  return parseInstant(String(time)) ?? 0n;
}

function toLists(answer: unknown): readonly (readonly Row[])[] {
  return Array.isArray(answer) ? answer.map((rows) => (Array.isArray(rows) ? rows : [])) : [];
}
