// Listings are read in windows of time or durations. They must choose the same rows as from all spans at once.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compare, type Span, type TraceSummary } from "#src/core/rows.ts";
import { floorToMilli, fromMillis, type Instant } from "#src/core/time.ts";
import type { ListingQuery, TraceFilter } from "#src/store/span-analytics.ts";
import type { Budget, SpanLookup, SpanPushdown, SpanReader, SpanScan } from "#src/store/spans.ts";
import { compareRows, listSummaries } from "#src/tracing/listing/listing.ts";
import { isRowAccepted, parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { encodeActionDigest, encodeErrorDigest } from "#src/tracing/spans/digest.ts";
import { listExceptions } from "#src/tracing/spans/exceptions.ts";
import { findNPlusOnes } from "#src/tracing/spans/n-plus-one.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import {
  compareRequests,
  createAncestorIndex,
  deriveNames,
  toSummaryRow,
} from "#src/tracing/spans/requests.ts";
import { createArrayReader, makeTraces, midnight, toSpan } from "../../conformance/trace-fixture.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import { createSource, createSpan, signal } from "../span-builder.ts";

const center = fromMillis(midnight);
const day = 86_400_000;
const range = { from: fromMillis(midnight - 3 * day), to: fromMillis(midnight + 3 * day) };
/** A range with bounds within traces. */
const later = { from: center, to: fromMillis(midnight + day / 4) };

/** Traces with milliseconds stretched to hours, so that the spans of a trace lie in many windows. */
function stretchTraces(seed: number): readonly Span[] {
  const stretch = (time: Instant): Instant => (center + (time - center) * 40_000n) as Instant;
  return makeTraces(seed, 40).map((model) => {
    const span = toSpan(model);
    return { ...span, start: stretch(span.start), end: stretch(span.end) };
  });
}

/** A store that leaves out all that it may, and lists the traces with exceptions, with others among them. */
function createWindowReader(spans: readonly Span[]): SpanReader {
  const reader = createArrayReader(spans);
  const isNarrowed = (span: Span, { range, pushdown }: NonNullable<SpanLookup["within"]>): boolean => {
    const { namespace, action } = deriveNames(span);
    const {
      namespaces,
      actions,
      tags = [],
      revision,
      errors,
      minDuration = 0n,
      maxDuration,
    } = pushdown ?? {};
    const length = span.end > span.start ? span.end - span.start : 0n;
    return (
      span.end >= range.from &&
      span.end <= range.to &&
      namespaces?.includes(namespace) !== false &&
      actions?.includes(action) !== false &&
      tags.every(({ name, value }) => String(span.tags[name]) === value) &&
      (revision === undefined || span.revision === revision) &&
      length >= minDuration &&
      (maxDuration === undefined || length <= maxDuration) &&
      (errors === undefined || failed(span, errors))
    );
  };
  const failed = (span: Span, errors: NonNullable<SpanPushdown["errors"]>): boolean =>
    span.events.some(
      ({ name, attributes }) =>
        name === "exception" &&
        errors.some(
          ({ digest, exception }) =>
            attributes["appsignal.incident_digest"] === digest || attributes["exception.type"] === exception,
        ),
    );
  async function* keepAccepted(batches: AsyncIterable<readonly Span[]>, accepts: (span: Span) => boolean) {
    for await (const batch of batches) {
      const left = batch.filter(accepts);
      if (left.length > 0) yield left;
    }
  }
  return {
    scan: (query, signal) => {
      const { errors, ...others } = query.pushdown ?? {};
      const pushdown = query.select === "exceptions" ? query.pushdown : others;
      return keepAccepted(reader.scan(query, signal), (span) =>
        isNarrowed(span, { range: query.range, pushdown }),
      );
    },
    find: (query, signal) => {
      const { range, pushdown } = query.within ?? {};
      const { errors, ...others } = pushdown ?? {};
      return keepAccepted(
        reader.find(query, signal),
        (span) => range === undefined || isNarrowed(span, { range, pushdown: others }),
      );
    },
    findTraceIdsWithExceptions: async ({ errors }) => [
      "unknown",
      ...spans
        .filter((span) => (errors ? failed(span, errors) : span.events.length > 0))
        .map(({ trace_id }) => trace_id),
    ],
  };
}

function createQuery(over: Pick<ListingQuery, "budget"> & Partial<ListingQuery>): ListingQuery {
  return {
    sources: [createSource("shop"), createSource("stock"), createSource("blog")],
    candidates: "requests",
    range,
    filter: everything,
    by: "time",
    order: "desc",
    expectedRows: 5,
    tieLimit: 1_000,
    ...over,
  };
}

async function listRows(
  spans: readonly Span[],
  over: Partial<ListingQuery>,
  budget: Budget = createBudget(1_000_000),
  reader: SpanReader = createArrayReader(spans),
): Promise<TraceSummary[]> {
  const query = createQuery({ budget, ...over });
  return (await Array.fromAsync(listSummaries(reader, query, signal))).flat();
}

type ListingCase = Required<Pick<ListingQuery, "candidates" | "range" | "filter" | "by" | "order">> &
  Pick<ListingQuery, "beyond">;

/** The rows of a listing as the reference of tracing has them, from all spans at once. */
async function listPlainly(
  spans: readonly Span[],
  { candidates, range, filter, beyond, ...ordering }: ListingCase,
) {
  const { findEntry: entryOf } = createAncestorIndex(spans);
  const withNpo = new Set((await findNPlusOnes(spans, signal)).map(entryOf));
  const isIn = ({ end }: Span) => end >= range.from && end <= range.to;
  const failures = spans.flatMap((span) => {
    const entry = entryOf(span);
    return listExceptions(span, deriveNames(entry ?? span)).map(({ time, digest }) => ({
      time,
      digest,
      span,
      entry,
    }));
  });
  const requests = spans
    .filter((span) => span.entry && isIn(span))
    .toSorted(compareRequests)
    .map((span) => {
      const digests = failures.flatMap(({ digest, entry }) => (entry === span ? [digest] : []));
      return { row: toSummaryRow(span, span.span_id), entry: span, digests };
    });
  const errors = failures
    .filter(({ span, entry = span }) => isIn(entry))
    .toSorted((a, b) => compare(a.time, b.time) || compare(a.span.span_id, b.span.span_id))
    .map(({ span, entry, digest }) => ({
      row: toSummaryRow(entry ?? span, span.span_id),
      entry,
      digests: [digest],
    }));
  const chosen = new Map<string, TraceSummary>();
  for (const { row, entry, digests } of candidates === "requests" ? requests : errors) {
    const key = `${row.site_id} ${row.trace_id}`;
    if (chosen.has(key) || !isRowAccepted(filter, row, digests)) continue;
    chosen.set(key, { ...row, has_npo: entry !== undefined && withNpo.has(entry) });
  }
  const place = (row: TraceSummary) => row[ordering.by];
  return [...chosen.values()]
    .filter(
      (row) => beyond === undefined || (ordering.order === "asc" ? place(row) > beyond : place(row) < beyond),
    )
    .sort((a, b) => compareRows(ordering, a, b));
}

const everything: TraceFilter = { query: { kind: "all" } };
const filters: readonly TraceFilter[] = [
  everything,
  { minDuration: 900_000_000_000n, query: { kind: "all" } },
  { namespace: "background", query: { kind: "all" } },
  { digests: ["digest-1"], query: { kind: "all" } },
  { query: parseTraceQuery("tag.region=eu OR stock") },
  { query: parseTraceQuery("tag.region=eu") },
  { query: parseTraceQuery("revision=r1 tag.region!=us OR revision=r2") },
  { digests: [encodeActionDigest({ namespace: "web", action: "Cart#show" })], query: { kind: "all" } },
  {
    digests: [
      encodeErrorDigest("Timeout", { namespace: "web", action: "Cart#show" }),
      encodeErrorDigest("KeyError", { namespace: "web", action: "GET /cart" }),
    ],
    query: { kind: "all" },
  },
  {
    digests: ["digest-1", encodeErrorDigest("Timeout", { namespace: "web", action: "Cart#pay" })],
    query: { kind: "all" },
  },
];

describe("listSummaries in windows", () => {
  test("chooses the rows of the whole range, in order, for any filter, order and position", async () => {
    const law = fc.asyncProperty(
      fc.nat(1_000),
      fc.constantFrom("requests" as const, "errors" as const),
      fc.constantFrom("asc" as const, "desc" as const),
      fc.constantFrom(...filters),
      fc.option(fc.integer({ min: -2 * day, max: 2 * day }), { nil: undefined }),
      // Small budgets make the listing read all exceptions instead of windows.
      fc.constantFrom(4, 1_000_000),
      fc.boolean(),
      async (seed, candidates, order, filter, position, limit, isPart) => {
        const spans = stretchTraces(seed);
        const beyond = position === undefined ? undefined : fromMillis(midnight + position);
        const budget = candidates === "errors" ? createUnenforcedBudget(limit) : createBudget(1_000_000);
        const query = {
          candidates,
          filter,
          by: "time",
          order,
          beyond,
          range: isPart ? later : range,
        } as const;
        expect(await listRows(spans, query, budget)).toEqual(await listPlainly(spans, query));
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(80) });
  });

  test("does not depend on what a store leaves out, nor on which failed traces it lists", async () => {
    const law = fc.asyncProperty(
      fc.nat(1_000),
      fc.constantFrom("requests" as const, "errors" as const),
      fc.constantFrom("time" as const, "duration" as const),
      fc.constantFrom(...filters),
      fc.constantFrom(4, 1_000_000),
      fc.nat(),
      async (seed, candidates, by, filter, limit, last) => {
        const spans = stretchTraces(seed);
        // The first window has a span.
        const to = spans[last % spans.length]?.end ?? later.to;
        const query = { candidates, by, filter, order: "desc", range: { from: range.from, to } } as const;
        const found = await listRows(spans, query, createUnenforcedBudget(limit), createWindowReader(spans));
        expect(found).toEqual(await listPlainly(spans, query));
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(100) });
  });

  test("accepts duration windows cut at any split point of the store", async () => {
    const law = fc.asyncProperty(
      fc.nat(1_000),
      fc.constantFrom("asc" as const, "desc" as const),
      fc.constantFrom(...filters),
      fc.option(fc.nat(), { nil: undefined }),
      fc.array(fc.constantFrom(0, 1, 2, 30), { minLength: 1, maxLength: 4 }),
      fc.constantFrom("requests" as const, "errors" as const),
      async (seed, order, filter, position, hints, candidates) => {
        const spans = [0, 1, 2].flatMap((more) => stretchTraces(seed + 2_000 * more));
        const lengths = [...new Set(spans.map(({ start, end }) => end - start))].sort((a, b) =>
          Number(a - b),
        );
        const beyond = position === undefined ? undefined : lengths[position % lengths.length];
        let calls = 0;
        const cutting: SpanReader = {
          ...createWindowReader(spans),
          // In whole microseconds, so that a bound within one finds all of it.
          findSplitPoint: async ({ pushdown: { minDuration = 0n, maxDuration } = {} }) => {
            const rest = lengths.filter(
              (length) =>
                length + 999n >= minDuration && (maxDuration === undefined || length <= maxDuration + 999n),
            );
            const hint = hints[calls++ % hints.length] ?? 0;
            return (order === "asc" ? rest : rest.reverse())[hint];
          },
        };
        const query = {
          candidates,
          by: "duration",
          filter,
          order,
          beyond,
          range: later,
        } as const;
        const found = await listRows(spans, { ...query, expectedRows: 1 }, createBudget(1_000_000), cutting);
        expect(found).toEqual(await listPlainly(spans, query));
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(120) });
  });

  test.each(["asc", "desc"] as const)("never splits a millisecond between windows, %s", async (order) => {
    const spans = stretchTraces(3).map((span) => ({
      ...span,
      end: (floorToMilli(span.end) + (span.end % 7n)) as Instant,
    }));
    const query = {
      candidates: "requests",
      by: "time",
      filter: everything,
      order,
      beyond: undefined,
      range: { from: (range.from + 5n) as Instant, to: (range.to + 3n) as Instant },
    } as const;
    const scanned: ListingQuery["range"][] = [];
    const plain = createArrayReader(spans);
    const recording: SpanReader = {
      ...plain,
      scan: (scan, ended) => {
        scanned.push(scan.range);
        return plain.scan(scan, ended);
      },
    };
    const found = await listRows(spans, { ...query, expectedRows: 1 }, createBudget(1_000_000), recording);
    expect(found).toEqual(await listPlainly(spans, query));
    expect(new Set(scanned.map(({ from }) => from)).size).toBeGreaterThan(1);
    for (const { from, to } of scanned) {
      expect(from === query.range.from || from % 1_000_000n === 0n).toBe(true);
      expect(to === query.range.to || (to + 1n) % 1_000_000n === 0n).toBe(true);
    }
  });

  test.each(["asc", "desc"] as const)(
    "reads on by duration, %s, over microsecond durations and more than 10,000 equal ones",
    async (order) => {
      const unit = 1_000n;
      const entry = (n: number, micros: bigint, tags: Span["tags"] = {}): Span => {
        const [start, trace_id] = [fromMillis(midnight), n.toString(16).padStart(32, "0")];
        return { ...createSpan({ trace_id, tags }), start, end: (start + micros * unit) as Instant };
      };
      const tied = Array.from({ length: 10_050 }, (_, n) => entry(n, 10n));
      const others = [1n, 9n, 11n, 12n].map((micros, n) => entry(20_000 + n, micros, { plan: "pro" }));
      const spans = [...tied, ...others];
      const lengthOf = ({ start, end }: Span) => (end - start) / unit;
      const reader = createArrayReader(spans);
      const held = ({ pushdown: { minDuration = 0n, maxDuration } = {} }: Pick<SpanScan, "pushdown">) =>
        spans.filter(
          (span) =>
            lengthOf(span) >= minDuration / unit &&
            (maxDuration === undefined || lengthOf(span) <= (maxDuration + unit - 1n) / unit),
        );
      const coarse: SpanReader = {
        ...reader,
        scan: (query, signal) => createArrayReader(held(query)).scan(query, signal),
        findSplitPoint: async (query) => {
          const lengths = held(query)
            .map(lengthOf)
            .sort((a, b) => Number(a - b));
          const found = (query.order === "asc" ? lengths : lengths.reverse())[query.nth - 1];
          return found && found * unit;
        },
      };
      const query = { by: "duration", order, filter: { query: parseTraceQuery("tag.plan:p") } } as const;
      const rows = await listRows(spans, query, createBudget(5 * spans.length), coarse);
      const lengths = [1_000n, 9_000n, 11_000n, 12_000n];
      expect(rows.map(({ duration }) => duration)).toEqual(order === "asc" ? lengths : lengths.reverse());
    },
  );

  test("reads little for a first page", async () => {
    const spans = Array.from({ length: 50 }, (_, seed) => stretchTraces(seed)).flat();
    const budget = createBudget(spans.length / 10);
    const query = createQuery({ range: { from: range.from, to: center }, budget });
    const first = await listSummaries(createArrayReader(spans), query, signal).next();
    expect(first.value?.length).toBeGreaterThanOrEqual(1);
  });
});

/** A budget with a small limit that is never enforced. */
function createUnenforcedBudget(limit: number): Budget {
  return { limit, spend: () => {} };
}
