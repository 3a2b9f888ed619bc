// Measurements: histograms, classic and native and both at once, and summaries. What a source has of them are counters of
// several series, of which `src/metrics/samples.ts` makes the answer; what is told of some of them alone is refused.
import { type Refused, unsupported } from "../../../src/core/errors.ts";
import type { Buckets, Measure, Series } from "../../../src/core/rows.ts";
import {
  type CounterSamples,
  combineObservations,
  combineSamples,
  incrementsOf,
  type Observations,
} from "../../../src/metrics/samples.ts";
import { equal, narrow, present } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import {
  survey,
  type Thinned,
  type ThinQuery,
  thin,
  thinTogether,
  totalKey,
} from "./counter-downsampling.ts";
import {
  boundsBeside,
  byBound,
  type ClassicParts,
  classicForm,
  succession,
  unevenOf,
} from "./mixed-histograms.ts";
import {
  bornOf,
  commonBounds,
  type Form,
  type Growth,
  growths,
  nativeForm,
  observationsOf,
} from "./native-histograms.ts";
import { grouped, groupKey, type Plan, thinQuery } from "./series-groups.ts";
import { keyOf, labelOf, numberIn, numberKey, type Reader } from "./series-reader.ts";
import { measuredOnly } from "./summary-quantiles.ts";

type ObservationMeasure = Extract<Measure, { of: "observations" }>;

/** One histogram or summary as the measure needs it. */
interface Observed {
  readonly labels: Labels;
  readonly observations: Observations;
}

/** Classic histograms, and the mean of a summary. */
export async function histogram(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const found = await classicHistograms(plan, measure);
  if (isBare(measure, found)) return summary(plan, measure);
  return grouped(plan, found, (group) => {
    const observations = group.map((one) => one.observations);
    needBuckets(plan, measure, observations);
    return combineObservations(observations, measure, plan.query.buckets);
  });
}

/** Whether an estimate is asked of nothing but summaries. */
function isBare({ combine }: ObservationMeasure, found: readonly Observed[]): boolean {
  return (
    isEstimated(combine) &&
    found.length > 0 &&
    found.every(({ observations }) => observations.buckets.length === 0)
  );
}

/** Whether it is estimated from the buckets: a count and a mean are told beside them. */
function isEstimated(combine: ObservationMeasure["combine"]): boolean {
  return combine !== "count" && combine !== "mean";
}

/** An estimate would lack what is counted without buckets: a summary by the same name, or whose buckets were dropped. */
function needBuckets(
  { backend, query }: Plan,
  { combine }: ObservationMeasure,
  group: readonly Observations[],
): void {
  if (!isEstimated(combine)) return;
  const bare = group.filter(({ buckets }) => buckets.length === 0);
  if (bare.some(({ count }) => incrementsOf(count, query.buckets).some((grown) => grown > 0)))
    throw withoutBuckets(backend, combine);
}

function withoutBuckets(backend: string, combine: string): Refused<"not_supported_by_backend"> {
  return unsupported(backend, `the ${combine} of what is counted without buckets, as by a summary`);
}

async function classicHistograms(plan: Plan, measure: ObservationMeasure): Promise<readonly Observed[]> {
  const { reader } = plan;
  const { count: counting, sum, bucket } = classicParts(plan, measure);
  const other = sum ?? bucket;
  if (other === undefined) {
    const counts = await thin(reader, counting);
    return counts.map(({ labels, samples: count }) => ({
      labels,
      observations: { count, sum: none, buckets: [] },
    }));
  }
  const [counts = [], parts = []] = await thinTogether(reader, [counting, other]);
  const partsOf = Map.groupBy(parts, ({ labels }) => totalKey(labels));
  return counts.map(({ labels, samples: count }) => {
    const own = partsOf.get(keyOf(labels)) ?? [];
    return {
      labels,
      observations: sum
        ? { count, sum: own[0]?.samples ?? none, buckets: [] }
        : bounded(count, own, plan.query.buckets),
    };
  });
}

function classicParts(plan: Plan, { combine }: ObservationMeasure): ClassicParts {
  const { metric } = plan.query;
  const count = thinQuery(plan, `${metric}_count`, {});
  if (combine === "count") return { count };
  if (combine === "mean") return { count, sum: thinQuery(plan, `${metric}_sum`, { falls: false }) };
  return { count, bucket: withBounds(thinQuery(plan, `${metric}_bucket`, {})) };
}

/** Classic histograms that the native ones beside them tell nothing new of, and all others from both forms. */
export async function both(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader, backend } = plan;
  const classic = classicParts(plan, measure);
  const named = thinQuery(plan, query.metric, {});
  // By the same name a summary has its quantiles.
  const ofNative = { ...named, selector: narrow(named.selector, [equal("quantile", "")]) };
  const { uneven, others } = await unevenOf(reader, classic.count, ofNative);
  const forms = [classicForm(reader, classic), nativeForm(reader, ofNative)];
  const [observed, grown] = await Promise.all([
    others ? classicHistograms(plan, measure) : [],
    uneven.size > 0
      ? growths(reader, forms, classic.count, classic.bucket !== undefined, [...uneven.values()])
      : [],
  ]);
  const even = await bornInEither(
    reader,
    forms,
    observed.filter(({ labels }) => !uneven.has(keyOf(labels))),
    query.buckets,
  );
  if (grown.length === 0 && isBare(measure, even)) return summary(plan, measure);
  const members: readonly (Observed | Growth)[] = [...even, ...grown];
  return grouped(plan, members, (group) => {
    const classics = group.flatMap((one) => ("observations" in one ? one.observations : []));
    needBuckets(plan, measure, classics);
    const natives = group.flatMap((one) => ("observations" in one ? [] : one));
    if (classic.bucket !== undefined && natives.some(({ bare }) => bare))
      throw withoutBuckets(backend, measure.combine);
    const bounds = classic.bucket === undefined ? [] : boundsBeside(classics, natives, query.buckets);
    if (bounds === undefined) {
      const feature = `${measure.combine} over classic and native buckets together`;
      throw unsupported(
        backend,
        `${feature}; a range before or after the change, or count and mean, can be had`,
      );
    }
    const counted = natives.map((growth) => observationsOf(growth, bounds, query.buckets));
    return combineObservations([...classics, ...counted], measure, query.buckets);
  });
}

/** With the births that both forms together tell, of those that have nothing before the buckets. */
async function bornInEither(
  reader: Reader,
  forms: readonly Form[],
  found: readonly Observed[],
  { start }: Buckets,
): Promise<readonly Observed[]> {
  const isOpen = ({ times: [first = start] }: CounterSamples) => first >= start;
  const open = found.filter(({ observations }) => isOpen(observations.count));
  const born = await bornOf(reader, forms, open, open.length < found.length);
  const opened = new Set(open);
  return found.map((one) => {
    if (!opened.has(one)) return one;
    const birth = born.has(keyOf(one.labels)) ? "zero" : "own";
    const since = (samples: CounterSamples) => (isOpen(samples) ? ({ ...samples, birth } as const) : samples);
    const { count, sum, buckets } = one.observations;
    const parts = buckets.map(({ bound, samples }) => ({ bound, samples: since(samples) }));
    return { ...one, observations: { count: since(count), sum: since(sum), buckets: parts } };
  });
}

const none: CounterSamples = { times: new Float64Array(), values: new Float64Array(), birth: "own" };

function withBounds(query: ThinQuery): ThinQuery {
  const bounds = [present("le")];
  return { ...query, selector: narrow(query.selector, bounds), metric: narrow(query.metric, bounds) };
}

function bounded(count: CounterSamples, series: readonly Thinned[], { start }: Buckets): Observations {
  const buckets = byBound(series).map(({ bound, parts }) => ({
    bound,
    samples:
      succession(
        parts.map(({ samples }) => samples),
        start,
      ) ?? none,
  }));
  return { count, sum: none, buckets };
}

/** A quantile that clients computed cannot be merged: it is answered where it is exported and stands alone. */
export async function summary(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const { query, reader } = plan;
  const quantile = measure.combine === "quantile" ? measure.quantile : measure.combine === "max" ? 1 : 0;
  const plain = { falls: false, born: false };
  const named = thinQuery(plan, query.metric, plain);
  const exported = { ...named, selector: narrow(named.selector, [present("quantile")]) };
  const counting = thinQuery(plan, `${query.metric}_count`, plain);
  const [found, counts] = await Promise.all([thin(reader, exported), survey(reader, counting)]);
  const own = found.filter(({ labels }) => numberIn(labelOf(labels, "quantile")) === quantile);
  const fitting = await measuredOnly(reader, exported, counting, own);
  const having = new Set(fitting.map(({ labels }) => groupKey(plan, labels)));
  if ([...found, ...counts].some(({ labels }) => !having.has(groupKey(plan, labels)))) {
    throw unsupported(plan.backend, `the quantile ${quantile} of a summary that does not export it`);
  }
  return grouped(plan, fitting, (group) => {
    if (new Set(group.map(({ labels }) => numberKey(labels))).size > 1)
      throw unsupported(plan.backend, "a quantile of several summaries");
    const samples = succession(
      group.map(({ samples }) => samples),
      query.buckets.start,
    );
    return combineSamples([samples ?? none], { of: "samples", combine: "last" }, query.buckets);
  });
}

export async function native(plan: Plan, measure: ObservationMeasure): Promise<readonly Series[]> {
  const query = thinQuery(plan, plan.query.metric, {});
  const found = await growths(
    plan.reader,
    [nativeForm(plan.reader, query)],
    query,
    isEstimated(measure.combine),
  );
  return grouped(plan, found, (group) => {
    const bounds = commonBounds(group);
    if (bounds.length === 0 && group.some(({ below }) => below.size > 0))
      throw unsupported(plan.backend, `the ${measure.combine} over buckets that have no bound in common`);
    const observations = group.map((growth) => observationsOf(growth, bounds, query.buckets));
    return combineObservations(observations, measure, query.buckets);
  });
}
