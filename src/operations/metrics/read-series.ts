// Reads what the selectors of a request mean: one call to the site's store for each, after every field is checked against
// its metric's type.
import type { Site } from "../../access/sites.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import { measureHeld } from "../../core/async/held-bytes.ts";
import { reportRead } from "../../core/async/read-progress.ts";
import { visitInTurns } from "../../core/async/turns.ts";
import { createMissingPartError, createTooManyPointsError, Unprocessable } from "../../core/errors.ts";
import type { Buckets, MetricType, Series } from "../../core/rows.ts";
import { listAllowedFields, planMeasure, type SelectorPlan } from "../../metrics/measures.ts";
import { printTimeRange } from "../runtime/explain.ts";
import type { Context } from "../runtime/operation.ts";
import { createInvalidRequest } from "../runtime/request-body.ts";
import { type ListRequest, type Selector, type TimeseriesRequest, toTimeRange } from "./request.ts";

/** Calls to a store that one request has under way. */
const storeConcurrency = 8;

/**
 * What each selector asks for, and what its name stands for at the source. The labels that are forced stand in every query, as
 * `requests` shows.
 */
export async function explainSelectors(
  request: TimeseriesRequest | ListRequest,
  buckets: Buckets | undefined,
  { sites, limits, signal }: Context,
) {
  const metrics = findMetricsPart(sites.get(request.site_id));
  const { backend, match, names = {}, counterDefault } = metrics;
  const types = await readTypes(request.select, metrics, signal);
  return {
    range: printTimeRange(toTimeRange(request)),
    buckets: buckets?.count ?? 0,
    point_limit: limits.points,
    backend,
    match,
    selectors: request.select.map(({ name, tags, field, aggregation }) => {
      const known = types.get(name);
      const plan = known && planSelector({ field, aggregation }, known, counterDefault);
      const stored = Object.hasOwn(names, name) ? { stored_as: names[name] } : {};
      const type = known?.type ?? null;
      return { name, ...stored, tags, field, aggregation: aggregation ?? null, type, ...plan };
    }),
  };
}

export type MetricsPart = NonNullable<Site["metrics"]> & Pick<Site, "counterDefault">;

export function findMetricsPart(site: Site | undefined): MetricsPart {
  if (site?.metrics === undefined) throw createMissingPartError("metrics", "The site has no metrics");
  return { ...site.metrics, counterDefault: site.counterDefault };
}

/** @throws {Unprocessable} `invalid_request` that names every use of a label that the site's wall is made of */
export function rejectForcedTags(
  select: readonly Selector[],
  groups: ListRequest["group_by"],
  { match, sharedLabels = Object.keys(match) }: MetricsPart,
): void {
  const forced = (key: string | undefined) => key !== undefined && sharedLabels.includes(key);
  const message = (key: string | undefined) => `${JSON.stringify(key)} is no tag of this site`;
  const issues = [
    ...select.flatMap(({ tags }, index) =>
      Object.keys(tags)
        .filter(forced)
        .map((key) => ({ path: `select.${index}.tags.${key}`, message: message(key) })),
    ),
    ...groups.flatMap(({ tag }, index) =>
      forced(tag) ? [{ path: `group_by.${index}`, message: message(tag) }] : [],
    ),
  ];
  if (issues.length > 0) throw createInvalidRequest(issues);
}

/** What can be told before anything is read: an answer of one series would be too large. */
export function checkPoints(points: number, { limits }: Context): void {
  if (points > limits.points) throw createTooManyPointsError(limits.points, points);
}

/** A selector with its answer; unknown metrics have none. */
export interface AnsweredSelector<S extends Selector> {
  readonly selector: S;
  readonly plan: SelectorPlan;
  readonly series: readonly Series[];
}

/** In the order of the selectors. Every field is checked before the first series is read. */
export async function readSelectors<S extends Selector>(
  select: readonly S[],
  metrics: MetricsPart,
  buckets: Buckets,
  { limits, signal, progress, held }: Context,
): Promise<readonly AnsweredSelector<S>[]> {
  const { store, match, counterDefault } = metrics;
  const reportSamples = (samples: number) => reportRead(progress, samples, "samples");
  const types = await readTypes(select, metrics, signal);
  const planned = select.flatMap((selector) => {
    const known = types.get(selector.name);
    return known === undefined ? [] : [{ selector, plan: requirePlan(selector, known, counterDefault) }];
  });
  let pointsLeft = limits.points;
  return mapConcurrent(
    planned,
    storeConcurrency,
    async ({ selector, plan }, signal) => {
      const { name: metric, tags } = selector;
      const query = { match, metric, tags, measure: plan.measure, buckets, lookBack: limits.lookBack };
      const heldByStore = held?.openPart();
      const bounded = { ...query, pointLimit: limits.points, reportRead: reportSamples, held: heldByStore };
      const series = await store.series(bounded, signal).finally(() => heldByStore?.release());
      pointsLeft -= series.length * buckets.count;
      if (pointsLeft < 0) throw createTooManyPointsError(limits.points, limits.points - pointsLeft);
      await visitInTurns(series, (one) => held?.hold(measureAnswer(one)), signal);
      return { selector, plan, series };
    },
    signal,
  );
}

/** Bytes in memory. */
function measureAnswer({ tags, values }: Series): number {
  return measureHeld(tags) + values.byteLength;
}

interface KnownType {
  readonly type: MetricType;
  readonly guessed: boolean;
}

/** By name; unknown metrics are left out. */
async function readTypes(
  select: readonly Selector[],
  { store, match }: MetricsPart,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, KnownType>> {
  const names = [...new Set(select.map(({ name }) => name))];
  const ask = async (
    name: string,
    signal: AbortSignal,
  ): Promise<readonly (readonly [string, KnownType])[]> => {
    const type = await store.type(match, name, signal);
    if (type === undefined) return [];
    return [[name, { type, guessed: (await store.isTypeGuessed?.(match, name, signal)) === true }]];
  };
  return new Map((await mapConcurrent(names, storeConcurrency, ask, signal)).flat());
}

/** Where the type is a guess, the field knows better. */
function planSelector(
  { field, aggregation }: Pick<Selector, "field" | "aggregation">,
  { type, guessed }: KnownType,
  counterDefault: Site["counterDefault"],
): SelectorPlan | undefined {
  const planned = (type: MetricType) => planMeasure(type, field, aggregation, counterDefault);
  return planned(type) ?? (guessed ? planned(type === "gauge" ? "counter" : "gauge") : undefined);
}

/** @throws {Unprocessable} `invalid_field` */
function requirePlan(
  selector: Selector,
  known: KnownType,
  counterDefault: Site["counterDefault"],
): SelectorPlan {
  const plan = planSelector(selector, known, counterDefault);
  if (plan !== undefined) return plan;
  const { name, field } = selector;
  const { type } = known;
  const allowed = listAllowedFields(type);
  const message = `The ${type} ${JSON.stringify(name)} has no field ${field}, but ${allowed.join(", ")}`;
  throw new Unprocessable("invalid_field", message, { field, metric: name, allowed });
}
