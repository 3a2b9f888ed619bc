// Which paths bodies have, and what is done where they are too many.
import { expect, test } from "vitest";
import { listBodyPaths } from "#src/mcp/body-paths.ts";
import { countTurns } from "../support/event-loop-turns.ts";

test("paths are those of scalars, each once and sorted, spelled as queries spell them", async () => {
  const bodies = [
    '{"b":{"c":1,"d":null},"a.x":[{"k":true},{"k":2,"l":"v"}]}',
    '{"b":{"c":2}}',
    "no JSON",
    "5",
  ];
  expect(await listBodyPaths(bodies)).toEqual({ paths: ["a\\.x.k", "a\\.x.l", "b.c"] });
});

test("what is left out is noted: deep and long paths, and those beyond the bound", async () => {
  const deep = (levels: number) => `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`;
  expect(await listBodyPaths([deep(8), deep(9), `{"${"k".repeat(501)}":1}`])).toEqual({
    paths: ["a.a.a.a.a.a.a.a"],
    note: "Paths deeper than 8 levels or longer than 500 characters are left out.",
  });
  const many = JSON.stringify(Object.fromEntries(Array.from({ length: 10_001 }, (_, n) => [`k${n}`, n])));
  const { paths, note } = await listBodyPaths([many]);
  expect(paths).toHaveLength(10_000);
  expect(note).toBe("Only the first 10000 paths are listed.");
});

test("others get their turn while many paths are listed", async () => {
  const body = JSON.stringify(Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`k${n}`, n])));
  const turns = await countTurns(() => listBodyPaths(Array.from({ length: 10 }, () => body)));
  expect(turns).toBeGreaterThan(2);
});
