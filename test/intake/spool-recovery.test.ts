// Damaged spools: which reports the new one has, and that the damaged file stays as it was under another name.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSpool, type SpooledReport } from "#src/intake/spool.ts";
import { openOrReplaceSpool } from "#src/intake/spool-recovery.ts";

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-damaged-"));
  path = join(folder, "spool.db");
});
afterEach(() => rmSync(folder, { recursive: true }));

const limit = 1e9;
const at = Date.UTC(2026, 10, 25, 8, 22, 50, 123);
const asideName = () => `${path}.set-aside-20261125T082250123Z`;
const pageBytes = 4_096;

/** Fills a spool with reports whose bodies say their number, most on a page with others and some over many pages. */
function fillSpool(count: number): readonly SpooledReport[] {
  const spool = openSpool(path, limit);
  spool.append(
    Array.from({ length: count }, (_, n) => ({
      site: n % 3 === 0 ? "blog" : "shop",
      index: "reports",
      received: n,
      body: `${n}:${"x".repeat(n % 7 === 0 ? 20_000 : 700)}`,
    })),
  );
  const [refused] = spool.readOldest("shop", 1, limit);
  spool.settle([{ sequence: refused?.sequence ?? 0, refused: "status 400" }], 5);
  const reports = readAll(spool);
  spool.close();
  return reports;
}

function readAll(spool: ReturnType<typeof openSpool>): readonly SpooledReport[] {
  return ["shop", "blog"].flatMap((site) => spool.readOldest(site, 10_000, limit));
}

/** Replaces the damaged spool; returns its reports and what was found. */
function recover() {
  const before = existsSync(path) ? readFileSync(path) : undefined;
  const { spool, replacement } = openOrReplaceSpool(path, limit, at);
  const reports = readAll(spool);
  const level = spool.readLevel();
  // The new spool works.
  expect(spool.append([{ site: "new", index: "i", received: 1, body: "later" }])).toEqual([true]);
  const [later] = spool.readOldest("new", 1, limit);
  spool.close();
  if (replacement !== undefined && before !== undefined) {
    expect(readFileSync(replacement.setAside).equals(before)).toBe(true);
  }
  return { reports, level, replacement, later };
}

function zeroPage(number: number): void {
  const bytes = readFileSync(path);
  bytes.fill(0, (number - 1) * pageBytes, number * pageBytes);
  writeFileSync(path, bytes);
}

test("opens a sound spool without replacing it", () => {
  const kept = fillSpool(20);
  const { reports, replacement } = recover();
  expect(replacement).toBeUndefined();
  expect(reports).toEqual(kept);
  expect(readdirSync(folder)).toEqual(["spool.db"]);
});

test("keeps each report under its id and sequence when the index alone is damaged", () => {
  const kept = fillSpool(60);
  const database = new DatabaseSync(path);
  const root = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'reports_of_site'").get();
  database.close();
  zeroPage(Number(root?.rootpage));
  const { reports, replacement, level } = recover();
  expect(reports).toEqual(kept);
  expect(replacement).toMatchObject({ setAside: asideName(), reports: 59, deadLetters: 1, complete: true });
  expect(level).toMatchObject({ reports: 59, deadLetters: 1 });
});

test("salvages all reports but those on a zeroed page, whichever page it is", () => {
  const kept = fillSpool(60);
  const sound = readFileSync(path);
  const pages = sound.length / pageBytes;
  expect(pages).toBeGreaterThan(40);
  const byId = new Map(kept.map((report) => [report.id, report]));
  const losses: number[] = [];
  for (let page = 1; page <= pages; page += 1) {
    writeFileSync(path, sound);
    zeroPage(page);
    const { reports, replacement } = recover();
    // A report is as it was or is missing, but for the end of a long body, which nothing checks.
    for (const { id, sequence, body } of reports) {
      expect(byId.get(id)?.sequence).toBe(sequence);
      expect(byId.get(id)?.body.startsWith(body.replace(/\0*$/, ""))).toBe(true);
    }
    const lost = kept.length - reports.length;
    losses.push(lost);
    if (lost > 0)
      expect(replacement, `page ${page}`).toMatchObject({ complete: false, reports: reports.length });
    for (const name of readdirSync(folder)) rmSync(join(folder, name));
  }
  // Five rows of 700 bytes fit a page. The root of the table leads to all of them: without it none can be found.
  expect(losses.filter((lost) => lost > 5)).toEqual([kept.length]);
  expect(losses.filter((lost) => lost > 0).length).toBeGreaterThan(10);
  expect(losses[0]).toBe(0);
});

test("salvages what stands before the cut of a truncated file", () => {
  const kept = fillSpool(60);
  const bytes = readFileSync(path).length;
  for (const [share, least] of [
    [0.9, 40],
    [0.5, 15],
    [0.99, 50],
  ] as const) {
    rmSync(folder, { recursive: true });
    mkdirSync(folder);
    const own = fillSpool(60);
    truncateSync(path, Math.floor(bytes * share));
    const { reports, replacement } = recover();
    expect(replacement).toMatchObject({ complete: false, reports: reports.length });
    expect(reports.length).toBeGreaterThan(least);
    expect(reports.length).toBeLessThan(kept.length);
    const bodies = new Set(own.map(({ body }) => body));
    expect(reports.filter(({ body }) => !bodies.has(body))).toEqual([]);
  }
});

test("gives new reports sequences that no report of the damaged spool had", () => {
  const kept = fillSpool(30);
  const highest = Math.max(...kept.map(({ sequence }) => sequence));
  zeroPage(readFileSync(path).length / pageBytes);
  expect(recover().later?.sequence).toBeGreaterThan(highest + 1_000_000);
});

/** Changes the spool behind the program's back, and gives it a format that has it replaced. */
function changeSpool(statements: string): void {
  const database = new DatabaseSync(path);
  database.exec(`${statements}; PRAGMA user_version = 9`);
  database.close();
}

describe("a sequence that no spool reaches", () => {
  test("of the counter: new reports can be read", () => {
    for (const sequence of [2n ** 53n - 2n, 2n ** 56n, 2n ** 62n]) {
      const kept = fillSpool(30);
      changeSpool(`UPDATE sqlite_sequence SET seq = ${sequence}`);
      const { reports, replacement, later } = recover();
      expect(reports).toEqual(kept);
      expect(replacement).toMatchObject({ reports: 29, complete: true });
      expect(later).toMatchObject({ body: "later" });
      for (const name of readdirSync(folder)) rmSync(join(folder, name));
    }
  });

  test("of a report: the others are salvaged, and new ones can be read", () => {
    for (const sequence of [2n ** 53n - 2n, 2n ** 56n]) {
      const kept = fillSpool(30);
      changeSpool(`UPDATE reports SET sequence = ${sequence} WHERE sequence = ${kept[5]?.sequence}`);
      const { reports, replacement, later } = recover();
      expect(reports).toEqual(kept.toSpliced(5, 1));
      expect(replacement).toMatchObject({ reports: 28, complete: false });
      expect(later).toMatchObject({ body: "later" });
      for (const name of readdirSync(folder)) rmSync(join(folder, name));
    }
  });
});

test("salvages the reports on both sides of one whose sequence is damaged", () => {
  const kept = fillSpool(30);
  const damaged = kept.findIndex(({ sequence }) => sequence === 20);
  const sound = readFileSync(path);
  // The id comes first in the row; nine bytes of types, and before them the sequence, lead to it.
  const place = sound.indexOf(kept[damaged]?.id ?? "none") - 10;
  expect(sound[place]).toBe(20);
  // Above all sequences, above those that follow on its page, and below those before it.
  for (const sequence of [100, 28, 3]) {
    writeFileSync(path, Buffer.from(sound).fill(sequence, place, place + 1));
    const { reports, replacement } = recover();
    const bodies = new Set(reports.map(({ body }) => body));
    expect(kept.filter(({ body }) => !bodies.has(body)).length).toBe(1);
    expect(replacement).toMatchObject({ reports: 28, complete: false });
    for (const name of readdirSync(folder)) rmSync(join(folder, name));
  }
});

test("salvages the reports between those whose sequences are damaged", () => {
  const kept = fillSpool(30);
  const sound = readFileSync(path);
  const damaged = [10, 15, 20];
  for (const sequence of damaged) {
    const { id } = kept.find((one) => one.sequence === sequence) ?? {};
    // The sequence is some bytes before the id.
    const place = sound.lastIndexOf(sequence, sound.indexOf(id ?? "none") - 8);
    sound[place] = 100;
  }
  writeFileSync(path, sound);
  const { reports, replacement } = recover();
  expect(reports.map(({ sequence }) => sequence)).toEqual(
    kept.map(({ sequence }) => sequence).filter((sequence) => !damaged.includes(sequence)),
  );
  expect(replacement).toMatchObject({ complete: false });
});

test("salvages reports that the first page no longer lists", () => {
  const kept = fillSpool(60);
  const sound = readFileSync(path);
  for (const tables of [0, 1]) {
    const bytes = Buffer.from(sound);
    // The count of rows of the list of tables.
    bytes.writeUInt16BE(tables, 103);
    writeFileSync(path, bytes);
    const { reports, replacement } = recover();
    expect(replacement?.reason).toBe("it has other tables than a spool");
    expect(reports).toEqual(kept);
    // With one row the list still names the reports, and so is believed.
    expect(replacement).toMatchObject(
      tables === 0 ? { deadLetters: 1, complete: true } : { deadLetters: 0, complete: false },
    );
    for (const name of readdirSync(folder)) rmSync(join(folder, name));
  }
});

describe("a write-ahead log", () => {
  /** Leaves the files as a killed process does: the reports are in the log alone. */
  function crash(count: number): readonly string[] {
    const live = `${path}.live`;
    const spool = openSpool(live, limit);
    spool.append(
      Array.from({ length: count }, (_, n) => ({
        site: "shop",
        index: "i",
        received: n,
        body: `report ${n}`,
      })),
    );
    copyFileSync(live, path);
    copyFileSync(`${live}-wal`, `${path}-wal`);
    spool.close();
    rmSync(live);
    return Array.from({ length: count }, (_, n) => `report ${n}`);
  }
  const bodies = (reports: readonly SpooledReport[]) => reports.map(({ body }) => body);

  test("gives all its reports back beside a sound file", () => {
    const kept = crash(50);
    const { reports, replacement } = recover();
    expect(bodies(reports)).toEqual(kept);
    expect(replacement).toBeUndefined();
  });

  test("gives all its reports back beside an empty file", () => {
    const kept = crash(50);
    truncateSync(path);
    const { spool } = openOrReplaceSpool(path, limit, at);
    expect(bodies(readAll(spool))).toEqual(kept);
    spool.close();
  });

  test("gives all its reports back where the file is missing", () => {
    const kept = crash(50);
    rmSync(path);
    expect(bodies(recover().reports)).toEqual(kept);
  });

  test("is set aside with the file when its header is gone", () => {
    crash(50);
    const log = readFileSync(`${path}-wal`);
    log.fill(0, 0, 32);
    writeFileSync(`${path}-wal`, log);
    const { replacement } = recover();
    expect(replacement?.reason).toBe("its write-ahead log has no valid header");
    expect(readFileSync(`${asideName()}-wal`).equals(log)).toBe(true);
  });
});

describe("a file that is no spool is set aside whole", () => {
  test("a text", () => {
    writeFileSync(path, "site,message\nshop,hello\n".repeat(2_000));
    expect(recover().replacement).toMatchObject({ setAside: asideName(), reports: 0, complete: false });
  });

  test("a database of another program, with the same version number or none", () => {
    for (const version of [0, 1]) {
      const other = new DatabaseSync(path);
      other.exec(`CREATE TABLE dashboards (id INTEGER); PRAGMA user_version = ${version}`);
      other.close();
      const { replacement } = recover();
      expect(replacement).toMatchObject({ reports: 0, complete: false });
      expect(replacement?.reason).toMatch(version === 0 ? "another program" : "other tables");
      for (const name of readdirSync(folder)) rmSync(join(folder, name));
    }
  });

  test("an empty file that was found damaged", () => {
    writeFileSync(path, "");
    const { spool, replacement } = openOrReplaceSpool(path, limit, at, "damaged");
    spool.close();
    expect(replacement).toMatchObject({ reason: "damaged", reports: 0, complete: false });
  });

  test("an empty directory", () => {
    mkdirSync(path);
    const { spool, replacement } = openOrReplaceSpool(path, limit, at);
    spool.close();
    expect(replacement).toMatchObject({ reason: "it is a directory", setAside: asideName() });
    expect(readdirSync(asideName())).toEqual([]);
  });

  test("a spool of a later format, with its reports", () => {
    const kept = fillSpool(10);
    const file = new DatabaseSync(path);
    file.exec("PRAGMA user_version = 2; ALTER TABLE reports ADD COLUMN priority INTEGER");
    file.close();
    const { reports, replacement } = recover();
    expect(replacement).toMatchObject({ complete: true, reports: 9, deadLetters: 1 });
    expect(reports).toEqual(kept);
  });

  test("a spool whose columns have other types, with what is a report", () => {
    fillSpool(1);
    const file = new DatabaseSync(path);
    file.exec("DROP TABLE dead_letters; CREATE TABLE dead_letters (sequence INTEGER PRIMARY KEY, note TEXT)");
    file.close();
    expect(recover().replacement?.reason).toMatch("other tables");
  });
});

test("leaves a directory with files as it is", () => {
  mkdirSync(path);
  writeFileSync(join(path, "visual.yaml"), "");
  expect(() => openOrReplaceSpool(path, limit, at)).toThrow("not empty");
  expect(readdirSync(folder)).toEqual(["spool.db"]);
});

test("leaves what is no file of a disk as it is", () => {
  expect(() => openOrReplaceSpool("/dev/null", limit, at)).toThrow("not a regular file");
});

test("leaves a spool that another program has locked as it is", () => {
  fillSpool(3);
  const other = new DatabaseSync(path);
  other.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  expect(() => openOrReplaceSpool(path, limit, at)).toThrow("locked");
  other.close();
  expect(readdirSync(folder).filter((name) => name.includes("set-aside"))).toEqual([]);
});

test.runIf(process.platform === "linux")("closes a file that cannot be read", () => {
  fillSpool(3);
  mkdirSync(`${path}-wal`);
  expect(() => openOrReplaceSpool(path, limit, at)).toThrow("EISDIR");
  const open = readdirSync("/proc/self/fd").flatMap((file) => {
    try {
      return [readlinkSync(`/proc/self/fd/${file}`)];
    } catch {
      return [];
    }
  });
  expect(open.filter((file) => file.startsWith(folder))).toEqual([]);
});

test("chooses another name where one stands already", () => {
  writeFileSync(asideName(), "of an earlier time");
  writeFileSync(path, "no database, but long enough to be one".repeat(200));
  expect(recover().replacement?.setAside).toBe(`${asideName()}-2`);
  expect(readFileSync(asideName(), "utf8")).toBe("of an earlier time");
});

test("finishes a replacement that a crash broke off between its two renames", () => {
  const kept = fillSpool(20);
  copyFileSync(path, `${path}.new`);
  rmSync(path);
  expect(recover().reports).toEqual(kept);
  expect(existsSync(`${path}.new`)).toBe(false);
});

test("begins a replacement anew that a crash broke off before its renames", () => {
  const kept = fillSpool(20);
  writeFileSync(`${path}.new`, "half of it");
  const database = new DatabaseSync(path);
  database.exec("PRAGMA user_version = 9");
  database.close();
  expect(recover().reports).toEqual(kept);
  expect(readdirSync(dirname(path)).sort()).toEqual(["spool.db", asideName().slice(folder.length + 1)]);
});
