// The one narrow door to whatever speaks the HTTP API of Prometheus: itself, Thanos, Mimir, Cortex, VictoriaMetrics.
// Only expressions go in, and these hold the wall. An answer comes out whole, or not at all: what a source tells in
// `warnings` or `isPartial` is an error here. Nothing beyond query, query_range, series and label values is relied
// upon.
import type { Agent, Dispatcher } from "undici";
import { z } from "zod";
import { BackendError, type Failure } from "../../../src/core/errors.ts";
import { type Millis, minute, toMillis } from "../../../src/core/time.ts";
import type { BackendInfo, IO } from "../../../src/store/store.ts";
import { findCurrentRecorder } from "../../../src/telemetry/request-recorder.ts";
import { readTraceContextHeaders } from "../../../src/telemetry/tracer.ts";
import { omitUndefined, type Tls } from "../../http/connection.ts";
import {
  createGuard,
  type GuardSettings,
  raceAbort,
  readRetryAfter,
  yieldToEventLoop,
} from "../../http/guard.ts";
import {
  call,
  type Expression,
  metricName,
  number,
  printDuration,
  printExpression,
  printSelector,
  type RangeEdge,
  type Selector,
} from "./promql.ts";
import { alignRange, detectAlignment, type QueryRange, type RangeAlignment } from "./range-alignment.ts";
import {
  createScanner,
  envelope,
  labelSet,
  readResult,
  resultData,
  type SeriesFold,
  UnexpectedFormat,
} from "./response-scanner.ts";

/** One time, or `start`, `start + step`, … `end`; a source answers at most 11,000 of these. Milliseconds since 1970. */
export type EvaluationTime = { readonly at: Millis } | QueryRange;

export interface PrometheusClient {
  /**
   * Evaluates the expression and hands its series to a fold as they arrive. The fold of a request that had to be sent
   * again is thrown away, so none sees a series twice.
   * @throws {BackendError}
   */
  query<T>(
    expression: Expression,
    moments: EvaluationTime,
    fold: () => SeriesFold<T>,
    signal: AbortSignal,
  ): Promise<T>;
  /** The label sets of the series, of all times. @throws {BackendError} */
  listSeries(selector: Selector, signal: AbortSignal): Promise<readonly Readonly<Record<string, string>>[]>;
  /** The names of metrics that have such a series. @throws {BackendError} */
  listNames(selector: Selector, signal: AbortSignal): Promise<readonly string[]>;
  /**
   * What targets said of a metric. It knows no wall, so it may be asked only about a name that was found within it;
   * empty where the source has no such endpoint or knows nothing. @throws {BackendError}
   */
  readMetadata(metric: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Of all metrics, of every wall. @throws {BackendError} */
  readAllMetadata(signal: AbortSignal): Promise<ReadonlyMap<string, readonly string[]>>;
  /** Asked anew on every fresh connection, and when they get old, so that an upgrade is noticed. */
  readTraits(signal: AbortSignal): Promise<ServerTraits>;
  probe(signal: AbortSignal): Promise<BackendInfo>;
  close(): Promise<void>;
}

/** In what sources differ that speak the same language. */
export interface ServerTraits {
  /** How ranges are cut at their left. */
  readonly edge: RangeEdge;
  /**
   * Restarts of a counter stay hidden from `resets`: Thanos adds them up on their way to it, as to `increase` and `buildRate`,
   * so that it counts none (seen on 0.36).
   */
  readonly hidesRestarts: boolean;
  /** Of what lies before, the source answers nothing, as of now; undefined where it has no such time. */
  readonly oldest?: Millis | undefined;
}

interface DetectedTraits extends ServerTraits {
  readonly isThanos: boolean;
  /** As `RangeAlignment`'. */
  readonly aligned: boolean;
  /** When they were asked for, by the clock of `performance`. */
  readonly since: number;
}

export interface ClientSettings extends GuardSettings {
  /** Of the server, with the path under which its API lies. */
  readonly url: string;
  readonly auth?: { username: string; password: string } | { bearer: string } | undefined;
  readonly tls?: Tls | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** An answer over this is refused instead of being read. */
  readonly answerBytes: number;
}

interface ApiRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly form?: URLSearchParams;
}

/** What is read of an answer in one turn of the event loop: some milliseconds. */
const bytesPerTurn = 256 * 1024;

const year: Millis = 31_536_000_000;

/** How far back the newest sample of a series may lie that has not ended: what sources look back if nothing tells them. */
const lookbackDelta: Millis = 300_000;

/** How long a source is trusted to be what it was: behind a load balancer it changes without a broken connection. */
const traitsTtl: Millis = minute;

export function createPrometheusClient(backend: string, settings: ClientSettings, io: IO): PrometheusClient {
  const guard = createGuard(backend, settings, io);
  const base = new URL(settings.url);
  const prefix = base.pathname.replace(/\/+$/, "");
  let connections = 0;
  let opened: Promise<Agent> | undefined;
  /** A client takes 10 MB, which a program without such a backend need not have. */
  async function openAgent(): Promise<Agent> {
    const { Agent } = await import("undici");
    const agent = new Agent({
      connections: settings.concurrent,
      keepAliveTimeout: 60_000,
      // The guard keeps the deadline.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: { ...omitUndefined(settings.tls ?? {}) },
    });
    agent.on("connect", () => {
      connections++;
    });
    return agent;
  }
  /** Set by the first answer in a form that the scanner does not know; such a source is not asked twice again. */
  let unfamiliar = false;

  async function open(
    { method, path, form }: ApiRequest,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    opened ??= openAgent();
    return (await opened).request({
      origin: base.origin,
      path: prefix + path,
      method,
      signal,
      headers: {
        accept: "application/json",
        // The frontends of Mimir, Cortex and Thanos keep answers, which samples that come late would make wrong.
        "cache-control": "no-store",
        ...settings.headers,
        ...readTraceContextHeaders(),
        ...buildAuthorization(settings.auth),
        ...(form && { "content-type": "application/x-www-form-urlencoded" }),
      },
      ...(form && { body: form.toString() }),
    });
  }

  /** Sends a request and hands the bytes of a good answer on, as they come. */
  async function stream(
    request: ApiRequest,
    signal: AbortSignal,
    take: (chunk: Buffer) => void,
  ): Promise<void> {
    const { statusCode, headers, body } = await open(request, signal);
    // Nobody asked for another encoding; a proxy that sends one sends what nobody here reads.
    if (headers["content-encoding"] !== undefined && headers["content-encoding"] !== "identity") {
      // A body that nobody reads tells its end by an event, which would end the process.
      body.on("error", () => {}).destroy();
      throw new BackendError(backend, "malformed", `content-encoding ${headers["content-encoding"]}`);
    }
    if (statusCode !== 200) {
      throw toResponseError(
        backend,
        statusCode,
        await readErrorText(body),
        readRetryAfter(headers["retry-after"]),
      );
    }
    let bytes = 0;
    let sinceTurn = 0;
    for await (const chunk of body) {
      bytes += chunk.length;
      sinceTurn += chunk.length;
      if (sinceTurn > bytesPerTurn) {
        // While this answer waits, its connection is not read either.
        await yieldToEventLoop();
        sinceTurn = chunk.length;
      }
      if (bytes > settings.answerBytes) {
        throw new BackendError(backend, "rejected", `an answer of more than ${settings.answerBytes} bytes`);
      }
      take(chunk);
    }
  }

  async function readJson<T>(schema: z.ZodType<T>, request: ApiRequest, signal: AbortSignal): Promise<T> {
    const chunks: Buffer[] = [];
    await stream(request, signal, (chunk) => chunks.push(chunk));
    return schema.parse(unwrap(JSON.parse(Buffer.concat(chunks).toString("utf8"))));
  }

  /** The `data` of an answer, which has to be whole. */
  function unwrap(answer: unknown): unknown {
    const { warnings, isPartial, data } = envelope.parse(answer);
    if (isPartial === true) throw new BackendError(backend, "partial", "the answer says isPartial");
    // Versions 2.48 to 2.53 put their hints on a query's style here as well; since 2.54 these are `infos`.
    const told = (warnings ?? []).filter((text) => !text.startsWith("PromQL info"));
    if (told.length > 0) {
      throw new BackendError(backend, "partial", `warnings: ${told.join("; ").slice(0, 2_000)}`);
    }
    return data;
  }

  /** Whatever an answer does not hold to is an answer that cannot be read. */
  function guarded<T>(
    { method, path, form }: ApiRequest,
    signal: AbortSignal,
    read: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const ask = async (limited: AbortSignal) => {
      try {
        return await read(limited);
      } catch (cause) {
        const known =
          cause instanceof z.ZodError || cause instanceof SyntaxError || cause instanceof UnexpectedFormat;
        if (!known) throw cause;
        throw new BackendError(backend, "malformed", `${path}: ${cause.message.slice(0, 2_000)}`, { cause });
      }
    };
    const describe = () => {
      const [own = "", search] = path.split("?");
      return { method, path: own, parameters: Object.fromEntries(form ?? new URLSearchParams(search)) };
    };
    return guard.run(true, signal, ask, describe);
  }

  function ask<T>(schema: z.ZodType<T>, request: ApiRequest, signal: AbortSignal): Promise<T> {
    return guarded(request, signal, (limited) => readJson(schema, request, limited));
  }

  async function query<T>(
    expression: Expression,
    moments: EvaluationTime,
    fold: () => SeriesFold<T>,
    signal: AbortSignal,
  ): Promise<T> {
    if ("at" in moments) return whole(send(expression, moments, fold, signal), signal);
    const { oldest, aligned, since } = await traits(signal, false);
    // It goes on with the clock, and what is asked now may arrive as late as it may take.
    const late = performance.now() - since + settings.timeout;
    const asked = alignRange(expression, moments, { oldest: oldest && oldest + late, aligned });
    if (asked === undefined) return fold().result();
    const { range, shift: by } = asked;
    return whole(
      send(asked.expression, range, by === 0 ? fold : () => shiftEarlier(fold(), by), signal),
      signal,
    );
  }

  /**
   * The answer of a source that asks others. Thanos leaves out one that failed its last check, tells in no answer that
   * it does, and in this list alone, as long as its `--store.unhealthy-timeout` is.
   */
  async function whole<T>(answered: Promise<T>, signal: AbortSignal): Promise<T> {
    const answer = await answered;
    if (!(await traits(signal, false)).isThanos) return answer;
    const path = "/api/v1/stores";
    const listed = await readIfSupported(ask(storeLists, { method: "GET", path }, signal));
    const stores = Object.values(listed ?? {}).flatMap((some) => some ?? []);
    const missing = stores.find(({ lastError }) => (lastError ?? null) !== null);
    if (missing !== undefined)
      throw new BackendError(backend, "partial", `the store ${missing.name} is left out`);
    return answer;
  }

  function send<T>(
    expression: Expression,
    moments: EvaluationTime,
    fold: () => SeriesFold<T>,
    signal: AbortSignal,
  ): Promise<T> {
    const request = buildQueryRequest(expression, moments, settings.timeout);
    const begin = recordSampleCounts(backend, fold);
    const parse = async (limited: AbortSignal): Promise<T> => {
      const { series, result } = begin();
      readResult((await readJson(resultData, request, limited)).result, series);
      return result();
    };
    const scan = async (limited: AbortSignal): Promise<T> => {
      const { series, result } = begin();
      const scanner = createScanner(series);
      await stream(request, limited, scanner.push);
      resultData.parse(unwrap(JSON.parse(scanner.end())));
      return result();
    };
    return guarded(request, signal, async (limited) => {
      if (unfamiliar) return parse(limited);
      try {
        return await scan(limited);
      } catch (cause) {
        if (!(cause instanceof UnexpectedFormat)) throw cause;
        const result = await parse(limited);
        unfamiliar = true;
        io.log({ level: "info", message: "answers are parsed, not scanned", backend, reason: cause.message });
        return result;
      }
    });
  }

  let known:
    | { readonly traits: Promise<DetectedTraits>; readonly since: number; connections: number }
    | undefined;

  /** Where `anew`, asked again on a fresh connection. */
  function traits(signal: AbortSignal, anew: boolean): Promise<DetectedTraits> {
    const now = performance.now();
    const isOld = (entry: NonNullable<typeof known>) =>
      now - entry.since > traitsTtl || (anew && entry.connections !== connections);
    if (known === undefined || isOld(known)) {
      // Not this caller's signal: others wait for the same answer. The guard's own deadline bounds it.
      const entry = { traits: askTraits(new AbortController().signal), since: now, connections };
      known = entry;
      entry.traits.then(
        // The connection that it opened itself is no news.
        () => {
          entry.connections = connections;
        },
        () => {
          if (known === entry) known = undefined;
        },
      );
    }
    return raceAbort(known.traits, signal);
  }

  async function askTraits(signal: AbortSignal): Promise<DetectedTraits> {
    const since = performance.now();
    // In turns: of a source that has rested a single request is let through.
    const { edge, isThanos } = await askProduct(signal);
    const movements = await readIfSupported(askMovements(signal));
    const { oldest, aligned = false } = movements ?? {};
    return { edge, isThanos, hidesRestarts: isThanos, oldest, aligned, since };
  }

  /** Of a range over all times, which has one value. */
  async function askMovements(signal: AbortSignal): Promise<RangeAlignment | undefined> {
    // VictoriaMetrics reads the seconds of the first weeks of 1970 otherwise.
    const [start, now] = [year, toMillis(io.now())];
    const everything = { start, end: now, step: now };
    const { result } = await ask(
      resultData,
      buildQueryRequest(constantOne, everything, settings.timeout),
      signal,
    );
    const first = rangeOfOnes.safeParse(result).data?.[0].values[0]?.[0];
    return first === undefined ? undefined : detectAlignment(start, Math.round(first * 1_000));
  }

  async function askProduct(signal: AbortSignal): Promise<Pick<DetectedTraits, "edge" | "isThanos">> {
    // Thanos alone reads this parameter, and refuses what it cannot read, also behind a proxy that shows nothing else of it.
    const unread = await readIfSupported(countOnes({ dedup: "neither" }, signal));
    const found = unread ?? (await countOnes({}, signal));
    // 3.0.0 opened the ranges, and 3.0.1 the subqueries.
    const edge = found === "2" && (await version(signal)) !== "3.0.0" ? "closed" : "open";
    return { edge, isThanos: unread === undefined };
  }

  /**
   * Ones at every full minute: a closed range of a minute holds two of them. In the last one, since Mimir answers nothing
   * of a time that lies before its retention.
   */
  async function countOnes(parameters: Record<string, string>, signal: AbortSignal): Promise<string> {
    const query = "count_over_time(vector(1)[1m:1m])";
    const time = printSeconds(Math.floor(toMillis(io.now()) / minute) * minute);
    const form = new URLSearchParams({ query, time, ...parameters });
    const { result } = await ask(resultData, { method: "POST", path: "/api/v1/query", form }, signal);
    const found = vectorOfOnes.safeParse(result).data?.[0].value[1];
    if (found === undefined) throw new BackendError(backend, "malformed", "no count of ones");
    return found;
  }

  async function version(signal: AbortSignal): Promise<string> {
    const request: ApiRequest = { method: "GET", path: "/api/v1/status/buildinfo" };
    const data = await readIfSupported(ask(z.object({ version: z.string() }), request, signal));
    return data?.version || "unknown";
  }

  async function metadata(
    search: string,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, readonly string[]>> {
    const request: ApiRequest = { method: "GET", path: `/api/v1/metadata${search}` };
    const data = await readIfSupported(ask(metadataTypes, request, signal));
    return new Map(Object.entries(data ?? {}).map(([name, told]) => [name, told.map(({ type }) => type)]));
  }

  return {
    query,
    readTraits: (signal) => traits(signal, true),
    listSeries: (selector, signal) => {
      // Not as a form: prom-label-proxy puts its label into the address, and a source takes either of two selectors.
      const path = `/api/v1/series?${formatMatchParameters(selector)}`;
      return whole(ask(labelSets, { method: "GET", path }, signal), signal);
    },
    async listNames(selector, signal) {
      const path = `/api/v1/label/${metricName}/values?${formatMatchParameters(selector)}`;
      return (await whole(ask(labelValues, { method: "GET", path }, signal), signal)) ?? [];
    },
    readMetadata: async (metric, signal) => {
      const told = await metadata(`?${new URLSearchParams({ metric })}`, signal);
      return told.get(metric) ?? [];
    },
    readAllMetadata: (signal) => metadata("", signal),
    async probe(signal) {
      const { isThanos } = await traits(signal, true);
      return { product: isThanos ? "Thanos" : "Prometheus", version: await version(signal) };
    },
    close: async () => (await opened)?.destroy(),
  };
}

/** As much of an error as is worth logging. */
async function readErrorText(body: AsyncIterable<Buffer>): Promise<string> {
  let text = "";
  for await (const chunk of body) {
    text += chunk.toString("utf8");
    if (text.length > 4_096) break;
  }
  return text;
}

/** The same folds; of those that come to a result, who explains the request is told how much they took. */
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
        recorder.sampled({ backend, series, samples });
        return result();
      },
    };
  };
}

/** The same fold of series that come so much later than they were meant. */
function shiftEarlier<T>({ series, result }: SeriesFold<T>, by: Millis): SeriesFold<T> {
  return { series: (one) => series({ ...one, times: one.times.map((time) => time - by) }), result };
}

/** Everything that is kept. Without a start VictoriaMetrics looks at the last five minutes, and with 0 as well. */
const allTimes = { start: "1" };
const formatMatchParameters = (selector: Selector): URLSearchParams =>
  new URLSearchParams({ "match[]": printSelector(selector), ...allTimes });

const constantOne = call("vector", number(1));
const rangeOfOnes = z.tuple([z.object({ values: z.array(z.tuple([z.number(), z.string()])) })]);
const vectorOfOnes = z.tuple([z.object({ value: z.tuple([z.number(), z.string()]) })]);
const labelSets = z.array(labelSet);
const labelValues = z.array(z.string()).nullish();
/** By kind of store. */
const storeLists = z.record(
  z.string(),
  z.array(z.object({ name: z.string(), lastError: z.unknown() })).nullish(),
);
const metadataTypes = z.record(z.string(), z.array(z.object({ type: z.string() })));

/** What a proxy does not route, or another product does not have, is not there; what fails otherwise may be. */
async function readIfSupported<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof BackendError && (error.status ?? 500) < 500 && isRefusal(error)) return undefined;
    throw error;
  }
}

function isRefusal({ failure }: BackendError): boolean {
  return failure === "rejected" || failure === "denied";
}

function buildQueryRequest(expression: Expression, moments: EvaluationTime, timeout: Millis): ApiRequest {
  const form = new URLSearchParams({ query: printExpression(expression) });
  if ("at" in moments) form.set("time", printSeconds(moments.at));
  else {
    form.set("start", printSeconds(moments.start));
    form.set("end", printSeconds(moments.end));
    form.set("step", printDuration(moments.step));
  }
  form.set("timeout", printDuration(timeout));
  // Of what is asked without a range, on servers that look back less far of themselves (2.42, Cortex and
  // VictoriaMetrics do not read it).
  form.set("lookback_delta", printDuration(lookbackDelta));
  // Thanos answers in part, with status 200, or from downsampled data, unless it is told not to. A resolution of 0 would
  // say the same, but its query frontend hands that on as none, for which the querier may have another default.
  form.set("partial_response", "false");
  form.set("max_source_resolution", "1ms");
  // VictoriaMetrics moves the start and the end of 50 steps and more for the sake of its cache, unless it is told not to.
  form.set("nocache", "1");
  return { method: "POST", path: "at" in moments ? "/api/v1/query" : "/api/v1/query_range", form };
}

function printSeconds(millis: Millis): string {
  return (millis / 1_000).toFixed(3);
}

function buildAuthorization(auth: ClientSettings["auth"]): Readonly<Record<string, string>> {
  if (auth === undefined) return {};
  if ("bearer" in auth) return { authorization: `Bearer ${auth.bearer}` };
  return { authorization: `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString("base64")}` };
}

/** An answer with an error status. The server's own text goes no further than the log. */
function toResponseError(
  backend: string,
  status: number,
  text: string,
  retryAfterSeconds: number | undefined,
): BackendError {
  const told = `status ${status}: ${text.slice(0, 2_000)}`;
  return new BackendError(backend, classifyFailure(status, text), told, { status, retryAfterSeconds });
}

const failureByStatus: Readonly<Record<number, Failure>> = {
  401: "denied",
  403: "denied",
  408: "timeout",
  429: "overloaded",
  502: "unreachable",
  503: "overloaded",
  504: "timeout",
};

/** A deadline that passes while series are loaded, or in the queue, comes as 422, and one in evaluation as 503. */
function classifyFailure(status: number, text: string): Failure {
  const late = /deadline exceeded|timed out|cancell?ed/i.test(text);
  if (late && [422, 499, 500, 503].includes(status)) return "timeout";
  // Of what a Thanos asks, and has not yet found to be away.
  if (text.includes("code = Unavailable")) return "partial";
  return failureByStatus[status] ?? "rejected";
}
