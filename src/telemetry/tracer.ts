// Traces of the program itself, by W3C Trace Context. `OwnSpan` is a span of Readout's own work; `Span` elsewhere is a row
// that users read. The current span is ambient (`AsyncLocalStorage`), so that no method of a store has to pass it on.
// Without tracing it costs one look-up for each backend request.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import type { Instant, Millis } from "../core/time.ts";

export type Attributes = Readonly<Record<string, string | number | undefined>>;

export interface OwnSpan {
  /** W3C Trace Context: the headers of requests that are sent within this span, which continue its trace. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whether it will be exported. */
  readonly sampled: boolean;
  /** Starts a span within this one, for a request that is sent to another server. */
  startChild(): OwnSpan;
  /** Ends it; further calls have no effect. `failed` names the kind of failure. */
  end(name: string, attributes: Attributes, failed?: string): void;
}

/** A span as it is exported. Ids are lower-case hex. */
export interface FinishedSpan {
  readonly traceId: string;
  readonly id: string;
  readonly parent: string | undefined;
  /** `server` for a request that was answered, `client` for one that was sent. */
  readonly kind: "server" | "client";
  readonly name: string;
  readonly startTime: Instant;
  readonly duration: Millis;
  readonly attributes: Attributes;
  readonly failure: string | undefined;
}

const currentSpans = new AsyncLocalStorage<OwnSpan | undefined>();

export function findCurrentSpan(): OwnSpan | undefined {
  return currentSpans.getStore();
}

/** Runs the work, and all asynchronous work that it begins, in the span, or outside of any. */
export function runInSpan<T>(span: OwnSpan | undefined, work: () => T): T {
  return span === currentSpans.getStore() ? work() : currentSpans.run(span, work);
}

/** The trace context headers of a request that is sent now. */
export function readTraceContextHeaders(): Readonly<Record<string, string>> {
  return currentSpans.getStore()?.headers ?? {};
}

interface TracingOptions {
  readonly now: () => Instant;
  /** Decides whether a trace that begins here is sampled; for one that a client began, the client decides. */
  readonly shouldSample: () => boolean;
  readonly onFinished: (span: FinishedSpan) => void;
}

/** Starts the span of a request: in the trace that its headers name, or in a new one. */
export function startServerSpan(
  tracing: TracingOptions,
  traceparent: string | null,
  tracestate: string | null,
): OwnSpan {
  const parent = readTraceparent(traceparent);
  // Only the state of a trace that is continued, and only characters that are valid in a header.
  const state =
    parent && tracestate !== null && /^[\x20-\x7e]{1,512}$/.test(tracestate) ? tracestate : undefined;
  const traceId = parent?.traceId ?? generateId(16);
  const sampled = parent?.sampled ?? tracing.shouldSample();
  return startSpan(tracing, { traceId, sampled, state }, parent?.id, "server");
}

interface TraceContext {
  readonly traceId: string;
  readonly sampled: boolean;
  readonly state: string | undefined;
}

function startSpan(
  tracing: TracingOptions,
  trace: TraceContext,
  parent: string | undefined,
  kind: FinishedSpan["kind"],
): OwnSpan {
  const { traceId, sampled, state } = trace;
  const id = generateId(8);
  const begun = tracing.now();
  const started = performance.now();
  let isEnded = !sampled;
  return {
    headers: {
      traceparent: `00-${traceId}-${id}-${sampled ? "01" : "00"}`,
      ...(state !== undefined && { tracestate: state }),
    },
    sampled,
    startChild: () => startSpan(tracing, trace, id, "client"),
    end(name, attributes, failed) {
      if (isEnded) return;
      isEnded = true;
      const took = performance.now() - started;
      tracing.onFinished({
        traceId,
        id,
        parent,
        kind,
        name,
        startTime: begun,
        duration: took,
        attributes,
        failure: failed,
      });
    },
  };
}

/** W3C Trace Context, 3.2: only later versions than 00 may have more parts; ids of zeros are invalid. */
function readTraceparent(
  header: string | null,
): { traceId: string; id: string; sampled: boolean } | undefined {
  const [, version, traceId = "", id = "", flags = "", more] =
    /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(header ?? "") ?? [];
  if (version === undefined || version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(id)) return undefined;
  return { traceId, id, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

function generateId(bytes: number): string {
  return randomBytes(bytes).toString("hex");
}
