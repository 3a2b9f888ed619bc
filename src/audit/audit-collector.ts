// The audit log at a collector: OTLP over HTTP, as JSON. Lines wait in a bounded queue and are sent again until the collector
// takes them. What waits when the program is killed is lost, which no later start can count.
import { setTimeout as sleep } from "node:timers/promises";
import type { AuditConfig } from "../config/edge-settings.ts";
import { type Millis, second } from "../core/time.ts";
import { buildOtlpUrl, postOtlp } from "../telemetry/otlp-request.ts";
import { type AuditLine, type AuditSink, LineRejected } from "./audit-log.ts";

/** The most lines in the queue; over it they are refused as by a full disk. */
const maxWaiting = 10_000;
const maxBatch = 512;
/** How long lines wait for others of their batch, where answers do not wait for them. */
const batchDelay: Millis = second;
const retryDelay: Millis = second;
/** How long the last lines may take. */
const closeTimeout: Millis = 5 * second;

interface WaitingLine extends AuditLine {
  readonly signal: AbortSignal;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

interface CollectorState extends Omit<AuditCollectorOptions, "otlp" | "sync"> {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  waiting: WaitingLine[];
  /** How many of them, from the first on, are under way to the collector. */
  sent: number;
  sending: Promise<void> | undefined;
  /** What the collector has warned of last. */
  warning: string | undefined;
  timer: NodeJS.Timeout | undefined;
  readonly closing: AbortController;
}

export interface AuditCollectorOptions extends Pick<AuditConfig, "sync"> {
  readonly otlp: NonNullable<AuditConfig["otlp"]>;
  /** Called with each failure to send. */
  readonly onFailure: (problem: string) => void;
  /** Called with the number of lines that the collector will never take. */
  readonly onRejected: (lines: number, problem: string) => void;
  /** Called where the collector takes lines and says something of them, once while it says the same. */
  readonly onWarning: (warning: string) => void;
}

/** Lines are appended when they are in the queue; with `sync: always` when the collector has taken them. */
export function createAuditCollector({ otlp, sync, ...told }: AuditCollectorOptions): AuditSink {
  const state: CollectorState = {
    ...told,
    url: buildOtlpUrl(otlp.url, "logs"),
    headers: otlp.headers,
    waiting: [],
    sent: 0,
    sending: undefined,
    warning: undefined,
    timer: undefined,
    closing: new AbortController(),
  };
  const start = () => {
    clearTimeout(state.timer);
    state.timer = undefined;
    state.sending ??= sendAll(state).finally(() => {
      state.sending = undefined;
      if (state.waiting.length > 0 && !state.closing.signal.aborted) schedule(retryDelay);
    });
  };
  const schedule = (delay: Millis) => {
    state.timer ??= setTimeout(start, delay).unref();
  };
  return {
    append: (line, at, signal) => {
      if (state.waiting.length >= maxWaiting)
        return Promise.reject(new Error("the collector takes no lines"));
      return new Promise((resolve, reject) => {
        const entry: WaitingLine = { line, at, signal, resolve, reject };
        state.waiting.push(entry);
        signal.addEventListener("abort", () => withdrawLine(state, entry), { once: true });
        if (sync === "always" || state.waiting.length >= maxBatch) start();
        else schedule(batchDelay);
        if (sync !== "always") resolve();
      });
    },
    reopen: () => {},
    close: async () => {
      const limit = setTimeout(() => state.closing.abort(), closeTimeout);
      const { signal } = state.closing;
      while (state.waiting.length > 0 && !signal.aborted) {
        start();
        await state.sending;
        if (state.waiting.length > 0) await sleep(retryDelay, undefined, { signal }).catch(() => {});
      }
      clearTimeout(limit);
      clearTimeout(state.timer);
      const left = state.waiting.splice(0);
      if (sync !== "always") return left;
      for (const { reject } of left) reject(new Error("the collector takes no lines"));
      return [];
    },
  };
}

/** Sends batches until the queue is empty or the collector fails. Never rejects. */
async function sendAll(state: CollectorState): Promise<void> {
  const { url, headers, closing, onFailure, onRejected } = state;
  while (state.waiting.length > 0) {
    const batch = state.waiting.slice(0, maxBatch);
    state.sent = batch.length;
    const request = toOtlpRequest(batch);
    const { problem, rejected, warning } = await postOtlp(url, headers, request, closing.signal);
    state.sent = 0;
    if (problem !== undefined && rejected === undefined) {
      for (const entry of batch) if (entry.signal.aborted) withdrawLine(state, entry);
      return onFailure(problem);
    }
    state.waiting.splice(0, batch.length);
    if (problem !== undefined) onRejected(Math.min(rejected ?? 0, batch.length), problem);
    tellWarning(state, warning);
    for (const { resolve, reject } of batch) {
      if (problem === undefined) resolve();
      else reject(new LineRejected(problem));
    }
  }
}

function tellWarning(state: CollectorState, warning: string | undefined): void {
  if (warning !== undefined && warning !== state.warning) state.onWarning(warning);
  state.warning = warning;
}

/** What is under way may be taken: it is looked at again when that is known. */
function withdrawLine({ waiting, sent }: CollectorState, entry: WaitingLine): void {
  const index = waiting.indexOf(entry);
  if (index < sent) return;
  waiting.splice(index, 1);
  entry.reject(entry.signal.reason);
}

const severityInfo = 9;

/** Builds an ExportLogsServiceRequest by OTLP's JSON mapping. The body of each record is the line. */
function toOtlpRequest(batch: readonly WaitingLine[]): object {
  const logRecords = batch.map(({ line, at }) => ({
    timeUnixNano: String(at),
    severityNumber: severityInfo,
    severityText: "INFO",
    body: { stringValue: line.trimEnd() },
  }));
  const attributes = [{ key: "service.name", value: { stringValue: "readout" } }];
  return {
    resourceLogs: [
      { resource: { attributes }, scopeLogs: [{ scope: { name: "readout.audit" }, logRecords }] },
    ],
  };
}
