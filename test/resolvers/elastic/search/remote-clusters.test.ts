// Which responses are complete, of searches that name remote clusters. Their form is that of real servers.
import { describe, expect, test } from "vitest";
import { describeUnsearchable, requireAllClusters } from "#resolvers/elastic/search/remote-clusters.ts";
import { BackendError } from "#src/core/errors.ts";

const hits =
  '"hits":{"total":{"value":1,"relation":"eq"},"hits":[{"_index":"eu:a","_source":{"_clusters":{}}}]}';
const print = (clusters: object | undefined): Buffer =>
  Buffer.from(
    `{"took":1,"timed_out":false,"_shards":{"total":1,"failed":0},${
      clusters === undefined ? "" : `"_clusters":${JSON.stringify(clusters)},`
    }${hits}}`,
  );
const check = (pattern: string, clusters: object | undefined) => () =>
  requireAllClusters("elk", pattern, print(clusters));
const whole = { total: 1, successful: 1, skipped: 0 };
const failed = (status: string, type: string) => ({
  status,
  failures: [{ shard: -1, index: null, reason: { type, reason: "no such index [a]" } }],
});

describe("the response of a search", () => {
  test.each([
    ["a", undefined],
    ["<a-{now/d{yyyy|+02:00}}>", undefined],
    ["eu:a", whole],
    ["eu:a,eu:b,-eu:c", whole],
    ["a,eu:a", { ...whole, total: 2, successful: 2 }],
    [
      "eu:a,us:a",
      { total: 2, successful: 2, details: { eu: { status: "successful" }, us: { status: "successful" } } },
    ],
  ])("of %s is complete", (pattern, clusters) => {
    expect(check(pattern, clusters)).not.toThrow();
  });

  test.each([
    ["of which no clusters are told", "eu:a", undefined],
    ["without a cluster that is skipped", "eu:a,us:a", { total: 2, successful: 1, skipped: 1 }],
    ["without a cluster that is not counted", "eu:a,us:a", whole],
    ["with more clusters than are named", "eu:a", { total: 2, successful: 2 }],
    ["of a part of a cluster", "eu:a", { ...whole, details: { eu: { status: "partial" } } }],
  ])("%s is an error", (_, pattern, clusters) => {
    expect(check(pattern, clusters)).toThrow(BackendError);
    expect(check(pattern, clusters)).toThrow(/not all clusters answered/);
  });

  test("is checked also where its members have another order", () => {
    const text = `{${hits},"_clusters":${JSON.stringify(whole)}}`;
    expect(() => requireAllClusters("elk", "eu:a", Buffer.from(text))).not.toThrow();
    const other = text.replace('"successful":1', '"successful":0');
    expect(() => requireAllClusters("elk", "eu:a", Buffer.from(other))).toThrow(BackendError);
  });

  test("that lacks an index is an error like that of the cluster itself", () => {
    const clusters = {
      total: 1,
      successful: 0,
      details: { eu: failed("skipped", "index_not_found_exception") },
    };
    expect(check("eu:a", clusters)).toThrow(
      expect.objectContaining({ status: 404, message: expect.stringContaining("no such index [a]") }),
    );
    const closed = { total: 1, successful: 0, details: { eu: failed("skipped", "index_closed_exception") } };
    expect(check("eu:a", closed)).toThrow(/"index_closed_exception"/);
  });
});

test.each([
  ["eu:logs-*", false],
  ["logs-*,-logs-old,eu:logs-*,eu:-logs-old", false],
  ["<logs-{now/d{yyyy|+02:00}}>", false],
  ["e*:logs-*", true],
  ["*:logs-*", true],
  ["eu:logs-*,-us:*", true],
  ["logs-*::failures", true],
])("the pattern %s is refused: %s", (pattern, isRefused) => {
  expect(describeUnsearchable(pattern) !== undefined).toBe(isRefused);
});
