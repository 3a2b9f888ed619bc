// One page of a trace listing: the position of its cursor, and the rows of several stores merged in one order.
import type { TraceSummary } from "../../core/rows.ts";
import { floorToMilli, type Instant, nanosPerMilli } from "../../core/time.ts";
import type { ListingQuery } from "../../store/span-analytics.ts";
import type { Budget } from "../../store/spans.ts";
import { compareRows, createTieLimitError, deriveTie } from "../../tracing/listing/listing.ts";
import type { Context } from "../runtime/operation.ts";
import type { TracesQuery } from "./query-schema.ts";
import { buildFilter, findLeastNanos, groupByStore, resolveRanges } from "./read-traces.ts";

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

/** A page ends between two milliseconds or durations. One with more rows than this is refused. */
export const maxTiedRows = 10_000;

export function isFirstPage({ pagination }: Pick<TracesQuery, "pagination">): boolean {
  const { time, duration } = pagination?.cursor ?? {};
  return time === undefined && duration === undefined;
}

/** Where the rows behind the cursor begin. */
export function toListingPage({ pagination: asked }: TracesQuery): ListingPage & {
  readonly beyond: bigint | undefined;
} {
  const { by, time: after, duration } = asked?.cursor ?? { by: "time" };
  const order = asked?.order === "ASC" ? "asc" : "desc";
  const perPage = asked?.per_page ?? 1;
  if (after !== undefined) return { by, order, perPage, beyond: toTimeBound(after.instant, order) };
  return {
    by,
    order,
    perPage,
    beyond: duration === undefined ? undefined : toDurationBound(duration, order),
  };
}

/** A cursor excludes its whole millisecond, also a finer one, which is the end of a span. */
function toTimeBound(instant: Instant, order: ListingPage["order"]): bigint {
  const start = floorToMilli(instant);
  return order === "asc" ? start + nanosPerMilli - 1n : start;
}

function toDurationBound(millis: number, order: ListingPage["order"]): bigint {
  const least = findLeastNanos(millis);
  return order === "asc" && Number(least) / 1e6 > millis ? least - 1n : least;
}

/** The rows of several listings, each in the page's order, in that order. */
export async function* mergeListings(
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
  for (;;) {
    const next = await stream.next();
    if (next.done === true) return undefined;
    const [row] = next.value;
    if (row !== undefined) return { stream, batch: next.value, position: 0, row };
  }
}

async function advanceHead(head: StreamHead): Promise<boolean> {
  head.position += 1;
  const row = head.batch[head.position];
  if (row !== undefined) {
    head.row = row;
    return true;
  }
  const next = await openHead(head.stream);
  if (next !== undefined) Object.assign(head, next);
  return next !== undefined;
}
