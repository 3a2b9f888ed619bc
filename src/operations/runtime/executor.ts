// The one way into an operation, by whatever protocol it was asked for: a place among the requests under way, a
// deadline, and the sites that it names, each authorised before anything runs.
import type { Principal } from "../../access/auth.ts";
import { createSiteViews, type Sites } from "../../access/sites.ts";
import type { Limits } from "../../config/limits.ts";
import { type LimitName, LimitReached, NotFound, Refused, TooMany } from "../../core/errors.ts";
import type { Instant } from "../../core/time.ts";
import type { PublishedVisuals } from "../../visuals/visual.ts";
import { findLimit } from "./error-response.ts";
import { closeIterator, type RequestLifetime, startRequest } from "./lifetime.ts";
import type { PreparedOperation, RowBatch } from "./operation.ts";

export interface OperationExecutor {
  /** The sites that the token may see. No operation is handed any other. */
  readonly selectVisibleSites: (principal: Principal) => Sites;
  /**
   * Takes a place, which `end` of the answer gives back.
   * @throws {LimitReached} `createOverloadedError` when all are taken
   */
  readonly admit: (gone: AbortSignal) => RequestLifetime;
  /** Work that needs no place: within it others are admitted. */
  readonly join: (gone: AbortSignal) => RequestLifetime;
  /** Resolves when all that was admitted or has joined is over; nothing may be from now on, but within that. */
  readonly drain: () => Promise<void>;
  /**
   * One JSON value, or rows in batches.
   * @throws {NotFound} a site that does not exist or may not be seen
   * @throws {TooMany} the token, or all without one, have as many requests under way as it may
   * @throws {LimitReached} `createOverloadedError` when places are scarce and a source of these sites has its share of them
   */
  readonly start: <Result>(
    prepared: PreparedOperation<Result>,
    principal: Principal,
    work: RequestLifetime,
  ) => Result;
  /** The same, from its admission to the whole answer, for callers that cannot stream. Errors as the two above. */
  readonly complete: (
    prepare: () => PreparedOperation,
    principal: Principal,
    budget: RowBudget,
    gone: AbortSignal,
  ) => Promise<unknown>;
}

/**
 * Asks for what is published: a public operation answers nothing else, of whatever site. All who ask are one token to
 * the bounds on what a token has under way, since nothing tells them apart.
 */
export const anonymousPrincipal: Principal = { user: "", maySee: () => true };

/** How many rows may still be collected for one request, over all of its operations. */
interface RowBudget {
  readonly limit: number;
  left: number;
}

interface ExecutorOptions {
  readonly sites: Sites;
  readonly limits: Limits;
  readonly visuals?: PublishedVisuals | undefined;
  /** Shared by the conductors of a server: the bound is on all of its requests. */
  readonly slots: { taken: number };
  readonly now: () => Instant;
  /** Told of each limit that ends what `complete` was asked for. */
  readonly onLimitReached: (limit: LimitName) => void;
}

/** One for each configuration that a server serves in its time. */
export function createExecutor({
  sites,
  limits,
  visuals,
  slots: places,
  now,
  onLimitReached: limited,
}: ExecutorOptions): OperationExecutor {
  let running = 0;
  let retired = false;
  const over = Promise.withResolvers<void>();

  const visible = createSiteViews(sites);
  const share = Math.ceil(limits.requests / Math.max(1, countBackends(sites)));
  /** How many places each backend and each token has, and which of them each request holds. */
  const shares = new Map<string | Principal, number>();
  const holders = new Map<RequestLifetime, readonly (string | Principal)[]>();
  const add = (holder: string | Principal, places: number) => {
    const held = (shares.get(holder) ?? 0) + places;
    if (held === 0) shares.delete(holder);
    else shares.set(holder, held);
  };

  /** A source in trouble holds its requests for long. It gets all places only as long as nobody else wants them. */
  function hold(work: RequestLifetime, principal: Principal, backends: readonly string[]): void {
    if ((shares.get(principal) ?? 0) >= limits.tokenRequests) {
      throw new TooMany(1, "token_requests");
    }
    const full = backends.find((backend) => (shares.get(backend) ?? 0) >= share);
    if (full !== undefined && places.taken > limits.requests * scarcityThreshold) {
      throw createOverloadedError("backend_share", `${shares.get(full)} requests to ${full} are under way`);
    }
    const held = [principal, ...backends];
    for (const holder of held) add(holder, 1);
    holders.set(work, held);
  }

  const join: OperationExecutor["join"] = (gone) => {
    running += 1;
    const work = startRequest(gone, limits.deadline);
    const end = () => {
      work.end();
      running -= 1;
      if (retired && running === 0) over.resolve();
    };
    return { ...work, end };
  };

  const admit: OperationExecutor["admit"] = (gone) => {
    if (places.taken >= limits.requests)
      throw createOverloadedError("requests", `${places.taken} requests are under way`);
    places.taken += 1;
    const work = join(gone);
    const end = () => {
      places.taken -= 1;
      for (const holder of holders.get(admitted) ?? []) add(holder, -1);
      holders.delete(admitted);
      work.end();
    };
    const admitted = { ...work, end };
    return admitted;
  };

  const retire: OperationExecutor["drain"] = () => {
    retired = true;
    if (running === 0) over.resolve();
    return over.promise;
  };

  const start: OperationExecutor["start"] = (prepared, principal, work) => {
    const seen = visible(principal);
    const asked = prepared.sites(visuals);
    for (const site of asked) if (!seen.has(site)) throw new NotFound();
    hold(work, principal, listBackends(prepared.name, asked, seen));
    const { signal, reportProgress: progressed } = work;
    return prepared.run({
      user: principal.user,
      sites: seen,
      visuals,
      limits,
      now,
      signal,
      reportProgress: progressed,
    });
  };

  const complete: OperationExecutor["complete"] = async (...asked) => {
    try {
      return await completed(...asked);
    } catch (error) {
      const limit = findLimit(error);
      if (limit !== undefined) limited(limit);
      throw error;
    }
  };

  const completed: OperationExecutor["complete"] = async (prepare, principal, budget, gone) => {
    const work = admit(gone);
    try {
      const prepared = prepare();
      const { values } = prepared;
      if (values !== undefined) {
        const batches = start({ ...prepared, run: values }, principal, work);
        return (await collectBatches(batches, work, budget, (rows) => rows.length)).flat();
      }
      const result = start(prepared, principal, work);
      if ("then" in result) {
        const answer = await work.wait(result);
        if (prepared.countsPoints !== true) spendRows(budget, countLinked(answer));
        return answer;
      }
      if ("pieces" in result) {
        const pieces = await collectBatches(result.pieces, work, budget, countRows);
        const text = pieces.map(({ text }) => text).join("");
        return result.headers === undefined ? readJson(text) : text;
      }
      const batches = await collectBatches(result, work, budget, countRows);
      return batches.flatMap(({ text }) => readRows(text));
    } catch (error) {
      throw work.signal.aborted ? work.signal.reason : error;
    } finally {
      work.end();
    }
  };

  return { selectVisibleSites: visible, admit, join, drain: retire, start, complete };
}

/** From this part of all places on, no backend gets more than its share. */
const scarcityThreshold = 0.75;

/** Which part of a site each family of operations reads. */
const partByFamily: Readonly<Record<string, "logs" | "traces" | "metrics" | "kubernetes">> = {
  logs: "logs",
  tracing: "traces",
  deploys: "traces",
  metrics: "metrics",
  saved_visuals: "metrics",
  kubernetes: "kubernetes",
};

function listBackends(operation: string, asked: readonly string[], sites: Sites): readonly string[] {
  const part = partByFamily[operation.split(".", 1)[0] ?? ""];
  const backends = asked.flatMap((site) => (part && sites.get(site)?.[part]?.backend) ?? []);
  return [...new Set(backends)];
}

function countBackends(sites: Sites): number {
  const parts = Object.values(partByFamily);
  const named = [...sites.values()].flatMap((site) => parts.map((part) => site[part]?.backend));
  return new Set(named.filter((backend) => backend !== undefined)).size;
}

/** Of a link's answer the rows for each that asked; of any other, one value. */
function countLinked(answer: unknown): number {
  if (!Array.isArray(answer)) return 0;
  return answer.reduce<number>((sum, rows) => sum + (Array.isArray(rows) ? rows.length : 0), 0);
}

/** @throws {Refused} `result_too_large` */
function spendRows(budget: RowBudget, rows: number): void {
  budget.left -= rows;
  if (budget.left >= 0) return;
  const message = `The answer holds more than ${budget.limit} rows; narrow it, or ask for it over REST`;
  throw new Refused("result_too_large", message, { limit: budget.limit });
}

async function collectBatches<Batch>(
  batches: AsyncIterable<Batch>,
  work: RequestLifetime,
  budget: RowBudget,
  count: (batch: Batch) => number,
): Promise<readonly Batch[]> {
  const iterator = batches[Symbol.asyncIterator]();
  const collected: Batch[] = [];
  try {
    for (;;) {
      const next = await work.wait(iterator.next());
      if (next.done === true) return collected;
      spendRows(budget, count(next.value));
      collected.push(next.value);
    }
  } catch (error) {
    closeIterator(iterator);
    throw error;
  }
}

const countRows = ({ count }: RowBatch): number => count;

// A number of 16 digits or more may not survive as a double. Most answers hold none, and are read the fast way.
const longNumber = /[[:,]\s*-?[\d.]{16}/;

/** Numbers that a double cannot hold keep their spelling: they are printed again as they came. */
export function readRows(text: string): unknown[] {
  const rows = readJson(`[${text}]`);
  return Array.isArray(rows) ? rows : [];
}

function readJson(json: string): unknown {
  return longNumber.test(json) ? JSON.parse(json, keepNumber) : JSON.parse(json);
}

declare global {
  interface JSON {
    /** Since V8 11.4; TypeScript's library does not know it yet. */
    rawJSON(text: string): unknown;
  }
}

function keepNumber(_: string, value: unknown, { source }: { source?: string } = {}): unknown {
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return JSON.rawJSON(source);
}

export function createOverloadedError(limit: LimitName, reason: string): LimitReached {
  return new LimitReached(limit, "overloaded", reason);
}
