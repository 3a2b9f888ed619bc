// Detects what a single metric is: by the types that targets declare, by its name, or by its samples. Metadata is
// declared per name and for all tenants, so statements that contradict each other are left to the samples.
import { BackendError, isRejection, Refused } from "../../../src/core/errors.ts";
import { day, hour, type Millis, toMillis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/backend.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  number,
  type RangeEdge,
  selectRange,
  typeLabel,
} from "../client/promql.ts";
import { collectSeries } from "../client/response-scanner.ts";
import type { ServerTraits } from "../client/server-traits.ts";
import type { SwrCache } from "../client/swr-cache.ts";
import { type DoubtfulFamily, type FamilyListing, formatMatchKey, selectPart } from "./family-listing.ts";

/**
 * How a metric is stored. The parts of a `histogram` are `_bucket`, and maybe `_count` and `_sum`. Of `both` some series have
 * these parts, or those of a summary, and some, maybe others and maybe at other times, are native. A `summary` may have
 * no quantiles, and a `histogram` may have been one.
 */
export type MetricShape = "gauge" | "counter" | "histogram" | "native" | "both" | "summary";

export interface DetectedShape {
  readonly shape: MetricShape;
  /** Neither a target nor the name shows the type. */
  readonly guessed?: true;
}

/** What the detection reads. Its requests do not end with a caller: others wait for the same result. */
interface DetectionContext {
  readonly backend: string;
  readonly client: PrometheusClient;
  readonly io: Pick<IO, "now">;
  readonly listings: SwrCache<FamilyListing>;
}

/** How far back samples are looked for, one after the other: what ended long ago still has a type. */
const sampleRanges: readonly Millis[] = [hour, day, 30 * day, 3_650 * day];

const never = new AbortController().signal;

/** @throws {BackendError} @throws {Refused} of a histogram that is no counter */
export async function detectShape(
  context: DetectionContext,
  match: ForcedLabels,
  metric: string,
): Promise<DetectedShape> {
  const { backend, client, listings } = context;
  const [listing, types] = await Promise.all([
    listings.read(formatMatchKey(match), never),
    client.readMetadata(metric, never),
  ]);
  if (isGaugeHistogram(types)) throw createNoCounterError(backend, metric, "a gauge histogram");
  const kind = listing.get(metric)?.kind;
  if (kind === "histogram" || kind === "both") return { shape: kind };
  const family = types.length === 0 ? deriveFamilyName(metric) : undefined;
  const familyTypes = family === undefined ? [] : await client.readMetadata(family, never);
  const declared = deriveDeclaredType(metric, types, familyTypes, listing);
  return declared === undefined ? detectBySamples(context, match, metric) : { shape: declared };
}

async function detectBySamples(
  context: DetectionContext,
  match: ForcedLabels,
  metric: string,
): Promise<DetectedShape> {
  const at = toMillis(context.io.now());
  const selector = selectPart(match, metric);
  const traits = await context.client.readTraits(never);
  for (const length of sampleRanges) {
    const samples = selectRange(selector, "closed", { from: length, to: 0 });
    const detected = await detectInRange(context, metric, samples, at, traits);
    if (detected !== undefined) return detected;
  }
  if (hasCounterName(metric)) return { shape: "counter" };
  return { shape: mayBeHistogramPart(metric) ? "counter" : "gauge", guessed: true };
}

/**
 * Whether the buckets of a histogram that no target declares count observations. They may be recorded rates, which are
 * fractions. Buckets of zeros show nothing.
 */
export async function countsObservations(
  context: Pick<DetectionContext, "client" | "io">,
  match: ForcedLabels,
  metric: string,
): Promise<boolean> {
  const at = toMillis(context.io.now());
  const selector = selectPart(match, `${metric}_bucket`);
  for (const length of sampleRanges) {
    const samples = selectRange(selector, "closed", { from: length, to: 0 });
    const greatest = aggregate("max", [], call("max_over_time", samples));
    if (!((await readScalar(context, greatest, at)) ?? 0)) continue;
    const takeFraction = (name: string) => {
      const value = call(name, samples);
      return binary(value, "-", call("floor", value));
    };
    // A sum alone may be whole by chance.
    const extremes = binary(takeFraction("max_over_time"), "+", takeFraction("min_over_time"));
    const fractions = binary(takeFraction("sum_over_time"), "+", extremes);
    const fractional = aggregate("count", [], binary(fractions, "!=", number(0)));
    return (await readScalar(context, fractional, at)) === undefined;
  }
  return true;
}

/** Whether targets declare the parts of what could be a histogram or summary as gauges, and nothing by the name of the whole. */
export function hasGaugeParts(
  { name, parts }: DoubtfulFamily,
  declared: ReadonlyMap<string, readonly string[]>,
): boolean {
  const types = parts.flatMap((part) => declared.get(part) ?? []).filter((type) => type !== "unknown");
  return !declared.has(name) && types.length > 0 && types.every(isGaugeType);
}

/** `undefined` if the range has no samples. */
async function detectInRange(
  context: DetectionContext,
  metric: string,
  samples: Expression,
  at: Millis,
  { hidesRestarts, edge }: ServerTraits,
): Promise<DetectedShape | undefined> {
  const labelled = chooseAgreedType(await readTypeLabels(context, samples, at));
  if (labelled !== undefined) return { shape: labelled };
  // Before the functions below, which warn of histograms.
  if (await hasHistograms(context, metric, samples, at, edge)) return { shape: "native" };
  const restartCount = aggregate("sum", [], call("resets", samples));
  const [restarts = 0, changes = 0, least] = await Promise.all([
    readScalar(context, hidesRestarts ? buildHiddenRestarts(samples) : restartCount, at),
    readScalar(context, aggregate("max", [], call("changes", samples)), at),
    readScalar(context, aggregate("min", [], call("min_over_time", samples)), at),
  ]);
  if (least === undefined) return undefined;
  if (hasCounterName(metric)) return { shape: "counter" };
  const fell = restarts > 0 || least < 0;
  const grew = changes > 0 || mayBeHistogramPart(metric);
  return { shape: grew && !fell ? "counter" : "gauge", guessed: true };
}

function hasCounterName(metric: string): boolean {
  return /_(total|bucket)$/.test(metric);
}

/** `x_count` without a family is what is left of a histogram, or how many there are of something. */
function mayBeHistogramPart(metric: string): boolean {
  return /_(count|sum)$/.test(metric);
}

/** The types that targets declare, where the server keeps them as a label. */
async function readTypeLabels(
  { client }: DetectionContext,
  samples: Expression,
  at: Millis,
): Promise<readonly string[]> {
  const types = aggregate("group", [typeLabel], call("last_over_time", samples));
  const found = await client.query(types, { at }, collectSeries, never);
  return found.flatMap(({ labels }) => labels[typeLabel] ?? []);
}

/** The value of the first series; `undefined` if there is none. */
async function readScalar(
  { client }: Pick<DetectionContext, "client">,
  expression: Expression,
  at: Millis,
): Promise<number | undefined> {
  const [found] = await client.query(expression, { at }, collectSeries, never);
  return found?.values[0];
}

/** Whether the samples are native histograms. @throws {Refused} if they are no counters */
async function hasHistograms(
  context: DetectionContext,
  metric: string,
  samples: Expression,
  at: Millis,
  edge: RangeEdge,
): Promise<boolean> {
  const hasCount = async (name: string) => {
    const count = aggregate("count", [], call("histogram_count", call(name, samples)));
    return (await readScalar(context, count, at)) !== undefined;
  };
  let found = false;
  try {
    found = await hasCount("last_over_time");
    // In 2.x `last_over_time` of a histogram is none, but `rate` is. It also warns of histograms that are no counters,
    // and of numbers whose start timestamps overlap (`use-start-timestamps`), which does not matter here.
    if (!found && edge === "open") return false;
    return (await hasCount("rate")) || found;
  } catch (error) {
    if (!(error instanceof BackendError)) throw error;
    // The server does not know histograms, or their rate is too much for it.
    if (isRejection(error)) return found;
    if (error.failure === "partial" && /histogram metric is not a counter/.test(error.message)) {
      throw createNoCounterError(context.backend, metric, "a native histogram that is no counter");
    }
    // Histograms of two kinds in one series have no rate.
    if (error.failure === "partial" && found) return true;
    throw error;
  }
}

function createNoCounterError(
  backend: string,
  metric: string,
  feature: string,
): Refused<"not_supported_by_backend"> {
  const message = `The source cannot answer this exactly: ${JSON.stringify(metric)} is ${feature}`;
  return new Refused("not_supported_by_backend", message, { backend, feature });
}

/** Above zero if the server added restarts up: `increase` then exceeds the difference of the values. */
function buildHiddenRestarts(samples: Expression): Expression {
  return aggregate("max", [], binary(call("increase", samples), "-", call("delta", samples)));
}

/**
 * The type that targets declare for a name; `undefined` if they declare none, or contradict each other. OpenMetrics
 * declares a counter `x_total` as `x`: if a metric `x` exists beside it (`go_memstats_alloc_bytes`), a counter `x` may
 * mean the other. The parts of a gauge histogram `x` form no family here, and are gauges.
 */
export function deriveDeclaredType(
  metric: string,
  declared: readonly string[],
  familyDeclared: readonly string[],
  listing: FamilyListing,
): "gauge" | "counter" | undefined {
  if (declared.length === 0) {
    if (metric.endsWith("_total")) return familyDeclared.includes("counter") ? "counter" : undefined;
    return isGaugeHistogram(familyDeclared) ? "gauge" : undefined;
  }
  const types = listing.has(`${metric}_total`) ? declared.filter((type) => type !== "counter") : declared;
  // The server returns each statement once, however many targets made it, and also those of other tenants.
  return chooseAgreedType(types);
}

/**
 * `undefined` if there is none, if both are among them, and if a histogram is among them: under a plain name it may be a native
 * one.
 */
function chooseAgreedType(types: readonly string[]): "gauge" | "counter" | undefined {
  const isCounter = types.includes("counter");
  if (types.includes("histogram") || types.some(isGaugeType) === isCounter) return undefined;
  return isCounter ? "counter" : "gauge";
}

/** The states of OpenMetrics are gauges too. */
function isGaugeType(type: string): boolean {
  return type === "gauge" || type === "stateset" || type === "info";
}

/** Whether all declare it, as Prometheus or as VictoriaMetrics spells it. Otherwise the declaration may be another tenant's. */
export function isGaugeHistogram(types: readonly string[]): boolean {
  return types.length > 0 && types.every((type) => /^gauge ?histogram$/.test(type));
}

/** The name under which OpenMetrics declares the type of a part. */
export function deriveFamilyName(metric: string): string | undefined {
  return /^(.+)_(?:total|bucket|gcount|gsum)$/.exec(metric)?.[1];
}
