// A query whose metric is known, on the way to its answer: the groups that its series fall into, and the answer put together
// group by group.
import type { Series } from "../../../src/core/rows.ts";
import type { SeriesQuery } from "../../../src/store/store.ts";
import { turn } from "../../http/guard.ts";
import { glob, type Matcher, narrow } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import type { ThinQuery } from "./counter-downsampling.ts";
import { part } from "./metric-families.ts";
import { labelOf, type Reader, tooLarge } from "./series-reader.ts";

/** What is read for one answer may be as much, whatever less is asked for. */
const readLimit = 5_000_000;

/** A query whose metric is known, on the way to its plan. */
export interface Plan {
  readonly backend: string;
  readonly query: SeriesQuery;
  readonly keys: readonly string[];
  readonly matchers: readonly Matcher[];
  readonly reader: Reader;
  readonly limit: number;
}

export function planOf(backend: string, query: SeriesQuery, reader: Reader): Plan {
  const matchers = Object.entries(query.tags).map(([key, pattern]) => glob(key, pattern));
  const limit = Math.max(query.pointLimit, readLimit);
  return { backend, query, keys: Object.keys(query.tags).sort(), matchers, reader, limit };
}

export function tagsOf({ keys }: Plan, labels: Labels): Readonly<Record<string, string>> {
  return Object.fromEntries(keys.map((key) => [key, labelOf(labels, key)]));
}

export function groupKey({ keys }: Plan, labels: Labels): string {
  const [only] = keys;
  if (only !== undefined && keys.length === 1) return labelOf(labels, only);
  return JSON.stringify(keys.map((key) => labelOf(labels, key)));
}

/** What is computed in one turn of the event loop: some milliseconds. */
const pointsOfTurn = 20_000;

/** The answer from series that are still to be put together. @throws {Refused} over the limit of points */
export async function grouped<T extends { readonly labels: Labels }>(
  plan: Plan,
  found: readonly T[],
  combine: (group: readonly T[]) => Float64Array,
): Promise<readonly Series[]> {
  const groups = Map.groupBy(found, ({ labels }) => groupKey(plan, labels));
  const { buckets, pointLimit } = plan.query;
  const wanted = groups.size * buckets.count;
  if (wanted > pointLimit) throw tooLarge(pointLimit, wanted);
  const all: { readonly labels: Labels; readonly values: Float64Array }[] = [];
  let points = pointsOfTurn;
  for (const group of groups.values()) {
    if (points >= pointsOfTurn) {
      await turn();
      points = 0;
    }
    all.push({ labels: group[0]?.labels ?? {}, values: combine(group) });
    points += group.length * buckets.count;
  }
  return finished(plan, all);
}

/** In the order of their values by key, without those that have no value at all. */
export async function finished(
  plan: Plan,
  found: readonly { readonly labels: Labels; readonly values: Float64Array }[],
): Promise<readonly Series[]> {
  await turn();
  return found
    .filter(({ values }) => hasValue(values))
    .map(({ labels, values }) => ({ tags: tagsOf(plan, labels), values }))
    .sort((a, b) => compareTags(plan.keys, a.tags, b.tags));
}

function hasValue(values: Float64Array): boolean {
  return values.some((value) => !Number.isNaN(value));
}

function compareTags(keys: readonly string[], a: Labels, b: Labels): number {
  for (const key of keys) {
    const [one, other] = [labelOf(a, key), labelOf(b, key)];
    if (one !== other) return one < other ? -1 : 1;
  }
  return 0;
}

/** The samples of one of the metric's parts, by its name. */
export function thinQuery(
  { query, matchers, limit }: Plan,
  name: string,
  { firsts = false, falls = true, born = true },
): ThinQuery {
  const metric = part(query.match, name);
  return {
    selector: narrow(metric, matchers),
    metric,
    buckets: query.buckets,
    lookBack: born ? query.lookBack : undefined,
    firsts,
    falls,
    limit,
  };
}
