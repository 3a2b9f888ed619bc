// The folder of published visuals. It is read again every two seconds, because notices of file systems get lost, and some
// file systems have none. A wrong file is logged once and not published; the others are.
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
  /** Asked for at each read. Without a folder nothing is published. */
  readonly folder: () => string | undefined;
  readonly check: (visual: Visual) => readonly Issue[];
  readonly log: (event: LogEvent) => void;
  /** How long one computation may take; asked for each time. */
  readonly deadline: () => Millis;
  readonly interval?: Millis;
  readonly cacheFor?: Millis;
}

const defaultInterval: Millis = 2_000;
/** How old a shared answer may be: enough for a page that many open at once. */
const defaultCacheFor: Millis = 10_000;
const maxFileBytes = 1_048_576;

/** What the folder held when it was last read. */
interface DirectoryState {
  readonly folder: () => string | undefined;
  readonly check: VisualDirectoryOptions["check"];
  readonly log: VisualDirectoryOptions["log"];
  files: ReadonlyMap<string, LoadedFile>;
  isMissing: boolean;
  visuals: readonly Visual[];
  find: PublishedVisuals["find"];
}

/** Resolves once the folder has been read. */
export async function openVisualDirectory(options: VisualDirectoryOptions): Promise<VisualDirectory> {
  const { interval = defaultInterval, cacheFor = defaultCacheFor } = options;
  let isClosed = false;
  const state: DirectoryState = {
    folder: options.folder,
    check: options.check,
    // A read that is under way when the directory is closed logs nothing.
    log: (event) => (isClosed ? undefined : options.log(event)),
    files: new Map(),
    isMissing: false,
    visuals: [],
    find: createVisualFinder([]),
  };
  await refreshDirectory(state);
  let isReading = false;
  const timer = setInterval(() => {
    if (isReading) return;
    isReading = true;
    refreshDirectory(state)
      .catch((error: unknown) => state.log({ level: "error", message: "visuals", err: error }))
      .finally(() => {
        isReading = false;
      });
  }, interval).unref();
  return {
    listPublished: () => state.visuals,
    find: (id) => state.find(id),
    shareAnswer: createAnswerCache(options.deadline, cacheFor),
    close() {
      isClosed = true;
      clearInterval(timer);
    },
  };
}

/** Computes a visual's answer once for all who ask for it while it is computed, and for `cacheFor` afterwards. */
function createAnswerCache(deadline: () => Millis, cacheFor: Millis): PublishedVisuals["shareAnswer"] {
  // By the visual itself: a changed file is another visual.
  const shared = new WeakMap<Visual, Promise<VisualData>>();
  return (visual, compute) => {
    const known = shared.get(visual);
    if (known !== undefined) return known;
    const late = AbortSignal.timeout(deadline());
    const answer = compute(late).catch((error: unknown) => {
      const message = "the deadline of a shared answer has passed";
      throw late.aborted ? new LimitReached("deadline", "timeout", message) : error;
    });
    shared.set(visual, answer);
    const forget = () => shared.delete(visual);
    answer.then(() => setTimeout(forget, cacheFor).unref(), forget);
    return answer;
  };
}

/** Reads the files that have changed. Leaves everything as it is while files are being renamed. */
async function refreshDirectory(state: DirectoryState): Promise<void> {
  const stamps = await readStampsOrReport(state);
  const { files } = state;
  if (stamps === undefined) return;
  if (stamps.size === files.size && [...stamps].every(([file, stamp]) => files.get(file)?.stamp === stamp)) {
    return;
  }
  const loaded = new Map<string, LoadedFile>();
  for (const [file, stamp] of stamps) {
    const known = files.get(file);
    const read = known?.stamp === stamp ? known : await loadVisual(file, state);
    if (read === undefined) return;
    loaded.set(file, { stamp, visual: read.visual });
  }
  state.files = loaded;
  state.visuals = selectDistinct(loaded, state);
  state.find = createVisualFinder(state.visuals);
}

async function readStampsOrReport(state: DirectoryState): Promise<ReadonlyMap<string, string> | undefined> {
  const folder = state.folder();
  try {
    const stamps = folder === undefined ? new Map() : await readFileStamps(folder);
    state.isMissing = false;
    return stamps;
  } catch (error) {
    const reason = `${folder}: the folder cannot be read${formatErrorCode(error)}`;
    if (!state.isMissing) state.log({ level: "error", message: "visuals cannot be read", reason });
    state.isMissing = true;
    return new Map();
  }
}

/** Undefined if the file is gone by now; without a visual if the file is wrong, which has been logged. */
async function loadVisual(
  file: string,
  { check, log }: DirectoryState,
): Promise<Pick<LoadedFile, "visual"> | undefined> {
  try {
    if ((await stat(file)).size > maxFileBytes) {
      throw new ConfigError(file, [{ path: "", message: "is too large" }]);
    }
    return { visual: readVisual(await readFile(file, "utf8"), file, check) };
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    const reason = error instanceof ConfigError ? error.message : undefined;
    const err = reason === undefined ? error : undefined;
    log({ level: "error", message: "visual not published", file, reason, err });
    return {};
  }
}

/** Of two files with one id the first is published: nobody can know which of them is meant. */
function selectDistinct(files: ReadonlyMap<string, LoadedFile>, { log }: DirectoryState): readonly Visual[] {
  const byId = new Map<string, Visual>();
  for (const [file, { visual }] of files) {
    if (visual === undefined) continue;
    if (byId.has(visual.id)) {
      const reason = `${file}: another file has its id`;
      log({ level: "error", message: "visual not published", file, reason });
    } else byId.set(visual.id, visual);
  }
  return [...byId.values()];
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
