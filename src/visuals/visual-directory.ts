// The folder of published visuals, looked at again every other second: a notice of the file system may be lost, and on
// some there is none. A wrong file is told once and is not published; the others are.
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { ConfigError, formatErrorCode, type Issue, LimitReached } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";
import type { LogEvent } from "../store/backend.ts";
import {
  createVisualFinder,
  type PublishedVisuals,
  readVisual,
  type Visual,
  type VisualData,
} from "./visual.ts";

export interface VisualDirectory extends PublishedVisuals {
  readonly listPublished: () => readonly Visual[];
  readonly close: () => void;
}

interface VisualDirectoryOptions {
  /** Asked for at each look; nothing is published without one. */
  readonly folder: () => string | undefined;
  readonly check: (visual: Visual) => readonly Issue[];
  readonly log: (event: LogEvent) => void;
  /** How long one computation may take; asked for at each. */
  readonly deadline: () => Millis;
  readonly interval?: Millis;
  readonly cacheFor?: Millis;
}

const defaultInterval: Millis = 2_000;
/** How old an answer may be: enough for a page that many open at once. */
const defaultCacheFor: Millis = 10_000;
const maxFileBytes = 1_048_576;

/** Resolves once the folder has been read. */
export async function openVisualDirectory(options: VisualDirectoryOptions): Promise<VisualDirectory> {
  const {
    folder,
    check,
    deadline,
    interval: every = defaultInterval,
    cacheFor: keep = defaultCacheFor,
  } = options;
  let closed = false;
  /** A look that is under way when the gallery is closed ends unheard. */
  const log: VisualDirectoryOptions["log"] = (event) => {
    if (!closed) options.log(event);
  };
  let seen: ReadonlyMap<string, LoadedFile> = new Map();
  let missing = false;
  let visuals: readonly Visual[] = [];
  let find = createVisualFinder(visuals);
  // By the visual itself: a changed file is another visual.
  const shared = new WeakMap<Visual, Promise<VisualData>>();

  async function refresh(): Promise<void> {
    let stamps: ReadonlyMap<string, string> | undefined;
    const place = folder();
    try {
      stamps = place === undefined ? new Map() : await readFileStamps(place);
      missing = false;
    } catch (error) {
      const reason = `${place}: the folder cannot be read${formatErrorCode(error)}`;
      if (!missing) log({ level: "error", message: "visuals cannot be read", reason });
      missing = true;
      stamps = new Map();
    }
    if (stamps === undefined) return;
    if (stamps.size === seen.size && [...stamps].every(([file, stamp]) => seen.get(file)?.stamp === stamp))
      return;
    const before = seen;
    const now = new Map<string, LoadedFile>();
    for (const [file, stamp] of stamps) {
      const known = before.get(file);
      const loaded = known?.stamp === stamp ? known : await load(file);
      if (loaded === undefined) return;
      now.set(file, { stamp, visual: loaded.visual });
    }
    seen = now;
    visuals = distinct(now);
    find = createVisualFinder(visuals);
  }

  /** Undefined where the file is gone by now. */
  async function load(file: string): Promise<Pick<LoadedFile, "visual"> | undefined> {
    try {
      if ((await stat(file)).size > maxFileBytes) {
        throw new ConfigError(file, [{ path: "", message: "is too large" }]);
      }
      return { visual: readVisual(await readFile(file, "utf8"), file, check) };
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
      const reason = error instanceof ConfigError ? error.message : undefined;
      log({
        level: "error",
        message: "visual not published",
        file,
        reason,
        err: reason === undefined ? error : undefined,
      });
      return {};
    }
  }

  /** Of two files with one id the first is published: which of them is meant cannot be known. */
  function distinct(files: ReadonlyMap<string, LoadedFile>): readonly Visual[] {
    const byId = new Map<string, Visual>();
    for (const [file, { visual }] of files) {
      if (visual === undefined) continue;
      if (byId.has(visual.id)) {
        log({
          level: "error",
          message: "visual not published",
          file,
          reason: `${file}: another file has its id`,
        });
      } else byId.set(visual.id, visual);
    }
    return [...byId.values()];
  }

  await refresh();
  let looking = false;
  const timer = setInterval(() => {
    if (looking) return;
    looking = true;
    refresh()
      .catch((error: unknown) => log({ level: "error", message: "visuals", err: error }))
      .finally(() => {
        looking = false;
      });
  }, every).unref();

  return {
    listPublished: () => visuals,
    find: (id) => find(id),
    shareAnswer(visual, compute) {
      const known = shared.get(visual);
      if (known !== undefined) return known;
      const late = AbortSignal.timeout(deadline());
      const answer = compute(late).catch((error: unknown) => {
        const message = "the deadline of a shared answer has passed";
        throw late.aborted ? new LimitReached("deadline", "timeout", message) : error;
      });
      shared.set(visual, answer);
      const forget = () => shared.delete(visual);
      answer.then(() => setTimeout(forget, keep).unref(), forget);
      return answer;
    },
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}

interface LoadedFile {
  /** Changes whenever the file does. */
  readonly stamp: string;
  readonly visual?: Visual | undefined;
}

/** Undefined while files come and go: one that is being renamed would be missed under both names. */
async function readFileStamps(folder: string): Promise<ReadonlyMap<string, string> | undefined> {
  const files = await listVisualFiles(folder);
  const stamps = new Map<string, string>();
  for (const file of files.map((name) => join(folder, name))) {
    const found = await stat(file).catch(() => undefined);
    if (found?.isFile()) stamps.set(file, `${found.ino} ${found.size} ${found.mtimeMs}`);
  }
  return isDeepStrictEqual(await listVisualFiles(folder), files) ? stamps : undefined;
}

async function listVisualFiles(folder: string): Promise<readonly string[]> {
  return (await readdir(folder)).filter((file) => /^[^.].*\.ya?ml$/.test(file)).sort();
}
