// The one way into an operation, for REST and GraphQL alike: a slot among the requests under way, a deadline, and each
// named site authorised before anything runs.

import { type AccountSlots, createAccountSlots, narrowLimits } from "../../access/account-slots.ts";
import type { Principal } from "../../access/auth.ts";
import { labelMissing, omitBackends } from "../../access/missing-backends.ts";
import { createSiteViews, type MissingBackends, type Sites } from "../../access/sites.ts";
import { countBackends, findReadPart, listBackends } from "../../access/used-backends.ts";
import type { Limits } from "../../config/limits.ts";
import { findLargest } from "../../core/collections.ts";
import { type LimitName, LimitReached, type LimitUse, NotFound, TooMany } from "../../core/errors.ts";
import { parseJsonInTurns } from "../../core/json/json-in-turns.ts";
import { parseNumberLossless } from "../../core/json/lossless-json.ts";
import type { Instant } from "../../core/time.ts";
import type { PublishedVisuals } from "../../visuals/visual.ts";
import {
  collectBatches,
  countLinked,
  countRows,
  type RowBudget,
  readBatches,
  spendRows,
} from "./collected-rows.ts";
import { findLimit } from "./error-response.ts";
import { type RequestLifetime, startRequest } from "./lifetime.ts";
import type { PreparedOperation } from "./operation.ts";
import { answerWithoutFailed, type MissingParts, nothingMissing } from "./partial-answer.ts";

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
    missing?: MissingBackends,
  ) => Result;
  /** What clients are told of an answer without these backends; undefined where none may be given. */
  readonly labelMissing: (
    prepared: Pick<PreparedOperation, "name" | "sites" | "mayBePartial">,
    principal: Principal,
    missing: MissingBackends,
  ) => readonly string[] | undefined;
  /**
   * The same, from its admission to the whole answer, for callers that cannot stream. Errors as the two above; one that
   * `waits` for its slot is not refused for want of one. A caller that takes a partial answer is told what one lacks.
   */
  readonly complete: (
    prepare: () => PreparedOperation,
    principal: Principal,
    budget: RowBudget,
    admission: SlotAdmission,
    gone: AbortSignal,
    onMissing?: (labels: readonly string[]) => void,
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
  token: "",
  account: "",
  maySee: () => true,
  hasScope: () => true,
};

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
  readonly held: AccountSlots;
  /** Those of its slots that are held by what has waited for them. */
  readonly heldAfterWait: AccountSlots;
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
    ...{ held: createAccountSlots(), heldAfterWait: createAccountSlots() },
    ...{ heldByBackend: new Map(), usedBackends: new Map() },
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
    start: (...request) => startOperation(state, ...request),
    labelMissing: (...answer) => labelMissingParts(state, ...answer),
    complete: (...request) => completeOperation(state, ...request),
  };
}

function measureUse({ options, held, heldByBackend, backendShare }: ExecutorState): LimitUse {
  const { slots, limits } = options;
  return {
    requests: slots.taken / limits.requests,
    token_requests: held.measureUse(),
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
  const { tokenRequests } = narrowLimits(limits, principal.limits);
  if (!state.held.hasFree(principal.account, tokenRequests)) {
    throw new TooMany(1, "token_requests", { requests: tokenRequests });
  }
  if (slots.taken >= limits.requests) {
    throw createOverloadedError("requests", `${slots.taken} requests are under way`);
  }
  slots.taken += 1;
  const release = state.held.take(principal.account, tokenRequests);
  return () => {
    slots.taken -= 1;
    release();
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
  const { account } = principal;
  const { tokenRequests } = narrowLimits(limits, principal.limits);
  const afterWait = takeHalf(tokenRequests);
  const isFull =
    slots.taken >= limits.requests ||
    !held.hasFree(account, tokenRequests) ||
    slots.takenAfterWait >= takeHalf(limits.requests) ||
    !heldAfterWait.hasFree(account, afterWait) ||
    findFullBackend(state, backends, slots.taken + 1) !== undefined;
  if (isFull) return undefined;
  const release = heldAfterWait.take(account, afterWait);
  slots.takenAfterWait += 1;
  const work = admitRequest(state, principal, gone, () => {
    slots.takenAfterWait -= 1;
    release();
  });
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
  missing: MissingBackends = nothingMissing.backends,
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
    sites: omitBackends(sites, missing),
    visuals,
    limits: narrowLimits(limits, principal.limits),
    now,
    signal,
    progress,
    reportProgress,
  });
}

function labelMissingParts(
  { options, selectVisibleSites }: ExecutorState,
  { name, sites, mayBePartial = false }: Pick<PreparedOperation, "name" | "sites" | "mayBePartial">,
  principal: Principal,
  missing: MissingBackends,
): readonly string[] | undefined {
  if (!mayBePartial) return undefined;
  return labelMissing(findReadPart(name), sites(options.visuals), selectVisibleSites(principal), missing);
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
  ...[prepare, principal, budget, admission, gone, onMissing]: Parameters<OperationExecutor["complete"]>
): Promise<unknown> {
  const prepared = prepare();
  const work =
    admission === "at once"
      ? admitRequest(state, principal, gone)
      : await waitForSlot(state, principal, listUsedBackends(state, prepared, principal), gone);
  const start = <Result>(prepared: PreparedOperation<Result>, { backends }: MissingParts) =>
    startOperation(state, prepared, principal, work, backends);
  const collect = async (missing: MissingParts): Promise<unknown> => {
    const { values } = prepared;
    if (values !== undefined) {
      const batches = start({ ...prepared, run: values }, missing);
      return (await collectBatches(batches, work, budget, (rows) => rows.length)).flat();
    }
    const result = start(prepared, missing);
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
    return readBatches(await collectBatches(result, work, budget, countRows));
  };
  try {
    if (onMissing === undefined) return await collect(nothingMissing);
    let labels: readonly string[] = [];
    const answer = await answerWithoutFailed(
      (missing) => {
        labels = missing.labels;
        return collect(missing);
      },
      (missing) => labelMissingParts(state, prepared, principal, missing),
    );
    if (labels.length > 0) onMissing(labels);
    return answer;
  } catch (error) {
    throw work.signal.aborted ? work.signal.reason : error;
  } finally {
    work.end();
  }
}

/** Once this part of all slots is taken, each backend is held to its share. */
const scarcityThreshold = 0.75;

/** Of an operation that is to be started. A site that the token may not see has none. */
function listUsedBackends(state: ExecutorState, prepared: PreparedOperation, principal: Principal) {
  const sites = state.selectVisibleSites(principal);
  return listBackends(prepared.name, prepared.sites(state.options.visuals), sites);
}

export function createOverloadedError(limit: LimitName, reason: string): LimitReached {
  return new LimitReached(limit, "overloaded", reason);
}
