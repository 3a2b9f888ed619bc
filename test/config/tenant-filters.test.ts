import { expect, test } from "vitest";
import { kinds } from "../../resolvers/index.ts";
import { listIssues } from "./fixture.ts";

const file = (sites: string) => `backends:
  elk: { kind: elastic, url: "http://elk" }
  old: { kind: elastic, url: "http://old" }
  prom: { kind: prometheus, url: "http://prom" }
sites:
${sites}`;

test("a tenant filter that cannot hold is reported wherever one may stand, with the other faults", () => {
  const sites = `  one:
    logs:
      backend: elk
      sources:
        good: { index: a, where: a=b }
        bad: { index: a, where: word }
        spread:
          backends:
            - { backend: elk, index: a, where: a=b }
            - { backend: old, index: a, where: "a>5" }
    traces: { backend: elk, index: a, where: alone, layout: "" }
  two:
    traces:
      - { backend: elk, index: a, where: other }
      - { backend: old, index: a }
`;
  expect(listIssues(file(sites))).toEqual([
    "11 sites.one.logs.sources.bad.where: no = in word",
    "15 sites.one.logs.sources.spread.backends.1.where: no = in a>5",
    "16 sites.one.traces.where: no = in alone",
    "16 sites.one.traces.layout: must not be empty",
    "19 sites.two.traces.0.where: no = in other",
  ]);
});

test("a fault of a tenant filter shows no secret, and none is looked for where there is no text", () => {
  const sites = (where: string, backend = "elk") =>
    file(`  one: { traces: { backend: ${backend}, index: a, where: ${where} } }\n`);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax
  expect(listIssues(sites('"${SECRET}"'))).toEqual(["6 sites.one.traces.where: no = in …"]);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax
  expect(listIssues(sites('"${NONE}"'))).toHaveLength(1);
  expect(listIssues(sites('""'))).toEqual(["6 sites.one.traces.where: must not be empty"]);
  expect(listIssues(sites("[a]"))).toEqual(["6 sites.one.traces.where: expected text"]);
  // A kind without tenant filters judges by itself.
  expect(listIssues(sites("word", "prom"))).toEqual([]);
});

test("the place of a fault is told, but not in a text that was put together", () => {
  const where = (text: string) =>
    listIssues(file(`  one: { traces: { backend: elk, index: a, where: ${JSON.stringify(text)} } }\n`), {
      kinds,
    });
  expect(where("abc=b AND )")).toEqual(["6 sites.one.traces.where: expected an expression at character 11"]);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax
  expect(where("${SECRET}=b AND )")).toEqual(["6 sites.one.traces.where: expected an expression"]);
});
