// Those who follow one query over the same sources: how far it has been read for them, and what they have been given.
import { createHash } from "node:crypto";
import { noteClientRequest } from "../core/async/concurrency.ts";
import { createReadProgress } from "../core/async/read-progress.ts";
import type { Unprocessable } from "../core/errors.ts";
import type { LogLine } from "../core/rows.ts";
import { type Instant, later, type Millis } from "../core/time.ts";
import { type Filter, listComparisons } from "../log-query/ast.ts";
import { compileSteppedFilter } from "../log-query/matches.ts";
import { createRecentIds, type RecentIds } from "./recent-ids.ts";

/** With more different queries than these, all lines are read: a larger query costs the index more than it saves. */
export const maxSeparateQueries = 32;

export interface Listener {
  readonly filter: Filter;
  /** Lines that satisfy the filter, by time; never one twice. */
  readonly onLines: (lines: readonly LogLine[]) => void;
  /** A poll has succeeded: every line before `closed` that came in time has been delivered. */
  readonly onClosed: (closed: Instant) => void;
  /** A poll failed; the next one is after `rest`. */
  readonly onFailure: (error: unknown, rest: Millis) => void;
  /** No poll of its query can succeed; nothing more is delivered. */
  readonly onRefusal: (error: Unprocessable) => void;
}

/** Listeners of one query. */
export interface QueryAudience {
  readonly key: string;
  readonly filter: Filter;
  /** How many its filter has. */
  readonly comparisons: number;
  readonly matches: ReturnType<typeof compileSteppedFilter>;
  /** With their places among all who have joined the poller. */
  readonly listeners: Map<Listener, number>;
  /** The place of the last one. */
  newest: number;
  /** What has been delivered to them, with how many had joined the poller by then. */
  readonly seen: RecentIds;
  /** Of the listener that came first. */
  readonly account: string;
  /** When the last poll of the whole lateness window began, and when that of any range did. */
  lastWhole: Instant;
  last: Instant;
  isAlone: boolean;
  /** It is not read with others before this. */
  aloneUntil: Instant;
  /** Of the last poll; of the first one until that has ended. */
  outcome: PromiseWithResolvers<void>;
  /** Aborted when the last listener has left. */
  readonly left: AbortController;
  /** Why nothing more is read for them. */
  refusal: Unprocessable | undefined;
}

export function createAudience(options: {
  readonly key: string;
  readonly filter: Filter;
  readonly account: string;
  readonly began: Instant;
  readonly seenLimit: number;
}): QueryAudience {
  const { key, filter, account, began, seenLimit } = options;
  const audience: QueryAudience = {
    key,
    filter,
    comparisons: listComparisons(filter).length,
    matches: compileSteppedFilter(filter),
    listeners: new Map(),
    newest: 0,
    seen: createRecentIds(seenLimit),
    account,
    lastWhole: began,
    last: began,
    isAlone: true,
    aloneUntil: began,
    outcome: createOutcome(),
    left: new AbortController(),
    refusal: undefined,
  };
  noteClientRequest(audience.left.signal, { account, progress: createReadProgress() });
  return audience;
}

/** Equal for filters that mean the same comparisons: a long query is not held once more as a key. */
export function digestFilter(filter: Filter): string {
  const text = JSON.stringify(filter, (name, value) => (name === "span" ? undefined : value));
  return createHash("sha256").update(text).digest("base64url");
}

function createOutcome(): PromiseWithResolvers<void> {
  const outcome = Promise.withResolvers<void>();
  outcome.promise.catch(() => {});
  return outcome;
}

/** Settles the outcome that is awaited, and gives later listeners this one at once. */
export function settleOutcome(audience: QueryAudience, error?: unknown): void {
  const pending = audience.outcome;
  const known = createOutcome();
  audience.outcome = known;
  if (error === undefined) {
    pending.resolve();
    known.resolve();
  } else {
    pending.reject(error);
    known.reject(error);
  }
}

/** A poll that began then has been answered, maybe after one that began later: what that has closed stays closed. */
export function closeRange(
  audience: QueryAudience,
  begun: Instant,
  isWholeWindow: boolean,
  lateness: bigint,
): void {
  audience.last = later(audience.last, begun);
  settleOutcome(audience);
  if (isWholeWindow) {
    audience.lastWhole = later(audience.lastWhole, begun);
    audience.seen.forget((audience.lastWhole - lateness) as Instant);
  }
  for (const listener of audience.listeners.keys())
    listener.onClosed((audience.lastWhole - lateness) as Instant);
}

/** Matches what any listener follows; all lines where there are too many queries. */
export function combineFilters(audiences: readonly QueryAudience[]): Filter {
  const filters = audiences.map(({ filter }) => filter);
  const [first, second, ...rest] = filters;
  const isAll = filters.length > maxSeparateQueries || filters.some(({ kind }) => kind === "all");
  if (first === undefined || isAll) return { kind: "all" };
  if (second === undefined) return first;
  return { kind: "or", operands: [first, second, ...rest], span: { start: 0, end: 0 } };
}
