// What a request is and what it is called, against figures worked out by hand.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import type { SpanReader } from "#src/store/span-reader.ts";
import { analyticsOver } from "#src/tracing/analytics.ts";
import { decodeDigest } from "#src/tracing/spans/digest.ts";
import { createFamily } from "#src/tracing/spans/requests.ts";
import { readNames } from "#src/tracing/spans/site-attributes.ts";
import { readerOver } from "../../conformance/trace-fixture.ts";
import { budget, exception, list, signal, source, span } from "../span-builder.ts";

const shop = source("shop");

describe("requests", () => {
  const server = span({ span_kind: "server", span_name: "GET /" });

  test.each([
    ["a root", {}, true],
    ["a server", { parent_span_id: "p", span_kind: "server" }, true],
    ["a consumer", { parent_span_id: "p", span_kind: "consumer" }, true],
    ["an orphan of another kind", { parent_span_id: "p", span_kind: "internal" }, false],
    ["a report", { report: true }, false],
  ] as const)("%s", async (_, over, isOne) => {
    expect(await list([span(over)])).toHaveLength(isOne ? 1 : 0);
  });

  test("names: the attributes, else the kind and the span's name, and never nothing", async () => {
    const named = async (over: Partial<Span>) => {
      const [row] = await list([{ ...server, ...over }]);
      return `${row?.namespace} ${row?.action_name}`;
    };
    expect(await named({ namespace: "admin", action: "Cart#show" })).toBe("admin Cart#show");
    expect(await named({})).toBe("web GET /");
    expect(await named({ span_kind: "consumer" })).toBe("background GET /");
    expect(await named({ span_kind: "client" })).toBe("background GET /");
    expect(await named({ span_name: "" })).toBe("web unknown");
  });

  test("the configured attributes and prefixes are read as texts", () => {
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
    expect(readNames(attributes, own)).toEqual({
      namespace: undefined,
      action: undefined,
      tags: { region: "eu", n: 5 },
    });
    // A list stands for its first, because an index does not tell a list of one from its element.
    const lists = { ns: [null, "admin", "x"], act: [["A#b"], "c"] };
    expect(readNames(lists, own)).toEqual({ namespace: "admin", action: "A#b", tags: {} });
    for (const empty of [[], [null], [5, "x"], {}, null])
      expect(readNames({ ns: empty, act: empty }, own)).toEqual({
        ...{ namespace: undefined, action: undefined, tags: {} },
      });
  });

  test("a span belongs to the nearest entry above it in its own site", () => {
    const child = span({ span_id: "s2", parent_span_id: "s1" });
    const grandchild = span({ span_id: "s3", parent_span_id: "s2" });
    const elsewhere = { ...grandchild, site_id: "stock" };
    const lost = span({ span_id: "s9", parent_span_id: "s8" });
    const family = createFamily([server, child, grandchild, elsewhere, lost]);
    expect([server, child, grandchild].map(family.entryOf)).toEqual([server, server, server]);
    expect([elsewhere, lost].map(family.entryOf)).toEqual([undefined, undefined]);
  });

  test("an entry far above is found in few rounds", async () => {
    const chain = Array.from({ length: 1_000 }, (_, n) =>
      span({
        span_id: `s${n}`,
        parent_span_id: n === 0 ? undefined : `s${n - 1}`,
        action: n === 0 ? "Deep" : undefined,
        events: n === 999 ? [exception(1, "E")] : [],
      }),
    );
    const lost = span({ span_id: "x", parent_span_id: "y", events: [exception(2, "E")] });
    const reader = readerOver([...chain, lost]);
    let rounds = 0;
    const counted: SpanReader = {
      ...reader,
      find: (query, abort) => {
        rounds += 1;
        return reader.find(query, abort);
      },
    };
    const asked = { sources: [shop], traceId: "t1", budget: budget() } as const;
    const { errors } = await analyticsOver(counted).locate(asked, signal);
    expect(errors.map(({ digest }) => decodeDigest(digest))).toEqual([
      { of: "error", exception: "E", namespace: "background", action: "Deep" },
      { of: "error", exception: "E", namespace: "background", action: "work" },
    ]);
    expect(rounds).toBeLessThan(30);
  });

  test("span ids are of one trace: others may have the same", async () => {
    const spans = ["A", "B", "C"].flatMap((action) => [
      span({ trace_id: action, span_kind: "server", action }),
      span({ trace_id: action, span_id: "s2", parent_span_id: "s1", events: [exception(1, "E")] }),
      span({ trace_id: action, span_id: "s3", parent_span_id: "s2", events: [exception(2, "E")] }),
    ]);
    const rows = await list(spans, { candidates: "errors" });
    expect(rows.map(({ trace_id, action_name }) => [trace_id, action_name])).toEqual([
      ["A", "A"],
      ["B", "B"],
      ["C", "C"],
    ]);
    const { entryOf } = createFamily(spans);
    for (const one of spans) expect(entryOf(one)?.action).toBe(one.trace_id);
  });

  test("parents that go round in a circle lead nowhere", () => {
    const a = span({ span_id: "a", parent_span_id: "b" });
    const b = span({ span_id: "b", parent_span_id: "a" });
    const self = span({ span_id: "c", parent_span_id: "c" });
    expect([a, b, self].map(createFamily([a, b, self]).entryOf)).toEqual([undefined, undefined, undefined]);
  });

  test("both sides of a call under one id: what is below belongs to the side that was called", () => {
    const client = span({ span_id: "x", parent_span_id: "s1", span_kind: "client" });
    const called = span({ span_id: "x", parent_span_id: "s1", span_kind: "server", from: 1 });
    const below = span({ span_id: "y", parent_span_id: "x" });
    expect(createFamily([server, client, called, below]).entryOf(below)).toBe(called);
  });
});
