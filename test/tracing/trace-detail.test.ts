// The detail of a trace against results worked out by hand.
import { describe, expect, test } from "vitest";
import { runSteps } from "#src/core/async/turns.ts";
import type { Span } from "#src/core/rows.ts";
import { encodeErrorDigest } from "#src/tracing/spans/digest.ts";
import { buildTraceDetail as buildInSteps } from "#src/tracing/trace-detail.ts";
import { countSteps } from "../support/event-loop-turns.ts";
import { at, createException, createSpan, listRows } from "./span-builder.ts";

const buildTraceDetail = (...given: Parameters<typeof buildInSteps>) => runSteps(buildInSteps(...given));

describe("buildTraceDetail", () => {
  const root = createSpan({ span_id: "z", span_kind: "server", action: "Pay", from: 5 });
  const early = createSpan({ span_id: "y", parent_span_id: "gone", from: 0 });
  const failed = createSpan({
    span_id: "b",
    parent_span_id: "z",
    from: 6,
    events: [createException(6, "Oops")],
  });
  const twin = createSpan({ span_id: "a", parent_span_id: "z", from: 6, service_name: "cache" });

  test("puts the root or the named span first, then orders by start and id", () => {
    const ids = (named?: Span) =>
      buildTraceDetail([failed, early, twin, root], named).map(({ span }) => span.span_id);
    expect(ids()).toEqual(["z", "y", "a", "b"]);
    expect(ids(failed)).toEqual(["b", "y", "z", "a"]);
    expect(buildTraceDetail([early, failed]).map(({ span }) => span.span_id)).toEqual(["y", "b"]);
  });

  test("names spans by the entry above them and marks subtrace roots", () => {
    const asks = ["server", "consumer"] as const;
    const own = asks.map((kind, n) =>
      createSpan({ span_id: `c${n}`, parent_span_id: "z", span_kind: kind, from: 7, action: "Own" }),
    );
    const rows = buildTraceDetail([failed, early, twin, root, ...own]).map(
      ({ span, names, subtraceRoot }) => [span.span_id, names?.action, subtraceRoot],
    );
    expect(rows).toEqual([
      ["z", "Pay", true],
      ["y", undefined, true],
      ["a", "Pay", true],
      ["b", "Pay", false],
      ["c0", "Own", true],
      ["c1", "Own", true],
    ]);
  });

  test("shared span id: the server span is the parent, and the side with the exception comes first", () => {
    const call = createSpan({ span_id: "c", parent_span_id: "z", span_kind: "client", from: 6 });
    const called = {
      ...call,
      ...({ span_kind: "server", service_name: "stock", entry: true, start: at(7) } as const),
      events: [createException(8, "Oops")],
    };
    const below = createSpan({ span_id: "d", parent_span_id: "c", service_name: "stock", from: 8 });
    // In another site, and below both of this one.
    const abroad = { ...below, site_id: "stock", span_id: "e" };
    const spans = [root, call, called, below, abroad];
    const orders = [spans, spans.toReversed(), [called, call, below, abroad, root]];
    for (const order of orders) {
      const rows = buildTraceDetail(order, called).map(({ span, subtraceRoot }) => [
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

  test("adds a digest to every exception and keeps an existing one", () => {
    const events = [
      createException(6, "Oops"),
      { name: "note", time: at(7), attributes: {} },
      createException(8, "Ouch", "own"),
    ];
    const [, arranged] = buildTraceDetail([root, { ...failed, events }]);
    expect(arranged?.span.events.map(({ attributes }) => attributes["appsignal.incident_digest"])).toEqual([
      encodeErrorDigest("Oops", { namespace: "web", action: "Pay" }),
      undefined,
      "own",
    ]);
  });
});

test("shared span id with equal start: order is deterministic", async () => {
  const call = createSpan({ span_id: "x", span_kind: "client", action: "Call" });
  const called = createSpan({ span_id: "x", span_kind: "server", action: "Serve" });
  for (const spans of [
    [call, called],
    [called, call],
  ]) {
    expect(buildTraceDetail(spans).map(({ span }) => span.span_kind)).toEqual(["client", "server"]);
    expect(await listRows(spans)).toMatchObject([{ action_name: "Call" }]);
  }
});

test("a trace of many spans is arranged in steps", () => {
  const parent_span_id = "0";
  const spans = Array.from({ length: 10_000 }, (_, n) =>
    createSpan({ span_id: `${n}`, parent_span_id, from: n }),
  );
  expect(countSteps(buildInSteps(spans))).toBeGreaterThanOrEqual(10);
});
