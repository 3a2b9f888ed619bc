// The durable queue of error reports: SQLite in write-ahead mode, where a commit has reached the disk before it
// returns, so that what was acknowledged survives kill -9 and, as far as SQLite and the disk keep their word, a power
// cut. Everything here waits for the disk, so it runs in a thread of its own (`spool-worker.ts`). A number that only
// grows tells reports apart, never a clock.
import { randomBytes } from "node:crypto";
import { statfsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import type { Millis } from "../core/time.ts";
import { openSpoolFile } from "./spool-file.ts";

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

/** What a row takes beside its body, roughly. */
export const rowBytes = 200;
/** The part of the limit that refused reports may take before the oldest of them go. */
const deadLetterShare = 0.1;

/**
 * What is left free on the disk, or a tenth of a small one. To remove is to write as well: on a full disk what was
 * delivered could not leave, and so would never make room.
 */
const reservedDiskBytes = 32 * 1_048_576;

/** Bytes that may still be kept. Each is written twice: to the write-ahead log, and from there to the file. */
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
 * Opens the file, or makes it and its folder, readable to its owner alone; `:memory:` keeps nothing.
 * @throws {SpoolDamaged} the file cannot serve as a spool as it is
 * @throws {Error} of the system or of SQLite, for anything else
 */
export function openSpool(path: string, limitBytes: number, room?: () => number): Spool {
  const database = openSpoolFile(path);
  try {
    const endless = path === ":memory:" ? () => Number.POSITIVE_INFINITY : undefined;
    return createSpool(database, limitBytes, room ?? endless ?? measureRoom(path, database));
  } catch (error) {
    database.close();
    throw error;
  }
}

/** An open spool. `totals` keeps in step with the tables, because adding them up means reading them. */
interface OpenSpool {
  readonly database: DatabaseSync;
  readonly limitBytes: number;
  readonly room: () => number;
  readonly statements: ReturnType<typeof prepareStatements>;
  totals: Totals;
}
interface Totals {
  /** Reports waiting, by site. */
  readonly sites: Map<string, number>;
  bytes: number;
  deadLetters: number;
  deadBytes: number;
}

function createSpool(database: DatabaseSync, limitBytes: number, room: () => number): Spool {
  const statements = prepareStatements(database);
  const spool: OpenSpool = { database, limitBytes, room, statements, totals: addUpTotals(statements) };
  return {
    append: (entries) => runTransaction(spool, () => appendEntries(spool, entries)),
    readOldest: (site, most, mostBytes) => readOldest(spool, site, most, mostBytes),
    pickLater: (site, sequence) => pickLater(spool, site, sequence),
    settle: (settlements, at) => runTransaction(spool, () => settleReports(spool, settlements, at)),
    readLevel: () => describeLevel(spool.totals),
    close: () => database.close(),
  };
}

function prepareStatements(database: DatabaseSync) {
  return {
    insert: database.prepare(
      "INSERT INTO reports (id, site, index_name, received, bytes, body) VALUES (?, ?, ?, ?, ?, ?)",
    ),
    select: database.prepare(
      "SELECT sequence, id, index_name, bytes, body FROM reports WHERE site = ? ORDER BY sequence LIMIT ?",
    ),
    newest: database.prepare("SELECT max(sequence) AS sequence FROM reports WHERE site = ?"),
    selectFrom: database.prepare(
      "SELECT sequence, id, index_name, body FROM reports WHERE site = ? AND sequence >= ? ORDER BY sequence LIMIT 1",
    ),
    remove: database.prepare("DELETE FROM reports WHERE sequence = ? RETURNING site, bytes"),
    bury: database.prepare(
      `INSERT INTO dead_letters (sequence, id, site, index_name, received, bytes, body, refused, reason)
       SELECT sequence, id, site, index_name, received, bytes, body, ?, ? FROM reports WHERE sequence = ?`,
    ),
    forget: database.prepare(
      "DELETE FROM dead_letters WHERE sequence = (SELECT min(sequence) FROM dead_letters) RETURNING bytes",
    ),
    totals: database.prepare(
      "SELECT site, count(*) AS count, sum(bytes) AS bytes FROM reports GROUP BY site",
    ),
    deadTotals: database.prepare(
      "SELECT count(*) AS count, coalesce(sum(bytes), 0) AS bytes FROM dead_letters",
    ),
  };
}

function addUpTotals({ totals, deadTotals }: OpenSpool["statements"]): Totals {
  const sites = new Map<string, number>();
  let bytes = 0;
  for (const row of totals.all()) {
    sites.set(String(row.site), Number(row.count));
    bytes += Number(row.bytes);
  }
  const dead = deadTotals.get();
  return { sites, bytes, deadLetters: Number(dead?.count), deadBytes: Number(dead?.bytes) };
}

function countReports(totals: Totals, site: string, reports: 1 | -1, bytes: number): void {
  totals.sites.set(site, (totals.sites.get(site) ?? 0) + reports);
  totals.bytes += reports * bytes;
}

/** Commits what `work` writes, or leaves tables and totals as they were. */
function runTransaction<T>(spool: OpenSpool, work: () => T): T {
  const { database } = spool;
  try {
    database.exec("BEGIN IMMEDIATE");
    const result = work();
    database.exec("COMMIT");
    return result;
  } catch (error) {
    // A full disk may have rolled it back already.
    if (database.isTransaction) database.exec("ROLLBACK");
    spool.totals = addUpTotals(spool.statements);
    throw error;
  }
}

function appendEntries(spool: OpenSpool, entries: readonly SpoolEntry[]): readonly boolean[] {
  const { totals, statements, limitBytes } = spool;
  let left = spool.room();
  return entries.map(({ site, index, received, body }) => {
    const bytes = Buffer.byteLength(body) + rowBytes;
    left -= bytes;
    if (left < 0 || totals.bytes + bytes > limitBytes) return false;
    statements.insert.run(randomBytes(16).toString("hex"), site, index, received, bytes, body);
    countReports(totals, site, 1, bytes);
    return true;
  });
}

function readOldest({ statements }: OpenSpool, site: string, most: number, mostBytes: number) {
  const found: SpooledReport[] = [];
  let bytes = 0;
  for (const row of statements.select.iterate(site, most)) {
    bytes += Number(row.bytes);
    if (found.length > 0 && bytes > mostBytes) break;
    found.push(toSpooledReport(row));
  }
  return found;
}

function pickLater({ statements }: OpenSpool, site: string, sequence: number): SpooledReport | undefined {
  const after = Number(statements.newest.get(site)?.sequence ?? 0) - sequence;
  if (after <= 0) return undefined;
  const row = statements.selectFrom.get(site, sequence + 1 + Math.floor(Math.random() * after));
  return row === undefined ? undefined : toSpooledReport(row);
}

function settleReports(spool: OpenSpool, settlements: readonly Settlement[], at: Millis): void {
  const { totals, statements, limitBytes } = spool;
  for (const { sequence, refused } of settlements) {
    if (refused !== undefined) statements.bury.run(at, refused, sequence);
    const row = statements.remove.get(sequence);
    if (row === undefined) continue;
    countReports(totals, String(row.site), -1, Number(row.bytes));
    if (refused === undefined) continue;
    totals.deadLetters += 1;
    totals.deadBytes += Number(row.bytes);
  }
  while (totals.deadBytes > limitBytes * deadLetterShare && totals.deadLetters > 1) {
    totals.deadLetters -= 1;
    totals.deadBytes -= Number(statements.forget.get()?.bytes);
  }
}

function describeLevel({ sites, bytes, deadLetters }: Totals): SpoolLevel {
  const waiting = [...sites].filter(([, reports]) => reports > 0);
  const reports = waiting.reduce((sum, [, own]) => sum + own, 0);
  return { reports, bytes, deadLetters, sites: Object.fromEntries(waiting) };
}

function toSpooledReport(row: Record<string, SQLOutputValue>): SpooledReport {
  const [id, index, body] = [String(row.id), String(row.index_name), String(row.body)];
  return { sequence: Number(row.sequence), id, index, body };
}
