// Incidents, as existing clients of GraphQL ask for them: an error digest or an action of one site. They are read off the
// listings of traces, newest first, so that a page costs about what it shows.

import { sortInSteps, takeSteps, visitInTurns } from "../../core/async/turns.ts";
import type { NonEmpty } from "../../core/collections.ts";
import { Refused } from "../../core/errors.ts";
import { compare, type ErrorOccurrence, type TraceSummary } from "../../core/rows.ts";
import type { Instant, TimeRange } from "../../core/time.ts";
import type { Filter } from "../../log-query/ast.ts";
import { printAnyOf, quoteValue } from "../../log-query/print.ts";
import type { ListingQuery, TraceField } from "../../store/span-analytics.ts";
import type { Budget } from "../../store/spans.ts";
import { parseTraceQuery } from "../../tracing/listing/trace-query.ts";
import { deriveIncidentNumber, encodeActionDigest } from "../../tracing/spans/digest.ts";
import { formatActionKey } from "../../tracing/spans/requests.ts";
import type { Context } from "../runtime/operation.ts";
import { maxTiedRows, mergeListings } from "./listing-page.ts";
import { createRequestBudget, groupByStore } from "./read-traces.ts";

export interface Incident {
  readonly kind: "error" | "action";
  readonly site: string;
  /** Of the error, or of the action. */
  readonly digest: string;
  readonly number: number;
  readonly namespace: string;
  /** Of the newest row. */
  readonly action: string;
  /** Of an error: its newest exception. */
  readonly exception: ErrorOccurrence | undefined;
  /** When its newest row ended. */
  readonly last: Instant;
  /** Where it stands in a list by time: when its newest row ended that has the text which is looked for. */
  readonly listedAt: Instant;
  /** What counting its rows has found; absent where only the newest was read. */
  readonly figures: ErrorFigures | undefined;
  /** Of an action. */
  readonly stats: ActionFigures | undefined;
}

export interface ErrorFigures {
  /** Rows of `traces/errors` with the digest in the range. */
  readonly count: number;
  readonly first: Instant;
  readonly actions: readonly string[];
}

interface ActionFigures {
  readonly count: number;
  readonly mean: number;
  readonly has_npo: boolean;
}

export interface IncidentQuery {
  readonly site: string;
  readonly kinds: readonly Incident["kind"][];
  readonly range: TimeRange;
  /** Any of them; empty is all. */
  readonly namespaces: readonly string[];
  readonly action?: string | undefined;
  readonly revision?: string | undefined;
  /** Text that the names of the incident or its message contain, in any case. */
  readonly text?: string | undefined;
  /** By the newest occurrence, with a text by the newest that has it, newest first; or by number. */
  readonly order: "last" | "number";
  readonly offset: number;
  readonly limit: number;
}

export interface IncidentPage {
  /** In which the page was found. */
  readonly range: TimeRange;
  readonly incidents: readonly Incident[];
  /** How many there are in all; absent where the page was found before all were seen. */
  readonly total: number | undefined;
}

/**
 * The incidents of a page. Reads no more than the page needs if they are ordered by their newest occurrence.
 * @throws {Refused} `result_too_large`
 */
export async function listIncidents(query: IncidentQuery, context: Context): Promise<IncidentPage> {
  const budget = createRequestBudget(context);
  const wanted = query.order === "last" ? query.offset + query.limit : Number.POSITIVE_INFINITY;
  const found = await Promise.all(
    query.kinds.map((kind) =>
      kind === "error"
        ? findErrors(query, wanted, budget, context)
        : findActionIncidents(query, wanted, budget, context),
    ),
  );
  const all = found.flatMap(({ incidents }) => incidents);
  const byOrder = (a: Incident, b: Incident) =>
    (query.order === "last" ? compare(b.listedAt, a.listedAt) : compare(a.number, b.number)) ||
    compare(a.digest, b.digest);
  const sorted = await takeSteps(sortInSteps(all, byOrder), context.signal);
  // Where all are wanted, those that were found are all: an action whose rows are gone has no incident.
  const isComplete = found.every((part) => part.isComplete) || wanted === Number.POSITIVE_INFINITY;
  return {
    range: query.range,
    incidents: sorted.slice(query.offset, query.offset + query.limit),
    total: isComplete ? all.length : undefined,
  };
}

interface FoundIncidents {
  readonly incidents: readonly Incident[];
  readonly isComplete: boolean;
}

/** What the newest row of an error proves, where the index shows no row of its digest any more. */
export function describeNewestRow({ last, action }: Incident): ErrorFigures {
  return { count: 1, first: last, actions: [action] };
}

/** Which rows of the listings count. */
export function buildNamesFilter(query: Pick<IncidentQuery, "namespaces" | "action" | "revision">): {
  readonly action: string | undefined;
  readonly query: Filter<TraceField>;
} {
  const namespaces = printAnyOf("namespace", query.namespaces);
  const revision = query.revision === undefined ? "" : ` revision=${quoteValue(query.revision)}`;
  return {
    action: query.action,
    query: parseTraceQuery(`${namespaces === "" ? "" : `(${namespaces})`}${revision}`.trim()),
  };
}

/** The rows of a listing of one site, over all of its parts, newest first. */
function listRows(
  site: string,
  listing: Pick<ListingQuery, "candidates" | "range" | "filter" | "expectedRows"> &
    Pick<Partial<ListingQuery>, "byAction" | "byError">,
  budget: Budget,
  context: Context,
): AsyncIterable<TraceSummary> {
  const order = { by: "time", order: "desc" } as const;
  const listings = groupByStore([site], context).map(({ store, sources }) =>
    store.summaries({ ...listing, ...order, sources, tieLimit: maxTiedRows, budget }, context.signal),
  );
  return mergeListings(listings, { ...order, perPage: listing.expectedRows });
}

// ---- Errors -------------------------------------------------------------------------------------------------

interface ErrorTally {
  readonly newest: TraceSummary & { readonly exception: ErrorOccurrence };
  first: Instant;
  count: number;
  readonly actions: Set<string>;
  /** When the newest of the rows ended that have the text which is looked for; undefined while none has it. */
  listedAt: Instant | undefined;
}

/** Errors among which a text is looked for. */
const maxSearchedErrors = 100_000;

/**
 * Counts rows that come newest first, until an older one begins a digest with the text that `isEnough` no longer wants.
 * @throws {Refused} more than `most` digests have the text
 */
async function tallyErrors(
  rows: AsyncIterable<TraceSummary>,
  { text, most }: { readonly text?: string | undefined; readonly most: number },
  isEnough: (found: number, newest: Instant, next: Instant) => boolean,
): Promise<{ readonly tallies: ReadonlyMap<string, ErrorTally>; readonly isComplete: boolean }> {
  const tallies = new Map<string, ErrorTally>();
  let found = 0;
  let oldest: Instant | undefined;
  const hasText = createTextMatcher(text);
  for await (const { exception, ...row } of rows) {
    if (exception === undefined) continue;
    const newest = { ...row, exception };
    const tally = tallies.get(exception.digest) ?? createTally(newest);
    if (tally.listedAt === undefined && hasText(newest)) {
      if (oldest !== undefined && isEnough(found, oldest, row.time)) return { tallies, isComplete: false };
      tally.listedAt = oldest = row.time;
      found += 1;
      if (found > most) throw createTooManyIncidents(most, found);
    }
    tally.first = row.time;
    tally.count += 1;
    tally.actions.add(row.action_name);
    tallies.set(exception.digest, tally);
    if (tallies.size - found > maxSearchedErrors)
      throw createTooManyIncidents(maxSearchedErrors, tallies.size);
  }
  return { tallies, isComplete: true };
}

function createTally(newest: ErrorTally["newest"]): ErrorTally {
  return { newest, first: newest.time, count: 0, actions: new Set(), listedAt: undefined };
}

async function findErrors(
  query: IncidentQuery,
  wanted: number,
  budget: Budget,
  context: Context,
): Promise<FoundIncidents> {
  const { site, range } = query;
  if (range.from > range.to) return { incidents: [], isComplete: true };
  const rows = listRows(
    site,
    {
      candidates: "errors",
      byError: true,
      range,
      filter: buildNamesFilter(query),
      expectedRows: Math.max(1, Math.min(wanted, 1_000)),
    },
    budget,
    context,
  );
  // Incidents that are tied at the end of a page are all read, since their order is that of their digests.
  const { tallies, isComplete } = await tallyErrors(
    rows,
    { text: query.text, most: context.limits.rows },
    (found, newest, next) => found >= wanted && next < newest,
  );
  const incidents: Incident[] = [];
  const add = ([digest, tally]: readonly [string, ErrorTally]) => {
    const { listedAt } = tally;
    if (listedAt !== undefined) incidents.push(toErrorIncident(site, digest, tally, listedAt, isComplete));
  };
  await visitInTurns(tallies, add, context.signal);
  return { incidents, isComplete };
}

/** A digest's names are those of all of its rows; its message and action may differ, and those of any row count. */
function createTextMatcher(text = ""): (row: ErrorTally["newest"]) => boolean {
  const needle = text.toLowerCase();
  return ({ exception: { name, message = "", digest }, action_name }) =>
    digest === text || [name, message, action_name].some((one) => one.toLowerCase().includes(needle));
}

function toErrorIncident(
  site: string,
  digest: string,
  { newest, first, count, actions }: ErrorTally,
  listedAt: Instant,
  isCounted: boolean,
): Incident {
  return {
    kind: "error",
    site,
    digest,
    number: deriveIncidentNumber(site, digest),
    namespace: newest.namespace,
    action: newest.action_name,
    exception: newest.exception,
    last: newest.time,
    listedAt,
    figures: isCounted ? { count, first, actions: [...actions].toSorted(compare) } : undefined,
    stats: undefined,
  };
}

/** The figures of errors whose pages were found without them: one reading for all. */
export async function countErrors(
  query: Pick<IncidentQuery, "site" | "range" | "namespaces" | "action" | "revision">,
  digests: NonEmpty<string>,
  context: Context,
): Promise<ReadonlyMap<string, ErrorFigures>> {
  const filter = { ...buildNamesFilter(query), digests };
  const rows = listRows(
    query.site,
    { candidates: "errors", byError: true, range: query.range, filter, expectedRows: maxTiedRows },
    createRequestBudget(context),
    context,
  );
  const { tallies } = await tallyErrors(rows, { most: Number.POSITIVE_INFINITY }, () => false);
  return new Map(
    [...tallies].map(([digest, { count, first, actions }]) => [
      digest,
      { count, first, actions: [...actions].toSorted(compare) },
    ]),
  );
}

// ---- Actions ------------------------------------------------------------------------------------------------

/** Rows that are read for the newest of each action before rare ones are looked for one by one. */
const maxRowsInOrder = 2_000;
/** Actions that are looked for one by one; more of them are found sooner among all rows. */
const maxSingleActions = 200;

async function findActionIncidents(
  query: IncidentQuery,
  wanted: number,
  budget: Budget,
  context: Context,
): Promise<FoundIncidents> {
  const { site, range, namespaces, revision, action, text = "" } = query;
  const traces = context.sites.get(site)?.traces;
  if (traces === undefined || range.from > range.to) return { incidents: [], isComplete: true };
  const scope = { sources: [traces.source] as const, range, budget };
  const needle = text.toLowerCase();
  const stats = await traces.store.actions({ ...scope, namespaces, revision, action }, context.signal);
  const byKey = new Map<string, (typeof stats)[number]>();
  const addNamed = (row: (typeof stats)[number]) => {
    const isNamed = row.action.toLowerCase().includes(needle) || encodeActionDigest(row) === text;
    if (isNamed) byKey.set(formatActionKey(row), row);
  };
  await visitInTurns(stats, addNamed, context.signal);
  const { rows: rowLimit } = context.limits;
  if (byKey.size > rowLimit) throw createTooManyIncidents(rowLimit, byKey.size);
  const enough = Math.min(wanted, byKey.size);
  const newest = new Map<string, TraceSummary>();
  const listing = { ...scope, candidates: "requests", byAction: true, by: "time", order: "desc" } as const;
  const filter = buildNamesFilter(query);
  const readNewest = async (
    narrowed: Pick<ListingQuery, "filter" | "expectedRows">,
    isEnough: (rowsRead: number) => boolean,
  ) => {
    const rows = { ...listing, ...narrowed, tieLimit: maxTiedRows };
    let read = 0;
    for await (const batch of traces.store.summaries(rows, context.signal)) {
      for (const row of batch) {
        const key = formatActionKey({ namespace: row.namespace, action: row.action_name });
        if (byKey.has(key) && !newest.has(key)) newest.set(key, row);
      }
      read += batch.length;
      if (isEnough(read)) return;
    }
  };
  if (enough > 0) {
    const expectedRows = Math.min(4 * enough, maxRowsInOrder);
    await readNewest(
      { filter, expectedRows },
      (read) =>
        newest.size >= enough || (read >= maxRowsInOrder && byKey.size - newest.size <= maxSingleActions),
    );
  }
  if (newest.size < enough) {
    for (const [key, row] of byKey) {
      if (newest.has(key)) continue;
      const digests = [encodeActionDigest(row)] as const;
      await readNewest({ filter: { ...filter, digests }, expectedRows: 1 }, () => newest.has(key));
    }
  }
  const incidents: Incident[] = [];
  const add = ([key, row]: readonly [string, TraceSummary]) => {
    const figures = byKey.get(key);
    if (figures !== undefined) incidents.push(toActionIncident(site, row, figures));
  };
  await visitInTurns(newest, add, context.signal);
  return { incidents, isComplete: newest.size === byKey.size };
}

function toActionIncident(
  site: string,
  { namespace, action_name: action, time: last }: TraceSummary,
  { count, mean, has_npo }: ActionFigures,
): Incident {
  const digest = encodeActionDigest({ namespace, action });
  return {
    kind: "action",
    site,
    digest,
    number: deriveIncidentNumber(site, digest),
    namespace,
    action,
    exception: undefined,
    last,
    listedAt: last,
    figures: undefined,
    stats: { count, mean, has_npo },
  };
}

function createTooManyIncidents(limit: number, wanted: number): Refused {
  const message = `The site has more than ${limit} incidents in the range; narrow it`;
  return new Refused("result_too_large", message, { limit, wanted });
}

// ---- Samples ------------------------------------------------------------------------------------------------

/** The digest of the incident that a row is a sample of: that of its error, else that of its action. */
export function deriveIncidentDigest({ exception, namespace, action_name: action }: TraceSummary): string {
  return exception?.digest ?? encodeActionDigest({ namespace, action });
}

export interface SampleQuery {
  readonly site: string;
  readonly candidates: ListingQuery["candidates"];
  readonly range: TimeRange;
  /** Absent: of any error or action. */
  readonly digests?: NonEmpty<string> | undefined;
  readonly traceId?: string | undefined;
  readonly namespaces?: readonly string[] | undefined;
  readonly text?: string | undefined;
  readonly action?: string | undefined;
  /** The type of the exception. */
  readonly exception?: string | undefined;
  readonly limit: number;
}

/** The newest occurrences of errors, or requests of actions; each of an error has its exception. */
export async function listSamples(query: SampleQuery, context: Context): Promise<readonly TraceSummary[]> {
  const {
    site,
    candidates,
    range,
    digests,
    traceId,
    namespaces = [],
    text = "",
    action,
    exception,
    limit,
  } = query;
  if (range.from > range.to || limit === 0) return [];
  const isErrors = candidates === "errors";
  if (!isErrors && context.sites.get(site)?.traces === undefined) return [];
  const rows = listRows(
    site,
    {
      candidates,
      byError: isErrors,
      byAction: !isErrors,
      range,
      expectedRows: limit,
      filter: { ...buildNamesFilter({ namespaces, action }), digests, traceId },
    },
    createRequestBudget(context),
    context,
  );
  const found: TraceSummary[] = [];
  const needle = text.toLowerCase();
  for await (const row of rows) {
    const { name = "", message = "" } = row.exception ?? {};
    if (exception !== undefined && name !== exception) continue;
    const texts = [row.action_name, name, message];
    if (!texts.some((one) => one.toLowerCase().includes(needle))) continue;
    found.push(row);
    if (found.length >= limit) break;
  }
  return found;
}

/** The same of each digest alone, read together; in the order of the digests. */
export async function listSamplesByDigest(
  query: Pick<SampleQuery, "site" | "candidates" | "range" | "limit">,
  digests: NonEmpty<string>,
  context: Context,
): Promise<readonly (readonly TraceSummary[])[]> {
  const { site, candidates, range, limit } = query;
  const isErrors = candidates === "errors";
  const isNone = range.from > range.to || limit === 0;
  if (isNone || (!isErrors && context.sites.get(site)?.traces === undefined)) return digests.map(() => []);
  const found = new Map<string, TraceSummary[]>(digests.map((digest) => [digest, []]));
  let open = found.size;
  const rows = listRows(
    site,
    {
      candidates,
      byError: isErrors,
      byAction: !isErrors,
      range,
      expectedRows: Math.min(limit * open, maxTiedRows),
      filter: { ...buildNamesFilter({ namespaces: [] }), digests },
    },
    createRequestBudget(context),
    context,
  );
  for await (const row of rows) {
    const list = found.get(deriveIncidentDigest(row));
    if (list === undefined || list.length >= limit) continue;
    list.push(row);
    if (list.length === limit) open -= 1;
    if (open === 0) break;
  }
  return digests.map((digest) => found.get(digest) ?? []);
}

/** Rows of `traces/errors` by revision. */
export async function countErrorRows(
  site: string,
  range: TimeRange,
  namespaces: readonly string[],
  revisions: readonly string[],
  context: Context,
): Promise<ReadonlyMap<string, number>> {
  const found = new Map(revisions.map((revision) => [revision, 0]));
  if (found.size === 0 || range.from > range.to) return found;
  const named = printAnyOf("namespace", namespaces);
  const seen = printAnyOf("revision", [...found.keys()]);
  const query = parseTraceQuery(named === "" ? seen : `(${named}) AND (${seen})`);
  const listing = { candidates: "errors", range, filter: { query }, expectedRows: maxTiedRows } as const;
  for await (const { revision = "" } of listRows(site, listing, createRequestBudget(context), context))
    found.set(revision, (found.get(revision) ?? 0) + 1);
  return found;
}
