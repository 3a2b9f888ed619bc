// What `init` reads of a cluster with more patterns than it inspects, over a search server in memory.
import { expect, test } from "vitest";
import { createFakeIndex, openIndices } from "../../support/elastic/layout-harness.ts";

test("the first hundred patterns are inspected, and all that are requested", async () => {
  const index = createFakeIndex([{ value: 1 }]);
  const prefixes = Array.from({ length: 103 }, (_, at) => `p${String(at).padStart(3, "0")}`);
  const names = prefixes.flatMap((prefix) => ["a", "b", "c"].map((end) => `${prefix}-${end}`));
  const { fake, survey } = await openIndices(Object.fromEntries(names.map((name) => [name, index])));
  const { notes = [] } = (await survey([])) ?? {};
  const skipped = ["p100-*", "p101-*", "p102-*"];
  expect(notes.filter((note) => note.includes("--index"))).toEqual(
    skipped.map((pattern) => `${pattern}: not among the first 100 patterns; name it with --index`),
  );
  const isAsked = (pattern: string) => fake.requests.some(({ path }) => path.startsWith(`/${pattern}`));
  expect(isAsked("p099-*")).toBe(true);
  expect(skipped.filter(isAsked)).toEqual([]);
  const requested = await survey(prefixes.map((prefix) => `${prefix}-*`));
  expect(requested?.notes?.filter((note) => note.includes("--index"))).toEqual([]);
  expect(skipped.filter(isAsked)).toEqual(skipped);
});
