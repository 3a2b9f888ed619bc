// The four metrics routes. A selector is answered by one call to the site's store; what it means is decided by
// `metrics.ts`, and this file puts the answers together: ids, order, limits, groups. A series is printed when it is
// sent, so that a large answer is never held as text.
import { setImmediate as nextTurn } from "node:timers/promises";
import * as z from "zod";
import type { Site } from "../../access/sites.ts";
import { mapConcurrent } from "../../core/concurrency.ts";
import { createMissingPartError, NotFound, Refused, Unprocessable } from "../../core/errors.ts";
import type { Buckets, MetricType, Series } from "../../core/rows.ts";
import { printNanos } from "../../core/time.ts";
import {
  type Aggregation,
  chooseResolution,
  combineBuckets,
  computeGrid,
  isPattern,
  listAllowedFields,
  planMeasure,
  type SelectorPlan,
  toSingleBucket,
} from "../../metrics/measures.ts";
import { printTimeRange } from "../runtime/explain.ts";
import {
  type ChunkedBody,
  type Context,
  charsPerChunk,
  type Operation,
  type RowBatch,
} from "../runtime/operation.ts";
import { createInvalidRequest, type RequestTime, siteId } from "../runtime/request-body.ts";
import {
  type ListRequest,
  listBody,
  type Selector,
  type TimeseriesRequest,
  timeseriesBody,
  toTimeRange,
} from "./request.ts";
import { metricList, metricNames, metricType, timeseriesAnswer } from "./schema.ts";
import {
  type ChunkWriter,
  createChunkWriter,
  pointsPerTurn,
  printAscii,
  printNumber,
  printPoints,
  printText,
  takeText,
} from "./series-writer.ts";

/** Calls to a store that one request has under way. */
const storeConcurrency = 8;

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
    const metrics = findMetricsPart(context.sites.get(request.site_id));
    rejectForcedTags(request.select, [], metrics);
    const range = toTimeRange(request);
    const chosen = request.resolution ?? chooseResolution(range);
    const buckets = computeGrid(range, chosen);
    checkPoints(buckets.count, context);
    const opening = `{"resolution":"${chosen}",${printRange(request)},"series":[`;
    return { pieces: printTimeseries(opening, request, metrics, buckets, context) } satisfies ChunkedBody;
  },
  explain: async (request, context) => {
    const range = toTimeRange(request);
    const resolution = request.resolution ?? chooseResolution(range);
    return { resolution, ...(await explainSelectors(request, computeGrid(range, resolution), context)) };
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
    const metrics = findMetricsPart(context.sites.get(request.site_id));
    rejectForcedTags(request.select, request.group_by, metrics);
    rejectUngroupedWildcards(request);
    const range = toTimeRange(request);
    const buckets =
      request.resolution === undefined ? toSingleBucket(range) : computeGrid(range, request.resolution);
    checkPoints(buckets?.count ?? 0, context);
    const opening = `{"resolution":${JSON.stringify(request.resolution ?? null)},${printRange(request)},"rows":[`;
    return { pieces: printList(opening, request, metrics, buckets, context) } satisfies ChunkedBody;
  },
  explain: async (request, context) => {
    const { resolution } = request;
    const range = toTimeRange(request);
    const buckets = resolution === undefined ? toSingleBucket(range) : computeGrid(range, resolution);
    return { resolution: resolution ?? null, ...(await explainSelectors(request, buckets, context)) };
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
    const { store, match } = findMetricsPart(sites.get(site_id));
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
    const { store, match } = findMetricsPart(sites.get(site_id));
    const [type, keys] = await Promise.all([
      store.type(match, metric, signal),
      store.tagKeys(match, metric, signal),
    ]);
    if (type === undefined || keys === undefined) throw new NotFound();
    return { metric_type: type, available_tags: keys };
  },
};

/** What each selector asks for. The labels that are forced stand in every query, as `requests` shows. */
async function explainSelectors(
  request: TimeseriesRequest | ListRequest,
  buckets: Buckets | undefined,
  { sites, limits, signal }: Context,
) {
  const metrics = findMetricsPart(sites.get(request.site_id));
  const { backend, match, counterDefault } = metrics;
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
      return { name, tags, field, aggregation: aggregation ?? null, type: known?.type ?? null, ...plan };
    }),
  };
}

type MetricsPart = NonNullable<Site["metrics"]> & Pick<Site, "counterDefault">;

function findMetricsPart(site: Site | undefined): MetricsPart {
  if (site?.metrics === undefined) throw createMissingPartError("metrics", "The site has no metrics");
  return { ...site.metrics, counterDefault: site.counterDefault };
}

/** @throws {Unprocessable} `invalid_request` that names every use of a label that the site's wall is made of */
function rejectForcedTags(
  select: readonly Selector[],
  groups: ListRequest["group_by"],
  { match }: MetricsPart,
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
  if (issues.length > 0) throw createInvalidRequest(issues);
}

/** Without the tag in the group several series of one selector would meet in one row. */
function rejectUngroupedWildcards({ select, group_by: groups }: ListRequest): void {
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
interface AnsweredSelector<S extends Selector> {
  readonly selector: S;
  readonly plan: SelectorPlan;
  readonly series: readonly Series[];
}

/** In the order of the selectors. Every field is checked before the first series is read. */
async function readSelectors<S extends Selector>(
  select: readonly S[],
  metrics: MetricsPart,
  buckets: Buckets,
  { limits, signal }: Context,
): Promise<readonly AnsweredSelector<S>[]> {
  const { store, match, counterDefault } = metrics;
  const types = await readTypes(select, metrics, signal);
  const planned = select.flatMap((selector) => {
    const known = types.get(selector.name);
    return known === undefined ? [] : [{ selector, plan: requirePlan(selector, known, counterDefault) }];
  });
  let left = limits.points;
  return mapConcurrent(
    planned,
    storeConcurrency,
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

// ---- Timeseries ---------------------------------------------------------------------------------------------

/** Series whose ids are made in one turn of the event loop. */
const idsPerTurn = 1_000;

/** A series on its way out. Its points are the values that are finite: a sum may pass what a number holds. */
interface PrintableSeries {
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
  metrics: MetricsPart,
  buckets: Buckets,
  context: Context,
): AsyncGenerator<RowBatch> {
  const answered = await readSelectors(select, metrics, buckets, context);
  // Two selectors may find one series; it is answered once, as the first of them wants it.
  const found = new Map<string, PrintableSeries>();
  let unprinted = 0;
  for (const { selector, series } of answered) {
    const idOf = createIdPrinter(selector);
    const own: { readonly id: string; readonly series: Series }[] = [];
    for (const one of series) {
      if (own.length % idsPerTurn === idsPerTurn - 1) await nextTurn();
      own.push({ id: idOf(one.tags), series: one });
    }
    for (const { id, series } of own.sort((a, b) => (a.id < b.id ? -1 : 1))) {
      if (found.size >= limit || found.has(id)) continue;
      const drawn = toPrintableSeries(selector, series);
      found.set(id, drawn);
      unprinted += charsPerSeriesHead + drawn.points * charsPerPoint;
    }
  }
  const piece = createChunkWriter(buckets);
  let count = 0;
  let separator = "";
  printText(piece, opening);
  for (const [id, drawn] of found) {
    printAscii(piece, separator);
    printSeriesHead(piece, id, drawn);
    separator = ",";
    let points = 0;
    for (let first = 0; first < buckets.count; first += pointsPerTurn) {
      const end = Math.min(first + pointsPerTurn, buckets.count);
      points += printPoints(piece, drawn.values, { first, end }, points === 0);
      if (piece.end < charsPerChunk) continue;
      unprinted -= piece.end;
      yield { count, text: takeText(piece), unprinted };
      count = 0;
    }
    printAscii(piece, points === 0 ? "]}" : "}]}");
    count += 1;
  }
  printAscii(piece, "]}");
  yield { count, text: takeText(piece) };
}

/** A point, and a series without its points, as they are printed: roughly. */
const charsPerPoint = 70;
const charsPerSeriesHead = 300;

/** With a zero for each bucket without a value where the selector wants them. */
function toPrintableSeries(selector: Selector, series: Series): PrintableSeries {
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
function printSeriesHead(piece: ChunkWriter, id: string, drawn: PrintableSeries): void {
  const { tags, points, min, max } = drawn;
  const { name, field } = drawn.selector;
  const named = `{"id":${JSON.stringify(id)},"name":${JSON.stringify(name)},"tags":${JSON.stringify(tags)}`;
  printText(piece, `${named},"field":"${field}","min":`);
  if (points === 0) printAscii(piece, 'null,"max":null');
  else {
    printNumber(piece, min);
    printAscii(piece, ',"max":');
    printNumber(piece, max);
  }
  printAscii(piece, ',"data":[');
}

/** `cpu|hostname=a,state=user|gauge`, and the aggregation after it when one was named (contract, "Metrics"). */
function createIdPrinter({
  name,
  tags,
  field,
  aggregation,
}: Selector): (tags: Readonly<Record<string, string>>) => string {
  const tail = aggregation === undefined ? `|${field}` : `|${field}|${aggregation}`;
  const [head, keys] = [`${encodeIdPart(name)}|`, sortKeys(Object.keys(tags))];
  return (tags) => head + printTags(keys, tags) + tail;
}

/** Each with its text, in the order of their texts. */
function sortKeys(keys: readonly string[]): readonly (readonly [key: string, text: string])[] {
  const printed = keys.map((key) => [key, `${encodeIdPart(key)}=`] as const);
  return printed.sort(([, a], [, b]) => (a < b ? -1 : 1));
}

function printTags(
  keys: readonly (readonly [key: string, text: string])[],
  tags: Readonly<Record<string, string>>,
): string {
  let text = "";
  for (const [key, before] of keys)
    text += `${text === "" ? "" : ","}${before}${encodeIdPart(tags[key] ?? "")}`;
  return text;
}

function encodeIdPart(text: string): string {
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

interface ListRow {
  readonly id: string;
  readonly group: readonly (readonly [key: string, value: string])[];
  readonly data: Map<string, number>;
}

async function* printList(
  opening: string,
  request: ListRequest,
  metrics: MetricsPart,
  buckets: Buckets | undefined,
  context: Context,
): AsyncGenerator<RowBatch> {
  const { select, group_by: groups, limit = Number.POSITIVE_INFINITY } = request;
  const answered = buckets === undefined ? [] : await readSelectors(select, metrics, buckets, context);
  const rows = new Map<string, ListRow>();
  for (const { selector, plan, series } of answered) {
    for (const { tags, values } of series) {
      const value =
        request.resolution === undefined
          ? (values[0] ?? Number.NaN)
          : reduceBuckets(values, plan.combine, selector);
      if (!Number.isFinite(value)) continue;
      const { id, group } = buildGroup(selector.name, tags, groups);
      const row = rows.get(id) ?? { id, group, data: new Map<string, number>() };
      rows.set(id, row);
      row.data.set(selector.id, value);
    }
  }
  const first = select[0]?.id ?? "";
  const rank = ({ data }: ListRow) => data.get(first) ?? Number.NEGATIVE_INFINITY;
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
    if (text.length < charsPerChunk) continue;
    yield { count, text };
    text = "";
    count = 0;
  }
  yield { count, text: `${text}]}` };
}

function reduceBuckets(
  values: Float64Array,
  combine: Aggregation,
  { draw_null_as_zero: fill }: Selector,
): number {
  return combineBuckets(
    combine,
    fill === true ? values.map((value) => (Number.isNaN(value) ? 0 : value)) : values,
  );
}

/** The row that a series belongs to. A tag that its selector does not name is left out of the group. */
function buildGroup(
  metric: string,
  tags: Readonly<Record<string, string>>,
  groups: ListRequest["group_by"],
): Pick<ListRow, "id" | "group"> {
  const byTag = groups.flatMap(({ tag }) =>
    tag !== undefined && Object.hasOwn(tags, tag) ? [[tag, tags[tag] ?? ""] as const] : [],
  );
  const byName = groups.some(({ tag }) => tag === undefined);
  return {
    id: `${byName ? encodeIdPart(metric) : ""}|${printTags(sortKeys(byTag.map(([key]) => key)), tags)}`,
    group: byName ? [["Name", metric], ...byTag] : byTag,
  };
}
