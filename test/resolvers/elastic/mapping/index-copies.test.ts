// Which indices hold the documents of another once more, by their settings and names.
import { expect, test } from "vitest";
import { adviseOnCopies, findCopies, listFormerNames } from "#resolvers/elastic/mapping/index-copies.ts";
import { createFakeIndex, openIndices } from "../../../support/elastic/layout-harness.ts";

const resizedFrom = (uuid: string) => ({ resize: { source: { name: "gone", uuid } } });

test.each<[string, Readonly<Record<string, object>>, Readonly<Record<string, string>>]>([
  [
    "OpenSearch's policies",
    { a: { uuid: "1" }, a_shrunken: { uuid: "2", ...resizedFrom("1") } },
    { a_shrunken: "a" },
  ],
  ["a name of one's own", { a: { uuid: "1" }, small: { uuid: "2", ...resizedFrom("1") } }, { small: "a" }],
  ["an original that is gone", { a_shrunken: { uuid: "2", ...resizedFrom("1") } }, {}],
  [
    "another index of the original's name",
    { gone: { uuid: "9" }, b: { uuid: "2", ...resizedFrom("1") } },
    {},
  ],
  ["a mounted snapshot", { a: {}, m: { store: { snapshot: { index_name: "a" } } } }, { m: "a" }],
  ["a snapshot mounted under its own name", { a: { store: { snapshot: { index_name: "a" } } } }, {}],
  [
    "a lifecycle under way",
    { "a-1": {}, "shrink-x1y2-a-1": {}, "partial-a-1": {} },
    { "shrink-x1y2-a-1": "a-1", "partial-a-1": "a-1" },
  ],
  ["names that only begin alike", { app: {}, "partial-payments": {}, "shrink-wrap": {} }, {}],
])("findCopies: %s", (_, settings, copies) => {
  const found = findCopies(new Map(Object.entries(settings).map(([name, own]) => [name, { ...own }])));
  expect(Object.fromEntries(found)).toEqual(copies);
});

test.each([
  ["shrink-a1b2-orders-000007", ["a1b2-orders-000007", "orders-000007"]],
  ["partial-restored-orders-1", ["restored-orders-1", "orders-1"]],
  ["orders_shrunken", ["orders"]],
  ["partially-orders", []],
])("listFormerNames: %s", (index, names) => expect(listFormerNames(index)).toEqual(names));

test("adviseOnCopies excludes their common end where it takes nothing else away", () => {
  const copies = new Map([["a_shrunken", "a"]]);
  expect(adviseOnCopies("a*", copies, ["a", "a_shrunken"])).toBe("let the pattern end in ,-*_shrunken");
  const advice = "take them out of the pattern (a*,-a_shrunken)";
  expect(adviseOnCopies("a*", copies, ["a", "a_shrunken", "ab_shrunken"])).toBe(advice);
});

test("check tells that the lines of copies are shown twice", async () => {
  const [held, copied] = [1, 2].map(() => createFakeIndex([{ message: "m", "log.level": "info" }]));
  if (held === undefined || copied === undefined) throw new Error("two indices");
  const { read, report } = await openIndices({
    "logs-000001": held,
    "logs-000001_shrunken": { ...copied, settings: resizedFrom("logs-000001") },
  });
  expect(await read()).toHaveLength(2);
  expect((await report()).limitations).toContain(
    "logs-000001_shrunken: copies of other indices, whose lines are shown twice; let the pattern end in ,-*_shrunken",
  );
  const originals = { index: "logs-*,-*_shrunken" };
  expect(await read("", originals)).toHaveLength(1);
  expect((await report(originals)).limitations.join()).not.toContain("copies");
});
