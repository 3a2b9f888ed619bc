// Metrics: the contract of a metric store, and its queries.
// The promises of every store (`backend.ts`) hold here too.
import type { HeldBytes } from "../core/async/held-bytes.ts";
import type { Buckets, Measure, MetricType, Series } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { CounterSamples, Observations } from "../metrics/samples.ts";

/**
 * Labels that every selector carries with these values, which separates tenants. Nothing else is visible: neither the
 * name nor the first sample of a metric (`baseline` in `src/metrics/samples.ts`) may come from another tenant.
 */
export type ForcedLabels = Readonly<Record<string, string>>;

/**
 * A metric is a family: the series of a histogram or summary are one metric, under the name of the family.
 * `src/metrics/samples.ts` defines each measure over raw samples.
 */
export interface MetricStore {
  /** Returns the name of each metric with the forced labels, sorted by UTF-16 code unit. @throws {BackendError} */
  names(forced: ForcedLabels, signal: AbortSignal): Promise<readonly string[]>;
  /** Undefined where no series of the metric has the forced labels. @throws {BackendError} */
  type(forced: ForcedLabels, metric: string, signal: AbortSignal): Promise<MetricType | undefined>;
  /**
   * Whether gauge or counter is a guess from the samples, which later samples may change. The store then answers measures
   * of both types.
   * @throws {BackendError}
   */
  isTypeGuessed?(forced: ForcedLabels, metric: string, signal: AbortSignal): Promise<boolean>;
  /**
   * Returns each combination of tag keys that a series has: keys sorted, combinations sorted, each once; `[]` where no
   * series has a tag. Forced labels and `__name__` are no tags, nor are `le` and `quantile` of a measurement. Undefined
   * as for `type`.
   * @throws {BackendError}
   */
  tagKeys(
    forced: ForcedLabels,
    metric: string,
    signal: AbortSignal,
  ): Promise<readonly (readonly string[])[] | undefined>;
  /**
   * Returns a series for each distinct combination of values of the keys of `query.tags`, sorted by these values in the
   * order of the sorted keys. Other labels are aggregated away. A series without a value in any bucket is omitted. An
   * unknown metric has no series.
   *
   * @throws {Refused} `result_too_large` over `pointLimit` or what may be `held`, `not_supported_by_backend` for a measure that the source
   *   cannot answer exactly (such as a quantile that a summary does not export)
   * @throws {BackendError}
   */
  series(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]>;
  /** What a store over several stores needs. Absent: metrics of the source cannot be merged with those of others. */
  readonly members?: MemberReader | undefined;
}

/** Reads single series, of which a store over several stores computes the measures itself. */
export interface MemberReader {
  /**
   * Returns the series that the query selects, each with what its measure is computed from.
   * @throws {Refused} `result_too_large`, `not_supported_by_backend` @throws {BackendError}
   */
  read(query: SeriesQuery, signal: AbortSignal): Promise<readonly SeriesMember[]>;
  /**
   * As `read`, with all samples from `buckets.start` on and none before. Baselines are `own`. With `only`, of the series
   * that have all tags of one of these sets, and maybe of others.
   */
  readRaw(query: RawMemberQuery, signal: AbortSignal): Promise<readonly SampledMember[]>;
  /**
   * Returns the tags of the series that had a finite sample before a time, of those that have all tags of one of these
   * sets, and maybe of others. @throws {BackendError}
   */
  findHeldBefore(
    query: MetricQuery,
    before: Millis,
    only: readonly Tags[],
    signal: AbortSignal,
  ): Promise<readonly Tags[]>;
  /**
   * The time of the first finite sample of the metric, whatever the query's tags: -Infinity where it is before the buckets,
   * Infinity where it is not within them either. @throws {Refused | BackendError}
   */
  findFirstTime(query: MetricQuery & Pick<SeriesQuery, "buckets">, signal: AbortSignal): Promise<Millis>;
}

export type Tags = Readonly<Record<string, string>>;

/**
 * One series of a gauge or counter, or one histogram or summary, with all its tags: the labels that `tagKeys` counts.
 * - `values`, one for each bucket, is the measure of this series alone: of gauges, except quantiles. NaN where it has none.
 *   Of a summary's quantile it is that of a group, with the tags of the query.
 * - `samples` give the measure as all samples of the series would.
 * - `observations` likewise.
 */
export type SeriesMember = { readonly tags: Tags } & (
  | { readonly values: Float64Array }
  | { readonly samples: CounterSamples }
  | { readonly observations: Observations }
);

/** A member of which all samples are there. */
export type SampledMember = Exclude<SeriesMember, { readonly values: Float64Array }>;

export type MetricQuery = Pick<SeriesQuery, "match" | "metric" | "tags" | "measure" | "held">;

export interface RawMemberQuery extends MetricQuery, Pick<SeriesQuery, "buckets" | "reportRead"> {
  readonly only?: readonly Tags[] | undefined;
  /** The most samples. */
  readonly sampleLimit: number;
}

export interface SeriesQuery {
  readonly match: ForcedLabels;
  readonly metric: string;
  /**
   * Patterns by key, as `matchesTags` of `src/metrics/tag-patterns.ts` reads them: a series has each of the tags, with a
   * value that is not empty. Names and values are data, never query text. A name that is no tag matches nothing. Keys
   * may be any text, also `__proto__`.
   */
  readonly tags: Readonly<Record<string, string>>;
  readonly measure: Measure;
  readonly buckets: Buckets;
  /** The previous sample of a counter is looked for from `start - lookBack` on. */
  readonly lookBack: Millis;
  /** The most series times buckets. The caller has made sure that one series fits. */
  readonly pointLimit: number;
  /** The store calls it for each part of the answer that the source has sent, with the samples in it. */
  readonly reportRead?: ((samples: number) => void) | undefined;
  /** Where the store counts the bytes of what it reads. Whoever asks gives them back, once there is an answer. */
  readonly held?: HeldBytes | undefined;
}
