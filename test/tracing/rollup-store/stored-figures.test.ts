// Figures that are kept come back as they were, and what else comes back is no figures.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { spanKinds } from "#src/core/rows.ts";
import { minute } from "#src/core/time.ts";
import { siteEdgeRollups } from "#src/tracing/figures/edge-rollups.ts";
import { slowEventRollups } from "#src/tracing/figures/event-rollups.ts";
import {
  actionEdgesCodec,
  decodeActionEdges,
  decodeEventActions,
  decodeRequests,
  eventActionsCodec,
  eventsCodec,
  findRequestsPart,
  listPartKeys,
  type RequestsByPart,
  requestsCodec,
} from "#src/tracing/figures/stored-figures.ts";
import {
  emptyManifest,
  findReach,
  hashGroup,
  parseManifest,
  parseSegment,
  printManifest,
  printSegment,
} from "#src/tracing/rollup-store/manifest.ts";
import { addSpan, createDurationFigures } from "#src/tracing/rollups/duration-figures.ts";
import type { FiguresCodec } from "#src/tracing/rollups/stored-cover.ts";
import { formatEventKey, toEventAction } from "#src/tracing/slow-events.ts";
import { formatActionKey } from "#src/tracing/spans/requests.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { at, createSpan } from "../span-builder.ts";

const spans = fc.array(
  fc
    .record({
      from: fc.integer({ min: -1e9, max: 0 }),
      count: fc.integer({ min: 1, max: 9 }),
      status_code: fc.constantFrom("OK", "ERROR"),
    })
    .map(createSpan),
  { minLength: 1, maxLength: 20 },
);
const edges = fc.dictionary(fc.string(), spans, { maxKeys: 5 }).map((byService) => {
  return new Map(
    Object.entries(byService).map(([service, own]) => {
      const durations = createDurationFigures();
      for (const span of own) addSpan(durations, span);
      return [JSON.stringify({ service }), { key: { service }, durations }] as const;
    }),
  );
});
const actionEdge = fc.record(
  {
    service: fc.string(),
    namespace: fc.string(),
    action: fc.string(),
    span_kind: fc.constantFrom(...spanKinds),
    peer_span_kind: fc.constantFrom(...spanKinds),
    edge_type: fc.constantFrom("SYNC" as const, "ASYNC" as const),
  },
  { requiredKeys: ["service", "span_kind", "edge_type"], noNullPrototype: true },
);
const actionEdgesOfSide = fc.array(fc.tuple(actionEdge, spans), { maxLength: 4 }).map((rows) => {
  return new Map(
    rows.map(([key, own]) => {
      const durations = createDurationFigures();
      for (const span of own) addSpan(durations, span);
      return [JSON.stringify(key), { key, durations }] as const;
    }),
  );
});
const requestsByPart = fc
  .array(
    fc.record({
      names: fc.record({ namespace: fc.string(), action: fc.string() }, { noNullPrototype: true }),
      revision: fc.constantFrom("r1", "r2", undefined, "null"),
      own: spans,
      hasNpo: fc.boolean(),
      ends: fc.tuple(fc.integer(), fc.integer()),
    }),
    { maxLength: 12 },
  )
  .map((rows) => {
    const parts: RequestsByPart = new Map();
    for (const { names, revision, own, hasNpo, ends } of rows) {
      const durations = createDurationFigures();
      for (const span of own) addSpan(durations, span);
      const [first, last] = [at(Math.min(...ends)), at(Math.max(...ends))];
      const key = formatActionKey(names);
      findRequestsPart(parts, revision, key).set(key, { names, durations, hasNpo, first, last });
    }
    return parts;
  });
const toParts = <Part>(part: fc.Arbitrary<Part>) =>
  fc.dictionary(fc.string(), part, { maxKeys: 4 }).map((parts) => new Map(Object.entries(parts)));
const edgesByAction = toParts(fc.record({ upstream: actionEdgesOfSide, downstream: actionEdgesOfSide }));
const actionsByEvent = toParts(
  fc
    .array(
      fc.record({
        names: fc.record({ namespace: fc.string(), action: fc.string() }),
        of: fc.record({
          count: fc.nat(),
          longest: fc
            .record({ from: fc.integer({ min: -1e9, max: 0 }), span_kind: fc.constantFrom(...spanKinds) })
            .map(createSpan)
            .map((span) => toEventAction(span).longest),
        }),
      }),
      { maxLength: 4 },
    )
    .map((rows) => new Map(rows.map((row) => [formatActionKey(row.names), row]))),
);
const siteEdges = fc.record({ upstream: edges, downstream: edges, internal: edges });
const events = fc
  .record({
    total: fc.bigInt({ min: 0n, max: 10n ** 25n }),
    events: fc.array(
      fc.record({
        key: fc.record({
          service: fc.string(),
          kind: fc.constantFrom(...spanKinds),
          name: fc.string(),
          statement: fc.option(fc.string(), { nil: undefined }),
        }),
        count: fc.nat(),
        total: fc.bigInt({ min: 0n, max: 10n ** 20n }),
        attributes: fc.constant({}),
      }),
    ),
  })
  .map(({ total, events }) => ({
    total,
    events: new Map(events.map((event) => [formatEventKey(event.key), event])),
  }));
const group = hashGroup({ site: "a", key: "k" });
const piece = { range: { from: at(0), to: at(5 * minute - 1e-6) }, origins: new Set<string>() };

async function store<Figures>(codec: FiguresCodec<Figures>, figures: Figures): Promise<Figures | undefined> {
  const { segment, body } = printSegment(group, piece, await codec.encode(figures));
  return codec.decode(parseSegment(group, segment, body));
}

describe("kept figures", () => {
  test("of edges come back equal", async () => {
    await fc.assert(
      fc.asyncProperty(siteEdges, async (figures) => {
        expect(await store(siteEdgeRollups.codec, figures)).toEqual(figures);
        expect(await siteEdgeRollups.codec.merge([figures])).toEqual(figures);
      }),
      { numRuns: sampleRuns(50) },
    );
  });

  test("of actions and of slow events come back equal, all at once and one by one", async () => {
    await fc.assert(
      fc.asyncProperty(edgesByAction, actionsByEvent, fc.string(), async (edges, actions, other) => {
        expect(await store(actionEdgesCodec, edges)).toEqual(edges);
        expect(await store(eventActionsCodec, actions)).toEqual(actions);
        expect(await actionEdgesCodec.merge([edges])).toEqual(edges);
        expect(await eventActionsCodec.merge([actions])).toEqual(actions);
        const kept = {
          edges: await actionEdgesCodec.encode(edges),
          actions: await eventActionsCodec.encode(actions),
        };
        for (const key of [other, ...edges.keys()]) {
          const none = { upstream: new Map(), downstream: new Map() };
          expect(decodeActionEdges(kept.edges, key)).toEqual(edges.get(key) ?? none);
        }
        for (const key of [other, ...actions.keys()])
          expect(decodeEventActions(kept.actions, key)).toEqual(actions.get(key) ?? new Map());
      }),
      { numRuns: sampleRuns(50) },
    );
  });

  test("of requests come back equal, all at once and of one revision", async () => {
    await fc.assert(
      fc.asyncProperty(requestsByPart, fc.constantFrom("r1", "r2", ""), async (requests, other) => {
        expect(await store(requestsCodec, requests)).toEqual(requests);
        expect(await requestsCodec.merge([requests])).toEqual(requests);
        const kept = await requestsCodec.encode(requests);
        const keys = listPartKeys(other);
        const own = new Map([...requests].filter(([key]) => keys.includes(key)));
        expect(await decodeRequests(kept, [other])).toEqual(own);
      }),
      { numRuns: sampleRuns(50) },
    );
  });

  test.each([
    ["no list", {}],
    ["a part that is no text", [["k", []]]],
    ["a part that is no JSON", [["k", "["]]],
    ["a part of another form", [["k", "[1]"]]],
    [
      "one key twice",
      [
        ["k", "[[],[]]"],
        ["k", "[[],[]]"],
      ],
    ],
  ])("of %s are none", async (_, value) => {
    expect(await actionEdgesCodec.decode(value)).toBeUndefined();
  });

  test("of slow events come back equal", async () => {
    await fc.assert(
      fc.asyncProperty(events, async (figures) => {
        expect(await store(slowEventRollups.codec, figures)).toEqual(figures);
      }),
      { numRuns: sampleRuns(50) },
    );
  });

  test.each([
    ["another group", (body: string) => body.replace(group, hashGroup({ site: "a", key: "other" }))],
    ["another time", (body: string) => body.replace(/"start":\d+/, '"start":5')],
    ["another form", (body: string) => body.replace(/"format":\d+/, '"format":1')],
    ["a count that its lengths do not have", (body: string) => body.replace(/\[2,0,/, "[3,0,")],
    ["a key more", (body: string) => body.replace("{", '{"more":1,')],
    ["half a text", (body: string) => body.slice(0, body.length / 2)],
    ["no text", () => ""],
  ])("of %s are none", (_, change) => {
    const durations = createDurationFigures();
    for (const span of [createSpan({ to: 3 }), createSpan({ to: 7 })]) addSpan(durations, span);
    const edge = new Map([['{"service":"x"}', { key: { service: "x" }, durations }]]);
    const { codec } = siteEdgeRollups;
    const figures = { upstream: edge, downstream: new Map(), internal: new Map() };
    const { segment, body } = printSegment(group, piece, codec.encode(figures));
    expect(codec.decode(parseSegment(group, segment, body))).toEqual(figures);
    expect(change(body)).not.toBe(body);
    expect(codec.decode(parseSegment(group, segment, change(body)))).toBeUndefined();
  });
});

describe("manifests", () => {
  const segmentOf = (first: number, minutes: number, ...origins: readonly string[]) => {
    const range = { from: at(first * minute), to: at((first + minutes) * minute - 1e-6) };
    return printSegment(group, { range, origins: new Set(origins) }, first).segment;
  };
  const manifest = {
    at: 7,
    version: "v",
    segments: [segmentOf(0, 60, "spans-2", "spans-1"), segmentOf(65, 5, "spans-2"), segmentOf(70, 1)],
    merged: [segmentOf(-600, 1_440, "spans-1", "spans-2"), segmentOf(0, 60, "spans-2")],
    unmergeable: [segmentOf(0, 60).id],
  };

  test("come back equal, and say how far they reach without a gap", () => {
    expect(parseManifest(group, printManifest(group, manifest))).toEqual(manifest);
    expect(parseManifest(group, printManifest(group, emptyManifest))).toEqual(emptyManifest);
    expect([findReach(manifest), findReach(emptyManifest)]).toEqual([at(65 * minute), undefined]);
  });

  test.each([
    ["another group", "manifest of another", manifest],
    ["segments that overlap", group, { ...manifest, segments: [segmentOf(0, 60), segmentOf(55, 5)] }],
    ["hours that begin at another minute", group, { ...manifest, merged: [segmentOf(5, 60)] }],
    ["merged segments of another length", group, { ...manifest, merged: [segmentOf(0, 30)] }],
    ["an hour that comes twice", group, { ...manifest, merged: [segmentOf(0, 60), segmentOf(0, 60)] }],
    ["segments out of order", group, { ...manifest, segments: [segmentOf(65, 5), segmentOf(0, 60)] }],
  ])("of %s are none", (_, name, written) => {
    expect(parseManifest(group, printManifest(name, written))).toBeUndefined();
  });
});

test.each([
  ["a number for a service", [1, "client", "a", null, 1, "1"]],
  ["a kind that nobody knows", ["a", "caller", "a", null, 1, "1"]],
  ["a list for a name", ["a", "client", [], null, 1, "1"]],
  ["a number for a statement", ["a", "client", "a", 1, 1, "1"]],
  ["a fraction for a count", ["a", "client", "a", null, 1.5, "1"]],
  ["a count below zero", ["a", "client", "a", null, -1, "1"]],
  ["a number for a total", ["a", "client", "a", null, 1, 1]],
  ["a total with a sign", ["a", "client", "a", null, 1, "-1"]],
  ["a place too many", ["a", "client", "a", null, 1, "1", 1]],
  ["no list", "a"],
])("a slow event with %s is none", async (_, event) => {
  const known = ["a", "client", "a", null, 1, "1"];
  expect(await eventsCodec.decode(["1", [known]])).toMatchObject({ total: 1n });
  expect(await eventsCodec.decode(["1", [known, event]])).toBeUndefined();
});
