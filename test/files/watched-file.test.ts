// A file that changes, looked at as often as the test says.
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { watchFile } from "#src/files/watched-file.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-file-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** Watches a file; `look` resolves to how often a change was told of after one more look. */
function watch(path: string) {
  const changed = vi.fn();
  let paused = Promise.withResolvers<void>();
  let resume = () => {};
  const pause = () =>
    new Promise<void>((resolve) => {
      resume = resolve;
      paused.resolve();
    });
  watchFile(path, changed, new AbortController().signal, pause);
  const look = async (): Promise<number> => {
    paused = Promise.withResolvers();
    resume();
    await paused.promise;
    return changed.mock.calls.length;
  };
  return { look };
}

test("a change is told of once the file stays as it is", async () => {
  const path = join(folder, "readout.yaml");
  writeFileSync(path, "a");
  const { look } = watch(path);
  expect(await look()).toBe(0);
  writeFileSync(path, "ab");
  expect(await look()).toBe(0);
  writeFileSync(path, "abc");
  expect(await look()).toBe(0);
  expect(await look()).toBe(1);
  expect(await look()).toBe(1);
});

test("a file that is created or deleted has changed", async () => {
  const path = join(folder, "secret");
  const { look } = watch(path);
  writeFileSync(path, "a");
  expect([await look(), await look(), await look()]).toEqual([0, 1, 1]);
  rmSync(path);
  expect([await look(), await look(), await look()]).toEqual([1, 2, 2]);
});

test("a file that is missing for a moment has not changed", async () => {
  const path = join(folder, "readout.yaml");
  const hidden = join(folder, "hidden");
  writeFileSync(path, "a");
  const { look } = watch(path);
  renameSync(path, hidden);
  expect(await look()).toBe(0);
  renameSync(hidden, path);
  expect([await look(), await look()]).toEqual([0, 0]);
});
