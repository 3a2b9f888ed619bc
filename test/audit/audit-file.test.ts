// The file of the audit log: whole lines, for its owner alone, and a count of what a crash may have lost.
import {
  appendFile,
  link,
  mkdtemp,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type AuditFile, findAuditFileFault, openAuditFile } from "#src/audit/audit-file.ts";
import { fromMillis } from "#src/core/time.ts";
import { sampleRuns } from "../support/law-runs.ts";

const at = fromMillis(0);
const { signal } = new AbortController();
let folder: string;
let files = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-audit-"));
});
afterAll(() => rm(folder, { recursive: true }));

function namePath(): string {
  files += 1;
  return join(folder, String(files), "audit.jsonl");
}
const append = (file: AuditFile, ...lines: readonly string[]) =>
  Promise.all(lines.map((line) => file.append(`${line}\n`, at, signal)));
const readLines = async (path: string) => (await readFile(path, "utf8")).split("\n").slice(0, -1);

type Write = (bytes: Buffer, offset: number) => Promise<{ bytesWritten: number }>;

/** Has each write to any file go through `intercept` until it is restored. The file at the path exists. */
async function interceptWrites(
  path: string,
  intercept: (write: Write, ...part: Parameters<Write>) => ReturnType<Write>,
) {
  const probe = await open(path);
  const handles: { write: Write } = Object.getPrototypeOf(probe);
  await probe.close();
  const { write } = handles;
  return vi.spyOn(handles, "write").mockImplementation(function (this: unknown, ...part) {
    return intercept((...own) => write.apply(this, own), ...part);
  });
}

test("has all lines in the order in which they came, across runs, and is readable to its owner alone", async () => {
  const runs = fc.array(fc.array(fc.stringMatching(/^[a-z]{0,9}$/), { maxLength: 20 }), { maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(runs, fc.constantFrom("always" as const, "1s" as const), async (lists, sync) => {
      const path = namePath();
      for (const lines of lists) {
        const file = await openAuditFile(path, { sync });
        expect(file.unsynced).toBe(0);
        await append(file, ...lines);
        await file.close();
        expect((await stat(path)).mode & 0o777).toBe(0o600);
      }
      if (lists.length > 0) expect(await readLines(path)).toEqual(lists.flat());
    }),
    { numRuns: sampleRuns(15, { share: 3, least: 5 }) },
  );
});

test("tells why a file could not be opened, and makes nothing", async () => {
  const path = namePath();
  expect(await findAuditFileFault(path)).toBeUndefined();
  await expect(stat(join(path, ".."))).rejects.toThrow("ENOENT");
  await (await openAuditFile(path, { sync: "1s" })).close();
  await appendFile(path, "line\n");
  expect(await findAuditFileFault(path)).toBeUndefined();
  expect(await readLines(path)).toEqual(["line"]);

  expect(await findAuditFileFault(join(path, ".."))).toBe("cannot be opened (EISDIR)");
  expect(await findAuditFileFault(join(path, "below"))).toBe("cannot be opened (ENOTDIR)");
  await symlink(path, `${path}.link`);
  expect(await findAuditFileFault(`${path}.link`)).toBe("is a link");
  await link(path, `${path}.twin`);
  expect(await findAuditFileFault(path)).toBe("has another name (a hard link)");
});

test("takes rights away that a file has too many", async () => {
  const path = namePath();
  await (await openAuditFile(path, { sync: "1s" })).close();
  const other = `${path}.other`;
  await writeFile(other, "", { mode: 0o644 });
  await (await openAuditFile(other, { sync: "1s" })).close();
  expect((await stat(other)).mode & 0o777).toBe(0o600);
});

test("refuses links and what is no file", async () => {
  const path = namePath();
  await (await openAuditFile(path, { sync: "1s" })).close();
  await symlink(path, `${path}.link`);
  await expect(openAuditFile(`${path}.link`, { sync: "1s" })).rejects.toThrow("is a link");
  await expect(openAuditFile("/dev/null", { sync: "1s" })).rejects.toThrow("is no file");
  await link(path, `${path}.name`);
  await expect(openAuditFile(path, { sync: "1s" })).rejects.toThrow("has another name");
});

describe("what was not synced", () => {
  test("is counted at the next start, and what was is not", async () => {
    const path = namePath();
    const killed = await openAuditFile(path, { sync: "1s" });
    await append(killed, "a", "b");
    await expect.poll(() => readFile(join(path, "..", ".audit.jsonl.synced"), "utf8")).toMatch(/^\d+ 4 /);
    await append(killed, "c", "d", "e");
    const next = await openAuditFile(path, { sync: "1s" });
    expect(next.unsynced).toBe(3);
    await next.close();
    await killed.close();
  });

  test("is nothing where each answer waits for the disk", async () => {
    const path = namePath();
    const killed = await openAuditFile(path, { sync: "always" });
    await append(killed, "a", "b", "c");
    const next = await openAuditFile(path, { sync: "always" });
    expect(next.unsynced).toBe(0);
    await Promise.all([next.close(), killed.close()]);
  });

  test("is also a line that was written in part, which gets an end", async () => {
    const path = namePath();
    const first = await openAuditFile(path, { sync: "1s" });
    await append(first, "a");
    await first.close();
    await appendFile(path, "b\nhal");
    const next = await openAuditFile(path, { sync: "1s" });
    expect(next.unsynced).toBe(2);
    await append(next, "c");
    await next.close();
    expect(await readLines(path)).toEqual(["a", "b", "hal", "c"]);
  });

  test("is all of a file that nothing is known of", async () => {
    const path = namePath();
    await (await openAuditFile(path, { sync: "1s" })).close();
    await rename(path, `${path}.1`);
    await writeFile(path, "a\nb\n");
    const next = await openAuditFile(path, { sync: "1s" });
    expect(next.unsynced).toBe(2);
    await next.close();
  });
});

test("goes on in a new file once the old one is renamed, and loses no line", async () => {
  const path = namePath();
  const file = await openAuditFile(path, { sync: "1s" });
  await append(file, "a", "b");
  await rename(path, `${path}.old`);
  const before = append(file, "c");
  file.reopen();
  await append(file, "d");
  await before;
  await file.close();
  expect([...(await readLines(`${path}.old`)), ...(await readLines(path))]).toEqual(["a", "b", "c", "d"]);
  expect(await readLines(path)).toContain("d");
});

test("is renamed when it would grow over its size, and only so many are kept", async () => {
  const path = namePath();
  const file = await openAuditFile(path, { sync: "1s", rotate: { bytes: 4_096, keep: 2 } });
  const lines = Array.from({ length: 60 }, (_, n) => `${n} ${"x".repeat(300)}`);
  for (const line of lines) await append(file, line);
  await file.close();
  const names = (await readdir(join(path, ".."))).filter((name) => !name.startsWith(".")).sort();
  expect(names).toEqual(["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]);
  const kept = (
    await Promise.all(names.toReversed().map((name) => readLines(join(path, "..", name))))
  ).flat();
  expect(kept).toEqual(lines.slice(-kept.length));
  const readSize = async (name: string) => (await stat(join(path, "..", name))).size;
  for (const name of names) expect(await readSize(name)).toBeLessThanOrEqual(4_096);
  // The file was renamed for no line before the one that did not fit.
  const [next = ""] = await readLines(path);
  expect((await readSize("audit.jsonl.1")) + `${next}\n`.length).toBeGreaterThan(4_096);
});

test("keeps the older files where the file is gone that it would rename, and opens it again", async () => {
  const path = namePath();
  const file = await openAuditFile(path, { sync: "1s", rotate: { bytes: 10, keep: 3 } });
  for (const line of ["first line", "second line", "third line", "fourth line"]) await append(file, line);
  await rename(path, `${path}.elsewhere`);
  for (const line of ["fifth line", "sixth line"]) await append(file, line);
  await file.close();
  const kept = await Promise.all([path, `${path}.1`, `${path}.2`, `${path}.3`].map(readLines));
  expect(kept).toEqual([["sixth line"], ["fifth line"], ["third line"], ["second line"]]);
});

test("takes a line that comes as soon as the one before is written", async () => {
  const path = namePath();
  const file = await openAuditFile(path, { sync: "1s" });
  for (let n = 0; n < 20; n += 1) await file.append(`${n}\n`, at, signal);
  await file.close();
  expect(await readLines(path)).toHaveLength(20);
});

test("a line that waits can be withdrawn, and one that is being written cannot", async () => {
  const path = namePath();
  const file = await openAuditFile(path, { sync: "1s" });
  const disk = Promise.withResolvers<void>();
  const stalled = await interceptWrites(path, async (write, ...part) => {
    await disk.promise;
    return write(...part);
  });
  const late = new AbortController();
  const written = file.append("written\n", at, late.signal);
  const withdrawn = file.append("withdrawn\n", at, late.signal);
  const kept = file.append("kept\n", at, signal);
  late.abort(new Error("too late"));
  await expect(withdrawn).rejects.toThrow("too late");
  disk.resolve();
  await Promise.all([written, kept]);
  stalled.mockRestore();
  await file.close();
  expect(await readLines(path)).toEqual(["written", "kept"]);
});

test("has no part of a line when the disk is full, and goes on when there is room", async () => {
  const path = namePath();
  const file = await openAuditFile(path, { sync: "1s" });
  await append(file, "a");
  const full = await interceptWrites(path, async (write, bytes, offset) => {
    if (offset > 0) throw Object.assign(new Error("no space"), { code: "ENOSPC" });
    return write(bytes.subarray(0, 3), 0);
  });
  await expect(append(file, "bbbbbb")).rejects.toThrow("no space");
  full.mockRestore();
  expect(await readFile(path, "utf8")).toBe("a\n");
  await append(file, "c");
  await file.close();
  expect(await readLines(path)).toEqual(["a", "c"]);
});
