// Which spans are requests, and how they are named, against results worked out by hand.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { decodeDigest } from "#src/tracing/spans/digest.ts";
import { createAncestorIndex } from "#src/tracing/spans/requests.ts";
import { readConfiguredNames } from "#src/tracing/spans/site-attributes.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import {
  createException,
  createSource,
  createSpan,
  createTestBudget,
  listRows,
  signal,
} from "../span-builder.ts";

const shop = createSource("shop");

describe("requests", () => {
  const server = createSpan({ span_kind: "server", span_name: "GET /" });

  test.each([
    ["a root", {}, true],
    ["a server", { parent_span_id: "p", span_kind: "server" }, true],
    ["a consumer", { parent_span_id: "p", span_kind: "consumer" }, true],
    ["an orphan of another kind", { parent_span_id: "p", span_kind: "internal" }, false],
    ["a report", { report: true }, false],
  ] as const)("decides whether %s is a request", async (_, over, isOne) => {
    expect(await listRows([createSpan(over)])).toHaveLength(isOne ? 1 : 0);
  });

  test("names a request by its attributes, else by kind and span name, and never by nothing", async () => {
    const named = async (over: Partial<Span>) => {
      const [row] = await listRows([{ ...server, ...over }]);
      return `${row?.namespace} ${row?.action_name}`;
    };
    expect(await named({ namespace: "admin", action: "Cart#show" })).toBe("admin Cart#show");
    expect(await named({})).toBe("web GET /");
    expect(await named({ span_kind: "consumer" })).toBe("background GET /");
    expect(await named({ span_kind: "client" })).toBe("background GET /");
    expect(await named({ span_name: "" })).toBe("web unknown");
  });

  test("reads the configured attributes and tag prefixes as texts", () => {
    const attributes = {
      "appsignal.tag.region": "eu",
      "appsignal.tag.": "x",
      t_region: "us",
      t_n: 5,
      ns: "",
      act: 7,
    };
    const own = {
      ...shop,
      tagPrefixes: ["appsignal.tag.", "t_"],
      namespaceAttribute: "ns",
      actionAttribute: "act",
    };
    expect(readConfiguredNames(attributes, own)).toEqual({
      namespace: undefined,
      action: undefined,
      tags: { region: "eu", n: 5 },
    });
    // A list stands for its first, because an index does not tell a list of one from its element.
    const lists = { ns: [null, "admin", "x"], act: [["A#b"], "c"] };
    expect(readConfiguredNames(lists, own)).toEqual({ namespace: "admin", action: "A#b", tags: {} });
    for (const empty of [[], [null], [5, "x"], {}, null])
      expect(readConfiguredNames({ ns: empty, act: empty }, own)).toEqual({
        namespace: undefined,
        action: undefined,
        tags: {},
      });
  });

  test("assigns a span to the nearest entry above it in its own site", () => {
    const child = createSpan({ span_id: "s2", parent_span_id: "s1" });
    const grandchild = createSpan({ span_id: "s3", parent_span_id: "s2" });
    const elsewhere = { ...grandchild, site_id: "stock" };
    const orphan = createSpan({ span_id: "s9", parent_span_id: "s8" });
    const ancestors = createAncestorIndex([server, child, grandchild, elsewhere, orphan]);
    expect([server, child, grandchild].map(ancestors.findEntry)).toEqual([server, server, server]);
    expect([elsewhere, orphan].map(ancestors.findEntry)).toEqual([undefined, undefined]);
  });

  test("finds an entry far above in few rounds", async () => {
    const chain = Array.from({ length: 1_000 }, (_, n) =>
      createSpan({
        span_id: `s${n}`,
        parent_span_id: n === 0 ? undefined : `s${n - 1}`,
        action: n === 0 ? "Deep" : undefined,
        events: n === 999 ? [createException(1, "E")] : [],
      }),
    );
    const orphan = createSpan({ span_id: "x", parent_span_id: "y", events: [createException(2, "E")] });
    const reader = createArrayReader([...chain, orphan]);
    let rounds = 0;
    const counted: SpanReader = {
      ...reader,
      find: (query, abort) => {
        rounds += 1;
        return reader.find(query, abort);
      },
    };
    const query = { sources: [shop], traceId: "t1", budget: createTestBudget() } as const;
    const { errors } = await createSpanAnalytics(counted).locate(query, signal);
    expect(errors.map(({ digest }) => decodeDigest(digest))).toEqual([
      { of: "error", exception: "E", namespace: "background", action: "Deep" },
      { of: "error", exception: "E", namespace: "background", action: "work" },
    ]);
    expect(rounds).toBeLessThan(30);
  });

  test("keeps equal span ids of different traces apart", async () => {
    const spans = ["A", "B", "C"].flatMap((action) => [
      createSpan({ trace_id: action, span_kind: "server", action }),
      createSpan({
        trace_id: action,
        span_id: "s2",
        parent_span_id: "s1",
        events: [createException(1, "E")],
      }),
      createSpan({
        trace_id: action,
        span_id: "s3",
        parent_span_id: "s2",
        events: [createException(2, "E")],
      }),
    ]);
    const rows = await listRows(spans, { candidates: "errors" });
    expect(rows.map(({ trace_id, action_name }) => [trace_id, action_name])).toEqual([
      ["A", "A"],
      ["B", "B"],
      ["C", "C"],
    ]);
    const { findEntry: entryOf } = createAncestorIndex(spans);
    for (const one of spans) expect(entryOf(one)?.action).toBe(one.trace_id);
  });

  test("finds no entry above parents that form a cycle", () => {
    const a = createSpan({ span_id: "a", parent_span_id: "b" });
    const b = createSpan({ span_id: "b", parent_span_id: "a" });
    const self = createSpan({ span_id: "c", parent_span_id: "c" });
    expect([a, b, self].map(createAncestorIndex([a, b, self]).findEntry)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  test("shared span id: children belong to the server span", () => {
    const client = createSpan({ span_id: "x", parent_span_id: "s1", span_kind: "client" });
    const called = createSpan({ span_id: "x", parent_span_id: "s1", span_kind: "server", from: 1 });
    const below = createSpan({ span_id: "y", parent_span_id: "x" });
    expect(createAncestorIndex([server, client, called, below]).findEntry(below)).toBe(called);
  });
});
