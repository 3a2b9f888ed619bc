// Log lines from Elasticsearch and OpenSearch. A search is sorted by time alone and read in batches; the last
// millisecond of a full batch may be incomplete, so it is held back and the next search begins with it. That needs
// neither a point in time nor a tie-breaker, which the products have in different forms: a millisecond always comes
// out of one search. Only one that overflows a search is read by a scroll of its own.
import { BackendError, Refused, unsupported } from "../../../src/core/errors.ts";
import type { LogLine } from "../../../src/core/rows.ts";
import {
  earlier,
  endOfMilli,
  floorToMilli,
  type Instant,
  later,
  type TimeRange,
} from "../../../src/core/time.ts";
import { matcher } from "../../../src/log-query/matches.ts";
import type { LogQuery, LogSource, LogStore } from "../../../src/store/store.ts";
import { recording } from "../../../src/telemetry/request-recorder.ts";
import type { Door } from "../client/client.ts";
import { nextPart, release, requireAll, scrolling } from "../client/scroll.ts";
import { type Answer, type Hit, lastSort } from "../document/hit-scanner.ts";
import type { Part } from "../layout/layout-groups.ts";
import { readLine } from "../layout/line-decoder.ts";
import type { Knowledge } from "../mapping/mapping.ts";
import { asksHidden, tooWide } from "../query/filter-compiler.ts";
import { hasUnmapped, parseWhere } from "../query/tenant-filter.ts";
import { shownParts } from "../search/access-restrictions.ts";
import type { Catalog } from "../search/mapping-cache.ts";
import {
  changing,
  isStale,
  refuseRemote,
  refuseWall,
  requireIndices,
  sendSearch,
  settle,
  untilStarted,
  wholeAnswer,
} from "../search/search.ts";
import { explainSource } from "./explain.ts";
import { paceOf } from "./export-window.ts";
import { limitTies, merge, sortLines, tooManyTies } from "./merge.ts";
import { compilePlan, type Plan, type Reading, Reparted } from "./search-plan.ts";

/**
 * Hits of one search: large enough to be cheap, small enough not to stall other requests while it is cut. Twice as many cost
 * the same, and many large pages at once then hold a third more memory. Whoever wants more than a page has a pace.
 */
const batch = { least: 100, most: 256, burst: 1_000 } as const;

/** How far a server lets a search skip, by default. */
const resultWindow = 10_000;

/** How often a reading may begin anew because the layouts behind its pattern changed. */
const repartings = 3;

export function createLogStore(backend: string, door: Door, catalog: Catalog): LogStore {
  return {
    lines(query, signal) {
      const spent = { documents: 0 };
      const streams = query.sources.map((source) => readSource(source, query, spent, signal));
      const [only] = streams;
      const merged = only !== undefined && streams.length === 1 ? only : merge(streams, query.order);
      return limitTies(merged, query.tieLimit);
    },
    async fits(query, signal) {
      for (let attempt = 0; ; attempt++) {
        try {
          return await fits(query, signal);
        } catch (error) {
          if (!(error instanceof Reparted)) throw error;
          if (attempt === repartings) throw changing(backend, query.sources[0].index);
        }
      }
    },
    explain: (query, signal) =>
      Promise.all(query.sources.map((source) => explainSource(source, query.filter, door, catalog, signal))),
  };

  async function fits(query: LogQuery, signal: AbortSignal): Promise<boolean> {
    const { sources, documentLimit, tieLimit } = query;
    const parted = await Promise.all(sources.map((source) => partsOf(source, signal)));
    const readers = sources.flatMap((source, at) =>
      (parted[at] ?? []).map((part, _, parts) =>
        createReader(readingOf(source, part, parts, query, signal), { documents: 0 }),
      ),
    );
    const limit = Math.min(documentLimit, tieLimit);
    // A reader's last search may go beyond the page. Where more is wanted than any limit lets through, all is read.
    const room = query.wanted > limit ? limit : limit - batch.most * readers.length;
    const counts = await Promise.all(readers.map((reader) => reader.foretell(room)));
    return counts.reduce((sum, count) => sum + count, 0) <= room;
  }

  function readingOf(
    source: LogSource,
    part: Part,
    parts: readonly Part[],
    query: LogQuery,
    signal: AbortSignal,
  ): Reading {
    const { where } = source;
    const wall = where === undefined ? undefined : refuseWall(backend, () => parseWhere(where));
    return { backend, door, catalog, source, part, parts, query, wall, signal };
  }

  async function partsOf(source: LogSource, signal: AbortSignal): Promise<readonly Part[]> {
    refuseRemote(backend, source.index);
    const knowledge = await catalog.knowledge(source.index, source.where !== undefined, signal);
    const parts = await catalog.parts(source, knowledge, signal);
    return shownParts(backend, source, knowledge, parts, door, signal);
  }

  /** The lines of all parts of a source. When its indices are parted anew, what is left is read so. */
  async function* readSource(
    source: LogSource,
    query: LogQuery,
    spent: Spent,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogLine[]> {
    let range: TimeRange | undefined = query.range;
    for (let attempt = 0; range !== undefined; attempt++) {
      const parts = await partsOf(source, signal);
      const rest: LogQuery = { ...query, range };
      const streams = parts.map((part) => readPart(source, part, parts, rest, spent, signal));
      const [only] = streams;
      const merged = only !== undefined && streams.length === 1 ? only : merge(streams, query.order);
      try {
        for await (const lines of merged) {
          yield lines;
          const last = lines.at(-1);
          if (last !== undefined) range = beyond(floorToMilli(last.time), rest.range, query.order, false);
        }
        return;
      } catch (error) {
        if (!(error instanceof Reparted)) throw error;
        if (attempt === repartings) throw changing(backend, source.index);
      }
    }
  }

  async function* readPart(
    source: LogSource,
    part: Part,
    parts: readonly Part[],
    query: LogQuery,
    spent: Spent,
    signal: AbortSignal,
  ): AsyncGenerator<readonly LogLine[]> {
    // Not AbortSignal.any, which alone costs a tenth of a small request.
    const leaving = new AbortController();
    const leave = () => leaving.abort(signal.reason);
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    const reader = createReader(readingOf(source, part, parts, query, leaving.signal), spent);
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
interface Spent {
  documents: number;
}

/** What is left of a range once everything before (in the order) a millisecond is done, and `itself` or not. */
function beyond(
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

function createReader(reading: Reading, spent: Spent) {
  const { backend, door, catalog, source, part, query, wall, signal } = reading;
  const recorder = recording();
  const holds = matcher(query.filter);
  const pace = paceOf(query);
  const most = pace?.most ?? batch.most;
  let kept = 0;
  let asked = false;
  let keptOfRead = 1;
  let plan: Plan | undefined;

  /**
   * Hits to ask for. One line beyond what is wanted shows that the last millisecond has ended, and one hit of each
   * search is held back, so what is missing is parted evenly: no search runs for the last two lines.
   */
  function nextSize(): number {
    if (pace !== undefined) return pace.size;
    const missing = Math.max(1, Math.ceil((query.wanted + 1 - kept) / keptOfRead));
    const searches = Math.ceil(missing / (most - 1));
    const size = Math.ceil(missing / searches) + (kept === 0 && searches === 1 ? 0 : 1);
    return keptOfRead < 1 ? Math.max(batch.least, size) : size;
  }

  /** Where one index goes as another comes, each search reaches as many shards as the one before. */
  async function finish(): Promise<void> {
    if (goesOn) requireIndices(backend, source.index, begun, await catalog.refresh(source.index, signal));
  }

  /** The search that is under way before anybody has asked for it. */
  let ahead: { readonly body: string; readonly bytes: Promise<Buffer> } | undefined;
  let answered = false;
  /** What was known when the last answer came. */
  let begun: Knowledge | undefined;
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
    searchBy: (plan: Plan) => Promise<Answer>,
  ): Promise<{ readonly plan: Plan; readonly answer: Answer }> {
    for (let attempt = 0; ; attempt++) {
      const plan = await planSearch();
      const { knowledge } = plan;
      // Others may have met the change before.
      requireIndices(backend, source.index, begun, knowledge);
      const answer = await searchBy(plan).catch(unlessRejected);
      if (answer === undefined && attempt < 2) {
        // An index that the mapping did not know may also refuse what was compiled without it, and a cluster may refuse
        // what is expensive, which its product then says.
        narrows = attempt === 0;
        await catalog.refresh(source.index, signal);
        continue;
      }
      if (answer === undefined) throw rejection;
      if (isStale(knowledge, answer, catalog.accepted(source.index))) {
        // Documents from an index that the mapping did not know: compile again with it.
        if (attempt < 2) {
          await catalog.refresh(source.index, signal);
          continue;
        }
        settle(backend, source.index, knowledge, answer, catalog);
      }
      return { plan, answer };
    }
  }

  /** The lines of what is left that one search completes. */
  async function read(left: TimeRange, size = nextSize()): Promise<Page> {
    const asked = pace?.first(left) ?? left;
    const { plan, answer } = await searchPlanned((plan) => searchOn(plan, asked, left, size));
    goesOn = pace !== undefined && begun !== undefined;
    begun = plan.knowledge;
    return completed(plan, answer, asked, left, size);
  }

  async function completed(
    plan: Plan,
    answer: Answer,
    { from, to }: TimeRange,
    left: TimeRange,
    size: number,
  ): Promise<Page> {
    const instants = instantsOf(plan, answer.hits);
    if (answer.hits.length < size) {
      pace?.ranDry();
      count(answer.hits.length);
      const lines = keep(plan, answer.hits, instants, from, to);
      kept += lines.length;
      return {
        lines,
        rest: beyond(floorToMilli(query.order === "asc" ? to : from), left, query.order, false),
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
      return { lines, rest: beyond(last, left, query.order, true) };
    }
    if (size < most) return read(left, most);
    const lines = await readBurst(plan, last, from, to);
    if (lines === undefined) {
      await catalog.refresh(source.index, signal);
      return read(left);
    }
    kept += lines.length;
    return { lines, rest: beyond(last, left, query.order, false) };
  }

  /**
   * One millisecond that holds more documents than a search: all of it, by a scroll. Undefined when the scroll met an
   * index that the plan did not know.
   */
  async function readBurst(
    plan: Plan,
    milli: Instant,
    from: Instant,
    to: Instant,
  ): Promise<LogLine[] | undefined> {
    const body = {
      ...plan.body(later(from, milli), earlier(to, endOfMilli(milli)), true),
      size: batch.burst,
    };
    const lines: LogLine[] = [];
    let answer = await search(plan, body, scrolling);
    const { total } = answer;
    let accepted = catalog.accepted(source.index);
    let read = 0;
    try {
      while (answer.hits.length > 0) {
        if (isStale(plan.knowledge, answer, accepted)) return undefined;
        count(answer.hits.length);
        read += answer.hits.length;
        const instants = instantsOf(plan, answer.hits);
        lines.push(...keep(plan, answer.hits, instants, from, to));
        if (lines.length > query.tieLimit) throw tooManyTies(query.tieLimit);
        const bytes = await nextPart(backend, door, answer, signal);
        answer = await wholeAnswer(backend, bytes, plan.profile);
        // Elasticsearch goes on with the shards alone that may hold something of the millisecond.
        accepted = answer.shards.total;
      }
      if (total !== undefined) requireAll(backend, read, total);
    } finally {
      release(door, answer.scrollId);
    }
    return sortLines(lines, query.order);
  }

  async function search(plan: Plan, body: object, extra: Record<string, string> = {}): Promise<Answer> {
    return wholeAnswer(backend, await ask(JSON.stringify(body), extra), plan.profile);
  }

  function ask(body: string, extra: Record<string, string> = {}): Promise<Buffer> {
    const send = () => sendSearch(door, source.index, body, signal, extra);
    // What is being sent would be cut off by a new index; whoever has received nothing yet had better ask again.
    return answered && pace !== undefined ? untilStarted(send, signal) : send();
  }

  /**
   * The search of a batch. One of many asks for the next batch before it is cut, so that the source never waits for us:
   * what is asked then is a guess, of which only the answer to the very question that comes is used.
   */
  async function searchOn(plan: Plan, asked: TimeRange, left: TimeRange, size: number): Promise<Answer> {
    const printed = ({ from, to }: TimeRange, size: number) =>
      JSON.stringify({ ...plan.body(from, to), size });
    const body = printed(asked, size);
    const answering = ahead?.body === body ? ahead.bytes : ask(body);
    ahead = undefined;
    const bytes = await answering;
    answered = true;
    const last = pace && lastSort(bytes);
    if (pace !== undefined && last !== undefined) {
      const milli = floorToMilli(plan.clock.instantOf(last));
      pace.reached(asked, milli);
      const rest = beyond(milli, left, query.order, true);
      const guess = rest && printed(pace.first(rest), pace.size);
      if (guess !== undefined && guess !== body) ahead = { body: guess, bytes: ask(guess) };
      // It may fail while this batch is cut; it is met when its turn comes.
      ahead?.bytes.catch(() => undefined);
    }
    const answer = await wholeAnswer(backend, bytes, plan.profile);
    pace?.weighed(bytes.length, answer.hits.length);
    return answer;
  }

  /**
   * How many documents the filter makes us look at; or, where every document is a line, how many up to the millisecond
   * that ends the page. Infinity where they are more than `room`, or cannot be foretold.
   */
  async function foretell(room: number): Promise<number> {
    const { order, wanted, range } = query;
    const counted = { track_total_hits: Math.max(1, room) };
    // A line at which the page ends is only looked for where one line alone decides it.
    const skipped = wanted > resultWindow ? { size: 0 } : { from: wanted - 1, size: 1 };
    const { plan, answer: whole } = await searchPlanned((plan) =>
      search(plan, { ...plan.body(range.from, range.to), ...counted, ...skipped }),
    );
    if (whole.total !== undefined) return whole.total;
    const [last] = whole.hits;
    if (query.filter.kind !== "all" || last === undefined) {
      return Number.POSITIVE_INFINITY;
    }
    const milli = floorToMilli(plan.instantOf(last));
    const { from, to } =
      order === "asc"
        ? { from: range.from, to: earlier(range.to, endOfMilli(milli)) }
        : { from: later(range.from, milli), to: range.to };
    const page = await search(plan, { ...plan.body(from, to), ...counted, size: 0 });
    return page.total ?? Number.POSITIVE_INFINITY;
  }

  /** Each document once, also where a held-back millisecond is read again: `fits` foretells it. */
  function count(read: number): void {
    query.progressed?.();
    spent.documents += read;
    if (spent.documents <= query.documentLimit) return;
    throw new Refused("result_too_large", `${tooWide(plan?.unnarrowed() ?? [])}, or narrow the time range`, {
      limit: query.documentLimit,
    });
  }

  function keep(
    plan: Plan,
    hits: readonly Hit[],
    instants: readonly Instant[],
    from: Instant,
    to: Instant,
  ): LogLine[] {
    const lines = linesOf(reading, plan, hits, instants, { from, to }, holds);
    recorder?.read({ source: source.id, documents: hits.length, kept: lines.length });
    return sortLines(lines, query.order);
  }

  async function planSearch(): Promise<Plan> {
    let knowledge = await catalog.knowledge(source.index, wall !== undefined, signal);
    if (!asked) {
      const isOpen = wall !== undefined && hasUnmapped(wall, knowledge.groups);
      if (pace !== undefined || isOpen || asksHidden(query.filter, part, await door.product(signal)))
        knowledge = await catalog.refresh(source.index, signal);
      asked = true;
    }
    if (plan?.knowledge !== knowledge) plan = await compilePlan(reading, knowledge, narrows);
    return plan;
  }

  return {
    read: (left: TimeRange) => read(left),
    finish,
    wants: () => kept < query.wanted,
    asksAhead: () => ahead !== undefined,
    foretell,
  };
}

// What runs for each line is a function of the module (src/README.md, "What runs for each point or span").

/** When each of the hits is. */
function instantsOf({ instantOf }: Plan, hits: readonly Hit[]): readonly Instant[] {
  const instants: Instant[] = [];
  for (const hit of hits) instants.push(instantOf(hit));
  return instants;
}

/** The hits that are in the range and satisfy the filter, as lines. */
function linesOf(
  { backend, source }: Reading,
  { profile }: Plan,
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
      if (floorToMilli(time) < floorToMilli(from) || floorToMilli(time) > to) throw strangeTimes(backend);
      continue;
    }
    const line = readLine(backend, hit, time, source.id, profile);
    // Always, also where the index seems exact by its mapping: a mapping can be newer than its documents.
    if (holds(line)) lines.push(line);
  }
  return lines;
}

/** A document with several times sorts by one that may lie outside the range which another has put it in. */
function strangeTimes(backend: string): Refused<"not_supported_by_backend"> {
  return unsupported(backend, "documents with several times");
}
