// What the trace routes share: the body that the specification calls TracesQuery, and reading one listing out of
// several backends. The merge is a law: sites may lie anywhere, and the answer is that of one store which held all.
import * as z from "zod";
import type { Site, SpanPart } from "../../access/sites.ts";
import { createMissingPartError, Refused } from "../../core/errors.ts";
import type { Span, TraceSummary } from "../../core/rows.ts";
import {
  allTime,
  countFractionDigits,
  endOfMilli,
  floorToMilli,
  fromMillis,
  type Instant,
  nanosPerMilli,
  type TimeRange,
  toInclusiveEnd,
} from "../../core/time.ts";
import { type Compare, listComparisons } from "../../log-query/ast.ts";
import type { ListingQuery, SpanStore, TraceField, TraceFilter } from "../../store/span-analytics.ts";
import type { Budget, SpanSource } from "../../store/spans.ts";
import { compareRows, createTieLimitError, deriveTie } from "../../tracing/listing/listing.ts";
import { decodeDigestNames, derivePushdown, listRequiredLeaves } from "../../tracing/listing/pushdown.ts";
import { parseTraceQuery, printTraceQuery } from "../../tracing/listing/trace-query.ts";
import { createBudget } from "../../tracing/spans/read-budget.ts";
import { normaliseId } from "../../tracing/spans/span-ids.ts";
import { printTimeRange } from "../runtime/explain.ts";
import type { Context } from "../runtime/operation.ts";
import {
  checkRange,
  from,
  integer,
  keyword,
  optional,
  order,
  type RequestTime,
  textList,
  time,
  to,
} from "../runtime/request-body.ts";

// ---- The body -----------------------------------------------------------------------------------------------

export const siteIds = textList(1).meta({
  description: "The sites to query; one that the token may not see makes the whole request a 404.",
  examples: [["demo-shop"]],
});
export const traceId = z
  .string()
  .transform((text) => normaliseId(text, 32))
  .meta({
    description: "Identifier of the trace in hex digits of either case, zeros on the left or not.",
    examples: ["5b8efff798038103d269b633813fc60c"],
  });

const nonNegative = z.number().min(0, { message: "expected 0 or more" });

/** Where a listing goes on. */
interface ListingCursor {
  readonly by: "time" | "duration";
  readonly time?: RequestTime | undefined;
  /** Milliseconds. */
  readonly duration?: number | undefined;
}

const cursor = z
  .union(
    [
      keyword("Time", "Duration").transform(
        (by): ListingCursor => ({ by: by === "Time" ? "time" : "duration" }),
      ),
      z
        .object({ time: optional(time), duration: z.union([nonNegative, z.null()]).optional() })
        .transform((object): ListingCursor => {
          const { time: after, duration } = object;
          if (typeof duration === "number") return { by: "duration", duration };
          // With both, `null` means absent for either.
          return { by: duration === null && !("time" in object) ? "duration" : "time", time: after };
        }),
    ],
    { error: 'expected "Time", "Duration", { "time": … } or { "duration": … }' },
  )
  .meta({ id: "TraceCursor", description: "The order of a listing, and where the previous page ended." });
const optionalCursor = optional(cursor).meta({
  description:
    'What the listing is ordered by: `"Time"` or `"Duration"`. To go on behind a row, `{ "time": … }` or `{ "duration": … }` with its value; null is the first page.',
  examples: [{ time: null }],
});

const perPage = integer(1, 10_000).meta({
  description:
    "Rows of a page; more come only to complete a millisecond or a duration, fewer only at the end.",
  examples: [25],
});
const pagination = z
  .object({
    per_page: perPage,
    order: optional(order).meta({ description: "The default is DESC." }),
    cursor: optionalCursor,
  })
  .meta({ id: "TracePagination", description: "Which page of a listing of traces." });
const filterFields = {
  site_ids: siteIds,
  digests: optional(textList()).meta({
    description: "Digests of actions or errors, any of them; an empty list filters nothing.",
    examples: [[]],
  }),
  action_name: optional(z.string()).meta({ description: "The action's name.", examples: ["GET /checkout"] }),
  namespace: optional(z.string()).meta({ description: "The namespace.", examples: ["web"] }),
  query: optional(z.string()).meta({
    description:
      "Terms with `=`, `!=`, `:`, `!:` over `tag.<name>`, `revision`, `trace_id`, `span_id`, `site_id`, `namespace` and `action_name`; a bare word is looked for in the action's name and the tags' values.",
    examples: ["tag.region=eu-west"],
  }),
  duration: optional(nonNegative).meta({
    description: "Least duration of the request.",
    "x-unit": "ms",
    examples: [100],
  }),
  duration_ms: optional(nonNegative).meta({
    description: "The same under another name; `duration` wins.",
    "x-unit": "ms",
    examples: [100],
  }),
  from: optional(from).meta({
    description: "Range start, inclusive. The default is the sites' retention bound.",
  }),
  to: optional(to).meta({ description: "Range end, inclusive. The default is now." }),
  ttl: optional(nonNegative).meta({
    description: "How far back requests are looked for, together with `from`.",
    "x-unit": "s",
    examples: [86_400],
  }),
};

/** Spec, "TracesQuery". */
export const listingBody = z
  .object({
    ...filterFields,
    pagination: pagination.meta({ description: "The size, the order and the position of the page." }),
  })
  .check(checkRange)
  .meta({
    examples: [
      { site_ids: ["demo-shop"], pagination: { per_page: 25, order: "DESC", cursor: { time: null } } },
      {
        site_ids: ["demo-shop", "demo-blog"],
        namespace: "web",
        duration: 100,
        pagination: { per_page: 10, order: "DESC", cursor: "Duration" },
      },
    ],
  });
/** On detail routes it chooses one trace, by its id or as the first of a listing. */
export const detailBody = z
  .object({
    ...filterFields,
    trace_id: optional(traceId),
    pagination: optional(
      pagination.extend({ per_page: optional(perPage) }).meta({
        id: "TraceChoice",
        description: "The order in which the first trace is chosen.",
      }),
    ).meta({ description: "Which trace is the first." }),
  })
  .check(checkRange)
  .meta({ examples: [{ site_ids: ["demo-shop"], namespace: "web" }] });
/** What both bodies come to. */
type TracesQuery = Omit<z.output<typeof detailBody>, "trace_id"> & { readonly trace_id?: string | undefined };

// ---- Sites and their stores ---------------------------------------------------------------------------------

type NonEmpty<T> = readonly [T, ...T[]];

/** Sources that one store answers for together. */
interface StoreGroup {
  readonly store: SpanStore;
  readonly sources: NonEmpty<SpanSource>;
}

/** @throws {Refused} for a site without traces */
export function groupByStore(ids: readonly string[], context: Context): readonly StoreGroup[] {
  const groups = new Map<SpanStore, [SpanSource, ...SpanSource[]]>();
  for (const { store, source } of listSpanParts(ids, context)) {
    const sources = groups.get(store);
    if (sources === undefined) groups.set(store, [source]);
    else sources.push(source);
  }
  return [...groups].map(([store, sources]) => ({ store, sources }));
}

function listSpanParts(ids: readonly string[], context: Context): readonly SpanPart[] {
  return [...new Set(ids)].flatMap((id) => {
    const { traces, reports } = context.sites.get(id) ?? {};
    const parts = [traces, reports].filter((part) => part !== undefined);
    if (parts.length === 0) throw createNoTracesError();
    return parts;
  });
}

export function createNoTracesError(): Refused<"not_supported_by_backend"> {
  return createMissingPartError("traces", "A site has no traces");
}

/** The spans of a trace that the requested sites hold. @throws {Refused} `result_too_large` over `limits.spans` */
export function readTrace(
  ids: readonly string[],
  id: string,
  budget: Budget,
  context: Context,
): Promise<readonly Span[]> {
  return readTraces(ids, [id], budget, context);
}

/** The same of several traces, which `limits.spans` bounds together; in no order. */
export async function readTraces(
  ids: readonly string[],
  traceIds: readonly string[],
  budget: Budget,
  context: Context,
): Promise<readonly Span[]> {
  const spans: Span[] = [];
  const { spans: limit } = context.limits;
  const of = { by: "trace", traceIds, select: "all" } as const;
  await Promise.all(
    groupByStore(ids, context).map(async ({ store, sources }) => {
      for await (const batch of store.find({ sources, of, budget }, context.signal)) {
        for (const span of batch) spans.push(span);
        if (spans.length <= limit) continue;
        const which = traceIds.length === 1 ? "The trace has" : "The traces have together";
        const message = `${which} more than ${limit} spans`;
        throw new Refused("result_too_large", message, { limit });
      }
    }),
  );
  return spans;
}

export function createRequestBudget({ limits }: Context): Budget {
  return createBudget(limits.documents);
}

// ---- Listings -----------------------------------------------------------------------------------------------

interface ListingPage {
  readonly by: "time" | "duration";
  readonly order: "asc" | "desc";
  readonly perPage: number;
}

/** The rows of the page that a request asks for, more than `perPage` only to complete a millisecond or duration. */
export async function listPage(
  request: TracesQuery,
  candidates: ListingQuery["candidates"],
  page: ListingPage & { readonly beyond: bigint | undefined },
  budget: Budget,
  context: Context,
): Promise<readonly TraceSummary[]> {
  const tieLimit = maxTiedRows;
  const filter = buildFilter(request);
  const listings = resolveRanges(request, context).flatMap(({ ids, range }) =>
    range.from > range.to
      ? []
      : groupByStore(ids, context).map(({ store, sources }) => {
          const { by, order, beyond, perPage: expectedRows } = page;
          const query = {
            sources,
            candidates,
            range,
            filter,
            by,
            order,
            beyond,
            expectedRows,
            tieLimit,
            budget,
          };
          return store.summaries(query, context.signal);
        }),
  );
  const rows: TraceSummary[] = [];
  let tie: bigint | undefined;
  let tied = 0;
  for await (const row of mergeListings(listings, page)) {
    const next = deriveTie(page, row);
    if (next !== tie) {
      if (rows.length >= page.perPage) break;
      tie = next;
      tied = 0;
    }
    tied += 1;
    if (tied > tieLimit) throw createTieLimitError({ by: page.by, tieLimit });
    rows.push(row);
  }
  return rows;
}

/** What is read for a listing, and by which filter its rows are chosen. */
export function explainListing(
  request: TracesQuery,
  candidates: ListingQuery["candidates"],
  context: Context,
) {
  const { by, order, perPage } = toListingPage(request);
  const filter = buildFilter(request);
  const required = listRequiredLeaves(filter.query);
  return {
    query: request.query ?? "",
    means: printTraceQuery(filter.query),
    candidates,
    ...{ by, order, per_page: perPage, document_limit: context.limits.documents },
    filters: explainFilters(filter, candidates),
    leaves: listComparisons(filter.query).map((leaf) => {
      const isRequired = required.includes(leaf) && !isBackgroundNamespace(leaf);
      const why = isRequired ? explainNarrowing(leaf.field) : verifiedReasons[leaf.field.kind];
      return { leaf: printTraceQuery(leaf), by: isRequired ? "candidates" : "documents", why };
    }),
    sources: resolveRanges(request, context).flatMap(({ ids, range }) =>
      listSpanParts(ids, context).map(({ backend, source: { site, index, layout } }) => {
        return { site_id: site, backend, index, profile: layout, range: printTimeRange(range) };
      }),
    ),
    notes: [
      "requests are chosen on the documents; the index narrows what is read as far as it surely can",
      ...(by === "duration" ? ["by duration the whole range may have to be looked at"] : []),
    ],
  };
}

/** A trace's row is one of its requests, chosen among all that the filters accept: no index knows which. */
const verifiedReasons: Readonly<Record<TraceField["kind"], string>> = {
  tag: "a tag is that of the trace's row, and attributes of several names may be one tag",
  row: "the field is that of the trace's row, and is made of several fields of its span",
  any: "a bare word may be in the action or in any tag of the trace's row",
};

/** Of a leaf without which there is no row. */
function explainNarrowing(field: TraceField): string {
  if (field.kind === "row" && (field.name === "trace_id" || field.name === "span_id"))
    return "only the trace that it names is read; rows are verified";
  return narrowing.why;
}

/** What no attribute names is of this namespace too, and no index knows what an entry lacks in every form. */
const backgroundNamespace = "background";

function isBackgroundNamespace({ field, value }: Compare<TraceField>): boolean {
  return field.kind === "row" && field.name === "namespace" && value === backgroundNamespace;
}

const narrowing = {
  by: "candidates",
  why: "the index narrows what is read where the field is mapped; rows are verified",
};

/** Which of a listing's own filters make a source send less, as `src/tracing/listing/pushdown.ts` says. */
function explainFilters(filter: TraceFilter, candidates: ListingQuery["candidates"]) {
  const { namespace, action, minDuration, digests } = filter;
  const { errors } = derivePushdown(filter);
  const ofDigests =
    candidates === "errors" && errors !== undefined
      ? { by: "candidates", why: "the index narrows which exceptions are read; rows are verified" }
      : decodeDigestNames(digests) === undefined
        ? { by: "documents", why: "a digest that exceptions carry themselves does not tell whose they are" }
        : {
            by: "candidates",
            why: "a digest of ours tells the action, by which the index narrows; rows are verified",
          };
  const ofBackground = { by: "documents", why: "entries of most kinds that no attribute names are of it" };
  const asked = [
    {
      filter: "namespace",
      value: namespace,
      told: namespace === backgroundNamespace ? ofBackground : narrowing,
    },
    { filter: "action_name", value: action, told: narrowing },
    { filter: "duration", value: minDuration, told: narrowing },
    { filter: "digests", value: digests, told: ofDigests },
  ];
  return asked.flatMap(({ filter, value, told }) => (value === undefined ? [] : [{ filter, ...told }]));
}

/** More rows than this on one millisecond or duration are no page (contract, "Listings and pages"). */
export const maxTiedRows = 10_000;

/** Where the rows behind the cursor begin. */
export function toListingPage({ pagination: asked }: TracesQuery): ListingPage & {
  readonly beyond: bigint | undefined;
} {
  const { by, time: after, duration } = asked?.cursor ?? { by: "time" };
  const order = asked?.order === "ASC" ? "asc" : "desc";
  const perPage = asked?.per_page ?? 1;
  if (after !== undefined) return { by, order, perPage, beyond: toTimeBound(after, order) };
  return {
    by,
    order,
    perPage,
    beyond: duration === undefined ? undefined : toDurationBound(duration, order),
  };
}

/** A cursor to the millisecond, as rows have it, excludes all of it; a finer one cannot be a row's, and is an instant. */
function toTimeBound({ instant, text }: RequestTime, order: ListingPage["order"]): bigint {
  if (countFractionDigits(text) > 3) return instant;
  const start = floorToMilli(instant);
  return order === "asc" ? start + nanosPerMilli - 1n : start;
}

function toDurationBound(millis: number, order: ListingPage["order"]): bigint {
  const least = findLeastNanos(millis);
  return order === "asc" && Number(least) / 1e6 > millis ? least - 1n : least;
}

/** The shortest duration that is answered as this many milliseconds or more. */
function findLeastNanos(millis: number): bigint {
  // Half a nanosecond is where doubles of this size begin to round: from there on the nearest is all that can be told.
  if (millis > 4e9) return BigInt(Math.round(Math.min(millis * 1e6, Number.MAX_VALUE)));
  let nanos = Math.max(0, Math.floor(millis * 1e6) - 1);
  while (nanos / 1e6 < millis) nanos += 1;
  return BigInt(nanos);
}

function buildFilter(request: TracesQuery): TraceFilter {
  const { trace_id, namespace, action_name: action, duration, duration_ms, digests, query } = request;
  const shortest = duration ?? duration_ms;
  const [first, ...others] = digests ?? [];
  return {
    traceId: trace_id,
    namespace,
    action,
    minDuration: shortest === undefined ? undefined : findLeastNanos(shortest),
    digests: first === undefined ? undefined : [first, ...others],
    query: parseTraceQuery(query ?? ""),
  };
}

/** The range of each of the requested sites: their retention may differ. */
function resolveRanges(
  request: TracesQuery,
  context: Context,
): readonly { readonly ids: readonly string[]; readonly range: TimeRange }[] {
  const { from, to, ttl, trace_id, site_ids } = request;
  const now = context.now();
  const last = to === undefined ? undefined : toInclusiveEnd(to.text, to.instant);
  const oldest = ttl === undefined ? undefined : shiftBack(now, ttl * 1_000);
  const found = new Map<bigint, string[]>();
  for (const id of site_ids) {
    const site = context.sites.get(id);
    const start =
      from?.instant ?? (trace_id === undefined && site ? findRetentionStart(site, now) : allTime.from);
    const bound = oldest !== undefined && oldest > start ? oldest : start;
    found.set(bound, [...(found.get(bound) ?? []), id]);
  }
  return [...found].map(([bound, ids]) => ({
    ids,
    range: { from: bound as Instant, to: last ?? (trace_id === undefined ? endOfMilli(now) : allTime.to) },
  }));
}

function findRetentionStart({ retention }: Site, now: Instant): Instant {
  return shiftBack(now, retention);
}

function shiftBack(now: Instant, millis: number): Instant {
  const start = now - fromMillis(Math.min(Math.round(millis), Number.MAX_SAFE_INTEGER));
  return (start > allTime.from ? start : allTime.from) as Instant;
}

/** The range of a request on one site, its retention and now where it has no bounds. */
export function resolveRange(
  { from, to }: { readonly from?: RequestTime | undefined; readonly to?: RequestTime | undefined },
  site: Site,
  now: Instant,
): TimeRange {
  return {
    from: from?.instant ?? findRetentionStart(site, now),
    to: to === undefined ? endOfMilli(now) : toInclusiveEnd(to.text, to.instant),
  };
}

// ---- Merging ------------------------------------------------------------------------------------------------

/** The rows of several listings, each in the page's order, in that order. */
async function* mergeListings(
  listings: readonly AsyncIterable<readonly TraceSummary[]>[],
  page: ListingPage,
): AsyncGenerator<TraceSummary> {
  const streams = listings.map((listing) => listing[Symbol.asyncIterator]());
  try {
    const opened = await Promise.all(streams.map(openHead));
    const heads = opened.filter((head) => head !== undefined);
    while (heads.length > 0) {
      const first = heads.reduce((best, other) =>
        compareRows(page, other.row, best.row) < 0 ? other : best,
      );
      yield first.row;
      if (!(await advanceHead(first))) heads.splice(heads.indexOf(first), 1);
    }
  } finally {
    for (const stream of streams) stream.return?.().catch(() => {});
  }
}

interface StreamHead {
  readonly stream: AsyncIterator<readonly TraceSummary[]>;
  batch: readonly TraceSummary[];
  position: number;
  row: TraceSummary;
}

async function openHead(stream: AsyncIterator<readonly TraceSummary[]>): Promise<StreamHead | undefined> {
  const next = await stream.next();
  const row = next.done === true ? undefined : next.value[0];
  return row === undefined ? undefined : { stream, batch: next.value, position: 0, row };
}

async function advanceHead(head: StreamHead): Promise<boolean> {
  head.position += 1;
  let row = head.batch[head.position];
  if (row === undefined) {
    const next = await head.stream.next();
    if (next.done === true) return false;
    head.batch = next.value;
    head.position = 0;
    row = head.batch[0];
  }
  if (row === undefined) return false;
  head.row = row;
  return true;
}
