// The file itself: what a commit keeps, in which order, up to which size, and what a disk without room does to it.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSpool, type SpoolEntry } from "#src/intake/spool.ts";
import { type SpoolEvent, startSpoolClient } from "#src/intake/spool-client.ts";
import { SpoolInUse } from "#src/intake/spool-lock.ts";

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-spool-"));
  path = join(folder, "deep", "spool.db");
});
afterEach(() => rmSync(folder, { recursive: true }));

const entry = (body: string, over: Partial<SpoolEntry> = {}): SpoolEntry => ({
  site: "shop",
  index: "reports",
  received: 1,
  body,
  ...over,
});
const bodies = (spooled: readonly { readonly body: string }[]) => spooled.map(({ body }) => body);
const large = 1_000_000;

test("keeps reports in order and by site after it is closed", () => {
  const spool = openSpool(path, large);
  expect(spool.append([entry("a"), entry("b", { site: "blog" }), entry("c", { index: "other" })])).toEqual([
    true,
    true,
    true,
  ]);
  spool.close();
  const again = openSpool(path, large);
  expect(bodies(again.readOldest("shop", 10, large))).toEqual(["a", "c"]);
  expect(again.readOldest("shop", 10, large).map(({ index }) => index)).toEqual(["reports", "other"]);
  expect(bodies(again.readOldest("blog", 10, large))).toEqual(["b"]);
  expect(again.readLevel()).toMatchObject({ reports: 3, deadLetters: 0, sites: { shop: 2, blog: 1 } });
  again.close();
});

test("keeps equal reports apart, each under its own id", () => {
  const spool = openSpool(path, large);
  spool.append([entry("same"), entry("same")]);
  const ids = spool.readOldest("shop", 10, large).map(({ id }) => id);
  expect(new Set(ids).size).toBe(2);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
  spool.close();
});

test("returns reports up to a count and a size, and at least one", () => {
  const spool = openSpool(path, large);
  spool.append(["x".repeat(500), "y".repeat(500), "z"].map((body) => entry(body)));
  expect(spool.readOldest("shop", 2, large)).toHaveLength(2);
  expect(spool.readOldest("shop", 10, 1)).toHaveLength(1);
  expect(spool.readOldest("shop", 10, 1_000)).toHaveLength(1);
  expect(spool.readOldest("shop", 10, 1_400)).toHaveLength(2);
  spool.close();
});

test("refuses new reports over its limit until there is room", () => {
  const spool = openSpool(path, 3_000);
  const kept = spool.append(Array.from({ length: 10 }, (_, n) => entry(`${n}${"x".repeat(799)}`)));
  expect(kept).toEqual([true, true, true, ...Array.from({ length: 7 }, () => false)]);
  expect(bodies(spool.readOldest("shop", 10, large)).map((body) => body[0])).toEqual(["0", "1", "2"]);
  const [first] = spool.readOldest("shop", 1, large);
  spool.settle([{ sequence: first?.sequence ?? 0 }], 2);
  expect(spool.append([entry("n".repeat(800)), entry("m".repeat(800))])).toEqual([true, false]);
  spool.close();
  expect(openSpool(path, 3_000).append([entry("x".repeat(800))])).toEqual([false]);
});

test("keeps dead letters with their reason, and removes the oldest for room", () => {
  const spool = openSpool(path, 100_000);
  spool.append(Array.from({ length: 20 }, (_, n) => entry(`${n} ${"x".repeat(900)}`)));
  const spooled = spool.readOldest("shop", 20, large);
  spool.settle(
    spooled.map(({ sequence }, at) => (at % 2 === 0 ? { sequence } : { sequence, refused: "status 400" })),
    77,
  );
  expect(spool.readOldest("shop", 20, large)).toEqual([]);
  // A tenth of the limit holds nine of them.
  expect(spool.readLevel()).toEqual({ reports: 0, bytes: 0, deadLetters: 9, sites: {} });
  spool.close();
  const file = new DatabaseSync(path);
  const letters = file.prepare("SELECT body, reason, refused FROM dead_letters ORDER BY sequence").all();
  expect(letters.map(({ body }) => Number.parseInt(String(body), 10))).toEqual([
    3, 5, 7, 9, 11, 13, 15, 17, 19,
  ]);
  expect(letters[0]).toMatchObject({ reason: "status 400", refused: 77 });
  file.close();
});

test("changes nothing when a report is settled twice or is unknown", () => {
  const spool = openSpool(path, large);
  spool.append([entry("a"), entry("b")]);
  const [first] = spool.readOldest("shop", 1, large);
  const settlement = { sequence: first?.sequence ?? 0 };
  spool.settle([settlement, settlement, { sequence: 999, refused: "x" }], 2);
  expect(spool.readLevel()).toMatchObject({ reports: 1, deadLetters: 0 });
  spool.close();
});

test("never uses a sequence again, even after the newest row is removed", () => {
  const spool = openSpool(path, large);
  spool.append([entry("a")]);
  const [first] = spool.readOldest("shop", 1, large);
  spool.settle([{ sequence: first?.sequence ?? 0 }], 2);
  spool.append([entry("b")]);
  expect(spool.readOldest("shop", 1, large)[0]?.sequence).toBeGreaterThan(first?.sequence ?? 0);
  spool.close();
});

test("creates a file that only its owner can read, and refuses later formats and other files", () => {
  openSpool(path, large).close();
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const file = new DatabaseSync(path);
  file.exec("PRAGMA user_version = 2");
  file.close();
  expect(() => openSpool(path, large)).toThrow("format 2");
  expect(() => openSpool(fileURLToPath(import.meta.url), large)).toThrow();
});

test("reports a full disk, and has each kept report afterwards", async () => {
  const program = `
    import { openSpool } from "#src/intake/spool.ts";
    const spool = openSpool(${JSON.stringify(path)}, 1e9);
    let kept = 0;
    try { for (;;) { spool.append([{ site: "shop", index: "i", received: 1, body: "x".repeat(5000) }]); kept += 1; } }
    catch (error) { console.log(JSON.stringify({ kept, told: String(error), level: spool.readLevel().reports })); }
  `;
  // Files of at most a megabyte; without the trap the system would end the program instead of failing the write.
  const command = 'trap "" XFSZ; ulimit -f 2000; exec "$0" --input-type=module-typescript -e "$1"';
  const { stdout } = await promisify(execFile)("sh", ["-c", command, process.execPath, program]);
  const { kept, told, level } = JSON.parse(stdout);
  expect(kept).toBeGreaterThan(10);
  expect(told).toMatch(/disk|full/i);
  expect(level).toBe(kept);
  const spool = openSpool(path, 1e9);
  expect(spool.readOldest("shop", 1_000, 1e9)).toHaveLength(kept);
  spool.close();
});

test("refuses new reports on a nearly full disk, so that delivered ones can be removed", () => {
  let room = 1_500;
  const spool = openSpool(path, 1e9, () => room);
  expect(spool.append([entry("x".repeat(800)), entry("y".repeat(800))])).toEqual([true, false]);
  room = -1;
  expect(spool.append([entry("")])).toEqual([false]);
  const [first] = spool.readOldest("shop", 10, large);
  spool.settle([{ sequence: first?.sequence ?? 0 }], 1);
  expect(spool.readLevel()).toMatchObject({ reports: 0, bytes: 0 });
  room = 1_500;
  expect(spool.append([entry("z")])).toEqual([true]);
  spool.close();
});

describe("the spool in its thread", () => {
  test("answers each of many simultaneous reports", async () => {
    const spooler = await startSpoolClient({ path, limitBytes: 100_000 });
    const kept = await Promise.all(
      Array.from({ length: 100 }, (_, n) => spooler.append(entry(`${n}`.padEnd(1_000)))),
    );
    // 83 of 1,200 bytes each.
    expect(kept.filter(Boolean)).toHaveLength(83);
    expect(kept.indexOf(false)).toBe(83);
    const spooled = await spooler.readOldest("shop", 200, large);
    expect(spooled.map(({ body }) => Number(body))).toEqual(Array.from({ length: 83 }, (_, n) => n));
    await spooler.settle(spooled.slice(1).map(({ sequence }) => ({ sequence })));
    expect(await spooler.readLevel()).toMatchObject({ reports: 1 });
    await spooler.close();
  });

  test("replaces a file that turns out damaged while it runs", async () => {
    const events: SpoolEvent[] = [];
    const spooler = await startSpoolClient({
      path,
      limitBytes: 1e9,
      onEvent: (event) => events.push(event),
    });
    // More than the thread holds in memory.
    await Promise.all(Array.from({ length: 4_000 }, (_, n) => spooler.append(entry(`${n}`.padEnd(2_500)))));
    const bytes = readFileSync(path);
    writeFileSync(path, bytes.fill(0, 1_000 * 4_096, 1_020 * 4_096));
    expect(await spooler.append(entry("after"))).toBe(true);
    const spooled = await spooler.readOldest("shop", 10_000, 1e9);
    // One report fits a page.
    expect(spooled.length).toBeGreaterThan(3_970);
    expect(spooled.length).toBeLessThan(4_000);
    expect(bodies(spooled).slice(0, 900).map(Number)).toEqual(Array.from({ length: 900 }, (_, n) => n));
    expect(await spooler.append(entry("later"))).toBe(true);
    expect((await spooler.readOldest("shop", 10_000, 1e9)).at(-1)?.body).toBe("later");
    expect(events).toMatchObject([{ kind: "replaced", replacement: { complete: false } }]);
    await spooler.close();
  });

  test("keeps reports that come while a file turns out damaged", async () => {
    const spooler = await startSpoolClient({ path, limitBytes: 1e9 });
    await Promise.all(Array.from({ length: 4_000 }, (_, n) => spooler.append(entry(`${n}`.padEnd(2_500)))));
    const bytes = readFileSync(path);
    writeFileSync(path, bytes.fill(0, 1_000 * 4_096, 1_020 * 4_096));
    // Asked at once: the read finds the damage, and the others wait behind it.
    const read = spooler.readOldest("shop", 10_000, 1e9);
    const kept = spooler.append(entry("meanwhile", { site: "blog" }));
    const level = spooler.readLevel();
    expect(await kept).toBe(true);
    const reports = (await read).length;
    expect(reports).toBeLessThan(4_000);
    expect((await level).reports - reports).toBe(1);
    expect(bodies(await spooler.readOldest("blog", 10, large))).toEqual(["meanwhile"]);
    await spooler.close();
  });

  test("starts without a file that can be used, and says so", async () => {
    const events: SpoolEvent[] = [];
    writeFileSync(join(folder, "deep"), "no folder");
    const spooler = await startSpoolClient({
      path,
      limitBytes: large,
      onEvent: (event) => events.push(event),
    });
    await expect(spooler.append(entry("lost"))).rejects.toThrow("the spool cannot be used: ");
    await expect(spooler.readLevel()).rejects.toThrow("the spool cannot be used: ");
    expect(events).toMatchObject([{ kind: "unusable", path, reason: expect.stringContaining("deep") }]);
    await spooler.close();
  });
});

describe("the lock of a spool", () => {
  /** Starts a process that opens the spool and waits to be ended; resolves with what it prints first. */
  async function startOwner(spool: string) {
    const program = `
      import { startSpoolClient } from "${new URL("../../src/intake/spool-client.ts", import.meta.url)}";
      const options = { path: ${JSON.stringify(spool)}, limitBytes: 1e6 };
      await startSpoolClient(options).then(() => console.log("open"), ({ message }) => console.log(message));
      setInterval(() => {}, 1000);
    `;
    const file = join(folder, "owner.mts");
    writeFileSync(file, program);
    const child = spawn(process.execPath, [file]);
    const ended = once(child, "exit");
    const [line] = await once(child.stdout, "data");
    return { child, ended, line: String(line).trim() };
  }

  test("refuses a second process, also by a link, until the first is killed", async () => {
    const link = join(folder, "link.db");
    symlinkSync(path, link);
    const first = await startOwner(link);
    expect(first.line).toBe("open");
    for (const name of [path, link]) {
      const second = await startOwner(name);
      expect(second.line).toBe("another process of readout uses it; give each process a spool of its own");
      second.child.kill("SIGKILL");
      await second.ended;
    }
    first.child.kill("SIGKILL");
    await first.ended;
    const third = await startOwner(link);
    expect(third.line).toBe("open");
    third.child.kill("SIGKILL");
    await third.ended;
  });

  test("is released when the client closes", async () => {
    const first = await startSpoolClient({ path, limitBytes: large });
    await expect(startSpoolClient({ path, limitBytes: large })).rejects.toThrow(SpoolInUse);
    await first.close();
    await (await startSpoolClient({ path, limitBytes: large })).close();
  });

  test("lets other programs read the spool", async () => {
    const spooler = await startSpoolClient({ path, limitBytes: large });
    await spooler.append(entry("a"));
    const reader = new DatabaseSync(path, { readOnly: true });
    expect(reader.prepare("SELECT body FROM reports").all()).toMatchObject([{ body: "a" }]);
    reader.close();
    await spooler.close();
  });

  test("opens a new spool beside a file that must not be written", async () => {
    const program = `
      import { chmodSync, chownSync } from "node:fs";
      import { openOrReplaceSpool } from "#src/intake/spool-recovery.ts";
      import { openSpool } from "#src/intake/spool.ts";
      const path = ${JSON.stringify(path)};
      const spool = openSpool(path, 1e6);
      spool.append([{ site: "shop", index: "i", received: 1, body: "kept" }]);
      spool.close();
      chmodSync(path, 0o444);
      if (process.getuid() === 0) {
        // The rights of a file bind everybody but root.
        chownSync(${JSON.stringify(join(folder, "deep"))}, 65534, 65534);
        chmodSync(${JSON.stringify(folder)}, 0o755);
        process.setuid(65534);
      }
      const { spool: next, replacement } = openOrReplaceSpool(path, 1e6, 0);
      console.log(JSON.stringify({ replacement, level: next.readLevel() }));
    `;
    const { stdout } = await promisify(execFile)(process.execPath, [
      "--input-type=module-typescript",
      "-e",
      program,
    ]);
    expect(JSON.parse(stdout)).toMatchObject({
      replacement: { reason: expect.stringContaining("EACCES"), reports: 1, complete: true },
      level: { reports: 1 },
    });
  });
});
