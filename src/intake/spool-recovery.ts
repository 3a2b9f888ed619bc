// A spool that is damaged must neither keep the program from starting nor take its reports along. The file gets another
// name and stays as it is, and a new one with all rows that can still be read takes its place. The new file is complete
// before the first name changes, so a crash at any moment ends in one of the two.
import { existsSync, fsyncSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { toErrorMessage } from "../core/errors.ts";
import { type Millis, printMillis } from "../core/time.ts";
import { openSpool, type Spool } from "./spool.ts";
import { companionSuffixes, openSpoolFile, SpoolDamaged, useFile } from "./spool-file.ts";
import { type Salvage, salvageRows } from "./spool-salvage.ts";

/** A file that was set aside, and what of it is in the new spool. */
export interface SpoolReplacement extends Salvage {
  /** The name that the old file has now. */
  readonly setAside: string;
  readonly reason: string;
}

/**
 * Opens the spool; a damaged one is replaced. `damage` says why the file is known to be damaged already.
 * @throws {Error} where the file can be neither used nor replaced: no right to its folder, a full disk, a lock
 */
export function openOrReplaceSpool(
  path: string,
  limitBytes: number,
  at: Millis,
  damage?: string,
): { readonly spool: Spool; readonly replacement?: SpoolReplacement } {
  if (path === ":memory:") return { spool: openSpool(path, limitBytes) };
  finishReplacement(path, at);
  try {
    if (damage !== undefined) throw new SpoolDamaged(damage);
    return { spool: openSpool(path, limitBytes) };
  } catch (error) {
    if (!(error instanceof SpoolDamaged)) throw error;
    const replacement = replaceFile(path, error.message, at);
    return { spool: openSpool(path, limitBytes), replacement };
  }
}

/** The name under which the new file is filled. */
function nameNewFile(path: string): string {
  return `${path}.new`;
}

/** A new file beside no other is complete: a crash came between the two names. */
function finishReplacement(path: string, at: Millis): void {
  if (existsSync(path) || !existsSync(nameNewFile(path))) return;
  moveFile(path, chooseAsideName(path, at));
  moveFile(nameNewFile(path), path);
  syncFolder(path);
}

function replaceFile(path: string, reason: string, at: Millis): SpoolReplacement {
  const isDirectory = statSync(path).isDirectory();
  // Its files have a use of their own; whoever named it as the spool has to name another.
  if (isDirectory && readdirSync(path).length > 0) throw new Error("it is a directory that is not empty");
  const fresh = nameNewFile(path);
  removeFile(fresh);
  const setAside = chooseAsideName(path, at);
  try {
    const into = openSpoolFile(fresh);
    let salvage: Salvage = { reports: 0, deadLetters: 0, complete: true };
    try {
      if (!isDirectory) salvage = salvageRows(path, into, `${path}.salvage`);
    } finally {
      into.close();
    }
    removeEmptyCompanions(path);
    moveFile(path, setAside);
    moveFile(fresh, path);
    syncFolder(path);
    return { setAside, reason, ...salvage };
  } catch (error) {
    // After the first name has changed, the new file is all there is.
    if (existsSync(path)) removeFile(fresh);
    throw new Error(`${reason}; it cannot be set aside: ${toErrorMessage(error)}`, { cause: error });
  }
}

function chooseAsideName(path: string, at: Millis): string {
  const name = `${path}.set-aside-${printMillis(at).replaceAll(/[-:.]/g, "")}`;
  for (let count = 1; ; count += 1) {
    const candidate = count === 1 ? name : `${name}-${count}`;
    if (!existsSync(candidate)) return candidate;
  }
}

/** The file first: what SQLite keeps beside it means nothing under the old name then. */
function moveFile(from: string, to: string): void {
  for (const suffix of ["", ...companionSuffixes]) {
    if (existsSync(from + suffix)) renameSync(from + suffix, to + suffix);
  }
}

/** What reading leaves beside a file: an index of the log, which is made anew, and a log without content. */
function removeEmptyCompanions(path: string): void {
  rmSync(`${path}-shm`, { force: true });
  if (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size === 0) rmSync(`${path}-wal`);
}

function removeFile(path: string): void {
  for (const suffix of ["", ...companionSuffixes]) rmSync(path + suffix, { force: true });
}

/** Puts the names on the disk, before a report is acknowledged that only the new file has. */
function syncFolder(path: string): void {
  useFile(dirname(path), "r", fsyncSync);
}
