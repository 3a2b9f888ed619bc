// The durable queue of error reports: SQLite in write-ahead mode, where a commit has reached the disk before it
// returns, so that what was acknowledged survives kill -9 and, as far as SQLite and the disk keep their word, a power
// cut. Everything here waits for the disk, so it runs in a thread of its own (`spool-worker.ts`). Reports are told apart
// by a number that only grows, never by a clock.
import { randomBytes } from "node:crypto";
import { closeSync, mkdirSync, openSync, statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync, type SQLOutputValue } from "node:sqlite";
import type { Millis } from "../core/time.ts";

/** A report to be kept. `index` is where it will be written, drawn here so that no second delivery goes elsewhere. */
export interface SpoolEntry {
  readonly site: string;
  readonly index: string;
  readonly received: Millis;
  readonly body: string;
}
export interface SpooledReport {
  /** Rises with each report of the file, and is never used again. */
  readonly sequence: number;
  /** 32 lower-case hex digits: random, drawn when the report was committed. */
  readonly id: string;
  readonly index: string;
  readonly body: string;
}
/** What has become of a report that was spooled: delivered, or refused for good. */
export interface Settlement {
  readonly sequence: number;
  readonly refused?: string | undefined;
}
export interface SpoolLevel {
  readonly reports: number;
  readonly bytes: number;
  readonly deadLetters: number;
  /** Reports waiting, by site. */
  readonly sites: Readonly<Record<string, number>>;
}

export interface Spool {
  /**
   * Commits the entries at once. For each, whether it was kept: over the limit of bytes, and when the disk is nearly
   * full, the oldest stay.
   * @throws {Error} of SQLite when nothing was kept
   */
  append(entries: readonly SpoolEntry[]): readonly boolean[];
  /** The oldest of a site at least one where there is one, then while they fit the bytes. */
  readOldest(site: string, most: number, mostBytes: number): readonly SpooledReport[];
  /** By chance one of a site's that came after that one. */
  pickLater(site: string, sequence: number): SpooledReport | undefined;
  /** Removes what was delivered and puts aside what was refused, in one commit. */
  settle(settlements: readonly Settlement[], at: Millis): void;
  readLevel(): SpoolLevel;
  close(): void;
}

const format = 1;
/** What a row takes beside its body, roughly. */
const rowBytes = 200;
/** The part of the limit that refused reports may take before the oldest of them go. */
const deadLetterShare = 0.1;

/**
 * What is left free on the disk, or a tenth of a small one. To remove is to write as well: on a full disk what was
 * delivered could not leave, and so would never make room.
 */
const reservedDiskBytes = 32 * 1_048_576;

/** How much more may be kept. What is kept is written twice: to the log, and from there to the file. */
function measureRoom(path: string, database: DatabaseSync): () => number {
  const pages = database.prepare(
    "SELECT page_count AS used, freelist_count AS free, page_size AS size FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
  );
  return () => {
    const { blocks, bavail, bsize } = statfsSync(dirname(path));
    // Some file systems do not tell.
    if (blocks === 0) return Number.POSITIVE_INFINITY;
    const { used, free, size } = pages.get() ?? {};
    // By this much the file grows when what stands in the log is moved there.
    const owed = Math.max(0, Number(used) * Number(size) - statSync(path).size);
    const onDisk = bavail * bsize - owed - Math.min(reservedDiskBytes, (blocks * bsize) / 10);
    return Math.min(onDisk, (onDisk + Number(free) * Number(size)) / 2);
  };
}

/**
 * Opens or makes the file and its folder, readable to its owner alone; `:memory:` keeps nothing.
 * @throws {Error} of the system or of SQLite, also when the file is of another program or a later version
 */
export function openSpool(path: string, limitBytes: number, room?: () => number): Spool {
  if (path !== ":memory:") {
    mkdirSync(dirname(path), { recursive: true });
    closeSync(openSync(path, "a", 0o600));
  }
  const database = new DatabaseSync(path, { timeout: 5_000 });
  try {
    const endless = path === ":memory:" ? () => Number.POSITIVE_INFINITY : undefined;
    return initialiseSpool(database, limitBytes, room ?? endless ?? measureRoom(path, database));
  } catch (error) {
    database.close();
    throw error;
  }
}

function initialiseSpool(database: DatabaseSync, limitBytes: number, room: () => number): Spool {
  database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864");
  const version = Number(database.prepare("PRAGMA user_version").get()?.user_version);
  if (version > format) throw new Error(`the spool has format ${version}, and this program knows ${format}`);
  if (version === 0) database.exec(tableSchema);

  const insert = database.prepare(
    "INSERT INTO reports (id, site, index_name, received, bytes, body) VALUES (?, ?, ?, ?, ?, ?)",
  );
  const select = database.prepare(
    "SELECT sequence, id, index_name, bytes, body FROM reports WHERE site = ? ORDER BY sequence LIMIT ?",
  );
  const newest = database.prepare("SELECT max(sequence) AS sequence FROM reports WHERE site = ?");
  const selectFrom = database.prepare(
    "SELECT sequence, id, index_name, body FROM reports WHERE site = ? AND sequence >= ? ORDER BY sequence LIMIT 1",
  );
  const remove = database.prepare("DELETE FROM reports WHERE sequence = ? RETURNING site, bytes");
  const bury = database.prepare(
    `INSERT INTO dead_letters (sequence, id, site, index_name, received, bytes, body, refused, reason)
     SELECT sequence, id, site, index_name, received, bytes, body, ?, ? FROM reports WHERE sequence = ?`,
  );
  const forget = database.prepare(
    "DELETE FROM dead_letters WHERE sequence = (SELECT min(sequence) FROM dead_letters) RETURNING bytes",
  );
  const totals = database.prepare(
    "SELECT site, count(*) AS count, sum(bytes) AS bytes FROM reports GROUP BY site",
  );
  const deadTotals = database.prepare(
    "SELECT count(*) AS count, coalesce(sum(bytes), 0) AS bytes FROM dead_letters",
  );

  // Kept in step with the tables, because to sum them up is to read them.
  let waiting: { sites: Map<string, number>; bytes: number };
  let dead: { count: number; bytes: number };
  measure();

  function measure(): void {
    waiting = { sites: new Map(), bytes: 0 };
    for (const row of totals.all()) {
      waiting.sites.set(String(row.site), Number(row.count));
      waiting.bytes += Number(row.bytes);
    }
    const row = deadTotals.get();
    dead = { count: Number(row?.count), bytes: Number(row?.bytes) };
  }

  function count(site: string, reports: 1 | -1, bytes: number): void {
    waiting.sites.set(site, (waiting.sites.get(site) ?? 0) + reports);
    waiting.bytes += reports * bytes;
  }

  function transact<T>(work: () => T): T {
    try {
      database.exec("BEGIN IMMEDIATE");
      const result = work();
      database.exec("COMMIT");
      return result;
    } catch (error) {
      // A full disk may have rolled it back already.
      if (database.isTransaction) database.exec("ROLLBACK");
      measure();
      throw error;
    }
  }

  return {
    append: (entries) =>
      transact(() => {
        let left = room();
        return entries.map(({ site, index, received, body }) => {
          const bytes = Buffer.byteLength(body) + rowBytes;
          left -= bytes;
          if (left < 0 || waiting.bytes + bytes > limitBytes) return false;
          insert.run(randomBytes(16).toString("hex"), site, index, received, bytes, body);
          count(site, 1, bytes);
          return true;
        });
      }),
    readOldest(site, most, mostBytes) {
      const found: SpooledReport[] = [];
      let bytes = 0;
      for (const row of select.iterate(site, most)) {
        bytes += Number(row.bytes);
        if (found.length > 0 && bytes > mostBytes) break;
        found.push(toSpooledReport(row));
      }
      return found;
    },
    pickLater(site, sequence) {
      const after = Number(newest.get(site)?.sequence ?? 0) - sequence;
      if (after <= 0) return undefined;
      const row = selectFrom.get(site, sequence + 1 + Math.floor(Math.random() * after));
      return row === undefined ? undefined : toSpooledReport(row);
    },
    settle: (settlements, at) =>
      transact(() => {
        for (const { sequence, refused } of settlements) {
          if (refused !== undefined) bury.run(at, refused, sequence);
          const row = remove.get(sequence);
          if (row === undefined) continue;
          count(String(row.site), -1, Number(row.bytes));
          if (refused === undefined) continue;
          dead.count += 1;
          dead.bytes += Number(row.bytes);
        }
        while (dead.bytes > limitBytes * deadLetterShare && dead.count > 1) {
          dead.count -= 1;
          dead.bytes -= Number(forget.get()?.bytes);
        }
      }),
    readLevel() {
      const sites = [...waiting.sites].filter(([, reports]) => reports > 0);
      const reports = sites.reduce((sum, [, own]) => sum + own, 0);
      return { reports, bytes: waiting.bytes, deadLetters: dead.count, sites: Object.fromEntries(sites) };
    },
    close: () => database.close(),
  };
}

function toSpooledReport(row: Record<string, SQLOutputValue>): SpooledReport {
  const [id, index, body] = [String(row.id), String(row.index_name), String(row.body)];
  return { sequence: Number(row.sequence), id, index, body };
}

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
