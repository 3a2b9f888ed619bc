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
import { type Instant, type Millis, second } from "../../core/time.ts";
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
  readonly admit: (principal: Principal, gone: AbortSignal) => Promise<RequestLifetime>;
  /**
   * A slot alone, such as for the body of a GraphQL query, for which it waits a second at most. Returns what gives it back.
   * @throws {TooMany} The token, or all without one, hold as many slots as they may.
   * @throws {LimitReached} All slots are taken.
   * @throws the reason why nobody waits for it any more
   */
  readonly takeSlot: (principal: Principal, gone: AbortSignal) => Promise<() => void>;
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
   * waits for its slot until the end is not refused for want of one. A caller that takes a partial answer is told what one lacks.
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
 * How long an operation waits for its slot: a second, or until nobody wants its answer. What waits holds none, so that no two
 * can wait for each other; all that have waited until the end hold at most half of the slots, of a token and of the server, so
 * that other requests find some.
 */
type SlotAdmission = "briefly" | "until the end";

/** The slots of a server, and who waits for one. */
export interface RequestSlots {
  taken: number;
  /** Of those, how many are held by what has waited until the end for them. */
  takenAfterWait: number;
  /** By account, in the order of arrival. */
  readonly waiting: Map<string, Set<WaitingRequest>>;
  /** How many wait briefly, of all and of each account. */
  waitingBriefly: number;
  readonly waitingBrieflyOf: AccountSlots;
}

interface WaitingRequest {
  /** Slots that its account holds. */
  readonly countHeld: () => number;
  /** Takes a slot if it may have one by now, and tells whether it does. */
  readonly tryEnter: () => boolean;
}

/** So long a request waits for a slot before it is refused. */
const briefWait: Millis = second;

export function createRequestSlots(): RequestSlots {
  return {
    ...{ taken: 0, takenAfterWait: 0, waiting: new Map() },
    ...{ waitingBriefly: 0, waitingBrieflyOf: createAccountSlots() },
  };
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
    takeSlot: (principal, gone) => takeSlotBriefly(state, principal, gone),
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

/** A request with a slot. Errors as `takeSlot`. */
async function admitRequest(
  state: ExecutorState,
  principal: Principal,
  gone: AbortSignal,
): Promise<RequestLifetime> {
  return startAdmitted(state, await takeSlotBriefly(state, principal, gone), gone);
}

/** The request ends with the return of its slot. */
function startAdmitted(state: ExecutorState, returnSlot: () => void, gone: AbortSignal): RequestLifetime {
  const work = joinExecutor(state, gone);
  const end = () => {
    for (const backend of state.usedBackends.get(admitted) ?? []) addHeld(state.heldByBackend, backend, -1);
    state.usedBackends.delete(admitted);
    work.end();
    // Last, since it may be handed on.
    returnSlot();
  };
  const admitted = { ...work, end };
  return admitted;
}

function addHeld(held: Map<string, number>, holder: string, slots: number): void {
  const own = (held.get(holder) ?? 0) + slots;
  if (own === 0) held.delete(holder);
  else held.set(holder, own);
}

// ---- Slots ----------------------------------------------------------------------------------------------------

/** Counts it for the token at once: bodies that never end would else take all slots. */
function takeFreeSlot({ options: { slots, limits }, held }: ExecutorState, principal: Principal): () => void {
  slots.taken += 1;
  const release = held.take(principal.account, narrowLimits(limits, principal.limits).tokenRequests);
  return () => {
    slots.taken -= 1;
    release();
    handSlotsOn(slots);
  };
}

/** The limit for which the token has no slot now; undefined where it may take one. */
function findFullLimit(
  { options: { slots, limits }, held }: ExecutorState,
  principal: Principal,
): "token_requests" | "requests" | undefined {
  const { tokenRequests } = narrowLimits(limits, principal.limits);
  if (!held.hasFree(principal.account, tokenRequests)) return "token_requests";
  return slots.taken < limits.requests ? undefined : "requests";
}

function createFullError(
  { options: { slots, limits } }: ExecutorState,
  principal: Principal,
  full: "token_requests" | "requests",
): Error {
  if (full === "requests") return createOverloadedError(full, `${slots.taken} requests are under way`);
  return new TooMany(1, full, { requests: narrowLimits(limits, principal.limits).tokenRequests });
}

/** As many wait as may be under way, of all and of a token; others are refused at once. Errors as `takeSlot`. */
async function takeSlotBriefly(
  state: ExecutorState,
  principal: Principal,
  gone: AbortSignal,
): Promise<() => void> {
  const full = findFullLimit(state, principal);
  if (full === undefined) return takeFreeSlot(state, principal);
  const { slots, limits } = state.options;
  const { tokenRequests } = narrowLimits(limits, principal.limits);
  const mayWait =
    slots.waitingBriefly < limits.requests &&
    slots.waitingBrieflyOf.hasFree(principal.account, tokenRequests);
  if (!mayWait) throw createFullError(state, principal, full);
  const release = holdExecutor(state);
  const leave = slots.waitingBrieflyOf.take(principal.account, tokenRequests);
  slots.waitingBriefly += 1;
  const tryTake = () =>
    findFullLimit(state, principal) === undefined ? takeFreeSlot(state, principal) : undefined;
  try {
    const patience = AbortSignal.any([gone, AbortSignal.timeout(briefWait)]);
    return await waitUntilTaken(state, principal, tryTake, patience);
  } catch {
    if (gone.aborted) throw gone.reason;
    throw createFullError(state, principal, findFullLimit(state, principal) ?? full);
  } finally {
    slots.waitingBriefly -= 1;
    leave();
    release();
  }
}

/** Of accounts that wait, the one that holds the fewest slots comes first. */
function handSlotsOn({ waiting }: RequestSlots): void {
  const countHeld = ([, [first]]: [string, Set<WaitingRequest>]): number => first?.countHeld() ?? 0;
  const accounts = [...waiting].sort((a, b) => countHeld(a) - countHeld(b));
  for (const [account, requests] of accounts) {
    for (const request of requests) if (request.tryEnter()) requests.delete(request);
    if (requests.size === 0) waiting.delete(account);
  }
}

/** Resolves with what `tryTake` returns, when it returns something. @throws the reason of the signal */
function waitUntilTaken<Taken>(
  { options, held }: ExecutorState,
  { account }: Principal,
  tryTake: () => Taken | undefined,
  signal: AbortSignal,
): Promise<Taken> {
  const { waiting } = options.slots;
  return new Promise((resolve, reject) => {
    const own = waiting.get(account) ?? new Set();
    const leave = () => {
      own.delete(request);
      if (own.size === 0 && waiting.get(account) === own) waiting.delete(account);
      reject(signal.reason);
    };
    const tryEnter = (): boolean => {
      const taken = tryTake();
      if (taken === undefined) return false;
      signal.removeEventListener("abort", leave);
      resolve(taken);
      return true;
    };
    const request: WaitingRequest = { countHeld: () => held.countTaken(account), tryEnter };
    if (signal.aborted) return leave();
    signal.addEventListener("abort", leave, { once: true });
    // Whoever waits already may not have a slot by now, and so takes none before this one.
    if (tryEnter()) return;
    waiting.set(account, own);
    own.add(request);
  });
}

/** Resolves when the request has its slot, and one of each backend. @throws the reason why nobody waits for it any more */
function waitForSlot(
  state: ExecutorState,
  principal: Principal,
  backends: readonly string[],
  gone: AbortSignal,
): Promise<RequestLifetime> {
  const tryAdmit = () => tryAdmitWaiting(state, principal, backends, gone);
  return waitUntilTaken(state, principal, tryAdmit, gone);
}

/** Undefined while the token, a backend or the server has no slot for it. */
function tryAdmitWaiting(
  state: ExecutorState,
  principal: Principal,
  backends: readonly string[],
  gone: AbortSignal,
): RequestLifetime | undefined {
  const { heldAfterWait } = state;
  const { slots, limits } = state.options;
  const { account } = principal;
  const afterWait = takeHalf(narrowLimits(limits, principal.limits).tokenRequests);
  const isFull =
    findFullLimit(state, principal) !== undefined ||
    slots.takenAfterWait >= takeHalf(limits.requests) ||
    !heldAfterWait.hasFree(account, afterWait) ||
    findFullBackend(state, backends, slots.taken + 1) !== undefined;
  if (isFull) return undefined;
  const release = heldAfterWait.take(account, afterWait);
  slots.takenAfterWait += 1;
  const returnSlot = takeFreeSlot(state, principal);
  const returnBoth = () => {
    slots.takenAfterWait -= 1;
    release();
    returnSlot();
  };
  const work = startAdmitted(state, returnBoth, gone);
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
    admission === "briefly"
      ? await admitRequest(state, principal, gone)
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
