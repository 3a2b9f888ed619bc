// Metrics for existing clients, by the operations under `metrics`.
import { GraphQLError } from "graphql";
import type { Site } from "../../access/sites.ts";
import { createPause } from "../../core/async/turns.ts";
import { Refused } from "../../core/errors.ts";
import { prepareMetricRange, type RequestedRange } from "../../operations/incident-operations.ts";
import { createInvalidRequest } from "../../operations/runtime/request-body.ts";
import type { Context, Resolvers, Session } from "../../operations/runtime/session.ts";
import { maxOffset, readCount } from "./incident-fields.ts";

/** The metrics of a site. */
interface MetricsRow {
  readonly site: Site;
}

interface Tag {
  readonly key: string;
  readonly value: string;
}

interface KeyArguments {
  readonly name?: string | null;
  readonly tags?: readonly Tag[] | null;
  readonly limit?: number | null;
  readonly offset?: number | null;
}

interface SeriesArguments extends RequestedRange {
  readonly query?:
    | readonly ({
        readonly name: string;
        readonly tags?: readonly Tag[] | null;
        readonly fields: readonly { readonly field: string }[];
      } | null)[]
    | null;
}

interface ListArguments extends RequestedRange {
  readonly query: readonly ({
    readonly name: string;
    readonly tags: readonly Tag[];
    readonly fields: readonly { readonly field: string; readonly aggregate: string }[];
  } | null)[];
  readonly limit?: number | null;
  readonly offset?: number | null;
}

const maxKeys = 1_000;
/** Metrics whose keys are read at once. */
const keysPerStep = 25;
const maxRows = 1_000;
/** Each is an operation of its own. */
const maxQueries = 100;

/** What each type of metric has of the fields that these clients know. */
const fieldsByType: Readonly<Record<string, readonly string[]>> = {
  gauge: ["GAUGE"],
  counter: ["COUNTER"],
  measurement: ["MEAN", "P90", "P95", "COUNT"],
};

/** Metrics of a page of names, each once for each combination of tag keys. All of them without a limit, or an error. */
async function readKeys({ site }: MetricsRow, args: KeyArguments, session: Session) {
  // Refuses a token without the scope, to which a site has no metrics either.
  const { offset, limit } = await readPage(site, args, maxKeys, session);
  if (site.metrics === undefined) return [];
  const named = args.name ?? undefined;
  const names = named === undefined ? await readNames(site.id, session) : [named];
  const wanted = (args.tags ?? []).map(({ key }) => key);
  if (wanted.length === 0) await requireFewMetrics(site, names.length - offset, limit, session);
  // A page is of the metrics that have the tags. Which these are, only each of them can tell.
  const [candidates, skipped] =
    wanted.length === 0 ? [names.slice(offset, offset + limit), 0] : [names, offset];
  const chosen: Awaited<ReturnType<typeof readMetricKeys>>[] = [];
  for (let at = 0; at < candidates.length && chosen.length < skipped + limit; at += keysPerStep) {
    for (const keys of await readKeysOf(site.id, candidates.slice(at, at + keysPerStep), session)) {
      const own = keys.filter(({ tags }) => wanted.every((key) => tags.some((tag) => tag.key === key)));
      if (own.length > 0) chosen.push(own);
    }
    await requireFewMetrics(site, chosen.length - skipped, limit, session);
  }
  return chosen.slice(skipped, skipped + limit).flat();
}

/** Without a limit all are wanted, each of which is asked for by itself. */
async function requireFewMetrics({ id }: Site, found: number, limit: number, session: Session) {
  if (limit <= maxKeys || found <= maxKeys) return;
  await session.runLink("Metrics.keys", () => {
    const message = `There are more than ${maxKeys} such metrics; ask for pages of them with limit and offset`;
    const refuse = () =>
      Promise.reject(new Refused("result_too_large", message, { limit: maxKeys, wanted: found }));
    return { name: "metrics", scopes: ["metrics"], sites: () => [id], run: refuse };
  });
}

/** Reads `limit` and `offset`. A wrong one is reported as an invalid request. */
function readPage(
  { id }: Site,
  { limit, offset }: Pick<KeyArguments, "limit" | "offset">,
  most: number,
  session: Session,
): Promise<{ readonly offset: number; readonly limit: number }> {
  return session.runLink("Metrics.page", () => {
    const page = {
      offset: readCount("offset", offset, 0, maxOffset),
      limit: readCount("limit", limit, Number.POSITIVE_INFINITY, most),
    };
    return { name: "metrics", scopes: ["metrics"], sites: () => [id], run: async () => page };
  });
}

function readKeysOf(site_id: string, names: readonly string[], session: Session) {
  return Promise.all(names.map((name) => readMetricKeys(site_id, name, session)));
}

async function readNames(site_id: string, session: Session): Promise<readonly string[]> {
  const names = await session.runOperation("metrics.names", { site_id });
  return Array.isArray(names) ? names.map(String) : [];
}

/** Returns no keys for a metric that does not exist. */
async function readMetricKeys(site_id: string, metric_name: string, session: Session) {
  const answer = await session
    .runOperation("metrics.type_and_tags", { site_id, metric_name })
    .catch((error: unknown) => {
      if (error instanceof GraphQLError && error.extensions.status === 404) return undefined;
      throw error;
    });
  if (answer === undefined) return [];
  const { metric_type = "gauge", available_tags = [] } = answer as {
    readonly metric_type?: string;
    readonly available_tags?: readonly (readonly string[])[];
  };
  return (available_tags.length === 0 ? [[]] : available_tags).map((keys) => ({
    digest: [metric_name, ...keys].join("|"),
    name: metric_name,
    type: metric_type.toUpperCase(),
    fields: fieldsByType[metric_type] ?? [],
    tags: keys.map((key) => ({ key, value: null })),
  }));
}

function toTags(tags: readonly Tag[] | null | undefined): Readonly<Record<string, string>> {
  return Object.fromEntries((tags ?? []).map(({ key, value }) => [key, value]));
}

interface AnsweredSeries {
  readonly id: string;
  readonly name: string;
  readonly field: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly data: readonly { readonly timestamp: string; readonly value: number }[];
}

async function readTimeseries({ site }: MetricsRow, args: SeriesArguments, session: Session) {
  const queries = (args.query ?? []).filter((one) => one !== null);
  const bounds = await session.runLink("Metrics.range", () => prepareMetricRange(site.id, args));
  if (site.metrics === undefined || queries.length === 0) return null;
  const select = queries.flatMap(({ name, tags, fields }) =>
    fields.map(({ field }) => ({ name, tags: toTags(tags), field })),
  );
  const answer = await session.runOperation("metrics.timeseries", { site_id: site.id, ...bounds, select });
  const { series = [], resolution } = answer as {
    readonly series?: readonly AnsweredSeries[];
    readonly resolution?: string;
  };
  return {
    start: bounds.from,
    end: bounds.to,
    resolution,
    keys: series.map(toSeriesKey),
    points: await groupByTime(series, session.gone),
  };
}

/** The values of all series at each time. There may be millions of them. */
async function groupByTime(series: readonly AnsweredSeries[], signal: AbortSignal) {
  const points = new Map<string, { readonly key: string; readonly value: number }[]>();
  const pause = createPause(signal);
  for (const { id, data } of series) {
    for (const { timestamp, value } of data) {
      const values = points.get(timestamp);
      if (values === undefined) points.set(timestamp, [{ key: id, value }]);
      else values.push({ key: id, value });
      const paused = pause();
      if (paused !== undefined) await paused;
    }
  }
  return [...points]
    .map(([time, values]) => ({ timestamp: Date.parse(time) / 1_000, values }))
    .sort((a, b) => a.timestamp - b.timestamp);
}

function toSeriesKey({ id, name, field, tags }: AnsweredSeries) {
  const type = field === "gauge" ? "GAUGE" : field === "counter" ? "COUNTER" : "MEASUREMENT";
  return {
    digest: id,
    name,
    type,
    fields: [field.replace("_", "").toUpperCase()],
    tags: Object.entries(tags).map(([key, value]) => ({ key, value })),
  };
}

interface AnsweredRow {
  readonly group: Readonly<Record<string, string>>;
  readonly data: Readonly<Record<string, number>>;
}

/** A row for each metric asked for and each combination of the values of its tags. */
async function readList({ site }: MetricsRow, args: ListArguments, session: Session) {
  const queries = args.query.filter((one) => one !== null);
  const { offset, limit } = await readPage(site, args, maxRows, session);
  const bounds = await session.runLink("Metrics.range", () => {
    if (queries.length > maxQueries)
      throw createInvalidRequest([{ path: "query", message: `expected at most ${maxQueries}` }]);
    return prepareMetricRange(site.id, args);
  });
  if (site.metrics === undefined) return null;
  const found = await Promise.all(
    queries.map(async ({ name, tags, fields }) => {
      // One field may be asked for by several aggregates.
      const select = fields.map(({ field, aggregate: aggregation }, index) => ({
        id: String(index),
        name,
        field,
        aggregation,
        tags: toTags(tags),
      }));
      const group_by = tags.length === 0 ? ["Name"] : tags.map(({ key }) => ({ Tag: key }));
      const request = { site_id: site.id, ...bounds, select, group_by };
      const answer = await session.runOperation("metrics.list", request);
      const { rows = [] } = answer as { readonly rows?: readonly AnsweredRow[] };
      return rows.map(({ group, data }) => {
        const values = select.flatMap(({ id, field }) => {
          const value = data[id];
          return value === undefined ? [] : [{ key: field.toLowerCase(), value }];
        });
        return toListRow(name, tags.length === 0 ? {} : group, values);
      });
    }),
  );
  const rows = found.flat();
  return {
    start: bounds.from,
    end: bounds.to,
    total: rows.length,
    rows: rows.slice(offset, offset + limit),
  };
}

function toListRow(
  name: string,
  group: AnsweredRow["group"],
  fields: readonly { readonly key: string; readonly value: number }[],
) {
  const tags = Object.entries(group).map(([key, value]) => ({ key, value }));
  return {
    id: [name, ...tags.map(({ key, value }) => `${key}=${value}`)].join("|"),
    name,
    tags,
    fields,
  };
}

export const metricResolvers: Resolvers = {
  Metrics: {
    keys: (metrics: MetricsRow, args: KeyArguments, { readout }: Context) => readKeys(metrics, args, readout),
    timeseries: (metrics: MetricsRow, args: SeriesArguments, { readout }: Context) =>
      readTimeseries(metrics, args, readout),
    list: (metrics: MetricsRow, args: ListArguments, { readout }: Context) =>
      readList(metrics, args, readout),
  },
};
