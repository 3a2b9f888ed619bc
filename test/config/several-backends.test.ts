// Parts of a site that name several backends: what is taken, and what is reported where.
import { expect, test } from "vitest";
import { parseConfigInSteps } from "#src/config/config.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { env, kinds, listIssues, parse, readText } from "./fixture.ts";

const backends = `backends:
  old: { kind: elastic, url: "http://old:9200" }
  new: { kind: elastic, url: "http://new:9200" }
`;
const withLogs = (logs: string) => `${backends}sites: { s: { logs: ${logs} } }\n`;

test("log sources name a backend of their own, or several", () => {
  const { logs } =
    parse(
      withLogs(
        "{ backend: old, sources: { a: { index: i }, b: { backend: new, index: j }, " +
          "c: { dedupe: id, backends: [{ backend: old, index: k }, { backend: new, index: l, layout: ecs, where: x=y }] } } }",
      ),
    ).sites.s ?? {};
  expect(logs).toEqual({
    backend: "old",
    sources: {
      a: { index: "i", layout: "auto" },
      b: { backend: "new", index: "j", layout: "auto" },
      c: {
        dedupe: "id",
        backends: [
          { backend: "old", index: "k", layout: "auto" },
          { backend: "new", index: "l", layout: "ecs", where: "x=y" },
        ],
      },
    },
  });
});

test("the part needs no backend where each source has one; sources may have any name", () => {
  const sources =
    "{ '0': { backend: old, index: i }, '1': { backend: old, index: j }, backends: { backend: new, index: k } }";
  expect(Object.keys(parse(withLogs(`{ sources: ${sources} }`)).sites.s?.logs?.sources ?? {})).toHaveLength(
    3,
  );
});

test("layout files of every place are read by the kind of its backend", () => {
  const config = parse(
    withLogs(
      "{ sources: { a: { backends: [{ backend: old, index: i }, { backend: new, index: j, layout: mine.yaml }] } } }",
    ),
  );
  expect([...(config.backends.new?.layouts?.logs.keys() ?? [])]).toEqual(["mine.yaml"]);
  expect(config.backends.old?.layouts).toBeUndefined();
});

test.each([
  ["{ sources: { a: { index: i } } }", ["4 sites.s.logs.backend: is missing"]],
  [
    "{ sources: { a: { backends: [{ index: i }] } } }",
    ["4 sites.s.logs.sources.a.backends.0.backend: is missing"],
  ],
  [
    "{ backend: od, sources: { a: { index: i } } }",
    ['4 sites.s.logs.backend: unknown backend "od"; did you mean "old"?'],
  ],
  [
    "{ backend: old, sources: { a: { backend: nw, index: i } } }",
    ['4 sites.s.logs.sources.a.backend: unknown backend "nw"; did you mean "new"?'],
  ],
  [
    "{ sources: { a: { backends: [{ backend: old, index: i }, { backend: nw, index: j }] } } }",
    ['4 sites.s.logs.sources.a.backends.1.backend: unknown backend "nw"; did you mean "new"?'],
  ],
  [
    "{ sources: { a: { backends: [{ backend: old, index: i }, { backend: old, index: j }] } } }",
    [
      "4 sites.s.logs.sources.a.backends.1.backend: is named before: join the patterns of one backend by commas",
    ],
  ],
  ["{ sources: { a: { backends: [] } } }", ["4 sites.s.logs.sources.a.backends: names no backend"]],
  [
    "{ backend: old, sources: { a: { index: i, dedupe: id } } }",
    ["4 sites.s.logs.sources.a.dedupe: stands beside `backends` only"],
  ],
  [
    "{ sources: { a: { index: i, where: w, backends: [{ backend: old, index: i }] } } }",
    [
      "4 sites.s.logs.sources.a.index: stands in each of `backends`",
      "4 sites.s.logs.sources.a.where: stands in each of `backends`",
    ],
  ],
  [
    "{ sources: { a: { dedupe: ids, backends: [{ backend: old }] } } }",
    [
      '4 sites.s.logs.sources.a.dedupe: expected id; did you mean "id"?',
      "4 sites.s.logs.sources.a.backends.0.index: is missing",
    ],
  ],
  [
    "{ backend: old, sources: { a: { indx: i } } }",
    [
      "4 sites.s.logs.sources.a.index: is missing",
      '4 sites.s.logs.sources.a.indx: unknown key; did you mean "index"?',
    ],
  ],
])("reports what is wrong with %s", (logs, issues) => {
  expect(listIssues(withLogs(logs)).toSorted()).toEqual(issues.toSorted());
});

const withTraces = (traces: string) => `${backends}sites: { s: { traces: ${traces} } }\n`;

test("traces may be a list of places", () => {
  const one = "{ backend: old, index: i, tag_prefixes: [t.] }";
  expect(parse(withTraces(one)).sites.s?.traces).toEqual({
    backend: "old",
    index: "i",
    layout: "auto",
    tagPrefixes: ["t."],
  });
  expect(parse(withTraces(`[${one}, { backend: new, index: j, where: x=y }]`)).sites.s?.traces).toEqual([
    { backend: "old", index: "i", layout: "auto", tagPrefixes: ["t."] },
    { backend: "new", index: "j", layout: "auto", where: "x=y" },
  ]);
  const { layouts } = parse(withTraces("[{ backend: new, index: j, layout: mine.yaml }]")).backends.new ?? {};
  expect([...(layouts?.traces.keys() ?? [])]).toEqual(["mine.yaml"]);
});

test.each([
  ["[]", ["4 sites.s.traces: names no backend"]],
  ["[{ index: i }]", ["4 sites.s.traces.0.backend: is missing"]],
  [
    "[{ backend: old, index: i }, { backend: nw, indx: i }]",
    [
      '4 sites.s.traces.1.backend: unknown backend "nw"; did you mean "new"?',
      "4 sites.s.traces.1.index: is missing",
      '4 sites.s.traces.1.indx: unknown key; did you mean "index"?',
    ],
  ],
  [
    "[{ backend: old, index: i }, { backend: old, index: j }]",
    ["4 sites.s.traces.1.backend: is named before: join the patterns of one backend by commas"],
  ],
])("reports what is wrong with the traces %s", (traces, issues) => {
  expect(listIssues(withTraces(traces)).toSorted()).toEqual(issues.toSorted());
});

const manySites = sampleRuns(10_000);
test(`a file may have ${manySites} sites`, () => {
  const sites = Array.from(
    { length: manySites },
    (_, n) =>
      `  s${n}: { traces: { backend: ${n % 2 === 0 ? "old" : "new"}, index: i, where: "tenant=${n}" } }\n`,
  );
  const text = `${backends}sites:\n${sites.join("")}`;
  const steps = parseConfigInSteps(text, "conf/r.yaml", { kinds, env, readText });
  let count = 0;
  let step = steps.next();
  for (; !step.done; step = steps.next()) count += 1;
  expect(Object.keys(step.value.sites)).toHaveLength(manySites);
  expect(step.value).toEqual(parse(text));
  // Reading and checking: a program that answers requests meanwhile may go on with them after each.
  expect(count).toBeGreaterThan(manySites / 100);
});

test("metrics and Kubernetes are one part or a list of parts, each with a replica or none", () => {
  const { s } = parse(
    `${backends}sites: { s: { metrics: [{ backend: old, match: { a: b } }, { backend: new, replica: r }], kubernetes: { backend: old } } }\n`,
  ).sites;
  expect(s?.metrics).toEqual([
    { backend: "old", match: { a: "b" } },
    { backend: "new", match: {}, replica: "r" },
  ]);
  expect(s?.kubernetes).toEqual({ backend: "old", match: {} });
});

test.each([
  ["[]", ["4 sites.s.metrics: names no backend"]],
  ["[{ backend: od }]", ['4 sites.s.metrics.0.backend: unknown backend "od"; did you mean "old"?']],
  ["[{ backend: old }, { backend: old }]", ["4 sites.s.metrics.1.backend: is named before"]],
])("metrics %s are refused", (metrics, issues) => {
  expect(listIssues(`${backends}sites: { s: { metrics: ${metrics} } }\n`)).toEqual(issues);
});
