// Edges against their definition, worked out over all pairs of spans, for random spans of sites that share documents, and of
// which some were sent twice.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Edge, type Span, spanKinds } from "#src/core/rows.ts";
import type { Instant, TimeRange } from "#src/core/time.ts";
import type { EdgesQuery, SlowEventActionsQuery } from "#src/store/span-analytics.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { encodeEventDigest } from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { at, createSource, createSpan, range, signal } from "./span-builder.ts";

const siteNames = ["a", "b", "c"] as const;
const ids = ["s1", "s2", "s3", "s4"] as const;
const spanId = fc.constantFrom(...ids);
const traceId = fc.constantFrom("t1", "t2");

/** One document, as each site that holds it reads it. */
const documentCopies = fc
  .record({
    trace_id: traceId,
    span_id: spanId,
    parent_span_id: fc.option(spanId, { nil: undefined }),
    span_kind: fc.constantFrom(...spanKinds),
    link: fc.option(fc.record({ trace_id: traceId, span_id: spanId }), { nil: undefined, freq: 2 }),
    from: fc.constantFrom(0, 500),
    to: fc.constantFrom(900, 1_000, 2_000),
    service_name: fc.constantFrom("x", "y"),
    span_name: fc.constantFrom("work", "rest"),
    peer: fc.constantFrom("db", undefined),
    report: fc.integer({ max: 9, min: 0 }).map((n) => n === 0),
    sites: fc.uniqueArray(fc.constantFrom(...siteNames), { minLength: 1, maxLength: 3 }),
  })
  .map(({ sites, link, ...fields }): readonly Span[] => {
    const links = link === undefined ? [] : [{ ...link, trace_state: "", attributes: {} }];
    return sites.map((site_id) => createSpan({ ...fields, links, site_id }));
  });
const documents = fc.array(documentCopies, { maxLength: 14 });
/** Of several documents of one span, each ends at another time, so that it is plain which one stands for the span. */
const store = documents.map((all) =>
  [...new Map(all.map((copies) => [nameSpan(copies[0], copies[0]?.end), copies])).values()].flat(),
);

function nameSpan(span: Span | undefined, ...more: readonly unknown[]): string {
  return JSON.stringify([
    span?.trace_id,
    span?.span_id,
    span?.span_kind,
    ...[span?.start, ...more].map(String),
  ]);
}

const isCallerKind = (span: Span): boolean => span.span_kind === "client" || span.span_kind === "producer";
const isCalled = (span: Span): boolean => span.span_kind === "server" || span.span_kind === "consumer";
const isNamed = (span: Span, trace: string, id: string | undefined): boolean =>
  span.trace_id === trace && span.span_id === id;

/** Of each group the span of the site, else of the first site by name, and of these the one that ends last. */
function chooseDocuments(
  spans: readonly Span[],
  site: string,
  name: (span: Span) => string,
): readonly Span[] {
  const rank = ({ site_id }: Span): string => (site_id === site ? "" : site_id);
  return [...Map.groupBy(spans, name).values()].map((copies) => {
    const [first] = copies.toSorted((x, y) =>
      rank(x) === rank(y) ? Number(y.end - x.end) : rank(x) < rank(y) ? -1 : 1,
    );
    return first as Span;
  });
}

/** `service` of each call's other end, by the side of the site, sorted. */
function listEdges(spans: readonly Span[], site: string): Readonly<Record<string, readonly string[]>> {
  const edges = { upstream: [] as string[], downstream: [] as string[], internal: [] as string[] };
  const inRange = ({ end }: Span): boolean => end >= range.from && end <= range.to;
  const isRequest = (span: Span): boolean => span.entry && !span.report;
  const callers = chooseDocuments(spans.filter(isCallerKind), site, (span) =>
    nameSpan(span, span.end, span.parent_span_id),
  ).filter(inRange);
  const callees = spans.filter(isRequest);
  for (const isOwn of [true, false]) {
    const of = callers.filter((caller) => (caller.site_id === site) === isOwn);
    for (const caller of of) {
      const naming = callees.filter((callee) => {
        const { trace_id, parent_span_id, links } = callee;
        if (!isOwn && callee.site_id !== site) return false;
        if (links.some((link) => isNamed(caller, link.trace_id, link.span_id))) return true;
        if (isCalled(callee) && isNamed(caller, trace_id, callee.span_id)) return true;
        const isShared = callees.some((other) => isCalled(other) && isNamed(other, trace_id, parent_span_id));
        const isOfOther = spans.some(
          (other) =>
            isCallerKind(other) &&
            isNamed(other, trace_id, callee.span_id) &&
            other.parent_span_id === parent_span_id,
        );
        return !isShared && !(isCalled(callee) && isOfOther) && isNamed(caller, trace_id, parent_span_id);
      });
      const calls = chooseDocuments(naming, site, (callee) => nameSpan(callee));
      for (const callee of calls) {
        if (!isOwn) edges.upstream.push(caller.service_name);
        else if (callee.site_id === site) edges.internal.push(callee.service_name);
        else edges.downstream.push(callee.service_name);
      }
      if (isOwn && calls.length === 0 && caller.peer !== undefined) edges.downstream.push(caller.peer);
    }
  }
  return Object.fromEntries(Object.entries(edges).map(([side, services]) => [side, services.sort()]));
}

describe("calls", () => {
  test("site edges equal their definition over all pairs, for each visible subset of sites", async () => {
    const visible = fc.uniqueArray(fc.constantFrom(...siteNames), { minLength: 1 });
    const property = fc.asyncProperty(store, visible, async (spans, [site = "a", ...partners]) => {
      const seen = spans.filter(
        ({ site_id }) => site_id === site || partners.some((name) => name === site_id),
      );
      const query: EdgesQuery = {
        sources: [createSource(site)],
        partners: partners.map(createSource),
        range,
        budget: createBudget(100_000),
      };
      const found = await createSpanAnalytics(createArrayReader(spans)).siteEdges(query, signal);
      const counted = Object.entries(found).map(([side, rows]) => [
        side,
        (rows as typeof found.upstream).flatMap(({ service, count }) => Array(count).fill(service)).sort(),
      ]);
      expect(Object.fromEntries(counted)).toEqual(listEdges(seen, site));
    });
    await fc.assert(property, { numRuns: sampleRuns(3_000) });
  });

  test("the figures of a range are those of its parts, in whatever order its documents are read", async () => {
    const visible = fc.uniqueArray(fc.constantFrom(...siteNames), { minLength: 1 });
    const property = fc.asyncProperty(
      documents,
      visible,
      fc.infiniteStream(fc.nat()),
      async (all, [site = "a", ...partners], random) => {
        const spans = all.flat();
        const shuffled = spans
          .map((span) => ({ span, rank: random.next().value }))
          .toSorted((x, y) => x.rank - y.rank)
          .map(({ span }) => span);
        const whole = await readFigures(spans, site, partners, [range]);
        const middle = at(950);
        const parts: readonly TimeRange[] = [
          { from: range.from, to: (middle - 1n) as Instant },
          { from: middle, to: range.to },
        ];
        expect(await readFigures(shuffled, site, partners, [range])).toEqual(whole);
        expect(await readFigures(shuffled, site, partners, parts)).toEqual(whole);
      },
    );
    await fc.assert(property, { numRuns: sampleRuns(3_000) });
  });

  test("callees in the range are read once, and only others are looked up", async () => {
    const spans = [1, 2].flatMap((n) => [
      createSpan({ span_id: `caller${n}`, span_kind: "client" }),
      createSpan({ span_id: `callee${n}`, parent_span_id: `caller${n}`, span_kind: "server" }),
    ]);
    expect(await listLookups(spans)).toEqual([range]);
  });

  test("callees are looked up by their callers where the range has far more requests", async () => {
    const others = Array.from({ length: 4 }, (_, n) => createSpan({ span_id: `other${n}` }));
    const spans = [
      createSpan({ span_id: "caller", span_kind: "client", parent_span_id: "other0" }),
      ...others,
    ];
    expect(await listLookups(spans)).toEqual([undefined]);
  });

  /** The ranges outside of which callees are looked up for the edges of a site. */
  async function listLookups(spans: readonly Span[]): Promise<readonly (TimeRange | undefined)[]> {
    const ranges: (TimeRange | undefined)[] = [];
    const reader = createArrayReader(spans);
    const find: typeof reader.find = (lookup, ...rest) => {
      ranges.push(lookup.outside);
      return reader.find(lookup, ...rest);
    };
    const query: EdgesQuery = {
      sources: [createSource("shop")],
      partners: [],
      range,
      budget: createBudget(100_000),
    };
    await createSpanAnalytics({ ...reader, find }).siteEdges(query, signal);
    return ranges;
  }

  /** By edge or action: how often it counts in these ranges, its errors and its time. */
  async function readFigures(
    spans: readonly Span[],
    site: string,
    partners: readonly string[],
    ranges: readonly TimeRange[],
  ): Promise<Readonly<Record<string, readonly number[]>>> {
    const analytics = createSpanAnalytics(createArrayReader(spans));
    const sums = new Map<string, readonly number[]>();
    const add = (key: string, figures: readonly number[]): void => {
      const known = sums.get(key);
      sums.set(
        key,
        figures.map((figure, n) => figure + (known?.[n] ?? 0)),
      );
    };
    const addEdges = (side: string, edges: readonly Edge[]): void => {
      for (const { count, error_count, mean, p_90: _, p_95: __, ...names } of edges) {
        add(`${side} ${JSON.stringify(Object.entries(names).sort())}`, [
          count,
          error_count,
          Math.round(mean * count),
        ]);
      }
    };
    for (const own of ranges) {
      const query: EdgesQuery = {
        sources: [createSource(site)],
        partners: partners.map(createSource),
        range: own,
        budget: createBudget(100_000),
      };
      for (const [side, edges] of Object.entries(await analytics.siteEdges(query, signal))) {
        addEdges(`site ${side}`, edges);
      }
      const action = { service: "x", namespace: "web", action: "work" };
      const found = await analytics.actionEdges({ ...query, ...action }, signal);
      for (const [side, edges] of Object.entries(found)) addEdges(`action ${side}`, edges);
      const digest = encodeEventDigest({ service: "x", kind: "client", name: "work", statement: undefined });
      const events: SlowEventActionsQuery = { ...query, digest };
      for (const { namespace, action_name, count } of await analytics.slowEventActions(events, signal)) {
        add(`event ${namespace} ${action_name}`, [count]);
      }
    }
    return Object.fromEntries(sums);
  }
});
