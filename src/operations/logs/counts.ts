// POST /api/v2/logs/counts (ours, beside the specification): how many lines match, in buckets of time and in groups. The
// counts are those of the lines that an export of the same request holds, so the definition is to count them.
import * as z from "zod";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import { reportRead } from "../../core/async/read-progress.ts";
import { selectFirstInSteps, takeSteps } from "../../core/async/turns.ts";
import { Refused, Unprocessable } from "../../core/errors.ts";
import {
  addGroup,
  addLineCounts,
  createLineCounts,
  type LineCounts as LineSums,
} from "../../core/line-tally.ts";
import { compareCodePoints, type LogLine } from "../../core/rows.ts";
import { type Millis, printMillis, type TimeRange, toMillis } from "../../core/time.ts";
import { parse } from "../../log-query/parse.ts";
import { createPathReader } from "../../log-query/path-values.ts";
import { print } from "../../log-query/print.ts";
import { chooseResolution, computeGrid, type Resolution, resolutions } from "../../metrics/measures.ts";
import type { LineGrouping, LogQuery, LogSource, LogStore } from "../../store/logs.ts";
import { explainSources, printTimeRange } from "../runtime/explain.ts";
import type { Context, Operation } from "../runtime/operation.ts";
import { checkRange, integer, keyword, optional, parseRequest } from "../runtime/request-body.ts";
import { computeTieLimit, lineSelection, maxCountedDocuments, resolveRange, selectLogs } from "./lines.ts";

/** What lines are grouped by. */
type Grouping = LineGrouping | { readonly kind: "source" };

const [finest, ...coarser] = Object.keys(resolutions).filter(
  (name): name is Resolution => name in resolutions,
);

const body = z
  .object({
    ...lineSelection,
    resolution: optional(
      keyword(finest ?? "MINUTELY", ...coarser).meta({
        id: "Resolution",
        description: "The length of a bucket.",
        examples: ["HOURLY"],
      }),
    ).meta({ description: "The default has at most about 400 buckets." }),
    group_by: optional(
      z
        .string()
        .transform((text, context): Grouping => {
          const grouping = parseGrouping(text);
          if (grouping !== undefined) return grouping;
          context.addIssue({
            code: "custom",
            message: "expected severity, source, hostname, group or a path of json as queries spell it",
          });
          return z.NEVER;
        })
        .meta({
          description:
            "`severity`, `source`, `hostname`, `group`, or a path of `json` as the query language spells it; a key `source` of `json` is `\\source`.",
          examples: ["severity", "http.response.status_code"],
        }),
    ).meta({ description: "Absent: no groups." }),
    limit: optional(
      integer(1, 1_000).meta({
        description:
          "Most groups: those with the largest counts, equal ones by their value. The default is 10.",
        examples: [10],
      }),
    ),
    group_buckets: optional(z.boolean()).meta({
      description: "Whether each group has buckets of its own. Without `group_by` it has no effect.",
      examples: [true],
    }),
  })
  .check(checkRange)
  .meta({
    examples: [
      {
        site_id: "demo-shop",
        source_ids: ["app", "nginx"],
        query: "",
        group_by: "severity",
        group_buckets: true,
        resolution: "HOURLY",
        from: "2026-01-31T12:00:00Z",
        to: "2026-01-31T13:00:00Z",
      },
      {
        site_id: "demo-shop",
        source_ids: ["nginx"],
        query: "http.response.status_code>=500",
        group_by: "http.response.status_code",
        limit: 5,
      },
    ],
  });
type CountsRequest = z.output<typeof body>;

const count = z.number().int().min(0);
const lineBucket = z
  .object({
    timestamp: z.string().meta({
      format: "date-time",
      description: "The start of the bucket, on the grid of the resolution in UTC.",
      examples: ["2026-01-31T12:00:00.000Z"],
    }),
    count: count.meta({ description: "Its lines.", examples: [42] }),
  })
  .meta({ id: "LineBucket", description: "The lines of a piece of time." });
const lineCounts = z
  .object({
    total: count.meta({ description: "How many lines of the range match.", examples: [1_234] }),
    resolution: z.enum(Object.keys(resolutions) as [Resolution, ...Resolution[]]).meta({
      id: "Resolution",
      description: "The length of a bucket.",
      examples: ["HOURLY"],
    }),
    buckets: z.array(lineBucket).meta({
      description:
        "By time, without those that are empty; they sum up to `total`. The first and the last hold what of them lies in the range.",
    }),
    groups: z
      .array(
        z
          .object({
            value: z.string().meta({
              description: "As string operators compare it: a number in the source's own spelling.",
              examples: ["error"],
            }),
            count: count.meta({ description: "The lines that have it.", examples: [42] }),
            buckets: z.array(lineBucket).optional().meta({
              description: "Those lines by time, without empty buckets. Absent without `group_buckets`.",
            }),
          })
          .meta({ id: "LineGroup", description: "The lines with one value." }),
      )
      .nullable()
      .meta({
        description:
          "The largest first. A line with an array counts once for each distinct element. Null without `group_by`.",
      }),
    other: count.nullable().meta({
      description: "The counts of all values beyond `limit`, added up. Null without `group_by`.",
      examples: [0],
    }),
    lacking: count.nullable().meta({
      description: "The lines that have no value to group by. Null without `group_by`.",
      examples: [0],
    }),
  })
  .meta({ id: "LineCounts", description: "How many log lines match." });
type LineCounts = z.input<typeof lineCounts>;

export const counts: Operation<CountsRequest, LineCounts> = {
  name: "logs.counts",
  method: "POST",
  path: "/api/v2/logs/counts",
  access: "token",
  scope: "logs",
  summary: "How many log lines match, by time and by value",
  description:
    "Exactly the lines that `logs/lines` would answer page by page, or a refusal. What the source cannot count for certain is counted by reading, as many documents as `limits.export` allows.",
  request: body,
  answer: lineCounts,
  sites: ({ site_id }) => [site_id],
  run: countLines,
  explain: async (request, context) => {
    const { store, backend, filter, range, resolution, query } = planCounts(request, context);
    return {
      query: request.query,
      means: print(filter),
      range: query === undefined ? null : printTimeRange(range),
      resolution,
      document_limit: context.limits.export,
      backend,
      sources: query === undefined ? [] : await explainSources(store, query, context),
    };
  },
};

/** Spelt as queries spell it, where `source` alone means the source of a line. Undefined where it is no such field. */
function parseGrouping(text: string): Grouping | undefined {
  if (text === "source") return { kind: "source" };
  if (text === "\\source") return { kind: "json", path: ["source"] };
  const filter = parseComparison(`${text}=""`);
  // Anything more than a field would have another operator, another value or other parts.
  if (filter?.kind !== "compare" || filter.operator !== "=" || filter.value !== "") return undefined;
  const { field } = filter;
  if (field.kind === "json") return { kind: "json", path: field.path };
  return field.name === "message" ? undefined : { kind: "line", name: field.name };
}

function parseComparison(query: string) {
  try {
    return parse(query, { legacy: false });
  } catch (error) {
    if (error instanceof Unprocessable) return undefined;
    throw error;
  }
}

/** How lines are counted; without a query where the range is empty. */
function planCounts(request: CountsRequest, context: Context) {
  const { site, store, backend, sources, filter } = selectLogs(request, context);
  const range = resolveRange(request, site, context.now());
  const resolution = request.resolution ?? chooseResolution(range);
  const limit = Math.min(context.limits.export, maxCountedDocuments);
  const query: LogQuery | undefined =
    range.from > range.to
      ? undefined
      : {
          sources,
          range,
          filter,
          order: "asc",
          expectedLines: maxCountedDocuments,
          documentLimit: limit,
          tieLimit: computeTieLimit(context.limits),
          held: context.held,
          progressed: (documents) => reportRead(context.progress, documents, "documents"),
        };
  return { store, backend, filter, range, resolution, query };
}

async function countLines(request: CountsRequest, context: Context): Promise<LineCounts> {
  const { store, range, resolution, query } = planCounts(request, context);
  const { group_by: grouping, limit = 10 } = request;
  const tally = createLineTally(request, resolutions[resolution], context.limits.points);
  if (query !== undefined) {
    checkBucketCount(range, resolution, context);
    const [first, ...others] = await countAtSource(tally, store, query, context.signal);
    if (first !== undefined) {
      const rest: LogQuery = { ...query, sources: [first, ...others] };
      await requireReadable(store, rest, context.signal);
      for await (const lines of store.lines(rest, context.signal)) tallyLines(tally, lines);
    }
  }
  return toAnswer(tally, resolution, grouping === undefined ? undefined : limit, context.signal);
}

/** How many sources of one request are counted at once. */
const maxConcurrentCounts = 4;

/** Adds the counts of each source that can count them itself, and returns the others. @throws {Refused} {BackendError} */
async function countAtSource(
  tally: LineTally,
  store: LogStore,
  { sources, range, filter }: LogQuery,
  signal: AbortSignal,
): Promise<readonly LogSource[]> {
  const { step, grouping } = tally;
  const hasGroupBuckets = tally.groupBuckets !== undefined;
  const others = await mapConcurrent(
    sources,
    maxConcurrentCounts,
    async (source, signal) => {
      const own = grouping?.kind === "source" ? undefined : grouping;
      const counts = await store.count?.(
        { source, range, filter, step, grouping: own, hasGroupBuckets },
        signal,
      );
      if (counts === undefined) return [source];
      addLineCounts(tally, counts);
      if (grouping?.kind === "source" && counts.total > 0) addGroup(tally, source.id, counts.buckets);
      countPoints(tally);
      return [];
    },
    signal,
  );
  return others.flat();
}

/** How many lines match, where the sources count them; else undefined. `request` is the body of a request. */
export async function countWithoutReading(request: unknown, context: Context): Promise<number | undefined> {
  const parsed = parseRequest(body, request);
  const { store, range, query } = planCounts(parsed, context);
  if (query === undefined) return 0;
  const tally = createLineTally(parsed, computeCoarseStep(range), context.limits.points);
  const uncounted = await countAtSource(tally, store, query, context.signal);
  return uncounted.length === 0 ? tally.total : undefined;
}

function computeCoarseStep({ from, to }: TimeRange): Millis {
  const day = resolutions.DAILY;
  return Math.max(1, Math.ceil((toMillis(to) - toMillis(from)) / day / 1_000)) * day;
}

function checkBucketCount(range: TimeRange, resolution: Resolution, { limits }: Context): void {
  const wanted = computeGrid(range, resolution).count;
  if (wanted <= limits.points) return;
  const message = `The range has ${wanted} buckets; ask for a coarser resolution or a shorter range`;
  throw new Refused("result_too_large", message, { limit: limits.points, wanted });
}

/** Asks the source how much there is before it is read. @throws {Refused} */
async function requireReadable(store: LogStore, query: LogQuery, signal: AbortSignal): Promise<void> {
  const limit = query.documentLimit;
  const budget = { documents: 0 };
  // Counted by documents alone: how many lines one millisecond holds is only met by reading.
  const fits = await store.isWithinLimits?.({ ...query, budget, tieLimit: limit }, signal);
  if (fits !== false) return;
  const { documents } = budget;
  const isKnown = Number.isSafeInteger(documents) && documents > limit;
  const message = `To count these lines ${isKnown ? documents : `more than ${limit}`} documents would have to be read; narrow the range, the query or the sources`;
  throw new Refused("result_too_large", message, { limit, ...(isKnown ? { wanted: documents } : {}) });
}

// ---- Counting -----------------------------------------------------------------------------------------------

interface LineTally extends LineSums {
  readonly step: Millis;
  readonly grouping: Grouping | undefined;
  /** The values of a line; undefined without groups. */
  readonly listValues: ((line: LogLine) => Iterable<string>) | undefined;
  /** The buckets of all values together, and their bound. */
  points: number;
  readonly maxPoints: number;
  /** Text of all values that were read. */
  chars: number;
}

/** Of all distinct values: what is held for one request. */
const maxValueChars = 33_554_432;
const maxValues = 500_000;

function createLineTally(
  { group_by: grouping, group_buckets: hasBuckets }: CountsRequest,
  step: Millis,
  maxPoints: number,
): LineTally {
  return {
    ...createLineCounts(hasBuckets === true && grouping !== undefined),
    step,
    grouping,
    maxPoints,
    listValues: grouping && createValueReader(grouping),
    chars: 0,
    points: 0,
  };
}

function createValueReader(grouping: Grouping): (line: LogLine) => Iterable<string> {
  if (grouping.kind === "json") {
    const readValues = createPathReader(grouping.path);
    return ({ json }) => readValues(json);
  }
  const name = grouping.kind === "source" ? "source_id" : grouping.name;
  return (line) => {
    const value = line[name];
    return value === undefined ? [] : [value];
  };
}

/** @throws {Refused} where the distinct values are too many to be held */
function tallyLines(tally: LineTally, lines: readonly LogLine[]): void {
  const { step, listValues, buckets, groups } = tally;
  tally.total += lines.length;
  for (const line of lines) {
    const start = Math.floor(toMillis(line.time) / step) * step;
    buckets.set(start, (buckets.get(start) ?? 0) + 1);
    if (listValues === undefined) continue;
    let isLacking = true;
    for (const value of listValues(line)) {
      isLacking = false;
      const known = groups.get(value);
      if (known === undefined) tally.chars += value.length;
      groups.set(value, (known ?? 0) + 1);
      countInBucket(tally, value, start);
    }
    if (isLacking) tally.lacking += 1;
  }
  if (tally.chars <= maxValueChars && groups.size <= maxValues) return;
  const message = `The lines have more than ${maxValues} values to group by, or longer ones than can be held; group by another field or narrow the query`;
  throw new Refused("result_too_large", message, { limit: maxValues });
}

/** @throws {Refused} where all values have more buckets than an answer may have points */
function countInBucket(tally: LineTally, value: string, start: Millis): void {
  const { groupBuckets, maxPoints } = tally;
  if (groupBuckets === undefined) return;
  const buckets = groupBuckets.get(value) ?? new Map<Millis, number>();
  groupBuckets.set(value, buckets);
  const known = buckets.get(start);
  if (known === undefined) tally.points += 1;
  buckets.set(start, (known ?? 0) + 1);
  if (tally.points > maxPoints) throw createTooManyBucketsError(maxPoints);
}

/** The same for values that were counted by a source. */
function countPoints(tally: LineTally): void {
  const { groupBuckets, maxPoints } = tally;
  if (groupBuckets === undefined) return;
  tally.points = [...groupBuckets.values()].reduce((sum, { size }) => sum + size, 0);
  if (tally.points > maxPoints) throw createTooManyBucketsError(maxPoints);
}

function createTooManyBucketsError(maxPoints: number): Refused {
  const message = `The values have more than ${maxPoints} buckets; ask for a coarser resolution, another field or a shorter range`;
  return new Refused("result_too_large", message, { limit: maxPoints });
}

function printBuckets(buckets: ReadonlyMap<Millis, number>) {
  return [...buckets]
    .sort(([a], [b]) => a - b)
    .map(([start, count]) => ({ timestamp: printMillis(start), count }));
}

/** There may be half a million groups. */
async function toAnswer(
  tally: LineTally,
  resolution: Resolution,
  limit: number | undefined,
  signal: AbortSignal,
): Promise<LineCounts> {
  const { total, lacking, buckets, groups, groupBuckets } = tally;
  const counted = { total, resolution, buckets: printBuckets(buckets) };
  if (limit === undefined) return { ...counted, groups: null, other: null, lacking: null };
  const byCount = ([a, countOfA]: [string, number], [b, countOfB]: [string, number]) =>
    countOfB - countOfA || compareCodePoints(a, b);
  const first = await takeSteps(selectFirstInSteps(groups, limit, byCount), signal);
  let other = 0;
  for (const count of groups.values()) other += count;
  const shown = first.map(([value, count]) => {
    other -= count;
    const own = groupBuckets?.get(value);
    return own === undefined ? { value, count } : { value, count, buckets: printBuckets(own) };
  });
  return { ...counted, groups: shown, other, lacking };
}
