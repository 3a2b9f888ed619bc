// Listings and analyses that every span store must answer as the definition does, and helpers to read and compare them.

import { expect } from "vitest";
import type { Span, TraceSummary } from "#src/core/rows.ts";
import { fromMillis, type TimeRange } from "#src/core/time.ts";
import type { ListingQuery, SpanAnalytics, SpanStore } from "#src/store/span-analytics.ts";
import type { Budget, SpanSource, SpanSources } from "#src/store/spans.ts";
import { deriveTie } from "#src/tracing/listing/listing.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import {
  encodeActionDigest,
  encodeErrorDigest,
  encodeEventDigest,
  hashStatement,
} from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { deriveNames } from "#src/tracing/spans/requests.ts";
import { midnight } from "./trace-fixture.ts";

export const wide: TimeRange = {
  from: fromMillis(midnight - 12 * 3_600_000),
  to: fromMillis(midnight + 12 * 3_600_000),
};
/** Has about half of the spans of `makeTraces`, and cuts traces at both ends. */
export const narrow: TimeRange = { from: fromMillis(midnight - 30), to: fromMillis(midnight + 40) };

export const orders = [
  ["time", "asc"],
  ["time", "desc"],
  ["duration", "asc"],
  ["duration", "desc"],
] as const;

/** All requests in `wide`, the newest first. */
export function buildListing(sources: SpanSources): ListingQuery {
  return {
    sources,
    candidates: "requests",
    range: wide,
    filter: { query: { kind: "all" } },
    by: "time",
    order: "desc",
    expectedRows: 25,
    tieLimit: 10_000,
    budget: createLargeBudget(),
  };
}

/** Names and variations of a listing that cover each filter. */
export function buildListings(spans: readonly Span[]): readonly (readonly [string, Partial<ListingQuery>])[] {
  const all = { kind: "all" } as const;
  const failed = spans.find(({ entry, events }) => entry && events.length > 0)?.trace_id;
  const digest = encodeActionDigest({ namespace: "web", action: "Cart#show" });
  /** A root with the only exception of its trace. */
  const broken = spans.find(
    ({ trace_id, parent_span_id, events }) =>
      parent_span_id === undefined &&
      events.some(isException) &&
      spans.filter((span) => span.trace_id === trace_id && span.events.some(isException)).length === 1,
  );
  const unnumbered = spans.flatMap((span) =>
    span.entry
      ? span.events.flatMap(({ name, attributes }) =>
          name === "exception" && attributes["appsignal.incident_digest"] === undefined
            ? [encodeErrorDigest(String(attributes["exception.type"]), deriveNames(span))]
            : [],
        )
      : [],
  );
  const [derived = ""] = unnumbered;
  const filters: readonly (readonly [string, ListingQuery["filter"]])[] = [
    ["without a filter", { query: all }],
    ["of a namespace", { namespace: "web", query: all }],
    ["of an action", { action: "Cart#show", query: all }],
    ["of a span's name as action", { action: "POST /reserve", query: all }],
    ["of a least duration", { minDuration: 22_000_000n, query: all }],
    ["of one trace", { traceId: failed, query: all }],
    ["of an action's digest", { digests: [digest], query: all }],
    ["of an error's digest", { digests: ["digest-1", "unknown"], query: all }],
    ["of a tag", { query: parseTraceQuery("tag.region=eu") }],
    ["of a required tag and revision", { query: parseTraceQuery("revision=r1 tag.region=us") }],
    ["of required names", { query: parseTraceQuery('namespace=web action_name="Cart#show"') }],
    ["of a trace in the query", { query: parseTraceQuery(`trace_id=${failed} namespace!=x`) }],
    ["of a span", { query: parseTraceQuery(`span_id=${broken?.span_id}`) }],
    ["of a derived error digest", { digests: [derived], query: all }],
    ["of other tags", { query: parseTraceQuery("tag.region!=eu revision:r") }],
    ["of a disjunction", { query: parseTraceQuery("revision=r1 OR (namespace=admin action_name!:Cart)") }],
    ["of a word", { query: parseTraceQuery("Cart") }],
  ];
  const byError = { candidates: "errors", byError: true } as const;
  const errorsByDigest: readonly (readonly [string, Partial<ListingQuery>])[] = [
    ["of each error", { ...byError }],
    ["of each error of a part of the range", { ...byError, range: narrow, order: "asc" }],
    ["of each of two errors", { ...byError, filter: { digests: ["digest-1", derived], query: all } }],
    ["of each error of an action", { ...byError, filter: { namespace: "web", query: all } }],
  ];
  const listings = filters.flatMap(
    ([name, filter]): readonly (readonly [string, Partial<ListingQuery>])[] => [
      [`${name}: requests`, { filter }],
      [`${name}: requests of a part of the range`, { filter, range: narrow, order: "asc" }],
      [`${name}: errors`, { filter, candidates: "errors" }],
      [
        `${name}: errors of a part of the range by duration`,
        { filter, candidates: "errors", range: narrow, by: "duration" },
      ],
    ],
  );
  return [...listings, ...errorsByDigest];
}

export const isException = ({ name }: { readonly name: string }): boolean => name === "exception";

/** Analyses of one site, by name. */
interface AnalysisInput {
  readonly sources: SpanSources;
  readonly partners: readonly SpanSource[];
  readonly range: TimeRange;
  readonly budget: Budget;
}
type Analysis = (store: SpanAnalytics, input: AnalysisInput) => Promise<unknown>;

const slow = { requiredAttributes: [], excludedAttributes: [], limit: 100 };
export const analyses: readonly (readonly [string, Analysis])[] = [
  ["actions", (store, input) => store.actions({ ...input, namespaces: [] }, createSignal())],
  [
    "actions of a namespace and revision",
    (store, input) =>
      store.actions({ ...input, namespaces: ["web", "admin"], revision: "r1" }, createSignal()),
  ],
  [
    "one action",
    (store, input) => store.actions({ ...input, namespaces: [], action: "Cart#pay" }, createSignal()),
  ],
  ["site edges", (store, input) => store.siteEdges(input, createSignal())],
  ...(
    [
      ["shop-web", "web", "Cart#show"],
      ["stock", "web", "POST /reserve"],
      ["shop-worker", "background", "MailJob"],
    ] as const
  ).map(([service, namespace, action]): readonly [string, Analysis] => [
    `edges of ${action}`,
    (store, input) => store.actionEdges({ ...input, service, namespace, action }, createSignal()),
  ]),
  ["slow events", (store, input) => store.slowEvents({ ...input, ...slow }, createSignal())],
  ["the slowest event", (store, input) => store.slowEvents({ ...input, ...slow, limit: 1 }, createSignal())],
  [
    "slow events of a kind with an attribute",
    (store, input) =>
      store.slowEvents(
        { ...input, ...slow, kind: "client", requiredAttributes: ["db.system.name"] },
        createSignal(),
      ),
  ],
  [
    "slow events without an attribute",
    (store, input) =>
      store.slowEvents({ ...input, ...slow, excludedAttributes: ["db.system.name"] }, createSignal()),
  ],
  [
    "the actions of a slow event",
    (store, input) => {
      const statement = hashStatement("select * from users where id = ?");
      const key = { service: "shop-web", kind: "client", name: "query", statement } as const;
      return store.slowEventActions({ ...input, digest: encodeEventDigest(key) }, createSignal());
    },
  ],
  ["a revision", (store, input) => store.revisionStats({ ...input, revision: "r1" }, createSignal())],
  [
    "an unknown revision",
    (store, input) => store.revisionStats({ ...input, revision: "r9" }, createSignal()),
  ],
];

// ---- Reading and comparing ----------------------------------------------------------------------------------

export function createLargeBudget(): Budget {
  return createBudget(1_000_000);
}

export function createSignal(): AbortSignal {
  return new AbortController().signal;
}

export async function readAllSpans(batches: AsyncIterable<readonly Span[]>): Promise<Span[]> {
  const spans: Span[] = [];
  for await (const batch of batches) {
    expect(batch.length).toBeGreaterThan(0);
    spans.push(...batch);
  }
  return spans;
}

export async function readAllRows(batches: AsyncIterable<readonly TraceSummary[]>): Promise<TraceSummary[]> {
  return (await Array.fromAsync(batches)).flat();
}

/** The first `perPage` rows, and the rest of the last tie. */
export async function readPages(
  store: SpanStore,
  query: ListingQuery,
  perPage: number,
): Promise<TraceSummary[]> {
  const rows: TraceSummary[] = [];
  for await (const batch of store.summaries({ ...query, expectedRows: perPage }, createSignal())) {
    for (const row of batch) {
      const last = rows.at(-1);
      if (rows.length >= perPage && last && deriveTie(query, row) !== deriveTie(query, last)) return rows;
      rows.push(row);
    }
  }
  return rows;
}

export function formatKey({
  site_id,
  trace_id,
  span_id,
}: Pick<Span, "site_id" | "trace_id" | "span_id">): string {
  return `${site_id} ${trace_id} ${span_id}`;
}

export function sortRows<T>(rows: readonly T[]): T[] {
  return rows.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}

/** Ignores the order of rows, the last digits of numbers, and percentiles, which have a test of their own. */
export function expectNearly(found: unknown, wanted: unknown): void {
  expect(roundNumbers(found)).toEqual(roundNumbers(wanted));
}

function roundNumbers(value: unknown): unknown {
  if (typeof value === "number") return Number(value.toPrecision(9));
  if (Array.isArray(value)) return sortRows(value.map(roundNumbers).map(toText));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      key === "p_90" || key === "p_95" || inner === undefined ? [] : [[key, roundNumbers(inner)]],
    ),
  );
}

function toText(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "bigint"
      ? `${inner}n`
      : typeof inner === "object" && inner !== null && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : inner,
  );
}
