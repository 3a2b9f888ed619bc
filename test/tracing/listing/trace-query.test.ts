import { describe, expect, test } from "vitest";
import type { TraceFilter } from "#src/store/span-analytics.ts";
import { isRowAccepted, parseTraceQuery, type TraceRow } from "#src/tracing/listing/trace-query.ts";
import { encodeActionDigest } from "#src/tracing/spans/digest.ts";
import { at } from "../span-builder.ts";

const row: TraceRow = {
  site_id: "shop",
  trace_id: "abc".padStart(32, "0"),
  span_id: "00000000000000ff",
  namespace: "web",
  action_name: "Cart#show",
  revision: "v1.2",
  time: at(0),
  duration: 5_000_000n,
  tags: {
    region: "eu-west",
    "a.b": "x",
    n: 200,
    big: 9_007_199_254_740_993n,
    on: true,
    list: ["p", "q"],
    none: null,
  },
};
const passes = (query: string): boolean => isRowAccepted({ query: parseTraceQuery(query) }, row, []);

test.each([
  "",
  "tag.region=eu-west",
  "tag.region:west tag.region!=us",
  "tag.a.b=x",
  "tag.a\\.b=x",
  "tag.n=200",
  "tag.big=9007199254740993",
  "tag.on=true",
  "tag.list=q",
  "tag.none!=x",
  "tag.user_string!=x",
  "tag.missing!:x",
  "revision=v1.2",
  "revision:1.",
  "trace_id=ABC",
  "trace_id:Abc",
  "trace_id:AB span_id:F",
  "span_id=FF",
  "site_id=shop namespace=web action_name=Cart#show",
  "namespace=x OR (action_name:Cart AND revision!=v2)",
  "Cart",
  "west",
  '"9007199254740993"',
])("isRowAccepted accepts: %s", (query) => expect(passes(query)).toBe(true));

test.each([
  "tag.region=eu",
  "tag.Region=eu-west",
  "tag.missing=x",
  'tag.missing=""',
  "tag.list!=q",
  "revision!:v1",
  "trace_id=abd",
  "trace_id!:AB",
  "namespace=WEB",
  "cart",
  "shop",
  "Cart north",
])("isRowAccepted refuses: %s", (query) => expect(passes(query)).toBe(false));

test.each([
  ["tag.x>5", 5, 6],
  ["a b>=5", 2, 3],
  ["tag=x", 0, 3],
  ["tag.=x", 0, 4],
  ["user=x", 0, 4],
  ["revision.x=1", 0, 10],
  ["revision=", 9, 9],
  ["(a", 2, 2],
  ['tag.x="a', 6, 8],
])("parseTraceQuery reports the position of a syntax error: %s", (query, start, end) => {
  expect(() => parseTraceQuery(query)).toThrow(
    expect.objectContaining({ slug: "invalid_log_query", details: expect.objectContaining({ start, end }) }),
  );
});

describe("isRowAccepted", () => {
  const accepts = (filter: Partial<TraceFilter>, digests: readonly string[] = []): boolean =>
    isRowAccepted({ query: { kind: "all" }, ...filter }, row, digests);

  test("filters by namespace, action and duration", () => {
    expect(accepts({ namespace: "web", action: "Cart#show", minDuration: 5_000_000n })).toBe(true);
    expect(accepts({ namespace: "background" })).toBe(false);
    expect(accepts({ action: "Cart" })).toBe(false);
    expect(accepts({ minDuration: 5_000_001n })).toBe(false);
  });

  test("filters by any of several digests, of the action or of an error", () => {
    const digest = encodeActionDigest({ namespace: "web", action: "Cart#show" });
    expect(accepts({ digests: ["unknown", digest] })).toBe(true);
    expect(accepts({ digests: ["unknown"] }, ["e1"])).toBe(false);
    expect(accepts({ digests: ["unknown", "e1"] }, ["e0", "e1"])).toBe(true);
  });
});
