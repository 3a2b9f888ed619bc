// The audit log in a file, readable to its owner alone. Lines that wait are written together, and nothing of a line that
// cannot be written in full stays. A file beside it says how much of it is known to be on the disk, so that the next start
// can count what a crash may have lost.
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { AuditConfig } from "../config/edge-settings.ts";
import { formatErrorCode, isFileMissing } from "../core/errors.ts";
import { requireCreatableFile } from "../core/file-rights.ts";
import { type Millis, second } from "../core/time.ts";
import type { AuditSink } from "./audit-log.ts";

/** The file cannot be used as it is. The message says why. */
class AuditFileRefused extends Error {
  override readonly name = "AuditFileRefused";
}

export interface AuditFile extends AuditSink {
  /** How many lines of an earlier run may not have been on the disk when it ended. */
  readonly unsynced: number;
  /** What holds from the next line on. */
  readonly configure: (settings: FileSettings) => void;
}

/** How long a line waits for the disk, where answers do not wait for it. */
const syncInterval: Millis = second;
/** Over it, lines are refused as if the disk were full: it has stopped taking any. */
const maxWaiting = 20_000;
/** What is written at once. */
const maxBatchChars = 1_048_576;

interface WaitingLine {
  readonly line: string;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

interface FileState {
  readonly path: string;
  settings: FileSettings;
  file: OpenFile;
  waiting: WaitingLine[];
  /** Writing, synchronising, rotating and opening again: one after the other. */
  working: Promise<void> | undefined;
  mustReopen: boolean;
  mustSync: boolean;
  isSynced: boolean;
  timer: NodeJS.Timeout | undefined;
}

type FileSettings = Pick<AuditConfig, "sync" | "rotate">;

/** A file with the one that says how much of it is on the disk. */
interface OpenFile {
  readonly handle: FileHandle;
  readonly mark: FileHandle;
  readonly inode: number;
  bytes: number;
}

/**
 * Opens the file, or makes it and its folder.
 * @throws {AuditFileRefused} It is a link, has several names, or is no file.
 * @throws {Error} the system's
 */
export async function openAuditFile(path: string, settings: FileSettings): Promise<AuditFile> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await openFile(path);
  const unsynced = await countUnsynced(file);
  await endTornLine(file);
  await markSynced(file);
  const state: FileState = {
    path,
    settings,
    file,
    waiting: [],
    working: undefined,
    mustReopen: false,
    mustSync: false,
    isSynced: true,
    timer: undefined,
  };
  return {
    unsynced,
    append: (line, _at, signal) => appendLine(state, line, signal),
    configure: (next) => {
      state.settings = next;
    },
    reopen: () => {
      state.mustReopen = true;
      startWork(state);
    },
    close: async () => {
      while (state.working !== undefined) await state.working;
      clearTimeout(state.timer);
      if (!state.isSynced) await markSynced(state.file);
      await closeFile(state.file);
      return [];
    },
  };
}

function appendLine(state: FileState, line: string, signal: AbortSignal): Promise<void> {
  if (state.waiting.length >= maxWaiting) return Promise.reject(new Error("the disk does not keep up"));
  return new Promise((resolve, reject) => {
    const entry: WaitingLine = { line, resolve, reject };
    state.waiting.push(entry);
    signal.addEventListener("abort", () => withdrawLine(state, entry, signal), { once: true });
    startWork(state);
  });
}

/** A line that is no longer in the queue is being written. */
function withdrawLine({ waiting }: FileState, entry: WaitingLine, { reason }: AbortSignal): void {
  const index = waiting.indexOf(entry);
  if (index === -1) return;
  waiting.splice(index, 1);
  entry.reject(reason);
}

/** To be called where there is something to do. */
function startWork(state: FileState): void {
  state.working ??= work(state);
}

/**
 * Does all that is to be done. Never rejects: a failure is that of the lines that wait. Without any, what has failed is tried
 * again with the next line.
 */
async function work(state: FileState): Promise<void> {
  let hasFailed = false;
  while (state.waiting.length > 0 || (!hasFailed && (state.mustReopen || state.mustSync))) {
    const batch = takeBatch(state);
    hasFailed = false;
    try {
      if (state.mustReopen) await reopenFile(state);
      if (state.mustSync) await syncFile(state);
      if (batch.length > 0) await writeBatch(state, batch.map(({ line }) => line).join(""));
      for (const { resolve } of batch) resolve();
    } catch (error) {
      for (const { reject } of batch) reject(error);
      hasFailed = true;
    }
  }
  // In the turn in which nothing is left to do, so that what comes next starts anew.
  state.working = undefined;
}

function takeBatch({ waiting }: FileState): readonly WaitingLine[] {
  let chars = 0;
  let length = 0;
  for (const { line } of waiting) {
    chars += line.length;
    if (length > 0 && chars > maxBatchChars) break;
    length += 1;
  }
  return waiting.splice(0, length);
}

async function writeBatch(state: FileState, text: string): Promise<void> {
  const { rotate, sync } = state.settings;
  const bytes = Buffer.from(text);
  if (rotate !== undefined && state.file.bytes > 0 && state.file.bytes + bytes.length > rotate.bytes) {
    await rotateFiles(state, rotate.keep);
  }
  await writeWhole(state.file, bytes);
  state.isSynced = false;
  if (sync === "always") await syncFile(state);
  else scheduleSync(state);
}

/** A disk that is full may take a part; that is taken away again, so that each line is whole. */
async function writeWhole(file: OpenFile, bytes: Buffer): Promise<void> {
  let written = 0;
  try {
    while (written < bytes.length) written += (await file.handle.write(bytes, written)).bytesWritten;
  } catch (error) {
    if (written > 0) await file.handle.truncate((await file.handle.stat()).size - written);
    throw error;
  }
  file.bytes += written;
}

function scheduleSync(state: FileState): void {
  state.timer ??= setTimeout(() => {
    state.timer = undefined;
    state.mustSync = true;
    startWork(state);
  }, syncInterval).unref();
}

async function syncFile(state: FileState): Promise<void> {
  state.mustSync = false;
  await markSynced(state.file);
  state.isSynced = true;
}

async function reopenFile(state: FileState): Promise<void> {
  const next = await openFile(state.path);
  state.mustReopen = false;
  const before = state.file;
  state.file = next;
  if (!state.isSynced) await before.handle.datasync();
  await closeFile(before);
  await markSynced(next);
  state.isSynced = true;
}

/** The newest of the renamed files ends in `.1`. */
async function rotateFiles(state: FileState, keep: number): Promise<void> {
  const { path } = state;
  // Renamed already: a new file could not be opened then. The others have their numbers.
  if (await isThere(path)) {
    await rm(`${path}.${keep}`, { force: true });
    for (let number = keep - 1; number >= 1; number -= 1) await renameIfThere(path, number);
    await rename(path, `${path}.1`);
  }
  await reopenFile(state);
}

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (isFileMissing(error)) return false;
    throw error;
  }
}

async function renameIfThere(path: string, number: number): Promise<void> {
  if (await isThere(`${path}.${number}`)) await rename(`${path}.${number}`, `${path}.${number + 1}`);
}

// ---- Opening and closing ------------------------------------------------------------------------------------

/** Why `openAuditFile` would throw; undefined where it would not. Makes nothing and changes nothing. */
export async function findAuditFileFault(path: string): Promise<string | undefined> {
  try {
    for (const [name, flags] of [[path, appending] as const, [nameMark(path), constants.O_RDWR] as const]) {
      const handle = await openOwn(name, flags).catch((error: unknown) => {
        if (!isFileMissing(error)) throw error;
      });
      if (handle === undefined) await requireCreatableFile(name);
      await handle?.close();
    }
    return undefined;
  } catch (error) {
    return explainAuditFileFault(error);
  }
}

/** What is said of what `openAuditFile` throws. */
export function explainAuditFileFault(error: unknown): string {
  return error instanceof AuditFileRefused ? error.message : `cannot be opened${formatErrorCode(error)}`;
}

const appending = constants.O_RDWR | constants.O_APPEND;

const nameMark = (path: string) => join(dirname(path), `.${basename(path)}.synced`);

async function openFile(path: string): Promise<OpenFile> {
  const handle = await openOwn(path, appending | constants.O_CREAT);
  try {
    const { ino, size } = await handle.stat();
    const mark = await openOwn(nameMark(path), constants.O_RDWR | constants.O_CREAT);
    return { handle, mark, inode: ino, bytes: size };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Neither a link nor a device: what is written to would be elsewhere than the configuration says. */
async function openOwn(path: string, flags: number): Promise<FileHandle> {
  const handle = await open(path, flags | constants.O_NOFOLLOW, 0o600).catch((error: unknown) => {
    const isLink = error instanceof Error && "code" in error && error.code === "ELOOP";
    throw isLink ? new AuditFileRefused("is a link") : error;
  });
  try {
    const found = await handle.stat();
    if (!found.isFile()) throw new AuditFileRefused("is no file");
    if (found.nlink > 1) throw new AuditFileRefused("has another name (a hard link)");
    if ((flags & constants.O_CREAT) !== 0) await handle.chmod(0o600);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function closeFile({ handle, mark }: OpenFile): Promise<void> {
  await Promise.all([handle.close(), mark.close()]);
}

/** Brings the file to the disk, and says so beside it. */
async function markSynced({ handle, mark, inode, bytes }: OpenFile): Promise<void> {
  await handle.datasync();
  await mark.write(`${inode} ${bytes}`.padEnd(40).concat("\n"), 0);
}

/** The lines behind what was last said to be on the disk. Of a file that nothing is said of, all. */
async function countUnsynced({ handle, mark, inode, bytes }: OpenFile): Promise<number> {
  const [known, synced] = (await readStart(mark)).trim().split(" ").map(Number);
  let position = known === inode && synced !== undefined ? Math.min(synced, bytes) : 0;
  const buffer = Buffer.alloc(65_536);
  let lines = 0;
  let isTorn = false;
  while (position < bytes) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) break;
    for (const byte of buffer.subarray(0, bytesRead)) if (byte === newline) lines += 1;
    isTorn = buffer[bytesRead - 1] !== newline;
    position += bytesRead;
  }
  return lines + (isTorn ? 1 : 0);
}

const newline = 0x0a;

async function readStart(handle: FileHandle): Promise<string> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(64), 0, 64, 0);
  return buffer.toString("latin1", 0, bytesRead);
}

/** A program that was killed while it wrote may have left a part of a line. */
async function endTornLine(file: OpenFile): Promise<void> {
  if (file.bytes === 0) return;
  const { buffer } = await file.handle.read(Buffer.alloc(1), 0, 1, file.bytes - 1);
  if (buffer[0] !== newline) await writeWhole(file, Buffer.from("\n"));
}
