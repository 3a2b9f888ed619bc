// `metrics/list`: one row for each group, over all selectors. Rows are printed when they are sent.
import { sortInSteps, takeSteps, visitInTurns } from "../../core/async/turns.ts";
import { Refused, Unprocessable } from "../../core/errors.ts";
import type { Buckets, Series } from "../../core/rows.ts";
import { type Aggregation, combineBuckets, computeGrid, toSingleBucket } from "../../metrics/measures.ts";
import { isPattern } from "../../metrics/tag-patterns.ts";
import {
  type ChunkedBody,
  type Context,
  charsPerChunk,
  type Operation,
  type RowBatch,
} from "../runtime/operation.ts";
import {
  type AnsweredSelector,
  checkPoints,
  explainSelectors,
  findMetricsPart,
  type MetricsPart,
  readSelectors,
  rejectForcedTags,
} from "./read-series.ts";
import { type ListRequest, listBody, printRange, type Selector, toTimeRange } from "./request.ts";
import { metricList } from "./schema.ts";
import { encodeIdPart, printTags, sortTagKeys } from "./timeseries.ts";

export const list: Operation<ListRequest, never> = {
  name: "metrics.list",
  method: "POST",
  path: "/api/v2/metrics/list",
  access: "token",
  scope: "metrics",
  summary: "Values of metrics in groups",
  description: "One row for each group over all selectors, the largest value of the first selector first.",
  request: listBody,
  answer: metricList,
  sites: ({ site_id }) => [site_id],
  mayBePartial: () => true,
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
  const { select, limit = Number.POSITIVE_INFINITY } = request;
  const { limits, signal } = context;
  const answered = buckets === undefined ? [] : await readSelectors(select, metrics, buckets, context);
  const rows = await collectRows(request, answered, signal);
  const wanted = Math.min(limit, rows.length);
  if (wanted > limits.rows) {
    const message = `The answer has more than ${limits.rows} rows; ask for fewer with limit`;
    throw new Refused("result_too_large", message, { limit: limits.rows, wanted });
  }
  const first = select[0]?.id ?? "";
  const rank = ({ data }: ListRow) => data.get(first) ?? Number.NEGATIVE_INFINITY;
  const compare = (a: ListRow, b: ListRow) =>
    rank(a) === rank(b) ? (a.id < b.id ? -1 : 1) : rank(a) < rank(b) ? 1 : -1;
  const sorted = await takeSteps(sortInSteps(rows, compare), signal);
  let text = opening;
  let count = 0;
  for (const [index, { id, group, data }] of sorted.slice(0, wanted).entries()) {
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

async function collectRows(
  { resolution, group_by: groups }: ListRequest,
  answered: readonly AnsweredSelector<ListRequest["select"][number]>[],
  signal: AbortSignal,
): Promise<readonly ListRow[]> {
  const rows = new Map<string, ListRow>();
  for (const { selector, plan, series } of answered) {
    const buildGroup = createGroupBuilder(selector, groups);
    const addSeries = ({ tags, values }: Series) => {
      const value =
        resolution === undefined ? (values[0] ?? Number.NaN) : reduceBuckets(values, plan.combine, selector);
      if (!Number.isFinite(value)) return;
      const { id, group } = buildGroup(tags);
      const row = rows.get(id) ?? { id, group, data: new Map<string, number>() };
      rows.set(id, row);
      row.data.set(selector.id, value);
    };
    await visitInTurns(series, addSeries, signal);
  }
  return [...rows.values()];
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

/** Builds the row that a series belongs to. A tag that its selector does not name is left out of the group. */
function createGroupBuilder(
  { name, tags: named }: Selector,
  groups: ListRequest["group_by"],
): (tags: Series["tags"]) => Pick<ListRow, "id" | "group"> {
  const keys = [...new Set(groups.map(({ tag }) => tag))].filter(
    (tag): tag is string => tag !== undefined && Object.hasOwn(named, tag),
  );
  const byName = groups.some(({ tag }) => tag === undefined);
  const head = `${byName ? encodeIdPart(name) : ""}|`;
  const sortedKeys = sortTagKeys(keys);
  return (tags) => {
    const byTag = keys.map((key) => [key, tags[key] ?? ""] as const);
    return { id: head + printTags(sortedKeys, tags), group: byName ? [["Name", name], ...byTag] : byTag };
  };
}
