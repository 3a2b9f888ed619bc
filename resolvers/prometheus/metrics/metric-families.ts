// The metrics under the forced labels of a site: their names, shapes and tags, each kept in a cache. Looking them up
// costs a request only when the cache is cold or stale.
import { mapConcurrent } from "../../../src/core/async/concurrency.ts";
import { sortInSteps, takeSteps, takeTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { compareLists } from "../../../src/core/collections.ts";
import type { MetricType } from "../../../src/core/rows.ts";
import { type Millis, minute, printMillis } from "../../../src/core/time.ts";
import type { IO } from "../../../src/store/backend.ts";
import type { PartInspection } from "../../../src/store/inspection.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import {
  type Matcher,
  matchAnyOf,
  matchEqual,
  matchNoneOf,
  matchPresent,
  metadataLabels,
  metricName,
  narrowSelector,
  printSelector,
  type Selector,
  select,
} from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import type { ServerTraits } from "../client/server-traits.ts";
import { createSwrCache, type SwrCache } from "../client/swr-cache.ts";
import { dropBoundLabels, infinities } from "../counters/bound-spellings.ts";
import { formatSeriesKey } from "../counters/series-reader.ts";
import {
  type DoubtfulFamily,
  type Family,
  type FamilyListing,
  findFamilyCandidates,
  formatMatchKey,
  groupIntoFamilies,
  listDoubtfulHistograms,
  listDoubtfulSummaries,
  type NameSets,
  selectPart,
} from "./family-listing.ts";
import {
  countsObservations,
  type DetectedShape,
  deriveDeclaredType,
  deriveFamilyName,
  detectShape,
  hasGaugeParts,
  isGaugeHistogram,
  type MetricShape,
} from "./shape-detection.ts";

export interface MetricFamilies {
  /** Sorted by code unit. @throws {BackendError} */
  listNames(match: ForcedLabels, signal: AbortSignal): Promise<readonly string[]>;
  /** `undefined` if there is no such metric. @throws {BackendError} @throws {Refused} of a histogram that is no counter */
  describe(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<MetricForm | undefined>;
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
  /**
   * The labels of the histograms, of all times, that have buckets but neither a count nor a bucket +Inf: how much they have
   * observed is not known. @throws {BackendError}
   */
  listUncountable(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<readonly Labels[]>;
}

/** How a metric is stored, and which parts it has. */
export interface MetricForm {
  readonly shape: MetricShape;
  readonly family: Family;
}

interface FamilyContext {
  readonly backend: string;
  readonly client: PrometheusClient;
  readonly io: IO;
  /** By `formatMatchKey`. */
  readonly listings: SwrCache<FamilyListing>;
  /** By the key of the forced labels and the metric, as a JSON list. */
  readonly shapes: SwrCache<DetectedShape>;
  /** The same with the form. */
  readonly tags: SwrCache<readonly (readonly string[])[]>;
  /** By the same key as `shapes`. */
  readonly uncountable: SwrCache<readonly Labels[]>;
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
  const { listings, tags, uncountable } = context;
  return {
    async listNames(match, signal) {
      return [...(await listings.read(formatMatchKey(match), signal)).keys()];
    },
    describe: (match, metric, signal) => describeMetric(context, match, metric, signal),
    isGuess: async (match, metric, signal) =>
      (await findFamily(context, match, metric, signal))?.kind === "plain" &&
      (await readDetectedShape(context, match, metric, signal)).guessed === true,
    inspect: (match, signal) => inspectMetrics(context, match, signal),
    async listTagKeys(match, metric, signal) {
      const form = await describeMetric(context, match, metric, signal);
      if (form === undefined) return undefined;
      return tags.read(JSON.stringify([formatMatchKey(match), metric, form]), signal);
    },
    listUncountable: (match, metric, signal) =>
      uncountable.read(JSON.stringify([formatMatchKey(match), metric]), signal),
  };
}

function createContext(backend: string, client: PrometheusClient, io: IO): FamilyContext {
  const proofs = createSwrCache<boolean>(
    {
      name: "metric_buckets",
      entries: 5_000,
      maxAge: 10 * minute,
      load: (key) => {
        const [match, metric]: [string, string] = JSON.parse(key);
        return countsObservations({ client, io }, JSON.parse(match), metric);
      },
    },
    io,
  );
  // Targets declare types by names alone: one answer is good for all tenants.
  const declared = createSwrCache<ReadonlyMap<string, readonly string[]>>(
    { name: "metric_types", entries: 1, maxAge: 10 * minute, load: () => client.readAllMetadata(never) },
    io,
  );
  const listings = createSwrCache<FamilyListing>(
    {
      name: "metric_names",
      entries: 200,
      maxAge: minute,
      load: (key) => loadListing(client, { proofs, declared }, JSON.parse(key)),
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
        const [matchKey, metric, form]: [string, string, MetricForm] = JSON.parse(key);
        const match: ForcedLabels = JSON.parse(matchKey);
        const series = await Promise.all(
          selectTagged(match, metric, form).map((selector) => client.listSeries(selector, never)),
        );
        return listTagCombinations(match, form.shape, series.flat());
      },
    },
    io,
  );
  const uncountable = createSwrCache<readonly Labels[]>(
    {
      name: "metric_parts",
      entries: 5_000,
      maxAge: minute,
      load: (key) => {
        const [match, metric]: [string, string] = JSON.parse(key);
        return findUncountable(client, JSON.parse(match), metric);
      },
    },
    io,
  );
  return { backend, client, io, listings, shapes, tags, uncountable };
}

async function findUncountable(
  client: PrometheusClient,
  match: ForcedLabels,
  metric: string,
): Promise<readonly Labels[]> {
  const bucket = selectPart(match, `${metric}_bucket`);
  const finite = [matchPresent("le"), matchNoneOf("le", infinities)];
  // What has finite buckets when these are listed has its count when that is listed later.
  const all = await client.listSeries(narrowSelector(bucket, finite), never);
  const [totals, counts] = await Promise.all(
    [narrowSelector(bucket, [matchAnyOf("le", infinities)]), selectPart(match, `${metric}_count`)].map(
      (selector) => client.listSeries(selector, never),
    ),
  );
  const keyOf = (labels: Labels) => formatSeriesKey(dropBoundLabels(labels));
  const countable = new Set<string>();
  for await (const chunk of takeTurns([...(totals ?? []), ...(counts ?? [])])) {
    for (const labels of chunk) countable.add(keyOf(labels));
  }
  const lost = new Map<string, Labels>();
  for await (const chunk of takeTurns(all)) {
    for (const labels of chunk) lost.set(keyOf(labels), dropBoundLabels(labels));
  }
  return [...lost].flatMap(([key, labels]) => (countable.has(key) ? [] : [labels]));
}

/** How many histograms are looked at at once. */
const concurrentProofs = 4;

interface FamilyProofs {
  /** Whether the buckets of a doubtful histogram count observations. */
  readonly proofs: SwrCache<boolean>;
  /** The types that targets declare, by names. */
  readonly declared: SwrCache<ReadonlyMap<string, readonly string[]>>;
}

async function loadListing(
  client: PrometheusClient,
  { proofs, declared }: FamilyProofs,
  match: ForcedLabels,
): Promise<FamilyListing> {
  const listSet = async (matchers: readonly Matcher[]): Promise<ReadonlySet<string>> => {
    const names = new Set<string>();
    const listed = await client.listNames(select(match, matchers), never);
    await visitInTurns(listed, (name) => names.add(name), never);
    return names;
  };
  const [all, withBounds, withRanges, withQuantiles] = await Promise.all(
    [metricName, "le", "vmrange", "quantile"].map((label) => listSet([matchPresent(label)])),
  );
  const none = new Set<string>();
  const plain = [matchPresent(metricName), matchEqual("quantile", "")];
  const withoutQuantiles = withQuantiles?.size === 0 ? none : await listSet(plain);
  const sets: NameSets = {
    all: all ?? none,
    withBounds: withBounds ?? none,
    withRanges: withRanges ?? none,
    withQuantiles: withQuantiles ?? none,
    withoutQuantiles,
  };
  const candidates = await findFamilyCandidates(sets, never);
  const histograms = await listDoubtfulHistograms(sets, candidates, never);
  const doubtful = [...histograms, ...(await listDoubtfulSummaries(sets, candidates, never))];
  if (doubtful.length === 0) return groupIntoFamilies(sets, candidates, none, never);
  const types = await declared.read("", never);
  const gauges = new Set<string>();
  const addGauges = (family: DoubtfulFamily): void => {
    if (hasGaugeParts(family, types)) gauges.add(family.name);
  };
  await visitInTurns(doubtful, addGauges, never);
  const undeclared = histograms.filter(
    ({ name }) => !gauges.has(name) && types.get(name)?.includes("histogram") !== true,
  );
  const fractions = await mapConcurrent(
    undeclared,
    concurrentProofs,
    async ({ name }, signal) =>
      (await proofs.read(JSON.stringify([formatMatchKey(match), name]), signal)) ? [] : [name],
    never,
  );
  return groupIntoFamilies(sets, candidates, new Set([...gauges, ...fractions.flat()]), never);
}

async function findFamily(
  { listings }: FamilyContext,
  match: ForcedLabels,
  metric: string,
  signal: AbortSignal,
): Promise<Family | undefined> {
  const key = formatMatchKey(match);
  const family = (await listings.read(key, signal)).get(metric);
  return family ?? (await listings.read(key, signal, unknownMetricMaxAge)).get(metric);
}

async function describeMetric(
  context: FamilyContext,
  match: ForcedLabels,
  metric: string,
  signal: AbortSignal,
): Promise<MetricForm | undefined> {
  const family = await findFamily(context, match, metric, signal);
  if (family === undefined) return undefined;
  const { kind } = family;
  if (kind === "summary") return { shape: kind, family };
  // Also of a histogram: the detection refuses one that is no counter.
  const { shape } = await readDetectedShape(context, match, metric, signal);
  return { shape: kind === "plain" ? shape : kind, family };
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

/** Labels that tell the parts of a measurement apart. Of other metrics they are tags. */
const partLabels: readonly string[] = ["le", "quantile", "vmrange"];

/** Whether the label is a tag of a metric of this shape. */
export function isTag(match: ForcedLabels, shape: MetricShape, label: string): boolean {
  if (metadataLabels.includes(label) || Object.hasOwn(match, label)) return false;
  return typeByShape[shape] !== "measurement" || !partLabels.includes(label);
}

/** The series that carry the tags of a family, one selector for each name: some servers take exact names only. */
export function selectTagged(
  match: ForcedLabels,
  metric: string,
  { shape, family }: MetricForm,
): readonly Selector[] {
  const count = selectPart(match, `${metric}_count`);
  const bucket = selectPart(match, `${metric}_bucket`);
  switch (shape) {
    case "histogram": {
      const totals = narrowSelector(bucket, [matchAnyOf("le", infinities)]);
      return family.hasCount ? [count, totals] : [totals];
    }
    case "both":
      return [selectPart(match, metric), count];
    case "summary":
      return [family.hasCount ? count : bucket];
    default:
      return [selectPart(match, metric)];
  }
}

/** Each combination of tag keys once, sorted. */
async function listTagCombinations(
  match: ForcedLabels,
  shape: MetricShape,
  series: readonly Labels[],
): Promise<readonly (readonly string[])[]> {
  const found = new Map<string, readonly string[]>();
  for await (const chunk of takeTurns(series)) {
    for (const labels of chunk) {
      const keys = Object.keys(labels)
        .filter((label) => isTag(match, shape, label) && labels[label] !== "")
        .sort();
      if (keys.length > 0) found.set(JSON.stringify(keys), keys);
    }
  }
  return takeSteps(sortInSteps([...found.values()], compareLists));
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
  const { counts, gaugeHistograms } = await countByType(listing, metadata, signal);
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

async function countByType(
  listing: FamilyListing,
  metadata: ReadonlyMap<string, readonly string[]>,
  signal: AbortSignal,
): Promise<{ readonly counts: Readonly<TypeCounts>; readonly gaugeHistograms: number }> {
  const counts: TypeCounts = { gauges: 0, counters: 0, histograms: 0, summaries: 0, [unknownType]: 0 };
  let gaugeHistograms = 0;
  const typesOf = (name: string) => metadata.get(name) ?? [];
  const count = ([metric, { kind }]: readonly [string, Family]): void => {
    if (isGaugeHistogram(typesOf(metric))) gaugeHistograms += 1;
    const type =
      kind === "plain"
        ? deriveDeclaredType(metric, typesOf(metric), typesOf(deriveFamilyName(metric) ?? metric), listing)
        : kind;
    counts[type === undefined ? unknownType : plurals[type]] += 1;
  };
  await visitInTurns(listing, count, signal);
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
