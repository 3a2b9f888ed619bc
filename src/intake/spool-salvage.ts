// What can still be read of a damaged spool. A damaged page hides the rows on it, and each read that meets it fails; so
// rows are read from both ends of a range of sequences towards the damage, and what lies between is halved and tried
// again. Where the first page is gone, that of a new spool takes its place in a copy: the tables of every spool begin at
// the same pages.
import {
  accessSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type SQLOutputValue, type StatementSync } from "node:sqlite";
import { rowBytes } from "./spool.ts";
import { isDamage, openSpoolFile, useFile } from "./spool-file.ts";

export interface Salvage {
  /** Reports that wait for their delivery again, under their ids. */
  readonly reports: number;
  readonly deadLetters: number;
  /** Whether each row was read, as far as SQLite can tell. */
  readonly complete: boolean;
}

/** Ranges that may fail before the rest is given up. Each takes some 200 µs. */
const failureLimit = 20_000;
const rowsOfCommit = 1_000;

/**
 * More than the reports that a spool can have held. New sequences begin above it, because a delivery that began before
 * the damage may still settle sequences that could not be read.
 */
const sequenceGap = 2 ** 32;

/**
 * No spool gets so far: where a file names more, that is damage. The sequences of new reports, above the gap, have to stay
 * safe integers, or reading them throws.
 */
const greatestSequence = Number.MAX_SAFE_INTEGER - 2 * sequenceGap;

/**
 * Copies all readable rows of the file at `from` into the new, empty spool `into`. The file stays as it is. `scratch` is a
 * folder that is made where a copy is needed, and removed.
 * @throws {Error} of SQLite or of the system when `into` or `scratch` cannot be written
 */
export function salvageRows(from: string, into: DatabaseSync, scratch: string): Salvage {
  const nothing: Salvage = { reports: 0, deadLetters: 0, complete: false };
  if (!isReadable(from)) return nothing;
  const direct = openDamaged(from);
  if (direct !== undefined) return copyTables(direct, into);
  try {
    mkdirSync(scratch, { recursive: true });
    const copy = copyWithNewFirstPage(from, scratch);
    const source = copy === undefined ? undefined : openDamaged(copy);
    return source === undefined ? nothing : copyTables(source, into);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/** Undefined where the list of tables cannot be read, or has lost the one of reports. */
function openDamaged(path: string): DatabaseSync | undefined {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 });
    const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
    if (tables.some(({ name }) => name === "reports")) return database;
  } catch {
    // It is closed below.
  }
  if (database?.isOpen) database.close();
  return undefined;
}

/** Offsets in the header of SQLite's file format. */
const pageCountOffset = 28;
const freePagesOffset = 32;

/** Returns the copy's path; undefined where the file cannot be read or holds no page beside the first. */
function copyWithNewFirstPage(from: string, scratch: string): string | undefined {
  const [copy, model] = [join(scratch, "copy.db"), join(scratch, "model.db")];
  const database = openSpoolFile(model);
  const root = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'reports'").get();
  database.close();
  const page = readFileSync(model);
  const pageBytes = page.readUInt16BE(16);
  const bytes = statSync(from).size;
  const hasLog = existsSync(`${from}-wal`);
  if (!hasLog && !isTablePage(from, Number(root?.rootpage), pageBytes)) return undefined;
  copyFileSync(from, copy, constants.COPYFILE_FICLONE);
  if (hasLog) copyFileSync(`${from}-wal`, `${copy}-wal`, constants.COPYFILE_FICLONE);
  page.writeUInt32BE(Math.ceil(bytes / pageBytes), pageCountOffset);
  // Free pages are unknown, and are not needed by readers.
  page.fill(0, freePagesOffset, freePagesOffset + 8);
  useFile(copy, "r+", (file) => writeSync(file, page, 0, pageBytes, 0));
  return copy;
}

/** The first byte of a page of a table: a leaf, or one that leads to others. */
const tablePageTypes: readonly number[] = [13, 5];

/** Whether a file can be a spool without its first page. */
function isTablePage(path: string, number: number, pageBytes: number): boolean {
  const type = Buffer.alloc(1);
  const read = useFile(path, "r", (file) => readSync(file, type, 0, 1, (number - 1) * pageBytes));
  return read === 1 && tablePageTypes.includes(type.readUInt8(0));
}

type Row = Record<string, SQLOutputValue>;

/** Copies both tables and closes the source. */
function copyTables(source: DatabaseSync, into: DatabaseSync): Salvage {
  try {
    const insertReport = into.prepare(
      "INSERT OR IGNORE INTO reports (sequence, id, site, index_name, received, bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
    );
    const insertDeadLetter = into.prepare(
      `INSERT OR IGNORE INTO dead_letters (sequence, id, site, index_name, received, bytes, body, refused, reason)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    );
    const writer = createBatchWriter(into);
    const reports = copyTable(source, "reports", (row) =>
      writer.write(() => Number(insertReport.run(...toReportValues(row)).changes)),
    );
    const deadLetters = copyTable(source, "dead_letters", (row) =>
      writer.write(() => {
        const { refused, reason } = row;
        const values = [...toReportValues(row), toInteger(refused), toText(reason)];
        return Number(insertDeadLetter.run(...values).changes);
      }),
    );
    writer.end();
    skipSequences(into, reports.highest + sequenceGap);
    return {
      reports: reports.rows,
      deadLetters: deadLetters.rows,
      complete: reports.complete && deadLetters.complete,
    };
  } finally {
    source.close();
  }
}

function createBatchWriter(into: DatabaseSync) {
  let pending = 0;
  const end = () => {
    if (pending > 0) into.exec("COMMIT");
    pending = 0;
  };
  return {
    end,
    write(insert: () => number): number {
      if (pending === 0) into.exec("BEGIN IMMEDIATE");
      pending += 1;
      const written = insert();
      if (pending === rowsOfCommit) end();
      return written;
    },
  };
}

/** New reports get sequences above this one. */
function skipSequences(into: DatabaseSync, highest: number): void {
  into
    .prepare(
      "INSERT INTO reports (sequence, id, site, index_name, received, bytes, body) VALUES (?, '', '', '', 0, 0, '')",
    )
    .run(highest);
  into.prepare("DELETE FROM reports WHERE sequence = ?").run(highest);
}

/** A value that no row of a spool has. */
class InvalidRow extends Error {}

function toText(value: SQLOutputValue | undefined): string {
  if (typeof value !== "string") throw new InvalidRow();
  return value;
}
function toInteger(value: SQLOutputValue | undefined): number {
  const number = Number(value);
  if (typeof value !== "bigint" || !Number.isSafeInteger(number)) throw new InvalidRow();
  return number;
}
function toReportValues(row: Row): (string | number)[] {
  const [id, site, body] = [toText(row.id), toText(row.site), toText(row.body)];
  if (!/^[0-9a-f]{32}$/.test(id) || site === "") throw new InvalidRow();
  const bytes = Buffer.byteLength(body) + rowBytes;
  return [toInteger(row.sequence), id, site, toText(row.index_name), toInteger(row.received), bytes, body];
}

interface TableCopy {
  readonly rows: number;
  readonly highest: number;
  readonly complete: boolean;
}
type Table = "reports" | "dead_letters";
type Order = "ASC" | "DESC";
type Range = readonly [low: number, high: number];

/** Reads every row that can be read and gives it to `write`, which returns how many rows it wrote. */
function copyTable(source: DatabaseSync, table: Table, write: (row: Row) => number): TableCopy {
  try {
    prepareScan(source, table, "ASC");
  } catch {
    // It is not listed, or has other columns, so its rows are no reports.
    return { rows: 0, highest: 0, complete: false };
  }
  let rows = 0;
  const take = (row: Row) => {
    try {
      rows += write(row);
    } catch (error) {
      if (!(error instanceof InvalidRow)) throw error;
    }
  };
  const highest = findHighestSequence(source, table);
  const count = countRows(source, table);
  readAroundDamage(source, table, highest, take);
  // A scan of a range ends without an error at a row whose sequence is damaged. A walk over all rows looks at none; those that were
  // written already are ignored.
  for (const order of ["ASC", "DESC"] as const)
    if (rows !== count) walkTable(source, table, order, highest, take);
  return { rows, highest, complete: rows === count };
}

/** Undefined where a page of the table cannot be read. Counting reads no sequences. */
function countRows(source: DatabaseSync, table: Table): number | undefined {
  try {
    return Number(source.prepare(`SELECT count(*) AS count FROM ${table} NOT INDEXED`).get()?.count);
  } catch {
    return undefined;
  }
}

/** Takes rows from both ends of a range towards the damage. */
function readAroundDamage(
  source: DatabaseSync,
  table: Table,
  highest: number,
  take: (row: Row) => void,
): void {
  const scan = (order: Order, low: number, high: number) =>
    scanTable(source, table, order, [low, high], take);
  const ranges: Range[] = [[1, highest]];
  let failures = 0;
  for (let range = ranges.pop(); range !== undefined && failures < failureLimit; range = ranges.pop()) {
    const [low, high] = range;
    const below = scan("ASC", low, high);
    if (below === "all") continue;
    failures += 1;
    if (low === high) continue;
    const first = below === undefined ? low : below + 1;
    const above = scan("DESC", first, high);
    if (above === "all") continue;
    const last = above === undefined ? high : above - 1;
    const middle = Math.floor((first + last) / 2);
    if (middle < last) ranges.push([middle + 1, last]);
    if (first <= middle) ranges.push([first, middle]);
  }
}

/** A bound for a file that does not say, or says what cannot be. Its readable rows come first, then failures up to their limit. */
const unknownHighest = 2 ** 31;

/** The greatest that the file names anywhere: each place may be damaged, and a place of zeros names too small a number. */
function findHighestSequence(source: DatabaseSync, table: Table): number {
  const places = [
    "SELECT max(seq) AS highest FROM sqlite_sequence",
    `SELECT max(sequence) AS highest FROM ${table} NOT INDEXED`,
    ...(table === "reports"
      ? ["SELECT max(sequence) AS highest FROM reports INDEXED BY reports_of_site"]
      : []),
  ];
  const found = places.flatMap((place) => {
    try {
      const statement = source.prepare(place);
      statement.setReadBigInts(true);
      const named = Number(statement.get()?.highest ?? 0);
      return named <= greatestSequence ? [named] : [];
    } catch {
      return [];
    }
  });
  const highest = Math.max(0, ...found);
  return highest === 0 && found.length < places.length ? unknownHighest : highest;
}

function prepareScan(source: DatabaseSync, table: Table, order: Order): StatementSync {
  return prepareRead(source, table, `WHERE sequence BETWEEN ? AND ? ORDER BY sequence ${order}`);
}

function prepareRead(source: DatabaseSync, table: Table, clauses: string): StatementSync {
  const own = table === "dead_letters" ? ", refused, reason" : "";
  const statement = source.prepare(
    `SELECT sequence, id, site, index_name, received, body${own} FROM ${table} NOT INDEXED ${clauses}`,
  );
  // A damaged row can have an integer that no number holds.
  statement.setReadBigInts(true);
  return statement;
}

/**
 * Returns "all", or after a failure the sequence of the last row that was read, if any. A row that is out of its place is a
 * failure too: SQLite reads a page of zeros as rows.
 * @throws {Error} of SQLite, for anything but damage
 */
function scanTable(
  source: DatabaseSync,
  table: Table,
  order: Order,
  [low, high]: Range,
  take: (row: Row) => void,
): "all" | number | undefined {
  let [lowest, highest] = [low, high];
  let last: number | undefined;
  for (const row of readUntilDamage(() => prepareScan(source, table, order).iterate(low, high))) {
    if (row === "damage") return last;
    const sequence = Number(row.sequence);
    if (sequence < lowest || sequence > highest) return last;
    take(row);
    last = sequence;
    if (order === "ASC") lowest = sequence + 1;
    else highest = sequence - 1;
  }
  return "all";
}

/** Takes the rows as they lie in the file, up to the first that cannot be read. Those with a sequence that no row had are left out. */
function walkTable(
  source: DatabaseSync,
  table: Table,
  order: Order,
  highest: number,
  take: (row: Row) => void,
): void {
  const walk = () => prepareRead(source, table, `ORDER BY sequence ${order}`).iterate();
  for (const row of readUntilDamage(walk)) {
    if (row === "damage") return;
    if (Number(row.sequence) >= 1 && Number(row.sequence) <= highest) take(row);
  }
}

/** The rows, then "damage" where reading fails. An error of who takes the rows is not caught. */
function* readUntilDamage(iterate: () => Iterator<Row>): Generator<Row | "damage", void> {
  let rows: Iterator<Row> | undefined;
  for (;;) {
    let next: IteratorResult<Row>;
    try {
      rows ??= iterate();
      next = rows.next();
    } catch (error) {
      if (!isDamage(error)) throw error;
      yield "damage";
      return;
    }
    if (next.done) return;
    yield next.value;
  }
}
