// Exports the program's own spans to a collector: OTLP over HTTP, as JSON. It is one request; the libraries for it take
// more memory than everything else that a small server loads. The queue is bounded, spans that cannot be sent are dropped
// and counted, and no request waits for the collector.
import { randomUUID } from "node:crypto";
import type { OtlpConfig } from "../config/config.ts";
import type { Instant, Millis } from "../core/time.ts";
import type { LogEvent } from "../store/backend.ts";
import { buildOtlpUrl, type OtlpOutcome, postOtlp } from "./otlp-request.ts";
import { type Attributes, type FinishedSpan, type OwnSpan, runInSpan, startServerSpan } from "./tracer.ts";

/** The most spans in the queue, and in one request to the collector. */
const maxWaiting = 4_096;
const maxBatch = 512;
/** How long a span waits for others of its batch. */
const batchDelay: Millis = 1_000;

interface OtlpExporter {
  /** Starts the span of a request with these headers; undefined where tracing is not configured. */
  readonly startRequestSpan: (traceparent: string | null, tracestate: string | null) => OwnSpan | undefined;
  readonly configure: (config: OtlpConfig | undefined) => void;
  /** Sends the queue, for at most `grace`. What is left then is dropped and counted. */
  readonly close: (grace: Millis) => Promise<void>;
}

interface ExporterOptions {
  readonly config: OtlpConfig | undefined;
  readonly now: () => Instant;
  readonly log: (event: LogEvent) => void;
  /** The collector has taken this many spans, or they are lost. */
  readonly exported: (result: "sent" | "dropped", spans: number) => void;
}

/** The spans that wait for the collector, and the state of their sending. */
interface ExportQueue extends Omit<ExporterOptions, "config" | "now"> {
  config: OtlpConfig | undefined;
  readonly waiting: FinishedSpan[];
  timer: NodeJS.Timeout | undefined;
  sending: Promise<void> | undefined;
  /** Whether the collector took the last batch. */
  isReached: boolean;
  /** What the collector has warned of last. */
  warning: string | undefined;
  readonly instance: string;
  readonly closing: AbortController;
}

export function createOtlpExporter({ config, now, log, exported }: ExporterOptions): OtlpExporter {
  const queue: ExportQueue = {
    config,
    log,
    exported,
    waiting: [],
    timer: undefined,
    sending: undefined,
    isReached: true,
    warning: undefined,
    instance: randomUUID(),
    closing: new AbortController(),
  };
  const tracing = {
    now,
    shouldSample: () => Math.random() < (queue.config?.ratio ?? 0),
    onFinished: (span: FinishedSpan) => enqueue(queue, span),
  };
  return {
    startRequestSpan: (traceparent, tracestate) =>
      queue.config === undefined ? undefined : startServerSpan(tracing, traceparent, tracestate),
    configure(next) {
      queue.config = next;
      queue.isReached = true;
      if (next === undefined) dropWaiting(queue);
    },
    async close(grace) {
      const limit = setTimeout(() => queue.closing.abort(), grace);
      // Also what ends, or is left by a failed batch, while one is under way.
      while ((queue.waiting.length > 0 || queue.sending !== undefined) && !queue.closing.signal.aborted) {
        startSending(queue);
        await queue.sending;
      }
      clearTimeout(queue.timer);
      dropWaiting(queue);
      clearTimeout(limit);
      queue.config = undefined;
    },
  };
}

function dropWaiting({ waiting, exported }: ExportQueue): void {
  const dropped = waiting.splice(0).length;
  if (dropped > 0) exported("dropped", dropped);
}

function enqueue(queue: ExportQueue, span: FinishedSpan): void {
  if (queue.config === undefined) return;
  if (queue.waiting.length >= maxWaiting) {
    queue.exported("dropped", 1);
    return;
  }
  queue.waiting.push(span);
  if (queue.waiting.length >= maxBatch) startSending(queue);
  else scheduleSending(queue);
}

function scheduleSending(queue: ExportQueue): void {
  queue.timer ??= runInSpan(undefined, () => setTimeout(startSending, batchDelay, queue).unref());
}

/** Runs outside of any span: the export belongs to no trace, whichever request filled the batch. */
function startSending(queue: ExportQueue): void {
  clearTimeout(queue.timer);
  queue.timer = undefined;
  queue.sending ??= runInSpan(undefined, () => sendAll(queue)).finally(() => {
    queue.sending = undefined;
    if (queue.waiting.length > 0) scheduleSending(queue);
  });
}

/** Sends batches until the queue is empty or the collector fails. Never rejects. */
async function sendAll(queue: ExportQueue): Promise<void> {
  while (queue.waiting.length > 0 && queue.config !== undefined) {
    const batch = queue.waiting.splice(0, maxBatch);
    const { problem, rejected = batch.length, warning } = await sendBatch(queue, queue.config, batch);
    const dropped = problem === undefined ? 0 : Math.min(rejected, batch.length);
    if (dropped < batch.length) queue.exported("sent", batch.length - dropped);
    if (dropped > 0) queue.exported("dropped", dropped);
    if (problem !== undefined) {
      // Logged once, and not for each batch.
      if (queue.isReached) queue.log({ level: "warn", message: "traces cannot be sent", reason: problem });
      queue.isReached = false;
      return;
    }
    if (!queue.isReached) queue.log({ level: "info", message: "traces are sent again" });
    queue.isReached = true;
    if (warning !== undefined && warning !== queue.warning)
      queue.log({ level: "warn", message: "the collector of traces warns", reason: warning });
    queue.warning = warning;
  }
}

/** Sends a batch, once more where its connection was closed. */
async function sendBatch(...batch: Parameters<typeof postBatch>): Promise<OtlpOutcome> {
  const first = await postBatch(...batch);
  return first.isConnectionClosed === true ? postBatch(...batch) : first;
}

function postBatch(
  { instance, closing }: ExportQueue,
  { url, headers, service }: OtlpConfig,
  batch: readonly FinishedSpan[],
): Promise<OtlpOutcome> {
  const resource = { "service.name": service, "service.instance.id": instance };
  return postOtlp(buildOtlpUrl(url, "traces"), headers, toOtlpRequest(batch, resource), closing.signal);
}

const otlpKinds = { server: 2, client: 3 } as const;
const statusError = 2;

/** Builds an ExportTraceServiceRequest by OTLP's JSON mapping: ids in hex, 64-bit numbers as text. */
function toOtlpRequest(finished: readonly FinishedSpan[], resource: Attributes): object {
  const spans = finished.map(
    ({ traceId, id, parent, kind, name, startTime: begun, duration: took, attributes, failure: failed }) => ({
      traceId,
      spanId: id,
      ...(parent !== undefined && { parentSpanId: parent }),
      name,
      kind: otlpKinds[kind],
      startTimeUnixNano: String(begun),
      endTimeUnixNano: String(begun + BigInt(Math.round(took * 1_000_000))),
      attributes: toAttributes({ ...attributes, "error.type": failed }),
      status: failed === undefined ? {} : { code: statusError },
    }),
  );
  return {
    resourceSpans: [
      {
        resource: { attributes: toAttributes(resource) },
        scopeSpans: [{ scope: { name: "readout" }, spans }],
      },
    ],
  };
}

function toAttributes(attributes: Attributes): object[] {
  return Object.entries(attributes).flatMap(([key, value]) => {
    if (value === undefined) return [];
    return [{ key, value: typeof value === "number" ? { intValue: String(value) } : { stringValue: value } }];
  });
}
