// Metrics: the contract of a metric store, and its queries.
// The promises of every store (`backend.ts`) hold here too.
import type { Buckets, Measure, MetricType, Series } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";

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
   * @throws {Refused} `result_too_large` over `pointLimit`, `not_supported_by_backend` for a measure that the source
   *   cannot answer exactly (such as a quantile that a summary does not export)
   * @throws {BackendError}
   */
  series(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]>;
}

export interface SeriesQuery {
  readonly match: ForcedLabels;
  readonly metric: string;
  /**
   * Patterns by key, as `matchesTags` of `src/metrics/measures.ts` reads them: a series has each of the tags, with a
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
}
