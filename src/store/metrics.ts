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
 * The promises of `LogStore` hold here too. A metric is a family: the parts of a histogram or summary are one, under
 * the family's name. What a measure is over raw samples is defined by `samples.ts`.
 */
export interface MetricStore {
  /** Every metric of the wall, sorted by UTF-16 code unit, each once. @throws {BackendError} */
  names(match: ForcedLabels, signal: AbortSignal): Promise<readonly string[]>;
  /** Undefined for a metric that the source does not have within the wall. @throws {BackendError} */
  type(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<MetricType | undefined>;
  /**
   * Whether that the metric is a gauge or that it is a counter is a guess from its samples, which others may change: a
   * measure of either is answered. @throws {BackendError}
   */
  isTypeGuessed?(match: ForcedLabels, metric: string, signal: AbortSignal): Promise<boolean>;
  /**
   * Each combination of tag keys that some series has: keys sorted, combinations sorted, each once; `[]` where no
   * series has a tag. Forced labels and the source's own (`le`, `quantile`, `__name__`) are not tags. Undefined as
   * for `type`.
   * @throws {BackendError}
   */
  tagKeys(
    match: ForcedLabels,
    metric: string,
    signal: AbortSignal,
  ): Promise<readonly (readonly string[])[] | undefined>;
  /**
   * One series for each distinct combination of the values of exactly the keys of `query.tags`, by those values in
   * the order of the sorted keys; other labels are aggregated away. A series without a value in any bucket is left
   * out; an unknown metric has none.
   *
   * @throws {Refused} `result_too_large` over `pointLimit`, `not_supported_by_backend` for a measure that the source
   *   cannot answer exactly (such as a quantile that a summary does not export).
   * @throws {BackendError}
   */
  series(query: SeriesQuery, signal: AbortSignal): Promise<readonly Series[]>;
}

export interface SeriesQuery {
  readonly match: ForcedLabels;
  readonly metric: string;
  /**
   * Patterns by key, as `matchesTags` of `metrics.ts` reads them: a series has each of the tags, with a value that is
   * not empty. Names and values are data, never query text; a name that is no tag (a forced label, the source's own)
   * matches nothing. Keys may be any text, also `__proto__`.
   */
  readonly tags: Readonly<Record<string, string>>;
  readonly measure: Measure;
  readonly buckets: Buckets;
  /** How far before the first bucket a counter's previous sample is looked for: from `start - lookBack` on. */
  readonly lookBack: Millis;
  /** Series times buckets. The caller has made sure that one series fits. */
  readonly pointLimit: number;
}
