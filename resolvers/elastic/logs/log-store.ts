// Log lines from Elasticsearch and OpenSearch. A search is sorted by time alone and read in batches; the last
// millisecond of a full batch may be incomplete, so it is held back and the next search begins with it. That needs
// neither a point in time nor a tie-breaker, which the products have in different forms: a millisecond always comes
// out of one search. Only one that overflows a search is read by a scroll of its own.
import { BackendError, createUnsupportedError, Refused } from "../../../src/core/errors.ts";
import type { LogLine } from "../../../src/core/rows.ts";
import {
  earlier,
  endOfMilli,
  floorToMilli,
  type Instant,
  later,
  type TimeRange,
} from "../../../src/core/time.ts";
import { compileMatcher } from "../../../src/log-query/matches.ts";
import type { LogQuery, LogSource, LogStore } from "../../../src/store/store.ts";
import { findCurrentRecorder } from "../../../src/telemetry/request-recorder.ts";
import type { ElasticClient } from "../client/client.ts";
import { fetchNextPage, releaseScroll, requireCompleteScroll, scrollOptions } from "../client/scroll.ts";
import { findLastSort, type Hit, type SearchResponse } from "../document/hit-scanner.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import { decodeLine } from "../layout/line-decoder.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { describeTooWide, mayNameHiddenFields } from "../query/filter-compiler.ts";
import { hasUnmappedField, parseTenantFilter } from "../query/tenant-filter.ts";
import { requireReadableGroups } from "../search/access-restrictions.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import {
  acceptShardCount,
  isStale,
  mappingChangedError,
  readCompleteResponse,
  refuseRemote,
  rejectInexactTenantFilter,
  requireSameIndices,
  retryUntilShardsStarted,
  sendSearch,
} from "../search/search.ts";
import { explainSource } from "./explain.ts";
import { createExportWindow } from "./export-window.ts";
import { limitTies, mergeStreams, sortLines, tooManyTiesError } from "./merge.ts";
import { compileSearchPlan, LayoutsChanged, type ReadContext, type SearchPlan } from "./search-plan.ts";

/**
 * Hits of one search: large enough to be cheap, small enough not to stall other requests while it is cut. Twice as many cost
 * the same, and many large pages at once then hold a third more memory. Whoever wants more than a page has a pace.
 */
const batchSizes = { least: 100, most: 256, burst: 1_000 } as const;

/** How far a server lets a search skip, by default. */
const resultWindow = 10_000;

/** How often a reading may begin anew because the layouts behind its pattern changed. */
const maxRestarts = 3;

export function createLogStore(backend: string, client: ElasticClient, catalog: MappingCache): LogStore {
  return {
    lines(query, signal) {
      const spent = { documents: 0 };
      const streams = query.sources.map((source) => readSource(source, query, spent, signal));
      const [only] = streams;
      const merged = only !== undefined && streams.length === 1 ? only : mergeStreams(streams, query.order);
      return limitTies(merged, query.tieLimit);
    },
    async isWithinLimits(query, signal) {
      for (let attempt = 0; ; attempt++) {
        try {
          return await fits(query, signal);
        } catch (error) {
          if (!(error instanceof LayoutsChanged)) throw error;
          if (attempt === maxRestarts) throw mappingChangedError(backend, query.sources[0].index);
        }
      }
    },
    explain: (query, signal) =>
      Promise.all(
        query.sources.map((source) => explainSource(source, query.filter, client, catalog, signal)),
      ),
  };

  async function fits(query: LogQuery, signal: AbortSignal): Promise<boolean> {
    const { sources, documentLimit, tieLimit } = query;
    const parted = await Promise.all(sources.map((source) => partsOf(source, signal)));
    const readers = sources.flatMap((source, at) =>
      (parted[at] ?? []).map((part, _, parts) =>
        createGroupReader(readingOf(source, part, parts, query, signal), { documents: 0 }),
      ),
    );
    const limit = Math.min(documentLimit, tieLimit);
    // A reader's last search may go beyond the page. Where more is wanted than any limit lets through, all is read.
    const room = query.expectedLines > limit ? limit : limit - batchSizes.most * readers.length;
    const counts = await Promise.all(readers.map((reader) => reader.foretell(room)));
    return counts.reduce((sum, count) => sum + count, 0) <= room;
  }

  function readingOf(
    source: LogSource,
    part: LayoutGroup,
    parts: readonly LayoutGroup[],
    query: LogQuery,
    signal: AbortSignal,
  ): ReadContext {
    const { where } = source;
    const tenantFilter =
      where === undefined ? undefined : rejectInexactTenantFilter(backend, () => parseTenantFilter(where));
    return {
      backend,
      client: client,
      mappingCache: catalog,
      source,
      layoutGroup: part,
      layoutGroups: parts,
      query,
      tenantFilter: tenantFilter,
      signal,
    };
  }

  async function partsOf(source: LogSource, signal: AbortSignal): Promise<readonly LayoutGroup[]> {
    refuseRemote(backend, source.index);
    const knowledge = await catalog.read(source.index, source.where !== undefined, signal);
    const parts = await catalog.readLayoutGroups(source, knowledge, signal);
    return requireReadableGroups(backend, source, knowledge, parts, client, signal);
  }

  /** The lines of all parts of a source. When its indices are parted anew, what is left is read so. */
  async function* readSource(
    source: LogSource,
    query: LogQuery,
    spent: ReadBudget,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogLine[]> {
    let range: TimeRange | undefined = query.range;
    for (let attempt = 0; range !== undefined; attempt++) {
      const parts = await partsOf(source, signal);
      const rest: LogQuery = { ...query, range };
      const streams = parts.map((part) => readPart(source, part, parts, rest, spent, signal));
      const [only] = streams;
      const merged = only !== undefined && streams.length === 1 ? only : mergeStreams(streams, query.order);
      try {
        for await (const lines of merged) {
          yield lines;
          const last = lines.at(-1);
          if (last !== undefined)
            range = computeRest(floorToMilli(last.time), rest.range, query.order, false);
        }
        return;
      } catch (error) {
        if (!(error instanceof LayoutsChanged)) throw error;
        if (attempt === maxRestarts) throw mappingChangedError(backend, source.index);
      }
    }
  }

  async function* readPart(
    source: LogSource,
    part: LayoutGroup,
    parts: readonly LayoutGroup[],
    query: LogQuery,
    spent: ReadBudget,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogLine[]> {
    // Not AbortSignal.any, which alone costs a tenth of a small request.
    const leaving = new AbortController();
    const leave = () => leaving.abort(signal.reason);
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    const reader = createGroupReader(readingOf(source, part, parts, query, leaving.signal), spent);
    let pending: Promise<Page> | undefined = reader.read(query.range);
    try {
      while (pending !== undefined) {
        const page: Page = await pending;
        // The next search runs while the caller works on this batch, but only if it will surely be wanted.
        const next = page.rest;
        if (next === undefined) await reader.finish();
        pending = next && reader.wants() ? reader.read(next) : undefined;
        // It may fail while the caller is busy; it is met when its turn comes.
        pending?.catch(() => undefined);
        if (page.lines.length > 0) yield page.lines;
        if (next !== undefined) pending ??= reader.read(next);
      }
    } finally {
      signal.removeEventListener("abort", leave);
      if (pending !== undefined || reader.asksAhead()) leaving.abort(new Error("no more lines wanted"));
    }
  }
}

/** The documents that a query has read so far, of all its sources. */
interface ReadBudget {
  documents: number;
}

/** What is left of a range once everything before (in the order) a millisecond is done, and `itself` or not. */
function computeRest(
  milli: Instant,
  { from, to }: TimeRange,
  order: "asc" | "desc",
  itself: boolean,
): TimeRange | undefined {
  const end = endOfMilli(milli);
  const rest: TimeRange =
    order === "asc"
      ? { from: itself ? later(from, milli) : ((end + 1n) as Instant), to }
      : { from, to: itself ? earlier(to, end) : ((milli - 1n) as Instant) };
  return rest.from > rest.to ? undefined : rest;
}

interface Page {
  /** Whole milliseconds, in the query's order. */
  readonly lines: readonly LogLine[];
  readonly rest: TimeRange | undefined;
}

function createGroupReader(reading: ReadContext, spent: ReadBudget) {
  const {
    backend,
    client,
    mappingCache: catalog,
    source,
    layoutGroup: part,
    query,
    tenantFilter,
    signal,
  } = reading;
  const recorder = findCurrentRecorder();
  const holds = compileMatcher(query.filter);
  const pace = createExportWindow(query);
  const most = pace?.maxSize ?? batchSizes.most;
  let kept = 0;
  let asked = false;
  let keptOfRead = 1;
  let plan: SearchPlan | undefined;

  /**
   * Hits to ask for. One line beyond what is wanted shows that the last millisecond has ended, and one hit of each
   * search is held back, so what is missing is parted evenly: no search runs for the last two lines.
   */
  function nextSize(): number {
    if (pace !== undefined) return pace.size;
    const missing = Math.max(1, Math.ceil((query.expectedLines + 1 - kept) / keptOfRead));
    const searches = Math.ceil(missing / (most - 1));
    const size = Math.ceil(missing / searches) + (kept === 0 && searches === 1 ? 0 : 1);
    return keptOfRead < 1 ? Math.max(batchSizes.least, size) : size;
  }

  /** Where one index goes as another comes, each search reaches as many shards as the one before. */
  async function finish(): Promise<void> {
    if (goesOn) requireSameIndices(backend, source.index, begun, await catalog.refresh(source.index, signal));
  }

  /** The search that is under way before anybody has asked for it. */
  let ahead: { readonly body: string; readonly bytes: Promise<Buffer> } | undefined;
  let answered = false;
  /** What was known when the last answer came. */
  let begun: IndexMetadata | undefined;
  let goesOn = false;
  let rejection: unknown;
  /** Unset where the source refuses the filter's query: then the documents alone decide. */
  let narrows = true;
  function unlessRejected(error: unknown): undefined {
    if (!(error instanceof BackendError) || error.failure !== "rejected") throw error;
    rejection = error;
  }

  /** What a search answers by a plan that knows all indices that answer it. */
  async function searchPlanned(
    searchBy: (plan: SearchPlan) => Promise<SearchResponse>,
  ): Promise<{ readonly plan: SearchPlan; readonly answer: SearchResponse }> {
    for (let attempt = 0; ; attempt++) {
      const plan = await planSearch();
      const { knowledge } = plan;
      // Others may have met the change before.
      requireSameIndices(backend, source.index, begun, knowledge);
      const answer = await searchBy(plan).catch(unlessRejected);
      if (answer === undefined && attempt < 2) {
        // An index that the mapping did not know may also refuse what was compiled without it, and a cluster may refuse
        // what is expensive, which its product then says.
        narrows = attempt === 0;
        await catalog.refresh(source.index, signal);
        continue;
      }
      if (answer === undefined) throw rejection;
      if (isStale(knowledge, answer, catalog.findAcceptedShardCount(source.index))) {
        // Documents from an index that the mapping did not know: compile again with it.
        if (attempt < 2) {
          await catalog.refresh(source.index, signal);
          continue;
        }
        acceptShardCount(backend, source.index, knowledge, answer, catalog);
      }
      return { plan, answer };
    }
  }

  /** The lines of what is left that one search completes. */
  async function read(left: TimeRange, size = nextSize()): Promise<Page> {
    const asked = pace?.clipRange(left) ?? left;
    const { plan, answer } = await searchPlanned((plan) => searchOn(plan, asked, left, size));
    goesOn = pace !== undefined && begun !== undefined;
    begun = plan.knowledge;
    return completed(plan, answer, asked, left, size);
  }

  async function completed(
    plan: SearchPlan,
    answer: SearchResponse,
    { from, to }: TimeRange,
    left: TimeRange,
    size: number,
  ): Promise<Page> {
    const instants = listInstants(plan, answer.hits);
    if (answer.hits.length < size) {
      pace?.recordExhausted();
      count(answer.hits.length);
      const lines = keep(plan, answer.hits, instants, from, to);
      kept += lines.length;
      return {
        lines,
        rest: computeRest(floorToMilli(query.order === "asc" ? to : from), left, query.order, false),
      };
    }
    const last = floorToMilli(instants.at(-1) ?? from);
    let cut = instants.length - 1;
    while (cut > 0 && floorToMilli(instants[cut - 1] ?? last) === last) cut--;
    if (cut > 0) {
      count(cut);
      const lines = keep(plan, answer.hits.slice(0, cut), instants.slice(0, cut), from, to);
      kept += lines.length;
      keptOfRead = Math.max(0.02, (lines.length + 1) / (cut + 1));
      return { lines, rest: computeRest(last, left, query.order, true) };
    }
    if (size < most) return read(left, most);
    const lines = await readBurst(plan, last, from, to);
    if (lines === undefined) {
      await catalog.refresh(source.index, signal);
      return read(left);
    }
    kept += lines.length;
    return { lines, rest: computeRest(last, left, query.order, false) };
  }

  /**
   * One millisecond that holds more documents than a search: all of it, by a scroll. Undefined when the scroll met an
   * index that the plan did not know.
   */
  async function readBurst(
    plan: SearchPlan,
    milli: Instant,
    from: Instant,
    to: Instant,
  ): Promise<LogLine[] | undefined> {
    const body = {
      ...plan.buildBody(later(from, milli), earlier(to, endOfMilli(milli)), true),
      size: batchSizes.burst,
    };
    const lines: LogLine[] = [];
    let answer = await search(plan, body, scrollOptions);
    const { total } = answer;
    let accepted = catalog.findAcceptedShardCount(source.index);
    let read = 0;
    try {
      while (answer.hits.length > 0) {
        if (isStale(plan.knowledge, answer, accepted)) return undefined;
        count(answer.hits.length);
        read += answer.hits.length;
        const instants = listInstants(plan, answer.hits);
        lines.push(...keep(plan, answer.hits, instants, from, to));
        if (lines.length > query.tieLimit) throw tooManyTiesError(query.tieLimit);
        const bytes = await fetchNextPage(backend, client, answer, signal);
        answer = await readCompleteResponse(backend, bytes, plan.layout);
        // Elasticsearch goes on with the shards alone that may hold something of the millisecond.
        accepted = answer.shards.total;
      }
      if (total !== undefined) requireCompleteScroll(backend, read, total);
    } finally {
      releaseScroll(client, answer.scrollId);
    }
    return sortLines(lines, query.order);
  }

  async function search(
    plan: SearchPlan,
    body: object,
    extra: Record<string, string> = {},
  ): Promise<SearchResponse> {
    return readCompleteResponse(backend, await ask(JSON.stringify(body), extra), plan.layout);
  }

  function ask(body: string, extra: Record<string, string> = {}): Promise<Buffer> {
    const send = () => sendSearch(client, source.index, body, signal, extra);
    // What is being sent would be cut off by a new index; whoever has received nothing yet had better ask again.
    return answered && pace !== undefined ? retryUntilShardsStarted(send, signal) : send();
  }

  /**
   * The search of a batch. One of many asks for the next batch before it is cut, so that the source never waits for us:
   * what is asked then is a guess, of which only the answer to the very question that comes is used.
   */
  async function searchOn(
    plan: SearchPlan,
    asked: TimeRange,
    left: TimeRange,
    size: number,
  ): Promise<SearchResponse> {
    const printed = ({ from, to }: TimeRange, size: number) =>
      JSON.stringify({ ...plan.buildBody(from, to), size });
    const body = printed(asked, size);
    const answering = ahead?.body === body ? ahead.bytes : ask(body);
    ahead = undefined;
    const bytes = await answering;
    answered = true;
    const last = pace && findLastSort(bytes);
    if (pace !== undefined && last !== undefined) {
      const milli = floorToMilli(plan.timeColumn.toInstant(last));
      pace.recordProgress(asked, milli);
      const rest = computeRest(milli, left, query.order, true);
      const guess = rest && printed(pace.clipRange(rest), pace.size);
      if (guess !== undefined && guess !== body) ahead = { body: guess, bytes: ask(guess) };
      // It may fail while this batch is cut; it is met when its turn comes.
      ahead?.bytes.catch(() => undefined);
    }
    const answer = await readCompleteResponse(backend, bytes, plan.layout);
    pace?.recordSize(bytes.length, answer.hits.length);
    return answer;
  }

  /**
   * How many documents the filter makes us look at; or, where every document is a line, how many up to the millisecond
   * that ends the page. Infinity where they are more than `bytes`, or cannot be foretold.
   */
  async function foretell(room: number): Promise<number> {
    const { order, expectedLines: wanted, range } = query;
    const counted = { track_total_hits: Math.max(1, room) };
    // A line at which the page ends is only looked for where one line alone decides it.
    const skipped = wanted > resultWindow ? { size: 0 } : { from: wanted - 1, size: 1 };
    const { plan, answer: whole } = await searchPlanned((plan) =>
      search(plan, { ...plan.buildBody(range.from, range.to), ...counted, ...skipped }),
    );
    if (whole.total !== undefined) return whole.total;
    const [last] = whole.hits;
    if (query.filter.kind !== "all" || last === undefined) {
      return Number.POSITIVE_INFINITY;
    }
    const milli = floorToMilli(plan.toInstant(last));
    const { from, to } =
      order === "asc"
        ? { from: range.from, to: earlier(range.to, endOfMilli(milli)) }
        : { from: later(range.from, milli), to: range.to };
    const page = await search(plan, { ...plan.buildBody(from, to), ...counted, size: 0 });
    return page.total ?? Number.POSITIVE_INFINITY;
  }

  /** Each document once, also where a held-back millisecond is read again: `fits` foretells it. */
  function count(read: number): void {
    query.progressed?.();
    spent.documents += read;
    if (spent.documents <= query.documentLimit) return;
    throw new Refused(
      "result_too_large",
      `${describeTooWide(plan?.listUnnarrowed() ?? [])}, or narrow the time range`,
      {
        limit: query.documentLimit,
      },
    );
  }

  function keep(
    plan: SearchPlan,
    hits: readonly Hit[],
    instants: readonly Instant[],
    from: Instant,
    to: Instant,
  ): LogLine[] {
    const lines = decodeLines(reading, plan, hits, instants, { from, to }, holds);
    recorder?.read({ source: source.id, documents: hits.length, kept: lines.length });
    return sortLines(lines, query.order);
  }

  async function planSearch(): Promise<SearchPlan> {
    let knowledge = await catalog.read(source.index, tenantFilter !== undefined, signal);
    if (!asked) {
      const isOpen = tenantFilter !== undefined && hasUnmappedField(tenantFilter, knowledge.groups);
      if (
        pace !== undefined ||
        isOpen ||
        mayNameHiddenFields(query.filter, part, await client.detectProduct(signal))
      )
        knowledge = await catalog.refresh(source.index, signal);
      asked = true;
    }
    if (plan?.knowledge !== knowledge) plan = await compileSearchPlan(reading, knowledge, narrows);
    return plan;
  }

  return {
    read: (left: TimeRange) => read(left),
    finish,
    wants: () => kept < query.expectedLines,
    asksAhead: () => ahead !== undefined,
    foretell,
  };
}

// What runs for each line is a function of the module (src/README.md, "What runs for each point or span").

/** When each of the hits is. */
function listInstants({ toInstant: instantOf }: SearchPlan, hits: readonly Hit[]): readonly Instant[] {
  const instants: Instant[] = [];
  for (const hit of hits) instants.push(instantOf(hit));
  return instants;
}

/** The hits that are in the range and satisfy the filter, as lines. */
function decodeLines(
  { backend, source }: ReadContext,
  { layout }: SearchPlan,
  hits: readonly Hit[],
  instants: readonly Instant[],
  { from, to }: TimeRange,
  holds: (line: LogLine) => boolean,
): LogLine[] {
  const lines: LogLine[] = [];
  for (let at = 0; at < hits.length; at += 1) {
    const [hit, time] = [hits[at], instants[at]];
    if (hit === undefined || time === undefined) continue;
    if (time < from || time > to) {
      // A `date` field rounds a bound to its milliseconds, so the bound itself is held here.
      if (floorToMilli(time) < floorToMilli(from) || floorToMilli(time) > to)
        throw multipleTimesError(backend);
      continue;
    }
    const line = decodeLine(backend, hit, time, source.id, layout);
    // Always, also where the index seems exact by its mapping: a mapping can be newer than its documents.
    if (holds(line)) lines.push(line);
  }
  return lines;
}

/** A document with several times sorts by one that may lie outside the range which another has put it in. */
function multipleTimesError(backend: string): Refused<"not_supported_by_backend"> {
  return createUnsupportedError(backend, "documents with several times");
}
