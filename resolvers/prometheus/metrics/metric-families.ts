// What metrics there are within a wall, and what they are. Prometheus keeps series and no types: a family is told by the
// names and labels of its parts, a type by what targets said of it, by its name, or by one look at its samples.
import { BackendError, Refused } from "../../../src/core/errors.ts";
import type { MetricType } from "../../../src/core/rows.ts";
import { day, hour, type Millis, minute, printMillis, toMillis } from "../../../src/core/time.ts";
import { compareLists } from "../../../src/metrics/measures.ts";
import type { ForcedLabels, IO, PartInspection } from "../../../src/store/store.ts";
import type { PrometheusClient } from "../client/client.ts";
import {
  aggregate,
  binary,
  call,
  type Expression,
  matchAnyOf,
  matchEqual,
  matchPresent,
  metadataLabels,
  metricName,
  printSelector,
  type RangeEdge,
  type Selector,
  select,
  selectRange,
  typeLabel,
} from "../client/promql.ts";
import { collectSeries, type Labels } from "../client/response-scanner.ts";
import { createSwrCache } from "../client/swr-cache.ts";

/**
 * How a metric is stored. The parts of `readHistogram` are `_bucket`, `_count`, `_sum`; of `both` some series have these
 * parts, or those of a summary, and some, maybe others and maybe at other times, are native. A `readSummary` may have no
 * quantiles, and a `readHistogram` may have been one.
 */
export type MetricShape = "gauge" | "counter" | "histogram" | "native" | "both" | "summary";

export interface MetricFamilies {
  /** Sorted. @throws {BackendError} */
  listNames(match: ForcedLabels, signal: AbortSignal): Promise<readonly string[]>;
  /** @throws {BackendError} */
  readShape(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<MetricShape | undefined>;
  /** As `MetricStore.isGuess`. @throws {BackendError} */
  isGuess(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<boolean>;
  /** What an operator should know of the metrics within a wall. @throws {BackendError} */
  inspect(match: ForcedLabels, signal: AbortSignal): Promise<PartInspection>;
  /** As `MetricStore.tagKeys`. @throws {BackendError} */
  listTagKeys(
    match: ForcedLabels,
    metric: string,
    signal: AbortSignal,
  ): Promise<readonly (readonly string[])[] | undefined>;
}

export const typeByShape: Readonly<Record<MetricShape, MetricType>> = {
  gauge: "gauge",
  counter: "counter",
  histogram: "measurement",
  native: "measurement",
  both: "measurement",
  summary: "measurement",
};

/** A part of a family in the wall. */
export function selectPart(match: ForcedLabels, name: string): Selector {
  return select(match, [matchEqual(metricName, name)]);
}

/** The series that carry a family's tags. */
function selectTagged(match: ForcedLabels, metric: string, shape: MetricShape): Selector {
  if (shape === "both") return select(match, [matchAnyOf(metricName, [metric, `${metric}_count`])]);
  return selectPart(match, shape === "histogram" || shape === "summary" ? `${metric}_count` : metric);
}

/** Labels of the source's own, which no metric has as tags. */
const reservedLabels: readonly string[] = [...metadataLabels, "le", "quantile"];

export function isTag(match: ForcedLabels, label: string): boolean {
  return !reservedLabels.includes(label) && !Object.hasOwn(match, label);
}

/** Of a name that stands alone; guessed where neither a target nor the name tells. */
interface DetectedShape {
  readonly shape: MetricShape;
  readonly guessed?: true;
}

/** Families of a wall; a `plain` one is a single name, whose type its samples or its targets tell. */
type FamilyListing = ReadonlyMap<string, "plain" | "histogram" | "both" | "summary">;

/** A metric that is not listed is looked for again in a listing of at most this age. */
const unknownMetricMaxAge: Millis = 10_000;

export function createMetricFamilies(backend: string, client: PrometheusClient, io: IO): MetricFamilies {
  const never = new AbortController().signal;
  const listings = createSwrCache<FamilyListing>(
    {
      name: "metric_names",
      entries: 200,
      freshFor: minute,
      maxAge: hour,
      load: async (key) => {
        const match: ForcedLabels = JSON.parse(key);
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
      },
    },
    io,
  );
  const shapes = createSwrCache<DetectedShape>(
    {
      name: "metric_types",
      entries: 5_000,
      freshFor: 10 * minute,
      maxAge: hour,
      load: (key) => {
        const [forcedLabels, metric]: [string, string] = JSON.parse(key);
        return findShape(JSON.parse(forcedLabels), metric);
      },
    },
    io,
  );
  const tags = createSwrCache<readonly (readonly string[])[]>(
    {
      name: "metric_tags",
      entries: 5_000,
      freshFor: 5 * minute,
      maxAge: hour,
      load: async (key) => {
        const [forcedLabels, metric, shape]: [string, string, MetricShape] = JSON.parse(key);
        const match: ForcedLabels = JSON.parse(forcedLabels);
        return listTagCombinations(match, await client.listSeries(selectTagged(match, metric, shape), never));
      },
    },
    io,
  );

  async function listed(match: ForcedLabels, metric: string, signal: AbortSignal) {
    const key = formatMatchKey(match);
    const known = (await listings.read(key, signal)).get(metric);
    return known ?? (await listings.read(key, signal, unknownMetricMaxAge)).get(metric);
  }

  async function shape(
    match: ForcedLabels,
    metric: string,
    signal: AbortSignal,
  ): Promise<MetricShape | undefined> {
    const known = await listed(match, metric, signal);
    if (known === undefined || known === "summary") return known;
    const { shape } = await told(match, metric, signal);
    return known === "plain" ? shape : known;
  }

  function told(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<DetectedShape> {
    return shapes.read(JSON.stringify([formatMatchKey(match), metric]), signal);
  }

  /** @throws {Refused} of a histogram that is no counter */
  async function findShape(match: ForcedLabels, metric: string): Promise<DetectedShape> {
    const [listing, own] = await Promise.all([
      listings.read(formatMatchKey(match), never),
      client.readMetadata(metric, never),
    ]);
    if (isGaugeHistogram(own)) throw noCounter(metric, "a gauge histogram");
    const kind = listing.get(metric);
    if (kind === "histogram" || kind === "both") return { shape: kind };
    const base = own.length === 0 ? deriveFamilyName(metric) : undefined;
    const family = base === undefined ? [] : await client.readMetadata(base, never);
    const shape = deriveDeclaredType(metric, own, family, listing);
    if (shape !== undefined) return { shape };
    const now = toMillis(io.now());
    const selector = selectPart(match, metric);
    // What ended long ago has still a type; the longer looks find nothing where the short one would have.
    const { hidesRestarts, edge } = await client.readTraits(never);
    for (const length of [hour, day, 30 * day, 3_650 * day]) {
      const samples = selectRange(selector, "closed", { from: length, to: 0 });
      const labelled = chooseMajorityType(await labelledTypes(samples, now));
      if (labelled !== undefined) return { shape: labelled };
      // Before all else: a function that histograms do not have warns of them.
      if (await areHistograms(metric, samples, now, edge)) return { shape: "native" };
      const [restarts, changes, least] = await Promise.all([
        look(
          hidesRestarts ? buildHiddenRestarts(samples) : aggregate("sum", [], call("resets", samples)),
          now,
        ),
        look(aggregate("max", [], call("changes", samples)), now),
        look(aggregate("min", [], call("min_over_time", samples)), now),
      ]);
      if (least === undefined) continue;
      if (/_(total|bucket)$/.test(metric)) return { shape: "counter" };
      const fell = (restarts ?? 0) > 0 || least < 0;
      // `x_count` without a family is what a histogram has lost, or how many there are of something.
      const grew = (changes ?? 0) > 0 || /_(count|sum)$/.test(metric);
      return { shape: grew && !fell ? "counter" : "gauge", guessed: true };
    }
    if (/_(total|bucket)$/.test(metric)) return { shape: "counter" };
    return { shape: /_(count|sum)$/.test(metric) ? "counter" : "gauge", guessed: true };
  }

  /** What targets said, where the source has it in a label. */
  async function labelledTypes(samples: Expression, at: Millis): Promise<readonly string[]> {
    const types = aggregate("group", [typeLabel], call("last_over_time", samples));
    const found = await client.query(types, { at }, collectSeries, never);
    return found.flatMap(({ labels }) => labels[typeLabel] ?? []);
  }

  async function inspect(match: ForcedLabels, signal: AbortSignal): Promise<PartInspection> {
    const [listing, told, { edge, oldest }] = await Promise.all([
      listings.read(formatMatchKey(match), signal, 0),
      client.readAllMetadata(signal),
      client.readTraits(signal),
    ]);
    const counts = { gauges: 0, counters: 0, histograms: 0, summaries: 0, "of unknown type": 0 };
    const kinds = {
      gauge: "gauges",
      counter: "counters",
      histogram: "histograms",
      both: "histograms",
      summary: "summaries",
    } as const;
    let noCounters = 0;
    for (const [metric, kind] of listing) {
      const typesOf = (name: string) => told.get(name) ?? [];
      if (isGaugeHistogram(typesOf(metric))) noCounters += 1;
      const type =
        kind === "plain"
          ? deriveDeclaredType(metric, typesOf(metric), typesOf(deriveFamilyName(metric) ?? metric), listing)
          : kind;
      counts[type === undefined ? "of unknown type" : kinds[type]] += 1;
    }
    const counted = Object.entries(counts).filter(([, count]) => count > 0);
    const summary = counted.map(([kind, count]) => `${count} ${kind}`).join(", ");
    return {
      found: [
        `${listing.size} metrics${counted.length === 0 ? "" : `: ${summary}`}`,
        `ranges are ${edge === "closed" ? "closed at their left, as in Prometheus 2" : "left-open, as since Prometheus 3"}`,
      ],
      limitations: [
        ...(counts["of unknown type"] === 0
          ? []
          : [
              `of ${counts["of unknown type"]} metrics no target tells the type: it is guessed from name and samples`,
            ]),
        ...(noCounters === 0 ? [] : [`${noCounters} gauge histograms, as their targets say, are refused`]),
        ...(oldest === undefined
          ? []
          : [
              `the source answers nothing from before ${printMillis(oldest)}, as its retention or look-back is`,
            ]),
        ...(edge === "open" ? [] : ["tags whose names need quotes cannot be asked for"]),
      ],
      problems: listing.size > 0 ? [] : [describeNoSeries(match)],
    };
  }

  function noCounter(metric: string, feature: string): Refused<"not_supported_by_backend"> {
    const message = `The source cannot answer this exactly: ${JSON.stringify(metric)} is ${feature}`;
    return new Refused("not_supported_by_backend", message, { backend, feature });
  }

  async function look(expression: Expression, at: Millis): Promise<number | undefined> {
    const [found] = await client.query(expression, { at }, collectSeries, never);
    return found?.values[0];
  }

  /** @throws {Refused} where they are no counters */
  async function areHistograms(
    metric: string,
    samples: Expression,
    at: Millis,
    edge: RangeEdge,
  ): Promise<boolean> {
    const counted = async (name: string) =>
      (await look(aggregate("count", [], call("histogram_count", call(name, samples))), at)) !== undefined;
    let found = false;
    try {
      found = await counted("last_over_time");
      // In 2.x the last one over time is not a histogram any more, but their rate is. It also warns of what is no counter;
      // and of numbers whose start timestamps overlap (`use-start-timestamps`), which is of no interest here.
      if (!found && edge === "open") return false;
      return (await counted("rate")) || found;
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      // A source that does not know what histograms are, or for which their rate is too much.
      if (error.failure === "rejected") return found;
      if (error.failure === "partial" && /histogram metric is not a counter/.test(error.message)) {
        throw noCounter(metric, "a native histogram that is no counter");
      }
      // Histograms of two kinds in one series have no rate.
      if (error.failure === "partial" && found) return true;
      throw error;
    }
  }

  return {
    async listNames(match, signal) {
      return [...(await listings.read(formatMatchKey(match), signal)).keys()];
    },
    readShape: shape,
    isGuess: async (match, metric, signal) =>
      (await listed(match, metric, signal)) === "plain" &&
      (await told(match, metric, signal)).guessed === true,
    inspect,
    async listTagKeys(match, metric, signal) {
      const known = await shape(match, metric, signal);
      if (known === undefined) return undefined;
      return tags.read(JSON.stringify([formatMatchKey(match), metric, known]), signal);
    },
  };
}

/** Above zero where restarts were added up: what a change of value is not, an increase is. */
function buildHiddenRestarts(samples: Expression): Expression {
  return aggregate("max", [], binary(call("increase", samples), "-", call("delta", samples)));
}

/**
 * What targets said of a name. OpenMetrics says of a counter `x_total` that `x` is one; so where there is a metric `x`
 * beside it (`go_memstats_alloc_bytes`), that `x` is a counter may be said of the other. The parts of a gauge histogram
 * `x` are no family here, and gauges.
 */
function deriveDeclaredType(
  metric: string,
  own: readonly string[],
  family: readonly string[],
  listing: FamilyListing,
): "gauge" | "counter" | undefined {
  if (own.length === 0) {
    if (metric.endsWith("_total")) return family.includes("counter") ? "counter" : undefined;
    return isGaugeHistogram(family) ? "gauge" : undefined;
  }
  const types = listing.has(`${metric}_total`) ? own.filter((type) => type !== "counter") : own;
  // The source tells each statement once, however many targets made it, and those of other walls too; so where they
  // differ, it is for the samples to tell.
  return types.includes("counter") && types.some(isGaugeType) ? undefined : chooseMajorityType(types);
}

/**
 * What most of them said; the states of OpenMetrics are gauges too. A histogram by a plain name may be a native one, which
 * its samples show.
 */
function chooseMajorityType(told: readonly string[]): "gauge" | "counter" | undefined {
  const counters = told.filter((type) => type === "counter").length;
  const gauges = told.filter(isGaugeType).length;
  if (told.includes("histogram") || counters + gauges === 0) return undefined;
  return counters >= gauges ? "counter" : "gauge";
}

function isGaugeType(type: string): boolean {
  return type === "gauge" || type === "stateset" || type === "info";
}

/** In the spelling of Prometheus or of VictoriaMetrics; where another target says otherwise, it may not be so here. */
function isGaugeHistogram(told: readonly string[]): boolean {
  return told.length > 0 && told.every((type) => /^gauge ?histogram$/.test(type));
}

/** What OpenMetrics says the type of, where it says that of no part. */
function deriveFamilyName(metric: string): string | undefined {
  return /^(.+)_(?:total|bucket|gcount|gsum)$/.exec(metric)?.[1];
}

function formatMatchKey(match: ForcedLabels): string {
  return JSON.stringify(Object.fromEntries(Object.entries(match).sort(([a], [b]) => (a < b ? -1 : 1))));
}

/**
 * The families behind the names. A family is one only where it is whole: `x_count` without `x_sum` is a metric of its
 * own. A summary that exports no quantiles has nothing but the two, and a histogram or a summary may have native samples
 * by its name.
 */
export function groupIntoFamilies(
  names: ReadonlySet<string>,
  withBounds: ReadonlySet<string>,
  withQuantiles: ReadonlySet<string>,
  withoutQuantiles: ReadonlySet<string>,
): FamilyListing {
  const parts = new Set<string>();
  const families = new Map<string, "histogram" | "both" | "summary">();
  for (const name of names) {
    if (!name.endsWith("_count")) continue;
    const family = name.slice(0, -"_count".length);
    const [bucket, sum] = [`${family}_bucket`, `${family}_sum`];
    if (family === "" || !names.has(sum)) continue;
    const summary = withQuantiles.has(family);
    const alone = summary ? !withoutQuantiles.has(family) : !names.has(family);
    if (withBounds.has(bucket)) families.set(family, alone ? "histogram" : "both");
    else if (summary || alone) families.set(family, alone ? "summary" : "both");
    else continue;
    for (const one of [family, name, sum]) parts.add(one);
    if (withBounds.has(bucket)) parts.add(bucket);
  }
  const all = [...names].filter((name) => !parts.has(name)).map((name) => [name, "plain"] as const);
  return new Map([...families, ...all].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function describeNoSeries(match: ForcedLabels): string {
  if (Object.keys(match).length === 0) return "there are no series";
  return `no series has the labels ${printSelector(select(match, []))}`;
}

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
