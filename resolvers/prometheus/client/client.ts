// The client of the Prometheus HTTP API, as Prometheus, Thanos, Mimir, Cortex and VictoriaMetrics serve it. It takes
// expressions and selectors only, and these hold the forced labels. A response is complete or an error. The client
// relies on query, query_range, series and label values; metadata and build information are optional.
import { z } from "zod";
import type { HeldBytes } from "../../../src/core/async/held-bytes.ts";
import { visitInTurns } from "../../../src/core/async/turns.ts";
import { BackendError } from "../../../src/core/errors.ts";
import type { Instant, Millis } from "../../../src/core/time.ts";
import type { BackendInfo, IO } from "../../../src/store/backend.ts";
import type { SeriesQuery } from "../../../src/store/metrics.ts";
import { findCurrentRecorder } from "../../../src/telemetry/request-recorder.ts";
import { toMetricsQl } from "./metrics-ql.ts";
import { type Expression, metricName, type Selector } from "./promql.ts";
import {
  buildQueryRequest,
  type EvaluationTime,
  formatMatchParameters,
  lookbackDelta,
} from "./query-request.ts";
import { alignRange } from "./range-alignment.ts";
import {
  createScanner,
  type HistogramSample,
  labelSet,
  readResult,
  resultData,
  type SampleSeries,
  type SeriesFold,
  UnexpectedFormat,
} from "./response-scanner.ts";
import {
  createTraitsCache,
  readClock,
  readTraits,
  readVersion,
  type ServerTraits,
  type TraitsCache,
} from "./server-traits.ts";
import {
  type ApiRequest,
  type ClientSettings,
  closeTransport,
  createTransport,
  explainWrongServer,
  readIfSupported,
  readJson,
  requestJson,
  requestList,
  runGuarded,
  streamBody,
  type Transport,
  unwrapEnvelope,
} from "./transport.ts";

export interface PrometheusClient {
  /**
   * Evaluates the expression and passes its series to a fold as they arrive. A request that is sent again gets a new
   * fold, so that no fold sees a series twice. @throws {BackendError}
   */
  query<T>(
    expression: Expression,
    time: EvaluationTime,
    fold: () => SeriesFold<T>,
    signal: AbortSignal,
  ): Promise<T>;
  /** The label sets of the series that match, of all times. @throws {BackendError} */
  listSeries(selector: Selector, signal: AbortSignal): Promise<readonly Readonly<Record<string, string>>[]>;
  /** The names of metrics with a series that matches. @throws {BackendError} */
  listNames(selector: Selector, signal: AbortSignal): Promise<readonly string[]>;
  /**
   * The types that targets declare for a metric; empty if the server knows none or has no such endpoint. The endpoint
   * ignores forced labels, so pass only names that were found under them. @throws {BackendError}
   */
  readMetadata(metric: string, signal: AbortSignal): Promise<readonly string[]>;
  /** The same for all metrics, whatever their labels. @throws {BackendError} */
  readAllMetadata(signal: AbortSignal): Promise<ReadonlyMap<string, readonly string[]>>;
  /**
   * Detected again on every new connection, and after a minute, so that an upgrade is noticed.
   * @throws {BackendError}
   */
  readTraits(signal: AbortSignal): Promise<ServerTraits>;
  /** @throws {BackendError} */
  probe(signal: AbortSignal): Promise<BackendInfo>;
  /** As `Backend.readClock`. */
  readClock(signal: AbortSignal): Promise<Instant | undefined>;
  close(): Promise<void>;
}

interface ClientState {
  readonly transport: Transport;
  readonly traits: TraitsCache;
  readonly io: IO;
  /** Set by the first response in a form that the scanner does not know: later ones are parsed at once. */
  scannerUnsupported: boolean;
}

/** No server holds a sample from before it. */
const epoch: Millis = 0;

const labelSets = z.array(labelSet);
const labelValues = z.array(z.string()).nullish();
/** By kind of store. */
const storeLists = z.record(
  z.string(),
  z.array(z.object({ name: z.string(), lastError: z.unknown() })).nullish(),
);
/** Its entries are checked one after the other: there may be very many. */
const metadata = z.custom<Readonly<Record<string, unknown>>>(
  (data) => typeof data === "object" && data !== null && !Array.isArray(data),
  "expected the metadata of metrics by their names",
);
const metadataTypes = z.record(z.string(), z.array(z.object({ type: z.string() })));

export function createPrometheusClient(backend: string, settings: ClientSettings, io: IO): PrometheusClient {
  const transport = createTransport(backend, settings, io);
  const state: ClientState = {
    transport,
    traits: createTraitsCache(transport, io),
    io,
    scannerUnsupported: false,
  };
  return {
    query: (expression, time, fold, signal) => runQuery(state, expression, time, fold, signal),
    listSeries: (selector, signal) => {
      // Not as a form: prom-label-proxy puts its label into the address, and a server takes either of two selectors.
      const path = `/api/v1/series?${formatMatchParameters(selector)}`;
      const read = () => requestList(transport, labelSets, { method: "GET", path }, signal);
      return readFromAllStores(state, read, signal);
    },
    listNames: (selector, signal) => {
      const path = `/api/v1/label/${metricName}/values?${formatMatchParameters(selector)}`;
      const read = () => requestList(transport, labelValues, { method: "GET", path }, signal);
      return readFromAllStores(state, read, signal);
    },
    readMetadata: async (metric, signal) => {
      const types = await readMetadata(state, `?${new URLSearchParams({ metric })}`, signal);
      return types.get(metric) ?? [];
    },
    readAllMetadata: (signal) => readMetadata(state, "", signal),
    readTraits: (signal) => readTraits(state.traits, signal, true),
    async probe(signal) {
      try {
        const { isThanos } = await readTraits(state.traits, signal, true);
        const version = await readVersion(transport, signal);
        return { product: isThanos ? "Thanos" : "Prometheus", version };
      } catch (error) {
        throw await explainWrongServer(transport, error, signal);
      }
    },
    readClock: (signal) => readClock(transport, signal),
    close: () => closeTransport(transport),
  };
}

async function runQuery<T>(
  state: ClientState,
  expression: Expression,
  time: EvaluationTime,
  fold: () => SeriesFold<T>,
  signal: AbortSignal,
): Promise<T> {
  // To VictoriaMetrics a negative time is one before now.
  if ("at" in time && time.at < epoch) return fold().result();
  const { oldest, aligned, detectedAt, losesNaN } = await readTraits(state.traits, signal, false);
  const meant = losesNaN ? toMetricsQl(expression, lookbackDelta) : expression;
  if ("at" in time) {
    return readFromAllStores(state, () => evaluateExpression(state, meant, time, fold, signal), signal);
  }
  // The oldest time moves on with the server's clock, and the request may take as long as its timeout.
  const elapsed = performance.now() - detectedAt + state.transport.settings.timeout;
  const oldestNow = oldest === undefined ? epoch : oldest + elapsed;
  const query = alignRange(meant, time, { oldest: oldestNow, aligned });
  if (query === undefined) return fold().result();
  const { range, shift } = query;
  const createFold = shift === 0 ? fold : () => shiftEarlier(fold(), shift);
  const read = () => evaluateExpression(state, query.expression, range, createFold, signal);
  return readFromAllStores(state, read, signal);
}

/**
 * Passes a response on unless Thanos left a store out of it. It leaves out stores that have failed their last check when the
 * request begins. So its list of stores is read before, and after, as a store may have failed in between.
 * @throws {BackendError} `partial`
 */
async function readFromAllStores<T>(
  { transport, traits }: ClientState,
  read: () => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  if (!(await readTraits(traits, signal, false)).isThanos) return read();
  await requireAllStores(transport, signal);
  const result = await read();
  await requireAllStores(transport, signal);
  return result;
}

/** No response says which stores it lacks: only the list says so, and that for as long as `--store.unhealthy-timeout`. */
async function requireAllStores(transport: Transport, signal: AbortSignal): Promise<void> {
  const request: ApiRequest = { method: "GET", path: "/api/v1/stores" };
  const listed = await readIfSupported(requestJson(transport, storeLists, request, signal));
  if (listed === undefined) return;
  const stores = Object.values(listed).flatMap((ofKind) => ofKind ?? []);
  // A querier that has just started lists no store that it has not reached yet.
  if (stores.length === 0)
    throw new BackendError(transport.backend, "partial", "Thanos has reached no store");
  const missing = stores.find(({ lastError }) => (lastError ?? null) !== null);
  if (missing !== undefined)
    throw new BackendError(
      transport.backend,
      "partial",
      `store ${missing.name} is missing from the response`,
    );
}

/** Scans the response while it arrives; if its form is unknown, sends the request again and parses the response. */
function evaluateExpression<T>(
  state: ClientState,
  expression: Expression,
  time: EvaluationTime,
  fold: () => SeriesFold<T>,
  signal: AbortSignal,
): Promise<T> {
  const { transport, io } = state;
  const { backend } = transport;
  const request = buildQueryRequest(expression, time, transport.settings.timeout);
  const createFold = recordSampleCounts(backend, fold);
  return runGuarded(transport, request, signal, async (limited) => {
    if (state.scannerUnsupported) return parseResponse(transport, request, createFold, limited);
    try {
      return await scanResponse(transport, request, createFold, limited);
    } catch (cause) {
      if (!(cause instanceof UnexpectedFormat)) throw cause;
      const result = await parseResponse(transport, request, createFold, limited);
      state.scannerUnsupported = true;
      io.log({
        level: "info",
        message: "responses are parsed, not scanned: unexpected format",
        backend,
        reason: cause.message,
      });
      return result;
    }
  });
}

async function parseResponse<T>(
  transport: Transport,
  request: ApiRequest,
  createFold: () => SeriesFold<T>,
  signal: AbortSignal,
): Promise<T> {
  const { series, result } = createFold();
  readResult((await readJson(transport, resultData, request, signal)).result, series);
  return result();
}

async function scanResponse<T>(
  transport: Transport,
  request: ApiRequest,
  createFold: () => SeriesFold<T>,
  signal: AbortSignal,
): Promise<T> {
  const { series, result } = createFold();
  const scanner = createScanner(series);
  await streamBody(transport, request, signal, scanner.push);
  resultData.parse(unwrapEnvelope(transport.backend, JSON.parse(scanner.end())));
  return result();
}

async function readMetadata(
  state: ClientState,
  search: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const { transport } = state;
  const request: ApiRequest = { method: "GET", path: `/api/v1/metadata${search}` };
  const read = async (limited: AbortSignal): Promise<ReadonlyMap<string, readonly string[]>> => {
    const types = new Map<string, readonly string[]>();
    const data = await readJson(transport, metadata, request, limited);
    const add = (metric: string): void => {
      const checked = metadataTypes.parse({ [metric]: data[metric] });
      for (const name in checked) types.set(name, checked[name]?.map(({ type }) => type) ?? []);
    };
    await visitInTurns(Object.keys(data), add, limited);
    return types;
  };
  const readOnce = () => readIfSupported(runGuarded(transport, request, signal, read));
  return (await readFromAllStores(state, readOnce, signal)) ?? new Map();
}

/** The same folds. While a request is being explained, each that has a result reports how many samples it took. */
function recordSampleCounts<T>(backend: string, fold: () => SeriesFold<T>): () => SeriesFold<T> {
  const recorder = findCurrentRecorder();
  if (recorder === undefined) return fold;
  return () => {
    const { series: take, result } = fold();
    let [series, samples] = [0, 0];
    return {
      series(one) {
        series += 1;
        samples += one.times.length + one.histograms.length;
        take(one);
      },
      result() {
        recorder.recordSamples({ backend, series, samples });
        return result();
      },
    };
  };
}

/** The same fold with all times moved back by `shift`. */
function shiftEarlier<T>({ series, result }: SeriesFold<T>, shift: Millis): SeriesFold<T> {
  return { series: (one) => series({ ...one, times: one.times.map((time) => time - shift) }), result };
}

// ---- What a request reads ------------------------------------------------------------------------------------------

/** Whom a request tells of the series that it reads, while they arrive: how many samples these are, and what memory they take. */
export type SeriesCounters = Pick<SeriesQuery, "held" | "reportRead">;

// Roughly, of counters and histograms whose growth is computed: each of their series is in some four responses.
const bytesPerSeries = 250;
const bytesPerLabel = 24;
const bytesPerSample = 16;
const bytesPerHistogram = 100;
const bytesPerBucket = 56;

/**
 * The same folds, which count each series before they take it. They throw what `held` throws. A request that is sent again gives
 * back what its fold before has counted.
 */
export function countSeries<T>(
  fold: () => SeriesFold<T>,
  { held, reportRead }: SeriesCounters,
): () => SeriesFold<T> {
  if (held === undefined && reportRead === undefined) return fold;
  let part: HeldBytes | undefined;
  return () => {
    part?.release();
    part = held?.openPart();
    const own = part;
    const { series: take, result } = fold();
    let samples = 0;
    return {
      series(one) {
        own?.hold(measureSeries(one));
        samples += one.times.length + one.histograms.length;
        take(one);
      },
      result() {
        reportRead?.(samples);
        return result();
      },
    };
  };
}

/** Bytes in memory. */
function measureSeries({ labels, times, histograms }: SampleSeries): number {
  let bytes = bytesPerSeries + times.length * bytesPerSample;
  for (const label in labels) bytes += bytesPerLabel + (labels[label]?.length ?? 0);
  return histograms.reduce((sum, one) => sum + measureHistogram(one), bytes);
}

function measureHistogram({ buckets }: HistogramSample): number {
  return bytesPerHistogram + buckets.length * bytesPerBucket;
}
