// The spool as the rest of the program sees it: in a thread, because a commit waits for the disk and the event loop
// must not. While one commit is under way the reports that arrive are gathered, and the next commit takes them all.
import { getCompileCacheDir } from "node:module";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import type { Settlement, SpoolEntry, SpooledReport, SpoolLevel } from "./spool.ts";

export interface SpoolClient {
  /** Resolves once the report is on the disk, or with false when it does not fit. @throws {Error} it was not kept */
  append(entry: SpoolEntry): Promise<boolean>;
  /** As `Spool`'s. */
  readOldest(site: string, most: number, mostBytes: number): Promise<readonly SpooledReport[]>;
  pickLater(site: string, sequence: number): Promise<SpooledReport | undefined>;
  settle(settlements: readonly Settlement[]): Promise<void>;
  readLevel(): Promise<SpoolLevel>;
  /** Ends after what is under way; nothing may be asked for after it. */
  close(): Promise<void>;
}

export interface SpoolOptions {
  readonly path: string;
  readonly limitBytes: number;
}

/** What the thread is asked, and what it answers under the same number. */
export type SpoolRequest = { readonly number: number } & (
  | { readonly ask: "append"; readonly entries: readonly SpoolEntry[] }
  | { readonly ask: "next"; readonly of: readonly [site: string, most: number, bytes: number] }
  | { readonly ask: "later"; readonly of: readonly [site: string, sequence: number] }
  | { readonly ask: "settle"; readonly settlements: readonly Settlement[] }
  | { readonly ask: "level" | "close" }
);
export interface SpoolReply {
  readonly number: number;
  readonly error?: string;
  readonly kept?: readonly boolean[];
  readonly spooled?: readonly SpooledReport[];
  readonly level?: SpoolLevel;
}
type WithoutNumber<Q> = Q extends { readonly number: number } ? Omit<Q, "number"> : never;

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

/** Resolves when the file is open. @throws {Error} when it cannot be used */
export async function startSpoolClient(options: SpoolOptions): Promise<SpoolClient> {
  const open = new Map<number, { resolve: (reply: SpoolReply) => void; reject: (error: Error) => void }>();
  let last = 0;
  let thread: Worker | undefined;

  /** A thread that fell is started again by the next question: the file is as its last commit left it. */
  function run(): Worker {
    const started = new Worker(new URL("./spool-worker.ts", import.meta.url), {
      workerData: options,
      resourceLimits,
      env: compileCache === undefined ? {} : { NODE_COMPILE_CACHE: dirname(compileCache) },
    });
    const fall = (error: Error) => {
      if (thread === started) thread = undefined;
      for (const { reject } of open.values()) reject(error);
      open.clear();
    };
    started.on("error", fall);
    started.on("exit", () => fall(new Error("the spool's thread has ended")));
    started.on("message", (reply: SpoolReply) => {
      const waiting = open.get(reply.number);
      open.delete(reply.number);
      if (reply.error === undefined) waiting?.resolve(reply);
      else waiting?.reject(new Error(reply.error));
    });
    return started;
  }

  let closed = false;
  async function ask(question: WithoutNumber<SpoolRequest>): Promise<SpoolReply> {
    if (closed) throw new Error("the spool is closed");
    thread ??= run();
    last += 1;
    const number = last;
    thread.postMessage({ number, ...question });
    return new Promise((resolve, reject) => open.set(number, { resolve, reject }));
  }

  interface Waiting {
    readonly entry: SpoolEntry;
    readonly settle: (kept: boolean) => void;
    readonly fail: (error: unknown) => void;
  }
  const queue: Waiting[] = [];
  let committing = false;

  async function commit(): Promise<void> {
    committing = true;
    while (queue.length > 0) {
      let chars = 0;
      const end = queue.findIndex(({ entry }, index) => {
        chars += entry.body.length;
        return index > 0 && (index >= commitReports || chars > commitChars);
      });
      const batch = queue.splice(0, end === -1 ? queue.length : end);
      try {
        const { kept = [] } = await ask({ ask: "append", entries: batch.map(({ entry }) => entry) });
        for (const [index, { settle }] of batch.entries()) settle(kept[index] === true);
      } catch (error) {
        for (const { fail } of batch) fail(error);
      }
      if (queue.length > 0) await sleep(gatherMillis);
    }
    committing = false;
  }

  await ask({ ask: "level" });
  return {
    append: (entry) =>
      new Promise((settle, fail) => {
        queue.push({ entry, settle, fail });
        if (!committing) void commit();
      }),
    readOldest: async (...of) => (await ask({ ask: "next", of })).spooled ?? [],
    pickLater: async (...of) => (await ask({ ask: "later", of })).spooled?.[0],
    settle: async (settlements) => {
      await ask({ ask: "settle", settlements });
    },
    async readLevel() {
      return (await ask({ ask: "level" })).level ?? { reports: 0, bytes: 0, deadLetters: 0, sites: {} };
    },
    async close() {
      await ask({ ask: "close" });
      closed = true;
      await thread?.terminate();
    },
  };
}
