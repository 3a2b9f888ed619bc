// Names of metrics under `sites.<id>.metrics.names`: what is taken, and what is reported where.
import { expect, test } from "vitest";
import { listIssues, parse } from "./fixture.ts";

const withMetrics = (metrics: string) =>
  `backends: { prom: { kind: prometheus, url: "http://prom:9090" } }\nsites: { s: { metrics: ${metrics} } }\n`;

test("a name stands for a metric, with defaults for the rest", () => {
  const names =
    "{ load_avg: { metric: node_load1 }, disk: { metric: d, tags: { hostname: instance }, match: { fs: x }, factor: 100 } }";
  expect(parse(withMetrics(`{ backend: prom, names: ${names} }`)).sites.s?.metrics).toMatchObject({
    names: {
      load_avg: { metric: "node_load1", tags: {}, match: {}, factor: 1 },
      disk: { metric: "d", tags: { hostname: "instance" }, match: { fs: "x" }, factor: 100 },
    },
  });
});

test.each([
  ["{}", ["names.cpu.metric: is missing"]],
  [
    "{ tags: { a: x, b: x, c: 5 } }",
    [
      "names.cpu.metric: is missing",
      "names.cpu.tags.c: expected text; put it in quotes",
      'names.cpu.tags.b: names the same label as "a"',
    ],
  ],
  ["{ metric: m, factor: 0 }", ["names.cpu.factor: expected a number greater than 0"]],
  ["{ metric: m, factor: -1 }", ["names.cpu.factor: expected a number greater than 0"]],
  ["{ metric: m, match: { site: b } }", ["names.cpu.match.site: is in the match of the metrics already"]],
  ["{ metric: m, tags: { a: x, b: x } }", ['names.cpu.tags.b: names the same label as "a"']],
  [
    "{ metric: m, tags: { site: x } }",
    ["names.cpu.tags.site: is in the match of the metrics, and therefore no tag"],
  ],
  [
    "{ metric: m, match: { fs: x }, tags: { a: fs, b: site } }",
    [
      "names.cpu.tags.a: names a label of the match, which is no tag",
      "names.cpu.tags.b: names a label of the match, which is no tag",
    ],
  ],
])("reports %s", (alias, expected) => {
  const file = withMetrics(`{ backend: prom, match: { site: s }, names: { cpu: ${alias} } }`);
  expect(listIssues(file)).toEqual(expected.map((issue) => `2 sites.s.metrics.${issue}`));
});

test("Kubernetes has no names", () => {
  const file = withMetrics("{ backend: prom }").replace("metrics:", "kubernetes:");
  expect(listIssues(file.replace("backend: prom }", "backend: prom, names: {} }"))).toEqual([
    "2 sites.s.kubernetes.names: unknown key; known here: backend, match",
  ]);
});
