// What the program prints arrives complete, or its exit code says that it did not.
import { existsSync } from "node:fs";
import { afterAll, expect, test } from "vitest";
import { endAll, program, start } from "../support/process.ts";

afterAll(endAll);

/** Runs a line of the shell in which `"$@"` is the program with its arguments. */
const runInShell = (line: string, ...args: string[]) =>
  start("sh", ["-c", line, "sh", process.execPath, ...program, ...args]);

test.concurrent("a reader that begins late gets all", async ({ expect }) => {
  // Later than half a second after the command has ended, which no output of it shows.
  const late = runInShell('"$@" | { sleep 3; cat; }', "schema");
  const prompt = runInShell('"$@"', "schema");
  expect(await late.ended).toBe(0);
  expect(await prompt.ended).toBe(0);
  expect(prompt.told.out).toMatch(/\}\n$/);
  expect(late.told.out.length).toBe(prompt.told.out.length);
});

test.skipIf(!existsSync("/dev/full"))("output that cannot be written is a failure", async () => {
  for (const args of [["schema"], ["--help"], ["token", "new", "--user", "ana", "--site", "shop"]]) {
    const { told, ended } = runInShell('"$@" > /dev/full', ...args);
    expect(await ended, args.join(" ")).toBe(1);
    expect(told.err).toBe("readout: standard output cannot be written (ENOSPC)\n");
  }
});

test("a reader that has enough is no failure", async () => {
  const { told, ended } = runInShell('{ "$@"; echo "$?" >&2; } | head -n 1', "schema");
  expect(await ended).toBe(0);
  expect(told.err).toBe("0\n");
});
