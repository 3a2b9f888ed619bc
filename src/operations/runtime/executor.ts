// The one way into an operation, for REST and GraphQL alike: a slot among the requests under way, a deadline, and each
// named site authorised before anything runs.
import type { Principal } from "../../access/auth.ts";
import { createSiteViews, type Site, type Sites } from "../../access/sites.ts";
import type { Limits } from "../../config/limits.ts";
import { findLargest } from "../../core/collections.ts";
import {
  type LimitName,
  LimitReached,
  type LimitUse,
  NotFound,
  Refused,
  TooMany,
} from "../../core/errors.ts";
import { parseJsonInTurns } from "../../core/json-in-turns.ts";
import { parseLossless, parseNumberLossless } from "../../core/lossless-json.ts";
import type { Instant } from "../../core/time.ts";
import { yieldToEventLoop } from "../../core/turns.ts";
import type { PublishedVisuals } from "../../visuals/visual.ts";
import { findLimit } from "./error-response.ts";
import { closeIterator, type RequestLifetime, startRequest } from "./lifetime.ts";
import type { PreparedOperation, RowBatch } from "./operation.ts";

export interface OperationExecutor {
  /** The sites that the token may see. No operation is handed any other. */
  readonly selectVisibleSites: (principal: Principal) => Sites;
  /**
   * Takes a slot for a request of the token, before its body is read. `end` of the answer returns it.
   * @throws as `takeSlot`
   */
  readonly admit: (principal: Principal, gone: AbortSignal) => RequestLifetime;
  /**
   * A slot alone, such as for the body of a GraphQL query. Returns what gives it back.
   * @throws {TooMany} The token, or all without one, hold as many slots as they may.
   * @throws {LimitReached} All slots are taken.
   */
  readonly takeSlot: (principal: Principal) => () => void;
  /** A request without a slot, such as a GraphQL query whose operations are admitted one by one. */
  readonly join: (gone: AbortSignal) => RequestLifetime;
  /** Makes `drain` wait for what may yet become a request. Returns what ends that. */
  readonly hold: () => () => void;
  readonly measureUse: () => LimitUse;
  /** Resolves when all requests have ended. From now on only requests within those may begin. */
  readonly drain: () => Promise<void>;
  /**
   * One JSON value, or rows in batches.
   * @throws {NotFound} a site that does not exist or may not be seen, or a scope that the token lacks
   * @throws {LimitReached} Slots are scarce, and a backend of these sites holds its share.
   */
  readonly start: <Result>(
    prepared: PreparedOperation<Result>,
    principal: Principal,
    work: RequestLifetime,
  ) => Result;
  /**
   * The same, from its admission to the whole answer, for callers that cannot stream. Errors as the two above; one that
   * `waits` for its slot is not refused for want of one.
   */
  readonly complete: (
    prepare: () => PreparedOperation,
    principal: Principal,
    budget: RowBudget,
    admission: SlotAdmission,
    gone: AbortSignal,
  ) => Promise<unknown>;
}

/**
 * How an operation comes by its slot. What waits holds none, so that no two can wait for each other; all that have waited
 * hold at most half of the slots, of a token and of the server, so that other requests find some.
 */
type SlotAdmission = "at once" | "waits";

/** The slots of a server, and who waits for one, in the order of arrival. */
export interface RequestSlots {
  taken: number;
  /** Of those, how many are held by what has waited for them. */
  takenAfterWait: number;
  /** Each takes a slot if it may have one by now, and tells whether it does. */
  readonly waiting: Set<() => boolean>;
}

export function createRequestSlots(): RequestSlots {
  return { taken: 0, takenAfterWait: 0, waiting: new Set() };
}

/**
 * Asks for what is published: a public operation answers nothing else, of whatever site. All who ask are one token to
 * the bounds on what a token has under way, since nothing tells them apart.
 */
export const anonymousPrincipal: Principal = {
  user: "",
  account: "",
  maySee: () => true,
  hasScope: () => true,
};

/** How many rows may still be collected for one request, over all of its operations. */
interface RowBudget {
  readonly limit: number;
  left: number;
}

interface ExecutorOptions {
  readonly sites: Sites;
  readonly limits: Limits;
  readonly visuals?: PublishedVisuals | undefined;
  /** Shared by all executors of a server: the bound is on all of its requests. */
  readonly slots: RequestSlots;
  readonly now: () => Instant;
  /** Called for each limit that ends a request of `complete`. */
  readonly onLimitReached: (limit: LimitName) => void;
}

/** The requests of one configuration, and who holds which slots. */
interface ExecutorState {
  readonly options: ExecutorOptions;
  readonly selectVisibleSites: OperationExecutor["selectVisibleSites"];
  /** How many slots one backend may hold once slots are scarce. */
  readonly backendShare: number;
  /** Slots that each backend holds. */
  readonly heldByBackend: Map<string, number>;
  /** Slots that each account holds. */
  readonly held: Map<string, number>;
  /** Of each account, how many of its slots are held by what has waited for them. */
  readonly heldAfterWait: Map<string, number>;
  /** The backends that each request holds a slot of. */
  readonly usedBackends: Map<RequestLifetime, readonly string[]>;
  running: number;
  isDraining: boolean;
  readonly drained: PromiseWithResolvers<void>;
}

/** One for each configuration that a server has in its life. */
export function createExecutor(options: ExecutorOptions): OperationExecutor {
  const { sites, limits } = options;
  const state: ExecutorState = {
    options,
    selectVisibleSites: createSiteViews(sites),
    backendShare: Math.ceil(limits.requests / Math.max(1, countBackends(sites))),
    ...{ heldByBackend: new Map(), held: new Map(), heldAfterWait: new Map(), usedBackends: new Map() },
    ...{ running: 0, isDraining: false },
    drained: Promise.withResolvers<void>(),
  };
  return {
    selectVisibleSites: state.selectVisibleSites,
    join: (gone) => joinExecutor(state, gone),
    admit: (principal, gone) => admitRequest(state, principal, gone),
    hold: () => holdExecutor(state),
    takeSlot: (principal) => takeSlot(state, principal),
    measureUse: () => measureUse(state),
    drain: () => drainExecutor(state),
    start: (prepared, principal, work) => startOperation(state, prepared, principal, work),
    complete: (...request) => completeOperation(state, ...request),
  };
}

function measureUse({ options, held, heldByBackend, backendShare }: ExecutorState): LimitUse {
  const { slots, limits } = options;
  return {
    requests: slots.taken / limits.requests,
    token_requests: findLargest(held) / limits.tokenRequests,
    backend_share: findLargest(heldByBackend) / backendShare,
  };
}

/** A request without a slot: it is only waited for when the executor drains. */
function joinExecutor(state: ExecutorState, gone: AbortSignal): RequestLifetime {
  const release = holdExecutor(state);
  const work = startRequest(gone, state.options.limits.deadline);
  const end = () => {
    work.end();
    release();
  };
  return { ...work, end };
}

function holdExecutor(state: ExecutorState): () => void {
  state.running += 1;
  return () => {
    state.running -= 1;
    if (state.isDraining && state.running === 0) state.drained.resolve();
  };
}

/** A request with a slot. @throws {TooMany} {LimitReached} as `takeSlot` */
function admitRequest(
  state: ExecutorState,
  principal: Principal,
  gone: AbortSignal,
  onEnd: () => void = () => {},
): RequestLifetime {
  const returnSlot = takeSlot(state, principal);
  const work = joinExecutor(state, gone);
  const end = () => {
    for (const backend of state.usedBackends.get(admitted) ?? []) addHeld(state.heldByBackend, backend, -1);
    state.usedBackends.delete(admitted);
    onEnd();
    work.end();
    // Last, since it may be handed on.
    returnSlot();
  };
  const admitted = { ...work, end };
  return admitted;
}

/** Counts it for the token at once: bodies that never end would else take all slots. */
function takeSlot(state: ExecutorState, principal: Principal): () => void {
  const { slots, limits } = state.options;
  if ((state.held.get(principal.account) ?? 0) >= limits.tokenRequests) {
    throw new TooMany(1, "token_requests", { requests: limits.tokenRequests });
  }
  if (slots.taken >= limits.requests) {
    throw createOverloadedError("requests", `${slots.taken} requests are under way`);
  }
  slots.taken += 1;
  addHeld(state.held, principal.account, 1);
  return () => {
    slots.taken -= 1;
    addHeld(state.held, principal.account, -1);
    for (const tryEnter of slots.waiting) if (tryEnter()) slots.waiting.delete(tryEnter);
  };
}

function addHeld(held: Map<string, number>, holder: string, slots: number): void {
  const own = (held.get(holder) ?? 0) + slots;
  if (own === 0) held.delete(holder);
  else held.set(holder, own);
}

/** Resolves when the request has its slot, and one of each backend. @throws the reason why nobody waits for it any more */
function waitForSlot(
  state: ExecutorState,
  principal: Principal,
  backends: readonly string[],
  gone: AbortSignal,
): Promise<RequestLifetime> {
  const { waiting } = state.options.slots;
  return new Promise((resolve, reject) => {
    const leave = () => {
      waiting.delete(tryEnter);
      reject(gone.reason);
    };
    const tryEnter = (): boolean => {
      const work = tryAdmitWaiting(state, principal, backends, gone);
      if (work === undefined) return false;
      gone.removeEventListener("abort", leave);
      resolve(work);
      return true;
    };
    if (gone.aborted) return leave();
    gone.addEventListener("abort", leave, { once: true });
    // Whoever waits already may not have a slot by now, and so takes none before this one.
    if (!tryEnter()) waiting.add(tryEnter);
  });
}

/** Undefined while the token, a backend or the server has no slot for it. */
function tryAdmitWaiting(
  state: ExecutorState,
  principal: Principal,
  backends: readonly string[],
  gone: AbortSignal,
): RequestLifetime | undefined {
  const { held, heldAfterWait } = state;
  const { slots, limits } = state.options;
  const isFull =
    slots.taken >= limits.requests ||
    (held.get(principal.account) ?? 0) >= limits.tokenRequests ||
    slots.takenAfterWait >= takeHalf(limits.requests) ||
    (heldAfterWait.get(principal.account) ?? 0) >= takeHalf(limits.tokenRequests) ||
    findFullBackend(state, backends, slots.taken + 1) !== undefined;
  if (isFull) return undefined;
  const countAfterWait = (count: 1 | -1) => {
    slots.takenAfterWait += count;
    addHeld(heldAfterWait, principal.account, count);
  };
  const work = admitRequest(state, principal, gone, () => countAfterWait(-1));
  countAfterWait(1);
  holdSlotsOfBackends(state, work, backends);
  return work;
}

/** A slow backend holds slots for long. Once slots are scarce, each backend is held to its share. */
function findFullBackend(
  { heldByBackend, backendShare, options }: ExecutorState,
  backends: readonly string[],
  taken: number,
): string | undefined {
  if (taken <= options.limits.requests * scarcityThreshold) return undefined;
  return backends.find((backend) => (heldByBackend.get(backend) ?? 0) >= backendShare);
}

function takeHalf(slots: number): number {
  return Math.max(1, Math.floor(slots / 2));
}

/** What has waited for its slot holds them already. @throws {LimitReached} */
function holdBackendShares(state: ExecutorState, work: RequestLifetime, backends: readonly string[]): void {
  if (state.usedBackends.has(work)) return;
  const full = findFullBackend(state, backends, state.options.slots.taken);
  if (full !== undefined) {
    throw createOverloadedError(
      "backend_share",
      `${state.heldByBackend.get(full)} requests to ${full} are under way`,
    );
  }
  holdSlotsOfBackends(state, work, backends);
}

function holdSlotsOfBackends(state: ExecutorState, work: RequestLifetime, backends: readonly string[]): void {
  for (const backend of backends) addHeld(state.heldByBackend, backend, 1);
  state.usedBackends.set(work, backends);
}

/** Resolves once the last request has ended. */
function drainExecutor(state: ExecutorState): Promise<void> {
  state.isDraining = true;
  if (state.running === 0) state.drained.resolve();
  return state.drained.promise;
}

/**
 * Checks the scopes and each named site, then runs.
 * @throws {NotFound} A scope that the token lacks, or a site that it may not see; both look alike.
 */
function startOperation<Result>(
  state: ExecutorState,
  prepared: PreparedOperation<Result>,
  principal: Principal,
  work: RequestLifetime,
): Result {
  const { visuals, limits, now } = state.options;
  for (const scope of prepared.scopes) if (!principal.hasScope(scope)) throw new NotFound();
  const sites = state.selectVisibleSites(principal);
  const named = prepared.sites(visuals);
  for (const site of named) if (!sites.has(site)) throw new NotFound();
  holdBackendShares(state, work, listBackends(prepared.name, named, sites));
  const { signal, progress, reportProgress } = work;
  return prepared.run({
    user: principal.user,
    sites,
    visuals,
    limits,
    now,
    signal,
    progress,
    reportProgress,
  });
}

/** Counts the limit that ended the request, if one did. */
async function completeOperation(
  state: ExecutorState,
  ...request: Parameters<OperationExecutor["complete"]>
): Promise<unknown> {
  try {
    return await collectAnswer(state, ...request);
  } catch (error) {
    const limit = findLimit(error);
    if (limit !== undefined) state.options.onLimitReached(limit);
    throw error;
  }
}

async function collectAnswer(
  state: ExecutorState,
  ...[prepare, principal, budget, admission, gone]: Parameters<OperationExecutor["complete"]>
): Promise<unknown> {
  const prepared = prepare();
  const work =
    admission === "at once"
      ? admitRequest(state, principal, gone)
      : await waitForSlot(state, principal, listUsedBackends(state, prepared, principal), gone);
  try {
    const { values } = prepared;
    if (values !== undefined) {
      const batches = startOperation(state, { ...prepared, run: values }, principal, work);
      return (await collectBatches(batches, work, budget, (rows) => rows.length)).flat();
    }
    const result = startOperation(state, prepared, principal, work);
    if ("then" in result) {
      const answer = await work.wait(result);
      if (prepared.countsPoints !== true) spendRows(budget, countLinked(answer));
      return answer;
    }
    if ("pieces" in result) {
      const pieces = await collectBatches(result.pieces, work, budget, countRows);
      const text = pieces.map(({ text }) => text).join("");
      return result.headers === undefined ? await parseJsonInTurns(text, parseNumberLossless) : text;
    }
    return await readBatches(await collectBatches(result, work, budget, countRows));
  } catch (error) {
    throw work.signal.aborted ? work.signal.reason : error;
  } finally {
    work.end();
  }
}

/** Once this part of all slots is taken, each backend is held to its share. */
const scarcityThreshold = 0.75;

type SitePartName = "logs" | "traces" | "metrics" | "kubernetes";

/** Which part of a site each family of operations reads. */
const partByFamily: Readonly<Record<string, SitePartName>> = {
  logs: "logs",
  tracing: "traces",
  deploys: "traces",
  metrics: "metrics",
  saved_visuals: "metrics",
  kubernetes: "kubernetes",
};

/** Of an operation that is to be started. A site that the token may not see has none. */
function listUsedBackends(state: ExecutorState, prepared: PreparedOperation, principal: Principal) {
  const sites = state.selectVisibleSites(principal);
  return listBackends(prepared.name, prepared.sites(state.options.visuals), sites);
}

function listBackends(operation: string, asked: readonly string[], sites: Sites): readonly string[] {
  const part = partByFamily[operation.split(".", 1)[0] ?? ""];
  const backends = asked.flatMap((id) => {
    const site = sites.get(id);
    return part === undefined || site === undefined ? [] : listPartBackends(site, part);
  });
  return [...new Set(backends)];
}

function countBackends(sites: Sites): number {
  const parts = Object.values(partByFamily);
  return new Set([...sites.values()].flatMap((site) => parts.flatMap((part) => listPartBackends(site, part))))
    .size;
}

function listPartBackends(site: Site, part: SitePartName): readonly string[] {
  const { backend, backends } = site[part] ?? {};
  return backends ?? (backend === undefined ? [] : [backend]);
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

/** The rows of all batches, those of one in each turn of the event loop. */
async function readBatches(batches: readonly RowBatch[]): Promise<unknown[]> {
  const all: unknown[] = [];
  for (const { text } of batches) {
    if (all.length > 0) await yieldToEventLoop();
    for (const row of readRows(text)) all.push(row);
  }
  return all;
}

/** The rows of a printed batch. Numbers that a double cannot hold keep their spelling. */
export function readRows(text: string): unknown[] {
  const rows = parseLossless(`[${text}]`);
  return Array.isArray(rows) ? rows : [];
}

export function createOverloadedError(limit: LimitName, reason: string): LimitReached {
  return new LimitReached(limit, "overloaded", reason);
}
