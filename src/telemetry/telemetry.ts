// The log and the metrics of the program itself. Every log line passes one function that removes tokens and credentials
// from the finished text, so that no caller can forget to.
import pino from "pino";
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { LimitName, LimitUse } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";
import { version } from "../core/version.ts";
import type { LogEvent } from "../store/backend.ts";
import type { OwnSpan } from "./tracer.ts";

/** One finished request, as it is logged and counted. */
interface FinishedRequest {
  readonly id: string;
  /** Such as `logs.lines`; `none` where no route matches. */
  readonly operation: string;
  readonly status: number;
  /** The client disconnected, or the answer was aborted after its first byte. */
  readonly cut: boolean;
  readonly duration: Millis;
  readonly user: string | undefined;
  /** Logged when the request failed. */
  readonly error?: unknown;
  readonly method: string;
  /** The path of the operation, with its placeholders. */
  readonly route?: string | undefined;
  /** The span of the request, which ends with it. */
  readonly span?: OwnSpan | undefined;
}

/** Why a front-end error report was not kept. */
export type DropReason =
  | "too_large"
  | "incomplete"
  | "overloaded"
  | "address_rate"
  | "key_rate"
  | "unknown_key"
  | "invalid"
  | "no_target"
  | "spool_full"
  | "spool_failed";

/** Counters of front-end error reports. */
interface IntakeTelemetry {
  readonly kept: () => void;
  readonly dropped: (drop: DropReason) => void;
  /** The site's source has confirmed this many reports. */
  readonly delivered: (site: string, reports: number) => void;
  /** The site's source has refused this many for good; they are kept as dead letters. */
  readonly refused: (site: string, reports: number) => void;
  /** A damaged spool was replaced; `complete` when each of its reports is in the new one. */
  readonly setAside: (complete: boolean) => void;
  /** Sets where to read the level of the spool whenever the metrics are read. It rejects while no spool can be used. */
  readonly watch: (level: () => Promise<SpoolLevel>) => void;
}
interface SpoolLevel {
  readonly reports: number;
  readonly bytes: number;
  readonly deadLetters: number;
}

export interface Telemetry {
  readonly log: (event: LogEvent) => void;
  /** Counts a request, writes its line of the request log and ends its span. */
  readonly recordFinishedRequest: (request: FinishedRequest) => void;
  /** Counts one finished request to a source. */
  readonly recordRequest: (backend: string, outcome: string, duration: Millis) => void;
  readonly recordCacheLookup: (cache: string, hit: boolean) => void;
  /** Reports how many bytes of memory kept figures of a backend's spans take. */
  readonly recordRollupBytes: (backend: string, bytes: number) => void;
  /** Counts a request that a limit has ended or refused. */
  readonly recordLimit: (limit: LimitName) => void;
  /** Sets where to read how much of some limits is used whenever the metrics are read. */
  readonly watchLimits: (read: () => LimitUse) => void;
  readonly streams: { readonly opened: () => void; readonly closed: () => void };
  readonly tails: { readonly opened: () => void; readonly closed: () => void };
  /** Counts spans of the program's own traces, by result. */
  readonly recordExportedSpans: (result: "sent" | "dropped", spans: number) => void;
  readonly intake: IntakeTelemetry;
  /** The Prometheus text format. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

export interface TelemetryOptions {
  /** Gets each log line, newline included. */
  readonly write: (line: string) => void;
  readonly level?: LogEvent["level"] | "silent";
  /** Memory, CPU and event loop of the process. Off in tests. */
  readonly processMetrics?: boolean;
}

/** Seconds. */
const buckets = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30];

export function createTelemetry({
  write,
  level = "info",
  processMetrics = false,
}: TelemetryOptions): Telemetry {
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: ["token", "authorization", "*.token", "*.authorization"], censor: redactedText },
      hooks: { streamWrite: redactCredentials },
    },
    { write },
  );

  const registry = new Registry();
  if (processMetrics) collectDefaultMetrics({ register: registry });
  const registers = [registry];
  new Gauge({
    name: "readout_build_info",
    help: "Always 1; the label has the version of the program",
    labelNames: ["version"],
    registers,
  }).set({ version }, 1);
  const requests = new Counter({
    name: "readout_requests_total",
    help: "Requests answered, by operation and status; status `cut` is a client that left or an answer broken off",
    labelNames: ["operation", "status"],
    registers,
  });
  const durations = new Histogram({
    name: "readout_request_duration_seconds",
    help: "Time from a request's head to the end of its answer",
    labelNames: ["operation"],
    buckets,
    registers,
  });
  const backendRequests = new Counter({
    name: "readout_backend_requests_total",
    help: "Requests to each source, by outcome: ok or how it failed",
    labelNames: ["backend", "outcome"],
    registers,
  });
  const backendDurations = new Histogram({
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
  const rollups = new Gauge({
    name: "readout_rollup_bytes",
    help: "Memory that kept figures of spans take, estimated, by backend",
    labelNames: ["backend"],
    registers,
  });
  const traced = new Counter({
    name: "readout_trace_spans_total",
    help: "Spans of the program's own traces, by result: sent to the collector, or dropped",
    labelNames: ["result"],
    registers,
  });
  const streams = new Gauge({ name: "readout_open_streams", help: "Streamed answers under way", registers });
  const tails = new Gauge({ name: "readout_open_tails", help: "Live tails of log lines", registers });

  return {
    log: ({ level, message, ...fields }) => logger[level](fields, message),
    recordFinishedRequest: ({ id, operation, status, cut, duration, user, error, method, route, span }) => {
      requests.inc({ operation, status: cut ? "cut" : status });
      durations.observe({ operation }, duration / 1_000);
      const fields = {
        request: id,
        operation,
        status,
        cut: cut || undefined,
        ms: roundToTenth(duration),
        user,
      };
      if (error === undefined) logger.info(fields, "request");
      else logger.error({ ...fields, err: error }, "request failed");
      const failed = cut ? "cut" : status >= 500 ? String(status) : undefined;
      const named = { "readout.operation": operation, "readout.request": id };
      const http = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
      };
      span?.end(route === undefined ? method : `${method} ${route}`, { ...http, ...named }, failed);
    },
    recordRequest: (backend, outcome, duration) => {
      backendRequests.inc({ backend, outcome });
      backendDurations.observe({ backend }, duration / 1_000);
    },
    ...createLimitTelemetry(registers),
    recordCacheLookup: (cache, hit) => caches.inc({ cache, result: hit ? "hit" : "miss" }),
    recordRollupBytes: (backend, bytes) => rollups.set({ backend }, bytes),
    streams: { opened: () => streams.inc(), closed: () => streams.dec() },
    tails: { opened: () => tails.inc(), closed: () => tails.dec() },
    recordExportedSpans: (result, spans) => traced.inc({ result }, spans),
    intake: createIntakeTelemetry(registers),
    metrics: async () => ({ contentType: registry.contentType, text: await registry.metrics() }),
  };
}

function createLimitTelemetry(registers: Registry[]): Pick<Telemetry, "recordLimit" | "watchLimits"> {
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
    watchLimits: (read) => readers.push(read),
  };
}

function createIntakeTelemetry(registers: Registry[]): IntakeTelemetry {
  const taken = new Counter({
    name: "readout_intake_reports_total",
    help: "Front-end error reports, by result: kept, or why they were not",
    labelNames: ["result"],
    registers,
  });
  const delivered = new Counter({
    name: "readout_intake_delivered_total",
    help: "Front-end error reports that the site's source has confirmed",
    labelNames: ["site"],
    registers,
  });
  const refused = new Counter({
    name: "readout_intake_refused_total",
    help: "Front-end error reports that the site's source refused for good; they are kept as dead letters",
    labelNames: ["site"],
    registers,
  });
  const setAside = new Counter({
    name: "readout_intake_spools_set_aside_total",
    help: "Damaged spools that were set aside, by whether all of their reports are in the new one: all, or part",
    labelNames: ["salvaged"],
    registers,
  });
  return {
    setAside: (complete) => setAside.inc({ salvaged: complete ? "all" : "part" }),
    kept: () => taken.inc({ result: "kept" }),
    dropped: (drop) => taken.inc({ result: drop }),
    delivered: (site, reports) => delivered.inc({ site }, reports),
    refused: (site, reports) => refused.inc({ site }, reports),
    watch: (level) => {
      const gauge = (name: string, help: string, read: (level: SpoolLevel) => number) =>
        new Gauge({
          name: `readout_intake_${name}`,
          help,
          registers,
          async collect() {
            // Where the spool cannot be read, the gauge keeps its last value, and the other metrics are unaffected.
            const found = await level().catch(() => undefined);
            if (found !== undefined) this.set(read(found));
          },
        });
      new Gauge({
        name: "readout_intake_spool_usable",
        help: "1 while front-end error reports can be kept on the disk, else 0",
        registers,
        async collect() {
          this.set(
            await level().then(
              () => 1,
              () => 0,
            ),
          );
        },
      });
      gauge(
        "spooled_reports",
        "Front-end error reports on the disk, not yet delivered",
        ({ reports }) => reports,
      );
      gauge("spooled_bytes", "What they take of the spool's limit", ({ bytes }) => bytes);
      gauge(
        "dead_letters",
        "Reports that were refused for good and are kept",
        ({ deadLetters }) => deadLetters,
      );
    },
  };
}

const redactedText = "[redacted]";
// In headers, which errors quote, in parameters of URLs, and signed tokens wherever they stand.
const credentialPattern =
  /(\b(?:bearer|basic|apikey)\s+|\b(?:token|api_key)=)[^\s&"'\\#,;]+|(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*/gi;

/** Replaces whatever looks like a token or credential in the text. */
export function redactCredentials(text: string): string {
  return text.replace(credentialPattern, `$1${redactedText}`);
}

function roundToTenth(duration: Millis): Millis {
  return Math.round(duration * 10) / 10;
}
