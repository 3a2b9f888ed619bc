// Steps on their way to a collector: OTLP over HTTP, as JSON. Written here because it is one request, and the libraries
// for it take more memory than all else that a small server has loaded. What waits is bounded, what cannot be sent is
// dropped and counted, and no request ever waits for a collector.
import { randomUUID } from "node:crypto";
import type { OtlpConfig } from "../config/config.ts";
import { formatErrorCode } from "../core/errors.ts";
import type { Instant, Millis } from "../core/time.ts";
import type { LogEvent } from "../store/backend.ts";
import { type Attributes, type FinishedSpan, type OwnSpan, runInSpan, startServerSpan } from "./tracer.ts";

/** Steps that wait, and those of one request to the collector. */
const maxWaiting = 4_096;
const maxBatch = 512;
/** How long a step waits for others, and the collector's answer is waited for. */
const batchDelay: Millis = 1_000;
const answerTimeout: Millis = 5_000;

interface OtlpExporter {
  /** The step of a request with these headers; undefined where no traces are configured. */
  readonly startRequestSpan: (traceparent: string | null, tracestate: string | null) => OwnSpan | undefined;
  readonly configure: (config: OtlpConfig | undefined) => void;
  /** Sends what waits, for at most `grace`. */
  readonly close: (grace: Millis) => Promise<void>;
}

interface ExporterOptions {
  readonly config: OtlpConfig | undefined;
  readonly now: () => Instant;
  readonly log: (event: LogEvent) => void;
  /** So many steps were taken by the collector, or are lost. */
  readonly exported: (result: "sent" | "dropped", steps: number) => void;
}

export function createOtlpExporter({ config: first, now, log, exported }: ExporterOptions): OtlpExporter {
  const instance = randomUUID();
  const closing = new AbortController();
  let config = first;
  let waiting: FinishedSpan[] = [];
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | undefined;
  let reached = true;

  const tracing = {
    now,
    shouldSample: () => Math.random() < (config?.ratio ?? 0),
    onFinished(step: FinishedSpan) {
      if (config === undefined) return;
      if (waiting.length >= maxWaiting) return exported("dropped", 1);
      waiting.push(step);
      if (waiting.length >= maxBatch) start();
      else schedule();
    },
  };

  function schedule(): void {
    timer ??= runInSpan(undefined, () => setTimeout(start, batchDelay).unref());
  }

  /** What is sent belongs to no trace, whoever's request was the last straw. */
  function start(): void {
    clearTimeout(timer);
    timer = undefined;
    sending ??= runInSpan(undefined, sendAll).finally(() => {
      sending = undefined;
      if (waiting.length > 0) schedule();
    });
  }

  /** Until nothing waits or the collector fails: then what waits has a pause. Never rejects. */
  async function sendAll(): Promise<void> {
    while (waiting.length > 0 && config !== undefined) {
      const batch = waiting.splice(0, maxBatch);
      const problem = await send(config, batch);
      exported(problem === undefined ? "sent" : "dropped", batch.length);
      if (problem !== undefined) {
        // Once, and not for each batch of a collector that is away.
        if (reached) log({ level: "warn", message: "traces cannot be sent", reason: problem });
        reached = false;
        return;
      }
      if (!reached) log({ level: "info", message: "traces are sent again" });
      reached = true;
    }
  }

  /** What went wrong, if anything did. */
  async function send(
    { url, headers, service }: OtlpConfig,
    batch: readonly FinishedSpan[],
  ): Promise<string | undefined> {
    try {
      const answer = await fetch(`${url.replace(/\/+$/, "")}/v1/traces`, {
        method: "POST",
        headers: { ...headers, "content-type": "application/json" },
        body: JSON.stringify(
          toOtlpRequest(batch, { "service.name": service, "service.instance.id": instance }),
        ),
        redirect: "error",
        signal: AbortSignal.any([closing.signal, AbortSignal.timeout(answerTimeout)]),
      });
      await answer.arrayBuffer();
      return answer.ok ? undefined : `status ${answer.status}`;
    } catch (error) {
      const cause = error instanceof Error ? (error.cause ?? error) : error;
      return `no answer${formatErrorCode(cause)}`;
    }
  }

  return {
    startRequestSpan: (traceparent, tracestate) =>
      config === undefined ? undefined : startServerSpan(tracing, traceparent, tracestate),
    configure(next) {
      config = next;
      reached = true;
      if (next === undefined) waiting = [];
    },
    async close(grace) {
      const limit = setTimeout(() => closing.abort(), grace);
      if (waiting.length > 0) start();
      await sending;
      clearTimeout(timer);
      clearTimeout(limit);
      config = undefined;
    },
  };
}

const otlpKinds = { server: 2, client: 3 } as const;
const statusError = 2;

/** An ExportTraceServiceRequest: ids in hex, 64-bit numbers as text, all else as OTLP's JSON mapping has it. */
function toOtlpRequest(steps: readonly FinishedSpan[], resource: Attributes): object {
  const spans = steps.map(
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
