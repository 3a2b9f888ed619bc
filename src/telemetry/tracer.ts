// The program's own traces: in which step of which trace its work is done. A step is what others call a span; here
// that word means the rows that users ask for. As with what records (`explain.ts`) the step is ambient, so that no
// contract has to hand it on, and where nobody traces, the one look-up for each request to a source is all it costs.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import type { Instant, Millis } from "../core/time.ts";

export type Attributes = Readonly<Record<string, string | number | undefined>>;

export interface OwnSpan {
  /** W3C Trace Context: what continues the trace in whoever is asked within this step. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whether anybody will see it. */
  readonly sampled: boolean;
  /** A step within this one: a request that is sent to somebody else. */
  startChild(): OwnSpan;
  /** Only the first end counts. `failed` names the kind of failure. */
  end(name: string, attributes: Attributes, failed?: string): void;
}

/** A step as it is exported. Ids are lower-case hex. */
export interface FinishedSpan {
  readonly traceId: string;
  readonly id: string;
  readonly parent: string | undefined;
  /** A request that was answered, or one that was sent. */
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

/** Runs the work, and whatever it begins, within the step; without one, outside of any. */
export function runInSpan<T>(step: OwnSpan | undefined, work: () => T): T {
  return step === currentSpans.getStore() ? work() : currentSpans.run(step, work);
}

/** Headers for whoever is asked now. */
export function readTraceContextHeaders(): Readonly<Record<string, string>> {
  return currentSpans.getStore()?.headers ?? {};
}

interface TracingOptions {
  readonly now: () => Instant;
  /** Whether a trace that begins here is seen; one that a client began keeps to what the client says. */
  readonly shouldSample: () => boolean;
  readonly onFinished: (step: FinishedSpan) => void;
}

/** The step of a request: in the trace that its headers name, or in a new one. */
export function startServerSpan(
  tracing: TracingOptions,
  traceparent: string | null,
  tracestate: string | null,
): OwnSpan {
  const parent = readTraceparent(traceparent);
  // Only what belongs to a trace that is continued, and what may stand in a header as it is.
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
  let over = !sampled;
  return {
    headers: {
      traceparent: `00-${traceId}-${id}-${sampled ? "01" : "00"}`,
      ...(state !== undefined && { tracestate: state }),
    },
    sampled,
    startChild: () => startSpan(tracing, trace, id, "client"),
    end(name, attributes, failed) {
      if (over) return;
      over = true;
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

/** W3C Trace Context, 3.2: a later version may have more parts, version 00 has none; ids of zeros are no ids. */
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
