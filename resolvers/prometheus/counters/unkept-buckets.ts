// Finds the buckets whose growth depends on the range that is asked for, so that it may not be kept for others. All other
// growth is the same in every range.
import { groupInTurns, visitInTurns } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import { dropBoundLabels } from "./bound-spellings.ts";
import type { SurveyedSeries, UnkeptBuckets } from "./bucket-survey.ts";
import { formatSeriesKey } from "./series-reader.ts";

/**
 * Growth counts from the sample before, however far back, if it lies in the range or its look-back. So a series that comes
 * back after more than the look-back may count from another sample in another range.
 */
export function noteLookBackGaps(
  unkept: UnkeptBuckets,
  { start, step }: Buckets,
  series: readonly SurveyedSeries[],
): Promise<void> {
  return visitInTurns(series, ({ last, base, baseAge, baseline }) => {
    // How long before `start` the sample before is at most; negative after it.
    let age = base === undefined ? undefined : baseAge;
    // What is new grows from zero in every range.
    let isKnown = age !== undefined || (base === undefined && baseline === "zero");
    for (let bucket = 0; bucket < last.length; bucket++) {
      const value = readNumber(last, bucket);
      if (Number.isNaN(value)) continue;
      const isFar = age !== undefined && age + bucket * step > unkept.lookBack;
      if (!isKnown || isFar) unkept.add(start + bucket * step);
      // The samples of a bucket whose last one is not finite may all be so.
      if (!Number.isFinite(value)) continue;
      age = -bucket * step;
      isKnown = true;
    }
  });
}

/**
 * A histogram without one of its parts in the whole range is computed in another way, or refused. So a bucket with one part
 * alone may have another value in another range. `counts` are the first part.
 */
export async function notePartGaps(
  unkept: UnkeptBuckets,
  { start, step, count }: Buckets,
  counts: readonly SurveyedSeries[],
  others: readonly SurveyedSeries[],
): Promise<void> {
  const keyOf = ({ labels }: SurveyedSeries) => formatSeriesKey(dropBoundLabels(labels));
  const counted = await groupInTurns(counts, keyOf);
  const parts = await groupInTurns(others, keyOf);
  await visitInTurns(new Set([...counted.keys(), ...parts.keys()]), (key) => {
    const [own, other] = [counted.get(key) ?? [], parts.get(key) ?? []];
    for (let bucket = 0; bucket < count; bucket++) {
      const has = ({ last }: SurveyedSeries) => !Number.isNaN(last[bucket]);
      if (own.some(has) !== other.some(has)) unkept.add(start + bucket * step);
    }
  });
}
