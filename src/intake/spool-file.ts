// The file of the spool: its tables, and what makes a file unfit to be one. SQLite finds damage only where it reads, so
// the whole file is checked when it is opened; a row that no index leads to would otherwise wait for ever.
import { closeSync, existsSync, mkdirSync, openSync, readSync, statSync, truncateSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";

/** The file cannot serve as a spool as it is, now or later: only another file in its place helps. */
export class SpoolDamaged extends Error {
  override readonly name = "SpoolDamaged";
}

/** Files that SQLite keeps beside its own, by what they add to its name. */
export const companionSuffixes = ["-wal", "-shm", "-journal"] as const;

const format = 1;

const tableSchema = `
  BEGIN IMMEDIATE;
  CREATE TABLE IF NOT EXISTS reports (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    site TEXT NOT NULL,
    index_name TEXT NOT NULL,
    received INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    body TEXT NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS reports_of_site ON reports (site, sequence);
  CREATE TABLE IF NOT EXISTS dead_letters (
    sequence INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    site TEXT NOT NULL,
    index_name TEXT NOT NULL,
    received INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    body TEXT NOT NULL,
    refused INTEGER NOT NULL,
    reason TEXT NOT NULL
  ) STRICT;
  PRAGMA user_version = ${format};
  COMMIT;
`;

/**
 * Opens the file with its tables, or makes it and its folder, readable to its owner alone; `:memory:` is no file.
 * @throws {SpoolDamaged} it is damaged, of another program or a later version, or must not be read and written
 * @throws {Error} of the system or of SQLite: a full disk, a lock of another program, no right to its folder
 */
export function openSpoolFile(path: string): DatabaseSync {
  if (path !== ":memory:") prepareFile(path);
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 5_000 });
    prepareTables(database);
    return database;
  } catch (error) {
    if (database?.isOpen) database.close();
    throw isDamage(error) ? new SpoolDamaged((error as Error).message) : error;
  }
}

/** Makes the file where there is none, with the rights that SQLite then gives to the files beside it. */
function prepareFile(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new SpoolDamaged("it is a directory");
  // A file of another kind, such as /dev/null, belongs to the system.
  if (found !== undefined && !found.isFile()) throw new Error("it is not a regular file");
  try {
    closeSync(openSync(path, "a", 0o600));
    closeSync(openSync(path, "r"));
  } catch (error) {
    throw found !== undefined && isPermissionError(error)
      ? new SpoolDamaged((error as Error).message)
      : error;
  }
  checkWriteAheadLog(path);
}

function isPermissionError(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "EACCES" || code === "EPERM";
}

/** The header of a write-ahead log: a magic number, whose last bit is the byte order of its checksums, and a page size. */
const logHeaderBytes = 32;
const logMagic = 0x377f0682;

/**
 * SQLite ignores a log whose header it cannot read, and deletes one beside an empty file. Both would lose committed
 * reports without an error. Beside an empty file the log holds all pages that were written since its last checkpoint; a
 * first page of zeros makes SQLite read them.
 */
function checkWriteAheadLog(path: string): void {
  const log = `${path}-wal`;
  if (!existsSync(log) || statSync(log).size < logHeaderBytes) return;
  const header = Buffer.alloc(logHeaderBytes);
  useFile(log, "r", (file) => readSync(file, header, 0, logHeaderBytes, 0));
  if ((header.readUInt32BE(0) & ~1) >>> 0 !== logMagic) {
    throw new SpoolDamaged("its write-ahead log has no valid header");
  }
  if (statSync(path).size === 0) truncateSync(path, header.readUInt32BE(8));
}

/** Closes the file also where `use` throws. */
export function useFile<T>(path: string, flags: string, use: (file: number) => T): T {
  const file = openSync(path, flags);
  try {
    return use(file);
  } finally {
    closeSync(file);
  }
}

/** @throws {SpoolDamaged} @throws {Error} of SQLite */
function prepareTables(database: DatabaseSync): void {
  const version = Number(database.prepare("PRAGMA user_version").get()?.user_version);
  if (version > format) {
    throw new SpoolDamaged(`it has format ${version}, and this version of the program knows ${format}`);
  }
  if (version === 0 && database.prepare("SELECT 1 FROM sqlite_schema").get() !== undefined) {
    throw new SpoolDamaged("it is a database of another program");
  }
  if (version !== 0 && describeColumns(database) !== expectedColumns()) {
    throw new SpoolDamaged("it has other tables than a spool");
  }
  const [finding] = database.prepare("PRAGMA integrity_check(1)").all();
  if (finding?.integrity_check !== "ok") throw new SpoolDamaged(String(finding?.integrity_check));
  database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864");
  if (version === 0) database.exec(tableSchema);
  database.exec("CREATE INDEX IF NOT EXISTS reports_of_site ON reports (site, sequence)");
}

function describeColumns(database: DatabaseSync): string {
  const columns = database
    .prepare(
      `SELECT t.name AS "table", c.name, c.type, c."notnull", c.pk
       FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
       WHERE t.type = 'table' AND t.name IN ('reports', 'dead_letters') ORDER BY t.name, c.cid`,
    )
    .all();
  return JSON.stringify(columns);
}

function expectedColumns(): string {
  const model = new DatabaseSync(":memory:");
  model.exec(tableSchema);
  const columns = describeColumns(model);
  model.close();
  return columns;
}

/** Result codes of SQLite: SQLITE_CORRUPT, SQLITE_NOTADB, and SQLITE_READONLY, where the file must not be written. */
const damageCodes: ReadonlySet<number> = new Set([11, 26, 8]);

/** Whether SQLite, or a check of ours, found the file unfit, rather than the disk, a lock or memory in its way. */
export function isDamage(error: unknown): boolean {
  if (error instanceof SpoolDamaged) return true;
  const { errcode } = error as { readonly errcode?: unknown };
  return typeof errcode === "number" && damageCodes.has(errcode & 0xff);
}
