// A trace as it is answered, against figures worked out by hand.
import { describe, expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { errorDigest } from "#src/tracing/spans/digest.ts";
import { arrange } from "#src/tracing/trace-detail.ts";
import { at, exception, list, span } from "./span-builder.ts";

describe("a trace arranged", () => {
  const root = span({ span_id: "z", span_kind: "server", action: "Pay", from: 5 });
  const early = span({ span_id: "y", parent_span_id: "gone", from: 0 });
  const failed = span({ span_id: "b", parent_span_id: "z", from: 6, events: [exception(6, "Oops")] });
  const twin = span({ span_id: "a", parent_span_id: "z", from: 6, service_name: "cache" });

  test("the root first, then by start and id; or the named span first", () => {
    const ids = (named?: Span) => arrange([failed, early, twin, root], named).map(({ span }) => span.span_id);
    expect(ids()).toEqual(["z", "y", "a", "b"]);
    expect(ids(failed)).toEqual(["b", "y", "z", "a"]);
    expect(arrange([early, failed]).map(({ span }) => span.span_id)).toEqual(["y", "b"]);
  });

  test("names of the entry above, none below a lost parent; where a subtrace begins", () => {
    const asks = ["server", "consumer"] as const;
    const own = asks.map((kind, n) =>
      span({ span_id: `c${n}`, parent_span_id: "z", span_kind: kind, from: 7, action: "Own" }),
    );
    const rows = arrange([failed, early, twin, root, ...own]).map(({ span, names, subtraceRoot }) => [
      span.span_id,
      names?.action,
      subtraceRoot,
    ]);
    expect(rows).toEqual([
      ["z", "Pay", true],
      ["y", undefined, true],
      ["a", "Pay", true],
      ["b", "Pay", false],
      ["c0", "Own", true],
      ["c1", "Own", true],
    ]);
  });

  test("both sides of a call under one id: the called one is the parent, and who failed comes first", () => {
    const call = span({ span_id: "c", parent_span_id: "z", span_kind: "client", from: 6 });
    const called = {
      ...call,
      ...({ span_kind: "server", service_name: "stock", entry: true, start: at(7) } as const),
      events: [exception(8, "Oops")],
    };
    const below = span({ span_id: "d", parent_span_id: "c", service_name: "stock", from: 8 });
    // In another site, and below both of this one.
    const abroad = { ...below, site_id: "stock", span_id: "e" };
    const spans = [root, call, called, below, abroad];
    const orders = [spans, spans.toReversed(), [called, call, below, abroad, root]];
    for (const order of orders) {
      const rows = arrange(order, called).map(({ span, subtraceRoot }) => [
        span.span_id,
        span.span_kind,
        subtraceRoot,
      ]);
      expect(rows).toEqual([
        ["c", "server", true],
        ["z", "server", true],
        ["c", "client", false],
        ["d", "internal", false],
        ["e", "internal", false],
      ]);
    }
  });

  test("every exception has its digest, and keeps one of its own", () => {
    const events = [
      exception(6, "Oops"),
      { name: "note", time: at(7), attributes: {} },
      exception(8, "Ouch", "own"),
    ];
    const [, arranged] = arrange([root, { ...failed, events }]);
    expect(arranged?.span.events.map(({ attributes }) => attributes["appsignal.incident_digest"])).toEqual([
      errorDigest("Oops", { namespace: "web", action: "Pay" }),
      undefined,
      "own",
    ]);
  });
});

test("both sides of a call under one id that begin at once come in one order, whichever is read first", async () => {
  const call = span({ span_id: "x", span_kind: "client", action: "Call" });
  const called = span({ span_id: "x", span_kind: "server", action: "Serve" });
  for (const spans of [
    [call, called],
    [called, call],
  ]) {
    expect(arrange(spans).map(({ span }) => span.span_kind)).toEqual(["client", "server"]);
    expect(await list(spans)).toMatchObject([{ action_name: "Call" }]);
  }
});
