// Detects how a server differs from others of the same API: the left edge of ranges (Prometheus 2 or 3), whether it is
// Thanos, and whether a frontend moves ranges. Traits are detected by queries, since a proxy may hide the product.
// They are kept for a minute: behind a load balancer the server may change without a broken connection.
import { z } from "zod";
import { awaitShared } from "../../../src/core/async/concurrency.ts";
import { BackendError } from "../../../src/core/errors.ts";
import { fromMillis, type Instant, type Millis, minute, toMillis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/backend.ts";
import { call, number, type RangeEdge } from "./promql.ts";
import { buildQueryRequest, printSeconds } from "./query-request.ts";
import { detectAlignment, type RangeAlignment } from "./range-alignment.ts";
import { resultData } from "./response-scanner.ts";
import { type ApiRequest, readIfSupported, requestJson, type Transport } from "./transport.ts";

/** How servers of one API differ. */
export interface ServerTraits {
  /** Whether a range selector takes the sample at its left end. */
  readonly edge: RangeEdge;
  /**
   * Counter restarts are hidden from `resets`, `increase` and `rate`: Thanos adds the values up before it evaluates, so
   * that `resets` counts none (seen on 0.36).
   */
  readonly hidesRestarts: boolean;
  /** A value that is NaN, as that of infinity less infinity, is left out of answers as if there were none (VictoriaMetrics). */
  readonly losesNaN: boolean;
  /** The longest expression that the server takes, where it has a limit: VictoriaMetrics, unless told otherwise. */
  readonly expressionBytes?: number | undefined;
  /** The server answers nothing from before this time, as of the detection; `undefined` if it has no such time. */
  readonly oldest?: Millis | undefined;
}

interface DetectedTraits extends ServerTraits {
  readonly isThanos: boolean;
  /** As in `RangeAlignment`. */
  readonly aligned: boolean;
  /** When the detection began, by `performance.now()`. */
  readonly detectedAt: number;
}

/** The traits of one server, with what is needed to detect them again. */
export interface TraitsCache {
  readonly transport: Transport;
  readonly io: Pick<IO, "now">;
  entry: CachedTraits | undefined;
}

interface CachedTraits {
  readonly traits: Promise<DetectedTraits>;
  readonly startedAt: number;
  /** How many connections had been opened when the traits were detected. */
  connections: number;
}

const traitsTtl: Millis = minute;

const year: Millis = 31_536_000_000;

export function createTraitsCache(transport: Transport, io: Pick<IO, "now">): TraitsCache {
  return { transport, io, entry: undefined };
}

/**
 * The traits of the server, at most a minute old; detected again also on a new connection if `checkConnections`.
 * @throws {BackendError}
 */
export function readTraits(
  cache: TraitsCache,
  signal: AbortSignal,
  checkConnections: boolean,
): Promise<DetectedTraits> {
  const now = performance.now();
  const entry = cache.entry;
  if (entry !== undefined && !isExpired(cache, entry, now, checkConnections)) {
    return awaitShared(entry.traits, signal);
  }
  // The detection does not end with this caller: others wait for the same result. The guard's deadline bounds it.
  const detection = detectTraits(cache, new AbortController().signal);
  const fresh: CachedTraits = { traits: detection, startedAt: now, connections: cache.transport.connections };
  cache.entry = fresh;
  detection.then(
    () => {
      // The detection may have opened a connection itself.
      fresh.connections = cache.transport.connections;
    },
    () => {
      if (cache.entry === fresh) cache.entry = undefined;
    },
  );
  return awaitShared(detection, signal);
}

function isExpired(
  { transport }: TraitsCache,
  entry: CachedTraits,
  now: number,
  checkConnections: boolean,
): boolean {
  if (now - entry.startedAt > traitsTtl) return true;
  return checkConnections && entry.connections !== transport.connections;
}

async function detectTraits(cache: TraitsCache, signal: AbortSignal): Promise<DetectedTraits> {
  const detectedAt = performance.now();
  // One after the other: a circuit breaker that is half open lets a single request through.
  const { edge, isThanos, losesNaN } = await detectProduct(cache, signal);
  const alignment = await readIfSupported(detectRangeAlignment(cache, signal));
  const { oldest, aligned = false } = alignment ?? {};
  return {
    edge,
    isThanos,
    hidesRestarts: isThanos,
    losesNaN,
    oldest,
    aligned,
    detectedAt,
    expressionBytes: losesNaN ? 16_384 : undefined,
  };
}

const constantOne = call("vector", number(1));
const rangeOfOnes = z.tuple([z.object({ values: z.array(z.tuple([z.number(), z.string()])) })]);
const vectorOfOnes = z.tuple([z.object({ value: z.tuple([z.number(), z.string()]) })]);

/** Queries a single value over all times, and compares its time with the requested start. */
async function detectRangeAlignment(
  { transport, io }: TraitsCache,
  signal: AbortSignal,
): Promise<RangeAlignment | undefined> {
  // VictoriaMetrics reads the seconds of the first weeks of 1970 otherwise.
  const [start, now] = [year, toMillis(io.now())];
  const everything = { start, end: now, step: now };
  const request = buildQueryRequest(constantOne, everything, transport.settings.timeout);
  const { result } = await requestJson(transport, resultData, request, signal);
  const first = rangeOfOnes.safeParse(result).data?.[0].values[0]?.[0];
  return first === undefined ? undefined : detectAlignment(start, Math.round(first * 1_000));
}

async function detectProduct(
  cache: TraitsCache,
  signal: AbortSignal,
): Promise<Pick<DetectedTraits, "edge" | "isThanos" | "losesNaN">> {
  // Only Thanos reads the parameter `dedup`, and it refuses this value, also behind a proxy that hides the product.
  const accepted = await readIfSupported(countOnes(cache, { dedup: "neither" }, signal));
  const { ones, losesNaN } = accepted ?? (await countOnes(cache, {}, signal));
  // Ranges are left-open since 3.0.0, and subqueries since 3.0.1.
  const isClosed = ones === 2 && (await readVersion(cache.transport, signal)) !== "3.0.0";
  return { edge: isClosed ? "closed" : "open", isThanos: accepted === undefined, losesNaN };
}

/**
 * Counts ones at every full minute in a range of one minute: two if the range is left-closed. The range is the newest
 * one, since Mimir answers nothing from before its retention. The same value says whether a vector of NaN is seen.
 */
async function countOnes(
  { transport, io }: TraitsCache,
  parameters: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<{ readonly ones: number; readonly losesNaN: boolean }> {
  const query = "count_over_time(vector(1)[1m:1m]) + 2 * (absent(vector(NaN)) or vector(0))";
  const time = printSeconds(Math.floor(toMillis(io.now()) / minute) * minute);
  const form = new URLSearchParams({ query, time, ...parameters });
  const request: ApiRequest = { method: "POST", path: "/api/v1/query", form };
  const { result } = await requestJson(transport, resultData, request, signal);
  const count = Number(vectorOfOnes.safeParse(result).data?.[0].value[1]);
  if (Number.isNaN(count))
    throw new BackendError(transport.backend, "malformed", "the probe for the range edge returned no value");
  const losesNaN = count > 2;
  return { ones: losesNaN ? count - 2 : count, losesNaN };
}

/** The version that the server reports, or `unknown`. */
export async function readVersion(transport: Transport, signal: AbortSignal): Promise<string> {
  const request: ApiRequest = { method: "GET", path: "/api/v1/status/buildinfo" };
  const data = await readIfSupported(
    requestJson(transport, z.object({ version: z.string() }), request, signal),
  );
  return data?.version || "unknown";
}

/** The time of the server, at which it evaluates a query without a time; undefined where it does not tell. */
export async function readClock(transport: Transport, signal: AbortSignal): Promise<Instant | undefined> {
  const form = new URLSearchParams({ query: "vector(1)" });
  const { result } = await requestJson(
    transport,
    resultData,
    { method: "POST", path: "/api/v1/query", form },
    signal,
  );
  const seconds = vectorOfOnes.safeParse(result).data?.[0].value[0];
  return seconds === undefined ? undefined : fromMillis(Math.round(seconds * 1_000));
}
