// Collapses index names into patterns: each name is in exactly one pattern, whatever the names.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  collapseIndexNames,
  isNameInPattern,
  listKeptStreams,
} from "#resolvers/elastic/mapping/index-patterns.ts";

const listPatterns = (names: readonly string[], limit?: number) =>
  collapseIndexNames(names, limit).map(({ index }) => index);

describe("collapseIndexNames", () => {
  test.each<[string, readonly string[], readonly string[]]>([
    ["days", ["app-2026.01.30", "app-2026.01.31"], ["app-*"]],
    ["one day, since tomorrow adds another", ["app-2026.01.31"], ["app-*"]],
    [
      "months, weeks, dashes, no separator",
      ["a-2026.01", "b-2026.w05", "c-2026-01-31", "d-20260131"],
      ["a-*", "b-*", "c-*", "d-*"],
    ],
    [
      "rollover and versions",
      ["filebeat-8.19.0-2026.01.31-000001", "filebeat-8.19.1-2026.02.01-000002"],
      ["filebeat-*"],
    ],
    [
      "a counter behind an alias",
      ["otel-v1-apm-span-000001", "otel-v1-apm-span-000002"],
      ["otel-v1-apm-span-*"],
    ],
    [
      "data streams stay themselves",
      ["logs-nginx.access-default", "logs-app-prod"],
      ["logs-app-prod", "logs-nginx.access-default"],
    ],
    [
      "a pattern that another one covers",
      ["app-2026.01.31", "app-errors-2026.01.31"],
      ["app-*,-app-errors-*", "app-errors-*"],
    ],
    [
      "a name without a date beside dated ones",
      ["app-2026.01.31", "app-archive"],
      ["app-*,-app-archive", "app-archive"],
    ],
    ["hidden names are left out", [".kibana_1", ".ds-logs-app-2026.01.31-000001"], []],
    ["numbers that are no dates stay", ["team-42", "k8s-logs"], ["k8s-logs", "team-42"]],
    ["nothing", [], []],
  ])("%s", (_, names, patterns) => expect(listPatterns(names)).toEqual(patterns));

  test("excludes a data stream by a name with a star, since servers ignore others", () => {
    const isStream = (name: string) => name.startsWith("logs-");
    const patterns = (names: readonly string[], limit?: number) =>
      collapseIndexNames(names, limit, (name) => (name === "logs-app-old" ? "old" : ""), isStream).map(
        ({ index }) => index,
      );
    expect(patterns(["app-2026.01.31", "app-old"])).toEqual(["app-*,-app-old", "app-old"]);
    expect(patterns(["logs-app-2026.01.31", "logs-app-old"])).toEqual([
      "logs-app-*,-*logs-app-old",
      "logs-app-old",
    ]);
    // The star is put where it excludes nothing else.
    const names = ["logs-app-a", "logs-app-b", "logs-app-c-logs-app-old", "logs-app-old"];
    expect(patterns(names, 1)).toEqual(["logs-app-*,-logs-app-o*ld", "logs-app-old"]);
  });

  test("collapses hundreds of names into few patterns", () => {
    const tenants = Array.from({ length: 300 }, (_, at) => `tenant-${at}x-2026.01.31`);
    const streams = Array.from({ length: 200 }, (_, at) => `logs-nginx.site${at}-default`);
    expect(listPatterns([...tenants, ...streams, "logs-app-default"])).toEqual([
      "logs-app-default",
      "logs-nginx.*-default",
      "tenant-*",
    ]);
  });

  test("merges data streams within each of a few namespaces, and across many namespaces", () => {
    const named = (namespaces: readonly string[], datasets: readonly string[]) =>
      namespaces.flatMap((namespace) => datasets.map((dataset) => `logs-${dataset}-${namespace}`));
    const datasets = Array.from({ length: 15 }, (_, at) => `app${at}`);
    expect(listPatterns(named(["prod", "staging"], datasets))).toEqual(["logs-*-prod", "logs-*-staging"]);
    const dotted = datasets.map((dataset) => `nginx.${dataset}`);
    expect(listPatterns(named(["prod", "staging"], dotted))).toEqual([
      "logs-nginx.*-prod",
      "logs-nginx.*-staging",
    ]);
    const tenants = Array.from({ length: 30 }, (_, at) => `t${at}x`);
    expect(listPatterns(named(tenants, ["app", "db"]))).toEqual(["logs-app-*", "logs-db-*"]);
  });
});

test.each<[string, readonly string[]]>([
  ["logs-*,-logs-a-x", ["logs-a-x"]],
  ["logs-*,-logs-b,-logs-a-x", ["logs-b", "logs-a-x"]],
  ["logs-*,-logs-a-x,logs-a-x", []],
  ["logs-*,-*logs-a-x,-logs-b*,-plain", []],
])("listKeptStreams: of %s these data streams stay: %j", (index, kept) => {
  // Backing indices of Elasticsearch have the day in their names, those of OpenSearch do not.
  const indices = [".ds-logs-a-x-2026.01.31-000001", ".ds-logs-b-000002", "plain-1"];
  const formatProblem = (name: string) =>
    `-${name} does not take the data stream out of the pattern; -*${name} does`;
  expect(listKeptStreams(index, indices)).toEqual(kept.map(formatProblem));
});

const word = fc.constantFrom("app", "logs", "a", "errors", "nginx.access", "prod", "x_y", "v2");
const counter = fc.constantFrom(
  "2026.01.31",
  "2026.02",
  "2026-01-31",
  "000001",
  "000002",
  "8.19.0",
  "20260131",
);
const name = fc
  .array(fc.oneof({ weight: 2, arbitrary: word }, { weight: 1, arbitrary: counter }), {
    minLength: 1,
    maxLength: 5,
  })
  .chain((parts) =>
    fc
      .array(fc.constantFrom("-", ".", "_"), { minLength: parts.length, maxLength: parts.length })
      .map((separators) => parts.map((part, at) => (at === 0 ? part : `${separators[at]}${part}`)).join("")),
  );

test("collapseIndexNames: every name is in exactly one pattern", () => {
  fc.assert(
    fc.property(fc.array(name, { maxLength: 60 }), fc.constantFrom(1, 5, 24), (names, limit) => {
      const patterns = collapseIndexNames(names, limit, undefined, (one) => one.length % 2 === 0);
      expect(patterns.flatMap((pattern) => pattern.names).sort()).toEqual([...new Set(names)].sort());
      for (const one of names) {
        const behind = patterns.filter(({ index }) => isNameInPattern(index, one));
        expect(behind).toHaveLength(1);
        expect(behind[0]?.names).toContain(one);
      }
    }),
    { seed: 20_260_103, numRuns: 800 },
  );
});

test("collapseIndexNames: merges only names of one kind", () => {
  const kinds = fc.dictionary(word, fc.constantFrom("lines", "spans"));
  fc.assert(
    fc.property(
      fc.array(name, { maxLength: 60 }),
      fc.constantFrom(1, 5, 24),
      kinds,
      (names, limit, kindByWord) => {
        const readKind = (one: string) =>
          one
            .split(/[-._]/)
            .map((part) => kindByWord[part] ?? "")
            .join("");
        const separate = new Map(
          collapseIndexNames(names, Number.POSITIVE_INFINITY).map((one) => [one.names.join(), one]),
        );
        for (const pattern of collapseIndexNames(names, limit, readKind)) {
          expect(names.filter((one) => isNameInPattern(pattern.index, one)).sort()).toEqual(
            [...names].filter((one) => pattern.names.includes(one)).sort(),
          );
          if (!pattern.merged || separate.has(pattern.names.join())) continue;
          expect([pattern, new Set(pattern.names.map(readKind)).size]).toEqual([pattern, 1]);
        }
      },
    ),
    { seed: 20_261_122, numRuns: 800 },
  );
});
