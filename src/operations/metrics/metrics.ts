// The four metrics routes. A selector is answered by one call to the site's store; what it means is decided by
// `metrics.ts`, and this file puts the answers together: ids, order, limits, groups. A series is printed when it is
// sent, so that a large answer is never held as text.
import { setImmediate as nextTurn } from "node:timers/promises";
import * as z from "zod";
import type { Site } from "../../access/sites.ts";
import { parallel } from "../../core/concurrency.ts";
import { NotFound, Refused, Unprocessable, withoutPart } from "../../core/errors.ts";
import type { Buckets, MetricType, Series } from "../../core/rows.ts";
import { printNanos } from "../../core/time.ts";
import {
  type Aggregation,
  allowedFields,
  automaticResolution,
  combineBuckets,
  gridOf,
  isPattern,
  type Plan,
  planOf,
  windowOf,
} from "../../metrics/measures.ts";
import { toldRange } from "../runtime/explain.ts";
import { type Context, type Operation, type Printed, pieceChars, type Rows } from "../runtime/operation.ts";
import { invalidRequest, type RequestTime, siteId } from "../runtime/request-body.ts";
import {
  type ListRequest,
  listBody,
  rangeOf,
  type Selector,
  type TimeseriesRequest,
  timeseriesBody,
} from "./request.ts";
import { metricList, metricNames, metricType, timeseriesAnswer } from "./schema.ts";
import {
  createPiece,
  type Piece,
  pointsOfTurn,
  printMark,
  printNumber,
  printPoints,
  printText,
  take,
} from "./series-writer.ts";

/** Calls to a store that one request has under way. */
const width = 8;

// ---- Operations ---------------------------------------------------------------------------------------------

export const timeseries: Operation<TimeseriesRequest, never> = {
  name: "metrics.timeseries",
  method: "POST",
  path: "/api/v2/metrics/timeseries",
  access: "token",
  summary: "Series of metrics over time",
  description:
    "One series for each combination of the values of the tags that a selector names. Buckets are whole and lie on the UTC grid of the resolution.",
  request: timeseriesBody,
  answer: timeseriesAnswer,
  sites: ({ site_id }) => [site_id],
  run: (request, context) => {
    const metrics = metricsOf(context.sites.get(request.site_id));
    refuseForcedTags(request.select, [], metrics);
    const range = rangeOf(request);
    const chosen = request.resolution ?? automaticResolution(range);
    const buckets = gridOf(range, chosen);
    checkPoints(buckets.count, context);
    const opening = `{"resolution":"${chosen}",${printRange(request)},"series":[`;
    return { pieces: printTimeseries(opening, request, metrics, buckets, context) } satisfies Printed;
  },
  explain: async (request, context) => {
    const range = rangeOf(request);
    const resolution = request.resolution ?? automaticResolution(range);
    return { resolution, ...(await explain(request, gridOf(range, resolution), context)) };
  },
};

export const list: Operation<ListRequest, never> = {
  name: "metrics.list",
  method: "POST",
  path: "/api/v2/metrics/list",
  access: "token",
  summary: "Values of metrics in groups",
  description: "One row for each group over all selectors, the largest value of the first selector first.",
  request: listBody,
  answer: metricList,
  sites: ({ site_id }) => [site_id],
  run: (request, context) => {
    const metrics = metricsOf(context.sites.get(request.site_id));
    refuseForcedTags(request.select, request.group_by, metrics);
    refuseUngrouped(request);
    const range = rangeOf(request);
    const buckets = request.resolution === undefined ? windowOf(range) : gridOf(range, request.resolution);
    checkPoints(buckets?.count ?? 0, context);
    const opening = `{"resolution":${JSON.stringify(request.resolution ?? null)},${printRange(request)},"rows":[`;
    return { pieces: printList(opening, request, metrics, buckets, context) } satisfies Printed;
  },
  explain: async (request, context) => {
    const { resolution } = request;
    const range = rangeOf(request);
    const buckets = resolution === undefined ? windowOf(range) : gridOf(range, resolution);
    return { resolution: resolution ?? null, ...(await explain(request, buckets, context)) };
  },
};

const namesPath = z.object({ site_id: siteId });
export const names: Operation<z.output<typeof namesPath>, readonly string[]> = {
  name: "metrics.names",
  method: "GET",
  path: "/api/v2/metrics/names/{site_id}",
  access: "token",
  summary: "Every metric of a site",
  description: "A histogram or a summary is one metric.",
  request: namesPath,
  answer: metricNames,
  sites: ({ site_id }) => [site_id],
  run: async ({ site_id }, { sites, signal }) => {
    const { store, match } = metricsOf(sites.get(site_id));
    return await store.names(match, signal);
  },
};

const metricPath = z.object({
  site_id: siteId,
  metric_name: z.string().meta({ description: "The metric's name.", examples: ["transaction_duration"] }),
});
interface TypeAndTags {
  readonly metric_type: MetricType;
  readonly available_tags: readonly (readonly string[])[];
}
export const typeAndTags: Operation<z.output<typeof metricPath>, TypeAndTags> = {
  name: "metrics.type_and_tags",
  method: "GET",
  path: "/api/v2/metrics/type_and_tags/{site_id}/{metric_name}",
  access: "token",
  summary: "What a metric is, and which tags it has",
  description: "404 for a metric that the site does not have.",
  request: metricPath,
  answer: metricType,
  sites: ({ site_id }) => [site_id],
  run: async ({ site_id, metric_name: metric }, { sites, signal }) => {
    const { store, match } = metricsOf(sites.get(site_id));
    const [type, keys] = await Promise.all([
      store.type(match, metric, signal),
      store.tagKeys(match, metric, signal),
    ]);
    if (type === undefined || keys === undefined) throw new NotFound();
    return { metric_type: type, available_tags: keys };
  },
};

/** What each selector asks for. The labels that are forced stand in every query, as `requests` shows. */
async function explain(
  request: TimeseriesRequest | ListRequest,
  buckets: Buckets | undefined,
  { sites, limits, signal }: Context,
) {
  const metrics = metricsOf(sites.get(request.site_id));
  const { backend, match, counterDefault } = metrics;
  const types = await typesOf(request.select, metrics, signal);
  return {
    range: toldRange(rangeOf(request)),
    buckets: buckets?.count ?? 0,
    point_limit: limits.points,
    backend,
    match,
    selectors: request.select.map(({ name, tags, field, aggregation }) => {
      const known = types.get(name);
      const plan = known && planAs({ field, aggregation }, known, counterDefault);
      return { name, tags, field, aggregation: aggregation ?? null, type: known?.type ?? null, ...plan };
    }),
  };
}

type Metrics = NonNullable<Site["metrics"]> & Pick<Site, "counterDefault">;

function metricsOf(site: Site | undefined): Metrics {
  if (site?.metrics === undefined) throw withoutPart("metrics", "The site has no metrics");
  return { ...site.metrics, counterDefault: site.counterDefault };
}

/** @throws {Unprocessable} `invalid_request` that names every use of a label that the site's wall is made of */
function refuseForcedTags(
  select: readonly Selector[],
  groups: ListRequest["group_by"],
  { match }: Metrics,
): void {
  const forced = (key: string | undefined) => key !== undefined && Object.hasOwn(match, key);
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
  if (issues.length > 0) throw invalidRequest(issues);
}

/** Without the tag in the group several series of one selector would meet in one row. */
function refuseUngrouped({ select, group_by: groups }: ListRequest): void {
  for (const { tags } of select) {
    const tag = Object.keys(tags).find(
      (key) => isPattern(tags[key] ?? "") && !groups.some((group) => group.tag === key),
    );
    if (tag === undefined) continue;
    const message = `The tag ${JSON.stringify(tag)} has a wildcard, but group_by lacks it`;
    throw new Unprocessable("ungrouped_wildcard", message, { tag });
  }
}

/** What can be told before anything is read: an answer of one series would be too large. */
function checkPoints(points: number, { limits }: Context): void {
  if (points <= limits.points) return;
  const message = `The answer would have more than ${limits.points} points; choose a coarser resolution or a shorter range`;
  throw new Refused("result_too_large", message, { limit: limits.points, wanted: points });
}

// ---- Asking -------------------------------------------------------------------------------------------------

/** A selector with its answer; unknown metrics have none. */
interface Answered<S extends Selector> {
  readonly selector: S;
  readonly plan: Plan;
  readonly series: readonly Series[];
}

/** In the order of the selectors. Every field is checked before the first series is read. */
async function ask<S extends Selector>(
  select: readonly S[],
  metrics: Metrics,
  buckets: Buckets,
  { limits, signal }: Context,
): Promise<readonly Answered<S>[]> {
  const { store, match, counterDefault } = metrics;
  const types = await typesOf(select, metrics, signal);
  const planned = select.flatMap((selector) => {
    const known = types.get(selector.name);
    return known === undefined ? [] : [{ selector, plan: planFor(selector, known, counterDefault) }];
  });
  let left = limits.points;
  return parallel(
    planned,
    width,
    async ({ selector, plan }, signal) => {
      const { name: metric, tags } = selector;
      const query = { match, metric, tags, measure: plan.measure, buckets, lookBack: limits.lookBack };
      const series = await store.series({ ...query, pointLimit: limits.points }, signal);
      left -= series.length * buckets.count;
      if (left < 0) {
        const message = `The answer has more than ${limits.points} points; ask for fewer series, a coarser resolution or a shorter range`;
        throw new Refused("result_too_large", message, { limit: limits.points });
      }
      return { selector, plan, series };
    },
    signal,
  );
}

interface Known {
  readonly type: MetricType;
  readonly guessed: boolean;
}

/** By name; unknown metrics are left out. */
async function typesOf(
  select: readonly Selector[],
  { store, match }: Metrics,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Known>> {
  const names = [...new Set(select.map(({ name }) => name))];
  const ask = async (name: string, signal: AbortSignal): Promise<readonly (readonly [string, Known])[]> => {
    const type = await store.type(match, name, signal);
    if (type === undefined) return [];
    return [[name, { type, guessed: (await store.isGuess?.(match, name, signal)) === true }]];
  };
  return new Map((await parallel(names, width, ask, signal)).flat());
}

/** Where the type is a guess, the field knows better. */
function planAs(
  { field, aggregation }: Pick<Selector, "field" | "aggregation">,
  { type, guessed }: Known,
  counterDefault: Site["counterDefault"],
): Plan | undefined {
  const planned = (type: MetricType) => planOf(type, field, aggregation, counterDefault);
  return planned(type) ?? (guessed ? planned(type === "gauge" ? "counter" : "gauge") : undefined);
}

/** @throws {Unprocessable} `invalid_field` */
function planFor(selector: Selector, known: Known, counterDefault: Site["counterDefault"]): Plan {
  const plan = planAs(selector, known, counterDefault);
  if (plan !== undefined) return plan;
  const { name, field } = selector;
  const { type } = known;
  const allowed = allowedFields(type);
  const message = `The ${type} ${JSON.stringify(name)} has no field ${field}, but ${allowed.join(", ")}`;
  throw new Unprocessable("invalid_field", message, { field, metric: name, allowed });
}

// ---- Timeseries ---------------------------------------------------------------------------------------------

/** Series whose ids are made in one turn of the event loop. */
const idsOfTurn = 1_000;

/** A series on its way out. Its points are the values that are finite: a sum may pass what a number holds. */
interface Drawn {
  readonly selector: Selector;
  readonly tags: Series["tags"];
  readonly values: Float64Array;
  readonly points: number;
  readonly min: number;
  readonly max: number;
}

async function* printTimeseries(
  opening: string,
  { select, limit = Number.POSITIVE_INFINITY }: TimeseriesRequest,
  metrics: Metrics,
  buckets: Buckets,
  context: Context,
): AsyncGenerator<Rows> {
  const answered = await ask(select, metrics, buckets, context);
  // Two selectors may find one series; it is answered once, as the first of them wants it.
  const found = new Map<string, Drawn>();
  let unprinted = 0;
  for (const { selector, series } of answered) {
    const idOf = createId(selector);
    const own: { readonly id: string; readonly series: Series }[] = [];
    for (const one of series) {
      if (own.length % idsOfTurn === idsOfTurn - 1) await nextTurn();
      own.push({ id: idOf(one.tags), series: one });
    }
    for (const { id, series } of own.sort((a, b) => (a.id < b.id ? -1 : 1))) {
      if (found.size >= limit || found.has(id)) continue;
      const drawn = draw(selector, series);
      found.set(id, drawn);
      unprinted += charsOfHead + drawn.points * charsOfPoint;
    }
  }
  const piece = createPiece(buckets);
  let count = 0;
  let separator = "";
  printText(piece, opening);
  for (const [id, drawn] of found) {
    printMark(piece, separator);
    printHead(piece, id, drawn);
    separator = ",";
    let points = 0;
    for (let first = 0; first < buckets.count; first += pointsOfTurn) {
      const end = Math.min(first + pointsOfTurn, buckets.count);
      points += printPoints(piece, drawn.values, { first, end }, points === 0);
      if (piece.at < pieceChars) continue;
      unprinted -= piece.at;
      yield { count, text: take(piece), unprinted };
      count = 0;
    }
    printMark(piece, points === 0 ? "]}" : "}]}");
    count += 1;
  }
  printMark(piece, "]}");
  yield { count, text: take(piece) };
}

/** A point, and a series without its points, as they are printed: roughly. */
const charsOfPoint = 70;
const charsOfHead = 300;

/** With a zero for each bucket without a value where the selector wants them. */
function draw(selector: Selector, series: Series): Drawn {
  const values =
    selector.draw_null_as_zero === true
      ? series.values.map((value) => (Number.isFinite(value) ? value : 0))
      : series.values;
  let points = 0;
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (let bucket = 0; bucket < values.length; bucket += 1) {
    const value = values[bucket] ?? Number.NaN;
    if (!Number.isFinite(value)) continue;
    points += 1;
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  return { selector, tags: series.tags, values, points, min, max };
}

/** An entry of `series` up to its points, its keys in the specification's order. */
function printHead(piece: Piece, id: string, drawn: Drawn): void {
  const { tags, points, min, max } = drawn;
  const { name, field } = drawn.selector;
  const named = `{"id":${JSON.stringify(id)},"name":${JSON.stringify(name)},"tags":${JSON.stringify(tags)}`;
  printText(piece, `${named},"field":"${field}","min":`);
  if (points === 0) printMark(piece, 'null,"max":null');
  else {
    printNumber(piece, min);
    printMark(piece, ',"max":');
    printNumber(piece, max);
  }
  printMark(piece, ',"data":[');
}

/** `cpu|hostname=a,state=user|gauge`, and the aggregation after it when one was named (contract, "Metrics"). */
function createId({
  name,
  tags,
  field,
  aggregation,
}: Selector): (tags: Readonly<Record<string, string>>) => string {
  const tail = aggregation === undefined ? `|${field}` : `|${field}|${aggregation}`;
  const [head, keys] = [`${encode(name)}|`, sortedKeys(Object.keys(tags))];
  return (tags) => head + printTags(keys, tags) + tail;
}

/** Each with its text, in the order of their texts. */
function sortedKeys(keys: readonly string[]): readonly (readonly [key: string, text: string])[] {
  const printed = keys.map((key) => [key, `${encode(key)}=`] as const);
  return printed.sort(([, a], [, b]) => (a < b ? -1 : 1));
}

function printTags(
  keys: readonly (readonly [key: string, text: string])[],
  tags: Readonly<Record<string, string>>,
): string {
  let text = "";
  for (const [key, before] of keys) text += `${text === "" ? "" : ","}${before}${encode(tags[key] ?? "")}`;
  return text;
}

function encode(text: string): string {
  return !/[%|,=]/.test(text)
    ? text
    : text.replaceAll(/[%|,=]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

function printRange({ from, to }: { readonly from: RequestTime; readonly to: RequestTime }): string {
  // At least three fraction digits, more only where the request has them.
  const print = ({ instant }: RequestTime) => printNanos(instant).replace(/0{1,6}Z$/, "Z");
  return `"from":"${print(from)}","to":"${print(to)}"`;
}

// ---- List ---------------------------------------------------------------------------------------------------

interface Row {
  readonly id: string;
  readonly group: readonly (readonly [key: string, value: string])[];
  readonly data: Map<string, number>;
}

async function* printList(
  opening: string,
  request: ListRequest,
  metrics: Metrics,
  buckets: Buckets | undefined,
  context: Context,
): AsyncGenerator<Rows> {
  const { select, group_by: groups, limit = Number.POSITIVE_INFINITY } = request;
  const answered = buckets === undefined ? [] : await ask(select, metrics, buckets, context);
  const rows = new Map<string, Row>();
  for (const { selector, plan, series } of answered) {
    for (const { tags, values } of series) {
      const value =
        request.resolution === undefined ? (values[0] ?? Number.NaN) : reduce(values, plan.combine, selector);
      if (!Number.isFinite(value)) continue;
      const { id, group } = groupOf(selector.name, tags, groups);
      const row = rows.get(id) ?? { id, group, data: new Map<string, number>() };
      rows.set(id, row);
      row.data.set(selector.id, value);
    }
  }
  const first = select[0]?.id ?? "";
  const rank = ({ data }: Row) => data.get(first) ?? Number.NEGATIVE_INFINITY;
  const sorted = [...rows.values()].sort((a, b) =>
    rank(a) === rank(b) ? (a.id < b.id ? -1 : 1) : rank(a) < rank(b) ? 1 : -1,
  );
  const kept = sorted.slice(0, Math.min(limit, sorted.length));
  if (kept.length > context.limits.rows) {
    const message = `The answer has more than ${context.limits.rows} rows; ask for fewer with limit`;
    throw new Refused("result_too_large", message, { limit: context.limits.rows, wanted: kept.length });
  }
  let text = opening;
  let count = 0;
  for (const [index, { id, group, data }] of kept.entries()) {
    const row = { id, group: Object.fromEntries(group), data: Object.fromEntries(data) };
    text += `${index === 0 ? "" : ","}${JSON.stringify(row)}`;
    count += 1;
    if (text.length < pieceChars) continue;
    yield { count, text };
    text = "";
    count = 0;
  }
  yield { count, text: `${text}]}` };
}

function reduce(values: Float64Array, combine: Aggregation, { draw_null_as_zero: fill }: Selector): number {
  return combineBuckets(
    combine,
    fill === true ? values.map((value) => (Number.isNaN(value) ? 0 : value)) : values,
  );
}

/** The row that a series belongs to. A tag that its selector does not name is left out of the group. */
function groupOf(
  metric: string,
  tags: Readonly<Record<string, string>>,
  groups: ListRequest["group_by"],
): Pick<Row, "id" | "group"> {
  const byTag = groups.flatMap(({ tag }) =>
    tag !== undefined && Object.hasOwn(tags, tag) ? [[tag, tags[tag] ?? ""] as const] : [],
  );
  const byName = groups.some(({ tag }) => tag === undefined);
  return {
    id: `${byName ? encode(metric) : ""}|${printTags(sortedKeys(byTag.map(([key]) => key)), tags)}`,
    group: byName ? [["Name", metric], ...byTag] : byTag,
  };
}
