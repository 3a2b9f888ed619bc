// The log and the metrics of the program itself. Every log line passes one function that removes tokens and credentials
// from the finished text, so that no caller can forget to.
import pino, { type Logger } from "pino";
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { LimitName, LimitUse } from "../core/errors.ts";
import { type Instant, type Millis, toMillis } from "../core/time.ts";
import { version } from "../core/version.ts";
import type { LogEvent } from "../store/backend.ts";
import { beginAtZero } from "./counters.ts";
import { createIntakeTelemetry, type IntakeTelemetry } from "./intake-telemetry.ts";
import { createKeptTelemetry, type KeptTelemetry } from "./kept-telemetry.ts";
import { redactedText, redactLogLine } from "./redaction.ts";
import type { OwnSpan } from "./tracer.ts";

/** One finished request, as it is logged and counted. */
interface FinishedRequest {
  readonly id: string;
  /** Such as `logs.lines`; `none` where no route matches. */
  readonly operation: string;
  readonly status: number;
  /** The client has not received all of the answer: it has left (`hasLeft`), or the answer was broken off after its first byte. */
  readonly isCut: boolean;
  readonly hasLeft: boolean;
  /** It lasts as long as its client wants. */
  readonly isTail: boolean;
  readonly duration: Millis;
  readonly user: string | undefined;
  /** Those that it was allowed to ask for. */
  readonly sites?: readonly string[] | undefined;
  readonly rows?: number | undefined;
  /** Documents or samples that were read from sources. */
  readonly documents?: number | undefined;
  /** Logged when the request failed. */
  readonly error?: unknown;
  /** What the answer lacks, where its client takes a partial one. */
  readonly missing?: readonly string[] | undefined;
  readonly method: string;
  /** The path of the operation, with its placeholders. */
  readonly route?: string | undefined;
  /** The span of the request, which ends with it. */
  readonly span?: OwnSpan | undefined;
}

export interface Telemetry {
  readonly log: (event: LogEvent) => void;
  /** Counts a request, writes its line of the request log and ends its span. */
  readonly recordFinishedRequest: (request: FinishedRequest) => void;
  /** Counts lines of the audit log that could not be written, or may not have been on the disk when a run ended. */
  readonly recordAuditLoss: (reason: "dropped" | "unsynced", lines: number) => void;
  /** Keeps when a user last made a request with a valid token. */
  readonly recordUse: (user: string, at: Instant) => void;
  /** Counts one finished request to a source. */
  readonly recordRequest: (backend: string, outcome: string, duration: Millis) => void;
  readonly recordCacheLookup: (cache: string, hit: boolean) => void;
  /** For one configuration. */
  readonly openKeptTelemetry: () => KeptTelemetry;
  /** Sets the time of the newest row of a source; undefined where it is not known any more. */
  readonly recordNewest: (source: SourceLabels, newest: Instant | undefined) => void;
  /** Counts a request that a limit has ended or refused. */
  readonly recordLimit: (limit: LimitName) => void;
  /** Adds a reader of how much of some limits is used; all are read with the metrics. */
  readonly addLimitReader: (read: () => LimitUse) => void;
  readonly streams: { readonly opened: () => void; readonly closed: () => void };
  readonly tails: { readonly opened: () => void; readonly closed: () => void };
  /** Counts spans of the program's own traces, by result. */
  readonly recordExportedSpans: (result: "sent" | "dropped", spans: number) => void;
  readonly intake: IntakeTelemetry;
  /** The Prometheus text format. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

/** The labels of a source in the metrics. */
export interface SourceLabels {
  readonly backend: string;
  readonly site: string;
  readonly part: string;
  /** The id of a source of log lines; empty for other parts. */
  readonly source: string;
}

export interface TelemetryOptions {
  /** Gets each log line, newline included. */
  readonly write: (line: string) => void;
  readonly level?: LogEvent["level"] | "silent";
  /** Memory, CPU and event loop of the process, which may take so many bytes. Absent in tests. */
  readonly process?: { readonly memoryLimit: number };
}

/** Seconds; 5 is what the alerts of `deploy/mixin` ask for. */
const buckets = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 5, 10, 30];

export function createTelemetry({ write, level = "info", process: own }: TelemetryOptions): Telemetry {
  const logger = createLogger(write, level);
  const registry = new Registry();
  const registers = [registry];
  if (own !== undefined) {
    collectDefaultMetrics({ register: registry });
    exposeMemoryLimit(own.memoryLimit, registers);
  }
  exposeVersion(registers);
  return {
    log: ({ level, message, ...fields }) => logger[level](fields, message),
    ...createRequestTelemetry(registers, logger),
    recordAuditLoss: createAuditLossCounter(registers),
    recordUse: createUseRecorder(registers),
    ...createBackendTelemetry(registers),
    ...createAnswerTelemetry(registers),
    ...createLimitTelemetry(registers),
    ...createSpanTelemetry(registers),
    openKeptTelemetry: createKeptTelemetry(registers),
    recordNewest: createNewestGauge(registers),
    intake: createIntakeTelemetry(registers),
    metrics: async () => ({ contentType: registry.contentType, text: await registry.metrics() }),
  };
}

function createLogger(
  write: TelemetryOptions["write"],
  level: NonNullable<TelemetryOptions["level"]>,
): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: ["token", "authorization", "*.token", "*.authorization"], censor: redactedText },
      hooks: { streamWrite: redactLogLine },
    },
    { write },
  );
}

function createAuditLossCounter(registers: Registry[]): Telemetry["recordAuditLoss"] {
  const lost = new Counter({
    name: "readout_audit_lost_total",
    help: "Lines of the audit log that could not be written, or were perhaps not on the disk when the last run ended",
    labelNames: ["reason"],
    registers,
  });
  beginAtZero(lost, "reason", ["dropped", "unsynced"]);
  return (reason, lines) => lost.inc({ reason }, lines);
}

function exposeMemoryLimit(bytes: number, registers: Registry[]): void {
  new Gauge({
    name: "readout_memory_limit_bytes",
    help: "Memory that the process may take: the limit of its container, or all of the machine's",
    registers,
  }).set(bytes);
}

function exposeVersion(registers: Registry[]): void {
  new Gauge({
    name: "readout_build_info",
    help: "Always 1; the label has the version of the program",
    labelNames: ["version"],
    registers,
  }).set({ version }, 1);
}

/** The requests of clients: each has a line in the log, two metrics and, where the program is traced, a span. */
function createRequestTelemetry(
  registers: Registry[],
  logger: Logger,
): Pick<Telemetry, "recordFinishedRequest"> {
  const requests = new Counter({
    name: "readout_requests_total",
    help: "Requests answered, by operation and status; `left` is a client that left, `cut` an answer that was broken off",
    labelNames: ["operation", "status"],
    registers,
  });
  const durations = new Histogram({
    name: "readout_request_duration_seconds",
    help: "Time from a request's head to the end of its answer, without live tails",
    labelNames: ["operation"],
    buckets,
    registers,
  });
  return {
    recordFinishedRequest: (request) => {
      const { operation, status, duration } = request;
      requests.inc({ operation, status: nameBreak(request) ?? status });
      if (!request.isTail) durations.observe({ operation }, duration / 1_000);
      logFinishedRequest(logger, request);
      endRequestSpan(request);
    },
  };
}

/** How the answer ended before its end; undefined where it did not. */
function nameBreak({ isCut, hasLeft }: FinishedRequest): "left" | "cut" | undefined {
  if (hasLeft) return "left";
  return isCut ? "cut" : undefined;
}

function logFinishedRequest(logger: Logger, request: FinishedRequest) {
  const { id, operation, status, isCut, hasLeft, duration, user, error, missing = [] } = request;
  const fields = {
    request: id,
    operation,
    status,
    cut: isCut || undefined,
    left: hasLeft || undefined,
    missing: missing.length === 0 ? undefined : missing,
    ms: roundToTenth(duration),
    user,
    sites: request.sites,
    rows: request.rows,
    documents: request.documents,
  };
  if (error === undefined) logger.info(fields, "request");
  else logger.error({ ...fields, err: error }, "request failed");
}

function endRequestSpan(request: FinishedRequest): void {
  const { id, operation, status, method, route, span } = request;
  const failed = nameBreak(request) ?? (status >= 500 ? String(status) : undefined);
  const attributes = {
    "http.request.method": method,
    "http.route": route,
    "http.response.status_code": status,
    "readout.operation": operation,
    "readout.request": id,
  };
  span?.end(route === undefined ? method : `${method} ${route}`, attributes, failed);
}

/** Requests to sources, and the caches that save them. */
function createBackendTelemetry(
  registers: Registry[],
): Pick<Telemetry, "recordRequest" | "recordCacheLookup"> {
  const requests = new Counter({
    name: "readout_backend_requests_total",
    help: "Requests to each source, by outcome: ok or how it failed",
    labelNames: ["backend", "outcome"],
    registers,
  });
  const durations = new Histogram({
    name: "readout_backend_request_duration_seconds",
    help: "Time of one request to a source",
    labelNames: ["backend"],
    buckets,
    registers,
  });
  const caches = new Counter({
    name: "readout_cache_requests_total",
    help: "Look-ups in each cache, by result",
    labelNames: ["cache", "result"],
    registers,
  });
  return {
    recordRequest: (backend, outcome, duration) => {
      requests.inc({ backend, outcome });
      durations.observe({ backend }, duration / 1_000);
    },
    recordCacheLookup: (cache, hit) => caches.inc({ cache, result: hit ? "hit" : "miss" }),
  };
}

/** Answers that stay open: streams and live tails. */
function createAnswerTelemetry(registers: Registry[]): Pick<Telemetry, "streams" | "tails"> {
  const countOpen = (name: string, help: string) => {
    const open = new Gauge({ name, help, registers });
    return { opened: () => open.inc(), closed: () => open.dec() };
  };
  return {
    streams: countOpen("readout_open_streams", "Streamed answers under way"),
    tails: countOpen("readout_open_tails", "Live tails of log lines"),
  };
}

/** The program's own traces. */
function createSpanTelemetry(registers: Registry[]): Pick<Telemetry, "recordExportedSpans"> {
  const spans = new Counter({
    name: "readout_trace_spans_total",
    help: "Spans of the program's own traces, by result: sent to the collector, or dropped",
    labelNames: ["result"],
    registers,
  });
  return { recordExportedSpans: (result, count) => spans.inc({ result }, count) };
}

/** Users of identity providers may be any number; the metrics have those who came last. */
const maxUsers = 1_000;

function createUseRecorder(registers: Registry[]): Telemetry["recordUse"] {
  // In the order of their last use, so that the first is dropped.
  const lastUses = new Map<string, Instant>();
  new Gauge({
    name: "readout_user_last_request_timestamp_seconds",
    help: "When each user last made a request with a valid token since the start, in seconds since 1970",
    labelNames: ["user"],
    registers,
    collect() {
      this.reset();
      for (const [user, at] of lastUses) this.set({ user }, toMillis(at) / 1_000);
    },
  });
  return (user, at) => {
    lastUses.delete(user);
    lastUses.set(user, at);
    if (lastUses.size <= maxUsers) return;
    const [oldest] = lastUses.keys();
    if (oldest !== undefined) lastUses.delete(oldest);
  };
}

function createLimitTelemetry(registers: Registry[]): Pick<Telemetry, "recordLimit" | "addLimitReader"> {
  const limited = new Counter({
    name: "readout_limited_total",
    help: "Requests that a limit has refused or ended, by limit",
    labelNames: ["limit"],
    registers,
  });
  const readers: (() => LimitUse)[] = [];
  new Gauge({
    name: "readout_limit_used_ratio",
    help: "How much of each limit is used, by limit: 1 is all; of one token's limits, by the token nearest to them",
    labelNames: ["limit"],
    registers,
    collect() {
      for (const read of readers) {
        for (const [limit, used] of Object.entries(read())) this.set({ limit }, used);
      }
    },
  });
  return {
    recordLimit: (limit) => limited.inc({ limit }),
    addLimitReader: (read) => readers.push(read),
  };
}

function createNewestGauge(registers: Registry[]): Telemetry["recordNewest"] {
  const gauge = new Gauge({
    name: "readout_newest_timestamp_seconds",
    help: "When the newest row of a source was made, in seconds since 1970, as the source last told",
    labelNames: ["backend", "site", "part", "source"] as const,
    registers,
  });
  return ({ backend, site, part, source }, newest) => {
    const labels = { backend, site, part, source };
    if (newest === undefined) gauge.remove(labels);
    else gauge.set(labels, toMillis(newest) / 1_000);
  };
}

function roundToTenth(duration: Millis): Millis {
  return Math.round(duration * 10) / 10;
}
