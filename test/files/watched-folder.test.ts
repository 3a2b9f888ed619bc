// Files that change or cannot be read, and a folder that takes the place of another one.
import { mkdirSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConfigError } from "#src/core/errors.ts";
import { watchFolder } from "#src/files/watched-folder.ts";
import type { LogEvent } from "#src/store/backend.ts";

let parent = "";
beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), "readout-folder-"));
  for (const name of ["old", "new"]) {
    mkdirSync(join(parent, name));
    writeFileSync(join(parent, name, "file"), `in the ${name} one`);
  }
});
afterEach(() => rmSync(parent, { recursive: true }));

/** Looks at the folder so often that looks go on while another one is prepared. */
async function watch() {
  const state = {
    folder: join(parent, "old"),
    contents: [] as readonly string[],
    changes: 0,
    reads: 0,
    /** The code of an error that each read ends with. */
    failure: undefined as string | undefined,
    logged: [] as LogEvent[],
  };
  const watched = await watchFolder<string>({
    folder: () => state.folder,
    isRead: () => true,
    parse: (text) => {
      state.reads += 1;
      if (text === "wrong") throw new ConfigError("file", [{ path: "", message: "is wrong" }]);
      if (state.failure !== undefined) throw Object.assign(new Error("failed"), { code: state.failure });
      return text;
    },
    change: (contents) => {
      state.contents = [...contents.values()];
      state.changes += 1;
    },
    messages: { unreadable: "unreadable", wrong: "wrong" },
    log: (event) => state.logged.push(event),
    interval: 1,
  });
  return { state, watched };
}

test("its files count from when they are taken, and not before", async () => {
  const { state, watched } = await watch();
  const take = await watched.prepare(join(parent, "new"));
  expect(state.contents).toEqual(["in the old one"]);
  state.folder = join(parent, "new");
  take();
  expect(state.contents).toEqual(["in the new one"]);
  // Looks of before do not bring the old ones back.
  for (let again = 0; again < 20; again += 1) await watched.prepare(state.folder);
  expect(state.contents).toEqual(["in the new one"]);
  expect(state.changes).toBe(2);
  watched.close();
});

test("a folder that cannot be read has no files, also not those of the one before", async () => {
  const { state, watched } = await watch();
  const path = join(parent, "old", "file");
  const take = await watched.prepare(path);
  state.folder = path;
  take();
  expect(state.contents).toEqual([]);
  watched.close();
});

test("the same folder as before is read anew", async () => {
  const { state, watched } = await watch();
  watched.close();
  writeFileSync(join(parent, "old", "more"), "more");
  (await watched.prepare(state.folder))();
  expect(state.contents).toEqual(["in the old one", "more"]);
});

test("a file that cannot be read is logged once for each reason, and read as soon as it can be", async () => {
  const { state, watched } = await watch();
  const file = join(parent, "old", "file");
  const waitForReads = async () => {
    const before = state.reads;
    await expect.poll(() => state.reads).toBeGreaterThan(before + 3);
  };
  state.failure = "EMFILE";
  writeFileSync(file, "changed");
  await waitForReads();
  expect(state.contents).toEqual([]);
  state.failure = "EIO";
  await waitForReads();
  expect(state.changes).toBe(3);
  state.failure = undefined;
  await expect.poll(() => state.contents).toEqual(["changed"]);
  const toEvent = (code: string) => ({
    level: "error",
    message: "wrong",
    file,
    reason: `${file}: cannot be read (${code})`,
    err: expect.objectContaining({ code }),
  });
  expect(state.logged).toEqual([toEvent("EMFILE"), toEvent("EIO")]);
  watched.close();
});

test("a wrong file is read once", async () => {
  const { state, watched } = await watch();
  writeFileSync(join(parent, "old", "file"), "wrong");
  await expect.poll(() => state.logged).toHaveLength(1);
  const { reads } = state;
  for (let again = 0; again < 20; again += 1) await watched.prepare(state.folder);
  expect(state.reads).toBe(reads);
  expect(state.logged).toEqual([
    { level: "error", message: "wrong", file: join(parent, "old", "file"), reason: "file: is wrong" },
  ]);
  watched.close();
});

test("a file that keeps its size and its time of change is read anew", async () => {
  const { state, watched } = await watch();
  const file = join(parent, "old", "file");
  utimesSync(file, 1, 1);
  await expect.poll(() => state.reads).toBeGreaterThan(1);
  const { size } = statSync(file);
  writeFileSync(file, "x".repeat(size));
  utimesSync(file, 1, 1);
  await expect.poll(() => state.contents).toEqual(["x".repeat(size)]);
  watched.close();
});
