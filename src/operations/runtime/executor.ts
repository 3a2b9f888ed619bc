// The one way into an operation, for REST and GraphQL alike: a slot among the requests under way, a deadline, and each
// named site authorised before anything runs.

import { narrowLimits } from "../../access/account-slots.ts";
import type { Principal } from "../../access/auth.ts";
import { labelMissing, omitBackends } from "../../access/missing-backends.ts";
import {
  createOverloadedError,
  createSlotPool,
  type RequestSlots,
  type SlotPool,
  takeSlotBriefly,
  tryTakeAfterWait,
  waitUntilTaken,
} from "../../access/request-slots.ts";
import { createSiteViews, type MissingBackends, type Sites } from "../../access/sites.ts";
import { countBackends, findReadPart, listBackends } from "../../access/used-backends.ts";
import type { Limits } from "../../config/limits.ts";
import { noteClientRequest } from "../../core/async/concurrency.ts";
import { createHeldBytes, type HeldBytes, holdEach, measureHeldUse } from "../../core/async/held-bytes.ts";
import { findLargest } from "../../core/collections.ts";
import { type LimitName, type LimitUse, NotFound } from "../../core/errors.ts";
import { parseJsonInTurns } from "../../core/json/json-in-turns.ts";
import { parseNumberLossless } from "../../core/json/lossless-json.ts";
import type { Instant, Millis } from "../../core/time.ts";
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
  /** A slot alone, such as for the body of a GraphQL query. Returns what gives it back. Errors as `takeSlotBriefly`. */
  readonly takeSlot: (principal: Principal, gone: AbortSignal) => Promise<() => void>;
  /** A request without a slot, such as a GraphQL query whose operations are admitted one by one. */
  readonly join: (principal: Principal, gone: AbortSignal) => RequestLifetime;
  /** What is held for the principal beside its requests, such as for an event of a tail. */
  readonly openHeld: (principal: Principal) => HeldBytes;
  /** Makes `drain` wait for what may yet become a request. Returns what ends that. */
  readonly hold: () => () => void;
  readonly measureUse: () => LimitUse;
  /** Resolves when all requests have ended. From now on only requests within those may begin. */
  readonly drain: () => Promise<void>;
  /**
   * One JSON value, or rows in batches. What it holds counts in `held`, or in that of the whole request where none is given.
   * @throws {NotFound} a site that does not exist or may not be seen, or a scope that the token lacks
   * @throws {LimitReached} Slots are scarce, and a backend of these sites holds its share.
   */
  readonly start: <Result>(
    prepared: PreparedOperation<Result>,
    principal: Principal,
    work: RequestLifetime,
    missing?: MissingBackends,
    held?: HeldBytes,
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
export interface SlotAdmission {
  readonly waits: "briefly" | "until the end";
  /** Called when it has its slot. */
  readonly onAdmitted?: () => void;
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
  /** How long a request waits for a slot, instead of the program's own. */
  readonly slotWait?: Millis | undefined;
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
  readonly pool: SlotPool;
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
    pool: createSlotPool(options.slots, limits, options.slotWait),
    heldByBackend: new Map(),
    usedBackends: new Map(),
    running: 0,
    isDraining: false,
    drained: Promise.withResolvers<void>(),
  };
  return {
    selectVisibleSites: state.selectVisibleSites,
    join: (principal, gone) => joinExecutor(state, principal, gone),
    admit: (principal, gone) => admitRequest(state, principal, gone),
    openHeld: (principal) => openHeld(state, principal),
    hold: () => holdExecutor(state),
    takeSlot: (principal, gone) => takeSlotBriefly(state.pool, principal, gone),
    measureUse: () => measureUse(state),
    drain: () => drainExecutor(state),
    start: (...request) => startOperation(state, ...request),
    labelMissing: (...answer) => labelMissingParts(state, ...answer),
    complete: (...request) => completeOperation(state, ...request),
  };
}

function measureUse({ pool, heldByBackend, backendShare }: ExecutorState): LimitUse {
  const { slots, limits, held } = pool;
  return {
    requests: slots.taken / limits.requests,
    token_requests: held.measureUse(),
    backend_share: findLargest(heldByBackend) / backendShare,
    ...measureHeldUse(slots.held, limits.heldBytes),
  };
}

/** A request without a slot: it is only waited for when the executor drains. */
function joinExecutor(state: ExecutorState, principal: Principal, gone: AbortSignal): RequestLifetime {
  const release = holdExecutor(state);
  const held = openHeld(state, principal);
  const work = startRequest(gone, state.options.limits.deadline, held);
  const end = once(() => {
    work.end();
    held.release();
    release();
  });
  return { ...work, end };
}

function openHeld(
  { options: { limits, slots } }: ExecutorState,
  { account }: Pick<Principal, "account">,
): HeldBytes {
  return createHeldBytes(limits.heldBytes, { ledger: slots.held, account });
}

/** Those who end a request may do so twice: a slot that came back twice would be given to two others. */
function once(act: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) act();
    isDone = true;
  };
}

/** All answers that are shared hold together what one token may. */
const sharedAccount = "shared answers";

/** Who asked for a shared answer may have left: a drain waits for its computation too, and what it holds is of none of them. */
function holdWhileShared(state: ExecutorState): PublishedVisuals | undefined {
  const { visuals } = state.options;
  return (
    visuals && {
      ...visuals,
      shareAnswer: (visual, compute) =>
        visuals.shareAnswer(visual, (signal) => {
          const release = holdExecutor(state);
          const held = openHeld(state, { account: sharedAccount });
          return compute(signal, held).finally(() => {
            held.release();
            release();
          });
        }),
    }
  );
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
  // A reload waits for what waits.
  const release = holdExecutor(state);
  try {
    return startAdmitted(state, await takeSlotBriefly(state.pool, principal, gone), principal, gone);
  } finally {
    release();
  }
}

/** The request ends with the return of its slot. */
function startAdmitted(
  state: ExecutorState,
  returnSlot: () => void,
  principal: Principal,
  gone: AbortSignal,
): RequestLifetime {
  const work = joinExecutor(state, principal, gone);
  const end = once(() => {
    for (const backend of state.usedBackends.get(admitted) ?? []) addHeld(state.heldByBackend, backend, -1);
    state.usedBackends.delete(admitted);
    work.end();
    // Last, since it may be handed on.
    returnSlot();
  });
  const admitted = { ...work, end };
  return admitted;
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
  const tryAdmit = (): RequestLifetime | undefined => {
    const { pool } = state;
    if (findFullBackend(state, backends, pool.slots.taken + 1) !== undefined) return undefined;
    const returnSlot = tryTakeAfterWait(pool, principal);
    if (returnSlot === undefined) return undefined;
    const work = startAdmitted(state, returnSlot, principal, gone);
    holdSlotsOfBackends(state, work, backends);
    return work;
  };
  return waitUntilTaken(state.pool, principal, tryAdmit, gone);
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
  held: HeldBytes = work.held,
): Result {
  const { visuals, limits, now } = state.options;
  for (const scope of prepared.scopes) if (!principal.hasScope(scope)) throw new NotFound();
  const sites = state.selectVisibleSites(principal);
  const named = prepared.sites(visuals);
  for (const site of named) if (!sites.has(site)) throw new NotFound();
  holdBackendShares(state, work, listBackends(prepared.name, named, sites));
  const { signal, progress, reportProgress } = work;
  noteClientRequest(signal, { account: principal.account, progress });
  return prepared.run({
    user: principal.user,
    sites: omitBackends(sites, missing),
    hasScope: (scope) => principal.hasScope(scope),
    visuals: holdWhileShared(state),
    limits: narrowLimits(limits, principal.limits),
    now,
    signal,
    progress,
    held,
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
    admission.waits === "briefly"
      ? await admitRequest(state, principal, gone)
      : await waitForSlot(state, principal, listUsedBackends(state, prepared, principal), gone);
  admission.onAdmitted?.();
  const collectFrom = async (held: HeldBytes, missing: MissingParts): Promise<unknown> => {
    const start = <Result>(prepared: PreparedOperation<Result>) =>
      startOperation(state, prepared, principal, work, missing.backends, held);
    const { values } = prepared;
    if (values !== undefined) {
      const batches = start({ ...prepared, run: values });
      return (await collectBatches(batches, work, budget, (rows) => rows.length)).flat();
    }
    const result = start(prepared);
    if ("then" in result) {
      const answer = await work.wait(result);
      if (prepared.countsPoints !== true) {
        spendRows(budget, countLinked(answer));
        await holdEach(budget.held, Array.isArray(answer) ? answer : [answer], work.signal);
      }
      return answer;
    }
    if ("pieces" in result) {
      const pieces = await collectBatches(result.pieces, work, budget, countRows);
      const text = pieces.map(({ text }) => text).join("");
      return result.headers === undefined ? await parseJsonInTurns(text, parseNumberLossless) : text;
    }
    return readBatches(await collectBatches(result, work, budget, countRows));
  };
  const collect = (missing: MissingParts): Promise<unknown> => {
    const held = budget.held.openPart();
    // The rows of its answer are counted by themselves.
    return collectFrom(held, missing).finally(held.release);
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
    throw work.fail(error);
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
