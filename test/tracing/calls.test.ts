// Edges against their definition, worked out over all pairs of spans, for random spans of sites that share documents.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Span, spanKinds } from "#src/core/rows.ts";
import type { EdgesQuery } from "#src/store/span-analytics.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader } from "../conformance/trace-fixture.ts";
import { createSource, createSpan, range, signal } from "./span-builder.ts";

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
    peer: fc.constantFrom("db", undefined),
    report: fc.integer({ max: 9, min: 0 }).map((n) => n === 0),
    sites: fc.uniqueArray(fc.constantFrom(...siteNames), { minLength: 1, maxLength: 3 }),
  })
  .map(({ sites, link, ...fields }): readonly Span[] => {
    const links = link === undefined ? [] : [{ ...link, trace_state: "", attributes: {} }];
    return sites.map((site_id) => createSpan({ ...fields, links, site_id }));
  });
const store = fc
  .array(documentCopies, { maxLength: 14 })
  .map((documents) =>
    [...new Map(documents.map((copies) => [nameDocument(copies[0]), copies])).values()].flat(),
  );

function nameDocument(span: Span | undefined): string {
  return JSON.stringify([span?.trace_id, span?.span_id, span?.span_kind, String(span?.start)]);
}

const isCallerKind = (span: Span): boolean => span.span_kind === "client" || span.span_kind === "producer";
const isCalled = (span: Span): boolean => span.span_kind === "server" || span.span_kind === "consumer";
const isNamed = (span: Span, trace: string, id: string | undefined): boolean =>
  span.trace_id === trace && span.span_id === id;

/** Of each document the copy of the site, else of the first site by name. */
function chooseCopies(spans: readonly Span[], site: string): readonly Span[] {
  return [...Map.groupBy(spans, nameDocument).values()].map((copies) => {
    const sorted = copies.toSorted((x, y) => (x.site_id < y.site_id ? -1 : 1));
    return sorted.find(({ site_id }) => site_id === site) ?? (sorted[0] as Span);
  });
}

/** `service` of each call's other end, by the side of the site, sorted. */
function listEdges(spans: readonly Span[], site: string): Readonly<Record<string, readonly string[]>> {
  const edges = { upstream: [] as string[], downstream: [] as string[], internal: [] as string[] };
  const inRange = ({ end }: Span): boolean => end >= range.from && end <= range.to;
  const isRequest = (span: Span): boolean => span.entry && !span.report;
  const chosen = chooseCopies(spans, site);
  const callers = chosen.filter((span) => isCallerKind(span) && inRange(span));
  const callees = chosen.filter(isRequest);
  for (const isOwn of [true, false]) {
    const of = callers.filter((caller) => (caller.site_id === site) === isOwn);
    const hasCaller = (trace: string, id: string | undefined): boolean =>
      of.some((one) => isNamed(one, trace, id));
    for (const caller of of) {
      const calls = callees.filter((callee) => {
        if (!isOwn && callee.site_id !== site) return false;
        if (callee.links.some((link) => isNamed(caller, link.trace_id, link.span_id))) return true;
        if (isCalled(callee) && hasCaller(callee.trace_id, callee.span_id)) {
          return isNamed(caller, callee.trace_id, callee.span_id);
        }
        const { trace_id, parent_span_id } = callee;
        const isShared = callees.some((other) => isCalled(other) && isNamed(other, trace_id, parent_span_id));
        return !isShared && isNamed(caller, trace_id, parent_span_id);
      });
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
  const runs = { numRuns: 3_000 };

  test("site edges equal their definition over all pairs, for each visible subset of sites", async () => {
    const visible = fc.uniqueArray(fc.constantFrom(...siteNames), { minLength: 1 });
    const property = fc.asyncProperty(store, visible, async (spans, [site = "a", ...partners]) => {
      const seen = spans.filter(
        ({ site_id }) => site_id === site || partners.some((name) => name === site_id),
      );
      const query: EdgesQuery = {
        sources: [createSource(site)],
        partners: partners.map(createSource),
        ...{ range, budget: createBudget(100_000) },
      };
      const found = await createSpanAnalytics(createArrayReader(spans)).siteEdges(query, signal);
      const counted = Object.entries(found).map(([side, rows]) => [
        side,
        (rows as typeof found.upstream).flatMap(({ service, count }) => Array(count).fill(service)).sort(),
      ]);
      expect(Object.fromEntries(counted)).toEqual(listEdges(seen, site));
    });
    await fc.assert(property, runs);
  });
});
