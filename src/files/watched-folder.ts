// A folder whose files are read again whenever they change. It is looked at every two seconds, because notices of file systems
// get lost, and some file systems have none. A wrong file is logged once and left out; the others are read. One that cannot be
// read is left out until it can: it is tried again at each look.
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { ConfigError, formatErrorCode, isFileMissing } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";
import type { LogEvent } from "../store/backend.ts";

interface WatchedFolder {
  /**
   * Reads a folder that is about to be the one that `folder` names. What it resolves to takes its files, all at once; until then
   * those of before count.
   */
  readonly prepare: (folder: string | undefined) => Promise<() => void>;
  readonly close: () => void;
}

export interface FolderOptions<Content> {
  /** Asked for at each look. Without a folder there are no files. */
  readonly folder: () => string | undefined;
  /** By its name alone; hidden files are never read. */
  readonly isRead: (name: string) => boolean;
  /** @throws {ConfigError} for a wrong file */
  readonly parse: (text: string, file: string) => Content;
  /** Told of all files that are right, by their paths in the order of these, whenever one of them has changed. */
  readonly change: (contents: ReadonlyMap<string, Content>) => void;
  /** The messages of the log. */
  readonly messages: { readonly unreadable: string; readonly wrong: string };
  readonly log: (event: LogEvent) => void;
  readonly interval?: Millis | undefined;
}

const defaultInterval: Millis = 2_000;
const maxFileBytes = 1_048_576;

/** What the folder held when it was last read. */
interface FolderState<Content> {
  readonly options: FolderOptions<Content>;
  readonly log: FolderOptions<Content>["log"];
  files: Files<Content>;
  /** How often files were taken that somebody prepared. */
  prepared: number;
  /** Whether it was logged that the folder cannot be read. */
  isUnreadable: boolean;
}

type Files<Content> = ReadonlyMap<string, LoadedFile<Content>>;

interface LoadedFile<Content> {
  /** Changes whenever the file does. Absent where the file could not be read. */
  readonly stamp?: string;
  /** Absent where the file is wrong, or could not be read. */
  readonly parsed?: { readonly content: Content };
  /** Why the file could not be read, as it was logged. */
  readonly unreadable?: string;
}

/** Resolves once the folder has been read. */
export async function watchFolder<Content>(options: FolderOptions<Content>): Promise<WatchedFolder> {
  let isClosed = false;
  const state: FolderState<Content> = {
    options,
    // A read that is under way when the folder is closed logs nothing.
    log: (event) => (isClosed ? undefined : options.log(event)),
    files: new Map(),
    prepared: 0,
    isUnreadable: false,
  };
  await refreshFolder(state);
  let isReading = false;
  const timer = setInterval(() => {
    if (isReading) return;
    isReading = true;
    refreshFolder(state)
      .catch((err: unknown) => state.log({ level: "error", message: options.messages.unreadable, err }))
      .finally(() => {
        isReading = false;
      });
  }, options.interval ?? defaultInterval).unref();
  return {
    async prepare(folder) {
      const read = await readFolder(folder, state);
      // The files of another folder are none of this one, even where it cannot be read.
      const files = read ?? (folder === options.folder() ? state.files : new Map());
      return () => {
        state.prepared += 1;
        takeFiles(files, state);
      };
    },
    close() {
      isClosed = true;
      clearInterval(timer);
    },
  };
}

async function refreshFolder<Content>(state: FolderState<Content>): Promise<void> {
  const { prepared } = state;
  const files = await readFolder(state.options.folder(), state);
  // Files that were taken meanwhile may be those of another folder.
  if (files !== undefined && state.prepared === prepared) takeFiles(files, state);
}

function takeFiles<Content>(files: Files<Content>, state: FolderState<Content>): void {
  if (files === state.files) return;
  state.files = files;
  const right = [...files].flatMap(([file, { parsed }]) =>
    parsed === undefined ? [] : [[file, parsed.content] as const],
  );
  state.options.change(new Map(right));
}

/**
 * Reads the files that have changed; the same map where none has. Undefined where everything is to be left as it is: while files
 * are being renamed, and where the folder cannot be read.
 */
async function readFolder<Content>(
  folder: string | undefined,
  state: FolderState<Content>,
): Promise<Files<Content> | undefined> {
  const stamps = await readStampsOrReport(folder, state);
  const { files } = state;
  if (stamps === undefined) return undefined;
  const loaded = new Map<string, LoadedFile<Content>>();
  for (const [file, stamp] of stamps) {
    const known = files.get(file);
    const read = known?.stamp === stamp ? known : await loadFile(file, stamp, state);
    if (read === undefined) return undefined;
    loaded.set(file, read);
  }
  const isSame = loaded.size === files.size && [...loaded].every(([file, read]) => files.get(file) === read);
  return isSame ? files : loaded;
}

async function readStampsOrReport<Content>(
  folder: string | undefined,
  state: FolderState<Content>,
): Promise<ReadonlyMap<string, string> | undefined> {
  const { isRead, messages } = state.options;
  try {
    const stamps = folder === undefined ? new Map() : await readFileStamps(folder, isRead);
    state.isUnreadable = false;
    return stamps;
  } catch (error) {
    const reason = `${folder}: the folder cannot be read${formatErrorCode(error)}`;
    if (!state.isUnreadable) state.log({ level: "error", message: messages.unreadable, reason });
    state.isUnreadable = true;
    // A folder that is gone has no files; one that cannot be read now still has those that it had.
    return isFileMissing(error) ? new Map() : undefined;
  }
}

/** Undefined if the file is gone by now. What is wrong with a file is logged, unless it is known already. */
async function loadFile<Content>(
  file: string,
  stamp: string,
  { options, log, files }: FolderState<Content>,
): Promise<LoadedFile<Content> | undefined> {
  const message = options.messages.wrong;
  try {
    if ((await stat(file)).size > maxFileBytes) {
      throw new ConfigError(file, [{ path: "", message: "is too large" }]);
    }
    return { stamp, parsed: { content: options.parse(await readFile(file, "utf8"), file) } };
  } catch (error) {
    if (isFileMissing(error)) return undefined;
    if (error instanceof ConfigError) {
      log({ level: "error", message, file, reason: error.message });
      return { stamp };
    }
    const unreadable = `${file}: cannot be read${formatErrorCode(error)}`;
    const known = files.get(file);
    if (known?.unreadable === unreadable) return known;
    log({ level: "error", message, file, reason: unreadable, err: error });
    return { unreadable };
  }
}

/** Undefined while files come and go: one that is being renamed would be missed under both names. */
async function readFileStamps(
  folder: string,
  isRead: (name: string) => boolean,
): Promise<ReadonlyMap<string, string> | undefined> {
  const list = async () =>
    (await readdir(folder)).filter((name) => !name.startsWith(".") && isRead(name)).sort();
  const names = await list();
  const stamps = new Map<string, string>();
  for (const file of names.map((name) => join(folder, name))) {
    const found = await stat(file).catch(() => undefined);
    // The time of the last change of the inode changes with the mode too, and nobody can set it.
    if (found?.isFile()) stamps.set(file, `${found.ino} ${found.size} ${found.mtimeMs} ${found.ctimeMs}`);
  }
  return isDeepStrictEqual(await list(), names) ? stamps : undefined;
}
