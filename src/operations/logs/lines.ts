// POST /api/v2/logs/lines. A page of log lines ends between two milliseconds, never inside one: the API's cursor is
// only a timestamp ("Paging rule"), so a page that stopped inside a burst would lose or repeat the rest of it. Only
// a millisecond that holds more lines than the cap is split, and then the digits below the millisecond carry how
// far the client has come.
import * as z from "zod";
import type { Site } from "../../access/sites.ts";
import type { Limits } from "../../config/limits.ts";
import { reportRead } from "../../core/async/read-progress.ts";
import { createMissingPartError, Refused } from "../../core/errors.ts";
import type { LogLine } from "../../core/rows.ts";
import {
  earlier,
  endOfMilli,
  floorToMilli,
  fromMillis,
  type Instant,
  isFinerThanMilli,
  later,
  nanosPerMilli,
  printInstantToMilli,
  type TimeRange,
  toInclusiveEnd,
} from "../../core/time.ts";
import { parse } from "../../log-query/parse.ts";
import { print } from "../../log-query/print.ts";
import type { LogQuery, LogSource, LogStore } from "../../store/logs.ts";
import { explainSources, printTimeRange } from "../runtime/explain.ts";
import { holdWhileRefusable } from "../runtime/lifetime.ts";
import { type Context, type Operation, type RowBatch, rowsPerChunk } from "../runtime/operation.ts";
import {
  checkRange,
  createInvalidRequest,
  from,
  integer,
  maxIssues,
  optional,
  order,
  siteId,
  textList,
  time,
  to,
} from "../runtime/request-body.ts";
import { logLine } from "./schema.ts";

const pagination = z
  .object({
    per_page: integer(1, 10_000).meta({
      description:
        "Lines of a page. A page is longer only to end between two milliseconds, and shorter only at the end.",
      examples: [100],
    }),
    order,
    cursor: optional(
      z
        .object({
          time: optional(
            time.meta({
              description: "The `timestamp` of the last line received; its whole millisecond is excluded.",
              examples: ["2026-01-31T12:00:00.123Z"],
            }),
          ),
        })
        .meta({ id: "LogCursor", description: "Where the previous page ended." }),
    ).meta({ description: "Absent, null or without a time on the first page." }),
  })
  .meta({ id: "LogPagination", description: "Which page of a log search." });

/** Which lines a request is about. */
export const lineSelection = {
  site_id: siteId,
  source_ids: textList(1).meta({
    description: "The log sources to search; duplicates are ignored.",
    examples: [["app", "nginx"]],
  }),
  query: z.string().meta({
    description: "A filter in the log query language; empty for all lines.",
    examples: ["severity=error OR (severity=warn AND message:timeout)"],
  }),
  use_expressions: optional(z.boolean()).meta({
    description:
      "When true, legacy syntax is refused; when false or absent, bracket lists, an `attributes.` prefix and type suffixes are understood as well.",
    examples: [true],
  }),
  from: optional(from).meta({
    description: "Range start, inclusive. The default is the site's retention bound.",
  }),
  to: optional(to).meta({ description: "Range end, inclusive. The default is now." }),
};

const body = z
  .object({
    ...lineSelection,
    pagination: pagination.meta({ description: "The size, the order and the position of the page." }),
  })
  .check(checkRange)
  .meta({
    examples: [
      {
        site_id: "demo-shop",
        source_ids: ["app", "nginx"],
        query: "severity=error OR (severity=warn AND message:timeout)",
        use_expressions: true,
        pagination: { per_page: 100, order: "DESC", cursor: { time: null } },
      },
      {
        site_id: "demo-shop",
        source_ids: ["nginx"],
        query: "http.response.status_code>=500",
        use_expressions: true,
        from: "2026-01-31T12:00:00Z",
        to: "2026-01-31T13:00:00Z",
        pagination: { per_page: 10, order: "ASC" },
      },
    ],
  });
export type LinesRequest = z.output<typeof body>;
type LineSelection = Omit<LinesRequest, "pagination">;

export const lines: Operation<LinesRequest, never> = {
  name: "logs.lines",
  method: "POST",
  path: "/api/v2/logs/lines",
  access: "token",
  scope: "logs",
  summary: "A page of log lines",
  description:
    "The lines of one site's log sources that match a query, by time, then source, then id. To get the next page, send the `timestamp` of the last line as `pagination.cursor.time`; a page with fewer lines than `per_page` is the last.",
  request: body,
  answer: z.array(logLine),
  sites: (request) => [request.site_id],
  mayBePartial: ({ pagination: { cursor } }) => cursor?.time === undefined,
  run: printPage,
  values: readPage,
  explain: explainPage,
};

async function* printPage(request: LinesRequest, context: Context): AsyncGenerator<RowBatch> {
  const { store, page, query } = planPage(request, context);
  if (query === undefined) return;
  yield* holdWhileRefusable(
    printRows(paginate(store.lines(query, context.signal), page)),
    page.perPage,
    async () => (await store.isWithinLimits?.(query, context.signal)) ?? false,
  );
}

async function* readPage(request: LinesRequest, context: Context): AsyncGenerator<readonly LineRow[]> {
  const { store, page, query } = planPage(request, context);
  if (query !== undefined) yield* paginate(store.lines(query, context.signal), page);
}

async function explainPage(request: LinesRequest, context: Context) {
  const { store, backend, filter, page, query } = planPage(request, context);
  return {
    query: request.query,
    means: print(filter),
    range: query === undefined ? null : printTimeRange(query.range),
    order: request.pagination.order,
    per_page: page.perPage,
    document_limit: context.limits.documents,
    backend,
    sources: query === undefined ? [] : await explainSources(store, query, context),
  };
}

/** Contract, "Order of checks": the site's logs, then the sources, then the query. */
export function selectLogs(request: LineSelection, context: Context) {
  const site = context.sites.get(request.site_id);
  if (site?.logs === undefined) throw createMissingPartError("logs", "The site has no logs");
  const { store, backend } = site.logs;
  const sources = selectSources(site.logs.sources, request.source_ids);
  const filter = parse(request.query, { legacy: request.use_expressions !== true });
  return { site, store, backend, sources, filter };
}

/** The page that a request asks for. */
export function toLinePage(
  { pagination: { per_page: perPage, order, cursor } }: LinesRequest,
  limits: Limits,
): LinePage {
  return {
    perPage,
    order: order === "ASC" ? "asc" : "desc",
    cap: limits.linesPerMillisecond,
    position: toCursorPosition(cursor?.time?.instant, order === "ASC" ? "asc" : "desc"),
  };
}

/** How a page is read; without a query where the range behind the cursor is empty. */
function planPage(request: LinesRequest, context: Context) {
  const { site, store, backend, sources, filter } = selectLogs(request, context);
  const page = toLinePage(request, context.limits);
  const range = narrowToCursor(resolveRange(request, site, context.now()), page);
  const query: LogQuery | undefined = range && {
    sources,
    range,
    filter,
    order: page.order,
    expectedLines: page.perPage + countExcludedLines(page),
    documentLimit: context.limits.documents,
    tieLimit: computeTieLimit(context.limits),
    held: context.held,
    progressed: (documents) => reportRead(context.progress, documents, "documents"),
  };
  return { store, backend, filter, page, query };
}

/** At most so many lines of the range are left out again, because the cursor lies within their millisecond. */
function countExcludedLines({ position, cap }: LinePage): number {
  return position?.kind === "part" ? Math.max(1, Math.min(position.part, maxParts)) * cap : 0;
}

const maxParts = 100;
export function computeTieLimit(limits: Limits): number {
  return limits.linesPerMillisecond * maxParts;
}

/** The most that every server counts. */
export const maxCountedDocuments = 2_000_000_000;

/** A query of all lines of a range, before it has a limit. */
export type ExportQuery = Omit<LogQuery, "expectedLines" | "documentLimit">;

/** The query that may read `exportLimit` documents. @throws {Refused} `result_too_large` when there are more */
export async function limitExport(
  store: LogStore,
  query: ExportQuery,
  exportLimit: number,
  signal: AbortSignal,
): Promise<LogQuery> {
  const limit = Math.min(exportLimit, maxCountedDocuments);
  const limited: LogQuery = { ...query, expectedLines: maxCountedDocuments, documentLimit: limit };
  // Counted by documents alone: how many lines one millisecond holds is only met by reading.
  const fits = await store.isWithinLimits?.({ ...limited, tieLimit: limit }, signal);
  if (fits === false) throw createTooLargeError(limit);
  // What was counted may have grown since, and that is no reason to break off.
  return fits === true ? { ...limited, documentLimit: Number.MAX_SAFE_INTEGER } : limited;
}

function createTooLargeError(limit: number): Refused {
  const message = `More than ${limit} documents would have to be read; narrow the range, the query or the sources`;
  return new Refused("result_too_large", message, { limit });
}

/** Duplicates are ignored. @throws {Unprocessable} `invalid_request` that names every source the site lacks */
function selectSources(
  known: ReadonlyMap<string, LogSource>,
  ids: readonly string[],
): readonly [LogSource, ...LogSource[]] {
  const unknown = [...ids.keys()].filter((index) => !known.has(ids[index] ?? ""));
  const [first, ...rest] = [...new Set(ids)].flatMap((id) => known.get(id) ?? []);
  if (unknown.length > 0 || first === undefined) {
    const issues = unknown.slice(0, maxIssues).map((index) => ({
      path: `source_ids.${index}`,
      message: `the site has no log source ${JSON.stringify(ids[index]?.slice(0, 200))}`,
    }));
    throw createInvalidRequest(issues, unknown.length);
  }
  return [first, ...rest];
}

/** The range before the cursor. `from` may come out later than `to` where one of them is a default. */
export function resolveRange({ from, to }: LineSelection, site: Site, now: Instant): TimeRange {
  return {
    from: from?.instant ?? ((now - fromMillis(site.retention)) as Instant),
    to: to === undefined ? endOfMilli(now) : toInclusiveEnd(to.instant),
  };
}

/** How a page is cut. */
interface LinePage {
  readonly perPage: number;
  readonly order: "asc" | "desc";
  /** Lines of one millisecond above which it is answered in parts. */
  readonly cap: number;
  readonly position: CursorPosition | undefined;
}

/** Where the previous page ended. */
type CursorPosition =
  /** After this whole millisecond. */
  | { readonly kind: "millisecond"; readonly start: Instant }
  /**
   * After part `part` if the millisecond holds more lines than the cap, else after all of it. Only its lines can tell, so
   * the range keeps the whole millisecond.
   */
  | { readonly kind: "part"; readonly start: Instant; readonly part: number };

function toCursorPosition(cursor: Instant | undefined, order: "asc" | "desc"): CursorPosition | undefined {
  if (cursor === undefined) return undefined;
  const start = floorToMilli(cursor);
  if (!isFinerThanMilli(cursor)) return { kind: "millisecond", start };
  const rank = Number((cursor - start) / 1_000n);
  return { kind: "part", start, part: order === "asc" ? rank : lastRank - rank };
}

/** What is left of the range behind the position; undefined when nothing is. */
export function narrowToCursor(range: TimeRange, { position, order }: LinePage): TimeRange | undefined {
  let { from, to } = range;
  if (position !== undefined) {
    const whole = position.kind === "millisecond" ? nanosPerMilli : 0n;
    if (order === "asc") from = later(from, (position.start + whole) as Instant);
    else to = earlier(to, (endOfMilli(position.start) - whole) as Instant);
  }
  return from <= to ? { from, to } : undefined;
}

// Part n of a split millisecond carries the rank n in digits 4 to 6, counted down in descending order so that
// timestamps stay ordered; the part that completes it carries the far end, so that the next cursor passes it.
const lastRank = 999;
function computeRank(part: number, completes: boolean, order: "asc" | "desc"): number {
  const rank = completes ? lastRank : part;
  return order === "asc" ? rank : lastRank - rank;
}

/** Text of one `RowBatch` of large lines: a client is cut off that does not take one in time. One more line may go beyond it. */
export const maxChunkChars = 262_144;
export function countLineChars({ json, message }: LogLine): number {
  return json.length + (message?.length ?? 0);
}

/**
 * Cuts the page out of the lines behind its position, and stops reading when it is full. Every batch ends between
 * two milliseconds, so the lines of one are always seen together.
 */
async function* paginate(
  batches: AsyncIterable<readonly LogLine[]>,
  page: LinePage,
): AsyncGenerator<readonly LineRow[]> {
  let answered = 0;
  for await (const batch of batches) {
    let rows: LineRow[] = [];
    let weight = 0;
    for (const { stamp, first, end } of groupByTimestamp(batch, page)) {
      for (const line of batch.slice(first, end)) {
        rows.push(toLineRow(line, stamp));
        weight += countLineChars(line);
        if (rows.length < rowsPerChunk && weight < maxChunkChars) continue;
        yield rows;
        rows = [];
        weight = 0;
      }
      answered += end - first;
      if (answered >= page.perPage) break;
    }
    if (rows.length > 0) yield rows;
    if (answered >= page.perPage) return;
  }
}

/** Lines of a batch, from `first` up to before `end`, that are answered together under one timestamp. */
interface TimestampGroup {
  readonly stamp: string;
  readonly first: number;
  readonly end: number;
}

/** A batch as milliseconds and parts of milliseconds, without those that the cursor excludes. */
export function* groupByTimestamp(
  batch: readonly LogLine[],
  { order, cap, position }: LinePage,
): Generator<TimestampGroup> {
  let first = 0;
  for (let opening = batch[0]; opening !== undefined; opening = batch[first]) {
    const start = floorToMilli(opening.time);
    const end = findMilliEnd(batch, first, start);
    const cursor = position?.kind === "part" && position.start === start ? position : undefined;
    if (end - first > cap) yield* splitMillisecond(start, first, end, cap, order, cursor?.part ?? 0);
    // A page ends between two milliseconds, so all of the cursor's own has been delivered.
    else if (cursor === undefined) yield { stamp: printInstantToMilli(start), first, end };
    first = end;
  }
}

/** The position behind the last line of the millisecond that begins at `start` and holds the line at `first`. */
function findMilliEnd(batch: readonly LogLine[], first: number, start: Instant): number {
  const close = start + nanosPerMilli;
  let end = first + 1;
  for (
    let line = batch[end];
    line !== undefined && line.time >= start && line.time < close;
    line = batch[end]
  ) {
    end += 1;
  }
  return end;
}

/** The parts of a millisecond behind part `passed`. @throws {Refused} where there are too many */
function* splitMillisecond(
  start: Instant,
  first: number,
  end: number,
  cap: number,
  order: "asc" | "desc",
  passed: number,
): Generator<TimestampGroup> {
  const parts = Math.ceil((end - first) / cap);
  if (parts > maxParts) throw createTooManyLinesError(cap * maxParts);
  for (let part = passed + 1; part <= parts; part += 1) {
    const stamp = printPartTimestamp(start, computeRank(part, part === parts, order));
    yield { stamp, first: first + (part - 1) * cap, end: Math.min(first + part * cap, end) };
  }
}

function createTooManyLinesError(limit: number) {
  return new Refused(
    "result_too_large",
    `One millisecond holds more than ${limit} lines that match; narrow the query or the sources`,
    { limit },
  );
}

function printPartTimestamp(start: Instant, rank: number): string {
  return `${printInstantToMilli(start).slice(0, -1)}${rank.toString().padStart(3, "0")}Z`;
}

type LineRow = z.input<typeof logLine>;
const noAttributes = {};

/** A row of the answer, its keys in the specification's order. */
function toLineRow(line: LogLine, timestamp: string): LineRow {
  return {
    id: line.id,
    timestamp,
    source_id: line.source_id,
    severity: line.severity,
    message: line.message ?? "",
    hostname: line.hostname ?? "",
    group: line.group ?? "",
    json: line.json,
    attributes: noAttributes,
  };
}

export function printLine(line: LogLine, timestamp: string): string {
  return JSON.stringify(toLineRow(line, timestamp));
}

/** Many rows in one go: it costs half as much as one at a time, and leaves no pieces of text to be joined. */
async function* printRows(batches: AsyncIterable<readonly LineRow[]>): AsyncGenerator<RowBatch> {
  for await (const rows of batches) yield { count: rows.length, text: JSON.stringify(rows).slice(1, -1) };
}
