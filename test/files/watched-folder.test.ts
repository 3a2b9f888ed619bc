// A folder that takes the place of another one.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { watchFolder } from "#src/files/watched-folder.ts";

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
  const state = { folder: join(parent, "old"), contents: [] as readonly string[], changes: 0 };
  const watched = await watchFolder<string>({
    folder: () => state.folder,
    isRead: () => true,
    parse: (text) => text,
    change: (contents) => {
      state.contents = [...contents.values()];
      state.changes += 1;
    },
    messages: { unreadable: "unreadable", wrong: "wrong" },
    log: () => {},
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
