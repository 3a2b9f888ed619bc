import { describe, expect, test } from "vitest";
import { listIssues } from "./fixture.ts";

describe("front-end reports", () => {
  const withParts = (one: string, two: string) => `backends:
  elk: { kind: elastic, url: "http://a" }
  old: { kind: elastic, url: "http://b" }
sites:
  shop: { frontend: ${one} }
  blog: { frontend: ${two} }
`;
  const part = (over: string, backend = "elk") =>
    `{ keys: ["${over} ${backend}"], backend: ${backend}, index: "${over}" }`;

  test.each([
    ["r", "r-2"],
    ["shop-{date}", "blog-{date}"],
    ["r-{month}-shop", "s-{month}-shop"],
  ])("the indices %s and %s cannot share reports", (one, two) => {
    expect(listIssues(withParts(part(one), part(two)))).toEqual([]);
  });

  test.each([
    ["r", "r"],
    ["r-{date}", "r-blog-{date}"],
    ["r-{date}", "r-blog"],
    ["r-blog-{month}", "r-{date}"],
  ])("refuses the indices %s and %s, which could share reports", (one, two) => {
    const own = "may hold reports of shop too: a site needs an index of its own";
    const issues = listIssues(withParts(part(one), `{ keys: [other], backend: elk, index: "${two}" }`));
    expect(issues).toEqual([`6 sites.blog.frontend.index: ${own}`]);
    expect(listIssues(withParts(part(one), `{ keys: [other], backend: old, index: "${two}" }`))).toEqual([]);
  });

  test("refuses the index of the rollups, also of the name that it has by default", () => {
    const sites = (index: string) => withParts(part(index), part("other"));
    const withRollups = (rollups: string, index: string) =>
      listIssues(`rollups: ${rollups}\n${sites(index)}`);
    const own = "6 sites.shop.frontend.index: may hold the rollups too: a site needs an index of its own";
    expect(withRollups("{ backend: elk, index: figures }", "figures")).toEqual([own]);
    expect(withRollups("{ backend: elk, index: figures-a }", "figures-{date}")).toEqual([own]);
    expect(withRollups("{ backend: elk }", "readout-rollups")).toEqual([own]);
    expect(withRollups("{ backend: old, index: figures }", "figures")).toEqual([]);
    expect(listIssues(sites("readout-rollups"))).toEqual([]);
  });

  test.each(["a,b", "a*", "a b", "{year}", "a}"])("refuses the index name %s", (index) => {
    expect(listIssues(withParts(part(index), part("other", "old")))).toEqual([
      "5 sites.shop.frontend.index: expected the name of one index, with {date} or {month} or neither",
    ]);
  });

  test("refuses a key of two sites", () => {
    const keyed = (index: string) => `{ keys: [a, "\${SECRET}"], backend: elk, index: ${index} }`;
    expect(listIssues(withParts(keyed("x"), keyed("y")))).toEqual([
      "6 sites.blog.frontend.keys.0: is a key of shop already",
      "6 sites.blog.frontend.keys.1: is a key of shop already",
    ]);
  });
});
