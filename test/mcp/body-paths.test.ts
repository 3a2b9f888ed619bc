// Which paths bodies have, and what is done where they are too many.
import fc from "fast-check";
import { expect, test } from "vitest";
import { parse } from "#src/log-query/parse.ts";
import { listBodyPaths } from "#src/mcp/body-paths.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { sampleRuns } from "../support/law-runs.ts";

test("paths are those of scalars, each once and sorted, spelled as queries spell them", async () => {
  const bodies = [
    '{"b":{"c":1,"d":null},"a.x":[{"k":true},{"k":2,"l":"v"}]}',
    '{"b":{"c":2}}',
    "no JSON",
    "5",
  ];
  expect(await listBodyPaths(bodies)).toEqual({ paths: ["a\\.x.k", "a\\.x.l", "b.c"] });
});

test("a query that is made of a path asks for the value at its keys, whatever they hold", async () => {
  const key = fc.oneof(
    fc.constantFrom("message", "severity", "attributes", "n_string", "user id", "AND", "0", ""),
    fc.string({ unit: fc.constantFrom(...'ab.\\"()[]=:!<> \t\n_'), maxLength: 6 }),
    fc.string({ unit: fc.constantFrom("\0", "\ud800", "é", "😀"), maxLength: 3 }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(key, { minLength: 1, maxLength: 8 }), async (keys) => {
      const body = keys.reduceRight<unknown>((value, key) => ({ [key]: value }), "x");
      const { paths } = await listBodyPaths([JSON.stringify(body)]);
      const isNameable = keys.join("") !== "" || keys.length > 1;
      const isText = keys.every((key) => key.isWellFormed() && !key.includes("\0"));
      expect(paths).toHaveLength(isNameable && isText ? 1 : 0);
      for (const path of paths)
        expect(parse(`${path}=x`), path).toMatchObject({ field: { kind: "json", path: keys }, value: "x" });
    }),
    { numRuns: sampleRuns(2_000) },
  );
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

test("no paths are listed any more once the request is aborted", async () => {
  const body = JSON.stringify(Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`k${n}`, n])));
  const abort = new AbortController();
  const bodies = Array.from({ length: 1_000 }, () => body);
  const found = listBodyPaths(bodies, abort.signal);
  abort.abort();
  await expect(found).rejects.toBe(abort.signal.reason);
});
