// Collapses index names into patterns: each index is reached by exactly one pattern, whatever its names.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { collapseIndices, excludeOthers } from "#resolvers/elastic/mapping/collapsed-patterns.ts";
import { isGlobMatch, isNameInPattern, listReached } from "#resolvers/elastic/mapping/index-patterns.ts";
import { type ListedIndex, readListedIndices } from "#resolvers/elastic/mapping/listed-indices.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const list = (names: readonly string[], isStream = (_: string) => false): readonly ListedIndex[] =>
  names.map((name) => ({
    name,
    own: name,
    aliases: [],
    isStream: isStream(name),
    indices: isStream(name) ? [`.ds-${name}-000001`] : [name],
  }));
const collapseIndexNames = (
  names: readonly string[],
  limit?: number,
  readKind?: (name: string) => string,
  isStream?: (name: string) => boolean,
) =>
  collapseIndices(list(names, isStream), { limit, readKind }).map(({ members, ...rest }) => ({
    ...rest,
    names: members.map(({ name }) => name),
  }));
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
    const names = ["logs-app-a-x", "logs-app-b-x", "logs-app-c-logs-app-old", "logs-app-old"];
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

  test("keeps few namespaces separate where patterns become more than the limit", () => {
    const streams = ["logs-web-dev", "logs-web-prod", "logs-web-staging"];
    expect(listPatterns([...streams, "logs-web-2026.01.31", "logs-2026.01.31"], 1)).toEqual([
      "logs-*,-logs-web-*,-logs-web-dev,-logs-web-prod,-logs-web-staging",
      "logs-web-*,-logs-web-dev,-logs-web-prod,-logs-web-staging",
      ...streams,
    ]);
    // A date is no namespace, and names without one are merged beside those of others.
    const dated = ["a", "b", "c"].map((app) => `acme-${app}-2026.01.31`);
    expect(listPatterns([...streams, ...dated], 1)).toEqual(["acme-*", ...streams]);
    const oneNamespace = ["logs-web-prod", "logs-db-prod", "logs-app-2026.01.31"];
    expect(listPatterns(oneNamespace, 1)).toEqual(["logs-*"]);
  });

  test("does not count the namespaces of metrics among those of logs", () => {
    const range = (length: number) => Array.from({ length }, (_, at) => at);
    const namespaces = ["prod", "staging", "dev"];
    const logs = namespaces.flatMap((namespace) => range(10).map((at) => `logs-app${at}-${namespace}`));
    const metrics = range(25).map((at) => `metrics-node${at}x-team${at}`);
    const plain = range(30).map((at) => `x${at}y`);
    expect(listPatterns([...logs, ...metrics, ...plain])).toEqual([
      "logs-*-dev",
      "logs-*-prod",
      "logs-*-staging",
      "metrics-*",
      ...[...plain].sort(),
    ]);
  });

  test("merges plain names beside data streams of few namespaces", () => {
    const plain = Array.from({ length: 60 }, (_, at) => `logs-svc${at}`);
    const streams = ["logs-web-prod", "logs-web-staging"];
    expect(listPatterns([...plain, ...streams])).toEqual([
      "logs-*,-logs-web-prod,-logs-web-staging",
      ...streams,
    ]);
    const many = streams.flatMap((name) => plain.map((_, at) => name.replace("web", `web${at}`)));
    expect(listPatterns([...plain, ...many])).toEqual([
      "logs-*,-logs-*-prod,-logs-*-staging",
      "logs-*-prod",
      "logs-*-staging",
    ]);
  });
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
    { seed: 20_260_103, numRuns: sampleRuns(800) },
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
          if (!pattern.isMerged || separate.has(pattern.names.join())) continue;
          expect([pattern, new Set(pattern.names.map(readKind)).size]).toEqual([pattern, 1]);
        }
      },
    ),
    { seed: 20_261_122, numRuns: sampleRuns(800) },
  );
});

/** Indices with aliases, and data streams, as a server lists them. */
const listing = fc
  .tuple(
    fc.uniqueArray(name, { maxLength: 20 }),
    fc.uniqueArray(name, { maxLength: 12 }),
    fc.array(fc.array(fc.nat({ max: 19 }), { minLength: 1, maxLength: 2 }), { minLength: 12, maxLength: 12 }),
    fc.array(fc.constantFrom("", "", "partial-", "shrink-a1b2-", "stream"), { minLength: 20, maxLength: 20 }),
  )
  .map(([names, aliases, targets, kinds]) => {
    const own = names.map((one, at) => (kinds[at] === "stream" ? one : `${kinds[at]}${one}`));
    const streams = names.filter((_, at) => kinds[at] === "stream");
    // A lifecycle leaves the index's former name as an alias; others are anything.
    const former = names.flatMap((one, at) =>
      own[at] === one || own.includes(one) ? [] : [{ name: one, indices: [own[at] ?? ""] }],
    );
    const free = aliases.filter((alias) => !own.includes(alias) && !names.includes(alias));
    const others = free.map((alias, at) => ({
      name: alias,
      indices: [...new Set(targets[at]?.flatMap((target) => own[target] ?? []))],
    }));
    return readListedIndices({
      indices: own.filter((one) => !streams.includes(one)).map((one) => ({ name: one })),
      aliases: [...former, ...others],
      data_streams: streams.map((one) => ({
        name: one,
        backing_indices: [`.ds-${one}-000001`, `.ds-${one}-000002`],
      })),
    });
  });

test("collapseIndices: every index is reached by exactly one pattern, also where it has aliases", () => {
  fc.assert(
    fc.property(listing, fc.constantFrom(1, 5, 24), fc.func(fc.boolean()), (listed, limit, isOther) => {
      const others = listed.filter(isOther);
      const proposed = listed.filter((one) => !others.includes(one));
      const patterns = collapseIndices(proposed, { limit, others });
      for (const one of proposed) {
        const holders = patterns.filter(({ members }) => members.includes(one));
        expect(holders).toHaveLength(1);
        for (const pattern of patterns) {
          const reached = pattern === holders[0] ? one.indices : [];
          expect([pattern.index, one, listReached(pattern.index, one)]).toEqual([
            pattern.index,
            one,
            reached,
          ]);
        }
      }
      for (const one of others)
        for (const { index } of patterns)
          expect([index, one, listReached(index, one)]).toEqual([index, one, []]);
    }),
    { seed: 20_261_125, numRuns: sampleRuns(1_000) },
  );
});

describe("collapseIndices", () => {
  const lifecycle = readListedIndices({
    indices: [
      { name: "orders-000008" },
      { name: "shrink-a1b2-orders-000007" },
      { name: "partial-orders-000006" },
      { name: "partial-restored-orders-000005" },
      { name: "partial-invoices-000001" },
      { name: "shrink-c3d4-without-alias" },
    ],
    aliases: [
      { name: "orders", indices: ["orders-000008"] },
      { name: "orders-000007", indices: ["shrink-a1b2-orders-000007"] },
      { name: "orders-000006", indices: ["partial-orders-000006"] },
      { name: "orders-000005", indices: ["partial-restored-orders-000005"] },
      { name: "invoices-000001", indices: ["partial-invoices-000001"] },
    ],
    data_streams: [],
  });

  test("names an index that a lifecycle has replaced by the name that it had", () => {
    expect(collapseIndices(lifecycle).map(({ index, members }) => [index, members.length])).toEqual([
      ["invoices-*", 1],
      ["orders-*", 4],
      ["shrink-c3d4-without-alias", 1],
    ]);
  });

  test("excludes an index that an alias brings into a pattern", () => {
    const listed = readListedIndices({
      indices: [{ name: "orders-000001" }, { name: "legacy-000001" }, { name: "old" }],
      aliases: [{ name: "orders-all", indices: ["legacy-000001", "old"] }],
      data_streams: [],
    });
    // The name of the alias, without a star, would exclude nothing.
    expect(collapseIndices(listed).map(({ index }) => index)).toEqual([
      "legacy-*",
      "old",
      "orders-*,-legacy-*,-old",
    ]);
  });

  test("excludes by its own name what a star would take away together with a member", () => {
    const listed = readListedIndices({
      indices: [{ name: "orders-000001" }, { name: "legacy-000001" }],
      aliases: [
        { name: "orders-all", indices: ["legacy-000001"] },
        { name: "legacy-new", indices: ["orders-000001"] },
      ],
      data_streams: [],
    });
    expect(collapseIndices(listed).map(({ index }) => index)).toEqual([
      "legacy-*,-orders-000001",
      "orders-*,-legacy-000001",
    ]);
  });
});

test("excludeOthers takes copies out by their common end, unless a member has it too", () => {
  const [first, second, copy, alone] = list([
    "a-000001",
    "a-000002",
    "a-000001_shrunken",
    "a-000000_shrunken",
  ]);
  if (first === undefined || second === undefined || copy === undefined || alone === undefined)
    throw new Error("four names");
  expect(excludeOthers("a-*", [first, second], [copy])).toBe("a-*,-*_shrunken");
  expect(excludeOthers("a-*", [first, second, alone], [copy])).toBe("a-*,-a-000001_shrunken");
  expect(excludeOthers("b-*", [first], [copy])).toBe("b-*");
  expect(isGlobMatch("*_shrunken", copy.own)).toBe(true);
});
