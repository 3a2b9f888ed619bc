// The spool as the rest of the program sees it: in a thread, because a commit waits for the disk and the event loop
// must not. While one commit is under way the reports that arrive are gathered, and the next commit takes them all.
// A thread that fell is started again by the next question: the file is as its last commit left it, or is replaced.
import { getCompileCacheDir } from "node:module";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { toErrorMessage } from "../core/errors.ts";
import { now, toMillis } from "../core/time.ts";
import type { Settlement, Spool, SpoolEntry, SpooledReport, SpoolLevel } from "./spool.ts";
import { lockSpool, resolveSpoolPath, SpoolInUse, type SpoolLock } from "./spool-lock.ts";
import type { SpoolReplacement } from "./spool-recovery.ts";

export interface SpoolClient {
  /**
   * Resolves once the report is on the disk, or with false when it does not fit.
   * @throws {Error} it was not kept; so for all methods while the spool cannot be used
   */
  append(entry: SpoolEntry): Promise<boolean>;
  /** Same as the methods of `Spool`. */
  readOldest(site: string, most: number, mostBytes: number): Promise<readonly SpooledReport[]>;
  pickLater(site: string, sequence: number): Promise<SpooledReport | undefined>;
  settle(settlements: readonly Settlement[]): Promise<void>;
  readLevel(): Promise<SpoolLevel>;
  /** Ends after what is under way; nothing may be asked for after it. */
  close(): Promise<void>;
}

interface SpoolOptions {
  readonly path: string;
  readonly limitBytes: number;
  readonly onEvent?: (event: SpoolEvent) => void;
}

/** What befalls the file: a damaged one was replaced; no file can be used, until one is `usable` again. */
export type SpoolEvent =
  | { readonly kind: "replaced"; readonly path: string; readonly replacement: SpoolReplacement }
  | { readonly kind: "unusable"; readonly path: string; readonly reason: string }
  | { readonly kind: "usable"; readonly path: string };

/** What the thread is started with. `damage` says why the file is to be replaced. */
export interface SpoolThreadData {
  readonly path: string;
  readonly limitBytes: number;
  readonly damage?: string | undefined;
}
/** The thread's first message, when the file is open. */
export interface SpoolOpened {
  readonly opened: true;
  readonly replacement?: SpoolReplacement | undefined;
}

/** What the thread is asked: a method of its spool. */
export interface SpoolRequest<Question extends keyof Spool = keyof Spool> {
  readonly number: number;
  readonly question: Question;
  readonly values: Parameters<Spool[Question]>;
}
/** What it answers under the same number. */
export type SpoolReply =
  | { readonly number: number; readonly answer: ReturnType<Spool[keyof Spool]> }
  /** After damage of the file the thread has ended. */
  | { readonly number: number; readonly error: string; readonly isDamaged: boolean };

/** Of the thread's heap: it holds a commit's reports and nothing for long. */
const resourceLimits = { maxYoungGenerationSizeMb: 16, maxOldGenerationSizeMb: 256 };

/** A thread does not share the cache of compiled code by itself (`src/compile-cache.js`). The folder is the version's within it. */
const compileCache = getCompileCacheDir();

/** Bounds of one commit; what is left waits for the next. */
const commitReports = 1_000;
const commitChars = 8 * 1_048_576;
/**
 * What came while a commit was under way waits this long for company. Commits of one or two reports each are what 2,000
 * a second would else cost: a third more of the processor, and its time is what the slowest of them wait for.
 */
const gatherMillis = 2;

/** How long a process that ends may still hold the lock, such as the one that a service manager restarts. */
const lockPatience = 1_000;
/** How long questions fail at once after the spool could not be used: to try costs a thread. */
const retryAfter = 10_000;

interface SpoolThread {
  readonly worker: Worker;
  readonly open: Map<number, { resolve: (reply: SpoolReply) => void; reject: (error: Error) => void }>;
  isOpen: boolean;
  isEnded: boolean;
}
interface ClientState {
  readonly options: SpoolOptions;
  /** Without symbolic links, as soon as it is known. */
  path: string;
  lock?: SpoolLock;
  thread?: SpoolThread | undefined;
  lastNumber: number;
  /** Why the file has to be replaced at the next start of the thread. */
  damage?: string | undefined;
  /** Why the spool cannot be used, and when to try again by `performance.now()`. */
  failure?: { readonly error: Error; readonly until: number } | undefined;
  isClosed: boolean;
}

/**
 * Resolves when the file is open, or cannot be used for now, which `onEvent` tells.
 * @throws {SpoolInUse} another process has it
 */
export async function startSpoolClient(options: SpoolOptions): Promise<SpoolClient> {
  const state: ClientState = { options, path: options.path, lastNumber: 0, isClosed: false };
  await waitForLock(state);
  // Whether it can be used, `onEvent` has told.
  await ask(state, "readLevel").catch(() => {});
  return {
    append: createAppender((entries) => ask(state, "append", entries)),
    readOldest: (...values) => ask(state, "readOldest", ...values),
    pickLater: (...values) => ask(state, "pickLater", ...values),
    settle: (settlements) => ask(state, "settle", settlements, toMillis(now())),
    readLevel: () => ask(state, "readLevel"),
    async close() {
      if (state.thread !== undefined) await ask(state, "close").catch(() => {});
      state.isClosed = true;
      await state.thread?.worker.terminate();
      state.lock?.release();
    },
  };
}

// ---- The lock -------------------------------------------------------------------------------------------------

/** @throws {SpoolInUse} */
async function waitForLock(state: ClientState): Promise<void> {
  for (const end = performance.now() + lockPatience; ; await sleep(50)) {
    try {
      return acquireLock(state);
    } catch (error) {
      // Without a right to the folder there is no lock either: then the spool cannot be used, which is tried again.
      if (!(error instanceof SpoolInUse)) return;
      if (performance.now() > end) throw error;
    }
  }
}

function acquireLock(state: ClientState): void {
  if (state.lock !== undefined) return;
  state.path = resolveSpoolPath(state.options.path);
  state.lock = lockSpool(state.path);
}

// ---- The thread -----------------------------------------------------------------------------------------------

/** @throws {Error} of the thread, or at once while the spool cannot be used */
async function ask<Question extends keyof Spool>(
  state: ClientState,
  question: Question,
  ...values: Parameters<Spool[Question]>
): Promise<ReturnType<Spool[Question]>> {
  let reply = await send(state, question, values);
  // Nothing was done, and the next thread replaces the file.
  if ("error" in reply && reply.isDamaged) reply = await send(state, question, values);
  if ("error" in reply) throw new Error(reply.error);
  return reply.answer as ReturnType<Spool[Question]>;
}

async function send<Question extends keyof Spool>(
  state: ClientState,
  question: Question,
  values: Parameters<Spool[Question]>,
): Promise<SpoolReply> {
  if (state.isClosed) throw new Error("the spool is closed");
  state.thread ??= startThread(state);
  const { worker, open } = state.thread;
  state.lastNumber += 1;
  const number = state.lastNumber;
  worker.postMessage({ number, question, values } satisfies SpoolRequest<Question>);
  return new Promise((resolve, reject) => open.set(number, { resolve, reject }));
}

function startThread(state: ClientState): SpoolThread {
  if (state.failure !== undefined && performance.now() < state.failure.until) throw state.failure.error;
  try {
    acquireLock(state);
  } catch (error) {
    throw recordFailure(state, error);
  }
  const { path, damage, options } = state;
  const workerData: SpoolThreadData = { path, limitBytes: options.limitBytes, damage };
  const worker = new Worker(new URL("./spool-worker.ts", import.meta.url), {
    workerData,
    resourceLimits,
    env: compileCache === undefined ? {} : { NODE_COMPILE_CACHE: dirname(compileCache) },
  });
  const thread: SpoolThread = { worker, open: new Map(), isOpen: false, isEnded: false };
  worker.on("error", (error) => endThread(state, thread, error));
  worker.on("exit", () => endThread(state, thread, new Error("the spool's thread has ended")));
  worker.on("message", (message: SpoolReply | SpoolOpened) => {
    if ("opened" in message) recordOpened(state, thread, message);
    else settleReply(state, thread, message);
  });
  return thread;
}

function settleReply(state: ClientState, thread: SpoolThread, reply: SpoolReply): void {
  if ("error" in reply && reply.isDamaged) {
    state.damage = reply.error;
    if (state.thread === thread) state.thread = undefined;
    // The thread has closed the file: nothing is done of what was asked after this question, so that all are asked again.
    for (const { resolve } of thread.open.values()) resolve(reply);
    thread.open.clear();
  }
  thread.open.get(reply.number)?.resolve(reply);
  thread.open.delete(reply.number);
}

function recordOpened(state: ClientState, thread: SpoolThread, { replacement }: SpoolOpened): void {
  const { path, options } = state;
  thread.isOpen = true;
  state.damage = undefined;
  if (replacement !== undefined) options.onEvent?.({ kind: "replaced", path, replacement });
  if (state.failure === undefined) return;
  state.failure = undefined;
  options.onEvent?.({ kind: "usable", path });
}

function endThread(state: ClientState, thread: SpoolThread, error: Error): void {
  // The end of a thread that fell is reported a second time.
  if (thread.isEnded) return;
  thread.isEnded = true;
  if (state.thread === thread) state.thread = undefined;
  const cause = thread.isOpen || state.isClosed ? error : recordFailure(state, error);
  for (const { reject } of thread.open.values()) reject(cause);
  thread.open.clear();
}

/** Tells once that the spool cannot be used, and returns the error for those who ask. */
function recordFailure(state: ClientState, cause: unknown): Error {
  const { path, options, failure } = state;
  const reason = toErrorMessage(cause);
  const error = new Error(`the spool cannot be used: ${reason}`, { cause });
  state.failure = { error, until: performance.now() + retryAfter };
  if (failure?.error.message !== error.message) options.onEvent?.({ kind: "unusable", path, reason });
  return error;
}

// ---- Commits --------------------------------------------------------------------------------------------------

interface WaitingEntry {
  readonly entry: SpoolEntry;
  readonly settle: (kept: boolean) => void;
  readonly fail: (error: unknown) => void;
}

/** Gathers the entries that arrive during a commit for the next. */
function createAppender(
  commit: (entries: readonly SpoolEntry[]) => Promise<readonly boolean[]>,
): SpoolClient["append"] {
  const queue: WaitingEntry[] = [];
  let isCommitting = false;

  async function commitAll(): Promise<void> {
    isCommitting = true;
    while (queue.length > 0) {
      const batch = queue.splice(0, countCommitEntries(queue));
      try {
        const kept = await commit(batch.map(({ entry }) => entry));
        for (const [index, { settle }] of batch.entries()) settle(kept[index] === true);
      } catch (error) {
        for (const { fail } of batch) fail(error);
      }
      if (queue.length > 0) await sleep(gatherMillis);
    }
    isCommitting = false;
  }

  return (entry) =>
    new Promise((settle, fail) => {
      queue.push({ entry, settle, fail });
      if (!isCommitting) void commitAll();
    });
}

function countCommitEntries(queue: readonly WaitingEntry[]): number {
  let chars = 0;
  const end = queue.findIndex(({ entry }, index) => {
    chars += entry.body.length;
    return index > 0 && (index >= commitReports || chars > commitChars);
  });
  return end === -1 ? queue.length : end;
}
