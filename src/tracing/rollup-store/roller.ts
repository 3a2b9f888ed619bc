// The roller of one source: makes figures of closed segments, the newest first, then back through the retention. It does one
// thing at a time and rests between them, so that it takes a bounded share of the source's time. What clients ask for changes
// nothing of that. It ends with its signal at any point, and loses nothing.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type NonEmpty, requireAt, requireKey } from "../../core/collections.ts";
import { isTrouble } from "../../core/errors.ts";
import {
  hour,
  type Instant,
  type Millis,
  minute,
  second,
  type TimeRange,
  toMillis,
} from "../../core/time.ts";
import type { LogEvent } from "../../store/backend.ts";
import type { RollupStore } from "../../store/rollups.ts";
import { removeDamaged, takeDamaged } from "./catalogue.ts";
import type { GroupToRoll } from "./group-manifests.ts";
import { formatLeaseId, holdLease, type Lease, releaseLease } from "./lease.ts";
import { formatManifestId, type Manifest } from "./manifest.ts";
import {
  findUnstableEnd,
  isUnstable,
  type MissingByOrigin,
  mayTakeAsDeleted,
  noteMissing,
} from "./missing-documents.ts";
import { announceGroup, type RollContext, type RollStep, rollGroups } from "./roll-step.ts";
import { groupTargets, type RollTarget, splitTargets } from "./roll-target.ts";
import { sweepRollups } from "./sweep.ts";

export interface RollerSettings {
  /** For people: where the spans lie whose figures are made. */
  readonly backend: string;
  readonly store: RollupStore;
  readonly targets: readonly RollTarget[];
  /** The share of the time in which the roller works: above 0, for it may be divided among several, up to 1. */
  readonly rate: number;
  readonly now: () => Instant;
  readonly log: (event: LogEvent) => void;
  readonly record: (measured: RolledMeasure) => void;
  readonly limits?: Partial<Omit<RollContext, "store" | "now">>;
  readonly pauses?: Partial<RollerPauses>;
}

/** What one step of a roller took, and what there is after it. */
export interface RolledMeasure {
  readonly backend: string;
  readonly site: string;
  readonly kind: string;
  /** A kind of a site has several, such as for each set of partners. */
  readonly group: string;
  readonly took: Millis;
  readonly documents: number;
  readonly manifest: Manifest;
}

interface RollerPauses {
  /** After a round in which nothing was missing. */
  readonly idle: Millis;
  /** While another instance holds the lease. */
  readonly leased: Millis;
  /** After a failure; doubled after each that follows, up to `longestFailed`. */
  readonly failed: Millis;
  readonly longestFailed: Millis;
  readonly sweep: Millis;
}

const defaultPauses: RollerPauses = {
  idle: 15 * second,
  leased: 20 * second,
  failed: 15 * second,
  longestFailed: 5 * minute,
  sweep: hour,
};
const defaultLimits = {
  segmentSpans: 50_000,
  maxDocuments: 2_000_000,
  maxHeldSpans: 200_000,
  maxMergedBytes: 2_000_000,
  behindPause: second,
};
/** A step is aborted after this time, even if the source still answers. */
const stepTimeout: Millis = 10 * minute;
/** A piece that takes too much is tried again after so long. */
const refusedLifetime: Millis = hour;
/** What could not be made together is tried together again after so long. */
const separateLifetime: Millis = hour;
const releaseTimeout: Millis = 2 * second;

/** What one roller knows. */
interface RollerState {
  readonly settings: RollerSettings;
  readonly pauses: RollerPauses;
  readonly context: RollContext;
  readonly lease: Lease;
  /** Pieces that take too much, or that were set aside, by group. */
  readonly refused: Map<string, readonly (TimeRange & { readonly until: Millis })[]>;
  /** Groups whose source cannot tell what has changed; each is said once. */
  readonly unsupported: Set<string>;
  /** Groups whose manifest this process has seen. */
  readonly announced: Set<string>;
  /** Groups of which documents may be gone. At first nobody knows. */
  readonly unverified: Set<string>;
  /** Of each group. */
  readonly missing: ReadonlyMap<string, MissingByOrigin>;
  /** Until when targets are made one by one, by the group of the first: together they could not be made. */
  readonly separate: Map<string, Millis>;
  /** Groups that cannot be made now, although their source answers. */
  readonly failing: Map<string, { readonly failures: number; readonly until: Millis }>;
  unreferenced: ReadonlySet<string>;
  nextSweep: Millis;
  failures: number;
}

/** Works until the signal is aborted. Never rejects. */
export async function runRoller(settings: RollerSettings, signal: AbortSignal): Promise<void> {
  const { store, targets, now } = settings;
  if (targets.length === 0) return;
  const pauses = { ...defaultPauses, ...settings.pauses };
  const groups = targets.map(({ group }) => group).sort();
  const state: RollerState = {
    settings,
    pauses,
    refused: new Map(),
    failing: new Map(),
    separate: new Map(),
    missing: new Map(groups.map((group) => [group, new Map()])),
    unsupported: new Set(),
    announced: new Set(),
    unverified: new Set(groups),
    unreferenced: new Set(),
    context: { store, now, ...defaultLimits, ...settings.limits },
    lease: {
      store,
      // Instances with one configuration share the work; those with others have other groups.
      id: formatLeaseId(groups),
      holder: randomUUID(),
      now: () => toMillis(now()),
    },
    nextSweep: toMillis(now()) + pauses.sweep / 10,
    failures: 0,
  };
  while (!signal.aborted) {
    const pause = await rollRound(state, signal).catch((error: unknown) => {
      if (signal.aborted) return 0;
      logFailure(settings, error);
      state.failures += 1;
      return lengthenPause(pauses, state.failures);
    });
    await rest(pause, signal);
  }
  await releaseLease(state.lease, AbortSignal.timeout(releaseTimeout)).catch(() => undefined);
}

function logFailure({ log, backend }: RollerSettings, error: unknown, target?: RollTarget): void {
  const of = target && { site: target.name.site, kind: target.kind };
  log({ level: "warn", message: "figures are not made now", backend, ...of, err: error });
}

function logSeparation({ log, backend }: RollerSettings, error: unknown): void {
  log({
    level: "warn",
    message: "figures are made apart that could not be made together",
    backend,
    err: error,
  });
}

function lengthenPause({ failed, longestFailed }: RollerPauses, failures: number): Millis {
  return Math.min(failed * 2 ** (failures - 1), longestFailed);
}

/** The longest that a timer of node lasts, some 24 days. A longer one ends at once. */
const longestRest: Millis = 2 ** 31 - 1;

async function rest(pause: Millis, signal: AbortSignal): Promise<void> {
  await sleep(Math.min(pause, longestRest), undefined, { signal }).catch(() => undefined);
}

/** One step for each group, together for those of the same sources. Returns how long to rest. @throws {BackendError} where the source or the store is in trouble */
async function rollRound(state: RollerState, signal: AbortSignal): Promise<Millis> {
  const { settings, pauses, context, lease, announced } = state;
  if (!(await holdLease(lease, signal))) {
    // The roller that holds it finds out with its next sweep what is gone, but not what is damaged.
    for (const { group } of settings.targets) await removeDamaged(settings.store, group, signal);
    return pauses.leased;
  }
  for (const target of settings.targets) {
    if (!announced.has(target.group)) await announceGroup(context, target, signal);
    announced.add(target.group);
  }
  for (const { group } of settings.targets)
    if (takeDamaged(settings.store, group).size > 0) state.unverified.add(group);
  let isIdle = true;
  for (const targets of listTogether(state)) {
    if (!(await holdLease(lease, signal))) return pauses.leased;
    if (await rollTargets(state, targets, signal)) isIdle = false;
  }
  await sweepInTime(state, signal);
  state.failures = 0;
  return isIdle ? pauses.idle : 0;
}

function isFailing({ failing, context }: RollerState, { group }: RollTarget): boolean {
  return (failing.get(group)?.until ?? 0) > toMillis(context.now());
}

function addFailure(
  { failing, context, settings, pauses }: RollerState,
  target: RollTarget,
  error: unknown,
): void {
  logFailure(settings, error, target);
  const failures = (failing.get(target.group)?.failures ?? 0) + 1;
  failing.set(target.group, { failures, until: toMillis(context.now()) + lengthenPause(pauses, failures) });
}

/** The targets that can be made now, grouped by what is made of one reading. */
function listTogether(state: RollerState): readonly NonEmpty<RollTarget>[] {
  const { settings, separate, context } = state;
  const now = toMillis(context.now());
  const open = settings.targets.filter((target) => !isFailing(state, target));
  return groupTargets(open).flatMap((targets) => {
    return (separate.get(targets[0].group) ?? 0) > now ? splitTargets(targets) : [targets];
  });
}

/** Returns whether there may be more to do. @throws {BackendError} where the source or the store is in trouble */
async function rollTargets(
  state: RollerState,
  targets: NonEmpty<RollTarget>,
  signal: AbortSignal,
): Promise<boolean> {
  const { context, settings } = state;
  const started = performance.now();
  const now = toMillis(context.now());
  const describeGroup = (target: RollTarget): GroupToRoll => {
    const missing = requireKey(state.missing, target.group);
    return {
      target,
      skipped: listRefused(state, target),
      isUnverified: state.unverified.has(target.group),
      mayTakeAsDeleted: (origin) => mayTakeAsDeleted(missing, origin, now),
      isUnstable: (origin) => isUnstable(missing, origin, now),
    };
  };
  const [first, ...others] = targets;
  const limited = AbortSignal.any([signal, AbortSignal.timeout(stepTimeout)]);
  const rolling = rollGroups(context, [describeGroup(first), ...others.map(describeGroup)], limited);
  const { steps, failure } = await rolling.then(
    (steps) => ({ steps, failure: undefined }),
    (failure: unknown) => ({ steps: [], failure }),
  );
  // Then nothing else can be made either.
  if (failure !== undefined && (signal.aborted || isTrouble(failure))) throw failure;
  const took = performance.now() - started;
  const isImpossible = failure !== undefined || steps.every(({ did }) => did === "unsupported");
  const isSeparated = isImpossible && separateTargets(state, targets);
  if (isSeparated) {
    // Those that cannot be made by themselves either are counted and named then.
    if (failure !== undefined) logSeparation(settings, failure);
  } else {
    if (failure !== undefined) for (const target of targets) addFailure(state, target, failure);
    for (const [at, step] of steps.entries()) {
      noteStep(state, requireAt(targets, at), step, took / targets.length, now);
    }
    await withdrawUnsupported(settings.store, targets, steps, signal);
  }
  const { rate } = settings;
  await rest((took * (1 - rate)) / rate, signal);
  signal.throwIfAborted();
  return isSeparated || steps.some(({ did }) => did === "made" || did === "merged" || did === "refused");
}

/** Makes targets with different sources by themselves for a while: perhaps only those of one of them cannot be made. */
function separateTargets({ separate, context }: RollerState, targets: NonEmpty<RollTarget>): boolean {
  if (splitTargets(targets).length === 1) return false;
  separate.set(targets[0].group, toMillis(context.now()) + separateLifetime);
  return true;
}

/** Removes the announcements of figures that turn out to be impossible. */
async function withdrawUnsupported(
  store: RollupStore,
  targets: readonly RollTarget[],
  steps: readonly RollStep[],
  signal: AbortSignal,
): Promise<void> {
  const announced = targets.filter((_, at) => {
    const step = steps[at];
    return step?.did === "unsupported" && step.manifest.version === undefined && step.manifest.at > 0;
  });
  if (announced.length === 0) return;
  await store.remove(
    announced.map(({ group }) => formatManifestId(group)),
    signal,
  );
}

/** `took` is the target's share of the time, and `began` when the step decided what it waits for. */
function noteStep(state: RollerState, target: RollTarget, step: RollStep, took: Millis, began: Millis): void {
  const { settings, unsupported } = state;
  const { group, kind } = target;
  noteMissingOf(state, target, step, began);
  if (step.did !== "lost" && step.did !== "behind") state.unverified.delete(group);
  state.failing.delete(group);
  const { backend, record, log } = settings;
  const { site } = target.name;
  record({ backend, site, kind, group, took, documents: step.documents, manifest: step.manifest });
  if (step.refused !== undefined)
    addRefused(state, target, [step.refused], toMillis(state.context.now()) + refusedLifetime);
  if (step.did !== "unsupported" || unsupported.has(group)) return;
  unsupported.add(group);
  log({ level: "warn", message: "figures of this site cannot be kept", backend, site, kind });
}

function noteMissingOf(state: RollerState, target: RollTarget, { missing }: RollStep, began: Millis): void {
  const known = requireKey(state.missing, target.group);
  if (missing === undefined) {
    known.clear();
    return;
  }
  noteMissing(known, missing, began);
  if (missing.setAside.length > 0)
    addRefused(state, target, missing.setAside, findUnstableEnd(known, missing.origins));
}

function listRefused({ refused, context }: RollerState, { group }: RollTarget): readonly TimeRange[] {
  const now = toMillis(context.now());
  return (refused.get(group) ?? []).filter(({ until }) => until > now);
}

function addRefused(
  { refused, context }: RollerState,
  { group }: RollTarget,
  ranges: readonly TimeRange[],
  until: Millis,
): void {
  const now = toMillis(context.now());
  const others = (refused.get(group) ?? []).filter((one) => one.until > now);
  refused.set(group, [...others, ...ranges.map((range) => ({ ...range, until }))]);
}

async function sweepInTime(state: RollerState, signal: AbortSignal): Promise<void> {
  const { settings, pauses, context } = state;
  const now = toMillis(context.now());
  if (now < state.nextSweep) return;
  const { unreferenced, broken } = await sweepRollups(settings.store, now, state.unreferenced, signal);
  state.unreferenced = unreferenced;
  for (const group of broken) state.unverified.add(group);
  state.nextSweep = now + pauses.sweep;
}
