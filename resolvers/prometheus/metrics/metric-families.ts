// The metrics under the forced labels of a site: their names, shapes and tags, each kept in a cache. Looking them up
// costs a request only when the cache is cold or stale.
import type { MetricType } from "../../../src/core/rows.ts";
import { type Millis, minute, printMillis } from "../../../src/core/time.ts";
import { compareLists } from "../../../src/metrics/measures.ts";
import type { IO } from "../../../src/store/backend.ts";
import type { PartInspection } from "../../../src/store/inspection.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import {
  matchEqual,
  matchPresent,
  metadataLabels,
  metricName,
  printSelector,
  type Selector,
  select,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import type { ServerTraits } from "../client/server-traits.ts";
import { createSwrCache, type SwrCache } from "../client/swr-cache.ts";
import {
  type FamilyKind,
  type FamilyListing,
  formatMatchKey,
  groupIntoFamilies,
  selectPart,
} from "./family-listing.ts";
import {
  type DetectedShape,
  deriveDeclaredType,
  deriveFamilyName,
  detectShape,
  isGaugeHistogram,
  type MetricShape,
} from "./shape-detection.ts";

export interface MetricFamilies {
  /** Sorted by code unit. @throws {BackendError} */
  listNames(match: ForcedLabels, signal: AbortSignal): Promise<readonly string[]>;
  /** `undefined` if there is no such metric. @throws {BackendError} @throws {Refused} of a histogram that is no counter */
  readShape(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<MetricShape | undefined>;
  /** As `MetricStore.isTypeGuessed`. @throws {BackendError} */
  isGuess(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<boolean>;
  /** What `readout check` reports of the metrics. @throws {BackendError} */
  inspect(match: ForcedLabels, signal: AbortSignal): Promise<PartInspection>;
  /** As `MetricStore.tagKeys`. @throws {BackendError} */
  listTagKeys(
    match: ForcedLabels,
    metric: string,
    signal: AbortSignal,
  ): Promise<readonly (readonly string[])[] | undefined>;
}

interface FamilyContext {
  readonly backend: string;
  readonly client: PrometheusClient;
  readonly io: IO;
  /** By `formatMatchKey`. */
  readonly listings: SwrCache<FamilyListing>;
  /** By the key of the forced labels and the metric, as a JSON list. */
  readonly shapes: SwrCache<DetectedShape>;
  /** The same with the shape. */
  readonly tags: SwrCache<readonly (readonly string[])[]>;
}

export const typeByShape: Readonly<Record<MetricShape, MetricType>> = {
  gauge: "gauge",
  counter: "counter",
  histogram: "measurement",
  native: "measurement",
  both: "measurement",
  summary: "measurement",
};

/** A metric that is not listed is looked up again in a listing of at most this age. */
const unknownMetricMaxAge: Millis = 10_000;

/** Loading does not end with a caller: others wait for the same result. */
const never = new AbortController().signal;

export function createMetricFamilies(backend: string, client: PrometheusClient, io: IO): MetricFamilies {
  const context = createContext(backend, client, io);
  const { listings, tags } = context;
  return {
    async listNames(match, signal) {
      return [...(await listings.read(formatMatchKey(match), signal)).keys()];
    },
    readShape: (match, metric, signal) => readShape(context, match, metric, signal),
    isGuess: async (match, metric, signal) =>
      (await findKind(context, match, metric, signal)) === "plain" &&
      (await readDetectedShape(context, match, metric, signal)).guessed === true,
    inspect: (match, signal) => inspectMetrics(context, match, signal),
    async listTagKeys(match, metric, signal) {
      const shape = await readShape(context, match, metric, signal);
      if (shape === undefined) return undefined;
      return tags.read(JSON.stringify([formatMatchKey(match), metric, shape]), signal);
    },
  };
}

function createContext(backend: string, client: PrometheusClient, io: IO): FamilyContext {
  const listings = createSwrCache<FamilyListing>(
    {
      name: "metric_names",
      entries: 200,
      maxAge: minute,
      load: (key) => loadListing(client, JSON.parse(key)),
    },
    io,
  );
  const shapes = createSwrCache<DetectedShape>(
    {
      name: "metric_types",
      entries: 5_000,
      maxAge: 10 * minute,
      load: (key) => {
        const [match, metric]: [string, string] = JSON.parse(key);
        return detectShape({ backend, client, io, listings }, JSON.parse(match), metric);
      },
    },
    io,
  );
  const tags = createSwrCache<readonly (readonly string[])[]>(
    {
      name: "metric_tags",
      entries: 5_000,
      maxAge: minute,
      load: async (key) => {
        const [matchKey, metric, shape]: [string, string, MetricShape] = JSON.parse(key);
        const match: ForcedLabels = JSON.parse(matchKey);
        const series = await Promise.all(
          selectTagged(match, metric, shape).map((selector) => client.listSeries(selector, never)),
        );
        return listTagCombinations(match, series.flat());
      },
    },
    io,
  );
  return { backend, client, io, listings, shapes, tags };
}

async function loadListing(client: PrometheusClient, match: ForcedLabels): Promise<FamilyListing> {
  const [all, withBounds, withQuantiles] = await Promise.all(
    [metricName, "le", "quantile"].map((label) =>
      client.listNames(select(match, [matchPresent(label)]), never),
    ),
  );
  const plain = select(match, [matchPresent(metricName), matchEqual("quantile", "")]);
  const withoutQuantiles = withQuantiles?.length === 0 ? [] : await client.listNames(plain, never);
  return groupIntoFamilies(
    new Set(all),
    new Set(withBounds),
    new Set(withQuantiles),
    new Set(withoutQuantiles),
  );
}

async function findKind(
  { listings }: FamilyContext,
  match: ForcedLabels,
  metric: string,
  signal: AbortSignal,
): Promise<FamilyKind | undefined> {
  const key = formatMatchKey(match);
  const kind = (await listings.read(key, signal)).get(metric);
  return kind ?? (await listings.read(key, signal, unknownMetricMaxAge)).get(metric);
}

async function readShape(
  context: FamilyContext,
  match: ForcedLabels,
  metric: string,
  signal: AbortSignal,
): Promise<MetricShape | undefined> {
  const kind = await findKind(context, match, metric, signal);
  if (kind === undefined || kind === "summary") return kind;
  // Also of a histogram: the detection refuses one that is no counter.
  const { shape } = await readDetectedShape(context, match, metric, signal);
  return kind === "plain" ? shape : kind;
}

function readDetectedShape(
  { shapes }: FamilyContext,
  match: ForcedLabels,
  metric: string,
  signal: AbortSignal,
): Promise<DetectedShape> {
  return shapes.read(JSON.stringify([formatMatchKey(match), metric]), signal);
}

// ---- Tags --------------------------------------------------------------------------------------------------------

/** Labels of Prometheus' own, which are no tags. */
const reservedLabels: readonly string[] = [...metadataLabels, "le", "quantile"];

export function isTag(match: ForcedLabels, label: string): boolean {
  return !reservedLabels.includes(label) && !Object.hasOwn(match, label);
}

/** The series that carry the tags of a family, one selector for each name: some servers take exact names only. */
function selectTagged(match: ForcedLabels, metric: string, shape: MetricShape): readonly Selector[] {
  const count = selectPart(match, `${metric}_count`);
  if (shape === "both") return [selectPart(match, metric), count];
  return [shape === "histogram" || shape === "summary" ? count : selectPart(match, metric)];
}

/** Each combination of tag keys once, sorted. */
function listTagCombinations(match: ForcedLabels, series: readonly Labels[]): readonly (readonly string[])[] {
  const found = new Map<string, readonly string[]>();
  for (const labels of series) {
    const keys = Object.keys(labels)
      .filter((label) => isTag(match, label) && labels[label] !== "")
      .sort();
    if (keys.length > 0) found.set(JSON.stringify(keys), keys);
  }
  return [...found.values()].sort(compareLists);
}

// ---- Inspection --------------------------------------------------------------------------------------------------

async function inspectMetrics(
  { client, listings }: FamilyContext,
  match: ForcedLabels,
  signal: AbortSignal,
): Promise<PartInspection> {
  const [listing, metadata, traits] = await Promise.all([
    listings.read(formatMatchKey(match), signal, 0),
    client.readAllMetadata(signal),
    client.readTraits(signal),
  ]);
  const { counts, gaugeHistograms } = countByType(listing, metadata);
  const counted = Object.entries(counts).filter(([, count]) => count > 0);
  const summary = counted.map(([kind, count]) => `${count} ${kind}`).join(", ");
  const edge =
    traits.edge === "closed" ? "left-closed, as in Prometheus 2" : "left-open, as since Prometheus 3";
  return {
    found: [`${listing.size} metrics${counted.length === 0 ? "" : `: ${summary}`}`, `ranges are ${edge}`],
    limitations: listLimitations(counts[unknownType], gaugeHistograms, traits),
    problems: listing.size > 0 ? [] : [describeNoSeries(match)],
  };
}

const unknownType = "of unknown type";

const plurals = {
  gauge: "gauges",
  counter: "counters",
  histogram: "histograms",
  both: "histograms",
  summary: "summaries",
} as const;

type TypeCounts = Record<(typeof plurals)[keyof typeof plurals] | typeof unknownType, number>;

function countByType(
  listing: FamilyListing,
  metadata: ReadonlyMap<string, readonly string[]>,
): { readonly counts: Readonly<TypeCounts>; readonly gaugeHistograms: number } {
  const counts: TypeCounts = { gauges: 0, counters: 0, histograms: 0, summaries: 0, [unknownType]: 0 };
  let gaugeHistograms = 0;
  const typesOf = (name: string) => metadata.get(name) ?? [];
  for (const [metric, kind] of listing) {
    if (isGaugeHistogram(typesOf(metric))) gaugeHistograms += 1;
    const type =
      kind === "plain"
        ? deriveDeclaredType(metric, typesOf(metric), typesOf(deriveFamilyName(metric) ?? metric), listing)
        : kind;
    counts[type === undefined ? unknownType : plurals[type]] += 1;
  }
  return { counts, gaugeHistograms };
}

function listLimitations(
  unknown: number,
  gaugeHistograms: number,
  { edge, oldest }: ServerTraits,
): readonly string[] {
  const limitations: string[] = [];
  if (unknown > 0) {
    limitations.push(
      `no target declares the type of ${unknown} metrics: it is guessed from their names and samples`,
    );
  }
  if (gaugeHistograms > 0) {
    limitations.push(`${gaugeHistograms} metrics are refused: their targets declare gauge histograms`);
  }
  if (oldest !== undefined) {
    limitations.push(
      `the source returns nothing from before ${printMillis(oldest)} (retention or look-back)`,
    );
  }
  if (edge === "closed") limitations.push("tags whose names need quotes cannot be queried");
  return limitations;
}

function describeNoSeries(match: ForcedLabels): string {
  if (Object.keys(match).length === 0) return "there are no series";
  return `no series has the labels ${printSelector(select(match, []))}`;
}
