// One process owns one spool: two would deliver the same reports, each as its own. The lock is one of the system's on an
// empty file beside the spool, held through SQLite because node has none of its own. It ends with its process, however
// that ends; the file stays. Nothing else may open that file in this process: to close it would free the lock.
import { existsSync, lstatSync, mkdirSync, readlinkSync, realpathSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { formatErrorCode } from "../core/errors.ts";
import { requireCreatableFile } from "../core/file-rights.ts";

export interface SpoolLock {
  readonly release: () => void;
}

/** Another process, or another spool of this one, holds the lock. */
export class SpoolInUse extends Error {
  override readonly name = "SpoolInUse";
}

/** SQLITE_BUSY */
const busyCode = 5;

/** As many links as the system follows. */
const maxLinks = 40;

/** The path without symbolic links, so that two names of one file have one lock. Makes the folder. */
export function resolveSpoolPath(path: string): string {
  if (path === ":memory:") return path;
  let target = path;
  for (let links = 0; links < maxLinks; links += 1) {
    mkdirSync(dirname(target), { recursive: true });
    if (existsSync(target)) return realpathSync(target);
    // A link to a file that is made later.
    if (!lstatSync(target, { throwIfNoEntry: false })?.isSymbolicLink()) break;
    target = resolve(dirname(target), readlinkSync(target));
  }
  return join(realpathSync(dirname(target)), basename(target));
}

/** Why the spool and the files beside it cannot be written; undefined where they can. Makes nothing. */
export async function findSpoolFault(path: string): Promise<string | undefined> {
  try {
    await requireCreatableFile(await realpath(path).catch(() => path));
    return undefined;
  } catch (error) {
    return `its folder cannot be written${formatErrorCode(error)}: all reports are dropped`;
  }
}

/** @throws {SpoolInUse} @throws {Error} of SQLite or of the system where no lock can be made */
export function lockSpool(path: string): SpoolLock {
  if (path === ":memory:") return { release: () => {} };
  const file = `${path}.lock`;
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { timeout: 0 });
    database.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    database?.close();
    if ((error as { errcode?: unknown }).errcode === busyCode) {
      throw new SpoolInUse("another process of readout uses it; give each process a spool of its own");
    }
    throw new Error(`${file} cannot be locked: ${(error as Error).message}`, { cause: error });
  }
  const held = database;
  return { release: () => held.close() };
}
